//! The server over HTTP: one endpoint, `/mcp`, for clients of both eras, with a token, and closed to web pages.

use super::{Caller, Service, request};
use crate::listen::{Address, Listener};
use crate::random_token;
use agent_base::lock::Lock;
use agent_mcp::jsonrpc::{
    ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, Id, METHOD_NOT_FOUND, Message,
};
use agent_mcp::protocol::{HEADER_MISMATCH, MODERN};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::{AbortHandle, abortable};
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest body of a request, in bytes.
const MAX_BODY: usize = 64 << 20;
/// Bytes of the bodies of all requests that are worked on; a further request waits.
const MAX_BODIES: usize = 4 * MAX_BODY;
/// The time limit for a body, with the wait.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The code of a request that its client has cancelled.
const CANCELLED: i64 = -32000;
/// Clients of the earlier era, which have a session each: more than there are sandboxes.
const MAX_SESSIONS: usize = 256;
/// A session that has not been used for this long is forgotten.
const MAX_IDLE: Duration = Duration::from_secs(3600);
/// The sandbox of clients that have no session.
const SHARED: &str = "shared";
const SESSION: &str = "mcp-session-id";

/// The token that a client has to show.
#[derive(Clone)]
pub struct BearerToken(Option<[u8; 32]>);

impl BearerToken {
    /// Clients have to send this text as a bearer token.
    pub fn required(token: &str) -> Self {
        Self(Some(Sha256::digest(token).into()))
    }

    /// Every program of this machine is let in.
    pub fn none() -> Self {
        Self(None)
    }

    fn is_required(&self) -> bool {
        self.0.is_some()
    }

    /// Compares hashes, which takes the same time whatever was sent.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(wanted) = self.0 else { return true };
        let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let sent = sent.and_then(|value| value.split_once(' '));
        let sent =
            sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        sent.is_some_and(|token| <[u8; 32]>::from(Sha256::digest(token)) == wanted)
    }
}

struct HttpServer {
    service: Arc<Service>,
    token: BearerToken,
    /// Names that a client may have used for this server; `None`: any name, because it has to have the token.
    hosts: Option<Vec<String>>,
    /// Clients of the earlier era, and when each was last heard of.
    sessions: Lock<HashMap<String, Instant>>,
    /// Their requests that are worked on.
    running: Lock<HashMap<(String, Id), AbortHandle>>,
    /// Bytes of bodies that may still be read.
    room: Arc<Semaphore>,
}

/// Serves until `stop` completes, then ends every sandbox.
pub async fn serve(
    service: Arc<Service>,
    listener: Listener,
    token: BearerToken,
    stop: impl Future<Output = ()>,
) {
    let server = Arc::new(HttpServer {
        service: Arc::clone(&service),
        hosts: hosts(listener.address(), &token),
        token,
        sessions: Lock::default(),
        running: Lock::default(),
        room: Arc::new(Semaphore::new(MAX_BODIES)),
    });
    let router = Router::new()
        .route("/mcp", post(answer).delete(forget).get(not_here))
        // Before anything of a body is read.
        .layer(from_fn_with_state(Arc::clone(&server), admitted))
        .with_state(server);
    tokio::select! {
        () = listener.serve(router, stop) => {}
        () = service.end_idle() => {}
    }
    service.end().await;
}

type Refused = (StatusCode, ErrorObject);

