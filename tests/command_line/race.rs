//! `agent race` and `agent fork`: several sessions from one state.

use crate::delegate::await_no_sandbox;
use agent_testbed::agent::agent;
use agent_testbed::backends::{BACKENDS, backend};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::{Endpoint, Script, endpoint};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A model of which each name behaves differently: the first answer and the one after its tool ran.
fn models(turns: impl Fn(&str) -> (Script, Script) + Send + Sync + 'static) -> Endpoint {
    let rule = move |body: &Value| {
        let (first, second) = turns(body["model"].as_str().unwrap_or_default());
        let has_worked = body["messages"].as_array().unwrap().iter().any(|message| message["role"] == "tool");
        if has_worked { second } else { first }
    };
    endpoint().by_rule(rule).start()
}

fn command(text: &str) -> Script {
    endpoint().tool_call("run_commands", json!({ "command": text }))
}

/// Holds the port for a second, then writes the file: two of them on one machine would collide.
fn serve_and_write(content: &str) -> Script {
    let listen =
        "import socket,time; s=socket.socket(); s.bind((\"127.0.0.1\",8123)); s.listen(); time.sleep(1)";
    command(&format!("python3 -c '{listen}' && printf '{content}' > out.txt"))
}

fn race_of(stdout: &str) -> Value {
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    last["race"].clone()
}

#[test]
fn the_first_attempt_that_passes_wins_and_the_others_are_stopped() {
    let model = models(|name| match name {
        "slow" => (serve_and_write("right"), endpoint().text("slow is done").delay(Duration::from_secs(60))),
        "wrong" => (serve_and_write("wrong"), endpoint().text("wrong is done")),
        _ => (serve_and_write("right"), endpoint().text("fast is done")),
    });
    let call = agent().endpoint(&model).file("out.txt", "old");
    let arguments = [
        "race",
        "--models",
        "slow,wrong,fast",
        "write it",
        "--check",
        "grep -q right out.txt",
        "--check-attempts",
        "1",
    ];
    let finished = call.args(arguments).run().expect_code(0);
    assert_eq!(finished.stdout, "fast is done\n");
    assert!(finished.took < Duration::from_secs(55), "{:?}", finished.took);
    assert!(finished.stderr.contains("Attempt 3 won"), "{}", finished.stderr);
    let shown = finished.again().args(["race", "show", "--json"]).run().expect_code(0);
    let record: Value = serde_json::from_str(&shown.stdout).unwrap();
    let states: Vec<&str> = (0..3).map(|i| record["attempts"][i]["state"].as_str().unwrap()).collect();
    assert_eq!((states[0], states[2], &record["winner"]), ("stopped", "passed", &json!(3)));
    assert_ne!(states[1], "passed", "its check fails, or it is stopped before");
    let shown = shown.again().args(["race", "show"]).run().expect_code(0).stdout;
    assert!(shown.contains("attempt 1") && shown.contains("+right"), "{shown}");
    let session = record["attempts"][2]["session"].as_str().unwrap();
    let listed = finished.again().args(["sessions", "--json"]).run().expect_code(0).stdout;
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let winners: Vec<&Value> = listed.iter().map(|summary| &summary["attempt_of"]).collect();
    assert_eq!(winners.iter().filter(|winner| **winner == session).count(), 2, "{listed:?}");
    let diff = finished.again().args(["diff"]).run().expect_code(0);
    assert!(diff.stdout.contains("+right"), "the winner's is the last one: {}", diff.stdout);
    assert_eq!(finished.host_file("out.txt").as_deref(), Some("old"));
    let applied = finished.again().args(["apply", "-y"]).run().expect_code(0);
    assert_eq!(applied.host_file("out.txt").as_deref(), Some("right"));
    let verified = applied.again().args(["sessions", "verify", session]).run();
    verified.expect_code(0);
}

