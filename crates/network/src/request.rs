//! The head of a request to the proxy: its target, and what is forwarded.
//!
//! One request a connection. The head is parsed and serialised again, so that the server reads exactly what was judged: no
//! second request, for another host, can hide in the first.

use super::host::Host;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;

/// The longest head, in bytes.
pub const MAX_HEAD: usize = 32 << 10;
/// Header fields.
const MAX_FIELDS: usize = 128;
/// Fields that concern a connection and not a message (RFC 9110 section 7.6.1), and those that are generated here.
const NOT_FORWARDED: [&str; 11] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
];

/// A parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The host to connect to.
    pub host: Host,
    /// The port to connect to.
    pub port: u16,
    /// The action there.
    pub action: Action,
    /// The length of the head, in bytes.
    pub length: usize,
    /// The password that the program gave, if any: which list of hosts it goes by.
    pub pass: Option<String>,
}

/// The action that the proxy is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `CONNECT`: copy bytes in both directions.
    Connect,
    /// One plain HTTP request.
    Http {
        /// The head as it is sent to the server.
        head: Vec<u8>,
        /// The length of the body that follows, in bytes.
        body: u64,
    },
}

/// The reason why a request is rejected: the status, and one sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRequest(pub u16, pub &'static str);

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

/// Reads the head of a request. `None`: more bytes are needed.
///
/// # Errors
///
/// It is not a request that a proxy serves, or its end or length is ambiguous.
pub fn parse(bytes: &[u8]) -> Result<Option<Request>, BadRequest> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(BadRequest(431, "the head is too long")),
        Err(_) => return Err(BadRequest(400, "it is not a valid HTTP request")),
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let pass = pass(request.headers);
    if method == "CONNECT" {
        return match Host::with_port(target) {
            Some((host, Some(port))) => {
                Ok(Some(Request { host, port, action: Action::Connect, length, pass }))
            }
            _ => Err(BadRequest(400, "CONNECT takes HOST:PORT")),
        };
    }
    let (host, port, path) = absolute(target)?;
    let body = body(request.headers, &host, port)?;
    let head = forwarded_head(&request, &host, port, &path, body);
    Ok(Some(Request { host, port, action: Action::Http { head, body: body.unwrap_or(0) }, length, pass }))
}

