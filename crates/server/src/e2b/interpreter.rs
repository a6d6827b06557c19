//! The code interpreter's port: contexts that keep state, and code whose output is streamed as one JSON object a line.

use super::contexts::{Context, WantedContext};
use super::control::parse;
use super::hosted::Hosted;
use super::reply::{RefusedCall, answer, empty, error, json_response};
use agent_event::Stream;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::unfold;
use http::request::Parts;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The code interpreter's port.
pub const PORT: u16 = 49999;
/// The longest code with its variables.
const MAX_BODY: usize = 8 << 20;
/// A body that has not arrived by then is given up.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The most output of one execution, in bytes.
const MAX_OUTPUT: usize = 64 << 20;
/// The interval of keepalives for a silent execution.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Returns whether a path is one of its calls, and none of envd's.
pub fn has(path: &str) -> bool {
    path == "/execute" || path == "/contexts" || path.starts_with("/contexts/")
}

/// Answers a call of a client that has shown a token.
pub async fn call(hosted: &Arc<Hosted>, parts: &Parts, body: Body) -> Response {
    let body = match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return error(StatusCode::PAYLOAD_TOO_LARGE, "the request is longer than 8 MiB, or broke off");
        }
        Err(_) => return error(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time"),
    };
    let path: Vec<&str> = parts.uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let (get, post) = (parts.method == Method::GET, parts.method == Method::POST);
    let contexts = &hosted.contexts;
    let missing = || error(StatusCode::NOT_FOUND, "there is no such context");
    match path.as_slice() {
        ["health"] if get => json_response(StatusCode::OK, &"OK"),
        ["contexts"] if get => json_response(StatusCode::OK, &contexts.list(hosted)),
        ["contexts"] if post => answer(parse(&body).and_then(|wanted: WantedContext| {
            let context = contexts.create(hosted, &wanted).map_err(RefusedCall::bad_request)?;
            Ok(json_response(StatusCode::OK, &context.describe()))
        })),
        ["contexts", id] if parts.method == Method::DELETE => match contexts.remove(id) {
            Some(context) => {
                context.restart();
                empty(StatusCode::NO_CONTENT)
            }
            None => missing(),
        },
        ["contexts", id, "restart"] if post => match contexts.get(id) {
            Some(context) => {
                context.restart();
                empty(StatusCode::NO_CONTENT)
            }
            None => missing(),
        },
        ["execute"] if post => answer(execute(hosted, &body)),
        _ => error(StatusCode::NOT_FOUND, "there is no such call"),
    }
}

#[derive(Default, Deserialize)]
struct ExecuteRequest {
    #[serde(default)]
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<BTreeMap<String, String>>,
}

fn execute(hosted: &Arc<Hosted>, body: &Bytes) -> Result<Response, RefusedCall> {
    let asked: ExecuteRequest = parse(body)?;
    let context = match (&asked.context_id, &asked.language) {
        (Some(_), Some(_)) => return Err(RefusedCall::bad_request("name a context or a language, not both")),
        (Some(id), None) => {
            let missing =
                || RefusedCall::finally(StatusCode::NOT_FOUND, format!("context {id:?} was not found"));
            hosted.contexts.get(id).ok_or_else(missing)?
        }
        (None, language) => {
            hosted.contexts.default_of(hosted, language.as_deref()).map_err(RefusedCall::bad_request)?
        }
    };
    Ok(Response::new(stream(Arc::clone(hosted), context, asked.code, asked.env_vars.unwrap_or_default())))
}

/// Runs the code as long as the client reads: one that leaves interrupts it. If the sandbox is removed meanwhile, the answer
/// breaks off, which the SDKs report as that.
fn stream(hosted: Arc<Hosted>, context: Arc<Context>, code: String, env: BTreeMap<String, String>) -> Body {
    let (sender, lines) = mpsc::unbounded_channel();
    let removed = hosted.removed.subscribe();
    let work: BoxFuture<'static, ()> = Box::pin(async move {
        let lines = Lines { sender, left: MAX_OUTPUT };
        context.execute(&hosted, code, env, lines).await;
    });
    let frames = unfold(Some((work, lines, removed, false)), |state| async move {
        let (mut work, mut lines, mut removed, mut has_ended) = state?;
        let line = loop {
            tokio::select! {
                biased;
                // The sender may go first, when all has ended.
                Ok(_) = removed.wait_for(|is_removed| *is_removed) => {
                    return Some((Err(Error::other("the sandbox was removed")), None));
                }
                line = lines.recv() => break line,
                // Its end closes the channel.
                () = &mut work, if !has_ended => has_ended = true,
                () = tokio::time::sleep(KEEPALIVE) => break Some(json!({ "type": "keepalive" })),
            }
        };
        let frame = format!("{}\n", line?);
        Some((Ok::<Bytes, Error>(frame.into()), Some((work, lines, removed, has_ended))))
    });
    Body::from_stream(frames)
}

/// The receiver of the events of an execution.
pub struct Lines {
    sender: mpsc::UnboundedSender<Value>,
    /// The number of bytes of output that are still passed on.
    left: usize,
}

impl Lines {
    /// Passes an event on. A client that has left needs none.
    pub fn send(&self, event: Value) {
        let _ = self.sender.send(event);
    }

    /// Passes output on, up to a bound.
    pub fn output(&mut self, stream: Stream, bytes: &[u8]) {
        if self.left == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(self.left)]);
        self.left -= bytes.len().min(self.left);
        let kind = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        // Nanoseconds since 1970 fit until the year 2262.
        let timestamp = jiff::Timestamp::now().as_nanosecond() as i64;
        self.send(json!({ "type": kind, "text": text, "timestamp": timestamp }));
        if self.left == 0 {
            let text = format!("[output beyond {} MiB is left out]\n", MAX_OUTPUT >> 20);
            self.send(json!({ "type": "stderr", "text": text, "timestamp": timestamp }));
        }
    }

    /// Reports an exception.
    pub fn error(&self, name: &str, value: &str, traceback: &str) {
        self.send(json!({ "type": "error", "name": name, "value": value, "traceback": traceback }));
    }
}
