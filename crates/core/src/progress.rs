//! What a model has done about a prompt so far, as far as reminders need it.

use super::asked;
use super::small_model::{EDITED_NOTHING, NOT_WRITTEN, UNCHANGED};
use agent_event::ToolCall;
use agent_sandbox::WORKSPACE;
use agent_tools::{NO_OUTPUT, ToolResult};
use std::path::{Path, PathBuf};

/// Paths that are remembered.
const MAX_WRITTEN: usize = 20;
/// Commands that failed that are remembered.
const MAX_COMMANDS: usize = 20;
/// What the result of a call begins with that was not run.
const NOT_RUN: &str = "error: not run";

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
    /// What failed.
    pub failures: Failures,
}

/// A command that succeeded.
#[derive(Debug, Clone)]
pub struct Printed {
    /// The command.
    pub command: String,
    /// Its output.
    pub output: String,
}

impl Printed {
    /// The program that `prompt` says to write, where the command ran it.
    pub fn program(&self, prompt: &str) -> Option<PathBuf> {
        let is_run =
            |file: &PathBuf| interpreter(file).is_some() && self.command.contains(&*file.to_string_lossy());
        asked::files_to_make(prompt).into_iter().find(is_run)
    }
}

/// Steps that failed since one was of use.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    /// How many.
    pub all: usize,
    /// Reminders that doubt what a program printed, since the prompt was begun.
    pub doubts: usize,
    /// The commands among the failures.
    commands: Vec<String>,
}

impl Failures {
    /// Records a step that changes or runs something.
    fn record(&mut self, call: &ToolCall, command: Option<&str>, result: &ToolResult) {
        match (command, result.ok) {
            (Some(command), true) => {
                self.all = 0;
                self.commands.retain(|failed| failed != command);
            }
            // One that was denied was not run.
            (Some(_), false) if result.exit_code.is_none() => {}
            (_, false) if result.text.starts_with(NOT_RUN) => {}
            (_, false) => self.add(command),
            // Nothing was done about the last failure.
            (None, true) if call.name == "write_file" && result.text.contains(UNCHANGED) => {
                self.add(self.commands.last().cloned().as_deref());
            }
            (None, true) => {}
        }
    }

    fn add(&mut self, command: Option<&str>) {
        self.all += 1;
        self.commands.extend(command.filter(|_| self.commands.len() < MAX_COMMANDS).map(str::to_owned));
    }

    /// How often the command failed that failed most often.
    pub fn most_of_one_command(&self) -> usize {
        let count = |command| self.commands.iter().filter(|other| *other == command).count();
        self.commands.iter().map(count).max().unwrap_or_default()
    }
}

impl Progress {
    /// Records the outcome of a call.
    pub fn record(&mut self, call: &ToolCall, result: &ToolResult) {
        let command = call.arguments.text("command").filter(|_| call.name == "run_commands");
        let looks = call.name == "read_file" || command.is_some_and(|command| consists_of(command, &LOOKS));
        if !looks {
            self.failures.record(call, command, result);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_fail_are_counted_until_one_is_of_use() {
        let mut progress = Progress::default();
        let mut take = |name: &str, arguments: &str, result: ToolResult| {
            let (id, arguments) = ("1".to_owned(), arguments.into());
            progress.record(&ToolCall { id, name: name.into(), arguments }, &result);
            (progress.failures.all, progress.failures.most_of_one_command())
        };
        let test = r#"{"command":"python3 a.py"}"#;
        let failed = || ToolResult { exit_code: Some(1), ..ToolResult::failure("exit code 1") };
        assert_eq!(take("run_commands", test, failed()), (1, 1));
        let unchanged = || ToolResult::success(format!("wrote a.py{UNCHANGED}"));
        assert_eq!(take("write_file", r#"{"path":"a.py"}"#, unchanged()), (2, 2));
        assert_eq!(take("run_commands", r#"{"command":"sh b.sh"}"#, failed()), (3, 2));
        assert_eq!(take("run_commands", test, failed()), (4, 3));
        // What was denied, or only looks, has not failed.
        assert_eq!(take("run_commands", test, ToolResult::failure("error: denied")), (4, 3));
        assert_eq!(take("run_commands", r#"{"command":"grep x y"}"#, failed()), (4, 3));
        assert_eq!(take("run_code", "{}", ToolResult::failure("error: not run, because")), (4, 3));
        assert_eq!(take("run_commands", test, ToolResult::success("exit code 0")), (0, 1));
    }
}
