//! Resuming a session: the conversation, the workspace, the file.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::backends::{BACKENDS, backend};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use agent_testing::skip;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn sessions(finished: &Finished) -> Vec<Value> {
    let list = finished.again().args(["sessions", "--json"]).run().expect_code(0);
    serde_json::from_str(&list.stdout).expect("JSON")
}

fn texts(messages: &[Value], role: &str) -> Vec<String> {
    let of_role = messages.iter().filter(|message| message["role"] == role);
    of_role.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_script_holds_a_conversation_and_finds_its_files_again() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo one > new.txt; rm old.txt" }))
        .text("Made it.")
        .tool_call("run_commands", json!({ "command": "cat new.txt; ls" }))
        .text("Still there.")
        .start();
    let first = agent()
        .file("old.txt", "old")
        .file("kept.txt", "kept")
        .endpoint(&model)
        .args(["run", "-q", "make it"])
        .run();
    let first = first.expect_code(0);
    let id = sessions(&first)[0]["id"].as_str().expect("an id").to_owned();
    // Only a terminal has the REPL: the hint names what continues the session without one.
    let refused = first.again().endpoint(&model).args(["resume", &id, "and now?"]).run().expect_code(2);
    assert!(refused.stderr.contains(&format!("agent run --session {id}")), "{}", refused.stderr);
    let second =
        first.again().endpoint(&model).args(["run", "--json", "--session", &id[..18], "and now?"]).run();
    let second = second.expect_code(0);
    let requests = model.requests();
    let messages = requests[3].messages();
    assert_eq!(texts(&messages, "user"), ["make it", "and now?"]);
    assert_eq!(texts(&messages, "system").len(), 1);
    let results = texts(&messages, "tool");
    assert!(results[1].ends_with("\none\nkept.txt\nnew.txt\n"), "{results:?}");
    assert_eq!(second.events()[0]["type"], "session_started");
    let finished = &second.events_of("session_finished")[0];
    assert_eq!((&finished["turns"], &finished["changes"]["added"]), (&json!(4), &json!(1)));
    let listed = sessions(&first);
    assert_eq!((listed.len(), &listed[0]["turns"]), (1, &json!(4)));
    first.again().args(["sessions", "verify", &id]).run().expect_code(0);
}

#[test]
fn one_key_is_one_session() {
    let model = endpoint().text("ok").repeat_last().start();
    let call = |finished: &Finished, key: &str, prompt: &str| {
        finished
            .again()
            .endpoint(&model)
            .args(["run", "-q", "--session-key", key, prompt])
            .run()
            .expect_code(0)
    };
    let first = agent()
        .endpoint(&model)
        .args(["run", "-q", "--session-key", "thread 42", "one"])
        .run()
        .expect_code(0);
    call(&first, "thread 42", "two");
    call(&first, "another", "three");
    let requests = model.requests();
    assert_eq!(texts(&requests[1].messages(), "user"), ["one", "two"]);
    assert_eq!(texts(&requests[2].messages(), "user"), ["three"]);
    assert_eq!(sessions(&first).len(), 2);
}

