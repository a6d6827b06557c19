//! A server at the other end of two byte streams: requests find their answers, whatever else it sends.

use super::failure::Failure;
use crate::jsonrpc::{ErrorObject, Id, Lines, METHOD_NOT_FOUND, Message};
use agent_base::lock::Lock;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// The longest message of a server, in bytes: a picture in Base64 fits.
pub const MAX_MESSAGE: usize = 8 << 20;
/// The most bytes that a server may send, beside the answers themselves, from one request to the next. More is a flood.
const MAX_UNASKED: u64 = 64 << 20;
/// Messages to the server that wait for it to read.
const QUEUE: usize = 64;
/// News of a call that wait for it to be told of them; more are dropped.
const NEWS: usize = 16;
/// Characters of a message about progress.
const MAX_PROGRESS: usize = 500;

/// The time limits for a request.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Without a sign of progress.
    pub idle: Duration,
    /// At most, whatever it says.
    pub total: Duration,
}

impl Timeouts {
    /// The same time for both.
    pub fn of(time: Duration) -> Self {
        Self { idle: time, total: time }
    }
}

/// The listener for a server's words about a call that is under way.
pub type OnProgress<'a> = &'a mut (dyn FnMut(String) + Send);

/// A server, to be asked.
pub struct Peer {
    outgoing: mpsc::Sender<Vec<u8>>,
    state: Lock<PeerState>,
    next: AtomicI64,
    /// Set if it has said that its tools are others now.
    tools_changed: AtomicBool,
}

#[derive(Default)]
struct PeerState {
    waiting: HashMap<i64, PendingCall>,
    /// The reason why nothing more comes.
    ended: Option<String>,
    unasked: u64,
}

struct PendingCall {
    answer: oneshot::Sender<Result<Value, Failure>>,
    progress: mpsc::Sender<String>,
}

impl Peer {
    /// A peer, and the lines that are for it.
    pub fn new() -> (Arc<Self>, mpsc::Receiver<Vec<u8>>) {
        let (outgoing, lines) = mpsc::channel(QUEUE);
        let (state, next, tools_changed) = (Lock::default(), AtomicI64::new(1), AtomicBool::new(false));
        (Arc::new(Self { outgoing, state, next, tools_changed }), lines)
    }

    /// Returns whether its tools are others since the last call of this.
    pub fn take_changed(&self) -> bool {
        self.tools_changed.swap(false, Ordering::Relaxed)
    }

    /// Returns whether nothing more comes from it.
    pub fn has_ended(&self) -> bool {
        self.state.lock().ended.is_some()
    }

    /// Nothing more comes: those who wait get the reason.
    pub fn end(&self, why: &str) {
        let mut state = self.state.lock();
        state.ended.get_or_insert_with(|| why.to_owned());
        for (_, waiting) in state.waiting.drain() {
            // Nobody waits any more.
            let _ = waiting.answer.send(Err(Failure::Ended(why.to_owned())));
        }
    }

