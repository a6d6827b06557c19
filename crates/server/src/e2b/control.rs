//! The control plane: creating, finding, pausing and removing sandboxes.

use super::create;
use super::egress;
use super::fleet::Fleet;
use super::hosted::{Hosted, Pausing};
use super::list;
use super::metrics;
use super::reply::{RefusedCall, answer, empty, error, final_error, json_response};
use super::snapshots;
use super::templates;
use super::{E2bServer, ENVD_VERSION};
use agent_base::error::{Error, Kind};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// The longest body of a call.
const MAX_BODY: usize = 1 << 20;
/// A body that has not arrived by then is given up.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Answers a call of a client that has shown the key.
pub async fn call(server: &E2bServer, parts: &Parts, body: Body) -> Response {
    let body = match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return error(StatusCode::PAYLOAD_TOO_LARGE, "the request is longer than 1 MiB, or broke off");
        }
        Err(_) => return error(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time"),
    };
    let path: Vec<&str> = parts.uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let query = parts.uri.query().unwrap_or_default();
    let (get, post) = (parts.method == Method::GET, parts.method == Method::POST);
    match path.as_slice() {
        ["health"] if get => empty(StatusCode::NO_CONTENT),
        ["sandboxes"] if post => {
            answer(create::create(server, &parts.headers, &body, create::V1_TIMEOUT).await)
        }
        ["v2", "sandboxes"] if post => {
            answer(create::create(server, &parts.headers, &body, create::V2_TIMEOUT).await)
        }
        ["sandboxes"] | ["v2", "sandboxes"] if get => list::list(&server.fleet, query),
        ["sandboxes", "metrics"] if get => json_response(StatusCode::OK, &json!({ "sandboxes": {} })),
        ["snapshots"] if get => answer(server.snapshots.list(query)),
        ["templates", rest @ ..] | ["v2" | "v3", "templates", rest @ ..] => {
            templates::call(server, &parts.method, rest).await
        }
        ["sandboxes", id, rest @ ..] | ["v2", "sandboxes", id, rest @ ..] => {
            // Older clients add the client's id to the sandbox's.
            let id = id.split('-').next().unwrap_or_default();
            match server.fleet.get(id) {
                Some(hosted) => of_sandbox(server, &hosted, &parts.method, rest, query, &body).await,
                None => error(StatusCode::NOT_FOUND, &format!("sandbox {id:?} was not found")),
            }
        }
        _ => not_offered(),
    }
}

fn not_offered() -> Response {
    not_offered_because(
        "agent serve does not offer this call: docs/internals/compatibility.md lists what it does",
    )
}

/// The answer to a call that no request of the client's could make succeed. Not 404, which is a sandbox that is gone.
pub fn not_offered_because(why: &str) -> Response {
    final_error(StatusCode::NOT_IMPLEMENTED, why)
}

async fn of_sandbox(
    server: &E2bServer,
    hosted: &Hosted,
    method: &Method,
    rest: &[&str],
    query: &str,
    body: &Bytes,
) -> Response {
    let (get, post) = (method == Method::GET, method == Method::POST);
    match rest {
        [] if get => json_response(StatusCode::OK, &list::detail(hosted)),
        [] if method == Method::DELETE => match server.fleet.remove(&hosted.id).await {
            true => empty(StatusCode::NO_CONTENT),
            false => error(StatusCode::NOT_FOUND, "the sandbox was not found"),
        },
        ["timeout"] if post => answer(set_timeout(server, hosted, body, false)),
        ["refreshes"] if post => answer(set_timeout(server, hosted, body, true)),
        ["connect" | "resume"] if post => answer(connect(server, hosted, body).await),
        ["snapshots"] if post => answer(snapshots::create(server, hosted, body).await),
        ["fork"] if post => answer(snapshots::fork(server, hosted, body).await),
        ["pause"] if post && hosted.life().is_paused => {
            error(StatusCode::CONFLICT, "the sandbox is paused already")
        }
        ["pause"] if post => answer(pause(hosted, body).await),
        ["network"] if method == Method::PUT => answer(egress::update(server, hosted, body).await),
        ["metrics"] if get => metrics::metrics(hosted, query).await,
        ["logs"] if get => json_response(StatusCode::OK, &json!({ "logs": [], "logEntries": [] })),
        _ => not_offered(),
    }
}

