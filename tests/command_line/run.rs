//! `agent run`: one prompt, one answer, real tools in a real sandbox.

use agent_testbed::agent::{Agent, agent};
use agent_testing::endpoint::endpoint;
use serde_json::json;

#[test]
fn the_answer_goes_to_stdout_and_everything_else_to_stderr() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo hello from inside" }))
        .text("Done.")
        .start();
    let finished = agent().endpoint(&model).args(["run", "say hello"]).run().expect_code(0);
    assert_eq!(finished.stdout, "Done.\n");
    assert!(
        finished.stderr.contains("[DEBUG] run_commands called with command: echo hello from inside"),
        "{}",
        finished.stderr
    );
    let result = model.requests()[1].messages().last().cloned().expect("the tool's answer");
    assert_eq!(result["role"], "tool");
    let text = result["content"].as_str().expect("text");
    assert!(text.starts_with("exit code 0, ") && text.ends_with("\nhello from inside\n"), "{text}");
}

#[test]
fn quiet_prints_only_the_answer() {
    let model = endpoint().text("Just this.").start();
    let finished = agent().endpoint(&model).args(["run", "-q", "hi"]).run().expect_code(0);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("Just this.\n", ""));
}

#[test]
fn a_prompt_may_be_piped_and_is_appended_to_one_that_is_given() {
    let model = endpoint().text("ok").repeat_last().start();
    agent().endpoint(&model).args(["run"]).stdin("from the pipe").run().expect_code(0);
    agent().endpoint(&model).args(["run", "-"]).stdin("from a dash").run().expect_code(0);
    agent().endpoint(&model).args(["run", "review this"]).stdin("diff --git").run().expect_code(0);
    let prompts: Vec<_> =
        model.requests().iter().map(|request| request.messages()[1]["content"].clone()).collect();
    assert_eq!(prompts, ["from the pipe", "from a dash", "review this\n\ndiff --git"]);
}

#[test]
fn invalid_utf8_on_standard_input_is_replaced_and_reported() {
    let model = endpoint().text("ok").start();
    let finished =
        agent().endpoint(&model).args(["run", "what is this?"]).stdin(b"a log\xff line".to_vec()).run();
    assert!(finished.stderr.contains("standard input is not valid UTF-8"), "{}", finished.stderr);
    assert_eq!(model.requests()[0].messages()[1]["content"], "what is this?\n\na log\u{fffd} line");
}

