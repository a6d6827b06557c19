//! Listening on a TCP port or a Unix socket, and serving HTTP/1.1 there within bounds.

use agent_base::error::{Error, Result};
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// A client that has not sent the head of its request by then is disconnected.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// The time for which requests may go on once the server was asked to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// After a failed `accept` (no descriptors left, for example).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
const MAX_HEADERS: usize = 100;
/// The head of a request, and what is read ahead of its body.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The first byte of a greeting of TLS. No request in plain text begins with it.
const TLS_HANDSHAKE: u8 = 0x16;
/// Connections at a time; further ones wait in the kernel's queue.
pub const DEFAULT_MAX_CONNECTIONS: usize = 1024;

/// The address of a server: `HOST:PORT` with a numeric host, or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Port 0 takes a free one.
    Tcp(SocketAddr),
    /// A socket that only this user can open.
    Unix(PathBuf),
}

impl Address {
    /// Returns whether only programs of this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("unix: needs a path".into())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        numeric
            .as_deref()
            .unwrap_or(text)
            .parse()
            .map(Self::Tcp)
            .map_err(|_| format!("{text:?} is not a valid address (127.0.0.1:8080, [::1]:8080 or unix:PATH)"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The address that a request came from: an extension of each request. `None` for a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub Option<SocketAddr>);

/// A bound socket. A Unix socket's file is removed when this is dropped.
pub struct Listener {
    socket: ListenSocket,
    address: Address,
    max_connections: usize,
    tls: Option<TlsAcceptor>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.address)
    }
}

#[derive(Debug)]
enum ListenSocket {
    Tcp(TcpListener),
    /// With the device and inode of its file, which alone is removed at the end.
    Unix(UnixListener, (u64, u64)),
}

impl Listener {
    /// Binds `address`. A socket file that a killed server left is replaced.
    ///
    /// # Errors
    /// `Usage` if the address is in use or cannot be bound by this user.
    pub async fn bind(address: &Address) -> Result<Self> {
        let failed = |error: std::io::Error| {
            let hint = match error.kind() {
                ErrorKind::AddrInUse => {
                    "another program listens there: choose another port, or port 0 for a free one"
                }
                ErrorKind::AlreadyExists => "something that is not a socket is there: choose another path",
                ErrorKind::PermissionDenied => {
                    "choose a port above 1023, or a directory that you can write to"
                }
                _ => "choose an address of this machine, such as 127.0.0.1:0",
            };
            Error::usage(format!("cannot listen on {address}")).caused_by(error).hint(hint)
        };
        let (socket, address) = match address {
            Address::Tcp(wanted) => {
                let socket = TcpListener::bind(wanted).await.map_err(failed)?;
                let bound = socket.local_addr().map_err(failed)?;
                (ListenSocket::Tcp(socket), Address::Tcp(bound))
            }
            Address::Unix(path) => {
                let (socket, file) = bind_unix(path).await.map_err(failed)?;
                (ListenSocket::Unix(socket, file), address.clone())
            }
        };
        Ok(Self { socket, address, max_connections: DEFAULT_MAX_CONNECTIONS, tls: None })
    }

    /// Accepts this many connections at a time instead of [`DEFAULT_MAX_CONNECTIONS`].
    pub fn with_max_connections(mut self, max_connections: usize) -> Self {
        self.max_connections = max_connections;
        self
    }

    /// Also takes TLS, on the same port.
    pub fn with_tls(mut self, acceptor: TlsAcceptor) -> Self {
        self.tls = Some(acceptor);
        self
    }

