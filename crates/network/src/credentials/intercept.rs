//! One connection to a bound host: TLS ends here, each request is judged, and what comes back is searched.

use super::answers::{self, Answered};
use super::bindings::Attempt;
use super::head::{Framing, Head};
use super::host_side::{GREETING_TIMEOUT, HostSide};
use super::judged::{self, Judged};
use super::outgoing::Outgoing;
use super::requests::{Requests, Rest, Unreadable};
use super::{Bound, Credentials, exchange, http2, looked_at, websocket};
use crate::connection::CloseReason;
use crate::traffic::Rewound;
use agent_base::lock::Lock;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// The bytes that a program may still send after it was refused, and the time for that.
const MAX_DRAINED: usize = 16 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why a connection is served no further.
pub(super) enum End {
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

pub(super) fn refused(reason: impl Into<String>) -> End {
    End::Refused(StatusCode::FORBIDDEN, reason.into())
}

/// The user's answers about credentials for a connection of the program, which all its streams share.
#[derive(Default)]
pub(super) struct OfferAnswers {
    /// Held while the user is asked.
    asking: tokio::sync::Mutex<()>,
    /// The user is not asked again.
    is_declined: AtomicBool,
    /// The credentials that the user allows for this connection.
    once: Lock<Vec<Arc<Bound>>>,
}

/// A connection whose TLS has ended here.
pub(super) struct Served<R, W> {
    requests: Requests<R>,
    to_program: W,
    host_side: HostSide,
    said: Arc<OfferAnswers>,
    /// An answer has begun, so that no other one can be given.
    has_begun: bool,
}

/// Serves the requests of one connection.
pub(crate) async fn serve(
    host_side: HostSide,
    client: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(), CloseReason> {
    let config = host_side.credentials.authority.server(&host_side.host).map_err(CloseReason::Failed)?;
    let accepted = timeout(GREETING_TIMEOUT, TlsAcceptor::from(config).accept(client)).await;
    let mut client = match accepted {
        Ok(Ok(client)) => client,
        Ok(Err(error)) if speaks_no_http(&error) => {
            return Err(CloseReason::Failed("the program speaks neither HTTP/1.1 nor HTTP/2".to_owned()));
        }
        // What else it says is the program's.
        _ => {
            let reason = "the program did not accept the certificate of this session's credentials";
            return Err(CloseReason::Failed(reason.to_owned()));
        }
    };
    let (is_http2, begun) = http2::begins(&mut client).await.map_err(|_| CloseReason::Gone)?;
    let client = Rewound::new(begun, client);
    match is_http2 {
        true => http2::serve(host_side, client).await,
        false => Served::new(host_side, client, Arc::default()).run().await,
    }
}

/// Returns whether a program offered other protocols alone, in its greeting.
fn speaks_no_http(error: &std::io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::NoApplicationProtocol))
}

