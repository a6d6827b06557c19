//! The parts of a change that a user decides about one by one: the hunks of a text file, its mode, and everything else as a whole.

use crate::changes::{Change, ChangeSet};
use crate::diff::{self, MAX_SHOWN, Side};
use crate::manifest::Node;
use crate::renames;
use crate::reviewed::Reviewed;
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_base::text_encoding::Encoding;
use agent_diff::hunks::{self, CONTEXT, Kind, Line, Region};
use agent_diff::paint::Painter;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One item of a review.
pub enum Item {
    /// A text file that stays, whose hunks are decided about one by one.
    Text(TextFile),
    /// Taken or left as a whole: a new file, a deleted, binary or renamed one, a symlink.
    Whole(Whole),
}

/// A part that is taken or left as a whole.
pub struct Whole {
    /// Its changes: two for a rename.
    pub changes: ChangeSet,
}

/// A text file that both sides have.
pub struct TextFile {
    /// The path of the file.
    pub path: TreePath,
    /// All of its change.
    pub change: Change,
    /// The hunks, in order.
    pub hunks: Vec<Hunk>,
    old: Vec<u8>,
    /// The encoding of both sides, of which `old` and the hunks are the text in UTF-8; `None` where they are the bytes themselves.
    encoding: Option<Encoding>,
    /// Sentences about its encoding.
    remarks: Vec<String>,
}

/// Changed lines that are shown together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    edits: Vec<Edit>,
    /// The lines of the old file that may be shown around it: up to the hunks beside it.
    reach: Range<usize>,
    /// Set if the user wrote it.
    pub is_edited: bool,
}

/// Lines of the old file, by their numbers from 0, and what takes their place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    old: Range<usize>,
    /// The line at which this begins in the new file.
    new_start: usize,
    new: Vec<Vec<u8>>,
}

/// The items of `changes`, in order. Directories alone are not among them: see [`directories`].
pub fn items(changes: &ChangeSet, store: &Store) -> Result<Vec<Item>> {
    let renames = renames::find(changes, store);
    let sources: BTreeSet<&TreePath> = renames.values().map(|rename| &rename.from).collect();
    let mut items = Vec::new();
    for (path, change) in changes.by_directory() {
        if change.is_directory_only() || sources.contains(path) {
            continue;
        }
        if let Some(file) = TextFile::open(changes, path, change, store)? {
            items.push(Item::Text(file));
            continue;
        }
        let mut whole = changes.without_changes();
        whole.changes.insert(path.clone(), change.clone());
        if let Some((from, change)) =
            renames.get(path).and_then(|rename| changes.changes.get_key_value(&rename.from))
        {
            whole.changes.insert(from.clone(), change.clone());
        }
        items.push(Item::Whole(Whole { changes: whole }));
    }
    Ok(items)
}

/// The changes of directories alone that belong to what was chosen: what is below them changed, and all of that is among
/// `chosen`.
pub fn directories(changes: &ChangeSet, chosen: &ChangeSet) -> BTreeMap<TreePath, Change> {
    let belongs = |directory: &TreePath| {
        let mut below = changes
            .changes
            .iter()
            .filter(|(path, change)| !change.is_directory_only() && path.is_within(directory.as_bytes()));
        let mut is_empty = true;
        below.all(|(path, change)| {
            is_empty = false;
            chosen.changes.get(path) == Some(change)
        }) && !is_empty
    };
    let alone = changes.changes.iter().filter(|(path, change)| change.is_directory_only() && belongs(path));
    alone.map(|(path, change)| (path.clone(), change.clone())).collect()
}

impl TextFile {
    /// `None` for what is not text on both sides, and where the content does not change.
    fn open(changes: &ChangeSet, path: &TreePath, change: &Change, store: &Store) -> Result<Option<Self>> {
        let (Some(before @ Node::File { .. }), Some(after @ Node::File { .. })) =
            (&change.before, &change.after)
        else {
            return Ok(None);
        };
        let old = Side::load(Some(before), store, MAX_SHOWN)?;
        let new = Side::load(Some(after), store, MAX_SHOWN)?;
        let reviewed = Reviewed::new(changes, path, change);
        let texts = reviewed.texts(&old, &new, store);
        if texts.old.is_none() || texts.new.is_none() {
            return Ok(None);
        }
        let (remarks, decoded) = (texts.remarks, decoded(reviewed, &old, &new));
        let (Side::Content(old), Side::Content(new)) = (old, new) else { return Ok(None) };
        let (encoding, old, new) = match decoded {
            Some((encoding, old, new)) => (Some(encoding), old, new),
            None => (None, old, new),
        };
        let hunks = hunks_of(&hunks::lines(&old), &hunks::lines(&new));
        let file = Self { path: path.clone(), change: change.clone(), hunks, old, encoding, remarks };
        Ok((!file.hunks.is_empty()).then_some(file))
    }

