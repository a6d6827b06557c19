//! A tree that the sandbox writes straight into: its files are kept as they were before, and what each prompt changed is recorded as an
//! apply is, so that it is taken back like one.

use super::{APPLIED, Record, State, Workspace, review};
use crate::base::Base;
use crate::changes::ChangeSet;
use crate::host_dir::HostDir;
use crate::manifest::{Delta, Node};
use crate::mode::Mode;
use crate::selection::{PickedKind, Selection};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};

/// Bytes of a tree that is kept; what git ignores and git's own files do not count.
const MAX_BYTES: u64 = 1 << 30;
/// Files of it.
const MAX_FILES: usize = 50_000;

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
        "--workspace-mode bind keeps the workspace's files as they were, and these are too many for that: {}, {} MiB \
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

    /// Records what prompt number `prompt` changed beyond `former`, together with what it changed before.
    pub(super) async fn record_written(&self, state: &mut State, former: &Delta, prompt: u64) -> Result<()> {
        let ChangeSet { mut changes, .. } = review(state, &self.store, former)?;
        match &state.view {
            // What git ignored before the prompt is the user's, whatever the rules say now.
            Some(view) => changes.retain(|path, _| !view.ignores(path)),
            None => changes.retain(|_, change| change.before.is_some()),
        }
        if changes.is_empty() {
            return Ok(());
        }
        let of_prompt = state.applied.pop_if(|record| record.prompt == Some(prompt));
        let mut written = of_prompt.map(|record| record.written).unwrap_or_default();
        for (path, change) in changes {
            let before = written.changes.remove(&path).map_or(change.before, |former| former.before);
            if before != change.after {
                written.changes.insert(path, crate::changes::Change { before, after: change.after });
            }
        }
        let time = agent_event::now();
        state.applied.push(Record { time, written, accepted: Delta::new(), prompt: Some(prompt) });
        self.save(APPLIED, state.applied.clone()).await
    }

    /// Notes that the files of `record` are as they were before it.
    pub(super) fn forget_written(&self, state: &mut State, record: &Record) -> Result<()> {
        let State { history, base, .. } = state;
        let mut delta = history.delta().clone();
        for (path, change) in &record.written.changes {
            match base.nodes.get(path) == change.before.as_ref() {
                true => delta.remove(path),
                false => delta.insert(path.clone(), change.before.clone()),
            };
        }
        history.record(delta, &base.nodes, None, &self.store).map(drop)
    }

    /// Takes back in the user's files what the last `prompts` prompts changed there, none of them older than prompt number `since`: the
    /// files, and how many prompts that were.
    ///
    /// # Errors
    /// `Conflict`: one of the files is not as the prompt left it. Nothing of that prompt is taken back.
    pub async fn undo_prompts(&self, prompts: usize, since: u64) -> Result<(Vec<TreePath>, usize)> {
        let (mut files, mut undone) = (Vec::new(), 0);
        while undone < prompts {
            let paths = {
                let state = self.state().await?;
                let last = state.applied.last().filter(|record| record.prompt >= Some(since));
                let Some(last) = last else { break };
                last.written.changes.keys().cloned().collect::<Vec<_>>()
            };
            self.undo_apply().await.map_err(|error| match undone {
                0 => error,
                _ => {
                    error.context(&format!("{} undone, and the one before is not", counted(undone, "prompt")))
                }
            })?;
            files.extend(paths);
            undone += 1;
        }
        files.sort();
        files.dedup();
        Ok((files, undone))
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
