//! Tool calls that a model wrote as text: small models do, and endpoints without a parser for their model's format.
//!
//! Recognised are `<tool_call>…</tool_call>` and its cousins, elements (see `tags`), `[TOOL_CALLS]…`, fenced
//! JSON, and bare JSON at the beginning of a line. What has the shape of a call is a call, also where no such tool exists
//! or its arguments cannot be read: the model gets an error then, and nothing behind it runs.

use crate::ToolSpec;
use crate::tool_calls::{names, tags};
use agent_event::Arguments;
use agent_event::lenient_json;
use serde_json::{Map, Value, json};

/// Places of a text that are tried; a text full of brackets must not cost for ever.
const MOST_CANDIDATES: usize = 200;

/// Characters of indentation before a call. A longer run is not looked through again for each of its characters.
const MAX_INDENT: usize = 256;

/// Bytes of text that are examined for calls in one answer, counted anew from each place that is tried.
const BUDGET: usize = 32 << 20;

/// Bytes of JSON without an end that are still read as if it had one.
const LONGEST_UNENDED: usize = 256 * 1024;

/// Calls that were written as text.
#[derive(Debug, Default, PartialEq)]
pub struct Recovered {
    /// The calls, in order.
    pub calls: Vec<RecoveredCall>,
    /// What is left of the text without them.
    pub text: String,
}

/// A call that was written as text.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveredCall {
    /// The tool's name.
    pub name: String,
    /// The arguments: a JSON object, or the model's own text where it cannot be read.
    pub arguments: Arguments,
}

/// The calls in `text`; `None` where there is none.
pub fn recover(text: &str, tools: &[ToolSpec]) -> Option<Recovered> {
    recover_within(&mut { BUDGET }, text, tools)
}

fn recover_within(budget: &mut usize, text: &str, tools: &[ToolSpec]) -> Option<Recovered> {
    if tools.is_empty() {
        return None;
    }
    // Some models write the results of their calls as well; those are invented.
    let text = text.split("<tool_response").next().unwrap_or_default();
    let mut found = Recovered::default();
    let mut at = 0;
    for _ in 0..MOST_CANDIDATES {
        let Some(start) = next_candidate(text, at) else { break };
        let Some(left) = budget.checked_sub(text.len() - start) else { break };
        *budget = left;
        found.text.push_str(&text[at..start]);
        match candidate(&text[start..], tools) {
            Some((calls, length)) => {
                let calls = calls.into_iter();
                found
                    .calls
                    .extend(calls.map(|(name, value)| RecoveredCall { name, arguments: value.into() }));
                at = start + length;
            }
            None => {
                if let Some(call) = unreadable(&text[start..], begins_line(text, start), tools) {
                    // What follows may build on it.
                    found.calls.push(call);
                    at = text.len();
                    break;
                }
                let skipped = text[start..].chars().next().map_or(1, char::len_utf8);
                found.text.push_str(&text[start..start + skipped]);
                at = start + skipped;
            }
        }
    }
    found.text.push_str(&text[at..]);
    if found.calls.is_empty() {
        return None;
    }
    // What is left of a call's own brackets is not text.
    let only_brackets = found.text.chars().all(|c| c.is_whitespace() || "{}[],`".contains(c));
    found.text = if only_brackets { String::new() } else { found.text.trim().to_owned() };
    Some(found)
}

/// The formats with an opening mark: what opens, what closes.
pub const MARKS: &[(&str, &str)] = &[
    ("<tool_call>", "</tool_call>"),
    ("<function_call>", "</function_call>"),
    ("<functioncall>", "</functioncall>"),
    ("<tools>", "</tools>"),
    ("<|tool_call|>", "<|/tool_call|>"),
    ("<function=", "</function>"),
    ("<function ", "</function>"),
    ("<invoke ", "</invoke>"),
    ("[TOOL_CALLS]", ""),
    ("<|python_tag|>", "<|eom_id|>"),
];

fn next_candidate(text: &str, from: usize) -> Option<usize> {
    text[from..].char_indices().map(|(i, c)| (from + i, c)).find_map(|(at, c)| {
        let candidate = match c {
            '<' => MARKS.iter().any(|(open, _)| text[at..].starts_with(open)),
            '[' if text[at..].starts_with("[TOOL_CALLS]") => true,
            '{' | '[' => begins_line(text, at),
            '`' => text[at..].starts_with("```") && begins_line(text, at),
            _ => false,
        };
        candidate.then_some(at)
    })
}

