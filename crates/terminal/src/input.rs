//! The prompt: the line editor with history, completion and hints, and the user's own editor.

use super::editor::edit;
use super::file_names::{self, FileNames};
use super::host_programs::HostPrograms;
use super::line_editor::draw::Label;
use super::line_editor::menu::{Menu, MenuItem};
use super::line_editor::{Assistant, Editing, Editor};
use super::read::{ReadEnd, read};
use super::status_line::StatusLine;
use super::style::{Colours, HEADING};
use super::trace::failure_text;
use super::wrap::columns_of;
use agent_base::error::{Error, Result};
use agent_base::sanitise::is_dangerous;
use rustyline::Config;
use rustyline::completion::{FilenameCompleter, Pair};
use rustyline::history::{DefaultHistory, History, SearchDirection};
use std::borrow::Cow;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Lines that the history file keeps.
const HISTORY_LINES: usize = 1000;
/// Lines longer than this, in bytes, were pasted and are not kept in the history.
const HISTORY_LINE_BYTES: usize = 16 << 10;
/// Names of files that Tab offers.
const MAX_NAMES: usize = 10_000;
pub const PROMPT: &str = "› ";

/// A slash command, for completion and hints.
#[derive(Debug, Clone)]
pub struct CommandHelp {
    /// The name, with its slash.
    pub name: Cow<'static, str>,
    /// Its arguments as the help shows them; empty if it has none.
    pub arguments: Cow<'static, str>,
    /// Its effect, in half a sentence.
    pub help: Cow<'static, str>,
}

impl CommandHelp {
    pub const fn new(name: &'static str, arguments: &'static str, help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), arguments: Cow::Borrowed(arguments), help: Cow::Borrowed(help) }
    }
}

/// The user's input at the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputLine {
    /// Text, which may have several lines.
    Text(String),
    /// Ctrl-C: the input is discarded.
    Interrupted,
    /// Escape twice, with this text written.
    Rewind(String),
    /// Ctrl-O, with this text written.
    ShowLast(String),
    /// Ctrl-D on an empty line.
    End,
}

/// The prompt. It writes to stderr and reads the terminal, so that stdout is left to answers.
pub struct Input {
    editor: Editor,
    commands: Commands,
    history: PathBuf,
    programs: HostPrograms,
    images: Vec<PathBuf>,
}

impl Input {
    /// Opens the prompt, with the history in `directory` if it can be read.
    pub fn open(
        commands: Vec<CommandHelp>,
        editing: Editing,
        directory: &Path,
        programs: HostPrograms,
        names: Arc<dyn FileNames>,
    ) -> Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)
            .map_err(|error| Error::unexpected("the history cannot be kept").caused_by(error))?
            .history_ignore_space(true)
            .build();
        let mut earlier = DefaultHistory::with_config(&config);
        let history = directory.join("history");
        // Without a history the prompt works all the same.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        let _ = OpenOptions::new().append(true).create(true).mode(0o600).open(&history);
        let _ = earlier.load(&history);
        let paths = FilenameCompleter::new();
        let commands = Commands { commands, paths, names, status: StatusLine::default() };
        let mut editor = Editor::new(earlier, editing);
        editor.text.accept_images();
        Ok(Self { editor, commands, history, programs, images: Vec::new() })
    }

    /// Completes these commands from now on.
    pub fn set_commands(&mut self, commands: Vec<CommandHelp>) {
        self.commands.commands = commands;
    }

    /// Takes the images that were pasted into the last line.
    pub fn take_images(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.images)
    }

    /// Waits for the next line, after any open question; `text` is there to be edited, and `status` is under it. Dropping the
    /// future restores the terminal.
    pub async fn read(&mut self, text: &str, status: StatusLine) -> Result<InputLine> {
        self.commands.status = status;
        let painted = Colours::of(&io::stderr()).paint(HEADING, PROMPT);
        let label = Label { plain: PROMPT.to_owned(), painted };
        self.editor.begin(text);
        loop {
            match read(&mut self.editor, &label, &self.commands).await? {
                ReadEnd::Submitted => {
                    self.images = self.editor.text.take_images();
                    let line = self.editor.text.take();
                    self.add_to_history(&line);
                    return Ok(InputLine::Text(join_continued(&line)));
                }
                ReadEnd::Interrupted => return Ok(InputLine::Interrupted),
                ReadEnd::End => return Ok(InputLine::End),
                ReadEnd::ShowLast => return Ok(InputLine::ShowLast(self.editor.text.take())),
                ReadEnd::Rewind => return Ok(InputLine::Rewind(self.editor.text.take())),
                ReadEnd::OpenEditor => {
                    let text = self.editor.text.expanded();
                    let edited = edit_outside(text, &self.programs).await;
                    self.editor.begin(&edited);
                }
            }
        }
    }

    fn add_to_history(&mut self, line: &str) {
        if !line.trim().is_empty() && line.len() <= HISTORY_LINE_BYTES {
            let history = self.editor.history();
            let _ = history.add(line);
            // A missing file would be created under a changed umask of the whole process: a sandbox that is created at that
            // moment would be inaccessible.
            if self.history.exists() {
                let _ = history.append(&self.history);
            }
        }
    }
}

