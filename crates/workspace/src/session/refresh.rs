//! Edits on the host during an open session: what the sandbox has not changed follows the host.

use super::records::ACCEPTED;
use super::state::SessionState;
use super::{Workspace, blocking, shows_host};
use crate::base::Base;
use crate::changes::Change;
use crate::git_directory;
use crate::host_changes::{HostChanges, HostView};
use crate::host_dir::HostDir;
use crate::manifest::{Delta, Node, Target};
use crate::merge::{self, Merged, Ours};
use crate::selection::{Picked, PickedKind, Stamp};
use crate::transfer;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_sandbox::{Sandbox, WorkspaceMount};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The host's changes since the last look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Files that the sandbox has as the host has them now.
    pub followed: Vec<TreePath>,
    /// Files that the sandbox had changed too, in other lines: it has both changes now.
    pub merged: Vec<TreePath>,
    /// Files that the sandbox had changed too, and that it keeps as they are.
    pub conflicts: Vec<TreePath>,
    /// A notice of what the sandbox does not see any more.
    pub withheld: Option<String>,
}

/// The host's changes, sorted by what becomes of them.
#[derive(Default)]
struct Sorted {
    refreshed: Refreshed,
    /// The changes that the base takes over as the host has them.
    taken: Vec<ChangedPath>,
    /// Files that both sides changed, with what the sandbox gets.
    merged: Vec<(ChangedPath, Node)>,
    /// The user's changes to files that the base takes over.
    edits: Vec<(TreePath, Change)>,
    /// The differences of the sandbox after that.
    delta: Delta,
}

/// One path that changed on the host.
struct ChangedPath {
    path: TreePath,
    /// The host's present entry; a file's content is not read yet where the sandbox gets it anyway.
    now: Option<Node>,
    picked: Option<Picked>,
}

impl ChangedPath {
    fn stamp(&self) -> Option<Stamp> {
        self.picked.as_ref().map(|picked| picked.stamp)
    }

    /// Returns whether it is about a file of the user's, and not what the host had before.
    fn is_news(&self, before: Option<&Node>) -> bool {
        let is_file = |node: Option<&Node>| node.is_some_and(|node| !node.is_directory());
        !is_git(&self.path)
            && (is_file(self.now.as_ref()) || is_file(before))
            && !is_same(before, self.now.as_ref())
    }
}

/// What the sandbox has changed.
struct OwnChanges {
    /// Those of the paths that changed on the host.
    paths: BTreeSet<TreePath>,
    /// Set if it has changed its repository.
    has_git: bool,
    /// The files that it keeps its own of, though the host has them otherwise.
    conflicts: BTreeMap<TreePath, Option<Stamp>>,
    /// Files of the host that others have taken the place of.
    replaced: BTreeSet<TreePath>,
}

impl OwnChanges {
    /// Returns whether the repository of one of git's files does not follow the host's.
    fn keeps_repository(&self, path: &TreePath) -> bool {
        self.has_git || self.conflicts.keys().any(|conflict| is_of_repository(conflict, path))
    }

    /// Returns whether the sandbox keeps its own of git's, where the host has another by now. Indexes are written by looking.
    fn keeps(&self, path: &TreePath) -> bool {
        is_git(path) && self.paths.contains(path) && !git_directory::is_index(path)
    }
}

/// The step for a path that changed on the host.
#[derive(Clone, Copy)]
enum RefreshStep {
    /// Nothing: the host has what the session knows.
    Know,
    /// The sandbox gets what the host has.
    Take,
    /// The sandbox shows what the host has, and the base has it too.
    Shown,
    /// The sandbox has changed it too.
    Conflict,
}

impl SessionState {
    /// Returns whether the host has another file in the place of the one that the base has, whatever is in it.
    fn is_other_file(&self, path: &TreePath, picked: Option<&Picked>) -> bool {
        let former = self.base.stamps.get(path);
        former.zip(picked).is_some_and(|(former, picked)| former.inode != picked.stamp.inode)
    }

