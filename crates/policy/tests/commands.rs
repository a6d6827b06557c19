//! Which commands are asked about with `--approve risky`.

#![cfg(feature = "grammars")]

use agent_policy::Approve;
use agent_policy::policy::{Action, Gate, Judgement, Rules};
use std::time::{Duration, Instant};

fn gate(verdict: &str, command: &str) -> Gate {
    let rules = serde_json::json!({ verdict: { "it": { "commands": [command] } } });
    let rules: Rules = serde_json::from_value(rules).expect("rules");
    Gate::new(rules, Approve::Risky, None).expect("a gate")
}

/// The commands of a file of one a line; remarks begin with a `#`.
fn commands(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.replace('␊', "\n"))
}

/// A rule about a program was passed by every interpreter other than a shell, by what decides the meaning of a name, by programs that run
/// others, and by what a grammar reads otherwise than bash.
#[test]
fn what_may_run_other_programs_is_asked_about() {
    let gate = gate("ask", "git push");
    let passed: Vec<String> = commands(include_str!("commands_unseen.txt"))
        .filter(|command| !matches!(gate.judge(Some(Action::Command(command))), Judgement::Ask(_)))
        .collect();
    assert_eq!(passed, Vec::<String>::new(), "these run without a question");
}

#[test]
fn what_is_known_is_not_asked_about() {
    let gate = gate("ask", "git push");
    let verdict = |command: &String| (command.clone(), gate.judge(Some(Action::Command(command))));
    let asked: Vec<_> = commands(include_str!("commands_seen.txt"))
        .map(|command| verdict(&command))
        .filter(|(_, verdict)| *verdict != Judgement::Allow)
        .collect();
    assert!(asked.is_empty(), "these run what is written and nothing else: {asked:#?}");
}

/// A program that is trusted with what it runs is trusted with its words.
#[test]
fn the_words_of_an_allowed_program_are_not_asked_about() {
    let rules = serde_json::json!({
        "ask": { "it": { "commands": ["git push"] } },
        "allow": { "tests": { "commands": ["cargo", "pytest", "uv", "npx"] } },
    });
    let rules: Rules = serde_json::from_value(rules).expect("rules");
    let gate = Gate::new(rules, Approve::Risky, None).expect("a gate");
    for command in
        ["cargo test mem", "pytest -k mem", "cargo run -- /proc/1/fd", "pytest proc/x", "uv run x", "npx x"]
    {
        assert_eq!(gate.judge(Some(Action::Command(command))), Judgement::Allow, "{command}");
    }
}

/// A word that the shell computes may be the option or the value that a rule denies.
#[test]
fn what_may_be_what_a_rule_names_is_asked_about() {
    let lines = [
        ("kill -9", "kill $((0-9)) 1"),
        ("kill -9", "kill \"$((-9))\" 1"),
        ("kill -KILL", "n=$((0-9)); kill $n 1"),
        ("kill -9", "s=9; kill -s $s 1"),
        ("kill -9", "kill -s $((9)) 1"),
        ("kill -TERM", "s=15; kill -s$s 1"),
        ("curl -X POST", "m=POST; curl -X$m u"),
        ("curl -X POST", "m=POST; curl --request=$m u"),
        // The dashes are the value of the option before them.
        ("curl -X POST", "curl -H -- u -X POST"),
        ("curl -X POST", "curl -b -- u -XPOST"),
        ("sort -o x", "sort -T -- a -o x"),
        ("git commit -m wip", "git commit -F -- -m wip"),
        ("tar -C /", "tar xf a --exclude -- b -C /"),
        ("curl -X POST", "x=1; ((x-=5)); curl \"${x}XPOST\" u"),
        ("kill -TERM", "kill $SIG 1"),
        // Where it is not known whether a word is an option's value, or which operands count.
        ("vercel deploy", "vercel --foo x deploy"),
        ("unknown deploy", "unknown a deploy"),
        ("git push origin main", "git push origin HEAD"),
    ];
    let passed = lines.iter().filter(|(rule, command)| {
        gate("deny", rule).judge(Some(Action::Command(command))) == Judgement::Allow
    });
    assert_eq!(passed.collect::<Vec<_>>(), Vec::<&(&str, &str)>::new(), "these run without a question");
    let allowed = ["kill 1", "kill $!", "kill -15 1", "kill -s TERM 1", "kill -0 1", "kill -l"];
    for command in allowed {
        assert_eq!(
            gate("deny", "kill -9").judge(Some(Action::Command(command))),
            Judgement::Allow,
            "{command}"
        );
    }
}

/// What others stand for gives way to options that are certain.
#[test]
fn another_method_than_the_denied_one_is_allowed() {
    let gate = gate("deny", "curl -X POST");
    let commands = [
        "curl -G -d q=x https://a.example",
        "curl -sG --data-urlencode q=x https://a.example",
        "curl --silent --get -d q=x https://a.example",
        "curl -o f -G -d q=x https://a.example",
        "curl -X PUT -H 'A: b' -d x https://a.example",
        "curl -XGET -d x https://a.example",
        "curl -HAccept:x -G -d x https://a.example",
        "curl -I https://a.example",
    ];
    let judged = commands.map(|command| (command, gate.judge(Some(Action::Command(command)))));
    let stopped: Vec<_> = judged.iter().filter(|(_, judged)| *judged != Judgement::Allow).collect();
    assert!(stopped.is_empty(), "these send something else: {stopped:#?}");
}

/// Also those that are asked about as a whole: a rule that denies something denies it there.
#[test]
fn a_rule_sees_what_it_names_in_every_spelling() {
    let lines: Vec<String> = commands(include_str!("commands_named.txt")).collect();
    let passed = lines.iter().filter(|line| {
        let (rule, command) = line.split_once('\t').expect("a rule and a command");
        !matches!(gate("deny", rule).judge(Some(Action::Command(command))), Judgement::Deny(_))
    });
    assert_eq!(passed.collect::<Vec<_>>(), Vec::<&String>::new(), "these run although a rule names them");
}

/// A name that is like another one is not that one.
#[test]
fn a_rule_denies_nothing_else() {
    let lines: Vec<String> = commands(include_str!("commands_not_named.txt")).collect();
    let denied = lines.iter().filter(|line| {
        let (rule, command) = line.split_once('\t').expect("a rule and a command");
        matches!(gate("deny", rule).judge(Some(Action::Command(command))), Judgement::Deny(_))
    });
    assert_eq!(denied.collect::<Vec<_>>(), Vec::<&String>::new(), "no rule names these");
}

/// However many commands and rules there are, the answer comes in time, and what is not compared is asked about.
#[test]
fn comparing_commands_takes_bounded_time() {
    let patterns: Vec<String> = (0..200).map(|n| format!("git push --x{n}")).collect();
    let rules = serde_json::json!({ "deny": { "it": { "commands": patterns } } });
    let rules: Rules = serde_json::from_value(rules).expect("rules");
    let gate = Gate::new(rules, Approve::Risky, None).expect("a gate");
    let many = format!("uv run --no-sync git push{}", " -v a".repeat(40));
    let gate_of_launchers = self::gate("deny", "git push");
    assert_ne!(gate_of_launchers.judge(Some(Action::Command(&many))), Judgement::Allow);
    let different = (0..5_000).map(|n| format!("git push a{n};")).collect::<String>();
    for command in ["git push;".repeat(9_000), different] {
        let start = Instant::now();
        let judged = gate.judge(Some(Action::Command(&command)));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_ne!(judged, Judgement::Allow);
    }
}
