//! A path inside the workspace that is safe to use on the host.
//!
//! Names come from the sandbox, and nothing from the sandbox is trusted: [`TreePath`] can only be made through
//! the strict filter here, so whatever takes a `TreePath` need not ask again whether it leads out of the tree.

use agent_base::visible::{is_ignorable, visible_name};
use memchr::{memchr_iter, memchr2, memrchr};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::borrow::{Borrow, Cow};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use unicode_normalization::UnicodeNormalization;

/// Longest path in bytes (`PATH_MAX` on Linux, with its closing NUL).
pub const MAX_PATH: usize = 4095;
/// Longest name in bytes (`NAME_MAX` on the usual file systems).
pub const MAX_NAME: usize = 255;
/// Deepest nesting of directories.
pub const MAX_DEPTH: usize = 128;

/// A relative path of plain names: not empty, no `.` or `..`, no empty name, no NUL, bounded in length and depth. Where several
/// directories are reviewed together, those in the others are absolute ([`TreePath::outside`]); nothing is written by such a path.
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

    /// The path `path` of the directory `root` beside the workspace.
    pub fn outside(root: &Path, path: &TreePath) -> Self {
        Self([root.as_os_str().as_bytes(), b"/", path.as_bytes()].concat().into())
    }

    /// Returns whether it is in another directory than the workspace.
    pub fn is_outside(&self) -> bool {
        self.0.first() == Some(&b'/')
    }

    /// The path relative to the directory `root` beside the workspace, where it is in that.
    pub fn below(&self, root: &Path) -> Option<Self> {
        let below = self.0.strip_prefix(root.as_os_str().as_bytes())?.strip_prefix(b"/")?;
        Some(Self(below.into()))
    }

    /// A path as it was recorded, which may be in another directory than the workspace.
    fn recorded(bytes: &[u8]) -> Result<Self, &'static str> {
        match bytes.strip_prefix(b"/") {
            Some(below) => Self::new(below).map(|_| Self(bytes.into())),
            None => Self::new(bytes),
        }
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
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        self.0.split(|&b| b == b'/')
    }

    /// The directory that holds it; `None` at the top.
    pub fn parent(&self) -> Option<TreePath> {
        let end = memrchr(b'/', &self.0).filter(|end| *end > 0)?;
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

    /// Returns whether it is `directory` or lies below it.
    pub fn is_within(&self, directory: &[u8]) -> bool {
        match self.0.strip_prefix(directory) {
            Some(rest) => rest.is_empty() || rest[0] == b'/',
            None => false,
        }
    }

    /// Returns whether it belongs to git's own administration: `.git` or anything below one, at any depth.
    ///
    /// Hooks, configuration, alternates and `gitdir` files there make git run programs or read elsewhere, so
    /// nothing of it is ever written to the host. The spellings that case-insensitive and normalising file systems
    /// take for `.git` count too (those that git itself refuses under `core.protectHFS` and `core.protectNTFS`).
    pub fn is_git_internal(&self) -> bool {
        names_git(&self.0)
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

/// The names that git itself refuses as `.git`: `is_ntfs_dotgit` in its path.c and `is_hfs_dotgit` in its utf8.c, together and for
/// each part between backslashes, which separate names where the tree is checked out on Windows (`verify_path` in read-cache.c).
///
/// Git ignores sixteen code points, those of HFS+. In directories of ext4 and f2fs that take no notice of case, Linux ignores all that
/// Unicode has programs ignore, which those sixteen are part of.
pub fn is_dot_git(name: &[u8]) -> bool {
    // Most names are ruled out by their first character.
    let may_be = name.first().is_some_and(|first| matches!(first, b'.' | b'g' | b'G') || !first.is_ascii());
    if !may_be && !name.contains(&b'\\') {
        return false;
    }
    without_ignorable(name).split(|&b| b == b'\\').any(is_ntfs_dot_git)
}

/// A name or path as a file system has it that takes no notice of what Unicode has programs ignore.
pub fn without_ignorable(name: &[u8]) -> Cow<'_, [u8]> {
    if name.is_ascii() {
        return Cow::Borrowed(name);
    }
    let mut plain = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        plain.extend(chunk.valid().chars().filter(|c| !is_ignorable(*c)).collect::<String>().bytes());
        plain.extend(chunk.invalid());
    }
    Cow::Owned(plain)
}

