//! The question about all changes at once, after what it decides about.

use super::Dialogue;
use crate::cli::ui::confirm::{Choice, Reply, prompt, reply};
use crate::cli::ui::style::{Colours, DIM};
use crate::cli::ui::wrap::{RowCounter, columns_of, hanging, terminal_columns, terminal_rows};
use crate::cli::ui::{pager, stderr};
use crate::error::Result;
use crate::workspace::{ChangeSet, Workspace, diff, risks};
use std::io::{self, Write};

/// Rows that are shown again without the pager.
const MAX_SHOWN_ROWS: usize = 100;
const QUESTION: &str = "Apply?";
const CHOICES: [Choice; 3] = [
    Choice { word: "yes", help: "write all of it to your files" },
    Choice { word: "no", help: "write nothing; it stays in the sandbox" },
    Choice { word: "each", help: "decide about each hunk" },
];
const KEYS: [Choice; 1] = [Choice { word: "diff", help: "show all of it in the pager" }];
const HINT: &str = "d shows the diff, ? explains the answers; what you say in words goes to the model";

/// The changes that are decided about.
pub(super) struct Whole<'a> {
    pub changes: &'a ChangeSet,
    pub workspace: &'a Workspace,
    pub dialogue: &'a Dialogue<'a>,
    /// Set if they are all that has changed.
    pub is_all: bool,
}

impl Whole<'_> {
    /// Shows what is not as the last diff showed it, else the diff where it fits the screen, and asks.
    pub(super) async fn ask(&self) -> Result<Reply> {
        let notice = self.workspace.since_shown(self.changes, self.is_all)?.summary();
        let summary = self.summary()?;
        match notice {
            Some(notice) => self.show_again(&notice)?,
            None => {
                if let Some(diff) = self.short_diff(&summary)? {
                    self.say(&diff);
                    self.workspace.record_shown(self.changes, self.is_all)?;
                }
            }
        }
        self.say(&summary);
        loop {
            match reply(self.dialogue.progress, QUESTION, &CHOICES, &KEYS).await? {
                Reply::Chosen("diff") => {
                    let mut text = Vec::new();
                    self.write_diff(self.changes, &mut text)?;
                    let _hold = self.dialogue.progress.hold();
                    if !pager::page(&self.dialogue.programs, &text)? {
                        stderr::write(&String::from_utf8_lossy(&text));
                    }
                    self.workspace.record_shown(self.changes, self.is_all)?;
                }
                reply => return Ok(reply),
            }
        }
    }

    /// Shows what the user has seen otherwise, or not at all, in the last diff.
    fn show_again(&self, notice: &str) -> Result<()> {
        let since = self.workspace.since_shown(self.changes, self.is_all)?;
        let mut text = format!("{notice}\n\n").into_bytes();
        self.write_diff(&since.changed, &mut text)?;
        let _hold = self.dialogue.progress.hold();
        let shown = String::from_utf8_lossy(&text);
        let mut counter = RowCounter::new(terminal_columns(&io::stderr()));
        counter.push(&shown);
        if counter.rows() <= MAX_SHOWN_ROWS || !pager::page(&self.dialogue.programs, &text)? {
            stderr::write(&shown);
        }
        self.workspace.record_shown(&since.changed, false)
    }

    /// The diff, if it, the summary and the question fit the screen.
    fn short_diff(&self, summary: &str) -> Result<Option<String>> {
        let stderr = io::stderr();
        let mut screen = Screenful::above(summary, terminal_columns(&stderr), terminal_rows(&stderr));
        match self.write_diff(self.changes, &mut screen) {
            Ok(()) => Ok(Some(screen.text)),
            Err(_) if screen.is_full() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write_diff(&self, changes: &ChangeSet, out: &mut dyn Write) -> Result<()> {
        diff::write_text(out, changes, self.workspace.store(), Colours::of(&io::stderr()).0)
    }

    /// The files, what is risky about them and the hint, as lines for the user.
    fn summary(&self) -> Result<String> {
        let mut shown = Vec::new();
        diff::write_stat(&mut shown, self.changes, self.workspace.store())?;
        if let Some(risks) = risks::summary(self.changes) {
            writeln!(shown, "{risks}")?;
        }
        let stderr = io::stderr();
        writeln!(shown, "{}", Colours::of(&stderr).paint(DIM, hanging(HINT, 0, columns_of(&stderr))))?;
        Ok(String::from_utf8_lossy(&shown).into_owned())
    }

    fn say(&self, text: &str) {
        self.dialogue.progress.suspend(|| stderr::write(text));
    }
}

/// Takes as many rows as fit a screen; the next one fails, so that nothing more is compared.
struct Screenful {
    text: String,
    counter: RowCounter,
    rows: usize,
}

impl Screenful {
    /// The rows that a window has above `summary` and the question with an answer to it.
    fn above(summary: &str, columns: usize, rows: usize) -> Self {
        let mut below = RowCounter::new(columns);
        below.push(summary);
        below.push(&prompt(QUESTION, &CHOICES.map(|choice| choice.word)));
        below.push(CHOICES[0].word);
        let counter = RowCounter::new(columns);
        Self { text: String::new(), counter, rows: rows.saturating_sub(below.rows()) }
    }

    fn is_full(&self) -> bool {
        self.counter.rows() >= self.rows
    }
}

impl Write for Screenful {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.counter.push(&text);
        if self.is_full() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.text.push_str(&text);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line of many rows "fitted the screen" and moved what stands above it out of sight.
    #[test]
    fn a_line_that_is_wider_than_the_window_takes_its_rows() {
        let screen = || Screenful { text: String::new(), counter: RowCounter::new(80), rows: 16 };
        assert!(screen().write_all("short\n".repeat(15).as_bytes()).is_ok());
        assert!(screen().write_all("short\n".repeat(16).as_bytes()).is_err());
        assert!(screen().write_all("long".repeat(320).as_bytes()).is_err());
    }

    /// A list of many files, or a line of risks that is wider than the window, moved the diff out of sight, which counted as seen.
    #[test]
    fn the_diff_has_the_rows_that_the_summary_and_the_question_leave() {
        let rows = |summary: &str| Screenful::above(summary, 80, 24).rows;
        assert_eq!(rows(&"a file\n".repeat(3)), 20);
        assert_eq!(rows(&"a file\n".repeat(13)), 10);
        assert_eq!(rows(&format!("1 file\n{}\nhint\n", "risk".repeat(100))), 16);
        assert_eq!(rows(&"a file\n".repeat(40)), 0);
        assert!(Screenful::above(&"a file\n".repeat(40), 80, 24).write_all(b"x\n").is_err());
    }
}
