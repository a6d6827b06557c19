//! `.mcp.json` of a workspace: servers that a repository asks for, which are used only after the user has approved this very file.

use super::foreign::{FoundServer, Variables, of_json};
use crate::cli::config::approvals::Approvals;
use crate::error::{Error, Result};
use crate::hash::Hash;
use crate::machine::Machine;
use crate::plain_file::{self, Links};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The file.
pub const NAME: &str = ".mcp.json";
/// The largest one that is read, in bytes.
const MAX_BYTES: u64 = 256 << 10;

/// Its content.
pub struct WorkspaceFile {
    /// Its servers, and those that cannot be used with the reason.
    pub found: Vec<FoundServer>,
    /// Set if the user has approved it as it is.
    pub is_approved: bool,
    /// Identifies this file with this content.
    hash: Hash,
}

/// Reads it, where there is one.
pub fn read(workspace: &Path, machine: &Machine) -> Option<Result<WorkspaceFile>> {
    let bytes = match plain_file::read(&workspace.join(NAME), MAX_BYTES + 1, Links::Refuse) {
        Ok(bytes) if bytes.len() as u64 > MAX_BYTES => {
            return Some(Err(Error::config(format!("it is larger than {MAX_BYTES} bytes"))));
        }
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(Error::config("it cannot be read").caused_by(error))),
    };
    let hash = Hash::of([workspace.as_os_str().as_bytes(), b"\0", &bytes].concat());
    let text = String::from_utf8_lossy(&bytes);
    Some(of_json(&text, "mcpServers", Variables::Refused).and_then(|found| {
        let is_approved = approvals(machine)?.has(hash);
        Ok(WorkspaceFile { found, is_approved, hash })
    }))
}

impl WorkspaceFile {
    /// Approves it as it is, or takes that back.
    ///
    /// # Errors
    /// The approval cannot be stored.
    pub fn approve(&self, is_approved: bool, machine: &Machine) -> Result<()> {
        approvals(machine)?.set(self.hash, is_approved)
    }
}

fn approvals(machine: &Machine) -> Result<Approvals> {
    Approvals::of(machine, "approved-mcp")
}