#[test]
fn an_open_and_silent_stdin_does_not_block_a_call_with_a_prompt() {
    let model = endpoint().text("ok").start();
    let finished = agent().endpoint(&model).args(["run", "hi"]).stdin_open().run().expect_code(0);
    assert_eq!(finished.stdout, "ok\n");
    assert!(
        finished.stderr.contains("standard input is open and had nothing to read"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_missing_prompt_is_an_error_with_a_hint() {
    let finished = agent()
        .args(["run"])
        .env("AGENT_BASE_URL", "http://127.0.0.1:1")
        .env("AGENT_MODEL", "m")
        .run()
        .expect_code(2);
    assert!(finished.stderr.contains("the prompt is empty"), "{}", finished.stderr);
}

#[test]
fn every_call_of_one_message_is_answered_in_order() {
    let calls = [
        ("write_file", json!({ "path": "x", "data": "one\ntwo\n" })),
        ("edit_file", json!({ "path": "x", "old": "two", "new": "three" })),
        ("run_commands", json!({ "command": "cat x; exit 3" })),
        ("no_such_tool", json!({})),
        ("run_commands", json!({ "command": "rm x" })),
    ];
    let model = endpoint().tool_calls(&calls).text("ok").start();
    agent().endpoint(&model).args(["run", "go"]).run().expect_code(0);
    let messages = model.requests()[1].messages();
    let answers: Vec<&str> =
        messages.iter().filter(|m| m["role"] == "tool").filter_map(|m| m["content"].as_str()).collect();
    assert_eq!(answers.len(), 5);
    assert_eq!(answers[0], "wrote x: 2 lines, 8 bytes");
    assert_eq!(answers[1], "edited x at line 2");
    assert!(
        answers[2].starts_with("exit code 3, ") && answers[2].ends_with("one\nthree\n"),
        "{}",
        answers[2]
    );
    assert!(
        answers[3].contains("there is no tool \"no_such_tool\"; the tools are read_file,"),
        "{}",
        answers[3]
    );
    // It may build on the call before it.
    assert!(answers[4].starts_with("error: not run, because the call before it"), "{}", answers[4]);
}

#[test]
fn the_workspace_is_copied_and_agents_md_is_read() {
    let model = endpoint().tool_call("read_file", json!({ "path": "src/a.txt" })).text("ok").start();
    agent()
        .endpoint(&model)
        .file("src/a.txt", "content of a\n")
        .file("AGENTS.md", "Always whistle.")
        .args(["run", "look"])
        .run()
        .expect_code(0);
    let requests = model.requests();
    assert!(
        requests[0].messages()[0]["content"].as_str().is_some_and(|text| text.contains("Always whistle."))
    );
    assert_eq!(
        requests[1].messages().last().map(|message| message["content"].clone()),
        Some(json!("content of a\n"))
    );
}

#[test]
fn nothing_is_written_without_apply_and_everything_with_it() {
    let model = endpoint()
        .tool_call(
            "run_commands",
            json!({ "command": "echo new > added.txt && rm gone.txt && echo more >> kept.txt" }),
        )
        .text("ok")
        .repeat_last();
    let model = model.start();
    let call =
        agent().endpoint(&model).file("gone.txt", "x\n").file("kept.txt", "one\n").args(["run", "change"]);
    let finished = call.run().expect_code(0);
    assert_eq!(finished.host_file("added.txt"), None);
    assert!(finished.host_file("gone.txt").is_some());
    assert!(
        finished.stderr.contains("1 file added, 1 modified, 1 deleted; nothing is written yet"),
        "{}",
        finished.stderr
    );

    let model = endpoint()
        .tool_call(
            "run_commands",
            json!({ "command": "echo new > added.txt && rm gone.txt && echo more >> kept.txt" }),
        )
        .text("ok")
        .start();
    let finished = finished.again().endpoint(&model).args(["run", "change", "--apply"]).run().expect_code(0);
    assert_eq!(finished.host_file("added.txt").as_deref(), Some("new\n"));
    assert_eq!(finished.host_file("kept.txt").as_deref(), Some("one\nmore\n"));
    assert_eq!(finished.host_file("gone.txt"), None);
}

#[test]
fn a_clean_check_runs_in_a_fresh_sandbox_and_its_failure_goes_back_to_the_model() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo wrong > result; touch ~/only-here" }))
        .text("done")
        .tool_call("write_file", json!({ "path": "result", "data": "right\n" }))
        .text("now it is done")
        .start();
    let check = "cat result; test ! -e ~/only-here && grep -q right result";
    let arguments = ["run", "go", "--json", "--check-clean", "--check", check];
    let finished = agent().endpoint(&model).args(arguments).run().expect_code(0);
    let codes: Vec<_> =
        finished.events_of("check_finished").iter().map(|event| event["exit_code"].clone()).collect();
    assert_eq!(codes, [1, 0]);
    let feedback = model.requests()[2].messages().last().cloned().expect("a message");
    assert_eq!(feedback["role"], "user");
    assert!(feedback["content"].as_str().is_some_and(|text| text.contains("does not pass yet (exit code 1)") && text.ends_with("wrong\n")));
}

#[test]
fn a_check_that_never_passes_ends_with_6_and_writes_nothing() {
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "x", "data": "1" }))
        .text("done")
        .repeat_last()
        .start();
    let arguments = ["run", "go", "--apply", "--check", "false", "--check-attempts", "2"];
    let finished = agent().endpoint(&model).args(arguments).run().expect_code(6);
    assert_eq!(finished.host_file("x"), None);
}

#[test]
fn the_answer_can_be_json_that_satisfies_a_schema() {
    let schema = r#"{"type":"object","required":["total"],"properties":{"total":{"type":"integer"}}}"#;
    let model = endpoint().text("It is 3.").text("```json\n{\"total\": 3}\n```").start();
    let call = agent().endpoint(&model).file("schema.json", schema).file("README", "x");
    let finished = call
        .args(["run", "-q", "add", "--output-schema", "schema.json", "--output", "a.json"])
        .run()
        .expect_code(0);
    assert_eq!(finished.stdout, "{\"total\":3}\n");
    assert_eq!(finished.host_file("a.json").as_deref(), Some("{\"total\":3}\n"));
    assert!(
        model.requests()[1]
            .messages()
            .last()
            .is_some_and(|m| m["content"].as_str().is_some_and(|t| t.contains("it is not valid JSON")))
    );
}

