//! A second workspace that begins as a session's own is now, and its changes on their way back.

use super::records::{ABOUT, ACCEPTED, About, BASE, ORIGIN, UNSETTLED};
use super::{Workspace, blocking};
use crate::apply::{Conflict, is_base, is_done, keep_host_mode};
use crate::changes::{Change, ChangeSet};
use crate::fetch::{Fetched, fetch_group};
use crate::history::History;
use crate::manifest::{Node, Target};
use crate::merge::{self, Merged, Ours};
use crate::store::Store;
use crate::transfer::{inside, remove_directories, write_nodes};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_base::hash::Hash;
use agent_sandbox::{EntryKind, Sandbox, WorkspaceMount};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Requests that are under way at once.
const AT_ONCE: usize = 16;
/// Files that are read in one request, and bytes of them.
const GROUP: (usize, u64) = (500, 1 << 20);

/// The outcome of merging the changes of a branch.
#[derive(Debug, Default)]
pub struct Merge {
    /// The changes of the branch.
    pub changes: ChangeSet,
    /// The files that the other sandbox has now as the branch has them.
    pub taken: Vec<TreePath>,
    /// Those that the other sandbox has as a merge of both.
    pub merged: Vec<TreePath>,
    /// Those that it has as it had them, and why.
    pub conflicts: Vec<Conflict>,
    /// Those that the branch was not to change, as the sandbox had them.
    pub outside: Vec<TreePath>,
}

impl Workspace {
    /// A workspace for the session in the directory `session` that begins as this one was recorded last.
    ///
    /// # Errors
    /// The sandbox writes straight into the host's directory: there is only one of it.
    pub async fn branch(&self, session: &Path) -> Result<Self> {
        let (base, delta, about) = {
            let state = self.state().await?;
            if let WorkspaceMount::Bind(_) = state.mount {
                return Err(Error::usage("the workspace is the user's own directory, of which there is one")
                    .hint("without --workspace-mode bind, the sandbox gets a copy"));
            }
            (state.base.clone(), state.history.delta().clone(), About::of(&self.root, &state, &self.options))
        };
        let (from, session) = (self.store.clone(), session.to_owned());
        let machine = Arc::clone(&self.options.machine);
        blocking(move || {
            let to = Store::open(&session.join("workspace"))?;
            let changed = delta.iter().flat_map(|(path, node)| node.iter().chain(base.nodes.get(path)));
            let own_git = base.own_git().unwrap_or_default();
            for node in changed.chain(own_git.values()) {
                if let Node::File { hash, .. } = node
                    && from.contains(*hash)
                {
                    to.adopt(&from, *hash)?;
                }
            }
            to.save(ABOUT, &about)?;
            to.save(BASE, &base)?;
            to.save(ORIGIN, &delta)?;
            // What the other session had changed is not a change of this one.
            to.save(ACCEPTED, &delta)?;
            History::new().record(delta, &base.nodes, Some(0), &to)?;
            let branch = Self::load_now(&session, machine)?;
            branch.ok_or_else(|| Error::unexpected("the branch of the workspace could not be made"))
        })
        .await
    }

    /// Makes this branch one whose sandbox begins with a copy of what the other one holds, which may be more than was recorded: a
    /// job that runs there goes on writing. What the copy holds is recorded before anything runs, and is not a change of the
    /// branch.
    ///
    /// # Errors
    /// That cannot be kept.
    pub fn begin_as_copied(&self) -> Result<()> {
        self.store.save(UNSETTLED, &())
    }

    /// Records what the copy holds with which the sandbox of a branch has begun.
    pub(super) async fn settle_copied(&self, sandbox: &Sandbox) -> Result<()> {
        if !self.store.has(UNSETTLED) {
            return Ok(());
        }
        let mut state = self.state().await?;
        self.look(&mut state, sandbox, Some(0)).await?;
        state.accepted = state.history.delta().clone();
        state.origin = state.accepted.clone();
        self.save(ACCEPTED, state.accepted.clone()).await?;
        self.save(ORIGIN, state.origin.clone()).await?;
        self.store.remove(UNSETTLED)
    }

    /// Merges what this branch has changed, as it was recorded last, into `sandbox`, which has the workspace that it is a branch
    /// of. A file with a conflict stays there as it is.
    ///
    /// # Errors
    /// The sandbox is lost; files may have been merged then.
    pub async fn merge_into(
        &self,
        sandbox: &Sandbox,
        may_change: impl Fn(&TreePath) -> bool,
    ) -> Result<Merge> {
        let changes = self.recorded_changes().await?;
        let (wanted, outside) = select(&changes, may_change);
        let merge = merge_changes(sandbox, &self.store, wanted).await?;
        Ok(Merge { changes, outside, ..merge })
    }
}

