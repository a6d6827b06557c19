//! The entries of a tree: each path with its kind, mode and the hash of its content.

use crate::tree_path::{self, TreePath, from_text, to_text};
use agent_base::hash::Hash;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::collections::BTreeMap;

/// A tree: every path with what is there.
pub type Manifest = BTreeMap<TreePath, Node>;

/// Differences from another tree: `None` where that tree has something and this one has not.
pub type Delta = BTreeMap<TreePath, Option<Node>>;

/// An entry at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Node {
    /// A regular file.
    File {
        /// SHA-256 of the content, or [`Hash::UNKNOWN`].
        hash: Hash,
        /// Bytes.
        size: u64,
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link; never followed.
    Symlink {
        /// The target, as it is written in the link.
        target: Target,
    },
    /// A directory.
    Directory {
        /// Permission bits.
        mode: u32,
    },
}

impl Node {
    /// Returns whether it is a file that somebody may execute.
    pub fn is_executable(&self) -> bool {
        matches!(self, Node::File { mode, .. } if mode & 0o111 != 0)
    }

    /// Returns whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Node::Directory { .. })
    }

    /// The permission bits; a symlink has none of its own.
    pub fn mode(&self) -> Option<u32> {
        match self {
            Node::File { mode, .. } | Node::Directory { mode } => Some(*mode),
            Node::Symlink { .. } => None,
        }
    }

    /// The same thing with other permission bits.
    pub fn with_mode(mut self, new: u32) -> Self {
        if let Node::File { mode, .. } | Node::Directory { mode } = &mut self {
            *mode = new;
        }
        self
    }

    /// Returns whether kind and content are the same, whatever the permission bits.
    pub fn same_content(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::File { hash: a, .. }, Node::File { hash: b, .. }) => a == b && *a != Hash::UNKNOWN,
            (Node::Symlink { target: a }, Node::Symlink { target: b }) => a == b,
            (Node::Directory { .. }, Node::Directory { .. }) => true,
            _ => false,
        }
    }
}

/// The target of a symlink: any bytes, never resolved on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target(pub Vec<u8>);

impl Target {
    /// Returns whether the link, standing at `path`, leads out of the tree, or could.
    ///
    /// Judged by the names alone: absolute targets lead out, and so may a `..` that comes after a name (that name
    /// may be another link). A link through another link is caught because that other one is judged too.
    pub fn leads_out(&self, path: &TreePath) -> bool {
        if self.0.first() == Some(&b'/') || self.0.is_empty() || self.0.contains(&0) {
            return true;
        }
        let names = || self.0.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b"."));
        let up = names().take_while(|name| *name == b"..").count();
        up >= path.names().count() || names().skip(up).any(|name| name == b"..")
    }

    /// Returns whether the target has the name of git's own directory, or one that a file system may take for it: what is written through
    /// such a link is git's. As git warns of it (`symlinkPointsToGitDir`).
    pub fn names_git(&self) -> bool {
        tree_path::names_git(&self.0)
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_text(&self.0))
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        from_text(&text).map(Target).ok_or_else(|| D::Error::custom("a symlink's target has a broken escape"))
    }
}

/// Returns what turns `from` into `to`.
pub fn delta(from: &Manifest, to: &Manifest) -> Delta {
    let gone = from.keys().filter(|path| !to.contains_key(*path)).map(|path| (path.clone(), None));
    let there = to
        .iter()
        .filter(|(path, node)| from.get(*path) != Some(*node))
        .map(|(path, node)| (path.clone(), Some(node.clone())));
    gone.chain(there).collect()
}
