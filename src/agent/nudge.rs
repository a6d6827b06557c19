//! Answers that are not accepted at once: the model is reminded of what the task asked for.

use crate::event::ToolCall;
use crate::model::{CallForm, Reply};

/// Reminders in one prompt, each about something else.
pub const MAX_NUDGES: usize = 2;

/// What the model has done about the prompt so far.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Whether a file may have been changed.
    pub changed: bool,
    /// Whether a command succeeded since the last change.
    pub ran: bool,
    /// The tool of the last call, if that failed.
    pub last_failure: Option<String>,
}

impl Progress {
    /// Records the outcome of a call.
    pub fn record(&mut self, call: &ToolCall, is_ok: bool) {
        self.last_failure = (!is_ok).then(|| call.name.clone());
        if !is_ok {
            return;
        }
        match call.name.as_str() {
            "write_file" | "write_files" | "edit_file" => (self.changed, self.ran) = (true, false),
            "run_commands" => {
                let command = call.arguments.text("command");
                let only_looks = command.is_some_and(only_looks);
                self.changed |= !only_looks;
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
    let asks_for = |words: &[&str]| {
        let mut asked = prompt.split(|c: char| !c.is_alphabetic()).map(str::to_ascii_lowercase);
        asked.any(|word| words.contains(&word.as_str()))
    };
    if !progress.changed && asks_for(&CHANGES) {
        return Some(
            "The task is not done: you have not changed a file yet. Send the JSON object that does it, a write_file, \
             edit_file or run_commands."
                .to_owned(),
        );
    }
    (!progress.ran && asks_for(&RUNS)).then(|| {
        "The task is not done: you have not run it yet. Send the run_commands object that runs it.".to_owned()
    })
}

/// Words of prompts that plainly ask for a change.
const CHANGES: [&str; 17] = [
    "add",
    "append",
    "build",
    "change",
    "create",
    "delete",
    "edit",
    "fix",
    "implement",
    "install",
    "make",
    "move",
    "remove",
    "rename",
    "replace",
    "save",
    "write",
];
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
                progress.record(&call, *is_ok);
            }
            let text = nudge(&answer, CallForm::Compact, prompt, &progress);
            let is_expected = text
                .as_deref()
                .map_or(expected.is_none(), |text| expected.is_some_and(|part| text.contains(part)));
            assert!(is_expected, "{prompt} {calls:?}: {text:?}");
            assert_eq!(nudge(&answer, CallForm::Native, prompt, &progress), None, "{prompt}");
        }
    }
}
