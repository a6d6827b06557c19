//! `agent diff`, `agent apply` and `agent undo` on a session that has ended.

use agent_testbed::agent::agent;
use agent_testbed::engine::engine;
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::path::Path;
use std::process::Command;

#[test]
fn a_change_is_reviewed_applied_and_undone() {
    let command = "echo new > added.txt && rm gone.txt && echo more >> kept.txt";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = agent().endpoint(&model).file("gone.txt", "x\n").file("kept.txt", "one\n");
    let ran = call.args(["run", "change"]).run().expect_code(0);

    let shown = ran.again().args(["diff"]).run().expect_code(0);
    insta::assert_snapshot!(shown.stdout, @r"
    new file added.txt
    @@ -0,0 +1 @@
    +new
    deleted gone.txt
    @@ -1 +0,0 @@
    -x
    modified kept.txt
    @@ -1 +1,2 @@
     one
    +more
    ");
    let names = ran.again().args(["diff", "--name-only", "kept.txt"]).run().expect_code(0);
    assert_eq!(names.stdout, "kept.txt\n");

    // There is nobody to ask: the call itself is the yes.
    ran.again().args(["apply", "./kept.txt"]).run().expect_code(0);
    assert_eq!(ran.host_file("kept.txt").as_deref(), Some("one\nmore\n"));
    assert!(ran.host_file("gone.txt").is_some());
    ran.again().args(["apply", "--yes"]).run().expect_code(0);
    assert_eq!(ran.host_file("gone.txt"), None);
    assert_eq!(ran.host_file("added.txt").as_deref(), Some("new\n"));

    ran.again().args(["undo"]).run().expect_code(0);
    ran.again().args(["undo"]).run().expect_code(0);
    assert_eq!(ran.host_file("kept.txt").as_deref(), Some("one\n"));
    assert_eq!(ran.host_file("gone.txt").as_deref(), Some("x\n"));
    assert_eq!(ran.host_file("added.txt"), None);
    ran.again().args(["undo"]).run().expect_code(2);

    let conflict = ran.again().file("kept.txt", "mine\n").args(["apply", "--yes"]).run().expect_code(7);
    assert!(conflict.stderr.contains("kept.txt: it changed on the host"), "{}", conflict.stderr);
    assert!(ran.host_file("gone.txt").is_some());
}

#[test]
fn what_only_build_tools_write_is_counted_and_taken_with_all() {
    let command = "mkdir -p pkg/__pycache__ venv/bin && echo x > pkg/__pycache__/m.cpython-312.pyc && echo x > pkg/m.py && \
                   echo home > venv/pyvenv.cfg && ln -s /usr/bin/env venv/bin/python && echo x > nohup.out && echo x > build";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let ran = agent().endpoint(&model).args(["run", "--json", "change"]).run().expect_code(0);
    let recorded = ran.events_of("checkpoint");
    assert_eq!(
        recorded.last().map(|event| &event["names"]),
        Some(&json!(["build", "pkg/m.py"])),
        "{recorded:?}"
    );
    let line =
        "4 files of build tools are not part of the change: venv, __pycache__, nohup.out; --all shows them";
    assert!(ran.stderr.contains(line), "{}", ran.stderr);

    let call = |arguments: &[&str]| ran.again().args(arguments).run().expect_code(0);
    let shown = call(&["diff"]).stdout;
    assert!(shown.contains(line) && shown.contains("new file build"), "{shown}");
    assert_eq!(call(&["diff", "--name-only"]).stdout, "build\npkg/m.py\n");
    let all = call(&["diff", "--all", "--name-only"]).stdout;
    assert_eq!(all, "build\nnohup.out\npkg/__pycache__/m.cpython-312.pyc\npkg/m.py\nvenv/pyvenv.cfg\n");
    let alone = ran.again().args(["diff", "nohup.out"]).run().expect_code(2);
    assert!(alone.stderr.contains("--all takes such files too"), "{}", alone.stderr);

    call(&["apply"]);
    assert_eq!(ran.host_file("pkg/m.py").as_deref(), Some("x\n"));
    assert_eq!(ran.host_file("nohup.out"), None);
    let applied = call(&["apply", "--all"]);
    assert!(applied.stderr.contains("venv/bin/python is not applied: a symlink"), "{}", applied.stderr);
    assert_eq!(ran.host_file("nohup.out").as_deref(), Some("x\n"));
    // What the host has is a change from then on.
    assert_eq!(call(&["diff", "--name-only"]).stdout, "");
}

#[test]
fn the_configuration_excludes_files_as_the_command_line_does() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "ls -A" })).text("ok").start();
    let call = agent().endpoint(&model).file("a.txt", "1").file("b.txt", "1").file("c.txt", "1");
    let call = call.config("[workspace]\nexclude = [\"a.txt\"]");
    let ran = call.args(["run", "--json", "look", "--exclude", "b.txt"]).run().expect_code(0);
    let listed = ran.events_of("tool_finished")[0]["result"].as_str().expect("text").to_owned();
    assert!(listed.contains("c.txt") && !listed.contains("a.txt") && !listed.contains("b.txt"), "{listed}");
}

