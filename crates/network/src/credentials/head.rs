//! The head of a request inside a bound connection, read so strictly that no server can read another one in it.
//!
//! What servers read differently is refused: folded fields, bare line ends, two lengths, spaces before colons, absolute targets.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use memchr::{memchr_iter, memmem};

/// The longest head, in bytes.
pub const MAX_HEAD: usize = 64 << 10;
/// Header fields.
const MAX_FIELDS: usize = 128;
/// The digits of a length: less than the largest number.
const MAX_DIGITS: usize = 18;
const LONGEST_METHOD: usize = 20;
/// Fields by which some servers take another method or path than the request's.
const OVERRIDES: [&str; 6] = [
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-original-uri",
];
/// Fields that say where a message goes, where it ends, and who sends it. Some servers read `_` in a name as `-`.
const DECIDING: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "trailer",
    "upgrade",
    "expect",
    "connection",
    "authorization",
    "te",
];
/// Fields that concern a connection and not a message (RFC 9110 section 7.6.1), which end here.
const OF_CONNECTION: [&str; 8] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "keep-alive",
    "te",
    "transfer-encoding",
    "content-length",
    "http2-settings",
];

/// The length of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// It comes in chunks.
    Chunked,
}

/// The head of a request. Its fields are those of the message alone, `Host` included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The path, as it was written.
    pub path: String,
    /// The query, without its question mark.
    pub query: Option<String>,
    /// The fields.
    pub fields: HeaderMap,
    /// The length of the body.
    pub framing: Framing,
    /// The program waits for `100 Continue` before it sends the body.
    pub awaits_continue: bool,
    /// No other request follows on the connection.
    pub is_last: bool,
    /// It asks for a WebSocket.
    pub is_websocket: bool,
    /// The length of the head, in bytes.
    pub length: usize,
}

/// The reason why a head is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedHead {
    /// The status of the answer.
    pub status: StatusCode,
    /// The reason.
    pub reason: &'static str,
}

fn bad(reason: &'static str) -> RefusedHead {
    RefusedHead { status: StatusCode::BAD_REQUEST, reason }
}

/// Reads the head of a request. `None`: more bytes are needed.
///
/// # Errors
/// It is not valid, or servers could read it differently.
pub fn read(bytes: &[u8]) -> Result<Option<Head>, RefusedHead> {
    const END: &[u8] = b"\r\n\r\n";
    let too_long = || RefusedHead {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        reason: "the head of the request is too long",
    };
    let end = memmem::find(bytes, END);
    let seen = &bytes[..end.map_or(bytes.len(), |end| end + END.len())];
    check_line_ends(seen)?;
    let Some(end) = end else {
        return if bytes.len() < MAX_HEAD { Ok(None) } else { Err(too_long()) };
    };
    let length = end + END.len();
    if length > MAX_HEAD {
        return Err(too_long());
    }
    let text = &bytes[..end];
    let (line, fields) = match memmem::find(text, b"\r\n") {
        Some(at) => (&text[..at], &text[at + 2..]),
        None => (text, &b""[..]),
    };
    let (method, path, query) = request_line(line)?;
    head(method, path, query, read_fields(fields)?, length).map(Some)
}

/// Refuses line ends other than CR LF, and zero bytes.
fn check_line_ends(bytes: &[u8]) -> Result<(), RefusedHead> {
    let is_bare_feed = |at: usize| at == 0 || bytes[at - 1] != b'\r';
    let is_bare_return = |at: usize| bytes.get(at + 1).is_some_and(|next| *next != b'\n');
    if memchr_iter(b'\n', bytes).any(is_bare_feed) || memchr_iter(b'\r', bytes).any(is_bare_return) {
        return Err(bad("a line does not end with CR LF"));
    }
    if bytes.contains(&0) {
        return Err(bad("it contains a zero byte"));
    }
    Ok(())
}

