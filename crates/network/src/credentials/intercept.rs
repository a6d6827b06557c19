//! One connection to a bound host: TLS ends here, each request is judged, and what comes back is searched.

use super::answers::{self, Answered};
use super::bindings::Attempt;
use super::head::{Framing, Head};
use super::host_side::{GREETING_TIMEOUT, HostSide};
use super::outgoing::Outgoing;
use super::requests::{Requests, Unreadable};
use super::{Bound, Credentials, exchange, rule};
use crate::connection::CloseReason;
use crate::host::Host;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// What a program may still send after it was refused, in bytes, and for how long.
const MAX_DRAINED: usize = 16 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

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
}

/// A connection whose TLS has ended here.
struct Served<R, W> {
    requests: Requests<R>,
    to_program: W,
    host_side: HostSide,
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
    Served { requests, to_program, host_side, has_begun: false }.run().await
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
        let (method, is_last) = (head.method.clone(), head.is_last);
        let Judged { head, has_used, exchanged } = self.judged(head)?;
        if awaits_continue {
            let wrote = self.to_program.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            wrote.and(self.to_program.flush().await).map_err(|_| End::Gone)?;
        }
        let Self { requests, to_program, host_side, has_begun, .. } = self;
        let (feed, body) = Outgoing::new(framing);
        let credentials = Arc::clone(&host_side.credentials);
        let work = async {
            let answer = host_side.send(head, body).await.map_err(End::Failed)?;
            if let Some(reason) = answers::objection(&answer, has_used) {
                return Err(End::Failed(reason.to_owned()));
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
            passed.map_err(|_| End::Gone)
        };
        let sending = requests.body(framing, feed);
        tokio::pin!(work, sending);
        // The host may answer before it has read the body.
        let mut is_sent = false;
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    done?;
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

    /// Judges a request.
    fn judged(&self, head: Head) -> Result<Judged, End> {
        let HostSide { gateway, credentials, host, port, .. } = &self.host_side;
        let at_host = credentials.at(host, *port);
        check_host(&head.fields, host, *port)?;
        let Head { method, path, query, mut fields, framing, .. } = head;
        let mut query = query.unwrap_or_default();
        let mut used = Vec::new();
        for bound in permitted(&at_host, &method, &path, &query).map_err(refused)? {
            if bound.apply(&mut fields, &mut query).map_err(refused)? {
                used.push(bound);
            }
        }
        // What is compressed, or comes in parts, cannot be searched.
        fields.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if !used.is_empty() {
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
        let has_used = !used.is_empty();
        let is_exchange = |bound: &&&Arc<Bound>| bound.rule.exchanges.contains(&path);
        let exchanged = used.iter().find(is_exchange).map(|bound| Arc::clone(bound));
        Ok(Judged { head: parts, has_used, exchanged })
    }
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
