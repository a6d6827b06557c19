//! `agent acp`: with the protocol's own client, and with hostile ones.

use crate::support::agent::{Agent, agent};
use crate::support::counterpart::{python, script};
use crate::support::endpoint::{Endpoint, endpoint};
use crate::support::rpc::{Server, answer, exchange, lines, send};
use serde_json::{Value, json};

fn driven(scenario: &str, endpoint: &Endpoint, call: Agent) {
    let Some(python) = python("protocols") else { return };
    let client = script("acp_client.py");
    call.driven_by(&python)
        .endpoint(endpoint)
        .args([client.as_os_str(), scenario.as_ref()])
        .run()
        .expect_code(0);
}

#[test]
fn an_editor_is_asked_once_at_the_end_of_a_turn_and_the_changes_are_applied() {
    let endpoint = endpoint()
        .tool_call("write_file", json!({ "path": "new.txt", "data": "hello\n" }))
        .text("Done.")
        .start();
    driven("apply", &endpoint, agent());
}

#[test]
fn what_the_user_keeps_in_the_sandbox_is_written_by_the_slash_command() {
    let endpoint = endpoint()
        .tool_call("write_file", json!({ "path": "new.txt", "data": "hello\n" }))
        .text("Done.")
        .text("Nothing to do.")
        .start();
    driven("keep", &endpoint, agent());
}

#[test]
fn an_editor_that_offers_it_writes_the_files_and_its_unsaved_text_is_never_lost() {
    let edit = |old: &str, new: &str| json!({ "path": "old.txt", "old": old, "new": new });
    let endpoint = endpoint()
        .tool_call("edit_file", edit("before", "after"))
        .text("Done.")
        .tool_call("edit_file", edit("after", "later"))
        .text("Done.")
        .start();
    driven("in_editor", &endpoint, agent().file("old.txt", "before\n"));
}

#[test]
fn a_cancelled_prompt_is_answered_as_cancelled() {
    let endpoint = endpoint()
        .tool_call("run_commands", json!({ "command": "echo started; sleep 1; echo on; sleep 600" }))
        .tool_call("write_file", json!({ "path": "new.txt", "data": "hello\n" }))
        .text("Done.")
        .start();
    driven("cancel", &endpoint, agent());
}

#[test]
fn sessions_of_several_directories_run_in_one_process_and_are_listed_and_loaded() {
    let endpoint = endpoint().text("I am here.").repeat_last().start();
    driven("sessions", &endpoint, agent());
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

#[test]
fn what_is_not_a_message_is_answered_with_an_error_and_the_next_one_is_read() {
    let mut input = b"{]\n[]\n{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"initialize\"}\n\xff\xfe\n".to_vec();
    input.extend(lines(&[request(7, "initialize", json!({ "protocolVersion": 99 }))]).into_bytes());
    let answers = send(&["acp"], input, 5);
    assert_eq!(answer(&answers, 7)["result"]["protocolVersion"], 1);
    let errors: Vec<i64> = answers.iter().filter_map(|answer| answer["error"]["code"].as_i64()).collect();
    assert_eq!(errors, [-32700, -32600, -32600, -32700]);
}

#[test]
fn unknown_methods_sessions_and_relative_directories_are_refused_by_name() {
    let input = lines(&[
        request(1, "session/new", json!({ "cwd": "relative", "mcpServers": [] })),
        request(2, "session/new", json!({ "cwd": "/does/not/exist" })),
        request(3, "session/prompt", json!({ "sessionId": "nobody", "prompt": [] })),
        request(4, "no/such/method", json!({})),
        request(5, "session/load", json!({ "cwd": "/", "sessionId": "../../etc/passwd" })),
        request(6, "session/list", json!({ "cursor": "x" })),
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "nobody" } }),
        json!({ "jsonrpc": "2.0", "method": "no/such/notification" }),
        json!({ "jsonrpc": "2.0", "id": 99, "result": {} }),
        request(8, "initialize", json!(null)),
    ]);
    let answers = send(&["acp"], input, 7);
    for id in [1, 2, 3, 5, 6] {
        assert_eq!(answer(&answers, id)["error"]["code"], -32602, "{answers:?}");
    }
    assert_eq!(answer(&answers, 4)["error"]["code"], -32601);
    assert!(answer(&answers, 8)["result"]["agentCapabilities"].is_object());
}

#[test]
fn the_number_of_requests_that_are_worked_on_is_bounded() {
    let endpoint = endpoint().text("never").start();
    let many: Vec<Value> =
        (0..2_000).map(|id| request(id, "session/new", json!({ "cwd": "/does/not/exist" }))).collect();
    let answers = exchange(agent().endpoint(&endpoint), &["acp"], lines(&many), many.len());
    assert!(answers.iter().all(|answer| answer["error"].is_object()), "{answers:?}");
}

#[test]
fn a_client_that_vanishes_while_a_command_runs_leaves_no_sandbox() {
    let endpoint =
        endpoint().tool_call("run_commands", json!({ "command": "echo started; sleep 600" })).start();
    let call = agent().endpoint(&endpoint);
    let (cwd, again) = (call.workspace().to_owned(), call.again());
    let mut server = Server::start(call, &["acp"]);
    server.send(lines(&[request(1, "session/new", json!({ "cwd": cwd, "mcpServers": [] }))]).as_bytes());
    let session = server.answers(1)[0]["result"]["sessionId"].clone();
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "run it" }] });
    server.send(lines(&[request(2, "session/prompt", prompt)]).as_bytes());
    while !server.next().to_string().contains("tool_call") {}
    assert_eq!(server.end(), 0);
    let listed = again.args(["sandbox", "list", "--json"]).run().expect_code(0);
    let session = session.as_str().expect("an id");
    assert!(!listed.stdout.contains(session), "{}", listed.stdout);
}
