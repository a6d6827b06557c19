//! What is sent: the body of a request, its messages and tools.

use super::OTHER_PROTOCOLS;
use crate::client::encoded::Encoded;
use crate::client::ids;
use crate::protocol::Protocol;
use crate::tool_calls::names;
use crate::{Message, Request, ToolSpec};
use agent_base::sanitise::with_visible_controls as shown;
use agent_event::{Opaque, ToolCall};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The parts of a request apart from the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Form<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The endpoint's base URL.
    pub base_url: &'a str,
    /// Set if the answer comes in pieces.
    pub stream: bool,
    /// Set if usage is asked for at the end of a stream.
    pub stream_options: bool,
    /// The most tokens of the answer, and the name of that field.
    pub max_tokens: Option<(&'static str, u32)>,
    /// The temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// The effort of the model's reasoning.
    pub reasoning_effort: Option<&'a str>,
    /// The most tokens that it thinks, where the protocol has such a limit.
    pub reasoning_budget: Option<u32>,
    /// The parts of the protocol that are used although some servers of it do not have them.
    pub extras: Extras,
    /// Further fields, which replace none of the others.
    pub body: &'a Map<String, Value>,
    /// The manner of writing messages and tools.
    pub manner: Manner,
}

/// Parts of Responses and Messages that some of their servers or models do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extras {
    /// Responses: `prompt_cache_key`.
    pub cache_key: bool,
    /// Responses: reasoning that comes back encrypted.
    pub encrypted: bool,
    /// Responses: summaries of the reasoning.
    pub summaries: bool,
    /// Messages: thinking that the model measures out itself.
    pub adaptive: bool,
}

/// The recipient of a message, and the manner of writing it.
#[derive(Debug, Clone, Copy)]
pub struct Recipient<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The endpoint's base URL.
    pub base_url: &'a str,
    /// The manner of writing messages.
    pub manner: Manner,
}

impl Recipient<'_> {
    /// Returns what goes back to this model as it came.
    pub fn own<'a>(&self, opaque: &'a Opaque) -> Option<&'a Opaque> {
        opaque.of(self.model, self.base_url).filter(|_| !self.manner.no_reasoning)
    }
}

/// The manner of writing messages and tools for an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Manner {
    /// The protocol.
    pub protocol: Protocol,
    /// Set if earlier reasoning is left out that would go back as it came.
    pub no_reasoning: bool,
    /// Set if the places are marked up to which the endpoint shall cache the prompt.
    pub cache_marks: bool,
    /// The name under which reasoning is sent back.
    pub reasoning_echo: Option<&'static str>,
    /// Set if all ids of calls are nine letters and digits.
    pub short_ids: bool,
    /// Set if images are left out.
    pub no_images: bool,
    /// Set if the schemas of tools are written in the subset that every endpoint takes.
    pub plain_schemas: bool,
}

/// The fields that only the client sets: the conversation, and how its answer is read.
pub const OWN_FIELDS: [&str; 11] = [
    "model",
    "messages",
    "tools",
    "stream",
    "stream_options",
    "response_format",
    "n",
    "input",
    "instructions",
    "system",
    "previous_response_id",
];

/// The body that sends `request` in this form. `encoded` has the messages of the request before.
pub fn body(form: &Form<'_>, request: &Request<'_>, encoded: &mut Encoded) -> serde_json::Result<Bytes> {
    let mut rest = further_fields(form);
    if form.stream && form.stream_options {
        rest.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    if let Some((name, tokens)) = form.max_tokens {
        rest.insert(name.into(), tokens.into());
    }
    if let Some(temperature) = form.temperature {
        rest.insert("temperature".into(), temperature.into());
    }
    if let Some(top_p) = form.top_p {
        rest.insert("top_p".into(), top_p.into());
    }
    if let Some(effort) = form.reasoning_effort {
        rest.insert("reasoning_effort".into(), effort.into());
    }
    if let Some(schema) = request.answer_schema {
        let schema = json!({ "name": "answer", "schema": schema });
        rest.insert("response_format".into(), json!({ "type": "json_schema", "json_schema": schema }));
    }
    let head = format!("{{\"model\":{},\"messages\":[", json!(form.model));
    let mut tail = b"],".to_vec();
    if !request.tools.is_empty() {
        tail.extend_from_slice(b"\"tools\":");
        tail.extend_from_slice(encoded.tools(request.tools, form.manner)?);
        tail.push(b',');
    }
    // `rest` is an object that is never empty: its opening brace gives way to the comma.
    tail.extend_from_slice(&serde_json::to_vec(&rest)?[1..]);
    encoded.body(head.as_bytes(), request.messages, form.recipient(), &tail)
}

/// The configured fields, and whether the answer comes in pieces.
pub fn further_fields(form: &Form<'_>) -> Map<String, Value> {
    let mut rest = form.body.clone();
    rest.retain(|name, _| !OWN_FIELDS.contains(&name.as_str()));
    rest.insert("stream".into(), form.stream.into());
    rest
}

impl<'a> Form<'a> {
    /// Returns the recipient of the request.
    pub fn recipient(&self) -> Recipient<'a> {
        Recipient { model: self.model, base_url: self.base_url, manner: self.manner }
    }
}

