//! Answers that are not accepted at once: the model is reminded of what the task asked for.

use super::asked::Line;
use super::guesses::Miscount;
use super::progress::{Printed, Progress, interpreter};
use super::{asked, expected_output, guesses};
use agent_base::shorten::head_and_tail;
use agent_event::CallForm;
use agent_model::Reply;
use agent_model::compact::NOT_DONE;
use agent_tools::NO_OUTPUT;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Reminders in one prompt.
const MAX_REMINDERS: usize = 4;
/// What a message that the server cut off at its limit is answered with.
const CUT_OFF: &str = "Your message was too long, or repeated itself, and was cut off. Send one short JSON object, the next step; write a long file in parts.";
/// Characters of a command and of an output that are quoted.
pub const MAX_COMMAND: usize = 200;
pub const MAX_QUOTED: usize = 300;
/// Bytes of an output that is compared with what the prompt says.
const MAX_COMPARED: usize = 16 << 10;

/// A message that is sent in place of accepting an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reminder {
    /// The message.
    pub text: String,
    /// Why the task is plainly not done, where that is so: an answer is not accepted after the reminder either.
    pub unfinished: Option<String>,
    /// Whether it doubts what the program printed: after some of these the model starts over.
    pub is_doubt: bool,
}

impl Reminder {
    /// A message after which an answer is accepted.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), unfinished: None, is_doubt: false }
    }

    /// The same, as a doubt about what the program printed.
    pub fn doubting(self) -> Self {
        Self { is_doubt: true, ..self }
    }

    /// With the reason for which an answer is a failure.
    pub fn unfinished_if(self, is_plain: bool, why: &str) -> Self {
        Self { unfinished: is_plain.then(|| why.to_owned()), ..self }
    }

    /// That the message was cut off.
    pub fn cut_off() -> Self {
        Self::new(CUT_OFF)
    }
}

/// The reminders of one prompt so far. One that needs a step comes again if a step did not help, others once.
#[derive(Debug, Default)]
pub struct Sent {
    texts: Vec<String>,
    has_stepped: bool,
}

impl Sent {
    /// Whether to send this one; then it is counted.
    pub fn take(&mut self, reminder: &Reminder) -> bool {
        let is_repeated = self.texts.contains(&reminder.text);
        let may_repeat = reminder.text.starts_with(NOT_DONE) && self.has_stepped;
        let is_sent = self.texts.len() < MAX_REMINDERS && (!is_repeated || may_repeat);
        if is_sent {
            self.texts.push(reminder.text.clone());
            self.has_stepped = false;
        }
        is_sent
    }

    /// Records that the model has made a step.
    pub fn stepped(&mut self) {
        self.has_stepped = true;
    }
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
        return Some(not_corrected(tool, prompt, progress));
    }
    if !progress.changed && asked::asks_for_change(prompt) {
        if let Some(reminder) = found_and_not_written(&reply.text, prompt) {
            return Some(reminder);
        }
        let text = format!(
            "{NOT_DONE} you have not changed a file yet. Send the JSON object that does it, a write_file, edit_file or \
             run_commands."
        );
        let is_plain = asked::orders_change(prompt);
        return Some(Reminder::new(text).unfinished_if(is_plain, "it has changed no file"));
    }
    // What was said to fail is run once it was changed.
    let is_repair =
        asked::expects_failure(prompt) && progress.written.iter().any(|path| interpreter(path).is_some());
    if !progress.ran && (asked::asks_for_run(prompt) || is_repair) {
        let is_plain = asked::orders_run(prompt) && !progress.written.is_empty();
        return Some(not_run(progress).unfinished_if(is_plain, "it has not run what it wrote"));
    }
    output(prompt, &reply.text, progress)
}

/// The reminder that the last step failed. Where no change was asked for, the failure may be the answer.
fn not_corrected(tool: &str, prompt: &str, progress: &Progress) -> Reminder {
    if !asked::asks_for_change(prompt) {
        return Reminder::new(format!(
            "{tool} failed. Send the step that corrects it, or answer if the task asks for no more."
        ));
    }
    let example = match guesses::file_for_answer(prompt) {
        Some(file) => format!(
            "corrects it, or the write_file that writes what you found into {}, as the task says.",
            file.display()
        ),
        None => "corrects it, for example a write_file for a file that is missing.".to_owned(),
    };
    let text = format!(
        "{NOT_DONE} {tool} failed, and you have not corrected it. Nobody but you does it. Send the JSON object that {example}"
    );
    let never_ran = tool == "run_commands" && !progress.ran && !asked::expects_failure(prompt);
    let is_plain = never_ran && asked::asks_for_run(prompt) && !asked::files_to_make(prompt).is_empty();
    Reminder::new(text).unfinished_if(is_plain, "what it wrote fails")
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
    Reminder::new(format!("{NOT_DONE} you have not run it yet. {what_to_do}"))
}

