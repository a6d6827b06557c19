//! Reasoning that is written into the content, as `<think>…</think>` at its start.

/// A piece of the content.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// The answer.
    Text(String),
    /// Reasoning.
    Reasoning(String),
}

impl Piece {
    fn is_empty(&self) -> bool {
        let (Piece::Text(text) | Piece::Reasoning(text)) = self;
        text.is_empty()
    }
}

/// Tells reasoning that is written into the content, as `<think>…</think>` at its start, from the answer.
#[derive(Default)]
pub enum Thinking {
    /// Nothing but white space or part of the tag so far.
    #[default]
    Unknown,
    /// Text that may turn out to be the tag.
    Maybe(String),
    /// Inside; what came last may be part of the closing tag.
    Inside { close: &'static str, held: String },
    /// Past it, or there was none.
    Answer,
}

/// Tags that open and close the reasoning, in the templates of different models.
const TAGS: [(&str, &str); 17] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|think|>", "<|end|>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<ifm|think>", "</ifm|think>"),
    ("<ifm|think_fast>", "</ifm|think_fast>"),
    ("<ifm|think_faster>", "</ifm|think_faster>"),
];

/// Tags that close reasoning which the prompt opens.
const UNOPENED: [(&str, &str); 8] = [
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    // Apriel's thoughts begin with a sentence.
    ("Here are my reasoning steps", "[BEGIN FINAL RESPONSE]"),
];

/// Marks that an answer may write about, each of which costs a look at the text around it; the next one ends the reasoning.
const MAX_MENTIONS: usize = 64;

/// The reasoning and the answer in a text whose reasoning was opened by the prompt, and the mark between them.
pub fn unopened(text: &str) -> Option<(&str, &str, &'static str)> {
    UNOPENED.iter().find_map(|(open, close)| {
        let mut marks = text.match_indices(close).map(|(at, _)| at).enumerate();
        let (_, at) = marks.find(|(n, at)| *n >= MAX_MENTIONS || !is_mentioned(text, *at, close.len()))?;
        let (before, after) = (&text[..at], &text[at + close.len()..]);
        let before =
            if *close == "[BEGIN FINAL RESPONSE]" { before.trim_start_matches(open) } else { before };
        (!before.contains(open)).then_some((before, after, *close))
    })
}

/// Returns whether the mark at `at` is one that the answer writes about: in quotation marks, or in code that ends behind it. Code that
/// does not end is reasoning that was broken off: what it drafts must not become the answer.
fn is_mentioned(text: &str, at: usize, length: usize) -> bool {
    let (before, after) = (&text[..at], &text[at + length..]);
    let is_quoted = ['`', '"', '\''].iter().any(|mark| before.ends_with(*mark) && after.starts_with(*mark));
    let (line, rest) = (before.rsplit('\n').next().unwrap_or(before), after.lines().next().unwrap_or(after));
    let is_code = line.matches('`').count() % 2 == 1 && rest.contains('`');
    // What follows may begin a block of its own, of a language.
    let is_in_block = fences(before).count() % 2 == 1 && fences(after).next().is_some_and(|end| end == "```");
    is_quoted || is_code || is_in_block && fences(after).count() % 2 == 1
}

/// The lines that begin or end a block of code.
fn fences(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| line.starts_with("```"))
}

