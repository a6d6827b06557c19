//! Skills of the project and of the user: what the model learns, and what the sandbox has.

use agent_testbed::agent::{Agent, agent};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

/// A skill of the user's with a script beside it.
fn with_own_skill(agent: Agent) -> Agent {
    let directory = agent.home("config").join("skills/greet");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(
        directory.join("SKILL.md"),
        "---\nname: greet\ndescription: >\n  Greet\n  everybody\n---\nRun hello.sh.\n",
    )
    .unwrap();
    std::fs::write(directory.join("hello.sh"), "#!/bin/sh\necho hello from the skill\n").unwrap();
    std::fs::set_permissions(directory.join("hello.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    agent
}

#[test]
fn a_skill_that_git_ignores_is_read_in_the_home_directory_and_one_that_is_excluded_is_not_listed() {
    let model = endpoint()
        .tool_call("read_file", json!({ "path": "/home/agent/.agents/project-skills/mine/SKILL.md" }))
        .tool_call("run_commands", json!({ "command": "ls -A /workspace ~/.agents/project-skills/mine" }))
        .text("done")
        .start();
    let skill = |what: &str| format!("---\ndescription: {what}\n---\nUse it.\n");
    let finished = agent()
        .endpoint(&model)
        .file(".gitignore", ".agents/\n")
        .file(".agents/skills/mine/SKILL.md", skill("Mine"))
        .file(".agents/skills/mine/secrets.json", "{}")
        .file(".agents/skills/other/SKILL.md", skill("Other"))
        .args(["run", "--json", "--exclude", "/.agents/skills/other", "go"])
        .run()
        .expect_code(0);
    let system = model.requests()[0].messages()[0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains("- mine: Mine (/home/agent/.agents/project-skills/mine/SKILL.md)"), "{system}");
    assert!(!system.contains("Other"), "{system}");
    let events = finished.events_of("tool_finished");
    let result = |index: usize| events[index]["result"].as_str().unwrap();
    assert!(result(0).contains("Use it."), "{}", result(0));
    assert!(result(1).contains("SKILL.md") && !result(1).contains("secrets"), "{}", result(1));
}

#[test]
fn the_model_learns_of_skills_and_reads_them_in_the_sandbox() {
    let model = endpoint()
        .tool_call("read_file", json!({ "path": "/home/agent/.agents/skills/greet/SKILL.md" }))
        .tool_call("read_file", json!({ "path": "/workspace/.agents/skills/deploy/SKILL.md" }))
        .tool_call("run_commands", json!({ "command": "~/.agents/skills/greet/hello.sh; ls -A" }))
        .text("done")
        .start();
    let finished = with_own_skill(agent())
        .endpoint(&model)
        .file(
            ".agents/skills/deploy/SKILL.md",
            "---\ndescription: Deploy this project\n---\nPush the button.\n",
        )
        .args(["run", "--json", "greet me"])
        .run()
        .expect_code(0);
    let system = model.requests()[0].messages()[0]["content"].as_str().unwrap().to_owned();
    assert!(
        system.contains("- greet: Greet everybody (/home/agent/.agents/skills/greet/SKILL.md)"),
        "{system}"
    );
    assert!(
        system.contains("- deploy: Deploy this project (/workspace/.agents/skills/deploy/SKILL.md)"),
        "{system}"
    );
    let results: Vec<String> = finished
        .events_of("tool_finished")
        .iter()
        .map(|event| event["result"].as_str().unwrap().to_owned())
        .collect();
    assert!(results[0].contains("Run hello.sh."), "{results:?}");
    assert!(results[1].contains("Push the button."), "{results:?}");
    assert!(results[2].ends_with("hello from the skill\n.agents\n"), "{results:?}");
    let changes = &finished.events_of("session_finished")[0]["changes"];
    assert_eq!(*changes, json!({ "added": 0, "modified": 0, "deleted": 0 }), "they are in no diff");
}

#[test]
fn a_resumed_session_has_the_skills_of_now() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "ls ~/.agents || true" }))
        .text("none")
        .tool_call("run_commands", json!({ "command": "ls ~/.agents/skills" }))
        .text("one")
        .start();
    let first = agent().endpoint(&model).args(["run", "--session-key", "one", "look"]);
    let again = with_own_skill(first.again());
    first.run().expect_code(0);
    let finished =
        again.endpoint(&model).args(["run", "--json", "--session-key", "one", "again"]).run().expect_code(0);
    let result = finished.events_of("tool_finished")[0]["result"].as_str().unwrap().to_owned();
    assert!(result.ends_with("greet\n"), "{result}");
}

/// The request for `hello` in an empty directory: the four characters that one token has on average are the same measure
/// as in the context window. What it says of this machine's programs is not counted.
#[test]
fn without_skills_and_plans_nothing_is_sent_for_them() {
    let model = endpoint().text("Hello.").start();
    agent().endpoint(&model).args(["run", "hello"]).run().expect_code(0);
    let request = model.last();
    let system = request.messages()[0]["content"].as_str().unwrap().to_owned();
    assert!(!system.contains("# Skills"), "{system}");
    let names: Vec<&str> = request.body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    let builtin = [
        "read_file",
        "write_file",
        "write_files",
        "edit_file",
        "run_commands",
        "run_code",
        "job_output",
        "job_kill",
    ];
    assert_eq!(names, builtin);
    let without_programs: usize =
        system.lines().filter(|line| !line.starts_with("- Programs:")).map(|line| line.len() + 1).sum();
    let tokens = (without_programs + request.body["tools"].to_string().len()) / 4;
    assert!(tokens <= MAX_HELLO_TOKENS, "{tokens} tokens");
}

const MAX_HELLO_TOKENS: usize = 1_900;

#[test]
fn skills_are_listed_at_the_prompt_with_those_that_are_left_out() {
    let model = endpoint().text("ok").start();
    let builder = terminal().endpoint(&model);
    for (name, text) in [("deploy", "---\ndescription: Deploy it\n---\n"), ("mute", "No front matter.\n")] {
        let directory = builder.directory("workspace").join(".agents/skills").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("SKILL.md"), text).unwrap();
    }
    let mut terminal = builder.start();
    terminal.wait_for_prompt();
    terminal.type_line("/skills");
    terminal.wait_for("this project's: Deploy it");
    terminal.wait_for("left out: mute: SKILL.md has no description");
}
