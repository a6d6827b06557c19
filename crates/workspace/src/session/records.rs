//! The files that a session keeps about its workspace beside the contents.

use super::state::SessionState;
use crate::changes::ChangeSet;
use crate::entries::Rejected;
use crate::manifest::Delta;
use crate::mode::Mode;
use crate::scan::IgnoredEntries;
use crate::select;
use agent_sandbox::WorkspaceMount;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub const ABOUT: &str = "about.json";
pub const BASE: &str = "base.json";
/// There while the session's sandbox has all of its files.
pub const FILLED: &str = "filled.json";
/// There until a branch has recorded what its sandbox began with.
pub const UNSETTLED: &str = "unsettled.json";
pub const ORIGIN: &str = "origin.json";
pub const ACCEPTED: &str = "accepted.json";
/// Files that an apply has merged while no sandbox was attached, with what one that runs has instead.
pub const AWAITED: &str = "awaited.json";
/// The file that lists the ignored paths that the sandbox does not see.
pub const WITHHELD: &str = "withheld.json";
pub const APPLIED: &str = "applied.json";
pub const SKIPPED: &str = "skipped.json";

/// The findings of a look beside the changes.
#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Entries that cannot be applied.
    #[serde(flatten)]
    pub rejected: Rejected,
    #[serde(default)]
    pub ignored: IgnoredEntries,
}

/// The facts that are kept about the workspace beside its base.
#[derive(Serialize, Deserialize)]
pub struct About {
    /// As [`crate::tree_path::to_text`] writes it.
    pub root: String,
    pub mount: Mode,
    /// Set if files were copied into an overlay.
    #[serde(default)]
    pub copies: bool,
    /// The directory that lies under what the sandbox writes.
    #[serde(default)]
    pub beneath: Option<PathBuf>,
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}

/// An apply that can be taken back.
#[derive(Clone, Serialize, Deserialize)]
pub struct AppliedRecord {
    /// The time when it was written, RFC 3339; empty in records of older versions.
    #[serde(default)]
    pub time: String,
    /// The changes that were written, from what the host had.
    pub written: ChangeSet,
    /// [`SessionState::accepted`] before it.
    pub accepted: Delta,
    /// The prompt that wrote it, where the sandbox writes straight into the host's tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<u64>,
}

impl About {
    /// Returns those of a workspace.
    pub fn of(root: &Path, state: &SessionState, options: &select::SelectOptions) -> Self {
        use std::os::unix::ffi::OsStrExt;
        Self {
            root: crate::tree_path::to_text(root.as_os_str().as_bytes()),
            mount: match &state.mount {
                WorkspaceMount::Empty => Mode::Copy,
                WorkspaceMount::Overlay { .. } | WorkspaceMount::Forked { .. } => Mode::Overlay,
                WorkspaceMount::Bind(_) => Mode::Bind,
            },
            copies: state.copies,
            beneath: state.beneath.clone(),
            include: options.include.clone(),
            exclude: options.exclude.clone(),
        }
    }
}