impl Thinking {
    /// The pieces that `content` completes.
    pub fn feed(&mut self, content: &str) -> Vec<Piece> {
        if content.is_empty() {
            return Vec::new();
        }
        match self {
            Thinking::Answer => vec![Piece::Text(content.to_owned())],
            Thinking::Unknown => {
                *self = Thinking::Maybe(String::new());
                self.feed(content)
            }
            Thinking::Maybe(held) => {
                held.push_str(content);
                let start = held.trim_start();
                if let Some((open, close)) = TAGS.iter().find(|(open, _)| start.starts_with(open)) {
                    let inside = start[open.len()..].to_owned();
                    *self = Thinking::Inside { close, held: String::new() };
                    return self.feed(&inside);
                }
                if TAGS.iter().any(|(open, _)| open.starts_with(start)) {
                    return Vec::new();
                }
                let held = std::mem::take(held);
                *self = Thinking::Answer;
                vec![Piece::Text(held)]
            }
            Thinking::Inside { close, held } => {
                held.push_str(content);
                if let Some(at) = held.find(*close) {
                    let reasoning = held[..at].to_owned();
                    let answer = held[at + close.len()..].trim_start().to_owned();
                    *self = Thinking::Answer;
                    let mut pieces = vec![Piece::Reasoning(reasoning), Piece::Text(answer)];
                    pieces.retain(|piece| !piece.is_empty());
                    return pieces;
                }
                let keep = partial_suffix(held, close);
                let shown: String = held.drain(..held.len() - keep).collect();
                if shown.is_empty() { Vec::new() } else { vec![Piece::Reasoning(shown)] }
            }
        }
    }

    /// Returns what is left at the end.
    pub fn finish(&mut self) -> Vec<Piece> {
        match std::mem::replace(self, Thinking::Answer) {
            Thinking::Maybe(held) if !held.is_empty() => vec![Piece::Text(held)],
            Thinking::Inside { held, .. } if !held.is_empty() => vec![Piece::Reasoning(held)],
            _ => Vec::new(),
        }
    }
}

/// Returns the number of bytes at the end of `text` that are the beginning of `tag`.
fn partial_suffix(text: &str, tag: &str) -> usize {
    let mut starts = (1..tag.len()).rev().filter(|n| tag.is_char_boundary(*n));
    starts.find(|n| text.ends_with(&tag[..*n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of the answer before the mark was gone.
    #[test]
    fn an_answer_about_the_marks_is_not_reasoning() {
        for answer in [
            "Use `</think>` to end it.",
            "It ends with \"</think>\".",
            "The form is `<x></think>` there.",
            "Like this:\n```xml\nhm\n</think>\n```\n",
        ] {
            assert_eq!(unopened(answer), None, "{answer}");
        }
        assert_eq!(
            unopened("I write `</think>`.\n</think>\n\nDone."),
            Some(("I write `</think>`.\n", "\n\nDone.", "</think>"))
        );
        assert_eq!(unopened("hm</think>Done."), Some(("hm", "Done.", "</think>")));
    }

    /// Drafts of calls in it ran.
    #[test]
    fn reasoning_that_breaks_off_in_code_is_reasoning() {
        for reasoning in [
            "I could run x. The file:\n```rust\nfn main() {\n",
            "maybe `git reset",
            "```\na\n```\nand\n```\nb\n",
        ] {
            let text = format!("{reasoning}</think>\nI will not.\n```\nc\n```\n");
            assert_eq!(unopened(&text).map(|(before, ..)| before), Some(reasoning), "{text}");
        }
        let many = "`</think>` ".repeat(200_000);
        assert!(unopened(&many).is_some());
    }

    #[test]
    fn reasoning_is_told_from_the_answer_in_every_form_wherever_it_is_cut() {
        for (open, close) in TAGS {
            let text = format!("{open}one < two{close}The answer.");
            for size in [1, 3, text.len()] {
                let (mut thinking, mut said) = (Thinking::default(), [String::new(), String::new()]);
                let chars: Vec<char> = text.chars().collect();
                let pieces =
                    chars.chunks(size).flat_map(|piece| thinking.feed(&piece.iter().collect::<String>()));
                for piece in pieces.collect::<Vec<_>>().into_iter().chain(thinking.finish()) {
                    match piece {
                        Piece::Reasoning(text) => said[0].push_str(&text),
                        Piece::Text(text) => said[1].push_str(&text),
                    }
                }
                assert_eq!(said, ["one < two", "The answer."], "{text}");
            }
            let unopened = unopened(&format!("one{close}The answer."))
                .map(|(before, after, _)| (before.to_owned(), after.to_owned()));
            assert!(
                unopened.is_none_or(|said| said == ("one".to_owned(), "The answer.".to_owned())),
                "{close}"
            );
        }
    }
}
