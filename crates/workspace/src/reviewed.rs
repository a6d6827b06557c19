//! What a review shows of a file's change. Each side is shown where it can be, whatever the other one is.

use crate::changes::{Change, ChangeSet};
use crate::diff::{MAX_SHOWN, Side};
use crate::manifest::Node;
use crate::scripts::{self, NamedFile};
use crate::store::{MAX_IN_MEMORY, Store};
use crate::tree_path::TreePath;
use agent_base::error::Result;
use agent_base::hash::Hash;
use agent_base::text_encoding::Encoding;
use agent_diff::hunks;
use std::borrow::Cow;
use std::collections::HashMap;

/// What is said of a file that is hidden because of its length alone.
const OF_NO_FORMAT: &str =
    ", of no format that is known: a program may read lines of it (`agent exec -- cat -v FILE` shows them)";

/// A change of one file under review.
#[derive(Clone, Copy)]
pub struct Reviewed<'a> {
    /// All changes: their hooks and symlinks say under which names programs find the file.
    pub changes: &'a ChangeSet,
    /// The path of the file.
    pub path: &'a TreePath,
    /// The path that it had before.
    pub former: &'a TreePath,
    /// What changed.
    pub change: &'a Change,
}

/// The sides of a change as a review shows them.
pub struct Texts<'a> {
    /// In UTF-8; `None` where it is not shown. Of a file that is not there it is empty.
    pub old: Option<Cow<'a, [u8]>>,
    /// The same of the new side.
    pub new: Option<Cow<'a, [u8]>>,
    /// Sentences about what is not shown, and about the encoding where it is another one.
    pub remarks: Vec<String>,
}

impl<'a> Reviewed<'a> {
    /// The change of a file that keeps its name.
    pub fn new(changes: &'a ChangeSet, path: &'a TreePath, change: &'a Change) -> Self {
        Self { changes, path, former: path, change }
    }

