//! `agent mcp`: with the protocol's own client in both eras, and with hostile ones.

use crate::support::rpc::{Server, answer, exchange, lines, send};
use agent_testbed::agent::{Agent, DEADLINE, agent};
use agent_testing::counterpart::{python, script};
use agent_testing::hostile_text::{assert_harmless, hostile_text, octal};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

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

/// The names and contents that programs in the sandbox wrote, in the question that a client shows to its user.
#[test]
fn attack_74_the_question_to_a_clients_user_has_no_hostile_text_as_it_is() {
    let mut server = Server::start(agent(), &["mcp", "--tools", "all"]);
    let make = format!("printf '{0}\\n' > \"$(printf '{0}')\"", octal());
    server.send(lines(&[call(1, "execute", json!({ "command": make }))]).as_bytes());
    server.answers(1);
    let able = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let apply = json!({ "name": "apply", "arguments": {}, "_meta": able });
    server.send(lines(&[request(2, "tools/call", apply)]).as_bytes());
    let question = server.answers(1).remove(0);
    let asked = &question["result"]["inputRequests"]["agree"]["params"]["message"];
    assert_harmless("the question", asked.as_str().unwrap_or_default());
    let network = json!({ "name": "network", "arguments": { "allow": [hostile_text()] }, "_meta": able });
    server.send(lines(&[request(3, "tools/call", network)]).as_bytes());
    let refused = server.answers(1).remove(0);
    assert!(refused["result"].get("inputRequests").is_none(), "{refused}");
    assert_eq!(server.end(), 0);
}

/// The next request of the server for its client.
fn asked(server: &mut Server) -> Value {
    loop {
        let message = server.next();
        if message["method"] == "elicitation/create" {
            return message;
        }
    }
}

/// A server whose client can ask its user, and the call that it was started with.
fn with_user() -> (Server, Agent) {
    let call = agent();
    let again = call.again();
    let mut server = Server::start(call, &["mcp", "--tools", "all"]);
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": { "name": "t", "version": "1" } });
    server.send(lines(&[request(1, "initialize", params)]).as_bytes());
    server.answers(1);
    (server, again)
}

fn agrees(asked: &Value) -> Value {
    let answer = json!({ "action": "accept", "content": { "agree": true } });
    json!({ "jsonrpc": "2.0", "id": asked["id"], "result": answer })
}

/// The question named files, and showed nothing of what is in them.
#[test]
fn attack_60_the_question_to_a_clients_user_shows_what_is_written() {
    let (mut server, _) = with_user();
    let make =
        "echo harmless > a.txt; echo C4NARY > b.txt; seq 1 20000 > c.txt; echo z > z.txt; chmod 755 z.txt";
    server.send(lines(&[call(2, "execute", json!({ "command": make }))]).as_bytes());
    server.answers(1);
    server.send(lines(&[call(3, "apply", json!({}))]).as_bytes());
    let question = asked(&mut server);
    let message = question["params"]["message"].as_str().expect("a message");
    assert!(
        message.contains("+harmless") && message.contains("+C4NARY") && message.contains("+1\n+2\n"),
        "{message}"
    );
    let (_, rest) = message.split_once("Not shown here, or not to the end:").expect("what is cut");
    assert!(
        rest.contains("+20000")
            && rest.contains("c.txt")
            && rest.contains("z.txt")
            && !rest.contains("a.txt"),
        "{rest}"
    );
    assert!(rest.contains("`agent diff ") && message.len() < 32 << 10, "{rest}");
    server.send(lines(&[agrees(&question)]).as_bytes());
    let applied = server.answers(1).remove(0);
    assert_eq!(applied["result"]["isError"], false, "{applied}");
    assert_eq!(server.end(), 0);
}

