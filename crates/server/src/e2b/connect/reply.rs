//! Answers: one message, or a stream of them.

use super::{Codec, Failure, Wire};
use agent_envd::envelope::encode;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use std::io::Error;

/// The answer to a unary call.
pub fn unary<M: Wire>(codec: Codec, result: Result<M, Failure>) -> Response {
    let (status, content_type, bytes) = match result {
        Ok(message) => (StatusCode::OK, codec.content_type(false), codec.encode(&message)),
        Err(failure) => (failure.code.status(), "application/json", failure.json().to_string().into_bytes()),
    };
    with_type(status, content_type, Body::from(bytes))
}

/// The source of the messages of a streamed answer.
pub trait Events: Send + 'static {
    type Message: Wire;

    /// The next message; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Message>, Failure>> + Send;
}

/// The answer to a call whose answer is a stream. Failures are in its last frame.
pub fn stream<E: Events>(codec: Codec, events: Result<E, Failure>) -> Response {
    let frames = unfold(Some(events), move |state| async move {
        let (frame, next) = match state? {
            Err(failure) => (end(Some(&failure)), None),
            Ok(mut events) => match events.next().await {
                Ok(Some(message)) => (encode(&codec.encode(&message), false), Some(Ok(events))),
                Ok(None) => (end(None), None),
                // As a connection ends when its machine does: the SDKs ask then whether the sandbox is still there.
                Err(failure) if failure.breaks_off => return Some((Err(Error::other(failure)), None)),
                Err(failure) => (end(Some(&failure)), None),
            },
        };
        Some((Ok::<Bytes, Error>(frame), next))
    });
    with_type(StatusCode::OK, codec.content_type(true), Body::from_stream(frames))
}

/// The answer to a call with a streamed answer that is refused.
pub fn refused_stream(codec: Codec, failure: Failure) -> Response {
    with_type(StatusCode::OK, codec.content_type(true), Body::from(end(Some(&failure))))
}

/// The last frame of a stream.
fn end(failure: Option<&Failure>) -> Bytes {
    let payload = failure.map_or_else(|| json!({}), |failure| json!({ "error": failure.json() }));
    encode(payload.to_string().as_bytes(), true)
}

fn with_type(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
