//! `agent acp`: with the protocol's own client, and with hostile ones.

use crate::support::rpc::{Server, answer, exchange, lines, send};
use agent_testbed::agent::{Agent, agent, binary};
use agent_testing::counterpart::{client, python, script};
use agent_testing::endpoint::{Endpoint, endpoint};
use agent_testing::hostile_text::{assert_harmless, hostile_text, octal};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;

pub fn driven(scenario: &str, endpoint: &Endpoint, call: Agent) {
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

/// `acpx --approve-all` says yes to every question.
#[test]
fn acpx_shows_the_answer_and_what_it_agrees_to_is_applied() {
    let (Some(node), Some(acpx)) = (client("acpx", "node"), client("acpx", "acpx")) else { return };
    let command = format!("{} acp", binary().display());
    let endpoint = endpoint()
        .tool_call("write_file", json!({ "path": "new.txt", "data": "hello\n" }))
        .tool_call("run_commands", json!({ "command": "tr a-z A-Z < new.txt" }))
        .text("It says **HELLO** in capitals.")
        .start();
    let finished = agent()
        .driven_by(&node)
        .endpoint(&endpoint)
        .args([acpx.as_os_str(), "--approve-all".as_ref(), "--agent".as_ref(), command.as_ref()])
        .args(["exec", "write hello to new.txt and shout it"])
        .run()
        .expect_code(0);
    assert!(finished.stdout.contains("It says **HELLO** in capitals."), "{}", finished.stdout);
    assert_eq!(finished.host_file("new.txt").as_deref(), Some("hello\n"));
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[0].messages().iter().any(|message| message.to_string().contains("shout it")));
    let last = requests[2].messages().last().expect("a result").to_string();
    assert!(last.contains("HELLO"), "{last}");
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
fn unknown_methods_sessions_and_directories_are_refused_by_name() {
    let input = lines(&[
        request(1, "session/new", json!({ "cwd": "does-not-exist", "mcpServers": [] })),
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

/// One client sends `.`, although the protocol asks for an absolute path.
#[test]
fn a_relative_directory_is_seen_from_where_the_client_started_the_server() {
    let endpoint = endpoint().text("never").start();
    let input = lines(&[request(1, "session/new", json!({ "cwd": ".", "mcpServers": [] }))]);
    let mut server = Server::start(agent().endpoint(&endpoint), &["acp"]);
    server.send(input.as_bytes());
    assert!(server.answers(1)[0]["result"]["sessionId"].is_string());
    assert_eq!(server.end(), 0);
}

/// An editor without an SDK, so that it can do what no SDK does.
struct Editor {
    server: Server,
    session: Value,
    /// All that the server has sent.
    seen: Vec<Value>,
    next: u64,
}

impl Editor {
    /// With an open session; `fs` says what it does with files.
    fn start(call: Agent, arguments: &[&str], fs: Value) -> Self {
        Self::able_to(call, arguments, json!({ "fs": fs }))
    }

    /// With these capabilities.
    fn able_to(call: Agent, arguments: &[&str], capabilities: Value) -> Self {
        let cwd = call.workspace().to_owned();
        let arguments: Vec<&str> = ["acp"].iter().chain(arguments).copied().collect();
        let server = Server::start(call, &arguments);
        let mut editor = Self { server, session: Value::Null, seen: Vec::new(), next: 0 };
        editor.request("initialize", json!({ "protocolVersion": 1, "clientCapabilities": capabilities }));
        let opened = editor.request("session/new", json!({ "cwd": cwd, "mcpServers": [] }));
        editor.session = opened["result"]["sessionId"].clone();
        editor
    }

    fn send(&mut self, message: &Value) {
        self.server.send(format!("{message}\n").as_bytes());
    }

    fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.send(&request(self.next, method, params));
        self.next
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id, |_, _| None)
    }

    /// Waits for the answer to request `id`, and answers what is asked meanwhile; `None`: not at all.
    fn answer(&mut self, id: u64, mut reply: impl FnMut(&str, &Value) -> Option<Value>) -> Value {
        loop {
            let message = self.server.next();
            self.seen.push(message.clone());
            match (message["method"].as_str(), message.get("id")) {
                (None, Some(answered)) if *answered == id => return message,
                (Some(method), Some(asked)) => {
                    if let Some(result) = reply(method, &message["params"]) {
                        self.send(&json!({ "jsonrpc": "2.0", "id": asked, "result": result }));
                    }
                }
                _ => {}
            }
        }
    }

    /// Prompts, and answers what is asked meanwhile. Why the prompt ended.
    fn prompt(&mut self, reply: impl FnMut(&str, &Value) -> Option<Value>) -> Value {
        let id = self.begin_prompt();
        self.answer(id, reply)["result"]["stopReason"].clone()
    }

    fn begin_prompt(&mut self) -> u64 {
        self.begin_text("do it")
    }

    fn begin_text(&mut self, text: &str) -> u64 {
        let blocks = json!([{ "type": "text", "text": text }]);
        self.begin("session/prompt", json!({ "sessionId": self.session, "prompt": blocks }))
    }

    /// How often it was asked something.
    fn count(&self, method: &str) -> usize {
        self.seen.iter().filter(|message| message["method"] == method).count()
    }

    /// The last update of a call: its status and its text.
    fn last_call(&self) -> (String, String) {
        let update = |message: &Value| message["params"]["update"].clone();
        let mut calls = self.seen.iter().rev().map(update);
        let last = calls.find(|update| update["sessionUpdate"] == "tool_call_update").expect("a call");
        let text = last["content"][0]["content"]["text"].as_str().unwrap_or_default();
        (last["status"].as_str().unwrap_or_default().to_owned(), text.to_owned())
    }
}

/// A form is offered where the editor shows forms.
#[test]
fn what_the_user_says_in_a_form_is_the_reason_of_the_refusal() {
    for (capabilities, ids) in [
        (json!({ "elicitation": { "form": {} } }), json!(["once", "always", "no", "said"])),
        (json!({}), json!(["once", "always", "no"])),
    ] {
        let endpoint = command("touch made");
        let mut editor = Editor::able_to(agent().endpoint(&endpoint), &["--approve", "always"], capabilities);
        let mut offered = Vec::new();
        editor.prompt(|method, params| match method {
            "session/request_permission" => {
                let options = params["options"].as_array().expect("options");
                offered.extend(options.iter().map(|option| option["optionId"].clone()));
                chosen(if options.len() > 3 { "said" } else { "no" })
            }
            "elicitation/create" => {
                assert_eq!(params["requestedSchema"]["required"], json!(["words"]));
                Some(json!({ "action": "accept", "content": { "words": "use a helper" } }))
            }
            _ => None,
        });
        assert_eq!(json!(offered), ids);
        let result = endpoint.last().messages().pop().expect("a result")["content"].to_string();
        let is_said = result.contains("the user refused it and said: use a helper");
        assert_eq!(is_said, ids[3] == "said", "{result}");
    }
}

fn chosen(option: &str) -> Option<Value> {
    Some(json!({ "outcome": { "outcome": "selected", "optionId": option } }))
}

fn command(command: &str) -> Endpoint {
    endpoint().tool_call("run_commands", json!({ "command": command })).text("Done.").repeat_last().start()
}

/// An editor that has `unsaved` text; it writes what it is given to write where its path leads.
fn text_editor(choice: &'static str, unsaved: Value) -> impl FnMut(&str, &Value) -> Option<Value> {
    move |method, params| {
        let path = params["path"].as_str().unwrap_or_default();
        match method {
            "session/request_permission" => chosen(choice),
            "fs/write_text_file" => {
                let directory = Path::new(path).parent().expect("a directory");
                std::fs::create_dir_all(directory).expect("the directory");
                std::fs::write(path, params["content"].as_str().expect("text")).expect("the file");
                Some(json!({}))
            }
            _ => {
                let name = Path::new(path).file_name().expect("a name").to_string_lossy();
                let text = unsaved[&*name].as_str().map(str::to_owned);
                let text = text.or_else(|| std::fs::read_to_string(path).ok());
                Some(text.map_or(Value::Null, |text| json!({ "content": text })))
            }
        }
    }
}

/// What an editor shows: calls with their results, answers, and the question with the diff.
#[test]
fn attack_74_an_editor_gets_no_hostile_text_as_it_is() {
    let make = format!("printf '{0}\\n' > content; printf '{0}\\n'", octal());
    let endpoint =
        endpoint().tool_call("run_commands", json!({ "command": make })).text(&hostile_text()).start();
    let mut editor = Editor::start(agent().endpoint(&endpoint), &[], json!({}));
    let mut asked = Value::Null;
    let reason = editor.prompt(|_, params| {
        asked = params.clone();
        chosen("apply")
    });
    assert_eq!(reason, "end_turn");
    let texts = |value: &Value| strings(value).join("\n");
    assert_harmless("the editor's question", &texts(&asked));
    let updates: Vec<Value> =
        editor.seen.iter().filter(|message| message["method"] == "session/update").cloned().collect();
    assert_harmless("the editor's updates", &texts(&Value::from(updates)));
}

/// A symlink in the place of a file was an edit of its text.
#[test]
fn symlinks_and_directories_are_said_in_words_to_an_editor() {
    let endpoint =
        command("mkdir empty; ln -sf docs/notes.txt Makefile; ln -s docs/notes.txt new; echo x > file");
    let mut editor = Editor::start(agent().endpoint(&endpoint).file("Makefile", "all:\n"), &[], json!({}));
    let mut asked = Value::Null;
    editor.prompt(|_, params| {
        asked = params.clone();
        chosen("keep")
    });
    let texts = strings(&asked).join("\n");
    for said in [
        "modified Makefile (file → symlink) → docs/notes.txt",
        "new symlink new → docs/notes.txt",
        "new directory empty",
    ] {
        assert!(texts.contains(said), "{said}: {asked}");
    }
    assert_eq!(asked.to_string().matches("oldText").count(), 1, "{asked}");
}

/// All texts of a value.
fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        // What is meant for programs is as it is.
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !name.starts_with("raw"))
            .flat_map(|(_, value)| strings(value))
            .collect(),
        _ => Vec::new(),
    }
}

