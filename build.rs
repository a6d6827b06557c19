//! Records where the program comes from, for `agent --version --verbose`: its target and the commit of its sources.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=AGENT_COMMIT");
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=AGENT_TARGET={target}");
    let commit = given_commit().or_else(packaged_commit).or_else(commit_of_checkout);
    println!("cargo::rustc-env=AGENT_COMMIT={}", commit.unwrap_or_default());
}

/// The one that the environment of the build names.
fn given_commit() -> Option<String> {
    std::env::var("AGENT_COMMIT").ok().filter(|commit| is_commit(commit))
}

/// The one that `cargo package` wrote beside the sources.
fn packaged_commit() -> Option<String> {
    let written = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = written.split_once("\"sha1\"")?;
    rest.split('"').nth(1).filter(|commit| is_commit(commit)).map(str::to_owned)
}

/// The one that is checked out. Debug builds have none: each commit would compile the package anew.
fn commit_of_checkout() -> Option<String> {
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return None;
    }
    // Unpacked inside of another repository, the sources have none of that one's commits.
    git(&["rev-parse", "--show-prefix"]).filter(String::is_empty)?;
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    // A path that is missing would have the script run each time.
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "HEAD"]).filter(|commit| is_commit(commit))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