/// The reminder that a program printed nothing, or something else than the prompt or the answer says.
fn output(prompt: &str, answer: &str, progress: &Progress) -> Option<Reminder> {
    let printed = progress.printed.as_ref()?;
    let command = head_and_tail(&printed.command, MAX_COMMAND);
    if printed.output.ends_with(NO_OUTPUT) && asked::asks_for_output(prompt) {
        let what_to_do = "Send the step that corrects it, for example a write_file of the whole program, which calls what it \
                          defines and prints the result.";
        return Some(printed_nothing(prompt, &command, what_to_do));
    }
    if printed.output.len() > MAX_COMPARED {
        return None;
    }
    let repeated = || expected_output::repeated_line(prompt, &printed.output).map(printed_again);
    let (said, is_doubt) = match other_output(prompt, answer, &printed.output) {
        Some(said) => (said, false),
        None => (repeated()?, true),
    };
    let output = head_and_tail(printed.output.trim(), MAX_QUOTED);
    let is_its_program = |path: &&PathBuf| {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| printed.command.contains(name))
    };
    let what_to_do = match progress.written.iter().rev().find(is_its_program) {
        _ if !said.starts_with(NOT_DONE) => {
            "Send the step that corrects it, or answer if this is right.".to_owned()
        }
        Some(program) => format!("Send the edit_file or write_file that corrects {}.", program.display()),
        None => "Send the step that corrects it.".to_owned(),
    };
    let reminder = Reminder::new(format!("{said}\nBut `{command}` printed:\n{output}\n{what_to_do}"));
    Some(if is_doubt { reminder.doubting() } else { reminder })
}

fn printed_nothing(prompt: &str, command: &str, what_to_do: &str) -> Reminder {
    let text = format!("{NOT_DONE} it asks for output, but `{command}` printed nothing. {what_to_do}");
    Reminder::new(text).unfinished_if(asked::orders_output(prompt), "its program prints nothing")
}

/// The reminder that a program calls none of its functions, with the step that does.
pub fn calls_nothing(prompt: &str, printed: &Printed, program: &Path, step: &Value) -> Reminder {
    let command = head_and_tail(&printed.command, MAX_COMMAND);
    let what_to_do =
        format!("{} calls none of its functions. Send the step that does: {step}", program.display());
    printed_nothing(prompt, &command, &what_to_do)
}

/// What the prompt or the answer says of an output that is another one.
fn other_output(prompt: &str, answer: &str, output: &str) -> Option<String> {
    let literals = expected_output::literals(prompt);
    if let Some(first) = literals.first() {
        let is_other = !expected_output::has_one_of(output, &literals);
        return is_other.then(|| format!("{NOT_DONE} it says that this is printed: {first}"));
    }
    let is_number_alone = expected_output::is_number_alone(prompt) && asked::asks_for_output(prompt);
    if is_number_alone && !expected_output::is_number(output) {
        let hint = match expected_output::is_of_wc(output) {
            true => " (wc prints the name of a file that is its argument; `wc -l < FILE` does not)",
            false => "",
        };
        return Some(format!("{NOT_DONE} it says that a number and nothing else is printed{hint}."));
    }
    if output.contains(" object at 0x") {
        return Some(format!("{NOT_DONE} the program prints an object in place of what is in it."));
    }
    expected_output::taken_apart(answer, output).map(|word| format!("Your answer says: {word}"))
}

fn printed_again(line: &str) -> String {
    format!("The task does not say that {line} is printed more than once.")
}

/// The reminder that a file of the task's is missing.
pub fn missing_file(name: &Path, prompt: &str, answer: &str, progress: &Progress) -> Reminder {
    let shown = name.display();
    let elsewhere = progress.written.iter().rev().find(|written| written.file_name() == name.file_name());
    let is_plain = asked::files_to_make(prompt).iter().any(|file| file == name);
    if is_plain && let Some(reminder) = found_and_not_written(answer, prompt) {
        return reminder;
    }
    let begin = format!("it names the file {shown}, which does not exist.");
    let text = match elsewhere {
        Some(written) => format!(
            "{NOT_DONE} {begin} You wrote {} instead. Send the run_commands object that moves it there.",
            written.display()
        ),
        None if is_plain => format!("{NOT_DONE} {begin} Send the JSON object that makes it."),
        None => format!(
            "The task names the file {shown}, which does not exist. Send the JSON object that makes it, or answer if it is not \
             needed."
        ),
    };
    Reminder::new(text).unfinished_if(is_plain, &format!("{shown} does not exist"))
}

