//! Lists that the user picks from, and what is shown of a session that is resumed.

use agent_testbed::agent::agent;
use agent_testbed::terminal::{Builder, terminal};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};

const UP: &str = "\x1b[A";
const DOWN: &str = "\x1b[B";

/// Two sessions with so many prompts each, the second written last.
fn with_sessions(builder: &Builder, model: &agent_testing::endpoint::Endpoint) {
    for (key, prompts) in [("one", &["first a", "first b", "first c"][..]), ("two", &["second a"])] {
        for prompt in prompts {
            let mut run = builder.again().endpoint(model).args(["run", "--session-key", key, prompt]).start();
            assert_eq!(run.wait(), 0);
        }
    }
}

#[test]
fn a_session_is_picked_from_a_list_and_its_last_exchanges_are_shown() {
    let model = endpoint().text("1a").text("1b").text("1c").text("2a").text("Here again.").start();
    let builder = terminal().endpoint(&model);
    with_sessions(&builder, &model);
    let resume = || builder.again().endpoint(&model).args(["resume"]);
    let mut left = resume().start();
    left.wait_for("Which session?");
    left.type_text("\x1b");
    assert_eq!(left.wait(), 0, "Escape resumes nothing");
    assert!(!left.screen().contains("Which session?"), "{}", left.screen());

    let mut terminal = resume().columns(80).start();
    terminal.wait_until("the newest on top", |screen| {
        let lines: Vec<&str> = screen.lines().filter(|line| line.contains(" turn")).collect();
        lines.len() == 2 && lines[0].starts_with("› ") && lines[0].contains("second a")
    });
    for key in [DOWN, DOWN, UP, DOWN, "\r"] {
        terminal.type_text(key);
    }
    for line in ["> first a", "> first b", "> first c", "\n1c\n"] {
        terminal.wait_for(line);
    }
    terminal.wait_for_prompt();
    terminal.type_line("back?");
    terminal.wait_for("Here again.");
    assert_eq!(model.last().messages().iter().filter(|message| message["role"] == "user").count(), 4);
}

#[test]
fn another_session_continues_at_the_prompt() {
    let model = endpoint().text("1a").text("1b").text("1c").text("2a").text("Third.").text("Second.").start();
    let builder = terminal().endpoint(&model);
    with_sessions(&builder, &model);
    let mut terminal = builder.start();
    terminal.wait_for_prompt();
    terminal.type_line("third");
    terminal.wait_for("\nThird.\n");
    terminal.wait_for_prompt();
    terminal.type_line("/resume");
    terminal.wait_for("Which session?");
    terminal.type_text("second");
    terminal.wait_until("what matches", |screen| screen.matches(" turn").count() == 1);
    terminal.type_text("\r");
    terminal.wait_for("\n> second a\n2a\n");
    terminal.wait_for_prompt();
    terminal.type_line("go on");
    terminal.wait_for("\nSecond.\n");
    let sent = model.last().messages();
    assert!(sent.iter().any(|message| message["content"] == "second a"), "{sent:?}");
    assert!(sent.iter().all(|message| message["content"] != "third"), "{sent:?}");
    terminal.wait_for_prompt();
    terminal.type_line("/resume 1999");
    terminal.wait_for("unknown session 1999");
}

#[test]
fn sessions_of_this_workspace_are_listed_unless_all_are_wanted() {
    let model = endpoint().text("ok").repeat_last().start();
    let here = agent().endpoint(&model).args(["run", "made here"]).run().expect_code(0);
    let other = tempfile::tempdir().unwrap();
    let there = || here.again().endpoint(&model).current_dir(other.path());
    let none = there().args(["sessions", "list"]).run().expect_code(0);
    assert!(none.stderr.contains("`agent sessions list --all` lists 1 of others"), "{}", none.stderr);
    there().args(["run", "made there"]).run().expect_code(0);
    let list = |arguments: &[&str]| here.again().args(arguments).run().expect_code(0).stdout;
    let text = list(&["sessions", "list"]);
    assert!(text.contains("made here") && !text.contains("made there"), "{text}");
    let text = list(&["sessions", "list", "--all"]);
    assert!(text.contains("made here") && text.contains("made there"), "{text}");
    assert!(text.contains(&format!("{}\n", other.path().canonicalize().unwrap().display())), "{text}");
    let all: Value = serde_json::from_str(&list(&["sessions", "list", "--all", "--json"])).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 2);
    let named = list(&["sessions", "list", "-C", other.path().to_str().unwrap()]);
    assert!(named.contains("made there") && !named.contains("made here"), "{named}");
}

/// At 80 columns the title was broken after its first characters.
#[test]
fn a_session_in_the_list_takes_one_line_that_shows_its_title() {
    let model = endpoint().text("ok").start();
    let first = terminal();
    let list = |columns| {
        let mut list = first.again().columns(columns).args(["sessions", "list"]).start();
        assert_eq!(list.wait(), 0);
        list.screen()
    };
    let prompt = "explain what the parser does and why it does it";
    assert_eq!(first.again().endpoint(&model).args(["run", prompt]).start().wait(), 0);
    let narrow = list(80);
    assert!(narrow.contains("explain what the parser"), "{narrow}");
    assert_eq!(narrow.trim().lines().count(), 1, "{narrow}");
    let wide = list(140);
    assert!(wide.contains(" tokens  explain what the parser does and why it does it"), "{wide}");
}

#[test]
fn a_model_is_picked_from_a_list() {
    let names: Vec<Value> = (0..30).map(|number| json!({ "id": format!("model-{number}") })).collect();
    let models = json!({ "object": "list", "data": names }).to_string();
    let model = endpoint().models(200, models).text("ok").start();
    let mut terminal = terminal().endpoint(&model).env("AGENT_MODEL", "model-3").start();
    terminal.wait_for_prompt();
    terminal.type_line("/model");
    terminal.wait_for("› model-3 (in use)");
    terminal.wait_for("of 30 (30 in all)");
    terminal.type_text("\x03");
    terminal.wait_for_prompt();
    assert!(!terminal.screen().contains("Which model?"), "{}", terminal.screen());
    terminal.type_line("/model");
    terminal.wait_for("Which model?");
    terminal.type_text("\x1b[B");
    terminal.type_text("\r");
    terminal.wait_for("model: model-4");
    terminal.wait_for_prompt();
    terminal.type_line("hello");
    terminal.wait_for("\nok\n");
    assert_eq!(model.last().body["model"], "model-4");
}