#[test]
fn a_session_stays_with_its_workspace() {
    let model = endpoint().text("ok").repeat_last().start();
    let first =
        agent().endpoint(&model).args(["run", "-q", "--session-key", "k", "one"]).run().expect_code(0);
    let elsewhere = tempfile::tempdir().expect("a directory");
    let other = elsewhere.path().to_str().expect("a plain path");
    let run = |arguments: &[&str]| first.again().endpoint(&model).args(arguments).run();
    let refused = run(&["run", "-q", "--session-key", "k", "-C", other, "two"]).expect_code(2);
    assert!(refused.stderr.contains("not on "), "{}", refused.stderr);
    let id = sessions(&first)[0]["id"].as_str().expect("an id").to_owned();
    run(&["run", "-q", "--session", &id, "-C", other, "two"]).expect_code(2);
    run(&["resume", &id, "-C", other]).expect_code(2);
    let moved = first.again().current_dir(elsewhere.path());
    let refused =
        moved.endpoint(&model).args(["run", "-q", "--session-key", "k", "two"]).run().expect_code(2);
    let message = refused.stderr.replace(&id, "ID").replace(other, "/elsewhere");
    let message = message.replace(first.again().workspace().to_str().expect("a plain path"), "/workspace");
    insta::assert_snapshot!(message, @r"
    error: session ID works on /workspace, not on /elsewhere
    hint: resume it in its own directory (name it with -C), or start another session: with a key, another key
    ");
    // With its id it is resumed from any directory.
    let moved = first.again().current_dir(elsewhere.path());
    moved.endpoint(&model).args(["run", "-q", "--session", &id, "two"]).run().expect_code(0);
}

#[test]
fn a_killed_run_is_resumed_with_a_result_for_every_call() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo made > before.txt; sleep 1000" }))
        .text("Where was I?")
        .start();
    let running = agent().endpoint(&model).args(["run", "--json", "begin"]).start();
    let sessions_dir = running.home("data").join("sessions");
    let started = Instant::now();
    let kept = || {
        let entry = std::fs::read_dir(&sessions_dir).ok()?.next()?.ok()?;
        std::fs::read_to_string(entry.path().join("events.jsonl")).ok()
    };
    while !kept().is_some_and(|text| text.contains("\"type\":\"tool_started\"")) {
        assert!(started.elapsed() < Duration::from_secs(60), "the tool does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.signal(libc::SIGKILL);
    let killed = running.wait();
    let shown = killed.stdout.lines().count();
    let listed = sessions(&killed);
    let id = listed[0]["id"].as_str().expect("an id");
    assert_eq!(listed[0]["status"], "unfinished");
    let kept = killed.again().args(["sessions", "show", "--json", id]).run().expect_code(0);
    let kept: Value = serde_json::from_str(&kept.stdout).expect("JSON");
    assert!(kept["events"].as_array().is_some_and(|events| events.len() >= shown - 1), "{kept}");
    killed.again().endpoint(&model).args(["run", "-q", "--session", id, "continue"]).run().expect_code(0);
    let requests = model.requests();
    let messages = requests[1].messages();
    assert_eq!(texts(&messages, "user"), ["begin", "continue"]);
    assert!(texts(&messages, "tool")[0].starts_with("interrupted: "), "{messages:?}");
}

#[test]
fn a_session_is_resumed_in_the_repl() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo kept > a.txt" }))
        .text("Written.")
        .text("As before.")
        .text("Then nothing.")
        .start();
    let builder = terminal().endpoint(&model);
    let mut first = builder.again().endpoint(&model).start();
    first.wait_for_prompt();
    first.type_line("write it");
    first.wait_for("Written.");
    first.wait_for_prompt();
    first.ctrl_d();
    assert_eq!(first.wait(), 0);
    let home = first.root().join("agent");
    // One that is left without a prompt is not what is continued.
    let mut left = builder.again().endpoint(&model).start();
    left.wait_for_prompt();
    left.ctrl_d();
    assert_eq!(left.wait(), 0);
    let mut second = builder.again().endpoint(&model).args(["resume", "--last"]).start();
    second.wait_for_prompt();
    second.type_line("!cat a.txt");
    second.wait_for("\nkept\n");
    second.wait_for_prompt();
    second.type_line("and now?");
    second.wait_for("As before.");
    let prompts = texts(&model.requests()[2].messages(), "user");
    assert_eq!((prompts.len(), prompts[0].as_str()), (2, "write it"));
    assert!(prompts[1].contains("`cat a.txt`") && prompts[1].ends_with("and now?"), "{}", prompts[1]);
    second.wait_for_prompt();
    second.ctrl_d();
    assert_eq!(second.wait(), 0);
    let listed =
        agent().env("AGENT_HOME", &home).args(["sessions", "list", "--all", "--json"]).run().expect_code(0);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let listed = listed.as_array().expect("sessions");
    let worked = listed.iter().find(|session| session["turns"] != 0).expect("the session that has a turn");
    let id = worked["id"].as_str().expect("an id");
    let third = builder.again().endpoint(&model).args(["resume", id, "and then?"]).start();
    third.wait_for("Then nothing.");
    assert_eq!(texts(&model.requests()[3].messages(), "user")[2], "and then?");
    // Another directory has no session to resume.
    for arguments in [&["resume"][..], &["resume", "--last"], &["-c"], &["-r"]] {
        let elsewhere = terminal().endpoint(&model).env("AGENT_HOME", &home).args(arguments);
        let mut elsewhere = elsewhere.start();
        elsewhere.wait_for("no session of");
        assert_eq!(elsewhere.wait(), 2);
    }
}

/// Each checkpoint counted as a prompt, and the first undo after a restart also reverted what came before it.
#[test]
fn whole_prompts_are_undone_and_redone_after_a_restart() {
    let mut script = endpoint();
    for line in ["one", "two"] {
        // Slow enough that a checkpoint between two of them is cheap.
        let command = format!("sleep 0.5; mkdir -p dir; git init -q; echo {line} >> dir/a.txt");
        script = script.tool_call("run_commands", json!({ "command": command }));
    }
    let model = script
        .text("First.")
        .tool_call("run_commands", json!({ "command": "echo three >> dir/a.txt; echo b > b.txt" }))
        .text("Second.")
        .tool_call("run_commands", json!({ "command": "echo four >> dir/a.txt" }))
        .text("Third.")
        .start();
    let builder = terminal().endpoint(&model);
    let mut first = builder.again().endpoint(&model).start();
    first.wait_for_prompt();
    for (prompt, answer) in [("write", "First."), ("continue", "Second.")] {
        first.type_line(prompt);
        first.wait_for(answer);
        first.wait_for_prompt();
    }
    first.ctrl_d();
    assert_eq!(first.wait(), 0);
    let resume = || {
        let next = builder.again().endpoint(&model).args(["resume", "--last"]).start();
        next.wait_for_prompt();
        next
    };
    let mut second = resume();
    second.type_line("more");
    second.wait_for("Third.");
    second.wait_for_prompt();
    second.type_line("/checkpoints");
    second.wait_for(
        "  0 (the beginning of the session)\n  1 (prompt 1, 1 file changed)\n  2 (prompt 1, 1 file changed)\n  3 (prompt 2, 2 files changed)\n* 4 (prompt 3, 1 file changed)\n",
    );
    second.type_line("/undo");
    second.wait_for("the workspace is at checkpoint 3");
    second.type_line("/undo 2");
    second.wait_for("the workspace is at checkpoint 0");
    second.wait_for_prompt();
    second.ctrl_d();
    assert_eq!(second.wait(), 0);
    let mut third = resume();
    third.type_line("/redo");
    third.wait_for("the workspace is at checkpoint 2");
    third.type_line("/redo");
    third.wait_for("the workspace is at checkpoint 3");
    third.type_line("!cat dir/a.txt b.txt");
    third.wait_for("\none\ntwo\nthree\nb\n");
    third.type_line("/undo");
    third.wait_for("the workspace is at checkpoint 2");
    third.type_line("/redo");
    third.wait_until("the second way forward", |screen| screen.matches("is at checkpoint 3").count() == 2);
    third.wait_for_prompt();
    third.ctrl_d();
    assert_eq!(third.wait(), 0);
}

#[test]
fn a_session_in_use_is_refused() {
    refuses_a_session_in_use(|agent| agent);
}

#[test]
fn a_session_in_use_is_refused_where_the_file_system_has_no_locks() {
    // On some NFS homes, no session could be started at all.
    let directory = tempfile::tempdir().expect("a directory");
    let (source, library) = (directory.path().join("locks.c"), directory.path().join("locks.so"));
    std::fs::write(&source, "#include <errno.h>\nint flock(int f, int o) { errno = ENOLCK; return -1; }\n")
        .expect("it is written");
    let compiler =
        std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    if !compiler.is_ok_and(|status| status.success()) {
        return skip::missing("a C compiler (cc)");
    }
    let home = refuses_a_session_in_use(|agent| agent.env("LD_PRELOAD", &library));
    let sessions = home.home("data").join("sessions");
    for session in std::fs::read_dir(sessions).expect("the sessions").flatten() {
        let names: Vec<_> = std::fs::read_dir(session.path())
            .expect("a session")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().contains(".lock")), "{names:?}");
    }
}

