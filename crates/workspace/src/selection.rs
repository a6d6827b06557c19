//! The parts of the host directory that the sandbox gets, and those that it does not, with the reasons.

use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use rustix::fs::Stat;
use std::collections::BTreeMap;

/// Most paths that a workspace may have.
pub const MAX_PATHS: usize = 1_000_000;

/// The paths that are copied, those that are left out, and why.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Every path that is picked, in order.
    pub picked: Vec<(TreePath, Picked)>,
    /// Paths that are left out although git would not ignore them.
    pub left_out: BTreeMap<TreePath, LeftOut>,
    /// Paths that git ignores, without what is picked of them, each directory as one path.
    pub ignored: Vec<TreePath>,
    /// Paths that the sandbox does not see of the tree although it may see what git ignores.
    pub hidden: Vec<TreePath>,
    /// Paths of [`Selection::ignored`] that are never shown, and why. Known only where that was asked for.
    pub withheld: BTreeMap<TreePath, LeftOut>,
    /// Bytes of all picked files.
    pub bytes: u64,
    /// Picked files that look like secrets: git tracks them.
    pub secrets_tracked: Vec<TreePath>,
    /// Set if some ignore rules are not used because there are too many.
    pub has_too_many_rules: bool,
}

impl Selection {
    /// Returns what was picked at `path`.
    pub fn get(&self, path: &[u8]) -> Option<&Picked> {
        let at = self.picked.binary_search_by(|(other, _)| other.as_bytes().cmp(path)).ok()?;
        Some(&self.picked[at].1)
    }

    /// Counts the bytes, and refuses a selection that is too large.
    pub(super) fn finish(mut self, max_total_bytes: u64) -> Result<Self> {
        const HINT: &str = "name a smaller directory with -C, or leave parts out with --exclude";
        if self.picked.len() > MAX_PATHS {
            return Err(Error::usage(format!("the workspace has more than {MAX_PATHS} files")).hint(HINT));
        }
        let files = self.picked.iter().filter(|(_, picked)| picked.kind == PickedKind::File);
        self.bytes = files.map(|(_, picked)| picked.stamp.size).sum();
        if self.bytes > max_total_bytes {
            let (megabytes, limit) = (self.bytes >> 20, max_total_bytes >> 20);
            let message = format!("the workspace holds {megabytes} MB, more than the limit of {limit} MB");
            return Err(Error::usage(message).hint(HINT));
        }
        Ok(self)
    }
}

/// A path that is picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picked {
    /// Its kind.
    pub kind: PickedKind,
    /// Permission bits.
    pub mode: u32,
    /// Its stamp when it was picked.
    pub stamp: Stamp,
    /// The user it belongs to.
    pub uid: u32,
    /// The file system it lies on.
    pub device: u64,
}

/// The kind of a picked path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PickedKind {
    /// A regular file.
    File,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// A directory.
    Directory,
}

/// Enough of a file's metadata to tell whether it was written to since. The change time cannot be set by programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stamp {
    /// Bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Change time in nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Inode number.
    pub inode: u64,
}

// The widths of these fields differ between systems.
#[allow(clippy::unnecessary_cast)]
impl From<&Stat> for Stamp {
    fn from(stat: &Stat) -> Self {
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        Self {
            size: stat.st_size as u64,
            mtime_ns: ns(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime_ns: ns(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            inode: stat.st_ino as u64,
        }
    }
}

/// The reason why something is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// It holds a secret.
    Secret,
    /// It is larger than the limit.
    Huge,
    /// Most of it is holes.
    Sparse,
    /// A device, FIFO or socket.
    Special,
    /// It could not be looked at.
    Unreadable,
    /// A directory whose content is nested deeper than a path may be; the directory itself is picked.
    TooDeep,
    /// Matched by `--exclude`.
    Excluded,
    /// Part of a `.git` directory, and nothing that git needs.
    UnneededByGit,
    /// An ignored directory beyond the number of files that are looked at.
    TooMany,
}

impl LeftOut {
    /// The reason in words, to stand after "left out".
    pub fn reason(self) -> &'static str {
        match self {
            LeftOut::Secret => "secret",
            LeftOut::Huge => "too large",
            LeftOut::Sparse => "sparse",
            LeftOut::Special => "not a regular file",
            LeftOut::Unreadable => "cannot be read",
            LeftOut::TooDeep => "nested too deeply",
            LeftOut::Excluded => "excluded",
            LeftOut::UnneededByGit => "git does not need it",
            LeftOut::TooMany => "too many files",
        }
    }
}
