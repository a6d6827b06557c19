//! Output that cannot be written: a closed terminal, a full disk. No panic, and the right exit code.

use agent::log::Store;
use agent_testbed::agent::agent;
use agent_testbed::terminal::{Terminal, terminal};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

/// Closes the window: the program ends like a terminated one, and its session and sandbox with it.
#[track_caller]
fn ends_when_the_window_is_closed(mut terminal: Terminal) {
    terminal.hang_up();
    assert_eq!(terminal.wait(), 143);
    let data = terminal.root().join("agent/data");
    let store = Store::at(&data);
    let ids = store.ids().expect("the sessions");
    let text = fs::read_to_string(store.events(&ids[0])).expect("the session's file");
    let last: Value = serde_json::from_str(text.lines().last().expect("a last line")).expect("an event");
    assert_eq!(
        (&last["type"], &last["status"]),
        (&json!("session_finished"), &json!("terminated")),
        "{text}"
    );
    assert_eq!(fs::read_dir(data.join("sandboxes")).map_or(0, Iterator::count), 0, "the sandbox is gone");
}

#[test]
fn a_closed_window_ends_a_command_of_the_repl() {
    let command = "while true; do echo busy; sleep 0.01; done";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("│ busy");
    ends_when_the_window_is_closed(terminal);
}

#[test]
fn a_closed_window_ends_a_run() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "echo busy; sleep 1000" })).start();
    let terminal = terminal().endpoint(&model).args(["run", "go"]).start();
    terminal.wait_for("│ busy");
    ends_when_the_window_is_closed(terminal);
}

#[test]
fn a_closed_window_ends_the_prompt_and_a_shell_command() {
    let mut terminal = terminal().endpoint(&endpoint().start()).start();
    terminal.wait_for_prompt();
    terminal.type_line("!while true; do echo bu'sy'; sleep 0.01; done");
    terminal.wait_for("\nbusy\n");
    ends_when_the_window_is_closed(terminal);
    let terminal = agent_testbed::terminal::terminal().endpoint(&endpoint().start()).start();
    terminal.wait_for_prompt();
    ends_when_the_window_is_closed(terminal);
}

/// Changes since the last prompt were lost with the sandbox.
#[test]
fn changes_by_a_shell_command_are_kept_when_the_window_is_closed() {
    let mut terminal = terminal().endpoint(&endpoint().start()).start();
    terminal.wait_for_prompt();
    terminal.type_line("!echo work > w.txt; echo do'ne'");
    terminal.wait_for("\ndone\n");
    terminal.wait_for_prompt();
    terminal.hang_up();
    assert_eq!(terminal.wait(), 143);
    let store = Store::at(terminal.root().join("agent/data"));
    let ids = store.ids().expect("the sessions");
    let text = fs::read_to_string(store.events(&ids[0])).expect("the session's file");
    let last: Value = serde_json::from_str(text.lines().last().expect("a last line")).expect("an event");
    assert_eq!(last["changes"]["added"], 1, "{text}");
    assert!(text.contains("1 file added, 0 modified, 0 deleted; nothing is written yet"), "{text}");
}

#[test]
fn a_closed_window_answers_no_question() {
    let model =
        endpoint().tool_call("write_file", json!({ "path": "a.txt", "data": "new" })).text("Done.").start();
    let terminal = terminal().endpoint(&model).args(["run", "go"]).start();
    terminal.wait_for("Apply? [yes/no/each]");
    ends_when_the_window_is_closed(terminal);
}

#[test]
fn a_full_disk_behind_stderr_changes_no_exit_code() {
    let model =
        endpoint().tool_call("write_file", json!({ "path": "a.txt", "data": "new" })).text("ok").start();
    let base = agent().endpoint(&model);
    let call = |arguments: &[&str]| base.again().endpoint(&model).args(arguments).stderr_full().run();
    call(&["run", "go"]).expect_code(0);
    call(&["apply", "--yes"]).expect_code(0);
    call(&["undo"]).expect_code(0);
    call(&["run", "--max-turns", "0", "go"]).expect_code(2);
    call(&["exec", "--timeout", "1s", "--", "sleep", "100"]).expect_code(124);
    call(&["exec", "--session", "nope", "--", "true"]).expect_code(125);
}

#[test]
fn a_full_disk_behind_stdout_is_a_failure() {
    let model = endpoint().start();
    let base = agent();
    for arguments in [&["doctor"][..], &["models"], &["completions", "bash"], &["sessions", "list", "--json"]]
    {
        let full = base.again().endpoint(&model).args(arguments).stdout_full().run().expect_code(1);
        assert!(full.stderr.contains("the output could not be written"), "{}", full.stderr);
        let closed = base.again().endpoint(&model).args(arguments).run_with_closed_stdout();
        assert_eq!(closed.stderr, "", "{arguments:?}");
    }
}

#[test]
fn a_closed_window_ends_a_command_without_a_session() {
    let command = "while true; do echo busy; sleep 0.01; done";
    let mut terminal = terminal().args(["exec", "--", "sh", "-c", command]).start();
    terminal.wait_for("busy\nbusy");
    terminal.hang_up();
    assert_eq!(terminal.wait(), 143);
    for left in ["sandboxes", "scratch"] {
        let left = fs::read_dir(terminal.root().join("agent/data").join(left));
        assert_eq!(left.map_or(0, Iterator::count), 0);
    }
}

#[test]
fn under_nohup_a_closed_window_ends_nothing() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "sleep 1" })).text("ok").start();
    let running = agent().endpoint(&model).args(["run", "--json", "go"]).nohup().start();
    let deadline = Instant::now() + Duration::from_secs(60);
    while model.chat_requests().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal(libc::SIGHUP);
    let finished = running.wait().expect_code(0);
    assert_eq!(finished.events_of("session_finished")[0]["status"], "completed");
}
