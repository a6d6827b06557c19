//! `--check`: in a copy of the session's sandbox, or in one with the change alone.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::backends::program_on_every_backend;
use agent_testing::endpoint::endpoint;
use serde_json::json;

/// Installs something in every place outside of the diff, removes something there, and changes a file.
const INSTALL: &str = "mkdir -p node_modules/dep ~/.local/bin && echo dep >node_modules/dep/x && echo tool >~/.local/bin/tool && \
                       rm -rf dist && echo new >src.txt && ln -s dep node_modules/link";
/// Needs all of that.
const CHECK: &str = "grep -q new src.txt && grep -q dep node_modules/link/x && grep -q tool ~/.local/bin/tool && test ! -e dist";

/// A project with what git ignores.
fn project() -> Agent {
    let call =
        agent().file(".gitignore", "node_modules\ndist\n").file("dist/old", "old").file("a.txt", "a\n");
    let git = std::process::Command::new("git").args(["init", "-q"]).current_dir(call.workspace()).status();
    assert!(git.expect("git").success());
    call
}

fn checked(call: Agent, options: &[&str]) -> Finished {
    let model =
        endpoint().tool_call("run_commands", json!({ "command": INSTALL })).text("done").repeat_last();
    let model = model.start();
    let call = call.endpoint(&model).args(["run", "go", "--json", "--check-attempts", "1", "--check", CHECK]);
    call.args(options.iter().copied()).run()
}

/// The notices about what the checks can use.
fn told(finished: &Finished) -> Vec<String> {
    let notices = finished.events_of("notice").into_iter();
    let texts = notices.filter_map(|notice| notice["text"].as_str().map(str::to_owned));
    texts.filter(|text| text.contains("--check-clean")).collect()
}

#[test]
fn a_check_has_what_the_session_installed_outside_of_the_diff_and_the_user_is_told() {
    program_on_every_backend(|backend| {
        let finished = checked(project().sandbox(backend), &["--apply"]).expect_code(0);
        assert_eq!(finished.host_file("src.txt").as_deref(), Some("new\n"));
        assert_eq!(finished.host_file("dist/old").as_deref(), Some("old"));
        assert_eq!(finished.host_file("node_modules/dep/x"), None);
        let told = told(&finished);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("node_modules") && told[0].contains("$HOME"), "{told:?}");
    });
}

#[test]
fn a_clean_check_has_the_change_alone() {
    let finished = checked(project(), &["--check-clean"]).expect_code(6);
    assert!(told(&finished).is_empty());
}

#[test]
fn a_check_has_the_same_where_the_workspace_is_a_copy() {
    let finished = checked(project(), &["--workspace-mode", "copy"]).expect_code(0);
    assert!(told(&finished)[0].contains("node_modules"), "{:?}", told(&finished));
}

#[test]
fn a_check_says_nothing_where_the_session_has_nothing_outside_of_the_diff() {
    let model = endpoint().tool_call("write_file", json!({ "path": "x", "data": "1" })).text("done").start();
    let call =
        project().endpoint(&model).args(["run", "go", "--json", "--check", "test -e x && test -e dist/old"]);
    let finished = call.run().expect_code(0);
    assert!(told(&finished).is_empty(), "{:?}", told(&finished));
}

#[test]
fn a_check_has_what_the_session_downloaded_into_a_cache_of_the_users() {
    program_on_every_backend(|backend| {
        let call = project().sandbox(backend);
        let home = call.workspace().with_file_name("home");
        std::fs::create_dir_all(home.join(".npm/_cacache")).expect("a cache");
        std::fs::write(home.join(".npm/_cacache/one"), "one").expect("a file of it");
        let command = "echo two >~/.npm/_cacache/two; rm -f ~/.npm/_cacache/one; echo x >x";
        let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("done").start();
        let check = "grep -q two ~/.npm/_cacache/two && test ! -e ~/.npm/_cacache/one";
        let call = call.env("HOME", &home).endpoint(&model);
        let arguments = ["run", "go", "--check-attempts", "1", "--check", check];
        let _finished = call.args(arguments).run().expect_code(0);
        assert!(home.join(".npm/_cacache/one").exists());
    });
}

#[test]
fn what_delegated_parts_attempts_and_tasks_install_is_there_for_their_checks() {
    let model = endpoint().tool_call("run_commands", json!({ "command": INSTALL })).text("done").start();
    let race =
        project().endpoint(&model).args(["race", "go", "-n", "1", "--check-attempts", "1", "--check", CHECK]);
    race.run().expect_code(0);
    let model = endpoint().tool_call("run_commands", json!({ "command": INSTALL })).text("done").start();
    let task = json!({ "id": "one", "prompt": "go", "check": CHECK }).to_string();
    let call = project().endpoint(&model);
    let tasks = call.workspace().with_file_name("tasks.jsonl");
    std::fs::write(&tasks, task).expect("a task");
    let out = call.workspace().with_file_name("out");
    let arguments = ["batch", tasks.to_str().expect("text"), "--out", out.to_str().expect("text")];
    call.args(arguments).run().expect_code(0);
}

/// One of them copies sandboxes itself, the other one's goes through the guests.
#[test]
fn a_check_at_a_provider_has_the_same() {
    for provider in ["e2b", "novita"] {
        let finished = checked(project().sandbox(provider), &[]).expect_code(0);
        assert_eq!(told(&finished).len(), 1, "{:?}", told(&finished));
    }
}
