//! Reads what a model writes in the compact form.

use crate::tool_calls::json_calls::{ARGUMENT_KEYS, NAME_KEYS, balanced};
use crate::tool_calls::recover::recover;
use crate::{Reply, ToolSpec};
use agent_event::Arguments;
use agent_event::ToolCall;
use agent_event::lenient_json;
use serde_json::{Map, Value};

/// Places in an answer where an object is looked for.
const MAX_CANDIDATES: usize = 50;
/// Bytes of an object without an end that are still read.
const MAX_UNENDED: usize = 256 << 10;

/// The beginning of an answer, as the prompt shows it.
pub const ANSWER: &str = r#"{"tool": "answer", "text": ""#;

/// One turn of the model.
#[derive(Debug, Clone, PartialEq)]
enum Turn {
    Call { name: String, arguments: Arguments },
    Answer(String),
}

/// Reads the model's text: a call, an answer, or prose, which is left as it is. Only the first object counts: what
/// follows it was written without its result. Calls in the forms that models were trained on are calls as well.
pub fn read(reply: &mut Reply, tools: &[ToolSpec]) {
    if !reply.tool_calls.is_empty() {
        return;
    }
    let read = step(&reply.text, reply.is_cut_off());
    match read.map(|step| call_in_answer(step, tools)) {
        Some(Turn::Answer(text)) => reply.text = text,
        Some(Turn::Call { name, arguments }) => {
            reply.text.clear();
            reply.tool_calls.push(ToolCall { id: String::new(), name, arguments });
        }
        None => {
            let Some(recovered) = recover(&reply.text, tools, reply.is_cut_off()) else { return };
            reply.text = recovered.text;
            reply.tool_calls.extend(recovered.calls.into_iter().take(1).map(|call| ToolCall {
                id: String::new(),
                name: call.name,
                arguments: call.arguments,
            }));
        }
    }
}

/// The call, or the answer, that stands in an answer's text in place of a text.
fn call_in_answer(read: Turn, tools: &[ToolSpec]) -> Turn {
    let Turn::Answer(text) = &read else { return read };
    let Ok((Value::Object(object), _)) = lenient_json::parse(text) else {
        // One without its end.
        return text.strip_prefix(ANSWER).map_or(read.clone(), |text| Turn::Answer(text.to_owned()));
    };
    let is_step = |name: &str| name == "answer" || tools.iter().any(|tool| tool.name == name);
    match object.get("tool").and_then(Value::as_str).filter(|name| is_step(name)) {
        Some(_) => step_of(&object).unwrap_or(read),
        None => read,
    }
}

fn step(text: &str, is_cut_off: bool) -> Option<Turn> {
    // The object as the text of a JSON string.
    if let Ok(Value::String(inner)) = serde_json::from_str(text.trim()) {
        return step(&inner, is_cut_off);
    }
    // Some models write the results of their calls as well; those are invented.
    let text = text.split("\nResult of ").next().unwrap_or_default();
    let candidates = text.match_indices('{').map(|(at, _)| &text[at..]).take(MAX_CANDIDATES);
    for candidate in candidates {
        let whole = balanced(candidate);
        let Some(length) = whole.or(Some(candidate.len()).filter(|length| *length <= MAX_UNENDED)) else {
            continue;
        };
        let raw = candidate[..length].trim_end().trim_end_matches('`');
        match lenient_json::parse(raw) {
            // What was repaired at the end of a message that was cut off there is not what was meant.
            Ok((Value::Object(object), _)) if whole.is_some() || !is_cut_off => {
                if let Some(step) = step_of(&object) {
                    return Some(step);
                }
            }
            _ => {
                if let Some(name) = name_in(raw) {
                    return Some(Turn::Call { name, arguments: raw.into() });
                }
            }
        }
    }
    None
}