const FS: fn() -> Value = || json!({ "readTextFile": true, "writeTextFile": true });

#[test]
fn what_an_editor_writes_never_goes_through_a_symlink_of_this_machine() {
    // "Apply through the editor" named paths that were symlinks on this machine, and the editor followed them.
    let endpoint = command(
        "rm notes.txt d; echo evil > notes.txt; mkdir d; echo evil > d/config; echo fine > fine.txt; mkdir e; echo fine > e/f",
    );
    let call = agent().endpoint(&endpoint).file("kept/config", "mine\n");
    let root = call.workspace().to_owned();
    symlink("kept/config", root.join("notes.txt")).unwrap();
    symlink("kept", root.join("d")).unwrap();
    let mut editor = Editor::start(call, &[], FS());
    assert_eq!(editor.prompt(text_editor("apply_in_editor", json!({}))), "end_turn");
    assert_eq!(std::fs::read_to_string(root.join("kept/config")).unwrap(), "mine\n");
    assert_eq!(std::fs::read_to_string(root.join("fine.txt")).unwrap(), "fine\n");
    assert_eq!(std::fs::read_to_string(root.join("e/f")).unwrap(), "fine\n");
    let (status, text) = editor.last_call();
    assert_eq!(status, "completed", "{text}");
    assert!(text.contains("notes.txt") && text.contains("d/config"), "{text}");
}