    pub(crate) fn before(&self) -> NamedFile<'a> {
        NamedFile { changes: self.changes, path: self.former, node: self.change.before.as_ref() }
    }

    pub(crate) fn after(&self) -> NamedFile<'a> {
        NamedFile { changes: self.changes, path: self.path, node: self.change.after.as_ref() }
    }

    /// Reads both sides. Of what no patch can have, because the former content is not known or too large for it, the new side is read
    /// as far as a patch would have it.
    pub fn load(&self, store: &Store) -> Result<(Side, Side)> {
        let Change { before, after } = self.change;
        let is_in_patch = is_in_patch(before.as_ref(), store);
        let most = if is_in_patch { MAX_SHOWN } else { MAX_IN_MEMORY };
        Ok((Side::load(before.as_ref(), store, MAX_SHOWN)?, Side::load(after.as_ref(), store, most)?))
    }

    /// Counts the lines that were added and removed; `None` where the new side is not shown.
    pub fn lines(&self, store: &Store) -> Result<Option<(u64, u64)>> {
        let (old, new) = self.load(store)?;
        Ok(match self.texts(&old, &new, store) {
            Texts { old: None, .. } if new == Side::Absent => None,
            Texts { new: None, .. } => None,
            Texts { old, new, .. } => Some(hunks::count(&old.unwrap_or_default(), &new.unwrap_or_default())),
        })
    }

    /// The sides `old` and `new` of it as a review shows them.
    pub fn texts<'s>(&self, old: &'s Side, new: &'s Side, store: &Store) -> Texts<'s> {
        let was_text = matches!(old, Side::Content(bytes) if !bytes.is_empty()) && !old.is_unreadable();
        // Nothing reads what is removed.
        let is_removed = self.change.after.is_none() && old.is_unreadable();
        let old_text = match old {
            Side::NotShown => None,
            // Alone it would look removed.
            _ if is_removed || *new == Side::NotShown => None,
            side => side.as_shown(self.before(), None),
        };
        let like = old_text.as_ref().map(|(encoding, _)| *encoding).filter(|encoding| !encoding.is_plain());
        let new_text = match new {
            Side::NotShown => None,
            // What was text is shown as text, unless it is data now.
            side => side.as_shown(self.after(), like).or_else(|| {
                let is_text = was_text && !scripts::is_of_known_format(self.after(), side);
                is_text.then(|| side.read(like))
            }),
        };
        let (old_text, new_text) = match (old_text, new_text) {
            (Some(of_old), Some(of_new)) if hides_change((old, &of_old), (new, &of_new)) => {
                (Some(old.undecoded()), Some(new.undecoded()))
            }
            texts => texts,
        };
        let of_old = old_text.as_ref().filter(|_| *old != Side::Absent).map(|(encoding, _)| *encoding);
        let of_new = new_text.as_ref().filter(|_| *new != Side::Absent);
        let of_new = of_new.map(|(encoding, text)| (*encoding, hidden(*encoding, new.bytes(), text)));
        let mut remarks: Vec<String> = encodings(of_old, of_new).into_iter().collect();
        let is_hidden = (old_text.is_none(), new_text.is_none());
        remarks.extend(self.why_hidden(is_hidden, (old, new), store));
        Texts { old: old_text.map(|(_, text)| text), new: new_text.map(|(_, text)| text), remarks }
    }

    /// Sentences about the sides that are not shown.
    fn why_hidden(
        &self,
        (is_old_hidden, is_new_hidden): (bool, bool),
        (old, new): (&Side, &Side),
        store: &Store,
    ) -> Vec<String> {
        let Change { before, after } = self.change;
        let is_known = |node: &Option<Node>| is_known(node.as_ref(), store);
        let place = match is_in_patch(before.as_ref(), store) && is_in_patch(after.as_ref(), store) {
            true => ": `agent diff --patch` has it",
            false => ", and for a patch",
        };
        let mut remarks = Vec::new();
        if is_old_hidden && !is_known(before) {
            remarks.push("the former content is not known any more".to_owned());
        }
        if is_new_hidden && !is_known(after) {
            remarks.push("the new content is not known any more".to_owned());
        }
        let is_shown_as_new = is_old_hidden && !is_new_hidden && *new != Side::Absent;
        match (old, new) {
            (Side::Content(bytes), _) if is_shown_as_new => {
                remarks.push(format!("the former content is binary, {} bytes", bytes.len()));
            }
            (Side::NotShown, _) if is_shown_as_new && is_known(before) => {
                remarks.push(format!("the former content is too large to show{place}"));
            }
            (_, Side::Content(_)) if is_new_hidden && scripts::is_of_known_format(self.after(), new) => {
                remarks.push(self.binary());
            }
            (_, Side::Content(_)) if is_new_hidden => remarks.push(self.binary() + OF_NO_FORMAT),
            (Side::Content(_), Side::Absent) if is_old_hidden => remarks.push(self.binary()),
            (_, Side::NotShown) if is_known(after) => remarks.push(format!("too large to show{place}")),
            (Side::NotShown, Side::Absent) if is_known(before) => {
                remarks.push(format!("too large to show{place}"));
            }
            _ => {}
        }
        remarks
    }

    fn binary(&self) -> String {
        let size = |node: &Option<Node>| match node {
            Some(Node::File { size, .. }) => *size,
            _ => 0,
        };
        format!("binary, {} → {} bytes", size(&self.change.before), size(&self.change.after))
    }
}

/// A side of a change with the encoding in which it would be shown, and its text.
type Decoded<'a> = (&'a Side, &'a (Encoding, Cow<'a, [u8]>));