#[test]
fn a_resumed_session_has_its_conversation_and_its_workspace() {
    let model =
        endpoint().tool_call("run_commands", json!({ "command": "echo first > note" })).text("one").start();
    let first =
        agent().endpoint(&model).args(["run", "start", "--session-key", "thread-1"]).run().expect_code(0);
    let model = endpoint().tool_call("run_commands", json!({ "command": "cat note" })).text("two").start();
    first
        .again()
        .endpoint(&model)
        .args(["run", "continue", "--session-key", "thread-1"])
        .run()
        .expect_code(0);
    let messages = model.requests()[1].messages();
    let texts: Vec<&str> = messages.iter().filter_map(|message| message["content"].as_str()).collect();
    assert!(texts.contains(&"start") && texts.contains(&"one") && texts.contains(&"continue"), "{texts:?}");
    assert!(texts.last().is_some_and(|text| text.ends_with("first\n")), "{texts:?}");
}

#[test]
fn a_resumed_session_applies_and_counts_the_changes_of_its_earlier_run() {
    let model =
        endpoint().tool_call("write_file", json!({ "path": "made", "data": "x" })).text("made").start();
    let first = agent().endpoint(&model).args(["run", "make", "--session-key", "k"]).run().expect_code(0);
    let model = endpoint().text("written").start();
    let arguments = ["run", "write it", "--session-key", "k", "--apply", "--json"];
    let second = first.again().endpoint(&model).args(arguments).run().expect_code(0);
    assert_eq!(second.host_file("made").as_deref(), Some("x"));
    assert_eq!(second.events().last().map(|event| event["changes"]["added"].clone()), Some(json!(1)));
    let empty = first.again().endpoint(&model).args(["run", "x", "--session-key", ""]).run().expect_code(2);
    assert!(empty.stderr.contains("--session-key is empty"), "{}", empty.stderr);
}

#[test]
fn a_cost_limit_without_a_price_is_refused() {
    let model = endpoint().text("ok").start();
    let finished = agent().endpoint(&model).args(["run", "x", "--max-cost", "0.01"]).run().expect_code(2);
    assert!(finished.stderr.contains("--max-cost needs the price of test-model"), "{}", finished.stderr);
    assert!(model.chat_requests().is_empty());
}

#[test]
fn exec_keeps_no_session() {
    let first = agent().args(["exec", "--", "true"]).run().expect_code(0);
    let listed = first.again().args(["sessions", "--json"]).run().expect_code(0);
    assert_eq!(listed.stdout.trim(), "[]");
}

#[test]
fn an_output_file_that_cannot_be_written_is_refused_before_the_model_is_asked() {
    let model = endpoint().text("too late").start();
    for path in [".", "missing/answer.txt"] {
        let done = agent().endpoint(&model).args(["run", "go", "--output", path]).run().expect_code(2);
        assert!(done.stderr.contains("cannot be written"), "{}", done.stderr);
    }
    assert_eq!(model.requests().len(), 0);
}

#[test]
fn quiet_still_reports_unwritten_changes_and_another_backend() {
    let model =
        endpoint().tool_call("write_file", json!({ "path": "a.txt", "data": "new" })).text("ok").start();
    let no_engine = |call: Agent| call.sandbox("auto").env("DOCKER_HOST", "unix:///nowhere/docker.sock");
    let quiet = no_engine(agent()).endpoint(&model).args(["run", "-q", "go"]).run().expect_code(0);
    let lines: Vec<_> = quiet.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", quiet.stderr);
    assert!(lines[0].starts_with("[NOTICE] sandbox: local ("), "{}", lines[0]);
    assert!(lines[1].contains("1 file added") && lines[1].contains("`agent apply "), "{}", lines[1]);
    let command = no_engine(quiet.again()).args(["exec", "-q", "--", "echo", "hi"]).run().expect_code(0);
    assert!(command.stderr.starts_with("[NOTICE] sandbox: local ("), "{}", command.stderr);
    assert_eq!((command.stderr.lines().count(), command.stdout.as_str()), (1, "hi\n"));
    let named = quiet.again().args(["exec", "--", "echo", "hi"]).run().expect_code(0);
    assert!(!named.stderr.contains("sandbox:"), "{}", named.stderr);
}

#[test]
fn unwritten_changes_are_reported_after_a_limit_and_a_failed_check_too() {
    for (arguments, code) in [(["--max-turns", "1"], 5), (["--check", "false"], 6)] {
        let change = json!({ "path": "a.txt", "data": "new" });
        let model = endpoint().tool_call("write_file", change).text("ok").repeat_last().start();
        let call = agent().endpoint(&model).args(["run", "-q", "--apply", "go"]).args(arguments);
        let ended = call.run().expect_code(code);
        let notice = "[NOTICE] 1 file added, 0 modified, 0 deleted; nothing is written yet";
        assert!(ended.stderr.contains(notice), "{}", ended.stderr);
        assert_eq!(ended.host_file("a.txt"), None);
    }
    let idle = endpoint().tool_call("run_commands", json!({ "command": "true" })).start();
    let unchanged = agent().endpoint(&idle).args(["run", "--max-turns", "1", "go"]).run().expect_code(5);
    assert!(!unchanged.stderr.contains("nothing is written yet"), "{}", unchanged.stderr);
}

