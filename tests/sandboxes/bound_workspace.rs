//! `--workspace-mode bind`: what each prompt changed in the user's own files is shown and taken back, and nothing else is.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A prompt of the session `k`, whose model runs `command`.
fn prompt(call: Agent, command: &str) -> Finished {
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = call.endpoint(&model).sandbox("local").args(["run", "--session-key", "k"]);
    call.args(["--workspace-mode", "bind", "change it"]).run().expect_code(0)
}

fn undo(ran: &Finished, code: i32) -> Finished {
    ran.again().args(["undo"]).run().expect_code(code)
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(directory).args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(arguments);
    let done = git.output().expect("git");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn the_changes_of_each_prompt_are_shown_and_taken_back() {
    let call = agent().file("a.txt", "old\n").file("gone.txt", "back\n").file(".gitignore", "*.log\n");
    let call = call.file("user.log", "mine\n");
    // Whatever the rules say afterwards, the log is none of the session's.
    let first = prompt(
        call,
        "echo one > a.txt; rm gone.txt; mkdir d; echo new > d/made.txt; chmod +x a.txt; : > .gitignore",
    );
    assert!(first.stderr.contains("`agent undo "), "{}", first.stderr);
    let second = prompt(first.again(), "echo two > a.txt; mv d e");
    let shown = second.again().args(["diff"]).run().expect_code(0).stdout;
    for line in ["-old\n", "+two\n", "-back\n", "new file e/made.txt"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let applied = second.again().args(["apply"]).run().expect_code(0).stderr;
    assert!(applied.contains("All of it is in your files already (--workspace-mode bind)"), "{applied}");

    let told = undo(&second, 0).stderr;
    assert!(told.contains("what the session's last prompt had written"), "{told}");
    assert_eq!(second.host_file("a.txt").as_deref(), Some("one\n"));
    assert_eq!(second.host_file("d/made.txt").as_deref(), Some("new\n"));
    assert_eq!((second.host_file("e/made.txt"), second.host_file("gone.txt")), (None, None));
    undo(&second, 0);
    for (path, content) in
        [("a.txt", "old\n"), ("gone.txt", "back\n"), (".gitignore", "*.log\n"), ("user.log", "mine\n")]
    {
        assert_eq!(second.host_file(path).as_deref(), Some(content), "{path}");
    }
    assert_eq!(second.host_file("d/made.txt"), None);
    assert_eq!(second.again().args(["diff"]).run().expect_code(0).stdout, "");
    undo(&second, 2);
}

#[test]
fn what_the_user_wrote_is_never_taken_back() {
    let call = agent().file("a.txt", "old\n").file("b.txt", "old\n");
    let ran = prompt(call, "echo session > a.txt; echo session > c.txt");
    let workspace = ran.again().workspace().to_owned();
    let write = |name: &str, text: &str| fs::write(workspace.join(name), text).expect("written");
    write("a.txt", "user\n");
    let refused = undo(&ran, 7);
    assert!(refused.stderr.contains("a.txt"), "{}", refused.stderr);
    assert_eq!(ran.host_file("a.txt").as_deref(), Some("user\n"));
    assert_eq!(ran.host_file("c.txt").as_deref(), Some("session\n"), "all or nothing");

    // Between two processes of the session.
    write("b.txt", "user\n");
    write("new.txt", "user\n");
    let next = prompt(ran.again(), "cat b.txt new.txt; echo session > d.txt");
    undo(&next, 0);
    assert_eq!(next.host_file("d.txt"), None);
    for name in ["a.txt", "b.txt", "new.txt"] {
        assert_eq!(next.host_file(name).as_deref(), Some("user\n"), "{name}");
    }
    write("a.txt", "session\n");
    undo(&next, 0);
    assert_eq!(next.host_file("a.txt").as_deref(), Some("old\n"));
    assert_eq!(next.host_file("b.txt").as_deref(), Some("user\n"));
}

/// The user writes into a directory of the session's, into a file of the session's after a resume, and rights that are taken away.
#[test]
fn what_the_user_wrote_where_the_session_did_is_never_taken_back() {
    let call = agent().file("run.sh", "true\n");
    let first =
        prompt(call, "mkdir src; echo session > src/a.txt; echo session > src/b.txt; chmod 777 run.sh");
    let workspace = first.again().workspace().to_owned();
    fs::write(workspace.join("src/mine.txt"), "user\n").expect("written");
    fs::write(workspace.join("src/b.txt"), "user\n").expect("written");
    let second = prompt(first.again(), "echo session > other.txt");
    undo(&second, 0);
    assert_eq!(second.host_file("other.txt"), None);
    let refused = undo(&second, 7);
    assert!(refused.stderr.contains("src/b.txt") && !refused.stderr.contains("run.sh"), "{}", refused.stderr);
    fs::write(workspace.join("src/b.txt"), "session\n").expect("written");
    undo(&second, 0);
    assert_eq!(second.host_file("src/mine.txt").as_deref(), Some("user\n"));
    assert_eq!((second.host_file("src/a.txt"), second.host_file("src/b.txt")), (None, None));
    let mode = fs::metadata(workspace.join("run.sh")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn git_history_is_left_alone() {
    let call = agent().file("a.txt", "old\n");
    let workspace = call.workspace().to_owned();
    git(&workspace, &["init", "-q"]);
    git(&workspace, &["add", "."]);
    git(&workspace, &["commit", "-qm", "first"]);
    let ran =
        prompt(call, "echo new > a.txt; git -c user.name=s -c user.email=s@example.org commit -qam inside");
    git(&workspace, &["commit", "-q", "--allow-empty", "-m", "of the user"]);
    git(&workspace, &["gc", "-q", "--prune=now"]);
    undo(&ran, 0);
    assert_eq!(ran.host_file("a.txt").as_deref(), Some("old\n"));
    let log = git(&workspace, &["log", "--format=%s"]);
    assert_eq!(log.lines().collect::<Vec<_>>(), ["of the user", "inside", "first"]);
    assert_eq!(git(&workspace, &["status", "--short"]), " M a.txt\n");
}

#[test]
fn what_a_killed_process_recorded_is_taken_back() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "echo new > a.txt; echo > b.txt" }));
    let model = model.text("never").stall(Duration::from_secs(600)).start();
    let call = agent().file("a.txt", "old\n").endpoint(&model).sandbox("local");
    let call = call.args(["run", "--workspace-mode", "bind", "change it"]);
    let next = call.again();
    let running = call.start();
    let deadline = Instant::now() + Duration::from_secs(120);
    while model.chat_requests().len() < 2 {
        assert!(Instant::now() < deadline, "the first command does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.signal(libc::SIGKILL);
    running.wait();
    let undone = next.args(["undo"]).run().expect_code(0);
    assert_eq!((undone.host_file("a.txt").as_deref(), undone.host_file("b.txt")), (Some("old\n"), None));
}

#[test]
fn the_repl_takes_back_the_files_themselves() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo one > a.txt" }))
        .text("One.")
        .tool_call("run_commands", json!({ "command": "echo two > a.txt" }))
        .text("Two.")
        .start();
    let builder = terminal().endpoint(&model).args(["--sandbox", "local", "--workspace-mode", "bind"]);
    let builder = builder.file("a.txt", "old\n").file("b.txt", "old\n");
    let workspace = builder.directory("workspace");
    let read = |name: &str| fs::read_to_string(workspace.join(name)).expect("a file");
    let mut terminal = builder.start();
    for (typed, answer) in [("one", "One."), ("two", "Two.")] {
        terminal.wait_for_prompt();
        terminal.type_line(typed);
        terminal.wait_for(answer);
    }
    terminal.wait_for_prompt();
    fs::write(workspace.join("b.txt"), "user\n").expect("written");
    // Looking at it makes it nothing of the session's.
    terminal.type_line("/diff");
    terminal.wait_for("+user");
    terminal.wait_for_prompt();
    terminal.type_line("/undo");
    terminal.wait_for("taken back in your files: a.txt");
    terminal.wait_for_prompt();
    assert_eq!((read("a.txt").as_str(), read("b.txt").as_str()), ("one\n", "user\n"));
    terminal.type_line("/undo 5");
    terminal.wait_for("1 undone, there were no more");
    terminal.wait_for_prompt();
    assert_eq!((read("a.txt").as_str(), read("b.txt").as_str()), ("old\n", "user\n"));
    terminal.type_line("/undo");
    terminal.wait_for("there is nothing to undo");
    terminal.wait_for_prompt();
    terminal.type_line("/redo");
    terminal.wait_for("is not written there again (--workspace-mode bind)");
    terminal.ctrl_d();
    terminal.wait();
}
