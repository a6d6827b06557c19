//! The exit codes, one meaning each, and the stream of `--json` that ends honestly with every one of them.

use crate::support::agent::{Agent, Finished, agent};
use crate::support::endpoint::endpoint;
use serde_json::json;
use std::time::{Duration, Instant};

/// Every line is valid JSON that the schema accepts, and the last is `session_finished` with this code.
#[track_caller]
fn ends_with(finished: Finished, code: i32) -> Finished {
    let finished = finished.expect_code(code);
    let schema =
        serde_json::from_str(include_str!("../docs/events.schema.json")).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let events = finished.events();
    for event in &events {
        assert!(validator.is_valid(event), "{event}");
    }
    let last = events.last().expect("a last line");
    assert_eq!((&last["type"], &last["exit_code"]), (&json!("session_finished"), &json!(code)), "{last}");
    assert_eq!(events.iter().filter(|event| event["type"] == "session_finished").count(), 1);
    finished
}

fn run() -> Agent {
    agent().args(["run", "--json", "go"])
}

#[test]
fn zero_where_the_model_answered() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "echo hi" })).text("ok").start();
    let finished = ends_with(run().endpoint(&model).run(), 0);
    let types: Vec<_> =
        finished.events().iter().map(|event| event["type"].as_str().unwrap_or("").to_owned()).collect();
    for (type_, count) in [
        ("session_started", 1),
        ("turn_started", 2),
        ("assistant_message", 2),
        ("tool_started", 1),
        ("tool_finished", 1),
    ] {
        assert_eq!(types.iter().filter(|found| *found == type_).count(), count, "{type_} in {types:?}");
    }
    assert_eq!(types[0], "session_started");
}

#[test]
fn two_where_the_configuration_is_wrong() {
    ends_with(run().run(), 2);
    ends_with(
        run()
            .env("AGENT_BASE_URL", "http://127.0.0.1:1")
            .env("AGENT_MODEL", "m")
            .env("AGENT_API_KEY", "a\nb")
            .run(),
        2,
    );
    let flag = agent().args(["run", "--frobnicate"]).run().expect_code(2);
    assert!(flag.stdout.is_empty());
    let model = endpoint().text("ok").start();
    let redirected = agent()
        .env("OPENAI_API_KEY", "secret-of-the-user")
        .file(".env", format!("OPENAI_BASE_URL={}\nAGENT_MODEL=m\n", model.url()))
        .args(["run", "--json", "go"])
        .run();
    let redirected = ends_with(redirected, 2);
    assert!(
        redirected.stderr.contains("comes from somewhere else")
            && !redirected.stderr.contains("secret-of-the-user")
    );
    assert_eq!(model.connections(), 0);
}

#[test]
fn three_where_the_endpoint_fails() {
    let model = endpoint().error(401, "no such key").start();
    ends_with(run().endpoint(&model).run(), 3);
    let model = endpoint().raw("<html>hello</html>").header("content-type", "text/html").for_ever().start();
    ends_with(run().endpoint(&model).run(), 3);
}

#[test]
fn four_where_the_sandbox_fails() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "true" })).text("ok").start();
    let nowhere =
        run().endpoint(&model).sandbox("docker").env("DOCKER_HOST", "unix:///nonexistent/docker.sock").run();
    let nowhere = ends_with(nowhere, 4);
    assert!(nowhere.stderr.contains("hint:"), "{}", nowhere.stderr);
}