#[test]
fn what_an_editor_writes_has_not_changed_on_this_machine_meanwhile() {
    let endpoint = command("echo sandbox > old.txt");
    let call = agent().endpoint(&endpoint).file("old.txt", "before\n");
    let old = call.workspace().join("old.txt");
    let mut editor = Editor::start(call, &[], json!({ "writeTextFile": true }));
    let mut reply = text_editor("apply_in_editor", json!({}));
    let reason = editor.prompt(|method, params| {
        std::fs::write(&old, "changed by the user\n").unwrap();
        reply(method, params)
    });
    assert_eq!((reason, editor.last_call().0), (json!("end_turn"), "failed".to_owned()));
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "changed by the user\n");
}

#[test]
fn text_that_is_not_saved_is_found_in_every_file_and_in_new_ones() {
    // Only the first 300 changes were compared, and files that the session adds never.
    for unsaved in ["400.txt", "added.txt"] {
        let endpoint = command("for i in $(seq 101 400); do echo after > $i.txt; done; echo new > added.txt");
        let call = (101..=400).fold(agent().endpoint(&endpoint), |call, number| {
            call.file(&format!("{number}.txt"), "before\n")
        });
        let root = call.workspace().to_owned();
        let mut editor = Editor::start(call, &[], FS());
        let typed = json!({ unsaved: "typed and not saved\n" });
        assert_eq!(editor.prompt(text_editor("apply", typed)), "end_turn");
        let (status, text) = editor.last_call();
        assert!(status == "failed" && text.contains(unsaved), "{status}: {text}");
        assert_eq!(std::fs::read_to_string(root.join("101.txt")).unwrap(), "before\n");
    }
}

