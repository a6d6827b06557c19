//! Hooks: the user's own commands, in the sandbox and on the host, and what they can block.

use agent_testbed::agent::{Agent, agent};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};

/// A hook on the host that appends what it reads to `log` beside config.toml.
fn logging(event: &str) -> String {
    format!("[[hooks]]\nevent = \"{event}\"\nwhere = \"host\"\ncommand = \"cat >> log; echo >> log\"\n")
}

fn log(agent: &Agent) -> std::path::PathBuf {
    agent.home("config").join("log")
}

#[test]
fn hooks_read_what_happens_and_run_in_order() {
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "a.txt", "data": "new\n" }))
        .text("Written.")
        .start();
    let events = ["session_start", "before_tool", "after_tool", "before_apply", "session_end"];
    let config: String = events.iter().map(|event| logging(event)).collect();
    let call =
        agent().endpoint(&model).config(&config).file("a.txt", "old\n").args(["run", "--apply", "write"]);
    let log = log(&call);
    let _finished = call.run().expect_code(0);
    let lines: Vec<Value> = std::fs::read_to_string(log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(names, events);
    assert!(lines.iter().all(|line| line["session"] == lines[0]["session"] && line["workspace"].is_string()));
    assert_eq!(lines[1]["tool"], "write_file");
    assert_eq!(lines[2]["arguments"], json!({ "path": "a.txt", "data": "new\n" }));
    assert_eq!((&lines[2]["ok"], &lines[3]["files"]), (&json!(true), &json!(["a.txt"])));
    assert_eq!(lines[4]["status"], "completed");
}

#[test]
fn a_hook_blocks_a_tool_with_a_reason_for_the_model() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo forbidden > /tmp/x" }))
        .tool_call("read_file", json!({ "path": "a.txt" }))
        .text("ok")
        .start();
    let finished = agent()
        .endpoint(&model)
        .file("a.txt", "text\n")
        .config(
            "[[hooks]]\nevent = \"before_tool\"\ntools = [\"run_commands\"]\nwhere = \"host\"\n\
             command = \"grep -q forbidden && { echo use another file >&2; exit 2; }\"\n\
             [[hooks]]\nevent = \"after_tool\"\ntools = [\"read_file\"]\ncommand = \"echo well read >&2; exit 2\"\n",
        )
        .args(["run", "--json", "try"])
        .run()
        .expect_code(0);
    let results: Vec<String> = model.requests()[1..]
        .iter()
        .map(|request| request.messages().last().unwrap()["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(results[0], "error: not run, because a hook of the user's refuses it: use another file");
    assert_eq!(results[1], "text\n\n\n[a hook of the user's says: well read]");
    assert_eq!(finished.events_of("denied")[0]["rule"], "a hook: use another file");
}

#[test]
fn a_required_hook_blocks_where_it_fails_or_takes_too_long() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "true" }))
        .tool_call("read_file", json!({ "path": "a.txt" }))
        .text("ok")
        .start();
    let hook = |tool: &str, command: &str| {
        format!(
            "[[hooks]]\nevent = \"before_tool\"\ntools = [\"{tool}\"]\nwhere = \"host\"\nrequired = true\n\
             command = \"{command}\"\ntimeout = \"1s\"\n"
        )
    };
    let config = hook("run_commands", "echo broken >&2; exit 7") + &hook("read_file", "sleep 600");
    let finished = agent()
        .endpoint(&model)
        .file("a.txt", "text\n")
        .config(&config)
        .args(["run", "--json", "try"])
        .run()
        .expect_code(0);
    let rules: Vec<String> =
        finished.events_of("denied").iter().map(|event| event["rule"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        rules,
        [
            "a hook: `echo broken >&2; exit 7` failed, and is required: exit code 7: broken",
            "a hook: `sleep 600` failed, and is required: it took more than 1 s",
        ]
    );
}

#[test]
fn a_hook_at_the_end_starts_no_sandbox_that_a_task_did_not_need() {
    let model = endpoint().text("42").start();
    let call = agent()
        .endpoint(&model)
        .config("[[hooks]]\nevent = \"session_end\"\ncommand = \"true\"\n")
        .file("tasks.jsonl", "{\"id\": \"a\", \"prompt\": \"what is it?\"}\n")
        .args(["batch", "tasks.jsonl", "--out", "out"]);
    let sandboxes = call.home("data").join("sandboxes");
    let finished = call.run().expect_code(0);
    assert!(!sandboxes.exists(), "{}", finished.stderr);
}

#[test]
fn hooks_run_in_the_sandbox_unless_they_name_the_host() {
    let model =
        endpoint().tool_call("run_commands", json!({ "command": "cat /tmp/seen" })).text("ok").start();
    let call = agent()
        .endpoint(&model)
        .config("[[hooks]]\nevent = \"session_start\"\ncommand = \"pwd | tee /tmp/seen; cat >> /tmp/seen\"\n")
        .args(["run", "look"]);
    let place = call.workspace().display().to_string();
    call.run().expect_code(0);
    let prompt = model.requests()[0].messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(prompt.contains(&format!("A hook of the user's says at the start:\n{place}")), "{prompt}");
    let result = model.last().messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(result.contains(&format!("{place}\n{{\"event\":\"session_start\"")), "{result}");
}