/// Runs a session, tries to enter and to remove it meanwhile, kills it, and enters it then.
fn refuses_a_session_in_use(with: impl Fn(Agent) -> Agent) -> Agent {
    let model = endpoint().tool_call("run_commands", json!({ "command": "sleep 1000" })).text("x").start();
    let running = with(agent().endpoint(&model)).args(["run", "-q", "begin"]).start();
    let started = Instant::now();
    let id = loop {
        let list = with(running.again()).args(["sessions", "--json"]).run().expect_code(0);
        let list: Vec<Value> = serde_json::from_str(&list.stdout).expect("JSON");
        if let Some(session) = list.first().filter(|session| session["status"] == "running") {
            break session["id"].as_str().expect("an id").to_owned();
        }
        assert!(started.elapsed() < Duration::from_secs(60), "the session does not start");
    };
    let enter = || with(running.again().endpoint(&model)).args(["run", "--session", &id, "me too"]);
    let second = enter().run().expect_code(2);
    assert!(second.stderr.contains("is in use by another process"), "{}", second.stderr);
    with(running.again()).args(["sessions", "rm", &id]).run().expect_code(2);
    running.signal(libc::SIGKILL);
    let after = running.again();
    drop(running.wait());
    with(after.again().endpoint(&model)).args(["run", "--session", &id, "me too"]).run().expect_code(0);
    after
}

