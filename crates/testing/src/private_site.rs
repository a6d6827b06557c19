//! A web server over HTTPS that answers only to those who send a token, and records exactly what it was sent.

use crate::endpoint::{Duplex, duplex, tls_config};
use crate::site::ADDRESS;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The authority that signed the server's certificate.
pub const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tls/authority.pem");
/// The files that the server gives for the token, and takes as well.
pub const EXCHANGED: &str = "eyJhbGciOiJub25lIn0.made-up_token.of-a-registry";
/// How long a stream waits for its reader.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs git on this machine.
pub fn on_host(directory: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "init.defaultBranch=main"];
    let output =
        Command::new("git").current_dir(directory).args(identity).args(arguments).output().expect("git");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A directory with the repository `private.git`, whose one commit has `file`.
pub fn private_repository() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    on_host(directory.path(), &["init", "work"]);
    let work = directory.path().join("work");
    std::fs::write(work.join("file"), "content\n").expect("a file");
    on_host(&work, &["add", "."]);
    on_host(&work, &["commit", "-m", "first"]);
    on_host(directory.path(), &["clone", "--bare", "work", "private.git"]);
    directory
}

/// A running server. It serves until the test process ends.
pub struct PrivateSite {
    address: SocketAddr,
    shared: Arc<PrivateSiteShared>,
}

struct PrivateSiteShared {
    token: &'static str,
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Bare repositories, below `/git/`.
    repositories: Option<PathBuf>,
    requests: Mutex<Vec<Sent>>,
    /// The reader of a stream has asked for its next part.
    has_gone_on: (Mutex<bool>, Condvar),
}

/// A request as it arrived.
#[derive(Clone)]
pub struct Sent {
    pub head: String,
    pub body: Vec<u8>,
    pub is_authorised: bool,
}

impl PrivateSite {
    /// Demands `token`. Serves the bare repositories in a directory, if there is one.
    pub fn start(token: &'static str, repositories: Option<&Path>) -> Self {
        let tls = tls_config(include_bytes!("tls/leaf.pem"), include_bytes!("tls/leaf-key.pem"));
        let listener = TcpListener::bind((ADDRESS, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(PrivateSiteShared {
            token,
            files: Mutex::default(),
            repositories: repositories.map(Path::to_owned),
            requests: Mutex::default(),
            has_gone_on: Default::default(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, tls) = (Arc::clone(&serving), Arc::clone(&tls));
                // A client may close its connection at any time.
                std::thread::spawn(move || drop(serve(stream, tls, &shared)));
            }
        });
        Self { address, shared }
    }

    /// Serves a file; its path begins with a slash.
    pub fn file(self, path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.shared.files.lock().unwrap().insert(path.to_owned(), bytes.into());
        self
    }

    /// The address and port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// A proxy of this machine's that leads to the server, whatever its name: for clients that want one.
    pub fn behind_proxy(&self) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (proxy, site) = (listener.local_addr().expect("an address"), self.address);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || drop(tunnel(client, site)));
            }
        });
        format!("http://{proxy}")
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Sent> {
        self.shared.requests.lock().unwrap().clone()
    }
}

fn tunnel(client: TcpStream, site: SocketAddr) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let server = TcpStream::connect(site)?;
    (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let mut to_server = server.try_clone()?;
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut reader, &mut to_server);
        to_server.shutdown(Shutdown::Write)
    });
    std::io::copy(&mut &server, &mut &client)?;
    client.shutdown(Shutdown::Write)
}

/// Reads requests as a lenient server does.
fn serve(
    stream: TcpStream,
    tls: Arc<rustls::ServerConfig>,
    shared: &PrivateSiteShared,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(duplex(stream, Some(tls))?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if head.starts_with("GET /socket ") {
            return socket(&mut reader, head, shared);
        }
        let body = body(&mut reader, &head)?;
        let is_authorised = is_authorised(&head, shared.token);
        let sent = Sent { head, body, is_authorised };
        shared.requests.lock().unwrap().push(sent.clone());
        answer(reader.get_mut(), &sent, shared)?;
    }
}

