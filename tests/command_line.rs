//! Commands, their options, and hints for what was probably meant.

use crate::support::agent::agent;
use crate::support::endpoint::endpoint;

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
    assert!(hint(&["-q", "undo"]).contains("write its options after the command: agent undo"));
    assert!(hint(&["--session", "x"]).contains("agent resume ID"));
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
