//! The REPL at a real terminal.

use agent::log::Store;
use agent_testbed::terminal::{Terminal, terminal};
use agent_testing::endpoint::{Endpoint, endpoint};
use serde_json::json;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

fn start(endpoint: &Endpoint) -> Terminal {
    let terminal = terminal().endpoint(endpoint).start();
    terminal.wait_for_prompt();
    terminal
}

#[test]
fn a_prompt_is_answered_as_the_model_writes_and_ctrl_d_leaves() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo inside; exit 3" }))
        .text("# Done\n\nIt said **inside**.\n\n- one\n- two\n")
        .pieces(7)
        .pace(Duration::from_millis(5))
        .start();
    let mut terminal = start(&model);
    assert!(terminal.screen().contains("/help"), "{}", terminal.screen());
    terminal.type_line("say something");
    terminal.wait_for("✗ run  echo inside; exit 3   exit 3 in");
    terminal.wait_for("It said inside.\n\n• one\n• two\n");
    terminal.wait_for_prompt();
    assert!(
        !terminal.screen().contains("**") && !terminal.screen().contains("thinking"),
        "{}",
        terminal.screen()
    );
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn a_prompt_of_the_command_line_is_the_first_of_the_repl() {
    let model = endpoint().text("Fixed.").text("And more.").start();
    let mut terminal = terminal().endpoint(&model).args(["fix it"]).start();
    terminal.wait_for("› fix it");
    terminal.wait_for("\nFixed.\n");
    terminal.wait_for_prompt();
    terminal.type_line("more");
    terminal.wait_for("And more.");
    assert_eq!(model.requests()[1].messages().len(), 4);
    terminal.wait_for_prompt();
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn the_remark_about_ignored_files_comes_once() {
    let model = endpoint().start();
    let mut terminal = terminal().endpoint(&model).file(".gitignore", "*.log\n").start();
    terminal.wait_for_prompt();
    terminal.type_line("!echo 1 > a.log; echo 1 > kept.txt");
    terminal.wait_for("exit 0 in");
    terminal.wait_for_prompt();
    terminal.type_line("/diff");
    terminal.wait_for("New files that .gitignore names stay in the sandbox: a.log");
    terminal.wait_for_prompt();
    terminal.type_line("/diff");
    terminal.wait_until("two diffs", |screen| screen.matches("kept.txt").count() >= 3);
    terminal.wait_for_prompt();
    assert_eq!(terminal.screen().matches("New files that").count(), 1, "{}", terminal.screen());
}

#[test]
fn options_about_the_end_of_a_run_answer_one_prompt_at_a_terminal_too() {
    let model = endpoint().text("Once.").repeat_last().start();
    for arguments in [&["-p", "fix it"][..], &["run", "fix it"], &["--check", "true", "fix it"]] {
        let mut terminal = terminal().endpoint(&model).args(arguments).start();
        terminal.wait_for("Once.");
        assert_eq!(terminal.wait(), 0, "{arguments:?}");
    }
}

#[test]
fn a_resumed_session_shows_its_conversation_and_a_new_one_what_is_not_applied() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo made > a.txt; seq 100" }))
        .text("Written. **It is there.**")
        .text("Again.")
        .start();
    let builder = terminal().endpoint(&model);
    let mut first = builder.again().endpoint(&model).args(["write it"]).start();
    first.wait_for("Written.");
    first.wait_for_prompt();
    first.ctrl_d();
    assert_eq!(first.wait(), 0);

    let mut resumed = builder.again().endpoint(&model).args(["-c"]).start();
    resumed.wait_for("> write it");
    resumed.wait_for("run  echo made > a.txt; seq 100   exit 0 in");
    resumed.wait_for("1 file changed: a.txt");
    resumed.wait_for("Written. It is there.");
    resumed.wait_for("1 file changed");
    resumed.wait_for_prompt();
    resumed.type_line("again");
    resumed.wait_for("Again.");
    resumed.wait_for_prompt();
    resumed.ctrl_d();
    assert_eq!(resumed.wait(), 0);

    let mut new = builder.again().endpoint(&model).start();
    new.wait_for("not applied yet: 1 file added, 0 modified, 0 deleted, in session");
    new.wait_for_prompt();
    new.ctrl_d();
    assert_eq!(new.wait(), 0);
}

