//! One connection to a bound host: TLS ends here, each request is judged, and what comes back is searched.

use super::answers::{self, Answered};
use super::bindings::Attempt;
use super::head::{Framing, Head};
use super::host_side::{GREETING_TIMEOUT, HostSide};
use super::outgoing::Outgoing;
use super::requests::{Requests, Rest, Unreadable};
use super::sign::{self, Signed};
use super::{Bound, Credentials, exchange, push, rule, websocket};
use crate::connection::CloseReason;
use crate::host::Host;
use agent_base::hash::Hash;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// What a program may still send after it was refused, in bytes, and for how long.
const MAX_DRAINED: usize = 16 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest body that is read to sign it.
const MAX_SIGNED: usize = 8 << 20;

/// Why a connection is served no further.
enum End {
    /// A request is refused: the answer's status, and the reason.
    Refused(StatusCode, String),
    /// The host cannot be reached, or its answer cannot be passed on.
    Failed(String),
    /// The program is gone.
    Gone,
}

impl From<Unreadable> for End {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Gone => Self::Gone,
            Unreadable::Malformed(malformed) => Self::Refused(malformed.status, malformed.reason.to_owned()),
        }
    }
}

fn refused(reason: impl Into<String>) -> End {
    End::Refused(StatusCode::FORBIDDEN, reason.into())
}

/// A request that may be passed on.
struct Judged {
    /// As it is sent to the host.
    head: Parts,
    /// A value is in it.
    has_used: bool,
    /// The credential that the answer gives a token for.
    exchanged: Option<Arc<Bound>>,
    /// The credential that it pushes with.
    pushing: Option<Arc<Bound>>,
    /// The key that it is signed with.
    signing: Option<Arc<Bound>>,
}

/// What came of a request.
enum Passed {
    /// Its answer was passed on.
    Answer,
    /// The host opens a WebSocket.
    Switched(Upgraded),
}

/// A connection whose TLS has ended here.
struct Served<R, W> {
    requests: Requests<R>,
    to_program: W,
    host_side: HostSide,
    /// What the user allows for this connection.
    once: Vec<Arc<Bound>>,
    /// The user allows nothing more for it.
    is_declined: bool,
    /// An answer has begun, so that no other one can be given.
    has_begun: bool,
}

