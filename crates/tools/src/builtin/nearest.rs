//! The place in a file that is most like a text which is not there: what a model sees of an edit that missed.
//!
//! The work is bounded by the size of the file, whatever it holds. One pass over it scores each line by the pairs of bytes that
//! it has in common with the text, and within a long line each stretch of the text's length; the best of these are compared,
//! until a budget is used up.

use similar::TextDiff;
use std::cmp::Reverse;

/// Bytes of the text that are looked for: the beginning of its first line that is not blank.
const MAX_WANTED: usize = 300;
/// Shorter texts are not looked for within longer lines, where anything is like them.
const MIN_WITHIN: usize = 12;
/// The number of places that are kept for a comparison.
const MAX_PLACES: usize = 5_000;
/// The most that all comparisons may cost together. One costs the square of the bytes that it compares, which is the most that it takes.
const BUDGET: usize = 20_000_000;
/// The least likeness that counts: twice what two texts have in common, of what they have.
const LIKE: f32 = 0.6;
/// The bounds of what is shown: lines, bytes of one line, and of a longer line the bytes around the place.
const MAX_LINES: usize = 50;
const MAX_LINE: usize = 400;
const AROUND: usize = 60;

/// A place in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Its line, counting from 1.
    pub line: usize,
    /// The byte of that line where it begins, counting from 1, where it is a part of a longer line.
    pub column: Option<usize>,
    /// As many lines as the text has, the long ones shortened.
    pub shown: String,
}

/// The place in `content` most like the beginning of `old`, if any is at all.
pub fn nearest(content: &[u8], old: &str) -> Option<Nearest> {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    let blank = old.lines().take_while(|line| line.trim().is_empty()).count();
    let wanted = old.lines().nth(blank)?.trim();
    let wanted =
        wanted.split_at_checked(boundary(wanted.as_bytes(), MAX_WANTED)).map_or(wanted, |(head, _)| head);
    let place = most_like(content, places(content, wanted.as_bytes()), wanted)?;
    let first = place.line.saturating_sub(blank);
    let height = old.lines().count();
    let shown = content.split(|byte| *byte == b'\n').enumerate().skip(first).take(height.min(MAX_LINES));
    let shown = shown.map(|(number, line)| match place.within.filter(|_| number == place.line) {
        Some(column) => excerpt(line, column.saturating_sub(AROUND), column + place.length + AROUND),
        None => excerpt(line.strip_suffix(b"\r").unwrap_or(line), 0, MAX_LINE),
    });
    let mut shown: Vec<String> = shown.collect();
    if height > MAX_LINES {
        shown.push(format!("[… up to {} more lines]", height - MAX_LINES));
    }
    Some(Nearest {
        line: first + 1,
        column: place.within.filter(|_| blank == 0).map(|column| column + 1),
        shown: shown.join("\n"),
    })
}

/// A stretch of a line.
#[derive(Clone, Copy)]
struct Stretch {
    /// The line, counting from 0.
    line: usize,
    /// Its beginning in the file, and its length.
    start: usize,
    length: usize,
    /// Its beginning in its line, where that is longer.
    within: Option<usize>,
    score: u32,
}

impl Stretch {
    fn rank(&self) -> (Reverse<u32>, usize) {
        (Reverse(self.score), self.start)
    }
}

/// The places that may be like the text, the most promising ones first.
fn places(content: &[u8], wanted: &[u8]) -> Vec<Stretch> {
    let mut pairs = Pairs::of(wanted);
    let (mut found, mut worst, mut start) = (Vec::new(), None, 0);
    for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let trimmed = line.trim_ascii_start();
        let indentation = line.len() - trimmed.len();
        let trimmed = trimmed.trim_ascii_end();
        let mut add = |at: usize, length: usize, within| {
            let score = pairs.score(&trimmed[at..at + length]);
            if worst.is_none_or(|worst| score > worst) {
                found.push(Stretch { line: number, start: start + indentation + at, length, within, score });
            }
        };
        if can_be_like(trimmed.len(), wanted.len()) {
            add(0, trimmed.len(), None);
        } else if trimmed.len() > wanted.len() && wanted.len() >= MIN_WITHIN {
            for at in (0..trimmed.len()).step_by(wanted.len() / 2) {
                add(at, wanted.len().min(trimmed.len() - at), Some(indentation + at));
            }
        }
        start += line.len() + 1;
        if found.len() >= 2 * MAX_PLACES {
            keep_best(&mut found);
            // Of equal ones the first counts.
            worst = found.last().map(|place| place.score);
        }
    }
    keep_best(&mut found);
    found
}

fn keep_best(places: &mut Vec<Stretch>) {
    places.sort_unstable_by_key(Stretch::rank);
    places.truncate(MAX_PLACES);
}

/// Returns whether texts of these lengths can be alike.
fn can_be_like(one: usize, other: usize) -> bool {
    2.0 * one.min(other) as f32 > LIKE * (one + other) as f32
}

/// The place that is most like the text, the first one of several.
fn most_like(content: &[u8], places: Vec<Stretch>, wanted: &str) -> Option<Stretch> {
    let (mut budget, mut best): (usize, Option<(f32, Stretch)>) = (BUDGET, None);
    for place in places {
        let text = String::from_utf8_lossy(&content[place.start..place.start + place.length]);
        let Some(left) = budget.checked_sub((text.len() + wanted.len()).pow(2)) else { break };
        budget = left;
        let likeness = TextDiff::from_chars(text.as_ref(), wanted).ratio();
        let is_better =
            |(most, best): &(f32, Stretch)| likeness > *most || likeness == *most && place.start < best.start;
        if likeness > LIKE && best.as_ref().is_none_or(is_better) {
            best = Some((likeness, place));
        }
    }
    best.map(|(_, place)| place)
}

