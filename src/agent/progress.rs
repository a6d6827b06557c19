//! What a model has done about a prompt so far, as far as reminders need it.

use super::small_model::{EDITED_NOTHING, NOT_WRITTEN};
use crate::event::ToolCall;
use crate::sandbox::WORKSPACE;
use crate::tools::{NO_OUTPUT, ToolResult};
use std::path::{Path, PathBuf};

/// Paths that are remembered.
const MAX_WRITTEN: usize = 20;

/// What the model has done about the prompt so far.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Whether a file may have been changed.
    pub changed: bool,
    /// Whether a command succeeded since the last change.
    pub ran: bool,
    /// The program that ran last since the last change, and what it printed.
    pub printed: Option<Printed>,
    /// The tool of the last call that failed, if nothing was changed or run since.
    pub last_failure: Option<String>,
    /// Whether that call was to look at files, after which another look is enough.
    pub failed_to_look: bool,
    /// The files that were written.
    pub written: Vec<PathBuf>,
}

/// A command that succeeded.
#[derive(Debug, Clone)]
pub struct Printed {
    /// The command.
    pub command: String,
    /// Its output.
    pub output: String,
}

impl Progress {
    /// Records the outcome of a call.
    pub fn record(&mut self, call: &ToolCall, result: &ToolResult) {
        let command = call.arguments.text("command").filter(|_| call.name == "run_commands");
        let looks = call.name == "read_file" || command.is_some_and(|command| consists_of(command, &LOOKS));
        // What was refused has changed nothing, and is not to be corrected.
        if result.text.starts_with(NOT_WRITTEN) {
            return;
        }
        if !result.ok {
            (self.last_failure, self.failed_to_look) = (Some(call.name.clone()), looks);
            return;
        }
        // Who looks at files corrects nothing.
        if !looks || self.failed_to_look {
            self.last_failure = None;
        }
        match call.name.as_str() {
            "write_file" | "write_files" | "edit_file" => self.wrote(call.arguments.text("path")),
            "run_commands" => {
                let edits = command.is_some_and(|command| command.contains("sed -i"));
                if edits && !result.text.contains(EDITED_NOTHING) {
                    self.wrote(None);
                }
                self.changed |= !looks && !edits;
                self.ran_command(command, result);
            }
            _ => {}
        }
    }

    fn wrote(&mut self, path: Option<&str>) {
        (self.changed, self.ran, self.printed) = (true, false, None);
        let Some(path) = path.map(Path::new) else { return };
        let path = path.strip_prefix(WORKSPACE).unwrap_or(path);
        let path = path.strip_prefix(".").unwrap_or(path).to_owned();
        self.written.retain(|known| *known != path);
        self.written.push(path);
        let excess = self.written.len().saturating_sub(MAX_WRITTEN);
        self.written.drain(..excess);
    }

    fn ran_command(&mut self, command: Option<&str>, result: &ToolResult) {
        let runs_nothing =
            command.is_some_and(|command| consists_of(command, &[&LOOKS[..], &FILES].concat()));
        let output = result.text.split_once('\n').map_or("", |(_, output)| output);
        // What runs after the program and prints nothing hides nothing.
        let is_silent = output.ends_with(NO_OUTPUT) && self.printed.is_some();
        match command {
            Some(command) if command.contains('>') => self.printed = None,
            Some(command) if !runs_nothing && !is_silent => {
                self.printed = Some(Printed { command: command.to_owned(), output: output.to_owned() });
            }
            _ => {}
        }
        // A command that looks at files, or moves them, runs nothing of the task's.
        self.ran |= !runs_nothing || !self.changed;
    }
}

/// Programs that show files and directories.
const LOOKS: [&str; 14] =
    ["ls", "cat", "pwd", "cd", "find", "grep", "head", "tail", "wc", "file", "stat", "tree", "which", "echo"];
/// Programs that make, move and remove files.
const FILES: [&str; 9] = ["chmod", "chown", "cp", "ln", "mkdir", "mv", "rm", "sed", "touch"];

/// Whether a command runs nothing but these programs, and writes no file by redirection.
fn consists_of(command: &str, known: &[&str]) -> bool {
    let parts = command.split(['\n', ';', '|', '&']).map(str::trim).filter(|part| !part.is_empty());
    let mut programs = parts.map(|part| part.split_whitespace().next().unwrap_or_default());
    !command.contains('>') && programs.all(|program| known.contains(&program))
}

/// The program that runs a script, where its name shows it and needs no quotation marks in a shell.
pub fn interpreter(path: &Path) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    path.to_str().filter(|path| path.chars().all(is_plain) && !path.starts_with('-'))?;
    match path.extension()?.to_str()? {
        "py" => Some("python3"),
        "sh" => Some("sh"),
        "js" => Some("node"),
        "rb" => Some("ruby"),
        _ => None,
    }
}
