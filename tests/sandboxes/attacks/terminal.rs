//! What reaches the user's terminal of what the model says and of what its tools write. The filter itself is tried with every
//! sequence there is in `sanitise.rs`.

use agent::cli::Cli;
use agent_testbed::agent::agent;
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use agent_testing::hostile_text::{assert_harmless, hostile_text, octal};
use clap::CommandFactory;
use serde_json::{Value, json};

/// Tricks, each with a word that shows in the bytes where it got through as a sequence.
const TRICKS: [&str; 11] = [
    "\x1b]0;T1TLE\x07",
    "\x1b]52;c;Q0xJUA==\x07",
    "\x1b]8;;http://l1nk.example\x1b\\click\x1b]8;;\x1b\\",
    "\x1b[6n",
    "\x1b[21t",
    "\x1b[?1049h",
    "\x1bP$q\"p\x1b\\",
    "\x1b_Gf=100;QVBD\x1b\\",
    "\u{9d}0;E1GHT\u{9c}",
    "\x1bc",
    "\u{202e}",
];

#[test]
fn attack_17_nothing_but_text_and_colour_reaches_the_terminal() {
    let tricks = TRICKS.concat();
    let octal: String = tricks.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    let model = endpoint()
        .tool_call(
            "run_commands",
            json!({ "command": format!("printf '{octal}'; printf '{octal}' >&2; echo t00l") }),
        )
        .tool_call("read_file", json!({ "path": format!("no{tricks}thing") }))
        .tool_call("run_commands", json!({ "command": format!("echo '{tricks}'") }))
        .tool_call(&format!("t{tricks}"), json!({}))
        .reasoning(
            &format!("I think {tricks}."),
            &format!("The {tricks} answer is **b0ld**.\n\n```\n{tricks}\n```\n# {tricks}\n"),
        )
        .start();
    let mut terminal = terminal().endpoint(&model).args(["run", "-v", "show me"]).start();
    terminal.wait();
    let raw = terminal.raw();
    let drawn = String::from_utf8_lossy(&raw).into_owned();
    assert!(drawn.contains("t00l") && drawn.contains("b0ld"), "{drawn}");
    for trick in TRICKS {
        assert!(!drawn.contains(trick), "{trick:?}: {drawn:?}");
    }
    // Of all that a terminal obeys, only what the program itself needs for colours and its line of progress.
    for (at, _) in drawn.match_indices('\x1b') {
        let sequence: String = drawn[at + 1..].chars().take_while(|c| !c.is_ascii_alphabetic()).collect();
        let end = drawn[at + 1 + sequence.len()..].chars().next();
        let known = sequence.starts_with('[')
            && matches!(end, Some('m' | 'K' | 'A' | 'B' | 'C' | 'D' | 'G' | 'J' | 'h' | 'l'));
        assert!(known, "{sequence:?}{end:?} in {drawn:?}");
        assert!(!sequence.contains("1049"), "{sequence:?}");
    }
    assert!(!drawn.contains(['\u{7}', '\u{8}', '\u{9b}', '\u{9d}', '\u{202e}']), "{drawn:?}");
}

/// A bug: on a pipe the answer was as the model wrote it, and `| tee` or `| less -R` ends at the terminal all the same.
#[test]
fn attack_17_an_answer_on_a_pipe_or_in_a_file_is_text_alone() {
    let tricks = TRICKS.concat();
    let model = endpoint().text(&format!("a\tb\n{tricks}\n\x1b[31mlast")).start();
    let output = std::env::temp_dir().join(format!("agent-attack-17-{}", std::process::id()));
    let path = output.to_str().expect("UTF-8");
    let finished = agent().endpoint(&model).args(["run", "--output", path, "go"]).run().expect_code(0);
    let written = std::fs::read_to_string(&output).expect("the answer");
    std::fs::remove_file(&output).expect("removed");
    for text in [&finished.stdout, &written] {
        assert!(text.starts_with("a\tb\n") && text.ends_with("last\n"), "{text:?}");
        assert!(!text.contains(['\x1b', '\x07', '\u{9d}', '\u{9c}', '\u{202e}']), "{text:?}");
    }
}

