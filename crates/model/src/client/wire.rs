//! The chat-completions format: strict in what is sent, lenient in what is read.
//!
//! A field of another type than expected counts as absent, so that one odd field never costs the answer.

use crate::client::encoded::Encoded;
use crate::client::{halves, ids};
use crate::ending::telling;
use crate::protocol::Protocol;
use crate::tool_calls::names;
use crate::{Message, Request, ToolSpec};
use agent_base::sanitise::with_visible_controls as shown;
use agent_event::{Opaque, ToolCall, Usage};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
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

/// One event of a stream, or a whole answer: they differ in `delta` and `message` only.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// The answers. More than one was never asked for, but gateways divide one message into several.
    #[serde(deserialize_with = "many")]
    pub choices: Vec<Choice>,
    /// Tokens.
    #[serde(deserialize_with = "lenient")]
    pub usage: Option<WireUsage>,
    /// An error in place of an answer.
    pub error: Option<Value>,
    /// Other ways to report an error.
    pub message: Option<Value>,
    /// See `message`.
    pub detail: Option<Value>,
    /// See `message`.
    pub msg: Option<Value>,
    /// See `message`: MiniMax's, which is there beside an answer too.
    pub base_resp: Option<Value>,
    /// See `message`.
    pub code: Option<Value>,
    /// See `message`: `false` beside `msg`.
    pub success: Option<Value>,
    /// Set if its texts have marks for halves of surrogate pairs: see `halves`.
    #[serde(skip)]
    pub has_marks: bool,
    /// Tokens, read from another protocol.
    #[serde(skip)]
    pub counted: Option<Usage>,
}

impl Chunk {
    /// The piece that a JSON document is: an object, or a list of one. Of keys that come twice, the last counts.
    ///
    /// # Errors
    /// Where it is not JSON.
    pub fn read(json: &str) -> serde_json::Result<Self> {
        let (value, has_marks) = halves::parsed(json)?;
        Ok(Self { has_marks, ..Self::of_value(value) })
    }

    /// A piece that says this.
    pub fn saying(said: Said) -> Self {
        Self { choices: vec![Choice { delta: Some(said), ..Choice::default() }], ..Self::default() }
    }

    /// The end of an answer, in the endpoint's word.
    pub fn ending(reason: &str) -> Self {
        let choice = Choice { finish_reason: Some(reason.to_owned()), ..Choice::default() };
        Self { choices: vec![choice], ..Self::default() }
    }

    /// The piece that a document is.
    pub fn of_value(value: Value) -> Self {
        match value {
            Value::Array(list) if list.iter().any(|entry| entry.get("error").is_some()) => {
                Self::of_error(list.into())
            }
            Value::Array(list) => {
                list.into_iter().find(Value::is_object).map(Self::of_value).unwrap_or_default()
            }
            value => serde_json::from_value(value).unwrap_or_default(),
        }
    }

    /// The report of an error.
    pub fn of_error(error: Value) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    /// The error that came in place of an answer, in whatever shape.
    pub fn reported_error(&self) -> Option<Value> {
        if let Some(error) = self.error.as_ref().filter(|e| !matches!(e, Value::Null | Value::Bool(false))) {
            return Some(json!({ "error": error, "code": self.code }));
        }
        if !self.choices.is_empty() || self.usage.is_some() {
            return None;
        }
        let said = [&self.message, &self.detail].into_iter().flatten().find(|text| !text.is_null());
        let text = said.cloned().or_else(|| self.failed_msg()).or_else(|| self.failed_base())?;
        Some(json!({ "message": text, "code": self.code }))
    }

    /// `msg`, which says "success" as well: of an error where the code does, or `success`.
    fn failed_msg(&self) -> Option<Value> {
        let text = self.msg.as_ref().filter(|text| !text.is_null())?;
        let is_bad = |code: &Value| !code.is_null() && !matches!(whole_number(code), Some(0 | 200));
        let is_error = self.code.as_ref().is_some_and(is_bad) || self.success == Some(Value::Bool(false));
        is_error.then(|| worded(Some(text), self.code.as_ref()))
    }

    fn failed_base(&self) -> Option<Value> {
        let base = self.base_resp.as_ref()?;
        let status =
            base.get("status_code").filter(|status| whole_number(status).is_some_and(|it| it != 0))?;
        Some(worded(base.get("status_msg"), Some(status)))
    }
}

/// The message of an endpoint's error, or its code where it has none.
fn worded(text: Option<&Value>, code: Option<&Value>) -> Value {
    let is_said = |text: &&Value| !text.is_null() && text.as_str().is_none_or(|text| !text.trim().is_empty());
    let of_code = || match code {
        Some(Value::String(code)) => format!("code {code}"),
        Some(code) if !code.is_null() => format!("code {code}"),
        _ => "an error without words".to_owned(),
    };
    text.filter(is_said).cloned().unwrap_or_else(|| of_code().into())
}

