//! Three-way merges of files that both the sandbox and the host changed, or two sandboxes.

use crate::changes::Change;
use crate::manifest::Node;
use crate::store::Store;
use agent_base::error::Result;
use agent_base::hash::Hash;
use agent_diff::hunks;
use std::ops::Range;

/// Largest file that is merged, in bytes.
pub const MAX_MERGE: u64 = 4 << 20;

/// Most lines in which a side may differ from the common ancestor: the time of a merge grows with the square of them.
const MAX_DIFFERENCES: u64 = 10_000;

/// Most places that are named where lines conflict.
const MAX_PLACES: usize = 5;

/// The outcome of a merge.
pub enum Merged {
    /// This is to be written.
    Clean(Node),
    /// It cannot be done, for this reason.
    Impossible(String),
}

/// The side that a change is merged with.
pub struct Ours<'a> {
    /// The node that it has.
    pub found: Option<&'a Node>,
    /// Reads the beginning of that file, at most so many bytes.
    pub read: &'a dyn Fn(u64) -> Result<Vec<u8>>,
    /// The origin of the change, for messages: `the sandbox`.
    pub other: &'a str,
}

/// Merges what one side has with the change of the other. Impossible where lines conflict, where a side is not text, or
/// where the common ancestor is not kept: conflict markers are never written. The merged content is kept in `store`.
pub fn three_way(ours: &Ours<'_>, change: &Change, store: &Store) -> Result<Merged> {
    let Ours { found, read, other } = ours;
    let impossible = |why: &str| Ok(Merged::Impossible(why.to_owned()));
    let (Some(ours @ Node::File { .. }), Some(base @ Node::File { .. }), Some(theirs @ Node::File { .. })) =
        (*found, &change.before, &change.after)
    else {
        return impossible("only a file that both sides began with and still have can be merged");
    };
    let sizes = [ours, base, theirs].map(|node| if let Node::File { size, .. } = node { *size } else { 0 });
    let hash = |node: &Node| if let Node::File { hash, .. } = node { *hash } else { Hash::UNKNOWN };
    if sizes.iter().any(|&size| size > MAX_MERGE) {
        return impossible("it is too large to be merged");
    }
    if !store.contains(hash(base)) {
        return impossible("what both sides began with is not kept");
    }
    let own_content = read(MAX_MERGE)?;
    let (base_content, other_content) = (store.read(hash(base))?, store.read(hash(theirs))?);
    if [&own_content, &base_content, &other_content].iter().any(|content| content.contains(&0)) {
        return impossible("binary content cannot be merged");
    }
    let merged = match lines_merged(&base_content, &own_content, &other_content) {
        Ok(merged) => merged,
        Err(Unmerged::TooDifferent) => return impossible("too many lines of it changed for a merge"),
        Err(Unmerged::Conflict) => {
            return Ok(Merged::Impossible(conflict(&base_content, &own_content, &other_content, other)));
        }
    };
    let mode = change.mode_over(ours.mode()).unwrap_or(0o644);
    let size = merged.len() as u64;
    Ok(Merged::Clean(Node::File { hash: store.put(&merged)?, size, mode }))
}

/// Both sides in one text, with conflict markers around the lines that both changed; `None` where that is not possible. Where
/// what they began with is not known, all of it conflicts. What comes of it is kept in `store`.
pub fn with_markers(ours: &Ours<'_>, change: &Change, store: &Store) -> Result<Option<Node>> {
    let (Some(found @ Node::File { size: own_size, .. }), Some(Node::File { hash, size, .. })) =
        (ours.found, &change.after)
    else {
        return Ok(None);
    };
    if *own_size > MAX_MERGE || *size > MAX_MERGE || !store.contains(*hash) {
        return Ok(None);
    }
    let base_content = match &change.before {
        Some(Node::File { hash, size, .. }) if *size <= MAX_MERGE && store.contains(*hash) => {
            store.read(*hash)?
        }
        _ => Vec::new(),
    };
    let (own_content, other_content) = ((ours.read)(MAX_MERGE)?, store.read(*hash)?);
    let sides = [&own_content, &base_content, &other_content];
    let is_text = sides.iter().all(|content| std::str::from_utf8(content).is_ok() && !content.contains(&0));
    if !is_text || !is_near(&base_content, &own_content) || !is_near(&base_content, &other_content) {
        return Ok(None);
    }
    let marked = match diffy::merge_bytes(&base_content, &own_content, &other_content) {
        Ok(merged) => merged,
        Err(marked) => marked,
    };
    let mode = change.mode_over(found.mode()).unwrap_or(0o644);
    let size = marked.len() as u64;
    Ok(Some(Node::File { hash: store.put(&marked)?, size, mode }))
}

