//! Writes requests. Reasoning goes back as it came, to the model that made it, in front of what it led to.

use crate::client::dialect::Images;
use crate::client::ids::portable;
use crate::client::schema::is_strict;
use crate::client::wire::{Form, OUTPUT_ITEMS, Recipient, further_fields};
use crate::tool_calls::names;
use crate::{Message, Request, ToolSpec};
use agent_base::sanitise::with_visible_controls as shown;
use agent_event::{Opaque, ToolCall};
use serde_json::{Map, Value, json};

/// The fewest tokens of an answer that the protocol takes.
const MIN_TOKENS: u32 = 16;

/// The field of the system prompt, with a comma behind it.
pub fn instructions(messages: &[Message]) -> String {
    match messages.first() {
        Some(Message::System { text }) => format!("\"instructions\":{},", json!(shown(text))),
        _ => String::new(),
    }
}

/// The fields beside the conversation and the tools.
pub fn fields(form: &Form<'_>, request: &Request<'_>) -> Map<String, Value> {
    let mut rest = further_fields(form);
    rest.insert("store".into(), false.into());
    if form.extras.encrypted {
        rest.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    if form.extras.cache_key {
        rest.insert("prompt_cache_key".into(), cache_key(request.messages).into());
    }
    if let Some((_, tokens)) = form.max_tokens {
        rest.insert("max_output_tokens".into(), tokens.max(MIN_TOKENS).into());
    }
    if let Some(temperature) = form.temperature {
        rest.insert("temperature".into(), temperature.into());
    }
    if let Some(top_p) = form.top_p {
        rest.insert("top_p".into(), top_p.into());
    }
    if let Some(effort) = form.reasoning_effort {
        let mut reasoning = json!({ "effort": effort });
        if form.extras.summaries {
            reasoning["summary"] = "auto".into();
        }
        rest.insert("reasoning".into(), reasoning);
    }
    if let Some(schema) = request.answer_schema {
        let format =
            json!({ "type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema) });
        let text = rest.entry("text").or_insert_with(|| json!({}));
        if !text.is_object() {
            *text = json!({});
        }
        text["format"] = format;
    }
    rest
}

/// The same for all requests of a conversation, also after a resume: a hash of how it begins, which says nothing about that.
fn cache_key(messages: &[Message]) -> String {
    let texts = messages.iter().take(2).map(|message| match message {
        Message::System { text } | Message::User { text } => text.as_str(),
        _ => "",
    });
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("agent-{:016x}", texts.flat_map(str::bytes).fold(0xcbf2_9ce4_8422_2325, hash))
}

/// A tool. Without `strict` the endpoint would try to be strict about schemas that allow more.
pub fn written_tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": false,
    })
}

/// The items that a message is.
pub fn written(message: &Message, recipient: Recipient<'_>, images: Option<&Images>) -> Vec<Value> {
    match message {
        Message::System { .. } => Vec::new(),
        Message::User { text } => {
            let content = match parts(text, text, images) {
                Some(parts) => parts,
                None => json!([{ "type": "input_text", "text": shown(text) }]),
            };
            vec![json!({ "type": "message", "role": "user", "content": content })]
        }
        Message::Tool { id, text, .. } => {
            let output = parts(id, text, images).unwrap_or_else(|| shown(text).into());
            vec![json!({ "type": "function_call_output", "call_id": portable(id), "output": output })]
        }
        Message::Assistant { text, tool_calls, opaque, .. } => said(text, tool_calls, recipient.own(opaque)),
    }
}

/// A text with its images, if it has some.
fn parts(of: &str, text: &str, images: Option<&Images>) -> Option<Value> {
    let urls = images?.get(of)?;
    let image = |url: &String| json!({ "type": "input_image", "image_url": url, "detail": "auto" });
    let text = json!({ "type": "input_text", "text": shown(text) });
    Some(std::iter::once(text).chain(urls.iter().map(image)).collect())
}

/// Returns what the model said: as it came where it was kept, and without its reasoning otherwise.
fn said(text: &str, calls: &[ToolCall], own: Option<&Opaque>) -> Vec<Value> {
    let kept = own.and_then(|own| own.message.get(OUTPUT_ITEMS)?.as_array());
    let mut items = Vec::new();
    let mut missing: Vec<&ToolCall> = calls.iter().collect();
    for item in kept.into_iter().flatten() {
        match item["type"].as_str() {
            Some("function_call") => {
                // One that was not taken as a call has no result either.
                if let Some(at) = missing.iter().position(|call| item["call_id"] == *call.id) {
                    items.push(function_call(missing.remove(at)));
                }
            }
            _ => items.push(item.clone()),
        }
    }
    let is_cut_off = text.trim().is_empty() && calls.is_empty();
    if kept.is_none() && (!text.trim().is_empty() || is_cut_off) {
        let text = if is_cut_off { "[cut off]".into() } else { shown(text) };
        let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
        items.push(json!({ "type": "message", "role": "assistant", "content": content }));
    }
    items.extend(missing.into_iter().map(function_call));
    // Reasoning that led to nothing is refused.
    while items.last().is_some_and(|item| item["type"] == "reasoning") {
        items.pop();
    }
    items
}

fn function_call(call: &ToolCall) -> Value {
    let arguments = match call.arguments.object() {
        Some(_) => call.arguments.as_str().to_owned(),
        None => json!({ "invalid": call.arguments }).to_string(),
    };
    let (id, name) = (portable(&call.id), names::legal(&call.name));
    json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments })
}
