//! The line editor of `agent code -i`: further lines are asked for until the code is complete.

use crate::error::{Error, Result};
use crate::tools::code::Language;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Editor, Helper};

/// The editor.
pub struct CodePrompt {
    editor: Editor<Continued, DefaultHistory>,
    prompt: &'static str,
}

/// The line that was typed.
pub enum PromptLine {
    /// Code, which may have several lines.
    Code(String),
    /// Ctrl-C: the input is discarded.
    Interrupted,
    /// Ctrl-D, or the end of a pipe.
    End,
}

impl CodePrompt {
    /// Opens it for a language.
    pub fn open(language: Language) -> Result<Self> {
        let mut editor = Editor::new().map_err(terminal_error)?;
        editor.set_helper(Some(Continued { language }));
        let prompt = if language == Language::Python { ">>> " } else { "> " };
        Ok(Self { editor, prompt })
    }

    /// Waits for the next input on a thread of its own.
    pub async fn read(mut self) -> Result<(Self, PromptLine)> {
        let reading = tokio::task::spawn_blocking(move || {
            let line = match self.editor.readline(self.prompt) {
                Ok(code) => {
                    // Without a history the prompt works all the same.
                    let _ = self.editor.add_history_entry(&code);
                    PromptLine::Code(code)
                }
                Err(ReadlineError::Interrupted) => PromptLine::Interrupted,
                Err(ReadlineError::Eof) => PromptLine::End,
                Err(error) => return Err(terminal_error(error)),
            };
            Ok((self, line))
        });
        reading.await.map_err(|error| Error::unexpected("the prompt was lost").caused_by(error))?
    }
}

fn terminal_error(error: ReadlineError) -> Error {
    Error::unexpected("the terminal could not be read").caused_by(error)
}

/// Decides when the input is complete.
struct Continued {
    language: Language,
}

impl Helper for Continued {}

impl Completer for Continued {
    type Candidate = String;
}

impl Hinter for Continued {
    type Hint = String;
}

impl Highlighter for Continued {}

impl Validator for Continued {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match is_complete(self.language, context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

/// Returns whether nothing is open: no bracket, no string over several lines, and in Python no block, which an empty line ends.
fn is_complete(language: Language, code: &str) -> bool {
    let mut depth = 0_i64;
    let mut rest = code;
    let comment = if language == Language::Python { "#" } else { "//" };
    let long: &[&str] = if language == Language::Python { &["\"\"\"", "'''"] } else { &["`"] };
    while let Some(character) = rest.chars().next() {
        if let Some(quote) = long.iter().find(|quote| rest.starts_with(**quote)) {
            let Some(end) = rest[quote.len()..].find(*quote) else { return false };
            rest = &rest[quote.len() * 2 + end..];
            continue;
        }
        if rest.starts_with(comment) {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        rest = &rest[character.len_utf8()..];
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '"' | '\'' => rest = behind_quote(rest, character),
            _ => {}
        }
    }
    if depth > 0 || code.ends_with('\\') {
        return false;
    }
    let is_block = |line: &str| line.trim_end().ends_with(':') || line.starts_with([' ', '\t', '@']);
    let opens_block = language == Language::Python && code.lines().any(is_block);
    !opens_block || code.ends_with('\n') || code.lines().last().is_some_and(|line| line.trim().is_empty())
}

/// Returns what follows a string on one line.
fn behind_quote(text: &str, quote: char) -> &str {
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '\n' => return &text[at..],
            _ if character == quote => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_complete_when_nothing_is_open() {
        for (code, complete) in [
            ("1 + 1", true),
            ("print(", false),
            ("print('(')", true),
            ("x = [1,\n2]", true),
            ("def f():", false),
            ("def f():\n  return 1", false),
            ("def f():\n  return 1\n", true),
            ("'''open", false),
            ("# ( a comment", true),
            ("x = 1 + \\", false),
        ] {
            assert_eq!(is_complete(Language::Python, code), complete, "{code:?}");
        }
        for (code, complete) in
            [("f()", true), ("function f() {", false), ("`a\n", false), ("// (", true), ("({a: 1})", true)]
        {
            assert_eq!(is_complete(Language::JavaScript, code), complete, "{code:?}");
        }
    }
}
