//! Answers that are not accepted at once: the model is reminded of what the task asked for.

use super::{asked, expected_output};
use crate::event::ToolCall;
use crate::model::{CallForm, Reply};
use crate::sandbox::WORKSPACE;
use crate::shorten::head_and_tail;
use crate::tools::{NO_OUTPUT, ToolResult};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Reminders in one prompt, each about something else.
pub const MAX_NUDGES: usize = 3;
/// What a message that the server cut off at its limit is answered with.
const CUT_OFF: &str = "Your message was too long, or repeated itself, and was cut off. Send one short JSON object, the next step; write a long file in parts.";
/// Characters of a command and of an output that are quoted.
const MAX_COMMAND: usize = 200;
const MAX_QUOTED: usize = 300;
/// Bytes of an output that is compared with what the prompt says.
const MAX_COMPARED: usize = 16 << 10;
/// Paths that are remembered.
const MAX_WRITTEN: usize = 20;

/// A message that is sent in place of accepting an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reminder {
    /// The message.
    pub text: String,
    /// Why the task is plainly not done, where that is so: an answer is not accepted after the reminder either.
    pub unfinished: Option<String>,
}

impl Reminder {
    /// A message after which an answer is accepted.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), unfinished: None }
    }

    /// With the reason for which an answer is a failure.
    fn unfinished_if(self, is_plain: bool, why: &str) -> Self {
        Self { unfinished: is_plain.then(|| why.to_owned()), ..self }
    }

    /// That the message was cut off.
    pub fn cut_off() -> Self {
        Self::new(CUT_OFF)
    }
}

/// What the model has done about the prompt so far.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Whether a file may have been changed.
    pub changed: bool,
    /// Whether a command succeeded since the last change.
    pub ran: bool,
    /// The program that ran last since the last change, and what it printed.
    pub printed: Option<Printed>,
    /// The tool of the last call, if that failed.
    pub last_failure: Option<String>,
    /// The files that were written.
    pub written: Vec<PathBuf>,
}

/// A command that succeeded.
#[derive(Debug, Clone)]
pub struct Printed {
    command: String,
    output: String,
}

impl Progress {
    /// Records the outcome of a call.
    pub fn record(&mut self, call: &ToolCall, result: &ToolResult) {
        self.last_failure = (!result.ok).then(|| call.name.clone());
        if !result.ok {
            return;
        }
        match call.name.as_str() {
            "write_file" | "write_files" | "edit_file" => {
                (self.changed, self.ran, self.printed) = (true, false, None);
                if let Some(path) = call.arguments.text("path") {
                    let path = Path::new(path);
                    let path = path.strip_prefix(WORKSPACE).unwrap_or(path);
                    let path = path.strip_prefix(".").unwrap_or(path).to_owned();
                    self.written.retain(|known| *known != path);
                    self.written.push(path);
                    let excess = self.written.len().saturating_sub(MAX_WRITTEN);
                    self.written.drain(..excess);
                }
            }
            "run_commands" => {
                let command = call.arguments.text("command");
                let only_looks = command.is_some_and(|command| consists_of(command, &LOOKS));
                let runs_nothing =
                    command.is_some_and(|command| consists_of(command, &[&LOOKS[..], &FILES].concat()));
                self.changed |= !only_looks;
                let output = result.text.split_once('\n').map_or("", |(_, output)| output);
                // What runs after the program and prints nothing hides nothing.
                let is_silent = output.ends_with(NO_OUTPUT) && self.printed.is_some();
                if let Some(command) = command.filter(|_| !runs_nothing && !is_silent) {
                    self.printed = Some(Printed { command: command.to_owned(), output: output.to_owned() });
                }
                // A command that looks at files, or moves them, runs nothing of the task's.
                self.ran |= !runs_nothing || !self.changed;
            }
            _ => {}
        }
    }
}

/// Programs that show files and directories.
const LOOKS: [&str; 14] =
    ["ls", "cat", "pwd", "cd", "find", "grep", "head", "tail", "wc", "file", "stat", "tree", "which", "echo"];
/// Programs that make, move and remove files.
const FILES: [&str; 8] = ["chmod", "chown", "cp", "ln", "mkdir", "mv", "rm", "touch"];

/// Whether a command runs nothing but these programs, and writes no file by redirection.
fn consists_of(command: &str, known: &[&str]) -> bool {
    let parts = command.split(['\n', ';', '|', '&']).map(str::trim).filter(|part| !part.is_empty());
    let mut programs = parts.map(|part| part.split_whitespace().next().unwrap_or_default());
    !command.contains('>') && programs.all(|program| known.contains(&program))
}

