//! The completions of shells: commands, and the values of options and arguments.

use agent_testbed::agent::{Agent, agent, binary};
use agent_testbed::terminal::Builder;
use agent_testing::endpoint::endpoint;
use serde_json::json;

/// The candidates for the last of `words`, as fish asks for them: a value, and its description behind a tab.
fn fish(call: Agent, words: &[&str]) -> Vec<String> {
    let asked = call.env("AGENT_COMPLETE", "fish").args(["--", "agent"]).args(words);
    asked.run().expect_code(0).stdout.lines().map(str::to_owned).collect()
}

fn values(call: Agent, words: &[&str]) -> Vec<String> {
    fish(call, words).iter().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

/// The candidates as bash asks for them: it splits words at `:` and `=`.
fn bash(call: Agent, words: &[&str]) -> String {
    let index = words.len().to_string();
    let asked = call.env("AGENT_COMPLETE", "bash").env("_AGENT_COMPLETE_INDEX", index);
    asked.args(["--", "agent"]).args(words).run().expect_code(0).stdout
}

#[test]
fn session_ids_are_offered_with_their_first_prompts_the_newest_first() {
    let place = agent();
    for prompt in ["first thing", "second thing"] {
        let model = endpoint().text("Done.").start();
        place.again().endpoint(&model).args(["-q", prompt]).run().expect_code(0);
    }
    let offered = fish(place.again(), &["resume", ""]);
    let help: Vec<&str> =
        offered.iter().filter_map(|line| line.split_once('\t')).map(|(_, help)| help).collect();
    assert_eq!(help, ["second thing", "first thing"]);
    let id = offered[0].split('\t').next().unwrap().to_owned();
    for words in
        [&["sessions", "show"][..], &["exec", "-s"], &["run", "--session"], &["sandbox", "rm"], &["replay"]]
    {
        assert_eq!(values(place.again(), &[words, &[&id[..20]]].concat())[0], id, "{words:?}");
    }
    assert!(bash(place.again(), &["resume", &id]).contains(&id));
    assert!(
        values(place.again(), &["resume", "--la"]).contains(&"--last".to_owned()),
        "options after a hyphen"
    );
}

#[test]
fn models_are_those_that_are_configured_or_were_offered_before_and_nobody_is_asked() {
    let model = endpoint()
        .models(200, json!({"data": [{"id": "qwen3:8b"}, {"id": "$(reboot)"}]}).to_string())
        .start();
    let place = agent().config("model = \"configured\"\n[prices.priced]\ninput = 1.0\noutput = 1.0\n");
    let before = values(place.again(), &["run", "--model", ""]);
    assert!(before.contains(&"configured".to_owned()) && before.contains(&"priced".to_owned()), "{before:?}");
    assert!(!before.contains(&"qwen3:8b".to_owned()));
    place.again().endpoint(&model).args(["models"]).run().expect_code(0);
    let asked = model.all_requests().len();
    let call = || place.again().endpoint(&model);
    assert_eq!(values(call(), &["run", "--model", "qw"]), ["qwen3:8b"]);
    assert!(
        !values(call(), &["run", "--model", ""]).iter().any(|name| name.contains('$')),
        "a shell would run it"
    );
    assert_eq!(bash(call(), &["run", "--model", "qwen3", ":"]), "8b\n");
    assert_eq!(bash(call(), &["run", "--model", "=", "qw"]), "qwen3:8b\n");
    assert_eq!(model.all_requests().len(), asked);
}

#[test]
fn providers_networks_backends_and_tasks_are_offered() {
    assert_eq!(values(agent(), &["run", "--provider", "o"]), ["openai", "openrouter", "ollama"]);
    assert_eq!(values(agent(), &["run", "--network", ""]), ["none", "full", "registries", "public"]);
    assert_eq!(values(agent(), &["run", "--network", "a.org,r"]), ["a.org,registries"]);
    assert_eq!(values(agent(), &["exec", "--sandbox", "lo"]), ["local"]);
    assert_eq!(values(agent(), &["demo", "fi"]), ["fibonacci", "fix"]);
    let commands = values(agent(), &[""]);
    assert!(
        commands.contains(&"run".to_owned()) && !commands.iter().any(|word| word.starts_with('-')),
        "{commands:?}"
    );
}

#[test]
fn every_shell_has_a_script_that_asks_the_program() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = agent().args(["completions", shell]).run().expect_code(0).stdout;
        assert!(script.contains("AGENT_COMPLETE"), "{shell}: {script}");
    }
}

#[test]
fn bash_completes_sessions_and_models_with_the_script() {
    let place = agent().config("model = \"qwen3:8b\"\n[prices.\"qwen3:32b\"]\ninput = 1.0\noutput = 1.0\n");
    let model = endpoint().text("Done.").start();
    place.again().endpoint(&model).args(["-q", "say done"]).run().expect_code(0);
    let id = values(place.again(), &["resume", ""]).remove(0);
    let binary = binary();
    let directory = binary.parent().expect("a directory").display();
    let mut shell = Builder::of("bash")
        .args(["--norc", "--noprofile", "-i"])
        .env("PS1", "ready> ")
        .env("AGENT_HOME", place.home(""))
        .env("PATH", format!("{directory}:{}", std::env::var("PATH").unwrap_or_default()))
        .start();
    shell.wait_for("ready>");
    shell.type_line("source <(agent completions bash); echo sour'ced'");
    shell.wait_for("sourced");
    // Only once it is complete does the shell put a space behind it.
    shell.type_text("agent resume 2\t");
    shell.wait_for(&format!("agent resume {id}"));
    shell.type_text("\u{15}agent run --model qw\t");
    shell.wait_for("agent run --model qwen3:");
    shell.type_text("8\t");
    shell.wait_for("agent run --model qwen3:8b");
    shell.type_text("\u{15}agent exec --sandbox=lo\t");
    shell.wait_for("agent exec --sandbox=local");
    shell.type_text("\u{15}");
    shell.type_line("exit");
    shell.wait();
}
