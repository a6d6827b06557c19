//! The package in `python/`: its own tests and LangChain's suite, on each version of Python that it is for. `.ci/package` builds and
//! installs the wheel.

use agent_testbed::agent::agent;
use agent_testing::counterpart::{PYTHONS, python_of, root};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How long the suites may take on a machine that is busy with other tests.
const DEADLINE: Duration = Duration::from_secs(900);

fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// Both suites in one process, which loads the libraries once.
fn works_on(version: &str) {
    let Some(python) = python_of(version) else { return };
    let finished = agent()
        .driven_by(&python)
        .env("PYTHONPATH", root().join("python/src"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--asyncio-mode=auto"])
        .args([root().join("python/tests")])
        .deadline(DEADLINE)
        .run()
        .expect_code(0);
    let printed = &finished.stdout;
    assert!(printed.contains(" passed") && !printed.contains(" skipped"), "{printed}");
    let last = printed.trim_end().lines().last().unwrap_or_default();
    println!("Python {version}: {last}");
}

#[test]
fn the_package_and_the_suite_of_langchain_pass_on_python_3_11() {
    works_on("3.11");
}

#[test]
fn the_package_and_the_suite_of_langchain_pass_on_python_3_12() {
    works_on("3.12");
}

#[test]
fn the_package_and_the_suite_of_langchain_pass_on_python_3_13() {
    works_on("3.13");
}

/// The first Python of a version that `PATH` or pyenv has, and that runs.
fn found(version: &str) -> Option<PathBuf> {
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let installed = pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
    let installed = installed.into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python"));
    let candidates = ["python3".into(), format!("python{version}").into()].into_iter().chain(installed);
    candidates.into_iter().find(|python: &PathBuf| {
        let asked = "import sys; print('%d.%d' % sys.version_info[:2])";
        let output = Command::new(python).args(["-c", asked]).output();
        output.is_ok_and(|output| output.stdout.trim_ascii_end() == version.as_bytes())
    })
}

#[test]
fn an_interpreter_with_a_sandbox_that_was_not_closed_ends_cleanly() {
    // It aborted: the sandbox was closed by the garbage collection of an interpreter that was ending.
    let pythons: Vec<_> = PYTHONS.into_iter().filter_map(found).collect();
    assert!(!pythons.is_empty(), "there is no Python for the package");
    for python in pythons {
        let finished = agent()
            .driven_by(&python)
            .env("PYTHONPATH", root().join("python/src"))
            .args([root().join("python/tests/interpreter_end.py")])
            .deadline(DEADLINE)
            .run()
            .expect_code(0);
        assert_eq!(finished.stdout.lines().count(), 8, "{python:?}: {}", finished.stdout);
    }
}

#[test]
fn the_package_is_typed() {
    let Some(python) = PYTHONS.into_iter().find_map(python_of) else { return };
    let directory = tempfile::tempdir().unwrap();
    run(Command::new(python)
        .args(["-m", "mypy", "--strict", "--cache-dir"])
        .arg(directory.path())
        .arg("--config-file=/dev/null")
        .arg(root().join("python/src/agentsandbox")));
}
