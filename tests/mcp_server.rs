//! `agent mcp`: with the protocol's own client in both eras, and with hostile ones.

use crate::support::agent::{Agent, agent};
use crate::support::counterpart::{python, script};
use crate::support::rpc::{Server, answer, exchange, lines, send};
use serde_json::{Value, json};

fn driven(scenario: &str, mode: &str, call: Agent) {
    let Some(python) = python("protocols") else { return };
    let client = script("mcp_client.py");
    call.driven_by(&python).args([client.as_os_str(), scenario.as_ref(), mode.as_ref()]).run().expect_code(0);
}

#[test]
fn a_client_of_the_modern_era_uses_the_sandbox() {
    driven("tools", "auto", agent().file("old.txt", "before\n"));
}

#[test]
fn a_client_that_begins_with_initialize_uses_the_sandbox() {
    driven("tools", "legacy", agent().file("old.txt", "before\n"));
}

#[test]
fn an_apply_asks_the_user_of_a_modern_client() {
    driven("elicitation", "auto", agent());
}

#[test]
fn an_apply_asks_the_user_of_a_client_that_began_with_initialize() {
    driven("elicitation", "legacy", agent());
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({ "name": tool, "arguments": arguments }))
}

#[test]
fn what_is_not_a_message_is_answered_with_an_error_and_the_next_one_is_read() {
    let mut input = b"{]\n[]\n\xff\n".to_vec();
    input.extend(lines(&[request(7, "ping", json!({}))]).into_bytes());
    let answers = send(&["mcp"], input, 4);
    assert_eq!(answer(&answers, 7)["result"], json!({}));
    assert_eq!(answers.iter().filter(|answer| answer["error"].is_object()).count(), 3);
}

#[test]
fn tools_and_arguments_that_do_not_exist_are_refused_by_name() {
    let modern = |version: &str| {
        json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    } })
    };
    let input = lines(&[
        call(1, "no_such_tool", json!({})),
        call(2, "execute", json!({ "command": "true" })),
        request(3, "tools/call", json!({ "name": "diff", "arguments": [] })),
        request(4, "no/such/method", json!({})),
        request(5, "tools/list", modern("1999-01-01")),
        request(6, "server/discover", modern("2026-07-28")),
    ]);
    let answers = send(&["mcp"], input, 6);
    for (id, code) in [(1, -32602), (2, -32602), (3, -32602), (4, -32601), (5, -32022)] {
        assert_eq!(answer(&answers, id)["error"]["code"], code, "{answers:?}");
    }
    assert_eq!(answer(&answers, 6)["result"]["resultType"], "complete");
}

#[test]
fn the_list_of_tools_is_the_same_each_time_and_starts_nothing() {
    let call = agent();
    let sessions = call.home("data");
    let list = lines(&[request(1, "tools/list", json!({}))]);
    let first = exchange(call, &["mcp", "--tools", "all"], &list, 1);
    assert_eq!(first, send(&["mcp", "--tools", "all"], &list, 1));
    assert!(!sessions.join("sessions").exists());
}

#[test]
fn files_outside_of_the_sandbox_cannot_be_written_or_read() {
    let secret = tempfile::tempdir().unwrap();
    let path = secret.path().join("secret");
    std::fs::write(&path, "secret of the host").unwrap();
    let up = format!("/workspace/../../../../../../..{}", path.display());
    let input = lines(&[
        call(1, "download", json!({ "paths": [path, up] })),
        call(2, "write_file", json!({ "path": up, "data": "overwritten" })),
        call(3, "upload", json!({ "files": [{ "path": path, "data": "eA==" }] })),
    ]);
    let answers = send(&["mcp", "--tools", "all"], input, 3);
    assert!(!answer(&answers, 1).to_string().contains("c2VjcmV0"), "{answers:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "secret of the host");
}

#[test]
fn more_sandboxes_than_the_limit_are_refused() {
    let many: Vec<Value> =
        (0..40).map(|id| call(id, "network", json!({ "sandbox": format!("number {id}") }))).collect();
    let answers = send(&["mcp", "--tools", "all"], lines(&many), many.len());
    let refused = answers.iter().filter(|answer| answer.to_string().contains("which is the limit")).count();
    assert_eq!(refused, 8, "{answers:?}");
}

#[test]
fn a_cancelled_call_is_killed_and_the_next_one_runs() {
    let mut server = Server::start(agent(), &["mcp", "--tools", "all"]);
    server.send(lines(&[call(1, "execute", json!({ "command": "touch started; sleep 600" }))]).as_bytes());
    let wait = "while [ ! -e started ]; do sleep 0.05; done; echo ready";
    server.send(lines(&[call(2, "execute", json!({ "command": wait }))]).as_bytes());
    assert_eq!(server.answers(1)[0]["id"], 2);
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    let gone = "while pgrep -x sleep; do sleep 0.05; done; echo gone";
    server.send(lines(&[cancel, call(3, "execute", json!({ "command": gone }))]).as_bytes());
    let answer = server.answers(1).remove(0);
    assert_eq!(answer["id"], 3, "{answer}");
    assert_eq!(server.end(), 0);
}

#[test]
fn what_a_client_has_done_is_in_the_session_and_is_applied_later() {
    let call_of = agent();
    let again = call_of.again();
    let workspace = call_of.workspace().to_owned();
    let input = lines(&[call(1, "write_file", json!({ "path": "new.txt", "data": "hello\n" }))]);
    exchange(call_of, &["mcp"], input, 1);
    let shown = again.again().args(["diff"]).run().expect_code(0);
    assert!(shown.stdout.contains("new.txt"), "{}", shown.stdout);
    again.args(["apply", "--yes"]).run().expect_code(0);
    assert_eq!(std::fs::read_to_string(workspace.join("new.txt")).unwrap(), "hello\n");
}
