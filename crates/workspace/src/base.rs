//! The host's tree as the session took it: what every change is measured against.

use crate::host_dir::HostDir;
use crate::manifest::{Manifest, Node, Target};
use crate::selection::{LeftOut, Picked, PickedKind, Selection, Stamp};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::error::Result;
use agent_base::hash::Hash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The selection, and how the host's files looked when it was made.
///
/// A file's hash is [`Hash::UNKNOWN`] until the file is read: with an overlay that is not at the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Base {
    /// The tree.
    pub nodes: Manifest,
    /// The stamp of each regular file on the host.
    pub stamps: BTreeMap<TreePath, Stamp>,
    /// Paths that were left out; nothing from the sandbox is written there.
    pub left_out: BTreeMap<TreePath, LeftOut>,
    /// Set if `.git` is one of the sandbox's own, made from a repository that does not lie in the workspace as a whole.
    #[serde(default)]
    pub has_own_git: bool,
}

impl Base {
    /// The tree that was picked; nothing of it is read yet.
    pub fn new(selection: Selection) -> Self {
        let files = selection.picked.iter().filter(|(_, picked)| picked.kind == PickedKind::File);
        // Collected from what is in order, a map is built without a search for each entry.
        let stamps = files.map(|(path, picked)| (path.clone(), picked.stamp)).collect();
        let node = |(path, picked): (TreePath, Picked)| {
            let node = match picked.kind {
                PickedKind::File => {
                    Node::File { hash: Hash::UNKNOWN, size: picked.stamp.size, mode: picked.mode }
                }
                PickedKind::Symlink(target) => Node::Symlink { target: Target(target) },
                PickedKind::Directory => Node::Directory { mode: picked.mode },
            };
            (path, node)
        };
        let nodes = selection.picked.into_iter().map(node).collect();
        Self { nodes, stamps, left_out: selection.left_out, has_own_git: false }
    }

    /// Replaces `.git`, whatever it is on the host.
    pub fn set_own_git(&mut self, git: Manifest) {
        self.stamps.retain(|path, _| !is_own_git(path));
        self.nodes.retain(|path, _| !is_own_git(path));
        self.nodes.extend(git);
        self.has_own_git = true;
    }

    /// The sandbox's own `.git`, if it has one.
    pub fn own_git(&self) -> Option<Manifest> {
        let nodes = || self.nodes.iter().filter(|(path, _)| is_own_git(path));
        self.has_own_git.then(|| nodes().map(|(path, node)| (path.clone(), node.clone())).collect())
    }

    /// Notes what a file held when it was read.
    pub fn set_content(&mut self, path: &TreePath, content: Hash, bytes: u64) {
        if let Some(Node::File { hash, size, .. }) = self.nodes.get_mut(path) {
            (*hash, *size) = (content, bytes);
        }
    }

    /// Puts the content of a base file into the store: the sandbox's version differs now, so the diff, undo and merges need
    /// it. If the host's file changed before it was read, the content stays unknown: undo and merge report that, and
    /// apply treats it as a conflict. Blocking.
    pub fn settle(&mut self, path: &TreePath, host: &HostDir, store: &Store) -> Result<()> {
        let Some(Node::File { hash, .. }) = self.nodes.get(path) else { return Ok(()) };
        let expected = *hash;
        if expected != Hash::UNKNOWN && store.contains(expected) {
            return Ok(());
        }
        let Ok(mut file) = host.open_file(path) else { return Ok(()) };
        let untouched = |file: &std::fs::File| {
            rustix::fs::fstat(file).is_ok_and(|stat| self.stamps.get(path) == Some(&Stamp::from(&stat)))
        };
        if expected == Hash::UNKNOWN && !untouched(&file) {
            return Ok(());
        }
        let (found, size) = store.put_from(&mut file)?;
        if expected == Hash::UNKNOWN && untouched(&file) {
            self.set_content(path, found, size);
        }
        Ok(())
    }
}

/// Returns whether a path is the workspace's `.git` or below it.
pub fn is_own_git(path: &TreePath) -> bool {
    path.names().next() == Some(b".git")
}