    fn judge(&self, root: &Path, changed: &ChangedPath, before: Option<&Node>, delta: &Delta) -> RefreshStep {
        let (path, now) = (&changed.path, changed.now.as_ref());
        let base = self.base.nodes.get(path);
        let inside = delta.get(path).map_or(base, Option::as_ref);
        let is_untouched = !delta.contains_key(path) && !self.accepted.contains_key(path);
        let is_stamped = match base {
            Some(Node::File { .. }) => self.base.stamps.get(path).copied() == changed.stamp(),
            _ => true,
        };
        let is_overlay = matches!(self.mount, WorkspaceMount::Overlay { .. });
        if is_overlay
            && is_untouched
            && base == now
            && is_stamped
            && !git_directory::is_of_overlay(root, path)
        {
            RefreshStep::Shown
        } else if is_same(before, now) {
            // Written without a change, or by an apply.
            RefreshStep::Know
        } else if is_git(path) || is_untouched || is_same(inside, before) || is_same(inside, now) {
            RefreshStep::Take
        } else {
            RefreshStep::Conflict
        }
    }
}

impl Workspace {
    pub(super) async fn own_refresh(&self, sandbox: &Sandbox) -> Result<Refreshed> {
        if self.is_added && !self.root.canonicalize().is_ok_and(|root| root == self.root) {
            return Err(Error::usage(format!("{} leads elsewhere now", self.root.display())));
        }
        let mut state = self.state().await?;
        let refreshed = match state.mount {
            WorkspaceMount::Bind(_) => self.refresh_bound(&mut state, sandbox).await,
            _ => self.refresh_all_of_copy(&mut state, sandbox).await,
        };
        // Whatever else fails: the prompt goes on.
        let withheld = self.withhold_new(&mut state, sandbox).await;
        let refreshed = refreshed.and_then(|refreshed| Ok(Refreshed { withheld: withheld?, ..refreshed }));
        if let (Err(_), Some(view)) = (&refreshed, &mut state.view) {
            // What it has found may not have arrived.
            view.compare_everything();
        }
        refreshed
    }

    pub(super) async fn own_has_news(&self) -> bool {
        let state = self.state.lock().await;
        let is_seen = state.view.as_ref().is_some_and(|view| !view.has_news())
            && state.skipped.rejected.unlisted.is_empty()
            && state.out_of_sight.is_empty();
        shows_host(&state.mount) && !is_seen
    }

    /// Compares the whole of the host's tree ahead of the next [`Workspace::refresh`], which then need not do that. Nothing
    /// is done where that was done lately, where the tree cannot be watched, or before the first look of a process that
    /// attached to a running sandbox.
    pub(super) async fn own_prepare_refresh(&self) -> Result<()> {
        let mut state = self.state().await?;
        let Some(mut view) = state.view.take_if(|view| view.is_due()) else { return Ok(()) };
        let (root, base) = (self.root.clone(), std::mem::take(&mut state.base));
        let prepare = move || {
            let prepared = view.prepare(&root, &base);
            Ok((view, base, prepared))
        };
        let (view, base, prepared) = blocking(prepare).await?;
        (state.view, state.base) = (Some(view), base);
        prepared
    }

    /// Sandbox and host are the same tree: what changed since the last look was changed on the host.
    async fn refresh_bound(&self, state: &mut SessionState, sandbox: &Sandbox) -> Result<Refreshed> {
        // What git ignores now; the rest is found by the look at all files.
        self.host_changes(state).await?;
        let followed = self.follow_user(state, sandbox).await?;
        Ok(Refreshed { followed, ..Refreshed::default() })
    }

    /// Refreshes once more where repositories are followed again.
    async fn refresh_all_of_copy(&self, state: &mut SessionState, sandbox: &Sandbox) -> Result<Refreshed> {
        let mut refreshed = self.refresh_copy(state, sandbox).await?;
        if state.view.as_ref().is_some_and(HostView::has_pending) {
            let again = self.refresh_copy(state, sandbox).await?;
            refreshed.followed.extend(again.followed);
            refreshed.merged.extend(again.merged);
            refreshed.conflicts.extend(again.conflicts);
        }
        Ok(refreshed)
    }

