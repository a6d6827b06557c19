//! `agent demo`: recorded tasks without any configuration, on every backend that this machine has.

use crate::support::agent::agent;
use crate::support::terminal::terminal;
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
