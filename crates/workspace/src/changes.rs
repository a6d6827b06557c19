//! The change set: what a session changed, ready to be reviewed and written to the host.

use crate::bare_repository::{self, repositories};
use crate::build_files::{self, BuildFiles, Trees};
use crate::entries::Rejected;
use crate::git_files::GitFiles;
use crate::host_dir::HostDir;
use crate::manifest::{Delta, Manifest, Node};
use crate::notices::listed;
use crate::scan::IgnoredEntries;
use crate::selection::LeftOut;
use crate::store::Store;
use crate::symlinks::{self, Symlinks};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::sanitise;
use agent_event::Changes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most paths that may differ. More is refused as a whole: it cannot be reviewed, and `--exclude` helps.
pub const MAX_CHANGES: usize = 100_000;

/// Lines that are printed for refused entries with the same reason; the rest are counted.
const MAX_MESSAGES: usize = 20;
/// Characters of a name that such a line shows.
const MAX_NAME: usize = 200;

/// The beginning of a pointer of Git LFS, and its greatest length in bytes.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid ";
const MAX_POINTER: u64 = 1024;

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

/// What a file or a symlink holds. That two empty files are alike says nothing.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    File(Hash),
    Symlink(Vec<u8>),
}

impl Content {
    fn of(node: &Node) -> Option<Self> {
        match node {
            Node::File { hash, size, .. } if *size > 0 && *hash != Hash::UNKNOWN => Some(Self::File(*hash)),
            Node::Symlink { target } => Some(Self::Symlink(target.0.clone())),
            _ => None,
        }
    }
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
            remarks: remarks(delta, exclusions),
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

    /// The directories in which the change makes a repository that git finds without a `.git`, with what the host has: also what is
    /// not part of the tree that the session knows, because git ignores it.
    pub(crate) fn repositories_with(&self, host: &HostDir) -> BTreeSet<Vec<u8>> {
        // What cannot be looked at may be there.
        self.repositories(|path| !matches!(host.stamp(path), Ok(None)))
    }

    /// The same with what else is there by `is_there`, and with what the change removes: a directory may stay because it is not empty, the
    /// user may keep a file, and both may be put back.
    pub(crate) fn repositories(&self, is_there: impl Fn(&TreePath) -> bool) -> BTreeSet<Vec<u8>> {
        repositories(self.written(), |path| self.changes.contains_key(path) || is_there(path))
    }

    /// The paths at which something is after the change.
    fn written(&self) -> impl Iterator<Item = &TreePath> {
        self.changes.iter().filter(|(_, change)| change.after.is_some()).map(|(path, _)| path)
    }

    /// Finds a directory that the change makes a repository on `host`, where the host has something that git obeys in such a one and that
    /// neither is part of the change nor is as it was in the tree `former`.
    pub(crate) fn repository_with_settings(&self, host: &HostDir, former: &Manifest) -> Option<Vec<u8>> {
        let is_on_host = |path: &TreePath| !matches!(host.stamp(path), Ok(None));
        let found = self.repositories(is_on_host);
        let complete = bare_repository::complete(&found, is_on_host);
        let is_as_before = |path: &TreePath| {
            former.get(path).is_some_and(|node| {
                host.observe(path).is_ok_and(|found| found.node.is_some_and(|found| found.same_content(node)))
            })
        };
        let is_others = |path: &TreePath| {
            let within = host.list(Some(path)).unwrap_or_default();
            let within = within.iter().filter_map(|name| path.join(name).ok());
            let files: Vec<TreePath> = within.collect();
            let files = if files.is_empty() { vec![path.clone()] } else { files };
            files
                .iter()
                .any(|path| !self.changes.contains_key(path) && is_on_host(path) && !is_as_before(path))
        };
        let mut made = found.difference(&complete);
        made.find(|directory| bare_repository::obeyed(directory).any(|path| is_others(&path))).cloned()
    }

    /// Without each new file that git would accept as the `HEAD` of a repository: the rest of one may be there already, on another branch of
    /// the user's, or come later.
    pub fn without_heads(mut self, store: &Store) -> Result<Self> {
        let is_head = |node: Option<&Node>| -> Result<bool> {
            Ok(match node {
                Some(Node::File { hash, .. }) if store.contains(*hash) => {
                    let mut content = Vec::new();
                    store.open_blob(*hash)?.take(bare_repository::HEAD_LENGTH).read_to_end(&mut content)?;
                    bare_repository::is_head(&content)
                }
                Some(Node::Symlink { target }) => bare_repository::is_head_target(&target.0),
                _ => false,
            })
        };
        let mut heads = Vec::new();
        for (path, change) in self.changes.iter().filter(|(path, _)| bare_repository::is_named_head(path)) {
            if is_head(change.after.as_ref())? && !is_head(change.before.as_ref())? {
                heads.push(path.clone());
            }
        }
        // One that moved with the rest is refused as a whole.
        let removed = self.removed_heads();
        let directories = heads.iter().map(|head| head.parent_bytes());
        let moved = directories
            .filter(|directory| !directory.is_empty() && self.source_of(directory, &removed).is_some());
        self.refuse_repositories(moved.map(<[u8]>::to_vec).collect());
        heads.retain(|head| self.changes.contains_key(head));
        self.refuse(heads, bare_repository::HEAD_REASON);
        Ok(self)
    }

