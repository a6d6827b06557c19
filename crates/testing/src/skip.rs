//! Tests that a run leaves out: a test that lacks something names it, and the end of the run lists all of it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::sync::Mutex;

/// The tests that left something out, by the reason.
static LEFT_OUT: Mutex<BTreeMap<String, Vec<String>>> = Mutex::new(BTreeMap::new());

/// Notes that this test leaves something out for `reason`.
pub fn left_out(reason: impl Display) {
    let mut all = LEFT_OUT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if all.is_empty() {
        // SAFETY: the function takes nothing, and does nothing but write.
        unsafe { libc::atexit(list) };
    }
    let current = std::thread::current();
    let test = current.name().unwrap_or("a thread of a test").to_owned();
    let tests = all.entry(reason.to_string()).or_default();
    if !tests.contains(&test) {
        tests.push(test);
    }
}

/// Notes that this test is skipped because the machine lacks `requirement`.
///
/// # Panics
/// In CI, where everything has been installed.
pub fn missing(requirement: impl Display) {
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ci, "missing in CI: {requirement}");
    left_out(format!("missing: {requirement}"));
}

/// Returns whether Debian's Python has `module`, which the Debian package `package` brings; notes it where not.
///
/// # Panics
/// In CI, where everything has been installed.
pub fn debian_python_has(module: &str, package: &str) -> bool {
    let import =
        std::process::Command::new("/usr/bin/python3").args(["-c", &format!("import {module}")]).output();
    let is_there = import.is_ok_and(|done| done.status.success());
    if !is_there {
        missing(format!("Python's {module} (Debian: apt install {package})"));
    }
    is_there
}

/// Prints what was left out, when the process ends: after libtest's own summary.
extern "C" fn list() {
    let all = LEFT_OUT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "left out in this run:");
    for (reason, tests) in all.iter() {
        let named = tests.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
        let others = match tests.len().saturating_sub(3) {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let _ = writeln!(stderr, "  {reason} ({named}{others})");
    }
}