    /// The lines above the hunks: the path, what happened to the file, and in which encoding its text is.
    pub fn headlines(&self, has_colours: bool) -> String {
        let remarks = self.remarks.iter().map(|remark| format!("  ({remark})\n"));
        diff::headline_text(&self.path, &self.change, has_colours) + &remarks.collect::<String>()
    }

    /// The lines of a hunk as a diff shows them, its header first.
    pub fn show(&self, hunk: &Hunk, on_line: &mut dyn FnMut(Line<'_>)) {
        let old = hunks::lines(&self.old);
        let shown = hunk.shown();
        let (removed, added) = hunk.counts();
        let length = shown.len();
        let lead = hunk.edits.first().map_or(0, |edit| edit.old.start - shown.start);
        let new_start = hunk.edits.first().map_or(0, |edit| edit.new_start.saturating_sub(lead));
        let span = |start: usize, length: usize| match length {
            0 => format!("{start},0"),
            1 => format!("{}", start + 1),
            _ => format!("{},{length}", start + 1),
        };
        let new_length = length - removed + added;
        let header = format!("@@ -{} +{} @@", span(shown.start, length), span(new_start, new_length));
        on_line(Line { kind: Kind::Header, text: header.as_bytes(), number: 0 });
        let mut emit = |kind, line: &[u8], number: usize| {
            let text = line.strip_suffix(b"\n");
            on_line(Line { kind, text: text.unwrap_or(line), number });
            if text.is_none() {
                on_line(Line { kind: Kind::NoNewline, text: b"", number });
            }
        };
        let (mut at, mut now) = (shown.start, new_start);
        for edit in &hunk.edits {
            for line in &old[at..edit.old.start] {
                emit(Kind::Context, line, now);
                now += 1;
            }
            edit.old.clone().for_each(|number| emit(Kind::Removed, old[number], number));
            for line in &edit.new {
                emit(Kind::Added, line, now);
                now += 1;
            }
            at = edit.old.end;
        }
        for line in &old[at..shown.end] {
            emit(Kind::Context, line, now);
            now += 1;
        }
    }

    /// Returns what paints the lines of its hunks.
    pub fn painter(&self, has_colours: bool) -> Painter {
        let new = if has_colours { self.text(&self.hunks) } else { Vec::new() };
        Painter::new(self.path.as_path(), &self.old, &new, has_colours)
    }

    /// The hunk as a user edits it: a diff, byte for byte.
    pub fn editable(&self, hunk: &Hunk) -> Vec<u8> {
        let mut text = Vec::new();
        self.show(hunk, &mut |line| {
            let mark: &[u8] = match line.kind {
                Kind::Header => b"",
                Kind::Context => b" ",
                Kind::Removed => b"-",
                Kind::Added => b"+",
                Kind::NoNewline => b"\\ No newline at end of file",
            };
            text.extend([mark, line.text, b"\n"].concat());
        });
        text
    }

    /// The hunk that the user made of the one at `index`; `None` where nothing is left of it.
    ///
    /// # Errors
    /// Why it does not apply, for the user.
    pub fn edited(&self, index: usize, text: &[u8]) -> std::result::Result<Option<Hunk>, String> {
        let hunk = &self.hunks[index];
        let shown = hunk.shown();
        let Sides { old, new } = sides(text)?;
        if old.is_empty() && new.is_empty() {
            return Ok(None);
        }
        let lines = hunks::lines(&self.old);
        let expected = &lines[shown.clone()];
        if let Some(at) = (0..expected.len().max(old.len()))
            .find(|at| expected.get(*at).copied() != old.get(*at).map(Vec::as_slice))
        {
            let line = shown.start + at + 1;
            return Err(format!(
                "line {line} of the file is not as it was: only lines with + may be changed, added or removed, \
                 and - and a space exchanged"
            ));
        }
        let edits = edits_between(&old, &new, shown.start, hunk);
        if edits.is_empty() {
            return Err("the hunk changes nothing any more; n refuses it".to_owned());
        }
        if let Some(encoding) = self.encoding {
            let written: Vec<u8> = edits.iter().flat_map(|edit| edit.new.concat()).collect();
            let text = String::from_utf8(written).map_err(|_| "it is not UTF-8".to_owned())?;
            encoding.encode(&text).map_err(|refusal| refusal.to_string())?;
        }
        let edited = Hunk { edits, reach: hunk.reach.clone(), is_edited: true };
        let others = self.hunks.iter().enumerate().filter(|(other, _)| *other != index);
        match others.flat_map(|(_, other)| &other.edits).any(|other| edited.overlaps(other)) {
            true => Err("it changes lines that another hunk changes too".to_owned()),
            false => Ok(Some(edited)),
        }
    }

    /// Returns the file with these hunks of its own, in its encoding.
    pub fn content<'a>(&self, hunks: impl IntoIterator<Item = &'a Hunk>) -> Result<Vec<u8>> {
        let text = self.text(hunks);
        let Some(encoding) = self.encoding else { return Ok(text) };
        let refused =
            |why: &dyn std::fmt::Display| Error::unexpected(format!("{} is not written: {why}", self.path));
        let text = String::from_utf8(text).map_err(|error| refused(&error))?;
        let content = encoding.encode(&text).map_err(|refusal| refused(&refusal))?;
        Ok([encoding.mark(), &content].concat())
    }