/// The reason why two sides are not merged.
#[derive(Debug, PartialEq, Eq)]
pub enum Unmerged {
    /// Both changed the same lines.
    Conflict,
    /// A side differs in too many lines.
    TooDifferent,
}

/// Returns what `base` becomes with the changes of both sides.
pub fn lines_merged(base: &[u8], ours: &[u8], theirs: &[u8]) -> std::result::Result<Vec<u8>, Unmerged> {
    if ![ours, theirs].iter().all(|side| is_near(base, side)) {
        return Err(Unmerged::TooDifferent);
    }
    diffy::merge_bytes(base, ours, theirs).map_err(|_| Unmerged::Conflict)
}

/// Returns whether the files differ in so few lines that they can be merged.
fn is_near(base: &[u8], side: &[u8]) -> bool {
    let (base, side) = (hunks::lines(base), hunks::lines(side));
    let begin = base.iter().zip(&side).take_while(|(one, other)| one == other).count();
    let (base, side) = (&base[begin..], &side[begin..]);
    let end = base.iter().rev().zip(side.iter().rev()).take_while(|(one, other)| one == other).count();
    let (base, side) = (&base[..base.len() - end], &side[..side.len() - end]);
    // What is only added or only removed is found without a comparison.
    let most = if base.is_empty() || side.is_empty() { 0 } else { (base.len() + side.len()) as u64 };
    most <= MAX_DIFFERENCES || {
        let (added, removed) = hunks::count_lines(base, side);
        added + removed <= MAX_DIFFERENCES
    }
}

/// Names the lines that conflict: those where the changes of both sides touch.
fn conflict(base: &[u8], own: &[u8], changed: &[u8], other: &str) -> String {
    let theirs = hunks::changed(base, changed);
    let mut places = Vec::new();
    let mut rest = theirs.as_slice();
    for (range, here) in hunks::changed(base, own) {
        // Both lists are in order: what ends before this change meets no later one either.
        rest = &rest[rest.partition_point(|(other, _)| other.end < range.start)..];
        let meets = rest.iter().take_while(|(other, _)| other.start <= range.end);
        places.extend(meets.map(|(_, there)| format!("{} ({} in {other})", lines(&here), lines(there))));
    }
    let more = match places.len().saturating_sub(MAX_PLACES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    places.truncate(MAX_PLACES);
    let named = if places.is_empty() { String::new() } else { format!(": {}{more}", places.join(", ")) };
    format!("both sides changed the same lines{named}")
}

/// A range of lines, counted from 1.
fn lines(range: &Range<usize>) -> String {
    match range.len() {
        0 => format!("after line {}", range.start),
        1 => format!("line {}", range.end),
        _ => format!("lines {}-{}", range.start + 1, range.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn numbered(lines: Range<usize>, word: &str) -> Vec<u8> {
        lines.map(|n| format!("{word} {n}\n")).collect::<String>().into_bytes()
    }

    /// A bug: a file that was rewritten on one side while the other one changed it was compared for hours.
    #[test]
    fn files_that_differ_everywhere_are_not_merged() {
        let (base, ours) = (numbered(0..150_000, "line"), numbered(0..150_000, "other"));
        let started = Instant::now();
        assert_eq!(lines_merged(&base, &ours, &base[8..]), Err(Unmerged::TooDifferent));
        assert_eq!(lines_merged(&base, &base[8..], &ours), Err(Unmerged::TooDifferent));
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    }

    #[test]
    fn long_files_that_differ_in_few_places_are_merged() {
        let (base, more) = (numbered(0..100_000, "line"), numbered(0..50_000, "more"));
        let (ours, theirs) = ([&base, more.as_slice()].concat(), [b"first\n", &base[..]].concat());
        let merged = lines_merged(&base, &ours, &theirs).unwrap();
        assert!(merged == [b"first\n", &base[..], &more].concat());
        assert_eq!(lines_merged(b"a\n", b"b\n", b"c\n"), Err(Unmerged::Conflict));
    }
}
