//! JSON answers, and errors as the vendors' services write them.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};

/// A JSON answer.
pub fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    // What is answered has string keys and no numbers that JSON lacks.
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A refusal: what happened.
pub fn error(status: StatusCode, message: &str) -> Response {
    json_response(status, &json!({ "code": status.as_u16(), "message": message }))
}

/// The reason why a call is refused.
#[derive(Debug)]
pub struct RefusedCall {
    status: StatusCode,
    message: String,
    is_final: bool,
}

impl RefusedCall {
    /// A refusal of this one attempt.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), is_final: false }
    }

    /// A refusal that a client should not answer by trying again.
    pub fn finally(status: StatusCode, message: impl Into<String>) -> Self {
        Self { is_final: true, ..Self::new(status, message) }
    }

    /// A request that is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::finally(StatusCode::BAD_REQUEST, message)
    }

    /// As a part of an answer that has other parts.
    pub fn document(&self) -> Value {
        json!({ "code": self.status.as_u16(), "message": self.message })
    }

    /// As the answer.
    pub fn response(&self) -> Response {
        if self.is_final {
            final_error(self.status, &self.message)
        } else {
            error(self.status, &self.message)
        }
    }
}

/// The answer to a call that may be refused.
pub fn answer(result: Result<Response, RefusedCall>) -> Response {
    result.unwrap_or_else(|refusal| refusal.response())
}

/// [`RefusedCall::finally`] as an answer.
pub fn final_error(status: StatusCode, message: &str) -> Response {
    let mut response = error(status, message);
    response.headers_mut().insert("should-retry", HeaderValue::from_static("false"));
    response
}