    async fn refresh_copy(&self, state: &mut SessionState, sandbox: &Sandbox) -> Result<Refreshed> {
        let HostChanges { paths, left_out } = self.host_changes(state).await?;
        if paths.is_empty() && left_out.is_empty() && state.out_of_sight.is_empty() {
            return Ok(Refreshed::default());
        }
        let former = |path: &TreePath| (path.clone(), state.base.nodes.get(path).cloned());
        let former: BTreeMap<TreePath, Option<Node>> = paths.keys().map(former).collect();
        let had_git = state.history.delta().keys().any(git_directory::is_beyond_index);
        let is_replaced =
            |(path, picked): &(&TreePath, &Option<Picked>)| state.is_other_file(path, picked.as_ref());
        let replaced = paths.iter().filter(is_replaced).map(|(path, _)| path.clone()).collect();
        // What the sandbox has changed itself since the last look. In an overlay, the host's changes are visible already.
        self.look_at(state, sandbox, &paths.keys().chain(left_out.keys()).cloned().collect()).await?;
        let is_own = |path: &&TreePath| state.history.delta().contains_key(*path);
        // A process of the sandbox may have committed between the prompts.
        let has_git = had_git || state.history.delta().keys().any(git_directory::is_beyond_index);
        let known = state.view.as_ref().map(|view| view.conflicts().clone()).unwrap_or_default();
        let mut own = OwnChanges {
            paths: paths.keys().filter(is_own).cloned().collect(),
            has_git,
            conflicts: known.clone(),
            replaced,
        };
        state.out_of_sight.extend(left_out.clone());
        self.hide_in_overlay(state, sandbox).await?;
        // What has gone from the host may come back, and is to be hidden again then.
        let is_there = |path: &TreePath| self.root.join(path.as_path()).symlink_metadata().is_ok();
        state.base.left_out.retain(|path, _| !paths.get(path).is_some_and(Option::is_some) && is_there(path));
        // What was not shown is found, and hidden, by the next process too.
        let is_absent = |path: &TreePath| {
            state.out_of_sight.contains_key(path) && !state.history.delta().contains_key(path)
        };
        state.base.left_out.extend(left_out.into_iter().filter(|(path, _)| !is_absent(path)));
        let accepted = state.accepted.len();
        let (git, files): (BTreeMap<_, _>, BTreeMap<_, _>) =
            paths.into_iter().partition(|(path, _)| is_git(path));
        let sorted = self.sort(state, files, &former, &own).await?;
        let (mut refreshed, edits) = self.follow(state, sandbox, sorted).await?;
        // On the user's new branch, a commit would take back what the sandbox does not have of it. On the one that it has, git merges both.
        own.conflicts.extend(state.view.as_ref().map(|view| view.conflicts().clone()).unwrap_or_default());
        let sorted = self.sort(state, git, &former, &own).await?;
        refreshed.conflicts.extend(self.follow(state, sandbox, sorted).await?.0.conflicts);
        if let Some(view) = &mut state.view {
            let is_over = |conflict: &&TreePath| !view.conflicts().contains_key(*conflict);
            let over: Vec<TreePath> = known.keys().filter(is_over).cloned().collect();
            if !over.is_empty() {
                view.look_again(|path| is_git(path) && over.iter().any(|over| is_of_repository(over, path)));
            }
        }
        refreshed.conflicts.retain(|path| match (known.get(path), &state.view) {
            (Some(seen), Some(view)) => view.conflicts().get(path) != Some(seen),
            _ => true,
        });
        self.carry_into_checkpoints(state, edits).await?;
        // It is written after the prompt, which need not wait for it.
        state.has_unsaved_edits = true;
        if state.accepted.len() != accepted {
            self.save(ACCEPTED, state.accepted.clone()).await?;
        }
        Ok(refreshed)
    }

    /// Does what was decided. Returns what became of it, and the user's edits that the base has now.
    async fn follow(
        &self,
        state: &mut SessionState,
        sandbox: &Sandbox,
        sorted: Sorted,
    ) -> Result<(Refreshed, Vec<(TreePath, Change)>)> {
        let Sorted { mut refreshed, taken, merged, mut edits, mut delta } = sorted;
        let mut failed = self.take(state, sandbox, taken).await;
        failed.extend(self.take_both(state, sandbox, merged, &mut delta).await);
        if !failed.is_empty() {
            refreshed.followed.retain(|path| !failed.contains(path));
            refreshed.merged.retain(|path| !failed.contains(path));
            edits.retain(|(path, _)| !failed.contains(path));
            refreshed.conflicts.extend(failed);
        }
        let SessionState { history, base, .. } = &mut *state;
        if *history.delta() != delta {
            history.record(delta, &base.nodes, None, &self.store)?;
        }
        Ok((refreshed, edits))
    }