/// A message as the protocol writes it.
pub fn written(message: &Message, recipient: Recipient<'_>) -> Value {
    let manner = recipient.manner;
    match message {
        // `developer` is refused by most servers but OpenAI's own, which takes `system` as well.
        Message::System { text } => json!({ "role": "system", "content": shown(text) }),
        Message::User { text } => json!({ "role": "user", "content": shown(text) }),
        Message::Tool { id, text, .. } => {
            json!({ "role": "tool", "tool_call_id": written_id(id, manner), "content": shown(text) })
        }
        Message::Assistant { text, reasoning, tool_calls, opaque } => {
            // Some servers refuse a message that says nothing and asks for nothing: it was cut off before its first word.
            let is_nothing = text.trim().is_empty() && tool_calls.is_empty();
            let text = if is_nothing { "[cut off]" } else { text };
            // Some servers fail on `content: null` beside tool calls.
            let mut written = json!({ "role": "assistant", "content": shown(text) });
            let opaque = recipient.own(opaque);
            if let Some(opaque) = opaque {
                let of_chat =
                    opaque.message.iter().filter(|(name, _)| !OTHER_PROTOCOLS.contains(&name.as_str()));
                of_chat.for_each(|(name, value)| written[name] = value.clone());
            }
            if let Some(name) = manner.reasoning_echo {
                // DeepSeek misses the field on every message that lacks it.
                written[name] = reasoning.as_deref().unwrap_or_default().into();
            }
            if !tool_calls.is_empty() {
                written["tool_calls"] =
                    tool_calls.iter().map(|call| written_call(call, opaque, manner)).collect();
            }
            written
        }
    }
}

fn written_id(id: &str, manner: Manner) -> Cow<'_, str> {
    if manner.short_ids { ids::short(id) } else { Cow::Borrowed(id) }
}

fn written_call(call: &ToolCall, opaque: Option<&Opaque>, manner: Manner) -> Value {
    // Templates on the server parse the arguments and some fail the whole request where they are not a JSON object.
    let arguments = match call.arguments.object() {
        Some(_) => call.arguments.as_str().to_owned(),
        None => json!({ "invalid": call.arguments }).to_string(),
    };
    let function = json!({ "name": names::legal(&call.name), "arguments": arguments });
    let mut written = json!({ "id": written_id(&call.id, manner), "type": "function", "function": function });
    for (name, value) in opaque.and_then(|opaque| opaque.calls.get(&call.id)).into_iter().flatten() {
        written[name] = value.clone();
    }
    written
}

/// A tool as the protocol writes it.
pub fn written_tool(tool: &ToolSpec) -> Value {
    json!({ "type": "function", "function": tool })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(model: &'a str, base_url: &'a str, manner: Manner) -> Recipient<'a> {
        Recipient { model, base_url, manner }
    }

    #[test]
    fn what_came_with_a_call_goes_back_to_the_model_that_made_it_and_to_no_other() {
        let signature = json!({ "google": { "thought_signature": "SIG" } });
        let call = |id: &str| ToolCall { id: id.into(), name: "f".into(), arguments: "{}".into() };
        let message = Message::Assistant {
            text: String::new(),
            reasoning: None,
            tool_calls: vec![call("call_a"), call("call_b")],
            opaque: Opaque {
                model: "gemini".into(),
                endpoint: "https://a.b/v1".into(),
                message: Map::from_iter([("reasoning_details".to_owned(), json!([{ "data": "D" }]))]),
                calls: [(
                    "call_a".to_owned(),
                    Map::from_iter([("extra_content".to_owned(), signature.clone())]),
                )]
                .into(),
            },
        };
        let short = Manner { short_ids: true, ..Manner::default() };
        for manner in [Manner::default(), short] {
            let sent = written(&message, at("gemini", "https://a.b/v1", manner));
            assert_eq!(sent["tool_calls"][0]["extra_content"], signature);
            assert_eq!(sent["tool_calls"][1].get("extra_content"), None);
            assert_eq!(sent["reasoning_details"], json!([{ "data": "D" }]));
        }
        for (model, base_url) in [("other", "https://a.b/v1"), ("gemini", "https://c.d/v1")] {
            let other = written(&message, at(model, base_url, Manner::default()));
            assert!(
                !other.to_string().contains("SIG") && other.get("reasoning_details").is_none(),
                "{other}"
            );
        }
    }

    #[test]
    fn the_ids_of_a_call_and_of_its_result_are_rewritten_alike() {
        let call = ToolCall { id: "call_abc123".into(), name: "f".into(), arguments: "{}".into() };
        let asked = Message::Assistant {
            text: String::new(),
            reasoning: None,
            tool_calls: vec![call],
            opaque: Opaque::default(),
        };
        let answered = Message::Tool { id: "call_abc123".into(), name: "f".into(), text: String::new() };
        let how = at("m", "", Manner { short_ids: true, ..Manner::default() });
        let (asked, answered) = (written(&asked, how), written(&answered, how));
        assert_eq!(asked["tool_calls"][0]["id"], answered["tool_call_id"]);
        assert_eq!(answered["tool_call_id"].as_str().unwrap().len(), 9);
    }
}
