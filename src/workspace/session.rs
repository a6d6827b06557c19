//! One session's workspace: the facade that the turn loop and the commands use.

use crate::error::{Error, Result};
use crate::event::Changes;
use crate::sandbox::{Sandbox, WorkspaceMount};
use crate::workspace::apply::Plan;
use crate::workspace::base::Base;
use crate::workspace::changes::{Barred, ChangeSet};
use crate::workspace::history::{Checkpoint, History};
use crate::workspace::host_dir::HostDir;
use crate::workspace::manifest::{Delta, Manifest};
use crate::workspace::mode::{self, Mode};
use crate::workspace::scan::{Places, Scan, Scanner};
use crate::workspace::select::{self, select};
use crate::workspace::store::Store;
use crate::workspace::transfer::{self, CopyReport, OnCopied};
use crate::workspace::tree_path::TreePath;
use crate::workspace::{notices, restore};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tokio::sync::{Mutex, MutexGuard};

/// How a workspace is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What comes along.
    pub select: select::Options,
    /// How it comes along.
    pub mode: Mode,
    /// Whether the backend can mount an overlay of a directory of this machine.
    pub can_overlay: bool,
    /// Whether the person named the directory (with `-C`). Otherwise `$HOME` itself is refused.
    pub named: bool,
}

/// The workspace of one session: the host's directory, the sandbox's version of it, and everything between them.
pub struct Workspace {
    root: PathBuf,
    mount: WorkspaceMount,
    hidden: Vec<TreePath>,
    notices: Vec<String>,
    options: select::Options,
    store: Store,
    state: Mutex<State>,
}

struct State {
    base: Base,
    scanner: Scanner,
    history: History,
    /// What the host has otherwise than the base, because an apply wrote it.
    accepted: Delta,
    applied: Vec<Record>,
    /// What the last look found that cannot be taken over.
    odd: Odd,
}

/// Entries that cannot be taken over, as [`Scan`] found them.
#[derive(Default, Serialize, Deserialize)]
struct Odd {
    names: std::collections::BTreeMap<String, String>,
    paths: std::collections::BTreeSet<TreePath>,
}

/// What is kept about the workspace beside its base.
#[derive(Serialize, Deserialize)]
struct About {
    /// As [`crate::workspace::tree_path::to_text`] writes it.
    root: String,
    mount: Mode,
    include: Vec<String>,
    exclude: Vec<String>,
}

/// An apply that can be taken back.
#[derive(Clone, Serialize, Deserialize)]
struct Record {
    /// What was written, from what the host had.
    written: ChangeSet,
    /// [`State::accepted`] before it.
    accepted: Delta,
}

/// What an apply did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Files written or deleted on the host.
    pub changes: Changes,
    /// Files that both sides had changed, and that were merged.
    pub merged: Vec<TreePath>,
}

impl Workspace {
    /// Opens `root` for a new session that keeps its files in the directory `session`. Looks at every name in the
    /// tree, reads almost nothing, writes nothing to it.
    pub async fn open(root: &Path, session: &Path, options: Options) -> Result<Self> {
        let (root, session) = (root.to_owned(), session.to_owned());
        blocking(move || Self::open_now(&root, &session, options)).await
    }

    fn open_now(root: &Path, session: &Path, mut options: Options) -> Result<Self> {
        let root = validate(root, options.named)?;
        // The sessions themselves are never part of a workspace.
        if let Some(inside) = session.parent().and_then(|sessions| sessions.strip_prefix(&root).ok()) {
            options.select.exclude.push(format!("/{}", inside.display()));
        }
        let selection = select(&root, &options.select)?;
        let mount = mode::decide(options.mode, &root, &selection, options.can_overlay)?;
        let hidden = match mount {
            WorkspaceMount::Overlay(_) => mode::hidden(&root, &selection)?,
            _ => Vec::new(),
        };
        let store = Store::open(&session.join("workspace"))?;
        store.save(ABOUT, &about(&root, &mount, &options.select))?;
        let state = State {
            base: Base::new(&selection),
            scanner: Scanner::new(&root),
            history: History::new(),
            accepted: Delta::new(),
            applied: Vec::new(),
            odd: Odd::default(),
        };
        let notices = notices::of(&root, &selection);
        Ok(Self { root, mount, hidden, notices, options: options.select, store, state: Mutex::new(state) })
    }

    /// The workspace that an earlier process left in `session`; `None` where it never got one.
    pub async fn load(session: &Path) -> Result<Option<Self>> {
        let session = session.to_owned();
        blocking(move || Self::load_now(&session)).await
    }

