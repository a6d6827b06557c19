//! The exit codes, and the last event of `--json` for each of them.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::time::{Duration, Instant};

/// Every line is valid JSON that the schema accepts, and the last is `session_finished` with this code.
#[track_caller]
fn ends_with(finished: Finished, code: i32) -> Finished {
    let finished = finished.expect_code(code);
    let schema = serde_json::from_str(include_str!("../../docs/reference/events.schema.json"))
        .expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is valid");
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
fn a_finished_run_exits_with_0() {
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
    assert_eq!(finished.events()[0]["sandbox"]["image"], "host");
}

#[test]
fn a_wrong_configuration_exits_with_2() {
    for empty in ["", " \n"] {
        let model = endpoint().text("ok").start();
        ends_with(run().endpoint(&model).args(["--check", empty]).run(), 2);
        assert_eq!(model.requests().len(), 0, "found before the first request");
    }
    ends_with(run().run(), 2);
    ends_with(
        run()
            .env("AGENT_BASE_URL", "http://127.0.0.1:1")
            .env("AGENT_MODEL", "m")
            .env("AGENT_API_KEY", "a\nb")
            .run(),
        2,
    );
    for (flag, text) in [("--include", "["), ("--exclude", "{a")] {
        let model = endpoint().text("ok").start();
        let stderr = ends_with(run().endpoint(&model).args([flag, text]).run(), 2).stderr;
        assert!(stderr.contains(&format!("{flag} {text}: not a glob")), "{stderr}");
    }
    agent().args(["help", "run"]).run().expect_code(0);
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
        redirected.stderr.contains("comes from another source")
            && !redirected.stderr.contains("secret-of-the-user")
    );
    assert_eq!(model.connections(), 0);
}

#[test]
fn every_setting_has_a_variable_and_an_error_names_it() {
    let again =
        endpoint().tool_call("run_commands", json!({ "command": "echo again" })).repeat_last().start();
    let call = || run().endpoint(&again);
    let turns = ends_with(call().config("max_turns = 3").env("AGENT_MAX_TURNS", "2").run(), 5);
    assert_eq!(turns.events_of("turn_started").len(), 2);
    let flag = ends_with(call().env("AGENT_MAX_TURNS", "3").args(["--max-turns", "1"]).run(), 5);
    assert_eq!(flag.events_of("turn_started").len(), 1);
    let limits =
        [("AGENT_PIDS", "99"), ("AGENT_CPUS", "1.5"), ("AGENT_MEMORY", "512m"), ("AGENT_MAX_TURNS", "1")];
    let limited = ends_with(limits.iter().fold(call(), |call, (name, value)| call.env(name, value)).run(), 5);
    let sandbox = &limited.events()[0]["sandbox"]["limits"];
    assert_eq!(
        (&sandbox["pids"], &sandbox["cpus"], &sandbox["memory"]),
        (&json!(99), &json!(1.5), &json!(512 << 20))
    );
    for (name, value) in [
        ("AGENT_APPROVE", "perhaps"),
        ("AGENT_SANDBOX", "cloud"),
        ("AGENT_PIDS", "many"),
        ("AGENT_PIDS", "1"),
        ("AGENT_CPUS", "nan"),
        ("AGENT_MEMORY", "lots"),
        ("AGENT_TIMEOUT", "soon"),
        ("AGENT_NETWORK", "not a host"),
        ("AGENT_COMPACTION", "7"),
        ("AGENT_OUTPUT_CHARS", "1"),
        ("AGENT_MAX_TURNS", "0"),
        ("AGENT_MAX_TOKENS_TOTAL", "0"),
        ("AGENT_MAX_ANSWER_TOKENS", "0"),
        ("AGENT_MAX_COST", "-"),
        ("AGENT_MAX_COST", "-1"),
        ("AGENT_MAX_TIME", "0"),
    ] {
        let stderr = ends_with(call().env(name, value).run(), 2).stderr;
        assert!(stderr.contains(&format!("error: {name}: ")), "{name}: {stderr}");
    }
    for text in ["off", "1", "TRUE"] {
        let stderr = ends_with(call().env("AGENT_COMPACTION", text).run(), 2).stderr;
        assert!(stderr.contains("hint: write true or false"), "{text}: {stderr}");
    }
    for cost in ["nan", "-1"] {
        let stderr = ends_with(call().args([format!("--max-cost={cost}")]).run(), 2).stderr;
        assert!(stderr.contains("--max-cost: "), "{stderr}");
    }
    let file = ends_with(call().config("memory = \"lots\"").run(), 2);
    assert!(file.stderr.contains("memory in config.toml: "), "{}", file.stderr);
    assert!(ends_with(call().args(["--memory", "lots"]).run(), 2).stderr.contains("--memory: "));
    for (text, hint) in [
        ("exclude = [\"docs\"]", "a list of globs belongs into the table [workspace]: exclude = [\"GLOB\"]"),
        ("[workspace]\nexclude = \"docs\"", "expected a list of globs: write [\"docs\"]"),
    ] {
        let stderr = ends_with(call().config(text).run(), 2).stderr;
        assert!(stderr.contains(hint), "{stderr}");
    }
}

