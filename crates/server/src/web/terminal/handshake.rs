//! A request that becomes a WebSocket (RFC 6455), whose messages are bounded.

use crate::web::answers::FailedRequest;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, HeaderMap};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sha1::{Digest, Sha1};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// RFC 6455, section 1.3.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of the largest message that a client may send.
pub const MAX_MESSAGE: usize = 16 << 10;
/// Bytes that wait for the client inside of the protocol.
const MAX_UNSENT: usize = 256 << 10;

/// The server's end of a socket.
pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The answer that accepts `request`, and what becomes its socket.
///
/// # Errors
/// It does not ask for a WebSocket of this version.
pub fn accept(mut request: Request) -> Result<(Response, OnUpgrade), FailedRequest> {
    let refused = || FailedRequest::new(StatusCode::BAD_REQUEST, "this address is for WebSockets");
    let accepted = key(request.headers()).ok_or_else(refused)?;
    let upgrade = request.extensions_mut().remove::<OnUpgrade>().ok_or_else(refused)?;
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    Ok((answer, upgrade))
}

/// The proof that a request with these headers was understood.
fn key(headers: &HeaderMap) -> Option<HeaderValue> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let names = |name, wanted: &str| {
        text(name).is_some_and(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(wanted)))
    };
    let is_asked = names(header::UPGRADE, "websocket") && names(header::CONNECTION, "upgrade");
    if !is_asked || text(header::SEC_WEBSOCKET_VERSION) != Some("13") {
        return None;
    }
    let key = text(header::SEC_WEBSOCKET_KEY)?;
    let proof = STANDARD.encode(Sha1::digest(format!("{key}{MAGIC}")));
    HeaderValue::from_str(&proof).ok()
}

/// The socket of an upgraded connection.
pub async fn socket(upgraded: Upgraded) -> Socket {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .max_write_buffer_size(MAX_UNSENT)
        .read_buffer_size(MAX_MESSAGE)
        .write_buffer_size(0);
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await
}
