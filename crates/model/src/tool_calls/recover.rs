//! Tool calls that a model wrote as text: small models do, and endpoints without a parser for their model's format.
//!
//! What has the shape of a call is a call, also where no such tool exists or its arguments cannot be read: the model gets
//! an error then, and nothing behind it runs. `marks` is the table of the formats, `scan` finds the places, `body` reads them.

use crate::ToolSpec;
use crate::tool_calls::body::CallReader;
use crate::tool_calls::json_calls::{Call, Calls};
use crate::tool_calls::scan::{Found, Scan};
use agent_event::Arguments;
use std::cell::Cell;

/// Places of a text that are examined without result; a text full of brackets must not cost for ever.
const MOST_MISSES: usize = 200;

/// Bytes of text that are examined for calls in one answer, counted anew from each place that is tried.
const BUDGET: usize = 32 << 20;

/// Calls that were recovered from text.
#[derive(Debug, Default, PartialEq)]
pub struct Recovered {
    /// The calls, in order. Without any, the text is an answer that came with marks around it.
    pub calls: Vec<RecoveredCall>,
    /// The rest of the text without them.
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

impl From<Call> for RecoveredCall {
    fn from((name, arguments): Call) -> Self {
        Self { name, arguments: arguments.into() }
    }
}

/// The calls in an answer; `None` where there is none. `is_cut_off`: the answer ended at the limit of its length.
pub fn recover(text: &str, tools: &[ToolSpec], is_cut_off: bool) -> Option<Recovered> {
    recover_within(&mut { BUDGET }, text, tools, is_cut_off, true)
}

/// The calls in reasoning that no answer follows. Those without marks are thoughts.
pub fn recover_from_reasoning(text: &str, tools: &[ToolSpec], is_cut_off: bool) -> Option<Recovered> {
    recover_within(&mut { BUDGET }, text, tools, is_cut_off, false).filter(|found| !found.calls.is_empty())
}

fn recover_within(
    budget: &mut usize,
    text: &str,
    tools: &[ToolSpec],
    is_cut_off: bool,
    takes_unmarked: bool,
) -> Option<Recovered> {
    if tools.is_empty() {
        return None;
    }
    let reader = CallReader { tools, is_cut_off, budget: Cell::new(*budget) };
    let scan = Scan { reader: &reader, text, is_whole: true, takes_unmarked };
    let mut found = Recovered::default();
    let (mut at, mut misses, mut is_rewritten) = (0, 0, false);
    while misses < MOST_MISSES {
        let before = reader.budget.get();
        let Some((place, what)) = scan.next(at, found.text.trim().is_empty()) else { break };
        found.text.push_str(&text[at..place]);
        at = place;
        let add = |found: &mut Recovered, calls: Calls| found.calls.extend(calls.into_iter().map(Into::into));
        match what {
            Found::Calls(calls, length) => {
                is_rewritten = true;
                add(&mut found, calls);
                at += length;
            }
            Found::Spoken(spoken) => {
                is_rewritten = true;
                add(&mut found, spoken.calls);
                found.text.push_str(&spoken.text);
                found.calls.extend(spoken.unreadable.map(unreadable));
                at = text.len();
            }
            Found::Unreadable(name, arguments) => {
                // What follows may build on it.
                found.calls.push(unreadable((name, arguments)));
                at = text.len();
            }
            Found::Invented if !found.calls.is_empty() => {
                at = text.len();
            }
            Found::Noise(length) => {
                is_rewritten = true;
                at += length;
            }
            Found::Residue(length) => at += length,
            Found::Text(length) | Found::Code(length, _) | Found::Span(length) => {
                at += length;
                found.text.push_str(&text[place..at]);
                misses += usize::from(reader.budget.get() < before);
            }
            Found::Invented | Found::Open => {
                let skipped = text[at..].chars().next().map_or(1, char::len_utf8);
                at += skipped;
                found.text.push_str(&text[place..at]);
            }
        }
    }
    *budget = reader.budget.get();
    found.text.push_str(&text[at..]);
    if found.calls.is_empty() && !is_rewritten {
        return None;
    }
    // What is left of a call's own brackets is not text.
    let only_brackets = found.text.chars().all(|c| c.is_whitespace() || "{}[],;`".contains(c));
    found.text = if only_brackets { String::new() } else { found.text.trim().to_owned() };
    Some(found)
}

/// A call that is reported back to the model. One whose tool is only guessed must not run.
fn unreadable((name, arguments): (String, String)) -> RecoveredCall {
    let arguments = Arguments::from(arguments);
    let could_run = arguments.parse().is_ok_and(|(value, _)| !value.is_string());
    let name = if could_run { String::new() } else { name };
    RecoveredCall { name, arguments }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::stream::Assembly;
    use crate::{Progress, Reply};
    use agent_event::lenient_json;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn recover(text: &str, tools: &[ToolSpec]) -> Option<Recovered> {
        super::recover(text, tools, false)
    }

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
            (format!("```json\n{call}\n```\nThen more."), vec![ls()], "Then more."),
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
            "[TOOL_CALLS] is Mistral's.",
            "The first of it is <tool_call>",
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
            let recovered =
                recover_within(&mut budget, &pattern.repeat(bytes / pattern.len()), &tools(), false, true);
            assert_eq!(recovered, None, "{pattern:?}");
            BUDGET - budget
        };
        for pattern in ["{\n", "<tool_call>", "```x\n{\n", "```\n", "{"] {
            let (once, twice) = (used(pattern, 10_000), used(pattern, 20_000));
            assert!(twice <= once * 5 / 2, "{pattern:?}: {once}, then {twice}");
        }
        let mut budget = 1_000;
        let object = r#"{"name": "run_commands", "arguments": {"command": "ls"}}"#;
        let text = format!("{object}{}", " ".repeat(1_000));
        assert_eq!(
            recover_within(&mut budget, &text, &tools(), false, true),
            None,
            "what does not fit is not examined"
        );
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