#[test]
fn the_answer_is_copied_exported_and_counted() {
    let model = endpoint().text("Do:\n\n```sh\nls -l\n```\n").start();
    let mut terminal = start(&model);
    terminal.type_line("/copy");
    terminal.wait_for("there is no answer to copy yet");
    terminal.type_line("how?");
    terminal.wait_for("ls -l");
    terminal.wait_for_prompt();
    terminal.type_line("/copy code");
    terminal.wait_for("1 line sent to the terminal's clipboard");
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(raw.contains("\x1b]52;c;bHMgLWw=\x07"), "{raw:?}");
    terminal.type_line("/context");
    terminal.wait_for("system prompt and instructions");
    terminal.wait_for("answers and calls");
    terminal.type_line("/export html");
    terminal.wait_for("exported to");
    terminal.type_line("/export talk.md");
    terminal.wait_for("exported to talk.md");
    terminal.type_line("/save");
    terminal.wait_for("saved as");
    terminal.wait_for_prompt();
    let exports = terminal.root().join("agent/data/exports");
    let mut names: Vec<_> = std::fs::read_dir(exports)
        .expect("the exports")
        .map(|entry| entry.expect("an entry").path().extension().expect("one").to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["html", "jsonl"]);
    let workspace = terminal.root().join("workspace");
    let markdown = std::fs::read_to_string(workspace.join("talk.md")).expect("the file");
    assert!(markdown.contains("## Prompt\n\nhow?") && markdown.contains("```sh\nls -l"), "{markdown}");
    assert_eq!(
        std::fs::read_dir(workspace).expect("a directory").count(),
        1,
        "nothing else is in the project"
    );
}

#[test]
fn ctrl_c_stops_a_command_and_the_session_continues() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo started; sleep 1000" }))
        .text("Still here.")
        .start();
    let mut terminal = start(&model);
    terminal.type_line("wait for long");
    terminal.wait_for("running echo started");
    terminal.wait_for("│ started");
    terminal.ctrl_c();
    terminal.wait_for("stopped; the session continues");
    terminal.wait_for_prompt();
    assert!(
        !terminal.screen().contains("running echo started"),
        "the spinner is gone:\n{}",
        terminal.screen()
    );
    terminal.type_line("and now?");
    terminal.wait_for("Still here.");
    let messages = model.requests()[1].messages();
    assert_eq!(messages[messages.len() - 3]["role"], "tool", "the stopped call has its answer: {messages:?}");
    assert_eq!(messages[messages.len() - 2]["role"], "assistant", "and the prompt has one: {messages:?}");
    terminal.wait_for_prompt();
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn ctrl_c_stops_an_answer_and_keeps_what_was_shown() {
    let model = endpoint()
        .text("A first paragraph.\n\nA second one that is never going to be written to its very end.")
        .after(1300)
        .stall(Duration::from_secs(1000))
        .text("Later.")
        .start();
    let mut terminal = start(&model);
    terminal.type_line("talk");
    terminal.wait_for("\nA first paragraph.\n");
    terminal.wait_for("│ A second one");
    terminal.ctrl_c();
    terminal.wait_for("\nA second one");
    terminal.wait_for("stopped; the session continues");
    terminal.wait_for_prompt();
    terminal.type_line("continue");
    terminal.wait_for("Later.");
}