/// A name or path as file systems compare it that take no notice of case: `ſ` is an `s` to them, and `ﬁ` is `fi`. In small letters.
pub fn folded(name: &[u8]) -> Vec<u8> {
    match name.is_ascii() {
        true => name.to_ascii_lowercase(),
        false => {
            let plain = String::from_utf8_lossy(&without_ignorable(name)).nfkc().collect::<String>();
            // Small letters of some capitals are made of several characters: what is compared here is none of them.
            plain.to_lowercase().into_bytes()
        }
    }
}

/// `.git`, or its short name, with what NTFS drops behind it: dots and spaces, and the name of a stream.
fn is_ntfs_dot_git(name: &[u8]) -> bool {
    let rest = [&b".git"[..], b"git~1"].into_iter().find_map(|known| {
        let (start, rest) = name.split_at_checked(known.len())?;
        start.eq_ignore_ascii_case(known).then_some(rest)
    });
    let end = rest.and_then(|rest| rest.iter().find(|byte| !matches!(byte, b'.' | b' ')));
    rest.is_some() && end.is_none_or(|byte| *byte == b':')
}

impl Borrow<[u8]> for TreePath {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for TreePath {
    /// Safe to show: what is not a printable character is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible_name(&self.0))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreePath({self})")
    }
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
        Self::recorded(&bytes).map_err(D::Error::custom)
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

/// Returns whether bytes with slashes between names have one that is taken for `.git`.
pub(crate) fn names_git(path: &[u8]) -> bool {
    path.split(|&b| b == b'/').any(is_dot_git)
}

#[cfg(test)]
mod tests {
    use super::TreePath;

    /// `git~1.`, `.git\config` and others were applied. The names are those of git's tests t1014 and t0060, and of its rules.
    #[test]
    fn every_spelling_of_dot_git_that_git_refuses_is_one() {
        let refused = [
            ".git",
            ".GIT",
            ".gIt",
            "git~1",
            "GIT~1",
            "git~1.",
            "git~1 ",
            "GIT~1. .",
            "git~1:stream",
            "git~1::$INDEX_ALLOCATION",
            ".git.",
            ".git ",
            ".git. . ",
            ".git...:alternate-stream",
            ".git::$INDEX_ALLOCATION",
            ".git:x",
            "\u{200c}.Git",
            ".gI\u{200c}T",
            ".GiT\u{200c}",
            "\u{feff}.git",
            ".g\u{202e}it",
            "g\u{200d}it~1",
            ".gi\u{34f}t",
            ".g\u{ad}it",
            ".git\u{fe0f}",
            "\u{e0001}.git",
            ".\u{180e}GIT",
            ".git\\config",
            ".GIT\\hooks\\pre-commit",
            ".\\.GIT\\foobar",
            "a\\.git",
            "a\\git~1\\config",
            "x\\.git . \\config",
        ];
        for name in refused {
            for path in [name.to_owned(), format!("sub/{name}"), format!("{name}/config")] {
                let path = TreePath::new(path.as_bytes()).expect("a path");
                assert!(path.is_git_internal(), "{path}");
            }
        }
        let allowed = [
            ".gitignore",
            ".github",
            ".git-x",
            "git",
            "git~2",
            "git~10",
            "..git",
            " .git",
            ".gitx.",
            "x.git",
            "a\\git",
            ".git\u{e9}",
            "git~1x",
            ".git x",
        ];
        for name in allowed {
            assert!(!TreePath::new(name.as_bytes()).expect("a path").is_git_internal(), "{name:?}");
        }
    }
}
