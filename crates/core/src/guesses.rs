//! Small models answer what they are to find in files without a look at them.

use super::progress::{Printed, interpreter};
use super::small_model::{MAX_KEPT, MAX_REFUSALS, NOT_WRITTEN, earlier_calls, refusals, text_file};
use super::{asked, expected_output};
use agent_event::ToolCall;
use agent_model::Message;
use agent_sandbox::Sandbox;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The longest file that is compared with an answer, in bytes.
const MAX_COMPARED: u64 = 200;

/// The file that the prompt names for what the model is to find.
pub fn file_for_answer(prompt: &str) -> Option<PathBuf> {
    asked::files_to_make(prompt).into_iter().next().filter(|_| is_to_find(prompt))
}

/// Whether the prompt asks the model itself to find something in the files, and not to write a program that does.
fn is_to_find(prompt: &str) -> bool {
    let writes_program = || asked::files_to_make(prompt).iter().any(|path| interpreter(path).is_some());
    asked::asks_to_find(prompt) && !writes_program()
}

/// Why a `write_file` is not run: the prompt asks for something that is in the files, and the model has not looked into any.
pub fn refuse_guess(prompt: &str, tool: &str, arguments: &Value, messages: &[Message]) -> Option<String> {
    let path = Path::new(arguments.get("path")?.as_str()?);
    let may_be_guess = tool == "write_file" && is_to_find(prompt) && interpreter(path).is_none();
    let is_guess = may_be_guess && !has_looked(prompt, messages);
    if !is_guess || refusals(NOT_WRITTEN, messages) >= MAX_REFUSALS {
        return None;
    }
    let step = search_step(prompt);
    Some(format!(
        "{NOT_WRITTEN} the task asks for something that is in the files. Look for it first, for example: {step}"
    ))
}

/// Why a program is not written into a new file: the prompt says to change one that is there, and the model has changed none.
pub async fn refuse_other_file(
    sandbox: &Sandbox,
    prompt: &str,
    arguments: &Value,
    messages: &[Message],
) -> Option<String> {
    let path = Path::new(arguments.get("path")?.as_str()?);
    interpreter(path)?;
    let is_write = |call: &ToolCall| ["write_file", "edit_file"].contains(&call.name.as_str());
    let program = asked::program_to_change(prompt).filter(|_| !earlier_calls(messages).any(is_write))?;
    if path.file_name() == program.file_name() {
        return None;
    }
    text_file(sandbox, &program.to_string_lossy(), MAX_KEPT).await?;
    Some(format!(
        "{NOT_WRITTEN} the task is to change {0}, and not to write {1}. Send the step that changes {0}.",
        program.display(),
        path.display()
    ))
}

/// The short file that the prompt names for a number alone, and that holds something else, with that.
pub async fn more_than_number(sandbox: &Sandbox, prompt: &str) -> Option<(PathBuf, String)> {
    let file = target(prompt).filter(|file| interpreter(file).is_none())?;
    let is_meant = expected_output::is_number_alone(prompt);
    let content = text_file(sandbox, &file.to_string_lossy(), MAX_COMPARED).await.filter(|_| is_meant)?;
    (!expected_output::is_number(&content)).then(|| (file, content.trim().to_owned()))
}

/// The one file that the prompt says to make, or to write something into.
fn target(prompt: &str) -> Option<PathBuf> {
    let mut made = asked::files_to_make(prompt);
    match made.len() {
        1 => made.pop(),
        _ => asked::files_named(prompt).into_iter().rfind(|file| asked::is_written_into(prompt, file)),
    }
}

/// The short file that the prompt names for what is to be found, and that holds something which the answer does not say.
pub async fn differing_file(sandbox: &Sandbox, prompt: &str, answer: &str) -> Option<(PathBuf, String)> {
    let file = file_for_answer(prompt)?;
    let content = text_file(sandbox, &file.to_string_lossy(), MAX_COMPARED).await?;
    let content = content.trim();
    (!content.is_empty() && !answer.contains(content)).then(|| (file, content.to_owned()))
}

