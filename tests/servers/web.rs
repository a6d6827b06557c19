//! `agent web` over its socket: the whole conversation, the review, reconnecting, and what is refused.

use ::agent::agent::Budget;
use ::agent::error::{Error, Result};
use ::agent::log::{SessionId, Store};
use ::agent::server::web::{
    Allowance, Audience, Facts, Guard, Hosts, Lockout, PageOpener, Scope, Token, VisitorLimits, Visitors,
    Web, router,
};
use ::agent::session::{Frontend, ModelSettings, Session};
use agent_testbed::agent::{Agent, Finished, Running, agent};
use agent_testing::endpoint::endpoint;
use agent_testing::hostile_text::{assert_harmless, hostile_text, octal};
use agent_testing::site::Site;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tower::ServiceExt;

pub const TOKEN: &str = "a-token-that-nobody-guesses";
const DEADLINE: Duration = Duration::from_secs(100);

/// A server that is running, with its socket. It is killed with the test.
pub struct Server {
    running: Option<Running>,
    pub socket: PathBuf,
    _directory: tempfile::TempDir,
}

pub fn serve(agent: Agent) -> Server {
    serve_with(agent, &[])
}

pub fn serve_with(agent: Agent, options: &[&str]) -> Server {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("web.sock");
    let listen = format!("unix:{}", socket.display());
    let running = agent
        .env("AGENT_WEB_TOKEN", TOKEN)
        .args(["web", "--listen", &listen])
        .args(options)
        .deadline(DEADLINE)
        .start();
    let started = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(started.elapsed() < DEADLINE, "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Server { running: Some(running), socket, _directory: directory }
}

impl Server {
    fn send(&self, method: &str, path: &str, extra: &str, body: &str) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).expect("a connection");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let length = body.len();
        let kind = if method == "PUT" { "octet-stream" } else { "json" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: application/{kind}\r\nContent-Length: {length}\r\n{extra}\r\n{body}"
        );
        // A request that is refused is answered before its body is read.
        if let Err(error) = stream.write_all(request.as_bytes()) {
            assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
        }
        stream
    }

    /// The status and the body of an answer.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask_with(method, path, "", &body)
    }

    /// The same with another header.
    fn ask_with(&self, method: &str, path: &str, extra: &str, body: &str) -> (u16, String) {
        let mut answer = Vec::new();
        self.send(method, path, extra, body).read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value, expected: u16) -> Value {
        let (status, answer) = self.ask("POST", path, body);
        assert_eq!(status, expected, "{path}: {answer}");
        serde_json::from_str(&answer).unwrap_or_default()
    }

    pub fn open(&self) -> String {
        self.post("/api/sessions", &json!({}), 200)["session"].as_str().expect("an id").to_owned()
    }

    pub fn tab(&self, session: &str, after: u64) -> Tab {
        let path = format!("/api/session/{session}/events");
        let stream = self.send("GET", &path, &format!("Last-Event-ID: {after}\r\n"), "");
        Tab::new(stream)
    }

    /// The header of a new visitor.
    fn visitor(&self) -> String {
        let key = self.post("/api/visitor", &json!({}), 200);
        format!("X-Agent-Visitor: {}\r\n", key["visitor"].as_str().expect("a key"))
    }

    fn kill(self) -> Agent {
        self.end(libc::SIGKILL).again()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("it runs").pid()
    }

    /// Ends it with `signal`, and waits.
    pub fn end(mut self, signal: i32) -> Finished {
        let running = self.running.take().expect("it runs");
        running.signal(signal);
        running.wait()
    }
}

#[track_caller]
pub fn wait_for(file: &Path) {
    let started = Instant::now();
    while !file.exists() {
        assert!(started.elapsed() < DEADLINE, "{} was not made", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.signal(libc::SIGKILL);
        }
    }
}

/// What one tab has received.
pub struct Tab {
    lines: BufReader<UnixStream>,
    seen: Vec<(Option<u64>, String, Value)>,
}

impl Tab {
    fn new(stream: UnixStream) -> Self {
        Self { lines: BufReader::new(stream), seen: Vec::new() }
    }

    /// Reads until an event satisfies `is_it`.
    pub fn until(&mut self, is_it: impl Fn(&str, &Value) -> bool) -> Value {
        let (mut id, mut name) = (None, String::new());
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < DEADLINE, "the event did not come: {:?}", self.seen);
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).expect("a line") > 0,
                "the stream ended: {:?}",
                self.seen
            );
            if let Some(number) = line.strip_prefix("id: ") {
                id = number.trim().parse().ok();
            } else if let Some(event) = line.strip_prefix("event: ") {
                event.trim().clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).expect("JSON");
                self.seen.push((id.take(), name.clone(), data.clone()));
                if is_it(&name, &data) {
                    return data;
                }
            }
        }
    }

    pub fn until_idle(&mut self) -> Value {
        self.until(|name, data| name == "status" && data["busy"] == false)
    }

    /// Reads to the end of the stream.
    fn rest(mut self) -> String {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).expect("the rest");
        text
    }

    fn names(&self) -> Vec<&str> {
        self.seen.iter().filter(|(id, ..)| id.is_some()).map(|(_, name, _)| name.as_str()).collect()
    }
}

#[test]
fn a_conversation_is_streamed_reviewed_applied_and_taken_back() {
    let model = endpoint()
        .tool_call(
            "run_commands",
            json!({"command": "sed -i 's/one/ONE/; s/ten/TEN/' list.txt; echo hello from inside"}),
        )
        .text("**Done**, <b>really</b>.")
        .start();
    let list = "one\ntwo\n3\n4\n5\n6\n7\n8\n9\nten\n";
    let agent = agent().endpoint(&model).file("list.txt", list);
    let host = agent.workspace().join("list.txt");
    let server = serve(agent);
    let session = server.open();
    let at = |path: &str| format!("/api/session/{session}/{path}");
    let (mut tab, mut other) = (server.tab(&session, 0), server.tab(&session, 0));
    server.post(&at("prompt"), &json!({"text": "shout"}), 202);
    let answer = tab.until(|name, data| name == "assistant_message" && data["html"] != "");
    assert_eq!(answer["html"], "<p><strong>Done</strong>, &lt;b&gt;really&lt;/b&gt;.</p>");
    let status = tab.until_idle();
    assert_eq!((&status["changes"]["modified"], &status["error"]), (&json!(1), &Value::Null), "{status}");
    let finished = tab.seen.iter().find(|(_, name, _)| name == "tool_finished").expect("the call's end");
    assert!(finished.2["result"].as_str().is_some_and(|text| text.contains("hello from inside")));
    other.until_idle();
    assert_eq!(tab.names(), other.names(), "two tabs agree");

    let diff = server.get(&at("diff"));
    let hunks = diff["files"][0]["hunks"].as_array().expect("hunks").len();
    assert_eq!((diff["files"][0]["name"].as_str(), hunks), (Some("list.txt"), 2), "{diff}");
    let stale = server.post(&at("apply"), &json!({"digest": "0".repeat(64)}), 409);
    assert_eq!(stale["diff"]["digest"], diff["digest"]);
    assert_eq!(std::fs::read_to_string(&host).expect("the file"), list);
    let second = &diff["files"][0]["hunks"][1]["id"];
    let other = json!({"digest": diff["digest"], "files": {"0": [second, "8-10+8-10"]}});
    let refused = server.post(&at("apply"), &other, 400);
    assert!(refused["error"].as_str().is_some_and(|error| error.contains("does not have")), "{refused}");
    let choice = json!({"digest": diff["digest"], "files": {"0": [second]}});
    assert_eq!(server.post(&at("apply"), &choice, 200)["applied"]["modified"], 1);
    assert_eq!(std::fs::read_to_string(&host).expect("the file"), list.replace("one", "ONE"));
    let (status, patch) = server.ask("GET", &at("patch"), &Value::Null);
    assert!(status == 200 && patch.contains("+TEN") && !patch.contains("+ONE"), "{patch}");
    server.post(&at("unapply"), &json!({}), 200);
    assert_eq!(std::fs::read_to_string(&host).expect("the file"), list);
    server.post(&at("undo"), &json!({}), 200);
    assert_eq!(server.get(&at("diff"))["files"], json!([]));
    server.post(&at("redo"), &json!({}), 200);
    assert_eq!(server.get(&at("diff"))["digest"], diff["digest"]);
    let fork = server.post(&at("fork"), &json!({}), 200)["session"].clone();
    assert_ne!(fork, json!(session));
    let url =
        server.post(&at("document"), &json!("report"), 200)["url"].as_str().expect("an address").to_owned();
    assert!(server.ask("GET", &url, &Value::Null).1.contains("<html"));
}

