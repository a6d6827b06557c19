//! The arguments that the tools take from a model, and what they tell it.

use agent_testbed::agent::{Finished, agent};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};

/// One message with these calls, on these files, all of it applied: the result that the model gets of each call.
fn answers(files: &[(&str, &str)], calls: &[(&str, Value)]) -> (Vec<String>, Finished) {
    let model = endpoint().tool_calls(calls).text("ok").start();
    let call = files.iter().fold(agent().endpoint(&model), |call, (path, data)| call.file(path, data));
    let finished = call.args(["run", "go", "--apply"]).run().expect_code(0);
    let messages = model.requests()[1].messages();
    let results = messages.iter().filter(|m| m["role"] == "tool").filter_map(|m| m["content"].as_str());
    (results.map(str::to_owned).collect(), finished)
}

/// A bug: `old` with LF was not found in a file with CRLF, and what was put in had LF.
#[test]
fn an_edit_keeps_the_line_ends_of_the_file() {
    let edit = |old: &str, new: &str| ("edit_file", json!({ "path": "a.txt", "old": old, "new": new }));
    let calls = [edit("one\ntwo", "1\n2"), edit("three", "3\n4"), edit("1\r\n2", "1\n2")];
    let (answers, finished) = answers(&[("a.txt", "one\r\ntwo\r\nthree\r\n")], &calls);
    assert_eq!(
        answers,
        [
            "edited a.txt at line 1, with CRLF line ends as they are there",
            "edited a.txt at line 3, with CRLF line ends as they are there",
            "error: old and new are the same, with CRLF line ends as they are there: nothing would change",
        ]
    );
    assert_eq!(finished.host_file("a.txt").as_deref(), Some("1\r\n2\r\n3\r\n4\r\n"));
}

#[test]
fn an_edit_that_cannot_be_meant_is_refused() {
    let edit = |old: &str, new: &str| ("edit_file", json!({ "path": "a.txt", "old": old, "new": new }));
    let (answers, finished) =
        answers(&[("a.txt", "aaa\n")], &[edit("aa", "b"), edit("aaa", "aaa"), edit("", "b")]);
    assert!(answers[0].starts_with("error: old is in a.txt 2 times (lines 1, 1)"), "{}", answers[0]);
    assert_eq!(answers[1], "error: old and new are the same: nothing would change");
    assert!(answers[2].starts_with("error: old is empty"), "{}", answers[2]);
    assert_eq!(finished.host_file("a.txt").as_deref(), Some("aaa\n"));
}

/// A bug: a file whose last line has its end was said to have one line more.
#[test]
fn a_page_beyond_the_end_says_how_many_lines_there_are() {
    let read = |path: &str, offset: u64| ("read_file", json!({ "path": path, "offset": offset }));
    let calls = [
        read("ended", 3),
        read("open", 3),
        read("empty", 3),
        ("read_file", json!({ "path": "ended", "limit": 0 })),
    ];
    let (answers, _finished) = answers(&[("ended", "a\nb\n"), ("open", "a"), ("empty", "")], &calls);
    assert_eq!(
        answers,
        [
            "error: ended has no line 3: it has 2 lines",
            "error: open has no line 3: it has 1 line",
            "(empty is empty)",
            "a\nb\n",
        ]
    );
}

#[test]
fn arguments_that_can_mean_one_thing_only_are_taken_as_that() {
    let (answers, finished) = answers(
        &[("a.txt", "one\ntwo\nthree\n")],
        &[
            ("functions.read_file", json!({ "path": "a.txt", "offset": "2", "limit": 1.0 })),
            ("Read-File\n", json!({ "file": "a.txt", "offset": null, "limit": "" })),
            ("run_commands", json!({ "command": ["printf", "-v", "x", "a b"], "background": "false" })),
            ("run_commands", json!("{\"command\": \"echo twice encoded\"}")),
            ("write_files", json!({ "files": "{\"path\": \"b.txt\", \"content\": \"7\"}" })),
        ],
    );
    assert_eq!(answers[..2], ["two\n", "one\ntwo\nthree\n"]);
    assert!(answers[2].starts_with("exit code 0"), "{}", answers[2]);
    assert!(answers[3].ends_with("\ntwice encoded\n"), "{}", answers[3]);
    assert_eq!(finished.host_file("b.txt").as_deref(), Some("7"));
    let notice = "the model called read_file with \"functions.read_file\" as its name and \"2\" as \"offset\", taken as 2";
    assert!(finished.stderr.contains(notice), "{}", finished.stderr);
}

/// A bug: the message did not name the argument that was not a string.
#[test]
fn arguments_that_fit_nothing_are_named() {
    let (answers, _finished) = answers(
        &[],
        &[
            ("read_file", json!({ "path": ["a", "b"], "offset": "two" })),
            ("read_file", json!({ "path": "a", "offset": -1 })),
            ("edit_file", json!({ "path": "a", "old": "b" })),
            ("write_files", json!({ "files": [{ "path": "a", "data": ["x", "y"] }] })),
            ("job_kill", json!(["job", 1])),
            ("run_commands", json!({ "command": ["ls", "cat a"] })),
        ],
    );
    let answers: Vec<_> = answers
        .iter()
        .map(|a| a.strip_prefix("error: the arguments do not fit the tool: ").expect(a))
        .collect();
    assert_eq!(
        answers,
        [
            r#"path is not of type "string"; offset is not of types "null", "integer""#,
            "offset is less than the minimum of 0",
            r#""new" is a required property"#,
            r#"files/0/data is not of type "string""#,
            r#"it is not of type "object""#,
            r#"command is not of type "string""#,
        ]
    );
}

/// A bug: a name that the model had made up went back as it was, and the endpoint refused all of the conversation.
#[test]
fn a_name_that_no_endpoint_takes_is_not_sent_back() {
    let model = endpoint().tool_call("web.search(\"x\")\n", json!({})).text("ok").start();
    agent().endpoint(&model).args(["run", "go"]).run().expect_code(0);
    let messages = model.requests()[1].messages();
    let (called, answered) = (&messages[messages.len() - 2], &messages[messages.len() - 1]);
    assert_eq!(called["tool_calls"][0]["function"]["name"], "web_search__x___");
    let answer = answered["content"].as_str().unwrap_or_default();
    assert!(
        answer.starts_with(r#"error: there is no tool "web.search(\"x\")\n"; the tools are read_file"#),
        "{answer}"
    );
}
