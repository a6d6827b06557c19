//! A server elsewhere: streamable HTTP, from this machine.

use super::failure::Failure;
use super::login::Login;
use super::peer::{MAX_MESSAGE, OnProgress, Timeouts, answer, progress_text};
use crate::jsonrpc::{ErrorObject, INTERNAL_ERROR, Id, Malformed, Message};
use crate::protocol::{MODERN, meta};
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::sanitise::one_line;
use agent_base::tls;
use agent_model::client::sse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

/// The time limit for making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The most bytes of one answer, with all that comes before it.
const MAX_STREAM: usize = 64 << 20;
/// The time limit for ending a session.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// Bytes of what a server says about a failure.
const MAX_ERROR: usize = 2_000;
/// The longest id of a session, in bytes.
const MAX_SESSION: usize = 1_000;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The listener for exchanges: what goes to the server and comes from it.
pub type OnExchange = Arc<dyn Fn(Exchange) + Send + Sync>;

/// One exchange with a server.
#[derive(Debug, Clone, Copy)]
pub struct Exchange {
    /// Bytes of the request.
    pub sent: u64,
    /// Bytes of the answer.
    pub received: u64,
    /// The time that it took.
    pub duration: Duration,
}

/// A server elsewhere.
pub struct Http {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    /// The user's login, unless a header of the configuration has a token.
    login: Option<Login>,
    token: Lock<Option<SecretString>>,
    on_exchange: OnExchange,
    session: Lock<Option<HeaderValue>>,
    version: Lock<Option<HeaderValue>>,
    next: AtomicI64,
    changed: AtomicBool,
}