/// Merges changes into what `sandbox` has. A file with a conflict stays there as it is.
///
/// # Errors
/// The sandbox is lost; files may have been merged then.
pub(super) async fn merge_changes(
    sandbox: &Sandbox,
    store: &Store,
    wanted: BTreeMap<TreePath, Change>,
) -> Result<Merge> {
    let found = observe(sandbox, store, wanted.keys().cloned().collect()).await?;
    let mut merge = Merge::default();
    let mut steps = BranchSteps::default();
    let judging = store.clone();
    let judged = blocking(move || {
        let judge = |(path, change)| {
            let found = found.get(&path);
            let verdict = match found {
                Some(SandboxEntry::Other(why)) => BranchVerdict::Conflict(why.clone()),
                Some(SandboxEntry::Node(node)) => judge(Some(node), &change, &judging)?,
                None => judge(None, &change, &judging)?,
            };
            let node = match found {
                Some(SandboxEntry::Node(node)) => Some(node.clone()),
                _ => None,
            };
            Ok((path, node, verdict))
        };
        wanted.into_iter().map(judge).collect::<Result<Vec<_>>>()
    });
    for (path, found, verdict) in judged.await? {
        let is_file = !found.iter().chain(verdict.node()).all(Node::is_directory);
        match verdict {
            BranchVerdict::Conflict(reason) => {
                merge.conflicts.push(Conflict { path, reason });
                continue;
            }
            BranchVerdict::Done => {}
            BranchVerdict::Take(node) => steps.add(path.clone(), found, node),
            BranchVerdict::Merge(node) => {
                steps.add(path.clone(), found, Some(node));
                merge.merged.push(path);
                continue;
            }
        }
        if is_file {
            merge.taken.push(path);
        }
    }
    let failed = steps.perform(sandbox, store).await?;
    let is_written = |path: &TreePath| !failed.iter().any(|conflict| conflict.path == *path);
    merge.taken.retain(is_written);
    merge.merged.retain(is_written);
    merge.conflicts.extend(failed);
    Ok(merge)
}

