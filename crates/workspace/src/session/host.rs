//! Writing a session's changes to the host, and taking that back.

use super::records::{ACCEPTED, APPLIED, AppliedRecord};
use super::state::SessionState;
use super::{Applied, Workspace, blocking};
use crate::apply::{HalfWritten, Plan};
use crate::bare_repository;
use crate::changes::{Change, ChangeSet};
use crate::host_changes::picked_now;
use crate::host_dir::{HostDir, WriteLock};
use crate::manifest::{Delta, Manifest, Node};
use crate::merge::{self, Merged, Ours};
use crate::notices::listed;
use crate::resolution::{Resolutions, Undecided};
use crate::select;
use crate::store::Store;
use crate::transfer;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_event::Changes;
use agent_sandbox::Sandbox;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Files that an error names.
const MAX_NAMED: usize = 5;

impl Workspace {
    /// Opens the workspace on the host, which may have moved since. A directory that was added was named by its resolved path: a symlink
    /// that has come into that leads elsewhere.
    pub(super) fn host(&self) -> impl Fn() -> Result<HostDir> + Send + 'static {
        let (root, is_added) = (self.root.clone(), self.is_added);
        move || {
            let opened = if is_added { HostDir::open_plain(&root) } else { HostDir::open(&root) };
            opened.map_err(|error| {
                Error::usage(format!("the workspace {} cannot be opened", root.display())).caused_by(error).hint(
                    "put it back where it was, or write the change elsewhere: `agent diff ID --patch | git apply`",
                )
            })
        }
    }

    /// Writes `changes` (all of [`Workspace::changes`], or a selection of it) to the host. All or nothing: any
    /// conflict is an error of kind [`agent_base::error::Kind::Conflict`] that names every file, and nothing is written.
    /// A file that the user edited meanwhile in other lines is merged: to what the host has now, exactly what `changes` show is
    /// added. Merged files go into the sandbox too, into one that runs and is not given before anything runs in it again.
    pub async fn apply(&self, changes: &ChangeSet, sandbox: Option<&Sandbox>) -> Result<Applied> {
        self.apply_decided(changes, &Resolutions::new(), sandbox).await
    }

    /// Writes to this directory alone, at `time`.
    pub(super) async fn own_apply(
        &self,
        changes: &ChangeSet,
        decided: &Resolutions,
        sandbox: Option<&Sandbox>,
        time: String,
    ) -> Result<Applied> {
        let mut state = self.state().await?;
        let _lock = self.lock().await?;
        let plan = self.plan(changes, decided).await?;
        self.refuse_secrets(plan.settled().keys().cloned().collect()).await?;
        let (written, accepted) = (plan.record(), state.accepted.clone());
        let record = AppliedRecord { time, written, accepted, prompt: None };
        let applied = Applied {
            changes: record.written.counts(),
            merged: plan.merged().to_vec(),
            separated: plan.separated().collect(),
            written: record.written.clone(),
        };
        state.applied.push(record.clone());
        self.save(APPLIED, state.applied.clone()).await?;
        let settled = plan.settled().clone();
        if let Err(failed) = self.write(plan).await {
            let HalfWritten { error, left } = *failed;
            state.applied.pop();
            let error = record_left(&mut state, record, left, error);
            // Where that fails too, the record of before names all of it, and an undo passes over what is back already.
            let _ = self.save(ACCEPTED, state.accepted.clone()).await;
            let _ = self.save(APPLIED, state.applied.clone()).await;
            return Err(error);
        }
        let mut delta = state.history.delta().clone();
        for (path, change) in &changes.changes {
            let mut node = change.after.clone();
            if let Some(settled) = settled.get(path) {
                let mode = node.as_ref().and_then(|node| node.mode()).unwrap_or(0o644);
                let with_mode = |node: &Option<Node>| node.clone().map(|node| node.with_mode(mode));
                node = with_mode(&settled.on_host);
                let (inside, wanted) = (delta.get(path).cloned().flatten(), with_mode(&settled.inside));
                let with_refused = keep_refused(inside.as_ref(), change, wanted.as_ref(), &self.store)?;
                delta.insert(path.clone(), with_refused.or(wanted));
            }
            state.accepted.insert(path.clone(), node);
        }
        let SessionState { accepted, base, .. } = &mut *state;
        accepted.retain(|path, node| base.nodes.get(path) != node.as_ref());
        // What is accepted and not recorded as merged would count as taken back.
        if !settled.is_empty() {
            let mut others = state.accepted.clone();
            others.retain(|path, _| !settled.contains_key(path));
            self.save(ACCEPTED, others).await?;
            let paths: Vec<TreePath> = settled.into_keys().collect();
            self.take_merged(&mut state, &paths, delta, sandbox).await?;
        }
        self.save(ACCEPTED, state.accepted.clone()).await?;
        self.forget_shown(changes)?;
        Ok(applied)
    }

    /// Refuses to merge what holds a secret by now: the sandbox would get it.
    async fn refuse_secrets(&self, merged: Vec<TreePath>) -> Result<()> {
        let (root, options) = (self.root.clone(), self.options.clone());
        let secrets = blocking(move || {
            let picked: Vec<_> =
                merged.iter().filter_map(|path| Some((path, picked_now(&root, path)?))).collect();
            select::left_out_now(&root, &options, picked.iter().map(|(path, picked)| (*path, picked)))
        });
        match listed(secrets.await?.keys().map(ToString::to_string), MAX_NAMED) {
            None => Ok(()),
            Some(named) => {
                let why =
                    format!("not merged, because the sandbox is not to see what you have there now: {named}");
                Err(Error::new(Kind::Conflict, why)
                    .hint("name the other files to apply only them: agent apply FILE"))
            }
        }
    }

    pub(super) async fn own_over_host(
        &self,
        mut changes: ChangeSet,
        paths: &BTreeSet<TreePath>,
    ) -> Result<ChangeSet> {
        if paths.is_empty() {
            return Ok(changes);
        }
        let (host, paths) = (self.host(), paths.clone());
        blocking(move || {
            let host = host()?;
            for (path, change) in changes.changes.iter_mut().filter(|(path, _)| paths.contains(*path)) {
                let found = host.observe(path).map_err(|error| {
                    Error::new(Kind::Conflict, format!("{path} cannot be read")).caused_by(error)
                })?;
                change.before = found.node;
            }
            Ok(changes)
        })
        .await
    }

    pub(super) async fn own_undecided(&self, changes: &ChangeSet) -> Result<Option<Vec<Undecided>>> {
        let (host, store, wanted) = (self.host(), self.store.clone(), changes.clone());
        blocking(move || Plan::undecided(&host()?, &wanted, &store)).await
    }

    pub(super) async fn plan(&self, changes: &ChangeSet, decided: &Resolutions) -> Result<Plan> {
        let (host, store) = (self.host(), self.store.clone());
        let (wanted, decided) = (changes.clone(), decided.clone());
        let check = move || {
            let host = host()?;
            refuse_repositories(&wanted, &host)?;
            Plan::check(&host, &wanted, &store, Some(&decided)).map_err(conflict_hint)
        };
        blocking(check).await
    }

    pub(super) async fn own_take_edited(
        &self,
        files: &BTreeMap<TreePath, Node>,
        changes: &ChangeSet,
        applied: &Applied,
        sandbox: Option<&Sandbox>,
    ) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let mut state = self.state().await?;
        let mut delta = state.history.delta().clone();
        for (path, edited) in files {
            let merged = applied.written.changes.get(path).filter(|_| applied.merged.contains(path));
            let node = match (changes.changes.get(path), merged) {
                (Some(change), Some(written)) => {
                    let merged = written.after.as_ref();
                    keep_refused(Some(edited), change, merged, &self.store)?.or_else(|| merged.cloned())
                }
                _ => Some(edited.clone()),
            };
            delta.insert(path.clone(), node);
        }
        let paths: Vec<TreePath> = files.keys().cloned().collect();
        self.take_merged(&mut state, &paths, delta, sandbox).await
    }

    /// Puts back what the last apply wrote to this directory: the counts, and what [`Workspace::apply_again`] takes.
    pub(super) async fn own_undo_apply(&self) -> Result<(Changes, AppliedRecord, Delta)> {
        let mut state = self.state().await?;
        let Some(record) = state.applied.last().cloned() else {
            return Err(Error::unexpected("the record of the last apply is gone"));
        };
        let _lock = self.lock().await?;
        let plan = self.undo_plan(&record, settings(&state, &record)).await?;
        let changes = plan.record().counts();
        self.write(plan.restoring()).await.map_err(|failed| failed.error)?;
        state.applied.pop();
        if self.is_in_place() {
            self.forget_written(&mut state, &record)?;
        }
        let accepted = std::mem::replace(&mut state.accepted, record.accepted.clone());
        self.save(ACCEPTED, state.accepted.clone()).await?;
        self.save(APPLIED, state.applied.clone()).await?;
        Ok((changes, record, accepted))
    }

    /// Keeps other sessions from writing to the directory between the look at it and the end of the writing. What was found around earlier
    /// changes counts no longer.
    async fn lock(&self) -> Result<WriteLock> {
        let (host, around) = (self.host(), Arc::clone(&self.around));
        blocking(move || {
            *around.lock() = None;
            host()?.lock().map_err(|error| {
                let error =
                    Error::new(Kind::Conflict, "another session writes to the workspace").caused_by(error);
                error.hint("try again once it has ended")
            })
        })
        .await
    }

    /// Refuses what [`Workspace::own_undo_apply`] would.
    pub(super) async fn can_undo_apply(&self) -> Result<()> {
        let state = self.state().await?;
        let Some(record) = state.applied.last().cloned() else { return Ok(()) };
        let former = settings(&state, &record);
        drop(state);
        self.undo_plan(&record, former).await.map(drop)
    }

    async fn undo_plan(&self, record: &AppliedRecord, former: Manifest) -> Result<Plan> {
        let (host, store, back) = (self.host(), self.store.clone(), record.written.reversed());
        let check = move || {
            let host = host()?;
            match back.repository_with_settings(&host, &former) {
                None => Plan::check(&host, &back, &store, None),
                Some(directory) => {
                    let (name, reason) = (bare_repository::shown(&directory), bare_repository::REASON);
                    let why = format!(
                        "{name} is not put back, because it holds settings that are not part of the change: {reason}"
                    );
                    Err(Error::new(Kind::Conflict, why))
                }
            }
        };
        blocking(check).await.map_err(undo_hint)
    }

    /// Writes once more what [`Workspace::own_undo_apply`] has taken back.
    pub(super) async fn apply_again(&self, record: AppliedRecord, accepted: Delta) -> Result<()> {
        let mut state = self.state().await?;
        let _lock = self.lock().await?;
        let (host, store, written) = (self.host(), self.store.clone(), record.written.clone());
        let plan = blocking(move || Plan::check(&host()?, &written, &store, None)).await?;
        let failed = self.write(plan.restoring()).await.err();
        let failed = failed.map(|failed| (failed.left.is_empty(), failed.error));
        if let Some((true, error)) = failed {
            return Err(error);
        }
        // What is not there already is a part of what an undo takes back.
        state.applied.push(record);
        state.accepted = accepted;
        self.save(ACCEPTED, state.accepted.clone()).await?;
        self.save(APPLIED, state.applied.clone()).await?;
        failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    async fn write(&self, plan: Plan) -> Result<(), Box<HalfWritten>> {
        let (host, store) = (self.host(), self.store.clone());
        let nothing = |error| Box::new(HalfWritten { error, left: ChangeSet::default() });
        let written = blocking(move || host().map(|host| plan.write(&host, &store))).await;
        written.unwrap_or_else(|error| Err(nothing(error)))
    }

    async fn take_merged(
        &self,
        state: &mut SessionState,
        merged: &[TreePath],
        delta: Delta,
        sandbox: Option<&Sandbox>,
    ) -> Result<()> {
        if let Some(sandbox) = sandbox {
            let nodes = merged.iter().filter_map(|path| Some((path.clone(), delta.get(path)?.clone()?)));
            transfer::write_nodes(sandbox, &self.store, nodes.collect()).await?;
            let is_gone = |path: &&TreePath| delta.get(*path).is_some_and(Option::is_none);
            let gone: Vec<_> = merged.iter().filter(is_gone).map(transfer::inside).collect();
            if !gone.is_empty() {
                drop(sandbox.remove_files(gone).await?);
            }
        } else {
            self.await_sandbox(state, merged).await?;
        }
        let SessionState { history, base, .. } = state;
        history.record(delta, &base.nodes, None, &self.store).map(drop)
    }
}