/// A number that was to be counted, and that is not the number of lines which the last command listed.
pub struct Miscount {
    /// The file that has the number.
    pub file: PathBuf,
    pub number: usize,
    /// The command, and the lines that it printed.
    pub command: String,
    pub lines: usize,
}

/// Whether the model has counted the lines of a list itself, and otherwise than they are.
pub async fn miscounted(sandbox: &Sandbox, prompt: &str, messages: &[Message]) -> Option<Miscount> {
    let file = file_for_answer(prompt).filter(|_| asked::asks_to_count(prompt))?;
    let content = text_file(sandbox, &file.to_string_lossy(), MAX_COMPARED).await?;
    let number: usize = content.trim().parse().ok()?;
    // Behind the line with the exit code.
    let output_of = |id: &String| {
        messages.iter().find_map(|message| match message {
            Message::Tool { id: of, text, .. } if of == id && !text.starts_with("error:") => {
                text.split_once('\n').map(|(_, output)| output.trim())
            }
            _ => None,
        })
    };
    let mut list = None;
    for call in earlier_calls(messages).filter(|call| call.name == "run_commands") {
        let (Some(command), Some(output)) = (call.arguments.text("command"), output_of(&call.id)) else {
            continue;
        };
        if output.parse() == Ok(number) {
            // A command has counted.
            return None;
        }
        if LISTS.contains(&command.split_whitespace().next().unwrap_or_default())
            && !command.contains(['|', '>', ';', '&'])
        {
            list = Some((command.to_owned(), output.lines().filter(|line| !line.is_empty()).count()));
        }
    }
    let (command, lines) = list.filter(|(_, lines)| *lines > 0 && *lines != number)?;
    Some(Miscount { file, number, command, lines })
}

/// The shell script that counts the lines of `ls -l`, of which the prompt says nothing, with that command and the one that counts files.
pub async fn counts_long_list(
    sandbox: &Sandbox,
    prompt: &str,
    written: &[PathBuf],
) -> Option<(PathBuf, String, String)> {
    if !asked::is_about_files(prompt) {
        return None;
    }
    for script in written.iter().filter(|path| interpreter(path) == Some("sh")) {
        let content = text_file(sandbox, &script.to_string_lossy(), MAX_KEPT).await;
        if let Some((command, right)) = content.as_deref().and_then(long_list_counted)
            && !prompt.contains(command)
        {
            return Some((script.clone(), command.to_owned(), right));
        }
    }
    None
}

/// `ls -la DIRECTORY | wc -l`, and what counts the files.
fn long_list_counted(content: &str) -> Option<(&str, String)> {
    let (at, _) =
        content.match_indices("ls -").find(|(at, _)| !content[..*at].ends_with(char::is_alphanumeric))?;
    let command = &content[at..];
    let (listing, _) =
        command.split_once("| wc -l").filter(|(listing, _)| !listing.contains(['\n', '|', ';', '&']))?;
    let mut words = listing.split_whitespace().skip(1);
    let options = words.next()?;
    let is_long = options.contains('l') && !options.starts_with("--") && !options.contains(['d', 'R']);
    let directory = words.next().unwrap_or(".");
    let is_simple = is_long
        && words.next().is_none()
        && !directory.starts_with('-')
        && !directory.contains(['*', '?', '[']);
    is_simple.then(|| {
        let counted = &command[..listing.len() + "| wc -l".len()];
        (counted, format!("find {directory} -maxdepth 1 -type f | wc -l"))
    })
}

/// The file that something of another one was to be written into, and that holds all of that, with the other one.
pub async fn whole_in_place_of_part(sandbox: &Sandbox, prompt: &str) -> Option<(PathBuf, PathBuf)> {
    let files = asked::files_named(prompt);
    let is_meant = |file: &&PathBuf| asked::is_written_into(prompt, file) && interpreter(file).is_none();
    let file = files.iter().rfind(is_meant).filter(|_| asked::asks_for_part(prompt))?;
    let content = text_file(sandbox, &file.to_string_lossy(), MAX_KEPT).await?;
    for other in files.iter().filter(|other| *other != file) {
        let is_same = |whole: String| whole.trim() == content.trim() && whole.lines().count() > 1;
        if text_file(sandbox, &other.to_string_lossy(), MAX_KEPT).await.is_some_and(is_same) {
            return Some((file.clone(), other.clone()));
        }
    }
    None
}

