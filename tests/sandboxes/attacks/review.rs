//! What a user decides about is what was shown: reviews, questions, and names, in the terminal, in the page and in an editor.

use agent_testbed::agent::{Finished, agent};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A session in which `make` ran.
fn ran(make: &str) -> Finished {
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("Done.").start();
    agent().endpoint(&model).args(["run", "go"]).run().expect_code(0)
}

/// Returns what `agent diff` prints of a session in which `make` ran.
fn diff_of(make: &str) -> String {
    ran(make).again().args(["diff"]).run().expect_code(0).stdout
}

/// `/apply` wrote what a process had made of the file after `/diff` showed it.
#[test]
fn attack_60_what_changed_after_it_was_shown_is_shown_again() {
    let make = "echo harmless > tool.sh; echo same > same.txt; \
                (while [ ! -e /tmp/go ]; do sleep 0.05; done; echo C4NARY > tool.sh; touch /tmp/done) >/dev/null 2>&1 &";
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("Done.").start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("Done.");
    terminal.wait_for_prompt();
    terminal.type_line("/diff");
    terminal.wait_for("+harmless");
    terminal.wait_for_prompt();
    terminal.type_line("!touch /tmp/go; while [ ! -e /tmp/done ]; do sleep 0.05; done; echo swapped");
    terminal.wait_for("\nswapped");
    terminal.wait_for_prompt();
    terminal.type_line("/apply");
    terminal.wait_for("Apply? [yes/no/each]");
    let screen = terminal.screen();
    assert!(
        screen.contains("not as the last diff showed it: tool.sh") && screen.contains("+C4NARY"),
        "{screen}"
    );
    assert!(screen.matches("+same").count() <= 1, "{screen}");
    terminal.type_line("no");
    terminal.wait_for_prompt();
    terminal.type_line("/exit");
    terminal.wait();
}

/// What is there by turns while the question waits: the answer is for the one that the question showed.
#[test]
fn attack_60_what_changes_while_the_question_waits_is_not_written() {
    let make = "(while :; do for text in harmless C4NARY; do echo $text > new; mv new tool.sh; sleep 0.05; done; \
                ln -s elsewhere link; mv -T link tool.sh; sleep 0.05; echo x > new; chmod 755 new; mv new tool.sh; sleep 0.05; done) \
                >/dev/null 2>&1 &";
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("Done.").start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("Done.");
    terminal.wait_for_prompt();
    terminal.type_line("/apply");
    terminal.wait_for("Apply? [yes/no/each]");
    let screen = terminal.screen();
    let shown = screen.rsplit("/apply").next().expect("text").to_owned();
    terminal.type_line("yes");
    terminal.wait_until("the end of the apply", |screen| screen.contains("written: "));
    terminal.wait_for_prompt();
    let tool = terminal.root().join("workspace/tool.sh");
    let written = std::fs::symlink_metadata(&tool).expect("it is written");
    match std::fs::read_link(&tool) {
        Ok(target) => assert!(shown.contains(target.to_str().expect("UTF-8")), "{shown}"),
        Err(_) => {
            let text = std::fs::read_to_string(&tool).expect("text");
            assert!(shown.contains(&format!("+{text}")), "{text}: {shown}");
            let is_executable = written.permissions().mode() & 0o111 != 0;
            assert_eq!(is_executable, text == "x\n", "{shown}");
        }
    }
    terminal.type_line("/exit");
    terminal.wait();
}

/// The same where another process wrote between `agent diff` and `agent apply`.
#[test]
fn attack_60_a_later_prompt_does_not_change_what_was_shown_unseen() {
    let done = ran("echo harmless > tool.sh");
    let diff = done.again().args(["diff"]).run().expect_code(0);
    assert!(diff.stdout.contains("+harmless"), "{}", diff.stdout);
    let make = json!({ "command": "echo C4NARY > tool.sh" });
    let model = endpoint().tool_call("run_commands", make).text("Done.").start();
    let listed = done.again().args(["sessions", "--json"]).run().expect_code(0);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let session = listed[0]["session"].as_str().or(listed[0]["id"].as_str()).map(str::to_owned);
    let id = session.expect("a session");
    done.again().endpoint(&model).args(["run", "--session", &id, "continue"]).run().expect_code(0);
    let applied = done.again().args(["apply", "--yes"]).run().expect_code(0);
    assert!(applied.stderr.contains("not as the last diff showed it: tool.sh"), "{}", applied.stderr);
}

