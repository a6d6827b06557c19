//! Questions that the user answers on the terminal.

use super::line_editor::draw::Label;
use super::line_editor::{Assistant, Editing, Editor};
use super::notify;
use super::progress::Progress;
use super::read::{ReadEnd, read};
use super::stderr;
use super::style::{BOLD, Colours};
use agent_base::error::{Error, Kind, Result};
use agent_base::sanitise;
use rustyline::completion::Pair;
use rustyline::history::DefaultHistory;
use std::io::{self, IsTerminal};

/// Returns whether the user can be asked: stdin and stderr are terminals.
pub fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// One of the answers that a question has.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// Typed in full or by its first letter, which all differ.
    pub word: &'static str,
    /// Its effect; may be empty.
    pub help: &'static str,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Chosen(&'static str),
    /// Something said in words.
    Words(String),
}

/// The longest line that is a mistyped answer and not something said.
const MAX_TYPO: usize = 12;

/// Asks until one of `choices` is given, by its name or the first letter of it (which all differ). `?` lists them, and so does
/// what is none of them.
///
/// Waits while another question or the prompt reads the keyboard. The question may have several lines; it is sanitised
/// here. Ctrl-D chooses `no` if that is a choice. Dropping the future restores the terminal.
///
/// # Errors
/// [`Kind::Interrupted`] after Ctrl-C, and after Ctrl-D without a choice `no`; [`Kind::Terminated`] if the terminal was
/// closed.
pub async fn ask(progress: &Progress, question: &str, choices: &[&'static str]) -> Result<&'static str> {
    let choices: Vec<Choice> = choices.iter().map(|word| Choice { word, help: "" }).collect();
    loop {
        match reply(progress, question, &choices, &[]).await? {
            Reply::Chosen(word) => return Ok(word),
            Reply::Words(line) => explain(progress, &line, &choices, &[]),
        }
    }
}

/// As [`ask`], where what is said in words is an answer too. `keys` are answers that the question does not name.
///
/// # Errors
/// Those of [`ask`].
pub async fn reply(
    progress: &Progress,
    question: &str,
    choices: &[Choice],
    keys: &[Choice],
) -> Result<Reply> {
    let words: Vec<&'static str> = choices.iter().map(|choice| choice.word).collect();
    let prompt = prompt(question, &words);
    let all: Vec<&'static str> = words.iter().copied().chain(keys.iter().map(|key| key.word)).collect();
    loop {
        let line = match read_line(progress, &prompt).await? {
            Some(line) => line,
            // Ctrl-D changes nothing.
            None if all.contains(&"no") => "no".to_owned(),
            None => return Err(no_answer()),
        };
        if let Some(choice) = chosen(&line, &all) {
            return Ok(Reply::Chosen(choice));
        }
        if is_said(&line, &all) {
            return Ok(Reply::Words(line.trim().to_owned()));
        }
        explain(progress, &line, choices, keys);
    }
}

/// Returns whether a line is something said, and not a mistyped answer, or one of `answers` with more behind it, which may be meant as that.
pub fn is_said(line: &str, answers: &[&str]) -> bool {
    let line = line.trim();
    let first = line.split(char::is_whitespace).next().unwrap_or_default();
    let first = first.trim_end_matches([',', '.', ':', ';', '!']).to_lowercase();
    if first == "y" || answers.iter().any(|answer| *answer != "no" && *answer == first) {
        return false;
    }
    line.contains(char::is_whitespace) || line.len() > MAX_TYPO || !line.is_ascii()
}

/// Lists the answers, and names `line` if it is none of them.
fn explain(progress: &Progress, line: &str, choices: &[Choice], keys: &[Choice]) {
    let line = line.trim();
    let mut text = match line {
        "" | "?" => String::new(),
        other => format!("{:?} is none of the answers:\n", sanitise::one_line(other, 40)),
    };
    for Choice { word, help } in choices.iter().chain(keys) {
        let first: String = word.chars().take(1).collect();
        text += &match help.is_empty() {
            true => format!("  {first}  {word}\n"),
            false => format!("  {first}  {word}: {help}\n"),
        };
    }
    text += "  ?  this list; Ctrl-C answers nothing\n";
    progress.suspend(|| stderr::write(&text));
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

/// The line on which a question is asked: `Apply 3 files? [yes/no/each] `
pub fn prompt(question: &str, choices: &[&str]) -> String {
    format!("{} [{}] ", sanitise::plain(question).trim_end(), choices.join("/"))
}

fn chosen(line: &str, choices: &[&'static str]) -> Option<&'static str> {
    let answer = line.trim().to_lowercase();
    let is_meant = |choice: &&&str| answer == **choice || (answer.len() == 1 && choice.starts_with(&answer));
    choices.iter().find(is_meant).copied()
}

#[cfg(test)]
mod tests {
    use super::{chosen, is_said, prompt};

    #[test]
    fn a_sentence_is_said_and_a_short_word_is_a_mistake() {
        for said in ["no, use a helper function", "rename it", "用辅助函数", "supercalifragilistic"] {
            assert!(is_said(said, &["yes", "no"]), "{said}");
        }
        for mistyped in ["", "yse", "  ", "x", "certainly", "yes, go ahead", "y looks good"] {
            assert!(!is_said(mistyped, &["yes", "no"]), "{mistyped}");
        }
    }

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
