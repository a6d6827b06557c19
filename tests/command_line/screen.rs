//! The view at a real terminal: snapshots at two widths with and without colours, the status line, the two styles of the
//! trace, notifications and the title.

use agent_testbed::agent::agent;
use agent_testbed::terminal::{Builder, terminal};
use agent_testing::endpoint::{Endpoint, endpoint};
use serde_json::json;
use std::path::Path;

/// The user's `config.toml`.
fn config(builder: Builder, text: &str) -> Builder {
    let directory = builder.directory("agent").join("config");
    std::fs::create_dir_all(&directory).expect("the directory");
    std::fs::write(directory.join("config.toml"), text).expect("the file");
    builder
}

/// A repository as far as the branch is looked up.
fn with_branch(workspace: &Path) {
    std::fs::create_dir(workspace.join(".git")).expect("a directory");
    std::fs::write(workspace.join(".git/HEAD"), "ref: refs/heads/feature\n").expect("the head");
}

/// A command that fails, one that succeeds, a change, and an answer with code.
fn model() -> Endpoint {
    endpoint()
        .tool_call("run_commands", json!({ "command": "seq 1 20; echo the last line; exit 3" }))
        .tool_call("run_commands", json!({ "command": "sed -i 's/ten/eleven/' count.rs; echo done" }))
        .text("I changed **one** word:\n\n```rust\n// how many\nfn count() -> u32 {\n    11\n}\n```\n\nThat is all.")
        .start()
}

const CODE: &str = "// how many\nfn count() -> u32 {\n    ten()\n}\n";

/// `text` without the line about what a command changed: it comes when the workspace is recorded, after the command or at the end.
fn without_changed_files(text: &str, line: &str) -> String {
    assert_eq!(text.matches(line).count(), 1, "{text}");
    text.split_inclusive('\n').filter(|shown| !shown.contains(line)).collect()
}

/// The screen after a prompt, `/diff` and a refused apply, with what differs between two runs replaced.
fn seen(columns: u16, environment: &[(&str, &str)], settings: &str) -> String {
    let model = model();
    let builder = terminal().endpoint(&model).columns(columns).file("count.rs", CODE);
    with_branch(&builder.directory("workspace"));
    let builder = environment.iter().fold(builder, |builder, (name, value)| builder.env(name, value));
    let mut terminal = config(builder, settings).start();
    terminal.wait_for_prompt();
    terminal.type_line("count to eleven");
    terminal.wait_for("That is all.");
    terminal.wait_for_prompt();
    terminal.type_line("/diff");
    terminal.wait_for("eleven()");
    terminal.wait_for_prompt();
    // It is written after the prompt.
    terminal.wait_until("the status line", |screen| screen.trim_end().ends_with("network none"));
    let path = terminal.root().display().to_string();
    let text =
        without_changed_files(&terminal.formatted().replace(&path, "ROOT"), "1 file changed: count.rs");
    let time = regex_lite::Regex::new(r"[0-9.]+ m?s\b").expect("a pattern");
    time.replace_all(&text, "TIME").into_owned()
}

#[test]
fn a_session_at_80_columns() {
    insta::assert_snapshot!(seen(80, &[("NO_COLOR", "1")], ""));
}

#[test]
fn a_session_at_120_columns() {
    insta::assert_snapshot!(seen(120, &[("NO_COLOR", "1")], ""));
}

#[test]
fn a_session_at_80_columns_in_colour() {
    insta::assert_snapshot!(seen(80, &[], "[ui]\ntrace = \"plain\"\n"));
}

#[test]
fn a_session_at_120_columns_in_colour() {
    insta::assert_snapshot!(seen(120, &[], ""));
}

/// The screen after a new file, an edit, an edit that fails, and a command that changes files.
fn edits(columns: u16, environment: &[(&str, &str)]) -> String {
    let new = "fn main() {\n    println!(\"{}\", count());\n}\n".to_owned() + &"// more\n".repeat(20);
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "main.rs", "data": new }))
        .tool_call("edit_file", json!({ "path": "count.rs", "old": "ten()", "new": "eleven()" }))
        .tool_call("edit_file", json!({ "path": "count.rs", "old": "ten(", "new": "x" }))
        .tool_call("run_commands", json!({ "command": "echo 1 > a.txt; echo 2 > b.txt" }))
        .text("Done.\n\n```diff\n-ten()\n+eleven()\n```")
        .start();
    let builder = terminal().endpoint(&model).columns(columns).file("count.rs", CODE);
    let builder = environment.iter().fold(builder, |builder, (name, value)| builder.env(name, value));
    let mut terminal = builder.start();
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("to apply");
    terminal.wait_for_prompt();
    let text = terminal.formatted();
    let text = &text[text.find("main.rs").map_or(0, |at| text[..at].rfind('\n').map_or(0, |at| at + 1))..];
    let end = text.find("to apply").expect("the end of the prompt");
    let time = regex_lite::Regex::new(r"[0-9.]+ m?s\b").expect("a pattern");
    let text = time.replace_all(&text[..end], "TIME").into_owned();
    without_changed_files(&text, "2 files changed: a.txt, b.txt")
}