#[test]
fn a_hook_refuses_an_apply_and_a_session() {
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "a.txt", "data": "new\n" }))
        .text("Written.")
        .start();
    let refusing = |place: &str| {
        format!(
            "[[hooks]]\nevent = \"before_apply\"\nwhere = \"{place}\"\ncommand = \"grep -s new a.txt >&2 || echo not yet >&2; exit 2\"\n"
        )
    };
    let finished = agent()
        .endpoint(&model)
        .config(&refusing("sandbox"))
        .args(["run", "--apply", "write"])
        .run()
        .expect_code(2);
    assert!(finished.stderr.contains("a hook refuses the apply: new"), "{}", finished.stderr);
    assert_eq!(finished.host_file("a.txt"), None);
    let finished = finished.again().args(["apply", "-y"]).run().expect_code(2);
    assert!(
        finished.stderr.contains("a hook refuses the apply: new"),
        "a restored sandbox: {}",
        finished.stderr
    );
    let finished = finished.again().config(&refusing("host")).args(["apply", "-y"]).run().expect_code(2);
    assert!(finished.stderr.contains("a hook refuses the apply: not yet"), "{}", finished.stderr);
    assert_eq!(finished.host_file("a.txt"), None);
    let finished = finished.again().config("").args(["apply", "-y"]).run().expect_code(0);
    assert_eq!(finished.host_file("a.txt").as_deref(), Some("new\n"));

    let refused = agent()
        .endpoint(&model)
        .config("[[hooks]]\nevent = \"session_start\"\nwhere = \"host\"\ncommand = \"echo on holiday >&2; exit 2\"\n")
        .args(["run", "write"])
        .run()
        .expect_code(2);
    assert!(refused.stderr.contains("a hook refuses the session: on holiday"), "{}", refused.stderr);
}

#[test]
fn a_hook_that_fails_or_takes_too_long_holds_nothing_up() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "true" })).text("ok").start();
    let mut config = String::new();
    for place in ["host", "sandbox"] {
        for command in ["sleep 600", "exit 1", "yes | head -c 50000000 >&2; exit 3", "kill -9 $$"] {
            config += &format!(
                "[[hooks]]\nevent = \"before_tool\"\nwhere = \"{place}\"\ntimeout = \"1s\"\ncommand = \"{command}\"\n"
            );
        }
    }
    let finished = agent().endpoint(&model).config(&config).args(["run", "go"]).run().expect_code(0);
    assert!(finished.stderr.matches("it took more than 1 s").count() >= 2, "{}", finished.stderr);
    assert!(finished.stderr.matches("exit code 1").count() == 2, "{}", finished.stderr);
    let result = model.last().messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(result.starts_with("exit code 0"), "{result}");

    let wrong = agent().endpoint(&model).config("[[hooks]]\nevent = \"sometimes\"\ncommand = \"true\"\n");
    let wrong = wrong.args(["run", "go"]).run().expect_code(2);
    assert!(wrong.stderr.contains("sometimes"), "{}", wrong.stderr);
}

#[test]
fn a_host_hook_gets_no_key_and_runs_nothing_of_the_repository() {
    let model = endpoint().text("ok").start();
    let call = agent()
        .endpoint(&model)
        .file("mine", "#!/bin/sh\necho repository\n")
        .config("[[hooks]]\nevent = \"session_start\"\nwhere = \"host\"\ncommand = \"(env; pwd; mine) > log 2>&1\"\n")
        .env("OPENAI_API_KEY", "secret-key");
    std::fs::set_permissions(
        call.workspace().join("mine"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let path = format!("{}:{}", call.workspace().display(), std::env::var("PATH").unwrap());
    let log = log(&call);
    let _finished = call.env("PATH", path).args(["run", "go"]).run().expect_code(0);
    let log = std::fs::read_to_string(log).unwrap();
    assert!(!log.contains("secret-key") && !log.contains("test-key"), "{log}");
    assert!(!log.contains("repository\n") && log.contains("agent/config\n"), "{log}");
}

#[test]
fn a_repositorys_hooks_are_listed_and_ignored() {
    let model = endpoint().text("ok").start();
    let builder = terminal().endpoint(&model);
    let workspace = builder.directory("workspace");
    std::fs::create_dir(workspace.join(".agent")).unwrap();
    std::fs::write(
        workspace.join(".agent/config.toml"),
        "[[hooks]]\nevent = \"session_start\"\nwhere = \"host\"\ncommand = \"touch ran\"\n",
    )
    .unwrap();
    let mut terminal = builder.start();
    terminal.wait_for("names 1 hook, ignored here");
    terminal.wait_for_prompt();
    terminal.type_line("hello");
    terminal.wait_for("\nok\n");
    terminal.wait_for_prompt();
    terminal.type_line("/hooks");
    terminal.wait_for("ignored, because the repository asks for it: touch ran");
    assert!(!workspace.join("ran").exists() && !terminal.root().join("agent/config/ran").exists());
}
