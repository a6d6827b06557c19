//! A path inside the workspace that is safe to use on the host.
//!
//! Names come from the sandbox, and nothing from the sandbox is trusted: [`TreePath`] can only be made through
//! the strict filter here, so whatever takes a `TreePath` need not ask again whether it leads out of the tree.

use memchr::{memchr_iter, memchr2, memrchr};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Longest path in bytes (`PATH_MAX` on Linux, with its closing NUL).
pub const MAX_PATH: usize = 4095;
/// Longest name in bytes (`NAME_MAX` on the usual file systems).
pub const MAX_NAME: usize = 255;
/// Deepest nesting of directories.
pub const MAX_DEPTH: usize = 128;

/// A relative path of plain names: not empty, no `.` or `..`, no empty name, no NUL, bounded in length and depth.
///
/// Orders by bytes, a directory before what is in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Arc<[u8]>);

impl TreePath {
    /// Takes bytes that claim to be a path in the tree. The error is a reason to show beside the name.
    pub fn new(bytes: &[u8]) -> Result<Self, &'static str> {
        match bytes {
            [] => return Err("its name is empty"),
            [b'/', ..] => return Err("its name is absolute"),
            _ if bytes.len() > MAX_PATH => return Err(TOO_LONG),
            _ => {}
        }
        let mut depth = 0;
        for name in bytes.split(|&b| b == b'/') {
            depth += 1;
            check_name(name)?;
        }
        if depth > MAX_DEPTH { Err(TOO_DEEP) } else { Ok(Self(bytes.into())) }
    }

    /// The path of `name` in this directory. The error is a reason to show beside it.
    pub fn join(&self, name: &[u8]) -> Result<Self, &'static str> {
        // What is valid already is not looked at again: that counts in large trees.
        check_name(name)?;
        let path = [self.as_bytes(), b"/", name].concat();
        match memchr_iter(b'/', &path).count() + 1 {
            _ if path.len() > MAX_PATH => Err(TOO_LONG),
            depth if depth > MAX_DEPTH => Err(TOO_DEEP),
            _ => Ok(Self(path.into())),
        }
    }

    /// The path as the file system takes it.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes of the directory that holds it; empty at the top.
    pub fn parent_bytes(&self) -> &[u8] {
        &self.0[..memrchr(b'/', &self.0).unwrap_or(0)]
    }

    /// The names, outermost first. Never empty.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/')
    }

    /// The directory that holds it; `None` at the top.
    pub fn parent(&self) -> Option<TreePath> {
        let end = memrchr(b'/', &self.0)?;
        Some(Self(self.0[..end].into()))
    }

    /// The directories above it, innermost first.
    pub fn ancestors(&self) -> impl Iterator<Item = TreePath> {
        std::iter::successors(self.parent(), TreePath::parent)
    }

    /// The last name.
    pub fn name(&self) -> &[u8] {
        let start = memrchr(b'/', &self.0).map_or(0, |slash| slash + 1);
        &self.0[start..]
    }

    /// Whether it is `directory` or lies below it.
    pub fn is_within(&self, directory: &[u8]) -> bool {
        match self.0.strip_prefix(directory) {
            Some(rest) => rest.is_empty() || rest[0] == b'/',
            None => false,
        }
    }

    /// Whether it belongs to git's own administration: `.git` or anything below one, at any depth.
    ///
    /// Hooks, configuration, alternates and `gitdir` files there make git run programs or read elsewhere, so
    /// nothing of it is ever written to the host. The spellings that case-insensitive and normalising file systems
    /// take for `.git` count too (those that git itself refuses under `core.protectHFS` and `core.protectNTFS`).
    pub fn is_git_internal(&self) -> bool {
        self.names().any(is_dot_git)
    }
}

const TOO_LONG: &str = "its name is too long";
const TOO_DEEP: &str = "it is nested too deeply";

/// Refuses what is not a plain name.
fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" | b"." | b".." => Err("its name is not a plain relative path"),
        _ if name.len() > MAX_NAME => Err(TOO_LONG),
        _ => match memchr2(0, b'/', name).map(|at| name[at]) {
            Some(0) => Err("its name holds a NUL byte"),
            Some(_) => Err("its name is not a plain relative path"),
            None => Ok(()),
        },
    }
}

fn is_dot_git(name: &[u8]) -> bool {
    if name.eq_ignore_ascii_case(b".git") || name.eq_ignore_ascii_case(b"git~1") {
        return true;
    }
    // No other spelling begins with another ASCII character, and most names are ruled out by this.
    if name.first().is_some_and(|first| first.is_ascii() && *first != b'.') {
        return false;
    }
    // NTFS drops trailing dots and spaces and takes `:` for a stream; HFS+ ignores these code points.
    let Ok(text) = std::str::from_utf8(name) else { return false };
    let ignored = |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let plain: String = text.chars().filter(|&c| !ignored(c)).collect();
    let plain = plain.split(':').next().unwrap_or_default();
    plain.trim_end_matches(['.', ' ']).eq_ignore_ascii_case(".git")
}

impl Borrow<[u8]> for TreePath {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for TreePath {
    /// Safe to show: what is not a printable character is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreePath({self})")
    }
}

/// Bytes of a name as text that can be shown anywhere: control characters, backslashes, bidirectional overrides
/// and bytes that are not UTF-8 are escaped.
pub fn printable(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str("\\\\"),
                _ if is_deceptive(c) => shown.extend(c.escape_default()),
                _ => shown.push(c),
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// Characters that a terminal obeys instead of showing, or that reorder or hide the text around them.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// In JSON a path is a string in which `%` and bytes that are not UTF-8 are written as `%XX`.
impl Serialize for TreePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_text(&self.0))
    }
}

impl<'de> Deserialize<'de> for TreePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = from_text(&text).ok_or_else(|| D::Error::custom("a path has a broken escape"))?;
        Self::new(&bytes).map_err(D::Error::custom)
    }
}

/// Any bytes as JSON-ready text: `%` and what is not UTF-8 as `%XX`.
pub fn to_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The reverse of [`to_text`].
pub fn from_text(text: &str) -> Option<Vec<u8>> {
    let mut pieces = text.as_bytes().split(|&b| b == b'%');
    let mut bytes = pieces.next().unwrap_or_default().to_vec();
    for piece in pieces {
        let digits = std::str::from_utf8(piece.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&piece[2..]);
    }
    Some(bytes)
}
