//! Answers that are not accepted at once: the model is reminded of what the task asked for.

use crate::event::ToolCall;
use crate::model::{CallForm, Reply};
use crate::shorten::head_and_tail;
use crate::tools::{NO_OUTPUT, ToolResult};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Reminders in one prompt, each about something else.
pub const MAX_NUDGES: usize = 3;
/// What a message that the server cut off at its limit is answered with.
pub const CUT_OFF: &str = "Your message was too long and was cut off. Send one short JSON object, the next step; write a long file in parts.";
/// Characters of a command that is quoted.
const MAX_COMMAND: usize = 200;

/// What the model has done about the prompt so far.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Whether a file may have been changed.
    pub changed: bool,
    /// Whether a command succeeded since the last change.
    pub ran: bool,
    /// The command that succeeded last, if it printed nothing.
    pub silent: Option<String>,
    /// The tool of the last call, if that failed.
    pub last_failure: Option<String>,
}

impl Progress {
    /// Records the outcome of a call.
    pub fn record(&mut self, call: &ToolCall, result: &ToolResult) {
        self.last_failure = (!result.ok).then(|| call.name.clone());
        if !result.ok {
            return;
        }
        match call.name.as_str() {
            "write_file" | "write_files" | "edit_file" => (self.changed, self.ran) = (true, false),
            "run_commands" => {
                let command = call.arguments.text("command");
                let only_looks = command.is_some_and(only_looks);
                self.changed |= !only_looks;
                if !only_looks {
                    let is_silent = result.text.ends_with(NO_OUTPUT);
                    self.silent = command
                        .filter(|command| is_silent && !command.contains('>'))
                        .map(|command| head_and_tail(command, MAX_COMMAND).into_owned());
                }
                // A command that looks at files runs nothing of the task's.
                self.ran |= !only_looks || !self.changed;
            }
            _ => {}
        }
    }
}

/// Whether all that a command does is to show files and directories.
fn only_looks(command: &str) -> bool {
    const LOOK: [&str; 14] = [
        "ls", "cat", "pwd", "cd", "find", "grep", "head", "tail", "wc", "file", "stat", "tree", "which",
        "echo",
    ];
    let parts = command.split(['\n', ';', '|', '&']).map(str::trim).filter(|part| !part.is_empty());
    let mut programs = parts.map(|part| part.split_whitespace().next().unwrap_or_default());
    !command.contains('>') && programs.all(|program| LOOK.contains(&program))
}

/// The reminder to send in place of accepting `reply`; `None` if it is an answer.
pub fn nudge(reply: &Reply, form: CallForm, prompt: &str, progress: &Progress) -> Option<String> {
    if reply.text.trim().is_empty() {
        return Some("Your message was empty. Continue with the next step, or answer.".to_owned());
    }
    // Large models mean what they answer.
    if form != CallForm::Compact {
        return None;
    }
    if let Some(tool) = &progress.last_failure {
        return Some(format!(
            "The task is not done: your last step, {tool}, failed. Nobody but you does it. Send the JSON object that \
             corrects it, for example a write_file for a file that is missing."
        ));
    }
    let asks_for = |asked: &[&str]| words(prompt).any(|word| asked.contains(&word.as_str()));
    if !progress.changed && asks_for(&CHANGES) {
        return Some(
            "The task is not done: you have not changed a file yet. Send the JSON object that does it, a write_file, \
             edit_file or run_commands."
                .to_owned(),
        );
    }
    if !progress.ran && asks_for(&RUNS) {
        return Some(
            "The task is not done: you have not run it yet. Send the run_commands object that runs it."
                .to_owned(),
        );
    }
    let silent = progress.silent.as_ref().filter(|_| asks_for(&PRINTS))?;
    Some(format!(
        "The task asks for output, but `{silent}` printed nothing. Send the step that corrects it, for example an edit_file \
         that calls what was defined and prints the result."
    ))
}

/// The names of files in a prompt that plainly asks for them, for the reminder that one is missing: relative to the workspace.
pub fn files_asked_for(prompt: &str) -> Vec<PathBuf> {
    if words(prompt).any(|word| REMOVES.contains(&word.as_str())) {
        return Vec::new();
    }
    let names = super::small_model::names(prompt, "");
    names.into_iter().filter(|name| is_file_name(name)).take(MAX_FILES).collect()
}

/// The reminder that a file of the task's is missing.
pub fn missing_file(name: &Path) -> String {
    format!(
        "The task is not done: it names the file {}, which does not exist. Send the JSON object that makes it, or answer if it \
         is not needed.",
        name.display()
    )
}

/// Whether a word is the name of a file, with an extension of letters: not a version, a host or an abbreviation.
fn is_file_name(name: &Path) -> bool {
    let (Some(stem), Some(extension)) = (name.file_stem(), name.extension()) else { return false };
    let is_letters = |text: &OsStr| text.as_encoded_bytes().iter().all(u8::is_ascii_alphabetic);
    let is_known = EXTENSIONS.iter().any(|known| extension == *known);
    is_known && is_letters(extension) && stem.len() > 1
}

fn words(prompt: &str) -> impl Iterator<Item = String> {
    prompt.split(|c: char| !c.is_alphabetic()).map(str::to_ascii_lowercase)
}