/// Answers one line over another protocol, with the token, and closes.
fn socket(
    reader: &mut BufReader<Box<dyn Duplex>>,
    head: String,
    shared: &PrivateSiteShared,
) -> std::io::Result<()> {
    let is_authorised = is_authorised(&head, shared.token);
    shared.requests.lock().unwrap().push(Sent { head, body: Vec::new(), is_authorised });
    let to = reader.get_mut();
    write!(to, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")?;
    to.flush()?;
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let to = reader.get_mut();
    write!(to, "{} {} end", line.trim(), forms(shared.token).join(" "))?;
    to.flush()
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let is_it = |line: &&'h str| line.split(':').next().is_some_and(|field| field.eq_ignore_ascii_case(name));
    head.lines().skip(1).find(is_it)?.split_once(':').map(|(_, value)| value.trim())
}

fn body(reader: &mut impl BufRead, head: &str) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if field(head, "transfer-encoding").is_none() {
        let length = field(head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        reader.take(length).read_to_end(&mut body)?;
        return Ok(body);
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
        reader.take(size).read_to_end(&mut body)?;
        reader.read_line(&mut String::new())?;
        if size == 0 {
            return Ok(body);
        }
    }
}

fn is_authorised(head: &str, token: &str) -> bool {
    let authorization = field(head, "authorization").unwrap_or_default();
    let in_basic = || {
        let decoded = STANDARD.decode(authorization.strip_prefix("Basic ")?).ok()?;
        String::from_utf8(decoded).ok()?.split_once(':').map(|(_, password)| password == token)
    };
    authorization == format!("Bearer {token}")
        || authorization == format!("Bearer {EXCHANGED}")
        || authorization == format!("token {token}")
        || authorization == token
        || in_basic() == Some(true)
        || field(head, "x-api-key") == Some(token)
        || head
            .lines()
            .next()
            .is_some_and(|line| line.contains(&format!("key={}", token.replace('_', "%5F"))))
}

fn answer(to: &mut Box<dyn Duplex>, sent: &Sent, shared: &PrivateSiteShared) -> std::io::Result<()> {
    let target = sent.head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let token = shared.token;
    if !sent.is_authorised {
        return demand(to, sent, path);
    }
    let known = shared.files.lock().unwrap().get(path).cloned();
    match path {
        "/reflect" => {
            let fields =
                format!("X-Echo: Bearer {token}\r\nSet-Cookie: session=1\r\nAlt-Svc: h3=\":443\"\r\n");
            say(to, "200 OK", &fields, forms(token).join("\n").as_bytes())
        }
        "/reflect-in-pieces" => {
            write!(to, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            for piece in forms(token).join("\n").as_bytes().chunks(5) {
                write!(to, "{:x}\r\n", piece.len())?;
                to.write_all(piece)?;
                to.write_all(b"\r\n")?;
                to.flush()?;
            }
            to.write_all(b"0\r\n\r\n")?;
            to.flush()
        }
        "/token" => {
            let body = format!(
                "{{\"token\": \"{EXCHANGED}\", \"access_token\": \"{EXCHANGED}\", \"expires_in\": 300}}"
            );
            say(to, "200 OK", "Content-Type: application/json\r\n", body.as_bytes())
        }
        "/compressed" => say(to, "200 OK", "Content-Encoding: gzip\r\n", b"not really"),
        "/stream" => {
            write!(to, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")?;
            to.flush()?;
            let (lock, gone_on) = &shared.has_gone_on;
            let waited = gone_on.wait_timeout_while(lock.lock().unwrap(), STREAM_TIMEOUT, |gone| !*gone);
            let last: &[u8] =
                if waited.unwrap().1.timed_out() { b"5\r\nlate\n\r\n" } else { b"5\r\nlast\n\r\n" };
            to.write_all(last)?;
            to.write_all(b"0\r\n\r\n")?;
            to.flush()
        }
        "/go-on" => {
            *shared.has_gone_on.0.lock().unwrap() = true;
            shared.has_gone_on.1.notify_all();
            say(to, "200 OK", "", b"")
        }
        "/length" => say(to, "200 OK", "", sent.body.len().to_string().as_bytes()),
        "/large" => {
            let length = query.trim_start_matches("bytes=").parse().unwrap_or(0);
            write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
            std::io::copy(&mut std::io::repeat(b'x').take(length), to)?;
            to.flush()
        }
        path if path.starts_with("/git/") => git(to, sent, &path[4..], query, shared),
        _ => match known {
            Some(bytes) => say(to, "200 OK", content_type(path), &bytes),
            None => say(to, "404 Not Found", "", b"not here\n"),
        },
    }
}

/// Asks for the token; registries do that by naming where they give one in exchange.
fn demand(to: &mut Box<dyn Duplex>, sent: &Sent, path: &str) -> std::io::Result<()> {
    if !path.starts_with("/v2/") {
        return say(to, "401 Unauthorized", "WWW-Authenticate: Basic realm=\"x\"\r\n", b"a token, please\n");
    }
    let host = field(&sent.head, "host").unwrap_or_default();
    let challenge = format!(
        "WWW-Authenticate: Bearer realm=\"https://{host}/token\",service=\"registry\",scope=\"repository:x:pull\"\r\n"
    );
    say(to, "401 Unauthorized", &challenge, b"{}")
}

/// The token as a careless server repeats it.
pub fn forms(token: &str) -> Vec<String> {
    let encoded = |prefix: &str| STANDARD.encode(format!("{prefix}{token}"));
    let in_url: String = token.bytes().map(|byte| format!("%{byte:02X}")).collect();
    vec![
        token.to_owned(),
        encoded(""),
        encoded("u:"),
        encoded("us:"),
        encoded("use:"),
        token.replace('_', "%5F"),
        token.replace('_', "%5f"),
        in_url,
        hex::encode(token),
    ]
}

fn content_type(path: &str) -> &'static str {
    match path.ends_with('/') {
        true => "Content-Type: text/html\r\n",
        false if path.contains("/manifests/") => {
            "Content-Type: application/vnd.oci.image.manifest.v1+json\r\n"
        }
        false => "Content-Type: application/octet-stream\r\n",
    }
}

fn say(to: &mut Box<dyn Duplex>, status: &str, fields: &str, body: &[u8]) -> std::io::Result<()> {
    write!(to, "HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len())?;
    to.write_all(body)?;
    to.flush()
}

/// Runs git's own server.
fn git(
    to: &mut Box<dyn Duplex>,
    sent: &Sent,
    path: &str,
    query: &str,
    shared: &PrivateSiteShared,
) -> std::io::Result<()> {
    let mut child = Command::new("git")
        .args(["-c", "http.receivepack=true", "http-backend"])
        .env("GIT_PROJECT_ROOT", shared.repositories.as_ref().expect("repositories"))
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("REMOTE_USER", "me")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", sent.head.split(' ').next().unwrap_or_default())
        .env("CONTENT_TYPE", field(&sent.head, "content-type").unwrap_or_default())
        .env("CONTENT_LENGTH", sent.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", field(&sent.head, "content-encoding").unwrap_or_default())
        .env("GIT_PROTOCOL", field(&sent.head, "git-protocol").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().expect("piped");
    let body = sent.body.clone();
    let feeding = std::thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output()?.stdout;
    let _ = feeding.join();
    let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(0);
    let head = String::from_utf8_lossy(&output[..end]).into_owned();
    let status = field(&format!("\n{head}"), "status").unwrap_or("200 OK").to_owned();
    let fields: String = head
        .lines()
        .filter(|line| !line.to_lowercase().starts_with("status:"))
        .map(|line| format!("{line}\r\n"))
        .collect();
    say(to, &status, &fields, &output[end + 4..])
}