/// The changes that are allowed with the directories that they need, and the files that are not.
fn select(
    changes: &ChangeSet,
    may_change: impl Fn(&TreePath) -> bool,
) -> (BTreeMap<TreePath, Change>, Vec<TreePath>) {
    let (allowed, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        changes.changes.clone().into_iter().partition(|(path, _)| may_change(path));
    let needed: BTreeSet<TreePath> = allowed.keys().flat_map(TreePath::ancestors).collect();
    let (directories, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        others.into_iter().partition(|(_, change)| change.is_directory_only());
    let mut wanted = allowed;
    wanted.extend(
        directories.into_iter().filter(|(path, change)| needed.contains(path) && change.after.is_some()),
    );
    (wanted, others.into_keys().collect())
}

/// The sandbox's entry at a path.
enum SandboxEntry {
    Node(Node),
    /// Something that nothing can be merged with, and why.
    Other(String),
}

/// Returns what the sandbox has at each of `paths`; contents are in `store`.
async fn observe(
    sandbox: &Sandbox,
    store: &Store,
    paths: Vec<TreePath>,
) -> Result<BTreeMap<TreePath, SandboxEntry>> {
    let stat = |path: TreePath| async move {
        match sandbox.stat(&inside(&path)).await {
            Ok(entry) => Ok(Some((path, entry))),
            Err(error) if error.kind() == Kind::InSandbox => Ok(None),
            Err(error) => Err(error),
        }
    };
    let entries: Vec<_> = stream::iter(paths).map(stat).buffered(AT_ONCE).try_collect().await?;
    let (mut found, mut group, mut bytes) = (BTreeMap::new(), Vec::new(), 0);
    for (path, entry) in entries.into_iter().flatten() {
        let mode = entry.mode & 0o777;
        match entry.kind {
            EntryKind::Directory => drop(found.insert(path, SandboxEntry::Node(Node::Directory { mode }))),
            EntryKind::Symlink(target) => {
                let target = Target(target.as_os_str().as_bytes().to_vec());
                found.insert(path, SandboxEntry::Node(Node::Symlink { target }));
            }
            EntryKind::Other => {
                found.insert(
                    path,
                    SandboxEntry::Other("it is neither a file nor a directory there".to_owned()),
                );
            }
            EntryKind::File => {
                bytes += entry.size;
                group.push((path, mode));
            }
        }
        if bytes > GROUP.1 || group.len() >= GROUP.0 {
            fetch(sandbox, store, std::mem::take(&mut group), &mut found).await?;
            bytes = 0;
        }
    }
    fetch(sandbox, store, group, &mut found).await?;
    Ok(found)
}

async fn fetch(
    sandbox: &Sandbox,
    store: &Store,
    group: Vec<(TreePath, u32)>,
    found: &mut BTreeMap<TreePath, SandboxEntry>,
) -> Result<()> {
    if group.is_empty() {
        return Ok(());
    }
    let files: Vec<&Path> = group.iter().map(|(path, _)| path.as_path()).collect();
    let fetched = fetch_group(sandbox, store, &files).await?;
    for ((path, mode), fetched) in group.into_iter().zip(fetched) {
        match fetched {
            Fetched::Content(hash, size) => {
                found.insert(path, SandboxEntry::Node(Node::File { hash, size, mode }));
            }
            Fetched::Rejected(why) => drop(found.insert(path, SandboxEntry::Other(why))),
            Fetched::Gone => {}
        }
    }
    Ok(())
}

/// The decision about one change.
enum BranchVerdict {
    /// The sandbox has it already.
    Done,
    /// The sandbox gets what the branch has.
    Take(Option<Node>),
    /// The sandbox gets a merge of both.
    Merge(Node),
    /// Nothing, for this reason.
    Conflict(String),
}

impl BranchVerdict {
    fn node(&self) -> Option<&Node> {
        match self {
            BranchVerdict::Take(node) => node.as_ref(),
            BranchVerdict::Merge(node) => Some(node),
            BranchVerdict::Done | BranchVerdict::Conflict(_) => None,
        }
    }
}

/// Holds a change against what the sandbox has. Blocking.
fn judge(found: Option<&Node>, change: &Change, store: &Store) -> Result<BranchVerdict> {
    if is_done(found, change) {
        return Ok(BranchVerdict::Done);
    }
    if is_base(found, change) {
        return Ok(BranchVerdict::Take(keep_host_mode(found, change)));
    }
    let what = match (found, &change.before) {
        (Some(_), None) => "the workspace has another one meanwhile",
        (None, Some(_)) => "it was deleted in the workspace meanwhile",
        _ => "it changed in the workspace meanwhile",
    };
    let hash = match found {
        Some(Node::File { hash, .. }) => *hash,
        _ => Hash::UNKNOWN,
    };
    let ours = Ours { found, read: &|_| store.read(hash), other: "the delegated change" };
    Ok(match merge::three_way(&ours, change, store)? {
        Merged::Clean(node) => BranchVerdict::Merge(node),
        Merged::Impossible(why) => BranchVerdict::Conflict(format!("{what}, and {why}")),
    })
}

/// The steps in the sandbox.
#[derive(Default)]
struct BranchSteps {
    remove: Vec<TreePath>,
    remove_directories: Vec<TreePath>,
    directories: Vec<(TreePath, Node)>,
    others: Vec<(TreePath, Node)>,
}

impl BranchSteps {
    fn add(&mut self, path: TreePath, found: Option<Node>, write: Option<Node>) {
        let is_directory = |node: &Option<Node>| node.as_ref().is_some_and(Node::is_directory);
        if found.is_some() && (write.is_none() || is_directory(&found) != is_directory(&write)) {
            let removed = if is_directory(&found) { &mut self.remove_directories } else { &mut self.remove };
            removed.push(path.clone());
        }
        match write {
            Some(node) if node.is_directory() => self.directories.push((path, node)),
            Some(node) => self.others.push((path, node)),
            None => {}
        }
    }

    /// Removals first, then what is written. What failed; a directory that holds more than the change knows stays.
    async fn perform(self, sandbox: &Sandbox, store: &Store) -> Result<Vec<Conflict>> {
        let mut failed = Vec::new();
        let removed = sandbox.remove_files(self.remove.iter().map(inside).collect()).await?;
        for (path, result) in self.remove.into_iter().zip(removed) {
            if let Err(error) = result {
                failed.push(Conflict { path, reason: format!("it could not be removed: {error}") });
            }
        }
        let directories = self.remove_directories.iter().map(inside).collect();
        remove_directories(sandbox, directories).await?;
        let open = |(path, node): &(TreePath, Node)| {
            let mode = node.mode().unwrap_or(0o755) | 0o700;
            (path.clone(), node.clone().with_mode(mode))
        };
        write(sandbox, store, self.directories.iter().map(open).collect(), &mut failed).await?;
        write(sandbox, store, self.others, &mut failed).await?;
        let closed = self
            .directories
            .into_iter()
            .filter(|(_, node)| node.mode().is_some_and(|mode| mode & 0o700 != 0o700));
        write(sandbox, store, closed.collect(), &mut failed).await?;
        Ok(failed)
    }
}

/// Writes all of `nodes` that can be written.
async fn write(
    sandbox: &Sandbox,
    store: &Store,
    nodes: Vec<(TreePath, Node)>,
    failed: &mut Vec<Conflict>,
) -> Result<()> {
    match write_nodes(sandbox, store, nodes.clone()).await {
        Err(error) if error.kind() == Kind::InSandbox => {}
        result => return result,
    }
    // Some may be written already, which does not matter: each by itself shows which cannot be.
    for (path, node) in nodes {
        match write_nodes(sandbox, store, vec![(path.clone(), node)]).await {
            Err(error) if error.kind() == Kind::InSandbox => {
                failed.push(Conflict { path, reason: format!("it could not be written: {error}") });
            }
            result => result?,
        }
    }
    Ok(())
}
