//! The conversation for an endpoint that does not take tools: they are described in the system prompt, calls and
//! results are written as text.

use crate::{Message, ToolSpec};
use agent_event::ToolCall;
use serde_json::json;

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
            Message::Assistant { text, reasoning, tool_calls } => plain.push(Message::Assistant {
                text: [text.clone()]
                    .into_iter()
                    .chain(tool_calls.iter().map(written))
                    .filter(|t| !t.is_empty())
                    .collect::<Vec<_>>()
                    .join("\n"),
                reasoning: reasoning.clone(),
                tool_calls: Vec::new(),
            }),
            Message::Tool { name, text, .. } => add_result(&mut plain, name, text),
            Message::System { .. } | Message::User { .. } => plain.push(message.clone()),
        }
    }
    plain
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