#[test]
fn ctrl_c_at_the_prompt_clears_the_line_and_a_second_one_explains_how_to_leave() {
    let mut terminal = start(&endpoint().start());
    terminal.type_text("half a prompt");
    terminal.wait_for("half a prompt");
    terminal.ctrl_c();
    terminal.wait_for_prompt();
    assert!(!terminal.screen().contains("Ctrl-D or /exit leaves"));
    terminal.ctrl_c();
    terminal.wait_for("Ctrl-D or /exit leaves");
    terminal.type_line("/exit");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn an_exclamation_mark_runs_a_command_in_the_sandbox_with_live_output() {
    let mut terminal = start(&endpoint().start());
    terminal.type_line("!printf 'a\\033]0;title\\007b\\n'; exit 7");
    terminal.wait_for("\nab\nexit 7 in");
    terminal.wait_for_prompt();
    terminal.type_line("!echo run'ning'; sleep 1000");
    terminal.wait_for("\nrunning");
    terminal.ctrl_c();
    terminal.wait_for("killed by signal 2 in");
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(!raw.contains("\x1b]0;title"), "no title may be set");
}

#[test]
fn slash_commands_are_listed_completed_and_corrected() {
    let models = json!({ "object": "list", "data": [{ "id": "other" }, { "id": "test-model" }] }).to_string();
    let model = endpoint().text("Hello.").models(200, models).start();
    let mut terminal = start(&model);
    terminal.type_line("/help");
    terminal.wait_for("/context ");
    terminal.wait_for("/exit ");
    terminal.type_line("/modle");
    terminal.wait_for("did you mean /model?");
    terminal.type_text("/us\t");
    terminal.wait_for("› /usage");
    terminal.type_text("\r");
    terminal.wait_for("0 turns, 0 tokens in, 0 out");
    terminal.type_line("/model");
    terminal.wait_for("› test-model (in use)");
    terminal.type_text("oth");
    terminal.wait_for("› other");
    terminal.type_text("\r");
    terminal.wait_for("model: other");
    terminal.type_line("hi");
    terminal.wait_for("Hello.");
    assert_eq!(model.chat_requests()[0]["model"], "other");
}

#[test]
fn commands_and_files_are_listed_while_they_are_written() {
    let model = endpoint().text("ok").repeat_last().start();
    let files = ["src/main.rs", "src/cli/repl.rs", "two words.md", "build/out.rs"];
    let builder = files.iter().fold(terminal().endpoint(&model), |t, name| t.file(name, "content of it\n"));
    let mut terminal = builder.file(".gitignore", "build\n").start();
    terminal.wait_for_prompt();
    terminal.type_text("/co");
    terminal.wait_for("  /compact ");
    terminal.wait_for("what fills the model's context window");
    // The list is closed by Escape, and the text stays.
    terminal.type_text("\x1b");
    terminal.wait_until("no list", |screen| screen.contains("› /co") && !screen.contains("what fills"));
    terminal.type_text("\x15/us\x1b[B");
    terminal.wait_for("› /usage");
    terminal.type_text("\r");
    terminal.wait_for("0 turns, 0 tokens in, 0 out");
    terminal.wait_for_prompt();
    terminal.type_text("fix @mainr");
    terminal.wait_until("the file", |screen| screen.contains("\n  src/main.rs"));
    terminal.type_text("\t");
    terminal.wait_for("› fix @src/main.rs");
    terminal.type_text("and @words");
    terminal.wait_for("\n  two words.md");
    terminal.type_text("\t");
    terminal.wait_for("@two\\ words.md");
    terminal.type_text("\r");
    terminal.wait_for("\nok");
    let sent = model.requests()[0].messages();
    let last = sent.last().expect("a prompt").to_string();
    assert_eq!(last.matches("content of it").count(), 2, "{last}");
    terminal.wait_for_prompt();
    // Arrows choose, and Enter takes what is chosen without sending the line.
    terminal.type_text("@rs");
    terminal.wait_for("\n  src/");
    assert!(!terminal.screen().contains("out.rs"), "what git ignores is not offered: {}", terminal.screen());
    terminal.type_text("\x1b[B");
    terminal.wait_until("a chosen entry", |screen| screen.contains("\n› src/"));
    terminal.type_text("\r");
    terminal.wait_until("the name in the line", |screen| {
        screen.contains("› @src/") && !screen.contains("\n  src/")
    });
    assert_eq!(model.chat_requests().len(), 1);
}

/// The editor wrote names of files to the terminal without sanitising them.
#[test]
fn names_with_control_characters_are_not_completed() {
    let names = ["fit.txt", "f\x1b]0;title\x07", "fi\u{202e}txt.exe", "f\u{9b}31m", "f\nnext"];
    let endpoint = endpoint().start();
    let mut terminal = names.iter().fold(terminal().endpoint(&endpoint), |t, name| t.file(name, "")).start();
    terminal.wait_for_prompt();
    terminal.type_text("!echo f\t");
    terminal.wait_for("› !echo fit.txt");
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(!raw.contains("title") && !raw.contains('\u{202e}') && !raw.contains('\u{9b}'), "{raw:?}");
}

#[test]
fn input_may_have_several_lines_and_is_remembered_privately() {
    let model = endpoint().text("ok").repeat_last().start();
    let mut terminal = start(&model);
    // Created in advance: the editor would set the umask of the whole process to create it.
    let history = terminal.root().join("agent/data/history");
    let mode = std::fs::metadata(&history).expect("a history").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    terminal.type_line("first \\");
    terminal.type_line("second");
    terminal.wait_for("ok");
    terminal.wait_for_prompt();
    terminal.type_line("```");
    terminal.type_line("code");
    terminal.type_line("```");
    terminal.wait_until("the second answer", |screen| screen.matches("\nok\n").count() == 2);
    terminal.wait_for_prompt();
    terminal.type_text("\x1b[200~pasted\nlines\x1b[201~\r");
    terminal.wait_until("the third answer", |screen| screen.matches("\nok\n").count() == 3);
    let prompts: Vec<_> = model
        .requests()
        .iter()
        .filter_map(|request| Some(request.messages().last()?["content"].clone()))
        .collect();
    assert_eq!(prompts, ["first \nsecond", "```\ncode\n```", "pasted\nlines"]);
    assert!(std::fs::read_to_string(history).expect("a history").contains("second"));
}

#[test]
fn a_terminated_repl_leaves_the_terminal_as_it_was() {
    let mut terminal = start(&endpoint().start());
    terminal.signal(libc::SIGTERM);
    assert_eq!(terminal.wait(), 143);
}

#[test]
fn input_that_is_typed_ahead_is_kept() {
    let mut terminal = start(&endpoint().start());
    terminal.type_text("!echo fir'st'\r!echo sec'ond'\r/usage\r");
    terminal.wait_for("\nfirst\n");
    terminal.wait_for("\nsecond\n");
    terminal.wait_for("0 turns");
}

#[test]
fn files_are_uploaded_and_downloaded_and_nothing_is_overwritten() {
    let mut terminal = terminal().endpoint(&endpoint().start()).file("host.txt", "from the host\n").start();
    terminal.wait_for_prompt();
    terminal.type_line("/upload host.txt in/copy.txt");
    terminal.wait_for("uploaded as in/copy.txt (1 file)");
    terminal.type_line("/upload /dev/zero");
    terminal.wait_for("excluded: /dev/zero");
    terminal.wait_for_prompt();
    assert!(!terminal.screen().contains("uploaded as zero"), "{}", terminal.screen());
    terminal
        .type_line("!cat in/copy.txt; mkdir out; echo made inside > 'out/a b'; ln -s /etc/passwd out/link");
    terminal.wait_for("\nfrom the host\n");
    terminal.type_line("/download out");
    terminal.wait_for("excluded: link (a symlink)");
    terminal.wait_for("downloaded as out (1 file)");
    let workspace = terminal.root().join("workspace");
    assert_eq!(std::fs::read_to_string(workspace.join("out/a b")).expect("the file"), "made inside\n");
    assert!(workspace.join("out/link").symlink_metadata().is_err());
    terminal.type_line("/download in/copy.txt host.txt");
    terminal.wait_for("host.txt exists already");
    terminal.type_line("/save talk.jsonl");
    terminal.wait_for("saved as talk.jsonl");
    assert!(
        std::fs::read_to_string(workspace.join("talk.jsonl")).expect("the file").contains("session_started")
    );
}

/// A download included a `.git` whose configuration names programs, bare repositories, and world-writable files.
#[test]
fn a_download_excludes_git_configuration_and_limits_permissions() {
    let mut terminal = start(&endpoint().start());
    terminal.type_line(
        "!mkdir -p out/sub/.git/hooks out/bare/{objects,refs}; touch out/{tool,open,.envrc,sub/.git/config,bare/HEAD,bare/config}; \
         chmod 777 out/tool; chmod 666 out/open; cp -r out/bare .; echo re'ady'",
    );
    terminal.wait_for("\nready\n");
    terminal.type_line("/download out");
    terminal.wait_for("excluded: bare (git would take it for a repository");
    terminal.wait_for("excluded: sub/.git (belongs to git");
    terminal.wait_for("downloaded as out (3 files)");
    terminal.wait_for("Executed by other programs: out/.envrc (shell)");
    let workspace = terminal.root().join("workspace");
    assert_eq!(std::fs::read_dir(workspace.join("out/bare")).expect("it is there").count(), 0);
    assert_eq!(std::fs::read_dir(workspace.join("out/sub")).expect("it is there").count(), 0);
    std::fs::write(workspace.join("mine"), "").expect("a file");
    let mode = |name: &str| {
        let metadata = std::fs::metadata(workspace.join(name)).expect("a file");
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!(mode("out/open"), mode("mine"), "as the umask has it");
    assert_eq!(mode("out/tool"), mode("out"), "as the umask has it");
    terminal.type_line("/download bare elsewhere");
    terminal.wait_for("bare is not downloaded: git would take it for a repository");
    terminal.type_line("/download out .git");
    terminal.wait_for(".git would be a file of git's own");
    assert!(!workspace.join("elsewhere").exists() && !workspace.join(".git").exists());
}

#[test]
fn changes_are_shown_applied_and_undone() {
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "a.txt", "data": "new\n" }))
        .text("Changed.")
        .start();
    let mut terminal = terminal().endpoint(&model).file("a.txt", "old\n").start();
    terminal.wait_for_prompt();
    terminal.type_line("change it");
    terminal.wait_for("Changed.");
    terminal.type_line("/diff");
    terminal.wait_for("-old");
    terminal.wait_for("+new");
    let host = terminal.root().join("workspace/a.txt");
    assert_eq!(std::fs::read_to_string(&host).expect("the file"), "old\n");
    terminal.type_line("/apply");
    terminal.wait_for("[yes/no/each]");
    terminal.type_line("y");
    terminal.wait_for("0 files added, 1 modified, 0 deleted");
    assert_eq!(std::fs::read_to_string(&host).expect("the file"), "new\n");
    terminal.type_line("/undo");
    terminal.wait_for("your own files still have what /apply wrote: a.txt");
    terminal.wait_for("Take the last apply back in your own files too? [yes/no]");
    assert_eq!(std::fs::read_to_string(&host).expect("the file"), "new\n");
    terminal.type_line("yes");
    terminal.wait_for("taken back in your files: 0 files added, 1 modified, 0 deleted");
    assert_eq!(std::fs::read_to_string(&host).expect("the file"), "old\n");
    terminal.wait_for_prompt();
    terminal.type_line("!cat a.txt");
    terminal.wait_for("\nold\n");
    terminal.type_line("/redo");
    terminal.wait_for("the workspace is at checkpoint");
}

