//! Files that an apply has merged with the user's while no sandbox was attached: a sandbox that runs on gets them before anything runs in it.
//!
//! Otherwise its former content would look like a change that takes the user's edit back.

use super::Workspace;
use super::branch::merge_changes;
use super::records::AWAITED;
use super::state::SessionState;
use crate::changes::Change;
use crate::manifest::Node;
use crate::tree_path::TreePath;
use agent_base::error::Result;
use agent_sandbox::Sandbox;
use std::collections::BTreeMap;

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
    pub(super) async fn give_awaited(&self, state: &mut SessionState, sandbox: &Sandbox) -> Result<()> {
        if state.awaited.is_empty() {
            return Ok(());
        }
        let change = |(path, before): (&TreePath, &Option<Node>)| {
            (path.clone(), Change { before: before.clone(), after: state.recorded(path) })
        };
        let changes: BTreeMap<TreePath, Change> = state.awaited.iter().map(change).collect();
        merge_changes(sandbox, &self.store, changes).await?;
        self.forget_awaited(state)
    }

    /// Notes that the sandbox has all files as they are recorded.
    pub(super) fn forget_awaited(&self, state: &mut SessionState) -> Result<()> {
        if std::mem::take(&mut state.awaited).is_empty() { Ok(()) } else { self.store.remove(AWAITED) }
    }
}
