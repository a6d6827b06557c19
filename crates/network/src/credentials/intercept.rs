//! One connection to a bound host: TLS ends here, each request is judged, and what comes back is searched.

use super::scrub::Scrubber;
use super::{Bound, Credentials};
use crate::connection::{CloseReason, reach};
use crate::gateway::Gateway;
use crate::host::Host;
use crate::traffic::{Counted, Meter};
use agent_base::lock::Lock;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// How long a greeting of TLS may take.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;
const BUFFER: usize = 16 << 10;
/// Fields that concern a connection and not a message (RFC 9110 section 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
];

type Answer = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// A connection to a bound host.
pub(crate) struct Intercepted {
    pub gateway: Arc<Gateway>,
    pub credentials: Arc<Credentials>,
    pub bound: Vec<Arc<Bound>>,
    pub host: Host,
    pub port: u16,
    pub pass: Option<String>,
    pub meter: Arc<Meter>,
}

/// What its requests share.
struct Exchange {
    connection: Intercepted,
    server: Mutex<Server>,
    /// What runs beside the requests. Ends with the connection.
    beside: Lock<JoinSet<()>>,
}

/// The way to the host.
enum Server {
    /// Connected, without TLS.
    Fresh(TcpStream),
    Open(SendRequest<Outgoing>),
    Gone,
}

/// Why a request is not passed on.
struct Rejected(StatusCode, String);

fn refused(reason: impl Into<String>) -> Rejected {
    Rejected(StatusCode::FORBIDDEN, reason.into())
}

fn failed(reason: impl Into<String>) -> Rejected {
    Rejected(StatusCode::BAD_GATEWAY, reason.into())
}

/// Serves the requests of one connection.
pub(crate) async fn serve(
    connection: Intercepted,
    client: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    server: TcpStream,
) -> Result<(), CloseReason> {
    let config = connection.credentials.authority.server(&connection.host).map_err(CloseReason::Failed)?;
    let accepted = timeout(GREETING_TIMEOUT, TlsAcceptor::from(config).accept(client)).await;
    let client = match accepted {
        Ok(Ok(client)) => client,
        // What it says is the program's.
        Ok(Err(_)) | Err(_) => {
            let reason = "the program did not accept the certificate of this session's credentials";
            return Err(CloseReason::Failed(reason.to_owned()));
        }
    };
    let server = Mutex::new(Server::Fresh(server));
    let exchange = Arc::new(Exchange { connection, server, beside: Lock::default() });
    let handler = Arc::clone(&exchange);
    let service = service_fn(move |request| Arc::clone(&handler).answer(request));
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades()
        .await;
    // A WebSocket lasts as long as what copies its bytes.
    *exchange.server.lock().await = Server::Gone;
    let mut beside = std::mem::take(&mut *exchange.beside.lock());
    if served.is_ok() {
        while beside.join_next().await.is_some() {}
    }
    served.map_err(|_| CloseReason::Gone)
}

