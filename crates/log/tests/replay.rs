//! Recordings, and comparing a replay with one.

use agent_event::{Event, Listener};
use agent_log::Recording;
use agent_log::replay::{Comparison, ReplayResult};
use agent_testing::session_samples::{
    answer, call, prompt, record, session_of, started, store, tool_finished, tool_started,
};
use serde_json::json;
use std::path::Path;

fn replay(recording: &Recording, events: &[Event]) -> ReplayResult {
    let mut comparison = Comparison::with(recording);
    for (seq, event) in (1..).zip(events) {
        comparison.on_event(&record(seq, event.clone()), b"").unwrap();
    }
    comparison.result()
}

fn recorded(results: &[&str]) -> Recording {
    let (_dir, store) = store();
    let mut events = vec![started(), prompt("go"), answer("", vec![call("c", "run_commands", "{}")])];
    events.extend(results.iter().map(|result| tool_finished("c", "run_commands", result)));
    Recording::load(&store.events(&session_of(&store, &events))).unwrap()
}

#[test]
fn a_recording_contains_prompts_answers_and_results() {
    let recording = recorded(&["one"]);
    assert_eq!(recording.prompts(), ["go"]);
    assert_eq!(recording.replies()[0].tool_calls[0].id, "c");
    assert_eq!(recording.outcomes()[0].result, "one");
}

#[test]
fn times_and_temporary_names_are_not_differences() {
    let recording = recorded(&["exit code 0, 0.13 s\nin /tmp/tmp.aB3dE9", "two"]);
    let result = replay(
        &recording,
        &[
            tool_finished("c", "run_commands", "exit code 0, 1.05 s\nin /tmp/tmp.zZ3dE9"),
            tool_finished("other id", "run_commands", "two"),
        ],
    );
    assert_eq!((result.compared, result.difference.as_ref()), (2, None));
    assert_eq!(result.to_text(), "all 2 results are as recorded\n");
}

#[test]
fn the_first_difference_is_shown() {
    let recording = recorded(&["same", "a\nb\nc", "third"]);
    let result = replay(
        &recording,
        &[
            tool_finished("c", "run_commands", "same"),
            tool_started("c", "run_commands", json!({"command": "ls"})),
            tool_finished("c", "run_commands", "a\nX\nc"),
            tool_finished("c", "run_commands", "another difference"),
        ],
    );
    let difference = result.difference.as_ref().unwrap();
    assert_eq!((result.compared, difference.call), (3, 2));
    insta::assert_snapshot!(result.to_text(), @r#"
    the result of call 2 differs: run_commands {"command":"ls"}
    --- recorded
    +++ replayed
    @@ -1,3 +1,3 @@
     a
    -b
    +X
     c
    "#);
}

#[test]
fn missing_and_additional_calls_are_differences() {
    let missing = replay(&recorded(&["one", "two"]), &[tool_finished("c", "run_commands", "one")]);
    assert_eq!(missing.to_text(), "call 2 was recorded but not made: run_commands\n");
    let new = replay(&recorded(&[]), &[tool_finished("c", "run_commands", "one")]);
    assert!(new.to_text().starts_with("call 1 was not recorded"), "{}", new.to_text());
}

#[test]
fn another_tool_or_exit_code_is_a_difference() {
    let recording = recorded(&["one"]);
    assert!(replay(&recording, &[tool_finished("c", "read_file", "one")]).difference.is_some());
    let mut failed = tool_finished("c", "run_commands", "one");
    if let Event::ToolFinished { exit_code, .. } = &mut failed {
        *exit_code = Some(1);
    }
    assert!(replay(&recording, &[failed]).difference.is_some());
}

#[test]
fn a_file_that_is_not_a_recording_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl");
    for (content, message) in [
        ("", "no model answers in"),
        ("hello\n", "line 1 of"),
        ("{\"seq\":1,\"time\":\"\",\"type\":\"user_message\",\"text\":\"x\"}\n", "no model answers in"),
        ("{\"seq\":1,\"time\":\"\",\"type\":\"from_the_future\"}\n", "line 1 of"),
    ] {
        std::fs::write(&path, content).unwrap();
        let error = Recording::load(&path).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert!(error.hint_text().is_some());
    }
    assert!(Recording::load(Path::new("/nowhere")).is_err());
}

#[test]
fn a_recording_may_be_written_manually() {
    let lines = concat!(
        r#"{"type":"user_message","seq":1,"time":"","text":"hi"}"#,
        "\n",
        r#"{"type":"assistant_message","seq":2,"time":"","text":"hello","tool_calls":[]}"#,
        "\n",
    );
    let recording = Recording::parse("manual", lines).unwrap();
    assert_eq!(recording.replies()[0].text, "hello");
}
