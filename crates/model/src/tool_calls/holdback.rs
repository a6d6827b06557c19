//! Holds back text that may turn out to be a tool call while it streams, so that it is not shown and then removed.

use crate::ToolSpec;
use crate::tool_calls::recover::{self, MARKS, NAME_KEYS, balanced, begins_line, closing_fence};

/// Bytes from a possible beginning of a call in which it is looked for; beyond them the end of the answer decides.
pub const MAX_LOOKAHEAD: usize = 4096;
/// Bytes that are examined for calls over one answer; beyond them the end of the answer decides, too.
const BUDGET: usize = 16 << 20;

/// Other keys that a call's JSON begins with.
const OTHER_KEYS: &[&str] = &["arguments", "parameters", "args", "tool_calls", "type", "id"];

/// Decides what of an answer may be shown; the work for one answer is bounded, whatever is in it.
#[derive(Debug)]
pub struct Holdback {
    budget: usize,
}

impl Default for Holdback {
    fn default() -> Self {
        Self { budget: BUDGET }
    }
}

impl Holdback {
    /// How many bytes of `text` may be shown, `shown` of which are shown already.
    pub fn showable(&mut self, text: &str, shown: usize, tools: &[ToolSpec]) -> usize {
        for (at, c) in text[shown..].char_indices().map(|(i, c)| (shown + i, c)) {
            if !matches!(c, '<' | '[' | '{' | '`') {
                continue;
            }
            let window = &text[..boundary(text, at + MAX_LOOKAHEAD)];
            let Some(left) = self.budget.checked_sub(window.len() - at) else { return at };
            self.budget = left;
            if may_begin_call(window, at, c, tools) {
                return at;
            }
        }
        text.len()
    }
}

/// The last character boundary up to `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn may_begin_call(text: &str, at: usize, c: char, tools: &[ToolSpec]) -> bool {
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
        let tools = [ToolSpec {
            name: "run_commands".into(),
            description: String::new(),
            parameters: json!({}).into(),
        }];
        let (mut holdback, mut shown, mut most) = (Holdback::default(), 0, 0);
        for (end, _) in text.char_indices().chain([(text.len(), ' ')]) {
            shown = holdback.showable(&text[..end], shown, &tools);
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

    /// Found in use: fences that never close made the work grow with the square of the answer.
    #[test]
    fn the_work_for_one_answer_is_bounded() {
        let used = |pattern: &str, bytes: usize| {
            let mut holdback = Holdback::default();
            let text = pattern.repeat(bytes / pattern.len());
            holdback.showable(&text, 0, &[]);
            BUDGET - holdback.budget
        };
        for pattern in ["```x\n{\n", "{", "{\n", "[1,\n", "<b", "`", "```\n"] {
            let (once, twice) = (used(pattern, 100_000), used(pattern, 200_000));
            assert!(twice <= (once * 5 / 2).max(MAX_LOOKAHEAD), "{pattern:?}: {once}, then {twice}");
            assert!(used(pattern, 4 << 20) <= BUDGET, "{pattern:?}");
        }
    }

    #[test]
    fn a_call_beyond_the_budget_is_held_back() {
        let mut holdback = Holdback { budget: 10 };
        let text = format!("a {} <tool_call>", "< ".repeat(20));
        assert!(holdback.showable(&text, 0, &[]) < text.len() - "<tool_call>".len());
    }
}
