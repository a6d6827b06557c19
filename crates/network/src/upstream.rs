//! The proxy through which this machine reaches others (`HTTPS_PROXY`, `ALL_PROXY`): the sandbox's allowed connections go through it
//! too, by CONNECT or SOCKS 5. Its address and its credentials stay on this side.

use super::connection::CloseReason;
use super::host::Host;
use agent_base::machine::Machine;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_socks::TargetAddr;
use tokio_socks::tcp::Socks5Stream;
use url::Url;

/// The time limit for the proxy to connect to the host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of the head of its response.
const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// Entries of `NO_PROXY`.
const MAX_EXCEPTIONS: usize = 500;

/// The proxies of this machine, by what is connected to.
#[derive(Clone, PartialEq, Eq)]
pub struct Upstream {
    /// For port 80.
    http: Option<Proxy>,
    /// For the others.
    https: Option<Proxy>,
    exceptions: Vec<Exception>,
}

/// The schemes of other kinds of proxies, which messages name.
const UNUSED_SCHEMES: [&str; 3] = ["socks4", "socks4a", "https"];

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    host: String,
    port: u16,
    kind: ProxyKind,
}

#[derive(Clone, PartialEq, Eq)]
enum ProxyKind {
    /// HTTP, with the value of `Proxy-Authorization`.
    Http(Option<String>),
    /// SOCKS 5 (RFC 1928), with a name and a password (RFC 1929). It resolves the names of hosts.
    Socks(Option<(String, String)>),
}

/// A host that is reached without a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exception {
    All,
    /// A name and those below it, and a port where one was named.
    Name(String, Option<u16>),
    /// Addresses with so many first bits in common.
    Network(IpAddr, u32),
}

impl Upstream {
    /// Those of the variables. `None` where there is none that can be used.
    pub fn of(machine: &Machine) -> Option<Self> {
        let variable = |name: &str| {
            let set = |name: &str| machine.text(name).filter(|value| !value.trim().is_empty());
            set(name).or_else(|| set(&name.to_uppercase()))
        };
        let proxy = |name| Proxy::parse(&variable(name).or_else(|| variable("all_proxy"))?);
        let (http, https) = (proxy("http_proxy"), proxy("https_proxy"));
        if http.is_none() && https.is_none() {
            return None;
        }
        let exceptions = variable("no_proxy").unwrap_or_default();
        let words = exceptions.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty());
        Some(Self {
            http,
            https,
            exceptions: words.take(MAX_EXCEPTIONS).filter_map(Exception::parse).collect(),
        })
    }

    /// The proxy on the way to a host; `None` where it is reached directly. This machine itself always is.
    pub(super) fn to(&self, host: &Host, port: u16) -> Option<&Proxy> {
        let is_own = matches!(host, Host::Ip(address) if address.is_loopback());
        if is_own || self.exceptions.iter().any(|exception| exception.covers(host, port)) {
            return None;
        }
        if port == 80 { self.http.as_ref() } else { self.https.as_ref() }
    }
}

/// Neither an address nor a password.
impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").finish_non_exhaustive()
    }
}

/// The proxy that this machine's variables name and that cannot be used, as a message names it: `the socks4:// proxy of ALL_PROXY`. Its
/// address may hold a password.
pub fn unused(machine: &Machine) -> Option<String> {
    let names = ["https_proxy", "http_proxy", "all_proxy"];
    let set = |name: String| Some((machine.text(&name).filter(|value| !value.trim().is_empty())?, name));
    let unused = |name: &str| {
        let (value, name) = set(name.to_owned()).or_else(|| set(name.to_uppercase()))?;
        if Proxy::parse(&value).is_some() {
            return None;
        }
        let scheme = value.trim().split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let scheme = scheme.filter(|scheme| UNUSED_SCHEMES.contains(&scheme.as_str()));
        Some(match scheme {
            Some(scheme) => format!("the {scheme}:// proxy of {name}"),
            None => format!("the proxy of {name}"),
        })
    };
    names.into_iter().find_map(unused)
}

