//! Questions that the user answers on the terminal.

use super::line_editor::draw::Label;
use super::line_editor::{Assistant, Editing, Editor};
use super::notify;
use super::progress::Progress;
use super::read::{ReadEnd, read};
use super::style::{BOLD, Colours};
use agent_base::error::{Error, Kind, Result};
use agent_base::sanitise;
use rustyline::completion::Pair;
use rustyline::history::DefaultHistory;
use std::io::{self, IsTerminal};

/// Whether the user can be asked: stdin and stderr are terminals.
pub fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks until one of `choices` is given, by its name or the first letter of it (which all differ).
///
/// Waits while another question or the prompt reads the keyboard. The question may have several lines; it is sanitised
/// here. Ctrl-D chooses `no` if that is a choice. Dropping the future restores the terminal.
///
/// # Errors
/// [`Kind::Interrupted`] after Ctrl-C, and after Ctrl-D without a choice `no`; [`Kind::Terminated`] if the terminal was
/// closed.
pub async fn ask(progress: &Progress, question: &str, choices: &[&'static str]) -> Result<&'static str> {
    let prompt = prompt(question, choices);
    loop {
        let line = match read_line(progress, &prompt).await? {
            Some(line) => line,
            // Ctrl-D changes nothing.
            None if choices.contains(&"no") => "no".to_owned(),
            None => return Err(no_answer()),
        };
        if let Some(choice) = chosen(&line, choices) {
            return Ok(choice);
        }
    }
}

/// Reads one line after `prompt`, which is sanitised here. Waits while something else reads the keyboard. Dropping the future
/// restores the terminal.
///
/// # Errors
/// [`Kind::Interrupted`] after Ctrl-C and Ctrl-D; [`Kind::Terminated`] if the terminal was closed.
pub async fn line(progress: &Progress, prompt: &str) -> Result<String> {
    read_line(progress, prompt).await?.ok_or_else(no_answer)
}

/// A line; `None` after Ctrl-D.
async fn read_line(progress: &Progress, prompt: &str) -> Result<Option<String>> {
    let _hold = progress.hold();
    let plain = sanitise::plain(prompt).into_owned();
    let painted = Colours::of(&io::stderr()).paint(BOLD, &plain);
    let label = Label { plain, painted };
    let mut editor = Editor::new(DefaultHistory::new(), Editing::Emacs);
    loop {
        notify::notify(&label.plain);
        let ended = read(&mut editor, &label, &Nothing).await;
        notify::saw_input();
        match ended {
            // A closed terminal ends the input, or fails to be read or drawn on, whichever comes first.
            Ok(ReadEnd::End) | Err(_) if !is_possible() => {
                return Err(Error::new(Kind::Terminated, "the terminal was closed"));
            }
            Ok(ReadEnd::Submitted) => return Ok(Some(editor.text.take())),
            Ok(ReadEnd::End) => return Ok(None),
            Ok(ReadEnd::Interrupted | ReadEnd::Rewind) => return Err(no_answer()),
            Ok(ReadEnd::OpenEditor | ReadEnd::ShowLast) => {}
            Err(error) => return Err(error),
        }
    }
}

fn no_answer() -> Error {
    Error::new(Kind::Interrupted, "no answer was given")
}

/// There is nothing to complete.
struct Nothing;

impl Assistant for Nothing {
    fn complete(&self, _: &str, cursor: usize) -> (usize, Vec<Pair>) {
        (cursor, Vec::new())
    }

    fn hint(&self, _: &str, _: &DefaultHistory) -> Option<(String, usize)> {
        None
    }

    fn is_incomplete(&self, _: &str) -> bool {
        false
    }
}

/// `Apply 3 files? [yes/no/each] `
fn prompt(question: &str, choices: &[&str]) -> String {
    format!("{} [{}] ", sanitise::plain(question).trim_end(), choices.join("/"))
}

fn chosen(line: &str, choices: &[&'static str]) -> Option<&'static str> {
    let answer = line.trim().to_lowercase();
    let is_meant = |choice: &&&str| answer == **choice || (answer.len() == 1 && choice.starts_with(&answer));
    choices.iter().find(is_meant).copied()
}

#[cfg(test)]
mod tests {
    use super::{chosen, prompt};

    #[test]
    fn a_name_or_its_first_letter_chooses() {
        let choices = ["yes", "no", "each"];
        assert_eq!(chosen(" Yes ", &choices), Some("yes"));
        assert_eq!(chosen("e", &choices), Some("each"));
        assert_eq!(chosen("", &choices), None);
        assert_eq!(chosen("ye", &choices), None);
    }

    #[test]
    fn the_question_cannot_move_the_cursor() {
        assert_eq!(prompt("run \x1b[2Jrm?\n", &["yes", "no"]), "run rm? [yes/no] ");
    }
}
