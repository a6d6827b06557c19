//! The change set: what a session changed, ready to be reviewed and written to the host.

mod messages;
mod refusals;

use crate::build_files::{self, BuildFiles, Trees};
use crate::entries::Rejected;
use crate::git_files::GitFiles;
use crate::manifest::{Delta, Manifest, Node};
use crate::scan::IgnoredEntries;
use crate::selection::LeftOut;
use crate::symlinks::{self, Symlinks};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_base::sanitise;
use agent_event::Changes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most paths that may differ. More is refused as a whole: it cannot be reviewed, and `--exclude` helps.
pub const MAX_CHANGES: usize = 100_000;

/// Characters of a name that a message shows.
const MAX_NAME: usize = 200;

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The node of the host, as far as the session knows; `None` for nothing.
    pub before: Option<Node>,
    /// The node of the sandbox; `None` for nothing.
    pub after: Option<Node>,
}

impl Change {
    /// Returns whether it is about directories alone: nothing that a patch could show.
    pub fn is_directory_only(&self) -> bool {
        [&self.before, &self.after].into_iter().flatten().all(Node::is_directory)
    }

    /// The same change the other way round.
    pub fn reversed(&self) -> Change {
        Change { before: self.after.clone(), after: self.before.clone() }
    }

    /// Returns whether the permission bits are part of the change.
    pub fn changes_mode(&self) -> bool {
        let mode = |node: &Option<Node>| node.as_ref().and_then(Node::mode);
        mode(&self.before) != mode(&self.after)
    }

    /// The permission bits that come of the change where there is something with `found`: for its owner, its group and all others each those of
    /// the change, unless the other side has changed them as well. Then what either side has taken away is gone, and what the change
    /// makes executable is so for whom may read it.
    pub fn mode_over(&self, found: Option<u32>) -> Option<u32> {
        let after = self.after.as_ref().and_then(Node::mode)?;
        let Some(found) = found else { return Some(after) };
        // Both have made it, or it was a link.
        let Some(before) = self.before.as_ref().and_then(Node::mode) else { return Some(found) };
        let merged = [0o700, 0o070, 0o007].map(|class| match found & class == before & class {
            true => after & class,
            false => {
                let kept = found & class & !(before & !after);
                let made_executable = after & !before & 0o111 & ((kept & 0o444) >> 2);
                // Who may not read it any more has nothing to execute either.
                let unreadable = ((found & !kept & 0o444) >> 2) & class;
                (kept | made_executable) & !unreadable
            }
        });
        Some(merged.into_iter().sum())
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

impl Refused {
    fn in_directory(self, root: &Path) -> Self {
        let name = sanitise::one_line(&root.to_string_lossy(), MAX_NAME);
        Self { name: format!("{name}/{}", self.name), ..self }
    }
}

/// Paths that are never written, whatever the sandbox has there.
pub struct Exclusions<'a> {
    /// Paths that the workspace keeps out of the sandbox.
    pub left_out: &'a BTreeMap<TreePath, LeftOut>,
    /// Paths where what the sandbox has cannot be applied.
    pub rejected: &'a Rejected,
    /// Paths that the ignore rules leave out.
    pub ignored: &'a IgnoredEntries,
    /// Set if the sandbox writes straight into the host's tree, so that nothing of this keeps anything out.
    pub in_place: bool,
}

/// All paths that differ, and what was refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSet {
    /// By path.
    pub changes: BTreeMap<TreePath, Change>,
    /// Paths that are never written to the host.
    pub refused: Vec<Refused>,
    /// Further remarks for the user, a sentence each.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// Set if all of it is in the host's tree already: the sandbox wrote straight into it.
    #[serde(default)]
    pub in_place: bool,
    /// New files that only a tool writes, which are not part of it.
    #[serde(skip)]
    pub build_files: BuildFiles,
    /// The files of the workspace that the user's git executes or obeys.
    #[serde(skip)]
    pub git_files: Arc<GitFiles>,
    /// The symlinks of the tree, through which a path may have the name of a control file.
    #[serde(skip)]
    pub symlinks: Symlinks,
    /// The directories beside the workspace that it is about too. Their paths in it are absolute.
    #[serde(skip)]
    pub added: Vec<AddedRoot>,
}

/// A directory beside the workspace that a change is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedRoot {
    /// Its path on the host.
    pub path: PathBuf,
    /// As [`ChangeSet::git_files`].
    pub git_files: Arc<GitFiles>,
    /// As [`ChangeSet::symlinks`].
    pub symlinks: Symlinks,
}