impl<C: AsyncRead + AsyncWrite> Served<ReadHalf<C>, WriteHalf<C>> {
    /// `said` is shared by what is one connection for the program.
    pub fn new(host_side: HostSide, client: C, said: Arc<OfferAnswers>) -> Self {
        let (from_program, to_program) = split(client);
        let requests = Requests::new(from_program);
        Self { requests, to_program, host_side, said, has_begun: false }
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Served<R, W> {
    pub async fn run(mut self) -> Result<(), CloseReason> {
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
        let (is_last, is_websocket) = (head.is_last, head.is_websocket);
        let once = self.said.once.lock().clone();
        let mut judged = judged::judged(&self.host_side, &once, head).map_err(refused)?;
        if awaits_continue {
            let wrote = self.to_program.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            wrote.and(self.to_program.flush().await).map_err(|_| End::Gone)?;
        }
        let mut rest = Rest::from(framing);
        let first = match (judged.pushing(), judged.signing()) {
            (Some(bound), _) => {
                let HostSide { gateway, host, port, .. } = &self.host_side;
                let asking = (&**gateway, host, *port);
                looked_at::approved_push(&mut self.requests, asking, &bound, &judged.head, &mut rest).await?
            }
            (None, Some(bound)) => {
                let by = (&*bound, &self.host_side.host);
                looked_at::signed(&mut self.requests, by, &mut judged.head, &mut rest).await?
            }
            (None, None) => Vec::new(),
        };
        judged.report(&self.host_side);
        let (feed, body) = Outgoing::new(framing);
        let Self { requests, to_program, host_side, said, has_begun } = self;
        let mut answering = Answering { to_program, host_side, said, has_begun };
        let may_repeat = framing == Framing::None;
        let switched = {
            let work = answering.run(judged, body, may_repeat, (is_last, is_websocket));
            let sending = requests.body(rest, first, feed);
            tokio::pin!(work, sending);
            // The host may answer before it has read the body.
            let mut is_sent = false;
            loop {
                tokio::select! {
                    biased;
                    done = &mut work => match done? {
                        Some(host) => break host,
                        None => return Ok(is_sent && !is_last),
                    },
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
        };
        let needles = self.host_side.credentials.needles();
        websocket::carry(&mut self.requests, &mut self.to_program, TokioIo::new(switched), needles).await?;
        Ok(false)
    }
}

/// The part of a connection that answers a request, while its body is still being read.
struct Answering<'s, W> {
    to_program: &'s mut W,
    host_side: &'s mut HostSide,
    said: &'s OfferAnswers,
    has_begun: &'s mut bool,
}

impl<W: AsyncWrite + Unpin> Answering<'_, W> {
    /// Sends a request, and passes on the answer. Returns the connection where the host opens a WebSocket.
    async fn run(
        &mut self,
        judged: Judged,
        body: Outgoing,
        may_repeat: bool,
        (is_last, is_websocket): (bool, bool),
    ) -> Result<Option<Upgraded>, End> {
        let method = judged.head.method.clone();
        let HostAnswer { mut answer, has_value, exchanged } = self.answer(judged, body, may_repeat).await?;
        if let Some(reason) = answers::objection(&answer, has_value, is_websocket) {
            return Err(End::Failed(reason.to_owned()));
        }
        let credentials = Arc::clone(&self.host_side.credentials);
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            *self.has_begun = true;
            let switched = hyper::upgrade::on(&mut answer);
            let (head, _) = answer.into_parts();
            answers::switch(self.to_program, head, &credentials.needles()).await.map_err(|_| End::Gone)?;
            let switched = self.host_side.driver().drive(switched).await;
            return switched.map(Some).map_err(|_| End::Gone);
        }
        let answered = Answered { method, has_used: has_value, is_last };
        let driver = self.host_side.driver();
        let needles = credentials.needles();
        let passed = match exchanged.filter(|_| answer.status().is_success()) {
            Some(bound) => {
                let replaced = driver.drive(with_placeholders(&credentials, &bound, answer)).await;
                let answer = replaced.map_err(End::Failed)?;
                *self.has_begun = true;
                answers::pass_on(self.to_program, answer, &answered, &credentials.needles()).await
            }
            None => {
                *self.has_begun = true;
                driver.drive(answers::pass_on(self.to_program, answer, &answered, &needles)).await
            }
        };
        passed.map(|()| None).map_err(|_| End::Gone)
    }

    /// The host's answer; where it refuses the request, and the user allows a credential then, the answer with that.
    async fn answer(&mut self, judged: Judged, body: Outgoing, may_repeat: bool) -> Result<HostAnswer, End> {
        let (has_value, exchanged) = (judged.has_value(), judged.exchanged());
        let again = (may_repeat && !has_value).then(|| judged.head.clone());
        let answer = self.host_side.send(judged.head, body).await.map_err(End::Failed)?;
        if answer.status() != StatusCode::UNAUTHORIZED || has_value {
            return Ok(HostAnswer { answer, has_value, exchanged });
        }
        let Some(bound) = self.offered().await else {
            return Ok(HostAnswer { answer, has_value, exchanged });
        };
        let Some(judged) = again.and_then(|head| Judged::with_offered(&bound, head)) else {
            return Ok(HostAnswer { answer, has_value, exchanged });
        };
        judged.report(self.host_side);
        // What is left of the first answer is not read.
        self.host_side.close();
        let exchanged = judged.exchanged();
        let answer = self.host_side.send(judged.head, Outgoing::empty()).await.map_err(End::Failed)?;
        Ok(HostAnswer { answer, has_value: true, exchanged })
    }
}

impl<W> Answering<'_, W> {
    /// Returns a credential for a host that has refused a request: one that the user allowed meanwhile, or is asked about.
    async fn offered(&mut self) -> Option<Arc<Bound>> {
        let _asking = self.said.asking.lock().await;
        if self.said.is_declined.load(Relaxed) {
            return None;
        }
        if let Some(allowed) = self.said.once.lock().last() {
            return Some(Arc::clone(allowed));
        }
        let HostSide { gateway, credentials, host, port, .. } = &*self.host_side;
        let Some((bound, is_once)) = gateway.offered(credentials, host, *port).await else {
            self.said.is_declined.store(true, Relaxed);
            return None;
        };
        if is_once {
            self.said.once.lock().push(Arc::clone(&bound));
        }
        Some(bound)
    }
}

/// A host's answer.
struct HostAnswer {
    answer: Response<Incoming>,
    /// A value was in the request.
    has_value: bool,
    /// The credential that it gives a token for.
    exchanged: Option<Arc<Bound>>,
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

/// The names of credentials, for an event.
pub(super) fn names(bound: &[Arc<Bound>]) -> String {
    bound.iter().map(|bound| bound.rule.name.as_str()).collect::<Vec<_>>().join(", ")
}
