//! The beginning of a session that another one's model delegates to.

use super::{Delegate, SavedHome, Workspace};
use crate::fork::copied_layer;
use agent_base::error::{Error, Result};
use agent_log::{SessionFile, SessionId};
use agent_network::Rules;
use agent_policy::policy::Gate;
use agent_sandbox::Sandbox;
use agent_workspace::home;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of `$HOME` that are kept with a part that has ended.
const MAX_KEPT_HOME: u64 = 256 << 20;

/// A session that is to be opened, with what it has from the other one.
pub struct Origin {
    pub(crate) id: SessionId,
    pub(crate) file: SessionFile,
    /// A branch of the other one's.
    pub(crate) workspace: Arc<Workspace>,
    /// A copy of what the sandbox of the other one has written, where its backend can make one.
    pub(crate) layer: Option<PathBuf>,
    pub(crate) parent: Parent,
}

/// The session whose model delegates.
pub(crate) struct Parent {
    pub session: SessionId,
    /// The same rules and answers.
    pub gate: Arc<Gate>,
    /// The hosts that the other one may reach now.
    pub network: Rules,
}

impl Delegate {
    /// Makes a session with the workspace and `$HOME` of `sandbox`: a copy of what it has written where the backend can make one,
    /// else the workspace as it was recorded last.
    pub(super) async fn begin(&self, sandbox: &Sandbox) -> Result<Origin> {
        let (id, file) = self.store.create()?;
        let mut unfinished = Unfinished(Some((self, id.clone())));
        let workspace = Arc::new(self.fill(&id, sandbox).await?);
        let layer = self.copy_layer(&id, &workspace).await?;
        unfinished.0 = None;
        let (session, gate) = (self.parent.clone(), Arc::clone(&self.gate));
        let parent = Parent { session, gate, network: self.startup.gateway().rules() };
        Ok(Origin { id, file, workspace, layer, parent })
    }

    async fn fill(&self, id: &SessionId, sandbox: &Sandbox) -> Result<Workspace> {
        let directory = self.store.dir(id);
        let ready = self.startup.ready().await?;
        let workspace = ready.workspace.branch(&directory).await?;
        let recorded = self.checkpoints.recorded().await;
        let mut saved = self.state.home.lock().await;
        match &*saved {
            Some(home) if home.recorded == recorded && home::is_saved(&home.session) => {
                let (from, to) = (home.session.clone(), directory);
                let shared = tokio::task::spawn_blocking(move || home::share(&from, &to)).await;
                shared.map_err(|error| Error::unexpected("$HOME could not be copied").caused_by(error))??;
            }
            _ => {
                home::save(sandbox, &directory).await?;
                *saved = Some(SavedHome { recorded, session: directory });
            }
        }
        Ok(workspace)
    }

    /// Copies what the sandbox has written for the session `id`, where the backend can. It takes no longer the larger the tree is;
    /// without it the workspace is restored from the records.
    async fn copy_layer(&self, id: &SessionId, workspace: &Workspace) -> Result<Option<PathBuf>> {
        let layer = self.store.layer(id);
        // Not while the change of another part is half merged.
        let merging = self.state.merging.lock().await;
        let copied = copied_layer(self.startup.backend().as_ref(), &self.parent, &layer).await?;
        drop(merging);
        if !copied.workspace {
            return Ok(None);
        }
        workspace.begin_as_copied()?;
        Ok(Some(layer))
    }

    /// Keeps the saved `$HOME` of a session that has ended, for the case that it is resumed, unless it is large.
    pub(super) async fn bound_home(&self, id: &SessionId) {
        let _saved = self.state.home.lock().await;
        let directory = self.store.dir(id);
        // What is left is removed with the session.
        let _ = tokio::task::spawn_blocking(move || home::keep_at_most(&directory, MAX_KEPT_HOME)).await;
    }
}

/// Removes a session that was not begun.
struct Unfinished<'a>(Option<(&'a Delegate, SessionId)>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some((delegate, id)) = self.0.take() {
            // What is left is listed, and can be removed.
            let _ = delegate.store.remove(&id);
        }
    }
}