#[test]
fn a_command_of_the_user_runs_in_the_same_sandbox_and_can_be_stopped() {
    let model = endpoint().text("ok").repeat_last().start();
    let server = serve(agent().endpoint(&model).file("here.txt", "x"));
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    let path = format!("/api/session/{session}/command");
    server.post(&path, &json!({"text": "ls; printf '\\033[31mred\\033[0m'; exit 3"}), 202);
    let end = tab.until(|name, _| name == "command_ended");
    assert!(end["end"].as_str().is_some_and(|end| end.starts_with("exit 3")), "{end}");
    let output: String = tab
        .seen
        .iter()
        .filter(|(_, name, _)| name == "command_output")
        .map(|(_, _, data)| data["text"].as_str().expect("text"))
        .collect();
    assert!(output.contains("here.txt") && output.ends_with("red"), "{output:?}");
    tab.until(|name, data| {
        name == "note" && data["text"].as_str().is_some_and(|text| text.contains("here.txt"))
    });
    server.post(&path, &json!({"text": "sleep 1000"}), 202);
    tab.until(|name, data| name == "command" && data["command"] == "sleep 1000");
    server.post(&format!("/api/session/{session}/stop"), &json!({}), 202);
    assert_eq!(tab.until(|name, _| name == "command_ended")["end"], "stopped");
    server.post(&path, &json!({"text": " "}), 400);
}

