//! OpenAI's Responses as its API documents it: what it refuses, and how it answers.

use super::anthropic::named;
use super::endpoint::Request;
use super::prefix_cache::{Count, PrefixCache, seal, unknown_field};
use serde_json::{Value, json};

const FIELDS: [&str; 22] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "store",
    "include",
    "reasoning",
    "text",
    "max_output_tokens",
    "prompt_cache_key",
    "prompt_cache_retention",
    "truncation",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "metadata",
    "service_tier",
    "safety_identifier",
    "previous_response_id",
];

type ResponsesCheck = Result<(), (&'static str, String)>;

/// The status and the body of a refusal, if the request is refused.
pub fn refusal(request: &Request) -> Option<(u16, Value)> {
    if !request.header("authorization").is_some_and(|value| value.starts_with("Bearer ")) {
        return Some((401, error(401, "invalid_api_key", "You didn't provide an API key.")));
    }
    let (code, message) = check(&request.body).err()?;
    Some((400, error(400, code, &message)))
}

pub fn error(status: u16, code: &str, message: &str) -> Value {
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

fn refuse<T>(message: impl Into<String>) -> Result<T, (&'static str, String)> {
    Err(("invalid_value", message.into()))
}

fn known(object: &Value, place: &str, fields: &[&str]) -> ResponsesCheck {
    match unknown_field(object, fields) {
        Some(name) => Err(("unknown_parameter", format!("Unknown parameter: '{place}{name}'."))),
        None => Ok(()),
    }
}

fn check(body: &Value) -> ResponsesCheck {
    known(body, "", &FIELDS)?;
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err(("missing_required_parameter", "Missing required parameter: 'model'.".into()));
    }
    if body["max_output_tokens"].as_u64().is_some_and(|tokens| tokens < 16) {
        return Err((
            "integer_below_min_value",
            "Invalid 'max_output_tokens': integer below minimum value.".into(),
        ));
    }
    if body["prompt_cache_key"].as_str().is_some_and(|key| key.len() > 64) {
        return Err(("string_above_max_length", "Invalid 'prompt_cache_key': string too long.".into()));
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        known(tool, "tools[0].", &["type", "name", "description", "parameters", "strict"])?;
        if tool["type"] != "function" || !tool["name"].is_string() || !tool["strict"].is_boolean() {
            return refuse("Invalid value for 'tools[0]'.");
        }
    }
    if let Some(format) = body["text"].get("format") {
        known(format, "text.format.", &["type", "name", "schema", "strict", "description"])?;
        if format["type"] != "json_schema" || !format["name"].is_string() || !format["schema"].is_object() {
            return refuse("Invalid value for 'text.format'.");
        }
    }
    match &body["input"] {
        Value::String(_) => Ok(()),
        Value::Array(items) => self::items(items),
        _ => Err(("missing_required_parameter", "Missing required parameter: 'input'.".into())),
    }
}

#[allow(clippy::too_many_lines)] // a table
fn items(items: &[Value]) -> ResponsesCheck {
    let mut open: Vec<&str> = Vec::new();
    let mut after_reasoning: Option<&str> = None;
    for (at, item) in items.iter().enumerate() {
        let place = format!("input[{at}].");
        let kind = item["type"].as_str().unwrap_or(if item.get("role").is_some() { "message" } else { "" });
        let led_to = kind == "function_call"
            || kind == "reasoning"
            || (kind == "message" && item["role"] == "assistant");
        if let Some(id) = after_reasoning.take().filter(|_| !led_to) {
            return refuse(format!(
                "Item '{id}' of type 'reasoning' was provided without its required following item."
            ));
        }
        match kind {
            "message" => message(item, &place)?,
            "function_call" => {
                known(item, &place, &["type", "id", "call_id", "name", "arguments", "status"])?;
                let id = item["call_id"].as_str().unwrap_or_default();
                if id.is_empty() || id.len() > 64 {
                    return Err((
                        "string_above_max_length",
                        format!("Invalid '{place}call_id': string too long."),
                    ));
                }
                if serde_json::from_str::<Value>(item["arguments"].as_str().unwrap_or_default()).is_err() {
                    return refuse(format!("Invalid '{place}arguments'."));
                }
                open.push(id);
            }
            "function_call_output" => {
                known(item, &place, &["type", "id", "call_id", "output", "status"])?;
                let id = item["call_id"].as_str().unwrap_or_default();
                let Some(call) = open.iter().position(|open| *open == id) else {
                    return refuse(format!("No tool call found for function call output with call_id {id}."));
                };
                open.remove(call);
                parts(&item["output"], &place, &["input_text", "input_image", "input_file"])?;
            }
            "reasoning" => {
                known(item, &place, &["type", "id", "summary", "encrypted_content", "content", "status"])?;
                let id = item["id"].as_str().unwrap_or_default();
                let Some(sealed) = item["encrypted_content"].as_str() else {
                    return refuse(format!(
                        "Item with id '{id}' not found. Items are not persisted when `store` is set to false."
                    ));
                };
                if sealed != seal(item["summary"][0]["text"].as_str().unwrap_or_default()) {
                    return Err((
                        "invalid_encrypted_content",
                        "The encrypted content could not be verified.".into(),
                    ));
                }
                after_reasoning = Some(id);
            }
            other => return refuse(format!("Invalid value: '{other}'. Supported values are: 'message', …")),
        }
    }
    match (after_reasoning, open.first()) {
        (Some(id), _) => refuse(format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        )),
        (_, Some(id)) => refuse(format!("No tool output found for function call {id}.")),
        _ => Ok(()),
    }
}

