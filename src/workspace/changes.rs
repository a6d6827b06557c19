//! The change set: what a session changed, ready to be reviewed and written to the host.

use crate::error::{Error, Result};
use crate::event::Changes;
use crate::workspace::manifest::{Delta, Manifest, Node};
use crate::workspace::select::LeftOut;
use crate::workspace::tree_path::TreePath;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Most paths that may differ. More is refused as a whole: nobody reviews that, and `--exclude` helps.
pub const MAX_CHANGES: usize = 100_000;

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What the host has, as far as the session knows; `None` for nothing.
    pub before: Option<Node>,
    /// What the sandbox has; `None` for nothing.
    pub after: Option<Node>,
}

impl Change {
    /// Whether it is about directories alone: nothing that a patch could show.
    pub fn is_directory_only(&self) -> bool {
        [&self.before, &self.after].into_iter().flatten().all(Node::is_directory)
    }

    /// The same change the other way round.
    pub fn reversed(&self) -> Change {
        Change { before: self.after.clone(), after: self.before.clone() }
    }

    /// Whether the permission bits are part of the change.
    pub fn changes_mode(&self) -> bool {
        let mode = |node: &Option<Node>| node.as_ref().and_then(Node::mode);
        mode(&self.before) != mode(&self.after)
    }
}

/// Something in the sandbox that is never written to the host, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Refused {
    /// Its name, safe to show.
    pub name: String,
    /// The reason, to stand after a colon.
    pub reason: String,
}

/// What may not be written to, whatever the sandbox says.
pub struct Barred<'a> {
    /// What the workspace keeps out of the sandbox.
    pub left_out: &'a BTreeMap<TreePath, LeftOut>,
    /// What the sandbox has there cannot be taken over.
    pub odd_paths: &'a BTreeSet<TreePath>,
    /// Those and others by a name to show, with the reason.
    pub odd: &'a BTreeMap<String, String>,
}

/// All paths that differ, and what was refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSet {
    /// By path.
    pub changes: BTreeMap<TreePath, Change>,
    /// What is never written to the host.
    pub refused: Vec<Refused>,
}

impl ChangeSet {
    /// What of the sandbox's tree may be brought to the host.
    ///
    /// `base` is the tree that the session began with, `delta` what the sandbox has otherwise, `accepted` what the
    /// host has otherwise because an earlier apply wrote it. git's own administration never takes part.
    pub fn review(base: &Manifest, delta: &Delta, accepted: &Delta, barred: &Barred<'_>) -> Result<Self> {
        let odd =
            barred.odd.iter().map(|(name, reason)| Refused { name: name.clone(), reason: reason.clone() });
        let mut set = ChangeSet { changes: BTreeMap::new(), refused: odd.collect() };
        let other_accepted = accepted.keys().filter(|path| !delta.contains_key(*path));
        for path in delta.keys().chain(other_accepted) {
            let in_tree =
                |changed: &Delta| changed.get(path).cloned().unwrap_or_else(|| base.get(path).cloned());
            let before = in_tree(accepted);
            let after = in_tree(delta).map(|node| tame_mode(node, before.as_ref()));
            if before == after || path.names().any(|name| name == b".git") {
                continue;
            }
            if at_or_above(path).any(|path| barred.odd_paths.contains(&path)) {
                continue;
            }
            match refusal(path, after.as_ref(), barred.left_out) {
                Some(reason) => set.refused.push(Refused { name: path.to_string(), reason }),
                None => {
                    set.changes.insert(path.clone(), Change { before, after });
                }
            }
            if set.changes.len() > MAX_CHANGES {
                return Err(Error::new(
                    crate::error::Kind::Limit,
                    format!("the sandbox changed more than {MAX_CHANGES} files"),
                )
                .hint("leave what is generated out with .gitignore or --exclude"));
            }
        }
        Ok(set)
    }

    /// Whether there is nothing to bring to the host.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many files (symlinks count, directories do not) were added, modified, deleted.
    pub fn counts(&self) -> Changes {
        let is_file = |node: &Option<Node>| node.as_ref().is_some_and(|node| !node.is_directory());
        let mut counts = Changes::default();
        for change in self.changes.values() {
            match (is_file(&change.before), is_file(&change.after)) {
                (false, true) => counts.added += 1,
                (true, true) => counts.modified += 1,
                (true, false) => counts.deleted += 1,
                (false, false) => {}
            }
        }
        counts
    }

    /// The part of it at or below `paths`, which are relative to the workspace. All of it where `paths` is empty.
    pub fn select(&self, paths: &[PathBuf]) -> Result<ChangeSet> {
        let mut selected = ChangeSet { changes: BTreeMap::new(), refused: self.refused.clone() };
        for wanted in paths {
            let plain: PathBuf = wanted.components().filter(|c| *c != std::path::Component::CurDir).collect();
            let wanted_bytes = plain.as_os_str().as_bytes();
            let within = self
                .changes
                .iter()
                .filter(|(path, _)| wanted_bytes.is_empty() || path.is_within(wanted_bytes));
            let count = selected.changes.len();
            selected.changes.extend(within.map(|(path, change)| (path.clone(), change.clone())));
            if selected.changes.len() == count {
                return Err(Error::usage(format!("nothing changed at {}", wanted.display())).hint(
                    "paths are relative to the workspace; `agent diff --name-only` lists what changed",
                ));
            }
        }
        Ok(if paths.is_empty() { self.clone() } else { selected })
    }

    /// What takes it back.
    pub fn reversed(&self) -> ChangeSet {
        let changes = self.changes.iter().map(|(path, change)| (path.clone(), change.reversed())).collect();
        ChangeSet { changes, refused: Vec::new() }
    }
}

/// Write permission for group and others is never gained on the way to the host, nor are set-id and sticky bits.
fn tame_mode(node: Node, before: Option<&Node>) -> Node {
    let Some(mode) = node.mode() else { return node };
    let had = before.and_then(Node::mode).unwrap_or(0);
    node.with_mode(mode & (0o755 | (had & 0o022)))
}

fn at_or_above(path: &TreePath) -> impl Iterator<Item = TreePath> {
    std::iter::successors(Some(path.clone()), TreePath::parent)
}

fn refusal(path: &TreePath, after: Option<&Node>, left_out: &BTreeMap<TreePath, LeftOut>) -> Option<String> {
    if path.is_git_internal() {
        return Some("the file system may take it for git's own directory".to_owned());
    }
    let kept_out =
        std::iter::once(path.clone()).chain(path.ancestors()).find_map(|path| left_out.get(&path).copied());
    if let Some(reason) = kept_out {
        return Some(format!("the workspace keeps it out ({})", reason.reason()));
    }
    match after {
        Some(Node::Symlink { target }) if target.leads_out(path) => {
            Some("a symlink that leads out of the workspace".to_owned())
        }
        _ => None,
    }
}
