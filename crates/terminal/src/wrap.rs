//! Fitting text into the width of a terminal.

use anstyle::Style;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The width of a terminal that does not report one.
const DEFAULT_COLUMNS: usize = 80;
const DEFAULT_ROWS: usize = 24;

/// Columns between the stops of tabs.
const TAB: usize = 8;

/// Lines are not made narrower than this.
const MIN_COLUMNS: usize = 20;

/// The width to wrap text at that is written to `stream`; `None` if it is not a terminal.
pub fn columns_of(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    stream.is_terminal().then(|| terminal_columns(stream))
}

pub fn terminal_columns(stream: &impl AsFd) -> usize {
    let size = terminal_size::terminal_size_of(stream);
    size.map_or(DEFAULT_COLUMNS, |(width, _)| usize::from(width.0).max(1))
}

/// Rows of the window.
pub fn terminal_rows(stream: &impl AsFd) -> usize {
    let size = terminal_size::terminal_size_of(stream);
    size.map_or(DEFAULT_ROWS, |(_, height)| usize::from(height.0).max(1))
}

/// Returns whether lines are broken anew when the window becomes narrower. Most terminals do that.
pub fn reflows() -> bool {
    let is_set = |name| std::env::var_os(name).is_some();
    !is_set("XTERM_VERSION") && !is_set("STY") && std::env::var("TERM").is_ok_and(|term| term != "linux")
}

/// Counts the rows of a terminal that text takes as it is written: a line that is wider than the window takes several.
#[derive(Debug)]
pub struct RowCounter {
    columns: usize,
    column: usize,
    rows: usize,
    is_in_escape: bool,
}

impl RowCounter {
    /// For a window of `columns`.
    pub fn new(columns: usize) -> Self {
        Self { columns: columns.max(1), column: 0, rows: 0, is_in_escape: false }
    }

    /// Counts text that follows; escape sequences in it are colours.
    pub fn push(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                _ if self.is_in_escape => self.is_in_escape = character != 'm',
                '\x1b' => self.is_in_escape = true,
                '\n' => {
                    self.rows += 1;
                    self.column = 0;
                }
                // It leads to the last column at most.
                '\t' => {
                    let stop = self.column + TAB - self.column % TAB;
                    self.column = stop.min(self.columns.saturating_sub(1)).max(self.column);
                }
                character => self.advance(character.width().unwrap_or(0)),
            }
        }
    }

    /// The rows that are used, the last one too, where something is in it.
    pub fn rows(&self) -> usize {
        self.rows + usize::from(self.column > 0)
    }

    fn advance(&mut self, width: usize) {
        if self.column + width > self.columns && self.column > 0 {
            self.rows += 1;
            self.column = 0;
        }
        self.column += width;
    }
}

/// The columns that `text` takes. Control characters take none.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// `text` broken at `columns`, within words too. At least one line.
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
        // There is always a last line.
        lines.last_mut().into_iter().for_each(|line| line.push(character));
    }
    lines
}

/// `text` after a label of `indent` columns: each line is broken between words at `columns`, and every line but the first
/// is indented; what is broken off a line that begins with spaces begins with as many. Without `columns` nothing is broken.
pub fn hanging(text: &str, indent: usize, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.lines().collect::<Vec<_>>().join("\n") };
    let available = columns.saturating_sub(indent).max(MIN_COLUMNS);
    let break_line = |line| {
        let rest = str::trim_start_matches(line, ' ');
        let own = &line[..line.len() - rest.len()];
        let broken = words(rest, available.saturating_sub(own.len()).max(MIN_COLUMNS)).into_iter();
        broken.map(move |part| format!("{own}{part}"))
    };
    let lines: Vec<String> = text.lines().flat_map(break_line).collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// `text` broken at spaces into lines of at most `columns`. A word that is wider than a line is not broken. At least one
/// line.
fn words(text: &str, columns: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = break_at(rest, columns) {
        let (line, next) = rest.split_at(at);
        lines.push(line.trim_end_matches(' '));
        rest = next.trim_start_matches(' ');
    }
    lines.push(rest);
    lines
}

