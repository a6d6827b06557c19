//! A tree that the sandbox writes straight into: its files are kept as they were before, and what each prompt changed is recorded as an
//! apply is, so that it is taken back like one.

use super::records::{APPLIED, AppliedRecord};
use super::state::SessionState;
use super::{Workspace, review};
use crate::base::Base;
use crate::changes::{Change, ChangeSet};
use crate::host_dir::HostDir;
use crate::manifest::{Delta, Node};
use crate::mode::Mode;
use crate::selection::{PickedKind, Selection};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};
use agent_sandbox::Sandbox;

/// Bytes of a tree that is kept; what git ignores and git's own files do not count.
const MAX_BYTES: u64 = 1 << 30;
/// Files of it.
const MAX_FILES: usize = 50_000;
/// Prompts that can be taken back.
const MAX_RECORDS: usize = 100;

/// Checks that a tree is small enough to be kept.
///
/// # Errors
/// `Usage`: it is not.
pub fn check(selection: &Selection) -> Result<()> {
    let kept = selection
        .picked
        .iter()
        .filter(|(path, picked)| picked.kind == PickedKind::File && !path.is_git_internal());
    let (files, bytes) = kept.fold((0_usize, 0_u64), |(files, bytes), (_, picked)| {
        (files + 1, bytes.saturating_add(picked.stamp.size))
    });
    if files <= MAX_FILES && bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--workspace-mode bind keeps the workspace as it was, and it is too large for that: {}, {} MiB \
         (at most {MAX_FILES} and {} MiB)",
        counted(files, "file"),
        bytes >> 20,
        MAX_BYTES >> 20
    ))
    .hint("leave --workspace-mode out, which copies nothing of a large tree, or leave parts of it out with --exclude GLOB"))
}

/// Keeps the content of every file of the tree but git's own, before the sandbox can write to it. Blocking.
///
/// # Errors
/// The store cannot be written.
pub fn keep(base: &mut Base, host: &HostDir, store: &Store) -> Result<()> {
    let is_kept =
        |(path, node): &(&TreePath, &Node)| matches!(node, Node::File { .. }) && !path.is_git_internal();
    let files: Vec<TreePath> = base.nodes.iter().filter(is_kept).map(|(path, _)| path.clone()).collect();
    files.iter().try_for_each(|path| base.settle(path, host, store))
}

impl Workspace {
    /// Returns whether the sandbox writes straight into the host's directory.
    pub fn is_in_place(&self) -> bool {
        self.mode == Mode::Bind
    }

    /// Before a prompt, or before anything runs: takes what the user has changed since the session looked last into the base. The files.
    pub(super) async fn follow_user(
        &self,
        state: &mut SessionState,
        sandbox: &Sandbox,
    ) -> Result<Vec<TreePath>> {
        // All of it: what is in a directory that the session made is in no list of the host's yet.
        self.look(state, sandbox, None).await?;
        let SessionState { history, base, before_prompt, .. } = &mut *state;
        let changed = history.files_differing(before_prompt, &base.nodes);
        let mut delta = history.delta().clone();
        for path in &changed {
            // What the session has changed before remains a change of the session, even if the user wrote it last.
            if !before_prompt.contains_key(path) {
                match delta.remove(path).flatten() {
                    Some(node) => base.nodes.insert(path.clone(), node),
                    None => base.nodes.remove(path),
                };
            }
        }
        if !changed.is_empty() {
            history.record(delta, &base.nodes, None, &self.store)?;
            state.has_unsaved_edits = true;
        }
        state.before_prompt = state.history.delta().clone();
        Ok(changed)
    }

