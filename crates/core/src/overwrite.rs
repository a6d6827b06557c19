//! Small models replace a file by a part of it, or by lines that try it: such a write is refused with what the file holds.

use super::asked;
use super::edit_repair::step_that_appends;
use super::small_model::{MAX_REFUSALS, MAX_SHOWN, NOT_WRITTEN, earlier_calls, has_seen, refusals};
use agent_base::shorten::head_and_tail;
use agent_event::ToolCall;
use agent_model::Message;
use agent_sandbox::WORKSPACE;
use serde_json::Value;
use std::path::Path;

/// Characters of a file that are shown.
const KEPT_CHARS: usize = 3_000;
/// The longest text of an example that adds to a file, in bytes.
const MAX_ADDITION: usize = 800;

/// Why a `write_file` is not run: it would replace text that the model has neither read nor written. The next is run, because it
/// is what the model wants; where the prompt says to add something, the one after it.
pub fn refuse(prompt: &str, arguments: &Value, content: &str, messages: &[Message]) -> Option<String> {
    let (path, data) = (arguments.get("path")?.as_str()?, arguments.get("data")?.as_str()?);
    // Elsewhere nothing is the user's, and what an earlier attempt wrote is still there.
    if Path::new(path).is_absolute() && !Path::new(path).starts_with(WORKSPACE) {
        return None;
    }
    if let Some(refusal) = refuse_removal(path, content, data, messages) {
        return Some(refusal);
    }
    let earlier = |tool: &str| {
        let is_one = |call: &&ToolCall| call.name == tool && call.arguments.text("path") == Some(path);
        earlier_calls(messages).filter(is_one).count()
    };
    let adds = asked::asks_to_add(prompt);
    if earlier("read_file") > 0 || earlier("write_file") >= if adds { MAX_REFUSALS } else { 1 } {
        return None;
    }
    let loses = content.lines().any(|line| !line.trim().is_empty() && !data.contains(line.trim()));
    if !loses || has_seen(content, messages) {
        return None;
    }
    let shown = head_and_tail(content.trim_end(), KEPT_CHARS);
    let what_to_do = match addition(path, content, data).filter(|_| adds) {
        Some(step) => format!("To add it at the end instead, send: {step}"),
        None if content.len() as u64 <= MAX_SHOWN => {
            "Send write_file with all that it shall hold: this, with your change.".to_owned()
        }
        None => "Change a part of it with edit_file.".to_owned(),
    };
    Some(format!(
        "{NOT_WRITTEN} {path} exists, and text of it would be lost. It holds:\n{shown}\n\n{what_to_do}"
    ))
}

/// Why a program in Python is not replaced by lines that define nothing of it: small models send what they want to add, or try.
fn refuse_removal(path: &str, content: &str, data: &str, messages: &[Message]) -> Option<String> {
    let definition = |text: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with("def ") || line.starts_with("class "))?;
        line.split_whitespace().nth(1)?.split(['(', ':']).next().map(str::to_owned)
    };
    let name = definition(content).filter(|_| path.ends_with(".py") && definition(data).is_none())?;
    let begin = format!("{NOT_WRITTEN} this would remove {name} from {path}");
    (refusals(&begin, messages) < MAX_REFUSALS).then(|| {
        let shown = head_and_tail(content.trim_end(), KEPT_CHARS);
        format!(
            "{begin}. It holds:\n{shown}\n\nTo change it, send an edit_file, or a write_file with all of it."
        )
    })
}

/// The step that adds a short text at the end of a file, by its last line. A function that is there already is not added.
fn addition(path: &str, content: &str, data: &str) -> Option<Value> {
    let defines = |line: &&str| line.starts_with("def ") || line.starts_with("class ");
    let name = |line: &str| line.split(['(', ':']).next().unwrap_or_default().to_owned() + "(";
    if data.lines().filter(defines).any(|line| content.contains(&name(line))) {
        return None;
    }
    let text = format!("\n\n{}", data.trim_end());
    step_that_appends(path, content, &text).filter(|_| data.len() <= MAX_ADDITION)
}
