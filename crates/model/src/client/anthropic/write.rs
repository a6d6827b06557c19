//! Writes requests. All results of a turn are in one message, in front of what the user says; thinking goes back as it came, to the
//! model that made it; the places are marked up to which the prompt is cached: tools, system prompt, the last two turns.

use crate::client::dialect::Images;
use crate::client::ids::portable;
use crate::client::schema;
use crate::client::wire::{CONTENT_BLOCKS, Form, Manner, Recipient, further_fields};
use crate::tool_calls::names;
use crate::{Message, Request, ToolSpec};
use agent_base::sanitise::with_visible_controls as shown;
use agent_event::{Opaque, ToolCall};
use serde_json::{Map, Value, json};

/// Tokens of an answer where none are configured: the protocol wants a number, and every current model takes this one.
const MAX_TOKENS: u32 = 32_000;
/// The smallest budget for thinking.
const MIN_BUDGET: u32 = 1_024;

/// The field of the system prompt, with a comma behind it.
pub fn system(messages: &[Message], manner: Manner) -> String {
    match messages.first() {
        Some(Message::System { text }) if !text.trim().is_empty() => {
            let mut block = text_block(text);
            mark(&mut block, manner.cache_marks);
            format!("\"system\":{},", json!([block]))
        }
        _ => String::new(),
    }
}

/// The fields beside the conversation and the tools.
pub fn fields(form: &Form<'_>, request: &Request<'_>) -> Map<String, Value> {
    let mut rest = further_fields(form);
    let max_tokens = form.max_tokens.map_or(MAX_TOKENS, |(_, tokens)| tokens);
    rest.insert("max_tokens".into(), max_tokens.into());
    if let Some(temperature) = form.temperature {
        rest.insert("temperature".into(), temperature.into());
    }
    if let Some(top_p) = form.top_p {
        rest.insert("top_p".into(), top_p.into());
    }
    think(form, max_tokens, &mut rest);
    if let Some(schema) = request.answer_schema {
        let format = json!({ "type": "json_schema", "schema": schema::closed(schema) });
        set(&mut rest, "output_config", "format", format);
    }
    rest
}

/// Writes how much the model is to think. Newer models measure it out themselves, older ones want a number of tokens.
fn think(form: &Form<'_>, max_tokens: u32, rest: &mut Map<String, Value>) {
    let effort = form.reasoning_effort;
    if effort == Some("none") {
        rest.insert("thinking".into(), json!({ "type": "disabled" }));
        return;
    }
    let share = |effort: &str| match effort {
        "minimal" => max_tokens / 10,
        "low" => max_tokens / 5,
        "medium" => max_tokens / 2,
        _ => max_tokens / 5 * 4,
    };
    let budget = match (form.reasoning_budget, effort) {
        (Some(budget), _) => budget,
        (None, Some(effort)) if !form.extras.adaptive => share(effort),
        (None, Some(effort)) => {
            rest.insert("thinking".into(), json!({ "type": "adaptive" }));
            set(rest, "output_config", "effort", effort.into());
            return;
        }
        (None, None) => return,
    };
    let budget = budget.min(max_tokens.saturating_sub(1)).max(MIN_BUDGET);
    rest.insert("thinking".into(), json!({ "type": "enabled", "budget_tokens": budget }));
    // The budget is a part of the answer's tokens.
    rest.insert("max_tokens".into(), max_tokens.max(budget + 1).into());
}

/// Sets a field of an object, which may have further ones that are configured.
fn set(rest: &mut Map<String, Value>, object: &str, name: &str, value: Value) {
    let entry = rest.entry(object).or_insert_with(|| json!({}));
    if !entry.is_object() {
        *entry = json!({});
    }
    entry[name] = value;
}

/// The tools. The last one has the mark: they come first in the prompt.
pub fn written_tools(tools: &[ToolSpec], manner: Manner) -> Vec<Value> {
    let written = |tool: &ToolSpec| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters });
    let mut tools: Vec<Value> = tools.iter().map(written).collect();
    if let Some(last) = tools.last_mut() {
        mark(last, manner.cache_marks);
    }
    tools
}

