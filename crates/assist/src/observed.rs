//! The model's work on its task so far, as far as anybody has seen it.

use super::files::relative;
use agent_base::exit_status::{is_result, programs};
use agent_core::{NewPrompt, ToolUse};
use agent_log::normalise;
use agent_model::results::NO_OUTPUT;
use agent_tools::ToolResult;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// The number of failures with one output after which the work begins anew, and of times that the model works on one
/// task.
const MAX_FAILURES: usize = 3;
const MAX_ATTEMPTS: u32 = 3;
/// Failing outputs that are remembered, and calls under way.
const MAX_OUTPUTS: usize = 50;
const MAX_CALLS: usize = 50;

/// A reminder, of which each comes once in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reminder {
    CutOff,
    NothingDone,
    NotCorrected,
    NotRun,
}

/// The observed work on a task.
#[derive(Debug, Default)]
pub struct Observed {
    /// Calls so far, whatever became of them.
    pub calls: usize,
    /// The last failure, where nothing was done about it since.
    pub failed: Option<Failed>,
    /// The script that was written last, where nothing has run since.
    pub script: Option<PathBuf>,
    /// The file that was changed last.
    pub changed: Option<PathBuf>,
    /// The former content of the files that calls under way write.
    pub before: HashMap<String, Vec<(PathBuf, String)>>,
    sent: Vec<Reminder>,
    /// Set if a call was made since the last reminder about what was done.
    has_stepped: bool,
    attempts: u32,
    /// Failing outputs, and how often each came after something else was tried.
    outputs: Vec<(u64, usize)>,
    has_tried: bool,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Its tool.
    pub tool: String,
    /// Set if it was to look at something: then another look is enough.
    looked: bool,
}

impl Observed {
    /// A prompt begins.
    pub fn begin(&mut self, prompt: &NewPrompt<'_>) {
        let sent = std::mem::take(&mut self.sent);
        match prompt {
            NewPrompt::Task { .. } => *self = Self { attempts: 1, ..Self::default() },
            NewPrompt::FollowUp | NewPrompt::Check(_) => (self.before, self.has_stepped) = Default::default(),
            NewPrompt::Again => *self = Self { attempts: self.attempts + 1, sent, ..Self::default() },
        }
    }

    /// Remembers what the files of a call hold, until it has run.
    pub fn keep(&mut self, id: &str, files: Vec<(PathBuf, String)>) {
        if self.before.len() < MAX_CALLS && !files.is_empty() {
            self.before.insert(id.to_owned(), files);
        }
    }

    /// Records a call; `is_idle`: it has changed nothing that it was to change. Whether the work is to begin anew.
    pub fn record(&mut self, call: ToolUse<'_>, result: &ToolResult, is_idle: bool) -> bool {
        let command = call.text("command").filter(|_| call.tool == "run_commands");
        let looks = call.tool == "read_file" || command.is_some_and(only_looks);
        self.calls += 1;
        self.has_stepped = true;
        let is_code = call.tool == "run_code" && call.arguments.is_object();
        if !looks && (command.is_some() || is_code) {
            self.script = None;
        }
        if is_failure(command, result) {
            self.failed = Some(Failed { tool: call.tool.to_owned(), looked: looks });
            let output = result.text.split_once('\n').map_or("", |(_, output)| output);
            return command.filter(|_| result.exit_code.is_some() && !looks).is_some_and(|command| {
                let is_new = self.has_tried;
                self.has_tried = false;
                self.fails_again(command, output, is_new)
            });
        }
        if is_idle {
            return false;
        }
        self.failed = self.failed.take().filter(|failed| looks && !failed.looked);
        self.has_tried |= !looks;
        for path in written(call).iter().filter_map(|path| relative(path)) {
            self.script = interpreter(&path).map(|_| path.clone()).or(self.script.take());
            self.changed = Some(path);
        }
        false
    }

