//! Writes a change set as a patch that `git apply` takes, binary files included.

use crate::changes::{Change, ChangeSet};
use crate::diff::Side;
use crate::manifest::Node;
use crate::store::{MAX_IN_MEMORY, Store};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_diff::hunks;
use sha1::{Digest, Sha1};
use std::io::Write;

/// Writes the patch. Empty directories and permission bits other than the executable one have no place in git's
/// format and are left out. What `on_left_out` gets is too large for a patch, or its content is not known any more; if it
/// returns an error, that is the end ([`refuse`]).
pub fn write(
    out: &mut dyn Write,
    changes: &ChangeSet,
    store: &Store,
    on_left_out: &mut dyn FnMut(&TreePath) -> Result<()>,
) -> Result<()> {
    let changes = changes.of_one_directory()?;
    for (path, change) in changes.changes.iter().filter(|(_, change)| !change.is_directory_only()) {
        let halves: Vec<Half> =
            halves(change).iter().map(|half| Half::load(half, store)).collect::<Result<_>>()?;
        // Half of a change would be worse than none of it.
        if halves.iter().any(Half::is_not_shown) {
            on_left_out(path)?;
            continue;
        }
        halves.iter().try_for_each(|half| half.write(out, path))?;
    }
    Ok(())
}

/// For a patch that has to be complete.
pub fn refuse(path: &TreePath) -> Result<()> {
    Err(Error::unexpected(format!(
        "{path} cannot be part of a patch: its content is too large or not known any more"
    ))
    .hint("name the other paths, or use `agent apply`"))
}

/// A change of kind (a file that becomes a symlink, a directory that becomes a file) is a deletion and an addition.
pub fn halves(change: &Change) -> Vec<Change> {
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if std::mem::discriminant(before) != std::mem::discriminant(after) => {
            vec![
                Change { before: change.before.clone(), after: None },
                Change { before: None, after: change.after.clone() },
            ]
        }
        _ => vec![change.clone()],
    }
}

/// A change that git has a form for, with its contents.
struct Half {
    old_mode: Option<&'static str>,
    new_mode: Option<&'static str>,
    old: Side,
    new: Side,
}

impl Half {
    fn load(change: &Change, store: &Store) -> Result<Self> {
        Ok(Self {
            old_mode: git_mode(&change.before),
            new_mode: git_mode(&change.after),
            old: Side::load(change.before.as_ref(), store, MAX_IN_MEMORY)?,
            new: Side::load(change.after.as_ref(), store, MAX_IN_MEMORY)?,
        })
    }

    fn is_not_shown(&self) -> bool {
        self.old == Side::NotShown || self.new == Side::NotShown
    }

    fn write(&self, out: &mut dyn Write, path: &TreePath) -> Result<()> {
        let Self { old_mode, new_mode, old, new } = self;
        if old_mode.is_none() && new_mode.is_none() || old == new && old_mode == new_mode {
            return Ok(());
        }
        let (a, b) = (quoted(b"a/", path), quoted(b"b/", path));
        out.write_all(&[b"diff --git ", a.as_slice(), b" ", &b, b"\n"].concat())?;
        match (old_mode, new_mode) {
            (None, Some(mode)) => writeln!(out, "new file mode {mode}")?,
            (Some(mode), None) => writeln!(out, "deleted file mode {mode}")?,
            (Some(old), Some(new)) if old != new => writeln!(out, "old mode {old}\nnew mode {new}")?,
            _ => {}
        }
        if old == new {
            return Ok(());
        }
        let mode = match (old_mode, new_mode) {
            (Some(old), Some(new)) if old == new => format!(" {old}"),
            _ => String::new(),
        };
        writeln!(out, "index {}..{}{mode}", blob_id(old), blob_id(new))?;
        let (old_bytes, new_bytes) = (content(old), content(new));
        if old.is_binary() || new.is_binary() {
            write_binary(out, old_bytes, new_bytes)
        } else if old_bytes != new_bytes {
            write_text(out, path, old, new)
        } else {
            Ok(())
        }
    }
}

