//! Reads answers: the events of a stream, or a whole response.

use crate::client::wire::{Arguments, Chunk, Function, OUTPUT_ITEMS, Said, WireCall};
use agent_event::Usage;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Items of one answer.
const MOST_ITEMS: usize = 1_024;

/// An answer that is being read.
#[derive(Default)]
pub struct ResponsesReader {
    /// The items that have begun, by their numbers: some servers change the ids.
    items: BTreeMap<u64, Item>,
    /// The items that are complete.
    done: BTreeSet<u64>,
    has_calls: bool,
    is_complete: bool,
}

/// The state of an item, by what of it came in pieces.
#[derive(Default)]
struct Item {
    is_named: bool,
    has_text: bool,
    has_arguments: bool,
    has_reasoning: bool,
    /// The number of summaries of the reasoning that have begun.
    summaries: usize,
}

impl ResponsesReader {
    /// Returns whether the response has ended.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns what an event says. Events of other names say nothing.
    pub fn read(&mut self, event: Value) -> Chunk {
        let index = event["output_index"].as_u64().unwrap_or_default();
        let kind = event["type"].as_str().unwrap_or_default();
        if kind.is_empty() {
            return if event["output"].is_array() { self.end(&event) } else { Chunk::of_value(event) };
        }
        if self.items.len() > MOST_ITEMS {
            return Chunk::of_error(
                json!({ "message": format!("the answer has more than {MOST_ITEMS} items") }),
            );
        }
        let delta = || text(&event["delta"]);
        let item = self.items.entry(index).or_default();
        Chunk::saying(match kind {
            "response.output_item.added" => self.begin(index, &event["item"]),
            "response.output_item.done" => return self.finish(index, &event["item"]),
            "response.output_text.delta" => {
                item.has_text = true;
                Said { content: delta(), ..Said::default() }
            }
            "response.refusal.delta" => {
                item.has_text = true;
                Said { refusal: delta(), ..Said::default() }
            }
            "response.reasoning_summary_part.added" => {
                item.summaries += 1;
                let between = if item.summaries > 1 { "\n\n" } else { "" };
                Said { reasoning_content: between.to_owned(), ..Said::default() }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                item.has_reasoning = true;
                Said { reasoning_content: delta(), ..Said::default() }
            }
            "response.function_call_arguments.delta" => {
                let piece = delta();
                item.has_arguments |= !piece.is_empty();
                arguments(index, Arguments::Text(piece))
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                return self.end(&event["response"]);
            }
            "error" => return Chunk::of_error(event),
            _ => return Chunk::default(),
        })
    }

    fn begin(&mut self, index: u64, item: &Value) -> Said {
        if item["type"] != "function_call" {
            return Said::default();
        }
        self.has_calls = true;
        let known = self.items.entry(index).or_default();
        known.is_named = true;
        let function = Function { name: text(&item["name"]), arguments: Arguments::default() };
        let call =
            WireCall { index: Some(index), id: text(&item["call_id"]), function, ..WireCall::default() };
        Said { tool_calls: vec![call], ..Said::default() }
    }

    /// Returns what of an item has not come in pieces, and the item itself.
    fn finish(&mut self, index: u64, item: &Value) -> Chunk {
        if !self.done.insert(index) {
            return Chunk::default();
        }
        let mut parts = Vec::new();
        if !self.items.entry(index).or_default().is_named {
            parts.push(self.begin(index, item));
        }
        let known = self.items.entry(index).or_default();
        let kept = match item["type"].as_str() {
            Some("function_call") => {
                if !known.has_arguments {
                    parts.push(arguments(index, Arguments::Whole(text(&item["arguments"]))));
                }
                // The call itself is kept with the conversation; here its place counts.
                json!({ "type": "function_call", "call_id": item["call_id"] })
            }
            Some("reasoning") => {
                if !known.has_reasoning {
                    let reasoning = texts(&item["summary"], "text") + &texts(&item["content"], "text");
                    parts.push(Said { reasoning_content: reasoning, ..Said::default() });
                }
                item.clone()
            }
            _ => {
                if !known.has_text {
                    let (content, refusal) =
                        (texts(&item["content"], "text"), texts(&item["content"], "refusal"));
                    parts.push(Said { content, refusal, ..Said::default() });
                }
                item.clone()
            }
        };
        // Reasoning that nobody can read any more is missed by the endpoint.
        let is_lost = kept["type"] == "reasoning"
            && kept["encrypted_content"].as_str().is_none_or(str::is_empty)
            && kept["content"].as_array().is_none_or(Vec::is_empty);
        if !is_lost {
            parts.push(Said { kept: Some((OUTPUT_ITEMS, kept)), ..Said::default() });
        }
        let choices = parts.into_iter().flat_map(|said| Chunk::saying(said).choices).collect();
        Chunk { choices, ..Chunk::default() }
    }

    fn end(&mut self, response: &Value) -> Chunk {
        self.is_complete = true;
        let status = response["status"].as_str().unwrap_or("completed");
        if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
            return Chunk::of_error(json!({ "error": error }));
        }
        let items = response["output"].as_array().into_iter().flatten().take(MOST_ITEMS);
        let mut choices: Vec<_> =
            (0..).zip(items).flat_map(|(index, item)| self.finish(index, item).choices).collect();
        let reason = match (status, response["incomplete_details"]["reason"].as_str()) {
            ("incomplete", Some("max_output_tokens") | None) => "length",
            ("incomplete", Some(reason)) => reason,
            ("completed", _) if self.has_calls => "tool_calls",
            ("completed", _) => "stop",
            (status, _) => status,
        };
        choices.extend(Chunk::ending(reason).choices);
        Chunk { choices, counted: usage(&response["usage"]), ..Chunk::default() }
    }
}

fn usage(usage: &Value) -> Option<Usage> {
    let usage = usage.as_object()?;
    let count = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or_default();
    let detail = |name: &str| count(usage.get("input_tokens_details").and_then(|details| details.get(name)));
    Some(Usage {
        input: count(usage.get("input_tokens")),
        output: count(usage.get("output_tokens")),
        cached: detail("cached_tokens"),
        written: detail("cache_write_tokens"),
    })
}

fn arguments(index: u64, arguments: Arguments) -> Said {
    let function = Function { arguments, ..Function::default() };
    Said {
        tool_calls: vec![WireCall { index: Some(index), function, ..WireCall::default() }],
        ..Said::default()
    }
}

/// The texts of the parts of a list.
fn texts(parts: &Value, field: &str) -> String {
    parts.as_array().into_iter().flatten().filter_map(|part| part[field].as_str()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
