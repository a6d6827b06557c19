//! Calls as elements and assignments: `<function=NAME>…</function>`, `<function name="NAME" arguments='{…}'/>`,
//! `<invoke name="NAME">…</invoke>`, and `NAME key="value"` where a format marks what is a call.

use crate::ToolSpec;
use crate::tool_calls::names;
use crate::tool_calls::recover::{ARGUMENT_KEYS, json_at, known_or_invented};
use agent_event::lenient_json;
use serde_json::{Map, Value};

/// What elements begin with.
pub const OPENINGS: &[&str] = &["<function=", "<function ", "<invoke "];

/// Parameters of one call that are read: each may cost a look at all of the text.
const MAX_PARAMETERS: usize = 100;

/// A tool's name and its arguments.
type Call = (String, Value);

/// The call of the element at the beginning of `text`, and its length.
pub fn element(text: &str, tools: &[ToolSpec]) -> Option<(Call, usize)> {
    let head = head(text, tools)?;
    let tool = tools.iter().find(|tool| tool.name == head.name);
    let from_attributes = |mut attributes: Map<String, Value>| {
        let whole = ARGUMENT_KEYS.iter().find_map(|key| attributes.shift_remove(*key));
        match whole {
            Some(Value::String(json)) => object(&json),
            _ => Some(with_types(attributes, tool)),
        }
    };
    if head.is_empty {
        return Some(((head.name, from_attributes(head.attributes)?), head.length));
    }
    let body = &text[head.length..];
    let (body, length) = match body.find(head.closing) {
        Some(end) => (&body[..end], head.length + end + head.closing.len()),
        None => (body, text.len()),
    };
    let arguments = match body.trim() {
        "" => from_attributes(head.attributes)?,
        json if json.starts_with('{') => object(json)?,
        tags => Value::Object(parameters(tags, tool)?),
    };
    Some(((head.name, arguments), length))
}

/// The first tag of an element.
struct Head {
    name: String,
    attributes: Map<String, Value>,
    closing: &'static str,
    /// Whether it ends in `/>`.
    is_empty: bool,
    length: usize,
}

fn head(text: &str, tools: &[ToolSpec]) -> Option<Head> {
    if let Some(rest) = text.strip_prefix("<function=") {
        let end = rest.find('>')?;
        let name = known_or_invented(rest[..end].trim_matches(['"', '\'', ' ']), tools)?;
        let length = text.len() - rest.len() + end + 1;
        return Some(Head { name, attributes: Map::new(), closing: "</function>", is_empty: false, length });
    }
    let (rest, closing) = match text.strip_prefix("<function ") {
        Some(rest) => (rest, "</function>"),
        None => (text.strip_prefix("<invoke ")?, "</invoke>"),
    };
    let (mut attributes, rest) = pairs(rest)?;
    let Some(Value::String(name)) = attributes.shift_remove("name") else { return None };
    let name = known_or_invented(&name, tools)?;
    let (rest, is_empty) = match rest.strip_prefix("/>") {
        Some(rest) => (rest, true),
        None => (rest.strip_prefix('>')?, false),
    };
    Some(Head { name, attributes, closing, is_empty, length: text.len() - rest.len() })
}

/// `NAME key="value", key=value`, `NAME(key="value")` and `NAME {…}` of an existing tool, and their length.
pub fn assignments(text: &str, tools: &[ToolSpec]) -> Option<(Call, usize)> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))?;
    let tool = names::meant(&text[..end], tools)?;
    let rest = text[end..].trim_start_matches([' ', '\t']);
    if rest.starts_with('{') {
        let (value, length) = json_at(rest)?;
        let call = (tool.name.clone(), Some(value).filter(Value::is_object)?);
        return Some((call, text.len() - rest.len() + length));
    }
    let (inner, is_function) = match rest.strip_prefix('(') {
        Some(inner) => (inner, true),
        None => (rest, false),
    };
    let (pairs, rest) = pairs(inner)?;
    let rest = if is_function { rest.strip_prefix(')')? } else { rest };
    let ends_here = rest.is_empty() || rest.starts_with(['\n', '<', ',', ';']);
    (ends_here && (is_function || !pairs.is_empty()))
        .then(|| ((tool.name.clone(), with_types(pairs, Some(tool))), text.len() - rest.len()))
}