#[test]
fn five_where_a_limit_is_reached() {
    let again =
        || endpoint().tool_call("run_commands", json!({ "command": "echo again" })).for_ever().start();
    let turns = ends_with(run().endpoint(&again()).args(["--max-turns", "3"]).run(), 5);
    assert_eq!(turns.events_of("limit_reached")[0]["limit"], "turns");
    let repetition = ends_with(run().endpoint(&again()).run(), 5);
    assert_eq!(repetition.events_of("limit_reached")[0]["limit"], "repetition");
    let tokens = ends_with(run().endpoint(&again()).args(["--max-tokens-total", "1"]).run(), 5);
    assert_eq!(tokens.events_of("limit_reached")[0]["limit"], "tokens");
    let sleep = endpoint().tool_call("run_commands", json!({ "command": "sleep 60" })).text("ok").start();
    let time = ends_with(run().endpoint(&sleep).args(["--max-time", "1s"]).run(), 5);
    assert_eq!(time.events_of("limit_reached")[0]["limit"], "time");
    let nonsense = endpoint().tool_call("no_such_tool", json!({})).for_ever().start();
    let bad = ends_with(run().endpoint(&nonsense).run(), 5);
    assert_eq!(bad.events_of("limit_reached")[0]["limit"], "bad_calls");
}

/// Only the limits of the run and of the network were told.
#[test]
fn a_limit_of_the_sandbox_is_told_and_the_run_goes_on() {
    let fill = "i=0; while head -c 10000000 /dev/zero > $i; do i=$((i+1)); done";
    for (backend, flag, value, command, limit) in [
        ("local", "--disk", "64m", fill, "disk"),
        ("local", "--disk", "64m", "exec truncate -s 1T big", "disk"),
        ("docker", "--memory", "64m", "head -c 200000000 /dev/zero | tail > /dev/null", "memory"),
    ] {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        if backend == "docker" && runtime.block_on(crate::support::engine::engine()).is_none() {
            continue;
        }
        let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
        let told = ends_with(run().endpoint(&model).sandbox(backend).args([flag, value]).run(), 0);
        let told_limits = told.events_of("limit_reached");
        assert_eq!((told_limits.len(), &told_limits[0]["limit"]), (1, &json!(limit)), "{}", told.stdout);
        let report = told
            .again()
            .args(["sessions", "report", told.events()[0]["session"].as_str().expect("an id")])
            .run();
        let report = report.expect_code(0).stdout;
        assert!(report.contains(&format!("Limits reached (1)\n  {limit}\n")), "{report}");
    }
}

#[test]
fn six_where_the_check_does_not_pass() {
    let model = endpoint().text("done").for_ever().start();
    ends_with(run().endpoint(&model).args(["--check", "exit 1", "--check-attempts", "1"]).run(), 6);
}

#[test]
fn seven_where_the_change_conflicts() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo inside > file" }))
        .text("ok")
        .delay(Duration::from_secs(3))
        .start();
    let call = run().endpoint(&model).file("file", "before\n").args(["--apply"]);
    let file = call.workspace().join("file");
    let running = call.start();
    let deadline = Instant::now() + Duration::from_secs(60);
    while model.chats().len() < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(&file, "changed on the host meanwhile\n").expect("written");
    let finished = ends_with(running.wait(), 7);
    assert_eq!(finished.host_file("file").as_deref(), Some("changed on the host meanwhile\n"));
}

#[test]
fn interrupted_and_terminated_end_in_time_with_an_honest_last_line() {
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let model =
            endpoint().tool_call("run_commands", json!({ "command": "sleep 600" })).text("ok").start();
        let running = run().endpoint(&model).start();
        let deadline = Instant::now() + Duration::from_secs(60);
        while model.chats().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        running.signal(signal);
        let started = Instant::now();
        let finished = ends_with(running.wait(), code);
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        let (asked, answered) =
            (finished.events_of("tool_started").len(), finished.events_of("tool_finished").len());
        assert_eq!(asked, answered, "every call has its answer");
    }
}

#[test]
fn exec_passes_the_commands_own_code_on() {
    assert_eq!(
        agent()
            .args(["exec", "--", "sh", "-c", "echo out; echo err >&2; exit 42"])
            .run()
            .expect_code(42)
            .stdout,
        "out\n"
    );
    assert_eq!(
        agent().args(["exec", "--", "cat"]).stdin("through the sandbox").run().expect_code(0).stdout,
        "through the sandbox"
    );
    agent().args(["exec", "--", "no-such-program"]).run().expect_code(127);
    agent().args(["exec", "-s", "20200101-000000-none", "--", "true"]).run().expect_code(125);
    agent().args(["exec"]).run().expect_code(125);
}