impl Http {
    /// The server at `url`, which gets these headers, and the token of the login, with each request. They go nowhere else: no redirect is
    /// followed.
    ///
    /// # Errors
    /// A header is not valid.
    pub fn new(
        url: Url,
        headers: &[(String, SecretString)],
        login: Option<Login>,
        on_exchange: OnExchange,
    ) -> Result<Self> {
        tls::install_provider();
        let mut fields = HeaderMap::new();
        for (name, value) in headers {
            let invalid = || Error::config(format!("{name:?} is not a valid header, or its value is not"));
            let name = HeaderName::try_from(name).map_err(|_| invalid())?;
            let mut value = HeaderValue::try_from(value.expose_secret()).map_err(|_| invalid())?;
            value.set_sensitive(true);
            fields.insert(name, value);
        }
        let builder = reqwest::Client::builder()
            .http1_only()
            .user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none());
        let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        let client = builder
            .build()
            .map_err(|error| Error::config("the HTTP client cannot be set up").caused_by(error))?;
        let login = login.filter(|_| !fields.contains_key(AUTHORIZATION));
        let (session, version, token) = (Lock::default(), Lock::default(), Lock::default());
        let (next, changed) = (AtomicI64::new(1), AtomicBool::new(false));
        Ok(Self { client, url, headers: fields, login, token, on_exchange, session, version, next, changed })
    }

    /// Sets the version that both sides speak.
    pub fn set_version(&self, version: &str) {
        *self.version.lock() = HeaderValue::try_from(version).ok();
    }

    /// Returns whether it has said that its tools are others now.
    pub fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    /// Asks, and waits for the answer. Dropping the future closes the response, which cancels the request.
    pub async fn request(
        &self,
        method: &str,
        mut params: Value,
        timeouts: Timeouts,
        on_progress: OnProgress<'_>,
    ) -> Result<Value, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(members) = params.get_mut("_meta").and_then(Value::as_object_mut) {
            members.insert(meta::PROGRESS_TOKEN.to_owned(), id.into());
        }
        if let Some(login) = &self.login {
            let token = login.token().await;
            *self.token.lock() = token;
        }
        let request = self.build(method, &params, Some(id));
        let (started, received) = (Instant::now(), AtomicU64::new(0));
        let asked = async {
            let mut response = sent(request.1, timeouts).await?;
            if response.status() == StatusCode::UNAUTHORIZED && self.has_another_token().await {
                response = sent(self.build(method, &params, Some(id)).1, timeouts).await?;
            }
            self.keep_session(method, &response);
            let response = self.check(response).await?;
            self.read(response, AwaitedAnswer { id, started, timeouts, received: &received }, on_progress)
                .await
        };
        let outcome = asked.await;
        let received = received.load(Ordering::Relaxed);
        (self.on_exchange)(Exchange { sent: request.0, received, duration: started.elapsed() });
        outcome
    }

    /// Gets another token for one that the server does not take any more.
    async fn has_another_token(&self) -> bool {
        let refused = self.token.lock().clone();
        let (Some(login), Some(refused)) = (&self.login, refused) else { return false };
        let another = login.another(refused.expose_secret()).await;
        another.map(|token| *self.token.lock() = Some(token)).is_some()
    }

    /// Tells it something. A failure is that of the next request.
    pub async fn notify(&self, method: &str, params: Value) {
        let (_, request) = self.build(method, &params, None);
        let _ = timeout(CONNECT_TIMEOUT, request.send()).await;
    }

    /// Ends the session, if the server has one.
    pub async fn end(self) {
        let Some(session) = self.session.lock().take() else { return };
        let request = self.client.delete(self.url.clone()).headers(self.fields()).header(SESSION, session);
        let _ = timeout(END_TIMEOUT, request.send()).await;
    }

    /// A request, and the length of its body.
    fn build(&self, method: &str, params: &Value, id: Option<i64>) -> (u64, RequestBuilder) {
        let (name, method_name) = (method.to_owned(), params.clone());
        let message = match id {
            Some(id) => Message::Request { id: Id::Number(id), method: name, params: method_name },
            None => Message::Notification { method: name, params: method_name },
        };
        let body = message.to_value().to_string();
        let length = body.len() as u64;
        let request = self.post(body);
        let version = params.get("_meta").and_then(|meta| meta.get(meta::VERSION));
        let is_modern = version.is_some_and(|version| version == MODERN);
        if !is_modern {
            return (length, request);
        }
        // These say again what is in the body, for whatever is between.
        let request = request.header(VERSION, MODERN).header(METHOD, method);
        let name = ["name", "uri"].iter().find_map(|member| params.get(member)?.as_str());
        (
            length,
            match name {
                Some(name) => request.header(NAME, encoded(name)),
                None => request,
            },
        )
    }

    fn post(&self, body: String) -> RequestBuilder {
        let mut request = self
            .client
            .post(self.url.clone())
            .headers(self.fields())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(body);
        if let Some(session) = self.session.lock().clone() {
            request = request.header(SESSION, session);
        }
        if let Some(version) = self.version.lock().clone().filter(|version| version != MODERN) {
            request = request.header(VERSION, version);
        }
        request
    }

    /// The headers of each request.
    fn fields(&self) -> HeaderMap {
        let mut fields = self.headers.clone();
        let token = self.token.lock().clone();
        let value =
            token.and_then(|token| HeaderValue::try_from(format!("Bearer {}", token.expose_secret())).ok());
        if let Some(mut value) = value {
            value.set_sensitive(true);
            fields.insert(AUTHORIZATION, value);
        }
        fields
    }

    fn keep_session(&self, method: &str, response: &Response) {
        let session = response.headers().get(SESSION).filter(|id| id.len() <= MAX_SESSION);
        if method == "initialize"
            && let Some(session) = session
        {
            *self.session.lock() = Some(session.clone());
        }
    }

    /// An answer under another status than a good one is a failure; its body may say why.
    async fn check(&self, response: Response) -> Result<Response, Failure> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(Failure::Unauthorised(status.as_u16()));
        }
        if status == StatusCode::NOT_FOUND && self.session.lock().take().is_some() {
            return Err(Failure::Ended("its session has ended".to_owned()));
        }
        let body = read_up_to(response, MAX_ERROR).await;
        if let Ok(Message::Response { outcome: Err(error), .. }) = Message::parse(&body) {
            return Err(Failure::Refused(error));
        }
        let said = one_line(&String::from_utf8_lossy(&body), 200);
        Err(match status.is_server_error() || status.is_redirection() {
            true => Failure::Ended(format!("it answered with the status {}: {said}", status.as_u16())),
            // One that does not know a method of this era may answer with a status alone.
            false => Failure::Refused(ErrorObject::new(
                INTERNAL_ERROR,
                format!("status {}: {said}", status.as_u16()),
            )),
        })
    }

    async fn read(
        &self,
        response: Response,
        AwaitedAnswer { id, started, timeouts, received }: AwaitedAnswer<'_>,
        on_progress: OnProgress<'_>,
    ) -> Result<Value, Failure> {
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let limit = if is_stream { MAX_STREAM } else { MAX_MESSAGE };
        let (mut body, mut decoder, mut events) = (Vec::new(), sse::Decoder::new(MAX_MESSAGE), Vec::new());
        let mut stream = response.bytes_stream();
        let last = started + timeouts.total;
        let mut total = 0;
        loop {
            let deadline = (Instant::now() + timeouts.idle).min(last);
            let piece = timeout_at(deadline, stream.next())
                .await
                .map_err(|_| Failure::TimedOut(started.elapsed()))?
                .transpose()
                .map_err(|error| Failure::Ended(format!("the answer broke off: {}", reason(&error))))?;
            let is_end = piece.is_none();
            let piece = piece.unwrap_or_default();
            total += piece.len();
            received.store(total as u64, Ordering::Relaxed);
            let too_long = || Failure::NotTheProtocol(format!("it is longer than {limit} bytes"));
            if total > limit {
                return Err(too_long());
            }
            if !is_stream {
                body.extend_from_slice(&piece);
                if is_end {
                    return answered(Message::parse(&body), id);
                }
                continue;
            }
            let decoded = match is_end {
                true => decoder.finish(&mut events),
                false => decoder.feed(&piece, &mut events),
            };
            decoded.map_err(|_| too_long())?;
            for event in events.drain(..) {
                match Message::parse(event.data.as_bytes()) {
                    Ok(message @ Message::Response { .. }) => return answered(Ok(message), id),
                    Ok(message) => self.take(message, on_progress).await,
                    Err(_) => {}
                }
            }
            if is_end {
                return Err(Failure::Ended("the answer broke off".to_owned()));
            }
        }
    }

    /// Takes what comes before the answer.
    async fn take(&self, message: Message, on_progress: &mut (dyn FnMut(String) + Send)) {
        match message {
            Message::Notification { method, params } => match method.as_str() {
                "notifications/progress" => {
                    let text = progress_text(&params);
                    if !text.is_empty() {
                        on_progress(text);
                    }
                }
                "notifications/tools/list_changed" | "notifications/prompts/list_changed" => {
                    self.changed.store(true, Ordering::Relaxed);
                }
                _ => {}
            },
            Message::Request { id, method, .. } => {
                let message = Message::Response { id: Some(id), outcome: answer(&method) };
                let _ = timeout(CONNECT_TIMEOUT, self.post(message.to_value().to_string()).send()).await;
            }
            Message::Response { .. } => {}
        }
    }
}