#[test]
fn the_smallest_diff_wins_if_all_finish_and_a_judge_decides_otherwise() {
    let model = models(|name| {
        let lines = if name == "long" { "a\\nb\\nc\\n" } else { "a\\n" };
        (command(&format!("printf '{lines}' > out.txt")), endpoint().text(&format!("{name} is done")))
    });
    let race = |more: &[&str]| {
        let arguments =
            ["race", "--models", "long,short,short", "write it", "--check", "test -s out.txt", "--all"];
        agent().endpoint(&model).args(arguments).args(more).run()
    };
    let finished = race(&["--json"]).expect_code(0);
    let record = race_of(&finished.stdout);
    assert_eq!(record["winner"], 2, "of equal ones the first");
    let sessions: std::collections::BTreeSet<&str> =
        (0..3).map(|i| record["attempts"][i]["session"].as_str().unwrap()).collect();
    let lines: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended = lines.iter().filter(|event| event["type"] == "session_finished");
    assert!(ended.clone().all(|event| sessions.contains(event["session"].as_str().unwrap())));
    assert_eq!(ended.count(), 3);
    assert_eq!(
        race_of(&race(&["--json", "--judge", "grep -q long && echo 1"]).expect_code(0).stdout)["winner"],
        1
    );
    let refused = race(&["--judge", "echo none of them"]).expect_code(6);
    assert!(refused.stderr.contains("the judge did not name one attempt that passed"), "{}", refused.stderr);
}

#[test]
fn a_model_judges_attempts_without_a_check() {
    let model = endpoint()
        .by_rule(|body| match body["model"].as_str() {
            Some("judge") => {
                let text = body["messages"][1]["content"].as_str().unwrap();
                assert!(text.contains("Attempt 2, its change:"), "{text}");
                endpoint().text("Attempt 2 is better: 2")
            }
            _ if body["messages"].as_array().unwrap().len() > 3 => endpoint().text("done"),
            _ => command("echo x > out.txt"),
        })
        .start();
    let call = agent().endpoint(&model);
    let finished =
        call.args(["race", "-n", "2", "write it", "--judge-model", "judge", "--json"]).run().expect_code(0);
    assert_eq!(race_of(&finished.stdout)["winner"], 2);
    let none = finished.again().endpoint(&model).args(["race", "-n", "2", "write it"]).run().expect_code(0);
    assert!(none.stderr.contains("There is no check, so there is no winner"), "{}", none.stderr);
}

#[test]
fn checks_that_fail_or_hang_give_no_winner() {
    let model = models(|_| (command("echo x > out.txt"), endpoint().text("done")));
    let call = agent().endpoint(&model);
    let arguments = ["race", "-n", "2", "write it", "--check-attempts", "1", "--check-timeout", "1s"];
    let failed = call.args(arguments).args(["--check", "sleep 1000"]).run().expect_code(6);
    assert!(
        failed.stderr.contains("none of 2 attempts passed: the check did not pass: sleep 1000"),
        "{}",
        failed.stderr
    );
    let limited = failed.again().endpoint(&model);
    let limited =
        limited.args(["race", "-n", "2", "write it", "--max-tokens-total", "20", "--check", "false"]).run();
    let limited = limited.expect_code(5);
    assert!(limited.stderr.contains("for all together is reached"), "{}", limited.stderr);
}