/// The reminder to send in place of accepting `reply`; `None` if it is an answer.
pub fn nudge(reply: &Reply, form: CallForm, prompt: &str, progress: &Progress) -> Option<Reminder> {
    if reply.text.trim().is_empty() {
        return Some(Reminder::new("Your message was empty. Continue with the next step, or answer."));
    }
    // Large models mean what they answer.
    if form != CallForm::Compact {
        return None;
    }
    if let Some(tool) = &progress.last_failure {
        let text = format!(
            "The task is not done: your last step, {tool}, failed. Nobody but you does it. Send the JSON object that \
             corrects it, for example a write_file for a file that is missing."
        );
        let never_ran = tool == "run_commands" && !progress.ran && !asked::expects_failure(prompt);
        let is_plain = never_ran && asked::asks_for_run(prompt) && !asked::files_to_make(prompt).is_empty();
        return Some(Reminder::new(text).unfinished_if(is_plain, "what it wrote fails"));
    }
    if !progress.changed && asked::asks_for_change(prompt) {
        let text = "The task is not done: you have not changed a file yet. Send the JSON object that does it, a write_file, \
                    edit_file or run_commands.";
        let is_plain = asked::orders_change(prompt);
        return Some(Reminder::new(text).unfinished_if(is_plain, "it has changed no file"));
    }
    if !progress.ran && asked::asks_for_run(prompt) {
        let is_plain = asked::orders_run(prompt) && !progress.written.is_empty();
        return Some(not_run(progress).unfinished_if(is_plain, "it has not run what it wrote"));
    }
    output(prompt, &reply.text, progress.printed.as_ref()?)
}

/// The reminder that nothing was run since the last change, with the command for a script that was written.
fn not_run(progress: &Progress) -> Reminder {
    let script = progress.written.iter().rev().find_map(|path| Some((interpreter(path)?, path)));
    let what_to_do = match script {
        Some((interpreter, path)) => {
            let command =
                json!({ "tool": "run_commands", "command": format!("{interpreter} {}", path.display()) });
            format!("Send the JSON object that runs it: {command}")
        }
        None => "Send the run_commands object that runs it.".to_owned(),
    };
    Reminder::new(format!("The task is not done: you have not run it yet. {what_to_do}"))
}

/// The program that runs a script, where its name shows it and needs no quotation marks in a shell.
fn interpreter(path: &Path) -> Option<&'static str> {
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

/// The reminder that a program printed nothing, or something else than the prompt or the answer says.
fn output(prompt: &str, answer: &str, printed: &Printed) -> Option<Reminder> {
    let command = head_and_tail(&printed.command, MAX_COMMAND);
    if printed.command.contains('>') {
        return None;
    }
    if printed.output.ends_with(NO_OUTPUT) && asked::asks_for_output(prompt) {
        let text = format!(
            "The task asks for output, but `{command}` printed nothing. Send the step that corrects it, for example an \
             edit_file that calls what was defined and prints the result."
        );
        let is_plain = asked::orders_output(prompt);
        return Some(Reminder::new(text).unfinished_if(is_plain, "its program prints nothing"));
    }
    let said = other_output(prompt, answer, &printed.output)?;
    let output = head_and_tail(printed.output.trim(), MAX_QUOTED);
    Some(Reminder::new(format!(
        "{said}\nBut `{command}` printed:\n{output}\nSend the step that corrects it, or answer if this is right."
    )))
}

/// What the prompt or the answer says of an output that is another one.
fn other_output(prompt: &str, answer: &str, output: &str) -> Option<String> {
    if output.len() > MAX_COMPARED {
        return None;
    }
    let literals = expected_output::literals(prompt);
    if let Some(first) = literals.first() {
        let is_other = !expected_output::has_one_of(output, &literals);
        return is_other.then(|| format!("The task says that it prints: {first}"));
    }
    if expected_output::is_number_alone(prompt) && !expected_output::is_number(output) {
        return Some("The task says that it prints a number and nothing else.".to_owned());
    }
    expected_output::taken_apart(answer, output).map(|word| format!("Your answer says: {word}"))
}

