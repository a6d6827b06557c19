//! A web server on this machine's loopback: files over HTTP or HTTPS, and a record of the requests.

use crate::endpoint::{duplex, tls_config};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The certificate of the server over HTTPS, for 127.0.0.2 and `server.test`: valid until 2126, and its own CA.
pub const CERTIFICATE: &str = include_str!("tls/server.pem");

/// Not 127.0.0.1: that is the sandbox's own loopback, which no program reaches through a proxy.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A running server. It serves until the test process ends.
pub struct Site {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<BTreeMap<String, SiteAnswer>>,
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

#[derive(Clone)]
enum SiteAnswer {
    File(Vec<u8>),
    Redirect(String),
}

impl Site {
    /// A server over plain HTTP.
    pub fn http() -> Self {
        Self::start(None)
    }

    /// A server over HTTPS.
    pub fn https() -> Self {
        Self::start(Some(tls_config(CERTIFICATE.as_bytes(), include_bytes!("tls/server-key.pem"))))
    }

    fn start(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind((ADDRESS, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, tls) = (Arc::clone(&serving), tls.clone());
                shared.connections.fetch_add(1, Ordering::SeqCst);
                // A client may close its connection at any time.
                std::thread::spawn(move || drop(serve(stream, tls, &shared)));
            }
        });
        Self { address, shared }
    }

    /// Serves a file; its path begins with a slash.
    pub fn file(self, path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.shared.files.lock().unwrap().insert(path.to_owned(), SiteAnswer::File(bytes.into()));
        self
    }

    /// Serves every file below a directory of this machine.
    pub fn directory(self, path: &str, directory: &Path) -> Self {
        std::fs::read_dir(directory).expect("a directory").flatten().fold(self, |site, entry| {
            let inside = format!("{path}/{}", entry.file_name().to_str().expect("UTF-8"));
            match entry.file_type().expect("a type").is_dir() {
                true => site.directory(&inside, &entry.path()),
                false => site.file(&inside, std::fs::read(entry.path()).expect("a file")),
            }
        })
    }

    /// Redirects requests for `path`.
    pub fn redirect(self, path: &str, to: &str) -> Self {
        self.shared.files.lock().unwrap().insert(path.to_owned(), SiteAnswer::Redirect(to.to_owned()));
        self
    }

    /// The address and port as `--network` takes them.
    pub fn host_and_port(&self) -> String {
        self.address.to_string()
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The heads of the requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, tls: Option<Arc<rustls::ServerConfig>>, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(duplex(stream, tls)?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let path = head.split_whitespace().nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default().to_owned();
        let length =
            head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        std::io::copy(&mut (&mut reader).take(length.unwrap_or(0)), &mut std::io::sink())?;
        let has_body = !head.starts_with("HEAD ");
        let is_last = head.to_lowercase().contains("\r\nconnection: close");
        shared.requests.lock().unwrap().push(head);
        let answer = shared.files.lock().unwrap().get(&path).cloned();
        let (status, field, body) = match answer {
            Some(SiteAnswer::File(bytes)) => ("200 OK", String::new(), bytes),
            Some(SiteAnswer::Redirect(to)) => ("302 Found", format!("Location: {to}\r\n"), Vec::new()),
            None => ("404 Not Found", String::new(), b"not here\n".to_vec()),
        };
        let kind = if path.ends_with('/') || path.ends_with(".html") {
            "text/html"
        } else {
            "application/octet-stream"
        };
        let writer = reader.get_mut();
        write!(
            writer,
            "HTTP/1.1 {status}\r\n{field}Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )?;
        if has_body {
            writer.write_all(&body)?;
        }
        writer.flush()?;
        if is_last {
            return Ok(());
        }
    }
}
