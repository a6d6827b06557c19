//! Text against the width of a terminal.

use anstyle::Style;
use std::os::fd::AsFd;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Where a terminal does not say how wide it is.
const DEFAULT_COLUMNS: usize = 80;

/// The columns of the terminal behind `stream`.
pub(super) fn terminal_columns(stream: &impl AsFd) -> usize {
    let size = terminal_size::terminal_size_of(stream);
    size.map_or(DEFAULT_COLUMNS, |(width, _)| usize::from(width.0).max(1))
}

/// The columns that `text` takes. Control characters take none.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// `text` broken at `columns`, wherever that is. At least one line.
pub(super) fn chop(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for character in text.chars() {
        let wide = character.width().unwrap_or(0);
        if used + wide > columns && used > 0 {
            lines.push(String::new());
            used = 0;
        }
        used += wide;
        // There is always a last line: one to begin with, and none is ever taken away.
        lines.last_mut().into_iter().for_each(|line| line.push(character));
    }
    lines
}

/// A run of text in one style.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub text: String,
    pub style: Style,
}

/// One line of spans.
pub(super) type Line = Vec<Span>;

/// Breaks spans into lines of at most `columns`, at spaces, and before and after wide (East Asian) characters.
/// `\n` in a span is a hard break. A word that is wider than a line stays whole, so that a long address can
/// still be copied.
pub(super) fn wrap(spans: &[Span], columns: usize) -> Vec<Line> {
    let mut wrapped = Wrapped { columns: columns.max(1), lines: vec![Line::new()], used: 0, space: None };
    let mut word: Line = Vec::new();
    for span in spans {
        for character in span.text.chars() {
            match character {
                '\n' => {
                    wrapped.word(&mut word);
                    wrapped.hard_break();
                }
                ' ' | '\t' => {
                    wrapped.word(&mut word);
                    wrapped.space = Some(span.style);
                }
                _ if character.width() == Some(2) => {
                    wrapped.word(&mut word);
                    push(&mut word, character, span.style);
                    wrapped.word(&mut word);
                }
                _ => push(&mut word, character, span.style),
            }
        }
    }
    wrapped.word(&mut word);
    wrapped.lines
}

struct Wrapped {
    columns: usize,
    lines: Vec<Line>,
    used: usize,
    /// A space that is owed before the next word on this line.
    space: Option<Style>,
}

impl Wrapped {
    fn word(&mut self, word: &mut Line) {
        if word.is_empty() {
            return;
        }
        let wide: usize = word.iter().map(|span| width(&span.text)).sum();
        if self.used > 0 && self.used + usize::from(self.space.is_some()) + wide > self.columns {
            self.hard_break();
        }
        let space = self.space.take().filter(|_| self.used > 0);
        let Some(line) = self.lines.last_mut() else { return };
        if let Some(style) = space {
            push(line, ' ', style);
            self.used += 1;
        }
        self.used += wide;
        for span in word.drain(..) {
            span.text.chars().for_each(|character| push(line, character, span.style));
        }
    }

    fn hard_break(&mut self) {
        self.lines.push(Line::new());
        self.used = 0;
        self.space = None;
    }
}

fn push(line: &mut Line, character: char, style: Style) {
    match line.last_mut() {
        Some(last) if last.style == style => last.text.push(character),
        _ => line.push(Span { text: character.to_string(), style }),
    }
}

/// The columns that a line takes.
pub(super) fn line_width(line: &[Span]) -> usize {
    line.iter().map(|span| width(&span.text)).sum()
}
