//! Messages of a model that say nothing, although they hold characters.

use agent_base::visible::is_hidden;

/// Longest placeholder, in bytes.
const MAX_PLACEHOLDER: usize = 60;
const BRACKETS: [(char, char); 4] = [('(', ')'), ('[', ']'), ('<', '>'), ('{', '}')];

/// Returns whether nobody would see anything of it: white space, controls, joiners, fillers.
pub(super) fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || is_hidden(c))
}

/// The text where it is words in one pair of brackets and nothing else, as clients and templates write in the place of a message
/// that is empty (`(empty content)`, `[no response]`), and models repeat. A value in JSON is none.
pub(super) fn placeholder(text: &str) -> Option<&str> {
    let text = text.trim();
    let inner = BRACKETS
        .iter()
        .find_map(|(open, close)| text.strip_prefix(*open)?.strip_suffix(*close))
        .filter(|_| text.len() <= MAX_PLACEHOLDER)?;
    let is_words = inner.chars().all(|c| c.is_alphabetic() || matches!(c, ' ' | '_' | '-' | '.' | '/'));
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    (is_words && !is_json).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_says_nothing_is_told_from_a_short_answer() {
        for blank in [
            "",
            " \n\t",
            "\u{200b}",
            "\u{feff}\n\u{2060}",
            "\u{3164}",
            "\u{e0020}",
            "\u{2800}\u{2800}",
            "\u{3000}",
        ] {
            assert!(is_blank(blank), "{blank:?}");
        }
        for words in ["(empty content)", "[no response]", "<empty>", " (No Content) \n", "(内容为空)", "()"]
        {
            assert!(placeholder(words).is_some() && !is_blank(words), "{words}");
        }
        for answer in [
            "4",
            "+",
            "👍",
            "done",
            "(done) and tested",
            "[1, 2]",
            "[]",
            "{}",
            "[true]",
            "(a, b)",
            "f(x)",
            "\"\"",
            "(see a) (b)",
        ] {
            assert!(placeholder(answer).is_none() && !is_blank(answer), "{answer}");
        }
    }
}