/// The names of a server at `address`. Any name will do where every network of this machine leads to it, but only with the
/// token, which no page of another site has.
fn hosts(address: &Address, token: &BearerToken) -> Option<Vec<String>> {
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
    if let Address::Tcp(address) = address {
        if address.ip().is_unspecified() && token.is_required() {
            return None;
        }
        hosts.push(match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
    }
    Some(hosts)
}

async fn admitted(State(server): State<Arc<HttpServer>>, request: Request, next: Next) -> Response {
    match server.admit(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refusal(refused),
    }
}

async fn answer(State(server): State<Arc<HttpServer>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let read = match accepts(&head.headers) {
        Ok(()) => server.read(&head.headers, body).await,
        Err(refused) => Err(refused),
    };
    match read {
        Ok((body, _room)) => server.answer(&head.headers, &body).await.unwrap_or_else(|refused| *refused),
        Err(refused) => refusal(refused),
    }
}

/// Nothing is sent that was not asked for.
async fn not_here() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

/// The client ends its session.
async fn forget(State(server): State<Arc<HttpServer>>, headers: HeaderMap) -> Response {
    let id = text(&headers, SESSION).unwrap_or_default().to_owned();
    let known = server.sessions.lock().remove(&id);
    match known {
        Some(_) => {
            server.service.forget(&place(&id)).await;
            StatusCode::NO_CONTENT.into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

impl HttpServer {
    /// Checks whether a request may be answered at all: not to a page in a browser, and not without the token.
    fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let refused = |status, why: &str| Err((status, ErrorObject::new(INVALID_REQUEST, why)));
        let Some(host) = text(headers, "host").map(without_port) else {
            return refused(StatusCode::FORBIDDEN, "the header Host is missing");
        };
        let is_ours = |name: &str| match &self.hosts {
            Some(known) => known.iter().any(|known| known.eq_ignore_ascii_case(name)),
            None => host.eq_ignore_ascii_case(name),
        };
        if !is_ours(host) {
            return refused(StatusCode::FORBIDDEN, "this server is not known by that name");
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let name = origin.to_str().ok().and_then(|origin| {
                origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))
            });
            if !name.is_some_and(|name| is_ours(without_port(name))) {
                return refused(StatusCode::FORBIDDEN, "pages of this origin may not use this server");
            }
        }
        match self.token.admits(headers) {
            true => Ok(()),
            false => refused(StatusCode::UNAUTHORIZED, "the token is missing or wrong"),
        }
    }

    /// Reads the body of a request, with its share of the memory that all bodies may take.
    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<(Bytes, OwnedSemaphorePermit), Refused> {
        let refused = |status, why: &str| (status, ErrorObject::new(INVALID_REQUEST, why));
        // A body that does not say how long it is may be as long as any.
        let length = text(headers, "content-length").map_or(Some(MAX_BODY), |length| length.parse().ok());
        let Some(length) = length.filter(|length| *length <= MAX_BODY) else {
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "a message has at most 64 MiB"));
        };
        let read = async {
            let room = Arc::clone(&self.room).acquire_many_owned(length as u32).await;
            (to_bytes(body, length).await, room)
        };
        match tokio::time::timeout(BODY_TIMEOUT, read).await {
            Ok((Ok(body), Ok(room))) => Ok((body, room)),
            Ok(_) => {
                Err(refused(StatusCode::BAD_REQUEST, "the body could not be read, or is larger than 64 MiB"))
            }
            Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
        }
    }

    async fn answer(&self, headers: &HeaderMap, body: &[u8]) -> Result<Response, Box<Response>> {
        let message = Message::parse(body).map_err(|malformed| {
            let outcome = Err(ErrorObject::new(malformed.code, malformed.reason));
            Box::new(reply(StatusCode::BAD_REQUEST, &Message::Response { id: malformed.id, outcome }))
        })?;
        let (id, method, params) = match message {
            Message::Request { id, method, params } => (id, method, params),
            Message::Notification { method, params } => {
                if method == "notifications/cancelled" {
                    self.cancel(headers, &params);
                }
                return Ok(StatusCode::ACCEPTED.into_response());
            }
            // Nobody was asked.
            Message::Response { .. } => return Ok(StatusCode::ACCEPTED.into_response()),
        };
        let of_request = |(status, error): Refused| {
            Box::new(reply(status, &Message::Response { id: Some(id.clone()), outcome: Err(error) }))
        };
        let (caller, session) = self.caller(headers, &method, &params).map_err(of_request)?;
        let work = async {
            let _turn = self.service.turn_to_transfer(&method, &params).await;
            self.service.answer(&caller, &method, &params).await
        };
        let outcome = match text(headers, SESSION) {
            Some(session) => self.cancellable((session.to_owned(), id.clone()), work).await,
            // Of the modern era: a request that its client drops is cancelled.
            None => work.await,
        };
        let is_modern = request::version(&params).is_some();
        let status = match &outcome {
            Err(error) if is_modern && error.code == METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            Err(_) if is_modern => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        let mut response = reply(status, &Message::Response { id: Some(id), outcome });
        if let Some(session) = session.and_then(|session| session.parse().ok()) {
            response.headers_mut().insert(SESSION, session);
        }
        Ok(response)
    }

    /// Makes room for a client: many never say that they are gone. The one is forgotten that was not heard of for the longest time,
    /// of those without a sandbox, of which there are always some.
    fn forget_a_client(&self, sessions: &mut HashMap<String, Instant>) {
        let without_sandbox = sessions.iter().filter(|(id, _)| !self.service.has_sandbox(&place(id)));
        let oldest = without_sandbox.min_by_key(|(_, used)| **used).map(|(id, _)| id.clone());
        oldest.and_then(|id| sessions.remove(&id));
    }

    /// Waits for `work` on a request, unless its client cancels it.
    async fn cancellable(
        &self,
        key: (String, Id),
        work: impl Future<Output = Result<Value, ErrorObject>>,
    ) -> Result<Value, ErrorObject> {
        let (work, handle) = abortable(work);
        if self.running.lock().contains_key(&key) {
            return Err(ErrorObject::new(INVALID_REQUEST, "a request with this id is being worked on"));
        }
        self.running.lock().insert(key.clone(), handle);
        let _listed = Listed { server: self, key };
        work.await.unwrap_or_else(|_| Err(ErrorObject::new(CANCELLED, "cancelled by the client")))
    }

    fn cancel(&self, headers: &HeaderMap, params: &Value) {
        let id = params.get("requestId").and_then(|id| serde_json::from_value::<Id>(id.clone()).ok());
        if let (Some(session), Some(id)) = (text(headers, SESSION), id)
            && let Some(handle) = self.running.lock().get(&(session.to_owned(), id))
        {
            handle.abort();
        }
    }

    /// Returns the sender of a request, and the session that begins with it.
    fn caller(
        &self,
        headers: &HeaderMap,
        method: &str,
        params: &Value,
    ) -> Result<(Caller, Option<String>), Refused> {
        // Over HTTP nobody is asked in the earlier era.
        let of = |place: String| Caller { place, client: None, shows_forms: false };
        if request::version(params).is_some() {
            check_headers(headers, method, params)?;
            return Ok((of(SHARED.to_owned()), None));
        }
        if text(headers, "mcp-protocol-version") == Some(MODERN) {
            let why = "the header MCP-Protocol-Version names a version that the message does not";
            return Err((StatusCode::BAD_REQUEST, ErrorObject::new(INVALID_PARAMS, why)));
        }
        let mut sessions = self.sessions.lock();
        if method == "initialize" {
            sessions.retain(|_, used| used.elapsed() < MAX_IDLE);
            if sessions.len() >= MAX_SESSIONS {
                self.forget_a_client(&mut sessions);
            }
            let id = random_token().map_err(|error| {
                (StatusCode::INTERNAL_SERVER_ERROR, ErrorObject::new(INTERNAL_ERROR, error.to_string()))
            })?;
            sessions.insert(id.clone(), Instant::now());
            return Ok((of(place(&id)), Some(id)));
        }
        let refused = |status, why: &str| Err((status, ErrorObject::new(INVALID_REQUEST, why)));
        let Some(id) = text(headers, SESSION) else {
            return refused(
                StatusCode::BAD_REQUEST,
                "the header Mcp-Session-Id is missing: begin with initialize",
            );
        };
        match sessions.get_mut(id) {
            Some(used) => {
                *used = Instant::now();
                Ok((of(place(id)), None))
            }
            None => refused(StatusCode::NOT_FOUND, "this session has ended: begin with initialize"),
        }
    }
}

