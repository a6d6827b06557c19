//! One session's workspace: the facade that the turn loop and the commands use.

mod awaited;
mod branch;
mod hiding;
mod host;
mod in_place;
mod outside;
mod populate;
mod records;
mod refresh;
mod root;
mod several;
mod state;

pub use branch::Merge;
pub use outside::Outside;
pub use refresh::Refreshed;
pub use root::validate;

use crate::base::{Base, is_own_git};
use crate::build_files::Trees;
use crate::changes::{ChangeSet, Exclusions};
use crate::git_settings;
use crate::history::Checkpoint;
use crate::history::History;
use crate::host_changes::HostView;
use crate::ignored::Ignored;
use crate::inner_commits::{InnerCommits, Recorded};
use crate::manifest::{Delta, Manifest};
use crate::mode::{self, Mode, ModeDecision};
use crate::notices;
use crate::outer_repository;
use crate::restore;
use crate::retention;
use crate::scan::{Scan, ScanContext, Scanner};
use crate::select::{self, select};
use crate::selection::LeftOut;
use crate::shown::{SHOWN, Shown, SinceShown};
use crate::store::Store;
use crate::surroundings::{self, Surroundings};
use crate::symlinks::{self, Symlinks};
use crate::tree_path::TreePath;
use agent_base::error::Error;
use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_base::sanitise::one_line;
use agent_event::Changes;
use agent_sandbox::HomeFile;
use agent_sandbox::Sandbox;
use agent_sandbox::WorkspaceMount;
use records::{ABOUT, ACCEPTED, APPLIED, AWAITED, About, AppliedRecord, BASE, ORIGIN, SKIPPED, Skipped};
use serde::Serialize;
use state::SessionState;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};

/// The options for opening a workspace.
#[derive(Debug, Clone)]
pub struct Options {
    /// The options of the selection.
    pub select: select::SelectOptions,
    /// The mode in which the sandbox gets it.
    pub mode: Mode,
    /// Set if the backend can mount an overlay of a directory of this machine.
    pub can_overlay: bool,
    /// Set if the user named the directory (with `-C`). Otherwise `$HOME` itself is refused.
    pub named: bool,
    /// Object directories of the user's that repositories may take objects from.
    pub object_stores: Vec<PathBuf>,
    /// Bytes that kept contents may take; `None`: [`retention::MAX_KEPT`].
    pub max_kept: Option<u64>,
    /// Set if something is to lie under what the sandbox writes ([`Workspace::lay_beneath`]).
    pub is_layered: bool,
    /// Directories that are reviewed together with it, absolute and without symlinks.
    pub added: Vec<PathBuf>,
}

impl Options {
    /// The defaults on `machine`.
    pub fn new(machine: Arc<Machine>) -> Self {
        let (select, mode) = (select::SelectOptions::new(machine), Mode::default());
        let (object_stores, added) = (Vec::new(), Vec::new());
        let (can_overlay, named, is_layered) = (false, false, false);
        Self { select, mode, can_overlay, named, object_stores, max_kept: None, is_layered, added }
    }
}

/// The workspace of one session: the host's directory, the sandbox's version of it, and everything between them.
pub struct Workspace {
    root: PathBuf,
    mode: Mode,
    max_kept: u64,
    /// Set if a fresh sandbox gets the base itself, and not what the session made of it.
    rewinds: bool,
    /// Set if the session's records are somebody else's to write.
    is_transient: bool,
    notices: Vec<String>,
    /// The notice of what was withheld when a sandbox was filled.
    withheld: Lock<Vec<String>>,
    /// The directory of all sessions, where it is known which notices the user has seen.
    data: Option<PathBuf>,
    options: select::SelectOptions,
    store: Store,
    /// The store, through which those of the added directories can be read.
    shown: Store,
    /// The directories that were added to it.
    added: Vec<Workspace>,
    /// Set if it is one of those.
    is_added: bool,
    /// The directory of the session that this is restored from, which may have a saved `$HOME` beside it.
    restored_from: Option<PathBuf>,
    state: Mutex<SessionState>,
    /// What was found around the changes last.
    around: Arc<Lock<Option<Surroundings>>>,
}

