//! HTTP/2 of a program that speaks nothing else. Each stream becomes a request of HTTP/1.1, which is read and judged as every other one:
//! what is refused there is refused here, and only what could not be written in HTTP/1.1 is judged before.

use super::bindings::Attempt;
use super::head::MAX_HEAD;
use super::host_side::{HostSide, MAX_FIELDS};
use super::intercept::{OfferAnswers, Served, names};
use super::requests::HEAD_TIMEOUT;
use crate::connection::CloseReason;
use agent_base::lock::Lock;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, duplex};
use tokio::time::timeout;

/// Its name in the TLS handshake (ALPN).
pub(super) const ALPN: &[u8] = b"h2";
/// The first bytes of a connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Streams at a time, each with a connection to the host: what servers commonly allow, and clients assume before they know the limit. One that
/// waited for its turn would hold back what its body has sent already, which counts for all of the connection.
const MAX_STREAMS: u32 = 100;
/// Bytes of a body that wait, and of all bodies of a connection.
const STREAM_WINDOW: u32 = 32 << 10;
const WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
/// Bytes of an answer that wait.
const MAX_WAITING: usize = 64 << 10;
/// Streams that the program may reset before they are looked at, and that are reset because they are not valid; then the connection ends.
const MAX_RESETS: usize = 20;
const MAX_INVALID: usize = 32;

const TRAILERS: &str = "the body has trailers";

type StreamAnswer = Response<Either<Download, Full<Bytes>>>;

/// Reads the beginning of a connection, which has to be complete soon after it has begun. Returns whether it is that of HTTP/2, whatever the TLS handshake named, and what was read.
pub(super) async fn begins(client: &mut (impl AsyncRead + Unpin)) -> io::Result<(bool, Vec<u8>)> {
    let mut read = Vec::with_capacity(PREFACE.len());
    loop {
        let mut buffer = [0; PREFACE.len()];
        let reading = client.read(&mut buffer[read.len()..]);
        let length = match read.is_empty() {
            true => reading.await?,
            false => timeout(HEAD_TIMEOUT, reading).await??,
        };
        read.extend_from_slice(&buffer[read.len()..][..length]);
        if length == 0 || read.len() == PREFACE.len() || !PREFACE.starts_with(&read) {
            return Ok((read == PREFACE, read));
        }
    }
}

/// Serves the streams of one connection.
pub(super) async fn serve(
    host_side: HostSide,
    client: impl AsyncRead + AsyncWrite + Unpin + 'static,
) -> Result<(), CloseReason> {
    let streams = Arc::new(Streams {
        host_side: Lock::new(host_side),
        idle: Lock::default(),
        said: Arc::default(),
        has_begun: AtomicBool::new(false),
        failed: Lock::default(),
    });
    let of_connection = Arc::clone(&streams);
    let service = service_fn(move |request| {
        let streams = Arc::clone(&of_connection);
        async move { streams.answer(request).await }
    });
    let served = Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(MAX_HEAD as u32)
        .max_send_buf_size(MAX_WAITING)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_INVALID)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(client), service)
        .await;
    if let Some(failed) = streams.failed.lock().take() {
        return Err(failed);
    }
    served.map_err(|error| match is_gone(&error) {
        true => CloseReason::Gone,
        false => CloseReason::Failed("what the program sends is not valid as HTTP/2".to_owned()),
    })
}

