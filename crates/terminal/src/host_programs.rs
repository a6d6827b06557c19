//! The user's own programs: a pager, an editor, what notifies or opens a file.

use agent_base::host_program;
use agent_base::machine::Machine;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Those of a machine, but for what lies in the workspace: nothing of that is started.
#[derive(Clone)]
pub struct HostPrograms {
    machine: Arc<Machine>,
    workspace: PathBuf,
}

impl HostPrograms {
    pub fn new(machine: Arc<Machine>, workspace: &Path) -> Self {
        Self { machine, workspace: workspace.to_owned() }
    }

    /// A command for `program`; `None` where it exists nowhere else than in the workspace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Option<Command> {
        host_program::command(program.as_ref(), &self.workspace, &self.machine)
    }
}