/// The pairs `key=value` at the beginning of `text`, separated by white space or commas, and what follows them.
fn pairs(mut text: &str) -> Option<(Map<String, Value>, &str)> {
    let mut pairs = Map::new();
    for _ in 0..MAX_PARAMETERS {
        let rest = text.trim_start_matches([',', ' ', '\t']);
        let key_end =
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len());
        let after = rest[key_end..].trim_start_matches(' ');
        let Some(value) = after.strip_prefix(['=', ':']).filter(|_| key_end > 0) else {
            return Some((pairs, rest));
        };
        let (value, left) = value_at(value.trim_start_matches(' '))?;
        pairs.insert(rest[..key_end].to_owned(), value);
        text = left;
    }
    None
}

/// The value at the beginning of `text`: quoted, JSON, or a word.
fn value_at(text: &str) -> Option<(Value, &str)> {
    let first = text.chars().next()?;
    if matches!(first, '{' | '[') {
        let (value, length) = json_at(text)?;
        return Some((value, &text[length..]));
    }
    if !matches!(first, '"' | '\'') {
        let end = text.find(|c: char| c.is_whitespace() || ",)>/".contains(c)).unwrap_or(text.len());
        return (end > 0).then(|| (Value::from(&text[..end]), &text[end..]));
    }
    // JSON in quotes has the same quotes inside.
    if text[1..].starts_with('{')
        && let Some((_, length)) = json_at(&text[1..])
        && text[1 + length..].starts_with(first)
    {
        return Some((Value::from(&text[1..=length]), &text[length + 2..]));
    }
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                escaped if matches!(escaped, '\\' | '"' | '\'') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            c if c == first => {
                let left = &text[at + 1..];
                // `'it's'` ends where nobody can tell.
                let ends = left.chars().next().is_none_or(|c| c.is_whitespace() || ",)/>;<".contains(c));
                return ends.then(|| (Value::from(unescaped(&value)), left));
            }
            c => value.push(c),
        }
    }
    None
}

/// Text without the entities that attributes are written with.
fn unescaped(text: &str) -> String {
    let text = text.replace("&quot;", "\"").replace("&apos;", "'").replace("&#39;", "'");
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn object(json: &str) -> Option<Value> {
    lenient_json::parse(json).ok().map(|(value, _)| value).filter(Value::is_object)
}

fn with_types(pairs: Map<String, Value>, tool: Option<&ToolSpec>) -> Value {
    let typed = |(name, value): (String, Value)| {
        let value = match &value {
            Value::String(text) => typed(text, schema(tool, &name)),
            _ => value,
        };
        (name, value)
    };
    Value::Object(pairs.into_iter().map(typed).collect())
}

/// `<parameter=NAME>value</parameter>` and `<parameter name="NAME">value</parameter>`.
fn parameters(mut tags: &str, tool: Option<&ToolSpec>) -> Option<Map<String, Value>> {
    const OPENING: &str = "<parameter";
    let (mut parameters, mut is_closed) = (Map::new(), true);
    for _ in 0..MAX_PARAMETERS {
        let Some(start) = tags.find(OPENING) else { break };
        let rest = &tags[start + OPENING.len()..];
        let name_end = rest.find('>')?;
        let name = rest[..name_end].trim_start().trim_start_matches("name").trim_start().strip_prefix('=')?;
        let name = name.trim_matches(['"', '\'', ' ']);
        let rest = &rest[name_end + 1..];
        let closing = if is_closed { rest.find("</parameter>") } else { None };
        is_closed = closing.is_some();
        let end = closing.or_else(|| rest.find(OPENING)).unwrap_or(rest.len());
        // One line break after the opening and before the closing tag belongs to the format.
        let value = rest[..end].strip_prefix('\n').unwrap_or(&rest[..end]);
        let value = value.strip_suffix('\n').unwrap_or(value);
        parameters.insert(name.to_owned(), typed(value, schema(tool, name)));
        tags = &rest[end..];
    }
    (!parameters.is_empty()).then_some(parameters)
}

fn schema<'a>(tool: Option<&'a ToolSpec>, name: &str) -> &'a Value {
    tool.map_or(&Value::Null, |tool| &tool.parameters["properties"][name])
}

