//! MCP servers elsewhere, over HTTP from this machine: both eras, and those that are hostile or broken.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testing::endpoint::{Endpoint, endpoint};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child as Process, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A scripted server on this machine, and the requests that it got.
struct Remote {
    process: Process,
    port: u16,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Remote {
    fn start(mode: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers/mcp_servers/over_http.py");
        let mut process =
            Command::new("python3").args([script, mode]).stdout(Stdio::piped()).spawn().expect("python3");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().parse().unwrap();
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&requests);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self { process, port, requests }
    }

    fn configured(&self, more: &str) -> Agent {
        agent().env("REMOTE_TOKEN", "secret-token").config(&format!(
            "[mcp.servers.h]\nurl = \"http://127.0.0.1:{}/mcp\"\nbearer_token_env_var = \"REMOTE_TOKEN\"\n{more}\n",
            self.port
        ))
    }

    fn requests(&self, method: &str) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request["method"] == method).cloned().collect()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn calls(tools: &[&str]) -> Endpoint {
    let script = tools.iter().enumerate().fold(endpoint(), |script, (n, tool)| {
        script.tool_call(&format!("mcp__h__{tool}"), json!({ "n": n }))
    });
    script.text("Done.").start()
}

fn run(call: Agent, model: &Endpoint) -> Finished {
    call.endpoint(model).args(["run", "--json", "use the tools"]).run().expect_code(0)
}

fn results(model: &Endpoint) -> Vec<String> {
    model.requests()[1..]
        .iter()
        .map(|request| request.messages().last().unwrap()["content"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_server_elsewhere_is_spoken_to_in_its_era() {
    let remote = Remote::start("modern");
    let model = calls(&["echo"]);
    let finished = run(remote.configured(""), &model);
    assert_eq!(results(&model), ["{\"n\": 0}"]);
    let asked = remote.requests("tools/call");
    let headers = &asked[0]["headers"];
    let names = ["mcp-protocol-version", "mcp-method", "mcp-name", "authorization"];
    let sent: Vec<&str> = names.iter().map(|name| headers[name].as_str().unwrap_or_default()).collect();
    assert_eq!(sent, ["2026-07-28", "tools/call", "echo", "Bearer secret-token"]);
    assert!(remote.requests("initialize").is_empty());
    let connections = finished.events_of("connection");
    assert!(
        connections.iter().any(|event| event["port"] == remote.port && event["allowed"] == true),
        "{connections:?}"
    );
    assert!(!finished.stdout.contains("secret-token"));
}

#[test]
fn a_server_elsewhere_that_begins_with_initialize_has_a_session() {
    let remote = Remote::start("legacy");
    let model = calls(&["echo", "forget", "echo"]);
    let finished = run(remote.configured(""), &model);
    let results = results(&model);
    assert_eq!(results[0], "{\"n\": 0}");
    assert!(results[1].contains("its session has ended"), "{results:?}");
    assert_eq!(results[2], "{\"n\": 2}", "it begins anew");
    let asked = remote.requests("tools/call");
    assert_eq!(asked[0]["headers"]["mcp-session-id"], "the-session");
    assert_eq!(asked[0]["headers"]["mcp-protocol-version"], "2025-11-25");
    assert_eq!(remote.requests("notifications/initialized").len(), 2);
    let shown: String =
        finished.events_of("tool_output").iter().filter_map(|event| event["data"].as_str()).collect();
    assert!(shown.contains("on it"), "{shown:?}");
}

#[test]
fn a_server_elsewhere_that_breaks_off_floods_or_never_answers_costs_one_call() {
    let remote = Remote::start("modern");
    let model = calls(&["cut", "echo", "huge", "echo", "hang", "echo"]);
    run(remote.configured("timeout = \"10s\""), &model);
    let results = results(&model);
    assert!(results[0].contains("broke off"), "{results:?}");
    assert!(results[2].contains("longer than"), "{:.300}", results[2]);
    assert!(results[4].contains("did not answer within 10 s"), "{results:?}");
    assert_eq!([&results[1], &results[3], &results[5]], ["{\"n\": 1}", "{\"n\": 3}", "{\"n\": 5}"]);
}

#[test]
fn a_server_that_wants_a_login_or_redirects_is_reported_with_what_to_do() {
    for (mode, words) in [("locked", "agent mcp login h"), ("redirect", "status 307")] {
        let remote = Remote::start(mode);
        let model = endpoint().text("Without it.").start();
        let finished = run(remote.configured(""), &model);
        let notices = finished.events_of("notice");
        let has = |notice: &Value| notice["text"].as_str().unwrap().contains(words);
        assert!(notices.iter().any(has), "{mode}: {notices:?}");
        assert!(!finished.stdout.contains("secret-token"));
    }
    let model = endpoint().text("Without it.").start();
    let unset = agent()
        .config("[mcp.servers.h]\nurl = \"http://127.0.0.1:9/\"\nbearer_token_env_var = \"NOT_SET_HERE\"\n");
    let refused = unset.endpoint(&model).args(["run", "x"]).run().expect_code(2);
    assert!(refused.stderr.contains("NOT_SET_HERE is not set"), "{}", refused.stderr);
}
