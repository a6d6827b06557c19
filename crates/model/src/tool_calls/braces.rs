//! Gemma's calls: `{command:<|"|>ls<|"|>,limit:5}`, with bare names and quotes of their own.

use crate::ToolSpec;
use crate::tool_calls::typed::{schema, typed};
use serde_json::{Map, Value};

/// Values inside of each other.
const MAX_DEPTH: usize = 32;
/// Marks that enclose a text: of Gemma 4, of FunctionGemma, and of JSON.
const QUOTES: [&str; 3] = ["<|\"|>", "<escape>", "\""];

/// The arguments at the beginning of `text`, and what follows them.
pub fn arguments<'a>(text: &'a str, tool: Option<&ToolSpec>) -> Option<(Map<String, Value>, &'a str)> {
    object(text.strip_prefix('{')?, 0).or_else(|| unquoted(text, tool?))
}

fn object(mut rest: &str, depth: usize) -> Option<(Map<String, Value>, &str)> {
    let mut object = Map::new();
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((object, rest));
        }
        let (key, behind) = match quoted(rest) {
            Some((key, behind)) => (key, behind.trim_start().strip_prefix(':')?),
            None => rest.split_once(':').filter(|(key, _)| is_key(key))?,
        };
        let (value, behind) = value(behind.trim_start(), depth)?;
        object.insert(key.trim().to_owned(), value);
        rest = comma(behind, '}')?;
    }
}

fn is_key(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
}

fn value(text: &str, depth: usize) -> Option<(Value, &str)> {
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some((text, rest)) = quoted(text) {
        return Some((text.into(), rest));
    }
    if let Some(inner) = text.strip_prefix('{') {
        return object(inner, depth + 1).map(|(object, rest)| (Value::Object(object), rest));
    }
    if let Some(inner) = text.strip_prefix('[') {
        return list(inner, depth);
    }
    let end = text.find([',', '}', ']'])?;
    let word = text[..end].trim();
    let value = match word {
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        "None" => Value::Null,
        // A text without quotes ends where nobody can tell.
        word => serde_json::from_str(word).ok()?,
    };
    Some((value, &text[end..]))
}

fn list(mut rest: &str, depth: usize) -> Option<(Value, &str)> {
    let mut list = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix(']') {
            return Some((Value::Array(list), rest));
        }
        let (value, behind) = value(rest, depth + 1)?;
        list.push(value);
        rest = comma(behind, ']')?;
    }
}

/// Returns what follows the comma, or begins with `close`.
fn comma(text: &str, close: char) -> Option<&str> {
    let text = text.trim_start();
    text.strip_prefix(',').or_else(|| text.starts_with(close).then_some(text))
}

/// The text in quotes at the beginning of `text`. Only JSON's have escapes.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = QUOTES.iter().find(|quote| text.starts_with(**quote))?;
    let inner = &text[quote.len()..];
    let (value, rest) = inner.split_once(*quote)?;
    (*quote != "\"" || !value.contains('\\')).then_some((value, rest))
}

/// Arguments whose quotes the server took for tokens and left out: each reaches to the name of the next one.
fn unquoted<'a>(text: &'a str, tool: &ToolSpec) -> Option<(Map<String, Value>, &'a str)> {
    if QUOTES[..2].iter().any(|quote| text.contains(quote)) {
        return None;
    }
    let close = text.rfind('}')?;
    let inner = &text[1..close];
    let properties = tool.parameters["properties"].as_object()?;
    let is_known = |key: &str| properties.contains_key(key.trim());
    let mut object = Map::new();
    let (mut key, mut rest) = inner.split_once(':').filter(|(key, _)| is_known(key))?;
    loop {
        let next = rest.match_indices(',').find_map(|(at, _)| {
            let (next, behind) = rest[at + 1..].split_once(':').filter(|(next, _)| is_known(next))?;
            Some((at, next, behind))
        });
        let value = &rest[..next.map_or(rest.len(), |(at, ..)| at)];
        object.insert(key.trim().to_owned(), typed(value, schema(Some(tool), key.trim()), None));
        match next {
            Some((_, next, behind)) => (key, rest) = (next, behind),
            None => return Some((object, &text[close + 1..])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_in_gemmas_quotes_hold_anything() {
        for (text, expected) in [
            ("{}", json!({})),
            ("{a:<|\"|>x, \"y\" {z}<|\"|>,b:5}", json!({ "a": "x, \"y\" {z}", "b": 5 })),
            ("{a:<escape>x<escape>}", json!({ "a": "x" })),
            (
                "{a:[<|\"|>x<|\"|>,1.5e3],b:{<|\"|>c<|\"|>:true, d:null}}",
                json!({ "a": ["x", 1500.0], "b": { "c": true, "d": null } }),
            ),
            ("{\"a\": \"x\"}", json!({ "a": "x" })),
        ] {
            let read = arguments(text, None).map(|(object, rest)| (Value::Object(object), rest));
            assert_eq!(read, Some((expected, "")), "{text}");
        }
        for text in ["{a:x}", "{a:<|\"|>x}", "{a:1", "{:1}", "a:1}"] {
            assert_eq!(arguments(text, None), None, "{text}");
        }
    }
}