/// Text in the format is of the type that the schema says.
fn typed(value: &str, schema: &Value) -> Value {
    let is_text = schema["type"].as_str().is_none_or(|name| name == "string");
    match serde_json::from_str(value.trim()) {
        Ok(parsed) if !is_text => parsed,
        _ => Value::String(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_calls::recover::{Recovered, RecoveredCall, recover};
    use serde_json::json;

    fn tools() -> Vec<ToolSpec> {
        let text = json!({ "type": "string" });
        let tool = |name: &str, properties: Value| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({ "type": "object", "properties": properties }).into(),
        };
        vec![
            tool("run_commands", json!({ "command": text, "timeout_s": { "type": "integer" } })),
            tool("write_file", json!({ "path": text, "data": text })),
        ]
    }

    fn calls(text: &str) -> Option<Vec<(String, Value)>> {
        let Recovered { calls, .. } = recover(text, &tools())?;
        let read = |call: RecoveredCall| (call.name, lenient_json::parse(&call.arguments).unwrap().0);
        Some(calls.into_iter().map(read).collect())
    }

    #[test]
    fn elements_and_assignments_are_calls() {
        let ls = || vec![("run_commands".to_owned(), json!({ "command": "ls" }))];
        let timed = || vec![("run_commands".to_owned(), json!({ "command": "12", "timeout_s": 5 }))];
        for (text, expected) in [
            (r#"<function name="run_commands" arguments='{"command": "ls"}'/>"#, ls()),
            (r#"<function name="run_commands" arguments="{"command": "ls"}"/>"#, ls()),
            (r#"<function name="run_commands" arguments="{&quot;command&quot;: &quot;ls&quot;}" />"#, ls()),
            (r#"<function name="run_commands" command="ls"/>"#, ls()),
            (r#"<function name="run_commands">{"command": "ls"}</function>"#, ls()),
            ("<invoke name=\"run_commands\">\n<parameter name=\"command\">ls</parameter>\n</invoke>", ls()),
            ("<tools>\nrun_commands command=\"ls\"\n</tools>", ls()),
            ("<tools>\nrun_commands(command='ls')\n</tools>", ls()),
            ("<tool_call>run_commands {\"command\": \"ls\"}</tool_call>", ls()),
            ("<tools>run_commands command=\"12\", timeout_s=5</tools>", timed()),
            (
                "<function=run_commands><parameter=command>12</parameter><parameter=timeout_s>5</parameter></function>",
                timed(),
            ),
            (
                "<tools>\nwrite_file path=a.txt data=\"one\\ntwo\"\nrun_commands command=\"ls\"\n</tools>",
                vec![
                    ("write_file".to_owned(), json!({ "path": "a.txt", "data": "one\ntwo" })),
                    ls().remove(0),
                ],
            ),
            (
                "<function=list_files>{\"path\": \".\"}</function>",
                vec![("list_files".to_owned(), json!({ "path": "." }))],
            ),
        ] {
            assert_eq!(calls(text).as_ref(), Some(&expected), "{text}");
        }
    }

    #[test]
    fn what_is_in_doubt_is_not_run_in_part() {
        for text in [
            "<tools>\nrun_commands command='it's here'\n</tools>",
            "<tools>\nrun_commands command=\"ls\nwrite_file path=\"a\"\n</tools>",
            r#"<function name="run_commands" arguments='{"command": "ls'/>"#,
        ] {
            let recovered = recover(text, &tools()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(recovered.calls.len(), 1, "{text}");
            assert!(lenient_json::parse(&recovered.calls[0].arguments).is_err(), "{text}: {recovered:?}");
        }
        for text in ["<function is a word here>", "<invoke >", "```python\nmain()\n```", "```sh\nls\n```"] {
            assert_eq!(recover(text, &tools()), None, "{text}");
        }
    }
}