    /// Records a failing output. Whether it has come so often that the work is to begin anew. `is_new`: something was tried since the
    /// last one.
    pub fn fails_again(&mut self, command: &str, output: &str, is_new: bool) -> bool {
        let mut hasher = DefaultHasher::new();
        let output = normalise(output);
        // Nothing is the output of many commands.
        let command = Some(command).filter(|_| output.is_empty() || output == NO_OUTPUT);
        (command, output).hash(&mut hasher);
        let hash = hasher.finish();
        let Some((_, times)) = self.outputs.iter_mut().find(|(known, _)| *known == hash) else {
            if self.outputs.len() == MAX_OUTPUTS {
                self.outputs.remove(0);
            }
            self.outputs.push((hash, 1));
            return false;
        };
        *times += usize::from(is_new);
        let is_over = *times >= MAX_FAILURES && self.attempts < MAX_ATTEMPTS;
        if is_over {
            self.outputs.clear();
        }
        is_over
    }

    /// Returns whether this reminder is sent: not twice in a prompt, and not to a model that has answered the last one without a step.
    pub fn take(&mut self, reminder: Reminder) -> bool {
        let is_about_steps = reminder != Reminder::CutOff;
        let stands =
            is_about_steps && !self.has_stepped && self.sent.iter().any(|sent| *sent != Reminder::CutOff);
        let is_sent = !stands && !self.sent.contains(&reminder);
        if is_sent {
            self.sent.push(reminder);
            self.has_stepped &= !is_about_steps;
        }
        is_sent
    }
}

/// Returns whether a call failed, or its command.
pub fn is_failure(command: Option<&str>, result: &ToolResult) -> bool {
    let output = result.text.split_once('\n').map_or("", |(_, output)| output).trim();
    let has_output = !["", NO_OUTPUT].contains(&output);
    let is_answer = |code| command.is_some_and(|command| is_result(command, code, has_output));
    !result.ok && !result.exit_code.is_some_and(is_answer)
}

/// The paths that a call writes.
pub fn written<'a>(call: ToolUse<'a>) -> Vec<&'a str> {
    match call.tool {
        "write_file" | "edit_file" => call.text("path").into_iter().collect(),
        "write_files" => {
            let files = call.arguments.get("files").and_then(|files| files.as_array());
            files.into_iter().flatten().filter_map(|file| file.get("path")?.as_str()).collect()
        }
        _ => Vec::new(),
    }
}

/// Programs that show what is there.
const LOOKS: [&str; 16] = [
    "cat", "cd", "diff", "echo", "file", "find", "grep", "head", "ls", "pwd", "rg", "stat", "tail", "tree",
    "wc", "which",
];

/// Returns whether a command runs nothing but such programs, and writes no file by redirection.
fn only_looks(command: &str) -> bool {
    let quiet = command.replace(' ', "").replace(">/dev/null", "").replace(">&", "");
    !quiet.contains('>') && programs(command).all(|program| LOOKS.contains(&program.as_str()))
}

