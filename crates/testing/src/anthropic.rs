//! Anthropic's Messages as its API documents it: what it refuses, and how it answers.

use super::endpoint::Request;
use super::prefix_cache::{Count, PrefixCache, seal, unknown_field};
use serde_json::{Value, json};

const FIELDS: [&str; 17] = [
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "stop_sequences",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "metadata",
    "service_tier",
    "container",
    "context_management",
];

/// The version in the documentation, and the one that the vendor's client for Python names (2.14).
const VERSIONS: [&str; 2] = ["2023-06-01", "2026-10-21"];

type AnthropicCheck = Result<(), String>;

/// The status and the body of a refusal, if the request is refused.
pub fn refusal(request: &Request) -> Option<(u16, Value)> {
    let keys = [request.header("x-api-key"), request.header("authorization")];
    if keys.iter().flatten().count() != 1 {
        return Some((
            401,
            error("authentication_error", "exactly one of x-api-key and Authorization is required"),
        ));
    }
    if !request.header("anthropic-version").is_some_and(|version| VERSIONS.contains(&version)) {
        return Some((400, error("invalid_request_error", "anthropic-version: header is required")));
    }
    let refused = check(&request.body).err()?;
    Some((400, error("invalid_request_error", &refused)))
}

pub fn error(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" })
}

/// The name of the error that belongs to a status.
pub fn kind(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

fn known(object: &Value, place: &str, fields: &[&str]) -> AnthropicCheck {
    match unknown_field(object, fields) {
        Some(name) => Err(format!("{place}{name}: Extra inputs are not permitted")),
        None => Ok(()),
    }
}

fn check(body: &Value) -> AnthropicCheck {
    known(body, "", &FIELDS)?;
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err("model: Field required".to_owned());
    }
    let max_tokens = body["max_tokens"].as_u64().ok_or("max_tokens: Field required")?;
    thinking(body, max_tokens)?;
    tools(body)?;
    messages(body["messages"].as_array().filter(|list| !list.is_empty()).ok_or("messages: Field required")?)?;
    let marks = body.to_string().matches("\"cache_control\"").count();
    if marks > 4 {
        return Err(format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}."));
    }
    for block in body["system"].as_array().into_iter().flatten() {
        text(block, "system.")?;
    }
    if let Some(format) = body["output_config"].get("format") {
        known(&body["output_config"], "output_config.", &["format", "effort"])?;
        closed(&format["schema"])?;
    }
    Ok(())
}

/// Every object of the schema of an answer is closed, and has no bounds.
fn closed(schema: &Value) -> AnthropicCheck {
    if schema["type"] == "object" && schema["additionalProperties"] != false {
        return Err("output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false".into());
    }
    if let Some(name) = ["minimum", "maxLength", "minLength", "pattern", "maxItems"]
        .iter()
        .find(|n| schema.get(**n).is_some())
    {
        return Err(format!("output_config.format.schema: property '{name}' is not supported"));
    }
    schema["properties"].as_object().into_iter().flatten().try_for_each(|(_, schema)| closed(schema))
}

fn thinking(body: &Value, max_tokens: u64) -> AnthropicCheck {
    let Some(thinking) = body.get("thinking") else { return Ok(()) };
    match thinking["type"].as_str() {
        Some("enabled") => {
            let budget =
                thinking["budget_tokens"].as_u64().ok_or("thinking.enabled.budget_tokens: Field required")?;
            if budget < 1024 {
                return Err(
                    "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024".into()
                );
            }
            if budget >= max_tokens {
                return Err("`max_tokens` must be greater than `thinking.budget_tokens`.".into());
            }
            if body.get("temperature").is_some_and(|temperature| temperature != 1.0) {
                return Err("`temperature` may only be set to 1 when thinking is enabled.".into());
            }
        }
        Some("adaptive" | "disabled") => known(thinking, "thinking.", &["type", "display"])?,
        _ => return Err("thinking.type: Input tag is not one of the expected tags".into()),
    }
    Ok(())
}