#[test]
fn a_whole_prompt_is_undone_and_redone() {
    let mut script = endpoint();
    for line in ["one", "two", "three"] {
        // Slow enough that a checkpoint between two of them is cheap.
        script = script
            .tool_call("run_commands", json!({ "command": format!("sleep 0.5; echo {line} >> a.txt") }));
    }
    let model = script.text("All written.").start();
    let mut terminal = start(&model);
    terminal.type_line("write");
    terminal.wait_for("All written.");
    terminal.wait_for_prompt();
    terminal.type_line("/undo 5");
    terminal.wait_for(
        "the workspace is at checkpoint 0 (the beginning of the session); 1 undone, there were no more",
    );
    terminal.type_line("!ls; echo nothing is here");
    terminal.wait_for("\nnothing is here\n");
    terminal.type_line("/redo");
    terminal.wait_for("the workspace is at checkpoint");
    terminal.type_line("!cat a.txt");
    terminal.wait_for("\none\ntwo\nthree\n");
}

#[test]
fn an_interrupted_answer_is_marked() {
    let model = endpoint()
        .text("A first paragraph.\n\nAnd a second one that is never going to be written to its very end.")
        .pieces(40)
        .pace(Duration::from_millis(5))
        .after(1300)
        .close()
        .text("The whole answer.")
        .start();
    let mut terminal = start(&model);
    terminal.type_line("talk");
    terminal.wait_for("The whole answer.");
    let screen = terminal.screen();
    assert!(screen.contains("A first paragraph."), "{screen}");
    assert!(
        screen.contains("(the answer is incomplete and is requested again)\n[RETRY] attempt 1 failed"),
        "{screen}"
    );
}