#[test]
fn a_failing_endpoint_exits_with_3() {
    let model = endpoint().error(401, "no such key").start();
    ends_with(run().endpoint(&model).run(), 3);
    let model =
        endpoint().raw("<html>hello</html>").header("content-type", "text/html").repeat_last().start();
    ends_with(run().endpoint(&model).run(), 3);
}

#[test]
fn a_failing_sandbox_exits_with_4() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "true" })).text("ok").start();
    let nowhere =
        run().endpoint(&model).sandbox("docker").env("DOCKER_HOST", "unix:///nonexistent/docker.sock").run();
    let nowhere = ends_with(nowhere, 4);
    assert!(nowhere.stderr.contains("hint:"), "{}", nowhere.stderr);
}

#[test]
fn options_that_need_an_engine_are_never_ignored() {
    let no_engine = || agent().env("DOCKER_HOST", "unix:///nonexistent/docker.sock").sandbox("auto");
    let exec = |call: Agent, flags: &[&str]| {
        call.args(["exec"]).args(flags).args(["--", "true"]).run().expect_code(125).stderr
    };
    for flags in [["--runtime", "runsc"], ["--image", "alpine"]] {
        assert!(exec(no_engine(), &flags).contains("no Docker engine answers"));
        let local = exec(agent(), &flags);
        let what = &flags[0][2..];
        assert!(
            local.contains(&format!("the local sandbox has no {what}s, so it cannot use {}", flags[1])),
            "{local}"
        );
        let model = endpoint().text("ok").start();
        assert!(ends_with(run().endpoint(&model).args(flags).run(), 2).stderr.contains("hint: leave --"));
    }
    assert!(exec(no_engine().env("AGENT_RUNTIME", "runsc"), &[]).contains("no Docker engine answers"));
    exec(agent().env("AGENT_RUNTIME", "runsc"), &[]);
    exec(agent().config("runtime = \"runsc\""), &[]);
    let host = no_engine().args(["exec", "--image", "host", "--", "true"]);
    host.run().expect_code(0);
}

#[tokio::test]
async fn doctor_checks_the_requested_sandbox() {
    let model = endpoint().text("ok").repeat_last().start();
    let doctor = |flags: &[&str], docker_host: Option<&str>, code| {
        let call = agent().endpoint(&model).sandbox("auto").args(["doctor", "--json"]).args(flags);
        let call = docker_host.into_iter().fold(call, |call, host| call.env("DOCKER_HOST", host));
        let finished = call.run().expect_code(code);
        let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap_or_default();
        let state = |name: &str| {
            let checks = report["checks"].as_array().into_iter().flatten();
            let mut states = checks.filter(|check| check["name"] == name).map(|check| &check["state"]);
            states.next().and_then(|state| state.as_str()).unwrap_or("not looked at").to_owned()
        };
        ["engine", "image", "runtime", "local"].map(state).join(", ")
    };
    let nowhere = Some("unix:///nonexistent/docker.sock");
    let nothing = "not looked at, not looked at, not looked at";
    assert_eq!(doctor(&["--sandbox", "docker"], nowhere, 4), format!("failed, {nothing}"));
    assert_eq!(doctor(&["--runtime", "runsc"], nowhere, 4), format!("failed, {nothing}"));
    assert_eq!(doctor(&["--sandbox", "local"], nowhere, 0), format!("{nothing}, ok"));
    assert_eq!(doctor(&[], nowhere, 0), "warning, not looked at, not looked at, ok");
    doctor(&["--sandbox", "local", "--runtime", "runsc"], nowhere, 2);
    if agent_testbed::engine::engine().await.is_none() {
        return;
    }
    doctor(&["--image", "no name of an image"], None, 2);
    assert_eq!(doctor(&[], None, 0), "ok, ok, not looked at, ok");
    assert_eq!(doctor(&["--image", "nope:1"], None, 0), "ok, warning, not looked at, not looked at");
    assert_eq!(doctor(&["--runtime", "nope"], None, 4), "ok, ok, failed, not looked at");
}