    /// Refuses symlinks that lead into git's own directory through others.
    pub(crate) fn refuse_links_into_git(&mut self) {
        let is_link = |change: &Change| matches!(change.after, Some(Node::Symlink { .. }));
        let links = self
            .changes
            .iter()
            .filter(|(path, change)| is_link(change) && self.symlinks.leads_into_git(path));
        let links = links.map(|(path, _)| path.clone()).collect();
        self.refuse(links, symlinks::INTO_GIT);
    }

    fn refuse(&mut self, paths: Vec<TreePath>, reason: &str) {
        let mut lost = Vec::new();
        for path in paths {
            let change = self.changes.remove(&path).filter(|change| change.before.is_none());
            self.refused.push(Refused { name: path.to_string(), reason: reason.to_owned() });
            lost.extend(change.and_then(|change| Some((path, change.after?))));
        }
        self.keep_sources(&lost);
    }

    /// Refuses the removal of what has another name in the sandbox, under which it is not written: the `lost` new files. Else it would be
    /// nowhere.
    fn keep_sources(&mut self, lost: &[(TreePath, Node)]) {
        if self.in_place || lost.is_empty() {
            return;
        }
        let new = self.changes.values().filter(|change| change.before.is_none());
        let written: BTreeSet<Content> =
            new.filter_map(|change| Content::of(change.after.as_ref()?)).collect();
        let mut gone: BTreeMap<Content, Vec<TreePath>> = BTreeMap::new();
        for (path, change) in self.changes.iter().filter(|(_, change)| change.after.is_none()) {
            let content = change.before.as_ref().and_then(Content::of);
            content.into_iter().for_each(|content| gone.entry(content).or_default().push(path.clone()));
        }
        for (path, node) in lost {
            let content = Content::of(node).filter(|content| !written.contains(content));
            let Some(sources) = content.and_then(|content| gone.get_mut(&content)) else { continue };
            let named = sources.iter().position(|source| source.name() == path.name()).unwrap_or(0);
            if named < sources.len() {
                let source = sources.swap_remove(named);
                self.keep(&source, &path.to_string());
            }
        }
    }

    /// Takes the removal of `source` and what is below it out of the changes, with what they do to the directories above.
    fn keep(&mut self, source: &TreePath, renamed_to: &str) {
        let below = |path: &TreePath| path.is_within(source.as_bytes());
        self.changes.retain(|path, change| !(below(path) && change.after.is_none()));
        let reason = format!("in the sandbox it is {renamed_to}, which is not applied");
        self.refused.push(Refused { name: source.to_string(), reason: reason.clone() });
        for above in source.ancestors() {
            let is_no_directory = |change: &Change| !change.after.as_ref().is_some_and(Node::is_directory);
            if self.changes.get(&above).is_some_and(is_no_directory)
                && self.changes.remove(&above).is_some_and(|change| change.after.is_some())
            {
                self.refused.push(Refused { name: above.to_string(), reason: reason.clone() });
            }
        }
    }

    /// The directory that the repository `directory` was before the change: where one of the removed `heads` was that it has, and at least half of all
    /// that is gone is in it.
    fn source_of(&self, directory: &[u8], heads: &[TreePath]) -> Option<TreePath> {
        let moved = |source: &TreePath, path: &TreePath, change: &Change| {
            let below = path.as_bytes().strip_prefix(source.as_bytes())?;
            let new = self.changes.get([directory, below].concat().as_slice())?;
            let content = Content::of(change.before.as_ref()?)?;
            (new.before.is_none() && Content::of(new.after.as_ref()?)? == content).then_some(())
        };
        let is_moved_from = |source: &TreePath| {
            let below = self.below(source.as_bytes());
            let gone = below.filter(|(_, change)| change.after.is_none() && !change.is_directory_only());
            let (mut all, mut found) = (0, 0);
            gone.for_each(|(path, change)| {
                all += 1;
                found += usize::from(moved(source, path, change).is_some());
            });
            2 * found >= all
        };
        heads.iter().find_map(|head| {
            let source = head.parent()?;
            moved(&source, head, self.changes.get(head)?)?;
            is_moved_from(&source).then_some(source)
        })
    }

    fn removed_heads(&self) -> Vec<TreePath> {
        let gone = self.changes.iter().filter(|(_, change)| change.after.is_none());
        gone.map(|(path, _)| path).filter(|path| bare_repository::is_named_head(path)).cloned().collect()
    }