/// The names of files, on their way into a diff and a question.
#[test]
fn attack_17_names_are_shown_and_not_obeyed() {
    let name: String = TRICKS.concat().replace('/', "_");
    let octal: String = name.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    let make = format!("printf 'n3w\\n' > \"$(printf '{octal}')\"; printf '{octal}' > content");
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("done").start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("make it");
    terminal.wait_for("done");
    terminal.wait_for_prompt();
    terminal.type_line("/diff");
    terminal.wait_for("n3w");
    terminal.type_line("/exit");
    terminal.wait();
    let drawn = String::from_utf8_lossy(&terminal.raw()).into_owned();
    for trick in TRICKS {
        assert!(!drawn.contains(trick), "{trick:?}: {drawn:?}");
    }
}

/// A program that has the terminal for itself moves the cursor and changes modes, and nothing that outlasts it.
#[test]
fn attack_17_a_program_with_the_terminal_cannot_use_it_against_the_user() {
    let allowed = ["\x1b[6n", "\x1b[?1049h", "\x1bc"];
    let tricks: Vec<&str> = TRICKS.into_iter().filter(|trick| !allowed.contains(trick)).collect();
    let octal: String = tricks.concat().bytes().map(|byte| format!("\\{byte:03o}")).collect();
    let mut terminal = terminal().args(["exec", "--", "printf", &format!("{octal}sh0wn")]).start();
    assert_eq!(terminal.wait(), 0);
    let drawn = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(drawn.contains("clicksh0wn"), "{drawn:?}");
    for trick in tricks {
        assert!(!drawn.contains(trick), "{trick:?}: {drawn:?}");
    }
    assert!(!drawn.contains("\x1b]") && !drawn.contains("\x1bP"), "{drawn:?}");
}

/// Every command that shows what others wrote.
#[test]
fn attack_74_no_command_shows_hostile_text_as_it_is() {
    let hostile = hostile_text();
    let make =
        format!("printf '{0}\\n' > \"$(printf '{0}')\"; printf '{0}\\n'; printf '{0}\\n' >&2", octal());
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": make }))
        .tool_call(&hostile, json!({ (hostile.clone()): hostile }))
        .text(&hostile)
        .start();
    let done = agent().endpoint(&model).args(["run", "-v", &hostile]).run().expect_code(0);
    assert_harmless("run's answer", &done.stdout);
    assert_harmless("run's trace", &done.stderr);
    let listed = done.again().args(["sessions", "--json"]).run().expect_code(0);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let id = listed[0]["session"].as_str().or(listed[0]["id"].as_str()).expect("a session").to_owned();
    for call in SHOWING {
        let arguments = call.split(' ').map(|word| if word == "ID" { id.as_str() } else { word });
        let shown = done.again().args(arguments).run().expect_code(0);
        let text = shown.stdout + &shown.stderr;
        // What counts changes or sandboxes names none of them.
        let names_it = text.contains("H0STILE") || call.starts_with("diff") || call.starts_with("sessions s");
        assert_harmless(call, if names_it { &text } else { "H0STILE" });
    }
    let listed = json!({ "data": [{ "id": hostile }, { "id": "test-model" }] });
    let model = endpoint().models(200, listed.to_string()).start();
    let shown = agent().endpoint(&model).args(["models"]).run().expect_code(0);
    assert_harmless("models", &(shown.stdout + &shown.stderr));
}

/// Commands that show what others wrote, as the test above calls them.
const SHOWING: [&str; 11] = [
    "sessions show ID",
    "sessions report ID",
    "sessions list",
    "sessions verify ID",
    "diff",
    "diff --stat",
    "diff --name-only",
    "artifacts list",
    "sandbox list",
    "apply --yes",
    "undo",
];

