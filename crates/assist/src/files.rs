//! The files that a text names, and what they hold.

use agent_base::exit_status::{calls_of, programs};
use agent_core::{At, ToolUse};
use agent_event::ToolCall;
use agent_model::Message;
use agent_sandbox::{Sandbox, WORKSPACE};
use std::path::{Component, Path, PathBuf};

/// The longest file that is compared before and after a change, in bytes.
pub const MAX_COMPARED: u64 = 64 << 10;
/// Characters of a text in which names of files are looked for, and names that are looked up.
const MAX_SEARCHED: usize = 16 << 10;
const MAX_NAMES: usize = 20;
/// Files of one prompt that are sent with it, and the longest of them, in bytes.
const MAX_SENT: usize = 2;
const MAX_SENT_BYTES: u64 = 2_500;

/// The short files that a prompt names by their paths, and that the model has not read; without those that it names with `@`, which are
/// sent anyway.
pub async fn named_in(at: &At<'_>, names: &[PathBuf], prompt: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let Some(sandbox) = at.sandbox().await else { return found };
    for name in names {
        let name = name.to_string_lossy().into_owned();
        if found.len() == MAX_SENT || prompt.contains(&format!("@{name}")) {
            continue;
        }
        let content = text_file(&sandbox, &name, MAX_SENT_BYTES).await;
        let is_new = |content: &String| !content.trim().is_empty() && !is_known(content, at.messages);
        found.extend(content.filter(is_new).map(|content| (name, content)));
    }
    found
}

/// Returns what may be paths of files: words with a dot or a slash in them. A word of another script may have such a name in its middle.
pub fn names(text: &str) -> Vec<PathBuf> {
    let text: String = text.chars().take(MAX_SEARCHED).collect();
    let is_of_name = |c: char| c.is_alphanumeric() || "._-/+@~#%".contains(c);
    let mut names: Vec<PathBuf> = Vec::new();
    for word in text.split(|c: char| !is_of_name(c)) {
        let plain = word.split(|c: char| !c.is_ascii()).filter(|_| !word.is_ascii());
        for name in std::iter::once(word).chain(plain) {
            // At the end of a sentence.
            let name = name.trim_end_matches('.');
            if name.contains(['.', '/'])
                && let Some(path) = relative(name).filter(|path| !names.contains(path))
            {
                names.push(path);
            }
        }
    }
    names.truncate(MAX_NAMES);
    names
}

/// A path relative to the workspace, if it is in it.
pub fn relative(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let path = path.strip_prefix(WORKSPACE).unwrap_or(path);
    let mut inner = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inner.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!inner.as_os_str().is_empty()).then_some(inner)
}

/// Returns what a file holds, if that is text and not longer than `limit`.
pub async fn text_file(sandbox: &Sandbox, path: &str, limit: u64) -> Option<String> {
    let path = sandbox.locate(Path::new(path));
    // A connection that is broken is reported by the tool.
    let file = sandbox.read_file(&path, 0, limit).await.ok().filter(|file| file.size <= limit)?;
    String::from_utf8(file.bytes).ok().filter(|text| !text.contains('\0'))
}

/// The files that a command edits in place with sed or Perl, and what they hold before it runs.
pub async fn edited_in_place(sandbox: &Sandbox, command: &str) -> Vec<(PathBuf, String)> {
    let command = &*sandbox.with_usual_names(command);
    let mut files = Vec::new();
    // Elsewhere the names are those of other files.
    if programs(command).any(|program| program == "cd") {
        return files;
    }
    for words in ["sed", "gsed", "perl"].iter().flat_map(|program| calls_of(command, program)) {
        let edits = |word: &String| {
            let flags =
                word.strip_prefix('-').map(|flags| flags.trim_start_matches(|c| "0Elnprsuz".contains(c)));
            word.starts_with("--in-place") || flags.is_some_and(|flags| flags.starts_with('i'))
        };
        if !words.iter().any(edits) {
            continue;
        }
        for name in words.iter().skip(1).filter(|word| !word.starts_with('-')).take(MAX_NAMES) {
            if let Some(path) = relative(name)
                && let Some(content) = text_file(sandbox, name, MAX_COMPARED).await
            {
                files.push((path, content));
            }
        }
    }
    files
}

/// Returns whether the text is in a message to the model, or is what it wrote itself.
pub fn is_known(content: &str, messages: &[Message]) -> bool {
    let content = content.trim();
    let is_read = messages.iter().any(|message| match message {
        Message::User { text } | Message::Tool { text, .. } => text.contains(content),
        _ => false,
    });
    let has_written =
        |call: &ToolCall| call.arguments.text("data").is_some_and(|data| data.trim() == content);
    is_read || earlier_calls(messages).any(has_written)
}

/// Returns whether an earlier call reads or writes this file.
pub fn was_used(path: &Path, messages: &[Message]) -> bool {
    earlier_calls(messages).any(|call| {
        let object = call.arguments.json();
        object.is_some_and(|arguments| {
            let call = ToolUse { id: &call.id, tool: &call.name, arguments };
            let is_it = |used: &str| relative(used).as_deref() == Some(path);
            call.text("path").is_some_and(is_it) || super::observed::written(call).into_iter().any(is_it)
        })
    })
}

/// The calls of all messages but the last, whose calls are being run.
fn earlier_calls(messages: &[Message]) -> impl Iterator<Item = &ToolCall> {
    let last = messages.iter().rposition(|message| matches!(message, Message::Assistant { .. }));
    messages[..last.unwrap_or(0)].iter().flat_map(|message| match message {
        Message::Assistant { tool_calls, .. } => tool_calls.as_slice(),
        _ => &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn files_are_named_in_every_language() {
        for (text, expected) in [
            ("Fix src/add.py, see `./lib/b.rs`.", &["src/add.py", "lib/b.rs"][..]),
            ("Ändere den Port in „config/größe.toml“!", &["config/größe.toml"]),
            ("请修复hello.py中的错误。", &["hello.py"]),
            ("исправь /workspace/тест.js, пожалуйста", &["тест.js"]),
            ("/etc/passwd ../a.txt https://example.com/x e.g. make", &["e.g"]),
        ] {
            let named = names(text);
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert!(expected.iter().all(|name| named.contains(name)), "{text}: {named:?}");
            assert!(named.iter().all(|name| name.is_relative() && !name.starts_with("..")), "{named:?}");
        }
    }

    #[test]
    fn what_was_read_or_written_is_known() {
        let call = |name: &str, arguments: Value| {
            let call = ToolCall { id: "1".into(), name: name.into(), arguments: arguments.into() };
            Message::Assistant {
                text: String::new(),
                reasoning: None,
                tool_calls: vec![call],
                opaque: Default::default(),
            }
        };
        let result = |text: &str| Message::Tool { id: "1".into(), name: "x".into(), text: text.into() };
        let messages = [
            call("write_file", json!({ "path": "./a.py", "data": "print(1)\n" })),
            result("wrote a.py"),
            call("run_commands", json!({ "command": "cat b.py" })),
        ];
        assert!(is_known("print(1)", &messages) && was_used(Path::new("a.py"), &messages));
        assert!(!is_known("print(1)", &messages[2..]), "the last message is being run");
        assert!(!was_used(Path::new("b.py"), &messages));
        assert!(is_known("print(2)\n", &[result("exit code 0\nprint(2)\n")]));
        assert!(is_known("print(3)", &[Message::User { text: "a.py:\nprint(3)\n".into() }]));
    }
}