    /// Refuses what is in these repositories.
    pub(crate) fn refuse_repositories(&mut self, directories: BTreeSet<Vec<u8>>) {
        let heads = if self.in_place { Vec::new() } else { self.removed_heads() };
        for directory in directories {
            let is_inside = |path: &TreePath| {
                directory.is_empty() || path.as_bytes() != directory && path.is_within(&directory)
            };
            let source = self.source_of(&directory, &heads).filter(|_| !directory.is_empty());
            self.changes.retain(|path, _| !is_inside(path));
            let name = bare_repository::shown(&directory);
            if let Some(source) = source {
                self.changes.remove(directory.as_slice());
                self.keep(&source, &name);
            }
            self.refused.push(Refused { name, reason: bare_repository::REASON.to_owned() });
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

    /// Without what would put a pointer of Git LFS into the place of the content that it stands for, as git does where its
    /// filter is missing.
    pub fn without_pointers(mut self, store: &Store) -> Result<Self> {
        let is_pointer = |node: &Node| -> Result<bool> {
            Ok(match node {
                Node::File { hash, size, .. } if *size <= MAX_POINTER && store.contains(*hash) => {
                    store.read(*hash)?.starts_with(POINTER)
                }
                _ => false,
            })
        };
        let mut pointers = Vec::new();
        for (path, change) in &self.changes {
            if let (Some(before @ Node::File { .. }), Some(after)) = (&change.before, &change.after)
                && is_pointer(after)?
                && !is_pointer(before)?
            {
                pointers.push(path.clone());
            }
        }
        self.refuse(pointers, "it is a pointer of Git LFS in place of its content");
        Ok(self)
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

    /// Takes the remark about ignored files out; whether there was one.
    pub fn take_remark_on_ignored(&mut self) -> bool {
        let count = self.remarks.len();
        self.remarks.retain(|remark| !remark.starts_with(OF_IGNORED));
        self.remarks.len() < count
    }

    /// The messages beside the changes, a line each: what is not applied and why, of each reason at most
    /// 20 names, and the remarks. Safe to show.
    pub fn messages(&self) -> impl Iterator<Item = String> {
        let fate = match self.in_place {
            true => "is in the workspace and in no diff",
            false => "is not applied",
        };
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for Refused { name, reason } in &self.refused {
            by_reason.entry(reason).or_default().push(name);
        }
        let refused = by_reason.into_iter().flat_map(move |(reason, names)| {
            let more = names.len().saturating_sub(MAX_MESSAGES);
            let lines = names.into_iter().take(MAX_MESSAGES);
            let lines =
                lines.map(move |name| format!("{} {fate}: {reason}", shortened(&sanitise::plain(name))));
            lines.chain((more > 0).then(|| format!("… and {more} more: {reason}")))
        });
        refused.chain(self.remarks.iter().cloned())
    }
}

/// A name's beginning and end, where all of it would be too long for a line.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= MAX_NAME {
        return name.to_owned();
    }
    let begin: String = name.chars().take(MAX_NAME / 2).collect();
    let end: String = name.chars().skip(count - MAX_NAME / 2).collect();
    format!("{begin}…{end}")
}

/// The beginning of a remark about new files that the ignore rules leave out. It is the same after every prompt.
const OF_IGNORED: &str = "New files that .gitignore names";

/// The beginning of a remark about files of the host's that git ignores.
const CHANGED_IGNORED: &str = "Files that git ignores";

/// Returns what is not part of the changes without having been refused.
fn remarks(delta: &Delta, exclusions: &Exclusions<'_>) -> Vec<String> {
    let ignored = exclusions.ignored;
    let mut remarks = Vec::new();
    if delta.keys().any(is_git_history) {
        let remark = match exclusions.in_place {
            true => {
                "The sandbox changed .git in place: commits, branches, configuration or hooks. Look at .git/config and \
                 .git/hooks before you use git here; no diff shows them."
            }
            false => {
                "Commits, branches and configuration of git that were made in the sandbox stay there: apply the files, \
                 and commit on this side, or take the commits with apply --branch NAME."
            }
        };
        remarks.push(remark.to_owned());
    }
    if let Some(names) = listed(ignored.changed.iter().map(ToString::to_string), ignored.changed.len()) {
        remarks.push(format!(
            "{CHANGED_IGNORED} were changed in the sandbox and stay there: {names} (--include, when a session begins, copies such files)."
        ));
    }
    if ignored.count > 0 {
        let names: Vec<String> = ignored.first.iter().map(ToString::to_string).collect();
        let more = match ignored.count.saturating_sub(names.len() as u64) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = names.join(", ");
        remarks.push(match exclusions.in_place {
            true => format!("{OF_IGNORED} are in the workspace and in no diff: {names}{more}."),
            false => format!(
                "{OF_IGNORED} stay in the sandbox: {names}{more} (--include, when a session begins, \
                 copies such files)."
            ),
        });
    }
    remarks
}

/// Returns whether a path is one where git keeps what somebody made: commits, branches, settings. The index and the objects
/// change by looking alone.
fn is_git_history(path: &TreePath) -> bool {
    let mut below = path.names().skip_while(|name| *name != b".git").skip(1);
    below.any(|name| matches!(name, b"refs" | b"HEAD" | b"packed-refs" | b"config" | b"hooks"))
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
