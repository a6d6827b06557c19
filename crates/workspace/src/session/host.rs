//! Writing a session's changes to the host, and taking that back.

use super::{ACCEPTED, APPLIED, Applied, Record, State, Workspace, blocking};
use crate::apply::Plan;
use crate::changes::{Change, ChangeSet};
use crate::host_dir::HostDir;
use crate::manifest::{Delta, Node};
use crate::merge::{self, Merged, Ours};
use crate::resolution::{Resolutions, Undecided};
use crate::store::Store;
use crate::transfer;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_event::Changes;
use agent_sandbox::Sandbox;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The workspace on the host, which may have moved since.
fn open(root: &Path) -> Result<HostDir> {
    HostDir::open(root).map_err(|error| {
        Error::usage(format!("the workspace {} cannot be opened", root.display())).caused_by(error).hint(
            "put it back where it was, or write the change elsewhere: `agent diff ID --patch | git apply`",
        )
    })
}

impl Workspace {
    /// Writes `changes` (all of [`Workspace::changes`], or a selection of it) to the host. All or nothing: any
    /// conflict is an error of kind [`agent_base::error::Kind::Conflict`] that names every file, and nothing is written.
    /// A file that the user edited meanwhile in other lines is merged: to what the host has now, exactly what `changes` show is
    /// added. Merged files go into the sandbox too, where there is one.
    pub async fn apply(&self, changes: &ChangeSet, sandbox: Option<&Sandbox>) -> Result<Applied> {
        self.apply_decided(changes, &Resolutions::new(), sandbox).await
    }

    /// As [`Workspace::apply`], with what the user `decided` about files that cannot be merged.
    pub async fn apply_decided(
        &self,
        changes: &ChangeSet,
        decided: &Resolutions,
        sandbox: Option<&Sandbox>,
    ) -> Result<Applied> {
        let mut state = self.state().await?;
        let plan = self.plan(changes, decided).await?;
        let record =
            Record { time: agent_event::now(), written: plan.record(), accepted: state.accepted.clone() };
        let applied = Applied {
            changes: record.written.counts(),
            merged: plan.merged().to_vec(),
            separated: plan.separated().collect(),
            written: record.written.clone(),
        };
        state.applied.push(record.clone());
        self.save(APPLIED, state.applied.clone()).await?;
        let settled = plan.settled().clone();
        if let Err(error) = self.write(plan).await {
            state.applied.pop();
            self.save(APPLIED, state.applied.clone()).await?;
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
        let State { accepted, base, .. } = &mut *state;
        accepted.retain(|path, node| base.nodes.get(path) != node.as_ref());
        self.save(ACCEPTED, state.accepted.clone()).await?;
        self.forget_shown(changes)?;
        if !settled.is_empty() {
            let paths: Vec<TreePath> = settled.into_keys().collect();
            self.take_merged(&mut state, &paths, delta, sandbox).await?;
        }
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
        let (root, paths) = (self.root.clone(), paths.clone());
        blocking(move || {
            let host = open(&root)?;
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

    /// Returns what an apply of `changes` would write, from what the host has.
    ///
    /// # Errors
    /// Those of [`Workspace::apply`].
    pub async fn would_write(&self, changes: &ChangeSet, decided: &Resolutions) -> Result<ChangeSet> {
        Ok(self.plan(changes, decided).await?.record())
    }

    /// The files of `changes` that cannot be merged with what the host has now; `None` where there is none, or where something
    /// conflicts that nobody can decide in favour of one side.
    pub async fn undecided(&self, changes: &ChangeSet) -> Result<Option<Vec<Undecided>>> {
        let (root, store, wanted) = (self.root.clone(), self.store.clone(), changes.clone());
        blocking(move || Plan::undecided(&open(&root)?, &wanted, &store)).await
    }

    async fn plan(&self, changes: &ChangeSet, decided: &Resolutions) -> Result<Plan> {
        let (root, store) = (self.root.clone(), self.store.clone());
        let (wanted, decided) = (changes.clone(), decided.clone());
        blocking(move || Plan::check(&open(&root)?, &wanted, &store, Some(&decided)).map_err(conflict_hint))
            .await
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

    /// Puts the host's files back as they were before the last apply that was not taken back yet.
    pub async fn undo_apply(&self) -> Result<Changes> {
        let mut state = self.state().await?;
        let Some(record) = state.applied.last().cloned() else {
            return Err(Error::usage("nothing of this session was applied").hint("`agent apply` applies it"));
        };
        let (root, store, back) = (self.root.clone(), self.store.clone(), record.written.reversed());
        let plan = blocking(move || Plan::check(&open(&root)?, &back, &store, None)).await;
        let plan = plan.map_err(|error| match error.kind() {
            Kind::Conflict => error.hint("nothing was reverted: move these files away and try again"),
            _ => error,
        })?;
        let changes = plan.record().counts();
        self.write(plan.restoring()).await?;
        state.applied.pop();
        state.accepted = record.accepted;
        self.save(ACCEPTED, state.accepted.clone()).await?;
        self.save(APPLIED, state.applied.clone()).await?;
        Ok(changes)
    }

    async fn write(&self, plan: Plan) -> Result<()> {
        let (root, store) = (self.root.clone(), self.store.clone());
        blocking(move || plan.write(&open(&root)?, &store)).await
    }

    async fn take_merged(
        &self,
        state: &mut State,
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
        }
        let State { history, base, .. } = state;
        history.record(delta, &base.nodes, None, &self.store).map(drop)
    }
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

fn conflict_hint(error: Error) -> Error {
    match error.kind() {
        Kind::Conflict => error.hint(
            "name the other files to apply only them, or choose a version of each at a terminal: agent apply",
        ),
        _ => error,
    }
}
