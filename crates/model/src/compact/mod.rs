//! The compact form of a conversation, for small models: one JSON object a turn, few tools, a short prompt.
//!
//! The conversation itself stays as it is; what goes out is converted, and what comes back is read into the same
//! reply that a native tool call gives. So a session may change its form at any time. The conversion of a message
//! depends on nothing behind it: the prefix of each request is the request before, until steps repeat (`steps.rs`).

mod read;
pub mod runaway;
mod steps;
mod write;

pub use read::read;
use steps::is_stuck;

use crate::Message;
use crate::Request;
use crate::ToolSpec;
use crate::results::call_of;
use crate::results::is_failure;
use agent_base::shorten::head_and_tail;
use agent_event::ToolCall;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use steps::Steps;
use write::{object_line, written};

/// The temperature of the compact form, unless the user sets one.
pub const TEMPERATURE: f64 = 0.2;
/// The temperature of the second attempt at a prompt and of later ones.
const RETRY_TEMPERATURE: f64 = 0.6;
/// The temperature of the step after one that repeats an earlier one; see [`is_stuck`].
const STUCK_TEMPERATURE: f64 = 0.9;
/// The tokens of one answer, unless the user sets a number: a small model that repeats itself does not stop.
pub const MAX_ANSWER_TOKENS: u32 = 2_048;
/// Stands in a system prompt before what a repository says about itself, which the compact form keeps.
pub const INSTRUCTIONS_HEADING: &str = "# The project's own instructions (AGENTS.md)";

const PROMPT: &str = agent_prompts::COMPACT_FORM;
const NEXT_STEP: &str = "\n\nSend the next step of the task, or answer if no step is left.";
/// After a command that ran what was written before: small models tend to add steps that nobody asked for.
const PERHAPS_DONE: &str =
    "\n\nIf this is what the task asks for, answer. Otherwise send the next step of the task.";
const AFTER_A_FAILURE: &str = "\n\nThis step failed. Send a step that corrects it, or answer if the failure itself is what the task asks about.";
/// The tools that the prompt shows.
const SHOWN: [&str; 4] = ["run_commands", "write_file", "read_file", "edit_file"];
/// Tools that are not offered, or (those of jobs) only once there is a job.
const HIDDEN: [&str; 5] = ["write_files", "run_code", "update_plan", "job_output", "job_kill"];
/// Characters of one result and of a repository's instructions that are sent.
const MAX_RESULT: usize = 6_000;
const MAX_INSTRUCTIONS: usize = 2_000;
/// Characters of an earlier answer: one that was cut off at its limit would fill the window of small models.
const MAX_EARLIER_ANSWER: usize = 1_500;
/// The beginning of the result of a command that runs on as a job: from then on the job tools are offered.
pub const JOB_STARTED: &str = "started as job ";
/// The beginning of the result of a command that reached its time limit: from then on `background` is offered.
pub const TIMED_OUT: &str = "Timed out";

/// The temperature of a request, unless the user sets one.
pub fn temperature(request: &Request<'_>) -> f64 {
    match is_stuck(request.messages) {
        true => STUCK_TEMPERATURE,
        false if request.attempt > 1 => RETRY_TEMPERATURE,
        false => TEMPERATURE,
    }
}

/// Returns whether these tools can be offered in the compact form.
pub fn fits(tools: &[ToolSpec]) -> bool {
    SHOWN.iter().all(|name| tools.iter().any(|tool| tool.name == *name))
}

/// The conversation as it is sent: user and assistant alternate, and everything is text.
pub fn messages(request: &Request<'_>) -> Vec<Message> {
    let mut sent: Vec<Message> = Vec::with_capacity(request.messages.len() + 1);
    let mut rest: &[Message] = request.messages;
    let mut system = String::new();
    if let [Message::System { text }, others @ ..] = rest {
        system.clone_from(text);
        rest = others;
    }
    sent.push(Message::System { text: prompt(&system, request) });
    let mut has_written = false;
    // The message of the user that the steps belong to, and how long it is without what was done so far.
    let (mut asked_at, mut asked_len, mut steps) = (0, 0, Steps::default());
    for (at, message) in rest.iter().enumerate() {
        match message {
            Message::System { text } | Message::User { text } => {
                add_user(&mut sent, text);
                (has_written, steps) = (false, Steps::default());
                (asked_at, asked_len) = (sent.len() - 1, user_text(&mut sent).map_or(0, |text| text.len()));
            }
            Message::Assistant { text, tool_calls, .. } => {
                let text = written(&head_and_tail(text, MAX_EARLIER_ANSWER), tool_calls);
                sent.push(Message::Assistant {
                    text,
                    reasoning: None,
                    tool_calls: Vec::new(),
                    opaque: Default::default(),
                });
            }
            Message::Tool { id, name, text } => {
                let call = call_of(&rest[..at], id);
                if steps.add(call, text) && asked_len > 0 {
                    sent.truncate(asked_at + 1);
                    if let Some(asked) = user_text(&mut sent) {
                        asked.truncate(asked_len);
                    }
                    add_user(&mut sent, &steps.summary(is_failure(call, text)));
                    continue;
                }
                let is_last = !matches!(rest.get(at + 1), Some(Message::Tool { .. }));
                let looks = ["run_commands", "read_file"].contains(&name.as_str());
                let next_step = match is_last {
                    false => "",
                    true if is_failure(call, text) => AFTER_A_FAILURE,
                    true if has_written && looks => PERHAPS_DONE,
                    true => NEXT_STEP,
                };
                has_written |= call.is_some_and(writes);
                let result = head_and_tail(text, MAX_RESULT);
                add_user(&mut sent, &format!("Result of {name}:\n{result}{}{next_step}", offer(text)));
            }
        }
    }
    sent
}

