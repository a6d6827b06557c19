//! Help for small models, which guess what a file holds and do not look again: a file that they have not seen is not
//! overwritten before they have, and a failed command comes with the short files that it names and with the line that fails.

use super::{asked, failing_line};
use crate::event::ToolCall;
use crate::model::Message;
use crate::sandbox::{Sandbox, WORKSPACE};
use crate::shorten::head_and_tail;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The longest file that is shown after a failed command, in bytes.
const MAX_SHOWN: u64 = 1_500;
/// The longest file that is looked at before it is overwritten, and how many characters of it are shown.
const MAX_KEPT: u64 = 64 << 10;
const KEPT_CHARS: usize = 3_000;
/// Files that are shown after one failed command, and names that are looked up for that.
const MAX_FILES: usize = 2;
const MAX_NAMES: usize = 12;
/// Characters of a failed command and of its output in which files are looked for.
const MAX_SEARCHED: usize = 4_000;
/// The longest name of a variable that is quoted.
const MAX_VARIABLE: usize = 40;
/// The longest line that is quoted in an example, in bytes.
const MAX_LINE: usize = 200;

/// What the file of a `write_file` holds before it is written, where that is text.
pub async fn overwritten(sandbox: &Sandbox, tool: &str, arguments: &Value) -> Option<String> {
    if tool != "write_file" {
        return None;
    }
    text_file(sandbox, arguments.get("path")?.as_str()?, MAX_KEPT).await
}

/// Why a `write_file` is not run: it would replace text that the model has neither read nor written. Sent a second time,
/// it is run.
pub fn refuse_overwrite(arguments: &Value, content: &str, messages: &[Message]) -> Option<String> {
    let (path, data) = (arguments.get("path")?.as_str()?, arguments.get("data")?.as_str()?);
    if earlier_calls(messages).any(|call| knows(call, path)) {
        return None;
    }
    let loses = content.lines().any(|line| !line.trim().is_empty() && !data.contains(line.trim()));
    if !loses || is_known(content, messages) {
        return None;
    }
    Some(format!(
        "error: not written: {path} exists, and text of it would be lost. It holds:\n{}\n\nChange a part of it with \
         edit_file, or send write_file with all that it shall hold.",
        head_and_tail(content.trim_end(), KEPT_CHARS)
    ))
}

/// The short files that a failed command or its output names and that the model has not seen.
pub async fn named_files(
    sandbox: &Sandbox,
    tool: &str,
    arguments: &Value,
    output: &str,
    messages: &[Message],
) -> Option<String> {
    if tool != "run_commands" {
        return None;
    }
    let command = arguments.get("command")?.as_str()?;
    let mut shown = String::new();
    let mut files = 0;
    for name in names(command, output) {
        let Some(content) = text_file(sandbox, &name.to_string_lossy(), MAX_SHOWN).await else { continue };
        if content.trim().is_empty() || is_known(&content, messages) {
            continue;
        }
        shown += &format!("\n\n{} holds:\n{}", name.display(), content.trim_end());
        files += 1;
        if files == MAX_FILES {
            break;
        }
    }
    (files > 0).then_some(shown)
}

/// The line of a file of the workspace that the output of a failed command names, with those around it.
pub async fn failing_line(sandbox: &Sandbox, tool: &str, output: &str) -> Option<String> {
    if tool != "run_commands" {
        return None;
    }
    let place = failing_line::place(output)?;
    let content = text_file(sandbox, &place.path.to_string_lossy(), MAX_KEPT).await?;
    let excerpt = failing_line::excerpt(&content, place.line)?;
    Some(format!("\n\nLine {} of {}:\n{excerpt}", place.line, place.path.display()))
}

/// What a model that writes interactive programs does not see in the error of one that had nobody to ask.
pub fn missing_input(output: &str) -> Option<String> {
    if !output.contains("EOFError: EOF when reading a line") {
        return None;
    }
    // `    word = input('Enter a word: ')`, as the traceback quotes it.
    let line = output.lines().map(str::trim).find(|line| line.contains("input(") && line.contains('='));
    let name = line.and_then(|line| line.split_once('=')).map(|(name, _)| name.trim());
    let is_name =
        |name: &&str| name.len() <= MAX_VARIABLE && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let example = name.filter(is_name).map(|name| format!(", in a line {name} = …")).unwrap_or_default();
    Some(format!(
        "\n\nNobody types anything while a program runs, so input() always fails. Write the file again without input(): put \
         the value that the task says into the program{example}"
    ))
}

/// The text for a `write_file` that writes what the file holds already: a model that tries to correct a file so changes nothing.
pub fn unchanged(arguments: &Value, content: &str) -> Option<&'static str> {
    (arguments.get("data")?.as_str()? == content)
        .then_some("\nThe file held exactly this before: nothing has changed.")
}

