//! The steps of a prompt, and what becomes of them once they repeat.
//!
//! A small model that reads its own call and the same result twice sends that call for ever: the more often it is there, the
//! more probable it gets, at any temperature. So the steps up to a repetition are sent as a short list in the user's
//! message instead of as calls of the model's own.

use crate::Message;
use crate::results::call_of;
use crate::results::is_failure;
use agent_base::shorten::head_and_tail;
use agent_event::ToolCall;
use std::collections::HashSet;

/// Steps in the list, the last ones.
const MAX_STEPS: usize = 8;
/// Characters of the result of one step, of what it read, and of what was written last.
const MAX_RESULT: usize = 400;
const MAX_READ: usize = 2_500;
const MAX_WRITTEN: usize = 800;
const AFTER: &str = "The last of these steps was done before, with the same result. Send a different step, or answer if all of \
                     the task is done.";
const AFTER_A_FAILURE: &str = "The last of these steps failed, in the same way as before. Find out what its message means, and \
                               send a different step, with other content.";

/// The steps since the user's prompt or the last repetition.
#[derive(Default)]
pub struct Steps<'a> {
    seen: HashSet<(Option<String>, &'a str, &'a str)>,
    lines: Vec<String>,
    written: Option<(&'a str, &'a str)>,
}

impl<'a> Steps<'a> {
    /// Adds the result of a call. Whether it repeats an earlier step: the same call with the same result, or the same
    /// failure.
    pub fn add(&mut self, call: Option<&'a ToolCall>, result: &'a str) -> bool {
        let failed = is_failure(call, result);
        let (code, output) = super::without_duration(result);
        let arguments =
            call.filter(|_| !failed).map(|call| format!("{}{}", call.name, call.arguments.as_str()));
        let repeats = !self.seen.insert((arguments, code, output));
        let text = |name: &str| call.and_then(|call| call.arguments.text(name));
        if call.is_some_and(|call| call.name == "write_file" || call.name == "edit_file") {
            self.written = text("path").zip(text("data").or(text("new")));
        }
        let name = call.map_or("step", |call| call.name.as_str());
        let what = text("command").or(text("path")).unwrap_or_default();
        let line = format!(
            "{name} {}\n  result: {}",
            head_and_tail(what, MAX_RESULT),
            head_and_tail(result.trim(), if name == "read_file" { MAX_READ } else { MAX_RESULT })
        );
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
        if repeats {
            self.seen.clear();
        }
        repeats
    }

    /// The list that stands for the steps up to a repetition.
    pub fn summary(&self, last_failed: bool) -> String {
        let first = self.lines.len().saturating_sub(MAX_STEPS);
        let mut text = String::from("Done so far:\n");
        for line in &self.lines[first..] {
            text += &format!("- {line}\n");
        }
        if let Some((path, data)) = self.written {
            text += &format!("\nWritten to {path} last:\n{}\n", head_and_tail(data.trim_end(), MAX_WRITTEN));
        }
        text + "\n" + if last_failed { AFTER_A_FAILURE } else { AFTER }
    }
}

/// Returns whether the last step repeats an earlier one: then a low temperature gives the same answer
/// again.
pub fn is_stuck(messages: &[Message]) -> bool {
    let is_prompt = |message: &Message| matches!(message, Message::User { .. });
    let prompt = messages.iter().rposition(is_prompt).unwrap_or(0);
    let mut steps = Steps::default();
    let mut repeats = false;
    for (at, message) in messages.iter().enumerate().skip(prompt) {
        if let Message::Tool { id, text, .. } = message {
            repeats = steps.add(call_of(&messages[..at], id), text);
        }
    }
    repeats
}
