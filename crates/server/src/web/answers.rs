//! Answers to requests that fail: one sentence, and what to do.

use super::frame::visible;
use agent_base::error::{Error, Kind};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A failed request.
pub struct FailedRequest {
    status: StatusCode,
    body: Value,
}

impl FailedRequest {
    /// With one sentence.
    pub fn new(status: StatusCode, why: &str) -> Self {
        Self { status, body: json!({ "error": why }) }
    }

    /// With further members beside the sentence.
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.body[name] = value;
        self
    }
}

impl From<Error> for FailedRequest {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            Kind::Usage | Kind::Config => StatusCode::BAD_REQUEST,
            Kind::Conflict => StatusCode::CONFLICT,
            Kind::Endpoint => StatusCode::BAD_GATEWAY,
            Kind::Limit => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut body = json!({
            "error": visible(&error.to_string()),
            "hint": error.hint_text().map(visible),
        });
        if let Some(details) = error.known_details() {
            body["details"] = details.clone();
        }
        Self { status, body }
    }
}

impl IntoResponse for FailedRequest {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}
