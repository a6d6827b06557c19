//! `agent mcp login`: a browser, a code, refreshing, and a server that asks for it.

use agent_testbed::agent::{Agent, agent};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A server that wants a login, and what it got.
struct Remote {
    process: Child,
    port: u16,
    got: Arc<Mutex<Vec<Value>>>,
}

impl Remote {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers/mcp_servers/with_login.py");
        let mut process =
            Command::new("python3").arg(script).stdout(Stdio::piped()).spawn().expect("python3");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let port = lines.next().expect("a line").expect("text").parse().expect("a port");
        let got: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&got);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().push(serde_json::from_str(&line).expect("JSON"));
            }
        });
        Self { process, port, got }
    }

    fn configured(&self) -> Agent {
        agent().config(&format!("[mcp.servers.h]\nurl = \"http://127.0.0.1:{}/mcp\"\n", self.port))
    }

    fn post(&self, path: &str) {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let status = Command::new("curl").args(["-sSf", "-d", "{}", &url]).stdout(Stdio::null()).status();
        assert!(status.expect("curl").success());
    }

    /// Waits until it has got so many forms.
    fn wait_for_forms(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.forms().len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.forms());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn forms(&self) -> Vec<Value> {
        let got = self.got.lock().unwrap();
        got.iter().filter_map(|line| line.get("form")).cloned().collect()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Logs in, in a browser that is curl.
fn log_in(call: Agent) -> Agent {
    let root = call.again();
    let (mut command, _root) = call.args(["mcp", "login", "h"]).into_command();
    let mut child =
        command.stderr(Stdio::piped()).stdout(Stdio::null()).stdin(Stdio::null()).spawn().expect("agent");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    assert!(lines.next().expect("a line").expect("text").contains("open this page in a browser"));
    let page = lines.next().expect("a line").expect("text");
    let visited = Command::new("curl").args(["-sSL", "--max-time", "20", &page]).output().expect("curl");
    assert!(String::from_utf8_lossy(&visited.stdout).contains("You are logged in"), "{visited:?}");
    assert!(lines.next().expect("a line").expect("text").contains("logged in to h"));
    assert!(child.wait().expect("it ends").success());
    root
}

/// A session that calls the server's tool. Nothing of what it keeps or shows has a token.
fn call_a_tool(call: Agent) -> String {
    let model = endpoint().tool_call("mcp__h__echo", json!({})).text("Done.").start();
    let finished = call.endpoint(&model).args(["run", "--json", "use the tool"]).run().expect_code(0);
    for text in [&finished.stdout, &finished.stderr] {
        assert!(!text.contains("-token-number-"), "{text}");
    }
    let messages = model.requests().last().expect("a request").messages().to_vec();
    format!("{messages:?}\n{}", finished.stdout)
}

#[test]
fn a_login_in_a_browser_is_used_refreshed_and_forgotten() {
    let remote = Remote::start();
    let call = remote.configured();
    let hint = call_a_tool(call.again());
    assert!(hint.contains("run `agent mcp login h`"), "{hint}");

    let call = log_in(call);
    let registered = remote.got.lock().unwrap()[0]["registered"].clone();
    assert_eq!(registered["token_endpoint_auth_method"], "none");
    let form = &remote.forms()[0];
    let resource = format!("http://127.0.0.1:{}/mcp", remote.port);
    assert_eq!((&form["client_id"], &form["resource"]), (&json!("client-1"), &json!(resource)));
    let kept: Vec<_> =
        std::fs::read_dir(call.home("data").join("mcp-logins")).expect("it").flatten().collect();
    for file in &kept {
        assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    assert!(call_a_tool(call.again()).contains("echoed"));

    // A token that the server does not take any more is refreshed, once.
    remote.post("/forget");
    assert!(call_a_tool(call.again()).contains("echoed"));
    assert_eq!(remote.forms()[1]["refresh_token"], "refresh-token-number-1");
    assert!(call_a_tool(call.again()).contains("echoed"));
    assert_eq!(remote.forms().len(), 2);

    let out = call.again().args(["mcp", "logout", "h"]).run().expect_code(0);
    assert!(out.stderr.contains("logged out of h"), "{}", out.stderr);
    assert!(call_a_tool(call.again()).contains("run `agent mcp login h`"));
    let out = call.again().args(["mcp", "logout", "h"]).run().expect_code(0);
    assert!(out.stderr.contains("there is no login to h"), "{}", out.stderr);
}

/// A refresh that nobody waited for any more was cancelled, and the server had already replaced the token for refreshing.
#[test]
fn a_refresh_ends_and_is_kept_although_the_session_is_interrupted() {
    let remote = Remote::start();
    let call = log_in(remote.configured());
    remote.post("/forget");
    remote.post("/hold");
    let model = endpoint().tool_call("mcp__h__echo", json!({})).text("Done.").start();
    let (mut command, _root) =
        call.again().endpoint(&model).args(["run", "--json", "use the tool"]).into_command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("agent");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    remote.wait_for_forms(2);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .expect("it runs");
    let is_last = |line: &String| line.contains("\"session_finished\"");
    lines.map_while(Result::ok).find(is_last).expect("the session ends first");
    remote.post("/release");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(call_a_tool(call.again()).contains("echoed"));
    assert_eq!(remote.forms().len(), 2, "the token that was refreshed is used");
}

#[test]
fn a_login_with_a_code_needs_no_browser_here() {
    let remote = Remote::start();
    let call = remote.configured();
    let finished = call.again().args(["mcp", "login", "h", "--device"]).run().expect_code(0);
    assert!(finished.stderr.contains("/type and type the code WXYZ-1234"), "{}", finished.stderr);
    assert!(call_a_tool(call).contains("echoed"));
    assert_eq!(remote.forms().len(), 3, "the code, one question too early, and the token");
}

#[test]
fn only_servers_elsewhere_that_offer_it_have_logins() {
    let program = agent().config("[mcp.servers.h]\ncommand = \"x\"\n");
    let refused = program.args(["mcp", "login", "h"]).run();
    assert!(refused.code != 0 && refused.stderr.contains("only servers with a url"), "{}", refused.stderr);
    let unknown = agent().args(["mcp", "login", "h"]).run();
    assert!(unknown.stderr.contains("there is no server \"h\""), "{}", unknown.stderr);
    let unsafe_one = agent().config("[mcp.servers.h]\nurl = \"http://192.0.2.1/mcp\"\n");
    let refused = unsafe_one.args(["mcp", "login", "h"]).run();
    assert!(refused.code != 0 && refused.stderr.contains("https://"), "{}", refused.stderr);
}
