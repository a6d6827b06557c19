//! The conversation for an endpoint that does not take tools: they are described in the system prompt, calls and
//! results are written as text.

use crate::{Message, ToolSpec};
use agent_event::{Opaque, ToolCall};
use serde_json::json;
use std::collections::HashSet;

const INSTRUCTIONS: &str = agent_prompts::TOOLS_AS_TEXT;

/// The same conversation without anything but text in it.
pub fn described(messages: &[Message], tools: &[ToolSpec]) -> Vec<Message> {
    let mut plain: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    if !matches!(messages.first(), Some(Message::System { .. })) {
        plain.push(Message::System { text: instructions(tools) });
    }
    for message in messages {
        match message {
            Message::System { text } if plain.is_empty() => {
                plain.push(Message::System { text: format!("{text}\n\n{}", instructions(tools)) });
            }
            Message::Assistant { text, reasoning, tool_calls, .. } => {
                plain.push(with_calls(text, reasoning.clone(), tool_calls));
            }
            Message::Tool { name, text, .. } => add_result(&mut plain, name, text),
            Message::System { .. } | Message::User { .. } => plain.push(message.clone()),
        }
    }
    plain
}

/// The conversation with the calls of these ids, and their results, as text.
pub fn calls_as_text(messages: &[Message], ids: &HashSet<String>) -> Vec<Message> {
    let mut changed: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            Message::Assistant { text, reasoning, tool_calls, .. }
                if tool_calls.iter().any(|call| ids.contains(&call.id)) =>
            {
                changed.push(with_calls(text, reasoning.clone(), tool_calls));
            }
            Message::Tool { id, name, text } if ids.contains(id) => add_result(&mut changed, name, text),
            _ => changed.push(message.clone()),
        }
    }
    changed
}

/// The assistant's message with its calls in the text.
fn with_calls(text: &str, reasoning: Option<String>, calls: &[ToolCall]) -> Message {
    let texts = std::iter::once(text.to_owned()).chain(calls.iter().map(written));
    let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    Message::Assistant { text, reasoning, tool_calls: Vec::new(), opaque: Opaque::default() }
}

fn instructions(tools: &[ToolSpec]) -> String {
    let mut text = INSTRUCTIONS.to_owned();
    for tool in tools {
        let tool =
            json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters });
        text.push_str(&format!("{tool}\n"));
    }
    text
}

fn written(call: &ToolCall) -> String {
    let arguments = call.arguments.json().cloned().unwrap_or_else(|| call.arguments.as_str().into());
    format!("<tool_call>\n{}\n</tool_call>", json!({ "name": call.name, "arguments": arguments }))
}

/// Results of one message stand in one message: many templates want user and assistant to take turns.
fn add_result(plain: &mut Vec<Message>, name: &str, text: &str) {
    let result = format!("<tool_response name={name:?}>\n{text}\n</tool_response>");
    match plain.last_mut() {
        Some(Message::User { text }) if text.starts_with("<tool_response") => {
            text.push('\n');
            text.push_str(&result);
        }
        _ => plain.push(Message::User { text: result }),
    }
}