#[test]
fn an_editor_that_does_not_say_what_it_has_can_be_cancelled() {
    for (option, silent) in [("apply", "fs/read_text_file"), ("apply_in_editor", "fs/write_text_file")] {
        let endpoint = command("echo one > a.txt; echo two > b.txt");
        let call = agent().endpoint(&endpoint);
        let root = call.workspace().to_owned();
        let mut editor = Editor::start(call, &[], FS());
        let (session, id) = (editor.session.clone(), editor.begin_prompt());
        let mut reply = text_editor(option, json!({}));
        // It goes silent with the first such question: the answer is that of the cancellation.
        loop {
            let message = editor.server.next();
            let method = message["method"].as_str().unwrap_or_default();
            if method == silent {
                break;
            }
            if let Some(asked) = message.get("id") {
                let result = reply(method, &message["params"]);
                editor.send(&json!({ "jsonrpc": "2.0", "id": asked, "result": result }));
            }
        }
        let params = json!({ "sessionId": session });
        editor.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }));
        let answer = editor.answer(id, |_, _| None);
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{option}: {answer}");
        assert_eq!(editor.count(silent), 0, "nothing more is asked after it");
        assert!(!root.join("a.txt").exists() && !root.join("b.txt").exists(), "{option}");
    }
}

#[test]
fn a_prompt_that_reached_its_time_limit_is_still_asked_about() {
    // It was answered as cancelled, and its changes were left undecided.
    let endpoint = endpoint()
        .tool_call("write_file", json!({ "path": "new.txt", "data": "hello\n" }))
        .tool_call("run_commands", json!({ "command": "sleep 600" }))
        .start();
    let call = agent().endpoint(&endpoint);
    let new = call.workspace().join("new.txt");
    let mut editor = Editor::start(call, &["--max-time", "15s"], json!({}));
    assert_eq!(editor.prompt(text_editor("apply", json!({}))), "max_tokens");
    assert_eq!(editor.count("session/request_permission"), 1);
    assert_eq!(std::fs::read_to_string(new).unwrap(), "hello\n");
    assert!(editor.seen.iter().any(|message| message.to_string().contains("the time limit is reached")));
}

