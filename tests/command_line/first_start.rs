//! `agent` at a terminal where nothing is configured: an endpoint and a model are picked from what this machine has.

use agent_testbed::terminal::{Terminal, terminal};
use agent_testing::endpoint::{Endpoint, endpoint};
use std::fs;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const MODELS: &str = r#"{"object":"list","data":[{"id":"small"},{"id":"large"}]}"#;
/// Servers of this machine and their usual ports; a test takes one that is free.
const SERVERS: [(&str, u16); 3] = [("litellm", 4000), ("lmstudio", 1234), ("vllm", 8000)];

/// Held while a port is looked for and taken.
static LOOKING: Mutex<()> = Mutex::new(());

/// A model server at its usual port, and its name.
fn local_server(lists_after: Duration) -> (&'static str, Endpoint) {
    let _looking = LOOKING.lock().unwrap_or_else(PoisonError::into_inner);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let (name, port) =
        SERVERS.into_iter().find(|(_, port)| is_free(*port)).expect("one of the ports is free");
    let server = endpoint().port(port).models(200, MODELS).models_after(lists_after);
    (name, server.text("Hello.").text("Four.").start())
}

#[test]
fn a_server_of_this_machine_is_found_tried_and_kept_in_the_configuration() {
    let (name, model) = local_server(Duration::ZERO);
    let builder = terminal();
    let config = builder.directory("agent").join("config/config.toml");
    let mut terminal = builder.again().start();
    pick_large(&mut terminal, name);
    terminal.type_line("y");
    terminal.wait_for("For example:");
    terminal.wait_for_prompt();
    assert_eq!(fs::read_to_string(config).unwrap(), format!("provider = \"{name}\"\nmodel = \"large\"\n"));
    terminal.type_line("what is 2 + 2?");
    terminal.wait_for("\nFour.\n");
    assert_eq!(model.last().body["model"], "large");
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);

    let mut again = builder.start();
    again.wait_for_prompt();
    assert!(!again.screen().contains("Which endpoint"), "{}", again.screen());
    again.ctrl_d();
    again.wait();
}

/// As on a busy machine, where the list of models may take longer than a user should wait for one server of several.
#[test]
fn a_server_of_this_machine_that_is_slow_to_list_its_models_can_be_picked() {
    let (name, _model) = local_server(Duration::from_secs(3));
    let mut terminal = terminal().start();
    terminal.wait_for("has not answered yet");
    pick_large(&mut terminal, name);
}

/// Picks the server, which may be one of several, and one of its models.
fn pick_large(terminal: &mut Terminal, server: &str) {
    terminal.wait_for("Which endpoint is to answer?");
    terminal.type_text(&format!("{server}\r"));
    terminal.wait_for("Which model?");
    terminal.type_text("large\r");
    terminal.wait_for("large answers. Keep this in");
}

#[test]
fn the_model_of_a_named_endpoint_is_picked_from_those_that_it_offers() {
    let model = endpoint().models(200, MODELS).text("Here.").start();
    let mut terminal = terminal().env("AGENT_BASE_URL", model.url()).start();
    terminal.wait_for("Which model?");
    terminal.type_text("large\r");
    terminal.wait_for_prompt();
    terminal.type_line("there?");
    terminal.wait_for("\nHere.\n");
    assert_eq!(model.last().body["model"], "large");
}

#[test]
fn escape_starts_nothing_and_writes_nothing() {
    let model = endpoint().models(200, MODELS).start();
    let builder = terminal().env("AGENT_BASE_URL", model.url());
    let config = builder.directory("agent").join("config/config.toml");
    let mut terminal = builder.start();
    terminal.wait_for("Which model?");
    terminal.type_text("\x1b");
    assert_eq!(terminal.wait(), 130);
    assert!(!config.exists());
}