/// The text after the user has changed it in their own editor, or as it was where that failed.
async fn edit_outside(text: String, programs: &HostPrograms) -> String {
    match edit(text.clone().into_bytes(), ".md", programs).await {
        Ok(edited) => {
            let is_text = |character: &char| matches!(character, '\n' | '\t') || !is_dangerous(*character);
            String::from_utf8_lossy(&edited).trim_end().chars().filter(is_text).collect()
        }
        Err(error) => {
            let stderr = io::stderr();
            super::stderr::write(&failure_text(&error, Colours::of(&stderr), columns_of(&stderr)));
            text
        }
    }
}

/// Removes the backslashes that continue lines. In a shell command they are the shell's.
pub(super) fn join_continued(line: &str) -> String {
    if line.starts_with('!') { line.to_string() } else { line.replace("\\\n", "\n") }
}

/// Returns whether another line must follow: after a backslash at the end, and within a code fence.
pub(super) fn is_incomplete(text: &str) -> bool {
    let backslashes = text.bytes().rev().take_while(|byte| *byte == b'\\').count();
    let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    backslashes % 2 == 1 || fences % 2 == 1
}

/// Completes and hints at commands, names of files and earlier lines.
struct Commands {
    commands: Vec<CommandHelp>,
    paths: FilenameCompleter,
    names: Arc<dyn FileNames>,
    status: StatusLine,
}

impl Commands {
    fn commands_with<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a CommandHelp> {
        self.commands.iter().filter(move |command| command.name.starts_with(start))
    }

    fn paths(&self, text: &str, cursor: usize) -> (usize, Vec<Pair>) {
        let before = &text[..cursor];
        let word = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        // `@` names a file that is sent with the prompt.
        let skipped = if before[word..].starts_with('@') { word + 1 } else { 0 };
        let Ok((start, mut names)) = self.paths.complete_path(&before[skipped..], cursor - skipped) else {
            return (cursor, Vec::new());
        };
        names.retain(|name| !name.display.contains(is_dangerous));
        if names.len() > MAX_NAMES {
            names.clear();
        }
        (skipped + start, names)
    }
}

impl Commands {
    /// The list for a command that is being written.
    fn command_menu(&self, before: &str) -> Option<Menu> {
        let is_word = before.starts_with('/') && !before.contains(char::is_whitespace);
        if !is_word || self.commands.iter().any(|command| command.name == before) {
            return None;
        }
        let item = |command: &CommandHelp| MenuItem {
            name: format!("{} {}", command.name, command.arguments).trim_end().to_owned(),
            about: command.help.to_string(),
            replacement: with_space(command),
            is_complete: command.arguments.is_empty() || command.arguments.starts_with('['),
        };
        let items: Vec<MenuItem> = self.commands_with(before).map(item).collect();
        (!items.is_empty()).then_some(Menu { start: 0, items, more: 0, takes_first: before.len() > 1 })
    }
}

/// A command's name, with a blank where arguments may follow.
fn with_space(command: &CommandHelp) -> String {
    match &*command.arguments {
        "" => command.name.to_string(),
        _ => format!("{} ", command.name),
    }
}

impl Assistant for Commands {
    fn menu(&self, text: &str, cursor: usize) -> Option<Menu> {
        let before = &text[..cursor];
        match before.as_bytes().first() {
            Some(b'!') | None => None,
            Some(b'/') if text.len() == cursor => {
                self.command_menu(before).or_else(|| file_names::menu(before, &*self.names))
            }
            _ => file_names::menu(before, &*self.names),
        }
    }

    fn complete(&self, text: &str, cursor: usize) -> (usize, Vec<Pair>) {
        let before = &text[..cursor];
        if !before.starts_with('/') || before.contains(char::is_whitespace) {
            return self.paths(text, cursor);
        }
        let pair = |command: &CommandHelp| Pair {
            display: command.name.to_string(),
            replacement: with_space(command),
        };
        (0, self.commands_with(before).map(pair).collect())
    }

    fn hint(&self, text: &str, history: &DefaultHistory) -> Option<(String, usize)> {
        if text.len() < 2 {
            return None;
        }
        if text.starts_with('/') {
            let command = self.commands_with(text.trim_end()).next()?;
            let rest = command.name.get(text.len()..).unwrap_or("");
            return Some((format!("{rest} {}", command.arguments).trim_end().to_owned(), rest.len()));
        }
        let earlier = (0..history.len()).rev().find_map(|index| {
            let found = history.get(index, SearchDirection::Reverse).ok()??;
            found
                .entry
                .strip_prefix(text)
                .filter(|rest| !rest.is_empty() && !rest.contains('\n'))
                .map(str::to_owned)
        })?;
        let length = earlier.len();
        Some((earlier, length))
    }

    fn is_incomplete(&self, text: &str) -> bool {
        is_incomplete(text)
    }

    fn status(&self, columns: usize) -> Option<String> {
        self.status.fitted(columns)
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
