//! The debug trace.

use agent_base::error::Error;
use agent_event::{Changes, Event, Stream, ToolCall, Usage};
use agent_terminal::style::Colours;
use agent_terminal::trace::{Trace, Verbosity, failure_text, transcript};
use agent_testing::session_samples::{self, artifact, record, session_of, store};
use serde_json::{Value, json};

fn trace(verbosity: Verbosity, events: &[Event]) -> String {
    let mut trace = Trace::new(verbosity, Colours(false));
    events.iter().filter_map(|event| trace.describe(&record(1, event.clone()))).collect()
}

fn requested(count: usize) -> Event {
    let call = ToolCall { id: "1".into(), name: "run_commands".into(), arguments: "{}".into() };
    Event::AssistantMessage {
        text: String::new(),
        reasoning: None,
        tool_calls: vec![call; count],
        finish_reason: Some("tool_calls".into()),
        usage: Some(Usage { input: 1200, output: 34, cached: 1000, written: 0 }),
        opaque: Default::default(),
    }
}

fn started(name: &str, arguments: Value) -> Event {
    Event::ToolStarted { id: "1".into(), name: name.into(), arguments }
}

fn output(data: &str) -> Event {
    Event::ToolOutput { id: "1".into(), stream: Stream::Stdout, data: data.into() }
}

fn finished(name: &str, exit_code: Option<i32>, ok: bool, result: &str) -> Event {
    Event::ToolFinished {
        id: "1".into(),
        name: name.into(),
        ok,
        exit_code,
        duration_ms: 1234,
        truncated: false,
        result: result.into(),
        content: Vec::new(),
        edits: Vec::new(),
    }
}

fn session() -> Vec<Event> {
    let lines: String = (0..48).map(|line| format!("line {line}\n")).collect();
    vec![
        Event::TurnStarted { turn: 1 },
        requested(1),
        started("run_commands", json!({"command": "cargo test"})),
        output(&lines),
        finished("run_commands", Some(0), true, "exit code 0\nline 0"),
        requested(7),
        started("run_commands", json!({"command": "cd src\nmake \x1b[2J", "timeout_s": 5})),
        output("compiling\nstill"),
        finished("run_commands", None, false, "Timed out after 5 s, 5.00 s\ncompiling\nstill"),
        started("run_commands", json!({"command": "sleep 9"})),
        finished("run_commands", None, false, "error: interrupted by the user before it was done"),
        started("read_file", json!({"path": "src/main.rs", "offset": 10, "limit": 20})),
        finished("read_file", None, true, "fn main() {\n}\n"),
        started("write_file", json!({"path": "a.txt", "data": "hello\nworld\n"})),
        finished("write_file", None, true, "written"),
        started("write_files", json!({"files": [{"path": "a", "data": "1"}, {"path": "b", "data": "2"}]})),
        finished("write_files", None, true, "2 files written"),
        started("edit_file", json!({"path": "a.txt", "old": "hello", "new": "good\nbye"})),
        finished("edit_file", None, false, "error: `old` was found 2 times in a.txt; it must match once."),
        started("job_output", json!({"job": 1, "wait_s": 5})),
        finished("job_output", None, true, "still running\nline\n"),
        started("job_kill", json!({"job": 1})),
        finished("job_kill", None, true, "killed"),
        started("made_up", json!("not { json")),
        finished("made_up", None, false, "error: there is no tool \"made_up\""),
        Event::Artifact { artifact: artifact("figure-1.png", "image/png"), tool_call: "1".into() },
        Event::Retry { attempt: 1, wait_ms: 500, reason: "connection refused".into() },
        Event::Notice { text: "the sandbox is local: no Docker engine answers".into() },
        Event::Denied { what: "connect to example.com:443".into(), rule: "--network none".into() },
        Event::CheckFinished {
            command: "cargo test".into(),
            exit_code: Some(101),
            duration_ms: 61_500,
            output: "one\ntwo".into(),
        },
        Event::CheckFinished {
            command: "cargo test".into(),
            exit_code: Some(0),
            duration_ms: 950,
            output: String::new(),
        },
        Event::Compacted { before: 120_000, after: 9_000, messages: Value::Null },
        Event::LimitReached { limit: "turns".into() },
        Event::SessionFinished {
            status: "limit".into(),
            exit_code: 5,
            turns: 2,
            usage: Usage { input: 2400, output: 68, cached: 2000, written: 0 },
            cost: None,
            delegated: None,
            changes: Changes { added: 1, modified: 1, deleted: 0 },
            error: None,
        },
    ]
}

