//! `agent batch`: many tasks in one process, killed, continued, stopped, slowed down.

use agent_testbed::agent::{Agent, Finished, Running, agent};
use agent_testbed::batch::{batch, by_id, prompt_of, results, tasks, write_or_answer, writer};
use agent_testbed::engine::refusing_engine;
use agent_testing::endpoint::endpoint;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_task_has_a_result_a_patch_and_its_place_in_the_reports() {
    let model = writer();
    let lines = [
        json!({"id": "good", "prompt": "write a.txt", "files": {"b/c.txt": "old\n"}, "check": ["test -f b/c.txt", "grep -q write a.txt"]}),
        json!({"id": "bad", "prompt": "write a.txt", "files": {}, "check": "echo no such luck; exit 3"}),
        json!({"id": "here", "prompt": "write new.txt", "env": {"MODE": "batch"}, "check": "test \"$MODE\" = batch -a -f kept.txt -a ! -e out"}),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let call = agent().file("tasks.jsonl", lines).file("kept.txt", "kept\n");
    let workspace = call.workspace().to_owned();
    let finished = batch(call, &model, &[]).run().expect_code(6);
    assert_eq!(finished.stdout, "3 of 3 tasks done: 2 passed, 1 failed; results in out\n");
    assert!(finished.stderr.contains("failed bad: the check did not pass"), "{}", finished.stderr);
    let results = by_id(&workspace);
    assert_eq!(
        (&results["good"]["status"], &results["good"]["check"]),
        (&json!("completed"), &json!("passed"))
    );
    assert_eq!(
        (&results["bad"]["status"], &results["bad"]["exit_code"]),
        (&json!("check_failed"), &json!(6))
    );
    assert_eq!(results["good"]["answer"], "wrote a.txt");
    assert_eq!((&results["good"]["turns"], &results["good"]["usage"]["input"]), (&json!(2), &json!(20)));
    let patch = read(workspace.join("out/patches/good.patch"));
    assert!(patch.contains("+++ b/a.txt\n") && patch.contains("+write a.txt\n"), "{patch}");
    assert!(!workspace.join("new.txt").exists(), "the user's directory is unchanged");
    assert_eq!(std::fs::read_dir(workspace.join("out/workspaces")).unwrap().count(), 0);
    let junit = read(workspace.join("out/junit.xml"));
    assert!(junit.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\""), "{junit}");
    let predictions = read(workspace.join("out/predictions.jsonl"));
    let first: Value = serde_json::from_str(predictions.lines().next().unwrap()).unwrap();
    assert_eq!(
        first,
        json!({"instance_id": "good", "model_name_or_path": "test-model", "model_patch": patch})
    );
    let page = read(workspace.join("out/report.html"));
    assert!(page.contains("<a href=\"patches/good.patch\">good</a>"), "{page}");
    let status = finished.again().args(["batch", "status", "out", "--json"]).run().expect_code(0);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(
        (&status["done"], &status["passed"], &status["is_running"]),
        (&json!(3), &json!(2), &json!(false))
    );
    let session = results["here"]["session"].as_str().unwrap();
    let diff = finished.again().args(["diff", session, "--name-only"]).run().expect_code(0);
    assert_eq!(diff.stdout, "new.txt\n", "the session is an ordinary one");
}