    fn text<'a>(&self, hunks: impl IntoIterator<Item = &'a Hunk>) -> Vec<u8> {
        let mut edits: Vec<&Edit> = hunks.into_iter().flat_map(|hunk| &hunk.edits).collect();
        edits.sort_by_key(|edit| (edit.old.start, edit.old.end));
        let lines = hunks::lines(&self.old);
        let (mut content, mut at) = (Vec::with_capacity(self.old.len()), 0);
        for edit in edits {
            lines[at..edit.old.start].iter().for_each(|line| content.extend_from_slice(line));
            edit.new.iter().for_each(|line| content.extend_from_slice(line));
            at = edit.old.end;
        }
        lines[at..].iter().for_each(|line| content.extend_from_slice(line));
        content
    }

    /// Returns whether the mode is part of the change.
    pub fn changes_mode(&self) -> bool {
        self.change.changes_mode()
    }

    /// The node of the file with `content`, kept in `store`, and the new mode or the old one.
    pub fn node(&self, content: &[u8], new_mode: bool, store: &Store) -> Result<Node> {
        let side = if new_mode { &self.change.after } else { &self.change.before };
        let mode = side.as_ref().and_then(Node::mode).unwrap_or(0o644);
        Ok(Node::File { hash: store.put(content)?, size: content.len() as u64, mode })
    }

    /// `src/main.rs, lines 10-14`
    pub fn place(&self, hunk: &Hunk) -> String {
        let start = hunk.edits.first().map_or(0, |edit| edit.old.start);
        let end = hunk.edits.last().map_or(0, |edit| edit.old.end);
        match end - start {
            0 => format!("{}, after line {start}", self.path),
            1 => format!("{}, line {end}", self.path),
            _ => format!("{}, lines {}-{end}", self.path, start + 1),
        }
    }
}

/// Both sides as text in UTF-8, where they have one encoding that is another, and every byte of them comes back from the text.
fn decoded(reviewed: Reviewed<'_>, old: &Side, new: &Side) -> Option<(Encoding, Vec<u8>, Vec<u8>)> {
    let (encoding, old_text) = old.as_shown(reviewed.before(), None)?;
    let (of_new, new_text) = new.as_shown(reviewed.after(), Some(encoding))?;
    let comes_back = |side: &Side, text: &[u8]| {
        let Side::Content(bytes) = side else { return false };
        let encoded = std::str::from_utf8(text).ok().and_then(|text| encoding.encode(text).ok());
        encoded.is_some_and(|encoded| [encoding.mark(), &encoded].concat() == *bytes)
    };
    let is_whole = !encoding.is_plain()
        && encoding == of_new
        && comes_back(old, &old_text)
        && comes_back(new, &new_text);
    is_whole.then(|| (encoding, old_text.into_owned(), new_text.into_owned()))
}

impl Hunk {
    /// The smaller hunks that it consists of; `None` if it is one.
    pub fn split(&self) -> Option<Vec<Hunk>> {
        if self.edits.len() < 2 {
            return None;
        }
        let part = |at: usize| {
            let above = at.checked_sub(1).map_or(self.reach.start, |at| self.edits[at].old.end);
            let below = self.edits.get(at + 1).map_or(self.reach.end, |next| next.old.start);
            Hunk { edits: vec![self.edits[at].clone()], reach: above..below, is_edited: self.is_edited }
        };
        Some((0..self.edits.len()).map(part).collect())
    }

