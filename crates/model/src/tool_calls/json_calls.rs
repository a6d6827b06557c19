//! Calls as JSON: `{"name": …, "arguments": …}` under any of the keys that models use, alone or in a list.

use crate::ToolSpec;
use crate::tool_calls::names;
use agent_event::lenient_json;
use serde_json::{Map, Value, json};

/// Bytes of JSON without an end that are still read as if it had one.
const LONGEST_UNENDED: usize = 256 * 1024;

/// The keys under which models write a tool's name.
pub const NAME_KEYS: &[&str] = &["name", "function", "tool", "tool_name", "function_name"];
/// The keys under which they write its arguments.
pub const ARGUMENT_KEYS: &[&str] = &["arguments", "parameters", "args", "input", "params"];
/// Around a call, or a list of them.
const WRAPPERS: &[&str] = &["tool_calls", "tool_call"];
/// Beside them in a call.
const OTHER_KEYS: &[&str] = &["type", "id", "tool_call_id", "index"];
/// By it Command R+ says that it calls none.
const NO_TOOL: &str = "directly-answer";

/// A tool's name and its arguments.
pub type Call = (String, Value);
pub type Calls = Vec<Call>;

/// The JSON object or list at the beginning of `text`, leniently read, and its length.
pub fn json_at(text: &str) -> Option<(Value, usize)> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let length = balanced(text).or(Some(text.len()).filter(|length| *length <= LONGEST_UNENDED))?;
    let value = lenient_json::parse(text[..length].trim_end_matches('`')).ok()?.0;
    (value.is_object() || value.is_array()).then_some((value, length))
}

/// The length of the bracketed expression at the beginning of `text`; `None` where it does not end.
pub fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut is_escaped) = (0usize, None, false);
    // What was before, white space aside: a single quote after a letter is an apostrophe.
    let mut before = b' ';
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if quote.is_some() => is_escaped = true,
            _ if quote == Some(byte) => quote = None,
            _ if quote.is_some() => {}
            b'"' => quote = Some(byte),
            b'\'' if matches!(before, b'{' | b'[' | b',' | b':' | b'(' | b'=') => quote = Some(byte),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            before = byte;
        }
    }
    None
}

/// The calls that a JSON value describes; `None` where any part of it does not.
pub fn calls_in(value: &Value, tools: &[ToolSpec]) -> Option<Calls> {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let lists: Option<Vec<Calls>> = list.iter().map(|value| calls_in(value, tools)).collect();
            Some(lists?.into_iter().flatten().collect())
        }
        Value::Object(object) => match WRAPPERS.iter().find_map(|key| object.get(*key)) {
            Some(inner @ (Value::Array(_) | Value::Object(_))) => calls_in(inner, tools),
            _ if is_no_call(object) => Some(Vec::new()),
            _ => call_in(object, tools).map(|call| vec![call]),
        },
        _ => None,
    }
}

fn is_no_call(object: &Map<String, Value>) -> bool {
    let name = object.get("tool_name").and_then(Value::as_str);
    name.is_some_and(|name| name.replace('_', "-") == NO_TOOL)
}

fn call_in(object: &Map<String, Value>, tools: &[ToolSpec]) -> Option<Call> {
    if let Some(Value::Object(inner)) = object.get("function") {
        return call_in(inner, tools);
    }
    if let Some(name) = NAME_KEYS.iter().find_map(|key| object.get(*key)?.as_str()) {
        let arguments = ARGUMENT_KEYS.iter().find_map(|key| object.get(*key))?;
        if is_definition(arguments) {
            return None;
        }
        let name = known(name, tools).or_else(|| invented(name, object))?;
        return Some((name, object_of(arguments)?));
    }
    // {"read_file": {"path": "a"}}: with so little to go by, the name has to be right.
    let (name, arguments) = object.iter().next().filter(|_| object.len() == 1)?;
    let tool = tools.iter().find(|tool| tool.name == *name)?;
    Some((tool.name.clone(), Value::Object(arguments.as_object()?.clone())))
}

/// The call of a tool that can do without arguments, in an object with its exact name alone: `{"tool_name": "ping"}`.
pub fn name_alone(value: &Value, tools: &[ToolSpec]) -> Option<Calls> {
    let object = value.as_object()?;
    let is_expected = |key: &String| NAME_KEYS.contains(&key.as_str()) || OTHER_KEYS.contains(&key.as_str());
    let name = NAME_KEYS.iter().find_map(|key| object.get(*key)?.as_str())?;
    let is_function = object.get("type").is_none_or(|kind| kind == "function");
    let tool = tools.iter().find(|tool| tool.name == name)?;
    if !is_function || !object.keys().all(is_expected) {
        return None;
    }
    let has_required = tool.parameters["required"].as_array().is_some_and(|required| !required.is_empty());
    (!has_required).then(|| vec![(tool.name.clone(), json!({}))])
}

/// Returns whether these are not arguments but their schema, of a tool that is described. One may be filled in.
pub fn is_definition(arguments: &Value) -> bool {
    let described = |value: &Value| {
        let has = |key: &str| value.get(key).is_some();
        (has("type") || has("description") || has("$ref"))
            && !has("value")
            && !has("const")
            && !has("default")
    };
    let properties = arguments.get("properties").and_then(Value::as_object);
    arguments.get("type").is_some() && properties.is_some_and(|properties| properties.values().all(described))
}

/// The object that arguments are, also as a text.
pub fn object_of(arguments: &Value) -> Option<Value> {
    match arguments {
        Value::Object(_) => Some(arguments.clone()),
        Value::String(text) => {
            lenient_json::parse(text).ok().map(|(value, _)| value).filter(Value::is_object)
        }
        Value::Null => Some(json!({})),
        _ => None,
    }
}

/// The name of a tool that does not exist, in an object that is a call and nothing else.
fn invented(name: &str, object: &Map<String, Value>) -> Option<String> {
    let is_of_call =
        |key: &String| [OTHER_KEYS, NAME_KEYS, ARGUMENT_KEYS].iter().any(|keys| keys.contains(&key.as_str()));
    (names::is_identifier(name) && object.keys().all(is_of_call)).then(|| name.to_owned())
}

/// The name of the tool that is meant.
pub fn known(name: &str, tools: &[ToolSpec]) -> Option<String> {
    names::meant(name, tools).map(|tool| tool.name.clone())
}

/// The tool that is meant, or a name that none has, where a format leaves no doubt that it is one.
pub fn known_or_invented(name: &str, tools: &[ToolSpec]) -> Option<String> {
    known(name, tools).or_else(|| names::is_identifier(name).then(|| name.to_owned()))
}
