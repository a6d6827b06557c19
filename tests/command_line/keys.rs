//! The keys of the prompt, and what is typed while the model works.

use agent::cli::ui::line_editor::draw::Label;
use agent::cli::ui::line_editor::{Assistant, Editing, Editor};
use agent::cli::ui::read::read;
use agent_testbed::terminal::{Builder, Terminal, terminal};
use agent_testing::endpoint::{Endpoint, endpoint};
use rustyline::completion::Pair;
use rustyline::history::DefaultHistory;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn start(endpoint: &Endpoint) -> Terminal {
    let terminal = terminal().endpoint(endpoint).start();
    terminal.wait_for_prompt();
    terminal
}

/// The text of the last prompt that the model got.
fn sent(model: &Endpoint) -> String {
    let message = model.last().messages().pop().expect("a message");
    message["content"].as_str().expect("text").to_owned()
}

/// The session's configuration, in a terminal's home.
fn configured(text: &str) -> Builder {
    let builder = terminal();
    let directory = builder.directory("agent").join("config");
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("config.toml"), text).expect("the configuration");
    builder
}

#[test]
fn every_key_for_a_new_line_begins_one_and_enter_sends() {
    for columns in [80, 120] {
        let model = endpoint().text("Read.").start();
        let mut terminal = terminal().columns(columns).endpoint(&model).start();
        terminal.wait_for_prompt();
        terminal.type_text("one\x1b\rtwo\nthree\x1b[13;2ufour\x1b[27;2;13~five");
        terminal.wait_for("› one\n  two\n  three\n  four\n  five");
        terminal.type_text("\x1b[A\x1b[A!\r");
        terminal.wait_for("Read.");
        assert_eq!(sent(&model), "one\ntwo\nthre!e\nfour\nfive");
    }
}

#[test]
fn a_long_paste_is_shown_by_its_size_and_sent_whole() {
    let model = endpoint().text("Read.").repeat_last().start();
    let mut terminal = start(&model);
    let lines: Vec<String> = (1..=3000).map(|number| format!("line {number}")).collect();
    let pasted = lines.join("\n");
    terminal.type_text(&format!("look: \x1b[200~{}\x1b[201~ now", pasted.replace('\n', "\r")));
    terminal.wait_for("› look: [pasted 3,000 lines] now");
    assert!(!terminal.screen().contains("line 17"), "{}", terminal.screen());
    terminal.type_text("\r");
    terminal.wait_for("Read.");
    assert_eq!(sent(&model), format!("look: {pasted} now"));
    terminal.wait_for_prompt();
    terminal.type_text("\x1b[200~one\rtwo\x1b[201~");
    terminal.wait_for("› one\n  two");
}

/// A bug: a paste whose end a multiplexer or a link had lost took all keys for ever.
#[test]
fn a_paste_without_an_end_is_over_after_a_silence_or_with_control_c() {
    let model = endpoint().text("Read.").repeat_last().start();
    let mut terminal = start(&model);
    terminal.type_text("\x1b[200~hello");
    terminal.type_text(" more");
    terminal.wait_for("› hello more");
    terminal.type_text("!\r");
    terminal.wait_for("Read.");
    assert_eq!(sent(&model), "hello more!");
    terminal.wait_for_prompt();
    terminal.type_text("\x1b[200~second");
    // Within the silence that ends it, and after the shortest that a key has before it.
    std::thread::sleep(Duration::from_millis(200));
    terminal.type_text("\x03");
    terminal.wait_until_prompt("the text of the paste", "› second");
    terminal.type_text(" text\x1b[200~ split\x1b[2");
    terminal.type_text("01~ end");
    terminal.wait_until_prompt("what was typed behind it", "› second text split end");
}

#[test]
fn a_paste_without_an_end_while_the_model_works_is_text_for_the_next_prompt() {
    let model =
        endpoint().tool_calls(&[("run_commands", json!({ "command": "sleep 4" }))]).text("Done.").start();
    let mut terminal = start(&model);
    terminal.type_line("go");
    terminal.wait_for("sleep 4");
    terminal.type_text("\x1b[200~kept");
    terminal.wait_for("› kept▏");
    terminal.wait_for("Done.");
    terminal.wait_until_prompt("the text of the paste", "› kept");
}

/// A bug: what is typed on the number pad of kitty was lost.
#[test]
fn the_number_pad_of_kitty_types_what_is_written_on_it() {
    let model = endpoint().text("Read.").start();
    let mut terminal = terminal().env("TERM", "xterm-kitty").endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_text(
        "port 8\x1b[57399u\x1b[57407;1:1u\x1b[57407;1:3u\x1b[57408;129u\x1b[57417;1:1u\x1b[57441;129u-",
    );
    terminal.wait_for("› port 808-9");
    terminal.type_text("\x1b[57414;129u");
    terminal.wait_for("Read.");
    assert_eq!(sent(&model), "port 808-9");
}