fn tools(body: &Value) -> AnthropicCheck {
    for tool in body["tools"].as_array().into_iter().flatten() {
        known(
            tool,
            "tools.0.custom.",
            &["name", "description", "input_schema", "strict", "cache_control", "type"],
        )?;
        let name = tool["name"].as_str().unwrap_or_default();
        if name.is_empty() || name.len() > 128 || !is_word(name) {
            return Err("tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'".into());
        }
        if tool["input_schema"]["type"] != "object" {
            return Err("tools.0.custom.input_schema.type: Input should be 'object'".into());
        }
    }
    Ok(())
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn messages(messages: &[Value]) -> AnthropicCheck {
    let mut open: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}");
        known(message, &format!("{place}."), &["role", "content"])?;
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != role {
            return Err(format!(
                "{place}: roles must alternate between \"user\" and \"assistant\", starting with \"user\""
            ));
        }
        let text = [json!({ "type": "text", "text": message["content"] })];
        let blocks = match &message["content"] {
            Value::String(_) => &text[..],
            content => content.as_array().map(Vec::as_slice).unwrap_or_default(),
        };
        if blocks.is_empty() {
            return Err(format!("{place}: all messages must have non-empty content"));
        }
        let results: Vec<&str> = blocks.iter().map_while(|block| block["tool_use_id"].as_str()).collect();
        if let Some(missing) = open.iter().find(|id| !results.contains(&id.as_str())) {
            return Err(format!(
                "{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}"
            ));
        }
        if let Some(odd) = results.iter().find(|id| !open.iter().any(|open| open == *id)) {
            return Err(format!(
                "{place}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {odd}"
            ));
        }
        open.clear();
        for block in blocks {
            open.extend(self::block(block, role, &place)?);
        }
        let is_last_thinking = blocks.last().is_some_and(|block| block["type"] == "thinking");
        if role == "assistant" && is_last_thinking {
            return Err(format!("{place}: The final block in an assistant message cannot be `thinking`."));
        }
    }
    match messages.len() % 2 {
        1 => Ok(()),
        _ => Err("This model does not support assistant message prefill. The conversation must end with a user message.".into()),
    }
}