impl ChangeSet {
    /// Returns what of the sandbox's tree may be written to the host.
    ///
    /// `base` is the tree that the session began with, `delta` what the sandbox has otherwise, `accepted` what the
    /// host has otherwise because an earlier apply wrote it. git's own administration never takes part.
    pub fn review(
        base: &Manifest,
        delta: &Delta,
        accepted: &Delta,
        exclusions: &Exclusions<'_>,
    ) -> Result<Self> {
        let rejected = exclusions
            .rejected
            .names
            .iter()
            .map(|(name, reason)| Refused { name: name.clone(), reason: reason.clone() });
        let mut set = ChangeSet {
            refused: rejected.collect(),
            remarks: messages::remarks(delta, exclusions),
            in_place: exclusions.in_place,
            ..Self::default()
        };
        let mut lost = Vec::new();
        let other_accepted = accepted.keys().filter(|path| !delta.contains_key(*path));
        for path in delta.keys().chain(other_accepted) {
            let in_tree =
                |changed: &Delta| changed.get(path).cloned().unwrap_or_else(|| base.get(path).cloned());
            let before = in_tree(accepted);
            let after = in_tree(delta).map(|node| match exclusions.in_place {
                true => node,
                false => without_new_rights(node, before.as_ref()),
            });
            if before == after || path.names().any(|name| name == b".git") {
                continue;
            }
            if at_or_above(path).any(|path| exclusions.rejected.paths.contains(&path)) {
                continue;
            }
            match refusal(path, after.as_ref(), exclusions) {
                Some(reason) => {
                    set.refused.push(Refused { name: path.to_string(), reason });
                    lost.extend(after.filter(|_| before.is_none()).map(|node| (path.clone(), node)));
                }
                None => {
                    set.changes.insert(path.clone(), Change { before, after });
                }
            }
            if set.changes.len() > MAX_CHANGES {
                return Err(Error::new(
                    agent_base::error::Kind::Limit,
                    format!("the sandbox changed more than {MAX_CHANGES} files"),
                )
                .hint("exclude generated files with .gitignore or --exclude"));
            }
        }
        let is_there =
            |path: &TreePath| base.contains_key(path) || delta.get(path).is_some_and(Option::is_some);
        set.refuse_repositories(set.repositories(is_there));
        set.keep_sources(&lost);
        Ok(set)
    }

    /// Adds what changed in the directory `root` beside the workspace.
    pub(crate) fn add(&mut self, root: &Path, other: ChangeSet) {
        let ChangeSet { changes, refused, remarks, build_files, git_files, symlinks, .. } = other;
        let outside = |(path, change): (TreePath, Change)| (TreePath::outside(root, &path), change);
        self.changes.extend(changes.into_iter().map(outside));
        self.refused.extend(refused.into_iter().map(|refused| refused.in_directory(root)));
        let name = sanitise::one_line(&root.to_string_lossy(), MAX_NAME);
        let own = self.build_files.remark();
        self.remarks.retain(|remark| Some(remark) != own.as_ref());
        let theirs = build_files.remark();
        let remarks = remarks.into_iter().filter(|remark| Some(remark) != theirs.as_ref());
        self.remarks.extend(remarks.map(|remark| format!("{name}: {remark}")));
        self.build_files.add(root, build_files);
        self.remarks.extend(self.build_files.remark());
        self.added.push(AddedRoot { path: root.to_owned(), git_files, symlinks });
    }

    /// The changes below a directory, in order.
    pub(crate) fn below(&self, directory: &[u8]) -> impl Iterator<Item = (&TreePath, &Change)> {
        let start = [directory, b"/"].concat();
        let from_there = self.changes.range::<[u8], _>((Bound::Excluded(&start[..]), Bound::Unbounded));
        from_there.take_while(move |(path, _)| path.as_bytes().starts_with(&start))
    }

    /// The changes, those of the workspace first and then those of each other directory.
    pub fn by_directory(&self) -> impl Iterator<Item = (&TreePath, &Change)> {
        let (own, other): (Vec<_>, Vec<_>) = self.changes.iter().partition(|(path, _)| !path.is_outside());
        own.into_iter().chain(other)
    }

    /// The directory beside the workspace that a path is in, and the path relative to that.
    pub(crate) fn root_of(&self, path: &TreePath) -> Option<(&AddedRoot, TreePath)> {
        self.added.iter().find_map(|root| Some((root, path.below(&root.path)?)))
    }

    /// The same with paths relative to the one directory that all are in.
    ///
    /// # Errors
    /// They are in several directories.
    pub(crate) fn of_one_directory(&self) -> Result<ChangeSet> {
        let roots: BTreeSet<Option<&Path>> =
            self.changes.keys().map(|path| Some(self.root_of(path)?.0.path.as_path())).collect();
        let mut roots = roots.into_iter();
        match (roots.next().flatten(), roots.next()) {
            (None, None) => Ok(self.clone()),
            (Some(root), None) => {
                let own = self.changes.iter();
                let own = own.filter_map(|(path, change)| Some((path.below(root)?, change.clone())));
                Ok(ChangeSet { changes: own.collect(), ..ChangeSet::default() })
            }
            (_, Some(_)) => Err(Error::usage("a patch is about one directory, and several have changed")
                .hint("name one of them: agent diff --patch DIR")),
        }
    }

