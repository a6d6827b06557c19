//! One JSON-RPC connection with a client: requests and notifications in both directions.

use agent_base::error::{Error, Kind};
use agent_base::lock::Lock;
use agent_mcp::jsonrpc::{
    ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, Id, Lines, Malformed, Message, PARSE_ERROR,
};
use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// The longest message of a client, in bytes: a prompt may have pictures in it, and a file that is written is one message.
pub const MAX_MESSAGE: usize = 64 << 20;
/// Messages to the client that wait for it to read, and their bytes; beyond that, sending waits. A larger message waits alone.
const QUEUE: usize = 64;
const QUEUE_BYTES: usize = 64 << 20;
/// A client that has read nothing for this long, although messages wait for it and no more can, is disconnected.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are read or written at a time.
const CHUNK: usize = 64 << 10;
/// The code for a client that is gone.
const DISCONNECTED: i64 = -32000;

/// Hands every message of `from` to `take`, one after another, until the client is gone or stalled, or `stop` completes.
pub async fn serve(
    client: &Client,
    from: impl AsyncRead + Unpin,
    take: impl AsyncFn(Message),
    stop: impl Future<Output = ()>,
) {
    let mut incoming = Incoming::new(from);
    let all = async {
        while let Some(message) = incoming.next().await {
            match message {
                Ok(message) => take(message).await,
                Err(Malformed { code, reason, id }) => {
                    client.respond(id, Err(ErrorObject::new(code, reason))).await;
                }
            }
        }
    };
    // Around all of it: taking a message waits for a client that does not read.
    tokio::select! {
        biased;
        () = stop => {}
        () = all => {}
        () = client.stalled() => {}
    }
}

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
    /// Bytes that may still be queued.
    room: Arc<Semaphore>,
    /// Messages that wait to be queued.
    blocked: AtomicUsize,
    /// Pieces that the client has taken so far.
    taken: Arc<AtomicU64>,
    runtime: Handle,
    waiting: Lock<HashMap<i64, oneshot::Sender<Result<Value, ErrorObject>>>>,
    next: AtomicI64,
}

enum Outgoing {
    Line(Vec<u8>, OwnedSemaphorePermit),
    /// Answered when all before it is written.
    Flush(oneshot::Sender<()>),
}

impl Client {
    /// One that reads from `out`.
    pub fn new(mut out: impl Write + Send + 'static) -> Arc<Self> {
        let (outbox, mut queue) = mpsc::channel(QUEUE);
        let taken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&taken);
        std::thread::spawn(move || {
            while let Some(outgoing) = queue.blocking_recv() {
                let written = match outgoing {
                    Outgoing::Line(line, _room) => write(&mut out, &line, &count),
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
        Arc::new(Self {
            outbox,
            room: Arc::new(Semaphore::new(QUEUE_BYTES)),
            blocked: AtomicUsize::new(0),
            taken,
            runtime: Handle::current(),
            waiting: Lock::default(),
            next: AtomicI64::new(1),
        })
    }

    /// Sends a message. A client that is gone gets none; its end is seen where its messages are read.
    pub async fn send(&self, message: &Message) {
        self.send_and(message, || ()).await;
    }

    /// Sends a message, and calls `queued` directly before it is on its way.
    async fn send_and(&self, message: &Message, queued: impl FnOnce()) {
        let line = message.to_line();
        let bytes = line.len().min(QUEUE_BYTES) as u32;
        let _blocked = Blocked::new(&self.blocked);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
        let place = self.outbox.reserve().await;
        queued();
        if let (Ok(room), Ok(place)) = (room, place) {
            place.send(Outgoing::Line(line, room));
        }
    }

    /// [`Client::send`] for a thread that may block.
    pub fn send_blocking(&self, message: &Message) {
        self.runtime.block_on(self.send(message));
    }

    /// Completes when the client reads nothing any more although messages wait for it.
    async fn stalled(&self) {
        loop {
            let before = self.taken.load(Ordering::Relaxed);
            tokio::time::sleep(STALL_TIMEOUT).await;
            if self.blocked.load(Ordering::Relaxed) > 0 && self.taken.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Value) {
        self.send(&notification(method, params)).await;
    }

    /// Answers a request.
    pub async fn respond(&self, id: Option<Id>, outcome: Result<Value, ErrorObject>) {
        self.send(&Message::Response { id, outcome }).await;
    }

    /// Answers a request, and calls `queued` when the answer waits for nothing but the client. Until then the request counts as
    /// worked on, so that a client that does not read has no more answers made than requests it may send at a time.
    pub async fn respond_and(
        &self,
        id: Option<Id>,
        outcome: Result<Value, ErrorObject>,
        queued: impl FnOnce(),
    ) {
        self.send_and(&Message::Response { id, outcome }, queued).await;
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

/// In pieces, so that a large message that is read slowly is seen to be read.
fn write(out: &mut impl Write, line: &[u8], taken: &AtomicU64) -> std::io::Result<()> {
    for piece in line.chunks(CHUNK) {
        out.write_all(piece)?;
        taken.fetch_add(1, Ordering::Relaxed);
    }
    out.flush()
}

struct Blocked<'a>(&'a AtomicUsize);

impl<'a> Blocked<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

/// Returns what a client reads of a failure: message and hint.
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

    /// Sends so many large messages to a client that does not read, and none of them fails.
    async fn flood(client: &Arc<Client>, messages: usize) {
        for _ in 0..messages {
            let client = Arc::clone(client);
            tokio::spawn(async move { client.notify("m", json!("x".repeat(QUEUE_BYTES / 4))).await });
        }
        while client.blocked.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_waits_for_a_client_that_does_not_read_is_bounded_in_bytes() {
        let (reader, writer) = std::io::pipe().unwrap();
        let client = Client::new(writer);
        flood(&client, 6).await;
        assert!(client.outbox.capacity() > 0, "so few messages do not fill the queue");
        assert!(client.room.available_permits() < QUEUE_BYTES / 4);
        drop(reader);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_is_disconnected_and_a_stop_is_seen_meanwhile() {
        let (reader, writer) = std::io::pipe().unwrap();
        let client = Client::new(writer);
        flood(&client, 6).await;
        // Each of these is answered, and the answers have no place in the queue.
        let requests = b"not a message\n".repeat(3);
        serve(&client, requests.as_slice(), async |_| {}, std::future::pending()).await;
        let begun = tokio::sync::Notify::new();
        let stuck = async |_| {
            begun.notify_one();
            std::future::pending().await
        };
        let message = b"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n".as_slice();
        serve(&client, message, stuck, begun.notified()).await;
        drop(reader);
    }
}