#[test]
fn a_killed_server_is_started_again_and_the_tab_misses_nothing() {
    let model = endpoint().text("first answer").text("second answer").repeat_last().start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    let path = format!("/api/session/{session}/prompt");
    server.post(&path, &json!({"text": "one"}), 202);
    tab.until(|name, data| name == "assistant_message" && data["text"] == "first answer");
    tab.until_idle();
    let last = tab.seen.iter().filter_map(|(id, ..)| *id).max().expect("an id");
    let server = serve(server.kill().endpoint(&model));
    let mut again = server.tab(&session, last);
    again.until(|name, _| name == "now");
    server.post(&path, &json!({"text": "two"}), 202);
    again.until(|name, data| name == "assistant_message" && data["text"] == "second answer");
    assert!(again.seen.iter().all(|(id, ..)| id.is_none_or(|id| id > last)), "nothing comes twice");
    let mut whole = server.tab(&session, 0);
    let texts = |tab: &mut Tab| {
        tab.until(|name, _| name == "now");
        let messages = tab.seen.iter().filter(|(_, name, _)| name == "user_message");
        messages.map(|(_, _, data)| data["text"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&mut whole), ["one", "two"]);
    let sessions = server.get("/api/sessions");
    assert_eq!(sessions["sessions"][0]["id"], json!(session));
}

#[test]
fn a_turn_is_stopped_and_a_second_one_is_refused_meanwhile() {
    let model = endpoint().text("slow").delay(Duration::from_secs(600)).text("quick").repeat_last().start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    let path = format!("/api/session/{session}/prompt");
    server.post(&path, &json!({"text": "one"}), 202);
    tab.until(|name, _| name == "turn_started");
    // The answer that is stopped has to be the slow one.
    let started = Instant::now();
    while model.chat_requests().is_empty() {
        assert!(started.elapsed() < DEADLINE, "the model is not asked");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.post(&path, &json!({"text": "two"}), 409);
    server.post(&format!("/api/session/{session}/stop"), &json!({}), 202);
    assert_eq!(tab.until_idle()["error"]["interrupted"], true);
    server.post(&path, &json!({"text": "three"}), 202);
    tab.until(|name, data| name == "assistant_message" && data["text"] == "quick");
}

#[test]
fn what_is_said_at_a_card_is_the_reason_of_the_refusal() {
    let model = endpoint().tool_call("run_commands", json!({"command": "echo asked"})).text("done").start();
    let server = serve(agent().endpoint(&model).config("approve = \"always\"\n"));
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    server.post(&format!("/api/session/{session}/prompt"), &json!({"text": "go"}), 202);
    let asked = tab.until(|name, data| name == "status" && data["questions"][0].is_object());
    let answer =
        json!({"question": asked["questions"][0]["number"], "answer": "said", "said": "use a helper"});
    server.post(&format!("/api/session/{session}/answer"), &answer, 202);
    tab.until(|name, data| name == "assistant_message" && data["text"] == "done");
    let result = model.last().messages().pop().expect("a result")["content"].to_string();
    assert!(result.contains("the user refused it and said: use a helper"), "{result}");
}

#[test]
fn a_question_is_a_card_that_one_answer_removes() {
    let model = endpoint()
        .tool_call("run_commands", json!({"command": "echo asked"}))
        .text("done")
        .repeat_last()
        .start();
    let server = serve(agent().endpoint(&model).config("approve = \"always\"\n"));
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    server.post(&format!("/api/session/{session}/prompt"), &json!({"text": "go"}), 202);
    let asked = tab.until(|name, data| name == "status" && data["questions"][0].is_object());
    let question = &asked["questions"][0];
    assert_eq!(question["what"], "echo asked", "{question}");
    assert!(question["text"].as_str().is_some_and(|text| text.starts_with("always: ")), "{question}");
    let answer = json!({"question": question["number"], "answer": "once"});
    let path = format!("/api/session/{session}/answer");
    server.post(&path, &answer, 202);
    server.post(&path, &answer, 409);
    tab.until(|name, data| name == "tool_finished" && data["ok"] == true);
}

/// A bug: a question about an edit had the new text alone, and one about a write the whole file.
#[test]
fn a_question_about_a_write_has_the_change_of_each_file() {
    let file = |path: &str, data: &str| json!({"path": path, "data": data});
    let model = endpoint()
        .tool_call("edit_file", json!({"path": "list.txt", "old": "two", "new": "TWO"}))
        .tool_call(
            "write_files",
            json!({"files": [file("list.txt", "one\nTWO\n3\n"), file("new.txt", "new\n")]}),
        )
        .tool_call("edit_file", json!({"path": "missing.txt", "old": "a", "new": "b"}))
        .text("done")
        .repeat_last()
        .start();
    let server = serve(
        agent().file("list.txt", "one\ntwo\nthree\n").endpoint(&model).config("approve = \"always\"\n"),
    );
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    server.post(&format!("/api/session/{session}/prompt"), &json!({"text": "go"}), 202);
    let lines = |diff: &Value| -> String {
        let shown = diff["lines"].as_array().expect("lines").iter();
        shown
            .map(|line| format!("{}{}\n", line[0].as_str().unwrap_or("?"), line[1].as_str().unwrap_or("?")))
            .collect()
    };
    let mut asked = |what: &str| {
        let is_asked = |name: &str, data: &Value| {
            name == "status" && data["questions"][0]["what"].as_str().is_some_and(|text| text.contains(what))
        };
        let question = tab.until(is_asked)["questions"][0].clone();
        let answer = json!({"question": question["number"], "answer": "once"});
        server.post(&format!("/api/session/{session}/answer"), &answer, 202);
        question["diffs"].as_array().cloned().expect("changes")
    };
    let edit = asked("change list.txt");
    let shown = lines(&edit[0]);
    assert!(
        edit.len() == 1 && edit[0]["name"] == "list.txt" && edit[0]["added"] == 1 && edit[0]["removed"] == 1,
        "{edit:?}"
    );
    assert!(shown.contains("-\u{1b}[31mtwo") && shown.contains("+\u{1b}[32mTWO"), "{shown}");
    let write = asked("write new.txt");
    assert!(write.len() == 2 && write[1]["is_new"] == true && lines(&write[1]).contains("new"), "{write:?}");
    assert_eq!(write[0]["removed"], 1, "against what the edit before it has made: {write:?}");
    assert_eq!(
        asked("change missing.txt"),
        [json!(null); 0],
        "what cannot be made is asked about as it was written"
    );
    tab.until(|name, data| name == "assistant_message" && data["text"] == "done");
}

/// What the page shows: the trace, answers, questions, names and the review.
#[test]
fn attack_74_the_page_gets_no_hostile_text_as_it_is() {
    let make = format!("printf '{0}\\n' > \"$(printf '{0}')\"; printf '{0}\\n'", octal());
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": make }))
        .text(&hostile_text())
        .repeat_last()
        .start();
    let server = serve(agent().endpoint(&model).config("approve = \"always\"\n"));
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    server.post(&format!("/api/session/{session}/prompt"), &json!({"text": "go"}), 202);
    let asked = tab.until(|name, data| name == "status" && data["questions"][0].is_object());
    let answer = json!({"question": asked["questions"][0]["number"], "answer": "once"});
    server.post(&format!("/api/session/{session}/answer"), &answer, 202);
    tab.until(|name, data| name == "assistant_message" && data["html"].to_string().contains("H0STILE"));
    tab.until_idle();
    for name in ["tool_finished", "assistant_message"] {
        let event =
            tab.seen.iter().rfind(|(_, seen, data)| seen == name && data.to_string().contains("H0STILE"));
        let (_, _, data) = event.unwrap_or_else(|| panic!("{name}: {:?}", tab.seen));
        let shown = if name == "tool_finished" { &data["result"] } else { &data["html"] };
        assert_harmless(name, shown.as_str().expect("text"));
    }
    let review = server.get(&format!("/api/session/{session}/diff"));
    let file = &review["files"][0];
    assert_harmless("the review's name", file["name"].as_str().expect("text"));
    assert_harmless("the review's headline", file["headline"].as_str().expect("text"));
    let lines = file["hunks"].to_string();
    assert!(lines.contains("H0STILE"), "{lines}");
    assert_harmless("the review's lines", &lines);
}

#[test]
fn the_page_asks_about_a_host_only_where_no_network_is_named() {
    let site = Site::http().file("/", "welcome\n");
    for (config, asks) in [("", true), ("network = \"none\"\n", false)] {
        let fetch = json!({ "command": format!("curl -sS http://{}/", site.host_and_port()) });
        let model = endpoint().tool_call("run_commands", fetch).text("done").start();
        let server = serve(agent().endpoint(&model).config(config));
        let session = server.open();
        let mut tab = server.tab(&session, 0);
        server.post(&format!("/api/session/{session}/prompt"), &json!({"text": "go"}), 202);
        if asks {
            let asked = tab.until(|name, data| name == "status" && data["questions"][0].is_object());
            let question = &asked["questions"][0];
            let text = format!("wants to connect to {}, a loopback address.", site.host_and_port());
            assert!(question["text"].as_str().is_some_and(|shown| shown.contains(&text)), "{question}");
            let answers: Vec<_> =
                question["answers"].as_array().into_iter().flatten().map(|it| &it["value"]).collect();
            assert_eq!(answers, ["once", "always", "project", "never"]);
            let answer = json!({"question": question["number"], "answer": "always"});
            server.post(&format!("/api/session/{session}/answer"), &answer, 202);
        }
        let ended = tab.until(|name, _| name == "tool_finished");
        assert_eq!(ended["result"].as_str().is_some_and(|text| text.contains("welcome")), asks, "{ended}");
        tab.until_idle();
        let asked = tab.seen.iter().any(|(_, _, data)| data["questions"][0].is_object());
        assert_eq!(asked, asks, "{config}");
    }
    assert_eq!(site.connections(), 1);
}

#[test]
fn the_socket_is_private_and_an_address_for_others_needs_a_proxy_and_a_token() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model));
    let mode = std::fs::metadata(&server.socket).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(server.end(libc::SIGTERM).code, 143);
    let refused = agent().endpoint(&model).args(["web", "--listen", "0.0.0.0:0"]).run().expect_code(2);
    assert!(refused.stderr.contains("can be reached from other machines"), "{}", refused.stderr);
    let refused =
        agent().endpoint(&model).args(["web", "--behind-proxy", "agent.example"]).run().expect_code(2);
    assert!(refused.stderr.contains("AGENT_WEB_TOKEN"), "{}", refused.stderr);
    for host in ["", "https://agent.example"] {
        let refused = agent().endpoint(&model).args(["web", "--behind-proxy", host]).run().expect_code(2);
        assert!(refused.stderr.contains("not a valid host"), "{}", refused.stderr);
    }
    let shared = ["web", "--visitors", "--workspace-mode", "bind"];
    let refused = agent().endpoint(&model).args(shared).run().expect_code(2);
    assert!(refused.stderr.contains("--workspace-mode bind"), "{}", refused.stderr);
}

/// A bug: three seconds passed before a server with open tabs stopped.
#[test]
fn open_tabs_do_not_hold_a_server_that_stops() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    tab.until(|name, _| name == "now");
    assert_eq!(server.end(libc::SIGTERM).code, 143);
    let rest = tab.rest();
    assert!(rest.ends_with("0\r\n\r\n"), "the stream was cut: {rest:?}");
    assert!(!rest.contains("terminated"), "it ended before the session: {rest:?}");
}

/// A bug: a session that no tab had shown was never closed, and eight of them left no room.
#[test]
fn sessions_that_nobody_looks_at_make_room() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model));
    for _ in 0..9 {
        server.open();
    }
}