    /// Without what only tools write; a remark counts it.
    #[must_use]
    pub fn without_build_files(mut self, trees: &Trees<'_>) -> Self {
        self.build_files = build_files::separate(&mut self, trees);
        self.remarks.extend(self.build_files.remark());
        self
    }

    /// Takes up again what only tools write.
    #[must_use]
    pub fn with_build_files(mut self) -> Self {
        let found = std::mem::take(&mut self.build_files);
        let remark = found.remark();
        self.remarks.retain(|other| Some(other) != remark.as_ref());
        found.return_to(&mut self);
        self
    }

    /// Returns whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Counts the files (symlinks count, directories do not) that were added, modified and deleted.
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
        let mut selected = self.without_changes();
        for wanted in paths {
            let plain: PathBuf = wanted.components().filter(|c| *c != std::path::Component::CurDir).collect();
            let wanted_bytes = plain.as_os_str().as_bytes();
            let within = self.changes.iter().filter(|(path, _)| {
                if wanted_bytes.is_empty() { !path.is_outside() } else { path.is_within(wanted_bytes) }
            });
            let count = selected.changes.len();
            selected.changes.extend(within.map(|(path, change)| (path.clone(), change.clone())));
            if selected.changes.len() == count {
                let hint = match self.build_files.any_within(wanted_bytes) {
                    true => "a build tool has written it: --all takes such files too",
                    false => "`agent diff --name-only` lists what changed",
                };
                return Err(Error::usage(format!("nothing changed at {}", wanted.display())).hint(hint));
            }
        }
        Ok(if paths.is_empty() { self.clone() } else { selected })
    }

    /// The changes that undo it.
    pub fn reversed(&self) -> ChangeSet {
        let changes = self.changes.iter().map(|(path, change)| (path.clone(), change.reversed())).collect();
        ChangeSet { changes, ..Self::default() }
    }

    /// The same messages without any changes.
    pub fn without_changes(&self) -> ChangeSet {
        ChangeSet { changes: BTreeMap::new(), ..self.clone() }
    }

    /// The same without the paths of `other`.
    pub fn without(&self, other: &ChangeSet) -> ChangeSet {
        let mut rest = self.clone();
        rest.changes.retain(|path, _| !other.changes.contains_key(path));
        rest
    }
}

/// Write permission for group and others is never gained on the way to the host, nor are set-id and sticky bits.
fn without_new_rights(node: Node, before: Option<&Node>) -> Node {
    let Some(mode) = node.mode() else { return node };
    let had = before.and_then(Node::mode).unwrap_or(0);
    node.with_mode(mode & (0o755 | (had & 0o022)))
}

fn at_or_above(path: &TreePath) -> impl Iterator<Item = TreePath> {
    std::iter::successors(Some(path.clone()), TreePath::parent)
}

fn refusal(path: &TreePath, after: Option<&Node>, exclusions: &Exclusions<'_>) -> Option<String> {
    if path.is_git_internal() {
        return Some("the file system may take it for git's own directory".to_owned());
    }
    let kept_out = std::iter::once(path.clone())
        .chain(path.ancestors())
        .find_map(|path| exclusions.left_out.get(&path).copied());
    if let Some(reason) = kept_out {
        let by = if exclusions.in_place { "it is not compared" } else { "it is excluded" };
        return Some(format!("{by} ({})", reason.reason()));
    }
    match after {
        Some(Node::Symlink { target }) if target.leads_out(path) => {
            Some("a symlink that leads out of the workspace".to_owned())
        }
        Some(Node::Symlink { target }) if target.names_git() => Some(symlinks::INTO_GIT.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_base::hash::Hash;

    #[test]
    fn bits_that_both_sides_change_are_merged_and_what_one_takes_away_is_gone() {
        let file = |mode| Some(Node::File { hash: Hash::UNKNOWN, size: 0, mode });
        for (before, after, found, merged) in [
            (0o644, 0o644, 0o600, 0o600),
            (0o644, 0o755, 0o644, 0o755),
            (0o644, 0o755, 0o600, 0o700),
            (0o644, 0o755, 0o640, 0o750),
            (0o644, 0o600, 0o755, 0o700),
            (0o755, 0o775, 0o700, 0o700),
            (0o755, 0o644, 0o700, 0o600),
            (0o600, 0o644, 0o700, 0o744),
            (0o644, 0o666, 0o400, 0o400),
        ] {
            let change = Change { before: file(before), after: file(after) };
            let result = change.mode_over(Some(found)).unwrap_or_default();
            assert_eq!(result, merged, "{before:o} {after:o} {found:o}: {result:o}");
        }
        assert_eq!(Change { before: None, after: file(0o755) }.mode_over(Some(0o600)), Some(0o600));
        assert_eq!(Change { before: None, after: file(0o755) }.mode_over(None), Some(0o755));
    }
}
