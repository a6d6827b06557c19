//! `guest probe ADDRESS:PORT[/NAME],...`, and the same before a provider's machine becomes a sandbox: tries whether a network
//! is there.
//!
//! A connection that is made proves nothing: some providers lead every one to a proxy of their own, which accepts it, reads
//! what is asked for and closes it where that is not allowed. So every address is asked what its service answers: at port 53
//! the name system, at port 80 a web server, at all others TLS, for `NAME` if there is one. Any answer shows that the network
//! is open; a packet that is dropped, a refusal, an end and silence show that it is not.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The time limit for making a connection: a first packet that was lost is sent again after a second (RFC 6298).
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1300);
/// The time limit for an answer after that: a proxy that has accepted may have to connect first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 4096;
/// The delay with which the policies of a pod may begin to hold: network plugins apply them after its start, and so do
/// some providers with a machine's.
const POLICY_DELAY: Duration = Duration::from_secs(15);
/// Between two trials of the network.
const POLICY_PAUSE: Duration = Duration::from_millis(200);
/// The port at which the kubelet of every node of a cluster listens.
const KUBELET_PORT: &str = "10250";

/// `guest probe …`. Fails if any of the addresses still answers after [`POLICY_DELAY`]; in a pod also, if its node or the API
/// server does. Otherwise it prints that the network is not there.
pub fn main(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (Some(probes), None) = (arguments.next(), arguments.next()) else {
        return Err(crate::USAGE.to_owned());
    };
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let server = variable("KUBERNETES_SERVICE_HOST").zip(variable("KUBERNETES_SERVICE_PORT"));
    let server = server.map(|(host, port)| address(&host, &port));
    let node = variable("KUBERNETES_NODE_ADDRESS").map(|node| address(&node, KUBELET_PORT));
    let probes: Vec<String> = std::iter::once(probes).chain(server).chain(node).collect();
    prove_isolation(&probes.join(","))?;
    println!("isolated");
    Ok(())
}

/// An address of either family with its port.
fn address(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Fails if any of the addresses still answers after [`POLICY_DELAY`].
pub fn prove_isolation(probes: &str) -> Result<(), String> {
    let started = Instant::now();
    while let Err(open) = try_all(probes) {
        if started.elapsed() >= POLICY_DELAY {
            return Err(open);
        }
        thread::sleep(POLICY_PAUSE);
    }
    Ok(())
}

/// Fails if any of the addresses answers.
fn try_all(probes: &str) -> Result<(), String> {
    let attempts = probes.split(',').filter_map(|probe| {
        let (address, name) = probe.split_once('/').unwrap_or((probe, ""));
        let (address, name) = (address.parse::<SocketAddr>().ok()?, name.to_owned());
        Some(thread::spawn(move || answers(address, &name).then_some(address)))
    });
    // All are begun at once, and all are waited for: forking needs a single thread.
    let attempts: Vec<_> = attempts.collect();
    let open = attempts.into_iter().filter_map(|attempt| attempt.join().ok().flatten());
    let open: Vec<String> = open.map(|address| address.to_string()).collect();
    match open.is_empty() {
        true => Ok(()),
        false => Err(format!("the network is open: {} can be reached", open.join(", "))),
    }
}

/// Returns whether a service answers at the address.
fn answers(address: SocketAddr, name: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) else { return false };
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let question = match address.port() {
        53 => name_query(),
        80 => format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", address.ip()).into_bytes(),
        _ => client_hello(name),
    };
    // Who closes before may have answered before.
    let _ = stream.write_all(&question);
    let is_metadata = is_metadata_service(address);
    let (mut answer, mut piece) = (Vec::new(), [0; 512]);
    while answer.is_empty() || is_metadata && !has_head(&answer) && answer.len() < MAX_ANSWER {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            break;
        }
        match stream.read(&mut piece) {
            Ok(length @ 1..) => answer.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => break,
        }
    }
    let is_nobody = answer.is_empty() || is_metadata && is_of_firecracker(&answer);
    !is_nobody
}

/// Returns whether it is where clouds have the data of a machine.
fn is_metadata_service(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V4(ip) if ip.is_link_local()) && address.port() == 80
}

fn has_head(answer: &[u8]) -> bool {
    answer.windows(4).any(|window| window == b"\r\n\r\n")
}

/// Returns whether Firecracker has answered, which does so within the machine's own network device, before any rule of a firewall: its
/// metadata service (MMDS) has what the provider has put there, and leads nowhere.
fn is_of_firecracker(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let mut lines = text.split("\r\n");
    let is_http = lines.next().is_some_and(|line| line.starts_with("HTTP/1."));
    let names_server = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some(name.eq_ignore_ascii_case("server") && value.trim() == "Firecracker API")
    };
    is_http && lines.take_while(|line| !line.is_empty()).any(|line| names_server(line) == Some(true))
}

/// Asks a name server for those of the root.
fn name_query() -> Vec<u8> {
    let flags_and_counts = [1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let (id, root_servers) = ([0x61, 0x67], [0, 0, 2, 0, 1]);
    with_length(&[&id[..], &flags_and_counts, &root_servers].concat())
}

/// The first message of a TLS client, which every server since TLS 1.2 takes up. Nothing is encrypted with what it names.
fn client_hello(name: &str) -> Vec<u8> {
    const RANDOM: [u8; 32] = [7; 32];
    const SUITES: [u8; 22] = [
        0x13, 0x01, 0x13, 0x02, 0x13, 0x03, 0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x2c, 0xc0, 0x30, 0xcc, 0xa9, 0xcc,
        0xa8, 0x00, 0x9c, 0x00, 0x2f,
    ];
    const SIGNATURES: [u8; 18] = [4, 3, 8, 4, 4, 1, 5, 3, 8, 5, 5, 1, 8, 6, 6, 1, 8, 7];
    const X25519: [u8; 2] = [0, 0x1d];
    let extension = |kind: u8, content: &[u8]| [&[0, kind][..], &with_length(content)].concat();
    let mut extensions = Vec::new();
    if !name.is_empty() {
        let host_name = [&[0][..], &with_length(name.as_bytes())].concat();
        extensions.push(extension(0, &with_length(&host_name)));
    }
    extensions.extend([
        // Groups: X25519, P-256, P-384.
        extension(10, &with_length(&[0, 0x1d, 0, 0x17, 0, 0x18])),
        extension(11, &[1, 0]),
        extension(13, &with_length(&SIGNATURES)),
        // Versions: 1.3, 1.2.
        extension(43, &[4, 3, 4, 3, 3]),
        extension(45, &[1, 1]),
        extension(51, &with_length(&[&X25519[..], &with_length(&RANDOM)].concat())),
    ]);
    let session = [&[32][..], &RANDOM].concat();
    let parts =
        [&[3, 3][..], &RANDOM, &session, &with_length(&SUITES), &[1, 0], &with_length(&extensions.concat())];
    let message = [&[1, 0][..], &with_length(&parts.concat())].concat();
    [&[22, 3, 1][..], &with_length(&message)].concat()
}

/// Bytes behind their number, of two bytes. There are never more.
fn with_length(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}
