//! `agent run`: one wish, one answer, real tools in a real sandbox.

use crate::support::agent::agent;
use crate::support::endpoint::endpoint;
use serde_json::json;

#[test]
fn the_answer_goes_to_stdout_and_everything_else_to_stderr() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo hello from inside" }))
        .text("Done.")
        .start();
    let finished = agent().endpoint(&model).args(["run", "say hello"]).run().expect_code(0);
    assert_eq!(finished.stdout, "Done.\n");
    assert!(
        finished.stderr.contains("[DEBUG] run_commands called with command: echo hello from inside"),
        "{}",
        finished.stderr
    );
    let result = model.requests()[1].messages().last().cloned().expect("the tool's answer");
    assert_eq!(result["role"], "tool");
    let text = result["content"].as_str().expect("text");
    assert!(text.starts_with("exit code 0, ") && text.ends_with("\nhello from inside\n"), "{text}");
}

#[test]
fn quiet_says_nothing_but_the_answer() {
    let model = endpoint().text("Just this.").start();
    let finished = agent().endpoint(&model).args(["run", "-q", "hi"]).run().expect_code(0);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("Just this.\n", ""));
}

#[test]
fn a_prompt_may_be_piped_and_is_appended_to_one_that_is_given() {
    let model = endpoint().text("ok").for_ever().start();
    agent().endpoint(&model).args(["run"]).stdin("from the pipe").run().expect_code(0);
    agent().endpoint(&model).args(["run", "-"]).stdin("from a dash").run().expect_code(0);
    agent().endpoint(&model).args(["run", "review this"]).stdin("diff --git").run().expect_code(0);
    let wishes: Vec<_> =
        model.requests().iter().map(|request| request.messages()[1]["content"].clone()).collect();
    assert_eq!(wishes, ["from the pipe", "from a dash", "review this\n\ndiff --git"]);
}

#[test]
fn an_open_stdin_that_never_speaks_does_not_hang_a_call_that_has_its_prompt() {
    let model = endpoint().text("ok").start();
    let finished = agent().endpoint(&model).args(["run", "hi"]).stdin_open().run().expect_code(0);
    assert_eq!(finished.stdout, "ok\n");
    assert!(finished.stderr.contains("standard input is open but silent"), "{}", finished.stderr);
}

#[test]
fn without_any_prompt_it_says_how_to_give_one() {
    let finished = agent()
        .args(["run"])
        .env("AGENT_BASE_URL", "http://127.0.0.1:1")
        .env("AGENT_MODEL", "m")
        .run()
        .expect_code(2);
    assert!(finished.stderr.contains("the prompt is empty"), "{}", finished.stderr);
}

#[test]
fn every_call_of_one_message_is_answered_in_order() {
    let calls = [
        ("write_file", json!({ "path": "x", "data": "one\ntwo\n" })),
        ("edit_file", json!({ "path": "x", "old": "two", "new": "three" })),
        ("no_such_tool", json!({})),
        ("run_commands", json!({ "command": "cat x; exit 3" })),
    ];
    let model = endpoint().tool_calls(&calls).text("ok").start();
    agent().endpoint(&model).args(["run", "go"]).run().expect_code(0);
    let messages = model.requests()[1].messages();
    let answers: Vec<&str> =
        messages.iter().filter(|m| m["role"] == "tool").filter_map(|m| m["content"].as_str()).collect();
    assert_eq!(answers.len(), 4);
    assert_eq!(answers[0], "wrote x: 2 lines, 8 bytes");
    assert_eq!(answers[1], "edited x at line 2");
    assert!(
        answers[2].contains("there is no tool \"no_such_tool\"; the tools are read_file,"),
        "{}",
        answers[2]
    );
    assert!(
        answers[3].starts_with("exit code 3, ") && answers[3].ends_with("one\nthree\n"),
        "{}",
        answers[3]
    );
}
