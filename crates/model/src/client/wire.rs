//! The chat-completions format: strict in what is sent, lenient in what is read.
//!
//! A field of another type than expected counts as absent, so that one odd field never costs the answer.

use crate::client::encoded::Encoded;
use crate::tool_calls::names;
use crate::{Message, Request, ToolSpec};
use agent_base::sanitise::with_visible_controls as shown;
use agent_event::{ToolCall, Usage};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// What is sent, apart from the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Form<'a> {
    /// The model's name.
    pub model: &'a str,
    /// Whether the answer comes in pieces.
    pub stream: bool,
    /// Whether usage is asked for at the end of a stream.
    pub stream_options: bool,
    /// The most tokens of the answer, and the name of that field.
    pub max_tokens: Option<(&'static str, u32)>,
    /// The temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// How much the model thinks.
    pub reasoning_effort: Option<&'a str>,
    /// Further fields, which replace none of the others.
    pub body: &'a Map<String, Value>,
    /// Under which name reasoning is sent back.
    pub reasoning_echo: Option<&'static str>,
}

/// The fields that only the client sets: the conversation, and how its answer is read.
pub const OWN_FIELDS: [&str; 7] =
    ["model", "messages", "tools", "stream", "stream_options", "response_format", "n"];

/// The body that sends `request` in this form. `encoded` has the messages of the request before.
pub fn body(form: &Form<'_>, request: &Request<'_>, encoded: &mut Encoded) -> serde_json::Result<Bytes> {
    let mut rest = form.body.clone();
    rest.retain(|name, _| !OWN_FIELDS.contains(&name.as_str()));
    rest.insert("stream".into(), form.stream.into());
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
        tail.extend_from_slice(encoded.tools(request.tools)?);
        tail.push(b',');
    }
    // `rest` is an object that is never empty: its opening brace gives way to the comma.
    tail.extend_from_slice(&serde_json::to_vec(&rest)?[1..]);
    encoded.body(head.as_bytes(), request.messages, form.reasoning_echo, &tail)
}

/// A message as the protocol writes it.
pub fn written(message: &Message, reasoning_echo: Option<&str>) -> Value {
    match message {
        // `developer` is refused by most servers but OpenAI's own, which takes `system` as well.
        Message::System { text } => json!({ "role": "system", "content": shown(text) }),
        Message::User { text } => json!({ "role": "user", "content": shown(text) }),
        Message::Tool { id, text, .. } => {
            json!({ "role": "tool", "tool_call_id": id, "content": shown(text) })
        }
        Message::Assistant { text, reasoning, tool_calls } => {
            // Some servers refuse a message that says nothing and asks for nothing: it was cut off before its first word.
            let is_nothing = text.trim().is_empty() && tool_calls.is_empty();
            let text = if is_nothing { "[cut off]" } else { text };
            // Some servers fail on `content: null` beside tool calls.
            let mut written = json!({ "role": "assistant", "content": shown(text) });
            if let Some(name) = reasoning_echo {
                // DeepSeek misses the field on every message that lacks it.
                written[name] = reasoning.as_deref().unwrap_or_default().into();
            }
            if !tool_calls.is_empty() {
                written["tool_calls"] = tool_calls.iter().map(written_call).collect();
            }
            written
        }
    }
}

fn written_call(call: &ToolCall) -> Value {
    // Templates on the server parse the arguments and some fail the whole request where they are not a JSON object.
    let arguments = match call.arguments.object() {
        Some(_) => call.arguments.as_str().to_owned(),
        None => json!({ "invalid": call.arguments }).to_string(),
    };
    let function = json!({ "name": names::legal(&call.name), "arguments": arguments });
    json!({ "id": call.id, "type": "function", "function": function })
}

/// A tool as the protocol writes it.
#[derive(Serialize)]
pub struct WrittenTool<'a> {
    r#type: &'static str,
    function: &'a ToolSpec,
}

impl<'a> From<&'a ToolSpec> for WrittenTool<'a> {
    fn from(function: &'a ToolSpec) -> Self {
        Self { r#type: "function", function }
    }
}

/// One event of a stream, or a whole answer: they differ in `delta` and `message` only.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// The answers; more than one was never asked for.
    #[serde(deserialize_with = "lenient")]
    pub choices: Vec<Choice>,
    /// Tokens.
    #[serde(deserialize_with = "lenient")]
    pub usage: Option<WireUsage>,
    /// An error in place of an answer.
    pub error: Option<Value>,
    /// Other ways to report an error.
    message: Option<Value>,
    detail: Option<Value>,
    code: Option<Value>,
}

