//! Files that an apply has merged with the user's while no sandbox was attached: a sandbox that runs on gets them before anything runs in it.
//!
//! Otherwise its former content would look like a change that takes the user's edit back.

use super::Workspace;
use super::branch::merge_changes;
use super::records::{ACCEPTED, AWAITED};
use super::state::SessionState;
use crate::changes::Change;
use crate::manifest::Node;
use crate::transfer::inside;
use crate::tree_path::TreePath;
use agent_base::error::{Kind, Result};
use agent_sandbox::{EntryKind, Sandbox};
use std::collections::{BTreeMap, BTreeSet};

impl SessionState {
    /// What the sandbox has at `path`, by the last record.
    fn recorded(&self, path: &TreePath) -> Option<Node> {
        let base = || self.base.nodes.get(path).cloned();
        self.history.delta().get(path).map_or_else(base, Clone::clone)
    }
}

impl Workspace {
    /// Notes that the sandbox has `paths` as they are recorded now, whatever is recorded of them later.
    pub(super) async fn await_sandbox(&self, state: &mut SessionState, paths: &[TreePath]) -> Result<()> {
        for path in paths {
            let node = state.recorded(path);
            state.awaited.entry(path.clone()).or_insert(node);
        }
        self.save(AWAITED, state.awaited.clone()).await
    }

    /// Gives a sandbox that has run on the files that it has not got. What it has changed in them since is merged.
    pub(super) async fn give_to(&self, state: &mut SessionState, sandbox: &Sandbox) -> Result<()> {
        if state.awaited.is_empty() {
            return Ok(());
        }
        let change = |(path, before): (&TreePath, &Option<Node>)| {
            (path.clone(), Change { before: before.clone(), after: state.recorded(path) })
        };
        let changes: BTreeMap<TreePath, Change> = state.awaited.iter().map(change).collect();
        let mut left = BTreeSet::new();
        for path in changes.keys() {
            if !is_below_directories(sandbox, path).await? {
                left.insert(path.clone());
            }
        }
        let changes = changes.into_iter().filter(|(path, _)| !left.contains(path)).collect();
        let merge = merge_changes(sandbox, &self.store, changes).await?;
        left.extend(merge.conflicts.into_iter().map(|conflict| conflict.path));
        if !left.is_empty() {
            // The next look at the host finds that the sandbox has them otherwise, as it would without the apply.
            state.accepted.retain(|path, _| !left.contains(path));
            self.save(ACCEPTED, state.accepted.clone()).await?;
            let SessionState { history, base, awaited, .. } = &mut *state;
            let mut delta = history.delta().clone();
            for (path, before) in awaited.iter().filter(|(path, _)| left.contains(*path)) {
                match before.as_ref() == base.nodes.get(path) {
                    true => drop(delta.remove(path)),
                    false => drop(delta.insert(path.clone(), before.clone())),
                }
            }
            history.record(delta, &base.nodes, None, &self.store)?;
        }
        self.forget_awaited(state)
    }

    /// The same before something else than a prompt runs in the sandbox.
    pub(super) async fn own_give_awaited(&self, sandbox: &Sandbox) -> Result<()> {
        if self.state.lock().await.awaited.is_empty() {
            return Ok(());
        }
        self.give_to(&mut *self.state().await?, sandbox).await
    }

    /// Notes that the sandbox has all files as they are recorded.
    pub(super) fn forget_awaited(&self, state: &mut SessionState) -> Result<()> {
        if std::mem::take(&mut state.awaited).is_empty() { Ok(()) } else { self.store.remove(AWAITED) }
    }
}

/// Returns whether nothing but directories is above `path`: below a symlink of the sandbox's lies something else.
async fn is_below_directories(sandbox: &Sandbox, path: &TreePath) -> Result<bool> {
    for above in path.ancestors() {
        match sandbox.stat(&inside(&above)).await {
            Ok(found) if matches!(found.kind, EntryKind::Directory) => {}
            Err(error) if error.kind() != Kind::InSandbox => return Err(error),
            _ => return Ok(false),
        }
    }
    Ok(true)
}