/// One NUL, and one byte that is not UTF-8 in the first line, made `(binary)` of scripts that all of these run.
#[test]
fn attack_61_single_bytes_do_not_hide_a_script_from_the_review() {
    let make = r"printf '# caf\351\necho C4NARY1\n#\000\n' > a.sh; printf '# \000\377\nall:\n\techo C4NARY2\n' > Makefile
        printf '// \000\377\nconsole.log(\047C4NARY3\047)\n' > a.js; printf '# \000\377\nprint \047C4NARY4\047;\n' > a.pl
        printf '# \000\377\nputs \047C4NARY5\047\n' > a.rb; { printf '\037\213\010'; head -c 3000 /dev/urandom; } > random.gz; head -c 3000 /bin/bash > program; chmod +x program";
    let diff = diff_of(make);
    for canary in 1..=5 {
        assert!(diff.contains(&format!("C4NARY{canary}")), "{canary}: {diff}");
    }
    assert!(diff.contains("\\xe9") && diff.contains("\\u{0}"), "{diff}");
    assert_eq!(diff.matches("(binary").count(), 2, "{diff}");
}

/// A script whose lines were followed or parted by more bytes than they have themselves was `(binary)`, and one whose bytes are UTF-16 as
/// well, or whose commands are halves of Japanese characters, was shown as other text.
#[test]
fn attack_61_no_padding_and_no_encoding_hides_what_a_shell_or_an_interpreter_runs() {
    let make = r"pad() { head -c 3000 /dev/zero | tr '\000' '\377'; }; wide() { for n in $(seq 99); do printf '\377\000'; done; printf '\n '; }
        { echo 'echo C4NARY1; exit'; pad; } > a.sh; { printf '#'; pad; printf '\nprint(\047C4NARY2\047)\n'; } > a.py
        { printf 'all:\n\techo C4NARY3\n#'; pad; } > Makefile; { printf '\211PNG\r\n\032\necho C4NARY4\n'; pad; } > tool; chmod +x tool
        { echo 'C4NARY5'; pad; } > settings; { printf 'echo C4NARY6 \n#'; wide; } > b.sh; printf '\377\376\necho C4NARY7 \n' > c.sh
        printf 'echo \203\177\203T\203|C4NARY8\203\\ \202\240\202\242\202\244\202\246\202\250\202\251\202\252\n' > d.sh
        { printf 'echo C4NARY9 \n#'; wide; } > e.js; printf 'echo \033$B$3$s$K$A;C4NARY10$O\033(B\n' > f.sh
        { printf '%%PDF-1.4\n'; head -c 3000 /dev/urandom; } > random.pdf; cp /bin/true program; { printf '\211PNG\r\n\032\n'; head -c 3000 /dev/urandom; } > icon.png";
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("Done.").start();
    let done = agent().endpoint(&model).file("settings", "fine\n").args(["run", "go"]).run().expect_code(0);
    let diff = done.again().args(["diff"]).run().expect_code(0).stdout;
    for canary in 1..=10 {
        assert!(diff.contains(&format!("C4NARY{canary}")), "{canary}: {diff}");
    }
    assert!(diff.contains("|C4NARY8") && diff.contains(";C4NARY10"), "{diff}");
    assert_eq!(diff.matches("(binary").count(), 3, "{diff}");
}

/// Code points that nobody sees.
const HIDDEN: [&str; 19] = [
    "\u{ad}",
    "\u{34f}",
    "\u{61c}",
    "\u{115f}",
    "\u{180e}",
    "\u{200b}",
    "\u{202e}",
    "\u{3164}",
    "\u{fe01}",
    "\u{ffa0}",
    "\u{e0041}",
    "\u{e0080}",
    "\u{fdd0}",
    "\u{fffe}",
    "\u{2800}",
    "\u{13430}",
    "\u{1343f}",
    "\u{1d159}",
    "\u{10ffff}",
];

/// Variation selectors, fillers, soft hyphens and unassigned tags were printed as they are, in contents and names.
#[test]
fn attack_62_no_invisible_character_passes_the_review() {
    let mut make = String::new();
    for (number, hidden) in HIDDEN.iter().enumerate() {
        make += &format!("printf '%s' 'a{hidden}b' > text{number}; echo x > 'name{hidden}{number}';");
    }
    let done = ran(&make);
    let seen = |text: &str| {
        HIDDEN.iter().find(|hidden| text.contains(**hidden)).map(|hidden| hidden.escape_unicode().to_string())
    };
    for call in [
        &["diff"][..],
        &["diff", "--stat"],
        &["diff", "--name-only"],
        &["diff", "--risks"],
        &["apply", "--yes"],
    ] {
        let shown = done.again().args(call).run().expect_code(0);
        assert_eq!(seen(&shown.stdout), None, "{call:?}: {}", shown.stdout);
        assert_eq!(seen(&shown.stderr), None, "{call:?}: {}", shown.stderr);
        if call == ["diff"] {
            let escaped = |hidden: &&str| shown.stdout.contains(&format!("+a{}b", hidden.escape_unicode()));
            assert!(HIDDEN.iter().all(&escaped), "{}", shown.stdout);
        }
    }
}