#[test]
fn output_while_the_prompt_waits_does_not_disturb_it() {
    let mut terminal = terminal().endpoint(&endpoint().start()).file(".env", "TOKEN=1\n").start();
    terminal.wait_for_prompt();
    terminal.type_text("!echo st'arted'");
    terminal.wait_for("› !echo st'arted'");
    terminal.type_text("\r");
    terminal.wait_for("\nstarted\n");
    let screen = terminal.screen();
    assert!(screen.contains("[NOTICE]") && screen.contains(".env"), "{screen}");
    assert!(screen.contains("\n› !echo st'arted'\n"), "{screen}");
}

#[test]
fn changes_that_are_not_applied_are_reported_when_leaving_and_when_resuming() {
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "a.txt", "data": "new\n" }))
        .text("Changed.")
        .start();
    let first = terminal().endpoint(&model).args(["-q"]);
    let next = first.again().endpoint(&model).args(["resume"]);
    let mut terminal = first.start();
    terminal.wait_for_prompt();
    terminal.type_line("change it");
    terminal.wait_for("Changed.");
    terminal.wait_for_prompt();
    terminal.type_line("!echo more > b.txt; echo do'ne'");
    terminal.wait_for("\ndone\n");
    terminal.wait_for_prompt();
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
    let (screen, id) = (terminal.screen(), session(&terminal));
    // Lines break between words.
    let screen = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(screen.contains("2 files added, 0 modified, 0 deleted; nothing is written yet"), "{screen}");
    for command in ["diff", "apply", "resume"] {
        assert!(screen.contains(&format!("`agent {command} {id}`")), "{screen}");
    }
    let mut terminal = next.start();
    terminal.wait_for(&format!("Resumed session {id}\n> change it\n✓ write  a.txt   new, +1 in"));
    terminal.wait_for("\nChanged.\n");
    terminal.wait_for_prompt();
    terminal.type_line("!cat b.txt");
    terminal.wait_for("\nmore\n");
    terminal.wait_for_prompt();
    terminal.type_line("/exit");
    assert_eq!(terminal.wait(), 0);
    assert!(terminal.screen().contains("nothing is written yet"), "{}", terminal.screen());
}

/// The only session of this home.
fn session(terminal: &Terminal) -> String {
    let ids = Store::at(terminal.root().join("agent/data")).ids().expect("the sessions");
    ids[0].to_string()
}

#[test]
fn flags_of_a_run_are_refused() {
    for flags in [&["--json"][..], &["--apply"], &["--check", "true"], &["--check-attempts", "2"]] {
        let mut terminal = terminal().endpoint(&endpoint().start()).args(flags).start();
        assert_eq!(terminal.wait(), 2);
        let screen = terminal.screen();
        assert!(screen.contains(&format!("{} has no effect in the REPL", flags[0])), "{screen}");
        assert!(screen.contains("agent run"), "{screen}");
    }
}

