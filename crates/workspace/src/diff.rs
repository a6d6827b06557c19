//! Shows a change set: as a unified diff for users, as a patch for `git apply`, as statistics, as names.

use crate::changes::{Change, ChangeSet};
use crate::git_patch;
use crate::manifest::Node;
use crate::renames::{self, Rename};
use crate::reviewed::{self, Reviewed};
use crate::risks;
use crate::scripts::{self, NamedFile};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::error::Result;
use agent_base::hash::Hash;
use agent_base::head_writer::HeadWriter;
use agent_base::text_encoding::Encoding;
use agent_base::visible::visible_name;
use agent_diff::hunks;
use agent_diff::paint::Painter;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write;

/// Largest file whose lines are shown, in bytes. Larger ones are named.
pub const MAX_SHOWN: u64 = 8 << 20;

/// One side of a file's change.
#[derive(Debug, PartialEq, Eq)]
pub enum Side {
    /// There is no file.
    Absent,
    /// There is, and this is in it (for a symlink: its target).
    Content(Vec<u8>),
    /// There is, but its content is too large to show or not known any more.
    NotShown,
}

impl Side {
    /// Returns what `node` holds, up to `max` bytes.
    pub fn load(node: Option<&Node>, store: &Store, max: u64) -> Result<Side> {
        match node {
            None | Some(Node::Directory { .. }) => Ok(Side::Absent),
            Some(Node::Symlink { target }) => Ok(Side::Content(target.0.clone())),
            Some(Node::File { size, hash, .. }) if *size > max || *hash == Hash::UNKNOWN => {
                Ok(Side::NotShown)
            }
            Some(Node::File { hash, .. }) if !store.contains(*hash) => Ok(Side::NotShown),
            Some(Node::File { hash, .. }) => store.read(*hash).map(Side::Content),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if let Side::Content(content) = self { content } else { b"" }
    }

    /// It as text in UTF-8, and the encoding that it has; `None` where it is not readable text. `like` is the encoding of what
    /// it replaces, for text that could be in several.
    pub(crate) fn as_text(&self, like: Option<Encoding>) -> Option<(Encoding, Cow<'_, [u8]>)> {
        (!self.is_unreadable() || !Encoding::of(self.bytes(), like).is_plain()).then(|| self.read(like))
    }

    /// The same without a look whether it is readable. Bytes that the encoding does not have would all be one character: it is not decoded
    /// then, and each of them is shown.
    pub(crate) fn read(&self, like: Option<Encoding>) -> (Encoding, Cow<'_, [u8]>) {
        let bytes = self.bytes();
        match Encoding::of(bytes, like) {
            encoding if encoding.decodes(bytes) && !encoding.is_plain() => {
                (encoding, Cow::Owned(encoding.decode(bytes).into_owned().into_bytes()))
            }
            encoding if encoding.is_utf8() => {
                (encoding, Cow::Borrowed(bytes.strip_prefix(encoding.mark()).unwrap_or(bytes)))
            }
            _ => self.undecoded(),
        }
    }

    /// Its bytes as they are.
    pub(crate) fn undecoded(&self) -> (Encoding, Cow<'_, [u8]>) {
        (Encoding::UTF_8, Cow::Borrowed(self.bytes()))
    }

    /// The side of a change as text in UTF-8, as a review shows it: its bytes, where the encoding would hide some of what a program
    /// reads. `None` where it is not readable text. `file`: the one on this side.
    pub(crate) fn as_shown(
        &self,
        file: NamedFile<'_>,
        like: Option<Encoding>,
    ) -> Option<(Encoding, Cow<'_, [u8]>)> {
        let is_forced = scripts::may_be_read_as_text(file, self);
        let (encoding, text) = if is_forced { self.read(like) } else { self.as_text(like)? };
        let is_hiding = !encoding.is_plain()
            && scripts::may_not_be_decoded(file, self, encoding)
            && reviewed::hides_ascii(self.bytes(), &text);
        Some(if is_hiding { self.undecoded() } else { (encoding, text) })
    }

    /// Returns its text, whatever encoding it has; `None` where it is not readable text, or its bytes cannot be decoded.
    pub fn text(&self) -> Option<String> {
        let Side::Content(bytes) = self else { return None };
        let (encoding, text) = self.as_text(None)?;
        encoding.decodes(bytes).then(|| String::from_utf8(text.into_owned()).ok()).flatten()
    }

    /// Returns whether git would call it binary: a NUL among the first 8,000 bytes (`buffer_is_binary` in xdiff-interface.c).
    pub fn is_binary(&self) -> bool {
        self.bytes().iter().take(8000).any(|&b| b == 0)
    }

    /// Returns whether most of it is not text, at its beginning and as a whole. Single bytes do not decide it: shells, make and
    /// interpreters run a script that holds a NUL or is not UTF-8.
    pub fn is_unreadable(&self) -> bool {
        let bytes = self.bytes();
        let head = &bytes[..bytes.len().min(8000)];
        let is_script = [&b"#!"[..], b"\xff\xfe", b"\xfe\xff"].iter().any(|start| head.starts_with(start));
        !is_script && is_mostly_binary(head) && (head.len() == bytes.len() || is_mostly_binary(bytes))
    }
}

/// Returns whether more than two fifths of the bytes are neither UTF-8 nor anything that a text has. Of compressed data it is a little
/// more than half.
fn is_mostly_binary(bytes: &[u8]) -> bool {
    let is_text =
        |byte: &u8| !byte.is_ascii_control() || matches!(byte, b'\t' | b'\n' | b'\r' | b'\x0c' | b'\x1b');
    let others = |chunk: std::str::Utf8Chunk<'_>| {
        chunk.invalid().len() + chunk.valid().bytes().filter(|byte| !is_text(byte)).count()
    };
    bytes.utf8_chunks().map(others).sum::<usize>() * 5 > bytes.len() * 2
}