#[test]
fn what_an_edit_changed_is_seen_at_80_columns() {
    insta::assert_snapshot!(edits(80, &[("NO_COLOR", "1")]));
}

#[test]
fn what_an_edit_changed_is_seen_at_120_columns_in_colour() {
    insta::assert_snapshot!(edits(120, &[]));
}

#[test]
fn reasoning_is_folded_to_a_line() {
    let reasoning =
        "The user \x1b[2Jwants a word.\nIt may be any word. ".to_owned() + &"More of it. ".repeat(30);
    let model = endpoint().reasoning(&reasoning, "Word.").start();
    let mut terminal = terminal().endpoint(&model).columns(60).start();
    terminal.wait_for_prompt();
    terminal.type_line("a word");
    terminal.wait_for("Word.");
    terminal.wait_for_prompt();
    let screen = terminal.screen();
    let line = screen.lines().find(|line| line.starts_with("· thought for ")).expect(&screen);
    assert!(line.contains(": The user wants a word. ⏎ It") && line.ends_with('…'), "{line}");
    assert!(!screen.contains("More of it. More of it. More of it."), "{screen}");
}

#[test]
fn the_trace_of_a_debugger_is_there_where_it_is_asked_for() {
    let model = endpoint()
        .tool_call("edit_file", json!({ "path": "count.rs", "old": "ten()", "new": "eleven()" }))
        .text("Done.")
        .start();
    let mut terminal =
        config(terminal().endpoint(&model).file("count.rs", CODE), "[ui]\ntrace = \"debug\"\n").start();
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("[DEBUG] edit_file called with path: count.rs, old: 5 bytes, new: 8 bytes");
    terminal.wait_for("[DEBUG] edit_file result: ok in");
    terminal.wait_for("1 file to apply");
    assert!(!terminal.screen().contains("eleven()"), "{}", terminal.screen());
}

#[test]
fn the_status_line_shows_what_the_settings_name_and_is_off_with_q() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo 1 > a; echo 2 > b" }))
        .text("Done.")
        .start();
    let start = |settings: &str, arguments: &[&str]| {
        let builder = terminal().endpoint(&model);
        with_branch(&builder.directory("workspace"));
        let terminal = config(builder, settings).args(arguments).start();
        terminal.wait_for_prompt();
        terminal
    };
    let settings = "[context]\ntest-model = 128000\n[prices.test-model]\ninput = 1000\noutput = 1000\n";
    let mut terminal = start(settings, &[]);
    terminal.wait_for("\n› \n  test-model · ");
    terminal.wait_for("% of 128k · 0.0000 · feature · local · network none");
    terminal.type_line("make two files");
    terminal.wait_for("· feature · 2 files changed · local · network none");
    terminal.type_line("/network allow example.com");
    terminal.wait_for("local · network example.com");
    let named = start("[ui]\nstatus = [\"network\", \"branch\"]\n", &[]);
    assert!(named.screen().ends_with("\n› \n  network none · feature"), "{}", named.screen());
    for terminal in [start("[ui]\nstatus = []\n", &[]), start("", &["-q"])] {
        assert!(!terminal.screen().contains("network none"), "{}", terminal.screen());
    }
}

#[test]
fn a_plain_trace_has_one_line_for_a_call_and_slash_last_shows_all_of_its_result() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "seq 1 30; exit 3" }))
        .tool_call("read_file", json!({ "path": "a.txt" }))
        .text("Done.")
        .start();
    let builder = terminal().endpoint(&model).file("a.txt", "read\n").env("PAGER", "cat");
    let mut terminal = config(builder, "[ui]\ntrace = \"plain\"\n").start();
    terminal.wait_for_prompt();
    terminal.type_line("/last");
    terminal.wait_for("no tool has run yet");
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("Done.");
    terminal.wait_for_prompt();
    let screen = terminal.screen();
    assert!(screen.contains("run  seq 1 30; exit 3   exit 3 in "), "{screen}");
    assert!(
        screen.contains("  │ … 25 more lines above\n  │ 26\n  │ 27\n  │ 28\n  │ 29\n  │ 30\n"),
        "{screen}"
    );
    assert!(screen.contains("read  a.txt   ok in "), "{screen}");
    assert!(!screen.contains("DEBUG") && !screen.contains("requested"), "{screen}");
    terminal.type_line("/last");
    terminal.wait_for("\nread  a.txt\nread\n");
    terminal.wait_for_prompt();
    // With what was written so far still there.
    terminal.type_text("/la\x0f");
    terminal
        .wait_until("the last result again", |screen| screen.matches("\nread  a.txt\nread\n").count() == 2);
    terminal.wait_until_prompt("the text", "› /la");
    terminal.type_line("st 2");
    terminal.wait_for("\nrun  seq 1 30; exit 3\n");
    terminal.wait_for("\n1\n2\n3\n4\n5\n6\n");
    terminal.wait_for_prompt();
    terminal.type_line("/last 9");
    terminal.wait_for("there are not so many results");
    terminal.type_line("/last x");
    terminal.wait_for("/last takes the number of the result");
}

