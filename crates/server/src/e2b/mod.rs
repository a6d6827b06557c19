//! `agent serve`: the protocol of E2B and Novita over sandboxes of ours, so that the vendors' SDKs work on this machine.
//!
//! One address serves the control plane and every port of every sandbox: a request names the sandbox and its port by
//! headers, or by the host name `PORT-ID.…`. envd's services are answered here, over the guest's protocol; nothing of
//! the vendors runs inside.

mod cells;
pub mod connect;
mod contexts;
mod control;
mod create;
mod egress;
mod files;
mod filesystem;
mod fleet;
mod hosted;
mod interpreter;
mod list;
mod metadata;
mod metrics;
mod paths;
mod ports;
mod process;
mod processes;
mod reply;
mod results;
mod secret;
mod snapshots;
mod templates;
mod upload_budget;
mod watch;

pub use secret::Secret;

use super::listen::Listener;
use agent_base::machine::Machine;
use agent_sandbox::Network;
use agent_session::SandboxSettings;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use connect::{Code, Codec, Failure};
use control::gone;
use create::Creations;
use files::Query;
use fleet::Fleet;
use hosted::Hosted;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use reply::{empty, error, json_response};
use snapshots::Snapshots;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The version of envd that is imitated.
const ENVD_VERSION: &str = "0.6.4";
/// envd's port.
const ENVD_PORT: u16 = 49983;

/// The server's settings.
pub struct E2bSettings {
    /// The settings of its sandboxes.
    pub sandbox: SandboxSettings,
    /// The machine that it runs on.
    pub machine: Arc<Machine>,
    /// The key that clients have to show.
    pub key: Secret,
    /// Below which each sandbox has names, `PORT-ID.DOMAIN`, that lead to the server; a port may follow.
    pub domain: Option<String>,
    /// Sandboxes at a time.
    pub max_sandboxes: usize,
    /// The longest time that a sandbox may be given.
    pub max_time: Duration,
    /// The directory in which it keeps its snapshots, in one of its own that ends with it.
    pub snapshots: PathBuf,
}

/// The server.
struct E2bServer {
    fleet: Arc<Fleet>,
    network: Network,
    key: Secret,
    max_time: Duration,
    creations: Creations,
    snapshots: Snapshots,
    started: jiff::Timestamp,
}

/// Serves until `stop` completes, and removes all sandboxes then.
pub async fn serve(settings: E2bSettings, listener: Listener, stop: impl Future<Output = ()>) {
    let E2bSettings { sandbox, machine, key, domain, max_sandboxes, max_time, snapshots } = settings;
    let network = sandbox.network.clone();
    let fleet = Fleet::new(sandbox, machine, domain, max_sandboxes);
    let creations = Creations::default();
    let snapshots = Snapshots::below(snapshots);
    let started = jiff::Timestamp::now();
    let fleet_of_server = Arc::clone(&fleet);
    let server =
        Arc::new(E2bServer { fleet: fleet_of_server, network, key, max_time, creations, snapshots, started });
    let serving = Arc::clone(&server);
    let router = Router::new().fallback(move |request: Request| {
        let server = Arc::clone(&serving);
        async move { answer(&server, request).await }
    });
    listener
        .serve(router, async {
            stop.await;
            // First, so that what follows a process ends as well.
            fleet.end().await;
        })
        .await;
    fleet.end().await;
    server.snapshots.end().await;
}

async fn answer(server: &E2bServer, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if let Some((id, port)) =
        target(&parts).filter(|(_, port)| *port != ENVD_PORT || !is_control(parts.uri.path()))
    {
        let Some(hosted) = server.fleet.get(&id) else { return gone(&id) };
        return match port {
            ENVD_PORT => envd(&hosted, &parts, body).await,
            interpreter::PORT => code(&hosted, &parts, body).await,
            _ => ports::forward(&hosted, port, Request::from_parts(parts, body)).await,
        };
    }
    // With one address for all sandboxes, some calls of the SDKs name theirs by its token alone.
    if let Some(token) = parts.headers.get("x-access-token").and_then(|value| value.to_str().ok())
        && let Some(hosted) = control::find(&server.fleet, |hosted| hosted.access.matches(token))
        && !is_control(parts.uri.path())
    {
        return match interpreter::has(parts.uri.path()) {
            true => code(&hosted, &parts, body).await,
            false => envd(&hosted, &parts, body).await,
        };
    }
    if parts.uri.path() == "/files" {
        return signed_file(server, &parts, body).await;
    }
    if !shows(&parts.headers, &server.key) {
        return error(StatusCode::UNAUTHORIZED, "the API key is missing or wrong");
    }
    control::call(server, &parts, body).await
}

/// The sandbox and its port that a request is for: by headers, or by the first label of the host name, which is the user's
/// name of `https://PORT-ID.@HOST` where there is no domain whose names lead here.
fn target(parts: &Parts) -> Option<(String, u16)> {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    for vendor in ["e2b", "novita"] {
        if let Some(id) = text(&format!("{vendor}-sandbox-id")) {
            let port = text(&format!("{vendor}-sandbox-port"));
            return Some((id.to_owned(), port.map_or(Some(ENVD_PORT), |port| port.parse().ok())?));
        }
    }
    let host = parts.uri.host().or_else(|| text(header::HOST.as_str()));
    host.and_then(named).or_else(|| named(&user(&parts.headers)?))
}

/// The sandbox and port of a name `PORT-ID.…`; older clients add the client's id to the sandbox's.
fn named(name: &str) -> Option<(String, u16)> {
    let mut label = name.split(['.', ':']).next()?.split('-');
    let port = label.next()?.parse().ok()?;
    Some((label.next()?.to_owned(), port))
}