/// Records what of an apply is on the host though it failed, so that it can be taken back later.
fn record_left(state: &mut SessionState, record: AppliedRecord, left: ChangeSet, error: Error) -> Error {
    let Some(names) = listed(left.changes.keys().map(ToString::to_string), MAX_NAMED) else { return error };
    for (path, change) in &left.changes {
        state.accepted.insert(path.clone(), change.after.clone());
    }
    state.applied.push(AppliedRecord { written: left, ..record });
    error.hint(format!(
        "written already, and not put back because that failed too: {names}; agent undo tries it again"
    ))
}

/// Returns what the sandbox has of a file after an apply that merged it: what it had, with what the host had changed. So the parts
/// that the user refused are still there. `None` where nothing was refused.
fn keep_refused(
    inside: Option<&Node>,
    applied: &Change,
    merged: Option<&Node>,
    store: &Store,
) -> Result<Option<Node>> {
    let (Some(inside), Some(after)) = (inside, &applied.after) else { return Ok(None) };
    if inside.same_content(after) {
        return Ok(None);
    }
    let read = |limit: u64| match inside {
        Node::File { hash, size, .. } if *size <= limit => store.read(*hash),
        _ => Ok(Vec::new()),
    };
    let ours = Ours { found: Some(inside), read: &read, other: "the host" };
    let of_host = Change { before: Some(after.clone()), after: merged.cloned() };
    Ok(Some(match merge::three_way(&ours, &of_host, store)? {
        Merged::Clean(node) => node.with_mode(inside.mode().unwrap_or(0o644)),
        // The host changed the very lines that were refused: the next diff shows both.
        Merged::Impossible(_) => inside.clone(),
    }))
}