#[test]
fn a_race_that_is_killed_is_shown_and_leaves_ordinary_sessions() {
    let model =
        models(|_| (command("echo x > out.txt"), endpoint().text("done").delay(Duration::from_secs(60))));
    let running = agent().endpoint(&model).args(["race", "-n", "2", "write it", "--check", "true"]).start();
    let deadline = Instant::now() + Duration::from_secs(60);
    while model.chat_requests().len() < 4 {
        assert!(Instant::now() < deadline, "both attempts reach their second turn");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal(libc::SIGKILL);
    let data = running.home("data");
    let killed = running.wait();
    let shown = killed.again().args(["race", "show"]).run().expect_code(0).stdout;
    assert!(shown.contains("not finished") && shown.matches("running").count() == 2, "{shown}");
    let sessions = killed.again().args(["sessions", "list"]).run().expect_code(0).stdout;
    assert_eq!(sessions.matches("write it").count(), 2, "{sessions}");
    await_no_sandbox(&killed);
    // Sessions that were used a moment ago stay, and the others are removed with what they kept.
    killed.again().args(["sessions", "prune", "--older-than", "1h"]).run().expect_code(0);
    let kept = killed.again().args(["sessions", "list"]).run().expect_code(0).stdout;
    assert_eq!(kept.matches("write it").count(), 2, "{kept}");
    killed.again().args(["sessions", "prune", "--older-than", "0s"]).run().expect_code(0);
    let shown = killed.again().args(["race", "show"]).run().expect_code(0).stdout;
    assert_eq!(shown.matches("its session was removed").count(), 2, "{shown}");
    let left = std::fs::read_dir(data.join("sessions")).unwrap().flatten();
    assert_eq!(left.filter(|entry| entry.path().is_dir()).count(), 0, "nothing is made again");
}

#[test]
fn ctrl_c_stops_a_judge_and_what_it_has_started() {
    // The first Ctrl-C was swallowed, and of a judge that took too long only the shell ended.
    let model = models(|_| (command("echo x > out.txt"), endpoint().text("done")));
    let call = agent().endpoint(&model);
    let judging = call.workspace().join("judging");
    let judge = format!("(sleep 600) & echo $! > {0}.new; mv {0}.new {0}; wait", judging.display());
    let running = call.args(["race", "-n", "2", "write it", "--judge", &judge]).start();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !judging.exists() {
        assert!(Instant::now() < deadline, "the judge is asked");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal(libc::SIGINT);
    let stopped = running.wait().expect_code(130);
    assert!(stopped.stderr.contains("the race was stopped"), "{}", stopped.stderr);
    let sleeping = std::fs::read_to_string(&judging).unwrap().trim().to_owned();
    while std::path::Path::new("/proc").join(&sleeping).join("exe").exists() {
        assert!(Instant::now() < deadline, "it ends with the judge");
        std::thread::sleep(Duration::from_millis(20));
    }
    let shown = stopped.again().args(["race", "show"]).run().expect_code(0).stdout;
    assert!(!shown.contains("not finished") && shown.matches("finished").count() >= 2, "{shown}");
}

#[test]
fn of_equal_finishers_exactly_one_wins() {
    let model = models(|_| (command("echo x > out.txt"), endpoint().text("done")));
    let call = agent().endpoint(&model);
    let finished = call
        .args(["race", "-n", "4", "write it", "--check", "test -f out.txt", "--json"])
        .run()
        .expect_code(0);
    let record = race_of(&finished.stdout);
    let winner = record["winner"].as_u64().unwrap() as usize;
    assert_eq!(record["attempts"][winner - 1]["state"], "passed");
}

#[test]
fn an_endpoint_that_fails_all_attempts_is_not_their_failure() {
    let model = endpoint().by_rule(|_| endpoint().error(401, "wrong key")).start();
    let call = agent().endpoint(&model);
    let failed = call.args(["race", "-n", "2", "write it", "--check", "true"]).run().expect_code(3);
    assert!(failed.stderr.contains("none of 2 attempts passed") && failed.stderr.contains("wrong key"));
}

#[test]
fn a_terminal_shows_a_row_for_each_attempt_and_ctrl_c_stops_them() {
    let model =
        models(|_| (command("echo x > out.txt"), endpoint().text("late").delay(Duration::from_secs(60))));
    let mut terminal =
        terminal().endpoint(&model).args(["race", "-n", "3", "write it", "--check", "true"]).start();
    terminal.wait_for("last action");
    terminal.wait_until("all attempts have called their tool", |screen| {
        screen.lines().filter(|line| line.contains("running") && line.contains("echo x")).count() == 3
    });
    terminal.ctrl_c();
    terminal.wait_for("the race was stopped");
    assert_eq!(terminal.wait(), 130);
}

#[test]
fn a_race_in_the_repl_begins_with_the_sandbox_as_it_is() {
    // All attempts but the first began with the last prompt's workspace and an empty home.
    let model = endpoint()
        .by_rule(|body| {
            let messages = body["messages"].as_array().unwrap();
            let last_prompt = messages.iter().rposition(|message| message["role"] == "user").unwrap();
            let text = messages[last_prompt]["content"].as_str().unwrap_or_default();
            let has_worked = messages[last_prompt..].iter().any(|message| message["role"] == "tool");
            match (has_worked, text.contains("install")) {
                (true, _) => endpoint().text("done with it"),
                (false, true) => command("echo tool > ~/tool; echo 1 > w.txt"),
                (false, false) => command("cat ~/tool w.txt; echo raced > result.txt"),
            }
        })
        .start();
    for mode in ["overlay", "copy"] {
        let before = model.chat_requests().len();
        let mut terminal = terminal().endpoint(&model).args(["--workspace-mode", mode]).start();
        terminal.wait_for_prompt();
        terminal.type_line("install it");
        terminal.wait_for("done with it");
        terminal.wait_for_prompt();
        terminal.type_line("!echo 2 > w.txt && echo written");
        terminal.wait_for("\nwritten");
        terminal.wait_for_prompt();
        terminal.type_line("/race 3 look at it");
        terminal.wait_for("Continue with which one?");
        terminal.type_line("3");
        terminal.wait_for("this is session");
        terminal.wait_for_prompt();
        let requests = model.chat_requests().split_off(before);
        let seen = |body: &&Value| {
            let last = body["messages"].as_array().unwrap().last().unwrap();
            last["role"] == "tool" && last["content"].as_str().unwrap().contains("tool\n2")
        };
        assert_eq!(requests.iter().filter(seen).count(), 3, "{mode}: {requests:#?}");
        terminal.type_line("!cat ~/tool result.txt | tr '\\n' ,");
        terminal.wait_for("tool,raced,");
        terminal.wait_for_prompt();
        terminal.ctrl_d();
        assert_eq!(terminal.wait(), 0);
    }
}

#[test]
fn a_fork_has_the_workspace_and_the_home_directory_as_they_are_in_the_sandbox() {
    let install = "mkdir -p ~/.tools && echo one > ~/.tools/version && chmod 500 ~/.tools && ln -s .tools ~/link && echo 1 > w.txt";
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": install }))
        .text("installed")
        .tool_call("run_commands", json!({ "command": "cat ~/link/version w.txt; stat -c %a ~/.tools" }))
        .text("read")
        .start();
    let kept = agent().endpoint(&model).args(["run", "install it", "--keep", "--json"]).run().expect_code(0);
    let session = kept.events()[0]["session"].as_str().unwrap().to_owned();
    // Changed after the last prompt.
    kept.again().args(["exec", "-s", &session, "--", "sh", "-c", "echo 2 > w.txt"]).run().expect_code(0);
    let forked = kept.again().args(["fork", &session, "--json"]).run().expect_code(0);
    let forked: Value = serde_json::from_str(&forked.stdout).unwrap();
    assert_eq!((&forked["forked_from"], &forked["home"]), (&json!(session), &json!(true)));
    let fork = forked["session"].as_str().unwrap();
    kept.again().args(["sandbox", "rm", &session]).run().expect_code(0);
    let read = kept
        .again()
        .endpoint(&model)
        .args(["run", "--session", fork, "read it", "--json"])
        .run()
        .expect_code(0);
    let result = read.events_of("tool_finished").pop().unwrap()["result"].as_str().unwrap().to_owned();
    assert!(result.ends_with("one\n2\n500") || result.contains("one\n2\n500"), "{result}");
    let stopped = kept.again().args(["fork", &session, "--json"]).run().expect_code(0);
    assert!(stopped.stdout.contains("\"home\":false"), "{}", stopped.stdout);
}

#[tokio::test]
async fn a_fork_without_its_engine_says_what_it_lacks() {
    if backend("docker").await.is_none() {
        return;
    }
    let model =
        endpoint().tool_call("run_commands", json!({ "command": "echo 1 > w.txt" })).text("done").start();
    let call = agent().endpoint(&model).args(["run", "work", "--sandbox", "docker", "--json"]);
    let worked = call.run().expect_code(0);
    let session = worked.events()[0]["session"].as_str().unwrap().to_owned();
    let away = worked.again().env("DOCKER_HOST", "unix:///nowhere/engine.sock");
    let forked = away.args(["fork", &session]).run().expect_code(0);
    let told = "the fork has the workspace as of the last prompt, because the sandbox of";
    assert!(forked.stderr.contains(told), "{}", forked.stderr);
}

/// The layer of an overlay is copied: with what is deleted in it, directories that took another one's place, links and modes.
#[tokio::test]
async fn a_fork_of_an_overlay_has_what_its_sandbox_wrote_and_deleted() {
    for name in BACKENDS {
        if backend(name).await.is_none() {
            continue;
        }
        let change = "rm -r old && mkdir old && echo new > old/new && rm gone && ln -s kept link && mkfifo pipe && chmod 700 d && \
                      echo changed > kept && mkdir -p ignored ~/.tools && echo built > ignored/output && echo one > ~/.tools/version";
        let look = "cat old/new kept link ignored/output ~/.tools/version; ls -d old/former gone pipe; stat -c %a d; cat after";
        let model = endpoint()
            .tool_call("run_commands", json!({ "command": change }))
            .text("changed")
            .tool_call("run_commands", json!({ "command": look }))
            .text("looked")
            .start();
        let call = agent().file("kept", "host's").file("gone", "x").file("old/former", "x").file("d/f", "x");
        let call = call.file(".gitignore", "ignored/\n").file("secret/.env", "KEY=value\n");
        let overlay = ["--sandbox", name, "--workspace-mode", "overlay"];
        let kept = call
            .endpoint(&model)
            .args(["run", "change it", "--keep", "--json"])
            .args(overlay)
            .run()
            .expect_code(0);
        let session = kept.events()[0]["session"].as_str().unwrap().to_owned();
        // Changed after the last prompt.
        kept.again()
            .args(["exec", "-s", &session, "--", "sh", "-c", "echo later > after"])
            .run()
            .expect_code(0);
        let fork = kept.again().args(["fork", &session]).run().expect_code(0).stdout.trim().to_owned();
        // A fork that has not started can be forked, and what its source does afterwards is not seen.
        let second = kept.again().args(["fork", &fork]).run().expect_code(0).stdout.trim().to_owned();
        kept.again().args(["exec", "-s", &session, "--", "rm", "after", "old/new"]).run().expect_code(0);
        kept.again().args(["sandbox", "rm", &session]).run().expect_code(0);
        let read = kept.again().endpoint(&model).args(["run", "--session", &second, "look", "--json"]);
        let read = read.args(overlay).run().expect_code(0);
        let result = read.events_of("tool_finished").pop().unwrap()["result"].as_str().unwrap().to_owned();
        for expected in ["new\nchanged\nchanged\nbuilt\none\n", "\n700\nlater"] {
            assert!(result.contains(expected), "{name}: {result}");
        }
        for gone in ["old/former", "gone", "pipe"] {
            assert!(result.contains(&format!("'{gone}': No such file")), "{name}: {gone} in {result}");
        }
        let notices = read.events_of("notice");
        assert!(
            !notices.iter().any(|notice| notice["text"].as_str().unwrap().contains("last prompt")),
            "{notices:?}"
        );
        let diff = kept.again().args(["diff", &second, "--stat"]).run().expect_code(0).stdout;
        for file in ["after", "gone (deleted)", "kept", "link", "old/former (deleted)", "old/new"] {
            assert!(diff.contains(file), "{name}: {file} in {diff}");
        }
        let unfinished = kept.again().args(["diff", &fork, "--stat"]).run().expect_code(0).stdout;
        assert!(unfinished.contains("old/new"), "{name}: {unfinished}");
        kept.again().args(["sessions", "rm", &fork]).run().expect_code(0);
    }
}
