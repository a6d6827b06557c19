//! `agent batch` when something fails: what is the task's own failure, what is not, and what is kept of it.

use crate::batch::{read, wait_for};
use agent_testbed::agent::{Agent, agent};
use agent_testbed::batch::{batch, by_id, prompt_of, results, tasks, write_or_answer, writer};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn lines(tasks: &[Value]) -> String {
    tasks.iter().map(|task| format!("{task}\n")).collect()
}

fn patches(call: &Agent) -> Vec<String> {
    let entries = fs::read_dir(call.workspace().join("out/patches")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_too_large_for_a_patch_is_named_and_the_others_are_in_it() {
    // The task passed without any patch.
    let model = endpoint()
        .by_rule(|body| match prompt_of(body).1 {
            true => endpoint().tool_call(
                "run_commands",
                json!({"command": "head -c 68000000 /dev/zero > big; echo small > small"}),
            ),
            false => endpoint().text("written"),
        })
        .start();
    let call = agent().file("tasks.jsonl", tasks(1));
    let workspace = call.workspace().to_owned();
    let finished = batch(call, &model, &[]).run().expect_code(0);
    assert!(finished.stderr.contains("without big in its patch: too large"), "{}", finished.stderr);
    let result = &by_id(&workspace)["task-0"];
    assert_eq!((&result["left_out"], &result["patch"]), (&json!(["big"]), &json!("patches/task-0.patch")));
    let patch = read(workspace.join("out/patches/task-0.patch"));
    assert!(patch.contains("+small") && !patch.contains("big"), "{patch}");
}

#[test]
fn an_endpoint_that_goes_away_in_the_middle_of_a_task_fails_no_task() {
    // A key that is refused is refused at once; an outage is one after fifteen minutes.
    let refusals = AtomicUsize::new(0);
    let model = endpoint()
        .by_rule(move |body| match prompt_of(body).1 || refusals.fetch_add(1, Ordering::SeqCst) >= 2 {
            true => write_or_answer(body),
            false => endpoint().error(401, "the key is being replaced"),
        })
        .start();
    let call = agent().file("tasks.jsonl", tasks(3));
    let workspace = call.workspace().to_owned();
    let finished = batch(call, &model, &["--parallel", "1"]).run().expect_code(0);
    assert!(finished.stderr.contains("begins again later"), "{}", finished.stderr);
    let results = results(&workspace);
    let attempts: u64 = results.iter().map(|result| result["attempts"].as_u64().unwrap()).sum();
    assert_eq!((results.len(), attempts), (3, 5));
}

#[test]
fn a_repository_that_cannot_be_reached_is_asked_for_again() {
    let model = writer();
    let task = json!({"id": "far", "prompt": "write f", "repo": "http://127.0.0.1:1/library.git"});
    let missing = json!({"id": "missing", "prompt": "write f", "repo": "no-such-repository"});
    let call = agent().file("tasks.jsonl", lines(&[task, missing]));
    let call = call.env("no_proxy", "127.0.0.1");
    let workspace = call.workspace().to_owned();
    let finished = batch(call, &model, &[]).run().expect_code(6);
    assert!(finished.stderr.contains("far begins again later: the repository"), "{}", finished.stderr);
    let results = by_id(&workspace);
    assert_eq!((&results["far"]["attempts"], &results["far"]["exit_code"]), (&json!(3), &json!(1)));
    assert_eq!((&results["missing"]["attempts"], &results["missing"]["exit_code"]), (&json!(1), &json!(2)));
}

#[test]
fn a_directory_with_other_files_is_refused_and_stays_as_it_is() {
    // A file called `lock` made any directory one of a batch, whose workspaces were removed.
    let model = writer();
    let call =
        agent().file("tasks.jsonl", tasks(1)).file("out/lock", "pid 7").file("out/workspaces/mine/a", "a");
    let refused = batch(call, &model, &[]).run().expect_code(2);
    assert!(refused.stderr.contains("is not empty, and not of a batch"), "{}", refused.stderr);
    assert_eq!(refused.host_file("out/lock").as_deref(), Some("pid 7"));
    assert_eq!(refused.host_file("out/workspaces/mine/a").as_deref(), Some("a"));
    assert_eq!(fs::read_dir(refused.again().workspace().join("out")).unwrap().count(), 2);
    // What a process leaves that is killed at its very beginning is taken over.
    let begun = refused.again().file("begun/lock", "").file("begun/results.jsonl", "");
    fs::create_dir(begun.workspace().join("begun/patches")).unwrap();
    let begun = begun.endpoint(&model).args(["batch", "tasks.jsonl", "--out", "begun"]);
    begun.run().expect_code(0);
}

#[test]
fn what_failed_may_be_corrected_before_it_is_retried() {
    let model = writer();
    let task = |check: &str| json!({"id": "a", "prompt": "write a", "files": {}, "check": check});
    let passes = json!({"id": "b", "prompt": "write b", "files": {}});
    let call = agent().file("tasks.jsonl", lines(&[task("test -f misspelt"), passes.clone()]));
    let failed = batch(call, &model, &[]).run().expect_code(6);
    let corrected = failed.again().file("tasks.jsonl", lines(&[task("test -f a"), passes]));
    let refused = batch(corrected, &model, &[]).run().expect_code(2);
    assert!(refused.stderr.contains("changed or removed since: a"), "{}", refused.stderr);
    let retried = batch(refused.again(), &model, &["--retry-failed"]).run().expect_code(0);
    let changed = retried.again().file("tasks.jsonl", lines(&[task("test -f a")]));
    let refused = batch(changed, &model, &["--retry-failed"]).run().expect_code(2);
    assert!(refused.stderr.contains("changed or removed since: b"), "{}", refused.stderr);
}

#[test]
fn no_patch_is_left_of_an_attempt_that_is_no_result() {
    let writes = Arc::new(Mutex::new(true));
    let shared = Arc::clone(&writes);
    let model = endpoint()
        .by_rule(move |body| match *shared.lock().unwrap() {
            true => write_or_answer(body),
            false => endpoint().text("nothing to do"),
        })
        .start();
    let task = json!({"id": "a", "prompt": "write a", "files": {}, "check": "false"});
    let failed = batch(agent().file("tasks.jsonl", lines(&[task])), &model, &[]).run().expect_code(6);
    assert_eq!(patches(&failed.again()), ["a.patch"]);
    *writes.lock().unwrap() = false;
    let retried = batch(failed.again(), &model, &["--retry-failed"]).run().expect_code(6);
    assert!(patches(&retried.again()).is_empty(), "the second attempt has changed nothing");
    // One that is stopped has changed something too.
    let model = endpoint().by_rule(|body| match prompt_of(body).1 {
        true => write_or_answer(body),
        false => endpoint().text("late").delay(Duration::from_secs(60)),
    });
    let model = model.start();
    let running = batch(agent().file("tasks.jsonl", tasks(1)), &model, &[]).start();
    wait_for(|| model.chat_requests().len() == 2);
    running.signal(libc::SIGTERM);
    let stopped = running.wait().expect_code(143);
    assert!(patches(&stopped.again()).is_empty());
}

#[test]
fn the_cost_of_results_that_are_forgotten_still_counts() {
    let model = writer();
    let prices = "[prices.test-model]\ninput = 100000.0\noutput = 0.0\n";
    let task = json!({"id": "a", "prompt": "write a", "files": {}, "check": "false"});
    let call = agent().file("tasks.jsonl", lines(&[task])).config(prices);
    // Ten tokens cost 1, so an attempt costs 2.
    let failed = batch(call, &model, &["--max-cost", "2"]).run();
    assert!(matches!(failed.code, 5 | 6), "{}", failed.stderr);
    let requests = model.requests().len();
    let again = batch(failed.again(), &model, &["--max-cost", "2", "--retry-failed"]).run().expect_code(5);
    assert!(again.stderr.contains("the cost limit of 2 for all together is reached"), "{}", again.stderr);
    assert_eq!(model.requests().len(), requests, "nothing more is spent");
}

#[test]
fn a_tasks_own_cost_limit_needs_a_price_before_anything_starts() {
    let model = writer();
    let task = json!({"id": "a", "prompt": "write a", "files": {}, "limits": {"max_cost": 1.0}});
    let refused = batch(agent().file("tasks.jsonl", lines(&[task])), &model, &[]).run().expect_code(2);
    assert!(refused.stderr.contains("needs the price of test-model"), "{}", refused.stderr);
    assert!(model.requests().is_empty() && !refused.again().workspace().join("out").exists());
}
