//! The HTTP proxy through which this machine reaches others (`HTTPS_PROXY`): the sandbox's allowed connections go through it
//! too, by CONNECT. Its address and its credentials stay on this side.

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
use url::Url;

/// How long the proxy may take to connect to the host.
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

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    host: String,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
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

impl Proxy {
    /// `http://[USER[:PASSWORD]@]HOST[:PORT]`, also without the scheme. Other kinds of proxies are not used.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) }
            .ok()?;
        if url.scheme() != "http" {
            return None;
        }
        let decoded = |part: &str| percent_decoded(part);
        let authorization = (!url.username().is_empty()).then(|| {
            let (name, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
            let pair = [name.as_slice(), b":", password.as_slice()].concat();
            format!("Basic {}", STANDARD.encode(pair))
        });
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some(Self { host, port: url.port_or_known_default()?, authorization })
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
        let broken = |error: std::io::Error| format!("this machine's proxy cannot be reached: {error}");
        let mut stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(broken)?;
        // An optimisation: a failure changes nothing else.
        let _ = stream.set_nodelay(true);
        let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
        if let Some(authorization) = &self.authorization {
            request += &format!("Proxy-Authorization: {authorization}\r\n");
        }
        stream.write_all((request + "\r\n").as_bytes()).await.map_err(broken)?;
        match status(&read_head(&mut stream).await?)? {
            200..=299 => Ok(stream),
            407 => {
                Err("this machine's proxy wants other credentials (407): they belong into HTTPS_PROXY, as \
                        http://USER:PASSWORD@HOST:PORT"
                    .to_owned())
            }
            status => Err(format!("this machine's proxy refuses it (status {status})")),
        }
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
        assert_eq!(proxy.authorization.as_deref(), Some("Basic dXNAZXI6cDp3"));
        assert!(!is_proxied(&found, "example.com", 80), "there is none for HTTP");
        assert!(!format!("{found:?}").contains("corp"));
        let all = upstream(&[("all_proxy", "proxy.corp:8080")]).unwrap();
        assert!(is_proxied(&all, "example.com", 80) && is_proxied(&all, "example.com", 22));
        for unusable in ["socks5://proxy:1080", "https://proxy", "", "http://"] {
            assert_eq!(upstream(&[("https_proxy", unusable)]), None, "{unusable}");
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
