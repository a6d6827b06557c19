//! The lines of a unified diff, with three lines of context, as git and diff write them.

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};
use std::io;
use std::time::{Duration, Instant};

/// After this long a comparison settles for a diff that is right but not the shortest: a sandbox must not be able
/// to keep the host busy with files made to be slow.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// One line of the diff, without its mark and its newline.
pub struct Line<'a> {
    /// What the line is.
    pub kind: Kind,
    /// The text; for a header the whole `@@ … @@`.
    pub text: &'a [u8],
}

/// What a line of the diff is.
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
        on_line(Line { kind: Kind::Header, text: header.as_bytes() })?;
        for op in group {
            let (tag, old_range, new_range) = op.as_tag_tuple();
            if tag == DiffTag::Equal {
                old[old_range].iter().try_for_each(|line| emit(Kind::Context, line, &mut on_line))?;
            } else {
                old[old_range].iter().try_for_each(|line| emit(Kind::Removed, line, &mut on_line))?;
                new[new_range].iter().try_for_each(|line| emit(Kind::Added, line, &mut on_line))?;
            }
        }
    }
    Ok(())
}

/// Lines added and removed.
pub fn count(old: &[u8], new: &[u8]) -> (u64, u64) {
    let ops = compare(&lines(old), &lines(new));
    let changed = ops.iter().filter(|op| op.tag() != DiffTag::Equal);
    changed.fold((0, 0), |(plus, minus), op| {
        (plus + op.new_range().len() as u64, minus + op.old_range().len() as u64)
    })
}

fn compare(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(Instant::now() + PATIENCE))
}

fn lines(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|&b| b == b'\n').collect()
}

fn emit(kind: Kind, line: &[u8], on_line: &mut dyn FnMut(Line<'_>) -> io::Result<()>) -> io::Result<()> {
    match line.strip_suffix(b"\n") {
        Some(text) => on_line(Line { kind, text }),
        None => {
            on_line(Line { kind, text: line })?;
            on_line(Line { kind: Kind::NoNewline, text: b"" })
        }
    }
}

fn header(group: &[DiffOp]) -> String {
    let span = |ranges: &mut dyn Iterator<Item = std::ops::Range<usize>>| {
        let ranges: Vec<_> = ranges.collect();
        let start = ranges.first().map_or(0, |range| range.start);
        let length = ranges.last().map_or(0, |range| range.end) - start;
        // An empty range names the line before it; lines count from 1.
        let first = if length == 0 { start } else { start + 1 };
        if length == 1 { format!("{first}") } else { format!("{first},{length}") }
    };
    let old = span(&mut group.iter().map(DiffOp::old_range));
    let new = span(&mut group.iter().map(DiffOp::new_range));
    format!("@@ -{old} +{new} @@")
}