    fn load_now(session: &Path) -> Result<Option<Self>> {
        let store = Store::open(&session.join("workspace"))?;
        let (Some(about), Some(base)) = (store.load::<About>(ABOUT)?, store.load(BASE)?) else {
            return Ok(None);
        };
        let root = crate::workspace::tree_path::from_text(&about.root)
            .map(|bytes| {
                PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes))
            })
            .ok_or_else(|| Error::unexpected("the session's record of its workspace is damaged"))?;
        let state = State {
            base,
            scanner: Scanner::new(&root),
            history: History::load(&store)?.unwrap_or_default(),
            accepted: store.load(ACCEPTED)?.unwrap_or_default(),
            applied: store.load(APPLIED)?.unwrap_or_default(),
            odd: store.load(ODD)?.unwrap_or_default(),
        };
        let mount = match about.mount {
            Mode::Overlay => WorkspaceMount::Overlay(root.clone()),
            Mode::Bind => WorkspaceMount::Bind(root.clone()),
            Mode::Auto | Mode::Copy => WorkspaceMount::Empty,
        };
        let options =
            select::Options { include: about.include, exclude: about.exclude, ..Default::default() };
        Ok(Some(Self {
            root,
            mount,
            hidden: Vec::new(),
            notices: Vec::new(),
            options,
            store,
            state: Mutex::new(state),
        }))
    }

    /// The host's directory, absolute and without symlinks.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the backend needs to know.
    pub fn mount(&self) -> &WorkspaceMount {
        &self.mount
    }

    /// What an overlay has to hide. Hidden by [`Workspace::copy_in`]; a backend that has done it before the start
    /// saves that the time.
    pub fn hidden(&self) -> &[TreePath] {
        &self.hidden
    }

    /// What the person should know about the selection: what stays out.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The contents that a diff shows.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Brings the files into a fresh sandbox of a new session, before anything runs in it.
    pub async fn copy_in(&self, sandbox: &Sandbox, on_copied: OnCopied<'_>) -> Result<CopyReport> {
        let mut state = self.state.lock().await;
        let State { base, scanner, .. } = &mut *state;
        let report = match self.mount {
            WorkspaceMount::Empty => {
                transfer::copy_in(&self.root, base, &self.store, sandbox, on_copied).await?
            }
            WorkspaceMount::Overlay(_) => {
                transfer::hide(sandbox, &self.hidden).await?;
                transfer::clean_git_configs(&self.root, base, &self.store, sandbox).await?;
                CopyReport::default()
            }
            WorkspaceMount::Bind(_) => CopyReport::default(),
        };
        // With an overlay the files' own stamps say that they are the host's.
        if self.mount == WorkspaceMount::Empty {
            scanner.remember(sandbox, &base.nodes, false).await?;
        }
        self.save(BASE, base.clone()).await?;
        Ok(report)
    }

    /// Takes up a sandbox of this session that has been running all the time.
    pub async fn rejoin(&self, sandbox: &Sandbox) -> Result<()> {
        let mut state = self.state.lock().await;
        let tree = tree(&state.base, state.history.delta());
        state.scanner.remember(sandbox, &tree, true).await
    }

    /// Brings a fresh sandbox to where the session left off: the host's tree as it is now, and on top of it
    /// everything that the session had changed. Files that the session changed keep their old base, so that a
    /// change on the host meanwhile is a conflict when they are applied.
    pub async fn bring_back(&self, sandbox: &Sandbox, on_copied: OnCopied<'_>) -> Result<CopyReport> {
        let (root, options) = (self.root.clone(), self.options.clone());
        let selection = blocking(move || select(&root, &options)).await?;
        let mut state = self.state.lock().await;
        let former = std::mem::replace(&mut state.base, Base::new(&selection));
        let report = transfer::copy_in(&self.root, &mut state.base, &self.store, sandbox, on_copied).await?;
        let fresh = tree(&state.base, &Delta::new());
        let delta = state.history.delta().clone();
        for path in delta.keys() {
            match former.nodes.get(path) {
                Some(node) => state.base.nodes.insert(path.clone(), node.clone()),
                None => state.base.nodes.remove(path),
            };
        }
        let from = crate::workspace::manifest::delta(&state.base.nodes, &fresh);
        restore::restore(sandbox, &state.base, &self.store, &from, &delta).await?;
        let tree = tree(&state.base, &delta);
        state.scanner.remember(sandbox, &tree, false).await?;
        self.save(BASE, state.base.clone()).await?;
        Ok(report)
    }

    /// Records the sandbox's tree, if it is not as it was at the last checkpoint.
    pub async fn checkpoint(&self, sandbox: &Sandbox) -> Result<Option<Checkpoint>> {
        let mut state = self.state.lock().await;
        self.look(&mut state, sandbox).await
    }

    /// What the sandbox changed, as of now.
    pub async fn changes(&self, sandbox: &Sandbox) -> Result<ChangeSet> {
        let mut state = self.state.lock().await;
        self.look(&mut state, sandbox).await?;
        review(&state)
    }

    /// What the sandbox had changed at the last checkpoint.
    pub async fn recorded_changes(&self) -> Result<ChangeSet> {
        review(&*self.state.lock().await)
    }

    /// How much the session has changed since it began, whether or not it was applied meanwhile.
    pub async fn all_changes(&self) -> Result<Changes> {
        let state = self.state.lock().await;
        let barred =
            Barred { left_out: &state.base.left_out, odd_paths: &state.odd.paths, odd: &state.odd.names };
        let all = ChangeSet::review(&state.base.nodes, state.history.delta(), &Delta::new(), &barred)?;
        Ok(all.counts())
    }

    /// Writes `changes` (all of [`Workspace::changes`], or a selection of it) to the host. All or nothing: any
    /// conflict is an error of kind [`crate::error::Kind::Conflict`] that names every file, and nothing is written.
    /// Merged files go into the sandbox too, where there is one.
    pub async fn apply(
        &self,
        changes: &ChangeSet,
        merge: bool,
        sandbox: Option<&Sandbox>,
    ) -> Result<Applied> {
        let mut state = self.state.lock().await;
        let (root, store, wanted) = (self.root.clone(), self.store.clone(), changes.clone());
        let plan = blocking(move || Plan::check(&HostDir::open(&root)?, &wanted, &store, merge)).await?;
        let record = Record { written: plan.record(), accepted: state.accepted.clone() };
        let applied = Applied { changes: record.written.counts(), merged: plan.merged().to_vec() };
        state.applied.push(record.clone());
        self.save(APPLIED, state.applied.clone()).await?;
        if let Err(error) = self.write(plan).await {
            state.applied.pop();
            self.save(APPLIED, state.applied.clone()).await?;
            return Err(error);
        }
        let mut delta = state.history.delta().clone();
        for (path, change) in &changes.changes {
            let mut node = change.after.clone();
            if applied.merged.contains(path) {
                let merged = record.written.changes.get(path).and_then(|change| change.after.clone());
                let mode = node.as_ref().and_then(|node| node.mode()).unwrap_or(0o644);
                node = merged.map(|merged| merged.with_mode(mode));
                delta.insert(path.clone(), node.clone());
            }
            state.accepted.insert(path.clone(), node);
        }
        let State { accepted, base, .. } = &mut *state;
        accepted.retain(|path, node| base.nodes.get(path) != node.as_ref());
        self.save(ACCEPTED, state.accepted.clone()).await?;
        if !applied.merged.is_empty() {
            self.take_merged(&mut state, &applied.merged, delta, sandbox).await?;
        }
        Ok(applied)
    }

    /// Puts the host's files back as they were before the last apply that was not taken back yet.
    pub async fn undo_apply(&self) -> Result<Changes> {
        let mut state = self.state.lock().await;
        let Some(record) = state.applied.last().cloned() else {
            return Err(Error::usage("nothing of this session was applied").hint("`agent apply` applies it"));
        };
        let (root, store, back) = (self.root.clone(), self.store.clone(), record.written.reversed());
        let plan = blocking(move || Plan::check(&HostDir::open(&root)?, &back, &store, false)).await?;
        let changes = plan.record().counts();
        self.write(plan).await?;
        state.applied.pop();
        state.accepted = record.accepted;
        self.save(ACCEPTED, state.accepted.clone()).await?;
        self.save(APPLIED, state.applied.clone()).await?;
        Ok(changes)
    }

    /// Takes back the last `steps` checkpoints in the sandbox. What changed since the last one is recorded first, and
    /// counts as one.
    pub async fn undo(&self, sandbox: &Sandbox, steps: u32) -> Result<Checkpoint> {
        self.travel(sandbox, i64::from(steps)).await
    }

    /// Does again what was undone last.
    pub async fn redo(&self, sandbox: &Sandbox, steps: u32) -> Result<Checkpoint> {
        self.travel(sandbox, -i64::from(steps)).await
    }

    /// The checkpoints, oldest first, and the index of the one that the sandbox is at.
    pub async fn checkpoints(&self) -> (Vec<Checkpoint>, usize) {
        let state = self.state.lock().await;
        (state.history.list().to_vec(), state.history.position())
    }

    async fn travel(&self, sandbox: &Sandbox, steps: i64) -> Result<Checkpoint> {
        let mut state = self.state.lock().await;
        self.look(&mut state, sandbox).await?;
        let (index, target) = state.history.seek(steps, &self.store)?;
        restore::restore(sandbox, &state.base, &self.store, state.history.delta(), &target).await?;
        state.history.move_to(index, target, &self.store)?;
        Ok(state.history.list()[index].clone())
    }

    async fn look(&self, state: &mut MutexGuard<'_, State>, sandbox: &Sandbox) -> Result<Option<Checkpoint>> {
        let places = Places { root: &self.root, store: &self.store };
        let State { base, scanner, history, odd, .. } = &mut **state;
        let Scan { delta, odd: names, odd_paths: paths } = scanner.scan(sandbox, base, &places).await?;
        if odd.names != names {
            *odd = Odd { names, paths };
            self.store.save(ODD, odd)?;
        }
        let checkpoint = history.record(delta, &self.store)?;
        if checkpoint.is_some() {
            self.save(BASE, base.clone()).await?;
        }
        Ok(checkpoint)
    }

    async fn write(&self, plan: Plan) -> Result<()> {
        let (root, store) = (self.root.clone(), self.store.clone());
        blocking(move || plan.write(&HostDir::open(&root)?, &store)).await
    }

    async fn take_merged(
        &self,
        state: &mut MutexGuard<'_, State>,
        merged: &[TreePath],
        delta: Delta,
        sandbox: Option<&Sandbox>,
    ) -> Result<()> {
        if let Some(sandbox) = sandbox {
            let nodes = merged.iter().filter_map(|path| Some((path.clone(), delta.get(path)?.clone()?)));
            transfer::write_nodes(sandbox, &self.store, nodes.collect()).await?;
        }
        state.history.record(delta, &self.store).map(drop)
    }

    async fn save<T: Serialize + Send + 'static>(&self, name: &'static str, record: T) -> Result<()> {
        let store = self.store.clone();
        blocking(move || store.save(name, &record)).await
    }
}

