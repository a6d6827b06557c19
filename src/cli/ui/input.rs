//! The prompt: a line editor with history, completion, hints and input of several lines.

use super::style::{Colours, DIM, HEADING};
use super::terminal::keyboard::keyboard;
use crate::cli::machine;
use crate::error::{Error, Result};
use crate::sanitise::is_dangerous;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::config::{Behavior, CompletionType};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter, HistoryHinter};
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use std::borrow::Cow;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

/// Lines that the history file keeps.
const HISTORY_LINES: usize = 1000;
/// Lines longer than this, in bytes, were pasted and are not kept in the history.
const HISTORY_LINE_BYTES: usize = 16 << 10;
/// File names that Tab offers at once: the editor counts them in 16 bits.
const MAX_NAMES: usize = u16::MAX as usize;
const PROMPT: &str = "› ";

/// A slash command, for completion and hints.
#[derive(Debug, Clone)]
pub struct CommandHelp {
    /// The name, with its slash.
    pub name: Cow<'static, str>,
    /// Its arguments as the help shows them; empty if it has none.
    pub arguments: &'static str,
    /// What it does, in half a sentence.
    pub help: Cow<'static, str>,
}

impl CommandHelp {
    pub const fn new(name: &'static str, arguments: &'static str, help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), arguments, help: Cow::Borrowed(help) }
    }
}

/// The user's input at the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Text, which may have several lines.
    Text(String),
    /// Ctrl-C: the input is discarded.
    Interrupted,
    /// Ctrl-D on an empty line.
    End,
}

/// The line editor. It opens the terminal itself, so that stdout is left to answers.
pub struct Input {
    editor: Editor<Assistant, DefaultHistory>,
    history: PathBuf,
}

impl Input {
    /// Opens the editor, with the history of earlier sessions if it can be read.
    pub fn open(commands: Vec<CommandHelp>) -> Result<Self> {
        let config = Config::builder()
            .behavior(Behavior::PreferTerm)
            .completion_type(CompletionType::List)
            .max_history_size(HISTORY_LINES)
            .map_err(terminal_error)?
            .history_ignore_space(true)
            .build();
        let earlier = DefaultHistory::with_config(&config);
        let mut editor = Editor::with_history(config, earlier).map_err(terminal_error)?;
        editor.set_helper(Some(Assistant::new(commands)));
        let directory = machine().data_dir()?;
        let history = directory.join("history");
        // Without a history the prompt works all the same.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        let _ = OpenOptions::new().append(true).create(true).mode(0o600).open(&history);
        let _ = editor.load_history(&history);
        Ok(Self { editor, history })
    }

    /// Waits for the next line on a separate thread, after any open question. Dropping the future restores the terminal, but
    /// the thread keeps waiting: only a process that is about to exit may do so.
    pub async fn read(mut self) -> Result<(Self, Line)> {
        let _keyboard = keyboard().await;
        let _saved = SavedMode::of_stdin();
        let reading = tokio::task::spawn_blocking(move || self.read_now().map(|line| (self, line)));
        reading.await.map_err(|error| Error::unexpected("the prompt was lost").caused_by(error))?
    }

    fn read_now(&mut self) -> Result<Line> {
        let styled = Colours::of(&io::stderr()).paint(HEADING, PROMPT);
        match self.editor.readline(&(PROMPT, styled.as_str())) {
            Ok(line) => {
                self.add_to_history(&line);
                Ok(Line::Text(join_continued(&line)))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(terminal_error(error)),
        }
    }

    fn add_to_history(&mut self, line: &str) {
        if !line.trim().is_empty() && line.len() <= HISTORY_LINE_BYTES {
            let _ = self.editor.add_history_entry(line);
            // The editor creates a missing file under a changed umask of the whole process: a sandbox that is created at that
            // moment would be inaccessible.
            if self.history.exists() {
                let _ = self.editor.append_history(&self.history);
            }
        }
    }
}

fn terminal_error(error: ReadlineError) -> Error {
    Error::unexpected("the terminal could not be read").caused_by(error)
}

/// Removes the backslashes that continue lines. In a shell command they are the shell's.
fn join_continued(line: &str) -> String {
    if line.starts_with('!') { line.to_string() } else { line.replace("\\\n", "\n") }
}

/// Whether another line must follow: after a backslash at the end, and within a code fence.
fn is_incomplete(text: &str) -> bool {
    let backslashes = text.bytes().rev().take_while(|byte| *byte == b'\\').count();
    let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    backslashes % 2 == 1 || fences % 2 == 1
}

/// Completes, hints and decides when the input is complete.
struct Assistant {
    commands: Vec<CommandHelp>,
    paths: FilenameCompleter,
    history: HistoryHinter,
    colours: Colours,
}

impl Assistant {
    fn new(commands: Vec<CommandHelp>) -> Self {
        Self {
            commands,
            paths: FilenameCompleter::new(),
            history: HistoryHinter::new(),
            colours: Colours::of(&io::stderr()),
        }
    }

