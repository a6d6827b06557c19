//! The state of a batch after a power failure: the order in which it writes and syncs, and what it makes of files as a power cut leaves
//! them.

use crate::batch::read;
use agent_testbed::agent::agent;
use agent_testbed::batch::{batch, by_id, results, tasks, writer};
use agent_testing::counterpart::has;
use std::ffi::OsStr;
use std::path::Path;

const TASKS: usize = 6;

/// Everything is there, once, and right.
fn is_complete(workspace: &Path) {
    let all = by_id(workspace);
    assert_eq!((all.len(), results(workspace).len()), (TASKS, TASKS));
    for i in 0..TASKS {
        assert_eq!(all[&format!("task-{i}")]["status"], "completed");
        let patch = read(workspace.join(format!("out/patches/task-{i}.patch")));
        assert!(patch.contains(&format!("+write f{i}\n")), "{patch}");
    }
}

/// The number of the first line from `from` on that has all of `parts`.
fn find(trace: &[&str], from: usize, parts: &[&str]) -> Option<usize> {
    let has = |line: &&str| parts.iter().all(|part| line.contains(part));
    trace.get(from..)?.iter().position(has).map(|at| from + at)
}

#[test]
fn a_patch_is_synced_and_in_place_before_its_result_and_a_result_before_it_counts() {
    if !has("strace", "strace") {
        return;
    }
    let model = writer();
    let call = agent().file("tasks.jsonl", tasks(TASKS));
    let workspace = call.workspace().to_owned();
    let trace = workspace.join("trace");
    let calls = "trace=fsync,fdatasync,rename,renameat,renameat2,write,unlink,unlinkat";
    let strace: Vec<&OsStr> = ["-f", "-y", "-s", "100", "-e", calls, "-o"]
        .map(OsStr::new)
        .into_iter()
        .chain([trace.as_os_str()])
        .collect();
    let _finished = batch(call, &model, &["--parallel", "2"]).under("strace", &strace).run().expect_code(0);
    let text = read(trace);
    let trace: Vec<&str> = text.lines().collect();
    let (results, manifest) = ("/out/results.jsonl>", "/out/batch.json\"");
    let manifest = find(&trace, 0, &["rename", manifest]).expect("the manifest is renamed into place");
    find(&trace, manifest, &["sync(", "/out>"]).expect("the directory with the results is synced");
    for i in 0..TASKS {
        let staged = format!("/running/task-{i}.patch");
        let in_order = [
            vec!["sync(", &staged],
            vec!["rename", &staged],
            vec!["sync(", "/out/patches>"],
            vec!["write(", results, &format!("\\\"id\\\":\\\"task-{i}\\\"")],
            vec!["sync(", results],
            // The mark that a task has begun is removed when its result counts.
            vec!["unlink", &format!("/running/task-{i}.json")],
        ]
        .into_iter()
        .try_fold(0, |from, parts| {
            find(&trace, from, &parts).map(|at| at + 1).ok_or_else(|| format!("{parts:?}"))
        });
        assert!(in_order.is_ok(), "task-{i}: {in_order:?}\n{text}");
    }
    is_complete(&workspace);
}

#[test]
fn a_tail_that_was_not_synced_costs_only_the_results_in_it() {
    let model = writer();
    let call = agent().file("tasks.jsonl", tasks(TASKS));
    let workspace = call.workspace().to_owned();
    let mut finished = batch(call, &model, &["--parallel", "3"]).run().expect_code(0);
    let (file, running) = (workspace.join("out/results.jsonl"), workspace.join("out/running"));
    // Cut within a line and between two, without anything, and with the zeros that some file systems leave.
    for (kept, zeros) in [(2_usize, 0_usize), (3, 17), (3, 0), (0, 0), (0, 300)] {
        let text = read(file.clone());
        let before = by_id(&workspace);
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        let end = kept.checked_sub(1).map_or(0, |at| ends[at]);
        let in_line = if zeros == 0 && kept == 2 { 25 } else { 0 };
        let mut bytes = text.as_bytes()[..end + in_line].to_vec();
        bytes.resize(bytes.len() + zeros, 0);
        std::fs::write(&file, &bytes).unwrap();
        // What was staged and not renamed is there, whole or not, and a patch without its result.
        std::fs::write(running.join("task-0.patch"), "diff --git a/x").unwrap();
        finished = batch(finished.again(), &model, &["--parallel", "3"]).run().expect_code(0);
        is_complete(&workspace);
        let after = by_id(&workspace);
        for line in text[..end].lines() {
            let id =
                serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
            assert_eq!(after[&id], before[&id], "{kept} results had been synced");
        }
        assert_eq!(std::fs::read_dir(&running).unwrap().count(), 0);
    }
}
