//! The prompt: a line editor with history, completion, hints and input of several lines.

use super::sanitise::is_dangerous;
use super::style::{Colours, DIM, HEADING};
use crate::error::{Error, Result};
use crate::paths;
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
/// What is longer than this, in bytes, was pasted and is not kept in the history.
const HISTORY_LINE_BYTES: usize = 16 << 10;
/// File names that Tab offers at once: the editor counts them in 16 bits.
const MOST_NAMES: usize = u16::MAX as usize;
const PROMPT: &str = "› ";

/// Held by whoever reads the keyboard, the prompt or a question: one at a time.
pub(super) static KEYBOARD: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A slash command as the prompt knows it.
#[derive(Debug, Clone, Copy)]
pub struct CommandHelp {
    /// With its slash.
    pub name: &'static str,
    /// Its arguments, as shown to people; empty where it has none.
    pub arguments: &'static str,
    /// What it does, in half a sentence.
    pub help: &'static str,
}

/// What came from the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Something was entered; it may have several lines.
    Text(String),
    /// Ctrl-C: what was typed is thrown away.
    Interrupted,
    /// Ctrl-D on an empty line.
    End,
}

/// The line editor. It talks to the terminal itself, so that stdout stays free for answers.
pub struct Input {
    editor: Editor<Assistant, DefaultHistory>,
    history: PathBuf,
}

impl Input {
    /// Opens the editor, with the history of former sessions where it can be read.
    pub fn open(commands: Vec<CommandHelp>) -> Result<Self> {
        let config = Config::builder()
            .behavior(Behavior::PreferTerm)
            .completion_type(CompletionType::List)
            .max_history_size(HISTORY_LINES)
            .map_err(terminal_error)?
            .history_ignore_space(true)
            .build();
        let past = DefaultHistory::with_config(&config);
        let mut editor = Editor::with_history(config, past).map_err(terminal_error)?;
        editor.set_helper(Some(Assistant::new(commands)));
        let directory = paths::data_dir()?;
        let history = directory.join("history");
        // A history that is missing, unreadable or on a full disk is no reason not to work.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        let _ = OpenOptions::new().append(true).create(true).mode(0o600).open(&history);
        let _ = editor.load_history(&history);
        Ok(Self { editor, history })
    }

    /// Waits for the next line on a thread of its own, once no question is open any more. Dropping the future gives the terminal back as it was,
    /// but the thread goes on waiting: only a process that is about to exit may do so.
    pub async fn read(mut self) -> Result<(Self, Line)> {
        let _keyboard = KEYBOARD.lock().await;
        let _saved = SavedMode::of_stdin();
        let reading = tokio::task::spawn_blocking(move || self.read_now().map(|line| (self, line)));
        reading.await.map_err(|error| Error::unexpected("the prompt was lost").caused_by(error))?
    }

    fn read_now(&mut self) -> Result<Line> {
        let styled = Colours::of(&io::stderr()).paint(HEADING, PROMPT);
        match self.editor.readline(&(PROMPT, styled.as_str())) {
            Ok(line) => {
                self.remember(&line);
                Ok(Line::Text(join_continued(&line)))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(terminal_error(error)),
        }
    }

    fn remember(&mut self, line: &str) {
        if !line.trim().is_empty() && line.len() <= HISTORY_LINE_BYTES {
            let _ = self.editor.add_history_entry(line);
            // The editor makes a missing file under a umask of the whole process, which then makes a sandbox that nobody
            // may enter, if one is being made at that moment.
            if self.history.exists() {
                let _ = self.editor.append_history(&self.history);
            }
        }
    }
}

fn terminal_error(error: ReadlineError) -> Error {
    Error::unexpected("the terminal could not be read").caused_by(error)
}

/// A backslash at the end of a line continues it, and is not part of the text. The shell reads its own.
fn join_continued(line: &str) -> String {
    if line.starts_with('!') { line.to_string() } else { line.replace("\\\n", "\n") }
}

/// Whether more lines have to come: after a backslash at the end, and within a code fence.
fn is_incomplete(text: &str) -> bool {
    let backslashes = text.bytes().rev().take_while(|byte| *byte == b'\\').count();
    let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    backslashes % 2 == 1 || fences % 2 == 1
}

/// Completes, hints and decides when the input is whole.
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
            // The editor writes names to the terminal as they are.
            names.retain(|name| !name.display.contains(is_dangerous));
            if names.len() > MOST_NAMES {
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

/// A hint, of which perhaps only the beginning can be taken over: what follows are names of arguments.
struct Suggestion {
    shown: String,
    taken: usize,
}

impl Hint for Suggestion {
    fn display(&self) -> &str {
        &self.shown
    }

    fn completion(&self) -> Option<&str> {
        self.shown.get(..self.taken).filter(|taken| !taken.is_empty())
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
            let shown = format!("{rest} {}", command.arguments).trim_end().to_string();
            return Some(Suggestion { shown, taken: rest.len() });
        }
        let shown = self.history.hint(line, pos, ctx)?;
        Some(Suggestion { taken: shown.len(), shown })
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

/// The terminal's settings, put back when this is dropped.
pub(super) struct SavedMode(Option<libc::termios>);

impl SavedMode {
    pub(super) fn of_stdin() -> Self {
        let mut mode = std::mem::MaybeUninit::uninit();
        // SAFETY: tcgetattr writes a whole termios where it returns 0, and only then is it read.
        let mode = unsafe {
            (libc::tcgetattr(libc::STDIN_FILENO, mode.as_mut_ptr()) == 0).then(|| mode.assume_init())
        };
        Self(mode)
    }
}

/// Keeps the terminal from writing `^C` into what is drawn, until this is dropped. For who has the terminal to himself.
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
    fn a_backslash_or_an_open_fence_asks_for_more() {
        assert!(is_incomplete("first \\"));
        assert!(!is_incomplete("a path \\\\"));
        assert!(is_incomplete("fix this:\n```rust\nfn main() {}"));
        assert!(!is_incomplete("```\ncode\n```"));
        assert!(!is_incomplete("what is ``` for?"));
    }

    #[test]
    fn the_continuing_backslash_is_not_part_of_the_text_but_the_shells_own_is() {
        assert_eq!(join_continued("a \\\nb"), "a \nb");
        assert_eq!(join_continued("!echo a \\\nb"), "!echo a \\\nb");
    }
}
