//! The package in `python/`: its own tests and LangChain's suite, against a wheel that is built from the tree.

use crate::support::agent::agent;
use crate::support::counterpart::{python, root};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long the suites may take on a machine that is busy with other tests.
const DEADLINE: Duration = Duration::from_secs(900);

fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// The package, built as a wheel and unpacked in `directory`.
fn built(python: &Path, directory: &Path) -> PathBuf {
    let (wheels, installed) = (directory.join("wheels"), directory.join("installed"));
    let sources = directory.join("sources");
    run(Command::new("cp").arg("-r").arg(root().join("python")).arg(&sources));
    run(Command::new(python)
        .args(["-m", "build", "--no-isolation", "--wheel", "--outdir"])
        .arg(&wheels)
        .arg(&sources));
    let wheel = std::fs::read_dir(&wheels).unwrap().next().expect("a wheel").unwrap().path();
    run(Command::new(python)
        .args(["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target"])
        .arg(&installed)
        .arg(wheel));
    installed
}

fn pytest(file: &str, arguments: &[&str]) {
    let Some(python) = python("python") else { return };
    let directory = tempfile::tempdir().unwrap();
    let installed = built(&python, directory.path());
    let tests = root().join("python/tests").join(file);
    let finished = agent()
        .driven_by(&python)
        .env("PYTHONPATH", &installed)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--asyncio-mode=auto"])
        .args(arguments)
        .args([&tests])
        .deadline(DEADLINE)
        .run()
        .expect_code(0);
    assert!(
        finished.stdout.contains(" passed") && !finished.stdout.contains(" skipped"),
        "{}",
        finished.stdout
    );
}

#[test]
fn the_package_runs_commands_code_and_files_and_applies_what_they_change() {
    pytest("test_sandbox.py", &[]);
}

#[test]
fn the_backend_for_deepagents_passes_the_suite_of_langchain() {
    pytest("test_deepagents.py", &[]);
}

#[test]
fn the_package_is_typed() {
    let Some(python) = python("python") else { return };
    let directory = tempfile::tempdir().unwrap();
    run(Command::new(python)
        .args(["-m", "mypy", "--strict", "--cache-dir"])
        .arg(directory.path())
        .arg("--config-file=/dev/null")
        .arg(root().join("python/src/agentsandbox")));
}
