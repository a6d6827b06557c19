//! Sessions that were kept: which one a call means, its workspace and the paths in it, its sandbox.

use crate::backends::by_name;
use crate::cli::options::Options;
use crate::cli::working_directory::WorkingDirectory;
use crate::error::{Error, Kind, Result};
use crate::event::Changes;
use crate::log::{History, SessionId, Store, read_records};
use crate::machine::Machine;
use crate::sandbox::{Sandbox, own_place};
use crate::workspace::{ChangeSet, Workspace};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The session with this id or the beginning of it, or the newest of the workspace.
pub fn named_or_last(
    machine: &Arc<Machine>,
    store: &Store,
    options: &Options,
    id: Option<&str>,
) -> Result<SessionId> {
    match id {
        Some(id) => store.find(id),
        None => last(store, &WorkingDirectory::of(machine, &options.directory)?),
    }
}

/// The newest session of the place.
pub fn last(store: &Store, place: &WorkingDirectory) -> Result<SessionId> {
    let mut last = store.last(Some(&place.root));
    for alone in place.own().iter().skip(1) {
        last = match (last, store.last(Some(alone))) {
            (Ok(one), Ok(other)) => Ok(one.max(other)),
            (Err(_), Ok(found)) | (Ok(found), Err(_)) => Ok(found),
            (error, _) => error,
        };
    }
    last
}

/// The workspace of a kept session, and the paths that were named.
pub struct KeptSession {
    /// The session.
    pub id: SessionId,
    /// Its workspace.
    pub workspace: Workspace,
    /// The paths that were named, relative to it.
    pub paths: Vec<PathBuf>,
}

/// Finds the session whose id starts with `id`, or the newest of the workspace. A first argument that is not a session
/// is a path: `agent diff src/main.rs` need not name the session.
pub async fn find(
    machine: &Arc<Machine>,
    options: &Options,
    id: Option<String>,
    paths: Vec<PathBuf>,
) -> Result<KeptSession> {
    let sessions = Store::open(machine)?;
    let named = id.as_deref().map(|id| sessions.find(id));
    let (id, paths) = match (named, id) {
        (Some(Ok(found)), _) => (found, paths),
        (Some(Err(error)), Some(id)) if !looks_like_path(&id) => return Err(error),
        (_, path) => {
            let paths = path.map(PathBuf::from).into_iter().chain(paths).collect();
            (last(&sessions, &WorkingDirectory::of(machine, &options.directory)?)?, paths)
        }
    };
    let workspace = Workspace::load(&sessions.dir(&id), Arc::clone(machine)).await?.ok_or_else(|| {
        Error::usage(format!("session {id} has no changes: it ended before anything ran in its sandbox"))
            .hint("see `agent sessions list`")
    })?;
    let named = options.directory.workspace.as_deref();
    let paths = within(&workspace, named, Path::new(""), &paths)?;
    Ok(KeptSession { id, workspace, paths })
}

/// Returns what a kept session changed at the paths that were named; `all`: with what only build tools write.
pub async fn changed(kept: &KeptSession, all: bool) -> Result<ChangeSet> {
    let changes = kept.workspace.recorded_changes().await?;
    let changes = if all { changes.with_build_files() } else { changes };
    changes.select(&kept.paths)
}

/// The same for a command that writes: refuses a session that is running, which keeps its records itself.
pub async fn find_idle(
    machine: &Arc<Machine>,
    options: &Options,
    id: Option<String>,
    paths: Vec<PathBuf>,
) -> Result<KeptSession> {
    let kept = find(machine, options, id, paths).await?;
    if Store::open(machine)?.is_running(&kept.id) {
        return Err(Error::new(Kind::Usage, format!("session {} is running", kept.id))
            .hint("use /apply there, or wait until it has ended"));
    }
    Ok(kept)
}

/// The session of the last apply on the workspace that was not taken back; without one, the newest session.
pub async fn find_last_applied(machine: &Arc<Machine>, options: &Options) -> Result<KeptSession> {
    let sessions = Store::open(machine)?;
    let mut last = None;
    let mut ids = Vec::new();
    for directory in WorkingDirectory::of(machine, &options.directory)?.own() {
        ids.extend(sessions.of_workspace(&directory)?);
    }
    for id in ids {
        let applied = Workspace::last_applied(&sessions.dir(&id))?.map(|time| (time, id));
        // Of two at the same time, the session that was written later counts.
        last = match (last, applied) {
            (Some((time, id)), Some((other, _))) if time >= other => Some((time, id)),
            (last, applied) => applied.or(last),
        };
    }
    find_idle(machine, options, last.map(|(_, id)| id.to_string()), Vec::new()).await
}