    /// Asks, and waits for the answer. Dropping the future cancels the request.
    pub async fn request(
        &self,
        method: &str,
        mut params: Value,
        timeouts: Timeouts,
        on_progress: OnProgress<'_>,
    ) -> Result<Value, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(meta) = params.get_mut("_meta").and_then(Value::as_object_mut) {
            meta.insert(crate::protocol::meta::PROGRESS_TOKEN.to_owned(), id.into());
        }
        let (answer, mut answered) = oneshot::channel();
        let (progress, mut news) = mpsc::channel(NEWS);
        {
            let mut state = self.state.lock();
            if let Some(why) = &state.ended {
                return Err(Failure::Ended(why.clone()));
            }
            state.unasked = 0;
            state.waiting.insert(id, PendingCall { answer, progress });
        }
        // `initialize` must not be cancelled.
        let _cancel = Cancel { peer: self, id, is_cancelled: method != "initialize" };
        let line = Message::Request { id: Id::Number(id), method: method.to_owned(), params }.to_line();
        let started = Instant::now();
        let last = started + timeouts.total;
        let mut deadline = (started + timeouts.idle).min(last);
        let mut sending = std::pin::pin!(self.outgoing.send(line));
        let mut is_sent = false;
        loop {
            tokio::select! {
                biased;
                answer = &mut answered => {
                    // What it said before.
                    while let Ok(text) = news.try_recv() {
                        on_progress(text);
                    }
                    return answer.unwrap_or_else(|_| Err(Failure::Ended("it has ended".to_owned())));
                }
                () = sleep_until(deadline) => return Err(Failure::TimedOut(started.elapsed())),
                Some(text) = news.recv() => {
                    deadline = (Instant::now() + timeouts.idle).min(last);
                    if !text.is_empty() {
                        on_progress(text);
                    }
                }
                sent = &mut sending, if !is_sent => {
                    is_sent = true;
                    if sent.is_err() {
                        return Err(Failure::Ended("it has ended".to_owned()));
                    }
                }
            }
        }
    }

    /// Tells it something. One that does not read misses it.
    pub fn notify(&self, method: &str, params: Value) {
        let message = Message::Notification { method: method.to_owned(), params };
        let _ = self.outgoing.try_send(message.to_line());
    }

    /// Returns what it wrote, in pieces.
    ///
    /// # Errors
    /// Why nothing can be read any more.
    pub fn take(&self, bytes: &[u8], lines: &mut Lines) -> Result<(), String> {
        {
            let mut state = self.state.lock();
            state.unasked = state.unasked.saturating_add(bytes.len() as u64);
            if state.unasked > MAX_UNASKED {
                return Err(format!("it sent more than {} MiB that nobody asked for", MAX_UNASKED >> 20));
            }
        }
        lines.push(bytes);
        loop {
            match lines.next_line() {
                Ok(Some(line)) => {
                    // What is not a message is a program that prints where it should not.
                    if let Ok(message) = Message::parse(line) {
                        self.receive(message);
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn receive(&self, message: Message) {
        match message {
            Message::Response { id: Some(Id::Number(id)), outcome } => {
                if let Some(waiting) = self.state.lock().waiting.remove(&id) {
                    let _ = waiting.answer.send(outcome.map_err(Failure::Refused));
                }
            }
            // An answer to nothing that was asked.
            Message::Response { .. } => {}
            Message::Notification { method, params } => match method.as_str() {
                "notifications/progress" => self.progress(&params),
                "notifications/tools/list_changed" | "notifications/prompts/list_changed" => {
                    self.tools_changed.store(true, Ordering::Relaxed);
                }
                _ => {}
            },
            Message::Request { id, method, .. } => {
                let answer = Message::Response { id: Some(id), outcome: answer(&method) };
                let _ = self.outgoing.try_send(answer.to_line());
            }
        }
    }

    fn progress(&self, params: &Value) {
        let token = params.get("progressToken").and_then(Value::as_i64);
        let state = self.state.lock();
        let Some(waiting) = token.and_then(|id| state.waiting.get(&id)) else { return };
        // What does not fit is dropped: the next one says more.
        let _ = waiting.progress.try_send(progress_text(params));
    }
}

/// Answers the requests that a server may make of its client.
pub fn answer(method: &str) -> Result<Value, ErrorObject> {
    match method {
        "ping" => Ok(json!({})),
        "roots/list" => Ok(json!({ "roots": [{ "uri": "file:///workspace", "name": "workspace" }] })),
        "elicitation/create" => Ok(json!({ "action": "decline" })),
        _ => Err(ErrorObject::new(METHOD_NOT_FOUND, "this client does not do that")),
    }
}

/// `message (2 of 5)`.
pub fn progress_text(params: &Value) -> String {
    let number = |name: &str| params.get(name).and_then(Value::as_f64);
    let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
    let message: String = message.chars().take(MAX_PROGRESS).collect();
    match (number("progress"), number("total")) {
        (Some(done), Some(total)) if message.is_empty() => format!("{done} of {total}"),
        (Some(done), Some(total)) => format!("{message} ({done} of {total})"),
        _ => message,
    }
}

/// Forgets a request, and tells the server where it has not answered.
struct Cancel<'a> {
    peer: &'a Peer,
    id: i64,
    is_cancelled: bool,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        let was_waiting = self.peer.state.lock().waiting.remove(&self.id).is_some();
        if was_waiting && self.is_cancelled {
            let params = json!({ "requestId": self.id, "reason": "the client does not wait any more" });
            self.peer.notify("notifications/cancelled", params);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: &Value) -> Vec<u8> {
        format!("{value}\n").into_bytes()
    }

    #[tokio::test]
    async fn answers_progress_and_requests_of_the_server_are_told_apart() {
        let (peer, mut sent) = Peer::new();
        let server = async {
            let asked: Value = serde_json::from_slice(&sent.recv().await.unwrap()).unwrap();
            assert_eq!(
                (&asked["method"], &asked["params"]["_meta"]["progressToken"]),
                (&json!("m"), &json!(1))
            );
            let mut lines = Lines::new(MAX_MESSAGE);
            for message in [
                json!("not a message"),
                json!({ "jsonrpc": "2.0", "id": 77, "result": {} }),
                json!({ "jsonrpc": "2.0", "id": "x", "method": "roots/list" }),
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1, "progress": 1, "total": 2, "message": "half" } }),
            ] {
                peer.take(&line(&message), &mut lines).unwrap();
            }
            let answer: Value = serde_json::from_slice(&sent.recv().await.unwrap()).unwrap();
            assert_eq!(answer["result"]["roots"][0]["uri"], "file:///workspace");
            tokio::task::yield_now().await;
            peer.take(&line(&json!({ "jsonrpc": "2.0", "id": 1, "result": 7 })), &mut lines).unwrap();
        };
        let mut seen = Vec::new();
        let mut on_progress = |text| seen.push(text);
        let timeouts = Timeouts::of(Duration::from_secs(60));
        let request = peer.request("m", json!({ "_meta": {} }), timeouts, &mut on_progress);
        let (answer, ()) = tokio::join!(request, server);
        assert_eq!(answer.unwrap(), json!(7));
        assert_eq!(seen, ["half (1 of 2)"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_not_answered_is_cancelled_and_progress_extends_it_up_to_a_limit() {
        let (peer, mut sent) = Peer::new();
        let started = Instant::now();
        let timeouts = Timeouts { idle: Duration::from_secs(10), total: Duration::from_secs(25) };
        let news = async {
            let mut lines = Lines::new(MAX_MESSAGE);
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1 } });
            loop {
                tokio::time::sleep(Duration::from_secs(7)).await;
                peer.take(&line(&progress), &mut lines).unwrap();
            }
        };
        let mut ignore = |_| {};
        let outcome = tokio::select! {
            outcome = peer.request("m", json!({}), timeouts, &mut ignore) => outcome,
            () = news => unreachable!("it has no end"),
        };
        assert!(matches!(outcome, Err(Failure::TimedOut(_))));
        assert_eq!(started.elapsed().as_secs(), 25);
        let _request = sent.recv().await.unwrap();
        let cancel: Value = serde_json::from_slice(&sent.recv().await.unwrap()).unwrap();
        assert_eq!(
            (&cancel["method"], &cancel["params"]["requestId"]),
            (&json!("notifications/cancelled"), &json!(1))
        );
    }

    #[tokio::test]
    async fn a_flood_ends_the_connection_and_everybody_learns_why() {
        let (peer, _sent) = Peer::new();
        let mut lines = Lines::new(MAX_MESSAGE);
        let junk = vec![b'x'; 1 << 20];
        assert!((0..20).any(|_| peer.take(&junk, &mut lines).is_err()), "a line without an end");
        let mut lines = Lines::new(MAX_MESSAGE);
        let junk = b"{}\n".repeat(1 << 19);
        let why = (0..100).find_map(|_| peer.take(&junk, &mut lines).err()).unwrap();
        assert!(why.contains("nobody asked for"), "{why}");
        peer.end(&why);
        let mut ignore = |_| {};
        let outcome = peer.request("m", json!({}), Timeouts::of(Duration::from_secs(60)), &mut ignore).await;
        assert!(matches!(outcome, Err(Failure::Ended(told)) if told == why));
    }
}