/// A whole number, also as digits in a text.
fn whole_number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
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
    /// The old form of a piece.
    #[serde(deserialize_with = "text")]
    text: String,
    /// Its number.
    #[serde(deserialize_with = "lenient")]
    pub index: Option<u64>,
    /// The reason why it ends here.
    #[serde(deserialize_with = "lenient")]
    finish_reason: Option<String>,
    /// The same in the word of the server behind a gateway.
    #[serde(deserialize_with = "lenient")]
    native_finish_reason: Option<String>,
}

impl Choice {
    /// Takes the reason why it ends here, if it does.
    pub fn end(&mut self) -> Option<String> {
        telling(self.finish_reason.take(), self.native_finish_reason.take())
    }

    /// Returns what it says. A whole message beside a piece of it counts where nothing came before: it is what the pieces come to.
    pub fn said(self, is_first: bool) -> Option<Said> {
        let message = self.message.filter(|_| is_first || self.delta.is_none());
        match self.delta.filter(|delta| !delta.is_empty()).or(message) {
            None if !self.text.is_empty() => Some(Said { content: self.text, ..Said::default() }),
            said => said,
        }
    }
}

/// A piece of what the model said.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Said {
    /// Text: a string, or a list of parts.
    #[serde(deserialize_with = "text")]
    pub content: String,
    /// Reasoning beside the text, under its three names.
    #[serde(deserialize_with = "text")]
    pub reasoning_content: String,
    /// See `reasoning_content`.
    #[serde(deserialize_with = "text")]
    pub reasoning: String,
    /// See `reasoning_content`.
    #[serde(deserialize_with = "text")]
    pub thinking: String,
    /// The model's refusal, in place of text.
    #[serde(deserialize_with = "text")]
    pub refusal: String,
    /// Tools asked for.
    #[serde(deserialize_with = "many")]
    pub tool_calls: Vec<WireCall>,
    /// The old form of a single call; some servers send both.
    #[serde(deserialize_with = "lenient")]
    pub function_call: Option<Function>,
    /// OpenRouter's reasoning, which goes back as it came.
    #[serde(deserialize_with = "many")]
    pub reasoning_details: Vec<Map<String, Value>>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
    /// The content that another protocol keeps of the message, to send it back as it came.
    #[serde(skip)]
    pub kept: Option<(&'static str, Value)>,
}

/// The key of what the other protocols keep of a message: the content of Messages, the output of Responses.
pub const CONTENT_BLOCKS: &str = "content_blocks";
/// See [`CONTENT_BLOCKS`].
pub const OUTPUT_ITEMS: &str = "output_items";
const OTHER_PROTOCOLS: [&str; 2] = [CONTENT_BLOCKS, OUTPUT_ITEMS];

/// Fields of a message that go back as they came: Google's signatures, and Anthropic's blocks behind LiteLLM.
const OPAQUE_FIELDS: [&str; 2] = ["extra_content", "thinking_blocks"];

impl Said {
    /// Returns whether it says nothing.
    fn is_empty(&self) -> bool {
        let texts = [&self.content, &self.refusal];
        texts.iter().all(|text| text.is_empty())
            && self.reasoning().is_empty()
            && self.tool_calls.is_empty()
            && self.function_call.is_none()
            && self.reasoning_details.is_empty()
            && self.kept.is_none()
            && !OPAQUE_FIELDS.iter().any(|name| self.rest.contains_key(*name))
    }

    /// The further fields that go back as they came.
    pub fn opaque(&mut self) -> Map<String, Value> {
        self.rest.retain(|name, value| OPAQUE_FIELDS.contains(&name.as_str()) && !value.is_null());
        let mut fields = std::mem::take(&mut self.rest);
        if let Some((name, value)) = self.kept.take() {
            fields.insert(name.to_owned(), Value::Array(vec![value]));
        }
        fields
    }

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
    /// `function`, always.
    pub r#type: Option<Value>,
    /// All other fields, which go back as they came.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
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
    /// OpenRouter's.
    #[serde(deserialize_with = "lenient")]
    cache_write_tokens: u64,
}

impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        Self {
            input: usage.prompt_tokens,
            output: usage.completion_tokens,
            cached: usage.prompt_tokens_details.cached_tokens.max(usage.prompt_cache_hit_tokens),
            written: usage.prompt_tokens_details.cache_write_tokens,
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

/// A list of objects, what else is in it left out; or one object in place of a list, or a list as an object by its numbers.
fn many<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    let list = match Value::deserialize(from)? {
        Value::Array(list) => list,
        Value::Object(map) if !map.is_empty() && map.keys().all(|key| key.parse::<u64>().is_ok()) => {
            map.into_iter().map(|(_, value)| value).collect()
        }
        value => vec![value],
    };
    let objects = list.into_iter().filter(Value::is_object);
    Ok(objects.filter_map(|value| serde_json::from_value(value).ok()).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(model: &'a str, base_url: &'a str, manner: Manner) -> Recipient<'a> {
        Recipient { model, base_url, manner }
    }

    fn calls(tool_calls: Value) -> Vec<String> {
        let chunk = json!({ "choices": [{ "delta": { "tool_calls": tool_calls } }] });
        let choice = Chunk::read(&chunk.to_string()).unwrap().choices.remove(0);
        choice.said(true).map_or(Vec::new(), |said| said.tool_calls.into_iter().map(|call| call.id).collect())
    }

    #[test]
    fn what_is_said_of_a_success_is_no_error() {
        let error =
            |json: &str| Chunk::read(json).unwrap().reported_error().map(|error| error["message"].clone());
        for json in [
            r#"{"code":0,"msg":"success"}"#,
            r#"{"code":"0","msg":"success"}"#,
            r#"{"code":200,"msg":"OK","success":true}"#,
            r#"{"msg":"ping"}"#,
            r#"{"base_resp":{}}"#,
            r#"{"base_resp":{"status_msg":"success"}}"#,
            r#"{"base_resp":{"status_code":"0","status_msg":"success"}}"#,
            r#"{"base_resp":{"status_code":0,"status_msg":""}}"#,
            r#"{"base_resp":{"status_code":null,"status_msg":""}}"#,
        ] {
            assert_eq!(error(json), None, "{json}");
        }
        for (json, words) in [
            (r#"{"code":400,"msg":"it broke"}"#, "it broke"),
            (r#"{"code":"InvalidParameter","msg":"it broke"}"#, "it broke"),
            (r#"{"code":0,"msg":"it broke","success":false}"#, "it broke"),
            (r#"{"success":false,"msg":""}"#, "an error without words"),
            (r#"{"code":"1213","msg":" "}"#, "code 1213"),
            (r#"{"base_resp":{"status_code":1008,"status_msg":"it broke"}}"#, "it broke"),
            (r#"{"base_resp":{"status_code":"1008","status_msg":""}}"#, "code 1008"),
            (r#"{"base_resp":{"status_code":1008}}"#, "code 1008"),
        ] {
            assert_eq!(error(json), Some(words.into()), "{json}");
        }
    }

    /// One odd entry lost all calls of the piece.
    #[test]
    fn calls_are_read_from_whatever_stands_in_place_of_their_list() {
        let call = |id: &str| json!({ "id": id, "function": { "name": "f", "arguments": {} } });
        assert_eq!(calls(json!([null, call("a"), 7, "x", call("b")])), ["a", "b"]);
        assert_eq!(calls(call("a")), ["a"]);
        assert_eq!(calls(json!({ "0": call("a"), "1": call("b") })), ["a", "b"]);
        for nothing in [json!(null), json!({}), json!([]), json!("none"), json!([null])] {
            assert!(calls(nothing.clone()).iter().all(String::is_empty), "{nothing}");
        }
    }

    #[test]
    fn an_object_in_place_of_the_choices_and_keys_that_come_twice_are_read() {
        let read = |json: &str| Chunk::read(json).unwrap().choices.remove(0).said(true).unwrap().content;
        assert_eq!(read(r#"{"choices":{"delta":{"content":"a"}}}"#), "a");
        assert_eq!(
            read(r#"{"choices":[{"delta":{"content":"a","content":"b","role":"x","role":"y"}}]}"#),
            "b"
        );
        assert_eq!(read(r#"{"choices":[{"text":"a"}]}"#), "a");
        assert_eq!(read(r#"{"choices":[{"delta":{},"message":{"content":"whole"}}]}"#), "whole");
        assert_eq!(read(r#"[{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}]"#), "a");
    }

    #[test]
    fn a_chunk_of_any_other_shape_says_nothing() {
        for odd in
            ["{}", "[]", "null", "7", r#"{"choices":null}"#, r#"{"choices":[null]}"#, r#"{"object":"ping"}"#]
        {
            let chunk = Chunk::read(odd).unwrap();
            assert!(chunk.choices.is_empty() && chunk.reported_error().is_none(), "{odd}");
        }
        assert!(
            Chunk::read(r#"[{"error":{"code":400,"message":"no"}}]"#).unwrap().reported_error().is_some()
        );
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
