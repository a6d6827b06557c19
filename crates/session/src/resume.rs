//! Resuming the session of an earlier process.

use super::snapshot::NotedSnapshot;
use super::startup::{ForkedFrom, Population, destroy};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::visible::visible_name;
use agent_core::{Price, Spent};
use agent_log::{History, Reopened, SessionFile, SessionId, Store};
use agent_sandbox::{Backend, State, removals};
use agent_workspace::Workspace;
use std::path::Path;
use std::sync::Arc;

/// An earlier session, locked for this process.
pub struct Resume {
    /// Its id.
    pub id: SessionId,
    /// Its history.
    pub history: History,
    /// Its file, ready for further events.
    pub(super) file: SessionFile,
    /// Losses of its file, for the user.
    pub(super) losses: Vec<String>,
}

impl Resume {
    /// Opens the session's file. An attempt that lost a race is the user's choice from then on.
    pub fn open(store: &Store, id: SessionId) -> Result<Self> {
        let Reopened { file, records, losses } = store.reopen(&id)?;
        store.unmark_attempt(&id)?;
        Ok(Self { id, file, history: History::of(&records), losses })
    }

    /// Finds its workspace: in a sandbox that still runs, or only on this machine. `None`: it never had one. A sandbox
    /// that cannot be used is removed.
    pub async fn find_workspace(
        &self,
        store: &Store,
        backend: &Arc<dyn Backend>,
        machine: Arc<Machine>,
    ) -> Result<Option<Population>> {
        let mark = store.removal(&self.id);
        // Before it is looked for: it may be gone then.
        let was_ending = removals::take_over(&mark).await?;
        let found = self.look_for_workspace(store, backend.as_ref(), machine).await;
        if found.is_err() && was_ending {
            // Nobody else would do it now.
            removals::remove(backend, self.id.as_str(), Some(mark));
        }
        found
    }

    async fn look_for_workspace(
        &self,
        store: &Store,
        backend: &dyn Backend,
        machine: Arc<Machine>,
    ) -> Result<Option<Population>> {
        let workspace = Workspace::load(&store.dir(&self.id), machine).await?.map(Arc::new);
        if let (Some(workspace), Some(snapshot)) = (&workspace, NotedSnapshot::of(store, &self.id)) {
            if snapshot.backend == backend.name() {
                // It has not started, or not to the end. What is there of its sandbox is replaced.
                return Ok(Some(Population::Forked(Arc::clone(workspace), ForkedFrom::Snapshot(snapshot))));
            }
            // From here on it is another one's.
            snapshot.forget()?;
        }
        let listed = backend.list().await.unwrap_or_default();
        let existing = listed.into_iter().find(|listed| listed.session == self.id.as_str());
        let running = match existing {
            Some(listed) if listed.state == State::Running => Some(listed.id),
            Some(listed) if listed.state == State::Paused => {
                backend.resume(self.id.as_str()).await.is_ok().then_some(listed.id)
            }
            _ => None,
        };
        match (workspace, running) {
            // If its start was interrupted it may lack files.
            (Some(workspace), Some(sandbox)) if workspace.is_filled() => {
                Ok(Some(Population::Reattach(workspace, sandbox)))
            }
            (workspace, _) => {
                destroy(backend, self.id.as_str()).await?;
                let layer = store.layer(&self.id);
                Ok(workspace.map(|workspace| match layer.is_dir() {
                    true => Population::Forked(workspace, ForkedFrom::Layer(layer)),
                    false => Population::Restore(workspace),
                }))
            }
        }
    }

    pub(super) fn spent(&self, price: Option<Price>) -> Spent {
        let mut spent = Spent { turns: self.history.turns, ..Spent::default() };
        spent.add_usage(Some(self.history.usage), price);
        spent
    }
}

/// Checks that the session `id` with this `history` works on `directory`; one that never began works on any.
pub fn check_workspace(id: &SessionId, history: &History, directory: &Path) -> Result<()> {
    let recorded = &history.workspace;
    let asked = directory.canonicalize().unwrap_or_else(|_| directory.to_owned()).display().to_string();
    if recorded.is_empty() || *recorded == asked {
        return Ok(());
    }
    let message = format!(
        "session {id} works on {}, not on {}",
        visible_name(recorded.as_bytes()),
        visible_name(asked.as_bytes())
    );
    Err(Error::usage(message).hint(
        "resume it in its own directory (name it with -C), or start another session: with a key, another key",
    ))
}
