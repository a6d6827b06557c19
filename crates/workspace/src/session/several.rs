//! Several directories under one review: the workspace, and the directories that were added to be written to (`--add-dir`).
//!
//! Each added directory is a [`Workspace`] of its own: base, layer, checkpoints and records lie in `added/N` of the session's records, and
//! its operations go through a view of the sandbox in which relative paths start there ([`Sandbox::at`]). The session's workspace holds
//! them, and every operation here covers all: what they changed is one [`ChangeSet`], in which the paths of added directories are absolute
//! ([`TreePath::outside`]). So what shows, selects, judges or writes changes has one workspace. A checkpoint of the session's workspace
//! names those of the others, so that an undo restores the same moment in all of them.
//!
//! An apply is checked in all directories before anything is written; where a write fails in one, what was written in the others is taken
//! back. Only the workspace's own: `--branch` (commits that were made inside), delegated parts, races and batches.

use super::records::AppliedRecord;
use super::state::SessionState;
use super::{Applied, Options, Refreshed, Restored, Workspace, blocking};
use crate::apply::conflicts_error;
use crate::changes::ChangeSet;
use crate::history::{Checkpoint, OfAdded};
use crate::manifest::{Delta, Node};
use crate::mode::Mode;
use crate::resolution::{Resolutions, Undecided};
use crate::restore;
use crate::transfer::{CopyReport, OnCopied};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_event::Changes;
use agent_sandbox::{Access, AddedMount, Sandbox, WorkspaceMount};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tokio::sync::MutexGuard;

/// The directory of the records of added directories, in those of a session's workspace.
const ADDED: &str = "workspace/added";

/// The part of a change that is about one directory, with paths relative to it.
struct Part<'w> {
    workspace: &'w Workspace,
    /// The directory, if it was added.
    root: Option<&'w Path>,
    changes: ChangeSet,
    decided: Resolutions,
}

/// Returns the directory of the records of the added directory with this index.
pub(super) fn directory_of(session: &Path, index: usize) -> PathBuf {
    session.join(ADDED).join(index.to_string())
}

/// The directories with records of added directories.
pub(super) fn directories(session: &Path) -> impl Iterator<Item = PathBuf> {
    let session = session.to_owned();
    (0..).map(move |index| directory_of(&session, index)).take_while(|directory| directory.is_dir())
}

impl Workspace {
    /// With directories that are reviewed together with it.
    pub(super) fn with_added(mut self, added: Vec<Self>) -> Self {
        self.shown = self.store.reading_beside(added.iter().map(|workspace| workspace.store.clone()));
        self.added = added.into_iter().map(|added| Self { is_added: true, ..added }).collect();
        self
    }

    /// With further directories, which `session` has not had.
    ///
    /// # Errors
    /// One cannot be opened.
    pub async fn adding(mut self, session: &Path, roots: &[PathBuf]) -> Result<Self> {
        let known: Vec<PathBuf> = self.added_roots().map(Path::to_owned).collect();
        let mut added = std::mem::take(&mut self.added);
        for root in roots.iter().filter(|root| !known.contains(root)) {
            let (root, directory) = (root.clone(), directory_of(session, added.len()));
            let mode = if self.mode == Mode::Bind { Mode::Auto } else { self.mode };
            let options = Options { mode, can_overlay: true, named: true, ..Options::new(self.machine()) };
            let options = Options { select: self.options.of_added(), ..options };
            let opened = blocking(move || Self::open_one(&root, &directory, None, options)).await?;
            opened.record_beginning().await?;
            added.push(opened);
        }
        Ok(self.with_added(added))
    }

    /// The directories that were added to it.
    pub fn added_roots(&self) -> impl Iterator<Item = &Path> {
        self.added.iter().map(Self::root)
    }

    /// It and the directories that were added, each with its root if it is one of those.
    fn all(&self) -> impl Iterator<Item = (Option<&Path>, &Self)> {
        std::iter::once((None, self)).chain(self.added.iter().map(|added| (Some(added.root()), added)))
    }

