//! Sessions for the clients of a server: with the user's configuration, which a server does not read itself.

use agent_base::error::Result;
use agent_log::{SessionId, Store};
use agent_session::{Frontend, ModelSettings, Session};
use futures_util::future::BoxFuture;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The state that a client's session starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFrom {
    /// The workspace.
    New,
    /// An earlier session.
    Session(SessionId),
}

/// Opens sessions. The command line implements it.
pub trait Opener: Send + Sync {
    /// Returns the store of sessions.
    fn store(&self) -> &Store;

    /// The workspaces whose sessions are meant where a client names `directory`. Blocking.
    fn own(&self, directory: &Path) -> Vec<PathBuf>;

    /// Opens a session on `workspace`, a directory or the repository that it is part of.
    fn open<'a>(
        &'a self,
        workspace: &'a Path,
        from: StartFrom,
        frontend: Arc<dyn Frontend>,
    ) -> BoxFuture<'a, Result<Session>>;

    /// The models that the endpoint offers.
    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>>;

    /// Ends the sandbox on the backend called `backend` that a session without a process may have left.
    fn end_sandbox<'a>(&'a self, backend: &'a str, session: &'a SessionId) -> BoxFuture<'a, ()>;

    /// The model of this name, for a session that is open.
    fn model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ModelSettings>>;
}