/// The reminder that what was to be found is in the answer, and not in the file that the prompt names for it.
fn found_and_not_written(answer: &str, prompt: &str) -> Option<Reminder> {
    let file = guesses::file_for_answer(prompt)?;
    let (shown, answer) = (file.display(), head_and_tail(answer.trim(), MAX_QUOTED));
    let text = format!(
        "{NOT_DONE} what you found is not in {shown} yet. You said:\n{answer}\nSend the write_file that writes it into {shown}, as \
         the task says."
    );
    Some(Reminder::new(text).unfinished_if(true, &format!("{shown} does not have what it found")))
}

/// The reminder that a file holds more than the number that the prompt asks for.
pub fn more_than_number(file: &Path, content: &str) -> Reminder {
    let shown = file.display();
    let step = match expected_output::only_number(content) {
        Some(number) => {
            json!({ "tool": "write_file", "path": shown.to_string(), "content": number }).to_string()
        }
        None => "the write_file that does".to_owned(),
    };
    Reminder::new(format!(
        "{NOT_DONE} it says that {shown} has a number and nothing else. It holds:\n{content}\nSend {step}"
    ))
}

/// The reminder that a file holds all of another one, where a part was asked for.
pub fn whole_in_place_of_part(file: &Path, other: &Path) -> Reminder {
    let (shown, other) = (file.display(), other.display());
    Reminder::new(format!(
        "{NOT_DONE} {shown} holds all of {other}, and the task asks for a part. Send the run_commands that finds that part, with a \
         command that measures or sorts the lines of {other}."
    ))
}

/// The reminder that a program printed all of a file, where a part was asked for.
pub fn printed_whole(prompt: &str, printed: &Printed, file: &Path) -> Reminder {
    let (command, shown) = (head_and_tail(&printed.command, MAX_COMMAND), file.display());
    let is_script = printed.command.contains(".sh");
    let line = asked::line_asked_for(prompt).filter(|_| is_script || printed.command.contains(".py"));
    let example = match (line, !is_script) {
        (Some(Line::First), false) => format!(", with `head -n 1 {shown}` in it"),
        (Some(Line::Last), false) => format!(", with `tail -n 1 {shown}` in it"),
        (Some(Line::First), true) => format!(", with `open('{shown}').readlines()[0]` in it"),
        (Some(Line::Last), true) => format!(", with `open('{shown}').readlines()[-1]` in it"),
        (None, _) => String::new(),
    };
    Reminder::new(format!(
        "{NOT_DONE} `{command}` printed all of {shown}, and the task asks for a part. Send the write_file that corrects the program\
         {example}."
    ))
}

/// The reminder that what a command listed is another number than was written.
pub fn miscounted(miscount: &Miscount) -> Reminder {
    let Miscount { file, number, command, lines } = miscount;
    let command = head_and_tail(command, MAX_COMMAND);
    let step = json!({ "tool": "run_commands", "command": format!("{command} | wc -l") });
    Reminder::new(format!(
        "{} holds {number}, but `{command}` printed {lines} lines. Send the step that counts them: {step}. Then write that number, or \
         answer if {number} is right.",
        file.display()
    ))
}

/// The reminder that a script counts the lines of a long list, which has more of them than there are files.
pub fn counts_long_list(script: &Path, command: &str, right: &str) -> Reminder {
    let path = script.to_string_lossy();
    let step = json!({ "tool": "edit_file", "path": path, "old": command, "new": right });
    Reminder::new(format!(
        "{NOT_DONE} `{command}` also counts lines that are not files, like the one with the total. Send the step that counts files \
         alone: {step}"
    ))
}

/// The reminder that a file holds something else than the answer says.
pub fn differs_from_answer(file: &Path, content: &str, answer: &str) -> Reminder {
    let (shown, answer) = (file.display(), head_and_tail(answer.trim(), MAX_QUOTED));
    Reminder::new(format!(
        "You said:\n{answer}\nBut {shown} holds:\n{content}\nSend the write_file that corrects {shown}, or answer if both are right."
    ))
}