    /// The sandbox as it is seen from this directory, if that was added.
    fn inside(root: Option<&Path>, sandbox: &Sandbox) -> Sandbox {
        root.map_or_else(|| sandbox.clone(), |root| sandbox.clone().at(root))
    }

    /// Returns the mounts by which the backend shows the directories that were added.
    pub async fn added_mounts(&self) -> Vec<AddedMount> {
        let mut mounts = Vec::new();
        for added in &self.added {
            let (access, hidden) = match added.mount().await {
                WorkspaceMount::Overlay { hidden, .. } => (Access::CopyOnWrite, hidden),
                _ => (Access::Copy, Vec::new()),
            };
            mounts.push(AddedMount { path: added.root.clone(), hidden, to_come: Vec::new(), access });
        }
        mounts
    }

    /// After a start with an overlay that failed: copies the files of all directories, unless an overlay was requested by name.
    /// `false` where that would change nothing.
    pub async fn fall_back_to_copy(&self) -> Result<bool> {
        let mut is_changed = false;
        for (_, workspace) in self.all() {
            is_changed |= workspace.own_fall_back_to_copy().await?;
        }
        Ok(is_changed)
    }

    /// Looks at the host's trees again for a fresh sandbox of a resumed session, before [`Workspace::restore_into`]. Returns notices for
    /// the user.
    pub async fn reopen(&self, can_overlay: bool) -> Result<Vec<String>> {
        let mut notices: Vec<String> = self.own_reopen(can_overlay).await?.into_iter().collect();
        notices.extend(self.reopen_added(can_overlay).await?);
        Ok(notices)
    }

    /// Looks at the directories that were added again, as [`Workspace::reopen`] does.
    pub async fn reopen_added(&self, can_overlay: bool) -> Result<Vec<String>> {
        let mut notices = Vec::new();
        for added in &self.added {
            notices.extend(added.own_reopen(can_overlay).await?.map(|notice| added.said(&notice)));
        }
        Ok(notices)
    }

    fn said(&self, notice: &str) -> String {
        format!("{}: {notice}", self.root.display())
    }

    /// Copies the files of all directories into a fresh sandbox of a new session, before anything runs in it.
    pub async fn copy_in(&self, sandbox: &Sandbox, on_copied: OnCopied<'_>) -> Result<CopyReport> {
        let mut report = self.own_copy_in(sandbox, on_copied).await?;
        for added in &self.added {
            report.add(added.own_copy_in(&Self::inside(Some(&added.root), sandbox), on_copied).await?);
        }
        Ok(report)
    }

    /// Restores the state of the session in a fresh sandbox: the host's trees as they are now, and on top of them everything that the
    /// session had changed. Files that the session changed keep their old base, so that a change on the host meanwhile is a conflict
    /// when they are applied.
    ///
    /// A workspace of [`Workspace::as_it_began`] is restored to its base instead, as far as that is kept.
    pub async fn restore_into(&self, sandbox: &Sandbox, on_copied: OnCopied<'_>) -> Result<CopyReport> {
        let mut report = self.own_restore_into(sandbox, on_copied).await?;
        report.add(self.restore_added_into(sandbox, on_copied).await?);
        Ok(report)
    }

    /// Restores the directories that were added, as [`Workspace::restore_into`] does.
    pub async fn restore_added_into(&self, sandbox: &Sandbox, on_copied: OnCopied<'_>) -> Result<CopyReport> {
        let mut report = CopyReport::default();
        for added in &self.added {
            report.add(added.own_restore_into(&Self::inside(Some(&added.root), sandbox), on_copied).await?);
        }
        Ok(report)
    }

    /// Continues with a sandbox of this session that is still running.
    pub async fn rejoin(&self, sandbox: &Sandbox) -> Result<()> {
        for (root, workspace) in self.all() {
            workspace.own_rejoin(&Self::inside(root, sandbox)).await?;
        }
        Ok(())
    }