/// A message of the model, or those of the user that belong together.
pub fn written(
    group: &[Message],
    recipient: Recipient<'_>,
    images: Option<&Images>,
    has_mark: bool,
) -> Vec<Value> {
    match group {
        [Message::Assistant { text, tool_calls, opaque, .. }] => {
            let content = said(text, tool_calls, recipient.own(opaque));
            vec![json!({ "role": "assistant", "content": content })]
        }
        [Message::System { .. }] => Vec::new(),
        group => {
            let result = |message: &Message| matches!(message, Message::Tool { .. });
            let (results, prompts): (Vec<&Message>, Vec<&Message>) = group.iter().partition(|m| result(m));
            let mut content: Vec<Value> =
                results.into_iter().chain(prompts).flat_map(|message| users(message, images)).collect();
            if let Some(last) = content.last_mut() {
                mark(last, has_mark);
            }
            vec![json!({ "role": "user", "content": content })]
        }
    }
}

/// A result, or what the user says, with its images.
fn users(message: &Message, images: Option<&Images>) -> Vec<Value> {
    let pictures = |of: &str| {
        images.and_then(|images| images.get(of)).into_iter().flatten().filter_map(|url| image(url))
    };
    match message {
        Message::Tool { id, text, .. } => {
            let pictures: Vec<Value> = pictures(id).collect();
            let content: Value = match pictures.is_empty() {
                true => shown(text).into(),
                false => std::iter::once(text_block(text)).chain(pictures).collect(),
            };
            vec![json!({ "type": "tool_result", "tool_use_id": portable(id), "content": content })]
        }
        Message::User { text } => std::iter::once(text_block(text)).chain(pictures(text)).collect(),
        _ => Vec::new(),
    }
}

/// Returns what the model said: as it came where it was kept, and without its thinking otherwise.
fn said(text: &str, calls: &[ToolCall], own: Option<&Opaque>) -> Vec<Value> {
    let kept = own.and_then(|own| own.message.get(CONTENT_BLOCKS)?.as_array());
    let mut content = Vec::new();
    let mut missing: Vec<&ToolCall> = calls.iter().collect();
    for block in kept.into_iter().flatten() {
        match block["type"].as_str() {
            Some("tool_use") => {
                // One that was not taken as a call has no result either.
                if let Some(at) = missing.iter().position(|call| block["id"] == *call.id) {
                    content.push(tool_use(missing.remove(at)));
                }
            }
            // The endpoint sends some, and refuses them.
            Some("text") if block["text"].as_str().is_none_or(|text| text.trim().is_empty()) => {}
            _ => content.push(block.clone()),
        }
    }
    if kept.is_none() && !text.trim().is_empty() {
        content.push(text_block(text));
    }
    content.extend(missing.into_iter().map(tool_use));
    let is_thinking =
        |block: &Value| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
    if content.iter().all(is_thinking) {
        content.push(text_block(""));
    }
    content
}

fn tool_use(call: &ToolCall) -> Value {
    let input = match call.arguments.object() {
        Some(object) => Value::Object(object.clone()),
        None => json!({ "invalid": call.arguments }),
    };
    json!({ "type": "tool_use", "id": portable(&call.id), "name": names::legal(&call.name), "input": input })
}

/// A text. Empty ones are refused.
fn text_block(text: &str) -> Value {
    let text = if text.trim().is_empty() { "[cut off]".into() } else { shown(text) };
    json!({ "type": "text", "text": text })
}

fn image(url: &str) -> Option<Value> {
    let source = match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
        Some((kind, data)) => json!({ "type": "base64", "media_type": kind, "data": data }),
        None if url.starts_with("https://") => json!({ "type": "url", "url": url }),
        None => return None,
    };
    Some(json!({ "type": "image", "source": source }))
}

fn mark(block: &mut Value, has_mark: bool) {
    if has_mark {
        block["cache_control"] = json!({ "type": "ephemeral" });
    }
}