/// Writes the diff for users. Nothing in it is obeyed by a terminal but the colours, where `color` is set.
pub fn write_text(out: &mut dyn Write, changes: &ChangeSet, store: &Store, color: bool) -> Result<()> {
    let paint = Paint { color };
    each(changes, store, &mut |file| write_change(out, file, store, paint))?;
    for message in changes.messages() {
        writeln!(out, "{}", paint.bold(&message))?;
    }
    Ok(())
}

/// The beginning of the diff for users.
pub struct Excerpt {
    /// Whole lines of it, without colours.
    pub text: String,
    /// The changes that it does not show, or not to their end.
    pub left_out: ChangeSet,
}

/// As much of the diff for users as `max` bytes have room for. The rest is not made.
pub fn excerpt(changes: &ChangeSet, store: &Store, max: usize) -> Result<Excerpt> {
    let (mut text, mut left_out) = (String::new(), changes.without_changes());
    each(changes, store, &mut |file| {
        let mut is_cut = !left_out.is_empty();
        if !is_cut {
            let mut head = HeadWriter::new(max - text.len());
            write_change(&mut head, file, store, Paint { color: false })?;
            is_cut = head.is_cut();
            let shown = head.into_text();
            let end = if is_cut { shown.rfind('\n').map_or(0, |end| end + 1) } else { shown.len() };
            text += &shown[..end];
        }
        let paths = file.source.into_iter().chain([file.path]).filter(|_| is_cut);
        let change = |path: &TreePath| Some((path.clone(), changes.changes.get(path)?.clone()));
        left_out.changes.extend(paths.filter_map(change));
        Ok(())
    })?;
    Ok(Excerpt { text, left_out })
}

/// A file as the diff shows it.
struct ShownFile<'a> {
    changes: &'a ChangeSet,
    path: &'a TreePath,
    /// Its former name, where it was renamed.
    source: Option<&'a TreePath>,
    headline: String,
    change: Change,
}

impl ShownFile<'_> {
    fn reviewed(&self) -> Reviewed<'_> {
        let former = self.source.unwrap_or(self.path);
        Reviewed { former, ..Reviewed::new(self.changes, self.path, &self.change) }
    }
}