fn request_line(line: &[u8]) -> Result<(Method, String, Option<String>), RefusedHead> {
    let not_valid = || bad("the first line is not that of an HTTP request");
    let line = std::str::from_utf8(line).map_err(|_| not_valid())?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(not_valid());
    };
    let is_method = (1..=LONGEST_METHOD).contains(&method.len())
        && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    if !is_method || !target.bytes().all(|byte| byte.is_ascii_graphic()) || target.is_empty() {
        return Err(not_valid());
    }
    if version != "HTTP/1.1" {
        return Err(RefusedHead {
            status: StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            reason: "it is not HTTP/1.1",
        });
    }
    if !target.starts_with('/') || method == "CONNECT" {
        return Err(bad("it is a request to a proxy, inside the connection to the host"));
    }
    if target.contains('#') {
        return Err(bad("the target contains a fragment"));
    }
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| not_valid())?;
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    Ok((method, path.to_owned(), query))
}

fn read_fields(text: &[u8]) -> Result<HeaderMap, RefusedHead> {
    let mut fields = HeaderMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = match memmem::find(rest, b"\r\n") {
            Some(at) => (&rest[..at], &rest[at + 2..]),
            None => (rest, &b""[..]),
        };
        rest = after;
        if fields.len() == MAX_FIELDS {
            return Err(RefusedHead {
                status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                reason: "it has too many fields",
            });
        }
        let (name, value) = field(line)?;
        fields.append(name, value);
    }
    Ok(fields)
}

fn field(line: &[u8]) -> Result<(HeaderName, HeaderValue), RefusedHead> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(bad("a field is folded over several lines"));
    }
    let colon = memchr::memchr(b':', line).ok_or_else(|| bad("a field has no colon"))?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    // This refuses a space before the colon as well.
    let name = HeaderName::from_bytes(name).map_err(|_| bad("the name of a field is not valid"))?;
    let value = HeaderValue::from_bytes(value).map_err(|_| bad("the value of a field is not valid"))?;
    let dashed = name.as_str().replace('_', "-");
    if dashed != name.as_str() && DECIDING.contains(&dashed.as_str()) {
        return Err(bad("the name of a field is one that servers read differently"));
    }
    if OVERRIDES.contains(&dashed.as_str()) {
        return Err(bad("a field asks for another method or path"));
    }
    Ok((name, value))
}

fn head(
    method: Method,
    path: String,
    query: Option<String>,
    mut fields: HeaderMap,
    length: usize,
) -> Result<Head, RefusedHead> {
    let is_websocket = is_websocket(&method, &fields)?;
    if fields.contains_key(header::TRAILER) {
        return Err(bad("it announces trailers"));
    }
    let awaits_continue = match one(&fields, &header::EXPECT)? {
        None => false,
        Some(value) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => true,
        Some(_) => {
            let status = StatusCode::EXPECTATION_FAILED;
            return Err(RefusedHead { status, reason: "it expects something other than 100-continue" });
        }
    };
    let framing = framing(&fields)?;
    if framing != Framing::None && (method == Method::GET || method == Method::HEAD) {
        return Err(bad("GET and HEAD have no body"));
    }
    if is_websocket && framing != Framing::None {
        return Err(bad("it asks for another protocol and has a body"));
    }
    let is_last = options(&fields, is_websocket)?;
    for name in OF_CONNECTION {
        fields.remove(name);
    }
    fields.remove(header::EXPECT);
    fields.remove(header::UPGRADE);
    Ok(Head { method, path, query, fields, framing, awaits_continue, is_last, is_websocket, length })
}

/// Returns whether it asks for a WebSocket (RFC 6455). Any other protocol is refused.
fn is_websocket(method: &Method, fields: &HeaderMap) -> Result<bool, RefusedHead> {
    let Some(asked) = one(fields, &header::UPGRADE)? else { return Ok(false) };
    let is_one = *method == Method::GET
        && asked.as_bytes().eq_ignore_ascii_case(b"websocket")
        && one(fields, &header::SEC_WEBSOCKET_KEY)?.is_some()
        && one(fields, &header::SEC_WEBSOCKET_VERSION)?.is_some_and(|version| version == "13");
    if is_one { Ok(true) } else { Err(bad("it asks for another protocol")) }
}

