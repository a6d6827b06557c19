//! `agent sessions`, `agent replay` and `agent fork` on the command line.

use agent_testbed::agent::{Finished, agent};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A session in which a command ran.
fn session() -> Finished {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo hello; pip install x" }))
        .text("Done.")
        .start();
    agent().endpoint(&model).args(["run", "-q", "say hello"]).run().expect_code(0)
}

fn json_of(finished: Finished) -> Value {
    serde_json::from_str(&finished.expect_code(0).stdout).expect("JSON on stdout")
}

/// The id of the only session.
fn id(finished: &Finished) -> String {
    let list = json_of(finished.again().args(["sessions", "--json"]).run());
    assert_eq!(list.as_array().map(Vec::len), Some(1));
    list[0]["id"].as_str().expect("an id").to_owned()
}

fn demo(task: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("examples/demo/{task}.jsonl"))
}

#[test]
fn a_session_is_listed_shown_verified_reported_and_removed() {
    let finished = session();
    let id = id(&finished);
    let stdout_of = |arguments: &[&str]| finished.again().args(arguments).run().expect_code(0).stdout;
    let list = stdout_of(&["sessions"]);
    assert!(list.starts_with(&id) && list.contains("completed") && list.ends_with("say hello\n"), "{list}");
    let shown = stdout_of(&["sessions", "show", &id[..18]]);
    assert!(shown.starts_with("> say hello\n") && shown.contains("Done.\n"), "{shown}");
    let events = json_of(finished.again().args(["sessions", "show", &id, "--json"]).run());
    assert_eq!(events["events"][0]["type"], "session_started");
    assert!(stdout_of(&["sessions", "verify", &id]).contains("lines are as they were written"));
    assert!(stdout_of(&["sessions", "report", &id]).contains("Packages (1)\n  pip x"));
    assert!(stdout_of(&["sessions", "report", &id, "--html"]).starts_with("<!doctype html>"));
    let report = json_of(finished.again().args(["sessions", "report", &id, "--json"]).run());
    assert_eq!(report["commands"][0]["command"], "echo hello; pip install x");
    assert_eq!(stdout_of(&["sessions", "prune", "--older-than", "1d"]), "");
    assert_eq!(stdout_of(&["sessions", "rm", &id]), format!("removed {id}\n"));
    let none = finished.again().args(["sessions"]).run().expect_code(0);
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "There are no sessions yet.\n"));
    let gone = finished.again().args(["sessions", "show", &id]).run().expect_code(2);
    assert!(gone.stderr.contains("unknown session"), "{}", gone.stderr);
}

#[test]
fn an_edited_session_does_not_verify() {
    let finished = session();
    let id = id(&finished);
    let events = finished.again().home("data").join("sessions").join(&id).join("events.jsonl");
    let text = std::fs::read_to_string(&events).expect("the session file");
    std::fs::write(&events, text.replace("echo hello", "echo hullo")).expect("the session file");
    let verified = finished.again().args(["sessions", "verify", &id]).run().expect_code(1);
    assert!(verified.stderr.contains("was changed"), "{}", verified.stderr);
    let verdict = finished.again().args(["sessions", "verify", &id, "--json"]).run().expect_code(1);
    let verdict: Value = serde_json::from_str(&verdict.stdout).expect("JSON");
    assert_eq!(verdict["fault"]["what"], "was changed");
}

/// Resuming a shortened session rewrites `head`, which was the only proof of the loss.
#[test]
fn a_shortened_session_can_be_resumed_but_does_not_verify() {
    let model = endpoint().text("Done.").repeat_last().start();
    let finished = agent().endpoint(&model).args(["run", "-q", "say hello"]).run().expect_code(0);
    let id = id(&finished);
    let events = finished.again().home("data").join("sessions").join(&id).join("events.jsonl");
    let text = std::fs::read_to_string(&events).expect("the session file");
    let left = text.lines().count() - 3;
    let shortened: String = text.split_inclusive('\n').take(left).collect();
    std::fs::write(&events, shortened).expect("the session file");
    let more =
        finished.again().endpoint(&model).args(["run", "--session", &id, "go on"]).run().expect_code(0);
    assert!(more.stderr.contains("the session file lacks 3 lines at its end"), "{}", more.stderr);
    let verified = finished.again().args(["sessions", "verify", &id]).run().expect_code(1);
    let fault = format!("line {} marks where the session lacked 3 lines", left + 1);
    assert!(verified.stderr.contains(&fault), "{}", verified.stderr);
    // The same holds for a fork.
    let fork = finished.again().args(["fork", &id]).run().expect_code(0).stdout;
    finished.again().args(["sessions", "verify", fork.trim()]).run().expect_code(1);
}

#[test]
fn every_demo_recording_replays_as_recorded() {
    for task in agent::demo::TASKS {
        let replay = agent().args(["replay", "--strict"]).args([demo(task.name)]).run().expect_code(0);
        assert!(replay.stderr.contains("results are as recorded"), "{}", replay.stderr);
    }
}