fn is_gone(error: &hyper::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The streams of a connection, and the connections of HTTP/1.1 that their requests go over.
struct Streams {
    /// Of the next connection.
    host_side: Lock<HostSide>,
    /// Connections that serve no request.
    idle: Lock<Vec<SendRequest<Upload>>>,
    said: Arc<OfferAnswers>,
    /// Set once there is a connection of HTTP/1.1.
    has_begun: AtomicBool,
    /// The reason why the first of these failed that did.
    failed: Lock<Option<CloseReason>>,
}

impl Streams {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<StreamAnswer> {
        let attempted = (request.method().to_string(), request.uri().path().to_owned());
        let (head, body) = request.into_parts();
        let head = match translated(head, !body.is_end_stream()) {
            Ok(head) => head,
            Err(reason) => return Ok(self.refuse(&attempted, reason)),
        };
        let has_trailers = Arc::new(AtomicBool::new(false));
        let body = Upload { body, held: None, has_trailers: Arc::clone(&has_trailers) };
        match self.send(Request::from_parts(head, body)).await {
            Ok(answer) => Ok(answer.map(Either::Left)),
            Err(_) if has_trailers.load(Relaxed) => Ok(self.refuse(&attempted, TRAILERS)),
            Err(broken) => Err(broken),
        }
    }

    async fn send(self: &Arc<Self>, mut request: Request<Upload>) -> io::Result<Response<Download>> {
        let mut lease = Lease { sender: None, streams: Arc::clone(self) };
        loop {
            let known = self.idle().await;
            let is_known = known.is_some();
            let mut sender = match known {
                Some(sender) => sender,
                None => self.open().await?,
            };
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    lease.sender = Some(sender);
                    return Ok(answer.map(|body| Download { body, _lease: lease }));
                }
                // The connection was about to end.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_known => request = unsent,
                    _ => return Err(io::Error::other(error.into_error())),
                },
            }
        }
    }

    async fn idle(&self) -> Option<SendRequest<Upload>> {
        loop {
            let mut sender = self.idle.lock().pop()?;
            // Its last answer has been read, or it ends.
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    /// Opens a connection of HTTP/1.1 to this proxy.
    async fn open(self: &Arc<Self>) -> io::Result<SendRequest<Upload>> {
        let (near, far) = duplex(MAX_WAITING);
        let handshake = http1::Builder::new().max_headers(MAX_FIELDS).handshake(TokioIo::new(near));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        let host_side = self.host_side.lock().take();
        let is_counted = self.has_begun.swap(true, Relaxed);
        let streams = Arc::clone(self);
        tokio::spawn(async move {
            let gateway = Arc::clone(&host_side.gateway);
            // The first takes the place of the program's connection.
            let closed = match is_counted.then(|| gateway.admit()).transpose() {
                Ok(_slot) => {
                    carry(connection, Served::new(host_side, far, Arc::clone(&streams.said)).run()).await
                }
                Err(full) => Err(full),
            };
            if let Err(closed @ (CloseReason::Failed(_) | CloseReason::Limit(..))) = closed {
                streams.failed.lock().get_or_insert(closed);
            }
        });
        Ok(sender)
    }

    /// Refuses a request: the answer.
    fn refuse(&self, (method, path): &(String, String), reason: &str) -> StreamAnswer {
        let host_side = self.host_side.lock();
        let HostSide { gateway, credentials, host, port, .. } = &*host_side;
        let attempt = Attempt { host, port: *port, method, path };
        gateway.credential_refused(&names(&credentials.at(host, *port)), attempt, reason);
        let text = format!("agent did not pass on this request to {host}:{port}: {reason}.\n");
        let mut answer = Response::new(Either::Right(Full::from(text)));
        *answer.status_mut() = StatusCode::BAD_REQUEST;
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        answer.headers_mut().insert(header::CONTENT_TYPE, text);
        answer
    }
}

/// Moves a connection to its end: that of the program's side, which ends with a stream that is reset, ends all of it.
async fn carry(
    connection: impl Future<Output = hyper::Result<()>>,
    served: impl Future<Output = Result<(), CloseReason>>,
) -> Result<(), CloseReason> {
    let mut connection = pin!(connection);
    let served = tokio::select! {
        _ = &mut connection => return Ok(()),
        served = served => served,
    };
    // What was answered last is still read.
    let _ = connection.await;
    served
}

/// A connection while it serves a request.
struct Lease {
    sender: Option<SendRequest<Upload>>,
    streams: Arc<Streams>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.streams.idle.lock().extend(self.sender.take());
    }
}

/// The body of an answer, after which its connection is free.
struct Download {
    body: Incoming,
    _lease: Lease,
}