/// The value of a field that may occur once.
fn one<'f>(fields: &'f HeaderMap, name: &HeaderName) -> Result<Option<&'f HeaderValue>, RefusedHead> {
    let mut values = fields.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(bad("a field that decides where the request goes or ends occurs twice")),
    }
}

fn framing(fields: &HeaderMap) -> Result<Framing, RefusedHead> {
    let length = one(fields, &header::CONTENT_LENGTH)?;
    match (one(fields, &header::TRANSFER_ENCODING)?, length) {
        (Some(_), Some(_)) => Err(bad("it has two lengths")),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (Some(_), None) => Err(bad("its transfer coding is not chunked alone")),
        (None, Some(length)) => {
            let digits = length.to_str().ok().filter(|text| {
                (1..=MAX_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
            });
            match digits.and_then(|digits| digits.parse().ok()) {
                Some(0) => Ok(Framing::None),
                Some(length) => Ok(Framing::Length(length)),
                None => Err(bad("its length is not a number")),
            }
        }
        (None, None) => Ok(Framing::None),
    }
}

/// Reads `Connection`. Returns whether no other request follows.
fn options(fields: &HeaderMap, is_websocket: bool) -> Result<bool, RefusedHead> {
    let mut is_last = false;
    for value in fields.get_all(header::CONNECTION) {
        let text = value.to_str().map_err(|_| bad("the field Connection is not valid"))?;
        for option in text.split(',').map(str::trim) {
            match option.to_ascii_lowercase().as_str() {
                "close" => is_last = true,
                "keep-alive" | "te" | "" => {}
                "upgrade" if is_websocket => {}
                // It would have a proxy take away another field.
                _ => return Err(bad("the field Connection names other fields")),
            }
        }
    }
    Ok(is_last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(text: &str) -> Result<Head, &'static str> {
        read(text.as_bytes()).map_err(|malformed| malformed.reason).map(|head| head.expect("a whole head"))
    }

    #[test]
    fn an_ordinary_request_is_read() {
        let text = "POST /a%2fb?x=1 HTTP/1.1\r\nHost: h.test\r\nContent-Length: 3\r\nExpect: 100-Continue\r\nConnection: close\r\nX: \ty \r\n\r\nabc";
        let head = whole(text).unwrap();
        assert_eq!((head.path.as_str(), head.query.as_deref()), ("/a%2fb", Some("x=1")));
        assert_eq!((head.framing, head.length), (Framing::Length(3), text.len() - 3));
        assert!(head.awaits_continue && head.is_last);
        let fields: Vec<_> = head.fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
        assert_eq!(fields, [("host", &"h.test".parse().unwrap()), ("x", &"y".parse().unwrap())]);
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        for (line, rest, reason) in [
            ("GET http://h/ HTTP/1.1", "", "proxy"),
            ("CONNECT h:443 HTTP/1.1", "", "proxy"),
            ("OPTIONS * HTTP/1.1", "", "proxy"),
            ("GET / HTTP/1.0", "", "HTTP/1.1"),
            ("GET / HTTP/2.0", "", "HTTP/1.1"),
            ("PRI * HTTP/2.0", "", "not HTTP/1.1"),
            ("GET  / HTTP/1.1", "", "first line"),
            ("GET /\u{e9} HTTP/1.1", "", "first line"),
            ("get / HTTP/1.1", "", "first line"),
            ("GET /", "", "first line"),
            ("GET /#x HTTP/1.1", "", "fragment"),
            ("\r\nGET / HTTP/1.1", "", "first line"),
            ("POST / HTTP/1.1", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "two lengths"),
            ("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "two lengths"),
            ("POST / HTTP/1.1", "Content-Length: 3\r\nContent-Length: 3\r\n", "twice"),
            ("POST / HTTP/1.1", "Content-Length: 3, 3\r\n", "not a number"),
            ("POST / HTTP/1.1", "Content-Length: +3\r\n", "not a number"),
            ("POST / HTTP/1.1", "Content-Length: 18446744073709551617\r\n", "not a number"),
            ("POST / HTTP/1.1", "Transfer-Encoding: gzip, chunked\r\n", "chunked alone"),
            ("POST / HTTP/1.1", "Transfer-Encoding: xchunked\r\n", "chunked alone"),
            ("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "twice"),
            ("POST / HTTP/1.1", "Transfer-Encoding : chunked\r\n", "name of a field"),
            ("POST / HTTP/1.1", "Transfer_Encoding: chunked\r\n", "read differently"),
            ("POST / HTTP/1.1", "Content_Length: 3\r\n", "read differently"),
            ("GET / HTTP/1.1", "X: a\r\n Transfer-Encoding: chunked\r\n", "folded"),
            ("GET / HTTP/1.1", "X: a\r\n\tb\r\n", "folded"),
            ("GET / HTTP/1.1", "X: a\nY: b\r\n", "CR LF"),
            ("GET / HTTP/1.1", "X: a\rY: b\r\n", "CR LF"),
            ("GET / HTTP/1.1", "X: a\0\r\n", "zero byte"),
            ("GET / HTTP/1.1", "X\r\n", "colon"),
            ("GET / HTTP/1.1", "Content-Length: 3\r\n", "no body"),
            ("GET / HTTP/1.1", "Upgrade: websocket\r\nConnection: upgrade\r\n", "another protocol"),
            ("GET / HTTP/1.1", "Upgrade: h2c\r\n", "another protocol"),
            (
                "GET / HTTP/1.1",
                "Upgrade: websocket, h2c\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n",
                "another protocol",
            ),
            (
                "POST / HTTP/1.1",
                "Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n",
                "another protocol",
            ),
            ("GET / HTTP/1.1", "Trailer: X\r\n", "trailers"),
            ("POST / HTTP/1.1", "Expect: something\r\n", "expects"),
            ("GET / HTTP/1.1", "Connection: close, Host\r\n", "names other fields"),
            ("POST / HTTP/1.1", "X-HTTP-Method-Override: DELETE\r\n", "another method"),
            ("GET / HTTP/1.1", "X-Original-URL: /admin\r\n", "another method or path"),
        ] {
            let refused = whole(&format!("{line}\r\nHost: h\r\n{rest}\r\n")).expect_err(line);
            assert!(refused.contains(reason), "{line} {rest}: {refused}");
        }
        assert!(read(&vec![b'a'; MAX_HEAD]).is_err() && read(&vec![b'a'; MAX_HEAD - 1]) == Ok(None));
        let many = "X: y\r\n".repeat(MAX_FIELDS + 1);
        assert_eq!(whole(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Err("it has too many fields"));
    }

    proptest! {
        #[test]
        fn a_beginning_is_read_as_the_whole(
            parts in proptest::collection::vec(prop_oneof![
                Just("GET / HTTP/1.1\r\n".to_owned()), Just("\r\n".to_owned()), Just("\n".to_owned()), Just("Host: h\r\n".to_owned()),
                Just("Content-Length: 1\r\n".to_owned()), Just("Transfer-Encoding: chunked\r\n".to_owned()), Just(" x\r\n".to_owned()),
                "[ -~\r\n\0]{0,6}",
            ], 0..8)
        ) {
            let bytes = parts.concat().into_bytes();
            let whole = read(&bytes);
            for length in 0..bytes.len() {
                match read(&bytes[..length]) {
                    Ok(None) => {}
                    Ok(head) => prop_assert_eq!(&Ok(head), &whole),
                    Err(_) => prop_assert!(whole.is_err()),
                }
            }
        }
    }
}
