//! Plans: the tool, what the user sees, and a workspace that is read-only until the user accepts.

use agent::error::Kind;
use agent::sandbox::{FileWrite, Node, Outcome};
use agent_testbed::agent::agent;
use agent_testbed::backends::{on_every_backend, shell};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};

fn plan(steps: &[(&str, &str)]) -> Value {
    let steps: Vec<Value> =
        steps.iter().map(|(text, status)| json!({ "text": text, "status": status })).collect();
    json!({ "steps": steps })
}

/// Everything that changes a file, its name, its mode or its attributes, by hand and from something that was started.
const ATTEMPTS: [&str; 12] = [
    "echo x > there",
    "echo x > new",
    "rm there",
    "mv there elsewhere",
    "mkdir directory",
    "ln -s there link",
    "truncate -s 0 there",
    "chmod 777 there",
    "touch -d 2001-01-01 there",
    "chattr +d there",
    "python3 -c 'import os; os.setxattr(\"there\", \"user.x\", b\"1\")'",
    "ln -s /workspace /tmp/way; echo x > /tmp/way/new",
];

#[tokio::test]
async fn a_read_only_handle_cannot_change_the_workspace_on_any_backend() {
    on_every_backend(async |inside| {
        inside.output_of("echo kept > there && chmod 644 there").await;
        let read_only = inside.sandbox.clone().read_only();
        for attempt in ATTEMPTS {
            let finished = read_only.run(shell(attempt), &mut |_| {}).await.expect("answers");
            assert_ne!(finished.outcome, Outcome::Exited(0), "{attempt}");
        }
        let late = "(sleep 0.2; echo x > new) & setsid sh -c 'echo x > new' & wait";
        read_only.run(shell(late), &mut |_| {}).await.expect("answers");
        let job = read_only.start_job(shell("echo x > new")).await.expect("starts");
        let ended = read_only.job_kill(job).await.expect("ends");
        assert!(ended.state.is_some());
        let write = |path: &str| FileWrite {
            path: path.into(),
            node: Node::Regular(b"x".to_vec()),
            mode: None,
            mtime_ns: None,
            follow: true,
        };
        for path in ["there", "/workspace/there", "/tmp/../workspace/there", "/etc/there"] {
            let error = read_only.write_files(vec![write(path)]).await.expect_err(path);
            assert_eq!(error.kind(), Kind::InSandbox, "{path}");
        }
        read_only.write_files(vec![write("/tmp/mine")]).await.expect("answers");
        let finished = read_only
            .run(shell("cat there /tmp/mine && echo y > ~/own"), &mut |_| {})
            .await
            .expect("answers");
        assert_eq!(finished.outcome, Outcome::Exited(0), "reading, and writing elsewhere, is possible");
        let state = inside.output_of("ls; cat there; stat -c %a there").await;
        assert_eq!(state, "there\nkept\n644");
        inside.output_of("echo changed > there").await;
    })
    .await;
}

#[test]
fn the_workspace_is_read_only_until_the_plan_is_accepted() {
    let write = |text: &str| json!({ "path": "a.txt", "data": text });
    let model = endpoint()
        .tool_calls(&[
            ("write_file", write("too early\n")),
            (
                "run_commands",
                json!({ "command": "(echo early > a.txt) 2>&1; cat a.txt; echo seen > $TMPDIR/seen && cat $TMPDIR/seen" }),
            ),
            ("update_plan", plan(&[("Read a.txt", "completed"), ("Change\na.txt", "pending")])),
        ])
        .text("I want to change a.txt.")
        .tool_call("write_file", write("planned\n"))
        .text("Changed.")
        .start();
    let first = agent().endpoint(&model).file("a.txt", "before\n").args([
        "run",
        "--json",
        "--plan",
        "--apply",
        "--session-key",
        "one",
        "change it",
    ]);
    let again = first.again();
    let finished = first.run().expect_code(0);
    let results: Vec<String> = finished
        .events_of("tool_finished")
        .iter()
        .map(|event| event["result"].as_str().unwrap().to_owned())
        .collect();
    assert!(results[0].starts_with("error: the workspace is read-only"), "{results:?}");
    assert!(
        results[1].contains("Permission denied") && results[1].ends_with("before\nseen\n"),
        "{results:?}"
    );
    let plans = finished.events_of("plan");
    assert_eq!(plans[0]["read_only"], true);
    assert_eq!(plans[1]["steps"][1], json!({ "text": "Change ⏎ a.txt", "status": "pending" }));
    assert!(finished.stdout.contains("the plan is not carried out"), "{}", finished.stdout);
    assert_eq!(finished.host_file("a.txt").as_deref(), Some("before\n"));
    let sent = model.requests()[0].messages().last().unwrap()["content"].to_string();
    assert!(sent.contains("read-only until the user accepts"), "{sent}");

    let finished =
        again.endpoint(&model).args(["run", "--apply", "--session-key", "one", "go on"]).run().expect_code(0);
    assert_eq!(finished.host_file("a.txt").as_deref(), Some("planned\n"));
    let sent = model.requests()[2].messages().last().unwrap()["content"].to_string();
    assert!(sent.contains("The user accepted the plan"), "{sent}");
    let names = model.last().body["tools"].to_string();
    assert!(names.contains("update_plan"), "it stays part of the conversation");
}