/// git refuses all of these as `.git`, and a third of them was applied.
#[test]
fn attack_63_no_spelling_of_git_is_applied() {
    let names = [
        ".GIT",
        "git~1",
        "GIT~1.",
        "git~1 ",
        "git~1::x",
        ".git.",
        ".git ",
        ".git. .",
        ".git::$INDEX_ALLOCATION",
        ".git:x",
        ".g\u{200c}it",
        "\u{feff}.git",
        "g\u{200d}it~1",
        ".gi\u{34f}t",
        ".g\u{ad}it",
        ".git\\config",
        ".\\.GIT\\config",
        "a\\.git\\config",
        "a\\git~1\\config",
    ];
    let mut make = "echo fine > fine.txt".to_owned();
    for name in names {
        make += &format!("; mkdir -p 'sub/{name}'; echo x > 'sub/{name}/config'; echo x > 'file-of{name}'");
    }
    let done = ran(&make);
    done.again().args(["apply", "--yes"]).run().expect_code(0);
    assert_eq!(done.host_file("fine.txt").as_deref(), Some("fine\n"));
    for name in names {
        assert_eq!(done.host_file(&format!("sub/{name}/config")), None, "{name:?}");
    }
}

/// Files of agents, editors and package managers were not named, nor what lies below `core.hooksPath`; five harmless names pushed
/// the dangerous one out, and `--stat`, `apply --yes` and `run --apply` named nothing.
#[test]
fn attack_64_what_other_programs_obey_is_named_wherever_changes_are_shown_or_written() {
    let make = "mkdir -p tools/checks .claude sub; for n in 1 2 3 4 5 6 7 8; do mkdir -p a$n; echo x > a$n/Makefile; done; \
                echo x > tools/checks/pre-commit; echo x > .claude/settings.json; echo x > .mcp.json; echo x > AGENTS.md; \
                echo x > sub/.pnpmfile.cjs; echo x > vite.config.ts; echo x > fine.txt";
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("Done.").start();
    let call = agent().endpoint(&model);
    for arguments in [&["init", "-q"][..], &["config", "core.hooksPath", "tools/checks"]] {
        let done = Command::new("git").args(arguments).current_dir(call.workspace()).status().expect("git");
        assert!(done.success());
    }
    let done = call.args(["run", "go"]).run().expect_code(0);
    let named = [
        "tools/checks/pre-commit (git hook)",
        ".claude/settings.json",
        ".mcp.json",
        "AGENTS.md",
        "sub/.pnpmfile.cjs",
        "and 6 more (build)",
    ];
    for call in [&["diff"][..], &["diff", "--stat"], &["diff", "--name-only"], &["apply", "--yes"]] {
        let shown = done.again().args(call).run().expect_code(0);
        let text = shown.stdout + &shown.stderr;
        for name in named {
            assert!(text.contains(name), "{call:?}: {name}: {text}");
        }
    }
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("Done.").start();
    let done = agent().endpoint(&model).args(["run", "--apply", "go"]).run().expect_code(0);
    assert!(done.stderr.contains(".claude/settings.json"), "{}", done.stderr);
    let done = ran(make).again().args(["apply", "--yes", "--json"]).run().expect_code(0);
    let json: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert!(json["risks"].to_string().contains(".mcp.json"), "{json}");
}

/// A file that the user made unreadable for others while the question stood was readable for all of them after the answer.
#[test]
fn attack_76_what_the_user_withdraws_while_a_question_stands_stays_withdrawn() {
    let make = "echo new > tool.sh; chmod 755 tool.sh";
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("Done.").start();
    let mut terminal = terminal().endpoint(&model).file("tool.sh", "old\n").start();
    let tool = terminal.root().join("workspace/tool.sh");
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("Done.");
    terminal.wait_for_prompt();
    terminal.type_line("/apply");
    terminal.wait_for("Apply? [yes/no/each]");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    terminal.type_line("yes");
    terminal.wait_for("written: ");
    terminal.wait_for_prompt();
    assert_eq!(std::fs::read_to_string(&tool).expect("it is written"), "new\n");
    let mode = std::fs::metadata(&tool).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "{mode:o}");
    terminal.type_line("/exit");
    terminal.wait();
}