/// A bug: a command of a restarted server had the number of an earlier one, and its output landed there in the page.
#[test]
fn numbers_of_commands_differ_after_a_restart() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let path = format!("/api/session/{session}/command");
    let run = |server: &Server| {
        let mut tab = server.tab(&session, 0);
        // From here on it gets what happens; what has ended before does not come again.
        tab.until(|name, _| name == "now");
        server.post(&path, &json!({"text": "true"}), 202);
        let number = tab.until(|name, _| name == "command_ended")["number"].as_u64();
        number.expect("a number")
    };
    let first = run(&server);
    let server = serve(server.kill().endpoint(&model));
    assert!(run(&server) > first);
}

/// A bug: what had been refused was chosen again after an apply, and the next apply wrote it.
#[test]
fn what_is_refused_stays_refused_after_an_apply_a_change_and_a_restart() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model).file("list.txt", "one\n2\n3\n4\n5\n6\n7\n8\n9\nten\n"));
    let session = server.open();
    let at = |path: &str| format!("/api/session/{session}/{path}");
    let run = |server: &Server, command: &str| {
        let mut tab = server.tab(&session, 0);
        server.post(&at("command"), &json!({"text": command}), 202);
        tab.until(|name, _| name == "command_ended");
        tab.until(|name, data| name == "status" && data["commands"] == 0 && data["changes"]["added"] == 2);
    };
    let taken = |diff: &Value| -> Vec<(String, bool)> {
        let files = diff["files"].as_array().expect("files").iter();
        files
            .map(|file| (file["name"].as_str().unwrap_or_default().to_owned(), file["taken"] == true))
            .collect()
    };
    let named = |list: &[(&str, bool)]| -> Vec<(String, bool)> {
        list.iter().map(|(name, is_taken)| ((*name).to_owned(), *is_taken)).collect()
    };
    run(&server, "echo a > a.txt; echo b > b.txt; sed -i 's/one/ONE/; s/ten/TEN/' list.txt");
    let diff = server.get(&at("diff"));
    assert_eq!(taken(&diff), named(&[("a.txt", true), ("b.txt", true), ("list.txt", true)]));
    let (file, list) = (&diff["files"][0], &diff["files"][2]);
    let key = |value: &Value| value.as_str().expect("a key").to_owned();
    let decided = json!({
        key(&file["key"]): false, key(&file["content"]): false, key(&list["key"]): false,
        key(&list["hunks"][0]["key"]): true, key(&list["hunks"][1]["key"]): false,
    });
    server.post(&at("decisions"), &json!({"decided": decided}), 200);
    let choice = json!({"digest": diff["digest"], "files": {"1": [], "2": [list["hunks"][1]["id"]]}});
    assert_eq!(server.post(&at("apply"), &choice, 200)["applied"]["added"], 1);
    let refused = named(&[("a.txt", false), ("list.txt", false)]);
    assert_eq!(taken(&server.get(&at("diff"))), refused);

    let server = serve(server.kill().endpoint(&model));
    assert_eq!(taken(&server.get(&at("diff"))), refused);
    let mut tab = server.tab(&session, 0);
    let command = "echo more >> a.txt; sed -i 's/TEN/TEN!/; s/5/five/' list.txt";
    server.post(&at("command"), &json!({"text": command}), 202);
    tab.until(|name, _| name == "command_ended");
    assert_eq!(taken(&server.get(&at("diff"))), refused, "nor is what it became since");
}

/// "Take the sandbox's" wrote over whatever the host had by then.
#[test]
fn an_answer_about_a_conflict_holds_for_the_version_that_was_asked_about() {
    let model = endpoint()
        .tool_call("run_commands", json!({"command": "echo inside > list.txt"}))
        .text("done")
        .start();
    let agent = agent().endpoint(&model).file("list.txt", "one\n");
    let host = agent.workspace().join("list.txt");
    let server = serve(agent);
    let session = server.open();
    let at = |path: &str| format!("/api/session/{session}/{path}");
    let mut tab = server.tab(&session, 0);
    server.post(&at("prompt"), &json!({"text": "change it"}), 202);
    tab.until_idle();
    std::fs::write(&host, "mine\n").expect("an edit");
    let digest = server.get(&at("diff"))["digest"].clone();
    let found = |answer: &Value| answer["details"][0]["found"].clone();
    let asked = found(&server.post(&at("apply"), &json!({"digest": digest}), 409));
    assert!(asked.is_string(), "{asked}");
    server.post(&at("apply"), &json!({"digest": digest, "over": {"0": null}}), 422);
    std::fs::write(&host, "mine, and more\n").expect("another edit");
    let again = server.post(&at("apply"), &json!({"digest": digest, "over": {"0": asked}}), 409);
    assert_eq!(std::fs::read_to_string(&host).expect("the file"), "mine, and more\n");
    server.post(&at("apply"), &json!({"digest": digest, "over": {"0": found(&again)}}), 200);
    assert_eq!(std::fs::read_to_string(&host).expect("the file"), "inside\n");
}

/// A bug: a model without a price ran without the limit.
#[test]
fn a_model_without_a_price_is_refused_where_the_cost_is_limited() {
    let model = endpoint().text("ok").repeat_last().start();
    let prices = "[prices.test-model]\ninput = 1.0\noutput = 1.0\n";
    let server = serve_with(agent().endpoint(&model).config(prices), &["--max-cost", "1"]);
    let session = server.open();
    let path = format!("/api/session/{session}/model");
    let refused = server.post(&path, &json!({"text": "dear-model"}), 400);
    assert!(
        refused["error"].as_str().is_some_and(|error| error.contains("price of dear-model")),
        "{refused}"
    );
    server.post(&path, &json!({"text": "test-model"}), 202);
}

/// A bug: the server ended where no browser could be opened.
#[test]
fn a_page_that_cannot_be_opened_is_served_all_the_same() {
    let model = endpoint().text("ok").start();
    let empty = tempfile::tempdir().expect("a directory");
    let server = serve_with(agent().endpoint(&model).env("PATH", empty.path()), &["--open"]);
    server.get("/api/sessions");
    let ended = server.end(libc::SIGTERM);
    assert!(ended.stderr.contains("Open the printed address yourself"), "{}", ended.stderr);
    assert_eq!(ended.code, 143);
}

