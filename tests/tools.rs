//! What the tools take from a model, and what they tell it.

use crate::support::agent::{Finished, agent};
use crate::support::endpoint::endpoint;
use serde_json::{Value, json};

/// One message with these calls, on these files, all of it applied: what the model is told of each call.
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
            "error: ended has no line 3: it has 2 line(s)",
            "error: open has no line 3: it has 1 line(s)",
            "(empty is empty)",
            "a\nb\n",
        ]
    );
}
