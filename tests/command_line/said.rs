//! What the user says in words where a question waits: a refusal with its reason, which the model gets.

use agent_testbed::terminal::terminal;
use agent_testing::endpoint::{Endpoint, endpoint};
use agent_testing::site::Site;
use serde_json::json;

/// The results that the model has got.
fn results(model: &Endpoint) -> String {
    let last = model.last().messages();
    let results = last.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].to_string()).collect()
}

#[test]
fn what_is_said_about_a_command_is_the_reason_of_its_refusal() {
    for columns in [80, 120] {
        let model = endpoint()
            .tool_call("run_commands", json!({ "command": "echo ran > made.txt" }))
            .text("I write a helper.")
            .start();
        let mut terminal = terminal().columns(columns).endpoint(&model).args(["--approve", "always"]).start();
        terminal.wait_for_prompt();
        terminal.type_line("do it");
        terminal.wait_for("Allow? [yes/no/always]");
        terminal.type_line("x");
        terminal.wait_for("\"x\" is none of the answers:");
        terminal.wait_for("n  no: refused; what you say in words goes to the model");
        terminal.type_line("no, use a helper function");
        terminal.wait_for("I write a helper.");
        terminal.wait_for_prompt();
        let said = results(&model);
        assert!(said.contains("the user refused it and said: no, use a helper function"), "{said}");
        terminal.type_line("!ls");
        terminal.wait_for("exit 0");
        assert!(!terminal.screen().contains("\nmade.txt"), "{}", terminal.screen());
    }
}

/// Programs try again and again: one answer holds until the model has it.
#[test]
fn what_is_said_about_a_host_goes_to_the_model_and_holds_for_the_call() {
    let (named, other) = (Site::http(), Site::http().file("/", "welcome\n"));
    let fetch = format!("curl -s http://{0}/; curl -s http://{0}/; echo end", other.host_and_port());
    let call = || json!({ "command": fetch });
    let model = endpoint()
        .tool_call("run_commands", call())
        .tool_call("run_commands", call())
        .text("I take the mirror.")
        .start();
    let mut terminal = terminal().args(["--network", &named.host_and_port()]).endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("fetch it");
    terminal.wait_for("[once/session/project/never]");
    terminal.type_line("no, use the mirror");
    terminal.wait_until("the question of the next call", |screen| screen.matches("Allow it?").count() == 2);
    let said = results(&model);
    assert!(said.contains("the user refused it and said: no, use the mirror"), "{said}");
    terminal.type_line("session");
    terminal.wait_for("I take the mirror.");
    terminal.wait_for_prompt();
    assert_eq!(terminal.screen().matches("Allow it?").count(), 2);
    assert_eq!(other.connections(), 2, "both of the second call");
}

#[test]
fn what_is_said_about_a_hunk_is_the_reason_of_its_refusal() {
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "a.txt", "data": "new\n" }))
        .text("Written.")
        .text("Renamed.")
        .start();
    let mut terminal = terminal().file("a.txt", "old\n").endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("write it");
    terminal.wait_for("Written.");
    terminal.wait_for_prompt();
    terminal.type_line("/apply -i");
    terminal.wait_for("Apply this hunk (1/1)?");
    terminal.type_line("this name is taken already");
    terminal.wait_for("Renamed.");
    let prompt = model.last().messages().pop().expect("a prompt")["content"].to_string();
    assert!(prompt.contains("this name is taken already"), "{prompt}");
}