#[test]
fn visitors_have_a_workspace_each_and_take_a_patch_away() {
    let model = endpoint()
        .tool_call("run_commands", json!({"command": "cp src/hello.txt copy.txt"}))
        .text("done")
        .start();
    let options = ["--visitors", "--public", "--max-sessions", "2"];
    let server = serve_with(agent().endpoint(&model), &options);
    let (one, other) = (server.visitor(), server.visitor());
    assert_eq!(server.ask("GET", "/api/sessions", &Value::Null).0, 403);
    let put = |path: &str| server.ask_with("PUT", &format!("/api/upload?path={path}"), &one, "hello\n").0;
    assert_eq!(put("src/hello.txt"), 200);
    for path in ["..%2Fx", "%2Fetc%2Fx", ".git%2Fconfig", ""] {
        assert_eq!(put(path), 400, "{path}");
    }
    let (status, body) = server.ask_with("POST", "/api/sessions", &one, "{}");
    assert_eq!(status, 200, "{body}");
    let session: Value = serde_json::from_str(&body).expect("JSON");
    let at = |path: &str| format!("/api/session/{}/{path}", session["session"].as_str().expect("an id"));
    let mut tab = Tab::new(server.send("GET", &at("events"), &one, ""));
    assert_eq!(server.ask_with("POST", &at("prompt"), &one, r#"{"text": "copy it"}"#).0, 202);
    tab.until(|name, data| name == "tool_finished" && data["ok"] == true);
    tab.until_idle();
    let (_, diff) = server.ask_with("GET", &at("diff"), &one, "");
    let diff: Value = serde_json::from_str(&diff).expect("JSON");
    assert_eq!(diff["files"][0]["name"], "copy.txt", "{diff}");
    let apply = json!({"digest": diff["digest"]}).to_string();
    assert_eq!(server.ask_with("POST", &at("apply"), &one, &apply).0, 403);
    assert!(server.ask_with("GET", &at("zip"), &one, "").1.starts_with("PK"));
    assert!(server.ask_with("GET", &at("patch"), &one, "").1.contains("+hello"));
    for path in ["diff", "events", "patch"] {
        assert_eq!(server.ask_with("GET", &at(path), &other, "").0, 404, "{path}");
    }
}

/// Ten tokens of each answer cost 1.
#[test]
fn what_a_visitor_and_all_of_them_spend_is_limited() {
    let model = endpoint()
        .text("ok")
        .tool_call("run_commands", json!({"command": "true"}))
        .text("ok")
        .repeat_last()
        .start();
    let prices = "[prices.test-model]\ninput = 100000.0\n";
    let options = ["--visitors", "--public", "--max-cost", "2", "--max-cost-total", "3"];
    let server = serve_with(agent().endpoint(&model).config(prices), &options);
    let open = || {
        let visitor = server.visitor();
        let (status, body) = server.ask_with("POST", "/api/sessions", &visitor, "{}");
        assert_eq!(status, 200, "{body}");
        let opened: Value = serde_json::from_str(&body).expect("JSON");
        let path = format!("/api/session/{}", opened["session"].as_str().expect("an id"));
        let mut tab = Tab::new(server.send("GET", &format!("{path}/events"), &visitor, ""));
        tab.until(|name, _| name == "now");
        (visitor, path, tab)
    };
    let prompt = |(visitor, path, _): &(String, String, Tab)| {
        server.ask_with("POST", &format!("{path}/prompt"), visitor, r#"{"text": "hello"}"#)
    };
    let ended = |(_, _, tab): &mut (String, String, Tab)| {
        tab.until(|name, data| name == "status" && data["busy"] == true);
        tab.until_idle()["error"]["error"].as_str().unwrap_or_default().to_owned()
    };
    let mut one = open();
    assert_eq!(prompt(&one).0, 202);
    assert_eq!(ended(&mut one), "");
    // The second answer asks for a tool; the request after it is not sent.
    assert_eq!(prompt(&one).0, 202);
    let error = ended(&mut one);
    assert!(error.contains("cost limit of 2 for one visitor"), "{error}");
    let refused = prompt(&one);
    assert!(refused.0 == 429 && refused.1.contains("for one visitor"), "{refused:?}");
    let mut other = open();
    assert_eq!(prompt(&other).0, 202);
    assert_eq!(ended(&mut other), "");
    let refused = prompt(&other);
    assert!(refused.0 == 429 && refused.1.contains("3 for all visitors"), "{refused:?}");
    let unpriced = server.ask_with("POST", &format!("{}/model", other.1), &other.0, r#"{"text": "dear"}"#);
    assert!(unpriced.0 == 400 && unpriced.1.contains("price of dear"), "{unpriced:?}");
    assert_eq!(model.chat_requests().len(), 3);
}

/// A model without a price is refused where only all visitors together have a limit.
#[test]
fn a_limit_for_all_visitors_needs_a_price() {
    let model = endpoint().text("ok").start();
    let options = ["--visitors", "--public", "--max-cost-total", "3"];
    let server = serve_with(agent().endpoint(&model), &options);
    let refused = server.ask_with("POST", "/api/sessions", &server.visitor(), "{}");
    assert!(refused.0 == 400 && refused.1.contains("price of test-model"), "{refused:?}");
}

/// A bug: who only loaded the page had a place of `--max-sessions`, and a directory.
#[test]
fn a_visitor_takes_a_place_with_the_first_upload_or_session() {
    let model = endpoint().text("ok").start();
    let temporary = tempfile::tempdir().expect("a directory");
    let options = ["--visitors", "--public", "--max-sessions", "2"];
    let server = serve_with(agent().endpoint(&model).env("TMPDIR", temporary.path()), &options);
    let visitors: Vec<String> = (0..5).map(|_| server.visitor()).collect();
    let directories = || {
        let all =
            std::fs::read_dir(temporary.path()).expect("a directory").map(|entry| entry.expect("an entry"));
        let uploads = all.filter(|entry| entry.file_name().to_string_lossy().starts_with("agent-web-"));
        uploads.map(|entry| std::fs::read_dir(entry.path()).expect("a directory").count()).sum::<usize>()
    };
    for visitor in &visitors {
        assert_eq!(server.ask_with("GET", "/api/sessions", visitor, "").0, 200);
    }
    assert_eq!(directories(), 0);
    assert_eq!(server.ask_with("PUT", "/api/upload?path=a", &visitors[0], "x").0, 200);
    assert_eq!(server.ask_with("POST", "/api/sessions", &visitors[1], "{}").0, 200);
    assert_eq!(server.ask_with("PUT", "/api/upload?path=a", &visitors[2], "x").0, 429);
    assert_eq!(server.ask_with("POST", "/api/sessions", &visitors[2], "{}").0, 429);
    assert_eq!(server.ask_with("PUT", "/api/upload?path=b", &visitors[0], "x").0, 200);
    assert_eq!(directories(), 2);
}

/// A bug: each tab of a visitor opened its own session again, and closed the other's for it.
#[test]
fn a_tab_of_a_visitor_does_not_close_the_session_of_another_one() {
    let model = endpoint().text("ok").start();
    let server = serve_with(agent().endpoint(&model), &["--visitors", "--public"]);
    let visitor = server.visitor();
    let open = |body: &str| {
        let (status, body) = server.ask_with("POST", "/api/sessions", &visitor, body);
        assert_eq!(status, 200, "{body}");
        let opened: Value = serde_json::from_str(&body).expect("JSON");
        opened["session"].as_str().expect("an id").to_owned()
    };
    let events = |session: &str| format!("/api/session/{session}/events");
    let first = open("{}");
    let mut tab = Tab::new(server.send("GET", &events(&first), &visitor, ""));
    tab.until(|name, _| name == "now");
    let second = open("{}");
    tab.until(|name, _| name == "closed");
    let mut tab = Tab::new(server.send("GET", &events(&second), &visitor, ""));
    tab.until(|name, _| name == "now");
    let (status, body) = server.ask_with("GET", &events(&first), &visitor, "");
    assert!(status == 409 && body.contains("\"closed\":true"), "{status} {body}");
    open(&json!({"session": first}).to_string());
    tab.until(|name, _| name == "closed");
}

/// A bug: an open tab kept a visitor's place for ever, and `sleep infinity` in the terminal its sandbox.
#[test]
fn what_a_visitor_does_ends() {
    let model = endpoint().text("ok").start();
    let options = ["--visitors", "--public", "--ttl", "8s", "--max-time", "1s"];
    let server = serve_with(agent().endpoint(&model), &options);
    let visitor = server.visitor();
    let (_, body) = server.ask_with("POST", "/api/sessions", &visitor, "{}");
    let session: Value = serde_json::from_str(&body).expect("JSON");
    let at = |path: &str| format!("/api/session/{}/{path}", session["session"].as_str().expect("an id"));
    let mut tab = Tab::new(server.send("GET", &at("events"), &visitor, ""));
    assert_eq!(server.ask_with("POST", &at("command"), &visitor, r#"{"text": "sleep infinity"}"#).0, 202);
    let end = tab.until(|name, _| name == "command_ended");
    assert!(end["end"].as_str().is_some_and(|end| end.starts_with("timed out")), "{end}");
    tab.until(|name, _| name == "closed");
    assert_eq!(server.ask_with("GET", "/api/sessions", &visitor, "").0, 403);
}

/// A bug: an apply was cut off half-way if the tab was closed, and what it had written was not recorded.
#[test]
fn an_apply_goes_on_without_its_tab() {
    let model =
        endpoint().tool_call("run_commands", json!({"command": "echo new > new.txt"})).text("ok").start();
    let hook = "[[hooks]]\nevent = \"before_apply\"\nwhere = \"host\"\n\
                command = \"touch begun; while [ ! -e go ]; do sleep 0.05; done\"\n";
    let agent = agent().endpoint(&model).config(hook);
    let (begun, go) = (agent.home("config").join("begun"), agent.home("config").join("go"));
    let written = agent.workspace().join("new.txt");
    let server = serve(agent);
    let session = server.open();
    let at = |path: &str| format!("/api/session/{session}/{path}");
    let mut tab = server.tab(&session, 0);
    server.post(&at("prompt"), &json!({"text": "go"}), 202);
    tab.until(|name, data| name == "tool_finished" && data["ok"] == true);
    tab.until_idle();
    let digest = server.get(&at("diff"))["digest"].clone();
    let request = server.send("POST", &at("apply"), "", &json!({"digest": digest}).to_string());
    wait_for(&begun);
    drop(request);
    // The server has noticed it when it answers others.
    server.get("/api/sessions");
    std::fs::write(&go, "").expect("written");
    wait_for(&written);
    let started = Instant::now();
    while server.get(&at("diff"))["can_unapply"] != true {
        assert!(started.elapsed() < DEADLINE, "what was written is not recorded");
    }
}

/// A bug: a tab that did not read held the session, so that nobody could open it again.
#[test]
fn a_tab_that_does_not_read_does_not_hold_a_closed_session() {
    let model = endpoint().text("ok").start();
    let server = serve_with(agent().endpoint(&model), &["--visitors", "--public"]);
    let visitor = server.visitor();
    let open = |body: &str| {
        let (status, body) = server.ask_with("POST", "/api/sessions", &visitor, body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).expect("JSON")
    };
    let session = open("{}");
    let at = |path: &str| format!("/api/session/{}/{path}", session["session"].as_str().expect("an id"));
    let _silent = server.send("GET", &at("events"), &visitor, "");
    let mut tab = Tab::new(server.send("GET", &at("events"), &visitor, ""));
    assert_eq!(server.ask_with("POST", &at("command"), &visitor, r#"{"text": "seq 1 100000"}"#).0, 202);
    tab.until(|name, _| name == "command_ended");
    tab.until(|name, data| name == "status" && data["commands"] == 0);
    open("{}");
    open(&session.to_string());
}

#[test]
fn a_session_of_another_process_is_in_use_and_not_unknown() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let again = server.running.as_ref().expect("it runs").again();
    let other = serve(again.endpoint(&model));
    let (status, body) = other.ask("GET", &format!("/api/session/{session}/events"), &Value::Null);
    assert!(status == 409 && body.contains("in use"), "{status} {body}");
    let unknown = other.ask("GET", "/api/session/20261120-153012-k3f9/events", &Value::Null);
    assert_eq!(unknown.0, 404);
}

/// A bug: a prompt whose answer the page did not get was worked on twice if it was sent again.
#[test]
fn a_prompt_that_is_sent_again_is_worked_on_once() {
    let model = endpoint().text("done").repeat_last().start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    let path = format!("/api/session/{session}/prompt");
    let prompt = json!({"text": "go", "key": "a-key"});
    server.post(&path, &prompt, 202);
    tab.until(|name, data| name == "assistant_message" && data["text"] == "done");
    tab.until_idle();
    server.post(&path, &prompt, 202);
    server.post(&path, &json!({"text": "more", "key": "another-key"}), 202);
    tab.until(|name, data| name == "user_message" && data["text"] == "more");
    let prompts = tab.names().into_iter().filter(|name| *name == "user_message").count();
    assert_eq!(prompts, 2);
}

/// A bug: a line that was shown in part was chosen like all others.
#[test]
fn a_file_with_a_line_that_is_not_shown_whole_is_not_chosen() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    let command = json!({"text": "head -c 3000 /dev/zero | tr '\\0' x > long.txt; echo short > short.txt"});
    server.post(&format!("/api/session/{session}/command"), &command, 202);
    tab.until(|name, _| name == "command_ended");
    let diff = server.get(&format!("/api/session/{session}/diff"));
    let shown =
        |number: usize| (diff["files"][number]["name"].clone(), diff["files"][number]["is_shown"].clone());
    assert_eq!(shown(0), (json!("long.txt"), json!(false)), "{diff}");
    assert_eq!(shown(1), (json!("short.txt"), json!(true)), "{diff}");
}

#[test]
fn what_a_delegated_part_does_is_a_line_and_its_session_is_listed() {
    let rule = |body: &Value| {
        let is_part = body["messages"][1]["content"].to_string().contains("handed you this part");
        let has_result = body["messages"]
            .as_array()
            .is_some_and(|all| all.iter().any(|message| message["role"] == "tool"));
        match (is_part, has_result) {
            (true, _) => endpoint().text("the part is done"),
            (false, false) => endpoint().tool_call("delegate", json!({"task": "look around"})),
            (false, true) => endpoint().text("all is done"),
        }
    };
    let model = endpoint().by_rule(rule).start();
    let server = serve_with(agent().endpoint(&model), &["--delegate"]);
    let session = server.open();
    let mut tab = server.tab(&session, 0);
    server.post(&format!("/api/session/{session}/prompt"), &json!({"text": "go"}), 202);
    let line = tab.until(|name, _| name == "part");
    assert!(line["text"].as_str().is_some_and(|text| text.starts_with("Part 1: 1 turn,")), "{line}");
    tab.until_idle();
    let listed = server.get("/api/sessions")["sessions"].clone();
    assert_eq!(listed[1]["status"], "completed, delegated", "{listed}");
    let part = listed[1]["id"].as_str().expect("an id");
    server.post(&format!("/api/session/{part}/document"), &json!("report"), 200);
}

#[test]
fn files_of_the_sandbox_are_listed_read_packed_and_put_and_nothing_outside_is() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model).file("src/a b.txt", "one"));
    let session = server.open();
    let path = |rest: &str| format!("/api/session/{session}/{rest}");
    let listed = server.get(&path("files?path="));
    assert_eq!(listed["entries"][0]["name"], "src", "{listed}");
    assert_eq!(server.get(&path("files?path=src/"))["entries"][0]["size"], 3);
    assert_eq!(server.ask("GET", &path("file?path=src/a%20b.txt"), &Value::Null), (200, "one".to_owned()));
    for outside in ["..", "src/../..", "/etc", "src/./x", "a%00b"] {
        for route in ["files", "file"] {
            let asked = format!("{}{outside}", path(&format!("{route}?path=")));
            assert_eq!(server.ask("GET", &asked, &Value::Null).0, 400, "{asked}");
        }
        let put = format!("{}{outside}/x", path("file?path="));
        assert_eq!(server.ask_with("PUT", &put, "", "x").0, 400, "{put}");
    }
    assert_eq!(server.ask_with("PUT", &path("file?path=.GIT/config"), "", "x").0, 400);
    assert_eq!(server.ask_with("PUT", &path("file?path=new/deep/c.txt"), "", "three").0, 200);
    assert_eq!(server.ask("GET", &path("file?path=new/deep/c.txt"), &Value::Null).1, "three");
    let (status, archive) = server.ask("GET", &path("files.zip"), &Value::Null);
    assert!(status == 200 && archive.contains("new/deep/c.txt") && archive.contains("src/a b.txt"));
    let agent = server.kill();
    assert!(!agent.workspace().join("new").exists(), "the user's own files are as they were");
}

#[test]
fn a_session_is_named_found_and_removed_and_its_conversation_goes_back() {
    // It is busy for as long as that takes to be seen.
    let model = endpoint().text("first").delay(Duration::from_secs(1)).text("second").start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let path = |rest: &str| format!("/api/session/{session}/{rest}");
    let mut tab = server.tab(&session, 0);
    server.post(&path("prompt"), &json!({"text": "about parsers"}), 202);
    // A stream that opens later begins with the state.
    let is_busy = |name: &str, data: &Value| match name {
        "status" => data["busy"] == true,
        "now" => data["status"]["busy"] == true,
        _ => false,
    };
    tab.until(is_busy);
    assert_eq!(server.post(&path("remove"), &json!({}), 409)["hint"], "wait for its end, or stop it");
    tab.until_idle();
    server.post(&path("title"), &json!({"text": "The\nParser"}), 202);
    assert_eq!(server.get("/api/sessions?search=pARSER")["sessions"][0]["preview"], "The ⏎ Parser");
    assert_eq!(server.get("/api/sessions?search=lexer")["sessions"], json!([]));
    server.post(&path("rewind"), &json!({"prompt": 7}), 400);
    assert_eq!(server.post(&path("rewind"), &json!({"prompt": 1}), 200)["text"], "about parsers");
    tab.until(|name, data| name == "rewound" && data["prompt"] == 1);
    server.post(&path("plan"), &json!("begin"), 202);
    tab.until(|name, data| name == "status" && data["planning"] == true);
    server.post(&path("plan"), &json!("leave"), 202);
    server.post(&path("remove"), &json!({}), 202);
    tab.until(|name, _| name == "closed");
    assert_eq!(server.ask("GET", &path("events"), &Value::Null).0, 404);
    assert_eq!(server.get("/api/sessions")["sessions"], json!([]));
}

/// Opens nothing: what gets as far as this has passed the guard.
struct Nothing;

#[async_trait::async_trait]
impl PageOpener for Nothing {
    async fn open(
        &self,
        _: &Path,
        _: Option<SessionId>,
        _: Arc<dyn Frontend>,
        _: &[Arc<Budget>],
    ) -> Result<Session> {
        Err(Error::usage("there are no sessions here"))
    }

    async fn models(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn model(&self, _: &str, _: &[Arc<Budget>]) -> Result<ModelSettings> {
        Err(Error::usage("there are no models here"))
    }

    async fn end_sandbox(&self, _: &str, _: &SessionId) {}
}

const HOST: &str = "127.0.0.1:4711";

fn in_process(directory: &Path) -> Router {
    let facts = Facts { can_apply: true, may_widen_network: true, limits: Vec::new(), ttl: None };
    let store = Store::at(directory);
    let scope = Scope::new(directory.to_owned(), store, Arc::new(Nothing), facts, Allowance::default());
    router_for(Audience::One(scope))
}

fn router_for(audience: Audience) -> Router {
    let guard = Guard {
        hosts: Hosts::Named(vec![HOST.to_owned(), "localhost:4711".to_owned()]),
        is_behind_proxy: false,
        framed_by: None,
        token: Some(Token::new(TOKEN)),
        lockout: Lockout::default(),
    };
    router(Web::new(guard, audience))
}

/// Browsers that come and go fill nothing up.
#[tokio::test]
async fn visitors_that_did_nothing_make_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let facts = Facts { can_apply: false, may_widen_network: false, limits: Vec::new(), ttl: None };
    let limits =
        VisitorLimits { visitors: 1, ttl: DEADLINE, cost: None, total_cost: None, command_time: DEADLINE };
    let store = Store::at(directory.path());
    let visitors = Visitors::new(store, Arc::new(Nothing), facts, limits).expect("visitors");
    let router = router_for(Audience::Visitors(Box::new(visitors)));
    let mut keys = Vec::new();
    for _ in 0..1001 {
        let answer =
            router.clone().oneshot(request("POST", "/api/visitor", &[], "{}")).await.expect("an answer");
        let body = axum::body::to_bytes(answer.into_body(), 1000).await.expect("a body");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        keys.push(body["visitor"].as_str().expect("a key").to_owned());
    }
    for (key, expected) in [(&keys[0], 403), (&keys[1], 200), (&keys[1000], 200)] {
        let listed = request("GET", "/api/sessions", &[("x-agent-visitor", key)], "");
        assert_eq!(status(&router, listed).await, expected);
    }
}

/// A request like the page's, with other headers in their place; an empty value removes one.
fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let own = format!("http://{HOST}");
    let bearer = format!("Bearer {TOKEN}");
    let usual = [
        ("host", HOST),
        ("origin", own.as_str()),
        ("sec-fetch-site", "same-origin"),
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in usual {
        if !headers.iter().any(|(other, _)| *other == name) {
            request = request.header(name, value);
        }
    }
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).expect("a request")
}

async fn status(router: &Router, request: Request<Body>) -> StatusCode {
    let answer = router.clone().oneshot(request).await.expect("an answer");
    let headers = answer.headers();
    let policy = headers.get("content-security-policy").and_then(|policy| policy.to_str().ok());
    assert!(policy.is_some_and(|policy| policy.contains("default-src 'none'")), "{answer:?}");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["x-dns-prefetch-control"], "off");
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["referrer-policy"], "no-referrer");
    assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
    assert!(!headers.contains_key("set-cookie"));
    assert!(!headers.keys().any(|name| name.as_str().starts_with("access-control")));
    answer.status()
}

