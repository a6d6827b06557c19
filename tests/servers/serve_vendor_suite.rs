//! The suite of Novita's code interpreter, which comes with its wheel, unchanged against `agent serve`.

use agent_testbed::serve::Server;
use agent_testing::counterpart::python;
use agent_testing::skip::debian_python_has;
use std::path::PathBuf;
use std::process::Command;

/// The parts of the suite that are left out, and why.
const LEFT_OUT: [(&str, &str); 3] = [
    ("test_legacy_compat.py", "four of its tests expect the vendor's former cloud"),
    ("async/test_async_data.py", "a data frame takes pandas, which Debian's Python does not have here"),
    ("sync/test_data.py", "the same"),
];

/// The least number of tests that pass: all others but those that the suite skips itself.
const PASSED: usize = 80;

#[test]
fn the_suite_of_novitas_code_interpreter_passes() {
    let Some(python) = python("novita") else { return };
    if !debian_python_has("matplotlib", "python3-matplotlib") {
        return;
    }
    let ask = "import novita_sandbox.code_interpreter as it; print(it.__path__[0])";
    let found = Command::new(&python).args(["-c", ask]).output().expect("Python starts");
    let tests = PathBuf::from(String::from_utf8(found.stdout).expect("a path").trim()).join("tests");
    let directory = tempfile::tempdir().expect("a directory");
    let copied = Command::new("cp").arg("-r").arg(&tests).arg(directory.path().join("suite")).status();
    assert!(copied.is_ok_and(|status| status.success()), "{}", tests.display());
    // Debian's Python has matplotlib.
    let server = Server::start_with_path("local", &[], "/usr/local/bin:/usr/bin:/bin");
    let left_out = LEFT_OUT.map(|(part, _)| format!("--ignore=suite/{part}"));
    let output = Command::new("timeout")
        .arg("900")
        .arg(&python)
        .args([
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--asyncio-mode=auto",
            "--import-mode=importlib",
        ])
        .args(left_out)
        .arg("suite")
        .envs(server.variables(&[]))
        .current_dir(directory.path())
        .output()
        .expect("Python starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let last = printed.trim_end().lines().last().unwrap_or_default();
    let passed = last.split(' ').next().and_then(|number| number.parse::<usize>().ok());
    assert!(output.status.success() && passed.is_some_and(|passed| passed >= PASSED), "{printed}");
}