impl Proxy {
    /// Reads `http://[USER[:PASSWORD]@]HOST[:PORT]`, also without the scheme, and the same with `socks`, `socks5` or `socks5h`. Other
    /// kinds of proxies are not used.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) }
            .ok()?;
        let decoded = |part: &str| percent_decoded(part);
        let credentials = (!url.username().is_empty())
            .then(|| (decoded(url.username()), decoded(url.password().unwrap_or_default())));
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        let (kind, usual_port) = match url.scheme() {
            "http" => {
                let authorization = credentials.map(|(name, password)| {
                    let pair = [name.as_slice(), b":", password.as_slice()].concat();
                    format!("Basic {}", STANDARD.encode(pair))
                });
                (ProxyKind::Http(authorization), 80)
            }
            "socks" | "socks5" | "socks5h" => {
                let text = |bytes| String::from_utf8(bytes).ok();
                let credentials = match credentials {
                    Some((name, password)) => Some((text(name)?, text(password)?)),
                    None => None,
                };
                (ProxyKind::Socks(credentials), 1080)
            }
            _ => return None,
        };
        Some(Self { host, port: url.port().unwrap_or(usual_port), kind })
    }

    /// A connection to the host, through the proxy.
    pub async fn connect(&self, host: &Host, port: u16) -> Result<TcpStream, CloseReason> {
        match timeout(CONNECT_TIMEOUT, self.tunnel(host, port)).await {
            Ok(result) => result.map_err(CloseReason::Failed),
            Err(_) => Err(CloseReason::Failed(format!(
                "this machine's proxy did not connect within {} s",
                CONNECT_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn tunnel(&self, host: &Host, port: u16) -> Result<TcpStream, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(broken)?;
        // An optimisation: a failure changes nothing else.
        let _ = stream.set_nodelay(true);
        match &self.kind {
            ProxyKind::Http(authorization) => {
                connect_by_http(stream, authorization.as_deref(), host, port).await
            }
            ProxyKind::Socks(credentials) => connect_by_socks(stream, credentials.as_ref(), host, port).await,
        }
    }
}

fn broken(error: std::io::Error) -> String {
    format!("this machine's proxy cannot be reached: {error}")
}

async fn connect_by_socks(
    stream: TcpStream,
    credentials: Option<&(String, String)>,
    host: &Host,
    port: u16,
) -> Result<TcpStream, String> {
    let target = match host {
        Host::Name(name) => TargetAddr::Domain(name.into(), port),
        Host::Ip(address) => TargetAddr::Ip((*address, port).into()),
    };
    let connected = match credentials {
        Some((name, password)) => {
            Socks5Stream::connect_with_password_and_socket(stream, target, name, password).await
        }
        None => Socks5Stream::connect_with_socket(stream, target).await,
    };
    connected.map(Socks5Stream::into_inner).map_err(|error| match error {
        tokio_socks::Error::Io(error) => broken(error),
        tokio_socks::Error::PasswordAuthFailure(_) | tokio_socks::Error::NoAcceptableAuthMethods => {
            "this machine's proxy wants other credentials: they belong into ALL_PROXY, as \
             socks5h://USER:PASSWORD@HOST:PORT"
                .to_owned()
        }
        refused => format!("this machine's proxy refuses it ({refused})"),
    })
}

async fn connect_by_http(
    mut stream: TcpStream,
    authorization: Option<&str>,
    host: &Host,
    port: u16,
) -> Result<TcpStream, String> {
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    if let Some(authorization) = authorization {
        request += &format!("Proxy-Authorization: {authorization}\r\n");
    }
    stream.write_all((request + "\r\n").as_bytes()).await.map_err(broken)?;
    match status(&read_head(&mut stream).await?)? {
        200..=299 => Ok(stream),
        407 => Err("this machine's proxy wants other credentials (407): they belong into HTTPS_PROXY, as \
                        http://USER:PASSWORD@HOST:PORT"
            .to_owned()),
        status => Err(format!("this machine's proxy refuses it (status {status})")),
    }
}

/// Byte by byte: what follows the head is the host's.
async fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) if head.len() < MAX_HEAD => head.push(byte),
            Ok(_) => return Err("this machine's proxy answers with too long a head".to_owned()),
            Err(_) => return Err("this machine's proxy closed the connection".to_owned()),
        }
    }
    Ok(head)
}

fn status(head: &[u8]) -> Result<u16, String> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(head) {
        Ok(httparse::Status::Complete(_)) => Ok(response.code.unwrap_or_default()),
        Ok(httparse::Status::Partial) | Err(_) => {
            Err("this machine's proxy does not answer as an HTTP proxy does".to_owned())
        }
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *byte == b'%') {
            Some(code) => {
                decoded.push(code);
                rest = &after[2..];
            }
            None => {
                decoded.push(*byte);
                rest = after;
            }
        }
    }
    decoded
}

