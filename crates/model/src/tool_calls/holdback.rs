//! Holds back text that may turn out to be a tool call while it streams, so that it is not shown and then removed.

use crate::ToolSpec;
use crate::tool_calls::body::CallReader;
use crate::tool_calls::fence::closing_fence;
pub use crate::tool_calls::scan::MAX_LOOKAHEAD;
use crate::tool_calls::scan::{Found, Scan};
use std::cell::Cell;

/// Bytes that are examined for calls over one answer; beyond them the end of the answer decides, too.
const BUDGET: usize = 16 << 20;

/// Decides what of an answer may be shown; the work for one answer is bounded, whatever is in it.
#[derive(Debug)]
pub struct Holdback {
    budget: usize,
    /// Up to here it is decided.
    decided: usize,
    /// The backticks that close the code from there on.
    fence: Option<usize>,
}

impl Default for Holdback {
    fn default() -> Self {
        Self { budget: BUDGET, decided: 0, fence: None }
    }
}

impl Holdback {
    /// How many bytes of `text` may be shown, `shown` of which are shown already. `text` only grows.
    pub fn showable(&mut self, text: &str, shown: usize, tools: &[ToolSpec]) -> usize {
        if tools.is_empty() {
            return text.len();
        }
        let reader = CallReader { tools, is_cut_off: false, budget: Cell::new(self.budget) };
        let showable = self.decide(text, &reader);
        self.budget = reader.budget.get();
        showable.max(shown)
    }

    fn decide(&mut self, text: &str, reader: &CallReader<'_>) -> usize {
        loop {
            if let Some(ticks) = self.fence {
                let Some((_, behind)) = closing_fence(&text[self.decided..], ticks) else {
                    self.decided = text.rfind('\n').map_or(0, |at| at + 1).max(self.decided);
                    return text.len();
                };
                self.decided += behind;
                self.fence = None;
            }
            let Some((place, found)) = next(text, self.decided, reader) else {
                self.decided = text.len();
                return text.len();
            };
            self.decided = place;
            match found {
                Found::Text(length) => self.decided += length,
                Found::Code(length, ticks) => {
                    self.decided += length;
                    self.fence = Some(ticks);
                }
                Found::Span(length) => return undecided(text, place + length, reader),
                _ => return place,
            }
        }
    }
}

/// The first place that is more than text. Where there is no budget left it may be anything.
fn next(text: &str, from: usize, reader: &CallReader<'_>) -> Option<(usize, Found)> {
    let scan = Scan { reader, text, is_whole: false, takes_unmarked: true };
    let (place, found) = scan.next(from, text[..from].trim().is_empty())?;
    let is_within_budget = reader.spend(1).is_some();
    Some((place, if is_within_budget { found } else { Found::Open }))
}

/// The first place behind backticks that is a call if they enclose no code.
fn undecided(text: &str, mut from: usize, reader: &CallReader<'_>) -> usize {
    while let Some((place, found)) = next(text, from, reader) {
        match found {
            Found::Text(length) | Found::Span(length) => from = place + length,
            _ => return place,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tools() -> [ToolSpec; 1] {
        let parameters = json!({}).into();
        [ToolSpec { name: "run_commands".into(), description: String::new(), parameters }]
    }

    fn shown_while_it_comes(text: &str) -> String {
        let tools = tools();
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
            "[1, 2, 3].",
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
            holdback.showable(&text, 0, &tools());
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
        let mut holdback = Holdback { budget: 10, ..Holdback::default() };
        let text = format!("a {} <tool_call>", "`x` ".repeat(20));
        assert!(holdback.showable(&text, 0, &tools()) < text.len() - "<tool_call>".len());
    }
}