    /// Gives a sandbox of this session that runs on what an apply has merged while none was attached. A prompt does so itself.
    ///
    /// # Errors
    /// The sandbox is lost.
    pub async fn give_awaited(&self, sandbox: &Sandbox) -> Result<()> {
        for (root, workspace) in self.all() {
            workspace.own_give_awaited(&Self::inside(root, sandbox)).await?;
        }
        Ok(())
    }

    /// Has git in a fresh sandbox count the files of filters as unchanged, before anything runs there.
    pub async fn settle_filtered_files(&self, sandbox: &Sandbox) -> Result<()> {
        for (root, workspace) in self.all() {
            workspace.own_settle_filtered_files(&Self::inside(root, sandbox)).await?;
        }
        Ok(())
    }

    /// Returns whether the last sandbox got all files of all directories. In one that did not, they would look deleted.
    pub fn is_filled(&self) -> bool {
        self.all().all(|(_, workspace)| workspace.own_is_filled())
    }

    /// Returns what the sandbox changed, as of now.
    pub async fn changes(&self, sandbox: &Sandbox) -> Result<ChangeSet> {
        {
            let mut state = self.state().await?;
            self.look_everywhere(&mut state, sandbox, None).await?;
        }
        self.recorded_changes().await
    }

    /// Returns what the sandbox had changed at the last checkpoint.
    pub async fn recorded_changes(&self) -> Result<ChangeSet> {
        let mut changes = {
            let state = self.state().await?;
            self.reviewed(&state).await?
        };
        for added in &self.added {
            let state = added.state().await?;
            changes.add(&added.root, added.reviewed(&state).await?);
        }
        Ok(changes)
    }

    /// Counts what the session has changed since it began, whether or not it was applied meanwhile.
    pub async fn all_changes(&self) -> Result<Changes> {
        let mut sum = Changes::default();
        for (_, workspace) in self.all() {
            add_counts(&mut sum, workspace.own_all_changes().await?);
        }
        Ok(sum)
    }

    /// Returns what was withheld from the sandbox because it looks like a secret.
    pub async fn withheld_secrets(&self) -> Result<Vec<TreePath>> {
        let mut withheld = Vec::new();
        for (root, workspace) in self.all() {
            let of_one = workspace.own_withheld_secrets().await?;
            withheld.extend(of_one.into_iter().map(|path| shown(root, &path)));
        }
        Ok(withheld)
    }

    /// Records the sandbox's tree after prompt number `prompt`, if it differs from the last checkpoint.
    pub async fn checkpoint(&self, sandbox: &Sandbox, prompt: u64) -> Result<Option<Checkpoint>> {
        let mut state = self.state().await?;
        self.look_everywhere(&mut state, sandbox, Some(prompt)).await
    }

    /// Looks at all directories; a checkpoint of the workspace names those that the others are at.
    async fn look_everywhere(
        &self,
        state: &mut SessionState,
        sandbox: &Sandbox,
        prompt: Option<u64>,
    ) -> Result<Option<Checkpoint>> {
        let mut of_added = OfAdded::default();
        for added in &self.added {
            let mut state = added.state().await?;
            let found = added.look(&mut state, &Self::inside(Some(&added.root), sandbox), prompt).await?;
            if let Some(Checkpoint { files, names, forgotten, .. }) = found {
                of_added.files += files;
                of_added.forgotten += forgotten;
                of_added.names.extend(names.iter().map(|path| TreePath::outside(&added.root, path)));
            }
            of_added.at.push(state.history.current().id.clone());
        }
        let found = self.look(state, sandbox, prompt).await?;
        if self.added.is_empty() {
            return Ok(found);
        }
        state.history.name_added(found, of_added, prompt, &self.store)
    }

