//! Makes one canonical event stream of whatever a good answer's body is: server-sent events in any dialect, or one
//! JSON document. An event leaves as one `data:` line of valid UTF-8.

use crate::lock::Lock;
use crate::model::client::error_body::looks_like_html;
use crate::model::client::failure::{Failure, Reason};
use crate::model::client::http::{LONGEST_EVENT, broken_off, seconds, silence, too_large, web_page};
use crate::model::client::sse::{Decoder, Event};
use crate::model::endpoint::Timeouts;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Bytes of a whole stream: 128,000 tokens at 500 bytes an event.
const LONGEST_STREAM: usize = 64 << 20;
/// Bytes of white space before anything else comes.
const LONGEST_NOTHING: usize = 1 << 20;

/// A body as it comes over the wire.
pub type Pieces = stream::BoxStream<'static, reqwest::Result<Bytes>>;

/// How an answer's body ended: it cannot travel through async-openai with its name, so it travels beside it.
#[derive(Clone, Default)]
pub struct Ending(Arc<Lock<Option<Result<(), Failure>>>>);

impl Ending {
    /// What is known once the stream has ended: complete, broken, or (`None`) just over.
    pub fn take(&self) -> Option<Result<(), Failure>> {
        self.0.lock().take()
    }

    fn set(&self, ending: Result<(), Failure>) {
        *self.0.lock() = Some(ending);
    }
}

/// An answer's body on its way to canonical events.
pub struct Answer {
    body: Pieces,
    shape: Shape,
    ready: VecDeque<Bytes>,
    received: usize,
    last_event: Instant,
    any_event: bool,
    over: bool,
    /// The endpoint has said so itself.
    complete: bool,
    timeouts: Timeouts,
}

/// What the body turned out to be. The content type is not asked: it is wrong too often.
enum Shape {
    /// Only white space or less came so far.
    Unknown(Vec<u8>),
    /// Server-sent events.
    Events(Decoder),
    /// One JSON document (or a web page), collected to its end.
    Whole(Vec<u8>),
}

impl Answer {
    /// An answer to a request that was sent at `started`.
    pub fn new(body: Pieces, started: Instant, timeouts: Timeouts) -> Self {
        Self {
            body,
            shape: Shape::Unknown(Vec::new()),
            ready: VecDeque::new(),
            received: 0,
            last_event: started,
            any_event: false,
            over: false,
            complete: false,
            timeouts,
        }
    }

    /// The canonical events. How it ended is left in `ending`.
    pub fn into_stream(self, ending: Ending) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
        stream::unfold((self, ending), |(mut answer, ending)| async move {
            match answer.next().await {
                Ok(Some(bytes)) => return Some((Ok(bytes), (answer, ending))),
                Ok(None) if answer.complete => {
                    ending.set(Ok(()));
                    answer.give_back();
                }
                Ok(None) => {}
                Err(failure) => ending.set(Err(failure)),
            }
            None
        })
    }

    /// Reads what may follow the last event, so that the connection can serve the next request.
    fn give_back(self) {
        tokio::spawn(timeout(Duration::from_secs(2), self.body.take(16).for_each(|_| async {})));
    }

    /// The next canonical event; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.over {
                return Ok(None);
            }
            let patience = self.patience();
            match timeout(patience, self.body.next()).await {
                Err(_) => return Err(self.silent()),
                Ok(Some(Ok(piece))) => self.take_in(&piece)?,
                Ok(Some(Err(error))) => return Err(broken_off(&error)),
                Ok(None) => self.end()?,
            }
        }
    }

    /// Comments keep the connection alive, but not for ever: the next event has its own deadline.
    fn patience(&self) -> Duration {
        let until_event = self.timeouts.first.saturating_sub(self.last_event.elapsed());
        if self.received == 0 { until_event } else { until_event.min(self.timeouts.idle) }
    }

    fn silent(&self) -> Failure {
        if self.any_event { stalled(self.timeouts.idle) } else { silence(self.last_event.elapsed()) }
    }

    fn take_in(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.received += piece.len();
        if self.received > LONGEST_STREAM {
            return Err(too_large(LONGEST_STREAM));
        }
        match &mut self.shape {
            Shape::Unknown(start) => {
                start.extend_from_slice(piece);
                let start = std::mem::take(start);
                self.recognise(start)
            }
            Shape::Events(decoder) => {
                let mut events = Vec::new();
                decoder.feed(piece, &mut events).map_err(|_| too_large(LONGEST_EVENT))?;
                self.queue(events);
                Ok(())
            }
            Shape::Whole(body) => {
                body.extend_from_slice(piece);
                if body.len() > LONGEST_EVENT { Err(too_large(LONGEST_EVENT)) } else { Ok(()) }
            }
        }
    }

    fn recognise(&mut self, start: Vec<u8>) -> Result<(), Failure> {
        const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
        let text = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&start);
        let first = text.iter().find(|b| !b.is_ascii_whitespace());
        self.shape = match first {
            _ if BYTE_ORDER_MARK.starts_with(&start) => Shape::Unknown(start),
            None => Shape::Unknown(start),
            Some(b'{' | b'[' | b'<') => Shape::Whole(text.to_vec()),
            Some(_) => {
                self.shape = Shape::Events(Decoder::new(LONGEST_EVENT));
                self.received -= start.len();
                return self.take_in(&start);
            }
        };
        match &self.shape {
            Shape::Unknown(start) if start.len() > LONGEST_NOTHING => Err(too_large(LONGEST_NOTHING)),
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.over = true;
        match std::mem::replace(&mut self.shape, Shape::Unknown(Vec::new())) {
            Shape::Unknown(_) => Err(Failure::new(Reason::Empty, "the endpoint's answer is empty")),
            Shape::Whole(body) => {
                let text = String::from_utf8_lossy(&body);
                if text.starts_with('<') || looks_like_html(&text) {
                    return Err(web_page());
                }
                self.queue(vec![Event { name: String::new(), data: text.trim().to_owned() }]);
                self.complete = true;
                Ok(())
            }
            Shape::Events(mut decoder) => {
                let mut events = Vec::new();
                decoder.finish(&mut events).map_err(|_| too_large(LONGEST_EVENT))?;
                self.queue(events);
                if self.any_event {
                    return Ok(());
                }
                Err(Failure::new(Reason::Empty, "the endpoint's answer is a stream without any event"))
            }
        }
    }

    fn queue(&mut self, events: Vec<Event>) {
        for event in events {
            self.last_event = Instant::now();
            if matches!(event.name.as_str(), "ping" | "keepalive" | "keep-alive") {
                continue;
            }
            self.any_event = true;
            if event.data.trim() == "[DONE]" {
                self.over = true;
                self.complete = true;
                return;
            }
            self.ready.push_back(canonical(event));
        }
    }
}

/// One `data:` line. Anything but a JSON object, and any object named an error, becomes an error object.
fn canonical(event: Event) -> Bytes {
    let is_object = event.data.trim_start().starts_with(['{', '[']);
    let data = if event.name == "error" || !is_object {
        let error = serde_json::from_str(&event.data).unwrap_or(Value::String(event.data));
        serde_json::json!({ "error": error }).to_string()
    } else {
        // Between JSON's tokens a line break is white space; inside a string it is not allowed anyway.
        event.data.replace(['\n', '\r'], " ")
    };
    Bytes::from(format!("data: {data}\n\n"))
}

fn stalled(waited: Duration) -> Failure {
    let message = format!("the answer stalled: nothing came for {} s", seconds(waited));
    Failure::new(Reason::TimedOut, message)
}
