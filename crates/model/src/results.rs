//! Reports of the results of calls.

use super::Message;
use super::compact::TIMED_OUT;
use agent_base::exit_status::is_result;
use agent_event::ToolCall;

/// Stands for the output of a command that printed nothing.
pub const NO_OUTPUT: &str = "(no output)";

/// The call with this id, the last one of them.
pub fn call_of<'a>(messages: &'a [Message], id: &str) -> Option<&'a ToolCall> {
    messages.iter().rev().find_map(|message| match message {
        Message::Assistant { tool_calls, .. } => tool_calls.iter().find(|call| call.id == id),
        _ => None,
    })
}

/// Returns whether a result reports that its call failed, or its command; not where a status is the result: `grep` found nothing.
pub fn is_failure(call: Option<&ToolCall>, result: &str) -> bool {
    if result.starts_with("error:") || result.starts_with(TIMED_OUT) {
        return true;
    }
    let Some(rest) = result.strip_prefix("exit code ") else { return false };
    let (first, output) = rest.split_once('\n').unwrap_or((rest, ""));
    let code = first.split(',').next().unwrap_or_default();
    let command = call.and_then(|call| call.arguments.text("command")).unwrap_or_default();
    let has_output = !["", NO_OUTPUT].contains(&output.trim());
    code != "0" && !code.parse().is_ok_and(|code| is_result(command, code, has_output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_command_that_finds_nothing_has_not_failed() {
        let call = |command: &str| ToolCall {
            id: "1".into(),
            name: "run_commands".into(),
            arguments: json!({ "command": command }).into(),
        };
        let nothing = "exit code 1, 0.01 s\n(no output)";
        assert!(!is_failure(Some(&call("grep -rn x .")), nothing));
        assert!(!is_failure(Some(&call("grep -q x a && echo found")), nothing));
        assert!(is_failure(Some(&call("pytest")), nothing));
        assert!(is_failure(Some(&call("grep x missing")), "exit code 2, 0.01 s\ngrep: missing"));
        assert!(is_failure(None, nothing) && is_failure(None, "error: no") && is_failure(None, TIMED_OUT));
        assert!(!is_failure(None, "exit code 0, 0.01 s\n1") && !is_failure(None, "wrote a"));
    }
}
