//! gRPC over HTTP/2: one question, and one answer or a stream of them. What arrives is bounded by the longest envelope.
//!
//! The frames are those of a Connect stream (`agent-envd`); the end is in the trailers instead.

use agent_base::error::{Error, Result};
use agent_envd::envelope::{Decoder, encode};
use bytes::Bytes;
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use reqwest::{Body, Url, redirect};
use std::time::Duration;
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The interval of checks of an open connection, and the time limit for one.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);
/// Bytes that may be on their way to this side: of one stream, and of all.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
const KIND: HeaderValue = HeaderValue::from_static("application/grpc");

/// The code of a failed call: <https://grpc.github.io/grpc/core/md_doc_statuscodes.html>.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    pub const CANCELLED: Self = Self(1);
    pub const UNKNOWN: Self = Self(2);
    pub const INVALID_ARGUMENT: Self = Self(3);
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    pub const NOT_FOUND: Self = Self(5);
    pub const ALREADY_EXISTS: Self = Self(6);
    pub const PERMISSION_DENIED: Self = Self(7);
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    pub const FAILED_PRECONDITION: Self = Self(9);
    pub const UNIMPLEMENTED: Self = Self(12);
    pub const INTERNAL: Self = Self(13);
    pub const UNAVAILABLE: Self = Self(14);
    pub const UNAUTHENTICATED: Self = Self(16);

    /// Returns what an answer means that does not come from a gRPC server.
    fn of_http(status: u16) -> Self {
        match status {
            401 => Self::UNAUTHENTICATED,
            403 => Self::PERMISSION_DENIED,
            404 => Self::UNIMPLEMENTED,
            429 => Self::RESOURCE_EXHAUSTED,
            502..=504 => Self::UNAVAILABLE,
            _ => Self::UNKNOWN,
        }
    }
}

/// A call that failed.
#[derive(Debug, Clone)]
pub struct Status {
    pub code: Code,
    /// The server's words, or this side's.
    pub message: String,
    /// Set if the server said so. Otherwise it may or may not have acted.
    pub is_answer: bool,
    /// Set if the server was not reached at all.
    pub is_unreached: bool,
}

impl Status {
    fn own(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_answer: false, is_unreached: false }
    }

    /// An answer that is not one.
    pub fn damaged(why: impl std::fmt::Display) -> Self {
        Self::own(Code(u32::MAX), format!("the answer {why}"))
    }

    fn of_transport(error: reqwest::Error) -> Self {
        let is_unreached = error.is_connect();
        // Without the address: messages are shown.
        let message = format!("{:#}", anyhow::Error::from(error.without_url()));
        Self { is_unreached, ..Self::own(Code::UNAVAILABLE, message) }
    }

    /// Returns whether the same may succeed a moment later.
    pub fn is_passing(&self) -> bool {
        let passing =
            [Code::CANCELLED, Code::UNKNOWN, Code::DEADLINE_EXCEEDED, Code::INTERNAL, Code::UNAVAILABLE];
        passing.contains(&self.code)
    }

    /// The status that headers or trailers name; `None` where they name none.
    fn of_headers(headers: &HeaderMap) -> Option<Result<(), Self>> {
        let code = headers.get("grpc-status")?.to_str().ok().and_then(|code| code.parse().ok());
        let message = headers.get("grpc-message").map(|value| String::from_utf8_lossy(value.as_bytes()));
        let message = percent_decode_str(&message.unwrap_or_default()).decode_utf8_lossy().into_owned();
        Some(match code {
            Some(0) => Ok(()),
            Some(code) => Err(Self { is_answer: true, ..Self::own(Code(code), message) }),
            None => Err(Self::damaged("names a status that is not a number")),
        })
    }
}

/// A client of gRPC servers, whose addresses are checked by the caller.
pub struct Grpc(reqwest::Client);

