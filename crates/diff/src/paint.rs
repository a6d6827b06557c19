//! The lines of a diff in colours: what was removed and added, which words of a line changed, and what they are.

use crate::hunks::{Kind, Line};
use agent_base::visible::{visible, visible_bytes};
use agent_policy::syntax::{Class, Grammar, Lines};
use anstyle::{AnsiColor, Style};
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Lines of one change whose words are compared; more is a block that was replaced.
const MAX_COMPARED: usize = 100;
/// The longest line whose words are compared, in bytes.
const MAX_LINE: usize = 2_000;
/// The time limit for comparing the words of two lines.
const COMPARE_TIMEOUT: Duration = Duration::from_millis(20);
/// Percent of two lines that have to be the same for the rest to be worth showing.
const MIN_COMMON: usize = 40;

const HEADER: Style = AnsiColor::Cyan.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const ADDED: Style = AnsiColor::Green.on_default();

/// Paints the lines of one file's diff. Nothing in a line is obeyed by a terminal but the colours.
pub struct Painter {
    has_colours: bool,
    old: Lines,
    new: Lines,
    /// Lines of a change that wait for the other side of it.
    removed: Vec<Waiting>,
    added: Vec<Waiting>,
    numbers: Option<Numbers>,
}

/// Has the number of each line stand before it.
struct Numbers {
    digits: usize,
    /// Those of the first lines.
    old: usize,
    new: usize,
}

/// A line of a change.
struct Waiting {
    text: Vec<u8>,
    number: usize,
    /// Set if its end has no newline.
    is_open: bool,
    /// The ranges in which its words differ from those of its counterpart.
    changed: Vec<Range<usize>>,
}

impl Painter {
    /// For the file at `path` with these contents; without colours nothing but dangerous characters is changed.
    pub fn new(path: &Path, old: &[u8], new: &[u8], has_colours: bool) -> Self {
        let language = Grammar::of_file(path).filter(|_| has_colours);
        let read = |content: &[u8]| match (language, std::str::from_utf8(content)) {
            (Some(language), Ok(text)) if !text.is_empty() => Lines::read(language, text),
            _ => Lines::default(),
        };
        let (old, new) = (read(old), read(new));
        Self { has_colours, old, new, removed: Vec::new(), added: Vec::new(), numbers: None }
    }

    /// Before each line stands its number, in so many digits; that of the first line is `old` and `new`. A space is behind
    /// each mark.
    #[must_use]
    pub fn with_numbers(self, digits: usize, old: usize, new: usize) -> Self {
        Self { numbers: Some(Numbers { digits, old, new }), ..self }
    }

    /// The number and the mark before a line, the latter in `style`.
    fn margin(&self, kind: Kind, number: usize, style: Style) -> String {
        let mark = match kind {
            Kind::Removed => "-",
            Kind::Added => "+",
            _ => " ",
        };
        let Some(Numbers { digits, old, new }) = &self.numbers else { return self.paint(style, mark) };
        let first = if kind == Kind::Removed { old } else { new };
        let number = format!("  {:>digits$} ", first.saturating_add(number));
        self.paint(Style::new().dimmed(), &number) + &self.paint(style, mark) + " "
    }

    /// Takes the next line, and appends what can be shown to `out`.
    pub fn line(&mut self, line: Line<'_>, out: &mut String) {
        let waiting =
            || Waiting { text: line.text.to_vec(), number: line.number, is_open: false, changed: Vec::new() };
        match line.kind {
            Kind::Removed if self.has_colours => {
                if !self.added.is_empty() {
                    self.finish(out);
                }
                self.removed.push(waiting());
            }
            Kind::Added if self.has_colours => self.added.push(waiting()),
            Kind::NoNewline => match self.added.last_mut().or(self.removed.last_mut()) {
                Some(last) => last.is_open = true,
                None => out.push_str(NO_NEWLINE),
            },
            Kind::Header => {
                self.finish(out);
                out.push_str(&self.paint(HEADER, &visible_bytes(line.text)));
                out.push('\n');
            }
            Kind::Context => {
                self.finish(out);
                out.push_str(&self.margin(line.kind, line.number, Style::new()));
                out.push_str(&self.words(line.text, self.new.line(line.number), &[], Style::new()));
                out.push('\n');
            }
            Kind::Removed | Kind::Added => {
                out.push_str(&self.margin(line.kind, line.number, Style::new()));
                out.push_str(&visible_bytes(line.text));
                out.push('\n');
            }
        }
    }

    /// Appends what is still waiting.
    pub fn finish(&mut self, out: &mut String) {
        let (mut removed, mut added) = (std::mem::take(&mut self.removed), std::mem::take(&mut self.added));
        if removed.len().max(added.len()) <= MAX_COMPARED {
            for (old, new) in removed.iter_mut().zip(&mut added) {
                (old.changed, new.changed) = changed_words(&old.text, &new.text).unwrap_or_default();
            }
        }
        for (lines, kind, style, classes) in
            [(removed, Kind::Removed, REMOVED, &self.old), (added, Kind::Added, ADDED, &self.new)]
        {
            for line in lines {
                out.push_str(&self.margin(kind, line.number, style));
                out.push_str(&self.words(&line.text, classes.line(line.number), &line.changed, style));
                out.push('\n');
                out.push_str(if line.is_open { NO_NEWLINE } else { "" });
            }
        }
    }