/// The pairs of neighbouring bytes that a text has: how many of them another one has as well is known after one look at it.
struct Pairs {
    wanted: Vec<bool>,
    count: u32,
    /// For each pair, the number of the last text that had it.
    seen: Vec<u32>,
    texts: u32,
}

impl Pairs {
    fn of(text: &[u8]) -> Self {
        let mut pairs = Self { wanted: vec![false; 1 << 16], count: 0, seen: vec![0; 1 << 16], texts: 0 };
        for pair in text.windows(2) {
            let is_known = std::mem::replace(&mut pairs.wanted[index(pair)], true);
            pairs.count += u32::from(!is_known);
        }
        pairs
    }

    /// Twice the pairs that both have, of those that they have: in thousandths.
    fn score(&mut self, text: &[u8]) -> u32 {
        self.texts += 1;
        let (mut common, mut all) = (0, self.count);
        for pair in text.windows(2).map(index) {
            if std::mem::replace(&mut self.seen[pair], self.texts) != self.texts {
                all += 1;
                common += u32::from(self.wanted[pair]);
            }
        }
        2_000 * common / all.max(1)
    }
}

fn index(pair: &[u8]) -> usize {
    usize::from(pair[0]) << 8 | usize::from(pair[1])
}

/// The bytes of a line from `from` to `to`, with a mark where something is left out.
fn excerpt(line: &[u8], from: usize, to: usize) -> String {
    let (from, to) = (boundary(line, from), boundary(line, to));
    let mark = |is_cut: bool| if is_cut { "…" } else { "" };
    format!("{}{}{}", mark(from > 0), String::from_utf8_lossy(&line[from..to]), mark(to < line.len()))
}

/// The first byte from `at` on that begins a character. One takes four bytes at most; what is longer is not text.
fn boundary(text: &[u8], at: usize) -> usize {
    let at = at.min(text.len());
    (at..text.len().min(at + 4)).find(|at| text[*at] & 0xc0 != 0x80).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(content: &str, old: &str) -> Option<(usize, Option<usize>)> {
        nearest(content.as_bytes(), old).map(|found| (found.line, found.column))
    }

    #[test]
    fn the_first_of_the_lines_most_alike_is_found() {
        let content = "one\n\n  let total = 1;\n\tlet total = 1;\nlet total = sum();\n";
        assert_eq!(place(content, "let totle = 1;"), Some((3, None)));
        assert_eq!(place(content, "\n\nlet totle = 1;"), Some((1, None)));
        assert_eq!(place(content, "two"), None);
        assert_eq!(place(content, "\n \n"), None);
        assert_eq!(place("", "x"), None);
        assert_eq!(place("a\n}\n", " }"), Some((2, None)));
    }

    #[test]
    fn a_place_within_a_long_line_is_shown_with_what_is_around_it() {
        let filler =
            |n: u32| (0..n).map(|n| format!("function f{n}(a){{return a*{n}}};")).collect::<String>();
        let content = format!("// ä\n{}const total=sum(values,0);{}\nend\n", filler(5_000), filler(5_000));
        let found = nearest(content.as_bytes(), "const totle=sum(values, 0);\nend").unwrap();
        let (line, column) = (found.line, found.column.unwrap());
        let exact = content.find("const total").unwrap() - content.find('\n').unwrap();
        assert!(line == 2 && column.abs_diff(exact) < 20, "{column} {exact}");
        let (first, second) = found.shown.split_once('\n').unwrap();
        assert!(
            first.starts_with('…') && first.contains("const total=sum(values,0);") && first.ends_with('…')
        );
        assert!(first.len() < 250 && second == "end", "{found:?}");
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let old = format!("fn main() {{\n{}", "x\n".repeat(1_000));
        let content = format!("fn main () {{\n{}\n", "ä".repeat(100_000)) + &"y\n".repeat(2_000);
        let found = nearest(content.as_bytes(), &old).unwrap();
        assert!(
            found.shown.len() < 2_000 && found.shown.ends_with("[… up to 951 more lines]"),
            "{}",
            found.shown
        );
        assert_eq!(excerpt("aäb".as_bytes(), 2, 9), "…b");
        assert_eq!(excerpt(&[0x80; 9], 2, 3).chars().count(), 3);
    }

    #[test]
    fn the_work_is_bounded_whatever_the_file_holds() {
        let marks = format!("e{}", "\u{301}".repeat(10_000));
        let contents: [Vec<u8>; 6] = [
            "const a=1;".repeat(30_000).into_bytes(),
            "const b = 2;\n".repeat(300_000).into_bytes(),
            b"\n".repeat(1 << 20),
            vec![0; 1 << 20],
            [0x80, 0xff, b'a'].repeat(1 << 18),
            marks.clone().into_bytes(),
        ];
        for old in ["const c = 3;", "\u{301}\u{301}", &marks, &"const a=2;".repeat(30_000), "\0\0\0\0"] {
            for content in &contents {
                let started = std::time::Instant::now();
                nearest(content, old);
                // What took minutes takes some milliseconds, without optimisation a second.
                assert!(
                    started.elapsed() < std::time::Duration::from_secs(20),
                    "{old:.20} {}",
                    content.len()
                );
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_file_is_searched(content: Vec<u8>, old in "\\PC{0,40}\n?\\PC{0,40}") {
            nearest(&content, &old);
        }
    }
}
