//! Repositories that git finds where nobody sees a `.git`: their configuration names programs, and running git there
//! runs them, by `agent` itself or by the user.

use agent_testbed::agent::{Agent, agent};
use agent_testing::endpoint::endpoint;
use agent_testing::metered_git::metered_git;
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
    assert!(
        done.stderr.contains("/.git leads to a repository that does not name this work tree"),
        "{}",
        done.stderr
    );
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

/// What is written through such a link is git's: a work tree's `.git` can lead to a directory of any name.
#[test]
fn attack_21_no_link_leads_into_a_repository_of_another_name() {
    let links = "ln -s .bare/hooks l; mkdir sub; ln -s ../.bare/config sub/c; ln -s l/pre-commit p; ln -s bare-notes n";
    let model = endpoint().tool_call("run_commands", json!({ "command": links })).text("Done.").start();
    let call = agent().endpoint(&model).args(["run", "--apply", "go"]);
    bash(call.workspace(), "git init -q --bare .bare; echo 'gitdir: .bare' > .git; touch bare-notes");
    let root = call.workspace().to_owned();
    let done = call.run().expect_code(0);
    let is_link = |name: &str| root.join(name).symlink_metadata().is_ok();
    assert!(is_link("n"), "{}", done.stderr);
    for name in ["l", "sub/c", "p"] {
        assert!(!is_link(name), "{name}: {}", done.stderr);
        let told = format!("{name} is not applied: a symlink that leads into git's own directory");
        assert!(done.stderr.contains(&told), "{name}: {}", done.stderr);
    }
}

/// A link out of git's directory was refused, because what it had been was asked about too.
#[test]
fn attack_21_a_link_of_the_users_is_led_out_of_gits_directory() {
    let command = "ln -sfn docs g; rm h";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("Done.").start();
    let call = agent().endpoint(&model).args(["run", "--apply", "go"]);
    bash(call.workspace(), "git init -q .; ln -s .git/hooks g; ln -s .git/hooks h; git add .");
    let root = call.workspace().to_owned();
    let done = call.run().expect_code(0);
    assert_eq!(fs::read_link(root.join("g")).expect("a link"), Path::new("docs"), "{}", done.stderr);
    assert!(root.join("h").symlink_metadata().is_err(), "{}", done.stderr);
}

/// A session does not know what git ignores, and so each piece looked as if it were alone.
#[test]
fn attack_21_no_repository_is_applied_in_pieces_that_git_ignores() {
    let pieces = [
        "mkdir -p sub/objects sub/refs; touch sub/objects/k sub/refs/k",
        "printf 'objects/\\nrefs/\\n' > .gitignore",
        "mkdir -p sub; echo 'ref: refs/heads/main' > sub/HEAD; echo fine > fine.txt",
    ];
    let (call, stderr) = applied_one_by_one(&pieces);
    let root = call.workspace();
    assert!(root.join("sub/refs/k").exists() && root.join("fine.txt").exists(), "{stderr}");
    assert!(!root.join("sub/HEAD").exists());
    assert!(
        stderr.contains("sub/HEAD is not applied: git would take its directory for a repository"),
        "{stderr}"
    );
}

/// Runs each command in a session of its own, each of which applies its changes; the call for the next one, and the last one's messages.
fn applied_one_by_one(commands: &[&str]) -> (Agent, String) {
    let mut call = agent();
    bash(call.workspace(), "git init -q .");
    let mut stderr = String::new();
    for command in commands {
        let again = call.again();
        let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("Done.").start();
        let done = call.endpoint(&model).args(["run", "--apply", "go"]).run().expect_code(0);
        stderr = done.stderr.clone();
        call = again;
    }
    (call, stderr)
}

