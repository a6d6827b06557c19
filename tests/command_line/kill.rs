//! `kill -9` at any moment: no event that was shown is lost, the file stays intact, the session can be resumed, nothing is
//! left.

use agent::log::{SessionId, Store, verify};
use agent_testbed::agent::{Agent, Running, agent};
use agent_testbed::engine::engine;
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::{Endpoint, endpoint};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Kills in all, shared by [`WORKERS`] sessions at a time.
const KILLS: usize = 50;
const WORKERS: usize = 2;

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_shown() {
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..WORKERS).map(|_| scope.spawn(|| kill_repeatedly(KILLS / WORKERS))).collect();
        for worker in workers {
            worker.join().expect("no worker fails");
        }
    });
}

/// One session that is killed `kills` times, and resumed each time.
fn kill_repeatedly(kills: usize) {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    // Each call does something new, so that it is not a loop: the run ends at its limit of turns.
    let command = "echo line >> log.txt; mkdir -p many; for i in 1 2 3 4 5; do echo $RANDOM > many/$i; done; cat many/1";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).repeat_last().start();
    let first = agent().file("kept.txt", "kept\n");
    let home = first.home("data");
    let root = home.parent().expect("a home").to_owned();
    let mut call = first.again();
    let mut shown = HashMap::new();
    // How long a run takes on this machine; kills after that come too late and are repeated.
    let started = Instant::now();
    take_lines(&start(first, &model).wait().expect_code(5).stdout, &mut shown);
    let length = started.elapsed();
    let (mut cut_short, mut tries) = (0, 0);
    while cut_short < kills {
        tries += 1;
        assert!(tries < 4 * kills, "only {cut_short} of {tries} kills came before the end of the run");
        let next = call.again();
        let running = start(call, &model);
        std::thread::sleep(length.mul_f64(random.f64()));
        running.signal(libc::SIGKILL);
        let killed = running.wait();
        cut_short += usize::from(killed.code == 128 + libc::SIGKILL);
        take_lines(&killed.stdout, &mut shown);
        let session = only_session(&home).expect("one session");
        assert_kept(&home, &session, &shown);
        call = next;
    }

    let last = start(call, &model).wait();
    // Each of these runs ends at its limit of turns.
    let last = last.expect_code(5);
    take_lines(&last.stdout, &mut shown);
    let session = only_session(&home).expect("one session");
    assert_kept(&home, &session, &shown);
    last.again().args(["sessions", "verify", session.as_str()]).run().expect_code(0);
    // The recorded changes of the killed runs are in the workspace; the files are intact.
    let applied = last.again().args(["apply", "--yes", "--json"]).run().expect_code(0);
    assert!(applied.stdout.contains("\"log.txt\""), "{}", applied.stdout);
    let log = last.host_file("log.txt").expect("the log");
    assert!(log.lines().count() >= 4 && log.lines().all(|line| line == "line"), "{log}");
    assert_eq!(last.host_file("kept.txt").as_deref(), Some("kept\n"));
    nothing_left(&home, &root);
}

/// Seconds between the kill and the next call. A sandbox without a client ends itself after 10 s, and its engine needs
/// some time to remove it.
const PAUSES: [f64; 8] = [0.0, 0.2, 1.0, 9.5, 9.9, 10.1, 10.4, 11.0];

#[test]
fn a_killed_session_is_resumed_at_any_moment_in_a_local_sandbox() {
    resume_after_each_pause("local");
}

#[tokio::test]
async fn a_killed_session_is_resumed_at_any_moment_in_a_container() {
    if engine().await.is_some() {
        tokio::task::spawn_blocking(|| resume_after_each_pause("docker"))
            .await
            .expect("every session is resumed");
    }
}

fn resume_after_each_pause(backend: &'static str) {
    std::thread::scope(|scope| {
        for pause in PAUSES {
            scope.spawn(move || resume_after_kill(backend, Duration::from_secs_f64(pause)));
        }
    });
}