/// The reminder that a file of the task's is missing.
pub fn missing_file(name: &Path, prompt: &str, progress: &Progress) -> Reminder {
    let shown = name.display();
    let elsewhere = progress.written.iter().rev().find(|written| written.file_name() == name.file_name());
    let what_to_do = match elsewhere {
        Some(written) => format!(
            "You wrote {} instead. Send the run_commands object that moves it there.",
            written.display()
        ),
        None => "Send the JSON object that makes it, or answer if it is not needed.".to_owned(),
    };
    let text = format!("The task is not done: it names the file {shown}, which does not exist. {what_to_do}");
    let is_plain = asked::files_to_make(prompt).iter().any(|file| file == name);
    Reminder::new(text).unfinished_if(is_plain, &format!("{shown} does not exist"))
}

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
        let prepared = [
            ("write_file", r#"{"path":"/workspace/src/hello.py"}"#, true),
            ("run_commands", r#"{"command":"chmod +x src/hello.py && ls"}"#, true),
        ];
        let failed = [done[0], ("run_commands", r#"{"command":"python3 hello.py"}"#, false)];
        let shell =
            [("run_commands", r#"{"command":"echo 'print()' > hello.py && python3 hello.py"}"#, true)];
        let answer = reply("Here is the program: …");
        for (prompt, calls, expected) in [
            ("Write hello.py and run it", &[][..], Some("not changed a file")),
            ("Write hello.py and run it", &looked, Some("not changed a file")),
            ("Produce a shell script named a.sh. Then execute it.", &looked, Some("not changed a file")),
            ("Write hello.py and run it", &wrote, Some("not run it")),
            ("Write hello.py and run it", &read, Some("not run it")),
            ("Write hello.py and run it", &prepared, Some(r#""command":"python3 src/hello.py"}"#)),
            ("Write hello.py and run it", &failed, Some("run_commands, failed")),
            ("Write hello.py and run it", &done, None),
            ("Write hello.py and run it", &shell, None),
            ("Write hello.py", &wrote, None),
            ("List the files", &looked, None),
            ("What does this project do?", &[], None),
        ] {
            let mut progress = Progress::default();
            for (name, arguments, is_ok) in calls {
                let arguments = serde_json::from_str::<serde_json::Value>(arguments).unwrap().into();
                let call = ToolCall { id: "1".into(), name: (*name).into(), arguments };
                let result = if *is_ok {
                    ToolResult::success("exit code 0\n1")
                } else {
                    ToolResult::failure("exit code 1\n")
                };
                progress.record(&call, &result);
            }
            let text = nudge(&answer, CallForm::Compact, prompt, &progress).map(|reminder| reminder.text);
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
        let reminder = after("python3 sum.py", NO_OUTPUT, prompt).unwrap();
        assert!(reminder.text.contains("`python3 sum.py` printed nothing"), "{reminder:?}");
        assert_eq!(reminder.unfinished.as_deref(), Some("its program prints nothing"));
        let quiet = after("python3 sum.py", NO_OUTPUT, "Write sum.py that prints nothing for 0").unwrap();
        assert_eq!(quiet.unfinished, None);
        assert_eq!(after("python3 sum.py", "55\n", prompt), None);
        assert_eq!(after("python3 sum.py > out.txt", NO_OUTPUT, prompt), None);
        assert_eq!(after("python3 sum.py", NO_OUTPUT, "Write sum.py and run it"), None);
    }

    #[test]
    fn another_output_than_the_prompt_says_is_pointed_out() {
        let after = |output: &str| {
            let mut progress = Progress { changed: true, ..Progress::default() };
            let arguments = serde_json::json!({ "command": "sh a.sh" }).into();
            let call = ToolCall { id: "1".into(), name: "run_commands".into(), arguments };
            progress.record(&call, &ToolResult::success(format!("exit code 0, 0.01 s\n{output}")));
            nudge(
                &reply("Done."),
                CallForm::Compact,
                "Write a.sh that prints: good morning. Run it.",
                &progress,
            )
        };
        let reminder = after("Good day\n").expect("a reminder");
        assert!(
            reminder.text.contains("prints: good morning\nBut `sh a.sh` printed:\nGood day\n"),
            "{reminder:?}"
        );
        assert_eq!(reminder.unfinished, None, "what is printed may be right");
        assert_eq!(after("good morning\n"), None);
    }

    #[test]
    fn what_is_plainly_not_done_is_never_accepted() {
        let progress = |failed: Option<&str>, changed| Progress {
            changed,
            last_failure: failed.map(str::to_owned),
            ..Progress::default()
        };
        let run = Some("run_commands");
        let wrote = Progress { written: vec!["a.py".into()], ..progress(None, true) };
        for (prompt, progress, expected) in [
            ("Write a.py and run it", progress(run, true), Some("what it wrote fails")),
            ("Write test_a.py, which fails, and run it", progress(run, true), None),
            ("Run a.py", progress(run, false), None),
            ("Change X in a.py", progress(None, false), Some("it has changed no file")),
            ("Write a.py. Then run it.", wrote.clone(), Some("it has not run what it wrote")),
            ("Write a.py, which can be run", wrote, None),
            ("How would you change X in a.py?", progress(None, false), None),
        ] {
            let reminder = nudge(&reply("Done."), CallForm::Compact, prompt, &progress).expect(prompt);
            assert_eq!(reminder.unfinished.as_deref(), expected, "{prompt}");
        }
    }

    #[test]
    fn a_file_in_another_directory_is_named() {
        let mut progress = Progress::default();
        let arguments = serde_json::json!({ "path": "/workspace/src/a.py", "data": "" }).into();
        let call = ToolCall { id: "1".into(), name: "write_file".into(), arguments };
        progress.record(&call, &ToolResult::success("wrote"));
        let reminder = missing_file(Path::new("a.py"), "Write a.py", &progress);
        assert!(reminder.text.contains("You wrote src/a.py instead"), "{reminder:?}");
        assert_eq!(reminder.unfinished.as_deref(), Some("a.py does not exist"));
        let other = missing_file(Path::new("b.py"), "Write a.py, see b.py", &progress);
        assert!(!other.text.contains("instead") && other.unfinished.is_none(), "{other:?}");
    }
}