/// A file of which the prompt asks for a part, and all of which a program printed.
pub async fn printed_whole(sandbox: &Sandbox, prompt: &str, printed: &Printed) -> Option<PathBuf> {
    if !asked::asks_for_part(prompt) || printed.output.trim().lines().count() < 2 {
        return None;
    }
    for file in asked::files_named(prompt) {
        let is_it = |content: String| content.trim() == printed.output.trim();
        if text_file(sandbox, &file.to_string_lossy(), MAX_KEPT).await.is_some_and(is_it) {
            return Some(file);
        }
    }
    None
}

/// The step that looks for what the prompt asks for.
pub fn search_step(prompt: &str) -> Value {
    let command = match asked::search_word(prompt) {
        Some(word) => format!("grep -rn {word} ."),
        None if asked::is_answered_by_a_list(prompt) => "ls -R".to_owned(),
        // Every line of every file that is short enough to be read.
        None => "grep -rnI --exclude-dir=.git . . | head -n 50".to_owned(),
    };
    json!({ "tool": "run_commands", "command": command })
}

/// Whether the model has looked into the files: it read one that it did not write, or ran a program that shows what the prompt asks
/// for.
pub fn has_looked(prompt: &str, messages: &[Message]) -> bool {
    let results = messages.iter().filter_map(|message| match message {
        Message::Tool { id, text, .. } if is_success(text) => Some(id),
        _ => None,
    });
    let calls: Vec<&ToolCall> = earlier_calls(messages).collect();
    let written = |path: &str| {
        let is_it =
            |call: &&&ToolCall| call.name == "write_file" && call.arguments.text("path") == Some(path);
        calls.iter().any(|call| is_it(&call))
    };
    let target = file_for_answer(prompt);
    let is_for_answer = |path: &str| target.as_deref().is_some_and(|file| Path::new(path).ends_with(file));
    let looks = |call: &&ToolCall| match call.name.as_str() {
        // The file for the answer has what the model put there.
        "read_file" => call.arguments.text("path").is_some_and(|path| !written(path) && !is_for_answer(path)),
        "run_commands" => call.arguments.text("command").is_some_and(|command| {
            shows(command, &SHOWS) || asked::is_answered_by_a_list(prompt) && shows(command, &["ls"])
        }),
        _ => false,
    };
    results.filter_map(|id| calls.iter().find(|call| call.id == *id)).any(looks)
}

fn is_success(result: &str) -> bool {
    !result.starts_with("error:") && (!result.starts_with("exit code ") || result.starts_with("exit code 0"))
}

fn shows(command: &str, programs: &[&str]) -> bool {
    let is_separator = |c: char| !c.is_alphanumeric() && c != '_';
    command.split(is_separator).any(|word| programs.contains(&word))
}

/// Programs that print a line for each thing that they find.
const LISTS: [&str; 4] = ["find", "grep", "ls", "rg"];
/// Programs, and a function, that show what is in files.
const SHOWS: [&str; 11] = ["awk", "cat", "find", "git", "grep", "head", "open", "rg", "sort", "tail", "wc"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_counts_the_lines_of_a_long_list_is_known() {
        let counted = |script: &str| long_list_counted(script).map(|(old, new)| (old.to_owned(), new));
        let right = |directory: &str| format!("find {directory} -maxdepth 1 -type f | wc -l");
        assert_eq!(
            counted("#!/bin/sh\necho $(ls -la data | wc -l)\n"),
            Some(("ls -la data | wc -l".to_owned(), right("data")))
        );
        assert_eq!(counted("ls -l | wc -l"), Some(("ls -l | wc -l".to_owned(), right("."))));
        for script in [
            "ls data | wc -l",
            "ls -1 data | wc -l",
            "ls -l data | grep x | wc -l",
            "ls -l a b | wc -l",
            "tools -l | wc -l",
            "ls -ld */ | wc -l",
            "ls --color=never | wc -l",
            "ls -l *.txt | wc -l",
        ] {
            assert_eq!(counted(script), None, "{script}");
        }
    }
}