impl Body for Download {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The head of a request as HTTP/1.1 has it.
///
/// # Errors
/// It could be read in another way there: the reason.
pub fn translated(mut head: Parts, has_body: bool) -> Result<Parts, &'static str> {
    if head.method == Method::CONNECT {
        return Err("it is a request to a proxy, inside the connection to the host");
    }
    if head.uri.scheme().is_some_and(|scheme| *scheme != http::uri::Scheme::HTTPS) {
        return Err("its scheme is not https");
    }
    if is_grpc(&head.headers) {
        return Err(
            "it is gRPC, which needs HTTP/2 to the host, and hosts with credentials are asked over HTTP/1.1",
        );
    }
    let fields = &mut head.headers;
    if let Some(authority) = head.uri.authority() {
        let authority = authority.as_str();
        if fields
            .get_all(header::HOST)
            .iter()
            .any(|host| !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()))
        {
            return Err("the field Host names another host than :authority");
        }
        let host = HeaderValue::try_from(authority).map_err(|_| "its :authority is not valid")?;
        fields.insert(header::HOST, host);
    }
    let mut lengths = fields.get_all(header::CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (_, Some(_)) => return Err("it has two lengths"),
        (Some(length), None) if !has_body && length != "0" => {
            return Err("its length is not that of its body");
        }
        (None, None) if has_body => {
            fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        _ => {}
    }
    join_cookies(fields)?;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    head.uri = Uri::try_from(target).map_err(|_| "the target is not valid")?;
    head.version = Version::HTTP_11;
    Ok(head)
}

fn is_grpc(fields: &HeaderMap) -> bool {
    let kind =
        fields.get(header::CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    kind.is_some_and(|rest| rest.first().is_none_or(|next| matches!(next, b'+' | b';')))
}

/// Makes one field of cookies that came in several (RFC 9113 section 8.2.3).
fn join_cookies(fields: &mut HeaderMap) -> Result<(), &'static str> {
    let cookies: Vec<_> = fields.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1 {
        let joined =
            HeaderValue::try_from(cookies.join(&b"; "[..])).map_err(|_| "its cookies are not valid")?;
        fields.insert(header::COOKIE, joined);
    }
    Ok(())
}

/// The body of a stream. One with trailers breaks off: nothing says which of them servers believe.
struct Upload {
    body: Incoming,
    /// The last bytes of the length that was said, until it is known that no trailers follow.
    held: Option<Frame<Bytes>>,
    has_trailers: Arc<AtomicBool>,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                None => return Poll::Ready(self.held.take().map(Ok)),
            };
            if frame.is_trailers() {
                self.has_trailers.store(true, Relaxed);
                return Poll::Ready(Some(Err(io::Error::other(TRAILERS))));
            }
            if self.body.size_hint().exact() != Some(0) || self.body.is_end_stream() {
                return Poll::Ready(Some(Ok(frame)));
            }
            self.held.get_or_insert(frame);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::super::head::read;
    use super::*;
    use proptest::prelude::*;

    /// The head as the client of HTTP/1.1 writes it.
    fn written(head: &Parts) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", head.method, head.uri).into_bytes();
        for (name, value) in &head.headers {
            bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        bytes
    }

    proptest! {
        #[test]
        fn a_head_is_read_as_what_it_was(
            method in "GET|POST|PUT|M-SEARCH|CONNECT",
            target in "(https://(a|b)\\.test(:[0-9]{1,4})?)?/[a-z0-9%./;=&?#~é]{0,20}",
            fields in proptest::collection::vec(("host|cookie|content-length|te|expect|x[_-][a-z]{1,4}", "[ -~é]{0,12}|a\\.test|[0-9]"), 0..6),
            has_body: bool,
        ) {
            let mut request = Request::builder().method(&*method).uri(&*target);
            for (name, value) in &fields {
                request = request.header(name, value);
            }
            let Ok(request) = request.body(()) else { return Ok(()) };
            let (head, ()) = request.into_parts();
            let (authority, path) = (head.uri.authority().cloned(), head.uri.path().to_owned());
            let Ok(head) = translated(head, has_body) else { return Ok(()) };
            let bytes = written(&head);
            let Ok(Some(read)) = read(&bytes) else { return Ok(()) };
            prop_assert_eq!((read.length, &read.method, &read.path), (bytes.len(), &head.method, &path));
            prop_assert!(read.fields.get_all(header::COOKIE).iter().count() <= 1);
            if let Some(authority) = authority {
                let hosts: Vec<_> = read.fields.get_all(header::HOST).iter().collect();
                prop_assert!(hosts.len() == 1 && hosts[0] == authority.as_str(), "{hosts:?}");
            }
        }
    }
}