    /// The address with the port that was bound.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves `router` until `stop` completes; then requests have three seconds to end. Each request carries a [`Peer`].
    pub async fn serve(self, router: Router, stop: impl Future<Output = ()>) {
        let slots = Arc::new(Semaphore::new(self.max_connections));
        // Each connection has a receiver: it hears of the end, and is waited for until it drops it.
        let (ending, connections) = watch::channel(());
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (self.accept().await, slot)
            };
            let (accepted, slot) = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = accepted => accepted,
            };
            let Ok((connection, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            };
            let service = TowerToHyperService::new(router.clone().layer(axum::Extension(peer)));
            let (mut ended, tls) = (connections.clone(), self.tls.clone());
            tokio::spawn(async move {
                let stream = tokio::select! {
                    stream = tokio::time::timeout(HEADER_TIMEOUT, connection.open(tls)) => stream,
                    _ = ended.changed() => return,
                };
                let Ok(Ok(stream)) = stream else { return };
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIMEOUT)
                    .max_headers(MAX_HEADERS)
                    .max_buf_size(MAX_HEAD_BYTES)
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades();
                let mut connection = std::pin::pin!(connection);
                // A client that breaks the protocol or goes away ends its own connection alone.
                tokio::select! {
                    _ = connection.as_mut() => {}
                    _ = ended.changed() => {
                        connection.as_mut().graceful_shutdown();
                        let _ = connection.await;
                    }
                }
                drop(slot);
            });
        }
        // Nobody is to connect to a server that answers no more.
        drop(self);
        drop(connections);
        ending.send_replace(());
        let _ = tokio::time::timeout(STOP_TIMEOUT, ending.closed()).await;
    }

    async fn accept(&self) -> std::io::Result<(Accepted, Peer)> {
        Ok(match &self.socket {
            ListenSocket::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                stream.set_nodelay(true)?;
                (Accepted::Tcp(stream), Peer(Some(peer)))
            }
            ListenSocket::Unix(socket, _) => (Accepted::Unix(socket.accept().await?.0), Peer(None)),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (Address::Unix(path), ListenSocket::Unix(_, file)) = (&self.address, &self.socket)
            && std::fs::symlink_metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == *file)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// An accepted connection.
enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Accepted {
    /// Returns what its requests come on: decrypted, where the client greets with TLS.
    async fn open(self, tls: Option<TlsAcceptor>) -> std::io::Result<Box<dyn Stream>> {
        Ok(match (self, tls) {
            (Self::Tcp(stream), Some(tls)) => {
                let mut first = [0];
                stream.peek(&mut first).await?;
                match first[0] {
                    TLS_HANDSHAKE => Box::new(tls.accept(stream).await?),
                    _ => Box::new(stream),
                }
            }
            (Self::Tcp(stream), None) => Box::new(stream),
            (Self::Unix(stream), _) => Box::new(stream),
        })
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// The socket is made under a private name and renamed, so that nobody connects before its mode is set.
async fn bind_unix(path: &Path) -> std::io::Result<(UnixListener, (u64, u64))> {
    if std::fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
        return Err(ErrorKind::AlreadyExists.into());
    }
    if UnixStream::connect(path).await.is_ok() {
        return Err(ErrorKind::AddrInUse.into());
    }
    let mut private = path.as_os_str().to_owned();
    private.push(format!(".{}", std::process::id()));
    let private = PathBuf::from(private);
    let _ = std::fs::remove_file(&private);
    let listener = UnixListener::bind(&private)?;
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600))?;
    let file = std::fs::symlink_metadata(&private)?;
    std::fs::rename(&private, path)?;
    Ok((listener, (file.dev(), file.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn hello() -> Router {
        Router::new().route(
            "/",
            axum::routing::get(
                |peer: axum::Extension<Peer>| async move { format!("{}", peer.0.0.is_some()) },
            ),
        )
    }

    async fn answer(mut stream: impl Stream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[test]
    fn addresses_are_read_and_printed_alike() {
        for text in ["127.0.0.1:0", "[::1]:8080", "unix:/run/agent.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("localhost:80".parse::<Address>().unwrap().to_string(), "127.0.0.1:80");
        for text in ["", "8080", "example.org:80", "unix:", "127.0.0.1:99999"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        assert!(!"0.0.0.0:80".parse::<Address>().unwrap().is_local());
    }

    #[tokio::test]
    async fn a_port_is_served_until_the_server_stops() {
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).await.unwrap();
        let Address::Tcp(address) = *listener.address() else { panic!("a TCP address") };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(listener.serve(hello(), async { drop(stopped.await) }));
        assert!(answer(TcpStream::connect(address).await.unwrap()).await.ends_with("true"));
        // A connection without a request does not hold the server.
        let _silent = TcpStream::connect(address).await.unwrap();
        stop.send(()).unwrap();
        server.await.unwrap();
    }

    /// A bug: the port took connections, to which nothing answered, until the last request had ended.
    #[tokio::test]
    async fn a_server_that_stops_takes_no_more_connections() {
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).await.unwrap();
        let Address::Tcp(address) = *listener.address() else { panic!("a TCP address") };
        let (begun, release) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (begins, waits) = (Arc::clone(&begun), Arc::clone(&release));
        let wait = || async move {
            begins.add_permits(1);
            drop(waits.acquire().await);
            "answered"
        };
        let router = Router::new().route("/", axum::routing::get(wait));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(listener.serve(router, async { drop(stopped.await) }));
        let asked = tokio::spawn(answer(TcpStream::connect(address).await.unwrap()));
        drop(begun.acquire().await);
        stop.send(()).unwrap();
        while TcpStream::connect(address).await.is_ok() {
            assert!(!server.is_finished(), "it took connections until its end");
            tokio::task::yield_now().await;
        }
        release.add_permits(1);
        assert!(asked.await.unwrap().ends_with("answered"));
        server.await.unwrap();
    }

    /// A bug: a file at that path was replaced by the socket, and removed with it.
    #[tokio::test]
    async fn only_a_socket_is_replaced_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        std::fs::write(&path, "mine").unwrap();
        let refused = Listener::bind(&Address::Unix(path.clone())).await.unwrap_err();
        assert!(refused.hint_text().unwrap().contains("not a socket"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        let socket = Address::Unix(directory.path().join("socket"));
        let first = Listener::bind(&socket).await.unwrap();
        std::fs::remove_file(directory.path().join("socket")).unwrap();
        let second = Listener::bind(&socket).await.unwrap();
        drop(first);
        UnixStream::connect(directory.path().join("socket")).await.unwrap();
        drop(second);
    }

    #[tokio::test]
    async fn a_unix_socket_is_private_and_replaces_a_stale_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = Listener::bind(&Address::Unix(path.clone())).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(
            Listener::bind(&Address::Unix(path.clone()))
                .await
                .unwrap_err()
                .to_string()
                .contains("cannot listen")
        );
        let server = tokio::spawn(listener.serve(hello(), std::future::pending()));
        assert!(answer(UnixStream::connect(&path).await.unwrap()).await.ends_with("false"));
        server.abort();
        let _ = server.await;
        assert!(!path.exists());
    }
}
