//! `agent apply --branch`: commits of a sandbox that nobody trusts, as a branch of the user's repository.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use agent_testing::metered_git::metered_git;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A function of the shell that commits as somebody, without hooks.
const COMMIT: &str =
    "commit() { git -c user.name=a -c user.email=a@b -c core.hooksPath=/dev/null commit -q \"$@\"; }";
/// Makes the host's repository.
const ONE_COMMIT: &str = "git init -q -b main . && git add . && commit -m first";

/// The output of a script in a directory of the host.
#[track_caller]
fn host(directory: &Path, script: &str) -> String {
    let script = format!("{COMMIT}\n{script}");
    let output = Command::new("sh").args(["-ec", &script]).current_dir(directory).output().expect("a shell");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A session in `call`'s workspace whose sandbox ran `script`.
fn session(call: Agent, script: &str) -> Finished {
    session_with(call, &[], script)
}

fn session_with(call: Agent, options: &[&str], script: &str) -> Finished {
    let command = format!("set -e\n{COMMIT}\n{script}\necho it is done");
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let ran = call.endpoint(&model).args(["run"]).args(options).args(["commit it"]).run().expect_code(0);
    let result = model.last().messages().last().expect("a result")["content"].to_string();
    assert!(result.contains("it is done"), "{result}");
    ran
}

/// The same in a repository with one commit of `kept.txt`, which is returned too.
fn in_repository(script: &str) -> (Finished, PathBuf) {
    let call = agent().file("kept.txt", "1\n");
    let root = call.workspace().to_owned();
    host(&root, ONE_COMMIT);
    (session(call, script), root)
}

fn take(session: &Finished, branch: &str) -> Agent {
    session.again().args(["apply", "--json", &format!("--branch={branch}")])
}

#[track_caller]
fn refused(call: Agent, code: i32, why: &str) {
    let refused = call.run().expect_code(code);
    assert!(refused.stderr.contains(why), "{why}: {}", refused.stderr);
}

/// The host's repository has neither a branch nor a pack beside its own.
#[track_caller]
fn has_nothing_new(root: &Path) {
    assert_eq!(
        host(root, "git for-each-ref --format='%(refname)'; find .git/objects/pack -type f"),
        "refs/heads/main"
    );
}

const TWO_COMMITS: &str =
    "echo 2 > kept.txt && commit -am second && echo 3 > new.txt && git add . && commit -m third";

#[test]
fn what_was_committed_in_the_sandbox_becomes_a_branch_and_nothing_is_checked_out() {
    for pack in ["true", "git gc -q"] {
        let (ran, root) = in_repository(&format!("{TWO_COMMITS} && {pack}"));
        let taken = take(&ran, "work/agent").run().expect_code(0);
        let report: Value = serde_json::from_str(&taken.stdout).expect("JSON");
        assert_eq!((&report["commits"], &report["branch"]), (&json!(2), &json!("work/agent")), "{pack}");
        assert!(
            taken.stderr.contains("2 commits:\n") && taken.stderr.contains(" third\n"),
            "{}",
            taken.stderr
        );
        assert_eq!(host(&root, "git log --format=%s work/agent"), "third\nsecond\nfirst");
        assert_eq!(host(&root, "git show work/agent:new.txt; git rev-parse --abbrev-ref HEAD"), "3\nmain");
        assert_eq!(
            host(&root, "git status --short; git for-each-ref --format='%(refname)'; git fsck --strict"),
            "refs/heads/main\nrefs/heads/work/agent"
        );
        assert_eq!(ran.host_file("kept.txt").as_deref(), Some("1\n"));
        refused(
            take(&ran, "another"),
            2,
            "nothing was committed in the sandbox that your repository does not",
        );
    }
}

#[test]
fn only_a_new_branch_is_written_or_one_that_grows() {
    let (ran, root) = in_repository(TWO_COMMITS);
    for name in ["-x", "a..b", "a/", "../x", "HEAD", "a.lock", "a b", "@{-1}", "a//b", "/x", "x~1", ""] {
        refused(take(&ran, name), 2, "is not a valid name of a branch");
    }
    host(&root, "git branch packed && git pack-refs --all && git branch loose && git checkout -q -b other");
    host(
        &root,
        "commit --allow-empty -m mine && git checkout -q main && git worktree add -q ../linked -b linked",
    );
    let before = host(&root, "git for-each-ref");
    refused(take(&ran, "main"), 2, "the branch main is checked out");
    refused(take(&ran, "linked"), 2, "the branch linked is checked out");
    refused(take(&ran, "other"), 7, "the branch other exists and has other commits");
    refused(take(&ran, "packed/x"), 2, "another branch is in the way of packed/x");
    refused(take(&ran, "loose/x"), 2, "the branch loose/x cannot be written");
    assert_eq!(host(&root, "git for-each-ref"), before);
    assert_eq!(host(&root, "find .git -name '*.lock' -o -name 'tmp_*'"), "");
    take(&ran, "packed").run().expect_code(0);
    assert_eq!(host(&root, "git log -1 --format=%s packed"), "third");
}

#[test]
fn no_hook_and_no_program_of_a_configuration_is_run() {
    let inside = "printf '#!/bin/sh\ntouch ran' > .git/hooks/reference-transaction; chmod +x .git/hooks/reference-transaction; \
                  git config core.fsmonitor 'touch ran'; git config gpg.program 'touch ran'";
    let (ran, root) = in_repository(&format!("{TWO_COMMITS}; {inside}"));
    let mark = root.with_file_name("ran");
    let program = root.with_file_name("program");
    std::fs::write(&program, format!("#!/bin/sh\ntouch {}\nexit 0\n", mark.display())).expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let name = program.display();
    for hook in ["reference-transaction", "post-checkout", "pre-push", "post-rewrite", "pre-auto-gc"] {
        host(&root, &format!("cp {name} .git/hooks/{hook}"));
    }
    for key in [
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "gpg.program",
        "filter.f.smudge",
        "filter.f.clean",
    ] {
        host(&root, &format!("git config {key} {name}"));
    }
    host(&root, &format!("git config remote.origin.uploadpack {name}; git config log.showSignature true"));
    host(&root, "git config remote.origin.url /nowhere; git config extensions.partialClone origin");
    take(&ran, "agent").run().expect_code(0);
    assert!(!mark.exists() && !root.join("ran").exists());
}

/// Commits the tree or the commit that the script has written with plumbing.
const PLUMBING: &str = "as_commit() { printf 'tree %s\\nparent %s\\nauthor a <a@b> 1 +0000\\ncommitter a <a@b> 1 +0000\\n\\nx\\n' \
    $1 $2 | git hash-object -t commit -w --stdin; }; tip() { git rev-parse HEAD; }; file() { echo .git/objects/$(echo $1 | sed 's,..,&/,'); }";

#[test]
fn commits_that_would_do_more_than_write_files_are_refused() {
    let invalid = "git fsck --strict refuses them";
    for (script, why) in [
        ("ln -s /etc/passwd link && git add . && commit -m x", "link is a symlink that leads out"),
        (
            "ln -s .git/hooks link && git add . && commit -m x",
            "link is a symlink that leads into git's own directory",
        ),
        (
            "mkdir d && ln -s ../.GIT/config d/link && git add . && commit -m x && git rm -q d/link && commit -m y",
            "d/link is a symlink that leads into git's",
        ),
        (
            "ln -s ../../x link && git add . && commit -m x && git rm -q link && commit -m y",
            "link is a symlink",
        ),
        (
            "git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,sub && commit -m x",
            "sub is a submodule",
        ),
        (
            "mkdir -p sub/objects sub/refs; touch sub/objects/k sub/refs/k; echo 'ref: refs/heads/x' > sub/HEAD; git add . && commit -m x",
            "sub/HEAD is not written: git would take its directory for a repository",
        ),
        (
            "mkdir sub; echo 'ref: refs/heads/x' > sub/HEAD; echo '[core]' > sub/config; git add . && commit -m x",
            "sub/HEAD is not written: git would take its directory for a repository",
        ),
        ("t=$(printf '100644 blob %s\\t.GIT\\n' $b | git mktree)", invalid),
        (
            "s=$(printf '100755 blob %s\\tpost-checkout\\n' $b | git mktree); t=$(printf '040000 tree %s\\tgit~1\\n' $s | git mktree)",
            invalid,
        ),
        ("t=$(printf '100644 blob %s\\t..\\n' $b | git mktree)", invalid),
        ("t=$(printf '120000 blob %s\\t.gitmodules\\n' $b | git mktree)", invalid),
        (
            "m=$(printf '[submodule \"x\"]\\npath = x\\nurl = -u./x\\n' | git hash-object -w --stdin); t=$(printf '100644 blob %s\\t.gitmodules\\n' $m | git mktree)",
            invalid,
        ),
        ("t=$(printf '100644 blob %s\\ta\\n100644 blob %s\\ta\\n' $b $b | git mktree)", invalid),
    ] {
        let plumbing = format!(
            "{PLUMBING}\nb=$(echo kept.txt | git hash-object -w --stdin)\n{script}\n\
             if [ -n \"$t\" ]; then git update-ref HEAD $(as_commit $t $(tip)); fi"
        );
        let (ran, root) = in_repository(&plumbing);
        refused(take(&ran, "x"), 2, why);
        has_nothing_new(&root);
    }
}

/// A fixture of the user's own grows, and what git would obey in it is refused.
#[test]
fn a_repository_that_the_user_has_already_may_grow_but_for_its_settings() {
    let make = "mkdir -p fix/objects fix/refs; touch fix/objects/k fix/refs/k; echo 'ref: refs/heads/x' > fix/HEAD; git add .; commit -m fixture";
    for (script, why) in [
        ("echo 2 > fix/refs/k && commit -am grow", None),
        ("echo x > fix/config && git add . && commit -m settings", Some("fix: git would take it")),
    ] {
        let call = agent().file("kept.txt", "1\n");
        let root = call.workspace().to_owned();
        host(&root, &format!("{ONE_COMMIT}\n{make}"));
        let ran = session(call, script);
        match why {
            None => drop(take(&ran, "x").run().expect_code(0)),
            Some(why) => refused(take(&ran, "x"), 2, why),
        }
    }
}

#[test]
fn objects_that_are_missing_or_false_are_refused() {
    let unread = "git could not read the commits of the sandbox";
    for (script, why) in [
        // A file, a directory and a parent that are not there.
        ("echo 2 > kept.txt; commit -am x; rm -f $(file $(git rev-parse HEAD:kept.txt))", unread),
        ("mkdir d; echo 2 > d/x; git add .; commit -m x; rm -f $(file $(git rev-parse HEAD:d))", unread),
        (
            "git update-ref HEAD $(as_commit $(git rev-parse HEAD^{tree}) 1111111111111111111111111111111111111111)",
            unread,
        ),
        // One with the content of another.
        (
            "echo 2 > kept.txt; commit -am x; o=$(file $(git rev-parse HEAD:kept.txt)); rm -f $o; \
          cp $(file $(echo evil | git hash-object -w --stdin)) $o",
            "the commits of the sandbox",
        ),
        (
            "echo 2 > kept.txt; commit -am x; o=$(file $(git rev-parse HEAD^{tree})); b=$(git rev-parse HEAD:kept.txt); \
          t=$(printf '100644 blob %s\\tevil\\n' $b | git mktree); rm -f $o; cp $(file $t) $o",
            "the commits of the sandbox",
        ),
        ("echo 2 > kept.txt; commit -am x; o=$(file $(tip)); rm -f $o; echo x > $o", unread),
        (
            "echo 2 > kept.txt; commit -am x; echo x > .git/objects/pack/pack-1.pack",
            "a pack of the sandbox is not valid",
        ),
        // A reference that leads elsewhere, and one that leads nowhere.
        (
            "echo 2 > kept.txt; commit -am x; echo 'ref: ../../kept.txt' > .git/HEAD",
            "nothing was committed in the sandbox",
        ),
        (
            "echo 2 > kept.txt; commit -am x; echo 'ref: refs/heads/none' > .git/HEAD",
            "nothing was committed in the sandbox",
        ),
    ] {
        let (ran, root) = in_repository(&format!("{PLUMBING}\n{script}"));
        refused(take(&ran, "x"), 2, why);
        has_nothing_new(&root);
    }
}

/// A tree of 300 MB, and one of ten directories in each of ten directories, thirty levels deep.
#[test]
fn a_few_bytes_that_stand_for_many_are_refused() {
    let unread = "git could not read the commits of the sandbox";
    for (script, why) in [
        (
            "t=$(head -c 300000000 /dev/zero | git hash-object -t tree --literally -w --stdin); \
          git update-ref HEAD $(as_commit $t $(git rev-parse HEAD))",
            unread,
        ),
        (
            "t=$(git rev-parse HEAD^{tree}); for i in $(seq 30); do \
          t=$(for n in $(seq 10); do printf '040000 tree %s\\t%s\\n' $t $n; done | git mktree); done; \
          git update-ref HEAD $(as_commit $t $(git rev-parse HEAD))",
            unread,
        ),
    ] {
        let (ran, root) = in_repository(&format!("{PLUMBING}\n{script}"));
        refused(take(&ran, "x"), 2, why);
        has_nothing_new(&root);
    }
}

/// The bound on memory that refuses a tree of trees has room for the largest commit of a workspace.
#[test]
fn a_commit_of_many_files_is_taken_and_a_tree_that_stands_for_more_takes_little_memory() {
    let bomb = "t=$(git rev-parse HEAD^{tree}); for i in $(seq 30); do \
         t=$(for n in $(seq 10); do printf '040000 tree %s\\t%s\\n' $t $n; done | git mktree); done; \
         git update-ref HEAD $(as_commit $t $(git rev-parse HEAD))";
    let (ran, root) = in_repository(&format!("{PLUMBING}\n{bomb}"));
    let git = metered_git(&root);
    take(&ran, "x").env("PATH", git.path()).run().expect_code(2);
    assert!(git.most() < 160 << 10, "{} KiB", git.most());
    has_nothing_new(&root);
    // Made of objects alone, so that no sandbox has to hold the files.
    let many = "b=$(echo x | git hash-object -w --stdin)
        t=$(for n in $(seq 250); do printf '100644 blob %s\\ta-component-with-a-long-name-%s.module.tsx\\n' $b $n; done | git mktree)
        for part in nested-with-a-long-name feature-with-a-long-name; do t=$(printf '040000 tree %s\\t%s\\n' $t $part | git mktree); done
        kept=$(git rev-parse HEAD:kept.txt)
        t=$( (printf '100644 blob %s\\tkept.txt\\n' $kept; for n in $(seq 200); do printf '040000 tree %s\\tsome-organisation-package-%s\\n' $t $n; done) | git mktree)
        git update-ref HEAD $(as_commit $t $(git rev-parse HEAD))";
    let (ran, root) = in_repository(&format!("{PLUMBING}\n{many}"));
    take(&ran, "x").run().expect_code(0);
    assert_eq!(host(&root, "git ls-tree -r --name-only x | wc -l").trim(), "50001");
}

/// A repository that was unpacked from somebody's archive may name any directory as its own.
#[test]
fn a_repository_that_leads_elsewhere_gets_no_branch() {
    for (script, why) in [
        ("mv .git/refs ../refs && ln -s ../../refs .git/refs", "is a symlink"),
        ("mv .git/objects ../objects && ln -s ../../objects .git/objects", "is a symlink"),
        ("mv .git ../git && echo 'gitdir: ../git' > .git", "does not name this work tree"),
        (
            "mkdir ../victim && cp -r .git ../victim && echo ../../victim/.git > .git/commondir",
            "does not name this work tree",
        ),
        (
            "git init -q ../victim && echo ../../../victim/.git/objects > .git/objects/info/alternates",
            "its repository takes objects from",
        ),
    ] {
        let (ran, root) = in_repository(TWO_COMMITS);
        host(&root, script);
        refused(take(&ran, "x"), 2, why);
    }
}

#[test]
fn objects_of_another_repository_count_where_the_user_allows_them() {
    let call = agent();
    let root = call.workspace().to_owned();
    host(
        &root,
        &format!(
            "mkdir ../mirror && cd ../mirror && echo 1 > kept.txt && {ONE_COMMIT} && git clone -q --shared . ../workspace"
        ),
    );
    let setting = format!("git_object_stores = [{:?}]\n", root.with_file_name("mirror").display());
    let ran = session(call.config(&setting), "echo 2 > kept.txt && commit -am second");
    refused(take(&ran, "x").config(""), 2, "git_object_stores in config.toml");
    take(&ran, "x").config(&setting).run().expect_code(0);
    assert_eq!(host(&root, "git log --format=%s x; git fsck --strict"), "second\nfirst");
}

#[test]
fn a_linked_work_tree_gets_the_branch_in_its_repository() {
    let call = agent();
    let root = call.workspace().to_owned();
    host(
        &root,
        &format!(
            "mkdir ../first && cd ../first && echo 1 > kept.txt && {ONE_COMMIT} && git worktree add -q ../workspace -b linked"
        ),
    );
    let ran = session(call, "echo 2 > kept.txt && commit -am second");
    refused(take(&ran, "main"), 2, "the branch main is checked out");
    refused(take(&ran, "linked"), 2, "the branch linked is checked out");
    take(&ran, "x").run().expect_code(0);
    assert_eq!(host(&root, "cd ../first; git log --format=%s x; git fsck --strict"), "second\nfirst");
}

#[test]
fn the_user_is_asked_in_the_terminal_and_the_commits_are_shown_as_text() {
    let commit = "git -c user.name=a -c user.email=a@b commit -qam";
    let command = format!("echo 2 > kept.txt; {commit} \"$(printf 'red \\033[31m text')\"");
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = terminal().file("kept.txt", "1\n");
    host(&call.directory("workspace"), ONE_COMMIT);
    let mut terminal = call.again().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("commit it");
    terminal.wait_for("ok");
    terminal.wait_for_prompt();
    for (answer, said) in [("no", "nothing was written"), ("yes", "the branch agent has them")] {
        terminal.type_line("/apply --branch agent");
        terminal.wait_until("the question", |screen| {
            screen.trim_end().ends_with("Write them as the branch agent? [yes/no]")
        });
        terminal.type_line(answer);
        terminal.wait_for(said);
        terminal.wait_for_prompt();
    }
    assert!(
        terminal.screen().contains("1 commit:") && terminal.screen().contains("red"),
        "{}",
        terminal.screen()
    );
    let coloured = b"\x1b[31m text";
    assert!(!terminal.raw().windows(coloured.len()).any(|bytes| bytes == coloured), "the subject is text");
    assert_eq!(host(&call.directory("workspace"), "git log -1 --format=%an agent"), "a");
}

/// `git merge` overwrites an ignored file without a word.
#[test]
fn commits_that_would_overwrite_what_is_not_committed_are_refused() {
    let cases = [
        ("echo evil > .env && git add -f .env", ".env", ".env"),
        ("mkdir local.db && echo evil > local.db/x && git add -f local.db", "local.db", "local.db"),
        ("echo evil > cache && git add -f cache", "cache", "cache/a"),
        ("git rm -rq d && rm -rf d && echo evil > d && git add d", "d", "d/cache"),
    ];
    for (script, name, lost) in cases {
        let call =
            agent().file(".gitignore", ".env\nlocal.db\ncache\n").file("kept.txt", "1\n").file("d/x", "1\n");
        let root = call.workspace().to_owned();
        host(&root, ONE_COMMIT);
        host(
            &root,
            "echo mine > .env; echo mine > local.db; mkdir cache; echo mine > cache/a; echo mine > d/cache",
        );
        let ran = session(call, &format!("rm -rf local.db cache; {script} && commit -m third"));
        refused(
            take(&ran, "evil"),
            2,
            &format!("they write {name}, and you have {lost}, which is not committed"),
        );
        has_nothing_new(&root);
    }
    // What was let in all the same is ignored all the same.
    let call = agent().file(".gitignore", "*.db\n").file("kept.txt", "1\n");
    let root = call.workspace().to_owned();
    host(&root, &format!("{ONE_COMMIT}; echo mine > local.db"));
    let script = "cp local.db /tmp/mine && echo evil > local.db && git add -f local.db && commit -m third && cp /tmp/mine local.db";
    let ran = session_with(call, &["--include", "*.db"], script);
    refused(take(&ran, "evil"), 2, "they write local.db, and you have local.db");
    has_nothing_new(&root);
    // The rule that a merge goes by may be a later one of the user's, or come with the commits.
    let evil = "cp notes /tmp/notes && echo evil > notes && git add -f notes && commit -m third && cp /tmp/notes notes";
    let with_rule =
        format!("echo notes > .gitignore && git add .gitignore && commit -m rule && {evil} && rm .gitignore");
    for (script, later) in [(evil, "echo notes > .gitignore"), (&with_rule, "true")] {
        let call = agent().file("kept.txt", "1\n");
        let root = call.workspace().to_owned();
        host(&root, &format!("{ONE_COMMIT}; echo mine > notes"));
        let ran = session(call, script);
        host(&root, later);
        refused(take(&ran, "evil"), 2, "they write notes, and you have notes");
        has_nothing_new(&root);
    }
    // What the commits have as the user has it is not lost.
    let call = agent().file("kept.txt", "1\n");
    let root = call.workspace().to_owned();
    host(&root, &format!("{ONE_COMMIT}; echo mine > new.txt"));
    let ran = session(call, "git add new.txt && commit -m third");
    take(&ran, "new").run().expect_code(0);
    assert_eq!(host(&root, "git show new:new.txt"), "mine");
    // Nothing is below a symlink, which is committed.
    let call = agent().file("kept.txt", "1\n").file("real/f", "1\n");
    let root = call.workspace().to_owned();
    host(&root, &format!("ln -s real link; {ONE_COMMIT}"));
    let ran = session(call, "rm link && mkdir link && echo 2 > link/f && git add link && commit -m third");
    take(&ran, "new").run().expect_code(0);
    let (ran, root) = in_repository("echo SECRET=x > .env && git add -f .env && commit -m third");
    take(&ran, "new").run().expect_code(0);
    assert_eq!(host(&root, "git show new:.env"), "SECRET=x");
}

#[test]
fn files_that_others_execute_or_that_the_diff_does_not_have_are_named_below_the_commits() {
    let script = "mkdir .husky .vscode && echo x > .husky/pre-commit && echo x > .vscode/tasks.json && echo 2 > kept.txt && git add . \
                  && commit -m third && git rm -rq --cached .husky .vscode && rm -r .husky .vscode && commit -m fourth";
    let (ran, _) = in_repository(script);
    let taken = take(&ran, "work").run().expect_code(0).stderr;
    let risks = "Executed by other programs: .vscode/tasks.json (editor); .husky/pre-commit (git hook)\n";
    assert!(taken.contains(risks), "{taken}");
    let others = "Changed by the commits, and not in the diff: .husky/pre-commit, .vscode/tasks.json\n";
    assert!(taken.contains(others), "{taken}");
    let (ran, _) = in_repository("echo 2 > kept.txt && commit -am second && echo 3 > new.txt");
    let taken = take(&ran, "work").run().expect_code(0).stderr;
    assert!(taken.contains("In the diff, and not committed: new.txt\n"), "{taken}");
    let (ran, _) = in_repository(
        "git checkout -q -b feat && echo 2 > kept.txt && commit -am second && git checkout -q main",
    );
    refused(
        take(&ran, "work"),
        2,
        "on the branch that is checked out there\nhint: check out another one there: feat\n",
    );
}

/// Lines of a file, `1` to `9`.
const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

/// A workspace with two commits: the second one changes the first line of `f` and adds `new`.
fn with_two_commits() -> (Agent, PathBuf) {
    let call = agent().file("f", LINES).file("gone", "1\n").file("script", "1\n");
    let root = call.workspace().to_owned();
    host(&root, ONE_COMMIT);
    let second = "sed -i s/1/users/ f && echo 2 > new && ln -s f link && chmod +x script && git rm -q gone && git add . && commit -m second";
    host(&root, second);
    (call, root)
}

/// Makes the branch `side` beside the last commit.
const SIDE: &str = "git checkout -q -b side HEAD~1 && echo 3 > side && git add side && commit -m side && git checkout -q main";

/// Commits with the index of the commit before.
const STALE: &str = "git read-tree HEAD~1 && echo own > own && git add own && commit -m own";

/// A commit with the index of a former one takes back what was committed since, and a merge takes that over without a word.
#[test]
fn commits_that_would_take_back_what_the_user_committed_are_refused() {
    let stale = STALE;
    let all = "f, gone, link (removed), new (removed), script";
    let side = SIDE;
    let merge = "git merge -q --no-commit side && git read-tree HEAD~1 && git add side && commit -m merge";
    let crlf = "git config core.autocrlf true && rm f && git checkout -q f && grep -q \"$(printf '\\r')\" f";
    let filter = "git config filter.x.clean 'tr a-z A-Z' && git config filter.x.smudge 'tr A-Z a-z' && echo 'f filter=x' > .gitattributes && \
                  git add --renormalize . && git add . && commit -m third";
    let cases = [
        ("true", stale, "true", all),
        ("true", stale, "sed -i s/9/later/ f && commit -am later", all),
        ("true", stale, "sed -i s/9/later/ f", all),
        ("true", stale, "rm f", all),
        ("true", stale, "git mv f renamed && commit -m renamed", all),
        ("true", stale, "printf '\\0' > f", all),
        ("true", stale, "seq 5000000 > f && commit -am large", all),
        // What the session had committed and has not any more.
        (
            "true",
            "cp f /tmp/f && echo evil > f && git rm -q --cached new link && chmod -x script && commit -am evil && cp /tmp/f f && chmod +x script",
            "true",
            "f, link (removed), new (removed), script",
        ),
        // A mode beside other contents.
        (
            "true",
            "git update-index --chmod=-x script && commit -m mode && chmod +x script",
            "echo 2 > script && commit -am script",
            "script",
        ),
        // A merge without what one side has, and one that the user made too.
        (side, merge, "true", all),
        (
            side,
            merge,
            "git -c user.name=a -c user.email=a@b merge -q --no-edit side",
            "f, link (removed), new (removed), script",
        ),
        (
            side,
            "git -c user.name=a -c user.email=a@b merge -q --no-edit -s ours side",
            "true",
            "side (removed)",
        ),
        // git changes what it writes.
        (crlf, stale, "true", all),
        (crlf, stale, "sed -i s/9/later/ f", all),
        (crlf, stale, "sed -i s/9/later/ f && commit -am later", all),
        (
            filter,
            "git read-tree HEAD~2 && echo own > own && git add own && commit -m own",
            "true",
            ".gitattributes (removed), f, gone, link (removed), new (removed), script",
        ),
    ];
    for (before, script, later, names) in cases {
        let (call, root) = with_two_commits();
        host(&root, before);
        let ran = session(call, script);
        host(&root, later);
        let why = format!("to merge them would change what the session has not changed: {names}\n");
        refused(take(&ran, "work"), 2, &why);
        assert_eq!(host(&root, "git branch --list work"), "", "{script}, {later}");
    }
}

#[test]
fn what_commits_would_take_back_is_found_in_a_shallow_clone() {
    let call = agent();
    let root = call.workspace().to_owned();
    let origin = "git init -q -b main ../origin && cd ../origin && echo 1 > f && git add . && commit -m first && echo 2 > f && commit -am second";
    host(
        &root,
        &format!(
            "{origin} && cd - && git clone -q --depth 1 \"file://$(dirname \"$PWD\")/origin\" . && echo 3 > f && commit -am third"
        ),
    );
    let ran = session(call, STALE);
    refused(take(&ran, "work"), 2, "to merge them would change what the session has not changed: f\n");
}

/// Takes the commits of each script, where the user did something before and later.
#[track_caller]
fn pass(cases: &[(&str, &str, &str)]) {
    for (before, script, later) in cases {
        let (call, root) = with_two_commits();
        host(&root, before);
        let ran = session(call, script);
        host(&root, later);
        let taken = take(&ran, "work").run();
        assert_eq!(taken.code, 0, "{before}; {script}; {later}: {}", taken.stderr);
        assert_eq!(host(&root, "git log -1 --format=%s work | wc -l"), "1", "{script}");
    }
}

#[test]
fn commits_that_copy_or_merge_the_users_own_pass() {
    let cases = [
        // Copies of the user's own commits, and conflicts that are resolved to one side.
        (SIDE, "git checkout -q side && git -c user.name=a -c user.email=a@b rebase -q main", "true"),
        (
            SIDE,
            "git checkout -q side && git -c user.name=a -c user.email=a@b rebase -q main",
            "git checkout -q side",
        ),
        (
            SIDE,
            "git checkout -q -b clean && git -c user.name=a -c user.email=a@b cherry-pick side",
            "git checkout -q side",
        ),
        (
            SIDE,
            "git checkout -q -b clean && git merge -q --squash side && commit -m squashed",
            "git checkout -q side",
        ),
        (SIDE, "git checkout -q side && git rm -q side && commit -m removed", "true"),
        (
            "git checkout -q -b side HEAD~1 && sed -i s/1/theirs/ f && commit -am side && git checkout -q main",
            "git -c user.name=a -c user.email=a@b merge -q --no-edit -X ours side",
            "true",
        ),
        // Another branch of the user's.
        (
            "git checkout -q -b side HEAD~1 && echo 3 > side && git add side && commit -m side && git checkout -q main",
            "git -c user.name=a -c user.email=a@b merge -q --no-edit side && echo own > own && git add own && commit -m own",
            "sed -i s/9/later/ f && commit -am later",
        ),
    ];
    pass(&cases);
}

/// Edits that follow, what was applied already, other branches and reverts are allowed.
#[test]
fn commits_of_what_the_session_has_changed_pass_whatever_the_user_commits() {
    let own = "sed -i s/9/own/ f && commit -am own";
    let cases = [
        ("true", own, "sed -i s/users/later/ f && commit -am later"),
        ("true", own, "git checkout -q -b other HEAD~1"),
        ("true", "git -c user.name=a -c user.email=a@b revert --no-edit HEAD", "true"),
        ("true", "git checkout -q -b side HEAD~1 && echo own > own && git add own && commit -m own", "true"),
        ("true", "echo own > gone && git add gone && commit -m own", "true"),
        // The user's edits that were not committed, and went on.
        ("sed -i s/5/edit/ f", "echo own > own && git add . && commit -am own", "true"),
        ("sed -i s/5/edit/ f", "echo own > own && git add . && commit -am own", "sed -i s/edit/edited/ f"),
        (
            "sed -i s/5/edit/ f",
            "echo own > own && git add . && commit -am own",
            "sed -i s/9/more/ f && commit -am mine",
        ),
        (
            "rm new && ln -sf script link && chmod -x script",
            "echo own > own && git add . && commit -am own",
            "true",
        ),
        (
            "printf 'a\\0' > new",
            "echo own > own && git add . && commit -am own",
            "printf 'b\\0' > new && commit -am mine",
        ),
    ];
    pass(&cases);
    // What was applied, and changed after that.
    let (call, root) = with_two_commits();
    let ran = session(call, own);
    ran.again().args(["apply", "--yes"]).run().expect_code(0);
    host(&root, "commit -am applied && sed -i s/own/better/ f && commit -am better");
    take(&ran, "work").run().expect_code(0);
}