    pub(super) async fn restore_checkpoint(&self, sandbox: &Sandbox, steps: i64) -> Result<Restored> {
        let mut state = self.state().await?;
        self.look_everywhere(&mut state, sandbox, None).await?;
        let (index, target) = state.history.seek(steps, &self.store)?;
        let checkpoint = state.history.list()[index].clone();
        // All are found before one is restored.
        let mut targets = Vec::new();
        for (number, added) in self.added.iter().enumerate() {
            let state = added.state().await?;
            // A directory that was added later is as it began.
            let id = checkpoint.added.get(number).map_or("0", String::as_str);
            let (index, target) = state.history.find(id, &added.store)?;
            targets.push((added, state, index, target));
        }
        let mut files = self.restore_to(&mut state, sandbox, index, target).await?;
        for (added, mut state, index, target) in targets {
            let inside = Self::inside(Some(&added.root), sandbox);
            let restored = added.restore_to(&mut state, &inside, index, target).await?;
            files.extend(restored.iter().map(|path| TreePath::outside(&added.root, path)));
        }
        Ok(Restored { checkpoint, files })
    }

    /// Opens directories that the session has closed, so that what it did in them is recorded, and can be undone. They have the modes that they
    /// began with then.
    pub async fn open_closed(&self, sandbox: &Sandbox) -> Result<()> {
        for (root, workspace) in self.all() {
            workspace.own_open_closed(&Self::inside(root, sandbox)).await?;
        }
        Ok(())
    }

    async fn restore_to(
        &self,
        state: &mut MutexGuard<'_, SessionState>,
        sandbox: &Sandbox,
        index: usize,
        target: Delta,
    ) -> Result<Vec<TreePath>> {
        if index == state.history.position() && *state.history.delta() == target {
            return Ok(Vec::new());
        }
        restore::restore(sandbox, &state.base, &self.store, state.history.delta(), &target).await?;
        let files = state.history.files_differing(&target, &state.base.nodes);
        state.history.move_to(index, target, &self.store)?;
        Ok(files)
    }

    /// Brings the sandbox up to date with the host, as far as it has not changed the same files itself.
    pub async fn refresh(&self, sandbox: &Sandbox) -> Result<Refreshed> {
        let mut all = Refreshed::default();
        for (root, workspace) in self.all() {
            let of_one = match workspace.own_refresh(&Self::inside(root, sandbox)).await {
                Ok(of_one) => of_one,
                // The others are still followed.
                Err(error) if root.is_some() => Refreshed {
                    withheld: Some(format!("What changed there on the host is not followed: {error}.")),
                    ..Refreshed::default()
                },
                Err(error) => return Err(error),
            };
            let names = |paths: Vec<TreePath>| paths.into_iter().map(|path| shown(root, &path));
            all.followed.extend(names(of_one.followed));
            all.merged.extend(names(of_one.merged));
            all.conflicts.extend(names(of_one.conflicts));
            let withheld = of_one.withheld.map(|text| match root {
                Some(_) => workspace.said(&text),
                None => text,
            });
            all.withheld =
                all.withheld.into_iter().chain(withheld).reduce(|all, text| format!("{all} {text}"));
        }
        Ok(all)
    }

    /// Hides what is not for the sandbox and was out of sight when it was to be hidden, once the overlays are shown anew.
    pub async fn hide_out_of_sight(&self, sandbox: &Sandbox) -> Result<()> {
        for (root, workspace) in self.all() {
            workspace.own_hide_out_of_sight(&Self::inside(root, sandbox)).await?;
        }
        Ok(())
    }

    /// Returns whether the sandbox sees the host's tree, with what comes there.
    pub async fn shows_host(&self) -> bool {
        super::shows_host(&self.state.lock().await.mount)
    }

    /// Returns whether an overlay may show other files than the user has now: something has changed on the host since the last look, or was
    /// not shown at it.
    pub async fn has_news(&self) -> bool {
        for (_, workspace) in self.all() {
            if workspace.own_has_news().await {
                return true;
            }
        }
        false
    }

    /// Compares the host's whole trees ahead of the next [`Workspace::refresh`], which then need not do that. Nothing is done where that
    /// was done lately, where a tree cannot be watched, or before the first look of a process that attached to a running sandbox.
    pub async fn prepare_refresh(&self) -> Result<()> {
        for (_, workspace) in self.all() {
            workspace.own_prepare_refresh().await?;
        }
        Ok(())
    }

