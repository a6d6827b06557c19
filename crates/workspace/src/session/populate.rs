//! How a session's sandbox gets its files: a fresh one, that of a resumed session, one that has been there all the time.

use super::records::{ABOUT, About, BASE, FILLED, WITHHELD};
use super::root::can_hold_layers;
use super::state::SessionState;
use super::{Workspace, blocking, in_place, tree};
use crate::base::Base;
use crate::base::is_own_git;
use crate::home;
use crate::host_changes::HostView;
use crate::host_dir::HostDir;
use crate::manifest::Node;
use crate::mode;
use crate::mode::Mode;
use crate::mode::ModeDecision;
use crate::notices;
use crate::references;
use crate::restore;
use crate::restored_git;
use crate::select::select;
use crate::store::Store;
use crate::transfer;
use crate::transfer::CopyReport;
use crate::transfer::OnCopied;
use crate::tree_path::TreePath;
use agent_base::error::Error;
use agent_base::error::Result;
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_sandbox::Sandbox;
use agent_sandbox::WorkspaceMount;
use std::path::Path;
use std::sync::Arc;

impl Workspace {
    /// The workspace of a new session in the directory `session`, as another one, `former`, found it when it began.
    /// `None` where that one never had a workspace.
    ///
    /// What is kept of the beginning is what `former` changed. Anything else is as the host has it now, and what of that
    /// changed meanwhile is counted by [`Workspace::restore_into`].
    pub async fn as_it_began(former: &Path, session: &Path, machine: Arc<Machine>) -> Result<Option<Self>> {
        let (former, session) = (former.to_owned(), session.to_owned());
        blocking(move || {
            let added = super::several::directories(&former).enumerate();
            let pairs = added.map(|(index, from)| (from, super::several::directory_of(&session, index)));
            let pairs = std::iter::once((former.clone(), session.clone())).chain(pairs);
            for (index, (from, to)) in pairs.enumerate() {
                if !take_beginning(&from, &to)? && index == 0 {
                    return Ok(None);
                }
            }
            let rewinding = |workspace: Self| Self { rewinds: true, ..workspace };
            Ok(Self::load_now(&session, machine)?.map(|mut workspace| {
                workspace.added = workspace.added.drain(..).map(rewinding).collect();
                rewinding(workspace)
            }))
        })
        .await
    }

    /// For a second sandbox with the same state as the session's own: nothing is recorded.
    pub fn transient(self) -> Self {
        let added = self.added.into_iter().map(Self::transient).collect();
        Self { is_transient: true, added, ..self }
    }

    /// With the `$HOME` that is saved in `directory`, in place of the session's own.
    pub fn with_home_of(self, directory: &Path) -> Self {
        Self { restored_from: Some(directory.to_owned()), ..self }
    }

    /// After a start with an overlay that failed: copies the files, unless an overlay was requested by name.
    /// `false` where that would change nothing.
    pub(super) async fn own_fall_back_to_copy(&self) -> Result<bool> {
        let mut state = self.state.lock().await;
        if self.mode != Mode::Auto || state.mount == WorkspaceMount::Empty {
            return Ok(false);
        }
        (state.mount, state.copies) = (WorkspaceMount::Empty, true);
        if !self.is_transient {
            self.save(ABOUT, About::of(&self.root, &state, &self.options)).await?;
        }
        Ok(true)
    }

    /// Looks at the host's tree again for a fresh sandbox of a resumed session, before
    /// [`Workspace::restore_into`]. Returns a notice for the user.
    pub(super) async fn own_reopen(&self, can_overlay: bool) -> Result<Option<String>> {
        let (root, options, mode) = (self.root.clone(), self.options.clone(), self.mode);
        let can_overlay = can_overlay && can_hold_layers(self.store.directory());
        let is_layered = self.state.lock().await.beneath.is_some();
        let look = move || {
            let selection = select(&root, &options.looking(mode.shows_ignored(can_overlay)))?;
            let decided = mode::decide(mode, &root, &selection, can_overlay, is_layered)?;
            let search = options.search(&root, &decided.mount, &selection);
            Ok((selection, decided, search))
        };
        let (selection, ModeDecision { mount, copies, notice }, search) = blocking(look).await?;
        let mut state = self.state.lock().await;
        if !self.is_transient {
            self.store.remove(FILLED)?;
        }
        state.view = Some(HostView::of(&self.root, &selection));
        state.scanner.skip(&selection.ignored);
        state.withheld = selection.withheld.keys().cloned().collect();
        (state.mount, state.copies, state.found) = (mount, copies, Some(selection));
        state.search = search;
        Ok(notice)
    }