const ABOUT: &str = "about.json";
const BASE: &str = "base.json";
const ACCEPTED: &str = "accepted.json";
const APPLIED: &str = "applied.json";
const ODD: &str = "odd.json";

fn about(root: &Path, mount: &WorkspaceMount, options: &select::Options) -> About {
    use std::os::unix::ffi::OsStrExt;
    About {
        root: crate::workspace::tree_path::to_text(root.as_os_str().as_bytes()),
        mount: match mount {
            WorkspaceMount::Empty => Mode::Copy,
            WorkspaceMount::Overlay(_) => Mode::Overlay,
            WorkspaceMount::Bind(_) => Mode::Bind,
        },
        include: options.include.clone(),
        exclude: options.exclude.clone(),
    }
}

fn review(state: &State) -> Result<ChangeSet> {
    let barred =
        Barred { left_out: &state.base.left_out, odd_paths: &state.odd.paths, odd: &state.odd.names };
    ChangeSet::review(&state.base.nodes, state.history.delta(), &state.accepted, &barred)
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

/// The directory as it really is, if it can be a workspace. `named`: whether the person named it with `-C`.
pub fn validate(root: &Path, named: bool) -> Result<PathBuf> {
    let cannot = |error| {
        Error::usage(format!("{} cannot be the workspace", root.display()))
            .caused_by(anyhow::Error::from(error))
    };
    let real = root.canonicalize().map_err(cannot)?;
    if !real.is_dir() {
        return Err(
            Error::usage(format!("{} is not a directory", root.display())).hint("name a directory with -C")
        );
    }
    if real == Path::new("/") {
        return Err(
            Error::usage("the whole machine cannot be the workspace").hint("name a directory with -C")
        );
    }
    let home = std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    if !named && home.is_some_and(|home| home == real) {
        return Err(Error::usage("your whole home directory would be the workspace")
            .hint(format!("change to a project's directory, or say so: -C {}", root.display())));
    }
    Ok(real)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::unexpected("work on the workspace broke off").caused_by(error))?
}
