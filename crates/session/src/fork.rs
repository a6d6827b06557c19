//! A second session from the state of another one: its conversation, its workspace and `$HOME` of its sandbox.

use super::one_shot::attach;
use super::snapshot::{self, NotedSnapshot};
use agent_backends::by_name;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::paths::make_dir;
use agent_log::{History, SessionId, Store, read_records};
use agent_sandbox::layer::{self, Contents};
use agent_sandbox::{Backend, Copied, Sandbox, State, WorkspaceMount};
use agent_workspace::{Workspace, home};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A session that was forked.
pub struct Fork {
    /// The new session.
    pub id: SessionId,
    /// Set if the sandbox of the source runs, so that the fork has the workspace and `$HOME` as they are in it now, but not
    /// its processes. Otherwise it has the workspace as of the last prompt.
    pub has_home: bool,
    /// The reason why it is not known whether that sandbox runs: its engine does not answer.
    pub unknown: Option<Error>,
}

/// Forks the session `source`.
///
/// # Errors
/// `$HOME` of its sandbox is too large; there is no fork then.
pub async fn fork(store: &Store, source: &SessionId, machine: &Arc<Machine>) -> Result<Fork> {
    let history = History::of(&read_records(&store.events(source))?);
    let (running, unknown) = match running(source, &history.sandbox.backend, machine).await {
        Ok(running) => (running, None),
        Err(error) => (None, Some(error)),
    };
    Ok(Fork { unknown, ..fork_with(store, source, history.prompts, running).await? })
}

/// The sandbox of a session that is forked.
pub(super) struct Running {
    pub backend: Arc<dyn Backend>,
    pub sandbox: Sandbox,
    pub machine: Arc<Machine>,
}

/// Forks the session `source` with its sandbox, after so many `prompts`.
pub(super) async fn fork_with(
    store: &Store,
    source: &SessionId,
    prompts: u64,
    running: Option<Running>,
) -> Result<Fork> {
    let id = store.fork(source)?;
    let taken = match running {
        Some(running) => running.copy(store, source, &id, prompts).await.map(|()| true),
        None => copy_layer(store, source, &id).await,
    };
    match taken {
        Ok(has_home) => Ok(Fork { id, has_home, unknown: None }),
        Err(error) => {
            // What is left if this fails too is listed and can be removed.
            let _ = store.remove(&id);
            Err(error)
        }
    }
}

/// Forks a fork whose sandbox has not started yet: what it is to begin with is copied. A copy at a provider is one session's, so
/// that this fork then has the workspace as it was recorded.
pub(super) async fn fork_unstarted(store: &Store, source: &SessionId) -> Result<Fork> {
    // The prompts only name a checkpoint of a sandbox that runs.
    fork_with(store, source, 0, None).await
}

impl Running {
    /// Copies the workspace and `$HOME` for the session `id`: as the backend can, or through the guest.
    async fn copy(&self, store: &Store, source: &SessionId, id: &SessionId, prompts: u64) -> Result<()> {
        let directory = store.dir(id);
        let copied = copied_layer(self.backend.as_ref(), source, &store.layer(id)).await?;
        let mut has_snapshot = false;
        let workspace = Workspace::load(&directory, Arc::clone(&self.machine)).await?;
        // Of directories beside the workspace no layer is copied.
        let is_recorded =
            |workspace: &Workspace| !copied.workspace || workspace.added_roots().next().is_some();
        if let Some(workspace) = workspace.filter(Workspace::is_filled).filter(is_recorded) {
            workspace.rejoin(&self.sandbox).await?;
            workspace.checkpoint(&self.sandbox, prompts).await?;
            // Where nothing of the host's is below the workspace, a copy of the sandbox has all of it.
            let (backend, sessions) = (self.backend.as_ref(), (source, id));
            has_snapshot = !copied.workspace
                && workspace.mount().await == WorkspaceMount::Empty
                && take_snapshot(backend, &self.sandbox, sessions, store.snapshot(id)).await.is_some();
        }
        home::discard(&directory)?;
        if has_snapshot || copied.workspace && copied.home {
            return Ok(());
        }
        home::save(&self.sandbox, &directory).await
    }
}

/// Lets the backend copy `sandbox`, which is that of the first session, for the second one, where it can; that is noted in `file`.
/// Whatever it fails with, the guest has the same to give, so that nobody needs to know.
pub(super) async fn take_snapshot(
    backend: &dyn Backend,
    sandbox: &Sandbox,
    (source, id): (&SessionId, &SessionId),
    file: PathBuf,
) -> Option<NotedSnapshot> {
    snapshot::put_mark(sandbox, id.as_str()).await.ok()?;
    let made = backend.snapshot(source.as_str(), id.as_str()).await;
    // An empty file is all that is left of it.
    let _ = snapshot::remove_mark(sandbox, id.as_str()).await;
    let noted = NotedSnapshot::note(file, backend.name(), made.ok().flatten()?).ok();
    if noted.is_none() {
        // What cannot be removed now is swept once its time is over.
        let _ = backend.destroy(id.as_str()).await;
    }
    noted
}

/// Copies what the sandbox of `source` has written to `layer`, as far as its backend can; without the workspace nothing is there.
pub(super) async fn copied_layer(backend: &dyn Backend, source: &SessionId, layer: &Path) -> Result<Copied> {
    make_dir(layer)?;
    let copied = backend.fork(source.as_str(), layer).await.unwrap_or_default();
    if !copied.workspace {
        // Something of it may be there.
        let layer = layer.to_owned();
        tokio::task::spawn_blocking(move || std::fs::remove_dir_all(layer))
            .await
            .map_err(std::io::Error::other)??;
    }
    Ok(copied)
}

/// Copies what a fork whose sandbox has not started yet is to begin with; whether there is such a thing.
async fn copy_layer(store: &Store, source: &SessionId, id: &SessionId) -> Result<bool> {
    let (from, to) = (store.layer(source), store.layer(id));
    if !from.is_dir() {
        return Ok(home::is_saved(&store.dir(id)));
    }
    let copy = move || layer::copy(&from, &to, None, Contents::Copied);
    let copied = tokio::task::spawn_blocking(copy).await.map_err(std::io::Error::other).flatten();
    copied
        .map_err(|error| Error::unexpected("the state of the fork could not be copied").caused_by(error))?;
    Ok(true)
}

/// The sandbox of a session, if it runs.
///
/// # Errors
/// Its engine does not answer, or the sandbox does not.
async fn running(source: &SessionId, backend: &str, machine: &Arc<Machine>) -> Result<Option<Running>> {
    // A session whose sandbox never started names no backend.
    if backend.is_empty() {
        return Ok(None);
    }
    let backend = by_name(backend, machine).await?;
    let listed = backend.list().await?;
    let is_running =
        listed.iter().any(|listed| listed.session == source.as_str() && listed.state == State::Running);
    if !is_running {
        return Ok(None);
    }
    let sandbox = attach(backend.as_ref(), source).await?;
    Ok(Some(Running { backend, sandbox, machine: Arc::clone(machine) }))
}