    /// Copies the files into a fresh sandbox of a new session, before anything runs in it.
    pub(super) async fn own_copy_in(&self, sandbox: &Sandbox, on_copied: OnCopied<'_>) -> Result<CopyReport> {
        let mut state = self.state().await?;
        let report = self.fill(&mut state, sandbox, on_copied).await?;
        if self.is_in_place() {
            // What the user changed while the sandbox started.
            self.follow_user(&mut state, sandbox).await?;
        }
        // What was not copied shows by its own stamps that it is the host's.
        if state.copies {
            let SessionState { base, scanner, .. } = &mut *state;
            scanner.remember(sandbox, &base.nodes, false).await?;
        }
        if !self.is_transient {
            let (store, about) = (self.store.clone(), About::of(&self.root, &state, &self.options));
            let base = state.base.clone();
            blocking(move || {
                store.save_both((ABOUT, &about), (BASE, &base))?;
                store.mark(FILLED, &())
            })
            .await?;
        }
        Ok(report)
    }

    /// Records the beginning of a directory that a session gets later.
    pub(super) async fn record_beginning(&self) -> Result<()> {
        let state = self.state().await?;
        let (store, about, base) =
            (self.store.clone(), About::of(&self.root, &state, &self.options), state.base.clone());
        blocking(move || store.save_both((ABOUT, &about), (BASE, &base))).await
    }

    /// Returns whether the last sandbox got all of its files. In one that did not, they would look deleted.
    pub(super) fn own_is_filled(&self) -> bool {
        self.store.load::<()>(FILLED).is_ok_and(|filled| filled.is_some())
    }

    async fn fill(
        &self,
        state: &mut SessionState,
        sandbox: &Sandbox,
        on_copied: OnCopied<'_>,
    ) -> Result<CopyReport> {
        let search = state.search.take();
        let SessionState { mount, copies, base, own_git, .. } = state;
        let report = match mount {
            WorkspaceMount::Empty | WorkspaceMount::Overlay { .. } if *copies => {
                transfer::copy_in(&self.root, base, &self.store, sandbox, on_copied).await?
            }
            WorkspaceMount::Empty | WorkspaceMount::Overlay { .. } | WorkspaceMount::Forked { .. } => {
                transfer::check_overlay(sandbox, base).await?;
                transfer::clean_git_files(&self.root, base, &self.store, sandbox).await?;
                references::copy_in(&self.root, base, &self.store, sandbox).await?;
                CopyReport::default()
            }
            WorkspaceMount::Bind(root) => {
                let (root, store, mut kept) = (root.clone(), self.store.clone(), std::mem::take(base));
                let keep = move || {
                    let done = HostDir::open(&root).map_err(Error::from);
                    Ok((done.and_then(|host| in_place::keep(&mut kept, &host, &store)), kept))
                };
                let (done, kept) = blocking(keep).await?;
                *base = kept;
                return done.map(|()| CopyReport::default());
            }
        };
        if let Some(git) = own_git {
            // What the host has there names another repository; in most workspaces there is nothing.
            let there = base.nodes.keys().rev().filter(|path| is_own_git(path)).map(transfer::inside);
            drop(sandbox.remove_files(there.collect()).await?);
            transfer::write_nodes(sandbox, &self.store, git.clone().into_iter().collect()).await?;
            base.set_own_git(git.clone());
        }
        if let Some(search) = search.filter(|_| *mount != WorkspaceMount::Empty) {
            let withheld = search.withhold(sandbox).await?;
            self.withheld.lock().extend(notices::withheld(&withheld));
            state.withheld.extend(withheld.into_keys());
        }
        if !state.withheld.is_empty() && !self.is_transient {
            self.save(WITHHELD, state.withheld.clone()).await?;
        }
        Ok(report)
    }

    /// Continues with a sandbox of this session that is still running.
    pub(super) async fn own_rejoin(&self, sandbox: &Sandbox) -> Result<()> {
        let is_complete = |state: &SessionState| !state.copies && state.awaited.is_empty();
        if is_complete(&*self.state.lock().await) {
            return Ok(());
        }
        let mut state = self.state().await?;
        self.give_to(&mut state, sandbox).await?;
        // Otherwise the files' own stamps show which are the host's.
        if !state.copies {
            return Ok(());
        }
        let tree = tree(&state.base, state.history.delta());
        state.scanner.remember(sandbox, &tree, true).await
    }

    /// Begins with a sandbox that has the files of another session's, as they are there; `has_home` says whether `$HOME` is too.
    pub async fn begin_forked(&self, sandbox: &Sandbox, has_home: bool) -> Result<()> {
        if let Some(session) = self.restored_from.as_ref().filter(|_| !has_home) {
            home::restore(sandbox, session).await?;
        }
        if self.is_transient {
            return Ok(());
        }
        self.give_to(&mut *self.state().await?, sandbox).await?;
        self.settle_copied(sandbox).await?;
        // What came to the host since the other session looked is seen in a copied overlay, with its secrets.
        self.own_refresh(sandbox).await?;
        self.store.mark(FILLED, &())
    }