#[test]
fn a_replay_names_the_first_difference_and_strict_exits_6() {
    let recording = std::fs::read_to_string(demo("sum")).expect("the recording");
    let call = agent().file("changed.jsonl", recording.replace("50005000", "50005001"));
    let lax = call.args(["replay", "changed.jsonl"]).run().expect_code(0);
    assert!(lax.stderr.contains("-value: 50005001\n+value: 50005000\n"), "{}", lax.stderr);
    let strict = lax.again().args(["replay", "changed.jsonl", "--strict", "--json"]).run().expect_code(6);
    assert_eq!(strict.events_of("session_finished")[0]["status"], "differs");
    assert!(
        strict
            .events_of("notice")
            .iter()
            .any(|notice| notice["text"].to_string().contains("the result of call"))
    );
}

#[test]
fn a_session_is_replayed_by_its_id_and_a_recording_by_its_path() {
    let model =
        endpoint().tool_call("run_commands", json!({ "command": "date; echo $$" })).text("Done.").start();
    let recorded = agent()
        .endpoint(&model)
        .args(["run", "-q", "what time is it", "--record", "r.jsonl"])
        .run()
        .expect_code(0);
    let id = id(&recorded);
    let by_id = recorded.again().args(["replay", &id]).run().expect_code(0);
    assert!(by_id.stderr.contains("run_commands"), "{}", by_id.stderr);
    assert_eq!(by_id.stdout, "Done.\n");
    recorded.again().args(["replay", "r.jsonl"]).run().expect_code(0);
    let wrong = recorded.again().args(["replay", "nothing-like-it"]).run().expect_code(2);
    assert!(wrong.stderr.contains("neither a file nor a session"), "{}", wrong.stderr);
}

#[test]
fn replaying_anything_but_a_recording_exits_with_2() {
    let silent = endpoint().error(400, "no").repeat_last().start();
    let failed = agent().endpoint(&silent).args(["run", "-q", "hello?"]).run().expect_code(3);
    let id = id(&failed);
    let call = |name: &str| {
        let call = failed
            .again()
            .file("notes.txt", "hello\n")
            .file("data.json", "{\"type\": 3}\n")
            .args(["replay", name]);
        call.run().expect_code(2).stderr
    };
    for (name, message) in [
        ("notes.txt", "error: notes.txt is not a valid recording: line 1 of notes.txt is not an event"),
        ("data.json", "error: data.json is not a valid recording: line 1 of data.json is not an event"),
        (".", "error: . is not a valid recording"),
        ("/dev/null", "error: no model answers in /dev/null"),
        (id.as_str(), &format!("error: no model answers in the session {id}")),
        ("20010101-000000-abcd", "error: unknown session 20010101-000000-abcd"),
    ] {
        let stderr = call(name);
        assert!(stderr.starts_with(message) && stderr.contains("\nhint: "), "{name}: {stderr}");
    }
    let two = failed.again().args(["fork", &id]).run().expect_code(0);
    let ambiguous = call(&id[..8]);
    assert!(
        ambiguous.contains("2 sessions begin with") && ambiguous.contains(two.stdout.trim()),
        "{ambiguous}"
    );
}

#[test]
fn an_incomplete_session_is_replayed_to_its_end() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "echo hello" })).start();
    let stopped = agent().endpoint(&model).args(["run", "-q", "--max-turns", "1", "go"]).run().expect_code(5);
    let replayed = stopped.again().args(["replay", "--strict", &id(&stopped)]).run().expect_code(0);
    assert!(replayed.stderr.contains("the recording ends here"), "{}", replayed.stderr);
    assert!(replayed.stderr.contains("all 1 results are as recorded"), "{}", replayed.stderr);
}

#[test]
fn a_fork_is_a_separate_session() {
    let finished = session();
    let source = id(&finished);
    let fork = finished.again().args(["fork"]).run().expect_code(0).stdout;
    assert_ne!(fork.trim(), source);
    let verified = finished.again().args(["sessions", "verify", fork.trim()]).run().expect_code(0);
    assert!(verified.stdout.contains("as they were written"), "{}", verified.stdout);
    assert_eq!(
        json_of(finished.again().args(["sessions", "--json"]).run()).as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn a_session_is_replayed_on_its_original_workspace() {
    let look = "find . -type f | sort; cat kept.txt edited.txt; test -e gone.txt";
    let change =
        "echo 2 >> edited.txt; rm gone.txt; mkdir dir; echo new > dir/new; git log --oneline 2>&1 | tail -1";
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": look }))
        .tool_call("run_commands", json!({ "command": change }))
        .tool_call("run_commands", json!({ "command": look }))
        .text("done")
        .start();
    let call =
        agent().endpoint(&model).file("kept.txt", "kept\n").file("edited.txt", "1\n").file("gone.txt", "x\n");
    let ran = call.args(["run", "--apply", "--json", "go"]).run().expect_code(0);
    let id = ran.events()[0]["session"].as_str().expect("an id").to_owned();
    assert_eq!(ran.host_file("edited.txt").as_deref(), Some("1\n2\n"));
    // The host has the session's changes now, and a later one.
    let call = ran.again().file("later.txt", "made later\n");
    let replayed = call.args(["replay", &id, "--strict"]).run().expect_code(0);
    assert!(replayed.stderr.contains("results are as recorded"), "{}", replayed.stderr);
    assert_eq!(ran.host_file("edited.txt").as_deref(), Some("1\n2\n"), "a replay writes nothing to the host");
}
