//! What of a change set is not written because of what it would make on the host, or because half of it would be lost: repositories that git
//! finds without a `.git`, links into git's own directory, pointers of Git LFS.

use super::{Change, ChangeSet, Refused};
use crate::bare_repository::{self, repositories};
use crate::host_dir::HostDir;
use crate::manifest::{Manifest, Node};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::error::Result;
use agent_base::hash::Hash;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// The beginning of a pointer of Git LFS, and its greatest length in bytes.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid ";
const MAX_POINTER: u64 = 1024;

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

impl ChangeSet {
    /// The directories in which the change makes a repository that git finds without a `.git`, with what the host has: also what is
    /// not part of the tree that the session knows, because git ignores it.
    pub(crate) fn repositories_with(&self, host: &HostDir) -> BTreeSet<Vec<u8>> {
        // What cannot be looked at may be there.
        self.repositories(|path| host.may_have(path))
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
        let is_on_host = |path: &TreePath| host.may_have(path);
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

    /// Refuses symlinks that lead into git's own directory through others, or into one of another name: `is_there` says whether the host has
    /// something at a path.
    pub(crate) fn refuse_links_into_git(&mut self, is_there: impl Fn(&TreePath) -> bool) {
        let mut by_reason: BTreeMap<&str, Vec<TreePath>> = BTreeMap::new();
        for (path, change) in &self.changes {
            if let Some(Node::Symlink { target }) = &change.after
                && let Some(reason) = self.symlinks.refusal(path, target, &is_there)
            {
                by_reason.entry(reason).or_default().push(path.clone());
            }
        }
        by_reason.into_iter().for_each(|(reason, links)| self.refuse(links, reason));
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
    pub(super) fn keep_sources(&mut self, lost: &[(TreePath, Node)]) {
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
        let mut kept = BTreeMap::new();
        for (path, node) in lost {
            let content = Content::of(node).filter(|content| !written.contains(content));
            let Some(sources) = content.and_then(|content| gone.get_mut(&content)) else { continue };
            let named = sources.iter().position(|source| source.name() == path.name()).unwrap_or(0);
            if named < sources.len() {
                kept.insert(sources.swap_remove(named), path.to_string());
            }
        }
        self.keep(&kept);
    }

    /// Takes the removal of these paths and what is below them out of the changes, with what they do to the directories above. Each has its
    /// name in the sandbox.
    fn keep(&mut self, sources: &BTreeMap<TreePath, String>) {
        let is_kept = |path: &TreePath| {
            sources.contains_key(path) || path.ancestors().any(|above| sources.contains_key(&above))
        };
        self.changes.retain(|path, change| change.after.is_some() || !is_kept(path));
        for (source, renamed_to) in sources {
            let reason = format!("in the sandbox it is {renamed_to}, which is not applied");
            self.refused.push(Refused { name: source.to_string(), reason: reason.clone() });
            for above in source.ancestors() {
                let is_no_directory =
                    |change: &Change| !change.after.as_ref().is_some_and(Node::is_directory);
                if self.changes.get(&above).is_some_and(is_no_directory)
                    && self.changes.remove(&above).is_some_and(|change| change.after.is_some())
                {
                    self.refused.push(Refused { name: above.to_string(), reason: reason.clone() });
                }
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
            let mut lost = Vec::new();
            self.changes.retain(|path, change| {
                let is_inside = is_inside(path);
                let new = change.after.as_ref().filter(|_| is_inside && change.before.is_none());
                lost.extend(new.map(|node| (path.clone(), node.clone())));
                !is_inside
            });
            let name = bare_repository::shown(&directory);
            if let Some(source) = source {
                self.changes.remove(directory.as_slice());
                self.keep(&BTreeMap::from([(source, name.clone())]));
            }
            self.refused.push(Refused { name, reason: bare_repository::REASON.to_owned() });
            self.keep_sources(&lost);
        }
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
}