    /// Restores the state of the session in a fresh sandbox: the host's tree as it is now, and on top of it
    /// everything that the session had changed. Files that the session changed keep their old base, so that a
    /// change on the host meanwhile is a conflict when they are applied.
    ///
    /// A workspace of [`Workspace::as_it_began`] is restored to its base instead, as far as that is kept.
    pub(super) async fn own_restore_into(
        &self,
        sandbox: &Sandbox,
        on_copied: OnCopied<'_>,
    ) -> Result<CopyReport> {
        let mut state = self.state().await?;
        if let WorkspaceMount::Bind(_) = state.mount {
            // What differs from what the session recorded last is the user's.
            state.before_prompt = state.history.delta().clone();
            self.follow_user(&mut state, sandbox).await?;
            self.store.mark(FILLED, &())?;
            return Ok(CopyReport::default());
        }
        let Some(selection) = &state.found else {
            return Err(Error::unexpected("the workspace was not scanned before it is restored"));
        };
        let fresh = Base::new(selection.clone());
        let former = std::mem::replace(&mut state.base, fresh);
        // The same one: what was committed inside builds on it.
        state.own_git = former.own_git();
        let filled = self.fill(&mut state, sandbox, on_copied).await;
        let report = match filled {
            Ok(report) => report,
            Err(error) => {
                // It may be tried again, with a copy.
                state.base = former;
                return Err(error);
            }
        };
        let fresh = state.base.nodes.clone();
        let delta = restored_git::delta(state.history.delta(), &former, &state.base, &self.store);
        let (since, lost) = match self.rewinds {
            true => changed_since(&former, &state.base, &self.store),
            false => (delta.keys().cloned().collect(), 0),
        };
        for path in &since {
            match former.nodes.get(path) {
                Some(node) => state.base.nodes.insert(path.clone(), node.clone()),
                None => state.base.nodes.remove(path),
            };
        }
        let from = crate::manifest::delta(&state.base.nodes, &fresh);
        restore::restore(sandbox, &state.base, &self.store, &from, &delta).await?;
        if state.copies {
            let tree = tree(&state.base, &delta);
            state.scanner.remember(sandbox, &tree, false).await?;
        }
        state.found = None;
        if !self.is_transient {
            if let Some(session) = &self.restored_from {
                home::restore(sandbox, session).await?;
            }
            self.save(BASE, state.base.clone()).await?;
            self.forget_awaited(&mut state)?;
            self.store.mark(FILLED, &())?;
        }
        Ok(CopyReport { lost, ..report })
    }
}

/// Records in the session `to` how a directory was when `former` began; `false` where that never had it.
fn take_beginning(former: &Path, session: &Path) -> Result<bool> {
    let (from, to) = (Store::open(&former.join("workspace"))?, Store::open(&session.join("workspace"))?);
    let (Some(about), Some(base)) = (from.load::<super::About>(ABOUT)?, from.load::<Base>(BASE)?) else {
        return Ok(false);
    };
    let hashes = base.nodes.values().filter_map(|node| match node {
        Node::File { hash, .. } => Some(*hash),
        _ => None,
    });
    hashes.filter(|hash| from.contains(*hash)).try_for_each(|hash| to.adopt(&from, hash))?;
    to.save(ABOUT, &about)?;
    to.save(BASE, &base)?;
    Ok(true)
}

/// Returns what differs from the base `former` in the tree as it was just taken, as far as the former content is kept, and how many
/// files differ beyond that. git's own files stay as they are now: they are one history, not to be taken apart.
fn changed_since(former: &Base, fresh: &Base, store: &Store) -> (Vec<TreePath>, u64) {
    let (mut since, mut lost) = (Vec::new(), 0);
    let new = fresh.nodes.keys().filter(|path| !former.nodes.contains_key(*path));
    for path in former.nodes.keys().chain(new).filter(|path| !path.is_git_internal()) {
        match (former.nodes.get(path), fresh.nodes.get(path)) {
            (Some(was), Some(is)) if is_same(was, is, former, fresh, path) => {}
            (Some(Node::File { hash, .. }), _) if *hash == Hash::UNKNOWN || !store.contains(*hash) => {
                lost += 1
            }
            _ => since.push(path.clone()),
        }
    }
    (since, lost)
}

/// Returns whether a path is unchanged. With an overlay the file was not read, so its stamp decides.
fn is_same(was: &Node, is: &Node, former: &Base, fresh: &Base, path: &TreePath) -> bool {
    let untouched = || former.stamps.get(path).is_some_and(|stamp| fresh.stamps.get(path) == Some(stamp));
    was == is || (was.mode() == is.mode() && (was.same_content(is) || untouched()))
}