impl Exception {
    /// `*`, `example.com`, `.example.com`, `host:8080`, `10.0.0.1`, `10.0.0.0/8`.
    fn parse(word: &str) -> Option<Self> {
        if word == "*" {
            return Some(Self::All);
        }
        if let Some((address, bits)) = word.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let all = if address.is_ipv4() { 32 } else { 128 };
            return Some(Self::Network(address, bits.parse().ok().filter(|bits| *bits <= all)?));
        }
        if let Ok(address) = word.parse::<IpAddr>() {
            return Some(Self::Network(address, if address.is_ipv4() { 32 } else { 128 }));
        }
        let (host, port) = Host::with_port(word.trim_start_matches("*.").trim_start_matches('.'))?;
        match host {
            Host::Name(name) => Some(Self::Name(name, port)),
            Host::Ip(address) => Some(Self::Network(address, if address.is_ipv4() { 32 } else { 128 })),
        }
    }

    fn covers(&self, host: &Host, port: u16) -> bool {
        match (self, host) {
            (Self::All, _) => true,
            (Self::Name(name, named), Host::Name(host)) => {
                let is_below = host
                    .strip_suffix(name.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
                is_below && named.is_none_or(|named| named == port)
            }
            (Self::Network(network, bits), Host::Ip(address)) => have_in_common(*network, *address, *bits),
            _ => false,
        }
    }
}

fn have_in_common(a: IpAddr, b: IpAddr, bits: u32) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(variables: &[(&str, &str)]) -> Option<Upstream> {
        Upstream::of(&Machine::new(variables.iter().map(|(name, value)| (name.into(), value.into()))))
    }

    fn is_proxied(upstream: &Upstream, host: &str, port: u16) -> bool {
        upstream.to(&Host::parse(host).unwrap(), port).is_some()
    }

    #[test]
    fn variables_name_a_proxy_with_credentials() {
        let found = upstream(&[("HTTPS_PROXY", "http://us%40er:p%3Aw@proxy.corp:3128/")]).unwrap();
        let proxy = found.to(&Host::parse("example.com").unwrap(), 443).unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.corp", 3128));
        assert!(proxy.kind == ProxyKind::Http(Some("Basic dXNAZXI6cDp3".to_owned())));
        assert!(!is_proxied(&found, "example.com", 80), "there is none for HTTP");
        assert!(!format!("{found:?}").contains("corp"));
        let all = upstream(&[("all_proxy", "proxy.corp:8080")]).unwrap();
        assert!(is_proxied(&all, "example.com", 80) && is_proxied(&all, "example.com", 22));
        let socks = upstream(&[("ALL_PROXY", "socks5h://us%40er:p%3Aw@proxy.corp")]).unwrap();
        let proxy = socks.to(&Host::parse("example.com").unwrap(), 443).unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.corp", 1080));
        assert!(proxy.kind == ProxyKind::Socks(Some(("us@er".to_owned(), "p:w".to_owned()))));
        for (unusable, named) in [
            ("socks4://user@proxy:1080", Some("the socks4:// proxy of https_proxy")),
            ("SOCKS4a://proxy:1080", Some("the socks4a:// proxy of https_proxy")),
            ("https://proxy", Some("the https:// proxy of https_proxy")),
            ("secret://proxy", Some("the proxy of https_proxy")),
            ("http://", Some("the proxy of https_proxy")),
            ("", None),
        ] {
            assert_eq!(upstream(&[("https_proxy", unusable)]), None, "{unusable}");
            let machine = Machine::new([("https_proxy".into(), unusable.into())]);
            assert_eq!(unused(&machine).as_deref(), named, "{unusable}");
        }
    }

    #[test]
    fn exceptions_are_names_addresses_and_networks() {
        let exceptions = "localhost, .corp.example,other.example:8443,10.0.0.0/8,192.0.2.7,fd00::/8,bad/99";
        let found = upstream(&[("https_proxy", "http://proxy:1"), ("NO_PROXY", exceptions)]).unwrap();
        for (host, port) in [
            ("corp.example", 443),
            ("a.corp.example", 443),
            ("other.example", 8443),
            ("10.1.2.3", 443),
            ("192.0.2.7", 443),
            ("[fd00::1]", 443),
            ("127.0.0.1", 443),
        ] {
            assert!(!is_proxied(&found, host, port), "{host}:{port}");
        }
        for (host, port) in
            [("notcorp.example", 443), ("other.example", 443), ("11.0.0.1", 443), ("192.0.2.8", 443)]
        {
            assert!(is_proxied(&found, host, port), "{host}:{port}");
        }
        let all = upstream(&[("https_proxy", "http://proxy:1"), ("no_proxy", "*")]).unwrap();
        assert!(!is_proxied(&all, "example.com", 443));
    }
}