/// The program that runs a script, where its name shows it and needs no quotation marks in a shell.
pub fn interpreter(path: &Path) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    path.to_str().filter(|path| path.chars().all(is_plain) && !path.starts_with('-'))?;
    match path.extension()?.to_str()? {
        "bash" => Some("bash"),
        "js" | "mjs" | "cjs" => Some("node"),
        "lua" => Some("lua"),
        "php" => Some("php"),
        "pl" => Some("perl"),
        "py" => Some("python3"),
        "rb" => Some("ruby"),
        "sh" => Some("sh"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ran(code: i32, output: &str) -> ToolResult {
        let text = format!("exit code {code}, 0.0{code} s\n{output}");
        ToolResult { ok: code == 0, exit_code: Some(code), text, ..ToolResult::default() }
    }

    fn task() -> Observed {
        let mut observed = Observed::default();
        observed.begin(&NewPrompt::Task { text: "", is_users: true });
        observed
    }

    fn record(observed: &mut Observed, tool: &str, arguments: Value, result: &ToolResult) -> bool {
        observed.record(ToolUse { id: "1", tool, arguments: &arguments }, result, false)
    }

    fn run(observed: &mut Observed, command: &str, result: &ToolResult) -> bool {
        record(observed, "run_commands", json!({ "command": command }), result)
    }

    fn edit(observed: &mut Observed) {
        record(observed, "edit_file", json!({ "path": "a.txt" }), &ToolResult::success("edited"));
    }

    #[test]
    fn the_work_begins_anew_after_three_corrections_with_the_same_output() {
        let mut observed = task();
        let mut test = |output: &str| {
            edit(&mut observed);
            run(&mut observed, "pytest", &ran(1, output))
        };
        let same = ["1 failed in 0.1 s", "1 failed in 0.2 s", "1 failed in 0.3 s"];
        assert_eq!(same.map(&mut test), [false, false, true]);
        // 12 failures became 1, which was taken for no observed.
        assert_eq!(["12 failed", "3 failed", "1 failed"].map(&mut test), [false; 3]);
    }

    #[test]
    fn a_command_that_is_only_run_again_does_not_count() {
        let mut observed = task();
        assert!(!(0..9).any(|_| run(&mut observed, "pytest", &ran(1, "1 failed"))));
        edit(&mut observed);
        run(&mut observed, "cat a.txt", &ran(0, "a"));
        assert!(!run(&mut observed, "pytest", &ran(1, "1 failed")));
        edit(&mut observed);
        assert!(run(&mut observed, "pytest", &ran(1, "1 failed")));
    }

    #[test]
    fn the_work_begins_anew_twice_at_most() {
        let mut observed = task();
        for is_over in [true, true, false] {
            let mut fails = || observed.fails_again("check", "wrong", true);
            assert_eq!([fails(), fails(), fails()], [false, false, is_over]);
            observed.begin(&NewPrompt::Again);
        }
    }

    #[test]
    fn a_failure_stands_until_something_is_done() {
        let mut observed = task();
        run(&mut observed, "grep -rn x .", &ran(1, NO_OUTPUT));
        assert_eq!(observed.failed, None, "nothing was found, and nothing failed");
        run(&mut observed, "python3 a.py", &ran(1, "NameError"));
        run(&mut observed, "cat a.py 2>/dev/null | head", &ran(0, "a"));
        assert_eq!(observed.failed.as_ref().map(|failed| failed.tool.as_str()), Some("run_commands"));
        edit(&mut observed);
        assert_eq!(observed.failed, None);
        record(
            &mut observed,
            "read_file",
            json!({ "path": "b" }),
            &ToolResult::failure("error: no such file"),
        );
        assert!(observed.failed.is_some());
        run(&mut observed, "ls", &ran(0, "a"));
        assert_eq!(observed.failed, None, "another look is enough");
    }

    #[test]
    fn a_script_waits_until_anything_runs() {
        let mut observed = task();
        let write = |observed: &mut Observed, path: &str| {
            record(observed, "write_file", json!({ "path": path }), &ToolResult::success("wrote"));
        };
        write(&mut observed, "/workspace/src/a.py");
        write(&mut observed, "notes.md");
        run(&mut observed, "ls src", &ran(0, "a.py"));
        assert_eq!(observed.script.as_deref(), Some(Path::new("src/a.py")));
        run(&mut observed, "make test", &ran(2, "no"));
        assert_eq!(observed.script, None);
        let files = json!({ "files": [{ "path": "b.rb", "data": "" }, { "path": "c.css", "data": "" }] });
        record(&mut observed, "write_files", files, &ToolResult::success("wrote"));
        assert_eq!(observed.script.as_deref(), Some(Path::new("b.rb")));
    }

    #[test]
    fn a_reminder_comes_once_and_an_answer_to_it_stands() {
        let mut observed = task();
        assert!(observed.take(Reminder::CutOff));
        assert!(observed.take(Reminder::NothingDone));
        assert!(!observed.take(Reminder::NotRun), "the model has made no step since");
        edit(&mut observed);
        assert!(observed.take(Reminder::NotRun));
        edit(&mut observed);
        assert!(!observed.take(Reminder::NotRun) && !observed.take(Reminder::CutOff));
        observed.begin(&NewPrompt::Again);
        assert!(!observed.take(Reminder::NotRun), "it is the same prompt");
        observed.begin(&NewPrompt::FollowUp);
        assert!(observed.take(Reminder::NotRun));
    }
}
