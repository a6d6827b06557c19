//! The Connect protocol, as far as envd speaks it: unary calls and streams, in JSON and protobuf.

mod reply;
mod request;

pub use reply::{Events, refused_stream, stream, unary};
pub use request::{IncomingMessages, read_unary};

use agent_envd::envelope::EnvelopeError;
use http::{HeaderMap, StatusCode, header};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// A message of the protocol, which has both encodings.
pub trait Wire: Message + Serialize + DeserializeOwned + Default + Send + 'static {}
impl<T: Message + Serialize + DeserializeOwned + Default + Send + 'static> Wire for T {}

/// The encoding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// The JSON mapping of protobuf.
    Json,
    /// Protobuf.
    Proto,
}

impl Codec {
    /// Returns what the request's content type says: the encoding, and whether it is a stream.
    pub fn of(headers: &HeaderMap) -> Option<(Self, bool)> {
        let text = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        match text.split(';').next().unwrap_or_default().trim() {
            "application/json" => Some((Self::Json, false)),
            "application/proto" => Some((Self::Proto, false)),
            "application/connect+json" => Some((Self::Json, true)),
            "application/connect+proto" => Some((Self::Proto, true)),
            _ => None,
        }
    }

    fn content_type(self, is_stream: bool) -> &'static str {
        match (self, is_stream) {
            (Self::Json, false) => "application/json",
            (Self::Proto, false) => "application/proto",
            (Self::Json, true) => "application/connect+json",
            (Self::Proto, true) => "application/connect+proto",
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// `InvalidArgument` where it is not one.
    pub fn decode<M: Wire>(self, bytes: &[u8]) -> Result<M, Failure> {
        match self {
            // An empty body is an empty message.
            Self::Json if bytes.is_empty() => Ok(M::default()),
            Self::Json => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
            Self::Proto => M::decode(bytes).map_err(|error| error.to_string()),
        }
        .map_err(|error| Failure::new(Code::InvalidArgument, format!("the message cannot be read: {error}")))
    }

    /// Encodes a message.
    pub fn encode<M: Wire>(self, message: &M) -> Vec<u8> {
        match self {
            // Messages of ours have string keys and no numbers that JSON lacks.
            Self::Json => serde_json::to_vec(message).unwrap_or_default(),
            Self::Proto => message.encode_to_vec(),
        }
    }
}

/// The reason why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    /// The status of a unary answer.
    fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
        }
    }
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its kind.
    pub code: Code,
    /// The message.
    pub message: String,
    /// Set if a stream breaks off without a word of it.
    pub breaks_off: bool,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), breaks_off: false }
    }

    /// The end of a sandbox while it was used.
    pub fn removed() -> Self {
        Self { breaks_off: true, ..Self::new(Code::Unavailable, "the sandbox was removed") }
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({ "code": self.code.name(), "message": self.message })
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<EnvelopeError> for Failure {
    fn from(error: EnvelopeError) -> Self {
        Self::new(Code::InvalidArgument, error.to_string())
    }
}
