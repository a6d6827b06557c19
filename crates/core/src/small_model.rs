//! Help for small models, which guess what a file holds and do not look again: a failed command comes with the short files that it
//! names, and a change that changes nothing is reported.

use super::{asked, edit_repair};
use agent_base::shorten::head_and_tail;
use agent_event::ToolCall;
use agent_model::Message;
use agent_sandbox::{Sandbox, WORKSPACE};
use agent_tools::json_error;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The longest file that is shown after a failed command, in bytes.
pub(super) const MAX_SHOWN: u64 = 1_500;
/// The longest file that is looked at before it is overwritten, in bytes.
pub(super) const MAX_KEPT: u64 = 64 << 10;
/// What a refusal to write begins with.
pub(super) const NOT_WRITTEN: &str = "error: not written:";
/// How often a `write_file` is refused.
pub(super) const MAX_REFUSALS: usize = 2;
/// Files that are shown after one failed command, and names that are looked up for that.
const MAX_FILES: usize = 2;
const MAX_NAMES: usize = 12;
/// Characters of a failed command and of its output in which files are looked for.
const MAX_SEARCHED: usize = 4_000;

/// What the file of a `write_file` or `edit_file` holds before it is changed, where that is text.
pub async fn content_before(sandbox: &Sandbox, tool: &str, arguments: &Value) -> Option<String> {
    if !["write_file", "edit_file"].contains(&tool) {
        return None;
    }
    text_file(sandbox, arguments.get("path")?.as_str()?, MAX_KEPT).await
}

/// The short files that a failed command or its output names, and those that they import, where the model has not seen them.
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
    let mut names = names(command, output);
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        at += 1;
        let Some(content) = text_file(sandbox, &name.to_string_lossy(), MAX_SHOWN).await else { continue };
        let is_new = |module: &PathBuf| !names.contains(module);
        let modules: Vec<PathBuf> = imported(&name, &content).into_iter().filter(is_new).collect();
        if names.len() < MAX_NAMES {
            names.extend(modules);
        }
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

/// The files beside a program in Python that may be the modules that it imports.
fn imported(program: &Path, content: &str) -> Vec<PathBuf> {
    if program.extension().is_none_or(|extension| extension != "py") {
        return Vec::new();
    }
    let module = |line: &str| {
        let rest = line.strip_prefix("from ").or(line.strip_prefix("import "))?;
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        (end > 0).then(|| program.with_file_name(format!("{}.py", &rest[..end])))
    };
    content.lines().filter_map(module).take(MAX_FILES).collect()
}

/// Repairs the texts of an `edit_file` where it is plain from what the file holds what they should be.
pub fn repair_edit(tool: &str, arguments: &mut Value, content: &str) {
    let field = |name: &str| arguments.get(name).and_then(Value::as_str);
    let (Some(old), Some(new)) = (field("old"), field("new")) else { return };
    if tool != "edit_file" {
        return;
    }
    if let Some((old, new)) = edit_repair::repaired(content, old, new) {
        (arguments["old"], arguments["new"]) = (old.into(), new.into());
    }
}

/// Puts a backslash back that JSON took for a part of `\b`: what bounds a word in a regular expression is a backspace then.
pub fn repair_escapes(arguments: &mut Value) {
    for name in ["data", "new"] {
        if let Some(text) = arguments.get(name).and_then(Value::as_str).filter(|text| text.contains('\u{8}'))
        {
            arguments[name] = text.replace('\u{8}', "\\b").into();
        }
    }
}

/// What the result of a command says that edited nothing.
pub const EDITED_NOTHING: &str = "\n\nNothing has changed: the expression of sed matches no line.";

/// The files that a command edits with `sed -i`, with what they hold before it runs.
pub async fn edited_by_sed(sandbox: &Sandbox, tool: &str, arguments: &Value) -> Vec<(PathBuf, String)> {
    let command = arguments.get("command").and_then(Value::as_str).filter(|_| tool == "run_commands");
    let Some(command) = command.filter(|command| command.contains("sed -i")) else { return Vec::new() };
    let mut files = Vec::new();
    for name in names(command, "") {
        if let Some(content) = text_file(sandbox, &name.to_string_lossy(), MAX_KEPT).await {
            files.push((name, content));
        }
    }
    files
}

/// The text for a command that should have edited these files and has changed none, with what the first of them holds.
pub async fn edited_nothing(sandbox: &Sandbox, files: &[(PathBuf, String)]) -> Option<String> {
    let (name, content) = files.first()?;
    for (name, before) in files {
        if text_file(sandbox, &name.to_string_lossy(), MAX_KEPT).await.is_none_or(|after| after != *before) {
            return None;
        }
    }
    let content = head_and_tail(content.trim_end(), MAX_SHOWN as usize);
    Some(format!("{EDITED_NOTHING} {} holds:\n{content}\n\nChange it with edit_file.", name.display()))
}

/// What the result of a `write_file` says that writes what the file holds already.
pub const UNCHANGED: &str = "\nThe file held exactly this before: nothing has changed.";

/// The text for a `write_file` that writes what the file holds already: a model that tries to correct a file so changes nothing.
pub fn unchanged(arguments: &Value, content: &str) -> Option<&'static str> {
    (arguments.get("data")?.as_str()? == content).then_some(UNCHANGED)
}

/// An example for the result of a `write_file` that writes something else than JSON into a file of JSON: small models write YAML.
pub fn json_example(tool: &str, arguments: &Value) -> Option<String> {
    let (path, data) = (arguments.get("path")?.as_str()?, arguments.get("data")?.as_str()?);
    let is_other = !data.trim_start().starts_with(['{', '[']);
    json_error(Path::new(path), data).filter(|_| is_other && tool == "write_file")?;
    let content = object_of(data).unwrap_or_else(|| json!({ "key": "value" })).to_string();
    let example = json!({ "tool": "write_file", "path": path, "content": content });
    Some(format!("\nJSON begins with a brace and has quotation marks around each key, for example {example}"))
}