    /// Decides what becomes of each of `paths` that changed on the host, where both sides began with `former`.
    async fn sort(
        &self,
        state: &mut SessionState,
        paths: BTreeMap<TreePath, Option<Picked>>,
        former: &BTreeMap<TreePath, Option<Node>>,
        own: &OwnChanges,
    ) -> Result<Sorted> {
        let is_overlay = matches!(state.mount, WorkspaceMount::Overlay { .. });
        let mut sorted = Sorted { delta: state.history.delta().clone(), ..Sorted::default() };
        let mut taken = BTreeSet::new();
        for changed in self.observe(paths).await? {
            let before = former.get(&changed.path).cloned().flatten();
            let before = state.accepted.get(&changed.path).cloned().unwrap_or(before);
            let is_left_out = state.base.left_out.contains_key(&changed.path)
                || state.out_of_sight.contains_key(&changed.path);
            let is_news = !is_left_out && changed.is_news(before.as_ref());
            // An overlay shows the host's, with its credentials, and of a file that was replaced the former one.
            let path = &changed.path;
            let is_shown = is_overlay && changed.now.is_some() && !own.paths.contains(path);
            // Below a symlink or a file of the sandbox's something else would be written or removed, and what it has in a directory that
            // cannot be listed is not known.
            let is_no_directory = |above: &TreePath| {
                let inside = sorted.delta.get(above).map_or(state.base.nodes.get(above), Option::as_ref);
                let is_other = inside.is_some_and(|node| !node.is_directory());
                state.skipped.rejected.unlisted.contains(above) || !taken.contains(above) && is_other
            };
            let step = match is_git(path) && own.keeps_repository(path) {
                _ if path.ancestors().any(|above| is_no_directory(&above)) => RefreshStep::Conflict,
                true if is_shown && git_directory::is_rewritten(&self.root, path) => RefreshStep::Take,
                true => RefreshStep::Know,
                false if own.keeps(path) => RefreshStep::Know,
                false if is_shown && own.replaced.contains(path) => RefreshStep::Take,
                false => state.judge(&self.root, &changed, before.as_ref(), &sorted.delta),
            };
            let edit = Change { before: before.clone(), after: changed.now.clone() };
            if let RefreshStep::Conflict = step
                && is_news
                && let Some(node) = self.merged_with_host(state, &changed, before, &sorted.delta).await?
            {
                sorted.edits.push((changed.path.clone(), edit));
                sorted.refreshed.merged.push(changed.path.clone());
                sorted.merged.push((changed, node));
                continue;
            }
            match step {
                RefreshStep::Take | RefreshStep::Shown if is_news => {
                    sorted.edits.push((changed.path.clone(), edit));
                    sorted.refreshed.followed.push(changed.path.clone());
                }
                RefreshStep::Conflict if is_news => sorted.refreshed.conflicts.push(changed.path.clone()),
                _ => {}
            }
            match (step, &mut state.view) {
                (RefreshStep::Take, _) => {
                    sorted.delta.remove(&changed.path);
                    state.accepted.remove(&changed.path);
                    taken.insert(changed.path.clone());
                    sorted.taken.push(changed);
                }
                (RefreshStep::Shown, Some(view)) => view.forget(&changed.path),
                (RefreshStep::Know, Some(view)) => view.know(&changed.path, changed.stamp()),
                (RefreshStep::Conflict, Some(view)) => view.keep(&changed.path, changed.stamp()),
                (_, None) => {}
            }
        }
        Ok(sorted)
    }

    /// Looks at the host. The first time after a process has attached to a running sandbox, at all of it.
    async fn host_changes(&self, state: &mut SessionState) -> Result<HostChanges> {
        let (root, options) = (self.root.clone(), self.options.clone());
        let mut view = state.view.take().unwrap_or_default();
        let base = std::mem::take(&mut state.base);
        let look = move || {
            let changes = view.refresh(&root, &options, &base);
            Ok((view, base, changes))
        };
        let (view, base, changes) = blocking(look).await?;
        (state.view, state.base) = (Some(view), base);
        changes
    }

    /// Returns what a file becomes that the sandbox has changed and the user too, `before` being what both began with. `None` where
    /// that cannot be told line by line.
    async fn merged_with_host(
        &self,
        state: &SessionState,
        changed: &ChangedPath,
        before: Option<Node>,
        delta: &Delta,
    ) -> Result<Option<Node>> {
        let inside =
            delta.get(&changed.path).cloned().unwrap_or(state.base.nodes.get(&changed.path).cloned());
        let (Some(Node::File { hash: now, .. }), Some(Node::File { hash: own, .. })) =
            (&changed.now, &inside)
        else {
            return Ok(None);
        };
        let (now, own) = (*now, *own);
        let edit = Change { before, after: changed.now.clone() };
        let (root, store, path) = (self.root.clone(), self.store.clone(), changed.path.clone());
        blocking(move || {
            let Ok(mut file) = HostDir::open(&root)?.open_file(&path) else { return Ok(None) };
            // Saved once more since, it is seen again by the next look.
            if store.put_from(&mut file)?.0 != now || !store.contains(own) {
                return Ok(None);
            }
            let read = |_| store.read(own);
            let ours = Ours { found: inside.as_ref(), read: &read, other: "your file" };
            Ok(match merge::three_way(&ours, &edit, &store)? {
                Merged::Clean(node) => Some(node),
                Merged::Impossible(_) => None,
            })
        })
        .await
    }