fn message(item: &Value, place: &str) -> ResponsesCheck {
    known(item, place, &["type", "id", "role", "content", "status", "phase"])?;
    match item["role"].as_str() {
        Some("user" | "developer" | "system") => {
            parts(&item["content"], place, &["input_text", "input_image", "input_file"])
        }
        Some("assistant") => parts(&item["content"], place, &["output_text", "refusal"]),
        _ => refuse(format!("Invalid value for '{place}role'.")),
    }
}

fn parts(content: &Value, place: &str, kinds: &[&str]) -> ResponsesCheck {
    if content.is_string() {
        return Ok(());
    }
    let Some(list) = content.as_array() else { return refuse(format!("Invalid type for '{place}content'.")) };
    for part in list {
        let kind = part["type"].as_str().unwrap_or_default();
        if !kinds.contains(&kind) {
            return refuse(format!("Invalid value: '{kind}'. Supported values are: {kinds:?}."));
        }
        if kind == "input_image"
            && !part["image_url"].as_str().is_some_and(|url| url.starts_with("data:image/"))
        {
            return refuse(format!("Invalid '{place}image_url'."));
        }
    }
    Ok(())
}

/// Returns what the prompt costs: the instructions, the tools, the items, in this order.
pub fn count(body: &Value, cache: &mut PrefixCache) -> Count {
    let prompt = format!("{}{}{}", body["instructions"], body["tools"], body["input"]);
    // The end of the list is not part of what comes before the next item.
    cache.automatic(body["prompt_cache_key"].as_str().unwrap_or_default(), prompt.trim_end_matches(']'))
}

/// A scripted message of the chat protocol as the output of this one.
fn output(message: &Value) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(text) = message["reasoning_content"].as_str() {
        let summary = json!([{ "type": "summary_text", "text": text }]);
        let sealed = seal(text);
        items.push(
            json!({ "type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": sealed }),
        );
    }
    if let Some(text) = message["content"].as_str().filter(|text| !text.is_empty()) {
        let content = json!([{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }]);
        items.push(json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content }));
    }
    for (at, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let function = &call["function"];
        items.push(json!({
            "type": "function_call", "id": format!("fc_{at}"), "call_id": call["id"], "name": function["name"],
            "arguments": function["arguments"], "status": "completed",
        }));
    }
    items
}