/// The bug: what the user did was invisible to the model, which went on with files that were not there any more.
#[test]
fn the_model_learns_what_the_user_did_between_prompts() {
    let model = endpoint()
        .strict()
        .tool_call("write_file", json!({ "path": "made.txt", "data": "one\n" }))
        .text("Made.")
        .text("I see.")
        .text("Nothing new.")
        .start();
    let mut terminal = terminal().endpoint(&model).file("host.txt", "from the host\n").start();
    terminal.wait_for_prompt();
    terminal.type_line("make it");
    terminal.wait_for("Made.");
    terminal.wait_for_prompt();
    terminal.type_line("!echo out'put'; exit 3");
    terminal.wait_for("exit 3 in");
    terminal.type_line("!echo run'ning'; sleep 1000");
    terminal.wait_for("\nrunning");
    terminal.ctrl_c();
    terminal.wait_for("killed by signal 2 in");
    terminal.wait_for_prompt();
    terminal.type_line("/upload host.txt in/copy.txt");
    terminal.wait_for("uploaded as in/copy.txt");
    terminal.type_line("/network allow example.org");
    terminal.wait_for("allowed: example.org");
    terminal.type_line("/undo");
    terminal.wait_for("the workspace is at checkpoint");
    terminal.type_line("what happened?");
    terminal.wait_for("I see.");
    terminal.wait_for_prompt();
    let prompt = model.last().messages().pop().expect("a prompt")["content"].clone();
    let prompt = prompt.as_str().expect("text");
    assert!(prompt.ends_with("]\n\nwhat happened?"), "{prompt}");
    for told in [
        "- The user ran `echo out'put'; exit 3` in the sandbox: exit 3 in",
        "Its output:\noutput",
        "- The user ran `echo run'ning'; sleep 1000` in the sandbox: killed by signal 2 in",
        "- The user copied 1 file into the sandbox, as in/copy.txt.",
        "- The user changed what the sandbox may reach: allowed: example.org",
        "- The user undid the changes of the last prompt: these files in the sandbox changed: ",
        "made.txt",
    ] {
        assert!(prompt.contains(told), "{told} is missing in:\n{prompt}");
    }
    terminal.type_line("and now?");
    terminal.wait_for("Nothing new.");
    assert_eq!(model.last().messages().pop().expect("a prompt")["content"], "and now?");
}

#[test]
fn a_note_that_was_not_sent_yet_is_sent_after_a_resume() {
    let model = endpoint().strict().text("One.").text("Two.").start();
    let first = terminal().endpoint(&model);
    let next = first.again().endpoint(&model).args(["resume"]);
    let mut terminal = first.start();
    terminal.wait_for_prompt();
    terminal.type_line("one");
    terminal.wait_for("One.");
    terminal.wait_for_prompt();
    terminal.type_line("!echo he're'");
    terminal.wait_for("\nhere\n");
    terminal.wait_for_prompt();
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
    let mut terminal = next.start();
    terminal.wait_for_prompt();
    terminal.type_line("two");
    terminal.wait_for("Two.");
    let prompt = model.last().messages().pop().expect("a prompt")["content"].to_string();
    assert!(prompt.contains("The user ran `echo he're'` in the sandbox"), "{prompt}");
}

#[test]
fn a_compaction_never_makes_the_conversation_longer() {
    let model = endpoint().text("Hello.").text(&"a summary that is long ".repeat(200)).start();
    let mut terminal = start(&model);
    terminal.type_line("hi");
    terminal.wait_for("Hello.");
    terminal.wait_for_prompt();
    terminal.type_line("/compact");
    terminal.wait_for("a summary would not be shorter: the conversation stays as it is");
}

#[test]
fn configured_prices_are_shown() {
    let model = endpoint().text("Hello.").start();
    let terminal = terminal().endpoint(&model);
    let config = terminal.directory("agent").join("config");
    std::fs::create_dir_all(&config).expect("the directory");
    let prices = "[prices.test-model]\ninput = 1000.0\noutput = 2000.0\n";
    std::fs::write(config.join("config.toml"), prices).expect("the file");
    let mut terminal = terminal.start();
    terminal.wait_for_prompt();
    terminal.type_line("hi");
    terminal.wait_for("Hello.");
    terminal.wait_for_prompt();
    terminal.type_line("/usage");
    terminal.wait_for("1 turn, 10 tokens in, 5 out, cost 0.0200");
    terminal.type_line("/exit");
    assert_eq!(terminal.wait(), 0);
    assert!(terminal.screen().contains("10 tokens in, 5 out, cost 0.0200"), "{}", terminal.screen());
}