impl Exchange {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Ok(match self.forward(request).await {
            Ok(answer) => answer,
            Err(Rejected(status, reason)) => {
                let Intercepted { gateway, host, port, bound, .. } = &self.connection;
                if status != StatusCode::BAD_GATEWAY {
                    gateway.credential_refused(
                        &names(bound),
                        (host, *port),
                        (method.as_str(), &path),
                        &reason,
                    );
                }
                let text = format!("agent did not pass on this request to {host}:{port}: {reason}.\n");
                let mut answer =
                    Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync());
                *answer.status_mut() = status;
                let headers = answer.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
                answer
            }
        })
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Result<Answer, Rejected> {
        let Intercepted { gateway, bound, host, port, .. } = &self.connection;
        let upgrade = self.check(&request)?;
        let path = request.uri().path().to_owned();
        let mut query = request.uri().query().unwrap_or_default().to_owned();
        let mut permitted = Vec::new();
        let mut objection = None;
        for bound in bound {
            match bound.rule.judge(request.method().as_str(), &path, &query) {
                Ok(()) => permitted.push(bound),
                Err(reason) => objection = Some(reason),
            }
        }
        if let (true, Some(reason)) = (permitted.is_empty(), objection) {
            return Err(refused(reason));
        }
        let from_client = upgrade.then(|| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        clean(&mut head.headers, upgrade);
        let mut used = Vec::new();
        for bound in permitted {
            if bound.apply(&mut head.headers, &mut query).map_err(refused)? {
                used.push(bound);
            }
        }
        // What is compressed cannot be searched.
        head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let target = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        head.uri = Uri::try_from(target).map_err(|_| refused("the target is not valid"))?;
        head.version = Version::HTTP_11;
        let method = head.method.clone();
        let is_used = !used.is_empty();
        for bound in used {
            gateway.credential_used(&bound.rule.name, (host, *port), (method.as_str(), &path));
        }
        let sent = Request::from_parts(head, Outgoing(body));
        let mut sender = self.server.lock().await;
        let answer = self.open(&mut sender).await?.send_request(sent).await;
        drop(sender);
        let answer = answer.map_err(|_| failed("the host broke off the connection"))?;
        self.pass_on(answer, from_client, is_used)
    }

    /// Whether the request may be one at all, and whether it asks for a WebSocket.
    fn check(&self, request: &Request<Incoming>) -> Result<bool, Rejected> {
        let headers = request.headers();
        let Intercepted { host, port, .. } = &self.connection;
        if request.method() == Method::CONNECT || request.uri().authority().is_some() {
            return Err(refused("it is a request to a proxy, inside the connection to the host"));
        }
        let mut hosts = headers.get_all(header::HOST).iter();
        let named = hosts.next().and_then(|value| value.to_str().ok()).and_then(Host::with_port);
        let is_it =
            named.is_some_and(|(named, on)| named == *host && on.unwrap_or(super::rule::PORT) == *port);
        if !is_it || hosts.next().is_some() {
            return Err(refused("the field Host names another host than the connection"));
        }
        if headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH) {
            return Err(refused("the length of its body is ambiguous"));
        }
        let expects = headers.get_all(header::EXPECT).iter();
        if expects.into_iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
            return Err(Rejected(StatusCode::EXPECTATION_FAILED, "it expects what is not known".to_owned()));
        }
        match headers.get(header::UPGRADE) {
            None => Ok(false),
            Some(value) if value.as_bytes().eq_ignore_ascii_case(b"websocket") => {
                let is_get = request.method() == Method::GET && request.body().is_end_stream();
                if is_get { Ok(true) } else { Err(refused("a WebSocket begins with GET")) }
            }
            Some(_) => Err(refused("it asks for another protocol than a WebSocket")),
        }
    }

    /// The way to the host, which is connected to again where it closed a connection that was idle.
    async fn open<'a>(&self, server: &'a mut Server) -> Result<&'a mut SendRequest<Outgoing>, Rejected> {
        let is_ready = match server {
            Server::Open(sender) => sender.ready().await.is_ok(),
            _ => false,
        };
        if !is_ready {
            let stream = match std::mem::replace(server, Server::Gone) {
                Server::Fresh(stream) => stream,
                Server::Open(_) | Server::Gone => {
                    let Intercepted { gateway, host, port, pass, .. } = &self.connection;
                    let reached = reach(gateway, host, *port, pass.as_deref()).await;
                    let reason = |end: CloseReason| end.reason().unwrap_or("it is gone").to_owned();
                    reached.map_err(|end| failed(reason(end)))?.0
                }
            };
            *server = Server::Open(self.greet(stream).await?);
        }
        match server {
            Server::Open(sender) => Ok(sender),
            _ => Err(failed("the host is gone")),
        }
    }

    async fn greet(&self, stream: TcpStream) -> Result<SendRequest<Outgoing>, Rejected> {
        let Intercepted { credentials, host, meter, .. } = &self.connection;
        let name = host.to_string().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|_| failed("no certificate can name the host"))?;
        let stream = Counted::new(stream, Arc::clone(meter));
        let greeting = TlsConnector::from(Arc::clone(&credentials.client)).connect(name, stream);
        let stream = timeout(GREETING_TIMEOUT, greeting).await;
        let stream = stream
            .map_err(|_| failed("the host does not answer in TLS"))?
            .map_err(|error| failed(format!("the host's certificate or its TLS is not accepted: {error}")))?;
        let opened =
            hyper::client::conn::http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream));
        let (sender, connection) = opened.await.map_err(|_| failed("the host does not speak HTTP"))?;
        self.beside(async move { drop(connection.with_upgrades().await) });
        Ok(sender)
    }

    fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.beside.lock().spawn(work);
    }

    /// The host's answer, without the value.
    fn pass_on(
        &self,
        mut answer: Response<Incoming>,
        from_client: Option<hyper::upgrade::OnUpgrade>,
        is_used: bool,
    ) -> Result<Answer, Rejected> {
        let needles = &self.connection.credentials.needles;
        let switches = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        match (switches, from_client) {
            (true, Some(from_client)) => {
                let from_server = hyper::upgrade::on(&mut answer);
                let scrubber = Scrubber::new(Arc::clone(needles));
                self.beside(async move {
                    if let (Ok(client), Ok(server)) = (from_client.await, from_server.await) {
                        relay(TokioIo::new(client), TokioIo::new(server), scrubber).await;
                    }
                });
            }
            (true, None) => return Err(failed("the host changes the protocol without being asked")),
            _ => {}
        }
        let (mut head, body) = answer.into_parts();
        clean(&mut head.headers, switches);
        for value in head.headers.values_mut() {
            let mut bytes = value.as_bytes().to_vec();
            if needles.replace(&mut bytes) {
                *value = HeaderValue::from_bytes(&bytes).unwrap_or_else(|_| HeaderValue::from_static(""));
            }
        }
        head.extensions.clear();
        let is_coded = head.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
        if is_coded && is_used {
            return Err(failed("the host compresses what it was asked not to, and that cannot be searched"));
        }
        let scrubbed = Scrubbed { body, scrubber: Scrubber::new(Arc::clone(needles)), is_done: false };
        Ok(Response::from_parts(head, scrubbed.boxed_unsync()))
    }
}