#[test]
fn a_limit_exits_with_5() {
    let again =
        || endpoint().tool_call("run_commands", json!({ "command": "echo again" })).repeat_last().start();
    let turns = ends_with(run().endpoint(&again()).args(["--max-turns", "3"]).run(), 5);
    assert_eq!(turns.events_of("limit_reached")[0]["limit"], "turns");
    let repetition = ends_with(run().endpoint(&again()).run(), 5);
    assert_eq!(repetition.events_of("limit_reached")[0]["limit"], "repetition");
    let tokens = ends_with(run().endpoint(&again()).args(["--max-tokens-total", "1"]).run(), 5);
    assert_eq!(tokens.events_of("limit_reached")[0]["limit"], "tokens");
    let sleep = endpoint().tool_call("run_commands", json!({ "command": "sleep 60" })).text("ok").start();
    let time = ends_with(run().endpoint(&sleep).args(["--max-time", "1s"]).run(), 5);
    assert_eq!(time.events_of("limit_reached")[0]["limit"], "time");
    for limited in [&turns, &tokens, &time] {
        assert!(limited.stderr.contains("hint: raise --max-"), "{}", limited.stderr);
    }
    let nonsense = endpoint().tool_call("no_such_tool", json!({})).repeat_last().start();
    let bad = ends_with(run().endpoint(&nonsense).run(), 5);
    assert_eq!(bad.events_of("limit_reached")[0]["limit"], "bad_calls");
}

#[test]
fn a_limit_of_the_sandbox_is_reported_and_the_run_continues() {
    let fill = "i=0; while head -c 10000000 /dev/zero > $i; do i=$((i+1)); done";
    for (backend, flag, value, command, limit) in [
        ("local", "--disk", "64m", fill, "disk"),
        ("local", "--disk", "64m", "exec truncate -s 1T big", "disk"),
        ("docker", "--memory", "64m", "head -c 200000000 /dev/zero | tail > /dev/null", "memory"),
    ] {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        if backend == "docker" && runtime.block_on(agent_testbed::engine::engine()).is_none() {
            continue;
        }
        let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
        let ended = ends_with(run().endpoint(&model).sandbox(backend).args([flag, value]).run(), 0);
        let limits = ended.events_of("limit_reached");
        assert_eq!((limits.len(), &limits[0]["limit"]), (1, &json!(limit)), "{}", ended.stdout);
        let report = ended
            .again()
            .args(["sessions", "report", ended.events()[0]["session"].as_str().expect("an id")])
            .run();
        let report = report.expect_code(0).stdout;
        assert!(report.contains(&format!("Limits reached (1)\n  {limit}\n")), "{report}");
    }
}

#[test]
fn a_failed_check_exits_with_6() {
    let model = endpoint().text("done").repeat_last().start();
    ends_with(run().endpoint(&model).args(["--check", "exit 1", "--check-attempts", "1"]).run(), 6);
}

#[test]
fn a_conflicting_change_exits_with_7() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo inside > file" }))
        .text("ok")
        .delay(Duration::from_secs(3))
        .start();
    let call = run().endpoint(&model).file("file", "before\n").args(["--apply"]);
    let file = call.workspace().join("file");
    let running = call.start();
    let deadline = Instant::now() + Duration::from_secs(60);
    while model.chat_requests().len() < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(&file, "changed on the host meanwhile\n").expect("written");
    let finished = ends_with(running.wait(), 7);
    assert_eq!(finished.host_file("file").as_deref(), Some("changed on the host meanwhile\n"));
}