/// Visits each file: a renamed one under its new name, one that became something else in two halves.
fn each(
    changes: &ChangeSet,
    store: &Store,
    visit: &mut dyn FnMut(&ShownFile<'_>) -> Result<()>,
) -> Result<()> {
    let renames = renames::find(changes, store);
    let sources: BTreeSet<&TreePath> = renames.values().map(|rename| &rename.from).collect();
    for (path, change) in changes.by_directory().filter(|(path, _)| !sources.contains(path)) {
        if let Some(file) = renames.get(path).and_then(|rename| renamed(rename, changes)) {
            visit(&file)?;
            continue;
        }
        for change in git_patch::halves(change) {
            visit(&ShownFile { changes, path, source: None, headline: headline(path, &change), change })?;
        }
    }
    Ok(())
}

/// From the content under the former name to that under the new one. What programs begin to execute with its new name, or obey there, is shown
/// as a new file, and so is what gets another ending, which may be collected or included by that: the lines that it had before were perhaps
/// never looked at, because nothing obeyed them.
fn renamed<'a>(rename: &'a Rename, changes: &'a ChangeSet) -> Option<ShownFile<'a>> {
    let before = changes.changes.get(&rename.from)?.before.clone();
    let mut change = Change { before, after: changes.changes.get(&rename.to)?.after.clone() };
    let headline = rename_headline(rename, &change);
    let is_executable = |node: &Option<Node>| node.as_ref().is_some_and(Node::is_executable);
    let becomes_executable = is_executable(&change.after) && !is_executable(&change.before);
    let is_obeyed = |path: &TreePath| risks::is_obeyed_text(changes, path);
    if becomes_executable
        || is_obeyed(&rename.to)
        || scripts::ending(&rename.from) != scripts::ending(&rename.to)
    {
        change.before = None;
    }
    Some(ShownFile { changes, path: &rename.to, source: Some(&rename.from), headline, change })
}

/// `renamed a.rs → src/a.rs (97 % the same)`
fn rename_headline(rename: &Rename, change: &Change) -> String {
    let modes = modes(change).map(|modes| format!(", {modes}")).unwrap_or_default();
    format!("renamed {} → {} ({} % the same{modes})", rename.from, rename.to, rename.similarity)
}

fn write_change(out: &mut dyn Write, file: &ShownFile<'_>, store: &Store, paint: Paint) -> Result<()> {
    writeln!(out, "{}", paint.bold(&file.headline))?;
    let reviewed = file.reviewed();
    let (old, new) = reviewed.load(store)?;
    let texts = reviewed.texts(&old, &new, store);
    for remark in &texts.remarks {
        writeln!(out, "  ({remark})")?;
    }
    let (old, new) = (texts.old.unwrap_or_default(), texts.new.unwrap_or_default());
    let mut painter = Painter::new(file.path.as_path(), &old, &new, paint.color);
    let mut text = String::new();
    hunks::each(&old, &new, |line| {
        painter.line(line, &mut text);
        out.write_all(text.as_bytes())?;
        text.clear();
        Ok(())
    })?;
    painter.finish(&mut text);
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// A change in words alone: the line above its diff, and where a symlink leads.
pub fn in_words(path: &TreePath, change: &Change) -> String {
    match &change.after {
        Some(Node::Symlink { target }) => format!("{} → {}", headline(path, change), visible_name(&target.0)),
        _ => headline(path, change),
    }
}

/// The line above the diff of one file.
pub fn headline_text(path: &TreePath, change: &Change, color: bool) -> String {
    Paint { color }.bold(&headline(path, change)) + "\n"
}

/// `modified src/main.rs (mode 644 → 755)`
fn headline(path: &TreePath, change: &Change) -> String {
    let mut line = format!("{} {path}", verb(change));
    if let Some(modes) = modes(change) {
        line.push_str(&format!(" ({modes})"));
    } else if change.before.is_none() && change.after.as_ref().is_some_and(Node::is_executable) {
        line.push_str(" (executable)");
    }
    line
}

/// `mode 644 → 755`, where the permission bits of something that stays are part of the change; `file → symlink`, where it becomes
/// something else.
fn modes(change: &Change) -> Option<String> {
    let (before, after) = (change.before.as_ref()?, change.after.as_ref()?);
    if kind(before) != kind(after) {
        return Some(format!("{} → {}", kind(before), kind(after)));
    }
    let (old, new) = (before.mode()?, after.mode()?);
    (old != new).then(|| format!("mode {old:o} → {new:o}"))
}

fn kind(node: &Node) -> &'static str {
    match node {
        Node::File { .. } => "file",
        Node::Symlink { .. } => "symlink",
        Node::Directory { .. } => "directory",
    }
}

fn verb(change: &Change) -> &'static str {
    match (&change.before, &change.after) {
        (None, Some(Node::Symlink { .. })) => "new symlink",
        (None, Some(Node::Directory { .. })) => "new directory",
        (None, _) => "new file",
        (Some(Node::Symlink { .. }), None) => "deleted symlink",
        (Some(Node::Directory { .. }), None) => "deleted directory",
        (_, None) => "deleted",
        _ => "modified",
    }
}

