//! The workspace that a call means: the repository that a directory is part of, or the directory alone.

use super::options::DirectoryArg;
use crate::error::{Error, Result};
use crate::log::{History, SessionId};
use crate::machine::Machine;
use crate::session::check_workspace;
use crate::workspace::tracked;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A workspace, and where in it commands start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkingDirectory {
    /// The workspace.
    pub root: PathBuf,
    /// The directory that commands start in, relative to it.
    pub directory: PathBuf,
}

impl WorkingDirectory {
    /// Returns what the call names, by default the current directory.
    ///
    /// # Errors
    /// It is not a directory that can be opened.
    pub fn of(machine: &Arc<Machine>, named: &DirectoryArg) -> Result<Self> {
        if let Some(resumed) = &named.resumed {
            return Ok(resumed.clone());
        }
        let directory = named.workspace.as_deref().unwrap_or(Path::new("."));
        let directory = directory.canonicalize().map_err(|error| {
            Error::usage(format!("the workspace {} cannot be opened", directory.display())).caused_by(error)
        })?;
        if !directory.is_dir() {
            return Err(Error::usage(format!("the workspace {} is not a directory", directory.display())));
        }
        let repository = if named.workspace_only { None } else { tracked::containing(&directory, machine) };
        Ok(match repository {
            Some((root, directory)) => Self { root, directory },
            None => Self { root: directory, directory: PathBuf::new() },
        })
    }

    /// That of a session, which `named` may name another directory of. `None` where the session has no workspace yet.
    ///
    /// # Errors
    /// The call names another workspace.
    pub fn of_session(history: &History, named: &DirectoryArg) -> Option<Self> {
        if history.workspace.is_empty() {
            return None;
        }
        let root = PathBuf::from(&history.workspace);
        let below = named.workspace.as_ref().and_then(|named| named.canonicalize().ok());
        let below = below.and_then(|named| named.strip_prefix(&root).map(Path::to_owned).ok());
        Some(Self { directory: below.unwrap_or_else(|| PathBuf::from(&history.directory)), root })
    }

    /// Refuses a session that works on another workspace than the call names.
    pub fn check(&self, id: &SessionId, history: &History) -> Result<()> {
        let is_its = |directory: &PathBuf| check_workspace(id, history, directory).is_ok();
        if self.own().iter().any(is_its) { Ok(()) } else { check_workspace(id, history, &self.root) }
    }

    /// The directories whose sessions are meant here: the workspace, and the directory alone.
    pub fn own(&self) -> Vec<PathBuf> {
        let mut own = vec![self.root.clone()];
        if !self.directory.as_os_str().is_empty() {
            own.push(self.root.join(&self.directory));
        }
        own
    }
}