/// Returns whether the path is one of the control plane's: some SDKs send the headers of a sandbox with its calls as well.
fn is_control(path: &str) -> bool {
    let path = ["/v2", "/v3"].into_iter().find_map(|version| path.strip_prefix(version)).unwrap_or(path);
    ["/sandboxes", "/snapshots", "/templates", "/volumes", "/secrets", "/teams"]
        .into_iter()
        .any(|calls| path.strip_prefix(calls).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Returns whether the request carries the key.
fn shows(headers: &HeaderMap, key: &Secret) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    [text("x-api-key"), bearer].into_iter().flatten().any(|shown| key.matches(shown))
}

/// An address without a sandbox in it: the one whose token has signed it.
async fn signed_file(server: &E2bServer, parts: &Parts, body: Body) -> Response {
    let Some(query) = query(parts) else { return error(StatusCode::BAD_REQUEST, "the address is malformed") };
    let operation = files::operation(&parts.method);
    match control::find(&server.fleet, |hosted| query.is_signed_by(&hosted.access, operation)) {
        Some(hosted) => file(&hosted, parts, &query, body).await,
        None => query.refusal(),
    }
}

fn query(parts: &Parts) -> Option<Query> {
    axum::extract::Query::try_from_uri(&parts.uri).ok().map(|query: axum::extract::Query<Query>| query.0)
}

async fn file(hosted: &Arc<Hosted>, parts: &Parts, query: &Query, body: Body) -> Response {
    if !hosted.wake().await {
        return gone(&hosted.id);
    }
    if !is_known_user(Some(&query.username)) {
        return error(StatusCode::UNAUTHORIZED, "there is no such user");
    }
    match parts.method {
        Method::GET => files::download(hosted, query, &parts.headers).await,
        Method::POST => files::upload(hosted, query, &parts.headers, body).await,
        _ => error(StatusCode::METHOD_NOT_ALLOWED, "use GET or POST"),
    }
}

/// envd's own port.
async fn envd(hosted: &Arc<Hosted>, parts: &Parts, body: Body) -> Response {
    let path = parts.uri.path();
    if path == "/health" {
        // A question about its state changes nothing.
        return if hosted.life().is_paused { gone(&hosted.id) } else { empty(StatusCode::NO_CONTENT) };
    }
    let token = parts.headers.get("x-access-token").and_then(|value| value.to_str().ok());
    let is_owner = token.is_some_and(|token| hosted.access.matches(token));
    if path == "/files" {
        let Some(query) = query(parts) else {
            return error(StatusCode::BAD_REQUEST, "the address is malformed");
        };
        if !is_owner && !query.is_signed_by(&hosted.access, files::operation(&parts.method)) {
            return query.refusal();
        }
        return file(hosted, parts, &query, body).await;
    }
    if !is_owner {
        return error(StatusCode::UNAUTHORIZED, "the access token is missing or wrong");
    }
    if !hosted.wake().await {
        return gone(&hosted.id);
    }
    match path.trim_start_matches('/').split_once('/') {
        Some((service @ ("process.Process" | "filesystem.Filesystem"), method)) => {
            rpc(hosted, service, method, parts, body).await
        }
        _ if path == "/metrics" => metrics::now(hosted).await,
        _ if path == "/envs" => json_response(StatusCode::OK, &hosted.wanted.env),
        _ => error(StatusCode::NOT_FOUND, "there is no such call"),
    }
}

/// The code interpreter's port. Not all calls of the SDKs carry the token of envd.
async fn code(hosted: &Arc<Hosted>, parts: &Parts, body: Body) -> Response {
    let shown = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let is_owner = shown("x-access-token").is_some_and(|token| hosted.access.matches(token))
        || shown("e2b-traffic-access-token").is_some_and(|token| hosted.traffic.matches(token));
    if !is_owner {
        return error(StatusCode::FORBIDDEN, "the traffic access token is missing or wrong");
    }
    if !hosted.wake().await {
        return gone(&hosted.id);
    }
    interpreter::call(hosted, parts, body).await
}

async fn rpc(hosted: &Arc<Hosted>, service: &str, method: &str, parts: &Parts, body: Body) -> Response {
    /// The calls that stream, by either side.
    const STREAMS: [&str; 4] = ["Start", "Connect", "StreamInput", "WatchDir"];
    let codec = Codec::of(&parts.headers).filter(|(_, is_stream)| *is_stream == STREAMS.contains(&method));
    let (true, Some((codec, is_stream))) = (parts.method == Method::POST, codec) else {
        return error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type is not one of Connect's");
    };
    if !is_known_user(user(&parts.headers).filter(|name| named(name).is_none()).as_deref()) {
        let failure = Failure::new(Code::Unauthenticated, "there is no such user");
        return match is_stream {
            true => connect::refused_stream(codec, failure),
            false => connect::unary::<agent_envd::messages::Empty>(codec, Err(failure)),
        };
    }
    match service {
        "process.Process" => process::call(hosted, method, codec, &parts.headers, body).await,
        _ => filesystem::call(hosted, method, codec, body).await,
    }
}

/// The user that the request wants to be.
fn user(headers: &HeaderMap) -> Option<String> {
    use base64::Engine;
    let basic = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let decoded = base64::engine::general_purpose::STANDARD.decode(basic).ok()?;
    String::from_utf8(decoded).ok()?.split(':').next().map(str::to_owned)
}

/// There is one user, who goes by these names. Nothing inside is ever root.
fn is_known_user(name: Option<&str>) -> bool {
    name.is_none_or(|name| ["", "user", "root", "agent"].contains(&name))
}
