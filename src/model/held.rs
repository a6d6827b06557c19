//! Text that may turn out to be a tool call is held back while it streams, so that it does not flash by.

use crate::model::ToolSpec;
use crate::model::recover::{self, MARKS, NAME_KEYS, balanced, begins_line, closing_fence};

/// Other keys that a call's JSON begins with.
const OTHER_KEYS: &[&str] = &["arguments", "parameters", "args", "tool_calls", "type", "id"];

/// How many bytes of `text` may be shown, `shown` of them being shown already.
pub fn showable(text: &str, shown: usize, tools: &[ToolSpec]) -> usize {
    let suspects = text[shown..].char_indices().map(|(i, c)| (shown + i, c));
    suspects.filter(|(at, c)| suspicious(text, *at, *c, tools)).map(|(at, _)| at).next().unwrap_or(text.len())
}

fn suspicious(text: &str, at: usize, c: char, tools: &[ToolSpec]) -> bool {
    let rest = &text[at..];
    match c {
        '<' => MARKS.iter().any(|(mark, _)| begins_alike(rest, mark)),
        '[' if begins_alike(rest, "[TOOL_CALLS]") => true,
        '{' | '[' => begins_line(text, at) && may_be_call(rest, balanced(rest), tools),
        '`' => begins_line(text, at) && fence_may_be_call(rest, tools),
        _ => false,
    }
}

/// Whether `text` begins with `mark`, as far as it goes.
fn begins_alike(text: &str, mark: &str) -> bool {
    text.starts_with(mark) || mark.starts_with(text)
}

fn fence_may_be_call(text: &str, tools: &[ToolSpec]) -> bool {
    if !begins_alike(text, "```") {
        return false;
    }
    let Some(line) = text.find('\n') else { return true };
    let body = text[line + 1..].trim_start();
    if !body.is_empty() && !body.starts_with(['{', '[', '<']) {
        return false;
    }
    let end = closing_fence(&text[line + 1..]).map(|(_, end)| line + 1 + end);
    match end {
        Some(end) => recover::recover(&text[..end], tools).is_some(),
        None => body.starts_with('<') || may_be_call(body, None, tools),
    }
}

/// Whether JSON, of which `end` is known where it is complete, describes a call or may come to.
fn may_be_call(json: &str, end: Option<usize>, tools: &[ToolSpec]) -> bool {
    if let Some(end) = end {
        return recover::recover(&json[..end], tools).is_some();
    }
    let inner = json.trim_start_matches(|c: char| matches!(c, '{' | '[') || c.is_whitespace());
    let Some(quote) = inner.chars().next() else { return true };
    if !matches!(quote, '"' | '\'') {
        return false;
    }
    let mut keys =
        NAME_KEYS.iter().chain(OTHER_KEYS).copied().chain(tools.iter().map(|tool| tool.name.as_str()));
    match inner[1..].split_once(quote) {
        Some((key, _)) => keys.any(|known| known == key),
        None => keys.any(|known| known.starts_with(&inner[1..])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown_while_it_comes(text: &str) -> String {
        let tools =
            [ToolSpec { name: "run_commands".into(), description: String::new(), parameters: json!({}) }];
        let (mut shown, mut most) = (0, 0);
        for (end, _) in text.char_indices().chain([(text.len(), ' ')]) {
            shown = showable(&text[..end], shown, &tools);
            most = most.max(shown);
        }
        text[..most].to_owned()
    }

    #[test]
    fn calls_do_not_flash_by() {
        let call = r#"{"name": "run_commands", "arguments": {"command": "ls"}}"#;
        for (text, shown) in [
            (format!("```json\n{call}\n```"), ""),
            (format!("Sure.\n<tool_call>{call}</tool_call>"), "Sure.\n"),
            (call.to_owned(), ""),
            (format!("{{{call}"), ""),
            (format!("I look:\n{call}"), "I look:\n"),
            ("[TOOL_CALLS]run_commands{".to_owned(), ""),
        ] {
            assert_eq!(shown_while_it_comes(&text), shown, "{text}");
        }
    }

    #[test]
    fn everything_else_is_shown() {
        for text in [
            "Plain words, `code`, a < b and a[0].",
            "```rust\nfn main() { println!(\"{}\", 1) }\n```\nDone.",
            "```json\n{\"port\": 80}\n```\nDone.",
            "```json\n{\"name\": \"my-package\"}\n```\nDone.",
            "{\"answer\": 42}",
            "[1, 2, 3]",
            "<b>bold</b> <function>",
        ] {
            assert_eq!(shown_while_it_comes(text), text);
        }
    }
}
