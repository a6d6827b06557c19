//! The lines of a unified diff, with three lines of context, as git and diff write them.

use agent_base::hash::Hash;
use agent_base::lock::Lock;
use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// After this long a comparison settles for a diff that is right but not the shortest: a sandbox must not be able
/// to keep the host busy with files made to be slow.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(2);

/// The time for all comparisons in each period, and what each gets where it is used up.
const BUDGET_TIME: Duration = Duration::from_secs(10);
const BUDGET_PERIOD: Duration = Duration::from_secs(60);
const LEAST_TIMEOUT: Duration = Duration::from_millis(20);

/// Lines of both files from which on a comparison may take longer than it is given.
const LONG_LINES: usize = 1_000;
/// Results of such comparisons that are kept, and the operations in all of them: tens of megabytes at most.
const MAX_KEPT: usize = 1_000;
const MAX_KEPT_OPS: usize = 500_000;

/// Lines of context around a change.
pub const CONTEXT: usize = 3;

/// One line of the diff, without its mark and its newline.
pub struct Line<'a> {
    /// The kind of the line.
    pub kind: Kind,
    /// The text; for a header the whole `@@ … @@`.
    pub text: &'a [u8],
    /// Its number from 0: of a removed line in the old file, of another one in the new file.
    pub number: usize,
}

/// The kind of a line of the diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `@@ -1,2 +1,3 @@`
    Header,
    /// In both.
    Context,
    /// Only in the old file.
    Removed,
    /// Only in the new file.
    Added,
    /// `\ No newline at end of file`, about the line before.
    NoNewline,
}

/// Hands every line of the diff from `old` to `new` to `on_line`.
pub fn each(old: &[u8], new: &[u8], mut on_line: impl FnMut(Line<'_>) -> io::Result<()>) -> io::Result<()> {
    let (old, new) = (lines(old), lines(new));
    for group in group_diff_ops(compare(&old, &new), CONTEXT) {
        let header = header(&group);
        on_line(Line { kind: Kind::Header, text: header.as_bytes(), number: 0 })?;
        let mut emit_all = |kind, lines: &[&[u8]], range: Range<usize>| {
            range.into_iter().try_for_each(|number| emit(kind, lines[number], number, &mut on_line))
        };
        for op in group {
            let (tag, old_range, new_range) = op.as_tag_tuple();
            if tag == DiffTag::Equal {
                emit_all(Kind::Context, &new, new_range)?;
            } else {
                emit_all(Kind::Removed, &old, old_range)?;
                emit_all(Kind::Added, &new, new_range)?;
            }
        }
    }
    Ok(())
}

/// Lines added and removed.
pub fn count(old: &[u8], new: &[u8]) -> (u64, u64) {
    count_lines(&lines(old), &lines(new))
}

/// [`count`] of lines that are split already.
pub fn count_lines(old: &[&[u8]], new: &[&[u8]]) -> (u64, u64) {
    let ops = compare(old, new);
    let changed = ops.iter().filter(|op| op.tag() != DiffTag::Equal);
    changed.fold((0, 0), |(plus, minus), op| {
        (plus + op.new_range().len() as u64, minus + op.old_range().len() as u64)
    })
}

/// Returns the lines that differ: their numbers in the old file and in the new one, counting from 0.
pub fn changed(old: &[u8], new: &[u8]) -> Vec<(Range<usize>, Range<usize>)> {
    let ops = compare(&lines(old), &lines(new));
    let changed = ops.iter().filter(|op| op.tag() != DiffTag::Equal);
    changed.map(|op| (op.old_range(), op.new_range())).collect()
}

/// Lines of the old file and of the new one that take each other's place, by their numbers from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// In the old file; empty for an insertion.
    pub old: Range<usize>,
    /// In the new file; empty for a deletion.
    pub new: Range<usize>,
}

/// The regions that differ, in order, at least one line that both files have between them. Positions are counted and not
/// taken from the comparison, whose empty sides may be off (see `header`).
pub fn regions(old: &[&[u8]], new: &[&[u8]]) -> Vec<Region> {
    let (mut regions, mut at, mut touches): (Vec<Region>, _, _) = (Vec::new(), (0, 0), false);
    for op in compare(old, new) {
        let (_, old_range, new_range) = op.as_tag_tuple();
        let end = (at.0 + old_range.len(), at.1 + new_range.len());
        let is_change = op.tag() != DiffTag::Equal;
        match regions.last_mut().filter(|_| is_change && touches) {
            Some(last) => (last.old.end, last.new.end) = end,
            None if is_change => regions.push(Region { old: at.0..end.0, new: at.1..end.1 }),
            None => {}
        }
        (at, touches) = (end, is_change);
    }
    regions
}

/// Compares; the same lines always alike, also where less time is left than before.
fn compare(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    if old.len() + new.len() < LONG_LINES {
        return compare_in_time(old, new);
    }
    let files = [old, new].map(|lines| Hash::of(lines.concat()));
    if let Some((_, ops)) = KEPT.lock().iter().find(|(kept, _)| *kept == files) {
        return ops.clone();
    }
    let ops = compare_in_time(old, new);
    let mut kept = KEPT.lock();
    kept.push_back((files, ops.clone()));
    while kept.len() > MAX_KEPT || kept.iter().map(|(_, ops)| ops.len()).sum::<usize>() > MAX_KEPT_OPS {
        kept.pop_front();
    }
    ops
}

