//! A model replaces a file by what it wants to change in it: what the file holds is read before it is overwritten.

use super::files::{is_known, relative, was_used};
use agent_base::shorten::head_and_tail;
use agent_core::ToolUse;
use agent_model::Message;

/// Characters of a file that are shown.
const MAX_SHOWN: usize = 3_000;

/// Refuses a `write_file` that would replace text of the workspace that the model has neither read nor written. The next
/// one is run.
pub fn refuse(call: ToolUse<'_>, content: &str, messages: &[Message]) -> Option<String> {
    let data = call.text("data").filter(|_| call.tool == "write_file")?;
    let path = relative(call.text("path")?)?;
    let loses = content.lines().any(|line| !line.trim().is_empty() && !data.contains(line.trim()));
    if !loses || was_used(&path, messages) || is_known(content, messages) {
        return None;
    }
    Some(format!(
        "error: not written: {} exists, and text of it would be lost. It holds:\n{}\n\nSend write_file with all that it is to hold, or \
         change a part of it with edit_file.",
        path.display(),
        head_and_tail(content.trim_end(), MAX_SHOWN)
    ))
}
