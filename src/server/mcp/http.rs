//! The server over HTTP: one endpoint, `/mcp`, for clients of both eras, with a token, and closed to web pages.

use super::{Caller, Service, request};
use crate::lock::Lock;
use crate::mcp::jsonrpc::{
    ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Message,
};
use crate::mcp::protocol::{HEADER_MISMATCH, MODERN};
use crate::server::listen::{Address, Listener};
use crate::server::random_token;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest body of a request, in bytes.
const MAX_BODY: usize = 64 << 20;
/// Clients of the earlier era, which have a session each.
const MAX_SESSIONS: usize = 64;
/// A session that has not been used for this long is forgotten.
const MAX_IDLE: Duration = Duration::from_secs(3600);
/// The sandbox of clients that have no session.
const SHARED: &str = "shared";
const SESSION: &str = "mcp-session-id";

/// What a client has to show.
#[derive(Clone)]
pub struct Token(Option<[u8; 32]>);

impl Token {
    /// Clients have to send this text as a bearer token.
    pub fn required(token: &str) -> Self {
        Self(Some(Sha256::digest(token).into()))
    }

    /// Every program of this machine is let in.
    pub fn none() -> Self {
        Self(None)
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

struct Server {
    service: Arc<Service>,
    token: Token,
    /// Names that a client may have used for this server.
    hosts: Vec<String>,
    sessions: Lock<HashMap<String, Known>>,
}

/// A client of the earlier era.
struct Known {
    capabilities: Value,
    used: Instant,
}

/// Serves until `stop` completes, then ends every sandbox.
pub async fn serve(service: Arc<Service>, listener: Listener, token: Token, stop: impl Future<Output = ()>) {
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
    if let Address::Tcp(address) = listener.address() {
        hosts.push(match address.ip() {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        });
    }
    let server = Arc::new(Server { service: Arc::clone(&service), token, hosts, sessions: Lock::default() });
    let router = Router::new()
        .route("/mcp", post(answer).delete(forget).get(not_here))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(server);
    listener.serve(router, stop).await;
    service.end().await;
}

type Refused = (StatusCode, ErrorObject);

async fn answer(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response {
    server.answer(&headers, &body).await.unwrap_or_else(|refused| *refused)
}

async fn not_here(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    match server.admit(&headers) {
        // Nothing is sent that was not asked for.
        Ok(()) => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        Err(refused) => refusal(refused),
    }
}

/// The client ends its session.
async fn forget(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    if let Err(refused) = server.admit(&headers) {
        return refusal(refused);
    }
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

impl Server {
    /// Whether a request may be answered at all: not to a page in a browser, and not without the token.
    fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let refused = |status, why: &str| Err((status, ErrorObject::new(INVALID_REQUEST, why)));
        if !text(headers, "host").is_some_and(|host| self.is_ours(host)) {
            return refused(StatusCode::FORBIDDEN, "this server is not known by that name");
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let host = origin.to_str().ok().and_then(|origin| {
                origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))
            });
            if !host.is_some_and(|host| self.is_ours(host)) {
                return refused(StatusCode::FORBIDDEN, "pages of this origin may not use this server");
            }
        }
        match self.token.admits(headers) {
            true => Ok(()),
            false => refused(StatusCode::UNAUTHORIZED, "the token is missing or wrong"),
        }
    }

    /// Whether `host`, with a port or without, is a name of this server.
    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    async fn answer(&self, headers: &HeaderMap, body: &[u8]) -> Result<Response, Box<Response>> {
        self.admit(headers).and_then(|()| accepts(headers)).map_err(|refused| Box::new(refusal(refused)))?;
        let message = Message::parse(body).map_err(|malformed| {
            let outcome = Err(ErrorObject::new(malformed.code, malformed.reason));
            Box::new(reply(StatusCode::BAD_REQUEST, &Message::Response { id: malformed.id, outcome }))
        })?;
        let (id, method, params) = match message {
            Message::Request { id, method, params } => (id, method, params),
            // What is notified or answered here changes nothing: a request that is dropped is cancelled.
            Message::Notification { .. } | Message::Response { .. } => {
                return Ok(StatusCode::ACCEPTED.into_response());
            }
        };
        let of_request = |(status, error): Refused| {
            Box::new(reply(status, &Message::Response { id: Some(id.clone()), outcome: Err(error) }))
        };
        let (caller, session) = self.caller(headers, &method, &params).map_err(of_request)?;
        let outcome = self.service.answer(&caller, &method, &params).await;
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

    /// Who sends a request, and the session that begins with it.
    fn caller(
        &self,
        headers: &HeaderMap,
        method: &str,
        params: &Value,
    ) -> Result<(Caller, Option<String>), Refused> {
        let of = |place: String, capabilities: Value| Caller { place, client: None, capabilities };
        if request::version(params).is_some() {
            check_headers(headers, method, params)?;
            return Ok((of(SHARED.to_owned(), Value::Null), None));
        }
        if text(headers, "mcp-protocol-version") == Some(MODERN) {
            let why = "the header MCP-Protocol-Version names a version that the message does not";
            return Err((StatusCode::BAD_REQUEST, ErrorObject::new(INVALID_PARAMS, why)));
        }
        let mut sessions = self.sessions.lock();
        if method == "initialize" {
            sessions.retain(|_, known| known.used.elapsed() < MAX_IDLE);
            if sessions.len() >= MAX_SESSIONS {
                let why = format!("{MAX_SESSIONS} clients are connected, which is the limit");
                return Err((StatusCode::SERVICE_UNAVAILABLE, ErrorObject::new(INVALID_REQUEST, why)));
            }
            let id = random_token().map_err(|error| {
                (StatusCode::INTERNAL_SERVER_ERROR, ErrorObject::new(INTERNAL_ERROR, error.to_string()))
            })?;
            let capabilities = params.get("capabilities").cloned().unwrap_or_default();
            sessions.insert(id.clone(), Known { capabilities: capabilities.clone(), used: Instant::now() });
            return Ok((of(place(&id), capabilities), Some(id)));
        }
        let refused = |status, why: &str| Err((status, ErrorObject::new(INVALID_REQUEST, why)));
        let Some(id) = text(headers, SESSION) else {
            return refused(
                StatusCode::BAD_REQUEST,
                "the header Mcp-Session-Id is missing: begin with initialize",
            );
        };
        match sessions.get_mut(id) {
            Some(known) => {
                known.used = Instant::now();
                Ok((of(place(id), known.capabilities.clone()), None))
            }
            None => refused(StatusCode::NOT_FOUND, "this session has ended: begin with initialize"),
        }
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

/// What the headers of the modern era repeat has to be what the message says.
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
        let token = Token::required("secret");
        assert!(token.admits(&headers("Bearer secret")) && token.admits(&headers("bearer secret")));
        for wrong in ["Bearer secre", "Bearer secrets", "secret", "Basic secret", "Bearer "] {
            assert!(!token.admits(&headers(wrong)), "{wrong}");
        }
        assert!(!token.admits(&HeaderMap::new()) && Token::none().admits(&HeaderMap::new()));
    }

    #[test]
    fn a_value_that_is_not_ascii_comes_in_base64() {
        assert_eq!(decoded("plain"), "plain");
        assert_eq!(decoded("=?base64?w6k=?="), "é");
        assert_eq!(decoded("=?base64?!?="), "=?base64?!?=");
    }
}