/// Returns what an object asks for. Objects without a tool's name are recognised by their fields.
fn step_of(object: &Map<String, Value>) -> Option<Turn> {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let key = NAME_KEYS.iter().chain(&["action"]).find(|key| text(key).is_some());
    let name = match key {
        Some(key) => text(key)?,
        None if text("command").is_some() => "run_commands",
        None if text("path").is_some() && text("content").is_some() => "write_file",
        None if text("answer").is_some() => "answer",
        None => return None,
    };
    let nested = ARGUMENT_KEYS.iter().find_map(|name| object.get(*name)?.as_object());
    let mut fields = nested.unwrap_or(object).clone();
    if nested.is_none()
        && let Some(key) = key
    {
        fields.shift_remove(*key);
    }
    if name == "answer" || name == "final_answer" {
        return Some(Turn::Answer(answer(&fields)));
    }
    if name == "write_file"
        && !fields.contains_key("data")
        && let Some(content) = fields.shift_remove("content")
    {
        fields.insert("data".to_owned(), content);
    }
    Some(Turn::Call { name: name.to_owned(), arguments: Value::Object(fields).into() })
}

fn answer(fields: &Map<String, Value>) -> String {
    let value = ["text", "answer", "message", "content"].iter().find_map(|key| fields.get(*key));
    match value.or_else(|| fields.values().next()) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

/// The tool's name in an object that cannot be read.
fn name_in(raw: &str) -> Option<String> {
    let rest = raw.strip_prefix('{')?.trim_start().strip_prefix("\"tool\"")?;
    let name = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split('"').next()?;
    let is_name =
        !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_name && name != "answer").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_turn_is_read_leniently() {
        let call = |name: &str, arguments: Value| {
            Some(Turn::Call { name: name.into(), arguments: arguments.into() })
        };
        let ls = || call("run_commands", json!({ "command": "ls" }));
        for (answer, expected) in [
            (r#"{"tool": "run_commands", "command": "ls"}"#, ls()),
            ("```json\n{\"tool\": \"run_commands\", \"command\": \"ls\"}\n```", ls()),
            ("I look first: {\"tool\": \"run_commands\", \"command\": \"ls\"} and then", ls()),
            (r#"{"name": "run_commands", "arguments": {"command": "ls"}}"#, ls()),
            (r#"{"command": "ls"}"#, ls()),
            (r#"{"tool": "run_commands", "command": "ls""#, ls()),
            (
                "{\"tool\": \"run_commands\", \"command\": \"ls\"}\n{\"tool\": \"answer\", \"text\": \"done\"}",
                ls(),
            ),
            (
                "{\"tool\": \"write_file\", \"path\": \"a\", \"content\": \"x\ny\"}",
                call("write_file", json!({ "path": "a", "data": "x\ny" })),
            ),
            (r#""{\"tool\": \"run_commands\", \"command\": \"ls\"}""#, ls()),
            (r#"{"tool": "list_files", "path": "."}"#, call("list_files", json!({ "path": "." }))),
            (r#"{"tool": "answer", "text": "42"}"#, Some(Turn::Answer("42".into()))),
            (r#"{"tool": "answer", "text": {"n": 42}}"#, Some(Turn::Answer(r#"{"n":42}"#.into()))),
            ("The set is {1, 2}.", None),
            ("All is done.", None),
        ] {
            assert_eq!(step(answer, false), expected, "{answer}");
        }
        // Where the command ends is unknown, so the model gets an error in place of a result.
        let unended = r#"{"tool": "run_commands", "command": "ls"#;
        let unreadable = Turn::Call { name: "run_commands".into(), arguments: unended.into() };
        assert_eq!(step(unended, false), Some(unreadable));
    }

    #[test]
    fn an_answer_that_is_a_call_is_a_call() {
        let registry = crate::compact::builtin_tools();
        let tools = |text: &str| {
            let answer = json!({ "tool": "answer", "text": text }).to_string();
            let mut reply = Reply { text: answer, ..Reply::default() };
            read(&mut reply, &registry);
            reply.tool_calls.into_iter().map(|call| call.name).collect::<Vec<_>>()
        };
        assert_eq!(tools(r#"{"tool": "run_commands", "command": "sh a.sh"}"#), ["run_commands"]);
        for text in [r#"{"tool": "hammer", "command": "hit"}"#, r#"{"command": "ls"}"#, "It is {1, 2}.", "42"]
        {
            assert!(tools(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn what_was_cut_off_is_not_run_as_if_it_were_whole() {
        let text = r#"{"tool": "write_file", "path": "a", "content": "half a fi"#;
        let mut reply = Reply { text: text.into(), finish_reason: Some("length".into()), ..Reply::default() };
        read(&mut reply, &[]);
        assert_eq!(reply.tool_calls[0].name, "write_file");
        assert_eq!(reply.tool_calls[0].arguments.as_str(), text);
    }
}