#[test]
fn a_failed_check_shows_its_last_lines() {
    let model = endpoint().text("Done.").start();
    let check = "seq 1 40; exit 1";
    let call = agent().endpoint(&model).args(["run", "-q", "--check", check, "--check-attempts", "1", "x"]);
    let ran = call.run().expect_code(6);
    assert!(ran.stderr.contains("[CHECK] failed with exit 1"), "{}", ran.stderr);
    assert!(ran.stderr.contains("  │ 21\n") && ran.stderr.contains("  │ 40\n"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("│ 20\n"), "{}", ran.stderr);
    let again = endpoint().text("Done.").start();
    let json = ran
        .again()
        .endpoint(&again)
        .args(["run", "--json", "--check", check, "--check-attempts", "1", "x"])
        .run();
    let output = json.events_of("check_finished")[0]["output"].as_str().expect("the output").to_owned();
    assert!(output.starts_with("21\n") && output.ends_with("\n40"), "{output}");
}

/// Returns what the program wrote, as text.
fn raw(terminal: &agent_testbed::terminal::Terminal) -> String {
    String::from_utf8_lossy(&terminal.raw()).into_owned()
}

#[test]
fn the_user_is_notified_when_a_turn_ends_and_the_title_is_restored() {
    let place = tempfile::tempdir().expect("a directory");
    let seen = place.path().join("seen");
    let command = place.path().join("notify");
    std::fs::write(&command, format!("#!/bin/sh\nprintf '%s|' \"$@\" > {}\n", seen.display()))
        .expect("a command");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&command, mode).expect("its mode");
    let own = format!("[\"{}\", \"an argument\"]", command.display());
    for (notify, expected) in [
        ("\"bell\"", Some("\x07")),
        ("\"osc9\"", Some("\x1b]9;the turn has ended\x07")),
        ("\"osc777\"", Some("\x1b]777;notify;agent;the turn has ended\x07")),
        ("\"off\"", None),
        (own.as_str(), None),
    ] {
        let model = endpoint().text("Done.").start();
        let settings = format!("[ui]\nnotify = {notify}\nnotify_after = \"1ms\"\ntitle = true\n");
        let mut terminal = config(terminal().endpoint(&model), &settings).start();
        terminal.wait_for_prompt();
        terminal.type_line("go");
        terminal.wait_for("Done.");
        terminal.wait_for_prompt();
        terminal.ctrl_d();
        assert_eq!(terminal.wait(), 0);
        let written = raw(&terminal);
        let without_titles = written.replace("\x1b]2;agent: workspace\x07", "").replace("\x1b]2;\x07", "");
        let without_titles = without_titles.replace("\x1b]2;agent: workspace …\x07", "");
        match expected {
            Some(text) => assert!(without_titles.contains(text), "{notify}: {without_titles:?}"),
            None => assert!(!without_titles.contains('\x07'), "{notify}: {without_titles:?}"),
        }
        let saved = written.find("\x1b[22;2t").expect("the title is saved");
        let shown = written.find("\x1b]2;agent: workspace\x07").expect("a title");
        let restored = written.rfind("\x1b[23;2t").expect("the title is restored");
        assert!(saved < shown && shown < restored, "{written:?}");
    }
    let written = std::fs::read_to_string(&seen).expect("the command ran");
    assert_eq!(written, "an argument|the turn has ended|");
}

#[test]
fn a_quick_turn_rings_no_bell_and_a_pipe_gets_no_escape_sequence() {
    let model = endpoint().text("Done.").text("Done.").start();
    let mut terminal = config(terminal().endpoint(&model), "[ui]\ntitle = false\n").start();
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("Done.");
    terminal.wait_for_prompt();
    let written = raw(&terminal);
    assert!(!written.contains('\x07') && !written.contains("\x1b[22;2t"), "{written:?}");
    let settings = "[ui]\nnotify_after = \"1ms\"\n";
    let ran = agent().endpoint(&model).config(settings).args(["run", "go"]).run().expect_code(0);
    assert!(!ran.stderr.contains('\x1b') && !ran.stderr.contains('\x07'), "{:?}", ran.stderr);
    let wrong = ran.again().config("[ui]\nnotify = \"loud\"\n").args(["run", "go"]).run().expect_code(2);
    assert!(wrong.stderr.contains("osc777"), "{}", wrong.stderr);
}