async fn sent(request: RequestBuilder, timeouts: Timeouts) -> Result<Response, Failure> {
    timeout(timeouts.idle, request.send())
        .await
        .map_err(|_| Failure::TimedOut(timeouts.idle))?
        .map_err(|error| Failure::Ended(format!("it cannot be reached: {}", reason(&error))))
}

/// The answer that is waited for.
struct AwaitedAnswer<'a> {
    id: i64,
    started: Instant,
    timeouts: Timeouts,
    /// Bytes of the answer so far.
    received: &'a AtomicU64,
}

fn answered(message: Result<Message, Malformed>, asked: i64) -> Result<Value, Failure> {
    match message {
        Ok(Message::Response { id, outcome }) if id == Some(Id::Number(asked)) || outcome.is_err() => {
            outcome.map_err(Failure::Refused)
        }
        Ok(_) => Err(Failure::NotTheProtocol("it is the answer to another request".to_owned())),
        Err(_) => Err(Failure::NotTheProtocol("it is not a message".to_owned())),
    }
}

/// A value of `Mcp-Name`.
fn encoded(name: &str) -> String {
    match name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && name.trim() == name {
        true => name.to_owned(),
        false => format!("=?base64?{}?=", STANDARD.encode(name)),
    }
}

async fn read_up_to(response: Response, bound: usize) -> Vec<u8> {
    let (mut body, mut stream) = (Vec::new(), response.bytes_stream());
    while let Ok(Some(Ok(piece))) = timeout(CONNECT_TIMEOUT, stream.next()).await {
        body.extend_from_slice(&piece[..piece.len().min(bound - body.len())]);
        if body.len() >= bound {
            break;
        }
    }
    body
}

/// Returns the reason why a request failed, without the address, which may hold a key.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    one_line(&cause.to_string(), 200)
}