#[test]
fn a_batch_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing() {
    const TASKS: usize = 200;
    const KILLS: usize = 30;
    let model = writer();
    let call = agent().file("tasks.jsonl", tasks(TASKS));
    let workspace = call.workspace().to_owned();
    let start =
        || batch(call.again(), &model, &["--parallel", "8"]).deadline(Duration::from_secs(600)).start();
    let mut seen: BTreeMap<String, Value> = BTreeMap::new();
    for kill in 0..KILLS {
        let target = seen.len() + fastrand::usize(0..6);
        let running = start();
        let deadline = Instant::now() + Duration::from_secs(60);
        while results(&workspace).len() < target && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(fastrand::u64(0..40)));
        running.signal(libc::SIGKILL);
        running.wait();
        let now = by_id(&workspace);
        for (id, result) in &seen {
            assert_eq!(now.get(id), Some(result), "kill {kill}: a result that was there is still there");
        }
        seen = now;
    }
    assert!(seen.len() < TASKS, "it was killed while it had something to do");
    start().wait().expect_code(0);
    let all = results(&workspace);
    let ids: BTreeSet<&str> = all.iter().map(|result| result["id"].as_str().unwrap()).collect();
    assert_eq!((all.len(), ids.len()), (TASKS, TASKS), "each once");
    for (id, result) in by_id(&workspace) {
        let i = id.trim_start_matches("task-");
        assert_eq!(result["answer"], format!("wrote f{i}"));
        assert!(read(workspace.join(format!("out/patches/{id}.patch"))).contains(&format!("+write f{i}\n")));
        assert!(seen.get(&id).is_none_or(|before| *before == result));
    }
    assert_eq!(std::fs::read_dir(workspace.join("out/running")).unwrap().count(), 0);
}

