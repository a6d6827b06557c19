//! `agent` at a terminal where nothing is configured: an endpoint and a model are picked from what this machine has.

use crate::support::endpoint::{Endpoint, endpoint};
use crate::support::terminal::terminal;
use std::fs;
use std::net::TcpListener;

const MODELS: &str = r#"{"object":"list","data":[{"id":"small"},{"id":"large"}]}"#;
/// Servers of this machine and their usual ports; a test takes one that is free.
const SERVERS: [(&str, u16); 3] = [("litellm", 4000), ("lmstudio", 1234), ("vllm", 8000)];

/// A model server at its usual port, and its name.
fn local_server() -> (&'static str, Endpoint) {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let (name, port) =
        SERVERS.into_iter().find(|(_, port)| is_free(*port)).expect("one of the ports is free");
    (name, endpoint().port(port).models(200, MODELS).text("Hello.").text("Four.").start())
}

#[test]
fn a_server_of_this_machine_is_found_tried_and_kept_in_the_configuration() {
    let (name, model) = local_server();
    let builder = terminal();
    let config = builder.directory("agent").join("config/config.toml");
    let mut terminal = builder.again().start();
    terminal.wait_for("Which endpoint is to answer?");
    terminal.type_text(name);
    terminal.wait_for("2 models");
    terminal.type_text("\r");
    terminal.wait_for("Which model?");
    terminal.type_text("large\r");
    terminal.wait_for("large answers. Keep this in");
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
