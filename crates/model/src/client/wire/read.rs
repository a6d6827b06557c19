//! What is read: events of a stream, and whole answers.

use crate::client::halves;
use crate::ending::telling;
use agent_event::Usage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

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
}