/// The whole response.
pub fn whole(message: &Value, finish: &str, count: Count) -> Value {
    let (status, why) = match finish {
        "length" => ("incomplete", json!({ "reason": "max_output_tokens" })),
        "content_filter" => ("incomplete", json!({ "reason": "content_filter" })),
        _ => ("completed", Value::Null),
    };
    json!({
        "id": "resp_1", "object": "response", "created_at": 1_780_000_000, "status": status, "error": null,
        "incomplete_details": why, "instructions": null, "model": "fake-model", "output": output(message),
        "parallel_tool_calls": true, "temperature": 1.0, "top_p": 1.0, "tool_choice": "auto", "tools": [], "metadata": {},
        "usage": {
            "input_tokens": count.total(), "input_tokens_details": { "cached_tokens": count.read },
            "output_tokens": 5, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": count.total() + 5,
        },
    })
}

/// The response as a stream.
#[allow(clippy::too_many_lines)] // a table
pub fn events(message: &Value, finish: &str, count: Count) -> Vec<u8> {
    let whole = whole(message, finish, count);
    let mut begun = whole.clone();
    (begun["output"], begun["status"], begun["usage"]) = (json!([]), "in_progress".into(), Value::Null);
    let mut events = vec![
        json!({ "type": "response.created", "response": begun }),
        json!({ "type": "response.in_progress", "response": begun }),
        json!({ "type": "keepalive" }),
    ];
    for (index, item) in whole["output"].as_array().unwrap().iter().enumerate() {
        let mut event = |kind: &str, more: Value| {
            let mut event =
                json!({ "type": format!("response.{kind}"), "output_index": index, "item_id": item["id"] });
            more.as_object().unwrap().iter().for_each(|(name, value)| event[name] = value.clone());
            events.push(event);
        };
        let mut empty = item.clone();
        match item["type"].as_str().unwrap() {
            "reasoning" => {
                // It may be cut here, and is whole in the last event.
                (empty["summary"], empty["encrypted_content"]) = (json!([]), "cut".into());
                event("output_item.added", json!({ "item": empty }));
                let part = &item["summary"][0];
                event(
                    "reasoning_summary_part.added",
                    json!({ "summary_index": 0, "part": { "type": "summary_text", "text": "" } }),
                );
                event("reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": part["text"] }));
                event("reasoning_summary_text.done", json!({ "summary_index": 0, "text": part["text"] }));
                event("reasoning_summary_part.done", json!({ "summary_index": 0, "part": part }));
            }
            "message" => {
                (empty["content"], empty["status"]) = (json!([]), "in_progress".into());
                event("output_item.added", json!({ "item": empty }));
                let part = &item["content"][0];
                let text = part["text"].as_str().unwrap();
                let none = json!({ "type": "output_text", "text": "", "annotations": [] });
                event("content_part.added", json!({ "content_index": 0, "part": none }));
                for word in text.split_inclusive(' ') {
                    event("output_text.delta", json!({ "content_index": 0, "delta": word, "logprobs": [] }));
                }
                event("output_text.done", json!({ "content_index": 0, "text": text, "logprobs": [] }));
                event("content_part.done", json!({ "content_index": 0, "part": part }));
            }
            _ => {
                (empty["arguments"], empty["status"]) = ("".into(), "in_progress".into());
                event("output_item.added", json!({ "item": empty }));
                let arguments = item["arguments"].as_str().unwrap();
                let middle =
                    (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at)).unwrap_or(0);
                event("function_call_arguments.delta", json!({ "delta": &arguments[..middle] }));
                event("function_call_arguments.delta", json!({ "delta": &arguments[middle..] }));
                event(
                    "function_call_arguments.done",
                    json!({ "arguments": arguments, "name": item["name"] }),
                );
            }
        }
        event("output_item.done", json!({ "item": item }));
    }
    let status = whole["status"].as_str().unwrap();
    events.push(json!({ "type": format!("response.{status}"), "response": whole }));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    named(&events)
}