/// A directory that the session removed counted as gone, and stayed on the host because of what git ignores in it.
#[test]
fn attack_21_a_directory_that_cannot_be_removed_is_no_room_for_a_repository() {
    let (call, stderr) = applied_one_by_one(&[
        "mkdir -p sub/objects sub/refs; touch sub/objects/k sub/objects/x.o sub/refs/k",
        "echo '*.o' > .gitignore",
        "rm -rf sub/objects; echo 'ref: refs/heads/main' > sub/HEAD; printf '[core]\\n\\tworktree = .\\n' > sub/config; echo fine > fine.txt",
    ]);
    let root = call.workspace();
    assert!(root.join("sub/objects/x.o").exists() && root.join("fine.txt").exists(), "{stderr}");
    assert!(!root.join("sub/HEAD").exists() && !root.join("sub/config").exists(), "{stderr}");
}

/// The rest of one may be on another branch, or be written by another session at the same time.
#[test]
fn attack_21_a_head_is_not_applied_where_nothing_else_of_a_repository_is() {
    let head = "mkdir d e; echo 'ref: refs/heads/main' > d/HEAD; ln -s refs/heads/main e/HEAD; echo 'a headline' > HEAD";
    let (call, stderr) = applied_one_by_one(&[head]);
    let root = call.workspace();
    assert!(root.join("HEAD").exists() && !root.join("d/HEAD").exists(), "{stderr}");
    assert!(root.join("e/HEAD").symlink_metadata().is_err());
    assert!(
        stderr.contains("d/HEAD is not applied: git would take its directory for a repository"),
        "{stderr}"
    );
}

/// `agent undo` put back the `HEAD` beside which a later session had written settings.
#[test]
fn attack_21_undo_completes_no_repository_with_settings_of_another_session() {
    let model = |command: &str| {
        endpoint().tool_call("run_commands", json!({ "command": command })).text("Done.").start()
    };
    let call = agent().endpoint(&model("rm sub/HEAD")).args(["run", "--apply", "--json", "go"]);
    let root = call.workspace().to_owned();
    bash(
        &root,
        "mkdir -p sub/objects sub/refs sub/hooks; touch sub/objects/k sub/refs/k sub/hooks/own; echo 'ref: refs/heads/main' > sub/HEAD",
    );
    let first = call.run().expect_code(0);
    let session = first.events()[0]["session"].as_str().expect("a session").to_owned();
    let second = first
        .again()
        .endpoint(&model("echo '[core]' > sub/config"))
        .args(["run", "--apply", "go"])
        .run()
        .expect_code(0);
    assert!(!root.join("sub/HEAD").exists() && root.join("sub/config").exists(), "{}", second.stderr);
    let undone = second.again().args(["undo", &session]).run().expect_code(7);
    assert!(undone.stderr.contains("sub is not put back"), "{}", undone.stderr);
    assert!(!root.join("sub/HEAD").exists());
    fs::remove_file(root.join("sub/config")).expect("removed");
    let _ = undone.again().args(["undo", &session]).run().expect_code(0);
    assert!(root.join("sub/HEAD").exists());
}

