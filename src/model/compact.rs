//! The compact form of a conversation, for small models: one JSON object a turn, few tools, a short prompt.
//!
//! The conversation itself stays as it is; what goes out is converted, and what comes back is read into the same
//! [`Reply`] that a native tool call gives. So a session may change its form at any time. The conversion of a message
//! depends on nothing behind it: the prefix of each request is the request before.

use crate::event::ToolCall;
use crate::model::tool_calls::arguments::Arguments;
use crate::model::tool_calls::parse;
use crate::model::tool_calls::recover::{ARGUMENT_KEYS, NAME_KEYS, balanced};
use crate::model::{Message, Reply, Request, ToolSpec};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The temperature of the compact form, unless the user sets one.
pub const TEMPERATURE: f64 = 0.2;
/// Stands in a system prompt before what a repository says about itself, which the compact form keeps.
pub const INSTRUCTIONS_HEADING: &str = "# The project's own instructions (AGENTS.md)";

const PROMPT: &str = include_str!("../../prompts/compact_form.md");
const NEXT_STEP: &str = "\n\nContinue with the next step, or answer if all of it is done.";
/// The tools that the prompt shows.
const SHOWN: [&str; 4] = ["run_commands", "write_file", "read_file", "edit_file"];
/// Tools that confuse small models more than they help.
const HIDDEN: [&str; 3] = ["write_files", "job_output", "job_kill"];
/// Characters of one result, of a repository's instructions and of a prompt that are sent.
const MAX_RESULT: usize = 6_000;
const MAX_INSTRUCTIONS: usize = 2_000;
/// Places in an answer where an object is looked for.
const MAX_CANDIDATES: usize = 50;
/// Bytes of an object without an end that are still read.
const MAX_UNENDED: usize = 256 << 10;

/// Whether these tools can be offered in the compact form.
pub fn fits(tools: &[ToolSpec]) -> bool {
    SHOWN.iter().all(|name| tools.iter().any(|tool| tool.name == *name))
}

/// The conversation as it is sent: user and assistant alternate, and everything is text.
pub fn messages(request: &Request<'_>) -> Vec<Message> {
    let mut sent: Vec<Message> = Vec::with_capacity(request.messages.len() + 1);
    let mut rest = request.messages;
    let mut system = String::new();
    if let [Message::System { text }, others @ ..] = rest {
        system.clone_from(text);
        rest = others;
    }
    sent.push(Message::System { text: prompt(&system, request) });
    for (at, message) in rest.iter().enumerate() {
        match message {
            Message::System { text } | Message::User { text } => add_user(&mut sent, text),
            Message::Assistant { text, tool_calls, .. } => {
                let text = written(text, tool_calls);
                sent.push(Message::Assistant { text, reasoning: None, tool_calls: Vec::new() });
            }
            Message::Tool { name, text, .. } => {
                let is_last = !matches!(rest.get(at + 1), Some(Message::Tool { .. }));
                let next_step = if is_last { NEXT_STEP } else { "" };
                add_user(
                    &mut sent,
                    &format!("Result of {name}:\n{}{next_step}", shortened(text, MAX_RESULT)),
                );
            }
        }
    }
    sent
}

fn add_user(sent: &mut Vec<Message>, more: &str) {
    match sent.last_mut() {
        Some(Message::User { text }) => {
            text.push_str("\n\n");
            text.push_str(more);
        }
        _ => sent.push(Message::User { text: more.to_owned() }),
    }
}

fn prompt(system: &str, request: &Request<'_>) -> String {
    let mut prompt = PROMPT.trim().to_owned();
    let further = |tool: &&ToolSpec| {
        let name = tool.name.as_str();
        !SHOWN.contains(&name) && !HIDDEN.contains(&name)
    };
    for tool in request.tools.iter().filter(further) {
        let mut example = Map::from_iter([("tool".to_owned(), Value::from(tool.name.as_str()))]);
        for name in required(tool) {
            example.insert(name.to_owned(), "…".into());
        }
        let _ = write!(prompt, "\n{}\n{}", tool.description, Value::Object(example));
    }
    if let Some(schema) = request.answer_schema {
        let _ = write!(prompt, "\nThe text of the answer is JSON of this schema: {schema}");
    }
    if let Some((_, text)) = system.split_once(INSTRUCTIONS_HEADING) {
        let _ = write!(prompt, "\n\n{INSTRUCTIONS_HEADING}\n{}", shortened(text.trim(), MAX_INSTRUCTIONS));
    }
    prompt
}