/// A request that can be cancelled.
struct Listed<'a> {
    server: &'a HttpServer,
    key: (String, Id),
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.server.running.lock().remove(&self.key);
    }
}

/// The name in a `Host` header or in an origin.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The name of the sandbox of a session.
fn place(session: &str) -> String {
    format!("session {session}")
}

fn accepts(headers: &HeaderMap) -> Result<(), Refused> {
    let accept = text(headers, "accept").unwrap_or_default();
    let takes = |kind: &str| accept.contains(kind) || accept.contains("*/*");
    if !takes("application/json") || !takes("text/event-stream") {
        let why = "the client has to accept application/json and text/event-stream";
        return Err((StatusCode::NOT_ACCEPTABLE, ErrorObject::new(INVALID_REQUEST, why)));
    }
    let is_json = text(headers, "content-type")
        .is_some_and(|kind| kind.split(';').next().unwrap_or_default().trim() == "application/json");
    match is_json {
        true => Ok(()),
        false => Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorObject::new(INVALID_REQUEST, "a message is application/json"),
        )),
    }
}

/// Checks that the headers of the modern era repeat what the message says.
fn check_headers(headers: &HeaderMap, method: &str, params: &Value) -> Result<(), Refused> {
    let mismatch = |name: &str| {
        let why = format!("the header {name} is missing, or differs from the message");
        Err((StatusCode::BAD_REQUEST, ErrorObject::new(HEADER_MISMATCH, why)))
    };
    if text(headers, "mcp-protocol-version") != request::version(params) {
        return mismatch("MCP-Protocol-Version");
    }
    if text(headers, "mcp-method") != Some(method) {
        return mismatch("Mcp-Method");
    }
    let name = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" => params.get("uri"),
        _ => return Ok(()),
    };
    let sent = text(headers, "mcp-name").map(decoded);
    match sent.as_deref() == name.and_then(Value::as_str) {
        true => Ok(()),
        false => mismatch("Mcp-Name"),
    }
}

/// A value that is not ASCII comes as `=?base64?…?=`.
fn decoded(value: &str) -> String {
    let inner = value.strip_prefix("=?base64?").and_then(|value| value.strip_suffix("?="));
    let bytes = inner.and_then(|inner| STANDARD.decode(inner).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_else(|| value.to_owned())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn reply(status: StatusCode, message: &Message) -> Response {
    (status, axum::Json(message.to_value())).into_response()
}

fn refusal((status, error): Refused) -> Response {
    let mut response = reply(status, &Message::Response { id: None, outcome: Err(error) });
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_as_a_whole() {
        let headers = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            headers
        };
        let token = BearerToken::required("secret");
        assert!(token.admits(&headers("Bearer secret")) && token.admits(&headers("bearer secret")));
        for wrong in ["Bearer secre", "Bearer secrets", "secret", "Basic secret", "Bearer "] {
            assert!(!token.admits(&headers(wrong)), "{wrong}");
        }
        assert!(!token.admits(&HeaderMap::new()) && BearerToken::none().admits(&HeaderMap::new()));
    }

    #[test]
    fn a_value_that_is_not_ascii_comes_in_base64() {
        assert_eq!(decoded("plain"), "plain");
        assert_eq!(decoded("=?base64?w6k=?="), "é");
        assert_eq!(decoded("=?base64?!?="), "=?base64?!?=");
    }
}