#[test]
fn what_an_endpoint_reads_from_its_cache_and_what_that_costs_is_shown() {
    let chunk = json!({
        "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "test-model",
        "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "Hello." }, "finish_reason": "stop" }],
        "usage": {
            "prompt_tokens": 10_000, "completion_tokens": 5, "total_tokens": 10_005,
            "prompt_tokens_details": { "cached_tokens": 6_000 }
        }
    });
    let model = endpoint().events(&[chunk]).repeat_last().start();
    let terminal = terminal().endpoint(&model);
    let config = terminal.directory("agent").join("config");
    std::fs::create_dir_all(&config).expect("the directory");
    let prices = "[prices.test-model]\ninput = 10.0\ncached = 1.0\noutput = 20.0\n";
    std::fs::write(config.join("config.toml"), prices).expect("the file");
    let mut terminal = terminal.start();
    for number in 1..=5 {
        terminal.wait_for_prompt();
        terminal.type_line(&format!("hello number {number}"));
        terminal.wait_until("an answer", |screen| screen.matches("\nHello.").count() >= number);
    }
    terminal.wait_for("read only 60 % of the last 5 prompts from its cache");
    terminal.wait_for_prompt();
    terminal.type_line("/usage");
    terminal.wait_for("(30000 cached, 60 %)");
    terminal.wait_for(
        "30000 read from the endpoint's cache for 0.0300, 0 written to it for 0.0000, 20000 others in",
    );
}

#[test]
fn edits_on_the_host_arrive_before_the_next_prompt_and_are_merged() {
    let lines: String = (1..20).map(|number| format!("line {number}\n")).collect();
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "sed -i 's/line 2$/inside/' both.txt" }))
        .text("Done.")
        .tool_call("run_commands", json!({ "command": "cat host.txt" }))
        .text("I see.")
        .start();
    let mut terminal = terminal().endpoint(&model).file("host.txt", "old\n").file("both.txt", &lines).start();
    let host = terminal.root().join("workspace");
    terminal.wait_for_prompt();
    terminal.type_line("change it");
    terminal.wait_for("Done.");
    terminal.wait_for_prompt();
    std::fs::write(host.join("host.txt"), "edited on the host\n").expect("written");
    std::fs::write(host.join("both.txt"), lines.replace("line 18", "outside")).expect("written");
    terminal.type_line("look");
    terminal.wait_for("merged with your edits: both.txt");
    terminal.wait_for("I see.");
    terminal.wait_for_prompt();
    let messages = model.last().messages();
    let prompt = messages[messages.len() - 3]["content"].to_string();
    assert!(prompt.contains("The user changed these files, and the sandbox has them: host.txt."), "{prompt}");
    assert!(prompt.contains("the sandbox has both changes merged: both.txt."), "{prompt}");
    // Once more, while nothing is prompted.
    std::fs::write(host.join("both.txt"), lines.replace("line 18", "outside").replace("line 10", "later"))
        .expect("written");
    assert!(messages[messages.len() - 1]["content"].to_string().contains("edited on the host"));
    terminal.type_line("/apply");
    terminal.wait_for("[yes/no/each]");
    terminal.type_line("yes");
    terminal.wait_until("the merge is reported again", |screen| {
        screen.matches("merged with your edits: both.txt").count() == 2
    });
    let merged = std::fs::read_to_string(host.join("both.txt")).expect("the file");
    assert!(["inside\n", "outside\n", "later\n"].iter().all(|line| merged.contains(line)), "{merged}");
}

/// A REPL after a prompt, with the files `a.txt` to `e.txt`, which the user has changed since.
fn with_files_that_both_changed(model: &Endpoint) -> Terminal {
    let names = ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"];
    let builder = terminal().endpoint(model);
    let mut terminal = names.iter().fold(builder, |builder, name| builder.file(name, "begin\n")).start();
    terminal.wait_for_prompt();
    terminal.type_line("change them");
    terminal.wait_for("Done.");
    terminal.wait_for_prompt();
    let host = terminal.root().join("workspace");
    names.iter().for_each(|name| std::fs::write(host.join(name), "mine\n").expect("written"));
    terminal
}