#[test]
fn a_kept_sandbox_is_reattached_with_its_processes_even_after_a_pause() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for name in BACKENDS {
        if runtime.block_on(backend(name)).is_some() {
            reattaches(name);
        }
    }
}

fn reattaches(backend: &str) {
    let look =
        json!({ "command": "ps ax -o args | grep -c '[s]leep 98765'; cat outside/../new.txt /tmp/kept" });
    let model = endpoint()
        .tool_call(
            "run_commands",
            json!({ "command": "sleep 98765 & echo new > new.txt; echo tmp > /tmp/kept" }),
        )
        .text("started")
        .tool_call("run_commands", look.clone())
        .text("still there")
        .tool_call("run_commands", look)
        .text("and again")
        .start();
    let call = agent().file("outside/a", "a").sandbox(backend).endpoint(&model);
    let first = call.args(["run", "-q", "--keep", "--delete-after", "1d", "go"]).run().expect_code(0);
    let sandboxes = || {
        let list = first.again().args(["sandbox", "list", "--json"]).run().expect_code(0);
        let list: Vec<Value> = serde_json::from_str(&list.stdout).expect("JSON");
        let id = sessions(&first)[0]["id"].clone();
        list.into_iter().find(|listed| listed["session"] == id)
    };
    let id = sessions(&first)[0]["id"].as_str().expect("an id").to_owned();
    let kept = sandboxes().expect("it is kept");
    assert_eq!((&kept["state"], &kept["backend"]), (&json!("running"), &json!(backend)));
    assert!(kept["expires"].as_str() > kept["created"].as_str(), "{kept}");
    let resume = |prompt: &str| {
        // A kept sandbox stays kept without another --keep.
        let arguments = ["run", "-q", "--session", &id, prompt];
        first.again().endpoint(&model).args(arguments).run().expect_code(0)
    };
    resume("look");
    first.again().args(["sandbox", "pause", &id]).run().expect_code(0);
    assert_eq!(sandboxes().expect("it is paused")["state"], "paused");
    resume("look again");
    for request in [3, 5] {
        let results = texts(&model.requests()[request].messages(), "tool");
        assert!(results.last().expect("a result").ends_with("\n1\nnew\ntmp\n"), "{backend}: {results:?}");
    }
    first.again().args(["sandbox", "pause", &id]).run().expect_code(0);
    let ran = first.again().args(["exec", "-s", &id, "--", "cat", "/tmp/kept"]).run().expect_code(0);
    assert_eq!(ran.stdout, "tmp\n", "{backend}");
    first.again().args(["sandbox", "rm", &id]).run().expect_code(0);
    assert_eq!(sandboxes(), None);
}