fn names(bound: &[Arc<Bound>]) -> String {
    bound.iter().map(|bound| bound.rule.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Removes what concerns a connection; a message that changes the protocol keeps the two fields that say so.
fn clean(headers: &mut HeaderMap, upgrades: bool) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        // What decides where it goes and where it ends is not the program's to take away.
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH, header::AUTHORIZATION].contains(name))
        .filter(|name| !(upgrades && *name == header::UPGRADE))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove(header::EXPECT);
    if upgrades {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    } else {
        headers.remove(header::UPGRADE);
    }
}

/// Copies the bytes of a WebSocket.
async fn relay(
    client: impl AsyncRead + AsyncWrite,
    server: impl AsyncRead + AsyncWrite,
    mut scrubber: Scrubber,
) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (split(client), split(server));
    let outgoing = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
        let _ = to_server.shutdown().await;
    };
    let incoming = async {
        let mut buffer = vec![0; BUFFER];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if to_client.write_all(&scrubber.push(&buffer[..length])).await.is_err() {
                return;
            }
        }
        let _ = to_client.write_all(&scrubber.finish()).await;
        let _ = to_client.shutdown().await;
    };
    tokio::join!(outgoing, incoming);
}

/// The body of a request, without trailers.
struct Outgoing(Incoming);

impl Body for Outgoing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match std::task::ready!(Pin::new(&mut self.0).poll_frame(context)) {
            Some(Ok(frame)) if frame.is_trailers() => Poll::Ready(None),
            other => Poll::Ready(other),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The body of an answer, searched, without trailers.
struct Scrubbed {
    body: Incoming,
    scrubber: Scrubber,
    is_done: bool,
}

impl Body for Scrubbed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        while !self.is_done {
            let passed = match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.scrubber.push(&data),
                    Err(_) => continue,
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.is_done = true;
                    self.scrubber.finish()
                }
            };
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(passed.into()))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.scrubber.is_empty() && (self.is_done || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        // The beginning of a value counts until it is passed on.
        if self.scrubber.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}
