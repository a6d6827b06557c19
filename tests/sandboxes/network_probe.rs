//! How the guest finds out whether a network is there: `guest probe`, where every address leads to what answers as is said here.

use agent_testing::egress::{Egress, METADATA, Service, of_e2b, read_some};
use agent_testing::guest::program;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// The addresses that a provider's sandbox tries.
const ADDRESSES: &str =
    "1.1.1.1:443/one.one.one.one,8.8.8.8:53,151.101.0.223:443/pypi.org,169.254.169.254:80";

/// Returns what the probe prints, and how long it took. `None` where no namespace can be made.
fn probe(addresses: &'static str, service: Service) -> Option<(String, Duration)> {
    let guest = program();
    Egress::alone(service, move || {
        let started = Instant::now();
        let output = Command::new(guest).args(["probe", addresses]).env_clear().output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (String::from_utf8(said).expect("text").trim().to_owned(), started.elapsed())
    })
}

/// It was taken for an open network: its proxy accepts every connection, and Firecracker's metadata service answers.
#[test]
fn a_network_that_is_blocked_as_e2b_blocks_it_is_not_open() {
    let Some((said, time)) = probe(ADDRESSES, of_e2b) else { return };
    assert_eq!(said, "isolated");
    assert!(time < Duration::from_secs(1), "{time:?}");
}

#[test]
fn a_proxy_that_accepts_connections_and_is_silent_is_waited_for_and_is_not_an_open_network() {
    let silent = |mut stream: TcpStream, _: SocketAddr| while !read_some(&mut stream).is_empty() {};
    let Some((said, time)) = probe(ADDRESSES, silent) else { return };
    assert_eq!(said, "isolated");
    assert!(time < Duration::from_secs(5), "{time:?}");
}

#[test]
fn a_network_in_which_nothing_listens_is_not_open() {
    let Some((said, _)) = probe("1.1.1.1:444,169.254.169.254:81", of_e2b) else { return };
    assert_eq!(said, "isolated");
}

fn tls(mut stream: TcpStream, address: SocketAddr) {
    let asked = read_some(&mut stream);
    let name = agent::network::read_hello(&asked);
    if address.port() == 443
        && matches!(name, Ok(agent::network::Hello::Tls(Some(name))) if name == "pypi.org")
    {
        // The beginning of a ServerHello.
        stream.write_all(&[22, 3, 3, 0, 90, 2]).expect("sent");
    }
}

fn name_server(mut stream: TcpStream, address: SocketAddr) {
    let asked = read_some(&mut stream);
    if address.port() == 53 && asked.len() == 19 && asked[..2] == [0, 17] {
        stream.write_all(&asked).expect("sent");
    }
}

fn cloud(mut stream: TcpStream, address: SocketAddr) {
    let asked = read_some(&mut stream);
    if address == SocketAddr::from((METADATA, 80))
        && asked.starts_with(b"GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n")
    {
        stream
            .write_all(b"HTTP/1.1 401 Unauthorized\r\nServer: EC2ws\r\nContent-Length: 0\r\n\r\n")
            .expect("sent");
    }
}

/// Nothing is at its place but what calls itself so.
fn firecracker_elsewhere(mut stream: TcpStream, address: SocketAddr) {
    read_some(&mut stream);
    if address == SocketAddr::from(([1, 1, 1, 1], 80)) {
        stream.write_all(b"HTTP/1.1 200 \r\nServer: Firecracker API\r\n\r\n").expect("sent");
    }
}

#[test]
fn an_answer_of_any_service_shows_that_the_network_is_open() {
    let services: [(Service, &'static str, &str); 4] = [
        (tls, ADDRESSES, "151.101.0.223:443"),
        (name_server, ADDRESSES, "8.8.8.8:53"),
        (cloud, ADDRESSES, "169.254.169.254:80"),
        (firecracker_elsewhere, "1.1.1.1:80", "1.1.1.1:80"),
    ];
    // A probe that finds one tries again, for as long as a cluster may take to apply its policies.
    std::thread::scope(|scope| {
        for (service, addresses, open) in services {
            scope.spawn(move || {
                let Some((said, _)) = probe(addresses, service) else { return };
                assert_eq!(said, format!("guest: the network is open: {open} can be reached"));
            });
        }
    });
}