#[test]
fn interrupted_and_terminated_runs_end_in_time_with_their_exit_code() {
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let model =
            endpoint().tool_call("run_commands", json!({ "command": "sleep 600" })).text("ok").start();
        let running = run().endpoint(&model).start();
        let deadline = Instant::now() + Duration::from_secs(60);
        while model.chat_requests().is_empty() && Instant::now() < deadline {
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
fn exec_exits_with_the_commands_code() {
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

#[test]
fn exec_refuses_options_without_effect_on_a_running_sandbox() {
    let refusal = |flags: &[&str]| {
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
    ] {
        let stderr = refusal(&[flag, value]);
        assert!(
            stderr.contains(&format!("{flag} has no effect on the sandbox of another session")),
            "{stderr}"
        );
    }
    assert!(refusal(&["--keep"]).contains("--keep has no effect"));
    for flag in [&["--keep"][..], &["--json"], &["--apply"], &["--check", "true"]] {
        let refused = agent().args(["exec"]).args(flag).args(["--", "true"]).run().expect_code(125);
        assert!(refused.stderr.contains(&format!("{} has no effect", flag[0])), "{}", refused.stderr);
    }
    assert!(refusal(&["--network", "none"]).contains("/network"));
    assert!(refusal(&["--timeout", "9s"]).contains("unknown session"));

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
fn options_without_effect_on_a_rejoined_sandbox_are_reported() {
    let model = endpoint().text("ok").repeat_last().start();
    let kept = run().endpoint(&model).args(["--keep", "--memory", "512m"]).run().expect_code(0);
    let id = kept.events()[0]["session"].as_str().expect("an id").to_owned();
    let joined = |flags: &[&str]| {
        let call = kept.again().endpoint(&model).args(["run", "--json", "--session", &id, "go"]).args(flags);
        let joined = ends_with(call.run(), 0);
        let is = joined.events()[0]["sandbox"].clone();
        assert_eq!((&is["limits"]["memory"], &is["network"]), (&json!(512 << 20), &json!("none")), "{is}");
        let notices = joined.events_of("notice").into_iter().map(|notice| notice["text"].to_string());
        notices.filter(|text| text.contains("still exists")).collect::<String>()
    };
    let stderr =
        joined(&["--memory", "1g", "--network", "full", "--pids", "99", "--include", "x", "--ttl", "2h"]);
    assert!(stderr.contains("--include, --network, --memory, --pids, --ttl has no effect."), "{stderr}");
    assert_eq!(joined(&["--memory", "512m", "--network", "none"]), "");
    kept.again().args(["sandbox", "rm", &id]).run().expect_code(0);
}

#[tokio::test]
async fn a_session_keeps_its_runtime() {
    let Some(docker) = agent_testbed::engine::engine().await else { return };
    let runtimes = docker.checks().await.expect("the engine describes itself").runtimes;
    let name = runtimes.iter().find(|name| ["runc", "crun"].contains(&name.as_str())).expect("a runtime");
    let model = endpoint().text("ok").repeat_last().start();
    let began = run().endpoint(&model).sandbox("docker").args(["--runtime", name]).run().expect_code(0);
    let id = began.events()[0]["session"].as_str().expect("an id").to_owned();
    let went_on = began.again().endpoint(&model).args(["run", "--json", "--session", &id, "go"]);
    for finished in [began, went_on.run().expect_code(0)] {
        assert_eq!(finished.events()[0]["sandbox"]["runtime"], name.as_str());
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo hi" }))
        .text("ok")
        .repeat_last()
        .start();
    let call = run().endpoint(&model).args(["-q"]);
    let finished = call.run_with_closed_stdout();
    assert_eq!(finished.stderr, "");
}

#[test]
fn a_recording_that_cannot_be_written_is_a_usage_error() {
    let model = endpoint().text("ok").repeat_last().start();
    let done = agent().endpoint(&model).args(["run", "hi", "--record", "/nope/x"]).run().expect_code(2);
    assert!(done.stderr.contains("/nope/x could not be opened for writing"), "{}", done.stderr);
    assert!(done.stderr.contains("hint: name a file"), "{}", done.stderr);
}

#[test]
fn a_home_that_is_not_writable_is_a_configuration_error() {
    let model = endpoint().text("ok").repeat_last().start();
    for (home, agent_home) in
        [("/proc/nowhere", ""), ("/dev/null", ""), ("/root", "/proc/nowhere"), ("/root", "/dev/null/x")]
    {
        let call = |arguments: &[&str]| {
            agent().endpoint(&model).env("HOME", home).env("AGENT_HOME", agent_home).args(arguments).run()
        };
        for (arguments, code) in [(&["run", "hi"][..], 2), (&["demo"], 2), (&["exec", "--", "true"], 125)] {
            let finished = call(arguments).expect_code(code);
            assert!(finished.stderr.contains("could not be created: "), "{}", finished.stderr);
            assert!(
                finished.stderr.contains("hint: ") && finished.stderr.contains("set AGENT_HOME"),
                "{}",
                finished.stderr
            );
        }
        call(&["sessions"]).expect_code(0);
    }
    assert_eq!(model.chat_requests().len(), 0, "nothing was asked for that could not be kept");
}

/// `su` and `sudo` may leave the home of another user.
#[test]
fn unreadable_settings_are_reported_with_a_hint() {
    let hidden = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    };
    let call = agent().config("").without_permission_override().args(["run", "hi"]);
    hidden(&call.home("config").join("config.toml"));
    let stderr = call.run().expect_code(2).stderr;
    assert!(stderr.contains("config.toml cannot be read: ") && stderr.contains("set HOME"), "{stderr}");
    let call = agent().file(".env", "").without_permission_override().args(["run", "hi"]);
    hidden(&call.workspace().join(".env"));
    let stderr = call.run().expect_code(2).stderr;
    assert!(
        stderr.contains(".env cannot be read: ") && stderr.contains("hint: make it readable"),
        "{stderr}"
    );
}
