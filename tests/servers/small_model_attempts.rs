//! Small models that keep failing start over.

use crate::small_models::{last_text, server, turn};
use agent_testbed::agent::agent;
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};

const PROMPT: &str = "Fix double.py so that double(2) returns 4.";
const PROGRAM: &str = "def double(n):\n    return n\n";
const CHECK: &str = "python3 -B -c 'import double; assert double.double(2) == 4'";

fn edit(old: &str, new: &str) -> String {
    turn(json!({ "tool": "edit_file", "path": "double.py", "old": old, "new": new }))
}

fn check() -> String {
    turn(json!({ "tool": "run_commands", "command": CHECK }))
}

fn answer() -> String {
    turn(json!({ "tool": "answer", "text": "double(2) returns 4." }))
}

/// The messages of a request after the system prompt.
fn messages(request: &Value) -> &[Value] {
    &request["messages"].as_array().expect("messages")[1..]
}

#[test]
fn a_small_model_whose_command_keeps_failing_starts_over() {
    let model = server(1_500_000_000)
        .text(&edit("return n", "return n + n + n"))
        .text(&check())
        .text(&edit("n + n + n", "n ** 3"))
        .text(&check())
        .text(&edit("n ** 3", "n - 1"))
        .text(&check())
        .text(&edit("return n", "return 2 * n"))
        .text(&check())
        .text(&answer())
        .start();
    let call = agent().file("double.py", PROGRAM).endpoint(&model);
    let finished = call.args(["run", PROMPT, "--json", "--apply"]).run().expect_code(0);
    let event = &finished.events_of("started_over")[0];
    assert_eq!((&event["prompt"], &event["attempt"]), (&json!(1), &json!(2)));
    let requests = model.chat_requests();
    // Conversation and workspace are as they were, and another answer is asked for.
    assert_eq!(messages(&requests[6]), messages(&requests[0]));
    let temperature = |at: usize| requests[at]["temperature"].as_f64().expect("a temperature");
    assert!(temperature(6) > temperature(0), "{}", requests[6]);
    assert_eq!(finished.host_file("double.py").as_deref(), Some("def double(n):\n    return 2 * n\n"));
    // A discarded attempt is not resumed.
    let id = event["session"].as_str().expect("a session").to_owned();
    let later = server(1_500_000_000).text(&answer()).start();
    finished.again().endpoint(&later).args(["run", "--session", &id, "Thanks."]).run().expect_code(0);
    let resumed = later.chat_requests()[0].to_string();
    assert!(resumed.contains("2 * n") && !resumed.contains("n ** 3"), "{resumed}");
}

#[test]
fn a_small_model_that_does_not_correct_what_a_check_fails_at_starts_over() {
    let run_it = turn(json!({ "tool": "run_commands", "command": "python3 -B double.py" }));
    let edits =
        [("return n", "return 3 * n"), ("3 * n", "4 * n"), ("4 * n", "5 * n"), ("return n", "return 2 * n")];
    let model = edits.iter().fold(server(1_500_000_000), |model, (old, new)| {
        model.text(&edit(old, new)).text(&run_it).text(&answer())
    });
    let model = model.start();
    let call = agent().file("double.py", PROGRAM).endpoint(&model);
    let finished = call.args([
        "run",
        "Change double.py so that double(2) returns 4.",
        "--json",
        "--apply",
        "--check",
        CHECK,
        "--check-attempts",
        "4",
    ]);
    let finished = finished.run().expect_code(0);
    assert_eq!(finished.events_of("started_over").len(), 1);
    assert!(last_text(&model.chat_requests()[3]).starts_with("The check of the task fails"));
    assert_eq!(finished.host_file("double.py").as_deref(), Some("def double(n):\n    return 2 * n\n"));
}

#[test]
fn a_large_model_keeps_what_it_knows_of_its_failures() {
    let check = json!({ "command": CHECK });
    let model = endpoint()
        .tool_call("run_commands", check.clone())
        .tool_call("run_commands", check.clone())
        .tool_call("run_commands", check)
        .text("It returns 2.")
        .start();
    let call = agent().file("double.py", PROGRAM).endpoint(&model);
    let finished = call.args(["run", PROMPT, "--json"]).run().expect_code(0);
    assert!(finished.events_of("started_over").is_empty());
}

#[test]
fn what_was_done_before_the_prompt_stays() {
    let note = json!({ "tool": "write_file", "path": "note.txt", "content": "kept" });
    let first = server(1_500_000_000).text(&turn(note)).text(&answer()).start();
    let call = agent().file("double.py", PROGRAM).endpoint(&first);
    let finished = call.args(["run", "Write note.txt.", "--json"]).run().expect_code(0);
    let id = finished.events_of("session_started")[0]["session"].as_str().expect("a session").to_owned();
    let model = server(1_500_000_000)
        .text(&edit("return n", "return n * 1"))
        .text(&check())
        .text(&edit("n * 1", "n - 0"))
        .text(&check())
        .text(&edit("n - 0", "+n"))
        .text(&check())
        .text(&edit("return n", "return 2 * n"))
        .text(&check())
        .text(&answer())
        .start();
    let call = finished.again().endpoint(&model);
    let finished = call.args(["run", "--session", &id, PROMPT, "--json", "--apply"]).run().expect_code(0);
    assert_eq!(finished.events_of("started_over")[0]["prompt"], 2);
    assert_eq!(finished.host_file("note.txt").as_deref(), Some("kept"));
    assert_eq!(finished.host_file("double.py").as_deref(), Some("def double(n):\n    return 2 * n\n"));
}

#[test]
fn at_its_last_turn_and_in_the_users_own_directory_the_work_is_kept() {
    let failing = || {
        server(1_500_000_000)
            .text(&edit("return n", "return 3 * n"))
            .text(&check())
            .text(&edit("3 * n", "5 * n"))
            .text(&check())
            .text(&edit("5 * n", "7 * n"))
            .text(&check())
            .text(&answer())
            .text(&answer())
            .start()
    };
    let run = |more: &[&str]| {
        let model = failing();
        let call = agent().file("double.py", PROGRAM).endpoint(&model);
        call.args(["run", PROMPT, "--json"]).args(more).run()
    };
    let limited = run(&["--max-turns", "6"]).expect_code(5);
    assert!(limited.events_of("started_over").is_empty());
    let bound = run(&["--workspace-mode", "bind"]);
    assert!(bound.events_of("started_over").is_empty());
    assert_eq!(bound.host_file("double.py").as_deref(), Some("def double(n):\n    return 7 * n\n"));
}

#[test]
fn a_small_model_starts_over_twice_at_most() {
    let rounds = (0..3).fold(server(1_500_000_000), |model, _| {
        let model = model.text(&edit("return n", "return 3 * n")).text(&check());
        let model = model.text(&edit("3 * n", "5 * n")).text(&check());
        model.text(&edit("5 * n", "7 * n")).text(&check())
    });
    let model = rounds.text(&answer()).text(&answer()).text(&answer()).start();
    let call = agent().file("double.py", PROGRAM).endpoint(&model);
    let finished = call.args(["run", PROMPT, "--json"]).run();
    assert_eq!(finished.events_of("started_over").len(), 2);
}