/// Whether only white space, or a brace that a template doubled, is before `at` on its line.
pub fn begins_line(text: &str, at: usize) -> bool {
    let mut before = text[..at].chars().rev().take(MAX_INDENT);
    match before.find(|c| !matches!(c, ' ' | '\t' | '{')) {
        Some(c) => c == '\n',
        None => at < MAX_INDENT,
    }
}

type Calls = Vec<(String, Value)>;

/// The calls at the very beginning of `text`, and how many bytes they take.
fn candidate(text: &str, tools: &[ToolSpec]) -> Option<(Calls, usize)> {
    if tags::OPENINGS.iter().any(|opening| text.starts_with(opening)) {
        let (call, length) = tags::element(text, tools)?;
        return Some((vec![call], length));
    }
    if let Some(rest) = text.strip_prefix("[TOOL_CALLS]") {
        let (calls, length) = mistral(rest, tools)?;
        return Some((calls, length + text.len() - rest.len()));
    }
    if let Some((open, close)) = MARKS.iter().find(|(open, _)| text.starts_with(open)) {
        let body = &text[open.len()..];
        // The closing tag is often missing at the end of the message.
        let (body, length) = match body.find(close) {
            Some(end) => (&body[..end], open.len() + end + close.len()),
            None => (body, text.len()),
        };
        return inside(body, tools).map(|calls| (calls, length));
    }
    if let Some(rest) = text.strip_prefix("```") {
        let body = &rest[rest.find('\n')? + 1..];
        let offset = text.len() - body.len();
        let (body, length) = match closing_fence(body) {
            Some((end, after)) => (&body[..end], offset + after),
            None => (body, text.len()),
        };
        return inside(body, tools).map(|calls| (calls, length));
    }
    let (value, length) = json_at(text)?;
    Some((calls_in(&value, tools)?, length))
}

/// Where a fence's body ends, and where what follows it begins.
pub fn closing_fence(body: &str) -> Option<(usize, usize)> {
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        if line.trim() == "```" {
            return Some((at, at + line.len()));
        }
        at += line.len();
    }
    // `}```` on the last line of the JSON.
    body.find("```").map(|end| (end, end + 3))
}

/// All of a marked body has to be calls.
fn inside(body: &str, tools: &[ToolSpec]) -> Option<Calls> {
    let mut rest = body.trim();
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let length = if rest.starts_with('<') {
            let (call, length) = tags::element(rest, tools)?;
            calls.push(call);
            length
        } else if rest.starts_with(['{', '[']) {
            let (value, length) = json_at(rest)?;
            calls.extend(calls_in(&value, tools)?);
            length
        } else {
            let (call, length) = tags::assignments(rest, tools)?;
            calls.push(call);
            length
        };
        // A comma or semicolon between them, a bracket too many behind them.
        rest = rest[length..].trim_start_matches([',', ';', '}', ']']).trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// `[TOOL_CALLS]` of Mistral: a JSON list, or `name[ARGS]{…}` and `name{…}`, several in a row.
fn mistral(text: &str, tools: &[ToolSpec]) -> Option<(Calls, usize)> {
    let body = text.trim_start();
    let skipped = text.len() - body.len();
    if body.starts_with(['[', '{']) {
        let (value, length) = json_at(body)?;
        return Some((calls_in(&value, tools)?, skipped + length));
    }
    let name_end = body.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))?;
    let name = known_or_invented(&body[..name_end], tools)?;
    let rest = body[name_end..].trim_start();
    let rest = rest.strip_prefix("[ARGS]").unwrap_or(rest).trim_start();
    let (value, length) = json_at(rest)?;
    Some((vec![(name, value)], text.len() - rest.len() + length))
}

/// The JSON object or list at the beginning of `text`, leniently read, and its length.
pub fn json_at(text: &str) -> Option<(Value, usize)> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let length = balanced(text).or(Some(text.len()).filter(|length| *length <= LONGEST_UNENDED))?;
    let value = lenient_json::parse(text[..length].trim_end_matches('`')).ok()?.0;
    Some((value, length))
}

/// The length of the bracketed expression at the beginning of `text`; `None` where it does not end.
pub fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The calls that a JSON value describes; `None` where any part of it does not.
fn calls_in(value: &Value, tools: &[ToolSpec]) -> Option<Calls> {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let lists: Option<Vec<Calls>> = list.iter().map(|value| calls_in(value, tools)).collect();
            Some(lists?.into_iter().flatten().collect())
        }
        Value::Object(object) => match object.get("tool_calls") {
            Some(list @ Value::Array(_)) => calls_in(list, tools),
            _ => call_in(object, tools).map(|call| vec![call]),
        },
        _ => None,
    }
}