/// The result of an apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Files written or deleted on the host.
    pub changes: Changes,
    /// Files that both sides had changed, and that were merged.
    pub merged: Vec<TreePath>,
    /// Files that were hard links and are not any more, a line each.
    pub separated: Vec<String>,
    /// The changes that were written, from what the host had.
    pub written: ChangeSet,
}

/// The result of an undo or a redo in the sandbox.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The checkpoint that the sandbox is at now.
    pub checkpoint: Checkpoint,
    /// The files that are different from before.
    pub files: Vec<TreePath>,
}

impl Workspace {
    /// Opens `root` for a new session that keeps its files in the directory `session`. Looks at every name in the
    /// tree, reads almost nothing, writes nothing to it.
    pub async fn open(root: &Path, session: &Path, options: Options) -> Result<Self> {
        let (root, session) = (root.to_owned(), session.to_owned());
        blocking(move || {
            let data = session.ancestors().nth(2).map(Path::to_owned);
            let own = Self::open_one(&root, &session, data, options.clone())?;
            let of_added = |(index, root): (usize, &PathBuf)| {
                let options = Options { select: options.select.of_added(), ..options.clone() };
                Self::open_one(root, &several::directory_of(&session, index), None, options)
            };
            let added = options.added.iter().enumerate().map(of_added).collect::<Result<_>>()?;
            Ok(own.with_added(added))
        })
        .await
    }

    /// Opens one directory. `data`: the directory of all sessions, for that of a session.
    fn open_one(root: &Path, session: &Path, data: Option<PathBuf>, mut options: Options) -> Result<Self> {
        let machine = Arc::clone(&options.select.machine);
        let root = validate(root, options.named, &machine)?;
        // What `agent` itself keeps is never part of a workspace: sessions, sandboxes, layers.
        let own = [data.clone(), machine.cache_dir().ok()];
        for inside in own.iter().flatten().filter_map(|own| own.strip_prefix(&root).ok()) {
            options.select.exclude.push(format!("/{}", inside.display()));
        }
        let can_overlay = options.can_overlay && root::can_hold_layers(session);
        let selection = select(&root, &options.select.looking(options.mode.shows_ignored(can_overlay)))?;
        let ModeDecision { mount, copies, notice } =
            mode::decide(options.mode, &root, &selection, can_overlay, options.is_layered)?;
        if options.mode == Mode::Bind {
            in_place::check(&selection)?;
        }
        let store = Store::open(&session.join("workspace"))?;
        let mut notices = match options.mode {
            Mode::Bind => notices::of_bound(&selection),
            _ => notices::of(&root, &selection, mount != WorkspaceMount::Empty),
        };
        let own_git = match options.mode {
            Mode::Bind => notices::repository_outside(&root).map_or(Ok(None), Err),
            _ => outer_repository::import(&root, &store, &machine, &options.object_stores),
        };
        let own_git = own_git.unwrap_or_else(|why| {
            notices.push(format!("git does not work inside the sandbox: {}.", one_line(&why, 1000)));
            None
        });
        notices.extend(notice);
        let view = Some(HostView::of(&root, &selection));
        let search = options.select.search(&root, &mount, &selection);
        let mut scanner = scanner(&root, &options.select)?;
        scanner.skip(&selection.ignored);
        let withheld = selection.withheld.keys().cloned().collect();
        let mut state = SessionState::new(mount, Base::new(selection), scanner);
        state.withheld = withheld;
        (state.view, state.own_git, state.copies, state.search) = (view, own_git, copies, search);
        let max_kept = options.max_kept.unwrap_or(retention::MAX_KEPT);
        let workspace = Self::new(root, options.mode, options.select, store, state);
        Ok(Self { max_kept, notices, data, ..workspace })
    }

    /// With the defaults for everything else.
    fn new(
        root: PathBuf,
        mode: Mode,
        options: select::SelectOptions,
        store: Store,
        state: SessionState,
    ) -> Self {
        Self {
            root,
            mode,
            max_kept: retention::MAX_KEPT,
            rewinds: false,
            is_transient: false,
            notices: Vec::new(),
            withheld: Lock::default(),
            data: None,
            options,
            shown: store.clone(),
            store,
            added: Vec::new(),
            is_added: false,
            restored_from: None,
            state: Mutex::new(state),
            around: Arc::default(),
        }
    }