    /// The reply to an answer that comes in pieces of three characters, and what of it was shown.
    fn replied(field: &str, text: &str) -> (Reply, String) {
        let tools = tools();
        let mut shown = String::new();
        let mut on_progress = |progress: Progress<'_>| {
            if let Progress::Text(text) = progress {
                shown.push_str(text);
            }
        };
        let mut assembly = Assembly::new(&tools);
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(3) {
            let delta = json!({ field: piece.iter().collect::<String>() });
            let chunk = serde_json::from_value(json!({ "choices": [{ "delta": delta }] })).unwrap();
            assembly.add(chunk, &mut on_progress).unwrap();
        }
        (assembly.finish(&Vec::new().into(), &mut on_progress), shown)
    }

    #[test]
    fn a_call_runs_wherever_in_the_reply_it_stands_and_its_marks_are_not_shown() {
        let call = r#"<|tool_call_begin|>functions.run_commands:0<|tool_call_argument_begin|>{"command": "ls"}<|tool_call_end|>"#;
        let value =
            "<function=run_commands>\n<parameter=command>\necho '</think>'\n</parameter>\n</function>";
        for (field, text, command, left) in [
            ("content", format!("I look.{call}"), "ls", "I look."),
            ("content", format!("<think>Hm.</think>I look.{call}"), "ls", "I look."),
            ("content", format!("<think>Hm.\n{call}"), "ls", ""),
            ("content", format!("Hm.\n{call}\n</think>\n"), "ls", ""),
            ("content", format!("Say {call}, or not.</think>{}", call.replace("ls", "id")), "id", ""),
            ("content", format!("I look.\n{value}"), "echo '</think>'", "I look."),
            ("reasoning_content", format!("Hm.{call}"), "ls", ""),
        ] {
            let (reply, shown) = replied(field, &text);
            let commands: Vec<_> =
                reply.tool_calls.iter().map(|call| call.arguments.text("command")).collect();
            assert_eq!(commands, [Some(command)], "{text}");
            assert_eq!(reply.text, left, "{text}");
            assert!(!shown.contains("<|") && !shown.contains("<function"), "{text}: {shown}");
        }
        let (reply, _) =
            replied("reasoning_content", r#"Maybe {"name": "run_commands", "arguments": {"command": "ls"}}"#);
        assert!(reply.tool_calls.is_empty(), "thoughts are not calls");
    }
}