/// The others that do, with the test that looks at what they show, or at the part that they share with it.
const ELSEWHERE: [(&str, &str); 20] = [
    ("run", "attack_74_no_command_shows_hostile_text_as_it_is"),
    ("models", "attack_74_no_command_shows_hostile_text_as_it_is"),
    ("exec", "attack_17_a_program_with_the_terminal_cannot_use_it_against_the_user"),
    ("code", "attack_17_a_program_with_the_terminal_cannot_use_it_against_the_user"),
    ("resume", "attack_17_names_are_shown_and_not_obeyed"),
    ("replay", "attack_17_nothing_but_text_and_colour_reaches_the_terminal"),
    ("demo", "attack_17_nothing_but_text_and_colour_reaches_the_terminal"),
    ("race", "attack_17_nothing_but_text_and_colour_reaches_the_terminal"),
    ("race show", "attack_17_nothing_but_text_and_colour_reaches_the_terminal"),
    ("batch", "attack_17_an_answer_on_a_pipe_or_in_a_file_is_text_alone"),
    ("batch status", "attack_17_an_answer_on_a_pipe_or_in_a_file_is_text_alone"),
    ("review", "sarif_is_valid_and_shows_what_the_model_wrote_without_obeying_it"),
    ("web", "attack_74_the_page_gets_no_hostile_text_as_it_is"),
    ("acp", "attack_74_an_editor_gets_no_hostile_text_as_it_is"),
    ("mcp", "attack_74_the_question_to_a_clients_user_has_no_hostile_text_as_it_is"),
    ("mcp check", "attack_74_nothing_that_a_server_says_is_shown_as_it_is"),
    ("mcp list", "attack_74_no_question_about_a_server_shows_hostile_text_as_it_is"),
    ("mcp approve", "attack_74_no_question_about_a_server_shows_hostile_text_as_it_is"),
    ("mcp import", "attack_74_no_question_about_a_server_shows_hostile_text_as_it_is"),
    (
        "sandbox setup",
        "attack_72_the_setup_of_a_hostile_project_runs_only_when_approved_and_its_result_leads_nowhere",
    ),
];

/// Commands that show what the user wrote and what this program says.
const OWN: [&str; 31] = [
    "sessions",
    "sessions rm",
    "sessions prune",
    "fork",
    "artifacts",
    "artifacts get",
    "artifacts show",
    "artifacts open",
    "sandbox",
    "sandbox pause",
    "sandbox resume",
    "sandbox rm",
    "serve",
    "forward",
    "mcp add",
    "mcp login",
    "mcp logout",
    "doctor",
    "guest",
    "guest export",
    "config",
    "config show",
    "config path",
    "config schema",
    "config init",
    "config edit",
    "config allowed",
    "config forget",
    "update",
    "completions",
    "man",
];

/// A new command is put into one of the three lists, and a test that is named there exists.
#[test]
fn attack_74_every_command_is_among_those_that_are_looked_at_or_show_nothing_of_others() {
    fn names(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            let name = format!("{path} {}", command.get_name()).trim_start().to_owned();
            names(command, &name, found);
            found.push(name);
        }
    }
    let mut program = Cli::command();
    program.build();
    let mut found = Vec::new();
    names(&program, "", &mut found);
    for name in &found {
        let is_shown =
            SHOWING.iter().any(|call| call.strip_prefix(name).is_some_and(|rest| !rest.starts_with('-')));
        let lists =
            [is_shown, ELSEWHERE.iter().any(|(other, _)| other == name), OWN.contains(&name.as_str())];
        assert!(lists.contains(&true), "`agent {name}` is in no list");
    }
    let gone = ELSEWHERE
        .iter()
        .map(|(name, _)| *name)
        .chain(OWN)
        .find(|name| !found.iter().any(|other| other == name));
    assert_eq!(gone, None, "a command that does not exist");
    let sources = [
        "servers/acp.rs",
        "servers/mcp_client.rs",
        "servers/mcp_server.rs",
        "command_line/review_command.rs",
        "servers/web.rs",
        "sandboxes/attacks/terminal.rs",
        "sandboxes/attacks/projects.rs",
    ];
    let read = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
        std::fs::read_to_string(path).expect("a test's source")
    };
    let tests: String = sources.map(read).concat();
    let missing = ELSEWHERE.iter().find(|(_, test)| !tests.contains(&format!("fn {test}()")));
    assert_eq!(missing, None, "a test that does not exist");
}

/// The same in questions about MCP servers of a repository, and in lists of them.
#[test]
fn attack_74_no_question_about_a_server_shows_hostile_text_as_it_is() {
    let hostile = hostile_text();
    let server = json!({ "command": hostile, "args": [hostile], "cwd": hostile, "env": { "A": hostile } });
    let file = json!({ "mcpServers": { "a": server } }).to_string();
    let call = agent().file(".mcp.json", &file).file(".cursor/mcp.json", &file);
    for arguments in [&["mcp", "approve", "--yes"][..], &["mcp", "import", "cursor"]] {
        let shown = call.again().args(arguments).run();
        assert_harmless(&arguments.join(" "), &(shown.stdout + &shown.stderr));
    }
}