#[test]
fn quiet_still_reports_refused_files() {
    let command = "ln -s /etc/passwd out; mkfifo f; echo new > a.txt";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = agent().endpoint(&model).args(["run", "-q", "--apply", "go"]);
    let applied = call.run().expect_code(0);
    assert_eq!(applied.host_file("a.txt").as_deref(), Some("new\n"));
    for name in ["f", "out"] {
        let notice = format!("[NOTICE] {name} is not applied: ");
        assert!(applied.stderr.contains(&notice), "{notice}: {}", applied.stderr);
    }
    assert_eq!(applied.stderr.lines().count(), 2, "{}", applied.stderr);
}

#[test]
fn variables_that_the_user_names_are_in_every_command_and_nothing_else_of_the_environment_is() {
    let command = json!({ "command": "echo $GIVEN/$NAMED/$FILED/$OTHER; sh -c 'echo $NAMED'" });
    let model = endpoint().tool_call("run_commands", command).text("ok").start();
    let flags = ["--env", "GIVEN=a=b", "--env", "NAMED"];
    let call = agent().endpoint(&model).config("[env]\nFILED = \"from the file\"\nGIVEN = \"no\"\n");
    let call = call.env("NAMED", "from here").env("OTHER", "secret");
    let ran = call.args(["run", "--json"]).args(flags).args(["go"]).run().expect_code(0);
    let result = model.last().messages().pop().expect("a result")["content"].to_string();
    assert!(result.contains("a=b/from here/from the file/\\nfrom here\\n"), "{result}");
    assert!(!ran.stdout.lines().next().expect("an event").contains("from here"), "values are not recorded");
    let exec =
        ran.again().env("NAMED", "x").args(["exec", "--env", "NAMED", "--", "sh", "-c", "echo $NAMED"]);
    assert_eq!(exec.run().expect_code(0).stdout, "x\n");
    let missing = ran.again().endpoint(&model).args(["run", "--env", "NO_SUCH", "go"]).run().expect_code(2);
    assert!(missing.stderr.contains("--env NO_SUCH: this variable is not set here"), "{}", missing.stderr);
    let invalid = ran.again().endpoint(&model).args(["run", "--env", "=x", "go"]).run().expect_code(2);
    assert!(invalid.stderr.contains("is not a valid name of a variable"), "{}", invalid.stderr);
}

#[test]
fn the_model_learns_the_date_the_system_the_branch_and_whether_something_is_uncommitted() {
    let first_messages = |script: &str| {
        let model =
            endpoint().tool_call("run_commands", json!({ "command": "echo 2 > a" })).text("ok").start();
        let call = agent().endpoint(&model).file("a", "1\n");
        // Programs that the repository names are not run.
        let ran = format!("git config filter.f.clean 'touch {}'", call.workspace().join("ran").display());
        let script = format!("git init -q -b main && {script} {ran}");
        let mut shell = std::process::Command::new("sh");
        let set_up = shell.args(["-c", &script]).current_dir(call.workspace()).status();
        assert!(set_up.expect("git").success(), "{script}");
        let workspace = call.workspace().to_owned();
        call.args(["run", "hello"]).run().expect_code(0);
        assert!(!workspace.join("ran").exists(), "{script}");
        let requests = model.requests();
        let system = |at: usize| requests[at].messages()[0]["content"].as_str().expect("text").to_owned();
        assert_eq!(system(0), system(1), "the prompt stays as it is, so that caches hit");
        system(0).replace(&workspace.display().to_string(), "WORKSPACE")
    };
    let commit = "git add . && git -c user.name=a -c user.email=a@b commit -qm first &&";
    let clean = first_messages(commit);
    assert!(clean.contains("- Workspace: WORKSPACE, branch main, nothing uncommitted\n"), "{clean}");
    assert!(clean.contains("\n- Date: 20") && clean.contains("\n- System: "), "{clean}");
    for change in
        ["echo 2 > a &&", "echo 2 > b && git add b &&", "echo '* filter=f' > .gitattributes && echo 2 > a &&"]
    {
        let changed = first_messages(&format!("{commit} {change}"));
        assert!(changed.contains(", branch main, uncommitted changes\n"), "{change}: {changed}");
    }
    let empty = first_messages("");
    assert!(empty.contains("- Workspace: WORKSPACE, branch main\n"), "{empty}");
}