/// It said `input or output failed`, and not where.
#[test]
fn a_workspace_that_has_moved_is_named() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "echo 1 > a" })).text("ok").start();
    let ran = agent().endpoint(&model).args(["run", "--json", "change"]).run().expect_code(0);
    let id = ran.events()[0]["session"].as_str().expect("an id").to_owned();
    let root = ran.again().workspace().to_owned();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let call = |arguments: &[&str]| ran.again().current_dir(elsewhere.path()).args(arguments).run();
    std::fs::rename(&root, elsewhere.path().join("moved")).expect("the move");
    let applied = call(&["apply", &id, "--yes"]).expect_code(2);
    let message = format!("the workspace {} cannot be opened", root.display());
    assert!(applied.stderr.contains(&message) && applied.stderr.contains("hint: "), "{}", applied.stderr);
    assert!(call(&["diff", &id, "--patch"]).expect_code(0).stdout.contains("+1"), "the hint's way works");
}

/// Absolute paths and those with `..` named nothing.
#[test]
fn a_path_means_the_file_that_it_names() {
    let command = "mkdir -p src/new && echo 1 > src/new/a && echo 1 > src/b && echo 1 > top";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = agent().endpoint(&model).file("src/b", "0\n");
    let ran = call.args(["run", "--json", "change"]).run().expect_code(0);
    let id = ran.events()[0]["session"].as_str().expect("an id").to_owned();
    let root = ran.again().workspace().to_owned();
    let absolute = |path: &str| root.join(path).display().to_string();
    let elsewhere = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(&root, elsewhere.path().join("link")).expect("a symlink");
    let linked = elsewhere.path().join("link/src/b").display().to_string();
    let named = |directory: &std::path::Path, path: &str| {
        let call = ran.again().current_dir(directory).args(["diff", "--name-only", &id, path]);
        call.run().expect_code(0).stdout
    };
    for (directory, path, names) in [
        (&root, absolute("src/b"), "src/b\n"),
        (&root, absolute("src/../top"), "top\n"),
        (&root, absolute(""), "src/b\nsrc/new/a\ntop\n"),
        (&root, linked, "src/b\n"),
        (&root, "src/../top".to_owned(), "top\n"),
        (&root.join("src"), "b".to_owned(), "src/b\n"),
        (&root.join("src"), "./new".to_owned(), "src/new/a\n"),
        (&root.join("src"), "../top".to_owned(), "top\n"),
        (&root.join("src"), ".".to_owned(), "src/b\nsrc/new/a\n"),
        (&elsewhere.path().to_owned(), "src/b".to_owned(), "src/b\n"),
    ] {
        assert_eq!(named(directory, &path), names, "{path} from {}", directory.display());
    }
    for outside in ["../top", "/", "/etc/passwd", "src/../../x"] {
        let refused = ran.again().args(["apply", "--yes", &id, outside]).run().expect_code(2);
        let said = format!("{outside} is not in the workspace");
        assert!(refused.stderr.contains(&said), "{}", refused.stderr);
    }
    ran.again().args(["apply", "--yes", &absolute("src/b")]).run().expect_code(0);
    assert_eq!(ran.host_file("src/b").as_deref(), Some("1\n"));
    assert_eq!(ran.host_file("top"), None);
}