#[test]
fn the_model_and_the_network_are_options_of_a_session() {
    let endpoint = endpoint()
        .models(200, r#"{"data":[{"id":"test-model"},{"id":"other-model"}]}"#)
        .text("Done.")
        .repeat_last();
    let endpoint = endpoint.start();
    let mut editor = Editor::start(agent().endpoint(&endpoint), &[], json!({}));
    let session = editor.session.clone();
    let opened = editor.seen.last().expect("an answer")["result"]["configOptions"].clone();
    let ids = |options: &Value| -> Vec<Value> {
        options.as_array().expect("options").iter().map(|option| option["currentValue"].clone()).collect()
    };
    assert_eq!(ids(&opened), ["ask", "test-model", "none"]);
    // The models that the endpoint offers follow when it has said so.
    while !editor.seen.iter().any(|message| message.to_string().contains("other-model")) {
        let message = editor.server.next();
        editor.seen.push(message);
    }
    for (option, value, values) in [
        ("model", "other-model", ["ask", "other-model", "none"]),
        ("network", "registries", ["ask", "other-model", "registries"]),
        ("apply", "never", ["never", "other-model", "registries"]),
    ] {
        let params = json!({ "sessionId": session, "configId": option, "value": value });
        let answer = editor.request("session/set_config_option", params);
        assert_eq!(ids(&answer["result"]["configOptions"]), values, "{answer}");
    }
    for (option, value) in [("network", "full"), ("apply", "sometimes"), ("model", ""), ("other", "x")] {
        let params = json!({ "sessionId": session, "configId": option, "value": value });
        let answer = editor.request("session/set_config_option", params);
        assert_eq!(answer["error"]["code"], -32602, "{option}: {answer}");
    }
    assert_eq!(editor.prompt(|_, _| None), "end_turn");
    let asked = endpoint.last();
    assert_eq!(asked.body["model"], "other-model");
    assert!(asked.messages().last().expect("a prompt").to_string().contains("registries"));
}

#[test]
fn prompts_of_mcp_servers_are_commands() {
    let endpoint = endpoint().text("Hello.").text("Reviewed.").start();
    let settings = "[mcp.servers.s]\ncommand = \"python3\"\nargs = [\"/workspace/server.py\", \"modern\", \"0\", \"prompts\"]\n";
    let call = agent()
        .file("server.py", include_str!("mcp_servers/server.py"))
        .file("secret.txt", "the secret")
        .config(settings)
        .endpoint(&endpoint);
    let mut editor = Editor::start(call, &[], json!({}));
    assert_eq!(editor.prompt(|_, _| None), "end_turn");
    let updates: Vec<Value> = editor.seen.iter().map(|message| message["params"]["update"].clone()).collect();
    let listed = updates.iter().rev().find(|update| update["sessionUpdate"] == "available_commands_update");
    let commands = listed.expect("the commands")["availableCommands"].as_array().expect("a list").clone();
    let review = commands.iter().find(|command| command["name"] == "mcp__s__review").expect("the prompt");
    assert_eq!(review["input"]["hint"], "file [how]");
    let id = editor.begin_text("/mcp__s__review a.rs how=well");
    assert_eq!(editor.answer(id, |_, _| None)["result"]["stopReason"], "end_turn");
    let sent = endpoint.requests()[1].messages().last().expect("a message")["content"].to_string();
    assert!(sent.contains("Review [('file', 'a.rs'), ('how', 'well')] and @secret.txt"), "{sent}");
    assert!(!sent.contains("the secret"), "a server names no files: {sent}");
    let id = editor.begin_text("/mcp__s__review");
    let refused = editor.answer(id, |_, _| None);
    assert!(refused["error"].to_string().contains("the prompt needs file"), "{refused}");
    let id = editor.begin_text("/mcp__s__other");
    let refused = editor.answer(id, |_, _| None);
    assert!(refused["error"].to_string().contains("no MCP server has the prompt"), "{refused}");
    assert_eq!(endpoint.requests().len(), 2);
}

#[test]
fn a_request_that_is_cancelled_by_its_id_is_answered_so() {
    let endpoint = command("sleep 600");
    let mut editor = Editor::start(agent().endpoint(&endpoint), &[], json!({}));
    let id = editor.begin_prompt();
    while !editor.server.next().to_string().contains("sleep 600") {}
    let params = json!({ "requestId": id });
    editor.send(&json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": params }));
    let answer = editor.answer(id, |_, _| None);
    assert_eq!(answer["error"]["code"], -32800, "{answer}");
}

#[test]
fn the_number_of_sessions_is_bounded_when_they_are_opened_at_the_same_time() {
    // The number was looked at before the sessions were opened, and 200 were opened then.
    let endpoint = endpoint().text("never").start();
    let call = agent().endpoint(&endpoint);
    let cwd = call.workspace().to_owned();
    let many: Vec<Value> =
        (0..80).map(|id| request(id, "session/new", json!({ "cwd": cwd, "mcpServers": [] }))).collect();
    let answers = exchange(call, &["acp"], lines(&many), many.len());
    let refused = answers.iter().filter(|answer| answer.to_string().contains("which is the limit")).count();
    assert_eq!(refused, 80 - 64, "{answers:?}");
}

#[test]
fn what_the_user_changes_between_prompts_is_in_the_sandbox() {
    let endpoint = endpoint()
        .tool_call("run_commands", json!({ "command": "cat old.txt; echo sandbox > both.txt" }))
        .text("Done.")
        .tool_call("run_commands", json!({ "command": "cat old.txt both.txt" }))
        .text("Done.")
        .start();
    let call = agent().endpoint(&endpoint).file("old.txt", "before\n").file("both.txt", "before\n");
    let root = call.workspace().to_owned();
    let mut editor = Editor::start(call, &[], json!({}));
    assert_eq!(editor.prompt(text_editor("keep", json!({}))), "end_turn");
    std::fs::write(root.join("old.txt"), "edited by the user\n").unwrap();
    std::fs::write(root.join("both.txt"), "edited by the user\n").unwrap();
    assert_eq!(editor.prompt(text_editor("apply", json!({}))), "end_turn");
    let messages = endpoint.last().messages();
    let result = messages.last().expect("a result").to_string();
    assert!(result.contains("edited by the user") && result.contains("sandbox"), "{result}");
    // What both have changed is a conflict, and nothing is written.
    let (status, text) = editor.last_call();
    assert!(status != "completed" || !text.contains("written to"), "{status}: {text}");
    assert_eq!(std::fs::read_to_string(root.join("both.txt")).unwrap(), "edited by the user\n");
}

#[test]
fn a_deleted_session_leaves_no_sandbox_that_was_kept() {
    let endpoint = command("true");
    let call = agent().endpoint(&endpoint);
    let again = call.again();
    let mut editor = Editor::start(call, &["--keep"], json!({}));
    assert_eq!(editor.prompt(|_, _| None), "end_turn");
    let (session, id) = (editor.session.clone(), editor.session.as_str().expect("an id").to_owned());
    assert_eq!(editor.request("session/delete", json!({ "sessionId": session }))["result"], json!({}));
    let listed = again.args(["sandbox", "list", "--json"]).run().expect_code(0);
    assert!(!listed.stdout.contains(&id), "{}", listed.stdout);
}