    /// Adds edits of the user's to what earlier checkpoints have of the same files: else an undo would bring back the session's version
    /// without the edit, as if the session had reverted it. Lines that both changed stand there between conflict markers.
    async fn carry_into_checkpoints(
        &self,
        state: &mut SessionState,
        edits: Vec<(TreePath, Change)>,
    ) -> Result<()> {
        let is_file = |node: &Option<Node>| matches!(node, Some(Node::File { .. }));
        let are_files = |change: &Change| is_file(&change.before) && is_file(&change.after);
        let edits: BTreeMap<TreePath, Change> =
            edits.into_iter().filter(|(path, change)| are_files(change) && !is_git(path)).collect();
        if edits.is_empty() || state.history.list().len() < 2 {
            return Ok(());
        }
        let (root, store) = (self.root.clone(), self.store.clone());
        let node = |path: &TreePath| Some((path.clone(), state.base.nodes.get(path)?.clone()));
        let (mut history, base) = (state.history.clone(), edits.keys().filter_map(node).collect());
        state.history = blocking(move || {
            let carry = |path: &TreePath, node: &Node| -> Result<Option<Node>> {
                let Some(edit) = edits.get(path).filter(|_| is_file(&Some(node.clone()))) else {
                    return Ok(None);
                };
                if let Some(Node::File { hash, .. }) = &edit.after
                    && !store.contains(*hash)
                {
                    let Ok(mut file) = HostDir::open(&root)?.open_file(path) else { return Ok(None) };
                    // Saved once more since, it is carried with the next look.
                    if store.put_from(&mut file)?.0 != *hash {
                        return Ok(None);
                    }
                }
                let read = |_| match node {
                    Node::File { hash, .. } => store.read(*hash),
                    _ => Ok(Vec::new()),
                };
                let ours = Ours { found: Some(node), read: &read, other: "your file" };
                Ok(match merge::three_way(&ours, edit, &store)? {
                    Merged::Clean(node) => Some(node),
                    Merged::Impossible(_) => merge::with_markers(&ours, edit, &store)?,
                })
            };
            history.carry(&base, &carry, &store)?;
            Ok(history)
        })
        .await?;
        Ok(())
    }

    /// Puts merged files into the sandbox. The host's versions are what its changes start from now. Returns those that could not be
    /// written, which are as they were.
    async fn take_both(
        &self,
        state: &mut SessionState,
        sandbox: &Sandbox,
        merged: Vec<(ChangedPath, Node)>,
        delta: &mut Delta,
    ) -> Vec<TreePath> {
        let mut failed = Vec::new();
        for (changed, node) in merged {
            let stamp = changed.stamp();
            let ChangedPath { path, now, .. } = changed;
            let one = vec![(path.clone(), node.clone())];
            if transfer::write_nodes(sandbox, &self.store, one).await.is_err() {
                if let Some(view) = &mut state.view {
                    view.keep(&path, stamp);
                }
                failed.push(path);
                continue;
            }
            match is_same(now.as_ref(), Some(&node)) {
                true => delta.remove(&path),
                false => delta.insert(path.clone(), Some(node)),
            };
            state.accepted.remove(&path);
            if let (Some(now), Some(stamp)) = (now, stamp) {
                state.base.nodes.insert(path.clone(), now);
                state.base.stamps.insert(path.clone(), stamp);
            }
            if let Some(view) = &mut state.view {
                view.forget(&path);
            }
        }
        failed
    }

    /// Reads what the host has now.
    async fn observe(&self, paths: BTreeMap<TreePath, Option<Picked>>) -> Result<Vec<ChangedPath>> {
        let root = self.root.clone();
        blocking(move || {
            let host = HostDir::open(&root)?;
            let observe = |(path, picked): (TreePath, Option<Picked>)| {
                let now = match &picked {
                    None => None,
                    Some(Picked { kind: PickedKind::Symlink(target), .. }) => {
                        Some(Node::Symlink { target: Target(target.clone()) })
                    }
                    Some(Picked { kind: PickedKind::Directory, mode, .. }) => {
                        Some(Node::Directory { mode: *mode })
                    }
                    // Removed or replaced since, it is seen again by the next look.
                    Some(_) => host.observe(&path).ok()?.node,
                };
                Some(ChangedPath { path, now, picked })
            };
            Ok(paths.into_iter().filter_map(observe).collect())
        })
        .await
    }