    /// The workspace that an earlier process left in `session`; `None` where it never got one.
    pub async fn load(session: &Path, machine: Arc<Machine>) -> Result<Option<Self>> {
        let session = session.to_owned();
        blocking(move || Self::load_now(&session, machine)).await
    }

    fn load_now(session: &Path, machine: Arc<Machine>) -> Result<Option<Self>> {
        let Some(own) = Self::load_one(session, Arc::clone(&machine))? else { return Ok(None) };
        let mut added = Vec::new();
        for directory in several::directories(session) {
            added.extend(Self::load_one(&directory, Arc::clone(&machine))?);
        }
        Ok(Some(own.with_added(added)))
    }

    fn load_one(session: &Path, machine: Arc<Machine>) -> Result<Option<Self>> {
        let store = Store::open(&session.join("workspace"))?;
        let Some(about) = store.load::<About>(ABOUT)?.filter(|_| store.has(BASE)) else { return Ok(None) };
        let root = crate::tree_path::from_text(&about.root)
            .map(|bytes| {
                PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes))
            })
            .ok_or_else(|| Error::unexpected("the session's record of its workspace is damaged"))?;
        let options = select::SelectOptions {
            include: about.include,
            exclude: about.exclude,
            ..select::SelectOptions::new(machine)
        };
        let mount = match about.mount {
            // What it hides was decided when it was made.
            Mode::Overlay => WorkspaceMount::Overlay { lower: root.clone(), hidden: Vec::new() },
            Mode::Bind => WorkspaceMount::Bind(root.clone()),
            Mode::Auto | Mode::Copy => WorkspaceMount::Empty,
        };
        let mut state = SessionState::new(mount, Base::default(), scanner(&root, &options)?);
        state.history = History::load(&store)?.unwrap_or_default();
        state.origin = store.load(ORIGIN)?.unwrap_or_default();
        state.accepted = store.load(ACCEPTED)?.unwrap_or_default();
        state.applied = store.load(APPLIED)?.unwrap_or_default();
        state.awaited = store.load(AWAITED)?.unwrap_or_default();
        state.skipped = store.load(SKIPPED)?.unwrap_or_default();
        state.beneath = about.beneath;
        (state.is_unread, state.copies) = (true, about.copies || about.mount == Mode::Copy);
        // What became of `auto` before may not be possible any more.
        let mode = if about.mount == Mode::Overlay { Mode::Auto } else { about.mount };
        let restored_from = Some(session.to_owned());
        Ok(Some(Self { restored_from, ..Self::new(root, mode, options, store, state) }))
    }

    /// Its state, with the base.
    async fn state(&self) -> Result<MutexGuard<'_, SessionState>> {
        let mut state = self.state.lock().await;
        if state.is_unread {
            let store = self.store.clone();
            let read = blocking(move || store.load(BASE)).await?;
            state.base =
                read.ok_or_else(|| Error::unexpected("the session's record of its files is gone"))?;
            state.is_unread = false;
        }
        Ok(state)
    }

    /// Returns the time at which the session in the directory `session` was last applied, as far as that was not taken
    /// back.
    pub fn last_applied(session: &Path) -> Result<Option<String>> {
        let mut last = None;
        for directory in std::iter::once(session.to_owned()).chain(several::directories(session)) {
            let directory = directory.join("workspace");
            if directory.join(APPLIED).exists() {
                let records: Vec<AppliedRecord> = Store::open(&directory)?.load(APPLIED)?.unwrap_or_default();
                last = last.max(records.last().map(|record| record.time.clone()));
            }
        }
        Ok(last)
    }

    async fn own_withheld_secrets(&self) -> Result<Vec<TreePath>> {
        let state = self.state().await?;
        let secrets = state.base.left_out.iter().filter(|(_, reason)| **reason == LeftOut::Secret);
        Ok(match state.mount {
            WorkspaceMount::Bind(_) => Vec::new(),
            _ => secrets.map(|(path, _)| path.clone()).collect(),
        })
    }

    /// The host's directory, absolute and without symlinks.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns what the backend needs to know.
    pub async fn mount(&self) -> WorkspaceMount {
        self.state.lock().await.mount.clone()
    }

    /// Returns what the user should know about the selection: what is left out.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Those that the user has not seen yet about this workspace: each once, until one changes. What holds for a bound
    /// workspace is reported always.
    pub fn new_notices(&self) -> Vec<String> {
        let of_added = self.added.iter().flat_map(|added| {
            let said = [added.notices.clone(), added.withheld.lock().clone()].concat();
            said.into_iter().map(|notice| format!("{}: {notice}", added.root.display()))
        });
        let withheld = self.withheld.lock().clone();
        match &self.data {
            Some(data) if self.mode != Mode::Bind => {
                let all: Vec<String> = self.notices.iter().cloned().chain(withheld).chain(of_added).collect();
                notices::unseen(data, &self.root, &all)
            }
            _ => self.notices.iter().cloned().chain(of_added).collect(),
        }
    }

    /// The contents that a diff shows.
    pub fn store(&self) -> &Store {
        let Self { shown, .. } = self;
        shown
    }

    /// Returns what of the user's git configuration belongs into the sandbox's home.
    pub async fn git_settings(&self) -> Result<Vec<HomeFile>> {
        let (root, machine) = (self.root.clone(), Arc::clone(&self.options.machine));
        blocking(move || Ok(git_settings::home_files(&root, &machine))).await
    }

    /// Has git in a fresh sandbox count the files of filters as unchanged, before anything runs there.
    async fn own_settle_filtered_files(&self, sandbox: &Sandbox) -> Result<()> {
        match self.mode {
            // Its index is the user's own.
            Mode::Bind => Ok(()),
            _ => git_settings::settle_filtered_files(sandbox, &self.root).await,
        }
    }

    /// Returns what was committed in the sandbox, as it was recorded last, checked, to be written as a branch of the user's repository.
    /// That one may take objects from those of the user's that are below one of `object_stores`.
    ///
    /// # Errors
    /// Nothing was committed, or a check fails.
    pub async fn inner_commits(&self, object_stores: Vec<PathBuf>) -> Result<InnerCommits> {
        let (base, delta, own) = {
            let state = self.state().await?;
            if let WorkspaceMount::Bind(_) = state.mount {
                return Err(Error::usage(
                    "the sandbox commits to your own repository (--workspace-mode bind)",
                ));
            }
            let is_reference = |path: &TreePath| {
                is_own_git(path) && path.names().nth(1).is_some_and(|name| name != b"objects")
            };
            let base = state.base.nodes.iter().filter(|(path, _)| is_reference(path));
            let (delta, own): (Vec<_>, Vec<_>) =
                state.history.delta().iter().partition(|(path, _)| is_own_git(path));
            let base: Manifest = base.map(|(path, node)| (path.clone(), node.clone())).collect();
            let delta = delta.into_iter().map(|(path, node)| (path.clone(), node.clone()));
            let own = own.into_iter().map(|(path, _)| path.clone());
            (base, delta.collect::<Delta>(), own.collect::<BTreeSet<_>>())
        };
        let (root, store, machine) =
            (self.root.clone(), self.store.clone(), Arc::clone(&self.options.machine));
        blocking(move || {
            let (base, delta, own, object_stores) = (&base, &delta, &own, object_stores.as_slice());
            let recorded = Recorded { root: &root, base, delta, store: &store, object_stores, own };
            InnerCommits::find(&recorded, &machine)
        })
        .await
    }

    /// The changes against what the host has, with what of the host decides which of them are risks.
    async fn reviewed(&self, state: &SessionState) -> Result<ChangeSet> {
        let mut changes = review(state, &self.store, &state.accepted)?;
        if changes.is_empty() {
            return Ok(changes);
        }
        let links = symlinks::links(&state.base.nodes, state.history.delta());
        let (root, host, machine) = (self.root.clone(), self.host(), Arc::clone(&self.options.machine));
        let around = Arc::clone(&self.around);
        blocking(move || {
            // A workspace that was moved away gets nothing, and its changes can still be looked at.
            let host = host().ok();
            let above = surroundings::directories_above(changes.changes.keys());
            let found = around.lock().clone().filter(|found| found.is_of(&above));
            let found = found.unwrap_or_else(|| Surroundings::look(&root, host.as_ref(), above, &machine));
            let roots = symlinks::names_of(&root, &machine);
            changes.symlinks = Symlinks::of(&roots, links.into_iter().chain(found.links.iter().cloned()));
            let is_there = |path: &TreePath| host.as_ref().is_some_and(|host| host.may_have(path));
            changes.refuse_links_into_git(is_there);
            changes.git_files = Arc::clone(&found.git_files);
            *around.lock() = Some(found);
            if let (false, Some(host)) = (changes.in_place, host) {
                changes.refuse_repositories(changes.repositories_with(&host));
            }
            Ok(changes)
        })
        .await
    }

    /// Records that the user was shown `changes`; `is_all`: they are all that has changed.
    pub fn record_shown(&self, changes: &ChangeSet, is_all: bool) -> Result<()> {
        let mut shown: Shown = self.store.load(SHOWN)?.unwrap_or_default();
        shown.add(changes, is_all)?;
        self.store.mark(SHOWN, &shown)
    }

    /// Compares `changes` with what the user was shown last, by whichever process; `is_all`: they are all that has
    /// changed.
    pub fn since_shown(&self, changes: &ChangeSet, is_all: bool) -> Result<SinceShown> {
        let shown: Option<Shown> = self.store.load(SHOWN)?;
        shown.map_or_else(|| Ok(SinceShown::default()), |shown| shown.since(changes, is_all))
    }

    /// Returns the number of times that a diff was shown so far, by whichever process.
    pub fn looks(&self) -> Result<u64> {
        let shown: Option<Shown> = self.store.load(SHOWN)?;
        Ok(shown.map_or(0, |shown| shown.looks))
    }

    /// After an apply of `changes` nothing is known about what is left of them.
    fn forget_shown(&self, changes: &ChangeSet) -> Result<()> {
        let Some(mut shown) = self.store.load::<Shown>(SHOWN)? else { return Ok(()) };
        shown.forget(changes);
        self.store.mark(SHOWN, &shown)
    }

    async fn own_all_changes(&self) -> Result<Changes> {
        let state = self.state().await?;
        Ok(review(&state, &self.store, &state.origin)?.counts())
    }

    /// Takes back the last `steps` checkpoints in the sandbox. What changed since the last one is recorded first, and
    /// counts as one.
    pub async fn undo(&self, sandbox: &Sandbox, steps: u32) -> Result<Restored> {
        self.restore_checkpoint(sandbox, i64::from(steps)).await
    }

    /// Does again what was undone last.
    pub async fn redo(&self, sandbox: &Sandbox, steps: u32) -> Result<Restored> {
        self.restore_checkpoint(sandbox, -i64::from(steps)).await
    }

    /// The checkpoints, oldest first, and the index of the one that the sandbox is at.
    pub async fn checkpoints(&self) -> (Vec<Checkpoint>, usize) {
        let state = self.state.lock().await;
        (state.history.list().to_vec(), state.history.position())
    }

    async fn own_open_closed(&self, sandbox: &Sandbox) -> Result<()> {
        let state = self.state().await?;
        let closed = state.skipped.rejected.unlisted.clone();
        restore::open_closed(sandbox, &state.base, &self.store, closed).await
    }

    async fn look(
        &self,
        state: &mut SessionState,
        sandbox: &Sandbox,
        prompt: Option<u64>,
    ) -> Result<Option<Checkpoint>> {
        let SessionState { mount, base, scanner, history, skipped, view, .. } = state;
        let places = self.places(mount, history, view.as_ref());
        let Scan { delta, rejected, ignored } = scanner.scan(sandbox, base, &places).await?;
        let now = Skipped { rejected, ignored };
        if *skipped != now {
            *skipped = now;
            self.store.save(SKIPPED, skipped)?;
        }
        self.record(state, delta, prompt).await
    }

    fn places<'a>(
        &'a self,
        mount: &WorkspaceMount,
        history: &'a History,
        view: Option<&'a HostView>,
    ) -> ScanContext<'a> {
        let overlay = matches!(mount, WorkspaceMount::Overlay { .. }).then(|| history.delta());
        let in_place = self.is_in_place();
        let shown = view.filter(|_| shows_host(mount) || in_place);
        ScanContext { root: &self.root, store: &self.store, overlay, known: history.delta(), shown, in_place }
    }

    /// As [`Workspace::look`], at `paths` alone where that tells what is there.
    async fn look_at(
        &self,
        state: &mut SessionState,
        sandbox: &Sandbox,
        paths: &BTreeSet<TreePath>,
    ) -> Result<Option<Checkpoint>> {
        let SessionState { mount, base, scanner, history, view, .. } = state;
        let places = self.places(mount, history, view.as_ref());
        match scanner.scan_paths(sandbox, base, history.delta(), &places, paths).await? {
            Some(delta) => self.record(state, delta, None).await,
            None => self.look(state, sandbox, None).await,
        }
    }

    /// Records what a look found.
    async fn record(
        &self,
        state: &mut SessionState,
        delta: Delta,
        prompt: Option<u64>,
    ) -> Result<Option<Checkpoint>> {
        let SessionState { base, history, .. } = state;
        let mut checkpoint = history.record(delta, &base.nodes, prompt, &self.store)?;
        if let Some(prompt) = prompt.filter(|_| self.is_in_place()) {
            self.record_written(state, prompt).await?;
        }
        if checkpoint.is_some() || (prompt.is_some() && state.has_unsaved_edits) {
            self.save(BASE, state.base.clone()).await?;
            state.has_unsaved_edits = false;
        }
        if let Some(checkpoint) = &mut checkpoint {
            checkpoint.forgotten = self.enforce_retention(state)?;
        }
        Ok(checkpoint)
    }

    /// Keeps the store within its bounds; how many checkpoints that took.
    fn enforce_retention(&self, state: &mut SessionState) -> Result<usize> {
        let SessionState { base, history, accepted, applied, awaited, .. } = state;
        let records = applied.iter().flat_map(|record| {
            let changes = record.written.changes.values();
            changes.flat_map(|change| [&change.before, &change.after]).chain(record.accepted.values())
        });
        let others =
            base.nodes.values().chain(accepted.values().chain(awaited.values()).chain(records).flatten());
        retention::enforce(&self.store, history, others, self.max_kept)
    }

    async fn save<T: Serialize + Send + 'static>(&self, name: &'static str, record: T) -> Result<()> {
        let store = self.store.clone();
        blocking(move || store.save(name, &record)).await
    }
}