#[tokio::test]
async fn only_requests_of_the_own_page_with_the_token_are_answered() {
    let directory = tempfile::tempdir().expect("a directory");
    let router = in_process(directory.path());
    let list = "/api/sessions";
    assert_eq!(status(&router, request("GET", list, &[], "")).await, 200);
    let refused: &[(&[(&str, &str)], u16)] = &[
        (&[("host", "evil.example")], 421),
        (&[("host", "127.0.0.1.evil.example")], 421),
        (&[("host", "localhost.")], 421),
        (&[("host", "127.0.0.1:4712")], 421),
        (&[("host", "")], 400),
        (&[("host", HOST), ("host", HOST)], 400),
        (&[("origin", "null")], 403),
        (&[("origin", "http://127.0.0.1:3000")], 403),
        (&[("origin", "https://127.0.0.1:4711")], 403),
        (&[("origin", "http://evil.example")], 403),
        (&[("origin", "http://localhost:4711")], 403),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[("sec-fetch-site", "cross-site")], 403),
        (&[("sec-fetch-site", "none")], 403),
        (&[("authorization", "")], 401),
        (&[("authorization", "Bearer wrong")], 401),
        (&[("authorization", "Basic YTpi")], 401),
    ];
    for (headers, expected) in refused {
        for method in ["GET", "POST"] {
            let answer = status(&router, request(method, list, headers, "{}")).await;
            assert_eq!(answer.as_u16(), *expected, "{method} {headers:?}");
        }
    }
    for headers in [[("origin", "")], [("sec-fetch-site", "")], [("host", "localhost:4711")]] {
        let origin = ("origin", "");
        let headers = [headers[0], origin];
        assert_eq!(status(&router, request("GET", list, &headers, "")).await, 200, "{headers:?}");
    }
    let in_query = format!("{list}?token={TOKEN}&t={TOKEN}");
    assert_eq!(status(&router, request("GET", &in_query, &[("authorization", "")], "")).await, 401);
}