/// Counts the lines of a file that were added and removed; `None` where it is not text, or too large to compare.
pub fn lines(
    changes: &ChangeSet,
    path: &TreePath,
    change: &Change,
    store: &Store,
) -> Result<Option<(u64, u64)>> {
    Reviewed::new(changes, path, change).lines(store)
}

/// Writes `agent diff --stat`: a line a file with the lines added and removed, and the sum.
pub fn write_stat(out: &mut dyn Write, changes: &ChangeSet, store: &Store) -> Result<()> {
    let (mut files, mut added, mut removed) = (0, 0, 0);
    let renames = renames::find(changes, store);
    let sources: BTreeSet<&TreePath> = renames.values().map(|rename| &rename.from).collect();
    let is_shown =
        |(path, change): &(&TreePath, &Change)| !change.is_directory_only() && !sources.contains(path);
    for (path, change) in changes.by_directory().filter(is_shown) {
        files += 1;
        if let Some(file) = renames.get(path).and_then(|rename| renamed(rename, changes)) {
            let (plus, minus) = file.reviewed().lines(store)?.unwrap_or_default();
            (added, removed) = (added + plus, removed + minus);
            let text = file.headline.strip_prefix("renamed ").unwrap_or(&file.headline);
            writeln!(out, "{:>7} {:>7}  {text}", format!("+{plus}"), format!("-{minus}"))?;
            continue;
        }
        let what = verb(change);
        let Some((plus, minus)) = lines(changes, path, change, store)? else {
            writeln!(out, "{:>7} {:>7}  {path} ({what})", "-", "-")?;
            continue;
        };
        added += plus;
        removed += minus;
        let note = match modes(change) {
            Some(modes) => format!(" ({modes})"),
            None if matches!(change.after, Some(Node::Symlink { .. })) && what == "modified" => {
                " (symlink)".to_owned()
            }
            None if what == "modified" => String::new(),
            None => format!(" ({what})"),
        };
        writeln!(out, "{:>7} {:>7}  {path}{note}", format!("+{plus}"), format!("-{minus}"))?;
    }
    let plural = |count| if count == 1 { "" } else { "s" };
    let (of_files, of_lines) = (plural(files), plural(added));
    writeln!(out, "{files} file{of_files} changed, {added} line{of_lines} added, {removed} removed")?;
    Ok(())
}

/// Writes `agent diff --name-only`: a path a line, escaped so that a line is one path.
pub fn write_names(out: &mut dyn Write, changes: &ChangeSet) -> Result<()> {
    for (path, _) in changes.by_directory().filter(|(_, change)| !change.is_directory_only()) {
        writeln!(out, "{path}")?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Paint {
    color: bool,
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }
}