/// The reminder that something was to be found in the files, and the model has not looked.
pub fn not_looked(prompt: &str) -> Reminder {
    let step = guesses::search_step(prompt);
    Reminder::new(format!(
        "{NOT_DONE} you have not looked into the files. Send the step that does, for example {step}, and then write what it \
         shows."
    ))
}

/// The reminder that the file which the task is about is as it was.
pub fn unchanged(file: &Path, prompt: &str) -> Reminder {
    let shown = file.display();
    let step = match asked::renames(prompt) {
        Some((old, new)) => {
            let command = format!("sed -i 's/\\b{old}\\b/{new}/g' {shown}");
            let step = json!({ "tool": "run_commands", "command": command });
            format!("Send the step that changes it: {step}")
        }
        None => {
            format!("Send the edit_file or write_file that changes {shown}, with the code that is missing.")
        }
    };
    Reminder::new(format!("{NOT_DONE} {shown} is as it was. {step}"))
}

/// The reminder that the examples in the docstrings of a program were not tried.
pub fn untried_examples(program: &Path) -> Reminder {
    let shown = program.display();
    // -B: without it, Python would leave what it compiles in the workspace.
    let step = json!({ "tool": "run_commands", "command": format!("python3 -B -m doctest {shown}") });
    Reminder::new(format!(
        "{NOT_DONE} the examples in the docstring of {shown} were not tried. Send the JSON object that tries them: {step}"
    ))
}

/// The reminder that a file of JSON that was written is not valid.
pub fn invalid_json(path: &Path, error: &str) -> Reminder {
    let shown = path.display();
    let text =
        format!("{NOT_DONE} {shown} is not valid JSON: {error}. Send the write_file that writes it as JSON.");
    Reminder::new(text).unfinished_if(true, &format!("{shown} is not valid JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_event::ToolCall;
    use agent_tools::ToolResult;

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
        let edited = [("edit_file", r#"{"path":"hello.py"}"#, true)];
        let failed = [done[0], ("run_commands", r#"{"command":"python3 hello.py"}"#, false)];
        let failed_and_looked = [failed[0], failed[1], ("read_file", "{}", true)];
        let looked_twice = [("read_file", "{}", false), looked[0]];
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
            ("Write hello.py and run it", &failed, Some("run_commands failed")),
            ("Write hello.py and run it", &failed_and_looked, Some("run_commands failed")),
            ("Which files are here?", &looked_twice, None),
            ("Run the tests of hello.py", &failed, Some("or answer if")),
            ("Write hello.py and run it", &done, None),
            ("Write hello.py and run it", &shell, None),
            ("Write hello.py", &wrote, None),
            ("hello.py fails. Correct it.", &edited, Some("not run it")),
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
        let object = after("python3 sum.py", "<map object at 0x7f71669957b0>\n", prompt).unwrap();
        assert!(object.text.contains("not done: the program prints an object"), "{object:?}");
        let mut progress = Progress::default();
        for command in ["echo 'def f(): pass' > sum.py", "python3 sum.py"] {
            let arguments = serde_json::json!({ "command": command }).into();
            let call = ToolCall { id: "1".into(), name: "run_commands".into(), arguments };
            progress.record(&call, &ToolResult::success(format!("exit code 0, 0.01 s\n{NO_OUTPUT}")));
        }
        let reminder = nudge(&reply("Done."), CallForm::Compact, prompt, &progress).unwrap();
        assert!(reminder.text.contains("`python3 sum.py` printed nothing"), "{reminder:?}");
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
            reminder.text.contains("is printed: good morning\nBut `sh a.sh` printed:\nGood day\n"),
            "{reminder:?}"
        );
        assert_eq!(reminder.unfinished, None, "what is printed may be right");
        assert_eq!(after("good morning\n"), None);
        let object = after("good morning: <reversed object at 0x7f71669957b0>\n");
        assert_eq!(object, None, "what is to be printed is there");
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
        let reminder = missing_file(Path::new("a.py"), "Write a.py", "Done.", &progress);
        assert!(reminder.text.contains("You wrote src/a.py instead"), "{reminder:?}");
        assert_eq!(reminder.unfinished.as_deref(), Some("a.py does not exist"));
        let other = missing_file(Path::new("b.py"), "Write a.py, see b.py", "Done.", &progress);
        assert!(!other.text.contains("instead") && other.unfinished.is_none(), "{other:?}");
    }
}