    /// Takes what the host has into the base, and into the sandbox. Returns what could not be written there, which is as it was in both.
    async fn take(
        &self,
        state: &mut SessionState,
        sandbox: &Sandbox,
        taken: Vec<ChangedPath>,
    ) -> BTreeSet<TreePath> {
        let SessionState { base, view, .. } = state;
        let former = |path: &TreePath| (base.nodes.get(path).cloned(), base.stamps.get(path).copied());
        let former: BTreeMap<TreePath, (Option<Node>, Option<Stamp>)> =
            taken.iter().map(|changed| (changed.path.clone(), former(&changed.path))).collect();
        let stamps: BTreeMap<TreePath, Option<Stamp>> =
            taken.iter().map(|changed| (changed.path.clone(), changed.stamp())).collect();
        let (mut removed, mut written) = (Vec::new(), Vec::new());
        for changed in taken {
            if let Some(view) = view {
                view.forget(&changed.path);
            }
            take_into(base, changed, &mut removed, &mut written);
        }
        // The deepest first; what is gone already, or is a directory with files that only the sandbox has, stays as it is.
        removed.reverse();
        let mut failed = BTreeSet::new();
        if !removed.is_empty() {
            let inside = removed.iter().map(transfer::inside).collect();
            // Where the call itself fails, nothing is known of any of them.
            let results = sandbox.remove_files(inside).await.ok();
            let is_directory =
                |path: &TreePath| matches!(former.get(path), Some((Some(Node::Directory { .. }), _)));
            for (at, path) in removed.into_iter().enumerate() {
                let is_there = match &results {
                    None => true,
                    Some(results) if results.get(at).is_some_and(Result::is_ok) => false,
                    Some(_) => !transfer::is_absent(sandbox, &path).await,
                };
                if is_there && !is_directory(&path) {
                    failed.insert(path);
                }
            }
        }
        if transfer::copy_again(&self.root, base, &self.store, sandbox, written.clone()).await.is_err() {
            for path in written {
                let one = vec![path.clone()];
                if transfer::copy_again(&self.root, base, &self.store, sandbox, one).await.is_err() {
                    failed.insert(path);
                }
            }
        }
        for path in &failed {
            let (node, stamp) = former.get(path).cloned().unwrap_or_default();
            forget(base, path);
            base.nodes.extend(node.map(|node| (path.clone(), node)));
            base.stamps.extend(stamp.map(|stamp| (path.clone(), stamp)));
            if let Some(view) = view {
                view.keep(path, stamps.get(path).copied().flatten());
            }
        }
        failed
    }
}

/// Takes one path into the base.
fn take_into(
    base: &mut Base,
    changed: ChangedPath,
    removed: &mut Vec<TreePath>,
    written: &mut Vec<TreePath>,
) {
    let stamp = changed.stamp();
    let ChangedPath { path, now, .. } = changed;
    let Some(node) = now else {
        forget(base, &path);
        return removed.push(path);
    };
    let former = base.nodes.get(&path);
    if former.is_some_and(|former| former.is_directory() != node.is_directory()) {
        removed.push(path.clone());
    }
    base.nodes.insert(path.clone(), node);
    match stamp {
        Some(stamp) if matches!(base.nodes.get(&path), Some(Node::File { .. })) => {
            base.stamps.insert(path.clone(), stamp);
        }
        _ => drop(base.stamps.remove(&path)),
    }
    written.push(path);
}

/// Returns whether a file lies in the work tree of the repository that one of git's files is of.
fn is_of_repository(file: &TreePath, of_git: &TreePath) -> bool {
    let names: Vec<&[u8]> = of_git.names().take_while(|name| *name != b".git").collect();
    file.names().take(names.len()).eq(names)
}

fn is_git(path: &TreePath) -> bool {
    path.names().any(|name| name == b".git")
}

fn forget(base: &mut Base, path: &TreePath) {
    base.nodes.remove(path);
    base.stamps.remove(path);
}

fn is_same(a: Option<&Node>, b: Option<&Node>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.same_content(b) && a.mode() == b.mode(),
        _ => false,
    }
}