/// Kills a run in the middle of a command, and resumes its session with `agent run` and then with the REPL.
fn resume_after_kill(backend: &str, pause: Duration) {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo kept > before.txt" }))
        .tool_call("run_commands", json!({ "command": "echo started; sleep 1000" }))
        .start();
    let terminal = terminal();
    let call = |model: &Endpoint| {
        let call = agent().sandbox(backend).endpoint(model).current_dir(&terminal.directory("workspace"));
        call.env("HOME", terminal.directory("home")).env("AGENT_HOME", terminal.directory("agent"))
    };
    let run = ["run", "--json", "--session-key", "one", "continue"];
    let running = call(&model).args(run).start();
    let home = terminal.directory("agent").join("data");
    let started = Instant::now();
    while !only_session(&home).is_some_and(|id| has_output(&Store::at(&home).events(&id))) {
        assert!(started.elapsed() < Duration::from_secs(90), "the command does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal(libc::SIGKILL);
    running.wait();
    std::thread::sleep(pause);

    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "cat before.txt" }))
        .text("It is there.")
        .repeat_last()
        .start();
    let resumed = call(&model).args(run).run().expect_code(0);
    let results = resumed.events_of("tool_finished");
    assert!(results[0]["result"].as_str().is_some_and(|text| text.ends_with("kept\n")), "{results:?}");
    let mut repl = terminal.env("AGENT_SANDBOX", backend).endpoint(&model).args(["resume"]).start();
    repl.wait_for_prompt();
    repl.type_line("!cat before.txt");
    repl.wait_for("\nkept\n");
    repl.wait_for_prompt();
    repl.ctrl_d();
    assert_eq!(repl.wait(), 0);
}

/// Returns whether a session's file has the output of the long command.
fn has_output(events: &Path) -> bool {
    let text = fs::read_to_string(events).unwrap_or_default();
    text.contains("\"tool_output\"") || text.matches("\"tool_started\"").count() == 2
}

fn start(call: Agent, model: &Endpoint) -> Running {
    call.endpoint(model)
        .args(["run", "--json", "--session-key", "one", "--max-turns", "4", "continue"])
        .start()
}

/// Adds the printed events, by number. An incomplete last line was not shown.
fn take_lines(stdout: &str, shown: &mut HashMap<u64, Value>) {
    for line in stdout.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let event: Value = serde_json::from_str(line).expect("a line is JSON");
        let live = ["text_delta", "reasoning_delta", "tool_output"];
        if !live.iter().any(|kind| event["type"] == *kind) {
            shown.insert(event["seq"].as_u64().expect("a number"), event);
        }
    }
}

fn only_session(home: &Path) -> Option<SessionId> {
    let ids = Store::at(home).ids().expect("the sessions");
    assert!(ids.len() <= 1, "one key is one session: {ids:?}");
    ids.into_iter().next()
}

/// Every event that was shown is in the session's file unchanged, and the file is intact.
fn assert_kept(home: &Path, session: &SessionId, shown: &HashMap<u64, Value>) {
    let path = Store::at(home).events(session);
    let text = fs::read_to_string(&path).expect("the file");
    let kept: HashMap<u64, Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|event| Some((event["seq"].as_u64()?, event)))
        .collect();
    for (number, event) in shown {
        let kept = kept.get(number).unwrap_or_else(|| panic!("{number} was shown and is lost: {event}"));
        for (field, value) in event.as_object().expect("an object") {
            assert_eq!(&kept[field], value, "{field} of {number}");
        }
    }
    verify(&path).and_then(agent::log::Verdict::into_result).expect("the chain is intact");
}

/// Waits until no sandbox and no process of these runs is left.
fn nothing_left(home: &Path, root: &Path) {
    let started = Instant::now();
    loop {
        let sandboxes = fs::read_dir(home.join("sandboxes")).map_or(0, Iterator::count);
        let processes = processes_with(root);
        if sandboxes == 0 && processes.is_empty() {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "left: {sandboxes} sandboxes, {processes:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn processes_with(root: &Path) -> Vec<PathBuf> {
    let root = root.to_str().expect("a plain path").as_bytes();
    let names = |path: &PathBuf| {
        let arguments = fs::read(path.join("cmdline")).unwrap_or_default();
        arguments.windows(root.len()).any(|window| window == root)
    };
    fs::read_dir("/proc").expect("processes").flatten().map(|entry| entry.path()).filter(names).collect()
}
