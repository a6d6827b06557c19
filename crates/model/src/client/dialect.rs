//! The differences between the protocols: how a conversation is written, and how the pieces of an answer are read.

use crate::client::encoded::Encoded;
use crate::client::wire::{self, Chunk, Form, Manner, Recipient};
use crate::client::{anthropic, halves, responses};
use crate::protocol::Protocol;
use crate::{Message, Request, ToolSpec};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Images by the call that returned them or the prompt that names them, as `data:` URLs.
pub type Images = HashMap<String, Vec<String>>;

/// The number of turns at the end that have a cache mark: what the request before wrote is found again by the first of
/// them.
const MARKED_TURNS: usize = 2;

/// The body that sends `request` in this form.
pub fn body(form: &Form<'_>, request: &Request<'_>, encoded: &mut Encoded) -> serde_json::Result<Bytes> {
    let head = |before: &str| format!("{{\"model\":{},{before}[", json!(form.model));
    let (head, mut rest) = match form.manner.protocol {
        Protocol::Chat => return wire::body(form, request, encoded),
        Protocol::Messages => {
            let system = anthropic::system(request.messages, form.manner);
            (head(&format!("{system}\"messages\":")), anthropic::fields(form, request))
        }
        Protocol::Responses => {
            let instructions = responses::instructions(request.messages);
            (head(&format!("{instructions}\"input\":")), responses::fields(form, request))
        }
    };
    let mut tail = b"],".to_vec();
    if !request.tools.is_empty() {
        tail.extend_from_slice(b"\"tools\":");
        tail.extend_from_slice(encoded.tools(request.tools, form.manner)?);
        tail.push(b',');
        rest.remove("tools");
    }
    // `rest` is an object that is never empty: its opening brace gives way to the comma.
    tail.extend_from_slice(&serde_json::to_vec(&rest)?[1..]);
    encoded.body(head.as_bytes(), request.messages, form.recipient(), &tail)
}

/// The tools as the protocol writes them.
pub fn written_tools(tools: &[ToolSpec], manner: Manner) -> Vec<Value> {
    match manner.protocol {
        Protocol::Chat => tools.iter().map(wire::written_tool).collect(),
        Protocol::Responses => tools.iter().map(responses::written_tool).collect(),
        Protocol::Messages => anthropic::written_tools(tools, manner),
    }
}

/// Returns the end of the messages that are written together with the one at `start`: Messages has all results of a turn
/// and what the user says behind them in one message.
pub fn group_end(messages: &[Message], start: usize, manner: Manner) -> usize {
    let is_users = |message: &Message| matches!(message, Message::User { .. } | Message::Tool { .. });
    match manner.protocol {
        Protocol::Messages if is_users(&messages[start]) => {
            start + messages[start..].iter().take_while(|message| is_users(message)).count()
        }
        _ => start + 1,
    }
}

/// The message from which on those of the user have marks for the cache; `None` where no message has one.
pub fn first_mark(messages: &[Message], manner: Manner) -> Option<usize> {
    if !manner.cache_marks || manner.protocol != Protocol::Messages {
        return None;
    }
    let is_users = |message: &Message| matches!(message, Message::User { .. } | Message::Tool { .. });
    let is_last_of_group =
        |at: &usize| is_users(&messages[*at]) && messages.get(at + 1).is_none_or(|next| !is_users(next));
    (0..messages.len()).rev().filter(is_last_of_group).take(MARKED_TURNS).last()
}

/// A group of messages as Responses or Messages writes it.
pub fn written(
    group: &[Message],
    recipient: Recipient<'_>,
    images: Option<&Images>,
    has_mark: bool,
) -> Vec<Value> {
    match recipient.manner.protocol {
        Protocol::Chat => group.iter().map(|message| wire::written(message, recipient)).collect(),
        Protocol::Responses => {
            group.iter().flat_map(|message| responses::written(message, recipient, images)).collect()
        }
        Protocol::Messages => anthropic::written(group, recipient, images, has_mark),
    }
}

/// Reads the pieces of an answer.
pub enum AnswerReader {
    /// Each piece says everything itself.
    Chat,
    /// See [`anthropic::MessagesReader`].
    Messages(anthropic::MessagesReader),
    /// See [`responses::ResponsesReader`].
    Responses(responses::ResponsesReader),
}

impl AnswerReader {
    /// Nothing has come yet.
    pub fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Chat => Self::Chat,
            Protocol::Messages => Self::Messages(anthropic::MessagesReader::default()),
            Protocol::Responses => Self::Responses(responses::ResponsesReader::default()),
        }
    }

    /// The piece that a JSON document is.
    ///
    /// # Errors
    /// Where it is not JSON.
    pub fn read(&mut self, json: &str) -> serde_json::Result<Chunk> {
        if matches!(self, Self::Chat) {
            return Chunk::read(json);
        }
        let (value, has_marks) = halves::parsed(json)?;
        let chunk = match self {
            Self::Chat => Chunk::of_value(value),
            Self::Messages(reader) => reader.read(value),
            Self::Responses(reader) => reader.read(value),
        };
        Ok(Chunk { has_marks, ..chunk })
    }

    /// Returns whether the endpoint has ended the answer. In the chat protocol `[DONE]` does, which is not read here.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Chat => false,
            Self::Messages(reader) => reader.is_complete(),
            Self::Responses(reader) => reader.is_complete(),
        }
    }
}