/// The id of the call that a block is.
fn block(block: &Value, role: &str, place: &str) -> Result<Option<String>, String> {
    match (block["type"].as_str().unwrap_or_default(), role) {
        ("text", _) => text(block, place)?,
        ("image", "user") => {
            known(block, place, &["type", "source", "cache_control"])?;
            image(&block["source"])?;
        }
        ("tool_result", "user") => {
            known(block, place, &["type", "tool_use_id", "content", "is_error", "cache_control"])?;
            for part in block["content"].as_array().into_iter().flatten() {
                self::block(part, role, place)?;
            }
        }
        ("thinking", "assistant") => {
            known(block, place, &["type", "thinking", "signature"])?;
            let thinking = block["thinking"].as_str().unwrap_or_default();
            if block["signature"] != seal(thinking) {
                return Err(format!("{place}.content.0: Invalid `signature` in `thinking` block"));
            }
        }
        ("redacted_thinking", "assistant") => known(block, place, &["type", "data"])?,
        ("tool_use", "assistant") => {
            known(block, place, &["type", "id", "name", "input", "cache_control"])?;
            let id = block["id"].as_str().unwrap_or_default();
            if id.is_empty() || !is_word(id) {
                return Err(format!(
                    "{place}.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                ));
            }
            if !block["input"].is_object() {
                return Err(format!("{place}.content.0.tool_use.input: Input should be a valid dictionary"));
            }
            return Ok(Some(id.to_owned()));
        }
        (kind, _) => {
            return Err(format!("{place}: Input tag '{kind}' does not match any of the expected tags"));
        }
    }
    Ok(None)
}

fn text(block: &Value, place: &str) -> AnthropicCheck {
    known(block, place, &["type", "text", "cache_control", "citations"])?;
    match block["text"].as_str().is_some_and(|text| !text.trim().is_empty()) {
        true => Ok(()),
        false => Err(format!("{place}: text content blocks must be non-empty")),
    }
}

fn image(source: &Value) -> AnthropicCheck {
    let kinds = ["image/jpeg", "image/png", "image/gif", "image/webp"];
    match source["type"].as_str() {
        Some("base64")
            if kinds.iter().any(|kind| source["media_type"] == *kind) && source["data"].is_string() =>
        {
            Ok(())
        }
        Some("url") => Ok(()),
        _ => Err("image.source: not one of the expected tags".into()),
    }
}

/// Returns what the prompt costs: tools, system prompt, messages, in this order.
pub fn count(body: &Value, cache: &mut PrefixCache) -> Count {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let mut blocks = Vec::new();
    let parts = [list(&body["tools"]), list(&body["system"])].into_iter().flatten();
    let messages = body["messages"].as_array().into_iter().flatten();
    for mut block in parts.chain(messages.flat_map(|message| list(&message["content"]))) {
        let has_mark = block.as_object_mut().and_then(|block| block.remove("cache_control")).is_some();
        blocks.push((block.to_string(), has_mark));
    }
    cache.marked(&blocks)
}

/// A scripted message of the chat protocol as the content of this one.
fn content(message: &Value) -> Vec<Value> {
    let mut content = Vec::new();
    if let Some(thinking) = message["reasoning_content"].as_str() {
        content.push(json!({ "type": "thinking", "thinking": thinking, "signature": seal(thinking) }));
    }
    if let Some(text) = message["content"].as_str().filter(|text| !text.is_empty()) {
        content.push(json!({ "type": "text", "text": text }));
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let input: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        let (id, name) = (&call["id"], &call["function"]["name"]);
        content.push(json!({ "type": "tool_use", "id": id, "name": name, "input": input }));
    }
    content
}

fn stop_reason(finish: &str) -> &str {
    match finish {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    }
}

fn usage(count: Count, output: u64) -> Value {
    json!({
        "input_tokens": count.fresh,
        "cache_read_input_tokens": count.read,
        "cache_creation_input_tokens": count.written,
        "output_tokens": output,
    })
}

/// The whole message.
pub fn whole(message: &Value, finish: &str, count: Count) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "fake-model", "content": content(message),
        "stop_reason": stop_reason(finish), "stop_sequence": null, "usage": usage(count, 5),
    })
}

/// The message as a stream.
pub fn events(message: &Value, finish: &str, count: Count) -> Vec<u8> {
    let mut start = whole(message, finish, count);
    (start["content"], start["stop_reason"]) = (json!([]), Value::Null);
    start["usage"] = usage(count, 1);
    let mut events = vec![json!({ "type": "message_start", "message": start }), json!({ "type": "ping" })];
    for (index, mut block) in content(message).into_iter().enumerate() {
        let deltas = match block["type"].as_str().unwrap() {
            "text" => emptied(&mut block, "text", "text_delta"),
            "thinking" => {
                let mut deltas = emptied(&mut block, "thinking", "thinking_delta");
                deltas.push(json!({ "type": "signature_delta", "signature": block["signature"].take() }));
                block["signature"] = "".into();
                deltas
            }
            _ => {
                let json = std::mem::replace(&mut block["input"], json!({})).to_string();
                let middle = (0..=json.len() / 2).rev().find(|at| json.is_char_boundary(*at)).unwrap_or(0);
                let delta = |piece: &str| json!({ "type": "input_json_delta", "partial_json": piece });
                vec![delta(""), delta(&json[..middle]), delta(&json[middle..])]
            }
        };
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        events.extend(
            deltas
                .into_iter()
                .map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta })),
        );
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let delta = json!({ "stop_reason": stop_reason(finish), "stop_sequence": null });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 5 } }));
    events.push(json!({ "type": "message_stop" }));
    named(&events)
}

fn emptied(block: &mut Value, field: &str, kind: &str) -> Vec<Value> {
    let text = block[field].as_str().unwrap().to_owned();
    block[field] = "".into();
    text.split_inclusive(' ').map(|word| json!({ "type": kind, field: word })).collect()
}

/// Server-sent events whose names are their types.
pub fn named(events: &[Value]) -> Vec<u8> {
    let line = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(line).collect::<String>().into_bytes()
}
