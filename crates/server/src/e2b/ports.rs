//! The ports of a sandbox at which programs of its own listen: requests are carried there, WebSockets included.

use super::control::gone;
use super::hosted::{Hosted, MAX_CONNECTIONS};
use super::reply::{error, json_response};
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{DuplexStream, copy_bidirectional};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

/// The header that opens the ports of a sandbox that was created with `allowPublicTraffic: false`.
const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";
/// The headers that say which sandbox and port a request is for, and open it: nothing that a program inside needs.
const ROUTING: [&str; 5] =
    ["e2b-sandbox-id", "e2b-sandbox-port", "novita-sandbox-id", "novita-sandbox-port", TRAFFIC_TOKEN];
/// The pauses after which a port is tried again where nothing listens: a server that was just started comes late.
const PAUSES: [u64; 4] = [100, 200, 300, 400];

/// Carries a request to a port.
pub async fn forward(hosted: &Hosted, port: u16, mut request: Request) -> Response {
    let token = request.headers().get(TRAFFIC_TOKEN).and_then(|value| value.to_str().ok());
    if hosted.wanted.has_private_ports && !token.is_some_and(|token| hosted.traffic.matches(token)) {
        return error(StatusCode::FORBIDDEN, "the traffic access token is missing or wrong");
    }
    if !hosted.wake().await {
        return gone(&hosted.id);
    }
    let Ok(connection) = Arc::clone(&hosted.connections).try_acquire_owned() else {
        let message = json!({
            "sandboxId": hosted.id, "message": "The sandbox has too many connections", "port": port, "code": 429,
            "connectionLimit": MAX_CONNECTIONS,
        });
        return json_response(StatusCode::TOO_MANY_REQUESTS, &message);
    };
    let Some(stream) = open(hosted, port).await else { return closed(&hosted.id, port) };
    strip(request.headers_mut());
    if let Some(host) = &hosted.wanted.masked_host
        && let Ok(host) = HeaderValue::from_str(&host.replace("${PORT}", &port.to_string()))
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let Some(address) = request.uri().path_and_query().cloned() else {
        return error(StatusCode::BAD_REQUEST, "the address is malformed");
    };
    *request.uri_mut() = Uri::from(address);
    exchange(stream, request, connection).await.unwrap_or_else(|_| closed(&hosted.id, port))
}

fn strip(headers: &mut HeaderMap) {
    for name in ROUTING {
        headers.remove(name);
    }
    if super::user(headers).is_some_and(|name| super::named(&name).is_some()) {
        headers.remove(header::AUTHORIZATION);
    }
}

async fn open(hosted: &Hosted, port: u16) -> Option<DuplexStream> {
    for pause in PAUSES {
        match hosted.sandbox.connect_port(port).await {
            Ok(stream) => return Some(stream),
            Err(_) => sleep(Duration::from_millis(pause)).await,
        }
    }
    hosted.sandbox.connect_port(port).await.ok()
}

/// Sends the request, and joins both connections where the program inside agrees to change the protocol.
async fn exchange(
    stream: DuplexStream,
    mut request: Request,
    permit: OwnedSemaphorePermit,
) -> hyper::Result<Response> {
    let client = request.extensions_mut().remove::<OnUpgrade>();
    let permit = Arc::new(permit);
    let held = Arc::clone(&permit);
    // Names as programs write them: some look for `Host:`.
    let (mut sender, connection) =
        http1::Builder::new().title_case_headers(true).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // The side that breaks off is the one that notices.
        let _ = connection.with_upgrades().await;
        drop(held);
    });
    let mut response = sender.send_request(request).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let (Some(client), Some(server)) = (client, response.extensions_mut().remove::<OnUpgrade>())
    {
        tokio::spawn(async move {
            if let (Ok(client), Ok(server)) = (client.await, server.await) {
                let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
            }
            drop(permit);
        });
    }
    Ok(response.map(Body::new))
}

/// Nothing listens there.
fn closed(id: &str, port: u16) -> Response {
    let message = "The sandbox is running but port is not open";
    json_response(
        StatusCode::BAD_GATEWAY,
        &json!({ "sandboxId": id, "message": message, "port": port, "code": 502 }),
    )
}