    /// The parts of a change, of each directory that it is about; the workspace's first, even if that is empty.
    fn parts(&self, changes: &ChangeSet, decided: &Resolutions) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        for (root, workspace) in self.all() {
            let own = changes.changes.iter();
            let own = own.filter_map(|(path, change)| Some((relative(root, path)?, change.clone())));
            let decided = decided.iter().filter_map(|(path, how)| Some((relative(root, path)?, how.clone())));
            let changes = ChangeSet { changes: own.collect(), ..changes.without_changes() };
            if root.is_none() || !changes.is_empty() {
                parts.push(Part { workspace, root, changes, decided: decided.collect() });
            }
        }
        parts
    }

    /// The parts of a change, each with its directory and paths relative to that.
    pub fn by_root(&self, changes: &ChangeSet) -> Vec<(&Path, ChangeSet)> {
        let parts = self.parts(changes, &Resolutions::new()).into_iter();
        let written = parts.filter(|part| !part.changes.is_empty());
        written.map(|part| (part.workspace.root(), part.changes)).collect()
    }

    /// Refuses what conflicts in any of the directories, with all conflicts.
    async fn check_parts(&self, parts: &[Part<'_>]) -> Result<()> {
        let mut conflicts = Vec::new();
        for Part { workspace, root, changes, decided } in parts {
            workspace.take_contents(self, changes.changes.values().flat_map(|change| &change.after))?;
            match workspace.plan(changes, decided).await {
                Err(error) if error.kind() == Kind::Conflict => conflicts.extend(named(*root, &error)),
                planned => drop(planned?),
            }
        }
        if conflicts.is_empty() {
            return Ok(());
        }
        Err(super::host::conflict_hint(conflicts_error(&conflicts)))
    }

    /// Takes over what the store of the session's workspace has of these: hunks that were edited are kept there.
    fn take_contents<'n>(&self, of: &Self, nodes: impl Iterator<Item = &'n Node>) -> Result<()> {
        for node in nodes {
            if let Node::File { hash, .. } = node
                && !self.store.contains(*hash)
                && of.store.contains(*hash)
            {
                self.store.adopt(&of.store, *hash)?;
            }
        }
        Ok(())
    }

    /// As [`Workspace::apply`], with what the user `decided` about files that cannot be merged.
    pub async fn apply_decided(
        &self,
        changes: &ChangeSet,
        decided: &Resolutions,
        sandbox: Option<&Sandbox>,
    ) -> Result<Applied> {
        let time = agent_event::now();
        let parts = self.parts(changes, decided);
        if let [own] = &parts[..] {
            return self.own_apply(&own.changes, &own.decided, sandbox, time).await;
        }
        self.check_parts(&parts).await?;
        let (mut applied, mut done) = (Applied::default(), Vec::new());
        for part in parts.iter().filter(|part| !part.changes.is_empty()) {
            let inside = sandbox.map(|sandbox| Self::inside(part.root, sandbox));
            match part.workspace.own_apply(&part.changes, &part.decided, inside.as_ref(), time.clone()).await
            {
                Ok(of_part) => applied.add(part.root, of_part),
                Err(error) => {
                    // It may have been written before it failed.
                    let last =
                        part.workspace.state.lock().await.applied.last().map(|record| record.time.clone());
                    if last.as_ref() == Some(&time) {
                        done.push(part.workspace);
                    }
                    let error = match part.root {
                        Some(root) => error.context(&root.display().to_string()),
                        None => error,
                    };
                    return Err(taken_back(&done, error).await);
                }
            }
            done.push(part.workspace);
        }
        self.forget_shown(changes)?;
        Ok(applied)
    }

    /// `changes` as they are against what the host has now at `paths`: an apply writes them over it, whatever the session
    /// knows of it.
    ///
    /// # Errors
    /// The host's file cannot be read.
    pub async fn over_host(&self, mut changes: ChangeSet, paths: &BTreeSet<TreePath>) -> Result<ChangeSet> {
        if paths.is_empty() {
            return Ok(changes);
        }
        for Part { workspace, root, changes: own, .. } in self.parts(&changes, &Resolutions::new()) {
            let is_named = |path: &&TreePath| paths.contains(&shown(root, path));
            let named = own.changes.keys().filter(is_named).cloned().collect();
            let own = workspace.own_over_host(own, &named).await?;
            changes
                .changes
                .extend(own.changes.into_iter().map(|(path, change)| (shown(root, &path), change)));
        }
        Ok(changes)
    }

    /// Returns what an apply of `changes` would write, from what the host has.
    ///
    /// # Errors
    /// Those of [`Workspace::apply`].
    pub async fn would_write(&self, changes: &ChangeSet, decided: &Resolutions) -> Result<ChangeSet> {
        let parts = self.parts(changes, decided);
        if let [own] = &parts[..] {
            return Ok(self.plan(&own.changes, &own.decided).await?.record());
        }
        self.check_parts(&parts).await?;
        let mut written = ChangeSet::default();
        for Part { workspace, root, changes, decided } in parts {
            let of_part = workspace.plan(&changes, &decided).await?.record();
            written
                .changes
                .extend(of_part.changes.into_iter().map(|(path, change)| (shown(root, &path), change)));
        }
        Ok(written)
    }

    /// The files of `changes` that cannot be merged with what the host has now; `None` where there is none, or where something
    /// conflicts that nobody can decide in favour of one side.
    pub async fn undecided(&self, changes: &ChangeSet) -> Result<Option<Vec<Undecided>>> {
        let parts = self.parts(changes, &Resolutions::new());
        let mut all = Vec::new();
        for Part { workspace, root, changes, .. } in &parts {
            match workspace.own_undecided(changes).await? {
                Some(found) => all
                    .extend(found.into_iter().map(|one| Undecided { path: shown(*root, &one.path), ..one })),
                // Nothing conflicts here, or what nobody can decide about.
                None if workspace.plan(changes, &Resolutions::new()).await.is_err() => return Ok(None),
                None => {}
            }
        }
        Ok((!all.is_empty()).then_some(all))
    }

    /// Puts files that the user edited while reviewing `changes` into the sandbox, where there is one, and into what is recorded
    /// of it. `files` have contents that are kept, and `applied` is what came of `changes`.
    pub async fn take_edited(
        &self,
        files: &BTreeMap<TreePath, Node>,
        changes: &ChangeSet,
        applied: &Applied,
        sandbox: Option<&Sandbox>,
    ) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        for (root, workspace) in self.all() {
            let own: BTreeMap<TreePath, Node> =
                files.iter().filter_map(|(path, node)| Some((relative(root, path)?, node.clone()))).collect();
            workspace.take_contents(self, own.values())?;
            let of_one = |set: &ChangeSet| {
                let own = set.changes.iter();
                let own = own.filter_map(|(path, change)| Some((relative(root, path)?, change.clone())));
                ChangeSet { changes: own.collect(), ..ChangeSet::default() }
            };
            let applied = Applied {
                merged: applied.merged.iter().filter_map(|path| relative(root, path)).collect(),
                written: of_one(&applied.written),
                ..Applied::default()
            };
            let inside = sandbox.map(|sandbox| Self::inside(root, sandbox));
            workspace.own_take_edited(&own, &of_one(changes), &applied, inside.as_ref()).await?;
        }
        Ok(())
    }

    /// The files that the last apply wrote, if it was not taken back.
    pub async fn last_written(&self) -> Vec<TreePath> {
        let mut written = Vec::new();
        for (root, workspace) in self.of_last_apply().await {
            let state = workspace.state.lock().await;
            let paths = state.applied.last().into_iter().flat_map(|record| record.written.changes.keys());
            written.extend(paths.map(|path| shown(root, path)));
        }
        written
    }

    /// The directories that the last apply wrote to.
    async fn of_last_apply(&self) -> Vec<(Option<&Path>, &Self)> {
        let mut last: Vec<(Option<&Path>, &Self)> = Vec::new();
        let mut newest: Option<String> = None;
        for (root, workspace) in self.all() {
            let state = workspace.state.lock().await;
            let Some(time) = state.applied.last().map(|record| record.time.clone()) else { continue };
            if newest.as_ref().is_some_and(|newest| time < *newest) {
                continue;
            }
            if newest.as_ref() != Some(&time) {
                last.clear();
            }
            newest = Some(time);
            last.push((root, workspace));
        }
        last
    }

    /// Puts the host's files back as they were before the last apply that was not taken back yet.
    pub async fn undo_apply(&self) -> Result<Changes> {
        let last = self.of_last_apply().await;
        let (mut undone, mut conflicts) = (Changes::default(), Vec::new());
        for (root, workspace) in &last {
            match workspace.can_undo_apply().await {
                Err(error) if error.kind() == Kind::Conflict => conflicts.extend(named(*root, &error)),
                checked => checked?,
            }
        }
        if !conflicts.is_empty() {
            return Err(super::host::undo_hint(conflicts_error(&conflicts)));
        }
        let mut done: Vec<(&Self, AppliedRecord, Delta)> = Vec::new();
        for (_, workspace) in &last {
            match workspace.own_undo_apply().await {
                Ok((changes, record, accepted)) => {
                    add_counts(&mut undone, changes);
                    done.push((*workspace, record, accepted));
                }
                Err(error) => {
                    for (workspace, record, accepted) in done.into_iter().rev() {
                        if let Err(other) = workspace.apply_again(record, accepted).await {
                            let root = workspace.root.display();
                            return Err(error.context(&format!("{root} was reverted alone ({other})")));
                        }
                    }
                    return Err(error);
                }
            }
        }
        match last.is_empty() {
            true if self.is_in_place() => Err(Error::usage("there is nothing to undo in this session")),
            true => Err(Error::usage("nothing of this session was applied").hint("`agent apply` applies it")),
            false => Ok(undone),
        }
    }
}