/// The fixture of a test may be removed. Nothing is written in one, not even where it loses its `HEAD`, which may be put back.
#[test]
fn a_repository_of_the_users_is_removed_where_the_session_removes_it() {
    let model = endpoint()
        .tool_call(
            "run_commands",
            json!({ "command": "rm -r old; mv kept/HEAD kept/HEAD.txt; echo x > kept/config" }),
        )
        .text("Done.")
        .start();
    let call = agent().endpoint(&model).args(["run", "--apply", "go"]);
    let make = "git init -q .; for d in old kept; do mkdir -p $d/objects $d/refs; touch $d/objects/k $d/refs/k $d/HEAD; done; git add .";
    bash(call.workspace(), make);
    let root = call.workspace().to_owned();
    let done = call.run().expect_code(0);
    assert!(!root.join("old/HEAD").exists() && root.join("kept/HEAD").exists(), "{}", done.stderr);
    assert!(!root.join("kept/config").exists() && !root.join("kept/HEAD.txt").exists(), "{}", done.stderr);
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

/// Tokens of other tools, programs and aliases came in with the repository's configuration, and keys that others keep beside it.
#[test]
fn attack_27_of_gits_configuration_only_what_git_needs_comes_in() {
    let copy = ["--workspace-mode", "copy"];
    for mode in [&[][..], &copy[..]] {
        let print =
            ["--", "sh", "-c", "cat .git/config m/config .bare/HEAD; grep -rh C4NARY . ; git status --short"];
        let call = agent().args(["exec"]).args(mode).args(print);
        bash(
            call.workspace(),
            r#"git init -q .; git config remote.origin.url https://user:C4NARY@example.com/r.git; git config branch.main.remote origin
         git config core.sshCommand 'ssh -i C4NARY'; git config gitlab.token C4NARY; git config alias.x '!C4NARY'
         git config credential.helper '!C4NARY'; git config http.extraHeader 'Authorization: C4NARY'; git config core.pager C4NARY
         git config url.https://C4NARY@example.com/.insteadOf https://example.com/; git config include.path C4NARY
         printf '[alias] y = C4NARY\\\n C4NARY\n[core] editor = C4NARY\n; was C:\\\n[http "https://h/"]\n extraheader = C4NARY\n' >> .git/config
         mkdir -p .git/rr-cache/1; echo "token: ghp_$(printf 'aB3dE5fG7hJ9%.0s' 1 2 3) C4NARY" > .git/rr-cache/1/preimage
         echo 'TOKEN=C4NARY' > .git/hooks/.env; mkdir -p .git/branches; echo 'https://user:C4NARY@example.com/r.git#main' > .git/branches/old
         git init -q --bare .bare; git -C .bare config remote.origin.url https://user:C4NARY@example.com/bare.git
         echo '[http] extraheader = C4NARY' > .bare/config.worktree; mkdir -p .bare/git-crypt/keys .bare/logs; echo C4NARY > .bare/git-crypt/keys/default
         echo '1 1 A <a@b> 1 +0000	pull https://user:C4NARY@example.com/r.git' | tee .bare/logs/HEAD > .bare/FETCH_HEAD
         mkdir m; echo 'tokenizer = gpt2' > m/config
         echo ignored > .gitignore; git init -q ignored/lib; echo fine > ignored/fine
         for git in .git ignored/lib/.git; do
            mkdir -p $git/git-crypt/keys $git/annex/creds
            for name in git-crypt/keys/default annex/creds/1 config~ config.bak .config.swp credentials; do echo C4NARY > $git/$name; done
            echo "1 1 A <a@b> 1 +0000	pull https://user:C4NARY@example.com/r.git" > $git/logs-of; mkdir -p $git/logs; mv $git/logs-of $git/logs/HEAD
         done"#,
        );
        let done = call.run().expect_code(0);
        assert!(!done.stdout.contains("C4NARY"), "{mode:?}: {}", done.stdout);
        for needed in [
            "repositoryformatversion",
            "https://example.com/r.git",
            "[branch \"main\"]",
            "?? .gitignore",
            "gpt2",
            "ref: refs/heads/",
        ] {
            assert!(done.stdout.contains(needed), "{mode:?}: {needed}: {}", done.stdout);
        }
    }
}

/// A repository of the user's beside the workspace, with `sub/secret` in its one commit.
const VICTIM: &str = "git init -q -b main ../victim; cd ../victim; mkdir sub; echo C4NARY > sub/secret; echo C4NARY-RULE > .git/info/exclude
     git add -f .; git commit -qm C4NARY; cd - >/dev/null; ";
/// What an archive has in the place of a git directory, but for what leads to the other repository.
const META: &str = "mkdir -p meta/objects/info meta/objects/pack meta/refs/heads meta/info; printf '[core]\n\tworktree = ..\n' > meta/config
     echo 'ref: refs/heads/main' > meta/HEAD; echo 'gitdir: meta' > .git; ";

/// The archive's own files said where its repository is, and the pack that the sandbox gets was made of the user's other one.
#[test]
fn attack_39_no_file_of_the_workspace_brings_another_repository_in() {
    let ways = [
        ("", "echo ../../victim/.git > meta/commondir"),
        ("", "echo ../../victim/.git > meta/commondir; echo ../.git > meta/gitdir; rm meta/config"),
        ("", "rm -r meta/objects meta/refs; ln -s ../../victim/.git/objects ../../victim/.git/refs meta"),
        ("", "rm -r meta/refs; ln -s ../../victim/.git/refs meta; echo ../../../victim/.git/objects > meta/objects/info/alternates"),
        ("", "rm -r meta/refs; ln -s ../../victim/.git/refs meta; cp -rs $PWD/../victim/.git/objects meta"),
        ("", "rm -r meta/refs/heads; ln -s ../../../victim/.git/refs/heads meta/refs; mkdir link; ln -s ../link meta/objects/l
              echo l/../../../victim/.git/objects > meta/objects/info/alternates"),
        ("", "git -C ../victim rev-parse main > meta/refs/heads/main; printf '# x\n\n../../../victim/./.git/objects' > meta/objects/info/alternates"),
        ("", "git -C ../victim rev-parse main > meta/refs/heads/main; echo '\"../../../victim/.git/objects\"' > meta/objects/info/alternates"),
        ("", "mkdir -p x/worktrees/w; echo 'gitdir: x/worktrees/w' > .git; echo 'ref: refs/heads/main' > x/worktrees/w/HEAD
              echo ../../../.git > x/worktrees/w/gitdir; echo ../../../../victim/.git > x/worktrees/w/commondir"),
        ("", "mkdir -p x/worktrees/w; echo 'gitdir: x/worktrees/w' > .git; echo 'ref: refs/heads/main' > x/worktrees/w/HEAD; echo ../.. > x/worktrees/w/commondir
              echo ../../../.git > x/worktrees/w/gitdir; cp meta/HEAD x; ln -s ../../victim/.git/objects ../../victim/.git/refs x"),
        ("", "mkdir -p x/worktrees/w; echo 'gitdir: x/worktrees/w' > .git; echo 'ref: refs/heads/main' > x/worktrees/w/HEAD; echo ../.. > x/worktrees/w/commondir
              echo ../../../.git > x/worktrees/w/gitdir; cp meta/HEAD x; echo ../../victim/.git > x/commondir"),
        ("", "echo 'gitdir: ../victim/.git' > .git"),
        ("", "rm .git; ln -s ../victim/.git .git"),
        ("", "rm .git; mv meta .git; git -C ../victim rev-parse main > .git/refs/heads/main; echo ../../../victim/.git/objects > .git/objects/info/alternates"),
        ("sub", "rm .git; ln -s ../victim/.git .git"),
        ("sub", "rm .git; mv meta .git; echo ../../victim/.git > .git/commondir"),
        ("sub", "rm .git; mv meta .git; rm -r .git/objects .git/refs; ln -s ../../victim/.git/objects ../../victim/.git/refs .git"),
        ("sub", "rm .git; mv meta .git; rm -r .git/refs; ln -s ../../victim/.git/refs .git; echo ../../../victim/.git/objects > .git/objects/info/alternates"),
        ("sub", "echo ../../victim/.git > meta/commondir; cp ../victim/.git/HEAD meta"),
    ];
    const LOOK: &str = "git log -p --all; git show; git cat-file --batch-all-objects --batch; cat .git/info/exclude .git/packed-refs; true";
    let notice_of = |directory: &str, way: &str| {
        let call = agent();
        let root = call.workspace().to_owned();
        bash(&root, &format!("{VICTIM}{META}mkdir sub; echo mine > sub/mine; {way}"));
        let done = call.current_dir(&root.join(directory)).args(["exec", "--", "sh", "-c", LOOK]).run();
        assert!(!done.stdout.contains("C4NARY"), "{way}: {}", done.stdout);
        done.stderr
    };
    for (directory, way) in ways {
        let notice = notice_of(directory, way);
        assert!(notice.contains("git does not work inside the sandbox"), "{way}: {notice}");
    }
    // What is left of this one is a repository without commits.
    let links = "rm -r meta/info; ln -s ../../victim/.git/info meta; git -C ../victim repack -qad; ln -s ../../victim/.git/packed-refs meta";
    notice_of("", links);
}

/// The subjects of the other repository's commits went to the endpoint, and its branch got a commit.
#[test]
fn attack_39_no_file_of_the_workspace_has_another_repository_committed_to() {
    let ways = [
        "echo ../../victim/.git > meta/commondir",
        "rm -r meta/objects meta/refs; ln -s ../../victim/.git/objects ../../victim/.git/refs meta",
        "rm -r meta/refs; ln -s ../../victim/.git/refs meta; echo ../../../victim/.git/objects > meta/objects/info/alternates",
        "echo 'gitdir: ../victim/.git' > .git",
        "rm .git; ln -s ../victim/.git .git",
        "rm .git; mv meta .git; echo ../../victim/.git > .git/commondir",
    ];
    for way in ways {
        let model = endpoint()
            .tool_call("run_commands", json!({ "command": "echo new > new.txt" }))
            .text("Done.")
            .text("Add new")
            .start();
        let call = agent().endpoint(&model);
        let root = call.workspace().to_owned();
        bash(
            &root,
            &format!(
                "{VICTIM}git config --file ../victim/.git/config user.name a; git config --file ../victim/.git/config user.email a; {META}{way}"
            ),
        );
        let done = call.args(["run", "go"]).run().expect_code(0);
        let refused = done.again().args(["apply", "--yes", "--commit", "-m", "x"]).run().expect_code(2);
        assert!(refused.stderr.contains("this repository is not committed to"), "{way}: {}", refused.stderr);
        for request in model.requests() {
            assert!(!request.body.to_string().contains("C4NARY"), "{way}");
        }
        bash(&root, "test $(git -C ../victim rev-list --all --count) = 1");
    }
}

/// Configures a program for every key of git that names one, and each of them marks that it ran. The files of the session are
/// apart from those that a filter is for.
const PROGRAMS: &str = r##"
marks=$PWD/../marks; mkdir -p "$marks/hooks"
mark() { printf '#!/bin/sh\ntouch "$0.ran"\nexit 1\n' > "$marks/$1"; chmod +x "$marks/$1"; }
git init -q -b main .; git config user.name a; git config user.email a@b; git config core.trustctime false; git config core.checkStat minimal
mkdir -p sub; echo 1 > other.txt; echo 2 > gone.txt; echo 'other.txt filter=x diff=x merge=x' > .gitattributes; echo 1 > sub/a
touch -d 2020-01-01 other.txt; git add .; git commit -qm first
for kind in 'PGP SIGNATURE' 'SSH SIGNATURE' 'SIGNED MESSAGE'; do
    commit=$(git cat-file commit HEAD | sed "s/^committer.*/&\ngpgsig -----BEGIN $kind-----\n \n iQ==\n -----END $kind-----/" | git hash-object -t commit -w --stdin)
    git update-ref HEAD "$(git commit-tree -p "$commit" -m "after $kind" 'HEAD^{tree}')"; done
git worktree add -q -b linked ../linked; echo staged > staged.txt; git add staged.txt; git update-index --split-index
for key in core.fsmonitor core.sshCommand core.pager core.editor core.askPass core.gitProxy core.alternateRefsCommand \
    gpg.program gpg.openpgp.program gpg.x509.program gpg.ssh.program gpg.ssh.defaultKeyCommand diff.external diff.x.command diff.x.textconv \
    filter.x.clean filter.x.smudge filter.x.process merge.x.driver mergetool.x.cmd difftool.x.cmd credential.helper \
    credential.https://example.com.helper sequence.editor interactive.diffFilter pager.log pager.config pager.rev-list browser.x.cmd \
    man.x.cmd uploadpack.packObjectsHook remote.origin.uploadpack remote.origin.receivepack trailer.x.command trailer.x.cmd tar.x.command \
    gc.recentObjectsHook sendemail.sendmailCmd imap.tunnel hook.x.command; do
    mark "${key//\//_}"; git config --add "$key" "$marks/${key//\//_}"; done
mark shell; for key in alias.log alias.config alias.rev-parse alias.rev-list alias.var submodule.x.update; do git config --add $key "!$marks/shell"; done
for event in reference-transaction post-index-change pre-commit; do git config --add hook.x.event $event; done
mark url; git config "url.ext::$marks/url .insteadOf" https://example.com/; git config protocol.ext.allow always; git config protocol.allow always
git config remote.origin.url "$PWD"; git config remote.origin.promisor true; git config extensions.partialClone origin
git config core.repositoryFormatVersion 1; git config log.showSignature true; git config commit.gpgSign true; git config gpg.ssh.allowedSignersFile /dev/null
git config core.untrackedCache true; git config fetch.recurseSubmodules true; git config rerere.enabled true
for hook in $(cd .git/hooks; ls) pre-commit post-commit commit-msg post-index-change reference-transaction post-checkout pre-auto-gc; do
    name=${hook%.sample}; mark "$name"; cp "$marks/$name" ".git/hooks/$name"; cp "$marks/$name" "$marks/hooks"; done
git config core.hooksPath "$marks/hooks"
mark included; printf '[core]\n\tfsmonitor = %s\n[gpg]\n\tprogram = %s\n' "$marks/included" "$marks/included" > ../included; git config include.path "$PWD/../included"
blob=$(git -c core.fsmonitor=false rev-parse HEAD:gone.txt); rm -f .git/objects/${blob%${blob#??}}/${blob#??}
touch -d 2020-01-01 .git/index; rm -f "$marks"/*.ran
"##;

/// `apply --commit` showed signatures of earlier commits to the program that the repository named, and its update of the index ran
/// a filter on a file that nobody changed.
#[test]
fn attack_40_nothing_that_a_repository_configures_runs_on_the_host() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo new > sub/new.txt" }))
        .text("Done.")
        .text("Done.")
        .start();
    let call = agent().endpoint(&model);
    let root = call.workspace().to_owned();
    let marks = root.with_file_name("marks");
    bash(&root, PROGRAMS);
    let nothing_ran = |step: &str| {
        let ran = fs::read_dir(&marks).expect("the marks").flatten().map(|entry| entry.file_name());
        let ran: Vec<_> = ran.filter(|name| name.to_string_lossy().ends_with(".ran")).collect();
        assert!(ran.is_empty(), "{step}: {ran:?}");
    };
    let first = call.args(["run", "--check", "test -e sub/new.txt", "go"]).run().expect_code(0);
    nothing_ran("run");
    for step in
        [&["diff"] as &[_], &["apply", "--yes"], &["undo"], &["apply", "--yes", "--commit", "-m", "Add new"]]
    {
        let done = first.again().args(step).run().expect_code(0);
        nothing_ran(&step.join(" "));
        assert!(step.len() < 3 || done.stderr.contains("hooks were not run"), "{}", done.stderr);
    }
    for place in ["sub", "../linked"] {
        let _done = first.again().args(["exec", "-C", place, "--", "git", "log"]).run();
        nothing_ran(place);
    }
    let task = json!({ "id": "a", "prompt": "go", "repo": root }).to_string();
    fs::write(root.with_file_name("tasks.jsonl"), task).expect("the tasks");
    let _done = first.again().args(["batch", "../tasks.jsonl", "--out", "../out"]).run();
    nothing_ran("batch");
}

/// The index of the user's has the files of the commit, and nothing else of it changed.
#[test]
fn attack_40_what_git_may_not_run_is_still_committed() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "printf 'a\\r\\n' > sub/new.txt" }))
        .text("Done.")
        .start();
    let call = agent().endpoint(&model);
    let root = call.workspace().to_owned();
    bash(&root, PROGRAMS);
    bash(&root, "git config core.autocrlf input");
    let done = call.args(["run", "go"]).run().expect_code(0);
    done.again().args(["apply", "--yes", "--commit", "-m", "Add new"]).run().expect_code(0);
    bash(
        &root,
        "git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c log.showSignature=false --no-pager \"$@\"; }
         test \"$(git show HEAD:sub/new.txt | od -c | head -1)\" = \"$(printf 'a\\n' | od -c | head -1)\"
         test \"$(git log -1 --format='%an %ae %s')\" = 'a a@b Add new'
         test \"$(git show --format= --name-only HEAD)\" = sub/new.txt
         test \"$(git diff --cached --name-only)\" = staged.txt
         git ls-files --error-unmatch other.txt gone.txt sub/new.txt >/dev/null",
    );
}

/// What an archive of a few kilobytes can have git unpack: a tree of ten directories in each of ten, ten levels deep, beside an index that
/// cannot be read, and a commit with a message of 300 MB.
const BOMBS: [&str; 2] = [
    "b=$(echo x | git hash-object -w --stdin); t=$(for n in $(seq 10); do printf '100644 blob %s\\t%s\\n' $b $n; done | git mktree)
     for i in $(seq 9); do t=$(for n in $(seq 10); do printf '040000 tree %s\\t%s\\n' $t $n; done | git mktree); done
     git update-ref refs/heads/main $(git commit-tree -m x $t); echo garbage > $(git rev-parse --git-dir)/index",
    "t=$(git mktree < /dev/null); { printf 'tree %s\\nauthor a <a@b> 1 +0000\\ncommitter a <a@b> 1 +0000\\n\\n' $t; head -c 300M /dev/zero | tr '\\0' a; } > c
     git update-ref refs/heads/main $(git hash-object -t commit -w c); rm c",
];

/// git of this machine took 2 GB and a minute for 24 kB, before the sandbox started and when a change was committed.
#[test]
fn attack_73_a_small_archive_makes_git_take_neither_memory_nor_time() {
    const MOST_KB: u64 = 330 << 10;
    for (bomb, is_outside) in BOMBS.iter().flat_map(|bomb| [(bomb, true), (bomb, false)]) {
        let model = endpoint()
            .tool_call("run_commands", json!({ "command": "echo new > new.txt" }))
            .text("Done.")
            .start();
        let call = agent().endpoint(&model);
        let root = call.workspace().to_owned();
        let begin = match is_outside {
            true => {
                "git init -q -b main m; mv m/.git meta; rmdir m; echo 'gitdir: meta' > .git; git config --file meta/config core.worktree ..; "
            }
            false => "git init -q -b main .; git config user.name a; git config user.email a@b; ",
        };
        bash(&root, &format!("{begin}{bomb}"));
        let git = metered_git(&root);
        let path = git.path();
        let done = call.env("PATH", &path).args(["run", "go"]).run().expect_code(0);
        let commit = ["apply", "--yes", "--commit", "-m", "x"];
        let committed = (!is_outside).then(|| done.again().env("PATH", &path).args(commit).run());
        let took = committed.map_or(done.took, |committed| done.took.max(committed.took));
        let most = git.most();
        assert!(most < MOST_KB, "{bomb}: {most} KiB");
        assert!(took < Duration::from_secs(55), "{bomb}: {took:?}");
    }
}