/// What to do about a line of a Python program that lacks its indentation, with the step that does it.
pub async fn missing_indentation(sandbox: &Sandbox, output: &str) -> Option<String> {
    if !output.contains("IndentationError: expected an indented block") {
        return None;
    }
    let place = failing_line::place(output)?;
    let content = text_file(sandbox, &place.path.to_string_lossy(), MAX_KEPT).await?;
    let line = content.lines().nth(place.line - 1).filter(|line| line.len() <= MAX_LINE)?;
    let indented = format!("    {line}");
    let path = place.path.to_string_lossy();
    let step = json!({ "tool": "edit_file", "path": path, "old": line, "new": indented });
    let is_unique = !line.trim().is_empty() && content.matches(line).count() == 1;
    let step = if is_unique { format!(": {step}") } else { String::new() };
    Some(format!(
        "\n\nLine {} of {path} lacks four spaces at its beginning. Send the step that adds them{step}",
        place.line
    ))
}

/// What to do about a name of Python's own library that a program uses without importing it, with the step that does it.
pub async fn missing_import(sandbox: &Sandbox, output: &str) -> Option<String> {
    let import = import(output)?;
    let place = failing_line::place(output)?;
    let content = text_file(sandbox, &place.path.to_string_lossy(), MAX_KEPT).await?;
    let path = place.path.to_string_lossy();
    let first = content.lines().next().filter(|line| line.len() <= MAX_LINE && !line.trim().is_empty());
    let first = first.filter(|line| content.matches(line).count() == 1);
    let step = first.map(|first| {
        let step =
            json!({ "tool": "edit_file", "path": path, "old": first, "new": format!("{import}\n{first}") });
        format!(": {step}")
    });
    Some(format!(
        "\n\n{path} lacks the line `{import}`. Send the step that adds it{}",
        step.unwrap_or_default()
    ))
}

/// The import that an error asks for: `import sys` for `NameError: name 'sys' is not defined`.
fn import(output: &str) -> Option<String> {
    let (_, rest) = output.split_once("NameError: name '")?;
    let (name, _) = rest.split_once("' is not defined")?;
    match name {
        name if MODULES.contains(&name) => Some(format!("import {name}")),
        name if TYPES.contains(&name) => Some(format!("from typing import {name}")),
        _ => None,
    }
}

/// Modules that programs of small models use without importing them, and names of `typing`.
const MODULES: [&str; 14] = [
    "collections",
    "csv",
    "datetime",
    "glob",
    "itertools",
    "json",
    "math",
    "os",
    "random",
    "re",
    "string",
    "subprocess",
    "sys",
    "time",
];
const TYPES: [&str; 8] = ["Any", "Dict", "Iterable", "List", "Optional", "Set", "Tuple", "Union"];

/// A file that the prompt says the program reads, and that nothing of what the model wrote names.
pub fn unread_file(prompt: &str, messages: &[Message]) -> Option<String> {
    let written: Vec<String> = earlier_calls(messages)
        .filter(|call| ["write_file", "edit_file"].contains(&call.name.as_str()))
        .map(|call| call.arguments.to_string())
        .collect();
    let names = asked::files_a_program_reads(prompt);
    let is_unread = |name: &PathBuf| {
        let file_name = name.file_name().and_then(OsStr::to_str);
        file_name.is_some_and(|name| written.iter().all(|text| !text.contains(name)))
    };
    let name = names.iter().find(|name| !written.is_empty() && is_unread(name))?;
    Some(format!(
        "The task says that the program reads {0}, but what you wrote does not name {0}. Write it again so that it opens {0} \
         itself, or answer if this is right.",
        name.display()
    ))
}

/// A file that the prompt names and that none of the model's calls uses, with what it holds.
pub async fn unused_file(sandbox: &Sandbox, names: &[PathBuf], messages: &[Message]) -> Option<String> {
    for name in names {
        let Some(file_name) = name.file_name().and_then(OsStr::to_str) else { continue };
        if earlier_calls(messages).any(|call| call.arguments.to_string().contains(file_name)) {
            continue;
        }
        let Some(content) = text_file(sandbox, &name.to_string_lossy(), MAX_SHOWN).await else { continue };
        if !content.trim().is_empty() && !is_known(&content, messages) {
            let (shown, content) = (name.display(), content.trim_end());
            return Some(format!(
                "The task names the file {shown}, but none of your steps uses it. {shown} holds:\n{content}\n\nSend the step \
                 that corrects it, or answer if this is right."
            ));
        }
    }
    None
}

