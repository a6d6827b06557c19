//! Approvals of what a repository asks for, by the hash of its content.

use crate::error::Result;
use crate::hash::Hash;
use crate::machine::Machine;
use crate::paths::{create_error, make_dir};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// The approvals of one kind: an empty file each, in agent's data directory.
pub struct Approvals(PathBuf);

impl Approvals {
    /// Those in the directory `name`.
    ///
    /// # Errors
    /// There is no data directory.
    pub fn of(machine: &Machine, name: &str) -> Result<Self> {
        Ok(Self(machine.data_dir()?.join(name)))
    }

    /// Returns whether the content with this hash is approved.
    pub fn has(&self, hash: Hash) -> bool {
        self.0.join(hash.to_string()).exists()
    }

    /// Approves it, or takes that back.
    ///
    /// # Errors
    /// The approval cannot be stored or removed.
    pub fn set(&self, hash: Hash, is_approved: bool) -> Result<()> {
        let path = self.0.join(hash.to_string());
        if is_approved {
            make_dir(&self.0)?;
            return fs::write(&path, b"").map_err(|error| create_error(&path, error));
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