#[test]
fn a_plan_is_shown_and_carried_out_when_the_user_accepts_it() {
    let model = endpoint()
        .tool_call("update_plan", plan(&[("Look around", "in_progress"), ("Write new.txt", "pending")]))
        .text("Shall I?")
        .tool_call("update_plan", plan(&[("Write new.txt with care", "pending")]))
        .text("Better?")
        .tool_call("run_commands", json!({ "command": "echo hi > new.txt" }))
        .text("Written.")
        .start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("/plan");
    terminal.wait_for("planning: the workspace is read-only until you accept the plan");
    terminal.wait_for_prompt();
    terminal.type_line("write a file");
    terminal.wait_for("  › Look around\n  · Write new.txt\n");
    terminal.wait_for("Carry out this plan? [yes/no]");
    assert!(!terminal.screen().contains("update_plan called"), "{}", terminal.screen());
    terminal.type_line("no");
    terminal.wait_for("not yet: say what to change");
    terminal.wait_for_prompt();
    terminal.type_line("with care");
    terminal.wait_for("  · Write new.txt with care\n");
    terminal.wait_until("the second question", |screen| screen.matches("Carry out this plan?").count() == 2);
    terminal.type_line("yes");
    terminal.wait_for("\nWritten.\n");
    terminal.wait_for_prompt();
    terminal.type_line("!cat new.txt");
    terminal.wait_for("\nhi\n");
}

/// A refusal with a reason is a prompt, and leads to the next plan.
#[test]
fn what_is_said_about_a_plan_goes_to_the_model() {
    let model = endpoint()
        .tool_call("update_plan", plan(&[("Write a.txt", "pending")]))
        .text("So?")
        .tool_call("update_plan", plan(&[("Write b.txt", "pending")]))
        .text("And so?")
        .start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("/plan");
    terminal.wait_for_prompt();
    terminal.type_line("write a file");
    terminal.wait_for("Carry out this plan? [yes/no]");
    terminal.type_line("no, call it b.txt");
    terminal.wait_for("  · Write b.txt");
    terminal.wait_until("the second question", |screen| screen.matches("Carry out this plan?").count() == 2);
    let said = model
        .requests()
        .iter()
        .any(|request| request.messages().iter().any(|message| message["content"] == "no, call it b.txt"));
    assert!(said, "it is a prompt");
    terminal.type_line("no");
    terminal.wait_for("not yet: say what to change");
}

#[test]
fn a_resumed_session_still_awaits_consent() {
    let model = endpoint()
        .text("I would write it.")
        .tool_call("run_commands", json!({ "command": "echo x > a; echo $?" }))
        .text("It is read-only.")
        .start();
    let builder = terminal().endpoint(&model).args(["run", "--plan", "write a"]);
    let again = builder.again().endpoint(&model).args(["resume"]);
    let mut first = builder.start();
    first.wait_for("Carry out this plan? [yes/no]");
    first.type_line("no");
    assert_eq!(first.wait(), 0);
    let mut second = again.start();
    second.wait_for("planning: the workspace is read-only");
    second.wait_for_prompt();
    second.type_line("try it");
    second.wait_for("It is read-only.");
    let result = model.last().messages().last().unwrap()["content"].to_string();
    assert!(result.contains("Permission denied"), "{result}");
    second.wait_for_prompt();
    second.type_line("/plan off");
    second.wait_for("the workspace can be changed");
}

#[test]
fn the_tool_is_offered_where_the_user_wants_it() {
    let model = endpoint()
        .tool_call("update_plan", plan(&[("One", "completed"), ("Two", "in_progress")]))
        .tool_call("update_plan", json!({ "steps": [] }))
        .tool_call("write_file", json!({ "path": "a", "data": "x" }))
        .text("ok")
        .start();
    let finished = agent()
        .endpoint(&model)
        .config("[tools]\nplan = true\n")
        .args(["run", "do two things"])
        .run()
        .expect_code(0);
    assert!(finished.stderr.contains("  ✓ One\n  › Two\n"), "{}", finished.stderr);
    let results: Vec<String> = model.requests()[1..]
        .iter()
        .map(|request| request.messages().last().unwrap()["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(results[0], "1 of 2 steps completed");
    assert!(results[1].contains("a plan has 1 to 50 steps"), "{results:?}");
    assert!(results[2].starts_with("wrote a"), "{results:?}");
}