/// Returns whether what git ignores on the host is seen inside.
fn shows_host(mount: &WorkspaceMount) -> bool {
    matches!(mount, WorkspaceMount::Overlay { .. } | WorkspaceMount::Forked { .. })
}

fn scanner(root: &Path, options: &select::SelectOptions) -> Result<Scanner> {
    // By names relative to the tree, as the sandbox's are.
    let include = select::globs(Path::new(""), &options.include, "--include")?;
    Ok(Scanner::new(Ignored::outer(root).including(include)))
}

fn exclusions(state: &SessionState) -> Exclusions<'_> {
    let Skipped { rejected, ignored } = &state.skipped;
    let in_place = matches!(state.mount, WorkspaceMount::Bind(_));
    Exclusions { left_out: &state.base.left_out, rejected, ignored, in_place }
}

/// The changes against the base with what the host has `accepted`.
fn review(state: &SessionState, store: &Store, accepted: &Delta) -> Result<ChangeSet> {
    let (base, delta) = (&state.base.nodes, state.history.delta());
    let all = ChangeSet::review(base, delta, accepted, &exclusions(state))?;
    Ok(all.without_pointers(store)?.without_heads(store)?.without_build_files(&Trees {
        base,
        accepted,
        delta,
        store,
    }))
}

fn tree(base: &Base, delta: &Delta) -> Manifest {
    let mut tree = base.nodes.clone();
    for (path, node) in delta {
        match node {
            Some(node) => tree.insert(path.clone(), node.clone()),
            None => tree.remove(path),
        };
    }
    tree
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::unexpected("work on the workspace failed").caused_by(error))?
}
