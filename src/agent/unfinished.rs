//! What small models leave undone of a change that was ordered: they look at the program and say that it is complete, or do not try the
//! examples that it has.

use super::asked;
use super::small_model::{MAX_KEPT, changed_files, earlier_calls, is_sent, names, text_file};
use crate::event::ToolCall;
use crate::model::Message;
use crate::sandbox::Sandbox;
use serde_json::Value;
use std::path::PathBuf;

/// What to add to a look at a program before the model has changed it, where that is what the task orders.
pub fn next_step(prompt: &str, tool: &str, arguments: &Value, messages: &[Message]) -> Option<String> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let subject = match tool {
        "read_file" => text("path")?,
        "run_commands" => text("command").filter(|command| only_looks(command))?,
        _ => return None,
    };
    if !changed_files(messages).is_empty() {
        return None;
    }
    let looked_at = names(subject, "");
    let file = asked::program_to_change(prompt).filter(|file| looked_at.contains(file))?;
    Some(format!("\n\nNow send the edit_file or write_file that changes {}.", file.display()))
}

/// The program in Python that was changed last, where its docstrings have examples and no command has tried them.
pub async fn untried_examples(sandbox: &Sandbox, messages: &[Message]) -> Option<PathBuf> {
    let is_python = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "py");
    let program = changed_files(messages).into_iter().rfind(is_python)?;
    let tries = |call: &ToolCall| call.arguments.text("command").is_some_and(|text| text.contains("doctest"));
    if earlier_calls(messages).any(tries) {
        return None;
    }
    let content = text_file(sandbox, &program.to_string_lossy(), MAX_KEPT).await?;
    content.lines().any(|line| line.trim_start().starts_with(">>> ")).then_some(program)
}

/// The program that the task orders to change and that is as it was, where the model has changed no file.
pub async fn unchanged_file(sandbox: &Sandbox, prompt: &str, messages: &[Message]) -> Option<PathBuf> {
    let file = asked::program_to_change(prompt).filter(|_| changed_files(messages).is_empty())?;
    let content = text_file(sandbox, &file.to_string_lossy(), MAX_KEPT).await?;
    (!content.trim().is_empty() && is_sent(&content, messages)).then_some(file)
}

/// Whether a command shows or runs a program and no more.
fn only_looks(command: &str) -> bool {
    const PROGRAMS: [&str; 8] = ["bash", "cat", "head", "node", "python", "python3", "ruby", "sh"];
    let first = command.split_whitespace().next().unwrap_or_default();
    PROGRAMS.contains(&first) && !command.contains(['>', '|', ';', '&', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn after_a_look_at_the_program_the_change_is_the_next_step() {
        let prompt = "Change PORT in settings.py to 9000.";
        let after = |tool: &str, arguments: Value| next_step(prompt, tool, &arguments, &[]).is_some();
        assert!(after("read_file", json!({ "path": "settings.py" })));
        assert!(after("run_commands", json!({ "command": "python3 settings.py" })));
        assert!(!after("read_file", json!({ "path": "other.py" })));
        for command in
            ["sed -i 's/8000/9000/' settings.py", "python3 fix.py > settings.py", "mv settings.py a.py"]
        {
            assert!(!after("run_commands", json!({ "command": command })), "{command}");
        }
        assert!(!after("edit_file", json!({ "path": "settings.py" })));
    }
}