/// The object that lines like `name = "demo"` or `port: 8080` stand for.
fn object_of(text: &str) -> Option<Value> {
    let mut object = Map::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (key, value) = line.split_once(['=', ':'])?;
        let (key, value) = (key.trim().trim_matches(['"', '\'']), value.trim().trim_end_matches(','));
        let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.trim_matches(['"', '\'']).into());
        object.insert(Some(key).filter(|_| is_key)?.to_owned(), value);
    }
    (!object.is_empty()).then_some(Value::Object(object))
}

/// A file of JSON that was written and is not valid, with what is wrong.
pub async fn invalid_json(sandbox: &Sandbox, written: &[PathBuf]) -> Option<(PathBuf, String)> {
    for path in written.iter().filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
        let content = text_file(sandbox, &path.to_string_lossy(), MAX_KEPT).await;
        if let Some(error) = content.and_then(|content| json_error(path, &content)) {
            return Some((path.clone(), error));
        }
    }
    None
}

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

pub(super) async fn text_file(sandbox: &Sandbox, path: &str, limit: u64) -> Option<String> {
    let path = Path::new(WORKSPACE).join(path);
    // A connection that is broken is reported by the tool.
    let file = sandbox.read_file(&path, 0, limit).await.ok().filter(|file| file.size <= limit)?;
    String::from_utf8(file.bytes).ok().filter(|text| !text.contains('\0'))
}

/// Whether the text is in a message to the model, or in what it wrote itself.
pub(super) fn is_known(content: &str, messages: &[Message]) -> bool {
    is_sent(content, messages) || has_seen(content, messages)
}

/// Whether the text is in a message of the user's, with the files that are sent with a prompt.
pub(super) fn is_sent(content: &str, messages: &[Message]) -> bool {
    messages.iter().any(|message| matches!(message, Message::User { text } if text.contains(content.trim())))
}

/// How many results begin so: refusals of one kind.
pub(super) fn refusals(begin: &str, messages: &[Message]) -> usize {
    let is_one =
        |message: &&Message| matches!(message, Message::Tool { text, .. } if text.starts_with(begin));
    messages.iter().filter(is_one).count()
}

/// Whether the text is in a result, or in what the model wrote itself. What is sent with a prompt, small models forget when they write.
pub(super) fn has_seen(content: &str, messages: &[Message]) -> bool {
    let content = content.trim();
    let has_result = messages.iter().any(|message| match message {
        // What a refusal shows, the next write is refused for as well.
        Message::Tool { text, .. } => !text.starts_with(NOT_WRITTEN) && text.contains(content),
        _ => false,
    });
    let has_written =
        |call: &ToolCall| call.arguments.text("data").is_some_and(|data| data.trim() == content);
    has_result || earlier_calls(messages).any(has_written)
}

/// The files that the model wrote or edited, the last one at the end.
pub(super) fn changed_files(messages: &[Message]) -> Vec<PathBuf> {
    let changed = |call: &ToolCall| match call.name.as_str() {
        "write_file" | "edit_file" => call.arguments.text("path").and_then(|path| names(path, "").pop()),
        _ => {
            let command = call.arguments.text("command").filter(|command| command.contains("sed -i"))?;
            names(command, "").pop()
        }
    };
    earlier_calls(messages).filter_map(changed).collect()
}

/// The calls of all messages but the last, whose calls are being run, or which is an answer and has none.
pub(super) fn earlier_calls(messages: &[Message]) -> impl Iterator<Item = &ToolCall> {
    let last = messages.iter().rposition(|message| matches!(message, Message::Assistant { .. }));
    messages[..last.unwrap_or(0)].iter().flat_map(|message| match message {
        Message::Assistant { tool_calls, .. } => tool_calls.as_slice(),
        _ => &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn modules_beside_a_program_are_found() {
        let found =
            imported(Path::new("lib/test_add.py"), "import os, sys\nfrom add import add\nimport .x\n");
        assert_eq!(found, ["lib/os.py", "lib/add.py"].map(PathBuf::from));
        assert!(imported(Path::new("a.sh"), "import os\n").is_empty());
    }

    #[test]
    fn names_of_files_are_found_in_a_command_and_its_output() {
        let output = "Traceback:\n  File \"/workspace/lib/a.py\", line 1\n./b.sh: line 2: x: not found\n/etc/passwd\nSee c.txt.";
        let found = names("cd /workspace && python3 'main.py' --fast; ls", output);
        assert_eq!(found, ["main.py", "lib/a.py", "b.sh", "c.txt"].map(PathBuf::from));
    }

    #[test]
    fn what_is_written_in_place_of_json_comes_as_json() {
        let example = |data: &str| {
            json_example("write_file", &json!({ "path": "a.json", "data": data })).expect("it is not JSON")
        };
        let step =
            json!({ "tool": "write_file", "path": "a.json", "content": r#"{"name":"demo","port":8080}"# });
        assert!(example("name = \"demo\"\nport: 8080\n").ends_with(&step.to_string()));
        assert!(example("see: a b\n- c\n").contains("value"));
    }

    #[test]
    fn a_backspace_is_what_bounds_a_word() {
        let mut arguments = json!({ "path": "a.py", "data": "re.findall(r'\u{8}a', x)\n" });
        repair_escapes(&mut arguments);
        assert_eq!(arguments, json!({ "path": "a.py", "data": "re.findall(r'\\ba', x)\n" }));
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
