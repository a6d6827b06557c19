//! `agent apply --commit` and `/apply --commit`.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes the workspace a repository with one commit, and a hook that would be seen.
fn repository(workspace: &Path) {
    git(workspace, &["init", "-q", "-b", "main"]);
    git(workspace, &["config", "user.name", "A User"]);
    git(workspace, &["config", "user.email", "user@example.org"]);
    git(workspace, &["add", "."]);
    git(workspace, &["commit", "-q", "-m", "Begin"]);
    let hook = workspace.join(".git/hooks/pre-commit");
    std::fs::write(&hook, "#!/bin/sh\ntouch hooked\nexit 1\n").expect("the hook");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// Lines `1` to `30`.
fn numbers() -> String {
    (1..=30).map(|number| format!("{number}\n")).collect()
}

/// A session that ran `command` in a repository with these files.
fn ran(command: &str, files: &[(&str, &str)]) -> Finished {
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = files.iter().fold(agent().endpoint(&model), |call: Agent, (name, text)| call.file(name, text));
    repository(call.workspace());
    call.args(["run", "change"]).run().expect_code(0)
}

#[test]
fn exactly_what_was_written_is_committed() {
    let command =
        "sed -i 's/^5$/five/' n.txt; echo new > new.txt; rm gone.txt; mv old.sh moved.sh; echo x > own.txt";
    let files =
        [("n.txt", &*numbers()), ("gone.txt", "gone\n"), ("old.sh", "#!/bin/sh\n"), ("other.txt", "1\n")];
    let ran = ran(command, &files);
    let workspace = ran.again().workspace().to_owned();
    // The user's own changes: in the same file, staged in another one and in the same one, and a new file.
    std::fs::write(workspace.join("n.txt"), numbers().replace("\n15\n", "\nstaged\n")).expect("a file");
    git(&workspace, &["add", "n.txt"]);
    std::fs::write(
        workspace.join("n.txt"),
        numbers().replace("\n15\n", "\nstaged\n").replace("\n25\n", "\nedited\n"),
    )
    .expect("a file");
    std::fs::write(workspace.join("other.txt"), "2\n").expect("a file");
    git(&workspace, &["add", "other.txt"]);
    let done = ran.again().args(["apply", "--yes", "--commit", "-m", "Write five"]).run().expect_code(0);
    assert!(done.stderr.contains("hooks were not run (pre-commit)"), "{}", done.stderr);
    assert!(done.stderr.contains("committed as") && done.stderr.contains("on main"), "{}", done.stderr);
    assert!(!workspace.join("hooked").exists());
    let show = |what: &str| git(&workspace, &["show", what]);
    assert_eq!(show("HEAD:n.txt"), numbers().replace("\n5\n", "\nfive\n"));
    assert_eq!(show("HEAD:other.txt"), "1\n");
    assert_eq!(git(&workspace, &["log", "--format=%s|%an"]), "Write five|A User\nBegin|A User\n");
    let names = git(&workspace, &["show", "--format=", "--name-status", "--no-renames", "HEAD"]);
    assert_eq!(names, "D\tgone.txt\nA\tmoved.sh\nM\tn.txt\nA\tnew.txt\nD\told.sh\nA\town.txt\n");
    assert_eq!(show(":n.txt"), numbers().replace("\n5\n", "\nfive\n").replace("\n15\n", "\nstaged\n"));
    assert_eq!(git(&workspace, &["diff", "--cached", "--name-only"]), "n.txt\nother.txt\n");
    let unstaged = git(&workspace, &["diff", "--", "n.txt"]);
    assert!(unstaged.contains("+edited") && !unstaged.contains("five\n+"), "{unstaged}");
}

#[test]
fn changes_of_the_user_in_the_same_lines_are_a_conflict_before_anything_is_written() {
    let ran = ran("sed -i 's/^5$/five/' n.txt; sed -i 's/^9$/nine/' n.txt", &[("n.txt", &*numbers())]);
    let workspace = ran.again().workspace().to_owned();
    let staged = numbers().replace("\n5\n", "\nFIVE\n");
    std::fs::write(workspace.join("n.txt"), staged).expect("a file");
    git(&workspace, &["add", "n.txt"]);
    std::fs::write(workspace.join("n.txt"), numbers()).expect("a file");
    let refused = ran.again().args(["apply", "--commit", "-m", "x"]).run().expect_code(7);
    assert!(
        refused.stderr.contains("n.txt has staged changes of yours in the same lines"),
        "{}",
        refused.stderr
    );
    assert_eq!(ran.host_file("n.txt"), Some(numbers()));
    assert_eq!(git(&workspace, &["log", "--format=%s"]), "Begin\n");
}

#[test]
fn without_a_repository_a_model_or_a_quiet_repository_nothing_is_written() {
    let made = ran("echo new > new.txt", &[("a", "1\n")]);
    let workspace = made.again().workspace().to_owned();
    let unasked = made.again().args(["apply", "--commit"]).run();
    assert_ne!(unasked.code, 0, "{}", unasked.stderr);
    assert!(unasked.stderr.contains("agent apply --commit -m MESSAGE"), "{}", unasked.stderr);
    std::fs::write(workspace.join(".git/MERGE_HEAD"), "0\n").expect("a file");
    let merging = made.again().args(["apply", "--commit", "-m", "x"]).run().expect_code(2);
    assert!(merging.stderr.contains("under way"), "{}", merging.stderr);
    std::fs::remove_dir_all(workspace.join(".git")).expect("the repository goes");
    let alone = made.again().args(["apply", "--commit", "-m", "x"]).run().expect_code(2);
    assert!(alone.stderr.contains("not in a repository"), "{}", alone.stderr);
    assert_eq!(made.host_file("new.txt"), None);
    made.again().args(["apply", "-m", "x"]).run().expect_code(2);
}

#[test]
fn a_filter_is_refused_and_a_subdirectory_of_a_repository_is_committed_to() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo more >> in.txt; echo 1 > big.bin" }))
        .text("ok")
        .start();
    let call = agent().endpoint(&model).file("sub/in.txt", "one\n").file("top.txt", "1\n");
    repository(call.workspace());
    let top = call.workspace().to_owned();
    std::fs::write(top.join("sub/.gitattributes"), "*.bin filter=lfs\n").expect("the attributes");
    let ran = call.args(["run", "-C", "sub", "change"]).run().expect_code(0);
    let apply = |paths: &[&str]| {
        let fixed = ["apply", "-C", "sub", "--yes", "--commit", "-m", "More"];
        ran.again().args(fixed.iter().chain(paths)).run()
    };
    let refused = apply(&[]).expect_code(2);
    assert!(refused.stderr.contains("big.bin passes the filter lfs of git"), "{}", refused.stderr);
    apply(&["in.txt"]).expect_code(0);
    assert_eq!(git(&top, &["show", "HEAD:sub/in.txt"]), "one\nmore\n");
    assert_eq!(git(&top, &["status", "--porcelain", "--untracked-files=no"]), "");
}

