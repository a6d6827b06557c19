//! The tests' terminal, tested with a shell.

use agent_testbed::terminal::Builder;

#[test]
fn a_terminal_shows_what_a_program_draws_and_passes_keys_on() {
    let mut terminal = Builder::of("sh").env("PS1", "ready> ").args(["-i"]).start();
    terminal.wait_for("ready>");
    // Without `noflsh`, Ctrl-C discards pending output, which may be the next prompt.
    terminal.type_line("stty noflsh && echo a'bc'");
    terminal.wait_for("\nabc\nready>");
    terminal.type_line("cat; echo st'op'ped");
    terminal.wait_for("cat;");
    terminal.type_line("echoed");
    terminal.wait_for("echoed\nechoed");
    terminal.ctrl_c();
    terminal.wait_until("a new prompt", |screen| screen.trim_end().ends_with("ready>"));
    terminal.ctrl_d();
    assert_ne!(terminal.wait(), 0, "the shell passes on that its last command was interrupted");
}