    /// The lines of the old file that are shown.
    fn shown(&self) -> Range<usize> {
        let start = self.edits.first().map_or(0, |edit| edit.old.start);
        let end = self.edits.last().map_or(0, |edit| edit.old.end);
        start.saturating_sub(CONTEXT).max(self.reach.start)..(end + CONTEXT).min(self.reach.end)
    }

    /// Lines removed and added.
    /// The lines that it takes away and those that it adds, by their numbers in both files: no two hunks of a file have the same.
    pub fn ranges(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        self.edits.iter().map(|edit| (edit.old.clone(), edit.new_start..edit.new_start + edit.new.len()))
    }

    fn counts(&self) -> (usize, usize) {
        self.edits
            .iter()
            .fold((0, 0), |(removed, added), edit| (removed + edit.old.len(), added + edit.new.len()))
    }

    fn overlaps(&self, other: &Edit) -> bool {
        self.edits.iter().any(|edit| edit.old.start < other.old.end && other.old.start < edit.old.end)
    }
}

/// Changes whose contexts touch are one hunk, as in a diff.
fn hunks_of(old: &[&[u8]], new: &[&[u8]]) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for Region { old: range, new: place } in hunks::regions(old, new) {
        let lines = new[place.clone()].iter().map(|line| line.to_vec()).collect();
        let edit = Edit { old: range, new_start: place.start, new: lines };
        match hunks.last_mut() {
            Some(last) if edit.old.start - last.edits[last.edits.len() - 1].old.end <= 2 * CONTEXT => {
                last.edits.push(edit);
            }
            _ => hunks.push(Hunk { edits: vec![edit], reach: 0..old.len(), is_edited: false }),
        }
    }
    hunks
}

/// The two sides of an edited hunk: the lines that it expects of the file, and those that it makes of them.
struct Sides {
    old: Vec<Vec<u8>>,
    new: Vec<Vec<u8>>,
}

/// Reads what the user's editor left: headers and lines that begin with `#` are skipped.
fn sides(text: &[u8]) -> std::result::Result<Sides, String> {
    let mut sides = Sides { old: Vec::new(), new: Vec::new() };
    let mut last = (false, false);
    for (number, line) in hunks::lines(text).into_iter().enumerate() {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let full = |text: &[u8]| [text, b"\n"].concat();
        match line.first() {
            Some(b'#') => continue,
            _ if line.starts_with(b"@@") => continue,
            Some(b'\\') => {
                // It is about the line before.
                let ends = [(last.0, sides.old.last_mut()), (last.1, sides.new.last_mut())];
                ends.into_iter().for_each(|(is_meant, line)| {
                    line.filter(|line| is_meant && line.ends_with(b"\n")).map(Vec::pop);
                });
                continue;
            }
            Some(b'-') => (last, _) = ((true, false), sides.old.push(full(&line[1..]))),
            Some(b'+') => (last, _) = ((false, true), sides.new.push(full(&line[1..]))),
            // Editors remove the space of an empty line.
            Some(b' ') | None => {
                let text = full(line.get(1..).unwrap_or_default());
                sides.old.push(text.clone());
                sides.new.push(text);
                last = (true, true);
            }
            Some(_) => {
                return Err(format!("line {} of the hunk begins with none of space, +, - and #", number + 1));
            }
        }
    }
    Ok(sides)
}

/// Returns what turns `old`, the lines from `start` of the file, into `new`.
fn edits_between(old: &[Vec<u8>], new: &[Vec<u8>], start: usize, hunk: &Hunk) -> Vec<Edit> {
    let old: Vec<&[u8]> = old.iter().map(Vec::as_slice).collect();
    let new: Vec<&[u8]> = new.iter().map(Vec::as_slice).collect();
    let lead = hunk.edits.first().map_or(0, |edit| edit.old.start.saturating_sub(start));
    let new_start = hunk.edits.first().map_or(0, |edit| edit.new_start.saturating_sub(lead));
    let edit = |Region { old, new: place }: Region| Edit {
        old: start + old.start..start + old.end,
        new_start: new_start + place.start,
        new: new[place].iter().map(|line| line.to_vec()).collect(),
    };
    hunks::regions(&old, &new).into_iter().map(edit).collect()
}