#[test]
fn the_model_proposes_a_message_that_the_user_agrees_with() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "sed -i 's/^5$/five/' n.txt" }))
        .text("Changed.")
        .text("```\nWrite the five in a word\n```")
        .start();
    let builder = terminal().endpoint(&model).file("n.txt", &numbers());
    let workspace = builder.directory("workspace");
    repository(&workspace);
    let secret = format!("Continue with ghp_{}", "u8jzPde0IgxLd6GncfBAepfJBd0Kh8oOOL8d");
    git(&workspace, &["commit", "-q", "--no-verify", "--allow-empty", "-m", &secret]);
    let mut terminal = builder.start();
    terminal.wait_for_prompt();
    terminal.type_line("change it");
    terminal.wait_for("Changed.");
    terminal.wait_for_prompt();
    terminal.type_line("/apply --commit");
    terminal.wait_for("[yes/no/each]");
    terminal.type_line("yes");
    terminal.wait_for("    Write the five in a word\n");
    terminal.wait_for("Commit with this message? [yes/no/edit]");
    assert_eq!(git(&workspace, &["log", "--format=%s"]), format!("{secret}\nBegin\n"));
    terminal.type_line("yes");
    terminal.wait_for("committed as");
    let subjects = format!("Write the five in a word\n{secret}\nBegin\n");
    assert_eq!(git(&workspace, &["log", "--format=%s"]), subjects);
    assert_eq!(git(&workspace, &["status", "--porcelain", "--untracked-files=no"]), "");
    let asked = model.requests().pop().expect("a request").messages().last().expect("a message").to_string();
    assert!(
        asked.contains("Continue with") && asked.contains("\\nBegin\\n") && asked.contains("+five"),
        "{asked}"
    );
    assert!(!asked.contains("u8jzPde0"), "{asked}");
}