/// A part of the change that did not fit the question, and that was something else when the user looked for it.
#[test]
fn attack_60_what_a_user_looks_up_while_a_question_stands_is_what_is_written() {
    let (mut server, again) = with_user();
    let make = "seq 1 20000 > a.txt; echo C4NARY > tool.sh";
    server.send(lines(&[call(2, "execute", json!({ "command": make }))]).as_bytes());
    server.answers(1);
    for (id, swap, is_written) in [(3, "echo harmless > tool.sh", false), (5, "true", true)] {
        server.send(lines(&[call(id, "apply", json!({}))]).as_bytes());
        let question = asked(&mut server);
        server.send(lines(&[call(id + 1, "execute", json!({ "command": swap }))]).as_bytes());
        server.answers(1);
        let diff = again.again().args(["diff"]).run().expect_code(0).stdout;
        assert!(diff.contains("+harmless"), "{diff}");
        server.send(lines(&[agrees(&question)]).as_bytes());
        let applied = server.answers(1).remove(0);
        assert_eq!(applied["result"]["isError"], !is_written, "{applied}");
        assert_eq!(again.workspace().join("tool.sh").exists(), is_written);
    }
    assert_eq!(
        std::fs::read_to_string(again.workspace().join("tool.sh")).expect("it is there"),
        "harmless\n"
    );
    assert_eq!(server.end(), 0);
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

#[test]
fn what_a_client_has_done_is_not_lost_with_a_server_that_is_killed() {
    // Only `diff`, `apply`, `checkpoint` and the end of the server recorded anything.
    let call_of = agent();
    let again = call_of.again();
    let mut server = Server::start(call_of, &["mcp", "--tools", "all"]);
    let ways = [
        ("write_file", json!({ "path": "one.txt", "data": "1\n" })),
        ("run_commands", json!({ "command": "echo 2 > two.txt" })),
        ("execute", json!({ "command": "echo 3 > three.txt" })),
        ("upload", json!({ "files": [{ "path": "four.txt", "data": "NAo=" }] })),
    ];
    for (id, (tool, arguments)) in ways.into_iter().enumerate() {
        server.send(lines(&[call(id as u64, tool, arguments)]).as_bytes());
        server.answers(1);
    }
    // What came too soon after the last record is recorded a little later, without a further call.
    let started = Instant::now();
    loop {
        let shown = again.again().args(["diff"]).run();
        if ["one", "two", "three", "four"].iter().all(|name| shown.stdout.contains(&format!("{name}.txt"))) {
            break;
        }
        assert!(started.elapsed() < DEADLINE, "{}{}", shown.stdout, shown.stderr);
    }
    server.kill();
    let shown = again.args(["diff"]).run().expect_code(0);
    assert!(shown.stdout.contains("four.txt"), "{}", shown.stdout);
}

#[test]
fn a_fork_is_found_again_by_its_name() {
    let call_of = agent();
    let again = call_of.again();
    let input = [
        call(1, "write_file", json!({ "path": "new.txt", "data": "hello\n" })),
        call(2, "fork", json!({ "name": "second" })),
        call(3, "fork", json!({ "name": "second" })),
    ];
    let mut server = Server::start(call_of, &["mcp", "--tools", "all"]);
    let mut answers = Vec::new();
    for message in input {
        server.send(lines(&[message]).as_bytes());
        answers.extend(server.answers(1));
    }
    assert!(answer(&answers, 3).to_string().contains("there is a sandbox called"), "{answers:?}");
    assert_eq!(server.end(), 0);
    let read = call(4, "read_file", json!({ "path": "new.txt", "sandbox": "second" }));
    let session = call(5, "session", json!({ "sandbox": "second" }));
    let found = exchange(again, &["mcp", "--tools", "all"], lines(&[read, session]), 2);
    assert!(
        answer(&found, 4)["result"]["structuredContent"]["text"].to_string().contains("hello"),
        "{found:?}"
    );
    assert_eq!(
        answer(&found, 5)["result"]["structuredContent"]["session"],
        answer(&answers, 2)["result"]["structuredContent"]["session"]
    );
}

#[test]
fn a_signal_ends_a_server_whose_client_does_not_read() {
    // Answers to requests that are refused were awaited where signals were not seen.
    for arguments in [["mcp"], ["acp"]] {
        let (mut command, _root) = agent().args(arguments).into_command();
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("piped");
        let writer = std::thread::spawn(move || {
            // Until it takes no more, or is gone.
            while stdin.write_all(b"this is not a message\n").is_ok() {}
        });
        // Nobody reads; the answers fill its queue and the pipe when it has taken some thousand lines.
        wait_until_blocked(child.id());
        // SAFETY: the child is ours and not waited for yet, so the pid is still valid.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("waiting") {
                break status;
            }
            if started.elapsed() > DEADLINE {
                let _ = child.kill();
                panic!("{arguments:?} does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(143), "{arguments:?}");
        writer.join().expect("the writer ends with its reader");
    }
}

/// Waits until a process has read nothing for a while.
fn wait_until_blocked(pid: u32) {
    let read = || {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("it runs");
        io.lines().find(|line| line.starts_with("rchar")).map(str::to_owned)
    };
    let (started, mut last) = (Instant::now(), None);
    loop {
        let now = read();
        if now == last && now.is_some() {
            return;
        }
        last = now;
        assert!(started.elapsed() < DEADLINE, "it goes on reading");
        std::thread::sleep(Duration::from_secs(2));
    }
}

#[test]
fn rules_hooks_and_the_replacement_of_secrets_apply_to_the_tools_of_programs() {
    // They applied to the tools of the model alone.
    let config = "[policy.deny.no-push]\ncommands = [\"git push\"]\n[policy.deny.no-eval]\npython = { builtins = [\"eval\"] }\n\
                  [[hooks]]\nevent = \"before_tool\"\ntools = [\"download\"]\nwhere = \"host\"\n\
                  command = \"grep -q forbidden && { echo not this one >&2; exit 2; }\"\n";
    let call_of = agent().config(config);
    let again = call_of.again();
    // The command does not have it in one piece.
    let random = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    let token = format!("ghp_{random}");
    let input = [
        call(1, "execute", json!({ "command": "git push origin" })),
        call(2, "upload", json!({ "files": [{ "path": "a.py", "data": "ZXZhbCgiMSIp" }] })),
        call(3, "download", json!({ "paths": ["forbidden.txt"] })),
        call(
            4,
            "execute",
            json!({ "command": format!("printf 'ghp_%s' {random} | tee secret.txt; exit 3") }),
        ),
        call(5, "download", json!({ "paths": ["secret.txt"] })),
        call(6, "session", json!({})),
    ];
    let mut server = Server::start(call_of, &["mcp", "--tools", "all"]);
    let mut answers = Vec::new();
    for message in input {
        server.send(lines(&[message]).as_bytes());
        answers.extend(server.answers(1));
    }
    for (id, why) in [(1, "no-push"), (2, "no-eval"), (3, "not this one")] {
        let result = &answer(&answers, id)["result"];
        assert!(result["isError"] == true && result.to_string().contains(why), "{result}");
    }
    assert!(!answers.iter().any(|answer| answer.to_string().contains(&token)), "{answers:?}");
    assert_eq!(answer(&answers, 4)["result"]["structuredContent"]["exit_code"], 3);
    assert!(answer(&answers, 5).to_string().contains("it holds a secret (GitHub token)"), "{answers:?}");
    assert_eq!(server.end(), 0);
    let session = answer(&answers, 6)["result"]["structuredContent"]["session"].as_str().expect("an id");
    let shown = again.args(["sessions", "show", session]).run().expect_code(0);
    assert!(shown.stdout.contains("exit 3") && !shown.stdout.contains(&token), "{}", shown.stdout);
}

#[test]
fn a_diff_names_what_is_too_large_for_a_patch_and_shows_the_rest() {
    // One such file made the call fail for all.
    let run =
        call(1, "run_commands", json!({ "command": "truncate -s 70M large.bin; echo small > small.txt" }));
    let mut server = Server::start(agent(), &["mcp"]);
    let mut answers = Vec::new();
    for message in [run, call(2, "diff", json!({}))] {
        server.send(lines(&[message]).as_bytes());
        answers.extend(server.answers(1));
    }
    let result = &answer(&answers, 2)["result"];
    assert!(result["structuredContent"]["patch"].to_string().contains("+small"), "{answers:?}");
    assert!(
        result["content"][0]["text"].to_string().contains("too large for a patch: large.bin"),
        "{result}"
    );
}