    fn commands_with<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a CommandHelp> {
        self.commands.iter().filter(move |command| command.name.starts_with(start))
    }
}

impl Helper for Assistant {}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, ctx: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = line.get(..pos).unwrap_or(line);
        if !before.starts_with('/') || before.contains(char::is_whitespace) {
            let (start, mut names) = self.paths.complete(line, pos, ctx)?;
            // The editor does not sanitise names.
            names.retain(|name| !name.display.contains(is_dangerous));
            if names.len() > MAX_NAMES {
                names.clear();
            }
            return Ok((start, names));
        }
        let pair = |command: &CommandHelp| Pair {
            display: command.name.to_string(),
            replacement: match command.arguments {
                "" => command.name.to_string(),
                _ => format!("{} ", command.name),
            },
        };
        Ok((0, self.commands_with(before).map(pair).collect()))
    }
}

/// A hint: text that completes the input, then names of arguments that do not.
struct Suggestion {
    text: String,
    completion_bytes: usize,
}

impl Hint for Suggestion {
    fn display(&self) -> &str {
        &self.text
    }

    fn completion(&self) -> Option<&str> {
        self.text.get(..self.completion_bytes).filter(|completion| !completion.is_empty())
    }
}

impl Hinter for Assistant {
    type Hint = Suggestion;

    fn hint(&self, line: &str, pos: usize, ctx: &Context<'_>) -> Option<Suggestion> {
        if line.len() < 2 || pos < line.len() || line.contains('\n') {
            return None;
        }
        if line.starts_with('/') {
            let command = self.commands_with(line.trim_end()).next()?;
            let rest = command.name.get(line.len()..).unwrap_or("");
            let text = format!("{rest} {}", command.arguments).trim_end().to_string();
            return Some(Suggestion { text, completion_bytes: rest.len() });
        }
        let text = self.history.hint(line, pos, ctx)?;
        Some(Suggestion { completion_bytes: text.len(), text })
    }
}

impl Highlighter for Assistant {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(self.colours.paint(DIM, hint))
    }
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match is_incomplete(context.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

/// The terminal's settings, restored when this is dropped.
pub(super) struct SavedMode(Option<libc::termios>);

impl SavedMode {
    pub(super) fn of_stdin() -> Self {
        let mut mode = std::mem::MaybeUninit::uninit();
        // SAFETY: tcgetattr has written a whole termios if it returns 0, and only then it is read.
        let mode = unsafe {
            (libc::tcgetattr(libc::STDIN_FILENO, mode.as_mut_ptr()) == 0).then(|| mode.assume_init())
        };
        Self(mode)
    }
}

/// Keeps the terminal from echoing `^C` into the output until the result is dropped.
pub fn without_control_echo() -> impl Drop {
    let saved = SavedMode::of_stdin();
    if let Some(mut mode) = saved.0 {
        mode.c_lflag &= !libc::ECHOCTL;
        // SAFETY: the settings came from tcgetattr on the same descriptor; a failure changes nothing.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSADRAIN, &mode) };
    }
    saved
}

impl Drop for SavedMode {
    fn drop(&mut self) {
        if let Some(mode) = &self.0 {
            // SAFETY: the settings came from tcgetattr on the same descriptor; a failure changes nothing.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSADRAIN, mode) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_incomplete, join_continued};

    #[test]
    fn a_backslash_or_an_open_fence_makes_the_input_incomplete() {
        assert!(is_incomplete("first \\"));
        assert!(!is_incomplete("a path \\\\"));
        assert!(is_incomplete("fix this:\n```rust\nfn main() {}"));
        assert!(!is_incomplete("```\ncode\n```"));
        assert!(!is_incomplete("what is ``` for?"));
    }

    #[test]
    fn continuation_backslashes_are_removed_except_from_shell_commands() {
        assert_eq!(join_continued("a \\\nb"), "a \nb");
        assert_eq!(join_continued("!echo a \\\nb"), "!echo a \\\nb");
    }
}