/// The keys under which models write a tool's name.
pub const NAME_KEYS: &[&str] = &["name", "function", "tool", "tool_name", "function_name"];
/// The keys under which they write its arguments.
pub const ARGUMENT_KEYS: &[&str] = &["arguments", "parameters", "args", "input", "params"];

fn call_in(object: &Map<String, Value>, tools: &[ToolSpec]) -> Option<(String, Value)> {
    if let Some(Value::Object(inner)) = object.get("function") {
        return call_in(inner, tools);
    }
    if let Some(name) = NAME_KEYS.iter().find_map(|key| object.get(*key)?.as_str()) {
        let arguments = ARGUMENT_KEYS.iter().find_map(|key| object.get(*key))?;
        let name = known(name, tools).or_else(|| invented(name, object))?;
        return Some((name, object_of(arguments)?));
    }
    // {"read_file": {"path": "a"}}: with so little to go by, the name has to be right.
    let (name, arguments) = object.iter().next().filter(|_| object.len() == 1)?;
    let tool = tools.iter().find(|tool| tool.name == *name)?;
    Some((tool.name.clone(), Value::Object(arguments.as_object()?.clone())))
}

fn object_of(arguments: &Value) -> Option<Value> {
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
    let is_of_call = |key: &String| {
        ["type", "id"].contains(&key.as_str())
            || NAME_KEYS.contains(&key.as_str())
            || ARGUMENT_KEYS.contains(&key.as_str())
    };
    (is_identifier(name) && object.keys().all(is_of_call)).then(|| name.to_owned())
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.:".contains(c))
}

/// The tool that is meant, or a name that none has, where a format leaves no doubt that it is one.
pub fn known_or_invented(name: &str, tools: &[ToolSpec]) -> Option<String> {
    known(name, tools).or_else(|| is_identifier(name).then(|| name.to_owned()))
}

/// A call at the beginning of `text` that cannot be read.
fn unreadable(text: &str, starts_line: bool, tools: &[ToolSpec]) -> Option<RecoveredCall> {
    let mark = MARKS.iter().find(|(open, _)| text.starts_with(open));
    let body = mark.map_or(text, |(open, _)| &text[open.len()..]);
    if let Some((name, arguments)) = broken_object(body, tools) {
        return Some(RecoveredCall { name, arguments: arguments.into() });
    }
    // In the middle of a sentence a mark may be what the sentence is about.
    mark.filter(|_| starts_line && is_like_a_call(body, tools)).map(|_| {
        let named = tools.iter().find(|tool| body.contains(tool.name.as_str()));
        RecoveredCall {
            name: named.map_or_else(String::new, |tool| tool.name.clone()),
            arguments: body.trim().into(),
        }
    })
}

/// Tool and arguments of `{"name": "…", "arguments": …` that is not valid JSON, with the name of an existing tool.
fn broken_object<'a>(text: &'a str, tools: &[ToolSpec]) -> Option<(String, &'a str)> {
    let text =
        text.strip_prefix("```").map_or(text, |fenced| fenced.trim_start_matches(char::is_alphanumeric));
    let (key, rest) = quoted(text.trim_start().strip_prefix('{')?.trim_start())?;
    let (name, rest) = quoted(rest.trim_start().strip_prefix(':')?.trim_start())?;
    let name = known(name, tools).filter(|_| NAME_KEYS.contains(&key))?;
    let rest = rest.trim_start().strip_prefix(',')?.trim_start();
    let (key, rest) = quoted(rest)?;
    let arguments = rest.trim_start().strip_prefix(':')?.trim();
    ARGUMENT_KEYS.contains(&key).then_some((name, arguments))
}

/// Whether what follows a mark is code, not a sentence.
fn is_like_a_call(body: &str, tools: &[ToolSpec]) -> bool {
    let body = body.trim_start();
    let end = body.find(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).unwrap_or(body.len());
    match (&body[..end], body[end..].trim_start().chars().next()) {
        ("", next) => matches!(next, Some('{' | '[')) && body.contains(['"', '\'']),
        (name, next) => {
            known(name, tools).is_some() && next.is_some() || matches!(next, Some('{' | '(' | '='))
        }
    }
}

/// The string at the beginning of `text` and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    text[1..].split_once(quote)
}