    /// A line in `base`, its words as their classes say, and what `changed` reversed.
    fn words(
        &self,
        line: &[u8],
        classes: &[(Range<usize>, Class)],
        changed: &[Range<usize>],
        base: Style,
    ) -> String {
        let text = match std::str::from_utf8(line) {
            Ok(text) if self.has_colours => text,
            _ => return self.paint(base, &visible_bytes(line)),
        };
        let mut edges: Vec<usize> = vec![0, text.len()];
        edges.extend(classes.iter().flat_map(|(range, _)| [range.start, range.end]));
        edges.extend(changed.iter().flat_map(|range| [range.start, range.end]));
        edges.sort_unstable();
        edges.dedup();
        let mut shown = String::with_capacity(text.len() * 2);
        for edge in edges.windows(2) {
            let Some(piece) = text.get(edge[0]..edge[1]) else { continue };
            // Both lists are in order.
            let class = classes.get(classes.partition_point(|(range, _)| range.end <= edge[0]));
            let class = class.filter(|(range, _)| range.contains(&edge[0]));
            let mut style = class.map_or(base, |(_, class)| class.style(base));
            let next = changed.get(changed.partition_point(|range| range.end <= edge[0]));
            if next.is_some_and(|range| range.contains(&edge[0])) {
                style = style.invert();
            }
            shown.push_str(&self.paint(style, &visible(piece)));
        }
        shown
    }

    fn paint(&self, style: Style, text: &str) -> String {
        match self.has_colours && style != Style::new() && !text.is_empty() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }
}

const NO_NEWLINE: &str = "\\ No newline at end of file\n";

/// Returns the ranges in which two lines differ, in whole words; `None` where they have too little in common.
#[expect(clippy::type_complexity, reason = "two lists of the same kind")]
fn changed_words(old: &[u8], new: &[u8]) -> Option<(Vec<Range<usize>>, Vec<Range<usize>>)> {
    if old.len().max(new.len()) > MAX_LINE {
        return None;
    }
    let (old, new) = (std::str::from_utf8(old).ok()?, std::str::from_utf8(new).ok()?);
    let (before, after) = (split(old), split(new));
    let deadline = Some(Instant::now() + COMPARE_TIMEOUT);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &before, &after, deadline);
    let (mut removed, mut added, mut at, mut common) = (Vec::new(), Vec::new(), (0, 0), 0);
    for op in ops {
        let (tag, old_range, new_range) = op.as_tag_tuple();
        let length = |words: &[&str]| words.iter().map(|word| word.len()).sum::<usize>();
        let end = (at.0 + length(&before[old_range.clone()]), at.1 + length(&after[new_range.clone()]));
        if tag == DiffTag::Equal {
            // Blanks in common say nothing.
            common += before[old_range].iter().map(|word| word.trim().len()).sum::<usize>();
        } else {
            removed.extend((at.0 < end.0).then_some(at.0..end.0));
            added.extend((at.1 < end.1).then_some(at.1..end.1));
        }
        at = end;
    }
    let longest = before.iter().map(|word| word.trim().len()).sum::<usize>();
    let longest = longest.max(after.iter().map(|word| word.trim().len()).sum());
    (common * 100 >= longest * MIN_COMMON && common > 0).then_some((removed, added))
}

/// A line as words, blanks, and single other characters.
fn split(line: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        _ if c.is_alphanumeric() || c == '_' => 0,
        _ if c.is_whitespace() => 1,
        _ => 2,
    };
    let (mut words, mut start) = (Vec::new(), 0);
    let mut last = None;
    for (at, c) in line.char_indices() {
        if last.is_some_and(|last| last != kind(c) || last == 2) {
            words.push(&line[start..at]);
            start = at;
        }
        last = Some(kind(c));
    }
    words.extend((start < line.len()).then(|| &line[start..]));
    words
}

#[cfg(test)]
mod tests {
    use super::{changed_words, split};

    #[test]
    fn a_line_is_words_blanks_and_single_characters() {
        assert_eq!(split("let ä_1 = f(x);"), ["let", " ", "ä_1", " ", "=", " ", "f", "(", "x", ")", ";"]);
        assert_eq!(split("  "), ["  "]);
        assert!(split("").is_empty());
    }

    #[test]
    fn the_words_that_changed_are_found() {
        let bounds = |old: &[u8], new: &[u8]| {
            let (old, new) = changed_words(old, new).unwrap();
            let pairs = |ranges: Vec<std::ops::Range<usize>>| {
                ranges.into_iter().map(|range| (range.start, range.end))
            };
            (pairs(old).collect::<Vec<_>>(), pairs(new).collect::<Vec<_>>())
        };
        let words = bounds(b"let total = sum(a, b);", b"let total = product(a, b);");
        assert_eq!(words, (vec![(12, 15)], vec![(12, 19)]));
        assert_eq!(bounds(b"return value", b"return value + 1"), (vec![], vec![(12, 16)]));
        assert!(changed_words(b"one thing", b"quite another").is_none(), "nothing in common");
        assert!(changed_words(b"}", b"{").is_none());
    }
}