fn user_text(sent: &mut [Message]) -> Option<&mut String> {
    match sent.last_mut() {
        Some(Message::User { text }) => Some(text),
        _ => None,
    }
}

fn add_user(sent: &mut Vec<Message>, more: &str) {
    match user_text(sent) {
        Some(text) => {
            text.push_str("\n\n");
            text.push_str(more);
        }
        None => sent.push(Message::User { text: more.to_owned() }),
    }
}

fn prompt(system: &str, request: &Request<'_>) -> String {
    let mut prompt = PROMPT.trim().to_owned();
    for tool in request.tools.iter().filter(is_further) {
        let mut example = Map::from_iter([("tool".to_owned(), Value::from(tool.name.as_str()))]);
        for name in required(tool) {
            example.insert(name.to_owned(), "…".into());
        }
        let _ = write!(prompt, "\n{}\n{}", tool.description, object_line(&example.into()));
    }
    if let Some(schema) = request.answer_schema {
        let _ = write!(prompt, "\nThe text of the answer is JSON of this schema: {schema}");
    }
    if let Some((_, text)) = system.split_once(INSTRUCTIONS_HEADING) {
        let _ =
            write!(prompt, "\n\n{INSTRUCTIONS_HEADING}\n{}", head_and_tail(text.trim(), MAX_INSTRUCTIONS));
    }
    prompt
}

/// Returns whether a tool is offered beside those that the prompt shows.
fn is_further(tool: &&ToolSpec) -> bool {
    let name = tool.name.as_str();
    !SHOWN.contains(&name) && !HIDDEN.contains(&name)
}