#[tokio::test]
async fn methods_types_and_sizes_are_bounded_and_every_answer_has_its_headers() {
    let directory = tempfile::tempdir().expect("a directory");
    let router = in_process(directory.path());
    for path in ["/", "/api/sessions", "/app.js", "/nowhere", "/x/a/b"] {
        for method in ["OPTIONS", "DELETE", "PATCH", "TRACE", "CONNECT"] {
            let uri = if method == "CONNECT" { HOST } else { path };
            assert_eq!(status(&router, request(method, uri, &[], "")).await, 405, "{method} {path}");
        }
    }
    assert_eq!(status(&router, request("POST", "/", &[], "{}")).await, 405);
    for kind in ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let answer = status(&router, request("POST", "/api/sessions", &[("content-type", kind)], "{}")).await;
        assert_eq!(answer, 415, "{kind}");
    }
    let large = format!("{{\"session\": \"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(status(&router, request("POST", "/api/sessions", &[], &large)).await, 413);
    assert_eq!(status(&router, request("POST", "/api/sessions", &[], "{]")).await, 400);
    assert_eq!(status(&router, request("GET", "/nowhere", &[], "")).await, 404);
    for path in [
        "/",
        "/app.js",
        "/review.js",
        "/terminal.js",
        "/app.css",
        "/terminal.css",
        "/icon.svg",
        "/vendor/xterm.mjs",
        "/vendor/xterm.css",
        "/vendor/addon-fit.mjs",
        "/healthz",
    ] {
        let plain = [("authorization", ""), ("origin", ""), ("sec-fetch-site", "none")];
        assert_eq!(status(&router, request("GET", path, &plain, "")).await, 200, "{path}");
    }
    let routes = ["events", "diff", "patch", "models"];
    for route in routes {
        let path = format!("/api/session/20261120-153012-k3f9/{route}");
        assert_eq!(
            status(&router, request("GET", &path, &[("authorization", "")], "")).await,
            401,
            "{route}"
        );
    }
    for id in ["..", "%2e%2e%2f", "x", "20261120-153012-k3f9"] {
        let answer = status(&router, request("GET", &format!("/api/session/{id}/diff"), &[], "")).await;
        assert!(matches!(answer.as_u16(), 400 | 404), "{id}: {answer}");
    }
}