#[test]
fn every_event_has_one_line() {
    insta::assert_snapshot!(trace(Verbosity::Normal, &session()));
}

#[test]
fn quiet_shows_only_final_failures() {
    insta::assert_snapshot!(trace(Verbosity::Quiet, &session()));
}

#[test]
fn verbose_shows_whole_arguments_and_results() {
    insta::assert_snapshot!(trace(Verbosity::Verbose, &session()));
}

#[test]
fn long_lines_are_cut_and_the_tag_is_coloured_on_a_terminal() {
    let mut trace = Trace::new(Verbosity::Normal, Colours(true));
    let line =
        trace.describe(&record(1, started("run_commands", json!({"command": "x".repeat(5000)})))).unwrap();
    assert!(line.len() < 400 && line.ends_with("…\x1b[0m\n"), "{line:?}");
    let line = trace.describe(&record(1, Event::Notice { text: "careful".into() })).unwrap();
    assert_eq!(line, "\x1b[33m[NOTICE]\x1b[0m careful\n");
}

#[test]
fn an_error_is_shown_with_its_hint_and_without_escapes() {
    let error = Error::endpoint("the server answered \x1b]0;hi\x07no").hint("check the key");
    let text = failure_text(&error, Colours(false), None);
    assert_eq!(text, "error: the server answered no\nhint: check the key\n");
}

#[test]
fn errors_and_hints_are_broken_between_words_at_any_width() {
    let message = "the sandbox could not be started: kernel.unprivileged_userns_clone is 0 on this machine";
    let hint = "set kernel.unprivileged_userns_clone=1 with sysctl, or start a Docker engine and use --sandbox docker";
    let error = Error::sandbox(message).hint(hint);
    for columns in [40, 80] {
        let text = failure_text(&error, Colours(false), Some(columns));
        assert!(text.lines().all(|line| line.len() <= columns), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words.join(" "), format!("error: {message} hint: {hint}"));
    }
}

#[test]
fn lines_are_broken_between_words_at_any_width() {
    let text = "the sandbox has no network: allow hosts with --network registries or --network HOST";
    for columns in [40, 80, 120] {
        let mut trace = Trace::new(Verbosity::Normal, Colours(false));
        trace.set_columns(Some(columns));
        let notice = trace.describe(&record(1, Event::Notice { text: text.into() })).unwrap();
        let call = trace.describe(&record(2, started("run_commands", json!({ "command": text })))).unwrap();
        for (lines, tag) in [(&notice, "[NOTICE] "), (&call, "[DEBUG] ")] {
            assert!(lines.lines().all(|line| line.chars().count() <= columns), "{lines}");
            assert!(lines.lines().skip(1).all(|line| line.starts_with(&" ".repeat(tag.len()))), "{lines}");
            let words: Vec<&str> = lines.split_whitespace().collect();
            assert!(words.join(" ").contains(text), "{lines}");
        }
    }
}

#[test]
fn a_session_is_shown_as_it_was_printed() {
    let (_dir, store) = store();
    let id = session_of(
        &store,
        &[
            session_samples::started(),
            session_samples::prompt("list\u{1b}[2J"),
            session_samples::answer(
                "",
                vec![session_samples::call("c", "run_commands", "{\"command\": \"ls\"}")],
            ),
            session_samples::tool_started("c", "run_commands", json!({"command": "ls"})),
            session_samples::tool_finished("c", "run_commands", "exit code 0, 0.01 s\na\nb"),
            session_samples::answer("**a** and b", Vec::new()),
            session_samples::finished("completed"),
        ],
    );
    let shown = store.show(id.clone());
    insta::assert_snapshot!(transcript(&shown.events, Verbosity::Normal, Colours(false)));
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!((json["id"].as_str(), json["events"].as_array().map(Vec::len)), (Some(id.as_str()), Some(7)));
    // Events before damage are still shown.
    let text = std::fs::read_to_string(store.events(&id)).unwrap();
    std::fs::write(store.events(&id), text.replace("\"type\":\"tool_started\"", "\"type\":")).unwrap();
    let shown = store.show(id);
    assert_eq!((shown.summary.status.as_str(), shown.events.len()), ("broken", 3));
    assert!(shown.summary.error.unwrap().contains("line 4 of"));
}
