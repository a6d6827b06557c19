//! A second session from the state of another one: its conversation, its workspace and `$HOME` of its sandbox.

use super::one_shot::attach;
use crate::error::Result;
use crate::log::{History, SessionId, Store, read_records};
use crate::sandbox::machine::Machine;
use crate::sandbox::{Sandbox, State, by_name};
use crate::workspace::{Workspace, home};
use std::sync::Arc;

/// A session that was forked.
pub struct Fork {
    /// The new session.
    pub id: SessionId,
    /// Whether the sandbox of the source runs, so that the fork has the workspace and `$HOME` as they are in it now, but not
    /// its processes. Otherwise it has the workspace as of the last prompt.
    pub has_home: bool,
}

/// Forks the session `source`.
///
/// # Errors
/// `$HOME` of its sandbox is too large; there is no fork then.
pub async fn fork(store: &Store, source: &SessionId, machine: &Arc<Machine>) -> Result<Fork> {
    let history = History::of(&read_records(&store.events(source))?);
    let sandbox = running(source, &history.sandbox.backend, machine).await;
    fork_with(store, source, history.prompts, sandbox.map(|sandbox| (sandbox, Arc::clone(machine)))).await
}

/// Forks the session `source`, whose sandbox this is, after so many `prompts`.
pub(super) async fn fork_with(
    store: &Store,
    source: &SessionId,
    prompts: u64,
    sandbox: Option<(Sandbox, Arc<Machine>)>,
) -> Result<Fork> {
    let id = store.fork(source)?;
    let Some((sandbox, machine)) = sandbox else { return Ok(Fork { id, has_home: false }) };
    let directory = store.dir(&id);
    let taken = async {
        if let Some(workspace) = Workspace::load(&directory, machine).await?.filter(Workspace::is_filled) {
            workspace.rejoin(&sandbox).await?;
            workspace.checkpoint(&sandbox, prompts).await?;
        }
        home::save(&sandbox, &directory).await
    };
    match taken.await {
        Ok(()) => Ok(Fork { id, has_home: true }),
        Err(error) => {
            // What is left if this fails too is listed and can be removed.
            let _ = store.remove(&id);
            Err(error)
        }
    }
}

/// The sandbox of a session, if it runs.
async fn running(source: &SessionId, backend: &str, machine: &Arc<Machine>) -> Option<Sandbox> {
    let backend = by_name(backend, machine).await.ok()?;
    let listed = backend.list().await.ok()?;
    let is_running =
        listed.iter().any(|listed| listed.session == source.as_str() && listed.state == State::Running);
    if is_running { attach(backend.as_ref(), source).await.ok() } else { None }
}