impl Grpc {
    /// A client. With `is_here`, nothing but this machine is connected to.
    ///
    /// # Errors
    /// `Config`: the machine has no certificates.
    pub fn new(is_here: bool) -> Result<Self> {
        agent_base::tls::install_provider();
        let builder = reqwest::Client::builder()
            .user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            // Over TLS, HTTP/2 alone is offered.
            .http2_prior_knowledge()
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PONG);
        let builder = if is_here { builder.no_proxy().tls_certs_only([]) } else { builder };
        let http = builder.build().map_err(|error| {
            Error::config("the HTTP client cannot be set up")
                .caused_by(error)
                .hint("are the system's CA certificates installed (package ca-certificates)?")
        })?;
        Ok(Self(http))
    }

    /// Asks for one answer.
    pub async fn unary<A: Message + Default>(
        &self,
        url: Url,
        headers: HeaderMap,
        body: impl Into<Body>,
        time: Duration,
    ) -> Result<A, Status> {
        let exchange = async {
            let mut answers = self.stream(url, headers, body).await?;
            let answer = answers.next().await?.ok_or_else(|| Status::damaged("holds no message"))?;
            match answers.next::<A>().await? {
                None => Ok(answer),
                Some(_) => Err(Status::damaged("holds more than one message")),
            }
        };
        let late = |_| {
            let message = format!("no answer within {} s", time.as_secs());
            Err(Status::own(Code::DEADLINE_EXCEEDED, message))
        };
        timeout(time, exchange).await.unwrap_or_else(late)
    }

    /// Asks for a stream of answers.
    pub async fn stream(
        &self,
        url: Url,
        headers: HeaderMap,
        body: impl Into<Body>,
    ) -> Result<Answers, Status> {
        let request = self.0.post(url).headers(headers).header(CONTENT_TYPE, KIND).header(TE, "trailers");
        let response = request.body(body).send().await.map_err(Status::of_transport)?;
        if !response.status().is_success() {
            let status = response.status().as_u16();
            let message = format!("status {status}, which is not gRPC");
            return Err(Status { is_answer: true, ..Status::own(Code::of_http(status), message) });
        }
        let is_ended = Status::of_headers(response.headers()).transpose()?.is_some();
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if !kind.starts_with(KIND.as_bytes()) {
            return Err(Status::damaged("is not gRPC"));
        }
        let body = http::Response::<Body>::from(response).into_body();
        Ok(Answers { body, decoder: Decoder::default(), is_ended })
    }
}

/// A message as the body of a request.
pub fn framed(message: &impl Message) -> Bytes {
    encode(&message.encode_to_vec(), false)
}

/// The answers of a call.
#[derive(Debug)]
pub struct Answers {
    body: Body,
    decoder: Decoder,
    /// The status has come with the headers.
    is_ended: bool,
}

impl Answers {
    /// The next answer; `None` where the server has ended the call without a failure.
    pub async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, Status> {
        loop {
            if let Some(frame) =
                self.decoder.pop().map_err(|error| Status::damaged(format_args!("is damaged: {error}")))?
            {
                if frame.is_end {
                    return Err(Status::damaged("holds a frame that gRPC has not"));
                }
                let message = A::decode(frame.payload);
                return message.map(Some).map_err(|_| Status::damaged("holds a message of another kind"));
            }
            match self.body.frame().await {
                None if self.is_ended => return Ok(None),
                None => return Err(Status::own(Code::UNAVAILABLE, "the connection ended")),
                Some(Err(error)) => return Err(Status::of_transport(error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.decoder.push(&bytes),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        let named = Status::of_headers(&trailers);
                        named.unwrap_or_else(|| Err(Status::damaged("names no status")))?;
                        self.decoder
                            .finish()
                            .map_err(|error| Status::damaged(format_args!("is damaged: {error}")))?;
                        return Ok(None);
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_from_headers() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs
                .iter()
                .map(|&(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
                .collect()
        };
        assert!(Status::of_headers(&headers(&[])).is_none());
        assert!(Status::of_headers(&headers(&[("grpc-status", "0")])).unwrap().is_ok());
        let refused = headers(&[("grpc-status", "5"), ("grpc-message", "no%20such%20thing")]);
        let refused = Status::of_headers(&refused).unwrap().unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (Code::NOT_FOUND, "no such thing"));
        let strange = Status::of_headers(&headers(&[("grpc-status", "x")])).unwrap().unwrap_err();
        assert!(!strange.is_passing() && !strange.is_answer);
    }
}
