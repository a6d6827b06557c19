//! The copy at a provider as which a fork's sandbox is to begin, noted beside the fork until that sandbox has started.
//!
//! The source gets a file before it is copied, and the fork has to have it: a sandbox that began as something else would look as if
//! all files had been deleted in it.

use agent_base::error::{Error, Kind, Result};
use agent_log::{SessionId, Store};
use agent_sandbox::{FileWrite, HOME, Node, Sandbox};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file that tells the copy for `fork` from all other sandboxes.
fn mark(fork: &str) -> PathBuf {
    Path::new(HOME).join(format!(".agent-fork-{fork}"))
}

/// Marks the sandbox that is copied for `fork`.
pub async fn put_mark(sandbox: &Sandbox, fork: &str) -> Result<()> {
    let node = Node::Regular(Vec::new());
    let file = FileWrite { path: mark(fork), node, mode: None, mtime_ns: None, follow: false };
    sandbox.write_files(vec![file]).await?.into_iter().collect()
}

/// Removes the mark.
pub async fn remove_mark(sandbox: &Sandbox, fork: &str) -> Result<()> {
    sandbox.remove_files(vec![mark(fork)]).await.map(drop)
}

/// Takes the mark away from the sandbox of `fork`.
///
/// # Errors
/// It has none: it did not begin as the copy.
pub async fn take_mark(sandbox: &Sandbox, fork: &str) -> Result<()> {
    match sandbox.stat(&mark(fork)).await {
        Err(error) if error.kind() == Kind::InSandbox => {
            Err(Error::sandbox("the provider made a sandbox without them").caused_by(error))
        }
        found => found.map(drop),
    }?;
    remove_mark(sandbox, fork).await
}

/// The copy of another session's sandbox.
#[derive(Serialize, Deserialize)]
pub struct NotedSnapshot {
    /// The backend that has it.
    pub backend: String,
    /// Its id there.
    pub id: String,
    #[serde(skip)]
    file: PathBuf,
}

impl NotedSnapshot {
    /// Notes in `file` that a sandbox begins as the copy `id` of `backend`.
    pub fn note(file: PathBuf, backend: &str, id: String) -> Result<Self> {
        let snapshot = Self { backend: backend.to_owned(), id, file };
        let text = serde_json::to_vec(&snapshot)
            .map_err(|error| Error::unexpected("the copy of the sandbox cannot be noted").caused_by(error))?;
        std::fs::write(&snapshot.file, text).map_err(|error| {
            Error::unexpected(format!("{} could not be written", snapshot.file.display())).caused_by(error)
        })?;
        Ok(snapshot)
    }

    /// Returns what is noted for `fork`; what cannot be read is not.
    pub fn of(store: &Store, fork: &SessionId) -> Option<Self> {
        let file = store.snapshot(fork);
        let snapshot: Self = serde_json::from_slice(&std::fs::read(&file).ok()?).ok()?;
        Some(Self { file, ..snapshot })
    }

    /// Removes the note: the sandbox has started, or cannot.
    pub fn forget(&self) -> Result<()> {
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
