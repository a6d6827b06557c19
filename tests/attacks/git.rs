//! Repositories that git finds where nobody sees a `.git`: their configuration names programs, and running git there
//! runs them, by `agent` itself or by the user.

use crate::support::agent::agent;
use crate::support::endpoint::endpoint;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn bash(directory: &Path, script: &str) {
    let done = Command::new("bash")
        .args(["-ec", script])
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "a")))
        .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "a@b")))
        .output()
        .expect("bash");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A sparse index whose trees are missing has git fetch them, from a remote that is a program. Where the work tree's
/// own `.git` configures it, and where ordinary files of a clone look like a repository.
#[test]
fn attack_21_a_repository_whose_index_fetches_runs_nothing() {
    const HOSTILE: &str = r#"
        git init -q -b main .; mkdir in out; echo a > in/a; echo b > out/b; git add -A; git commit -qm all
        git sparse-checkout init --cone --sparse-index; git sparse-checkout set in
        tree=$(git rev-parse HEAD:out); rm -f .git/objects/${tree:0:2}/${tree:2}
        git config core.repositoryformatversion 1; git config extensions.partialClone origin; git config remote.origin.url "$PWD"
        git config remote.origin.promisor true; git config remote.origin.uploadpack "touch $CANARY; false"
        git config core.fsmonitor "touch $CANARY; false""#;
    for bare in [true, false] {
        let run = agent();
        let root = run.workspace().to_owned();
        let canary = root.with_file_name("canary");
        bash(&root, &format!("CANARY='{}'\n{HOSTILE}", canary.display()));
        let started = if bare {
            bash(
                &root,
                "git config remote.origin.url .; git config core.worktree .; mkdir sub; cp -r .git/. sub; rm -rf .git in; find sub -type d -empty -exec touch {}/keep \\;
                 git init -q .; git add -Af .; git commit -qm clone",
            );
            run.current_dir(&root.join("sub"))
        } else {
            run
        };
        let _ = fs::remove_file(&canary);
        let _done = started.args(["exec", "--", "true"]).run().expect_code(0);
        assert!(!canary.exists(), "bare: {bare}");
    }
}

/// A configuration that led to `/dev/zero` was read without end, and git, which was not kept from it, waited for a FIFO.
#[test]
fn attack_21_a_repository_of_devices_and_fifos_holds_nothing_up() {
    for index in ["true", "rm .git/index; mkfifo .git/index", "ln -sf /dev/zero .git/index"] {
        let model = endpoint().tool_call("run_commands", json!({ "command": "cat a" })).text("Done.").start();
        let call = agent().endpoint(&model).args(["run", "go"]);
        bash(
            call.workspace(),
            "git init -q .; mkdir b c; touch b/b; git add -A; echo fine > a; ln -sf /dev/zero .git/config; ln -s /dev/zero .gitignore; \
         mkfifo .env AGENTS.md .git/config.worktree b/.gitignore c/.gitignore; rm .git/info/exclude; mkfifo .git/info/exclude",
        );
        bash(call.workspace(), index);
        let done = call.run().expect_code(0);
        assert!(done.took < Duration::from_secs(10), "{:?}", done.took);
        assert!(model.requests()[1].body.to_string().contains("fine"));
    }
}

/// The walk through `.git` followed the symlink that it began at.
#[test]
fn attack_21_a_link_in_the_place_of_a_repository_brings_nothing_along() {
    let call =
        agent().args(["exec", "--", "cat", ".git/config", "sub/.git/config", "fine"]).file("fine", "fine");
    bash(
        call.workspace(),
        "mkdir sub ../outside; echo secret > ../outside/config; ln -s ../outside .git; ln -s ../../outside sub/.git",
    );
    let done = call.run();
    assert_eq!(done.stdout, "fine", "{}", done.stderr);
    assert!(done.stderr.contains(".git is a symlink that leads out of the workspace"), "{}", done.stderr);
}

#[test]
fn attack_21_no_repository_is_applied_whatever_its_name() {
    let make = "mkdir -p sub/objects/info sub/refs/heads; echo 'ref: refs/heads/main' > sub/HEAD; \
                printf '[core]\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = touch canary\\n' > sub/config; \
                touch sub/objects/info/k sub/refs/heads/k; echo fine > fine.txt";
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("Done.").start();
    let done = agent().endpoint(&model).args(["run", "--apply", "go"]).run().expect_code(0);
    assert_eq!(done.host_file("fine.txt").as_deref(), Some("fine\n"));
    assert_eq!(done.host_file("sub/HEAD"), None);
    assert_eq!(done.host_file("sub/config"), None);
    assert!(
        done.stderr.contains("sub is not applied: git would take it for a repository"),
        "{}",
        done.stderr
    );
}

/// With such a `PATH`, git and the pager were looked up in the repository.
#[test]
fn attack_29_a_program_of_the_repository_is_never_started_on_the_host() {
    let system = std::env::var("PATH").expect("a path");
    for entry in ["", ".", "bin", "node_modules/.bin", "TREE/bin"] {
        let call = agent().args(["exec", "--", "true"]);
        let root = call.workspace().to_owned();
        let canary = root.with_file_name("canary");
        bash(
            &root,
            &format!(
                "git init -q .; mkdir -p bin node_modules/.bin; printf '#!/bin/sh\ntouch {}\n' > git; chmod +x git
                 cp git bin; cp git node_modules/.bin; echo a > a; /usr/bin/env git add a",
                canary.display()
            ),
        );
        let path = format!("{}:{system}", entry.replace("TREE", &root.display().to_string()));
        let _done = call.env("PATH", path).run().expect_code(0);
        assert!(!canary.exists(), "{entry:?}");
    }
}

/// Tokens of other tools, programs and aliases came in with the repository's configuration.
#[test]
fn attack_27_of_gits_configuration_only_what_git_needs_comes_in() {
    let call = agent().args(["exec", "--", "cat", ".git/config"]);
    bash(
        call.workspace(),
        "git init -q .; git config remote.origin.url https://user:C4NARY@example.com/r.git; git config branch.main.remote origin
         git config core.sshCommand 'ssh -i C4NARY'; git config gitlab.token C4NARY; git config alias.x '!C4NARY'
         git config credential.helper '!C4NARY'; git config http.extraHeader 'Authorization: C4NARY'; git config core.pager C4NARY
         git config url.https://C4NARY@example.com/.insteadOf https://example.com/; git config include.path C4NARY
         printf '[alias] y = C4NARY\\\n C4NARY\n[core] editor = C4NARY\n' >> .git/config; echo C4NARY > .git/credentials",
    );
    let done = call.run().expect_code(0);
    assert!(!done.stdout.contains("C4NARY"), "{}", done.stdout);
    for needed in ["repositoryformatversion", "https://example.com/r.git", "[branch \"main\"]"] {
        assert!(done.stdout.contains(needed), "{needed}: {}", done.stdout);
    }
}