    /// Records what prompt number `prompt` has changed, together with what it changed before.
    pub(super) async fn record_written(&self, state: &mut SessionState, prompt: u64) -> Result<()> {
        let ChangeSet { mut changes, .. } = review(state, &self.store, &state.before_prompt)?;
        match &state.view {
            // What git ignored before the prompt is the user's, whatever the rules say now.
            Some(view) => changes.retain(|path, _| !view.ignores(path)),
            None => changes.retain(|_, change| change.before.is_some()),
        }
        state.before_prompt = state.history.delta().clone();
        if changes.is_empty() {
            return Ok(());
        }
        let goes_on = |record: &mut AppliedRecord| {
            let written = &record.written.changes;
            let is_as_left = |(path, change): (&TreePath, &Change)| {
                written.get(path).is_none_or(|former| former.after == change.before)
            };
            record.prompt == Some(prompt) && changes.iter().all(is_as_left)
        };
        let mut written = state.applied.pop_if(goes_on).map(|record| record.written).unwrap_or_default();
        for (path, change) in changes {
            let before = written.changes.remove(&path).map_or(change.before, |former| former.before);
            if before != change.after {
                written.changes.insert(path, Change { before, after: change.after });
            }
        }
        if !written.changes.is_empty() {
            let time = agent_event::now();
            state.applied.push(AppliedRecord { time, written, accepted: Delta::new(), prompt: Some(prompt) });
            let excess = state.applied.len().saturating_sub(MAX_RECORDS);
            state.applied.drain(..excess);
        }
        self.save(APPLIED, state.applied.clone()).await
    }

    /// Notes that the files of `record` are as they were before it.
    pub(super) fn forget_written(&self, state: &mut SessionState, record: &AppliedRecord) -> Result<()> {
        let SessionState { history, base, before_prompt, .. } = state;
        let mut delta = history.delta().clone();
        for changed in [&mut delta, before_prompt] {
            for (path, change) in &record.written.changes {
                match base.nodes.get(path) == change.before.as_ref() {
                    true => changed.remove(path),
                    false => changed.insert(path.clone(), change.before.clone()),
                };
            }
        }
        history.record(delta, &base.nodes, None, &self.store).map(drop)
    }

    /// Takes back in the user's files what the last `prompts` prompts changed there, none of them older than prompt number `since`: the
    /// files, how many prompts that were, and why it were not more.
    ///
    /// # Errors
    /// `Conflict`: one of the files is not as the last prompt left it. Nothing is taken back.
    pub async fn undo_prompts(
        &self,
        prompts: usize,
        since: u64,
    ) -> Result<(Vec<TreePath>, usize, Option<Error>)> {
        let (mut files, mut undone) = (Vec::new(), 0);
        while undone < prompts {
            let paths = {
                let state = self.state().await?;
                let last = state.applied.last().filter(|record| record.prompt >= Some(since));
                let Some(last) = last else { break };
                last.written.changes.keys().cloned().collect::<Vec<_>>()
            };
            match self.undo_apply().await {
                Ok(_) => files.extend(paths),
                Err(error) if undone == 0 => return Err(error),
                Err(error) => return Ok((files, undone, Some(error))),
            }
            undone += 1;
        }
        files.sort();
        files.dedup();
        Ok((files, undone, None))
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, check};
    use crate::selection::{Picked, PickedKind, Selection, Stamp};
    use crate::tree_path::TreePath;

    fn with_file(name: &str, size: u64) -> Selection {
        let stamp = Stamp { size, ..Stamp::default() };
        let picked = Picked { kind: PickedKind::File, mode: 0o644, stamp, uid: 0, device: 0 };
        let path = TreePath::new(name.as_bytes()).expect("a path");
        Selection { picked: vec![(path, picked)], ..Selection::default() }
    }

    #[test]
    fn a_tree_that_is_too_large_is_refused_and_gits_own_files_do_not_count() {
        check(&with_file("a.bin", MAX_BYTES)).expect("it fits");
        check(&with_file(".git/objects/pack/a.pack", 2 * MAX_BYTES)).expect("git's own are not kept");
        let refused = check(&with_file("a.bin", 2 * MAX_BYTES)).expect_err("it is too large");
        assert!(refused.to_string().contains("1 file, 2048 MiB (at most 50000 and 1024 MiB)"), "{refused}");
        assert!(refused.hint_text().is_some_and(|hint| hint.contains("--exclude")), "{refused:?}");
    }
}