#[tokio::test]
async fn races_are_tables_and_what_cannot_be_read_has_a_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let races = directory.path().join("races");
    std::fs::create_dir(&races).expect("a directory");
    let race = |workspace: &Path| {
        json!({
            "id": "20261120-153012-k3f9", "prompt": "run\u{202e}", "workspace": workspace, "checks": [],
            "began": "2026-11-20T15:30:12Z", "winner": 1,
            "attempts": [{
                "number": 1, "state": "passed", "lines": 3, "answer": "", "model": "m", "turns": 2, "seconds": 1.5,
                "usage": {"input": 900, "output": 600, "cached": 0}, "changes": {"added": 0, "modified": 1, "deleted": 0},
            }],
        })
    };
    for (name, workspace) in [("own", directory.path()), ("other", Path::new("/elsewhere"))] {
        std::fs::write(races.join(format!("{name}.json")), race(workspace).to_string()).expect("written");
    }
    let router = in_process(directory.path());
    let body = async |request: Request<Body>| {
        let answer = router.clone().oneshot(request).await.expect("an answer");
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
        serde_json::from_slice::<Value>(&body).expect("JSON")
    };
    let listed = body(request("GET", "/api/sessions", &[], "")).await;
    let cells = json!(["1 ★ won", "passed", "m", "2", "1.5k", "1.5 s", "3"]);
    assert_eq!(listed["races"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["races"][0]["attempts"][0]["cells"], cells);
    assert_eq!(listed["races"][0]["title"], "Race: run\\u{202e}");
    assert_eq!(
        body(request("POST", "/api/sessions", &[], "{]")).await["error"],
        "the request cannot be read"
    );
    let large = format!("{{\"session\": \"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(
        body(request("POST", "/api/sessions", &[], &large)).await["error"],
        "the request is too large"
    );
    assert_eq!(status(&router, request("GET", "/healthz", &[("host", "10.0.0.7:7860")], "")).await, 200);
}

#[tokio::test]
async fn ten_wrong_tokens_lock_the_client_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let router = in_process(directory.path());
    let wrong = [("authorization", "Bearer wrong")];
    for _ in 0..10 {
        assert_eq!(status(&router, request("GET", "/api/sessions", &wrong, "")).await, 401);
    }
    assert_eq!(status(&router, request("GET", "/api/sessions", &wrong, "")).await, 429);
    assert_eq!(status(&router, request("GET", "/api/sessions", &[], "")).await, 429);
    assert_eq!(status(&router, request("GET", "/", &[], "")).await, 200);
}

#[test]
fn the_page_is_small() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/server/src/web/page");
    let sizes = ["index.html", "app.js", "sessions.js", "app.css"]
        .map(|file| std::fs::metadata(page.join(file)).expect(file).len());
    assert!(sizes.iter().sum::<u64>() < 60 * 1024, "{sizes:?}");
}

#[tokio::test]
async fn the_page_is_sent_packed_to_those_that_can_unpack_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let router = in_process(directory.path());
    let mut total = 0;
    for file in ["index.html", "app.js", "sessions.js", "app.css"] {
        let path = &format!("/{}", if file == "index.html" { "" } else { file });
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/server/src/web/page").join(file);
        let text = std::fs::read(file).expect("the file");
        for (accepted, packed) in [
            ("", false),
            ("br", false),
            ("gzip;q=0, br", false),
            ("identity; q=1, GZIP;q=0.5", true),
            ("gzip, br", true),
        ] {
            let asked = request("GET", path, &[("accept-encoding", accepted)], "");
            let answer = router.clone().oneshot(asked).await.expect("an answer");
            let headers = answer.headers().clone();
            let encoding = headers.get("content-encoding").map(|encoding| encoding.as_bytes());
            assert_eq!(encoding, packed.then_some(&b"gzip"[..]), "{path} {accepted}");
            assert_eq!(headers["vary"], "accept-encoding");
            let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
            if packed {
                let mut unpacked = Vec::new();
                flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut unpacked).expect("gzip");
                assert!(unpacked == text, "{path}");
            } else {
                assert!(body == text, "{path}");
            }
            total += if accepted == "gzip, br" { body.len() } else { 0 };
        }
    }
    assert!(total < 22 * 1024, "{total} bytes for the first page");
}
