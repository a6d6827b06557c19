//! One JSON-RPC connection with a client: requests and notifications in both directions.

use crate::error::{Error, Kind};
use crate::lock::Lock;
use crate::mcp::jsonrpc::{
    ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, Id, Lines, Malformed, Message, PARSE_ERROR,
};
use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, oneshot};

/// The longest message of a client, in bytes: a prompt may have pictures in it, and a file that is written is one message.
pub const MAX_MESSAGE: usize = 64 << 20;
/// Messages to the client that wait for it to read; beyond that, sending waits.
const QUEUE: usize = 64;
/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;
/// The code for a client that is gone.
const DISCONNECTED: i64 = -32000;

/// The messages of a client, one a line.
pub struct Incoming<R> {
    from: R,
    lines: Lines,
    buffer: Vec<u8>,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    /// Those that `from` has.
    pub fn new(from: R) -> Self {
        Self { from, lines: Lines::new(MAX_MESSAGE), buffer: vec![0; CHUNK], ended: false }
    }

    /// The next message, or why a line is not one. `None`: the client is gone, or has sent more than a message may have.
    pub async fn next(&mut self) -> Option<Result<Message, Malformed>> {
        loop {
            if self.ended {
                return None;
            }
            match self.lines.next_line() {
                Ok(Some(line)) => return Some(Message::parse(line)),
                Ok(None) => {}
                Err(error) => {
                    self.ended = true;
                    return Some(Err(Malformed { code: PARSE_ERROR, reason: error.to_string(), id: None }));
                }
            }
            match self.from.read(&mut self.buffer).await {
                Ok(read @ 1..) => self.lines.push(&self.buffer[..read]),
                _ => return None,
            }
        }
    }
}

/// The client, to write to. A thread writes, so that one that does not read stalls what is sent to it and nothing else.
pub struct Client {
    outbox: mpsc::Sender<Outgoing>,
    waiting: Lock<HashMap<i64, oneshot::Sender<Result<Value, ErrorObject>>>>,
    next: AtomicI64,
}

enum Outgoing {
    Line(Vec<u8>),
    /// Answered when all before it is written.
    Flush(oneshot::Sender<()>),
}

impl Client {
    /// One that reads from `out`.
    pub fn new(mut out: impl Write + Send + 'static) -> Arc<Self> {
        let (outbox, mut queue) = mpsc::channel(QUEUE);
        std::thread::spawn(move || {
            while let Some(outgoing) = queue.blocking_recv() {
                let written = match outgoing {
                    Outgoing::Line(line) => out.write_all(&line).and_then(|()| out.flush()),
                    Outgoing::Flush(done) => {
                        // Nobody waits any more.
                        let _ = done.send(());
                        Ok(())
                    }
                };
                if written.is_err() {
                    return;
                }
            }
        });
        Arc::new(Self { outbox, waiting: Lock::default(), next: AtomicI64::new(1) })
    }

    /// Sends a message. A client that is gone gets none; its end is seen where its messages are read.
    pub async fn send(&self, message: &Message) {
        let _ = self.outbox.send(Outgoing::Line(message.to_line())).await;
    }

    /// [`Client::send`] for a thread that may block.
    pub fn send_blocking(&self, message: &Message) {
        let _ = self.outbox.blocking_send(Outgoing::Line(message.to_line()));
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Value) {
        self.send(&notification(method, params)).await;
    }

    /// Answers a request.
    pub async fn respond(&self, id: Option<Id>, outcome: Result<Value, ErrorObject>) {
        self.send(&Message::Response { id, outcome }).await;
    }

    /// Asks the client, and waits for its answer as long as it is there. Dropping the future forgets the request.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, ErrorObject> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().insert(id, answer);
        let _forget = Forget { client: self, id };
        self.send(&Message::Request { id: Id::Number(id), method: method.to_owned(), params }).await;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Hands the answer to a request of ours over. One that nobody waits for is dropped.
    pub fn answered(&self, id: Option<Id>, outcome: Result<Value, ErrorObject>) {
        if let Some(Id::Number(id)) = id
            && let Some(answer) = self.waiting.lock().remove(&id)
        {
            let _ = answer.send(outcome);
        }
    }

    /// The client is gone: nobody waits for an answer of it any more.
    pub fn disconnect(&self) {
        self.waiting.lock().clear();
    }

    /// Waits until everything is written that was sent so far.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.outbox.send(Outgoing::Flush(done)).await.is_ok() {
            let _ = flushed.await;
        }
    }
}

struct Forget<'a> {
    client: &'a Client,
    id: i64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.client.waiting.lock().remove(&self.id);
    }
}

/// A notification.
pub fn notification(method: &str, params: Value) -> Message {
    Message::Notification { method: method.to_owned(), params }
}

/// What a client reads of a failure: message and hint.
pub fn error_object(error: &Error) -> ErrorObject {
    let code = match error.kind() {
        Kind::Usage | Kind::Config => INVALID_PARAMS,
        _ => INTERNAL_ERROR,
    };
    ErrorObject::new(code, with_hint(error))
}

/// The message of an error, and its hint in brackets.
pub fn with_hint(error: &Error) -> String {
    match error.hint_text() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}

fn gone() -> ErrorObject {
    ErrorObject::new(DISCONNECTED, "the client is gone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn answers_find_the_request_that_they_belong_to() {
        let client = Client::new(std::io::sink());
        let one = client.request("first", json!({}));
        let two = client.request("second", json!({}));
        let answers = async {
            while client.waiting.lock().len() < 2 {
                tokio::task::yield_now().await;
            }
            client.answered(Some(Id::Number(2)), Ok(json!("two")));
            client.answered(Some(Id::Number(1)), Ok(json!("one")));
            client.answered(Some(Id::Number(77)), Ok(json!("nobody asked")));
        };
        let (one, two, ()) = tokio::join!(one, two, answers);
        assert_eq!((one.unwrap(), two.unwrap()), (json!("one"), json!("two")));
        assert!(client.waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn a_client_that_is_gone_answers_every_request_with_an_error() {
        let client = Client::new(std::io::sink());
        let asked = client.request("x", json!({}));
        let gone = async {
            while client.waiting.lock().is_empty() {
                tokio::task::yield_now().await;
            }
            client.disconnect();
        };
        assert_eq!(tokio::join!(asked, gone).0.unwrap_err().code, DISCONNECTED);
    }

    #[tokio::test]
    async fn a_line_that_is_not_a_message_is_reported_and_the_next_one_is_read() {
        let text = b"{]\n{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n" as &[u8];
        let mut incoming = Incoming::new(text);
        assert_eq!(incoming.next().await.unwrap().unwrap_err().code, PARSE_ERROR);
        assert!(matches!(incoming.next().await, Some(Ok(Message::Notification { .. }))));
        assert!(incoming.next().await.is_none());
    }
}
