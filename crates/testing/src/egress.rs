//! A server that answers a sandbox from beyond its network interface, in a network namespace where every address leads here. Only root can
//! enter the namespace of another process.

use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Where clouds have the data of a machine.
pub const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
/// The ports at which it listens.
const PORTS: [u16; 3] = [53, 80, 443];
/// How long a service waits for what a client sends.
const DEADLINE: Duration = Duration::from_secs(10);

/// Answers a connection to an address.
pub type Service = fn(TcpStream, SocketAddr);

/// A listener in a namespace, until this is dropped.
pub struct Egress(Vec<Arc<TcpListener>>);

impl Egress {
    /// In the network of a process.
    pub fn of_process(process: i32, service: Service) -> Option<Self> {
        let namespace = File::open(format!("/proc/{process}/ns/net"));
        let entered = std::thread::spawn(move || {
            let namespace = namespace?;
            // SAFETY: takes no pointer; the thread ends here.
            checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
            Self::here(service)
        });
        possible(entered.join().expect("it ends"))
    }

    /// Returns what `run` returns in a thread whose network is this alone, as is that of the processes that it starts.
    pub fn alone<T: Send + 'static>(service: Service, run: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let entered = std::thread::spawn(move || {
            // SAFETY: takes no pointer; the thread ends here.
            checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            let _egress = Self::here(service)?;
            Ok(run())
        });
        possible(entered.join().expect("it ends"))
    }

    /// In the network of this thread.
    fn here(service: Service) -> io::Result<Self> {
        raise_loopback()?;
        lead_every_address_here()?;
        let listen = |port: u16| {
            let listener = Arc::new(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?);
            let accepting = Arc::clone(&listener);
            std::thread::spawn(move || {
                while let Ok((stream, _)) = accepting.accept() {
                    std::thread::spawn(move || {
                        let address = stream.local_addr().expect("an address");
                        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
                        service(stream, address);
                    });
                }
            });
            Ok(listener)
        };
        PORTS.into_iter().map(listen).collect::<io::Result<_>>().map(Self)
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        for listener in &self.0 {
            // SAFETY: takes no pointer, and the descriptor is open. Ends what waits for a client.
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

/// `None` (with one line) where this process may not have namespaces, unless this is CI.
fn possible<T>(entered: io::Result<T>) -> Option<T> {
    match entered {
        Ok(entered) => Some(entered),
        Err(error) if !geteuid().is_root() && std::env::var_os("CI").is_none() => {
            eprintln!("not behind rules for what goes out: {error}");
            None
        }
        Err(error) => panic!("a network namespace: {error}"),
    }
}

/// E2B's, of a sandbox without a network. Its firewall redirects every connection to a proxy, which accepts it, at ports 80 and 443
/// reads who is asked for, and closes it. What Firecracker answers does not get as far.
pub fn of_e2b(mut stream: TcpStream, address: SocketAddr) {
    match (address.ip(), address.port()) {
        (METADATA, 80) => {
            read_some(&mut stream);
            let text = "No MMDS token provided. Use `X-metadata-token` or `X-aws-ec2-metadata-token` header to specify the session token.";
            let head = "HTTP/1.1 401 \r\nServer: Firecracker API\r\nConnection: keep-alive\r\nContent-Type: text/plain";
            let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
            let _ = stream.write_all(answer.as_bytes());
            // The connection stays.
            read_some(&mut stream);
        }
        (_, 80 | 443) => drop(read_some(&mut stream)),
        _ => {}
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Returns what arrives next, as far as it does.
pub fn read_some(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let length = stream.read(&mut bytes).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn raise_loopback() -> io::Result<()> {
    // SAFETY: takes no pointer.
    let socket = checked(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was just made and is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: every field may be zero.
    let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
    interface.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    interface.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: the request reads an `ifreq`, which outlives the call.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const interface) }).map(drop)
}

/// `ip route add local 0.0.0.0/0 dev lo`: every address is one of this machine's (rtnetlink(7)).
fn lead_every_address_here() -> io::Result<()> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointer.
    let socket = checked(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: the descriptor was just made and is nobody else's.
    let mut socket = unsafe { File::from_raw_fd(socket) };
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    let route = [
        libc::AF_INET as u8,
        0,
        0,
        0,
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
        0,
        0,
        0,
        0,
    ];
    // The loopback interface is the first of each namespace.
    let interface = [&8u16.to_ne_bytes()[..], &libc::RTA_OIF.to_ne_bytes(), &1u32.to_ne_bytes()].concat();
    let length = (16 + route.len() + interface.len()) as u32;
    let message = [
        &length.to_ne_bytes()[..],
        &libc::RTM_NEWROUTE.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &[0; 8],
        &route,
        &interface,
    ];
    socket.write_all(&message.concat())?;
    // An error message, whose number is zero where there is none.
    let mut answer = [0; 4096];
    let length = socket.read(&mut answer)?;
    let number =
        answer[..length].get(16..20).and_then(|number| number.try_into().ok()).map(i32::from_ne_bytes);
    match number {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(-number)),
        None => Err(io::Error::other("the kernel does not answer")),
    }
}