/// Returns the end of the first line of `text`: at the last space that fits, else at the first one after a word; `None`
/// if all of it fits, or no space divides it.
fn break_at(text: &str, columns: usize) -> Option<usize> {
    let (mut used, mut last, mut in_word) = (0, None, false);
    for (at, character) in text.char_indices() {
        if character == ' ' {
            if in_word && (used <= columns || last.is_none()) {
                last = Some(at);
            }
        } else if used >= columns && last.is_some() {
            return last;
        }
        in_word |= character != ' ';
        used += character.width().unwrap_or(0);
    }
    (used > columns).then_some(last).flatten()
}

/// A run of text in one style.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub text: String,
    pub style: Style,
}

/// One line of spans.
pub(super) type StyledLine = Vec<Span>;

/// Breaks spans into lines of at most `columns`, at spaces, and before and after wide (East Asian) characters.
/// `\n` in a span is a hard break. A word that is wider than a line is not broken, so that a long address can still be
/// copied.
pub(super) fn wrap(spans: &[Span], columns: usize) -> Vec<StyledLine> {
    let mut wrapped =
        Wrapped { columns: columns.max(1), lines: vec![StyledLine::new()], used: 0, space: None };
    let mut word: StyledLine = Vec::new();
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
    lines: Vec<StyledLine>,
    used: usize,
    /// The style of the space before the next word on this line, if there is one.
    space: Option<Style>,
}

impl Wrapped {
    fn word(&mut self, word: &mut StyledLine) {
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
        self.lines.push(StyledLine::new());
        self.used = 0;
        self.space = None;
    }
}

fn push(line: &mut StyledLine, character: char, style: Style) {
    match line.last_mut() {
        Some(last) if last.style == style => last.text.push(character),
        _ => line.push(Span { text: character.to_string(), style }),
    }
}

/// The columns that a line takes.
pub(super) fn line_width(line: &[Span]) -> usize {
    line.iter().map(|span| width(&span.text)).sum()
}

#[cfg(test)]
mod tests {
    use super::{RowCounter, hanging, width, words};

    const NOTICE: &str = "the workspace was copied without 3 files that look like secrets: .env, id_rsa and \
                          deploy/production.pem; name them with --include to copy them all the same";

    #[test]
    fn rows_are_counted_as_a_terminal_fills_them() {
        for (pieces, rows) in [
            (&["a\nb\n"][..], 2),
            (&["no end"], 1),
            (&["0123456789"], 1),
            (&["0123456789a\n"], 2),
            (&["01234", "\x1b[1", "mx\x1b[0m", "6789", "\n"], 1),
            (&["\tab\n"], 1),
            (&["\tabc\n"], 2),
            (&["漢漢漢漢漢漢\n", &"x".repeat(95)], 12),
        ] {
            let mut counter = RowCounter::new(10);
            pieces.iter().for_each(|piece| counter.push(piece));
            assert_eq!(counter.rows(), rows, "{pieces:?}");
        }
    }

    #[test]
    fn lines_are_broken_between_words_at_any_width() {
        for columns in [40, 80, 120] {
            let lines = words(NOTICE, columns);
            assert!(lines.iter().all(|line| width(line) <= columns), "{lines:?}");
            assert_eq!(lines.join(" "), NOTICE);
            for pair in lines.windows(2) {
                let next = pair[1].split(' ').next().unwrap_or_default();
                assert!(width(pair[0]) + 1 + width(next) > columns, "{next:?} fits into {:?}", pair[0]);
            }
        }
    }

    #[test]
    fn a_word_that_is_wider_than_a_line_is_not_broken() {
        let url = "https://example.org/".repeat(4);
        assert_eq!(words(&format!("see {url} for more"), 40), ["see", &url, "for more"]);
        assert_eq!(words(&url, 40), [&url]);
        assert_eq!(words("", 40), [""]);
    }

    #[test]
    fn hanging_lines_begin_below_the_label_and_only_on_a_terminal() {
        assert_eq!(
            hanging("use a longer prefix than this", 6, Some(26)),
            "use a longer prefix\n      than this"
        );
        assert_eq!(hanging("use a longer prefix\nthan this", 6, None), "use a longer prefix\nthan this");
    }

    /// The second half of a conflict's reason began further left than the first.
    #[test]
    fn what_is_broken_off_an_indented_line_is_indented_like_it() {
        assert_eq!(
            hanging("a conflict\n  notes.txt: both sides changed it", 2, Some(26)),
            "a conflict\n    notes.txt: both sides\n    changed it"
        );
    }
}
