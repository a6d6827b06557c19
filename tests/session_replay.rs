//! Recordings, and comparing a replay with one.

use crate::session_samples::{
    answer, call, prompt, record, session_of, started, store, tool_finished, tool_started,
};
use agent::demo::TASKS;
use agent::event::{Event, Listener};
use agent::log::replay::{Comparison, ReplayResult};
use agent::log::{Recording, read_records, verify};
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

#[test]
fn the_demos_recordings_are_valid_and_complete() {
    let known = ["run_commands", "run_code", "write_file", "write_files", "read_file", "edit_file"];
    for task in TASKS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/demo/{}.jsonl", task.name));
        assert_eq!(verify(&path).unwrap().fault, None, "{}", task.name);
        let recording = task.recording().unwrap();
        assert_eq!(recording.records(), read_records(&path).unwrap());
        assert_eq!(recording.prompts().len(), 1);
        let replies = recording.replies();
        let (last, asking) = replies.split_last().unwrap();
        assert!(last.tool_calls.is_empty() && !last.text.is_empty());
        let calls: Vec<_> = asking.iter().flat_map(|reply| &reply.tool_calls).collect();
        assert!(calls.iter().all(|call| known.contains(&call.name.as_str())));
        assert!(calls.iter().all(|call| serde_json::from_str::<serde_json::Value>(&call.arguments).is_ok()));
        assert_eq!(calls.len(), recording.outcomes().len(), "each call has its answer");
    }
    let answer = |name: &str| {
        let task = TASKS.iter().find(|task| task.name == name).unwrap();
        task.recording().unwrap().outcomes().into_iter().map(|result| result.result).collect::<String>()
    };
    assert!(answer("sum").contains("50005000"));
    assert!(answer("factorial").contains("2432902008176640000"));
    assert!(answer("fibonacci").contains("0 1 1 2 3 5 8 13 21 34"));
    assert!(answer("pi").contains("3.14"));
    assert!(answer("fix").contains("FAIL 1900"));
}