/// Serves the requests of one connection.
pub(crate) async fn serve(
    host_side: HostSide,
    client: impl AsyncRead + AsyncWrite + Unpin + Send,
) -> Result<(), CloseReason> {
    let config = host_side.credentials.authority.server(&host_side.host).map_err(CloseReason::Failed)?;
    let accepted = timeout(GREETING_TIMEOUT, TlsAcceptor::from(config).accept(client)).await;
    let Ok(Ok(client)) = accepted else {
        // What it says is the program's.
        let reason = "the program did not accept the certificate of this session's credentials";
        return Err(CloseReason::Failed(reason.to_owned()));
    };
    let (from_program, to_program) = split(client);
    let requests = Requests::new(from_program);
    Served { requests, to_program, host_side, once: Vec::new(), is_declined: false, has_begun: false }
        .run()
        .await
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Served<R, W> {
    async fn run(mut self) -> Result<(), CloseReason> {
        loop {
            self.has_begun = false;
            let (attempted, end) = match self.requests.head().await {
                Ok(None) => break,
                Ok(Some(head)) => {
                    let attempted = (head.method.to_string(), head.path.clone());
                    match self.exchange(head).await {
                        Ok(true) => continue,
                        Ok(false) => break,
                        Err(end) => (attempted, end),
                    }
                }
                Err(unreadable) => (self.requests.attempted(), unreadable.into()),
            };
            return self.give_up(&attempted, end).await;
        }
        // The program may be gone.
        let _ = self.to_program.shutdown().await;
        Ok(())
    }

    async fn give_up(&mut self, (method, path): &(String, String), end: End) -> Result<(), CloseReason> {
        let HostSide { gateway, credentials, host, port, .. } = &self.host_side;
        let (status, reason, closed) = match end {
            End::Gone => return Err(CloseReason::Gone),
            End::Refused(status, reason) => {
                let attempt = Attempt { host, port: *port, method, path };
                gateway.credential_refused(&names(&credentials.at(host, *port)), attempt, &reason);
                (status, reason, Ok(()))
            }
            End::Failed(reason) => {
                (StatusCode::BAD_GATEWAY, reason.clone(), Err(CloseReason::Failed(reason)))
            }
        };
        let text = format!("agent did not pass on this request to {host}:{port}: {reason}.\n");
        self.host_side.close();
        if !self.has_begun && answers::say(&mut self.to_program, status, &text).await.is_ok() {
            let _ = timeout(DRAIN_TIMEOUT, self.requests.drain(MAX_DRAINED)).await;
        }
        closed
    }

    /// Passes on a request and its answer. Returns whether another request can follow.
    async fn exchange(&mut self, head: Head) -> Result<bool, End> {
        let (framing, awaits_continue) = (head.framing, head.awaits_continue);
        let (method, is_last, is_websocket) = (head.method.clone(), head.is_last, head.is_websocket);
        let Judged { mut head, mut has_used, exchanged, pushing, signing } = self.judged(head)?;
        if awaits_continue {
            let wrote = self.to_program.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            wrote.and(self.to_program.flush().await).map_err(|_| End::Gone)?;
        }
        let mut rest = Rest::from(framing);
        let first = match (pushing, signing) {
            (Some(bound), _) => self.approved_push(&bound, &head, &mut rest).await?,
            (None, Some(bound)) => self.signed(&bound, &mut head, &mut rest).await?,
            (None, None) => Vec::new(),
        };
        let Self { requests, to_program, host_side, once, is_declined, has_begun } = self;
        let (feed, body) = Outgoing::new(framing);
        let credentials = Arc::clone(&host_side.credentials);
        let again = (framing == Framing::None && !has_used).then(|| head.clone());
        let work = async {
            let mut answer = host_side.send(head, body).await.map_err(End::Failed)?;
            if answer.status() == StatusCode::UNAUTHORIZED && !has_used && !*is_declined {
                match offered(host_side, once).await {
                    Some(bound) => {
                        if let Some(head) = again.and_then(|head| with_offered(host_side, &bound, head)) {
                            // What is left of the first answer is not read.
                            host_side.close();
                            has_used = true;
                            answer = host_side.send(head, Outgoing::empty()).await.map_err(End::Failed)?;
                        }
                    }
                    None => *is_declined = true,
                }
            }
            if let Some(reason) = answers::objection(&answer, has_used, is_websocket) {
                return Err(End::Failed(reason.to_owned()));
            }
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                *has_begun = true;
                let switched = hyper::upgrade::on(&mut answer);
                let (head, _) = answer.into_parts();
                answers::switch(to_program, head, &credentials.needles()).await.map_err(|_| End::Gone)?;
                return Ok(Passed::Switched(switched.await.map_err(|_| End::Gone)?));
            }
            let answered = Answered { method, has_used, is_last };
            let passed = match exchanged.filter(|_| answer.status().is_success()) {
                Some(bound) => {
                    let answer =
                        with_placeholders(&credentials, &bound, answer).await.map_err(End::Failed)?;
                    *has_begun = true;
                    answers::pass_on(to_program, answer, &answered, &credentials.needles()).await
                }
                None => {
                    *has_begun = true;
                    answers::pass_on(to_program, answer, &answered, &credentials.needles()).await
                }
            };
            passed.map(|()| Passed::Answer).map_err(|_| End::Gone)
        };
        let sending = requests.body(rest, first, feed);
        let mut work = Box::pin(work);
        let mut sending = Box::pin(sending);
        // The host may answer before it has read the body.
        let mut is_sent = false;
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    if let Passed::Switched(host) = done? {
                        drop((work, sending));
                        let needles = self.host_side.credentials.needles();
                        let host = TokioIo::new(host);
                        websocket::carry(&mut self.requests, &mut self.to_program, host, needles).await?;
                        return Ok(false);
                    }
                    return Ok(is_sent && !is_last);
                }
                sent = &mut sending, if !is_sent => {
                    is_sent = sent?;
                    if !is_sent {
                        // The host does not want the rest.
                        work.await?;
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Has the user see what a push changes. Returns the pieces of it that were read for that.
    async fn approved_push(
        &mut self,
        bound: &Bound,
        head: &Parts,
        rest: &mut Rest,
    ) -> Result<Vec<Bytes>, End> {
        let HostSide { gateway, host, port, .. } = &self.host_side;
        if !gateway.is_anybody_asked() {
            return Ok(Vec::new());
        }
        if head.headers.contains_key(header::CONTENT_ENCODING) {
            return Err(refused("the push is compressed, so that the user cannot see what it changes"));
        }
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        while bytes.len() < push::MAX_LOOKED_AT
            && let Some(piece) = self.requests.piece(rest).await?
        {
            bytes.extend_from_slice(&piece);
            pieces.push(piece);
        }
        let push = push::read(&bytes).map_err(refused)?;
        if push.updates.is_empty() {
            return Ok(pieces);
        }
        let path = head.uri.path().trim_end_matches("/git-receive-pack");
        let repository = format!("{host}:{port}{path}");
        let changes = push.description();
        let asked = gateway.approve_push(&bound.rule.name, &repository, &changes);
        asked.await.map_err(refused)?;
        Ok(pieces)
    }

    /// Signs a request. Returns the pieces of its body that were read for that.
    async fn signed(&mut self, bound: &Bound, head: &mut Parts, rest: &mut Rest) -> Result<Vec<Bytes>, End> {
        let (Some(key), Some(signed)) = (&bound.key, Signed::by(&head.headers, &bound.placeholder)) else {
            return Ok(Vec::new());
        };
        if let Some(reason) = sign::objection(&head.headers) {
            return Err(refused(reason));
        }
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        if sign::content_hash(&head.headers).is_none() {
            while let Some(piece) = self.requests.piece(rest).await? {
                bytes.extend_from_slice(&piece);
                pieces.push(piece);
                if bytes.len() > MAX_SIGNED {
                    return Err(refused(
                        "its body is longer than 8 MiB, and the request does not name its hash",
                    ));
                }
            }
        }
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        let request = (&head.method, path.as_str(), query.as_str());
        signed.sign(key, request, &mut head.headers, Some(Hash::of(&bytes))).map_err(refused)?;
        Ok(pieces)
    }

    /// Judges a request.
    fn judged(&self, head: Head) -> Result<Judged, End> {
        let HostSide { gateway, credentials, host, port, .. } = &self.host_side;
        let at_host = [credentials.at(host, *port), self.once.clone()].concat();
        check_host(&head.fields, host, *port)?;
        let Head { method, path, query, mut fields, framing, is_websocket, .. } = head;
        let mut query = query.unwrap_or_default();
        let mut used = Vec::new();
        let permitted = permitted(&at_host, &method, &path, &query).map_err(refused)?;
        if is_websocket {
            if !at_host.is_empty() && !permitted.iter().any(|bound| bound.rule.websockets) {
                return Err(refused("it asks for a WebSocket, and the credential's websockets is not set"));
            }
            // What is compressed cannot be searched.
            fields.remove(header::SEC_WEBSOCKET_EXTENSIONS);
            fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        }
        for bound in permitted {
            if bound.apply(&mut fields, &mut query).map_err(refused)? || bound.inject(&mut fields, &path) {
                used.push(bound);
            }
        }
        // What is compressed, or comes in parts, cannot be searched.
        fields.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // A key is not sent, so that nothing can repeat it.
        let has_used = used.iter().any(|bound| bound.key.is_none());
        if has_used {
            fields.remove(header::RANGE);
            fields.remove(header::IF_RANGE);
        }
        match framing {
            Framing::None if method == Method::POST || method == Method::PUT => {
                fields.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
            Framing::None => {}
            Framing::Length(length) => drop(fields.insert(header::CONTENT_LENGTH, length.into())),
            Framing::Chunked => {
                fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        let target = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        let target = Uri::try_from(target).map_err(|_| refused("the target is not valid"))?;
        for bound in &used {
            let attempt = Attempt { host, port: *port, method: method.as_str(), path: &path };
            gateway.credential_used(&bound.rule.name, attempt);
        }
        let (mut parts, ()) = Request::new(()).into_parts();
        (parts.method, parts.uri, parts.headers) = (method, target, fields);
        let is_exchange = |bound: &&&Arc<Bound>| bound.rule.exchanges.contains(&path);
        let exchanged = used.iter().find(is_exchange).map(|bound| Arc::clone(bound));
        let is_push = |bound: &&&Arc<Bound>| bound.rule.is_push(&parts.method, &path);
        let pushing = used.iter().find(is_push).map(|bound| Arc::clone(bound));
        let signing = used.iter().find(|bound| bound.key.is_some()).map(|bound| Arc::clone(bound));
        Ok(Judged { head: parts, has_used, exchanged, pushing, signing })
    }
}

/// The credential that the user allows for a host which refused a request.
async fn offered(host_side: &HostSide, once: &mut Vec<Arc<Bound>>) -> Option<Arc<Bound>> {
    let HostSide { gateway, credentials, host, port, .. } = host_side;
    let (bound, is_once) = gateway.offered(credentials, host, *port).await?;
    if is_once {
        once.push(Arc::clone(&bound));
    }
    Some(bound)
}

/// A request that was refused, with the credential that the user allows, if its rule covers it.
fn with_offered(host_side: &HostSide, bound: &Bound, mut head: Parts) -> Option<Parts> {
    let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default());
    bound.rule.judge(head.method.as_str(), &path, query).ok()?;
    if !bound.inject(&mut head.headers, &path) {
        return None;
    }
    let HostSide { gateway, host, port, .. } = host_side;
    let attempt = Attempt { host, port: *port, method: head.method.as_str(), path: &path };
    gateway.credential_used(&bound.rule.name, attempt);
    Some(head)
}

/// The answer of a host that gives a token in exchange, without it.
async fn with_placeholders(
    credentials: &Credentials,
    bound: &Bound,
    answer: Response<Incoming>,
) -> Result<Response<Full<Bytes>>, String> {
    let (head, body) = answer.into_parts();
    let collected = Limited::new(body, exchange::MAX_ANSWER).collect().await;
    let collected = collected.map_err(|_| "the answer with a token breaks off, or is too long".to_owned())?;
    let body = credentials.exchange(bound, &collected.to_bytes())?;
    Ok(Response::from_parts(head, Full::from(body)))
}

/// Refuses a request whose `Host` is not the host of the connection.
fn check_host(fields: &HeaderMap, host: &Host, port: u16) -> Result<(), End> {
    let mut hosts = fields.get_all(header::HOST).iter();
    let named = hosts.next().and_then(|value| value.to_str().ok()).and_then(Host::with_port);
    let is_it = named.is_some_and(|(named, on)| named == *host && on.unwrap_or(rule::PORT) == port);
    match is_it && hosts.next().is_none() {
        true => Ok(()),
        false => Err(refused("the field Host names another host than the connection")),
    }
}

/// The credentials whose rules allow a request.
fn permitted<'b>(
    bound: &'b [Arc<Bound>],
    method: &Method,
    path: &str,
    query: &str,
) -> Result<Vec<&'b Arc<Bound>>, String> {
    let mut permitted = Vec::new();
    let mut objection = None;
    for bound in bound {
        match bound.rule.judge(method.as_str(), path, query) {
            Ok(()) => permitted.push(bound),
            Err(reason) => objection = Some(reason),
        }
    }
    match objection {
        Some(reason) if permitted.is_empty() => Err(reason),
        _ => Ok(permitted),
    }
}

fn names(bound: &[Arc<Bound>]) -> String {
    bound.iter().map(|bound| bound.rule.name.as_str()).collect::<Vec<_>>().join(", ")
}