#[test]
fn the_review_points_at_what_other_programs_will_execute() {
    let command = "mkdir -p .github/workflows .vscode && touch .github/workflows/ci.yml .vscode/tasks.json .envrc package.json \
                   plain.txt && echo true > tool && chmod +x tool && ln -s plain.txt link && rm Makefile";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let ran =
        agent().endpoint(&model).file("Makefile", "all:\n").args(["run", "-q", "go"]).run().expect_code(0);
    let call = |arguments: &[&str]| ran.again().args(arguments).run().expect_code(0).stdout;
    insta::assert_snapshot!(call(&["diff", "--risks"]), @r"
    .envrc (shell)
    .github/workflows/ci.yml (CI)
    .vscode/tasks.json (editor)
    link (symlink)
    package.json (package manager)
    tool (new executable)
    ");
    let first = call(&["diff"]).lines().next().map(str::to_owned);
    insta::assert_snapshot!(first.unwrap_or_default(), @"Executed by other programs: .github/workflows/ci.yml (CI); .vscode/tasks.json (editor); tool (new executable); package.json (package manager); .envrc (shell); link (symlink)");
    assert!(call(&["diff", "--json"]).contains(r#""risks":[{"path":".envrc","kind":"shell"}"#));
    assert_eq!(call(&["diff", "--risks", "plain.txt"]), "");
}

#[test]
fn scripts_get_json() {
    let command = "echo new > added.txt && printf '\\377\\330\\377\\0' > blob.jpg && chmod 755 run.sh && rm gone.txt; ln -s /etc/passwd out";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = agent().endpoint(&model).file("gone.txt", "x\n").file("run.sh", "true\n");
    let ran = call.args(["run", "-q", "change"]).run().expect_code(0);
    let said = |arguments: &[&str]| {
        let done = ran.again().args(arguments).run().expect_code(0);
        let mut json: serde_json::Value = serde_json::from_str(&done.stdout).expect("one line of JSON");
        json["session"].take().as_str().expect("the session's id");
        serde_json::to_string_pretty(&json).expect("JSON")
    };
    insta::assert_snapshot!("diff", said(&["diff", "--json"]));
    insta::assert_snapshot!("apply", said(&["apply", "--json", "added.txt", "gone.txt"]));
    insta::assert_snapshot!("undo", said(&["undo", "--json"]));
    ran.again().args(["diff", "--json", "--patch"]).run().expect_code(2);
}

#[test]
fn scripts_get_the_conflicts_as_json() {
    let model =
        endpoint().tool_call("write_file", json!({ "path": "a.txt", "data": "new\n" })).text("ok").start();
    let ran = agent().endpoint(&model).file("a.txt", "old\n").args(["run", "-q", "go"]).run().expect_code(0);
    let change = |content: &str| drop(ran.again().file("a.txt", content));
    let conflict = |command: &str, field: &str| {
        let done = ran.again().args([command, "--json"]).run().expect_code(7);
        let said: serde_json::Value = serde_json::from_str(&done.stdout).expect("one line of JSON");
        assert_eq!(said[field], json!({ "added": 0, "modified": 0, "deleted": 0 }));
        assert_eq!(said["conflicts"][0]["path"], "a.txt");
        let reason = said["conflicts"][0]["reason"].as_str().expect("a reason");
        assert!(done.stderr.contains(&format!("a.txt: {reason}")), "{}", done.stderr);
    };
    change("mine\n");
    conflict("apply", "applied");
    change("old\n");
    ran.again().args(["apply", "--yes"]).run().expect_code(0);
    change("mine\n");
    conflict("undo", "undone");
}

#[test]
fn a_bound_workspace_is_reported_as_already_written() {
    let command = "cat .env; echo new > a.txt; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = agent().endpoint(&model).file(".env", "TOKEN=1\n").file(".git/HEAD", "ref: refs/heads/main\n");
    let ran =
        call.args(["run", "--sandbox", "local", "--workspace-mode", "bind", "change"]).run().expect_code(0);
    assert_eq!(ran.host_file("a.txt").as_deref(), Some("new\n"));
    for told in [
        "[NOTICE] The sandbox reads and writes the workspace itself (--workspace-mode bind), .git included",
        "[NOTICE] Secrets are visible in the sandbox: .env.",
        "[NOTICE] The sandbox changed .git in place",
        "[NOTICE] 1 file added, 0 modified, 0 deleted, in ",
    ] {
        assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
    }
    for untrue in ["stay", "not applied", "is excluded", "nothing is written yet"] {
        assert!(!ran.stderr.contains(untrue), "{untrue}: {}", ran.stderr);
    }
}

/// A bug: in a container for root, whose own user is another, every write failed after it was said that they succeed.
#[tokio::test]
async fn a_workspace_that_the_sandbox_may_not_write_to_is_not_bound() {
    use std::os::unix::fs::PermissionsExt;
    if engine().await.is_none() {
        return;
    }
    let model = endpoint().text("ok").start();
    let call = agent().endpoint(&model).sandbox("docker").args(["run", "--workspace-mode", "bind", "change"]);
    let closed = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(call.workspace(), closed).expect("closed");
    let refused = call.run().expect_code(2);
    for told in ["--workspace-mode bind is not possible", "who may not write to /", "hint: run as the owner"]
    {
        assert!(refused.stderr.contains(told), "{told}: {}", refused.stderr);
    }
    assert!(!refused.stderr.contains("reads and writes"), "{}", refused.stderr);
    assert!(model.chat_requests().is_empty());
}

#[test]
fn what_is_not_applied_is_reported() {
    let command = "git -c user.name=a -c user.email=a@a commit -qam second && mkdir built && echo x > built/x && echo y > y.log && echo more >> host.log";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    // What the host has ignored itself is seen inside, and is nothing new.
    let call =
        agent().endpoint(&model).file("a.txt", "one\n").file(".gitignore", "built/\nmodules/\n*.log\n");
    let call = call.file("host.log", "old\n").file("modules/a/index.js", "old\n");
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        let done = git
            .current_dir(call.workspace())
            .args(["-c", "user.name=a", "-c", "user.email=a@a"])
            .args(arguments)
            .output();
        assert!(done.expect("git").status.success(), "{arguments:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
    let call = call.file("a.txt", "two\n");
    let ran = call.args(["run", "-q", "commit"]).run().expect_code(0);
    let told = ran.again().args(["apply"]).run().expect_code(0).stderr;
    insta::assert_snapshot!(told, @r"
    Commits, branches and configuration of git that were made in the sandbox stay there: apply the files, and commit on this side, or take the commits with apply --branch NAME.
    Files that git ignores were changed in the sandbox and stay there: host.log (--include, when a session begins, copies such files).
    New files that .gitignore names stay in the sandbox: built, y.log (--include, when a session begins, copies such files).
    There is nothing to apply.
    ");
    // It is not reported where it did not happen.
    let quiet =
        endpoint().tool_call("run_commands", json!({ "command": "git status; git diff" })).text("ok").start();
    let quiet = ran.again().endpoint(&quiet).args(["run", "look"]).run().expect_code(0);
    assert!(!quiet.stderr.contains("stay"), "{}", quiet.stderr);
}

#[test]
fn an_included_file_is_applied_although_it_is_ignored() {
    let command = "mkdir -p built/deep; echo x > built/deep/wanted; echo x > built/other";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = agent().endpoint(&model).file(".gitignore", "built/\n");
    let ran = call.args(["run", "-q", "build", "--include", "built/deep/*"]).run().expect_code(0);
    let names = ran.again().args(["diff", "--name-only"]).run().expect_code(0);
    assert_eq!(names.stdout, "built/deep/wanted\n");
    ran.again().args(["apply"]).run().expect_code(0);
    assert_eq!(ran.host_file("built/deep/wanted").as_deref(), Some("x\n"));
    assert_eq!(ran.host_file("built/other"), None);
}

/// It took back the newest session's, whether or not that was the last that was applied.
#[test]
fn undo_takes_back_the_last_apply_of_any_session_here() {
    let write = |name: &str| json!({ "path": name, "data": "new\n" });
    let model = endpoint()
        .tool_call("write_file", write("first.txt"))
        .text("ok")
        .tool_call("write_file", write("second.txt"))
        .text("ok")
        .start();
    let first = agent().endpoint(&model).args(["run", "--json", "one"]).run().expect_code(0);
    let second = first.again().endpoint(&model).args(["run", "--json", "two"]).run().expect_code(0);
    let id =
        |run: &agent_testbed::agent::Finished| run.events()[0]["session"].as_str().expect("an id").to_owned();
    let (first_id, second_id) = (id(&first), id(&second));
    let shown = first.again().args(["diff"]).run().expect_code(0);
    assert!(shown.stdout.contains("second.txt") && !shown.stdout.contains("first.txt"), "{}", shown.stdout);
    let told = format!("Session {first_id} has changes here too that are not applied: 1 file added");
    assert!(shown.stderr.contains(&told), "{}", shown.stderr);
    first.again().args(["apply", "--yes", &second_id]).run().expect_code(0);
    first.again().args(["apply", "--yes", &first_id]).run().expect_code(0);
    assert!(first.again().args(["diff", &second_id]).run().expect_code(0).stderr.is_empty());
    first.again().args(["undo"]).run().expect_code(0);
    assert_eq!((first.host_file("first.txt"), first.host_file("second.txt").is_some()), (None, true));
    first.again().args(["undo"]).run().expect_code(0);
    assert_eq!(first.host_file("second.txt"), None);
    first.again().args(["undo"]).run().expect_code(2);
}

#[test]
fn a_replay_is_not_the_newest_session_of_its_workspace() {
    let model =
        endpoint().tool_call("write_file", json!({ "path": "made.txt", "data": "new\n" })).text("ok").start();
    let ran = agent().endpoint(&model).args(["run", "--json", "make it"]).run().expect_code(0);
    let id = ran.events()[0]["session"].as_str().expect("an id").to_owned();
    ran.again().args(["replay", &id]).run().expect_code(0);
    let applied = ran.again().args(["apply", "--yes", "--json"]).run().expect_code(0);
    let applied: serde_json::Value = serde_json::from_str(&applied.stdout).expect("JSON");
    assert_eq!(applied["session"], id.as_str());
}

#[test]
fn notices_about_a_workspace_are_reported_once_and_the_model_learns_what_is_withheld() {
    let call = || json!({ "command": "ls -A" });
    let model = endpoint()
        .tool_calls(&[("run_commands", call()), ("run_commands", call())])
        .text("ok")
        .tool_call("run_commands", call())
        .text("ok")
        .tool_call("run_commands", call())
        .text("ok")
        .start();
    let agent = agent().endpoint(&model).file(".env", "TOKEN=1").file("keys/id_rsa", "key");
    let first = agent.args(["run", "look"]).run().expect_code(0);
    assert!(first.stderr.contains("left out: .env (secret), keys/id_rsa (secret)"), "{}", first.stderr);
    let messages = model.last().messages();
    let results: Vec<String> =
        messages.iter().filter(|m| m["role"] == "tool").map(|m| m["content"].to_string()).collect();
    assert!(results[0].contains("are not in the sandbox: .env, keys/id_rsa."), "{results:?}");
    assert!(!results[1].contains(".env"), "{results:?}");
    let second = first.again().endpoint(&model).args(["run", "look"]).run().expect_code(0);
    assert!(!second.stderr.contains("left out"), "{}", second.stderr);
    let again = first.again().endpoint(&model).file("prod.env", "TOKEN=1").args(["run", "look"]).run();
    assert!(again.expect_code(0).stderr.contains("prod.env (secret)"));
}

/// Makes the workspace a clone of `../mirror` that has no objects of its own.
fn shared_clone(workspace: &Path) {
    let script = "git init -q -b main ../mirror && cd ../mirror && echo a > a && git add a
        git -c user.name=a -c user.email=a@b commit -qm first && git clone -q --shared . ../workspace";
    let made = Command::new("sh").args(["-ec", script]).current_dir(workspace).output().expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn a_clone_that_borrows_objects_is_copied_if_the_configuration_names_where() {
    for mode in ["copy", "overlay"] {
        let look = ["exec", "--workspace-mode", mode, "--", "git", "log", "--format=%s"];
        let call = agent().args(look);
        shared_clone(call.workspace());
        let mirror = call.workspace().with_file_name("mirror");
        let without = call.run();
        assert!(without.stderr.contains("its repository takes objects from"), "{}", without.stderr);
        assert!(!without.stdout.contains("first"), "{}", without.stdout);
        let setting = format!("git_object_stores = [{:?}]\n", mirror.display());
        let allowed = without.again().config(&setting).args(look).run().expect_code(0);
        assert_eq!(allowed.stdout, "first\n", "{mode}: {}", allowed.stderr);
        assert!(!allowed.stderr.contains("git"), "{}", allowed.stderr);
    }
}

#[test]
fn the_user_is_asked_about_objects_of_another_repository() {
    for (answer, shown) in [("yes", "first"), ("no", "git does not work inside the sandbox")] {
        let builder = terminal().args(["exec", "--", "git", "log", "--format=%s"]);
        shared_clone(&builder.directory("workspace"));
        let mut terminal = builder.start();
        terminal.wait_for("takes objects from");
        terminal.wait_for("[yes/no]");
        terminal.type_line(answer);
        terminal.wait_for(shown);
    }
}