fn required(tool: &ToolSpec) -> impl Iterator<Item = &str> {
    tool.parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns whether a call writes a file: with a tool for it, or with a redirection of the shell.
fn writes(call: &ToolCall) -> bool {
    let command = || call.arguments.text("command");
    ["write_file", "edit_file"].contains(&call.name.as_str())
        || command().is_some_and(|command| command.contains('>'))
}

/// A command's result without the time it took, which is never the same twice.
fn without_duration(result: &str) -> (&str, &str) {
    let (first, rest) = result.split_once('\n').unwrap_or((result, ""));
    (first.split(',').next().unwrap_or_default(), rest)
}

/// Returns what a result allows beside what the prompt shows. It comes with the result, so that the prompt never changes.
fn offer(result: &str) -> String {
    if let Some(job) = job(result) {
        let call = |tool| object_line(&json!({ "tool": tool, "job": job }));
        return format!("\nRead its output: {}\nEnd it: {}", call("job_output"), call("job_kill"));
    }
    match result.starts_with(TIMED_OUT) {
        true => "\nAdd \"background\": true to the object of a command that is to keep running.".to_owned(),
        false => String::new(),
    }
}

/// The number of the job that a command was started as.
fn job(result: &str) -> Option<u64> {
    let number = result.strip_prefix(JOB_STARTED)?;
    number[..number.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

/// The JSON Schema of one turn. The tool of a step that repeats an earlier one is left out once.
pub fn schema(request: &Request<'_>) -> Value {
    let last_tool = request.messages.iter().rev().find_map(|message| match message {
        Message::Tool { name, .. } => Some(name.as_str()),
        _ => None,
    });
    let left_out = last_tool.filter(|_| is_stuck(request.messages));
    let mut turns = turns(request);
    turns.retain(|turn| left_out.is_none() || turn["properties"]["tool"]["const"].as_str() != left_out);
    json!({ "anyOf": turns })
}

/// The schemas of the steps that the model may send.
fn turns(request: &Request<'_>) -> Vec<Value> {
    let results = || {
        request.messages.iter().filter_map(|message| match message {
            Message::Tool { text, .. } => Some(text.as_str()),
            _ => None,
        })
    };
    let has_job = results().any(|result| job(result).is_some());
    let object = |name: &str, fields: &[&str]| {
        let mut properties = Map::from_iter([("tool".to_owned(), json!({ "const": name }))]);
        properties.extend(fields.iter().map(|field| ((*field).to_owned(), json!({ "type": "string" }))));
        let required: Vec<&String> = properties.keys().collect();
        json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
    };
    let mut command = object("run_commands", &["command"]);
    if results().any(|result| result.starts_with(TIMED_OUT)) {
        command["properties"]["background"] = json!({ "type": "boolean" });
    }
    let mut turns = vec![
        command,
        object("write_file", &["path", "content"]),
        object("read_file", &["path"]),
        object("edit_file", &["path", "old", "new"]),
        object("answer", &["text"]),
    ];
    let is_offered = |tool: &&ToolSpec| is_further(tool) || has_job && tool.name.starts_with("job_");
    for tool in request.tools.iter().filter(is_offered) {
        let mut properties = Map::from_iter([("tool".to_owned(), json!({ "const": tool.name }))]);
        properties.extend(tool.parameters["properties"].as_object().cloned().unwrap_or_default());
        let required: Vec<&str> = std::iter::once("tool").chain(required(tool)).collect();
        turns.push(json!({ "type": "object", "required": required, "properties": properties }));
    }
    turns
}

/// The built-in tools, whose crate stands above this one: a test there compares them with this file.
#[cfg(test)]
fn builtin_tools() -> Vec<super::ToolSpec> {
    serde_json::from_str(include_str!("builtin_tools.json")).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            opaque: Default::default(),
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
        let registry = builtin_tools();
        let earlier = messages_.to_vec().into();
        messages(&Request { tools: &registry, ..Request::plain(&earlier) })
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
                "{\"tool\": \"write_file\", \"path\": \"a.py\", \"content\": \"print(1)\\n\"}\n\
                 {\"tool\": \"run_commands\", \"command\": \"python3 a.py\"}",
                "Result of write_file:\nwrote\n\nResult of run_commands:\nexit code 0\n1\n\n\
                 If this is what the task asks for, answer. Otherwise send the next step of the task.",
                "{\"tool\": \"answer\", \"text\": \"Done.\"}",
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
        assert!(PROMPT.len() < 1_100, "{} bytes", PROMPT.len());
    }

    #[test]
    fn steps_that_repeat_become_a_list() {
        let run = |id: &str, seconds: &str| {
            let call = ToolCall {
                id: id.into(),
                name: "run_commands".into(),
                arguments: json!({ "command": "sh a.sh" }).into(),
            };
            let text = format!("exit code 127, {seconds} s\nnot found\n");
            [
                Message::Assistant {
                    text: String::new(),
                    reasoning: None,
                    tool_calls: vec![call],
                    opaque: Default::default(),
                },
                Message::Tool { id: id.into(), name: "run_commands".into(), text },
            ]
        };
        let mut conversation = conversation();
        conversation.extend(run("3", "0.01"));
        assert!(!is_stuck(&conversation));
        assert!(text(sent(&conversation).last().unwrap()).ends_with(AFTER_A_FAILURE));
        conversation.extend(run("4", "0.02"));
        assert!(is_stuck(&conversation));
        let registry = builtin_tools();
        let earlier = conversation.clone().into();
        let request = Request { tools: &registry, ..Request::plain(&earlier) };
        let offered = schema(&request).to_string();
        assert!(!offered.contains("run_commands") && offered.contains("write_file"), "{offered}");
        let folded = sent(&conversation);
        let last = text(folded.last().unwrap());
        assert!(
            last.starts_with("Thanks.\n\nDone so far:\n- run_commands sh a.sh\n  result: exit code 127"),
            "{last}"
        );
        assert!(matches!(folded[folded.len() - 2], Message::Assistant { .. }), "the roles alternate");
        conversation.extend(run("5", "0.03"));
        assert!(!is_stuck(&conversation), "counted from the list on");
        assert_eq!(sent(&conversation)[..folded.len()], folded);
    }

    #[test]
    fn jobs_are_offered_once_there_is_one() {
        let registry = builtin_tools();
        let mut conversation = conversation();
        let names = |conversation: &[Message]| {
            let earlier = conversation.to_vec().into();
            let request = Request { tools: &registry, ..Request::plain(&earlier) };
            let schema = schema(&request);
            let turns = schema["anyOf"].as_array().unwrap();
            let name = |turn: &Value| turn["properties"]["tool"]["const"].as_str().unwrap().to_owned();
            let background = turns[0]["properties"]["background"].is_object();
            (turns.iter().map(name).skip(5).collect::<Vec<_>>(), background)
        };
        assert_eq!(names(&conversation), (Vec::new(), false));
        let result =
            |text: &str| Message::Tool { id: "3".into(), name: "run_commands".into(), text: text.into() };
        conversation.push(result(&format!("{TIMED_OUT} after 120 s, 120.00 s\n(no output)")));
        assert_eq!(names(&conversation), (Vec::new(), true));
        assert!(text(sent(&conversation).last().unwrap()).contains("\"background\": true"));
        conversation.push(result(&format!("{JOB_STARTED}12; see its output with job_output")));
        assert_eq!(names(&conversation), (vec!["job_output".to_owned(), "job_kill".to_owned()], true));
        let sent = sent(&conversation);
        assert!(text(sent.last().unwrap()).contains(r#"{"tool": "job_output", "job": 12}"#));
        assert!(!text(&sent[0]).contains("job"), "the prompt is the same");
    }
}