/// Other sessions of the workspace `root` than `own` with changes that are not applied, newest first: their ids, and what changed.
/// Attempts that lost a race do not count, and only the `limit` newest sessions are looked at.
pub async fn unapplied_elsewhere(
    machine: &Arc<Machine>,
    root: &Path,
    own: &SessionId,
    limit: usize,
) -> Result<Vec<(SessionId, Changes)>> {
    let sessions = Store::open(machine)?;
    let is_other = |id: &SessionId| id != own && sessions.attempt_of(id).is_none();
    let others = sessions.of_workspace(root)?.into_iter().filter(is_other);
    let mut unapplied = Vec::new();
    for id in others.take(limit) {
        if sessions.summary(id.clone()).changes == Changes::default() {
            continue;
        }
        // What cannot be read is reported by the commands that are about it.
        if let Ok(Some(workspace)) = Workspace::load(&sessions.dir(&id), Arc::clone(machine)).await
            && let Ok(changes) = workspace.recorded_changes().await
            && !changes.is_empty()
            && !changes.in_place
        {
            unapplied.push((id, changes.counts()));
        }
    }
    Ok(unapplied)
}

/// Other sessions that `agent diff` looks at.
pub const MAX_OTHERS: usize = 10;

/// A session's id starts with its date. A file that only the sandbox has cannot be found here.
fn looks_like_path(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        || text.contains(['/', '.'])
        || Path::new(text).symlink_metadata().is_ok()
}

/// `paths` relative to the workspace, and absolute in directories that were added to it. A relative path starts at the directory that the call names, else at the current one,
/// or in the workspace's `directory` if that is outside of it. `..` removes the name before it. The files need not exist: the sandbox may have them.
///
/// # Errors
/// A path leads out of the workspace.
pub fn within(
    workspace: &Workspace,
    named: Option<&Path>,
    directory: &Path,
    paths: &[PathBuf],
) -> Result<Vec<PathBuf>> {
    let root = workspace.root();
    let current = named.unwrap_or(Path::new(".")).canonicalize();
    let from =
        current.ok().filter(|directory| directory.starts_with(root)).unwrap_or_else(|| root.join(directory));
    let in_added = |path: &Path| {
        let plain = without_dots(&from.join(path));
        workspace.added_roots().any(|added| plain.starts_with(added)).then_some(plain)
    };
    let one = |path: &PathBuf| in_added(path).map_or_else(|| one_within(root, &from, path), Ok);
    paths.iter().map(one).collect()
}

fn one_within(root: &Path, from: &Path, path: &Path) -> Result<PathBuf> {
    let plain = without_dots(&from.join(path));
    // The path may lead to the workspace through a symlink.
    let is_root =
        |directory: &&Path| *directory == root || directory.canonicalize().is_ok_and(|real| real == root);
    let outermost = plain.ancestors().filter(is_root).last();
    match outermost.and_then(|root| plain.strip_prefix(root).ok()) {
        Some(inside) if inside.as_os_str().is_empty() => Ok(PathBuf::from(".")),
        Some(inside) => Ok(inside.to_owned()),
        None => Err(Error::usage(format!("{} is not in the workspace {}", path.display(), root.display()))
            .hint("`agent diff --name-only` lists what changed")),
    }
}

fn without_dots(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, component| {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
        plain
    })
}

/// The sandbox of a session that still runs.
///
/// # Errors
/// It does not run, or `-C` names another workspace.
pub async fn attach(machine: &Arc<Machine>, id: &str, options: &Options) -> Result<Sandbox> {
    let store = Store::open(machine)?;
    let id = store.find(id)?;
    let history = History::of(&read_records(&store.events(&id))?);
    if options.directory.workspace.is_some() {
        WorkingDirectory::of(machine, &options.directory)?.check(&id, &history)?;
    }
    let backend = by_name(&history.sandbox.backend, machine).await?;
    let sandbox = crate::session::attach(backend.as_ref(), &id).await?;
    if let Some(workspace) = Workspace::load(&store.dir(&id), Arc::clone(machine)).await? {
        workspace.give_awaited(&sandbox).await?;
    }
    let root = Path::new(&history.workspace);
    let inside = own_place(backend.as_ref(), root);
    Ok(sandbox.with_place(root, inside.as_deref(), Path::new(&history.directory)))
}

/// Ends the sandbox that a session may have left. Where its engine does not answer, the sweep of a later start
/// does it.
pub async fn end_sandbox(machine: &Arc<Machine>, backend: &str, id: &SessionId) {
    if let Ok(backend) = by_name(backend, machine).await {
        let _ = backend.destroy(id.as_str()).await;
    }
}
