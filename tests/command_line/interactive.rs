//! Programs of the sandbox that have the user's terminal: `!CMD` and `agent exec` at a terminal.

use agent_testbed::agent::agent;
use agent_testbed::terminal::{Terminal, terminal};
use agent_testing::endpoint::endpoint;

fn repl() -> Terminal {
    let terminal = terminal().endpoint(&endpoint().text("I see.").start()).start();
    terminal.wait_for_prompt();
    terminal
}

#[test]
fn a_program_has_the_terminal_its_keys_and_its_size() {
    let mut terminal = repl();
    terminal.type_line("!tty; stty size; echo $TERM; read line; echo \"got <$line>\"");
    terminal.wait_for("/dev/pts/");
    terminal.wait_for("\n40 100\nxterm-256color");
    terminal.type_line("typed");
    terminal.wait_for("typed\ngot <typed>\nexit 0 in");
    terminal.wait_for_prompt();

    terminal.type_line("!trap 'stty size; exit 4' WINCH; echo re'ady'; while :; do sleep 0.05; done");
    terminal.wait_for("\nready");
    terminal.resize(72);
    terminal.wait_for("\n40 72\nexit 4 in");
    terminal.wait_for_prompt();

    // Ctrl-Z and Ctrl-C are keys of the program.
    terminal.type_line("!stty -isig -icanon -echo min 1; echo no'w'; head -c 2 | od -An -c");
    terminal.wait_for("\nnow");
    terminal.type_text("\x1a\x03");
    terminal.wait_for("032 003");
    terminal.wait_for_prompt();
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn a_full_screen_program_leaves_the_screen_as_it_was() {
    for columns in [80, 120] {
        let model = endpoint().text("I see.").start();
        let mut terminal = terminal().columns(columns).endpoint(&model).start();
        terminal.wait_for_prompt();
        terminal.type_line("!printf '\\033[?1049h\\033[?25l\\033[2J\\033[3;1Hdr%s' awn; read x; printf '\\033[?1049l'; echo sh'own'");
        terminal.wait_until("the program alone", |screen| screen.trim() == "drawn");
        terminal.type_text("\r");
        terminal.wait_for("\nshown\nexit 0 in");
        terminal.wait_for_prompt();
        let screen = terminal.screen();
        assert!(screen.contains("/help lists the commands") && !screen.contains("\ndrawn"), "{screen}");
        let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
        let end = raw.split("\x1b[?1049l").last().expect("the end");
        assert!(end.contains("\x1b[?25h"), "the cursor is visible again: {end:?}");
        terminal.type_line("what did I do?");
        terminal.wait_for("I see.");
        let prompt = model.last().messages().pop().expect("a prompt")["content"].to_string();
        assert!(prompt.contains("Its output:\\nshown\\n"), "{prompt}");
    }
}

#[test]
fn a_program_that_dies_or_will_not_end_gives_the_terminal_back() {
    let mut terminal = repl();
    terminal.type_line("!printf '\\033[?1049h\\033[31m\\033[2;9r'; kill -9 $$");
    terminal.wait_for("killed by signal 9 in");
    terminal.wait_for_prompt();
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    for undone in ["\x1b[?1049l", "\x1b[0m", "\x1b7\x1b[r\x1b8"] {
        assert!(raw.contains(undone), "{undone:?}");
    }
    terminal.type_line("!trap '' INT; stty -echo; echo re'ady'; while :; do sleep 0.1; done");
    terminal.wait_for("\nready");
    terminal.ctrl_c();
    terminal.type_text("\x1d\x1d\x1d");
    terminal.wait_for("killed by signal");
    terminal.wait_for_prompt();
    terminal.type_line("!echo re'ady again'; sleep 1000");
    terminal.wait_for("ready again");
    assert!(!terminal.is_as_found());
    terminal.signal(libc::SIGTERM);
    assert_eq!(terminal.wait(), 143);
    assert!(terminal.is_as_found(), "the terminal is the shell's again");
}

#[test]
fn exec_at_a_terminal_gives_the_command_one() {
    let command =
        ["exec", "--", "sh", "-c", "tty; test -t 1 && test -t 2 && stty size; read x; echo \"<$x>\"; exit 3"];
    let mut with = terminal().args(command).start();
    with.wait_for("\n40 100");
    with.type_line("typed");
    with.wait_for("<typed>");
    assert_eq!(with.wait(), 3);
    assert!(with.is_as_found());

    let mut without = terminal().args(["exec", "-T", "--", "sh", "-c", "tty; exit 4"]).start();
    without.wait_for("not a tty");
    assert_eq!(without.wait(), 4);

    let refused = agent().args(["exec", "-t", "--", "true"]).run().expect_code(125);
    assert!(refused.stderr.contains("-t needs a terminal"), "{}", refused.stderr);
}
