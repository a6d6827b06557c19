//! Edits of the user's between the prompts of a session: the sandbox follows them, and none of them becomes a change of the session's.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::backends::program_on_every_backend;
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A session whose sandbox is kept between its prompts.
struct Kept {
    last: Finished,
    id: String,
    root: PathBuf,
}

impl Kept {
    /// Begins with a prompt that runs `command`, with `mode` as the workspace's.
    fn begin(call: Agent, mode: &str, command: &str) -> Self {
        let root = call.workspace().to_owned();
        let (last, _) = prompt(call, &["--keep", "--workspace-mode", mode], command);
        let id = last.events()[0]["session"].as_str().expect("an id").to_owned();
        Self { last, id, root }
    }

    /// The output of `command` in a further prompt.
    fn runs(&mut self, command: &str) -> String {
        let (last, output) = prompt(self.last.again(), &["--session", &self.id], command);
        self.last = last;
        output
    }

    fn agent(&self, arguments: &[&str]) -> Finished {
        self.last.again().args(arguments).run()
    }

    fn diff(&self) -> String {
        self.agent(&["diff", &self.id, "--name-only"]).expect_code(0).stdout
    }
}

fn prompt(call: Agent, arguments: &[&str], command: &str) -> (Finished, String) {
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("done").start();
    let done = call.endpoint(&model).args(["run", "--json", "go"]).args(arguments).run().expect_code(0);
    let output =
        model.last().messages().last().expect("a result")["content"].as_str().expect("text").to_owned();
    (done, output)
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.agent(&["sandbox", "rm", &self.id]));
    }
}

