//! The program's side of a bound connection: writing answers, without the value.

use super::scrub::{Needles, Scrubber};
use futures_util::FutureExt;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use std::io;
use std::io::Write as _;
use std::sync::Arc;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Fields that end here: those of the connection, and those that would lead past this proxy.
const NOT_PASSED_ON: [&str; 10] = [
    "connection",
    "proxy-connection",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "alt-svc",
];

/// Bytes that wait for more.
const MAX_WAITING: usize = 64 << 10;

/// The facts about the request that is answered.
pub(super) struct Answered {
    pub method: Method,
    /// The value was in it.
    pub has_used: bool,
    /// No other request follows.
    pub is_last: bool,
}

/// The length of a body.
enum Length {
    None,
    Bytes(u64),
    Chunks,
}

/// The reason why a body breaks off.
type Broken = Box<dyn std::error::Error + Send + Sync>;

/// Returns why an answer cannot be passed on.
pub(super) fn objection(
    answer: &Response<Incoming>,
    has_used: bool,
    is_websocket: bool,
) -> Option<&'static str> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS && !is_websocket {
        return Some("the host changes the protocol without being asked");
    }
    let codings = answer.headers().get_all(header::CONTENT_ENCODING).iter();
    let is_coded = codings.into_iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    (is_coded && has_used).then_some(
        "the host compresses what it was asked not to, and that cannot be searched for the credential",
    )
}

/// Writes an answer of the host.
pub(super) async fn pass_on(
    to: &mut (impl AsyncWrite + Unpin),
    answer: Response<impl Body<Data = Bytes, Error: Into<Broken>> + Unpin>,
    answered: &Answered,
    needles: &Arc<Needles>,
) -> io::Result<()> {
    let (head, mut body) = answer.into_parts();
    let length = length_of(&head, &body, &answered.method);
    // What is there already is written at once.
    let mut waiting = written_head(head, &length, answered, needles)?;
    if let Length::None = length {
        return send(to, &mut waiting).await;
    }
    let mut scrubber = Scrubber::new(Arc::clone(needles));
    loop {
        let frame = match body.frame().now_or_never() {
            Some(frame) => frame,
            None => {
                // What streams is read as it comes.
                send(to, &mut waiting).await?;
                body.frame().await
            }
        };
        let Some(frame) = frame else { break };
        // Trailers are not passed on.
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            add_piece(&mut waiting, &scrubber.push(&data), &length);
        }
        if waiting.len() >= MAX_WAITING {
            send(to, &mut waiting).await?;
        }
    }
    add_piece(&mut waiting, &scrubber.finish(), &length);
    if let Length::Chunks = length {
        waiting.extend_from_slice(b"0\r\n\r\n");
    }
    send(to, &mut waiting).await
}

/// Writes that the host opens a WebSocket.
pub(super) async fn switch(
    to: &mut (impl AsyncWrite + Unpin),
    head: Parts,
    needles: &Needles,
) -> io::Result<()> {
    let answered = Answered { method: Method::GET, has_used: true, is_last: false };
    let mut bytes = written_head(head, &Length::None, &answered, needles)?;
    bytes.truncate(bytes.len() - 2);
    bytes.extend_from_slice(b"connection: Upgrade\r\nupgrade: websocket\r\n\r\n");
    send(to, &mut bytes).await
}

async fn send(to: &mut (impl AsyncWrite + Unpin), waiting: &mut Vec<u8>) -> io::Result<()> {
    to.write_all(waiting).await?;
    waiting.clear();
    to.flush().await
}

/// Writes an answer of this proxy's, the last one of its connection.
pub(super) async fn say(
    to: &mut (impl AsyncWrite + Unpin),
    status: StatusCode,
    text: &str,
) -> io::Result<()> {
    let reason = status.canonical_reason().unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        status.as_str(),
        text.len()
    );
    to.write_all(answer.as_bytes()).await?;
    to.shutdown().await
}

fn length_of(head: &Parts, body: &impl Body, method: &Method) -> Length {
    if *method == Method::HEAD
        || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || head.status.is_informational()
    {
        return Length::None;
    }
    // Searching changes no length.
    body.size_hint().exact().map_or(Length::Chunks, Length::Bytes)
}

fn written_head(head: Parts, length: &Length, answered: &Answered, needles: &Needles) -> io::Result<Vec<u8>> {
    let mut fields = head.headers;
    let told = fields.get(header::CONTENT_LENGTH).cloned();
    clean(&mut fields, answered.has_used);
    let mut bytes = Vec::with_capacity(1024);
    let reason = head.status.canonical_reason().unwrap_or_default();
    write!(bytes, "HTTP/1.1 {} {reason}\r\n", head.status.as_str())?;
    for (name, value) in &fields {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    // A value has no spaces and no line ends, so that none reaches over several fields.
    needles.replace(&mut bytes);
    match (length, told) {
        (Length::Chunks, _) => bytes.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        (Length::Bytes(length), _) => write!(bytes, "content-length: {length}\r\n")?,
        // Of the body that a GET would get.
        (Length::None, Some(told)) if head.status != StatusCode::NO_CONTENT => {
            bytes.extend_from_slice(b"content-length: ");
            bytes.extend_from_slice(told.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        (Length::None, _) => {}
    }
    if answered.is_last {
        bytes.extend_from_slice(b"connection: close\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    Ok(bytes)
}

fn clean(fields: &mut HeaderMap<HeaderValue>, has_used: bool) {
    let named: Vec<HeaderName> = fields
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named {
        fields.remove(name);
    }
    for name in NOT_PASSED_ON {
        fields.remove(name);
    }
    if has_used {
        // A session that the credential began is as good as the credential.
        fields.remove(header::SET_COOKIE);
        fields.remove("set-cookie2");
    }
}

fn add_piece(waiting: &mut Vec<u8>, bytes: &[u8], length: &Length) {
    if bytes.is_empty() {
        return;
    }
    if let Length::Chunks = length {
        waiting.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        waiting.extend_from_slice(bytes);
        waiting.extend_from_slice(b"\r\n");
    } else {
        waiting.extend_from_slice(bytes);
    }
}
