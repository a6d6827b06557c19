//! `agent demo`: recorded tasks without any configuration, on every backend that this machine has.

use agent::demo::TASKS;
use agent::log::{read_records, verify};
use agent_testbed::agent::agent;
use agent_testbed::terminal::terminal;
use std::path::Path;
use std::time::Duration;

#[test]
fn the_demo_plays_every_task_in_a_real_sandbox() {
    let finished = agent().args(["demo"]).run().expect_code(0);
    for (what, answer) in [
        ("π", "π ≈ 3.14"),
        ("the factorial", "2,432,902,008,176,640,000"),
        ("the sum", "50005000"),
        ("Fibonacci", "1, 1, 2, 3, 5, 8, 13"),
    ] {
        assert!(finished.stdout.contains(answer), "{what}: {}", finished.stdout);
    }
    assert!(finished.stderr.contains("the model's part is recorded, the tools run for real"));
    assert!(
        finished.stderr.contains("run_commands result: exit 1 in"),
        "its test fails first: {}",
        finished.stderr
    );
    assert!(
        finished.stderr.trim_end().lines().last().is_some_and(|line| line.contains("completed")),
        "{}",
        finished.stderr
    );
}

#[test]
fn the_demo_draws_a_picture() {
    let mut terminal =
        terminal().answering("\x1b_Gi=31;OK\x1b\\\x1b[?62;c", Duration::ZERO).args(["demo", "pi"]).start();
    assert_eq!(terminal.wait(), 0, "{}", terminal.screen());
    let text = String::from_utf8(terminal.raw()).unwrap();
    assert!(text.contains("\x1b_Ga=T,f=100,t=d,q=2,c="), "{text}");
}

#[test]
fn the_recordings_replay_without_a_difference() {
    for task in ["pi", "factorial", "fibonacci", "sum", "fix"] {
        let file = format!("{}/examples/demo/{task}.jsonl", env!("CARGO_MANIFEST_DIR"));
        agent().args(["replay", &file, "--strict"]).run().expect_code(0);
    }
}

#[test]
fn an_unknown_task_is_reported_by_name() {
    let finished = agent().args(["demo", "nothing"]).run().expect_code(2);
    assert!(finished.stderr.contains("the tasks are pi, factorial"), "{}", finished.stderr);
}

#[test]
fn the_demos_recordings_are_valid_and_complete() {
    let known = ["run_commands", "run_code", "write_file", "write_files", "read_file", "edit_file"];
    for task in TASKS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/demo/{}.jsonl", task.name));
        assert_eq!(verify(&path).unwrap().fault, None, "{}", task.name);
        let recording = task.recording().unwrap();
        assert_eq!(recording.records(), read_records(&path).unwrap());
        assert_eq!(recording.prompts().len(), 1);
        let replies = recording.replies();
        let (last, asking) = replies.split_last().unwrap();
        assert!(last.tool_calls.is_empty() && !last.text.is_empty());
        let calls: Vec<_> = asking.iter().flat_map(|reply| &reply.tool_calls).collect();
        assert!(calls.iter().all(|call| known.contains(&call.name.as_str())));
        assert!(calls.iter().all(|call| serde_json::from_str::<serde_json::Value>(&call.arguments).is_ok()));
        assert_eq!(calls.len(), recording.outcomes().len(), "each call has its answer");
    }
    let answer = |name: &str| {
        let task = TASKS.iter().find(|task| task.name == name).unwrap();
        task.recording().unwrap().outcomes().into_iter().map(|result| result.result).collect::<String>()
    };
    assert!(answer("sum").contains("50005000"));
    assert!(answer("factorial").contains("2432902008176640000"));
    assert!(answer("fibonacci").contains("0 1 1 2 3 5 8 13 21 34"));
    assert!(answer("pi").contains("3.14"));
    assert!(answer("fix").contains("FAIL 1900"));
}
