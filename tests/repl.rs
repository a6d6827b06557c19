//! The REPL, as a person at a terminal meets it.

use crate::support::endpoint::{Endpoint, endpoint};
use crate::support::terminal::{Terminal, terminal};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

fn start(endpoint: &Endpoint) -> Terminal {
    let terminal = terminal().endpoint(endpoint).start();
    terminal.wait_for_prompt();
    terminal
}

#[test]
fn a_wish_is_answered_as_it_is_written_and_ctrl_d_leaves() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo inside; exit 3" }))
        .text("# Done\n\nIt said **inside**.\n\n- one\n- two\n")
        .pieces(7)
        .pace(Duration::from_millis(5))
        .start();
    let mut terminal = start(&model);
    assert!(terminal.screen().contains("/help"), "{}", terminal.screen());
    terminal.type_line("say something");
    terminal.wait_for("[DEBUG] run_commands called with command: echo inside; exit 3");
    terminal.wait_for("[DEBUG] run_commands result: exit 3 in");
    terminal.wait_for("It said inside.\n\n• one\n• two\n");
    terminal.wait_for_prompt();
    assert!(
        !terminal.screen().contains("**") && !terminal.screen().contains("thinking"),
        "{}",
        terminal.screen()
    );
    terminal.ctrl_d();
    assert_eq!(terminal.wait().exit_code(), 0);
}

#[test]
fn ctrl_c_stops_a_command_and_the_session_goes_on() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo started; sleep 1000" }))
        .text("Still here.")
        .start();
    let mut terminal = start(&model);
    terminal.type_line("wait for long");
    terminal.wait_for("running echo started");
    terminal.wait_for("│ started");
    terminal.ctrl_c();
    terminal.wait_for("stopped; the session goes on");
    terminal.wait_for_prompt();
    terminal.type_line("and now?");
    terminal.wait_for("Still here.");
    let messages = model.requests()[1].messages();
    assert_eq!(messages[messages.len() - 2]["role"], "tool", "the stopped call has its answer: {messages:?}");
    terminal.wait_for_prompt();
    terminal.ctrl_d();
    assert_eq!(terminal.wait().exit_code(), 0);
}

#[test]
fn ctrl_c_stops_an_answer_and_keeps_what_was_shown() {
    let model = endpoint()
        .text("A first paragraph.\n\nA second one that never")
        .after(400)
        .stall(Duration::from_secs(1000))
        .text("Later.")
        .start();
    let mut terminal = start(&model);
    terminal.type_line("talk");
    terminal.wait_until("the request", |screen| screen.contains("thinking") || screen.contains("writing"));
    terminal.ctrl_c();
    terminal.wait_for("stopped; the session goes on");
    terminal.wait_for_prompt();
    terminal.type_line("go on");
    terminal.wait_for("Later.");
}

#[test]
fn ctrl_c_at_the_prompt_clears_the_line_and_twice_says_how_to_leave() {
    let mut terminal = start(&endpoint().start());
    terminal.type_text("half a wish");
    terminal.wait_for("half a wish");
    terminal.ctrl_c();
    terminal.wait_for_prompt();
    assert!(!terminal.screen().contains("Ctrl-D or /exit leaves"));
    terminal.ctrl_c();
    terminal.wait_for("Ctrl-D or /exit leaves");
    terminal.type_line("/exit");
    assert_eq!(terminal.wait().exit_code(), 0);
}

#[test]
fn an_exclamation_mark_runs_a_command_in_the_sandbox_with_live_output() {
    let mut terminal = start(&endpoint().start());
    terminal.type_line("!printf 'a\\033]0;title\\007b\\n'; exit 7");
    terminal.wait_for("\nab\nexit 7 in");
    terminal.wait_for_prompt();
    terminal.type_line("!echo run'ning'; sleep 1000");
    terminal.wait_for("\nrunning");
    terminal.ctrl_c();
    terminal.wait_for("stopped; the session goes on");
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(!raw.contains("\x1b]0;title"), "no title may be set");
}

#[test]
fn slash_commands_are_listed_completed_and_corrected() {
    let models = json!({ "object": "list", "data": [{ "id": "other" }, { "id": "test-model" }] }).to_string();
    let model = endpoint().text("Hello.").models(200, models).start();
    let mut terminal = start(&model);
    terminal.type_line("/help");
    terminal.wait_for("/model [NAME]");
    terminal.type_line("/modle");
    terminal.wait_for("did you mean /model?");
    terminal.type_text("/us\t");
    terminal.wait_for("› /usage");
    terminal.type_text("\r");
    terminal.wait_for("0 turn(s), 0 tokens in, 0 out");
    terminal.type_line("/model");
    terminal.wait_for("* test-model");
    terminal.type_line("/model other");
    terminal.wait_for("the model is other from now on");
    terminal.type_line("hi");
    terminal.wait_for("Hello.");
    assert_eq!(model.chats()[0]["model"], "other");
}

#[test]
fn input_may_have_several_lines_and_is_remembered_privately() {
    let model = endpoint().text("ok").for_ever().start();
    let mut terminal = start(&model);
    terminal.type_line("first \\");
    terminal.type_line("second");
    terminal.wait_for("ok");
    terminal.wait_for_prompt();
    terminal.type_line("```");
    terminal.type_line("code");
    terminal.type_line("```");
    terminal.wait_until("the second answer", |screen| screen.matches("\nok\n").count() == 2);
    terminal.wait_for_prompt();
    terminal.type_text("\x1b[200~pasted\nlines\x1b[201~\r");
    terminal.wait_until("the third answer", |screen| screen.matches("\nok\n").count() == 3);
    let wishes: Vec<_> = model
        .requests()
        .iter()
        .filter_map(|request| Some(request.messages().last()?["content"].clone()))
        .collect();
    assert_eq!(wishes, ["first \nsecond", "```\ncode\n```", "pasted\nlines"]);
    let history = terminal.root().join("agent/data/history");
    let mode = std::fs::metadata(&history).expect("a history").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(std::fs::read_to_string(history).expect("a history").contains("second"));
}

#[test]
fn a_terminated_repl_leaves_the_terminal_as_it_was() {
    let mut terminal = start(&endpoint().start());
    terminal.signal(libc::SIGTERM);
    assert_eq!(terminal.wait().exit_code(), 143);
}