impl Chunk {
    /// The report of an error.
    pub fn of_error(error: Value) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    /// The error that came in place of an answer, in whatever shape.
    pub fn reported_error(&self) -> Option<Value> {
        if let Some(error) = self.error.as_ref().filter(|e| !matches!(e, Value::Null | Value::Bool(false))) {
            return Some(json!({ "error": error, "code": self.code }));
        }
        let text = self.message.as_ref().or(self.detail.as_ref()).filter(|m| !m.is_null());
        text.filter(|_| self.choices.is_empty() && self.usage.is_none())
            .map(|text| json!({ "message": text, "code": self.code }))
    }
}

/// One answer, or a piece of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// A piece.
    #[serde(deserialize_with = "lenient")]
    pub delta: Option<Said>,
    /// The whole.
    #[serde(deserialize_with = "lenient")]
    pub message: Option<Said>,
    /// Why it ends here.
    #[serde(deserialize_with = "lenient")]
    pub finish_reason: Option<String>,
}

/// What was said.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Said {
    /// Text: a string, or a list of parts.
    #[serde(deserialize_with = "text")]
    pub content: String,
    /// Reasoning beside the text, under its three names.
    #[serde(deserialize_with = "text")]
    pub reasoning_content: String,
    #[serde(deserialize_with = "text")]
    reasoning: String,
    #[serde(deserialize_with = "text")]
    thinking: String,
    /// The model's refusal, in place of text.
    #[serde(deserialize_with = "text")]
    pub refusal: String,
    /// Tools asked for.
    #[serde(deserialize_with = "lenient")]
    pub tool_calls: Vec<WireCall>,
    /// The old form of a single call; some servers send both.
    #[serde(deserialize_with = "lenient")]
    pub function_call: Option<Function>,
}

impl Said {
    /// The reasoning, under whichever name it came. Some servers send it under two.
    pub fn reasoning(&self) -> &str {
        [&self.reasoning_content, &self.reasoning, &self.thinking]
            .into_iter()
            .find(|r| !r.is_empty())
            .map_or("", |r| r)
    }
}

/// A tool asked for, or a piece of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireCall {
    /// Its place in the message.
    #[serde(deserialize_with = "lenient")]
    pub index: Option<u64>,
    /// Its id.
    #[serde(deserialize_with = "lenient")]
    pub id: String,
    /// Name and arguments.
    #[serde(deserialize_with = "lenient")]
    pub function: Function,
}

/// Name and arguments, or pieces of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Function {
    /// The tool's name.
    #[serde(deserialize_with = "lenient")]
    pub name: String,
    /// JSON text, as it should be, or the JSON itself.
    #[serde(deserialize_with = "arguments")]
    pub arguments: Arguments,
}

/// Arguments as they came.
#[derive(Debug, PartialEq)]
pub enum Arguments {
    /// Text, possibly a piece.
    Text(String),
    /// A whole value, written as text.
    Whole(String),
}

impl Default for Arguments {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// Tokens.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireUsage {
    #[serde(deserialize_with = "lenient")]
    prompt_tokens: u64,
    #[serde(deserialize_with = "lenient")]
    completion_tokens: u64,
    #[serde(deserialize_with = "lenient")]
    prompt_tokens_details: CachedTokens,
    /// DeepSeek's name for the cached ones.
    #[serde(deserialize_with = "lenient")]
    prompt_cache_hit_tokens: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CachedTokens {
    #[serde(deserialize_with = "lenient")]
    cached_tokens: u64,
}

impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        Self {
            input: usage.prompt_tokens,
            output: usage.completion_tokens,
            cached: usage.prompt_tokens_details.cached_tokens.max(usage.prompt_cache_hit_tokens),
        }
    }
}

/// The names in a list of models.
pub fn model_names(list: &Value) -> Option<Vec<String>> {
    Some(models(list)?.iter().filter_map(model_name).map(str::to_owned).collect())
}

/// The entry of `model` in a list of models; a server with a single model answers to any name.
pub fn model_entry<'a>(list: &'a Value, model: &str) -> Option<&'a Value> {
    let models = models(list)?;
    let named = models.iter().find(|entry| model_name(entry) == Some(model));
    named.or_else(|| models.first().filter(|_| models.len() == 1))
}

fn models(list: &Value) -> Option<&Vec<Value>> {
    list.get("data").or_else(|| list.get("models")).unwrap_or(list).as_array()
}

fn model_name(entry: &Value) -> Option<&str> {
    entry.get("id").or_else(|| entry.get("name")).unwrap_or(entry).as_str()
}

/// The value, or its default where it is null or of another type.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    Ok(T::deserialize(Value::deserialize(from)?).unwrap_or_default())
}

/// A string, or the text parts of a list.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    })
}

fn arguments<'de, D: Deserializer<'de>>(from: D) -> Result<Arguments, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => Arguments::Text(text),
        Value::Null => Arguments::default(),
        value => Arguments::Whole(value.to_string()),
    })
}
