//! Tests of the scripts in `examples/`.

#[allow(dead_code)] // its `main`
#[path = "../../examples/library.rs"]
mod library;

use agent::log::Store;
use agent::model::Endpoint;
use agent::session::{Builder, ModelSettings};
use agent_testbed::agent::agent;
use agent_testing::endpoint::endpoint;
use agent_testing::machine;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Runs `examples/ci/agent.sh` in a workspace with one file, against a model that fixes it.
fn script(check: &str) -> (i32, String, String) {
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "state", "data": "fixed\n" }))
        .text("It is fixed.")
        .repeat_last()
        .start();
    let place = agent().file("state", "broken\n");
    let binary = Path::new(env!("CARGO_BIN_EXE_agent")).parent().expect("a directory");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let done = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/ci/agent.sh"))
        .args(["fix the state", check])
        .current_dir(place.workspace())
        .env_clear()
        .env("PATH", path)
        .env("AGENT_HOME", place.home(""))
        .env("AGENT_SANDBOX", "local")
        .env("AGENT_BASE_URL", model.url())
        .env("AGENT_API_KEY", "key")
        .env("AGENT_MODEL", "model")
        .output()
        .expect("the script runs");
    let state = std::fs::read_to_string(place.workspace().join("state")).expect("the file");
    (done.status.code().unwrap_or(-1), String::from_utf8_lossy(&done.stdout).into_owned(), state)
}

#[test]
fn the_shell_script_applies_a_change_that_passed_its_check() {
    let (code, stdout, state) = script("grep -q fixed state");
    assert_eq!((code, stdout.as_str(), state.as_str()), (0, "done: It is fixed.\n", "fixed\n"));
}

#[test]
fn the_shell_script_writes_nothing_if_the_check_fails() {
    let (code, stdout, state) = script("false");
    assert_eq!(
        (code, stdout.as_str(), state.as_str()),
        (6, "the check did not pass: nothing was written\n", "broken\n")
    );
}

#[tokio::test]
async fn the_library_example_answers_with_a_tool_of_its_own() {
    let model = endpoint().tool_call("free_port", json!({})).text("That port is free.").start();
    let (workspace, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = ModelSettings::openai(Endpoint::new(&model.url(), "model").unwrap()).unwrap();
    let mut builder = Builder {
        store: Store::at(kept.path()),
        ..Builder::new(machine(), workspace.path(), settings).unwrap()
    };
    builder.tools.add(Arc::new(library::FreePort)).unwrap();
    let answer = builder.answer("which port is free?").await;
    assert_eq!(answer.unwrap(), "That port is free.");
    let messages = model.requests()[1].messages();
    let result = messages.last().unwrap()["content"].as_str().unwrap();
    assert!(result.starts_with("port "), "{result}");
    let records = std::fs::read_dir(kept.path().join("sessions")).unwrap().count();
    assert_eq!(records, 1, "the session is kept");
}