pub(super) fn undo_hint(error: Error) -> Error {
    match error.kind() {
        Kind::Conflict => error.hint("nothing was reverted: move these files away and try again"),
        _ => error,
    }
}

/// What the tree had, when the session began, of names that git knows in a repository; nothing where the record has none of them.
fn settings(state: &SessionState, record: &AppliedRecord) -> Manifest {
    if bare_repository::candidates(record.written.changes.keys()).next().is_none() {
        return Manifest::new();
    }
    let nodes = state.base.nodes.iter();
    let known = nodes.filter(|(path, _)| bare_repository::candidates([*path]).next().is_some());
    known.map(|(path, node)| (path.clone(), node.clone())).collect()
}

/// Refuses a change that makes a repository with what the host has by now.
fn refuse_repositories(changes: &ChangeSet, host: &HostDir) -> Result<()> {
    match changes.repositories_with(host).last() {
        None => Ok(()),
        Some(directory) => {
            let (name, reason) = (bare_repository::shown(directory), bare_repository::REASON);
            let error = Error::new(Kind::Conflict, format!("{name} is not written: {reason}"));
            Err(error.hint("name the other files to apply only them: agent apply FILE"))
        }
    }
}

pub(super) fn conflict_hint(error: Error) -> Error {
    match error.kind() {
        Kind::Conflict => error.hint(
            "name the other files to apply only them, or choose a version of each at a terminal: agent apply",
        ),
        _ => error,
    }
}