/// Results of long comparisons, the newest last.
static KEPT: Lock<VecDeque<([Hash; 2], Vec<DiffOp>)>> = Lock::new(VecDeque::new());

fn compare_in_time(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    let started = Instant::now();
    let deadline = started + BUDGET.lock().left(started).clamp(LEAST_TIMEOUT, COMPARE_TIMEOUT);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(deadline));
    BUDGET.lock().spent += started.elapsed();
    ops
}

/// The time that comparisons of this process take together, however many files are made to be slow.
struct Budget {
    since: Option<Instant>,
    spent: Duration,
}

static BUDGET: Lock<Budget> = Lock::new(Budget { since: None, spent: Duration::ZERO });

impl Budget {
    /// Returns what is left of it at `now`.
    fn left(&mut self, now: Instant) -> Duration {
        if self.since.is_none_or(|since| now.duration_since(since) >= BUDGET_PERIOD) {
            *self = Self { since: Some(now), spent: Duration::ZERO };
        }
        BUDGET_TIME.saturating_sub(self.spent)
    }
}

/// The lines of a file, each with its newline.
pub fn lines(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|&b| b == b'\n').collect()
}

fn emit(
    kind: Kind,
    line: &[u8],
    number: usize,
    on_line: &mut dyn FnMut(Line<'_>) -> io::Result<()>,
) -> io::Result<()> {
    match line.strip_suffix(b"\n") {
        Some(text) => on_line(Line { kind, text, number }),
        None => {
            on_line(Line { kind, text: line, number })?;
            on_line(Line { kind: Kind::NoNewline, text: b"", number })
        }
    }
}

/// Lengths are summed up, and the start is taken from leading context alone: the diff moves changes about to make
/// them readable, and the empty side of an insertion or deletion then no longer says where it stands.
fn header(group: &[DiffOp]) -> String {
    let span = |range: fn(&DiffOp) -> Range<usize>| {
        // Without context before it, a change stands at the beginning of the file.
        let leading = group.first().filter(|op| op.tag() == DiffTag::Equal);
        let start = leading.map_or(0, |op| range(op).start);
        let length: usize = group.iter().map(|op| range(op).len()).sum();
        // An empty range names the line before it; lines count from 1.
        let first = if length == 0 { start } else { start + 1 };
        if length == 1 { format!("{first}") } else { format!("{first},{length}") }
    };
    format!("@@ -{} +{} @@", span(DiffOp::old_range), span(DiffOp::new_range))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each file that was slow to compare took two seconds, however many there were.
    #[test]
    fn all_comparisons_together_are_bounded() {
        let mut budget = Budget { since: None, spent: Duration::ZERO };
        let now = Instant::now();
        assert_eq!(budget.left(now), BUDGET_TIME);
        budget.spent += Duration::from_secs(9);
        assert_eq!(budget.left(now + Duration::from_secs(1)), Duration::from_secs(1));
        budget.spent += Duration::from_secs(9);
        assert_eq!(budget.left(now + Duration::from_secs(2)), Duration::ZERO);
        assert_eq!(budget.left(now + BUDGET_PERIOD), BUDGET_TIME);
    }

    #[test]
    fn the_same_files_are_compared_alike_when_no_time_is_left() {
        let file = |seed: u64| -> Vec<u8> {
            let mut state = seed;
            let mut bit = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state >> 63
            };
            (0..4_000).flat_map(|_| if bit() == 0 { b"a\n" } else { b"b\n" }).copied().collect()
        };
        let (old, new) = (file(1), file(2));
        let first = changed(&old, &new);
        BUDGET.lock().spent = BUDGET_TIME;
        let again = changed(&old, &new);
        BUDGET.lock().spent = Duration::ZERO;
        assert_eq!(first, again);
    }

    /// `similar` leaves the empty side of a moved insertion where it was; the header must not trust it.
    #[test]
    fn a_header_counts_the_lines_that_follow_it() {
        let old = "fn main() {\nfn main() {\n    one\n    one\n\\ No\n}\n";
        for new in [
            "}\n}\n}\nfn main() {\n    one\n    one\n\\ No\n}\n    two\n\\ No\nfn main() {",
            "}\n}\n",
            "",
            old,
        ] {
            let (mut removed, mut added, mut counted) = (0, 0, (0, 0));
            each(old.as_bytes(), new.as_bytes(), |line| {
                match line.kind {
                    Kind::Header => {
                        let text = String::from_utf8_lossy(line.text).into_owned();
                        let length = |part: &str| part.split(',').nth(1).map_or(1, |n| n.parse().unwrap());
                        let mut parts = text.split(' ').skip(1);
                        counted.0 += length(parts.next().unwrap());
                        counted.1 += length(parts.next().unwrap());
                    }
                    Kind::Context => (removed, added) = (removed + 1, added + 1),
                    Kind::Removed => removed += 1,
                    Kind::Added => added += 1,
                    Kind::NoNewline => {}
                }
                Ok(())
            })
            .unwrap();
            assert_eq!((removed, added), counted, "{new:?}");
        }
    }
}
