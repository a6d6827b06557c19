//! Questions that the user answers on the terminal.

use super::input::SavedMode;
use super::progress::Progress;
use super::style::{BOLD, Colours};
use super::terminal::keyboard::keyboard;
use crate::error::{Error, Kind, Result};
use crate::sanitise;
use rustyline::config::Behavior;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Config, Editor};
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
    let _keyboard = keyboard().await;
    let _hold = progress.hold();
    let saved = SavedMode::of_stdin();
    let (choices, prompt) = (choices.to_vec(), prompt(question, choices));
    let answer = tokio::task::spawn_blocking(move || read_choice(&prompt, &choices));
    let answer = answer.await.map_err(|error| Error::unexpected("the question was lost").caused_by(error))?;
    drop(saved);
    answer
}

/// Reads one line after `prompt`, which is sanitised here. Waits while something else reads the keyboard. Dropping the future
/// restores the terminal.
///
/// # Errors
/// [`Kind::Interrupted`] after Ctrl-C and Ctrl-D; [`Kind::Terminated`] if the terminal was closed.
pub async fn line(progress: &Progress, prompt: &str) -> Result<String> {
    let _keyboard = keyboard().await;
    let _hold = progress.hold();
    let saved = SavedMode::of_stdin();
    let prompt = sanitise::plain(prompt).into_owned();
    let line = tokio::task::spawn_blocking(move || Questioner::open(&prompt)?.read());
    let line = line.await.map_err(|error| Error::unexpected("the question was lost").caused_by(error))?;
    drop(saved);
    line?.map_err(read_error)
}

/// `Apply 3 files? [yes/no/each] `
fn prompt(question: &str, choices: &[&str]) -> String {
    format!("{} [{}] ", sanitise::plain(question).trim_end(), choices.join("/"))
}

fn read_choice(prompt: &str, choices: &[&'static str]) -> Result<&'static str> {
    let mut questioner = Questioner::open(prompt)?;
    loop {
        let line = match questioner.read()? {
            // Ctrl-D changes nothing.
            Err(ReadlineError::Eof) if choices.contains(&"no") => "no".to_owned(),
            line => line.map_err(read_error)?,
        };
        if let Some(choice) = chosen(&line, choices) {
            return Ok(choice);
        }
    }
}

/// The editor of one question.
struct Questioner {
    editor: Editor<(), DefaultHistory>,
    prompt: String,
    styled: String,
}

impl Questioner {
    fn open(prompt: &str) -> Result<Self> {
        let config = Config::builder().behavior(Behavior::PreferTerm).build();
        let editor = Editor::with_default(config).map_err(read_error)?;
        let styled = Colours::of(&io::stderr()).paint(BOLD, prompt);
        Ok(Self { editor, prompt: prompt.to_owned(), styled })
    }

    /// A line; the outer error is a terminal that was closed.
    fn read(&mut self) -> Result<std::result::Result<String, ReadlineError>> {
        match self.editor.readline(&(self.prompt.as_str(), self.styled.as_str())) {
            Err(_) if !is_possible() => Err(Error::new(Kind::Terminated, "the terminal was closed")),
            line => Ok(line),
        }
    }
}

fn chosen(line: &str, choices: &[&'static str]) -> Option<&'static str> {
    let answer = line.trim().to_lowercase();
    let is_meant = |choice: &&&str| answer == **choice || (answer.len() == 1 && choice.starts_with(&answer));
    choices.iter().find(is_meant).copied()
}

fn read_error(error: ReadlineError) -> Error {
    match error {
        ReadlineError::Interrupted | ReadlineError::Eof => {
            Error::new(Kind::Interrupted, "no answer was given")
        }
        other => Error::unexpected("the terminal could not be read").caused_by(other),
    }
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
