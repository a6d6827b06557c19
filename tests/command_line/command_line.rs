//! Commands, their options, and hints for what was probably meant.

use agent_testbed::agent::agent;
use agent_testing::endpoint::endpoint;

#[test]
fn an_option_without_effect_is_a_usage_error_that_names_the_commands_with_it() {
    for arguments in [
        &["models", "--memory", "2g"][..],
        &["doctor", "--memory", "2g"],
        &["sessions", "--memory=2g"],
        &["apply", "--memory", "2g"],
    ] {
        let refused = agent().args(arguments).run().expect_code(2);
        assert!(refused.stderr.contains("--memory has no effect here"), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("it is an option of: run, exec, code, demo, resume, replay"),
            "{}",
            refused.stderr
        );
    }
    let unknown = agent().args(["run", "--memroy", "2g", "hi"]).run().expect_code(2);
    assert!(unknown.stderr.contains("'--memory'"), "{}", unknown.stderr);
}

#[test]
fn a_prompt_without_a_command_is_run() {
    for arguments in [&["fix it"][..], &["-p", "fix"], &["-q", "fix it"]] {
        let model = endpoint().text("Fixed.").start();
        let finished = agent().endpoint(&model).args(arguments).run().expect_code(0);
        assert_eq!(finished.stdout, "Fixed.\n");
    }
}

#[test]
fn one_word_that_is_not_a_command_gets_a_hint() {
    let hint = |arguments: &[&str]| agent().args(arguments).run().expect_code(2).stderr;
    assert!(hint(&["doctr"]).contains("did you mean `agent doctor`?"));
    assert!(hint(&["doctr"]).contains("agent -p \"doctr\""));
}

#[test]
fn a_prompt_of_several_words_without_quotes_gets_a_hint() {
    let hint = |arguments: &[&str]| agent().args(arguments).run().expect_code(2).stderr;
    for arguments in [&["run", "fix", "the", "bug"][..], &["resume", "ID", "go", "on"], &["fix", "the bug"]] {
        let refused = hint(arguments);
        assert!(refused.contains("put it in quotes") && !refused.contains("an option of"), "{refused}");
    }
    // Other commands take no prompt.
    assert!(!hint(&["models", "words"]).contains("hint:"));
}

#[test]
fn options_may_stand_before_the_command() {
    let model = endpoint().models(200, r#"{"data":[{"id":"here"}]}"#).start();
    let listed = agent().args(["--base-url", &model.url(), "models"]).run().expect_code(0);
    assert!(listed.stdout.contains("here"), "{}", listed.stdout);
    agent().args(["--memory=256m", "-C", ".", "exec", "sh", "-c", "exit 7"]).run().expect_code(7);
    let refused = agent().args(["-m", "x", "diff"]).run().expect_code(2);
    assert!(refused.stderr.contains("-m has no effect here; it is an option of: run,"), "{}", refused.stderr);
}

#[test]
fn a_prompt_may_be_piped_in_and_continue_the_last_session_of_the_directory() {
    let model = endpoint().text("First.").text("Second.").text("Third.").start();
    let first = agent().endpoint(&model).stdin("say one\n").run().expect_code(0);
    assert_eq!(first.stdout, "First.\n");
    let second = first.again().endpoint(&model).args(["-c", "and two"]).run().expect_code(0);
    assert_eq!(second.stdout, "Second.\n");
    let prompts = |request: usize| {
        let messages = model.requests()[request].messages();
        messages.iter().filter(|message| message["role"] == "user").count()
    };
    assert_eq!((prompts(0), prompts(1)), (1, 2));
    let listed = second.again().args(["sessions", "--json"]).run().expect_code(0);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let id = listed[0]["id"].as_str().unwrap();
    let third = second.again().endpoint(&model).args(["--resume", id, "-p", "three"]).run().expect_code(0);
    assert_eq!((third.stdout.as_str(), prompts(2)), ("Third.\n", 3));
    let nowhere = third.again().endpoint(&model).args(["-r", "-p", "four"]).run().expect_code(2);
    assert!(nowhere.stderr.contains("--continue"), "{}", nowhere.stderr);
}

#[test]
fn exec_takes_a_command_with_options_of_its_own() {
    let call = |arguments: &[&str]| agent().args(arguments).run().expect_code(0).stdout;
    assert_eq!(call(&["exec", "echo", "-n", "--memory"]), "--memory");
    assert_eq!(call(&["exec", "--memory", "256m", "--", "echo", "--", "x"]), "-- x\n");
}

#[test]
fn the_manual_page_has_every_command() {
    let page = agent().args(["man"]).run().expect_code(0).stdout;
    assert!(page.starts_with(".ie \\n(.g .ds Aq"), "{page}");
    for command in ["AGENT RUN", "AGENT EXEC", "AGENT SESSIONS", "AGENT DOCTOR", "AGENT MAN"] {
        assert!(page.contains(&format!(".SH {command}\n")), "{command}");
    }
    assert!(page.contains("max\\-turns"), "options are listed");
}

#[test]
fn every_setting_is_shown_with_its_source() {
    let written = agent().args(["config", "init"]).run().expect_code(0);
    let path = written.stdout.trim().to_owned();
    assert_eq!(written.again().args(["config", "path"]).run().expect_code(0).stdout.trim(), path);
    let refused = written.again().args(["config", "init"]).run().expect_code(2);
    assert!(refused.stderr.contains("exists already"), "{}", refused.stderr);
    std::fs::write(&path, "cpus = 3\nmemory = '1g'\n").unwrap();
    let shown = refused.again().env("AGENT_MEMORY", "512m").args(["config"]).run().expect_code(0);
    let line = |key: &str| {
        let line = shown.stdout.lines().find(|line| line.starts_with(&format!("{key} "))).expect("a line");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("memory"), "memory 512m the variable AGENT_MEMORY");
    assert_eq!(line("cpus"), format!("cpus 3 {path}"));
    assert_eq!(line("disk"), "disk 10g default");
    std::fs::write(&path, "[sandbox]\ninclude = ['*.pem']\n").unwrap();
    let wrong = shown.again().args(["config", "show"]).run().expect_code(2);
    assert!(wrong.stderr.contains("line 2, column 1: `[sandbox] include` takes a table"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("[workspace]"), "{}", wrong.stderr);
}

#[test]
fn the_version_names_what_the_program_was_built_from() {
    let call = |arguments: &[&str]| agent().args(arguments).run().expect_code(0).stdout;
    let line = format!("agent {}\n", env!("CARGO_PKG_VERSION"));
    for arguments in [&["--version"][..], &["-V"], &["-V", "-q"]] {
        assert_eq!(call(arguments), line);
    }
    let exported = agent();
    let file = exported.workspace().join("guest");
    exported.again().args(["guest", "export", file.to_str().unwrap()]).run().expect_code(0);
    let guest = agent::hash::Hash::of(std::fs::read(&file).unwrap()).short(6);
    let verbose = call(&["--version", "--verbose"]);
    assert!(verbose.starts_with(&line), "{verbose}");
    for expected in
        [format!("guest: {guest}\n"), "features: kubernetes, modal, policy, telemetry, vm".to_owned()]
    {
        assert!(verbose.contains(&expected), "{verbose}");
    }
    let json: serde_json::Value = serde_json::from_str(&call(&["--json", "-V"])).unwrap();
    assert_eq!(
        (json["version"].as_str(), json["guest"].as_str()),
        (Some(env!("CARGO_PKG_VERSION")), Some(&*guest))
    );
    assert!(json["target"].as_str().unwrap().starts_with(std::env::consts::ARCH), "{json}");
}