/// Returns whether two texts would hide a change of bytes, or would differ where the bytes are the same: one side is shown by its bytes and
/// the other one is not, both have the same text, or a line of text stands for several lines of bytes, as with characters that an encoding
/// has twice.
fn hides_change((old, of_old): Decoded<'_>, (new, of_new): Decoded<'_>) -> bool {
    let ((old_encoding, old_text), (new_encoding, new_text)) = (of_old, of_new);
    if old.bytes() == new.bytes() || *old == Side::Absent || *new == Side::Absent {
        return false;
    }
    let is_utf8 = |text: &[u8]| std::str::from_utf8(text).is_ok();
    let is_half =
        is_utf8(old_text) != is_utf8(new_text) && !(old_encoding.is_utf8() && new_encoding.is_utf8());
    if is_half || old_text == new_text {
        return true;
    }
    let mut bytes_of = HashMap::new();
    [(old, old_encoding, old_text), (new, new_encoding, new_text)].into_iter().any(
        |(side, encoding, text)| {
            let (lines, texts) = (encoding.lines(side.bytes()), hunks::lines(text));
            let mut pairs = texts.iter().zip(&lines);
            let is_same = old_encoding == new_encoding && !old_encoding.is_utf8();
            is_same
                && (lines.len() != texts.len()
                    || pairs.any(|(text, line)| *bytes_of.entry(text.to_vec()).or_insert(*line) != *line))
        },
    )
}

/// Returns whether the content of a side is there.
fn is_known(node: Option<&Node>, store: &Store) -> bool {
    match node {
        Some(Node::File { hash, .. }) => *hash != Hash::UNKNOWN && store.contains(*hash),
        _ => true,
    }
}

/// Returns whether a patch can have a side.
fn is_in_patch(node: Option<&Node>, store: &Store) -> bool {
    let is_large = matches!(node, Some(Node::File { size, .. }) if *size > MAX_IN_MEMORY);
    !is_large && is_known(node, store)
}

/// The remark about the encodings of the sides that are shown, of the new one with what it hides; `None` for UTF-8.
fn encodings(old: Option<Encoding>, new: Option<(Encoding, Option<String>)>) -> Option<String> {
    let (new, hidden) = new.map_or((None, None), |(new, hidden)| (Some(new), hidden));
    let named = match (old, new) {
        (Some(old), Some(new)) if old != new => format!("{old} → {new}"),
        (old, new) => new.or(old).filter(|encoding| !encoding.is_plain())?.to_string(),
    };
    let hidden = hidden.map(|hidden| {
        format!("; a program that does not know the encoding reads {hidden} in its characters")
    });
    Some(format!("{named}, shown as UTF-8{}", hidden.unwrap_or_default()))
}

/// The number of each byte of ASCII.
fn count_ascii(bytes: &[u8]) -> [usize; 128] {
    let mut counts = [0; 128];
    for byte in bytes.iter().filter(|byte| byte.is_ascii()) {
        counts[usize::from(*byte)] += 1;
    }
    counts
}

/// The bytes that stand for themselves in ASCII and that are parts of other characters in the text.
fn hidden_ascii(bytes: &[u8], text: &[u8]) -> impl Iterator<Item = u8> {
    let (in_bytes, in_text) = (count_ascii(bytes), count_ascii(text));
    let is_hidden = move |byte: &u8| in_bytes[usize::from(*byte)] > in_text[usize::from(*byte)];
    (b' '..=b'~').chain([b'\n']).filter(is_hidden)
}

/// Returns whether there are such bytes.
pub(crate) fn hides_ascii(bytes: &[u8], text: &[u8]) -> bool {
    hidden_ascii(bytes, text).next().is_some()
}

/// Such bytes in words: the signs that a shell or a compiler obeys, as in Shift_JIS (`ポ` ends in `|`), and where whole words may be other
/// characters, the letters and line feeds.
fn hidden(encoding: Encoding, bytes: &[u8], text: &[u8]) -> Option<String> {
    let hidden: Vec<u8> = hidden_ascii(bytes, text).collect();
    let signs = hidden.iter().filter(|byte| byte.is_ascii_punctuation());
    let mut words: Vec<String> = signs.map(|sign| char::from(*sign).to_string()).collect();
    if encoding.hides_words() {
        let mut add = |name: &str, is_hidden: bool| words.extend(is_hidden.then(|| name.to_owned()));
        add("letters", hidden.iter().any(u8::is_ascii_alphabetic));
        add("digits", hidden.iter().any(u8::is_ascii_digit));
        add("line feeds", hidden.contains(&b'\n'));
    }
    (!words.is_empty()).then(|| words.join(" "))
}