/// Words of prompts that plainly ask for a change.
const CHANGES: [&str; 22] = [
    "add",
    "append",
    "build",
    "change",
    "convert",
    "correct",
    "create",
    "delete",
    "edit",
    "fix",
    "generate",
    "implement",
    "insert",
    "install",
    "make",
    "move",
    "refactor",
    "remove",
    "rename",
    "replace",
    "save",
    "write",
];
/// Words of prompts that plainly ask for output of a program.
const PRINTS: [&str; 8] = ["output", "outputs", "print", "prints", "printed", "report", "show", "shows"];
/// Words of prompts after which a file that is named may be missing in the end.
const REMOVES: [&str; 8] = ["delete", "deletes", "drop", "move", "moves", "remove", "removes", "rename"];
/// Extensions of files that tasks name.
const EXTENSIONS: [&str; 24] = [
    "c", "cfg", "cpp", "css", "csv", "go", "h", "html", "ini", "java", "js", "json", "log", "md", "py", "rb",
    "rs", "sh", "sql", "toml", "ts", "txt", "xml", "yaml",
];
/// Files of a prompt that are looked for.
const MAX_FILES: usize = 6;
/// Words of prompts that plainly ask for a command.
const RUNS: [&str; 4] = ["execute", "list", "run", "test"];

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        Reply { text: text.into(), ..Reply::default() }
    }

    #[test]
    fn an_empty_answer_is_never_accepted_at_once() {
        for form in [CallForm::Native, CallForm::Compact] {
            assert!(nudge(&reply(" \n"), form, "Hello", &Progress::default()).is_some());
        }
    }

    #[test]
    fn a_small_model_that_did_nothing_is_reminded() {
        let done = [("write_file", "{}", true), ("run_commands", r#"{"command":"python3 hello.py"}"#, true)];
        let looked = [("run_commands", r#"{"command":"ls -la | head"}"#, true)];
        let wrote = [looked[0], done[0]];
        let read = [done[0], ("run_commands", r#"{"command":"cat hello.py"}"#, true)];
        let failed = [done[0], ("run_commands", r#"{"command":"python3 hello.py"}"#, false)];
        let shell =
            [("run_commands", r#"{"command":"echo 'print()' > hello.py && python3 hello.py"}"#, true)];
        let answer = reply("Here is the program: …");
        for (prompt, calls, expected) in [
            ("Write hello.py and run it", &[][..], Some("not changed a file")),
            ("Write hello.py and run it", &looked, Some("not changed a file")),
            ("Write hello.py and run it", &wrote, Some("not run it")),
            ("Write hello.py and run it", &read, Some("not run it")),
            ("Write hello.py and run it", &failed, Some("run_commands, failed")),
            ("Write hello.py and run it", &done, None),
            ("Write hello.py and run it", &shell, None),
            ("Write hello.py", &wrote, None),
            ("List the files", &looked, None),
            ("What does this project do?", &[], None),
        ] {
            let mut progress = Progress::default();
            for (name, arguments, is_ok) in calls {
                let call = ToolCall { id: "1".into(), name: (*name).into(), arguments: (*arguments).into() };
                let result = if *is_ok {
                    ToolResult::success("exit code 0\n1")
                } else {
                    ToolResult::failure("exit code 1\n")
                };
                progress.record(&call, &result);
            }
            let text = nudge(&answer, CallForm::Compact, prompt, &progress);
            let is_expected = text
                .as_deref()
                .map_or(expected.is_none(), |text| expected.is_some_and(|part| text.contains(part)));
            assert!(is_expected, "{prompt} {calls:?}: {text:?}");
            assert_eq!(nudge(&answer, CallForm::Native, prompt, &progress), None, "{prompt}");
        }
    }

    #[test]
    fn a_program_that_prints_nothing_is_pointed_out_where_output_was_asked_for() {
        let after = |command: &str, output: &str, prompt: &str| {
            let mut progress = Progress { changed: true, ..Progress::default() };
            let arguments = serde_json::json!({ "command": command }).into();
            let call = ToolCall { id: "1".into(), name: "run_commands".into(), arguments };
            progress.record(&call, &ToolResult::success(format!("exit code 0, 0.01 s\n{output}")));
            nudge(&reply("Done."), CallForm::Compact, prompt, &progress)
        };
        let prompt = "Write sum.py, which prints the sum of 1 to 10, and run it";
        let text = after("python3 sum.py", NO_OUTPUT, prompt).unwrap();
        assert!(text.contains("`python3 sum.py` printed nothing"), "{text}");
        assert_eq!(after("python3 sum.py", "55\n", prompt), None);
        assert_eq!(after("python3 sum.py > out.txt", NO_OUTPUT, prompt), None);
        assert_eq!(after("python3 sum.py", NO_OUTPUT, "Write sum.py and run it"), None);
    }

    #[test]
    fn files_that_a_prompt_asks_for_are_its_names_with_an_extension() {
        let asked = files_asked_for(
            "Write src/greet.sh (see https://x.org/a.b, v1.2, e.g. 3.14) and log to `out.txt`.",
        );
        assert_eq!(asked, ["src/greet.sh", "out.txt"].map(PathBuf::from));
        assert!(files_asked_for("Rename a.py to b.py").is_empty());
    }
}