/// All but `--network` were ignored without a word.
#[test]
fn exec_refuses_what_cannot_take_effect_in_a_sandbox_that_is_there() {
    let told = |flags: &[&str]| {
        let call = agent().args(["exec", "-s", "20200101-000000-none"]).args(flags).args(["--", "true"]);
        call.run().expect_code(125).stderr
    };
    for (flag, value) in [
        ("--workspace-mode", "bind"),
        ("--include", "x"),
        ("--exclude", "x"),
        ("--sandbox", "docker"),
        ("--image", "alpine"),
        ("--runtime", "runsc"),
        ("--network", "example.org"),
        ("--memory", "1g"),
        ("--cpus", "1"),
        ("--pids", "99"),
        ("--disk", "1g"),
        ("--ttl", "1h"),
        ("--delete-after", "1d"),
    ] {
        let told = told(&[flag, value]);
        assert!(told.contains(&format!("{flag} has no effect on the sandbox of another session")), "{told}");
    }
    assert!(told(&["--keep"]).contains("--keep has no effect"));
    assert!(told(&["--network", "none"]).contains("/network"));
    assert!(told(&["--timeout", "9s"]).contains("there is no session"));

    let model = endpoint().text("ok").start();
    let kept = run().endpoint(&model).args(["--keep"]).run().expect_code(0);
    let id = kept.events()[0]["session"].as_str().expect("an id").to_owned();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let exec = |directory: &std::path::Path| {
        kept.again().args(["exec", "-s", &id, "-C"]).args([directory]).args(["--", "true"]).run()
    };
    assert!(exec(elsewhere.path()).expect_code(125).stderr.contains("not on "));
    exec(kept.again().workspace()).expect_code(0);
    kept.again().args(["sandbox", "rm", &id]).run().expect_code(0);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let model =
        endpoint().tool_call("run_commands", json!({ "command": "echo hi" })).text("ok").for_ever().start();
    let call = run().endpoint(&model).args(["-q"]);
    let finished = call.run_with_closed_stdout();
    assert_eq!(finished.stderr, "");
}

/// A bug: it ended as an unexpected failure, without a hint, where `--output` there is a matter of usage.
#[test]
fn a_recording_that_cannot_be_written_is_a_matter_of_usage() {
    let model = endpoint().text("ok").for_ever().start();
    let done = agent().endpoint(&model).args(["run", "hi", "--record", "/nope/x"]).run().expect_code(2);
    assert!(done.stderr.contains("/nope/x could not be opened for writing"), "{}", done.stderr);
    assert!(done.stderr.contains("hint: name a file"), "{}", done.stderr);
}

/// A bug: it ended as an unexpected failure, without a word on what to do.
#[test]
fn a_home_that_cannot_be_written_to_is_a_matter_of_configuration() {
    let model = endpoint().text("ok").for_ever().start();
    for (home, agent_home) in
        [("/proc/nowhere", ""), ("/dev/null", ""), ("/root", "/proc/nowhere"), ("/root", "/dev/null/x")]
    {
        let call = |arguments: &[&str]| {
            agent().endpoint(&model).env("HOME", home).env("AGENT_HOME", agent_home).args(arguments).run()
        };
        for (arguments, code) in [(&["run", "hi"][..], 2), (&["demo"], 2), (&["exec", "--", "true"], 125)] {
            let finished = call(arguments).expect_code(code);
            assert!(finished.stderr.contains("could not be made: "), "{}", finished.stderr);
            assert!(
                finished.stderr.contains("hint: ") && finished.stderr.contains("set AGENT_HOME"),
                "{}",
                finished.stderr
            );
        }
        call(&["sessions"]).expect_code(0);
    }
    assert_eq!(model.chats().len(), 0, "nothing was asked for that could not be kept");
}
