//! Reads an answer in pieces, whatever a good one's body is: server-sent events in any dialect, or one JSON document.

use crate::client::dialect::AnswerReader;
use crate::client::error_body::looks_like_html;
use crate::client::failure::{Failure, Reason};
use crate::client::http::{LONGEST_EVENT, broken_off, not_json, seconds, silence, too_large, web_page};
use crate::client::sse::{Decoder, Event};
use crate::client::wire::Chunk;
use crate::endpoint::Timeouts;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Response;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Bytes of a whole stream: 128,000 tokens at 500 bytes an event.
const LONGEST_STREAM: usize = 64 << 20;
/// Bytes of white space before anything else comes.
const LONGEST_NOTHING: usize = 1 << 20;

/// The names that servers give events that keep a connection alive, or what they write into them.
const KEEP_ALIVES: [&str; 6] = ["ping", "pong", "keepalive", "keep-alive", "keep_alive", "heartbeat"];

/// An answer that is being read.
pub struct Answer {
    body: BoxStream<'static, reqwest::Result<Bytes>>,
    shape: Shape,
    ready: VecDeque<Event>,
    received: usize,
    /// The time when the answer last grew, or the request was sent.
    last_content: Instant,
    any_event: bool,
    /// The last event that is not a JSON object: an error, unless the answer goes on behind it.
    stray: Option<Event>,
    over: bool,
    /// The endpoint has said so itself.
    complete: bool,
    timeouts: Timeouts,
    reader: AnswerReader,
}

/// The shape of a body, as it turned out. The content type is not asked: it is wrong too often.
enum Shape {
    /// Only white space or less came so far.
    Unknown(Vec<u8>),
    /// Server-sent events.
    Events(Decoder),
    /// One JSON document (or a web page), collected to its end.
    Whole(Vec<u8>),
}

impl Answer {
    /// The answer to a request that was sent at `started`, in the protocol of `reader`.
    pub fn new(response: Response, started: Instant, timeouts: Timeouts, reader: AnswerReader) -> Self {
        Self {
            body: response.bytes_stream().boxed(),
            shape: Shape::Unknown(Vec::new()),
            ready: VecDeque::new(),
            received: 0,
            last_content: started,
            any_event: false,
            stray: None,
            over: false,
            complete: false,
            timeouts,
            reader,
        }
    }

    /// Returns whether the endpoint itself has ended the answer.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Reads what may follow the last event, so that the connection can serve the next request.
    pub fn give_back(self) {
        tokio::spawn(timeout(Duration::from_secs(2), self.body.take(16).for_each(|_| async {})));
    }

    /// The next piece; `None` at the end. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<Option<Chunk>, Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                if event.name != "error" && !event.data.trim_start().starts_with(['{', '[']) {
                    self.stray = Some(event);
                    continue;
                }
                if event.data.contains("\"choices\"") || event.data.contains("\"type\"") {
                    self.stray = None;
                }
                let chunk = chunk(event, &mut self.reader)?;
                if self.reader.is_complete() {
                    (self.over, self.complete) = (true, true);
                }
                return Ok(Some(chunk));
            }
            if self.over {
                return match self.stray.take() {
                    Some(event) => Err(Failure::from_error_object(&error_in(event))),
                    None => Ok(None),
                };
            }
            match timeout(self.silence_allowed(), self.body.next()).await {
                Err(_) => return Err(self.silent()),
                Ok(Some(Ok(piece))) => self.take_in(&piece)?,
                Ok(Some(Err(error))) => return Err(broken_off(&error)),
                Ok(None) => self.end()?,
            }
        }
    }

    /// Comments, pings and pieces with nothing in them keep the connection alive, as servers do while a model reads or thinks,
    /// but not for ever: then the answer has to grow within the time for its first event.
    fn silence_allowed(&self) -> Duration {
        let until_content = self.timeouts.first.saturating_sub(self.last_content.elapsed());
        if self.received == 0 { until_content } else { until_content.min(self.timeouts.idle) }
    }

    fn silent(&self) -> Failure {
        let waited = self.last_content.elapsed();
        match self.any_event {
            true if waited >= self.timeouts.first => kept_alive(waited),
            true => stalled(self.timeouts.idle),
            false => silence(waited),
        }
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
        let mut has_grown = false;
        for event in events {
            if [event.name.as_str(), event.data.trim()].iter().any(|word| KEEP_ALIVES.contains(word)) {
                continue;
            }
            self.any_event = true;
            // One of those that came together is enough.
            if !has_grown && has_content(&event.data) {
                has_grown = true;
                self.last_content = Instant::now();
            }
            if event.data.trim() == "[DONE]" {
                self.over = true;
                self.complete = true;
                return;
            }
            self.ready.push_back(event);
        }
    }
}

/// The error that an event reports, as JSON or as text.
fn error_in(event: Event) -> Value {
    serde_json::from_str(&event.data).unwrap_or(Value::String(event.data))
}

/// The piece of an answer that an event carries. Any that is named an error reports one.
fn chunk(event: Event, reader: &mut AnswerReader) -> Result<Chunk, Failure> {
    if event.name == "error" {
        return Ok(Chunk::of_error(error_in(event)));
    }
    // Between JSON's tokens a line break is white space; inside a string it is not allowed anyway.
    let data = event.data.replace(['\n', '\r'], " ");
    reader.read(&data).map_err(|error| not_json(&error, &data))
}

/// Returns whether an event adds anything to the answer, or is not one of its pieces at all.
fn has_content(data: &str) -> bool {
    let event = match serde_json::from_str(data) {
        Ok(Value::Object(event)) => event,
        parsed => return matches!(parsed, Ok(Value::Array(_))),
    };
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
    let Some(Value::Array(choices)) = event.get("choices") else {
        return !event.is_empty() && !KEEP_ALIVES.contains(&kind);
    };
    choices.iter().filter_map(Value::as_object).any(|choice| {
        let pieces = ["delta", "message"].into_iter().filter_map(|name| choice.get(name)?.as_object());
        let mut fields = pieces.flatten().filter(|(name, _)| *name != "role").map(|(_, value)| value);
        choice.get("finish_reason").is_some_and(|reason| !reason.is_null())
            || choice.get("text").and_then(Value::as_str).is_some_and(|text| !text.is_empty())
            || fields.any(|value| match value {
                Value::String(text) => !text.is_empty(),
                Value::Array(list) => !list.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                Value::Null | Value::Bool(_) | Value::Number(_) => false,
            })
    })
}

fn kept_alive(waited: Duration) -> Failure {
    let message = format!(
        "the answer stalled: the connection was kept alive, but nothing came for {} s",
        seconds(waited)
    );
    Failure::new(Reason::TimedOut, message)
}

fn stalled(waited: Duration) -> Failure {
    let message = format!("the answer stalled: nothing came for {} s", seconds(waited));
    Failure::new(Reason::TimedOut, message)
}