#[derive(Default, Deserialize)]
struct Time {
    timeout: Option<u64>,
    duration: Option<u64>,
}

/// The seconds that a call names, within the server's limit.
pub fn time(server: &E2bServer, seconds: u64) -> Result<Duration, RefusedCall> {
    let time = Duration::from_secs(seconds);
    if time <= server.max_time {
        return Ok(time);
    }
    let limit = server.max_time.as_secs();
    Err(RefusedCall::bad_request(format!("timeout cannot be greater than {limit} s: see --max-time-to-live")))
}

/// A JSON body; an empty one is that of a call without arguments.
pub fn parse<T: DeserializeOwned + Default>(body: &Bytes) -> Result<T, RefusedCall> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    serde_json::from_slice(body)
        .map_err(|failed| RefusedCall::bad_request(format!("the request cannot be read: {failed}")))
}

fn set_timeout(
    server: &E2bServer,
    hosted: &Hosted,
    body: &Bytes,
    extends: bool,
) -> Result<Response, RefusedCall> {
    let asked: Time = parse(body)?;
    let named = asked.timeout.or(asked.duration);
    let seconds = named.ok_or_else(|| RefusedCall::bad_request("the request names no time"))?;
    hosted.live_for(time(server, seconds)?, extends);
    Ok(empty(StatusCode::NO_CONTENT))
}

#[derive(Default, Deserialize)]
struct PauseWanted {
    memory: Option<bool>,
}

async fn pause(hosted: &Hosted, body: &Bytes) -> Result<Response, RefusedCall> {
    let asked: PauseWanted = parse(body)?;
    let keeping = if asked.memory == Some(false) { Pausing::Files } else { Pausing::Memory };
    hosted.pause(keeping).await.map_err(|failed| failure(&failed))?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Resumes a paused sandbox; the time of a running one is only extended.
async fn connect(server: &E2bServer, hosted: &Hosted, body: &Bytes) -> Result<Response, RefusedCall> {
    let asked: Time = parse(body)?;
    let timeout = match asked.timeout {
        Some(seconds) => time(server, seconds)?,
        None => create::V2_TIMEOUT.min(server.max_time),
    };
    let was_paused = hosted.resume_for(timeout).await.map_err(|failed| failure(&failed))?;
    let status = if was_paused { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_response(status, &sandbox(hosted)))
}

/// Returns what a client needs to use a sandbox.
pub fn sandbox(hosted: &Hosted) -> Value {
    json!({
        "templateID": hosted.wanted.template,
        "sandboxID": hosted.id,
        "clientID": "agent",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": hosted.access.reveal(),
        "trafficAccessToken": hosted.traffic.reveal(),
        "domain": hosted.domain,
    })
}

/// A failure of the server or of its backend.
pub fn failure(failed: &Error) -> RefusedCall {
    let hint = failed.hint_text().map(|hint| format!(" ({hint})")).unwrap_or_default();
    let message = format!("{failed}{hint}");
    match failed.kind() {
        Kind::Limit => RefusedCall::finally(StatusCode::TOO_MANY_REQUESTS, message),
        Kind::Config | Kind::Usage => RefusedCall::bad_request(message),
        Kind::Terminated => RefusedCall::new(StatusCode::SERVICE_UNAVAILABLE, message),
        _ => RefusedCall::finally(StatusCode::INTERNAL_SERVER_ERROR, message),
    }
}

/// Returns what a sandbox that is not there, or not any more, is answered with on its own ports.
pub fn gone(id: &str) -> Response {
    let message = json!({ "sandboxId": id, "message": "The sandbox was not found", "code": 502 });
    json_response(StatusCode::BAD_GATEWAY, &message)
}

/// The sandbox that a signed address belongs to.
pub fn find(fleet: &Fleet, is_owner: impl Fn(&Hosted) -> bool) -> Option<std::sync::Arc<Hosted>> {
    fleet.all().into_iter().find(|hosted| is_owner(hosted))
}