/// A bug: over a slow link, an arrow whose bytes came apart was Escape and letters.
#[test]
fn a_key_whose_bytes_come_apart_is_one_key() {
    let model = endpoint().text("Read.").repeat_last().start();
    let mut terminal = start(&model);
    terminal.type_text("ab");
    terminal.wait_for("› ab");
    for pieces in [["\x1b", "[D"], ["\x1b[", "D"]] {
        for piece in pieces {
            terminal.type_text(piece);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    terminal.type_text("x\r");
    terminal.wait_for("Read.");
    assert_eq!(sent(&model), "xab");
}

#[test]
fn emoji_of_several_characters_are_one_to_every_key() {
    let model = endpoint().text("Read.").start();
    let mut terminal = start(&model);
    terminal.type_text("a👨‍👩‍👧b🇩🇪c👍🏽❤️");
    terminal.type_text("\x7f\x7f\x1b[D\x7f\x1b[D\x1b[Dx\r");
    terminal.wait_for("Read.");
    assert_eq!(sent(&model), "ax👨‍👩‍👧bc");
}

#[test]
fn the_text_is_edited_in_the_users_own_editor_and_never_in_one_of_the_workspace() {
    let model = endpoint().text("Read.").repeat_last().start();
    let builder = terminal().endpoint(&model).file("editor", "#!/bin/sh\necho workspace > \"$1\"\n");
    for (path, script) in
        [("home/editor", "#!/bin/sh\ntest -t 0 && sed -i 's/one/two/' \"$1\"\n"), ("workspace/editor", "")]
    {
        let path = builder.directory(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        if !script.is_empty() {
            std::fs::write(&path, script).expect("the editor");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it can run");
    }
    let outside = builder.directory("home/editor");
    let inside = builder.directory("workspace/editor");
    let other = builder.again().endpoint(&model).env("VISUAL", inside);
    let mut terminal = builder.env("EDITOR", outside).start();
    terminal.wait_for_prompt();
    for key in ["\x07", "\x18\x05"] {
        terminal.type_text(&format!("word one{key}"));
        // The line of the first time is still on the screen.
        terminal.wait_until_prompt("the edited text", "› word two");
        terminal.type_text(" more\r");
        terminal.wait_for_prompt();
        assert_eq!(sent(&model), "word two more");
    }
    drop(terminal);
    let mut terminal = other.start();
    terminal.wait_for_prompt();
    terminal.type_text("kept\x07");
    terminal.wait_for("name one in EDITOR, outside of the workspace");
    terminal.wait_for("› kept");
}

#[test]
fn vi_keys_are_a_setting() {
    let model = endpoint().text("Read.").start();
    let mut terminal = configured("[ui]\nediting = \"vi\"\n").endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_text("one two three");
    terminal.wait_for("› one two three");
    terminal.type_text("\x1b");
    terminal.wait_for(": one two three");
    terminal.type_text("02dwcwfour");
    terminal.wait_for("› four");
    terminal.type_text("\r");
    terminal.wait_for("Read.");
    assert_eq!(sent(&model), "four");
}

#[test]
fn escape_stops_a_turn() {
    let model = endpoint()
        .text("A first paragraph.\n\nA second one that is never going to be written to its very end.")
        .after(1300)
        .stall(Duration::from_secs(1000))
        .text("Later.")
        .start();
    let mut terminal = start(&model);
    terminal.type_line("talk");
    terminal.wait_for("│ A second one");
    terminal.type_text("\x1b");
    terminal.wait_for("stopped; the session continues");
    terminal.wait_for_prompt();
    terminal.type_line("again");
    terminal.wait_for("Later.");
}

#[test]
fn what_is_typed_while_it_works_waits_can_be_edited_and_is_sent() {
    for columns in [80, 120] {
        let may_answer = Arc::new(AtomicBool::new(false));
        let waited_for = Arc::clone(&may_answer);
        let model = endpoint().by_rule(move |request| {
            let asked = request["messages"]
                .as_array()
                .and_then(|all| all.last()?["content"].as_str().map(str::to_owned));
            let deadline = Instant::now() + Duration::from_secs(50);
            while !waited_for.load(Ordering::SeqCst) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            endpoint().text(&format!("Read: {}.", asked.unwrap_or_default()))
        });
        let model = model.start();
        let mut terminal = terminal().columns(columns).endpoint(&model).start();
        terminal.wait_for_prompt();
        terminal.type_line("begin");
        terminal.wait_for("thinking…");
        terminal.type_text("second\rthird, wrong\r");
        terminal.wait_for("  queued: second\n  queued: third, wrong");
        terminal.type_text("\x1b[A\x17right\r");
        terminal.wait_for("  queued: second\n  queued: third, right");
        terminal.type_text("rest\x1b[D");
        terminal.wait_for("  › res▏t\n  Enter: send after this turn");
        may_answer.store(true, Ordering::SeqCst);
        // The queue is sent in order, and what was not complete is there to be edited.
        for shown in
            ["Read: begin.", "\n› second\n", "Read: second.", "\n› third, right\n", "Read: third, right."]
        {
            terminal.wait_for(shown);
        }
        terminal.wait_until_prompt("the rest", "› rest");
        let screen = terminal.screen();
        assert!(!screen.contains("queued") && !screen.contains("▏"), "nothing is left:\n{screen}");
    }
}

#[test]
fn a_second_enter_stops_the_turn_and_sends_what_waits() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo sta'rted'; sleep 1000" }))
        .text("Now this.")
        .start();
    let mut terminal = start(&model);
    terminal.type_line("wait for long");
    terminal.wait_for("│ started");
    terminal.type_text("do this instead\r");
    terminal.wait_for("queued: do this instead\n  Enter: send now");
    terminal.type_text("\r");
    terminal.wait_for("stopped; the session continues");
    terminal.wait_for("Now this.");
    assert_eq!(sent(&model), "do this instead");
}

#[test]
fn escape_twice_goes_back_to_an_earlier_prompt_with_its_files() {
    let mut script = endpoint();
    for (file, answer) in [("a", "One."), ("b", "Two."), ("c", "Three.")] {
        script = script.tool_call("write_file", json!({ "path": file, "data": "x\n" })).text(answer);
    }
    let model = script.text("Otherwise.").text("Resumed.").start();
    let first = terminal().endpoint(&model);
    let next = first.again().endpoint(&model).args(["resume"]);
    let mut terminal = first.start();
    terminal.wait_for_prompt();
    for (prompt, answer) in [("make a", "One."), ("make b", "Two."), ("make c", "Three.")] {
        terminal.type_line(prompt);
        terminal.wait_for(answer);
        terminal.wait_for_prompt();
    }
    terminal.type_text("draft");
    terminal.wait_for("› draft");
    terminal.type_text("\x1b\x1b");
    terminal.wait_for("Go back to before which prompt?");
    terminal.wait_for("  make a\n  make b\n› make c");
    terminal.type_text("\x1b");
    terminal.wait_until_prompt("the draft", "› draft");
    terminal.type_text("\x15");
    terminal.type_line("/rewind");
    terminal.wait_for("Go back to before which prompt?");
    terminal.wait_for("› make c");
    terminal.type_text("\x1b[A");
    terminal.wait_for("› make b\n  make c");
    terminal.type_line("");
    terminal
        .wait_for("back to before prompt 2: the conversation, and in the sandbox 2 files are as they were");
    terminal.wait_until_prompt("the prompt's text", "› make b");
    terminal.type_text(" otherwise\r");
    terminal.wait_for("Otherwise.");
    terminal.wait_for_prompt();
    let users = |model: &Endpoint| {
        let messages = model.last().messages();
        let of_user = messages.iter().filter(|message| message["role"] == "user");
        of_user.map(|message| message["content"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(users(&model), ["make a", "make b otherwise"]);
    terminal.type_line("!ls");
    terminal.wait_for("\na\nexit 0");
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
    let mut terminal = next.start();
    terminal.wait_for_prompt();
    terminal.type_line("and now?");
    terminal.wait_for("Resumed.");
    let resumed = users(&model);
    assert_eq!((resumed.len(), resumed[0].as_str(), resumed[1].as_str()), (3, "make a", "make b otherwise"));
}

#[test]
fn a_prompt_is_there_again_after_ctrl_z_and_fg() {
    let model = endpoint().text("Still.").start();
    let mut terminal =
        Builder::of("bash").endpoint(&model).env("PS1", "shell> ").args(["--norc", "-i"]).start();
    terminal.wait_for("shell>");
    terminal.type_line(env!("CARGO_BIN_EXE_agent"));
    terminal.wait_for_prompt();
    terminal.type_text("half a prompt");
    terminal.wait_for("› half a prompt");
    terminal.type_text("\x1a");
    terminal.wait_until("the shell", |screen| screen.trim_end().ends_with("shell>"));
    assert!(terminal.is_as_found() || terminal.screen().contains("Stopped"));
    terminal.type_line("fg");
    terminal.wait_until_prompt("the prompt again", "› half a prompt");
    terminal.type_text(" continued\r");
    terminal.wait_for("Still.");
    assert_eq!(sent(&model), "half a prompt continued");
}

#[test]
fn a_turn_goes_on_after_ctrl_z_and_fg_and_leaves_nothing_on_the_shells_screen() {
    let model = endpoint().text("Before the pause, and after it.").stall(Duration::from_secs(5)).start();
    let mut terminal =
        Builder::of("bash").endpoint(&model).env("PS1", "shell> ").args(["--norc", "-i"]).start();
    terminal.wait_for("shell>");
    terminal.type_line(env!("CARGO_BIN_EXE_agent"));
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("Before");
    terminal.type_text("\x1a");
    terminal.wait_until("the shell", |screen| screen.trim_end().ends_with("shell>"));
    let screen = terminal.screen();
    assert!(screen.contains("Stopped") && !screen.contains("writing"), "{screen}");
    terminal.type_line("fg");
    terminal.wait_for("Before the pause, and after it.");
    terminal.wait_for_prompt();
    assert_eq!(terminal.screen().matches("Before the pause").count(), 1, "{}", terminal.screen());
}

/// Panics at the key Tab, in the middle of what the editor does.
struct Panicking;

impl Assistant for Panicking {
    fn complete(&self, _: &str, _: usize) -> (usize, Vec<Pair>) {
        panic!("an error of the program")
    }
    fn hint(&self, _: &str, _: &DefaultHistory) -> Option<(String, usize)> {
        None
    }
    fn is_incomplete(&self, _: &str) -> bool {
        false
    }
}

#[test]
fn a_panic_at_the_prompt_restores_the_terminal() {
    const NAME: &str = "keys::a_panic_at_the_prompt_restores_the_terminal";
    if std::env::var_os("PANICS_AT_THE_PROMPT").is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut editor = Editor::new(DefaultHistory::new(), Editing::Emacs);
        let label = Label { plain: "› ".to_owned(), painted: "› ".to_owned() };
        let _ = runtime.block_on(read(&mut editor, &label, &Panicking));
        return;
    }
    let program = std::env::current_exe().expect("the tests' own program");
    let mut terminal = Builder::of(program)
        .env("PANICS_AT_THE_PROMPT", "1")
        .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
        .start();
    terminal.wait_for_prompt();
    assert!(!terminal.is_as_found(), "the editor has the keys");
    terminal.type_text("a\t");
    assert_eq!(terminal.wait(), 101);
    assert!(terminal.is_as_found(), "{}", terminal.screen());
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    let panicked = raw.find("an error of the program").expect("the panic's message");
    assert!(raw[panicked..].contains("\x1b[?2004l\x1b[>4m\x1b[<u"), "{raw:?}");
}

#[test]
fn keys_are_told_apart_only_at_the_prompt_and_where_the_terminal_can() {
    let model = endpoint().text("Yes.").start();
    let on = "\x1b[?2004h\x1b[>5u\x1b[>4;2m";
    let off = "\x1b[?2004l\x1b[>4m\x1b[<u";
    let mut terminal = start(&model);
    let raw = |terminal: &Terminal| String::from_utf8_lossy(&terminal.raw()).into_owned();
    let counts = |raw: &str| (raw.matches(on).count(), raw.matches(off).count());
    assert_eq!(counts(&raw(&terminal)), (1, 0));
    terminal.type_line("go");
    terminal.wait_for("Yes.");
    terminal.wait_for_prompt();
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
    let all = raw(&terminal);
    assert_eq!(counts(&all), (2, 2), "{all:?}");
    assert!(all.find(off) < all.find("Yes."), "not while the model works: {all:?}");
    let plain = agent_testbed::terminal::terminal().endpoint(&model).env("TERM", "linux").start();
    plain.wait_for_prompt();
    let plain = raw(&plain);
    assert!(plain.contains("\x1b[?2004h") && !plain.contains("\x1b[>5u"), "{plain:?}");
}

#[test]
fn nothing_is_left_of_the_progress_after_a_resize_and_an_interrupt() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo this line is long enough to be broken where the window is narrow; sleep 1000" }))
        .start();
    // A terminal of its name does not break lines anew, and neither does the tests' own.
    let mut terminal = terminal().columns(80).env("XTERM_VERSION", "XTerm(390)").endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("wait");
    terminal.wait_for("│ this line is long");
    terminal.resize(60);
    terminal.wait_until("the narrower line", |screen| {
        screen
            .lines()
            .any(|line| line.starts_with("  │") && line.ends_with("narrow") && line.chars().count() < 40)
    });
    terminal.resize(80);
    terminal.ctrl_c();
    terminal.wait_for("stopped; the session continues");
    terminal.wait_for_prompt();
    let screen = terminal.screen();
    let left = screen.lines().filter(|line| line.contains('│') || line.contains("running"));
    assert_eq!(left.count(), 0, "{screen}");
}