/// A conflict was the end of an apply, and what to do about it was the user's to find out.
#[test]
fn where_both_changed_the_same_lines_the_user_takes_a_version_or_has_the_model_resolve_it() {
    let command = "for name in a b c d; do echo model > $name.txt; done; rm e.txt";
    let resolved = "grep -c '^<<<<<<<' d.txt; printf 'both\\n' > d.txt";
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": command }))
        .text("Done.")
        .tool_call("run_commands", json!({ "command": resolved }))
        .text("Resolved.")
        .start();
    let mut terminal = with_files_that_both_changed(&model);
    let host = terminal.root().join("workspace");
    let file = |name: &str| std::fs::read_to_string(host.join(name)).expect("the file");
    let answer = |terminal: &mut Terminal, name: &str, answer: &str| {
        // What was asked before may have left the screen.
        terminal.wait_until("the question", |screen| {
            screen.contains(&format!("{name}: it changed")) && screen.trim_end().ends_with("/no]")
        });
        terminal.type_line(answer);
    };
    terminal.type_line("/apply");
    terminal.wait_for("[yes/no/each]");
    terminal.type_line("yes");
    answer(&mut terminal, "a.txt", "no");
    terminal.wait_for("nothing was written");
    assert_eq!(file("a.txt"), "mine\n");
    terminal.wait_for_prompt();
    terminal.type_line("/apply");
    terminal.wait_until("the question again", |screen| screen.matches("[yes/no/each]").count() == 2);
    terminal.type_line("yes");
    let choices = [
        ("a.txt", "ours"),
        ("b.txt", "theirs"),
        ("c.txt", "markers"),
        ("d.txt", "resolve"),
        ("e.txt", "ours"),
    ];
    for (name, choice) in choices {
        answer(&mut terminal, name, choice);
    }
    terminal.wait_for("Resolved.");
    terminal.wait_for_prompt();
    assert_eq!((file("a.txt"), file("b.txt")), ("mine\n".to_owned(), "model\n".to_owned()));
    assert!(file("c.txt").contains("<<<<<<< ours\nmine\n"), "{}", file("c.txt"));
    assert_eq!((file("d.txt"), file("e.txt")), ("mine\n".to_owned(), "mine\n".to_owned()));
    let messages = model.last().messages();
    let prompt = messages[messages.len() - 3]["content"].to_string();
    assert!(prompt.contains("conflict markers") && prompt.contains("d.txt"), "{prompt}");
    assert!(messages[messages.len() - 1]["content"].to_string().contains('1'), "the markers are inside");
    // What is left is what the model resolved, held against the user's own version.
    terminal.type_line("/diff");
    terminal.wait_for("+both");
    terminal.wait_for_prompt();
    terminal.type_line("/apply");
    terminal.wait_until("the last question", |screen| screen.trim_end().ends_with("[yes/no/each]"));
    terminal.type_line("yes");
    terminal.wait_for("0 files added, 1 modified, 0 deleted");
    assert_eq!(file("d.txt"), "both\n");
}

#[test]
fn in_a_bound_workspace_the_model_learns_what_the_user_edited() {
    let model = endpoint()
        .strict()
        .tool_call("run_commands", json!({ "command": "echo model > a.txt; echo model > c.txt" }))
        .text("One.")
        .text("Two.")
        .text("Three.")
        .start();
    let builder = terminal().endpoint(&model).args(["--workspace-mode", "bind"]);
    let builder = builder.file("a.txt", "a\n").file("b.txt", "b\n").file("gone.txt", "g\n");
    let workspace = builder.directory("workspace");
    let mut terminal = builder.start();
    terminal.wait_for_prompt();
    terminal.type_line("one");
    terminal.wait_for("\nOne.\n");
    terminal.wait_for_prompt();
    std::fs::write(workspace.join("b.txt"), "user\n").expect("written");
    std::fs::write(workspace.join("new.txt"), "user\n").expect("written");
    std::fs::write(workspace.join("c.txt"), "user\n").expect("written");
    std::fs::remove_file(workspace.join("gone.txt")).expect("removed");
    terminal.type_line("two");
    terminal.wait_for("\nTwo.\n");
    terminal.wait_for_prompt();
    let prompt = model.last().messages().pop().expect("a prompt")["content"].to_string();
    assert!(
        prompt.contains(
            "The user changed these files, and the sandbox has them: b.txt, c.txt, gone.txt, new.txt."
        ),
        "{prompt}"
    );
    assert!(!prompt.contains("its own version"), "there is one version alone: {prompt}");
    terminal.type_line("three");
    terminal.wait_for("\nThree.\n");
    assert_eq!(
        model.last().messages().pop().expect("a prompt")["content"],
        "three",
        "each edit is reported once"
    );
}

#[test]
fn a_server_inside_is_offered_forwarded_and_named_when_the_user_leaves() {
    let server = "python3 -m http.server 5173";
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": server, "background": true }))
        .tool_call(
            "run_commands",
            json!({ "command": "until curl -s http://127.0.0.1:5173/; do sleep 0.1; done" }),
        )
        .text("It runs.")
        .start();
    let mut terminal = terminal().columns(120).endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("serve");
    terminal.wait_for("port 5173 listens in the sandbox: /forward 5173");
    terminal.wait_for("It runs.");
    terminal.wait_for_prompt();
    terminal.type_line("/jobs");
    terminal.wait_for(&format!("job 1: {server}"));
    terminal.wait_for_prompt();
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    terminal.type_line(&format!("/forward 5173:{}", free.port()));
    terminal.wait_for(&format!("http://{free} is port 5173 inside"));
    let mut connection = std::net::TcpStream::connect(free).expect("the forwarded port");
    connection.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("a request");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    terminal.wait_for_prompt();
    terminal.ctrl_d();
    terminal.wait_for("this ends what runs in the sandbox (--keep keeps it): job 1: ");
    assert_eq!(terminal.wait(), 0);
}