/// The name of the tool that is meant.
fn known(name: &str, tools: &[ToolSpec]) -> Option<String> {
    names::meant(name, tools).map(|tool| tool.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tools() -> Vec<ToolSpec> {
        let tool = |name: &str, properties: Value| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({ "type": "object", "properties": properties }).into(),
        };
        vec![
            tool(
                "run_commands",
                json!({ "command": { "type": "string" }, "timeout_s": { "type": "integer" } }),
            ),
            tool("read_file", json!({ "path": { "type": "string" } })),
        ]
    }

    fn call(name: &str, arguments: Value) -> RecoveredCall {
        RecoveredCall { name: name.into(), arguments: arguments.into() }
    }

    fn ls() -> RecoveredCall {
        call("run_commands", json!({ "command": "ls" }))
    }

    fn read() -> RecoveredCall {
        call("read_file", json!({ "path": "a" }))
    }

    #[test]
    fn a_call_of_a_tool_that_does_not_exist_is_a_call() {
        for text in [
            r#"{"name": "list_files", "arguments": {"path": "."}}"#,
            "<tool_call>\n{\"name\": \"list_files\", \"arguments\": {\"path\": \".\"}}\n</tool_call>",
            "I look.\n```json\n{\"tool\": \"list_files\", \"args\": {\"path\": \".\"}}\n```",
        ] {
            let expected = [call("list_files", json!({ "path": "." }))];
            assert_eq!(recover(text, &tools()).unwrap().calls, expected, "{text}");
        }
    }

    #[test]
    fn a_call_that_cannot_be_read_is_kept_and_ends_the_message() {
        let broken = r#"{"name": "run_commands", "arguments": {"command": 'it's'}}"#;
        for text in [
            format!("{broken}\n{{\"name\": \"read_file\", \"arguments\": {{\"path\": \"a\"}}}}"),
            format!(
                "```json\n{broken}\n```\n<tool_call>{{\"name\": \"read_file\", \"arguments\": {{}}}}</tool_call>"
            ),
            format!("<tool_call>{broken}</tool_call>"),
        ] {
            let recovered = recover(&text, &tools()).unwrap();
            assert_eq!(recovered.calls.len(), 1, "{text}");
            assert_eq!(recovered.calls[0].name, "run_commands");
            assert!(recovered.calls[0].arguments.parse().is_err());
        }
    }

    #[test]
    fn every_format_is_recognised() {
        let call = r#"{"name": "run_commands", "arguments": {"command": "ls"}}"#;
        let other = r#"{"name": "read_file", "parameters": {"path": "a"}}"#;
        for (text, calls, left) in [
            (format!("```json\n{call}\n```"), vec![ls()], ""),
            (format!("I look.\n```json\n{call}\n```\nThen more."), vec![ls()], "I look.\nThen more."),
            (format!("```\n{call}\n{other}\n```"), vec![ls(), read()], ""),
            (format!("```json\n[{call},{other}]\n```"), vec![ls(), read()], ""),
            (format!("```json\n{call}\n```\n\n```json\n{other}\n```"), vec![ls(), read()], ""),
            (format!("```json\n{call}\n```\n\n\n\n\n"), vec![ls()], ""),
            (format!("```json\n{call}"), vec![ls()], ""),
            (format!("<tool_call>\n{call}\n</tool_call>"), vec![ls()], ""),
            (format!("Sure. <tool_call>{call}</tool_call><tool_call>{other}</tool_call>"), vec![ls(), read()], "Sure."),
            (format!("<tool_call>\n{call}\n"), vec![ls()], ""),
            (format!("<tools>\n{call}\n</tools>"), vec![ls()], ""),
            (format!("<|tool_call|>[{call}]<|/tool_call|>"), vec![ls()], ""),
            (r#"<function=run_commands>{"command": "ls"}</function>"#.into(), vec![ls()], ""),
            (
                "<tool_call>\n<function=run_commands>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>".into(),
                vec![ls()],
                "",
            ),
            (format!("[TOOL_CALLS] [{call}]"), vec![ls()], ""),
            (r#"[TOOL_CALLS]run_commands[ARGS]{"command": "ls"}"#.into(), vec![ls()], ""),
            (
                r#"[TOOL_CALLS]run_commands{"command": "ls"}[TOOL_CALLS]read_file{"path": "a"}"#.into(),
                vec![ls(), read()],
                "",
            ),
            (call.to_owned(), vec![ls()], ""),
            (format!("{{{other}"), vec![read()], ""),
            (format!("{call}\n{other}"), vec![ls(), read()], ""),
            (format!("[{call}, {other}]"), vec![ls(), read()], ""),
            (format!("{call}\n<tool_response>invented</tool_response>\n{other}"), vec![ls()], ""),
            (format!("Let me see:\n\n{call}"), vec![ls()], "Let me see:"),
            (r#"{"type":"function","function":{"name":"read_file","arguments":"{\"path\":\"a\"}"}}"#.into(), vec![read()], ""),
            (format!(r#"{{"tool_calls": [{call}]}}"#), vec![ls()], ""),
            (r#"{"read_file": {"path": "a"}}"#.into(), vec![read()], ""),
            (r#"{"name": "functions.read_file", "arguments": {"path": "a",}}"#.into(), vec![read()], ""),
            (r#"{'name': 'read_file', 'arguments': {'path': 'a'}}"#.into(), vec![read()], ""),
            (r#"{"name": "read_file", "arguments": {"path": "a"}"#.into(), vec![read()], ""),
        ] {
            let expected = Recovered { calls, text: left.into() };
            assert_eq!(recover(&text, &tools()), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_opens_as_a_call_and_cannot_be_read_is_one() {
        for (text, name) in [
            ("<tool_call>\nrun_commands: list the files\n</tool_call>", "run_commands"),
            ("<tool_call>\n{\"command\": \"ls -la\"}\n</tool_call>", ""),
            ("<tools>\nlist_files(path=a b)\n</tools>", ""),
            ("I look.\n<function=run_commands>{\"command\": ls}</function>", "run_commands"),
            ("<function name=\"run_commands\" arguments='{\"command\": ls}'/>", "run_commands"),
        ] {
            let recovered = recover(text, &tools()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(recovered.calls.len(), 1, "{text}");
            assert_eq!(recovered.calls[0].name, name, "{text}");
        }
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for text in [
            "Hello.",
            "```json\n{\"name\": \"my-package\", \"version\": \"1.0\"}\n```",
            "Use `{\"name\": \"run_commands\", \"arguments\": {\"command\": \"ls\"}}` to call it.",
            r#"[{"name": "run_commands", "arguments": {"command": "ls"}}, {"other": 1}]"#,
            "```rust\nfn main() {}\n```",
            "[TOOL_CALLS]",
            "<tool_call>",
            "<tool_call>\n\n</tool_call>",
            "Write <tool_call>{\"name\": …}</tool_call> around a call.",
            "<tools>\nThe tools are listed in the manual.\n</tools>",
            "<function=",
            "[1, 2, 3]",
            "{",
        ] {
            assert_eq!(recover(text, &tools()), None, "{text}");
        }
    }

    #[test]
    fn the_work_for_a_text_full_of_brackets_is_bounded() {
        let used = |pattern: &str, bytes: usize| {
            let mut budget = BUDGET;
            let recovered = recover_within(&mut budget, &pattern.repeat(bytes / pattern.len()), &tools());
            assert_eq!(recovered, None, "{pattern:?}");
            BUDGET - budget
        };
        for pattern in ["{\n", "<tool_call>", "```x\n{\n", "```\n", "{"] {
            let (once, twice) = (used(pattern, 10_000), used(pattern, 20_000));
            assert!(twice <= once * 5 / 2, "{pattern:?}: {once}, then {twice}");
        }
        let mut budget = 1_000;
        assert_eq!(recover_within(&mut budget, &"{\n".repeat(501), &tools()), None);
        assert_eq!(budget, 1_000, "what does not fit into the budget is not examined");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(
            text in "(<tool_call>|</tool_call>|<function=|read_file|>|<parameter=|\\[TOOL_CALLS\\]|```|json|\n|\\{|\\}|\\[|\"name\"|:|\"é\"|,){0,20}"
        ) {
            let _ = recover(&text, &tools());
        }

        #[test]
        fn a_call_is_found_in_every_form_whatever_its_value(value in "[a-z0-9 .,:;!?<>/{}\\[\\]()=+*'\"\\\\\n\té-]{0,40}") {
            let arguments = json!({ "command": value });
            let object = json!({ "name": "run_commands", "arguments": arguments });
            for text in [
                object.to_string(),
                format!("```json\n{object}\n```"),
                format!("<tool_call>\n{object}\n</tool_call>"),
                format!("<function=run_commands>{arguments}</function>"),
            ] {
                // What could be taken for the end of the call is in doubt; then it must not run in part.
                let calls = recover(&text, &tools()).map(|recovered| recovered.calls).unwrap_or_default();
                prop_assert!(calls.len() <= 1, "{text}: {calls:?}");
                for call in calls {
                    let read = lenient_json::parse(&call.arguments);
                    prop_assert!(read.is_err() || read == Ok((arguments.clone(), false)), "{text}: {call:?}");
                }
            }
        }
    }
}