/// What may be names of files, relative to the workspace: words with a dot or a slash.
pub(super) fn names(command: &str, output: &str) -> Vec<PathBuf> {
    let is_separator = |c: char| c.is_whitespace() || "\"'`;|&<>(),:=".contains(c);
    let mut names = Vec::new();
    for text in [command, output] {
        let text: String = text.chars().take(MAX_SEARCHED).collect();
        // A name at the end of a sentence.
        let words = text.split(is_separator).map(|word| word.trim_end_matches(['.', '!', '?']));
        for word in words.filter(|word| word.contains(['.', '/'])) {
            let path = Path::new(word);
            let path = path.strip_prefix(WORKSPACE).unwrap_or(path);
            let path = path.strip_prefix(".").unwrap_or(path).to_owned();
            if path.is_relative() && path.file_name().is_some() && !names.contains(&path) {
                names.push(path);
            }
        }
    }
    names.truncate(MAX_NAMES);
    names
}

async fn text_file(sandbox: &Sandbox, path: &str, limit: u64) -> Option<String> {
    let path = Path::new(WORKSPACE).join(path);
    // A connection that is broken is reported by the tool.
    let file = sandbox.read_file(&path, 0, limit).await.ok().filter(|file| file.size <= limit)?;
    String::from_utf8(file.bytes).ok().filter(|text| !text.contains('\0'))
}

/// Whether the text is in a result, or in what the model wrote itself.
fn is_known(content: &str, messages: &[Message]) -> bool {
    let content = content.trim();
    messages.iter().any(|message| match message {
        Message::Tool { text, .. } | Message::User { text } => text.contains(content),
        Message::Assistant { .. } | Message::System { .. } => false,
    }) || earlier_calls(messages)
        .any(|call| call.arguments.text("data").is_some_and(|data| data.trim() == content))
}

/// The calls of all messages but the last, whose calls are being run, or which is an answer and has none.
fn earlier_calls(messages: &[Message]) -> impl Iterator<Item = &ToolCall> {
    let last = messages.iter().rposition(|message| matches!(message, Message::Assistant { .. }));
    messages[..last.unwrap_or(0)].iter().flat_map(|message| match message {
        Message::Assistant { tool_calls, .. } => tool_calls.as_slice(),
        _ => &[],
    })
}

/// Whether the call wrote the whole file, or read it.
fn knows(call: &ToolCall, path: &str) -> bool {
    ["write_file", "read_file"].contains(&call.name.as_str()) && call.arguments.text("path") == Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_waits_for_input_is_explained() {
        let output = "Enter a word: Traceback (most recent call last):\n    word = input('Enter a word: ')\nEOFError: EOF when reading a line\n";
        let text = missing_input(output).unwrap();
        assert!(text.contains("without input()") && text.ends_with("in a line word = …"), "{text}");
        assert!(missing_input("EOFError: EOF when reading a line\n").is_some());
        assert_eq!(missing_input("EOFError: Ran out of input\n"), None);
    }

    fn call(name: &str, arguments: Value) -> Message {
        let call = ToolCall { id: "1".into(), name: name.into(), arguments: arguments.into() };
        Message::Assistant { text: String::new(), reasoning: None, tool_calls: vec![call] }
    }

    fn result(text: &str) -> Message {
        Message::Tool { id: "1".into(), name: "run_commands".into(), text: text.into() }
    }

    #[test]
    fn a_program_that_does_not_open_the_file_of_the_task_is_pointed_out() {
        let prompt = "Write upper.py that reads names.txt";
        let after = |data: &str| {
            let written = call("write_file", json!({ "path": "upper.py", "data": data }));
            unread_file(prompt, &[written, result("wrote"), call("run_commands", json!({}))])
        };
        assert!(
            after("import sys\nprint(sys.stdin.read())")
                .is_some_and(|text| text.contains("names.txt itself"))
        );
        assert_eq!(after("print(open('names.txt').read())"), None);
        assert_eq!(unread_file(prompt, &[]), None, "nothing was written");
    }

    #[test]
    fn names_of_files_are_found_in_a_command_and_its_output() {
        let output = "Traceback:\n  File \"/workspace/lib/a.py\", line 1\n./b.sh: line 2: x: not found\n/etc/passwd\nSee c.txt.";
        let found = names("cd /workspace && python3 'main.py' --fast; ls", output);
        assert_eq!(found, ["main.py", "lib/a.py", "b.sh", "c.txt"].map(PathBuf::from));
    }

    #[test]
    fn what_was_shown_or_written_is_known() {
        let written = [
            call("write_file", json!({ "path": "a.py", "data": "print(1)\n" })),
            result("wrote a.py"),
            call("run_commands", json!({ "command": "cat b.py" })),
        ];
        assert!(is_known("print(1)", &written));
        assert!(!is_known("print(1)", &written[2..]), "the last message is being run");
        assert!(is_known("print(2)\n", &[result("exit code 0\nprint(2)\n")]));
        assert!(!is_known("print(3)", &written));
    }
}