fn write_text(out: &mut dyn Write, path: &TreePath, old: &Side, new: &Side) -> Result<()> {
    let name = |side: &Side, prefix: &[u8]| match side {
        Side::Absent => b"/dev/null".to_vec(),
        // git closes a name that holds a space with a tab, so that it is not taken for a name and a date.
        _ if path.as_bytes().contains(&b' ') => [quoted(prefix, path).as_slice(), b"\t"].concat(),
        _ => quoted(prefix, path),
    };
    out.write_all(&[b"--- ", name(old, b"a/").as_slice(), b"\n+++ ", &name(new, b"b/"), b"\n"].concat())?;
    hunks::each(content(old), content(new), |line| {
        let mark: &[u8] = match line.kind {
            hunks::Kind::Header => b"",
            hunks::Kind::Context => b" ",
            hunks::Kind::Removed => b"-",
            hunks::Kind::Added => b"+",
            hunks::Kind::NoNewline => b"\\ No newline at end of file",
        };
        out.write_all(&[mark, line.text, b"\n"].concat())
    })?;
    Ok(())
}

fn content(side: &Side) -> &[u8] {
    if let Side::Content(content) = side { content } else { b"" }
}

/// The modes that git knows; `None` where there is no file.
fn git_mode(node: &Option<Node>) -> Option<&'static str> {
    match node {
        Some(Node::File { mode, .. }) if mode & 0o100 != 0 => Some("100755"),
        Some(Node::File { .. }) => Some("100644"),
        Some(Node::Symlink { .. }) => Some("120000"),
        Some(Node::Directory { .. }) | None => None,
    }
}

/// git's name of a content: SHA-1 over `blob SIZE NUL CONTENT`. `git apply` wants it whole for binary files.
fn blob_id(side: &Side) -> String {
    let Side::Content(content) = side else { return "0".repeat(40) };
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", content.len()));
    hasher.update(content);
    hex::encode(hasher.finalize())
}

/// The name as git writes it: as it is, or in double quotes with C escapes (`quote_c_style` in quote.c).
fn quoted(prefix: &[u8], path: &TreePath) -> Vec<u8> {
    let name = [prefix, path.as_bytes()].concat();
    let is_plain = |b: u8| (0x20..0x7f).contains(&b) && b != b'"' && b != b'\\';
    if name.iter().all(|&b| is_plain(b)) {
        return name;
    }
    let mut quoted = vec![b'"'];
    for b in name {
        match b {
            b'"' | b'\\' => quoted.extend([b'\\', b]),
            b if is_plain(b) => quoted.push(b),
            b => quoted.extend(format!("\\{b:03o}").into_bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

/// git's `GIT binary patch`: the new content, then the old one, so that it can be taken back.
fn write_binary(out: &mut dyn Write, old: &[u8], new: &[u8]) -> Result<()> {
    writeln!(out, "GIT binary patch")?;
    for content in [new, old] {
        writeln!(out, "literal {}", content.len())?;
        // Lines of at most 52 bytes, each with a letter that says how many: A to Z for 1 to 26, a to z for 27 to 52.
        for line in zlib_stored(content).chunks(52) {
            let length = line.len() as u8;
            let letter = if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 };
            out.write_all(&[&[letter], base85(line).as_slice(), b"\n"].concat())?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A zlib stream (RFC 1950) of stored blocks (RFC 1951, 3.2.4): no compression, no library, valid everywhere.
fn zlib_stored(content: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let blocks = content.chunks(0xffff).collect::<Vec<_>>();
    for (index, block) in blocks.iter().enumerate() {
        let length = block.len() as u16;
        stream.push(u8::from(index + 1 == blocks.len()));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend_from_slice(block);
    }
    if blocks.is_empty() {
        stream.extend([1, 0, 0, 0xff, 0xff]);
    }
    stream.extend(adler32(content).to_be_bytes());
    stream
}

fn adler32(content: &[u8]) -> u32 {
    let (a, b) = content.iter().fold((1u32, 0u32), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65521;
        (a, (b + a) % 65521)
    });
    b << 16 | a
}

/// git's base 85 (base85.c): four bytes, most significant first, become five letters; the last group is padded.
fn base85(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 85] =
        b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(4) * 5);
    for group in bytes.chunks(4) {
        let mut padded = [0; 4];
        padded[..group.len()].copy_from_slice(group);
        let mut number = u32::from_be_bytes(padded);
        let mut letters = [0; 5];
        for letter in letters.iter_mut().rev() {
            *letter = LETTERS[(number % 85) as usize];
            number /= 85;
        }
        text.extend(letters);
    }
    text
}