fn required(tool: &ToolSpec) -> impl Iterator<Item = &str> {
    tool.parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// A message of the model as this form writes it.
fn written(text: &str, calls: &[ToolCall]) -> String {
    if calls.is_empty() {
        return json!({ "tool": "answer", "text": text }).to_string();
    }
    let lines: Vec<String> = calls.iter().map(written_call).collect();
    lines.join("\n")
}

fn written_call(call: &ToolCall) -> String {
    let mut object = Map::from_iter([("tool".to_owned(), Value::from(call.name.as_str()))]);
    match call.arguments.object() {
        Some(arguments) => {
            for (name, value) in arguments {
                let name = if call.name == "write_file" && name == "data" { "content" } else { name };
                object.insert(name.to_owned(), value.clone());
            }
        }
        // It was not valid, and the model has read that in the result.
        None => drop(object.insert("arguments".to_owned(), call.arguments.as_str().into())),
    }
    Value::Object(object).to_string()
}

/// The beginning and the end of a long text.
fn shortened(text: &str, chars: usize) -> String {
    let length = text.chars().count();
    if length <= chars {
        return text.to_owned();
    }
    let head: String = text.chars().take(chars / 2).collect();
    let tail: String = text.chars().skip(length - chars / 2).collect();
    format!("{head}\n[{} characters left out]\n{tail}", length - chars / 2 * 2)
}

/// The JSON Schema of one turn.
pub fn schema(tools: &[ToolSpec]) -> Value {
    let object = |name: &str, fields: &[&str]| {
        let mut properties = Map::from_iter([("tool".to_owned(), json!({ "const": name }))]);
        properties.extend(fields.iter().map(|field| ((*field).to_owned(), json!({ "type": "string" }))));
        let required: Vec<&String> = properties.keys().collect();
        json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
    };
    let mut turns = vec![
        object("run_commands", &["command"]),
        object("write_file", &["path", "content"]),
        object("read_file", &["path"]),
        object("edit_file", &["path", "old", "new"]),
        object("answer", &["text"]),
    ];
    for tool in tools.iter().filter(|tool| {
        let name = tool.name.as_str();
        !SHOWN.contains(&name) && !HIDDEN.contains(&name)
    }) {
        let mut properties = Map::from_iter([("tool".to_owned(), json!({ "const": tool.name }))]);
        properties.extend(tool.parameters["properties"].as_object().cloned().unwrap_or_default());
        let required: Vec<&str> = std::iter::once("tool").chain(required(tool)).collect();
        turns.push(json!({ "type": "object", "required": required, "properties": properties }));
    }
    json!({ "anyOf": turns })
}

/// One turn of the model.
#[derive(Debug, PartialEq)]
enum Step {
    Call { name: String, arguments: Arguments },
    Answer(String),
}

/// Reads the model's text: a call, an answer, or prose, which is left as it is. Only the first object counts: what
/// follows it was written without its result.
pub fn read(reply: &mut Reply) {
    if !reply.tool_calls.is_empty() {
        return;
    }
    match step(&reply.text, reply.is_cut_off()) {
        Some(Step::Answer(text)) => reply.text = text,
        Some(Step::Call { name, arguments }) => {
            reply.text.clear();
            reply.tool_calls.push(ToolCall { id: String::new(), name, arguments });
        }
        None => {}
    }
}

fn step(text: &str, is_cut_off: bool) -> Option<Step> {
    // Some models write the results of their calls as well; those are invented.
    let text = text.split("\nResult of ").next().unwrap_or_default();
    let candidates = text.match_indices('{').map(|(at, _)| &text[at..]).take(MAX_CANDIDATES);
    for candidate in candidates {
        let whole = balanced(candidate);
        let Some(length) = whole.or(Some(candidate.len()).filter(|length| *length <= MAX_UNENDED)) else {
            continue;
        };
        let raw = candidate[..length].trim_end().trim_end_matches('`');
        match parse::parse(raw) {
            // What was repaired at the end of a message that was cut off there is not what was meant.
            Ok((Value::Object(object), _)) if whole.is_some() || !is_cut_off => {
                if let Some(step) = step_of(&object) {
                    return Some(step);
                }
            }
            _ => {
                if let Some(name) = name_in(raw) {
                    return Some(Step::Call { name, arguments: raw.into() });
                }
            }
        }
    }
    None
}

/// What an object asks for. Objects without a tool's name are recognised by their fields.
fn step_of(object: &Map<String, Value>) -> Option<Step> {
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
        return Some(Step::Answer(answer(&fields)));
    }
    if name == "write_file"
        && !fields.contains_key("data")
        && let Some(content) = fields.shift_remove("content")
    {
        fields.insert("data".to_owned(), content);
    }
    Some(Step::Call { name: name.to_owned(), arguments: Value::Object(fields).into() })
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
    use crate::tools::Registry;

    fn conversation() -> Vec<Message> {
        let call = |id: &str, name: &str, arguments: Value| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        };
        let assistant = |text: &str, tool_calls| Message::Assistant {
            text: text.into(),
            reasoning: Some("hm".into()),
            tool_calls,
        };
        let result = |id: &str, name: &str, text: &str| Message::Tool {
            id: id.into(),
            name: name.into(),
            text: text.into(),
        };
        vec![
            Message::System { text: format!("long\n\n{INSTRUCTIONS_HEADING}\nUse tabs.\n") },
            Message::User { text: "Write a.py and run it.".into() },
            assistant(
                "I write it.",
                vec![
                    call("1", "write_file", json!({ "path": "a.py", "data": "print(1)\n" })),
                    call("2", "run_commands", json!({ "command": "python3 a.py" })),
                ],
            ),
            result("1", "write_file", "wrote"),
            result("2", "run_commands", "exit code 0\n1"),
            assistant("Done.", Vec::new()),
            Message::User { text: "Thanks.".into() },
        ]
    }

    fn sent(messages_: &[Message]) -> Vec<Message> {
        let registry = Registry::builtin();
        messages(&Request { messages: messages_, tools: registry.specs(), answer_schema: None })
    }

    fn text(message: &Message) -> &str {
        match message {
            Message::System { text }
            | Message::User { text }
            | Message::Assistant { text, .. }
            | Message::Tool { text, .. } => text,
        }
    }

    #[test]
    fn any_conversation_is_converted_into_alternating_text() {
        let sent = sent(&conversation());
        let texts: Vec<&str> = sent.iter().map(text).collect();
        assert!(
            texts[0].starts_with("You are a coding agent") && texts[0].ends_with("Use tabs."),
            "{}",
            texts[0]
        );
        assert_eq!(
            texts[1..],
            [
                "Write a.py and run it.",
                "{\"tool\":\"write_file\",\"path\":\"a.py\",\"content\":\"print(1)\\n\"}\n\
                 {\"tool\":\"run_commands\",\"command\":\"python3 a.py\"}",
                "Result of write_file:\nwrote\n\nResult of run_commands:\nexit code 0\n1\n\n\
                 Continue with the next step, or answer if all of it is done.",
                "{\"tool\":\"answer\",\"text\":\"Done.\"}",
                "Thanks.",
            ]
        );
    }

    #[test]
    fn each_request_begins_with_the_one_before() {
        let conversation = conversation();
        for end in [2, 5, 6] {
            let (shorter, longer) = (sent(&conversation[..end]), sent(&conversation));
            assert_eq!(shorter, longer[..shorter.len()], "after {end} messages");
        }
    }

    #[test]
    fn the_prompt_is_short() {
        // Four characters a token is what JSON and English have with the tokenisers of small models at the least.
        assert!(PROMPT.len() < 1_000, "{} bytes", PROMPT.len());
    }

    #[test]
    fn a_turn_is_read_leniently() {
        let call = |name: &str, arguments: Value| {
            Some(Step::Call { name: name.into(), arguments: arguments.into() })
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
            (r#"{"tool": "list_files", "path": "."}"#, call("list_files", json!({ "path": "." }))),
            (r#"{"tool": "answer", "text": "42"}"#, Some(Step::Answer("42".into()))),
            (r#"{"tool": "answer", "text": {"n": 42}}"#, Some(Step::Answer(r#"{"n":42}"#.into()))),
            ("The set is {1, 2}.", None),
            ("All is done.", None),
        ] {
            assert_eq!(step(answer, false), expected, "{answer}");
        }
        // Where the command ends is unknown, so the model gets an error in place of a result.
        let unended = r#"{"tool": "run_commands", "command": "ls"#;
        let unreadable = Step::Call { name: "run_commands".into(), arguments: unended.into() };
        assert_eq!(step(unended, false), Some(unreadable));
    }

    #[test]
    fn what_was_cut_off_is_not_run_as_if_it_were_whole() {
        let text = r#"{"tool": "write_file", "path": "a", "content": "half a fi"#;
        let mut reply = Reply { text: text.into(), finish_reason: Some("length".into()), ..Reply::default() };
        read(&mut reply);
        assert_eq!(reply.tool_calls[0].name, "write_file");
        assert_eq!(reply.tool_calls[0].arguments.as_str(), text);
    }

    #[test]
    fn long_results_keep_their_beginning_and_end() {
        let text = shortened(&format!("first{}last", "x".repeat(10_000)), 100);
        assert!(text.starts_with("first") && text.ends_with("last") && text.len() < 200, "{text}");
    }
}