/// The error after what was written in `done` has been taken back because of it.
async fn taken_back(done: &[&Workspace], error: Error) -> Error {
    for workspace in done.iter().rev() {
        if let Err(other) = workspace.own_undo_apply().await {
            let root = workspace.root.display();
            return error
                .context(&format!("{root} has its part of the change ({other}), and the others have not"));
        }
    }
    error
}

/// The path in this directory, if it lies there: the reverse of [`shown`].
fn relative(root: Option<&Path>, path: &TreePath) -> Option<TreePath> {
    match root {
        Some(root) => path.below(root),
        None => (!path.is_outside()).then(|| path.clone()),
    }
}

/// The path as changes name it.
fn shown(root: Option<&Path>, path: &TreePath) -> TreePath {
    root.map_or_else(|| path.clone(), |root| TreePath::outside(root, path))
}

/// The conflicts of an error, each with its path as changes name it.
fn named(root: Option<&Path>, error: &Error) -> Vec<(String, String)> {
    let text = |conflict: &Value, name: &str| conflict[name].as_str().unwrap_or_default().to_owned();
    let conflicts = error.known_details().and_then(Value::as_array).cloned().unwrap_or_default();
    let named = conflicts.iter().map(|conflict| {
        let path = text(conflict, "path");
        let path = root.map_or_else(|| path.clone(), |root| format!("{}/{path}", root.display()));
        (path, text(conflict, "reason"))
    });
    named.collect()
}

fn add_counts(sum: &mut Changes, more: Changes) {
    sum.added += more.added;
    sum.modified += more.modified;
    sum.deleted += more.deleted;
}

impl Applied {
    fn add(&mut self, root: Option<&Path>, of_part: Self) {
        add_counts(&mut self.changes, of_part.changes);
        self.merged.extend(of_part.merged.iter().map(|path| shown(root, path)));
        let separated = of_part.separated.into_iter();
        self.separated.extend(separated.map(|line| match root {
            Some(root) => format!("{}/{line}", root.display()),
            None => line,
        }));
        let written = of_part.written.changes.into_iter();
        self.written.changes.extend(written.map(|(path, change)| (shown(root, &path), change)));
    }
}
