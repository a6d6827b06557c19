//! One text with everything that must not reach a reader as it is, for each place that shows text of others: the terminal
//! (`attacks/terminal.rs`), reviews and reports (`attacks/review.rs`), the page (`web.rs`), editors (`acp.rs`), and questions about
//! MCP servers (`attacks/questions.rs`).

/// Parts that are obeyed, reorder text, or are not seen.
pub const PARTS: [&str; 13] = [
    "\x1b]0;t\x07",
    "\x1b[2J",
    "\u{9b}2J",
    "\x08",
    "\u{202e}",
    "\u{2066}",
    "\u{61c}",
    "\u{e0041}",
    "\u{200b}",
    "\u{3164}",
    "\u{13430}",
    "\u{fdd0}",
    "\u{fff9}",
];

/// All of them, behind a word by which the text is found, and a character that a backspace may take.
pub fn hostile_text() -> String {
    format!("H0STILE-{}", PARTS.concat())
}

/// The same for a shell's `printf`.
pub fn octal() -> String {
    hostile_text().bytes().map(|byte| format!("\\{byte:03o}")).collect()
}

/// Checks that a surface shows the text and none of the parts.
#[track_caller]
pub fn assert_harmless(surface: &str, shown: &str) {
    assert!(shown.contains("H0STILE"), "{surface} does not show it: {shown}");
    let part = PARTS.iter().find(|part| shown.contains(**part));
    assert_eq!(part, None, "{surface}: {shown:?}");
}