fn host(root: &Path, script: &str) {
    let script = format!(
        "export GIT_CONFIG_GLOBAL=/dev/null; git() {{ command git -c user.name=a -c user.email=a@b \"$@\"; }}; {script}"
    );
    let done = Command::new("bash").args(["-ec", &script]).current_dir(root).output().expect("bash");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

/// What could not be written into the sandbox counted as removed by the session, and an apply removed it on the host.
#[test]
fn what_the_sandbox_cannot_take_is_no_change_of_the_sessions() {
    let call = agent().file("src/x/g", "1\n").file("src/f", "1\n").file("d/f", "1\n").file("many/0", "0\n");
    let mut kept = Kept::begin(call, "copy", "echo own > src/own; mkdir -p many");
    host(
        &kept.root,
        "rm -r src; echo precious > src; echo 2 > d/f; for n in $(seq 700); do echo $n > many/$n; done",
    );
    let seen = kept.runs("cat d/f; ls many | wc -l");
    assert!(seen.contains("2\n701\n"), "{seen}");
    let applied = kept.agent(&["apply", &kept.id, "--yes"]);
    assert_eq!(
        fs::read_to_string(kept.root.join("src")).expect("the user's"),
        "precious\n",
        "{}",
        applied.stderr
    );
    assert_eq!(fs::read_to_string(kept.root.join("many/700")).expect("the user's"), "700\n");
    assert_eq!(fs::read_to_string(kept.root.join("d/f")).expect("the user's"), "2\n");
}

/// The same where it is the only edit, in more prompts than one, of files in a directory that the session closed.
#[test]
fn a_single_edit_that_the_sandbox_cannot_take_is_no_change_either() {
    for mode in ["copy", "overlay"] {
        let call = agent().file("src/f", "1\n").file("d/f", "1\n");
        let mut kept = Kept::begin(call, mode, "echo own > src/own; chmod 555 d");
        host(&kept.root, "rm -r src; echo precious > src; echo precious > d/new");
        for edit in ["true", "echo more > d/f"] {
            host(&kept.root, edit);
            kept.runs("ls -R");
            drop(kept.agent(&["apply", &kept.id, "--yes"]));
            let content = |name: &str| fs::read_to_string(kept.root.join(name)).unwrap_or_default();
            assert_eq!(
                (content("src"), content("d/new")),
                ("precious\n".into(), "precious\n".into()),
                "{mode}: {edit}"
            );
        }
        assert_eq!(fs::read_to_string(kept.root.join("d/f")).expect("the user's"), "more\n", "{mode}");
    }
}

/// What was written below a symlink of the session's went to where it leads.
#[test]
fn edits_below_what_the_session_made_a_symlink_are_not_followed() {
    let call = agent().file("d/x", "1\n").file("e/x", "1\n");
    let mut kept = Kept::begin(call, "copy", "rm -r d; ln -s e d");
    host(&kept.root, "rm d/x; echo 2 > d/new");
    let seen = kept.runs("cat e/x; ls e");
    assert!(seen.contains("1\nx\n") && !seen.contains("new"), "{seen}");
    drop(kept.agent(&["apply", &kept.id, "--yes"]));
    assert!(kept.root.join("e/x").exists());
}

/// Where an edit could not be taken, ignored files that came since were shown.
#[test]
fn secrets_among_ignored_files_are_hidden_whatever_else_fails() {
    let call = agent().file(".gitignore", "ign\n").file("d/f", "1\n2\n3\n").file("ign/a", "1\n");
    let mut kept = Kept::begin(call, "overlay", "sed -i s/3/own/ d/f; chmod 555 d");
    host(&kept.root, "sed -i s/1/theirs/ d/f; echo TOKEN=C4NARY > ign/.env");
    let seen = kept.runs("ls -A ign; cat ign/.env");
    assert!(!seen.contains("C4NARY") && seen.contains("a\n"), "{seen}");
}

/// Secrets below a directory that a process of the sandbox held counted as hidden, and were seen when it had ended.
#[test]
fn what_is_out_of_sight_when_it_is_to_be_hidden_is_hidden_later() {
    let hold = "(cd conf; setsid sh -c 'touch held; while ! [ -e /tmp/end ]; do sleep 0.1; done' >/dev/null 2>&1 &); \
                while ! [ -e conf/held ]; do sleep 0.1; done; rm conf/held; echo held";
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": hold }))
        .text("First.")
        .tool_call("run_commands", json!({ "command": "touch /tmp/end; sleep 1; echo ended" }))
        .text("Second.")
        .tool_call(
            "run_commands",
            json!({ "command": "ls -A conf ign; cat conf/.env ign/.env; echo looked" }),
        )
        .text("Third.")
        .start();
    let call =
        terminal().endpoint(&model).file(".gitignore", "ign/\n").file("conf/a", "1\n").file("ign/a", "1\n");
    let root = call.directory("workspace");
    host(&root, "git init -q .");
    let mut terminal = call.args(["--sandbox", "local", "--workspace-mode", "overlay"]).start();
    for answer in ["First.", "Second.", "Third."] {
        terminal.wait_for_prompt();
        terminal.type_line("go");
        terminal.wait_for(answer);
        if answer == "First." {
            host(
                &root,
                "rm -r conf; mkdir conf; echo 2 > conf/a; echo TOKEN=C4NARY > conf/.env; echo TOKEN=C4NARY > ign/.env",
            );
        }
    }
    terminal.wait_for_prompt();
    terminal.type_line("/exit");
    terminal.wait();
    let result = model.last().messages().iter().map(ToString::to_string).collect::<String>();
    assert!(result.contains("looked") && !result.contains("C4NARY"), "{result}");
}

/// An overlay goes on to show a file that was replaced, as editors and git do it, with its former content.
#[test]
fn a_file_that_is_replaced_is_followed_and_is_no_change() {
    program_on_every_backend(|name| {
        for mode in ["copy", "overlay"] {
            let call = agent()
                .sandbox(name)
                .file("f", "1\n")
                .file("g", "1\n")
                .file("gone", "1\n")
                .file("sub/h", "1\n");
            host(call.workspace(), "git init -q .; git add .; git commit -qm first");
            let mut kept = Kept::begin(call, mode, "cat f g gone sub/h; cat later; true");
            host(
                &kept.root,
                "echo 2 > x; mv x f; sed -i s/1/3/ g; rm gone; echo 4 > later; git checkout -qb other; sed -i s/1/5/ sub/h; git commit -qam second",
            );
            let seen = kept.runs("cat f g later sub/h; ls; git log --oneline | wc -l; git status --short");
            assert!(seen.contains("2\n3\n4\n5\nf\ng\nlater\nsub\n2\n?? later\n"), "{name}, {mode}: {seen}");
            host(&kept.root, "git stash -q; git checkout -q master 2>/dev/null || git checkout -q main");
            let seen = kept.runs("cat f g sub/h gone");
            assert!(seen.contains("1\n1\n1\n1\n"), "{name}, {mode}: {seen}");
            assert_eq!(kept.diff(), "", "{name}, {mode}");
        }
    });
}

/// An overlay could not list such a directory any more, and every further prompt failed.
#[test]
fn a_directory_that_is_replaced_or_removed_is_followed() {
    program_on_every_backend(|name| {
        for mode in ["copy", "overlay"] {
            let call =
                agent().sandbox(name).file("conf/c", "1\n").file("conf/sub/d", "1\n").file("kept", "1\n");
            let mut kept = Kept::begin(call, mode, "ls -R; cat conf/c conf/sub/d");
            host(&kept.root, "rm -r conf; mkdir conf; echo 2 > conf/c; echo 3 > conf/n");
            let seen = kept.runs("cat conf/c conf/n; ls -R");
            assert!(seen.contains("2\n3\n") && !seen.contains("sub"), "{name}, {mode}: {seen}");
            assert_eq!(kept.diff(), "", "{name}, {mode}");
            host(&kept.root, "rm -r conf; echo 4 > conf");
            let seen = kept.runs("cat conf; ls -R");
            assert!(seen.contains("4\n.:\nconf\nkept\n"), "{name}, {mode}: {seen}");
            host(&kept.root, "rm conf");
            assert!(kept.runs("ls -R").contains(".:\nkept\n"), "{name}, {mode}");
            assert_eq!(kept.diff(), "", "{name}, {mode}");
        }
    });
}

/// A fork began with the files of the host as they were then, and its first prompt with all that had become secret.
#[test]
fn a_fork_shows_no_secret_that_came_since_the_session_looked() {
    for mode in ["copy", "overlay"] {
        let call = agent().file("f", "1\n").file(".npmrc", "registry=https://r/\n");
        host(call.workspace(), "git init -q .; git add f; git commit -qm first");
        let kept = Kept::begin(call, mode, "echo own > own");
        host(
            &kept.root,
            "echo '//r/:_authToken=C4NARY' >> .npmrc; mkdir sub; echo TOKEN=C4NARY > sub/.env; git config http.extraheader C4NARY",
        );
        let forked = kept.agent(&["fork", &kept.id]).expect_code(0);
        let id = forked.stdout.trim().to_owned();
        let (_, seen) = prompt(kept.last.again(), &["--session", &id], "cat own; grep -rh C4NARY . ; true");
        drop(kept.agent(&["sandbox", "rm", &id]));
        assert!(seen.contains("own\n") && !seen.contains("C4NARY"), "{mode}: {seen}");
    }
}

/// They stayed inside, empty; and a look at a repository with a submodule inside ended that it followed the host's.
#[test]
fn removed_directories_and_commits_beside_submodules_are_followed() {
    let call = agent().file("a/b/c", "1\n").file("kept", "1\n");
    host(
        call.workspace(),
        "git init -q ../lib; (cd ../lib; echo 1 > l; git add l; git commit -qm lib); git init -q .; git add .; \
         git -c protocol.file.allow=always submodule --quiet add ../lib lib; git commit -qm first",
    );
    let mut kept = Kept::begin(call, "copy", "git status --short; git -C lib status --short");
    host(&kept.root, "git rm -rq a; rm -rf a; git commit -qm second");
    let seen = kept.runs("ls; git log --oneline | wc -l; git status --short");
    assert!(seen.contains("kept\nlib\n2\n") && !seen.contains(" D") && !seen.contains("??"), "{seen}");
    assert_eq!(kept.diff(), "");
}

/// A file that has lost its secret comes back, and files of work trees inside of a bare repository were never left out.
#[test]
fn what_is_no_secret_any_more_comes_back() {
    let call = agent().file(".npmrc", "registry=https://r/\n").file("a", "1\n");
    host(
        call.workspace(),
        "git init -q ../seed; (cd ../seed; mkdir src; echo 1 > src/a.c; git add .; git commit -qm seed); git clone -q --bare ../seed proj.git; \
         git -C proj.git worktree add -q wt",
    );
    let mut kept = Kept::begin(call, "copy", "true");
    host(
        &kept.root,
        "echo '//r/:_authToken=C4NARY' >> .npmrc; git -C proj.git config http.extraheader C4NARY",
    );
    let seen = kept.runs("ls -A; cat proj.git/wt/src/a.c; cat proj.git/config");
    assert!(!seen.contains(".npmrc\n") && !seen.contains("C4NARY") && seen.contains("1\n"), "{seen}");
    host(&kept.root, "echo registry=https://r/ > .npmrc");
    assert!(kept.runs("cat .npmrc").contains("registry"));
}

/// A command to which an overlay shows files as they were before the user replaced and committed them took that back with its own commit, on top
/// of the user's.
#[test]
fn commits_take_back_nothing_of_what_the_user_committed_meanwhile() {
    program_on_every_backend(|name| {
        let call =
            agent().sandbox(name).file("f", "1\n").file("g", "1\n").file("gone", "1\n").file("h", "1\n");
        let root = call.workspace().to_owned();
        host(&root, "git init -q .; ln -s f link; git add .; git commit -qm first; git pack-refs --all");
        let edited = root.clone();
        let model = endpoint()
            .by_rule(move |request| {
                let messages = request["messages"].as_array().map_or(0, Vec::len);
                let command = match messages {
                    0..=2 => {
                        "cat f g gone; readlink link; git log --oneline; setsid sh -c 'exec 9<f; touch /tmp/held; sleep 60' \
                         >/dev/null 2>&1 & while ! [ -e /tmp/held ]; do sleep 0.1; done"
                    }
                    3 | 4 => {
                        host(
                            &edited,
                            "echo 2 > new; mv new f; ln -s g new; mv -T new link; git rm -q gone; git commit -qam users; \
                             echo 2 >> h; git commit -qam more; echo 3 >> f",
                        );
                        // The next record shows the sandbox what has changed, but for what is held open.
                        "sleep 1"
                    }
                    5 | 6 => {
                        "echo 2 > g; git add -A; git -c user.name=a -c user.email=a@b commit -qm own; git log --oneline | wc -l"
                    }
                    _ => return endpoint().text("done"),
                };
                endpoint().tool_call("run_commands", json!({ "command": command }))
            })
            .start();
        let arguments = ["run", "--json", "--keep", "--workspace-mode", "overlay", "go"];
        let done = call.endpoint(&model).args(arguments).run().expect_code(0);
        let id = done.events()[0]["session"].as_str().expect("an id").to_owned();
        let applied = done.again().args(["apply", &id, "--yes", "--branch", "own"]).run();
        drop(done.again().args(["sandbox", "rm", &id]).run());
        let output = model.last().messages().last().expect("a result")["content"].to_string();
        assert!(output.contains("2\\n"), "on {name}: {output}");
        applied.expect_code(0);
        host(&root, "git stash -q; git merge -q --no-edit own; git stash pop -q");
        let found =
            Command::new("sh").args(["-c", "cat f g h; readlink link; ls"]).current_dir(&root).output();
        let found = String::from_utf8(found.expect("a shell").stdout).expect("text");
        assert_eq!(found, "2\n3\n2\n1\n2\ng\nf\ng\nh\nlink\n", "on {name}");
    });
}

/// A directory that a process of the sandbox held while the user replaced it ended each prompt with an error.
#[test]
fn a_directory_that_is_held_while_it_is_replaced_is_followed_later() {
    let hold = "cd conf; setsid sh -c 'touch /tmp/held; while ! [ -e /tmp/end ]; do sleep 0.1; done; rm /tmp/held' \
                >/dev/null 2>&1 & while ! [ -e /tmp/held ]; do sleep 0.1; done";
    let call = agent().file("conf/a", "1\n").file("conf/sub/b", "1\n").file("kept", "1\n");
    let mut kept = Kept::begin(call, "overlay", hold);
    host(&kept.root, "mv conf was; cp -r was conf; rm -r was; echo 2 > conf/a; echo 2 > kept");
    let seen = kept.runs("cat kept");
    assert!(seen.contains("2\n"), "{seen}");
    assert_eq!(kept.diff(), "");
    kept.runs("touch /tmp/end; while [ -e /tmp/held ]; do sleep 0.1; done");
    let seen = kept.runs("cat conf/a conf/sub/b");
    assert!(seen.contains("2\n1\n"), "{seen}");
    assert_eq!(kept.diff(), "");
    drop(kept.agent(&["apply", &kept.id, "--yes"]));
    assert_eq!(fs::read_to_string(kept.root.join("conf/a")).expect("the user's"), "2\n");
}

/// Where a directory above was closed, what came below it counted as absent, and was seen once the directory was open again.
#[test]
fn secrets_below_directories_that_the_session_closed_are_hidden() {
    program_on_every_backend(|name| {
        let files = ["conf/in/app", "ign/a/b/x"];
        let call = files.iter().fold(agent().sandbox(name), |call, file| call.file(file, "1\n"));
        let call = call.file(".gitignore", "ign/\n");
        host(call.workspace(), "git init -q .; git add .; git commit -qm first");
        let mut kept = Kept::begin(call, "overlay", "chmod 000 conf ign/a");
        host(&kept.root, "echo K=C4NARY > conf/in/.env.production; echo K=C4NARY > ign/a/b/.env");
        for _ in 0..2 {
            let seen = kept.runs("chmod 755 conf ign/a; ls -A conf/in; cat conf/in/.env* ign/a/b/.env; true");
            assert!(seen.contains("app\n") && !seen.contains("C4NARY"), "on {name}: {seen}");
        }
    });
}

/// What was out of sight once was known to the next process as hidden, and within a prompt it came into sight.
#[test]
fn what_was_out_of_sight_is_hidden_by_other_processes_and_within_a_prompt() {
    let hold = "for d in ign/sub conf; do (cd $d; setsid sh -c 'touch /tmp/held-$$; while ! [ -e /tmp/end ]; do sleep 0.1; done; \
                touch /tmp/ended-$$' >/dev/null 2>&1 &) ; done; while [ $(ls /tmp/held-* | wc -l) != 2 ]; do sleep 0.1; done";
    for is_within in [false, true] {
        let call = agent().file(".gitignore", "ign/\n").file("conf/app", "1\n").file("ign/sub/a", "1\n");
        host(call.workspace(), "git init -q .; git add .; git commit -qm first");
        let mut kept = Kept::begin(call, "overlay", hold);
        host(
            &kept.root,
            "mv ign/sub ign/old; cp -r ign/old ign/sub; mv conf ../was; cp -r ../was conf; \
             echo K=C4NARY > ign/sub/.env; echo K=C4NARY > conf/.env.production",
        );
        let end = "touch /tmp/end; while [ $(ls /tmp/ended-* | wc -l) != 2 ]; do sleep 0.1; done";
        let look = "ls -A conf ign/sub; cat conf/.env.production ign/sub/.env; echo looked";
        let seen = match is_within {
            false => {
                kept.runs(end);
                kept.runs(look)
            }
            true => {
                let commands = [end, "sleep 1", "sleep 1", look];
                let call = |model: agent_testing::endpoint::Script, command: &&str| {
                    model.tool_call("run_commands", json!({ "command": command }))
                };
                let model = commands.iter().fold(endpoint(), call).text("done").start();
                let call = kept.last.again().endpoint(&model);
                kept.last = call.args(["run", "--json", "--session", &kept.id, "go"]).run().expect_code(0);
                model.last().messages().last().expect("a result")["content"].to_string()
            }
        };
        assert!(seen.contains("looked") && !seen.contains("C4NARY"), "{is_within}: {seen}");
    }
}

/// What the session had written in it was overwritten, as if it had been the user's.
#[test]
fn what_the_session_wrote_in_a_directory_that_is_held_and_replaced_stays() {
    let hold = "cd conf; setsid sh -c 'touch /tmp/held; while ! [ -e /tmp/end ]; do sleep 0.1; done' >/dev/null 2>&1 & \
                while ! [ -e /tmp/held ]; do sleep 0.1; done; cat conf/*";
    let call = agent().file("conf/c", "1\n2\n3\n").file("conf/d", "1\n2\n3\n");
    let root = call.workspace().to_owned();
    host(&root, "git init -q .; git add .; git commit -qm first");
    let edited = root.clone();
    let model = endpoint()
        .by_rule(move |request| {
            let command = match request["messages"].as_array().map_or(0, Vec::len) {
                0..=2 => hold,
                3 | 4 => {
                    host(&edited, "cp -r conf new; rm -r conf; mv new conf; sed -i s/1/users/ conf/c");
                    "echo own >> conf/d"
                }
                _ => return endpoint().text("done"),
            };
            endpoint().tool_call("run_commands", json!({ "command": command }))
        })
        .start();
    let arguments = ["run", "--json", "--keep", "--workspace-mode", "overlay", "go"];
    let last = call.endpoint(&model).args(arguments).run().expect_code(0);
    let id = last.events()[0]["session"].as_str().expect("an id").to_owned();
    let mut kept = Kept { last, id, root };
    let seen = kept.runs("cat conf/d; touch /tmp/end; sleep 0.5");
    assert!(seen.contains("own\n"), "{seen}");
    assert!(kept.runs("cat conf/c conf/d").contains("users\n2\n3\n1\n2\n3\nown\n"));
}

/// Secrets were shown that came back to where they had been, or where the session had a file of its own that it removed.
#[test]
fn secrets_that_come_back_are_hidden_again() {
    let call = agent().file("conf/d/.env.local", "K=C4NARY\n").file("conf/d/a", "1\n").file("b", "1\n");
    host(call.workspace(), "git init -q .; git add b conf/d/a; git commit -qm first");
    let command = "echo mine > .env.production; mkdir -p own; (setsid sh -c 'sleep 1; rm .env.production' >/dev/null 2>&1 &)";
    let mut kept = Kept::begin(call, "overlay", command);
    host(&kept.root, "sleep 1.5; echo K=C4NARY > .env.production; mv conf ../was");
    kept.runs("ls -A");
    host(&kept.root, "mv ../was conf");
    for _ in 0..2 {
        let seen = kept.runs("ls -A . conf/d; cat conf/d/.env.local .env.production; true");
        assert!(seen.contains("a\n") && !seen.contains("C4NARY"), "{seen}");
    }
}

/// A tag or a stash of the session's kept the branch where it was, while files followed the user.
#[test]
fn branches_are_followed_after_a_tag_or_a_stash_of_the_sessions() {
    for mode in ["copy", "overlay"] {
        let call = agent().file("f", "1\n").file("g", "1\n");
        host(
            call.workspace(),
            "git init -q .; git add .; git commit -qm first; git branch old; echo 2 >> f; git commit -qam second",
        );
        let mut kept = Kept::begin(call, mode, "git tag t1; git tag -l");
        host(&kept.root, "git checkout -q old");
        let seen = kept.runs("git status --short --branch; git tag -l; cat f");
        assert!(seen.contains("## old\nt1\n1\n"), "{mode}: {seen}");
    }
}

/// What a session had staged was restored with the index of the user's former commit, and its next commit took the present one back.
#[test]
fn staged_files_of_a_sandbox_that_is_gone_take_back_nothing_of_the_users() {
    program_on_every_backend(|name| {
        for mode in ["copy", "overlay"] {
            let call = agent().sandbox(name).file("f", "1\n").file("g", "1\n");
            host(call.workspace(), "git init -q .; git add .; git commit -qm first");
            let mut kept = Kept::begin(call, mode, "git config user.name b; echo own > p; git add p");
            kept.agent(&["sandbox", "rm", &kept.id]).expect_code(0);
            host(&kept.root, "echo 2 > f; echo 2 > new; git add new; git commit -qam users");
            // Once more without a new commit of the user's.
            kept.runs("true");
            drop(kept.agent(&["sandbox", "rm", &kept.id]));
            kept.runs("git add p; git -c user.name=a -c user.email=a@b commit -qm own; git status --short");
            kept.agent(&["apply", &kept.id, "--yes", "--branch", "own"]).expect_code(0);
            host(&kept.root, "git merge -q --no-edit own");
            for (file, content) in [("f", "2\n"), ("new", "2\n"), ("p", "own\n")] {
                let found = fs::read_to_string(kept.root.join(file)).expect("a file");
                assert_eq!(found, content, "{name}, {mode}: {file}");
            }
        }
    });
}

/// The branch is followed where a directory that a process of the sandbox holds cannot be: a commit would remove what is in it.
#[test]
fn commits_beside_a_directory_that_is_held_take_back_nothing_of_the_users() {
    program_on_every_backend(|name| {
        let hold = "cd conf; setsid sh -c 'touch /tmp/held; sleep 600' >/dev/null 2>&1 & \
                    while ! [ -e /tmp/held ]; do sleep 0.1; done";
        let call = agent().sandbox(name).file("conf/a", "1\n").file("conf/sub/b", "1\n").file("kept", "1\n");
        host(call.workspace(), "git init -q .; git add .; git commit -qm first");
        let mut kept = Kept::begin(call, "overlay", hold);
        host(&kept.root, "cp -r conf new; rm -r conf; mv new conf; echo 2 > conf/a; git commit -qam users");
        kept.runs("echo own > own; git add -A; git -c user.name=a -c user.email=a@b commit -qam own");
        let applied = kept.agent(&["apply", &kept.id, "--yes", "--branch", "own"]);
        assert!(
            applied.code == 0 || applied.stderr.contains("has not changed: "),
            "{name}: {}",
            applied.stderr
        );
        host(&kept.root, "git merge -q --no-edit own || true");
        for (file, content) in [("conf/a", "2\n"), ("conf/sub/b", "1\n")] {
            let found = fs::read_to_string(kept.root.join(file)).unwrap_or_default();
            assert_eq!(found, content, "on {name}: {file}: {}", applied.stderr);
        }
    });
}

/// A merge that the user begins while a command runs is seen there, and the files that it brings may not be.
#[test]
fn a_merge_of_the_users_that_a_commit_concludes_loses_nothing() {
    program_on_every_backend(|name| {
        let call = agent().sandbox(name).file("f", "1\n").file("g", "1\n");
        let root = call.workspace().to_owned();
        host(
            &root,
            "git init -q .; git add .; git commit -qm first; git checkout -qb side; echo 2 > f; echo 2 > new; git add .; \
             git commit -qm side; git checkout -q -; echo 3 > g; git commit -qam main",
        );
        let edited = root.clone();
        let model = endpoint()
            .by_rule(move |request| {
                let command = match request["messages"].as_array().map_or(0, Vec::len) {
                    0..=2 => {
                        "cat f g; ls; setsid sh -c 'exec 9<f; touch /tmp/held; sleep 60' >/dev/null 2>&1 & \
                              while ! [ -e /tmp/held ]; do sleep 0.1; done"
                    }
                    3 | 4 => {
                        host(&edited, "git merge -q --no-commit --no-ff side");
                        "echo own > own; git add own; git -c user.name=a -c user.email=a@b commit -qam own"
                    }
                    _ => return endpoint().text("done"),
                };
                endpoint().tool_call("run_commands", json!({ "command": command }))
            })
            .start();
        let arguments = ["run", "--json", "--keep", "--workspace-mode", "overlay", "go"];
        let done = call.endpoint(&model).args(arguments).run().expect_code(0);
        let id = done.events()[0]["session"].as_str().expect("an id").to_owned();
        host(&root, "git commit -qm merged");
        let applied = done.again().args(["apply", &id, "--yes", "--branch", "own"]).run();
        drop(done.again().args(["sandbox", "rm", &id]).run());
        assert!(
            applied.code == 0 || applied.stderr.contains("has not changed: "),
            "{name}: {}",
            applied.stderr
        );
        host(&root, "git merge -q --no-edit own || true");
        for (file, content) in [("f", "2\n"), ("g", "3\n"), ("new", "2\n")] {
            let found = fs::read_to_string(root.join(file)).unwrap_or_default();
            assert_eq!(found, content, "on {name}: {file}: {}", applied.stderr);
        }
    });
}

/// `agent apply` merged such an edit on the host alone, and what the sandbox went on to have took it back.
#[test]
fn an_edit_that_an_apply_merges_reaches_the_sandbox_that_runs_on() {
    program_on_every_backend(|name| {
        for mode in ["copy", "overlay"] {
            let call = agent().sandbox(name).file("f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
            let mut kept = Kept::begin(call, mode, "sed -i s/9/own/ f; cp f /tmp/f; echo own > g");
            host(&kept.root, "sed -i s/1/users/ f");
            kept.agent(&["apply", &kept.id, "--yes", "f"]).expect_code(0);
            let forked = kept.agent(&["fork", &kept.id]).expect_code(0).stdout.trim().to_owned();
            let (_, seen) = prompt(kept.last.again(), &["--session", &forked], "cat f; echo more > g");
            drop(kept.agent(&["sandbox", "rm", &forked]));
            assert!(seen.contains("users\n2") && seen.contains("8\nown\n"), "{name}, {mode}, a fork: {seen}");
            let seen = kept.runs("cat f; echo more > g");
            assert!(seen.contains("users\n2") && seen.contains("8\nown\n"), "{name}, {mode}: {seen}");
            assert_eq!(kept.diff(), "g\n", "{name}, {mode}");
        }
    });
}

/// The branch followed the user where the files could not, and the next commit took back what the user had committed.
#[test]
fn the_branch_stays_where_the_sandbox_keeps_its_own_of_a_file() {
    let conflicts = [
        ("sed -i s/5/own/ f", "sed -i 's/5/users/; s/1/more/' f", "true"),
        ("rm f", "sed -i s/1/users/ f", "true"),
        ("git mv f h", "sed -i s/1/users/ f", "true"),
        ("rm f; mkdir f; echo own > f/own", "sed -i s/1/users/ f", "true"),
        ("echo own > new", "echo users > new; git add new", "true"),
        ("sed -i s/5/own/ f", "git rm -q f", "true"),
        ("printf 'own\\0' > f", "printf 'users\\0' > f", "true"),
        (
            "sed -i s/5/own/ f",
            "sed -i s/5/users/ f",
            "echo later > later; git add later; git commit -qam later",
        ),
    ];
    for mode in ["copy", "overlay"] {
        for (own, users, later) in conflicts {
            let call = agent().file("f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n").file("g", "1\n");
            host(call.workspace(), "git init -q .; git add .; git commit -qm first");
            let mut kept = Kept::begin(call, mode, own);
            host(&kept.root, &format!("{users}; git commit -qam users"));
            kept.runs("true");
            host(&kept.root, later);
            kept.runs("git add -A; git -c user.name=a -c user.email=a@b commit -qm own");
            kept.agent(&["apply", &kept.id, "--yes", "--branch", "own"]).expect_code(0);
            let merge =
                "git -c user.name=a -c user.email=a@b merge -q --no-edit own; git ls-files -u; grep users h";
            let unmerged = Command::new("sh").args(["-c", merge]).current_dir(&kept.root).output();
            let unmerged = unmerged.expect("a shell").stdout;
            assert!(!unmerged.is_empty(), "{mode}: {own}; {users}; {later}");
        }
    }
}

/// Each prompt ended with an error as long as the process ran.
#[test]
fn a_held_directory_that_the_user_renames_ends_no_prompt() {
    let call = agent().file("d/x", "1\n").file("f", "1\n");
    let hold = "cd d; setsid sh -c 'touch /tmp/held; sleep 600' >/dev/null 2>&1 & while ! [ -e /tmp/held ]; do sleep 0.1; done";
    let mut kept = Kept::begin(call, "overlay", hold);
    host(&kept.root, "echo K=C4NARY > d/.env");
    kept.runs("ls -A d");
    host(&kept.root, "mv d dd; echo 2 > f");
    for _ in 0..2 {
        let seen = kept.runs("cat f; ls -A . dd; cat dd/.env");
        assert!(seen.contains("2\n") && !seen.contains("C4NARY"), "{seen}");
    }
}

/// What is run in a kept sandbox by hand had the file from before.
#[test]
fn a_command_in_a_kept_sandbox_has_what_an_apply_has_merged() {
    for mode in ["copy", "overlay"] {
        let call = agent().file("f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        let kept = Kept::begin(call, mode, "sed -i s/9/own/ f");
        host(&kept.root, "sed -i s/1/users/ f");
        kept.agent(&["apply", &kept.id, "--yes"]).expect_code(0);
        let seen = kept.agent(&["exec", "--session", &kept.id, "--", "cat", "f"]).expect_code(0);
        assert!(
            seen.stdout.starts_with("users\n2\n") && seen.stdout.ends_with("8\nown\n"),
            "{mode}: {}",
            seen.stdout
        );
    }
}

/// The merged file was written into the sandbox before it was judged.
#[test]
fn an_apply_merges_no_secret_into_the_sandbox() {
    for mode in ["copy", "overlay"] {
        let lines: String = (0..20).map(|n| format!("a{n}=1\n")).collect();
        let call = agent().file(".npmrc", &lines);
        let mut kept = Kept::begin(call, mode, "sed -i s/a15=1/a15=2/ .npmrc");
        host(
            &kept.root,
            "echo '//registry.npmjs.org/:_authToken=npm_C4NARYC4NARYC4NARYC4NARYC4NARYC4NARY' >> .npmrc",
        );
        let applied = kept.agent(&["apply", &kept.id, "--yes"]);
        let seen = kept.runs("cat .npmrc; true");
        assert!(!seen.contains("C4NARY"), "{mode}: {seen}");
        assert!(fs::read_to_string(kept.root.join(".npmrc")).expect("it").contains("C4NARY"));
        let applied = applied.expect_code(7);
        assert!(
            applied.stderr.contains("the sandbox is not to see what you have there now: .npmrc"),
            "{}",
            applied.stderr
        );
    }
}

/// In one process, the repository was broken once the branch was followed again.
#[test]
fn the_branch_is_followed_again_when_the_conflict_is_over() {
    let inside = "git log --oneline | wc -l; git fsck; git status --short";
    let changed = ("sed -i s/5/own/ f", "sed -i s/5/users/ f", "sed -i s/own/users/ f");
    let added = ("echo own > new", "echo users > new; git add new", "echo users > new");
    for (mode, (own, users, resolve)) in
        [("copy", changed), ("copy", added), ("overlay", changed), ("overlay", added)]
    {
        let answers = ["First.", "Second.", "Third.", "Fourth."];
        let commands = [own, inside, resolve, inside];
        let script = answers.iter().zip(commands).fold(endpoint(), |model, (answer, command)| {
            model.tool_call("run_commands", json!({ "command": command })).text(answer)
        });
        let model = script.start();
        let call = terminal().endpoint(&model).file("f", "1\n5\n").file("g", "1\n");
        let root = call.directory("workspace");
        host(&root, "git init -q .; git add .; git commit -qm first");
        let mut terminal = call.args(["--sandbox", "local", "--workspace-mode", mode]).start();
        for answer in answers {
            terminal.wait_for_prompt();
            terminal.type_line("go");
            terminal.wait_for(answer);
            match answer {
                "First." => host(&root, &format!("{users}; echo 2 > g; git commit -qam users")),
                "Second." => host(&root, "echo 3 > g; git commit -qam more; git gc -q"),
                _ => {}
            }
        }
        terminal.wait_for_prompt();
        terminal.type_line("/exit");
        terminal.wait();
        let results: Vec<String> = (model.last().messages().iter())
            .filter(|message| message["role"] == "tool")
            .map(|message| message["content"].to_string())
            .collect();
        assert!(results[1].contains(" s\\n1\\n"), "{mode}: {results:?}");
        assert!(results[3].contains(" s\\n3\\n") && !results[3].contains("error"), "{mode}: {results:?}");
        assert!(!results[3].contains(" M "), "{mode}: {results:?}");
    }
}

/// Files followed the user to another branch, and a commit of all of them on the former one passed as long as the other one was checked out.
#[test]
fn commits_have_nothing_of_a_branch_that_the_user_checked_out_meanwhile() {
    for mode in ["copy", "overlay"] {
        let call = agent().file("f", "1\n5\n").file("g", "1\n").file("k", "1\n");
        host(
            call.workspace(),
            "git init -q .; git add .; git commit -qm first; git checkout -qb feat; sed -i s/5/feat/ f; echo 2 > g; git rm -q k; \
             git commit -qam feat; git checkout -q -",
        );
        let mut kept = Kept::begin(call, mode, "sed -i s/5/own/ f");
        host(&kept.root, "git checkout -q feat");
        kept.runs("echo own > own; git add -A; git -c user.name=a -c user.email=a@b commit -qm own");
        let applied = kept.agent(&["apply", &kept.id, "--yes", "--branch", "own"]).expect_code(2);
        assert!(applied.stderr.contains("has not changed: g, k (removed)\n"), "{mode}: {}", applied.stderr);
    }
}
