//! Files that both sides changed and that cannot be merged: which of them the user can decide about, and what a decision writes.

use super::{Check, Plan, Step, Verdict, keep_host_mode, not_wider, observe};
use crate::changes::{Change, ChangeSet};
use crate::host_dir::{HostDir, Observed};
use crate::manifest::Node;
use crate::merge::{self, Ours};
use crate::resolution::{Resolution, Resolutions, Settled, Undecided};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::error::Result;

impl Plan {
    /// The files of `changes` that need a decision; `None` where there is none, or where a conflict is beyond such a decision.
    pub fn undecided(host: &HostDir, changes: &ChangeSet, store: &Store) -> Result<Option<Vec<Undecided>>> {
        let nothing = Resolutions::new();
        let check = Check { host, changes, store, merge: Some(&nothing) };
        let mut undecided = Vec::new();
        for (path, change) in &changes.changes {
            let Verdict::Conflict(reason) = check.one(path, change)? else { continue };
            let Ok(Observed { node: found, .. }) = observe(host, path, changes) else { return Ok(None) };
            if !is_decidable(found.as_ref(), change) {
                return Ok(None);
            }
            let can_mark = check.marked(path, found.as_ref(), change)?.is_some();
            undecided.push(Undecided { path: path.clone(), reason, found, can_mark });
        }
        Ok((!undecided.is_empty()).then_some(undecided))
    }
}

impl Check<'_> {
    /// Returns what the user has decided about a file that cannot be merged for `reason`. It holds for the version that they were
    /// asked about.
    pub(super) fn as_decided(
        &self,
        path: &TreePath,
        found: Observed,
        change: &Change,
        reason: String,
    ) -> Result<Verdict> {
        let node = found.node.clone();
        let Some(decided) = self.merge.and_then(|decisions| decisions.get(path)) else {
            return Ok(Verdict::Conflict(reason));
        };
        if decided.found != node || !is_decidable(node.as_ref(), change) {
            return Ok(Verdict::Conflict("it changed on the host since the question about it".to_owned()));
        }
        let write = match decided.resolution {
            Resolution::Ours => node.clone(),
            Resolution::Theirs => keep_host_mode(node.as_ref(), change),
            Resolution::Markers | Resolution::Revise => match self.marked(path, node.as_ref(), change)? {
                Some(marked) => Some(marked),
                None => return Ok(Verdict::Conflict(reason)),
            },
        };
        // Also what is not overwritten is kept: the next diff begins with it.
        if let Some(reason) = self.cannot_replace(path, node.as_ref(), write.as_ref())? {
            return Ok(Verdict::Conflict(reason));
        }
        let settled = |on_host: &Option<Node>, inside: &Option<Node>| {
            Some(Settled { on_host: on_host.clone(), inside: inside.clone() })
        };
        Ok(match decided.resolution {
            Resolution::Ours => Verdict::Decided { step: None, settled: settled(&node, &node) },
            Resolution::Revise => Verdict::Decided { step: None, settled: settled(&node, &write) },
            Resolution::Theirs => Verdict::Decided { step: Some(Step { found, write }), settled: None },
            Resolution::Markers => {
                let settled = settled(&write, &write);
                Verdict::Decided { step: Some(Step { found, write }), settled }
            }
        })
    }

    fn marked(&self, path: &TreePath, found: Option<&Node>, change: &Change) -> Result<Option<Node>> {
        let read = |most| self.read(path, most);
        let marked =
            merge::with_markers(&Ours { found, read: &read, other: "the sandbox" }, change, self.store)?;
        Ok(marked.map(|marked| not_wider(marked, found, change)))
    }
}

/// Returns whether one version or the other can be taken: both are files or symlinks, or not there.
fn is_decidable(found: Option<&Node>, change: &Change) -> bool {
    [found, change.before.as_ref(), change.after.as_ref()]
        .into_iter()
        .flatten()
        .all(|node| !node.is_directory())
}