#[test]
fn nothing_starts_if_a_task_cannot_be_run() {
    let model = writer();
    let lines = "{\"id\": \"a\", \"prompt\": \"p\"}\n{\"id\": \"b\", \"promt\": \"p\"}\n{\"id\": \"a\", \"prompt\": \"p\"}\n";
    let refused = batch(agent().file("tasks.jsonl", lines), &model, &[]).run().expect_code(2);
    for part in
        ["line 2: unknown field `promt`", "line 3: the id \"a\" is that of line 1 too", "nothing was started"]
    {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    assert!(model.requests().is_empty());
    let image = "{\"id\": \"a\", \"prompt\": \"p\", \"image\": \"python:3\"}\n";
    let refused = batch(refused.again().file("tasks.jsonl", image), &model, &[]).run().expect_code(2);
    assert!(refused.stderr.contains("task a: the local sandbox has no images"), "{}", refused.stderr);
}

#[test]
fn what_failed_runs_again_on_request_and_changed_tasks_are_noticed() {
    let fails = Arc::new(Mutex::new(true));
    let shared = Arc::clone(&fails);
    let model = endpoint()
        .by_rule(move |body| match *shared.lock().unwrap() && prompt_of(body).0.ends_with("f1") {
            true => endpoint().error(400, "not today"),
            false => write_or_answer(body),
        })
        .start();
    let call = agent().file("tasks.jsonl", tasks(3));
    let workspace = call.workspace().to_owned();
    // The first answer is needed: an endpoint that never answers stops the batch.
    let limited = tasks(3).replace("\"write f1\"", "\"write f1\",\"limits\":{\"max_turns\":1}");
    let finished = batch(call.file("tasks.jsonl", &limited), &model, &["--parallel", "1"]).run();
    assert_ne!(finished.code, 0, "{}", finished.stderr);
    *fails.lock().unwrap() = false;
    let finished = batch(finished.again(), &model, &[]).run().expect_code(6);
    let before = by_id(&workspace);
    assert_eq!(before["task-1"]["status"], "limit");
    let requests = model.requests().len();
    let unchanged = batch(finished.again(), &model, &[]).run().expect_code(6);
    assert_eq!(model.requests().len(), requests, "nothing runs twice");
    let changed = limited.replace("\"max_turns\":1", "\"max_turns\":9");
    let refused = batch(unchanged.again().file("tasks.jsonl", &changed), &model, &[]).run().expect_code(2);
    assert!(refused.stderr.contains("1 task with a result in"), "{}", refused.stderr);
    assert!(refused.stderr.contains("changed or removed since: task-1"), "{}", refused.stderr);
    let retried = batch(refused.again().file("tasks.jsonl", &limited), &model, &["--retry-failed"])
        .run()
        .expect_code(6);
    assert!(retried.stderr.contains("1 that failed run again"), "{}", retried.stderr);
    assert_eq!(results(&workspace).len(), 3);
    let more = limited + "{\"id\": \"more\", \"prompt\": \"write g\", \"files\": {}}\n";
    batch(retried.again().file("tasks.jsonl", more), &model, &[]).run().expect_code(6);
    let after = by_id(&workspace);
    assert_eq!((after.len(), &after["task-0"]), (4, &before["task-0"]));
}

#[test]
fn only_one_process_runs_a_batch() {
    let model = endpoint().by_rule(|body| write_or_answer(body).delay(Duration::from_secs(20))).start();
    let running = batch(agent().file("tasks.jsonl", tasks(2)), &model, &[]).start();
    wait_for(|| running.again().workspace().join("out/running/task-0.json").exists());
    let refused = batch(running.again(), &model, &[]).run().expect_code(2);
    assert!(refused.stderr.contains("another process runs the batch in"), "{}", refused.stderr);
    let status = running.again().args(["batch", "status", "out"]).run().expect_code(0).stdout;
    assert!(status.starts_with("running: 0 of 2 tasks done") && status.contains("  task-0  "), "{status}");
    running.signal(libc::SIGTERM);
    running.wait().expect_code(143);
}

pub fn wait_for(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it did not happen within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn ctrl_c_lets_running_tasks_finish_and_a_second_one_stops_them() {
    let model = endpoint().by_rule(|body| write_or_answer(body).delay(Duration::from_millis(400))).start();
    let call = agent().file("tasks.jsonl", tasks(20));
    let workspace = call.workspace().to_owned();
    let begun = |running: &Running| {
        let directory = running.again().workspace().join("out/running");
        std::fs::read_dir(directory).is_ok_and(|entries| entries.count() >= 2)
    };
    let running = batch(call, &model, &["--parallel", "2"]).start();
    wait_for(|| begun(&running));
    running.signal(libc::SIGINT);
    let stopped = running.wait().expect_code(130);
    assert!(stopped.stderr.contains("no further task begins"), "{}", stopped.stderr);
    let done = results(&workspace).len();
    assert!((2..20).contains(&done), "{done}");
    assert!(stopped.stderr.contains(&format!("stopped: {done} of 20 tasks done")), "{}", stopped.stderr);
    let running = batch(stopped.again(), &model, &["--parallel", "2"]).start();
    wait_for(|| begun(&running));
    running.signal(libc::SIGINT);
    std::thread::sleep(Duration::from_millis(50));
    running.signal(libc::SIGINT);
    let stopped = running.wait().expect_code(130);
    batch(stopped.again(), &model, &["--parallel", "8"]).run().expect_code(0);
    assert_eq!(by_id(&workspace).len(), 20);
    assert_eq!(results(&workspace).len(), 20);
}

#[test]
fn the_endpoint_sets_the_pace() {
    let refused = AtomicUsize::new(0);
    let model = endpoint()
        .by_rule(move |body| match refused.fetch_add(1, Ordering::SeqCst) < 6 {
            true => endpoint().error(429, "slow down").header("retry-after", "1"),
            false => write_or_answer(body),
        })
        .start();
    let call = agent().file("tasks.jsonl", tasks(12));
    let workspace = call.workspace().to_owned();
    let finished = batch(call, &model, &["--parallel", "6"]).run().expect_code(0);
    assert!(finished.stderr.contains("slow down"), "{}", finished.stderr);
    assert_eq!(by_id(&workspace).len(), 12);
}

#[test]
fn an_endpoint_that_goes_away_for_a_while_costs_no_task() {
    let began = Mutex::new(None::<Instant>);
    let model = endpoint()
        .by_rule(move |body| {
            let since = began.lock().unwrap().get_or_insert_with(Instant::now).elapsed();
            match (Duration::from_millis(200)..Duration::from_secs(4)).contains(&since) {
                true => endpoint().text("never sent").reset().after(0),
                false => write_or_answer(body),
            }
        })
        .start();
    let call = agent().file("tasks.jsonl", tasks(30));
    let workspace = call.workspace().to_owned();
    let _finished = batch(call, &model, &["--parallel", "4"]).run().expect_code(0);
    assert_eq!(by_id(&workspace).len(), 30);
}

#[test]
fn an_endpoint_that_refuses_everything_stops_the_batch_and_fails_no_task() {
    let model = endpoint().by_rule(|_| endpoint().error(401, "wrong key")).start();
    let call = agent().file("tasks.jsonl", tasks(30));
    let workspace = call.workspace().to_owned();
    let stopped = batch(call, &model, &["--parallel", "4"]).run().expect_code(3);
    assert!(stopped.stderr.contains("wrong key"), "{}", stopped.stderr);
    assert!(results(&workspace).is_empty());
    let working = writer();
    batch(stopped.again(), &working, &["--parallel", "8"]).run().expect_code(0);
}

#[test]
fn a_sandbox_that_does_not_start_is_tried_again() {
    let model = writer();
    let call = agent().file("tasks.jsonl", tasks(6));
    let workspace = call.workspace().to_owned();
    let sandboxes = call.home("data").join("sandboxes");
    std::fs::create_dir_all(sandboxes.parent().unwrap()).unwrap();
    std::fs::write(&sandboxes, "in the way").unwrap();
    let running = batch(call, &model, &["--parallel", "3"]).start();
    std::thread::sleep(Duration::from_millis(1500));
    std::fs::remove_file(&sandboxes).unwrap();
    let finished = running.wait().expect_code(0);
    assert!(finished.stderr.contains("begins again later"), "{}", finished.stderr);
    assert_eq!(by_id(&workspace).len(), 6);
}

#[test]
fn a_sandbox_is_started_for_what_needs_one_and_for_nothing_else() {
    let model = endpoint().by_rule(|_| endpoint().text("done")).start();
    let call = agent().file("tasks.jsonl", tasks(8)).file("notes.txt", "the text of the notes\n");
    let workspace = call.workspace().to_owned();
    let sandboxes = call.home("data").join("sandboxes");
    let finished = batch(call, &model, &["--parallel", "4"]).run().expect_code(0);
    assert!(!sandboxes.exists(), "no task has called a tool");
    let results = by_id(&workspace);
    assert!(results.values().all(|result| result["answer"] == "done" && result.get("patch").is_none()));
    let session = results["task-0"]["session"].as_str().unwrap();
    let verified = finished.again().args(["sessions", "verify", session]).run().expect_code(0);
    let diff = verified.again().args(["diff", session]).run().expect_code(2);
    assert!(diff.stderr.contains("it ended before anything ran in its sandbox"), "{}", diff.stderr);
    let lines = [
        json!({"id": "passes", "prompt": "work", "files": {"a": ""}, "check": "test -f a"}),
        json!({"id": "fails", "prompt": "work", "files": {}, "check": "test -f a"}),
        json!({"id": "mentions", "prompt": "read @notes.txt"}),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let more = diff.again().file("more.jsonl", lines).endpoint(&model);
    let _finished = more.args(["batch", "more.jsonl", "--out", "more"]).run().expect_code(6);
    let more = read(workspace.join("more/results.jsonl"));
    let status: BTreeMap<String, String> = more
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|result| (result["id"].as_str().unwrap().into(), result["status"].as_str().unwrap().into()))
        .collect();
    let status: Vec<&str> = status.values().map(String::as_str).collect();
    assert_eq!(status, ["check_failed", "completed", "completed"], "fails, mentions, passes");
    let sent = |request: &agent_testing::endpoint::Request| {
        request.body.to_string().contains("the text of the notes")
    };
    assert!(model.requests().iter().any(sent), "what is mentioned is read in a sandbox");
}

#[test]
fn an_engine_that_refuses_slows_the_batch_down_and_costs_no_task() {
    let Some(docker) = real_engine() else { return };
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("engine.sock");
    refusing_engine(&socket, docker, 4, "no room for another container");
    let model = writer();
    let call = agent().file("tasks.jsonl", tasks(6)).sandbox("docker");
    let workspace = call.workspace().to_owned();
    let call = call.env("DOCKER_HOST", format!("unix://{}", socket.display()));
    let finished = batch(call, &model, &["--parallel", "3"]).run().expect_code(0);
    assert!(finished.stderr.contains("begins again later"), "{}", finished.stderr);
    assert!(finished.stderr.contains("no room for another container"), "{}", finished.stderr);
    let results = results(&workspace);
    assert_eq!((results.len(), by_id(&workspace).len()), (6, 6));
    assert!(results.iter().all(|result| result["status"] == "completed"), "{results:?}");
    for i in 0..6 {
        assert!(
            read(workspace.join(format!("out/patches/task-{i}.patch"))).contains(&format!("+write f{i}\n"))
        );
    }
}

/// The socket of the engine on this machine; without one the test is skipped.
fn real_engine() -> Option<PathBuf> {
    let found = ["/var/run/docker.sock"].map(PathBuf::from).into_iter().find(|path| path.exists());
    assert!(found.is_some() || std::env::var_os("AGENT_TEST_REQUIRE_DOCKER").is_none(), "no engine answers");
    found
}

#[test]
fn a_full_disk_stops_the_batch_and_loses_nothing() {
    if !rustix::process::geteuid().is_root() {
        return; // Mounting a small file system needs root.
    }
    let model = writer();
    let call = agent().file("tasks.jsonl", tasks(40));
    let workspace = call.workspace().to_owned();
    let out = workspace.join("out");
    std::fs::create_dir(&out).unwrap();
    let mount = |arguments: &[&str]| {
        let status = Command::new("mount").args(arguments).arg(&out).status().unwrap();
        assert!(status.success(), "mount {arguments:?}");
    };
    mount(&["-t", "tmpfs", "-o", "size=160k", "tmpfs"]);
    let _unmounted = Unmount(out.clone());
    let stopped = batch(call, &model, &["--parallel", "4"]).run().expect_code(1);
    assert!(stopped.stderr.contains("No space left on device"), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("run the same command again"), "{}", stopped.stderr);
    let before = by_id(&workspace);
    assert!(before.len() < 40);
    mount(&["-o", "remount,size=64m"]);
    batch(stopped.again(), &model, &["--parallel", "8"]).run().expect_code(0);
    let after = by_id(&workspace);
    assert_eq!((after.len(), results(&workspace).len()), (40, 40));
    assert!(before.iter().all(|(id, result)| after[id] == *result));
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn the_cost_of_all_tasks_together_is_limited_also_over_several_runs() {
    let model = writer();
    let prices = "[prices.test-model]\ninput = 100000.0\noutput = 0.0\n";
    let call = agent().file("tasks.jsonl", tasks(10));
    let refused = batch(call, &model, &["--max-cost", "5"]).run().expect_code(2);
    assert!(refused.stderr.contains("--max-cost needs the price of test-model"), "{}", refused.stderr);
    // Ten tokens cost 1, so a task costs 2.
    let limited = |call: Agent, cost: &str| {
        batch(call.config(prices), &model, &["--parallel", "1", "--max-cost", cost]).run().expect_code(5)
    };
    let first = limited(refused.again(), "5");
    assert!(first.stderr.contains("the cost limit of 5 for all together is reached"), "{}", first.stderr);
    let workspace = first.again().workspace().to_owned();
    assert_eq!(results(&workspace).len(), 2);
    let second = limited(first.again(), "4");
    assert_eq!(results(&workspace).len(), 2, "what was spent before counts");
    batch(second.again().config(prices), &model, &["--max-cost", "50"]).run().expect_code(0);
}

#[test]
fn a_check_that_hangs_is_ended() {
    let model = writer();
    let line = json!({"id": "a", "prompt": "write f", "files": {}, "check": "sleep 1000"}).to_string();
    let call = agent().file("tasks.jsonl", line);
    let workspace = call.workspace().to_owned();
    let finished = batch(call, &model, &["--check-timeout", "1s"]).run().expect_code(6);
    assert!(finished.took < Duration::from_secs(60));
    assert_eq!(by_id(&workspace)["a"]["check"], "failed");
}

#[test]
fn a_repository_is_checked_out_up_to_the_commit() {
    let model = writer();
    let call = agent();
    let workspace = call.workspace().to_owned();
    let repository = workspace.join("library");
    std::fs::create_dir(&repository).unwrap();
    let git = |arguments: &[&str]| {
        let identity =
            ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"];
        let output =
            Command::new("git").args(identity).args(arguments).current_dir(&repository).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q"]);
    std::fs::write(repository.join("code.txt"), "first\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "first"]);
    let first = git(&["rev-parse", "HEAD"]);
    std::fs::write(repository.join("code.txt"), "the answer\n").unwrap();
    git(&["commit", "-q", "-a", "-m", "second"]);
    let check = "grep -q first code.txt && test $(git log --all --oneline | wc -l) = 1 && test -f new";
    let lines = [
        json!({"id": "early", "prompt": "write new", "repo": "library", "commit": first, "check": check}),
        json!({"id": "short", "prompt": "write new", "repo": "library", "commit": &first[..8], "check": check}),
        json!({"id": "latest", "prompt": "write new", "repo": "library", "check": "grep -q answer code.txt"}),
        json!({"id": "missing", "prompt": "write new", "repo": "library", "commit": "0123456789"}),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let _finished = batch(call.file("tasks.jsonl", lines), &model, &[]).run().expect_code(6);
    let results = by_id(&workspace);
    for id in ["early", "short", "latest"] {
        assert_eq!(results[id]["status"], "completed", "{}", results[id]);
    }
    assert_eq!(results["missing"]["exit_code"], 2);
    let patch = read(workspace.join("out/patches/early.patch"));
    assert!(patch.starts_with("diff --git a/new b/new\nnew file mode 100644\n"), "{patch}");
    assert!(
        Command::new("git")
            .args(["apply", "--check", "../out/patches/early.patch"])
            .current_dir(&repository)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn results_are_json_on_standard_output_as_they_come() {
    let model = writer();
    let finished =
        batch(agent().file("tasks.jsonl", tasks(3)), &model, &["--json", "-q"]).run().expect_code(0);
    let lines: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: BTreeSet<&str> = lines[..3].iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids, BTreeSet::from(["task-0", "task-1", "task-2"]));
    assert_eq!(lines[3]["summary"]["passed"], 3);
    assert_eq!(finished.stderr, "");
}

#[test]
fn prompts_in_a_directory_work_on_the_named_workspace() {
    let model = writer();
    let call = agent()
        .file("prompts/first.md", "write one")
        .file("prompts/second.md", "write two")
        .file("code/kept", "");
    let workspace = call.workspace().to_owned();
    let finished: Finished =
        call.endpoint(&model).args(["batch", "prompts", "--out", "out", "-C", "code"]).run().expect_code(0);
    assert!(finished.stdout.starts_with("2 of 2 tasks done: 2 passed"), "{}", finished.stdout);
    assert!(read(workspace.join("out/patches/second.patch")).contains("+++ b/two\n"));
}

/// Fails if the file is out of date. With `UPDATE_SCHEMA=1` in the environment it is written.
#[test]
fn the_schema_is_derived_from_the_tasks() {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<agent::batch::Task>();
    schema.insert("title".to_owned(), json!("A line of the task file of `agent batch`"));
    let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/tasks.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == text,
        "docs/reference/tasks.schema.json is out of date: run this test with UPDATE_SCHEMA=1"
    );
    let validator = jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap();
    let example = json!({"id": "a-1", "prompt": "p", "files": {"a/b.py": "x"}, "check": "true", "limits": {"max_turns": 3}});
    assert!(validator.is_valid(&example));
    assert!(!validator.is_valid(&json!({"id": "a", "prompt": "p", "promt": "p"})));
}