/// The password of `Proxy-Authorization: Basic`.
fn pass(fields: &[httparse::Header<'_>]) -> Option<String> {
    let field = fields.iter().find(|field| field.name.eq_ignore_ascii_case("proxy-authorization"))?;
    let (scheme, credentials) = std::str::from_utf8(field.value).ok()?.trim().split_once(' ')?;
    let decoded =
        STANDARD.decode(credentials.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    String::from_utf8(decoded).ok()?.split_once(':').map(|(_, password)| password.to_owned())
}

/// Host, port and the rest of `http://HOST[:PORT][/PATH][?QUERY]`.
fn absolute(target: &str) -> Result<(Host, u16, String), BadRequest> {
    const SCHEME: &str = "http://";
    let rest = match target.get(..SCHEME.len()) {
        Some(scheme) if scheme.eq_ignore_ascii_case(SCHEME) => &target[SCHEME.len()..],
        _ if target.starts_with('/') => {
            return Err(BadRequest(
                400,
                "this is the sandbox's HTTP proxy, not a server: it takes http://HOST/PATH, or CONNECT HOST:PORT",
            ));
        }
        _ => return Err(BadRequest(400, "schemes other than http go through CONNECT HOST:PORT")),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if path.contains('#') {
        return Err(BadRequest(400, "the address contains a fragment"));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    // Rejects a user name in it (`name@host`) as well.
    let (host, port) =
        Host::with_port(authority).ok_or(BadRequest(400, "the address does not name a host"))?;
    Ok((host, port.unwrap_or(80), path))
}

/// The length of the body, where one is given. Ambiguous fields are refused.
fn body(fields: &[httparse::Header<'_>], host: &Host, port: u16) -> Result<Option<u64>, BadRequest> {
    let mut length = None;
    for field in fields {
        let value = || std::str::from_utf8(field.value).map(str::trim).unwrap_or_default();
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding") {
            return Err(BadRequest(411, "a body needs its length: send Content-Length"));
        }
        if is("host")
            && Host::with_port(value()).map(|(host, port)| (host, port.unwrap_or(80)))
                != Some((host.clone(), port))
        {
            return Err(BadRequest(400, "the field Host names another host than the address"));
        }
        if is("content-length") {
            let digits = Some(value()).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let number = digits
                .and_then(|digits| digits.parse::<u64>().ok())
                .ok_or(BadRequest(400, "Content-Length is not a valid number"))?;
            if length.replace(number).is_some() {
                return Err(BadRequest(400, "Content-Length occurs twice"));
            }
        }
    }
    Ok(length)
}

/// The head for the server: this host, path and length, and a connection that ends with the response.
fn forwarded_head(
    request: &httparse::Request<'_, '_>,
    host: &Host,
    port: u16,
    path: &str,
    body: Option<u64>,
) -> Vec<u8> {
    let (method, version) = (request.method.unwrap_or_default(), request.version.unwrap_or(1));
    let port = if port == 80 { String::new() } else { format!(":{port}") };
    let mut head = format!("{method} {path} HTTP/1.{version}\r\nHost: {host}{port}\r\n").into_bytes();
    let named: Vec<String> = request
        .headers
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("connection"))
        .flat_map(|field| {
            String::from_utf8_lossy(field.value)
                .split(',')
                .map(|name| name.trim().to_lowercase())
                .collect::<Vec<_>>()
        })
        .collect();
    for field in request.headers.iter() {
        let name = field.name.to_lowercase();
        if !NOT_FORWARDED.contains(&name.as_str()) && !named.contains(&name) {
            head.extend_from_slice(field.name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(field.value);
            head.extend_from_slice(b"\r\n");
        }
    }
    if let Some(body) = body {
        head.extend_from_slice(format!("Content-Length: {body}\r\n").as_bytes());
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(text: &str) -> (String, String, u64) {
        let request = parse(text.as_bytes()).unwrap().unwrap();
        let target = format!("{}:{}", request.host, request.port);
        match request.action {
            Action::Connect => (target, "CONNECT".to_owned(), 0),
            Action::Http { head, body } => (target, String::from_utf8(head).unwrap(), body),
        }
    }

    fn refused(text: &str) -> u16 {
        parse(text.as_bytes()).expect_err(text).0
    }

    #[test]
    fn connect_names_a_host_and_a_port() {
        assert_eq!(served("CONNECT Example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n").0, "example.com:443");
        assert_eq!(served("CONNECT [::1]:443 HTTP/1.1\r\n\r\n").0, "[::1]:443");
        for target in ["example.com", "example.com:0", "example.com:x", "a b:443", "http://a/:443", "*:443"] {
            assert_eq!(refused(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")), 400, "{target}");
        }
    }

    #[test]
    fn a_plain_request_is_serialised_again() {
        let (target, head, body) = served(
            "POST HTTP://Example.COM.:80/a?b=c HTTP/1.1\r\nhost: example.com\r\nAccept: */*\r\nContent-Length: 5\r\n\
             Proxy-Authorization: x\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nUpgrade: websocket\r\n\r\nhello",
        );
        assert_eq!((target.as_str(), body), ("example.com:80", 5));
        assert_eq!(
            head,
            "POST /a?b=c HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            served("GET http://a.com?q HTTP/1.0\r\n\r\n").1,
            "GET /?q HTTP/1.0\r\nHost: a.com\r\nConnection: close\r\n\r\n"
        );
        // What a field names as the connection's own cannot take away what is generated, and a second request stays a body.
        let (_, head, body) = served(
            "POST http://a.com/ HTTP/1.1\r\nConnection: host, content-length, close\r\nContent-Length: 9\r\n\r\nGET /evil",
        );
        assert_eq!(
            (head.as_str(), body),
            ("POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 9\r\nConnection: close\r\n\r\n", 9)
        );
        assert!(
            served("GET http://a.com:8080 HTTP/1.1\r\n\r\n")
                .1
                .starts_with("GET / HTTP/1.1\r\nHost: a.com:8080\r\n")
        );
    }

    #[test]
    fn a_password_for_the_proxy_is_read_and_not_passed_on() {
        let pass = |field: &str| {
            let text = format!("GET http://a.com/ HTTP/1.1\r\nProxy-Authorization: {field}\r\n\r\n");
            parse(text.as_bytes()).unwrap().unwrap().pass
        };
        assert_eq!(pass("Basic bWNwOnNlY3JldA==").as_deref(), Some("secret"));
        for field in ["Basic", "Basic %%%", "Bearer bWNwOnNlY3JldA==", "Basic bWNw", "Basic /w=="] {
            assert_eq!(pass(field), None, "{field}");
        }
        assert!(
            !served("GET http://a.com/ HTTP/1.1\r\nProxy-Authorization: Basic bWNwOnNlY3JldA==\r\n\r\n")
                .1
                .contains("bWNw")
        );
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        let with = |fields: &str| refused(&format!("POST http://a.com/ HTTP/1.1\r\n{fields}\r\n\r\n"));
        assert_eq!(with("Transfer-Encoding: chunked"), 411);
        assert_eq!(with("Content-Length: 5\r\nTransfer-Encoding: chunked"), 411);
        assert_eq!(with("Content-Length: 5\r\nContent-Length: 6"), 400);
        for length in ["+5", "5, 5", "0x5", "-1", "99999999999999999999", "5 5"] {
            assert_eq!(with(&format!("Content-Length: {length}")), 400, "{length}");
        }
        assert_eq!(with("Host: evil.org"), 400);
        assert_eq!(with("Host: a.com\r\nHost: evil.org"), 400);
        assert_eq!(with("Host: a.com:81"), 400);
        assert_eq!(with("X: a\r\n folded: b"), 400);
        assert_eq!(with("Content-Length : 5"), 400);
        for fields in [
            "Transfer-Encoding : chunked",
            "Content-Length: 5\r\ncontent-LENGTH: 5",
            "X: a\rHost: evil.org",
            "X: a\0",
            "Host: a.com@evil.org",
            "Host: a.com, evil.org",
            "Host: a.com/evil.org",
            "Host:",
        ] {
            assert_eq!(with(fields), 400, "{fields:?}");
        }
        assert_eq!(with("transfer-ENCODING: identity"), 411);
    }

    #[test]
    fn what_is_not_a_proxy_request_says_so() {
        for line in [
            "GET / HTTP/1.1",
            "GET https://a.com/ HTTP/1.1",
            "GET ftp://a.com/ HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "GET http://u:p@a.com/ HTTP/1.1",
            "GET http:///x HTTP/1.1",
            "GET http://a.com/#x HTTP/1.1",
            "PRI * HTTP/2.0",
            "\x05\x01",
        ] {
            assert_eq!(refused(&format!("{line}\r\n\r\n")), 400, "{line}");
        }
        assert_eq!(refused(&format!("GET http://a.com/{} HTTP/1.1\r\n\r\n", "x".repeat(MAX_HEAD))), 431);
        assert_eq!(refused(&format!("GET http://a.com/ HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200))), 431);
        assert_eq!(parse(b"GET http://a.com/ HTTP/1.1\r\nA: b\r\n"), Ok(None));
    }
}
