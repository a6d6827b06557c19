//! Reads answers: the events of a stream, or a whole message.

use crate::client::wire::{Arguments, CONTENT_BLOCKS, Chunk, Function, Said, WireCall};
use agent_event::Usage;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Blocks of one message.
const MOST_BLOCKS: usize = 1_024;

/// An answer that is being read.
#[derive(Default)]
pub struct MessagesReader {
    /// The blocks that are not complete yet, by their numbers.
    blocks: BTreeMap<u64, Block>,
    usage: Map<String, Value>,
    is_complete: bool,
    /// The number of blocks that have begun.
    begun: usize,
}

/// A block that is still coming.
struct Block {
    value: Value,
    /// Set if pieces of arguments came.
    has_arguments: bool,
}

impl MessagesReader {
    /// Returns whether the message has ended.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns what an event says. Events of other names say nothing.
    pub fn read(&mut self, event: Value) -> Chunk {
        let index = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str() {
            Some("message_start") => self.count(&event["message"]["usage"]),
            Some("content_block_start") => self.start(index, event["content_block"].clone()),
            Some("content_block_delta") => self.grow(index, &event["delta"]),
            Some("content_block_stop") => self.stop(index),
            Some("message_delta") => {
                let counted = self.count(&event["usage"]).counted;
                Chunk { counted, ..end(&event["delta"]) }
            }
            Some("message_stop") => {
                self.is_complete = true;
                self.stop_all()
            }
            Some("message") => self.whole(&event),
            Some("error") => Chunk::of_error(event),
            Some("ping") => Chunk::default(),
            Some(_) if event.get("error").is_none() => Chunk::default(),
            _ => Chunk::of_value(event),
        }
    }

    fn whole(&mut self, message: &Value) -> Chunk {
        let mut parts = Vec::new();
        for (index, block) in (0..).zip(message["content"].as_array().into_iter().flatten().take(MOST_BLOCKS))
        {
            parts.push(self.start(index, block.clone()));
            parts.push(self.stop(index));
        }
        let counted = self.count(&message["usage"]).counted;
        parts.push(end(message));
        self.is_complete = true;
        let choices = parts.into_iter().flat_map(|part| part.choices).collect();
        Chunk { choices, counted, ..Chunk::default() }
    }

    fn start(&mut self, index: u64, block: Value) -> Chunk {
        self.begun += 1;
        if self.begun > MOST_BLOCKS {
            return Chunk::of_error(
                json!({ "message": format!("the answer has more than {MOST_BLOCKS} blocks") }),
            );
        }
        let said = match block["type"].as_str() {
            Some("tool_use") => {
                let function = Function { name: text(&block["name"]), arguments: Arguments::default() };
                call(WireCall { index: Some(index), id: text(&block["id"]), function, ..WireCall::default() })
            }
            Some("text") => Said { content: text(&block["text"]), ..Said::default() },
            Some("thinking") => Said { reasoning_content: text(&block["thinking"]), ..Said::default() },
            _ => Said::default(),
        };
        self.blocks.insert(index, Block { value: block, has_arguments: false });
        Chunk::saying(said)
    }

    fn grow(&mut self, index: u64, delta: &Value) -> Chunk {
        let Some(block) = self.blocks.get_mut(&index) else { return Chunk::default() };
        let mut add = |field: &str| {
            let piece = text(&delta[field]);
            if let Some(Value::String(before)) = block.value.get_mut(field) {
                before.push_str(&piece);
            } else {
                block.value[field] = piece.clone().into();
            }
            piece
        };
        Chunk::saying(match delta["type"].as_str() {
            Some("text_delta") => Said { content: add("text"), ..Said::default() },
            Some("thinking_delta") => Said { reasoning_content: add("thinking"), ..Said::default() },
            Some("signature_delta") => {
                // It comes in one piece, and replaces the empty one of the start.
                block.value["signature"] = delta["signature"].clone();
                Said::default()
            }
            Some("input_json_delta") => {
                let piece = text(&delta["partial_json"]);
                block.has_arguments |= !piece.is_empty();
                let function = Function { arguments: Arguments::Text(piece), ..Function::default() };
                call(WireCall { index: Some(index), function, ..WireCall::default() })
            }
            _ => Said::default(),
        })
    }

    fn stop(&mut self, index: u64) -> Chunk {
        let Some(Block { value, has_arguments }) = self.blocks.remove(&index) else {
            return Chunk::default();
        };
        let mut said = Said::default();
        let kept = match value["type"].as_str() {
            // The call itself is kept with the conversation; here its place counts.
            Some("tool_use") => {
                if !has_arguments {
                    let input = value.get("input").filter(|input| input.is_object());
                    let whole = input.map_or_else(|| "{}".to_owned(), Value::to_string);
                    let function = Function { arguments: Arguments::Whole(whole), ..Function::default() };
                    said = call(WireCall { index: Some(index), function, ..WireCall::default() });
                }
                json!({ "type": "tool_use", "id": value["id"] })
            }
            _ => value,
        };
        Chunk::saying(Said { kept: Some((CONTENT_BLOCKS, kept)), ..said })
    }

    /// Some servers never stop a block.
    fn stop_all(&mut self) -> Chunk {
        let open: Vec<u64> = self.blocks.keys().copied().collect();
        let choices = open.into_iter().flat_map(|index| self.stop(index).choices).collect();
        Chunk { choices, ..Chunk::default() }
    }

    /// The counts so far: later ones replace earlier ones, and some fields come at the beginning alone.
    fn count(&mut self, usage: &Value) -> Chunk {
        for (name, value) in usage.as_object().into_iter().flatten().filter(|(_, value)| value.is_u64()) {
            self.usage.insert(name.clone(), value.clone());
        }
        let field = |name: &str| self.usage.get(name).and_then(Value::as_u64).unwrap_or_default();
        let (cached, written) = (field("cache_read_input_tokens"), field("cache_creation_input_tokens"));
        let input = field("input_tokens").saturating_add(cached).saturating_add(written);
        let usage = Usage { input, output: field("output_tokens"), cached, written };
        Chunk { counted: (!self.usage.is_empty()).then_some(usage), ..Chunk::default() }
    }
}

/// The end that a message reports, if it does.
fn end(message: &Value) -> Chunk {
    message["stop_reason"].as_str().map_or_else(Chunk::default, Chunk::ending)
}

fn call(call: WireCall) -> Said {
    Said { tool_calls: vec![call], ..Said::default() }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
