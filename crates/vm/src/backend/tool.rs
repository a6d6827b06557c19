//! Programs of this machine that make files for virtual machines.

use super::host::missing;
use agent_base::error::{Error, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// The directories in which they are, whatever `PATH` says.
const DIRECTORIES: [&str; 6] =
    ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"];
/// Bytes of what a tool says that are shown.
const SHOWN: usize = 500;

/// The program `name`.
pub fn find(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

/// Runs a tool, which is killed where this is given up.
///
/// # Errors
/// It is not there, or fails.
pub async fn run<A: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>) -> Result<()> {
    let program = find(name).ok_or_else(|| missing(name))?;
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| Error::sandbox(format!("{name} does not start")).caused_by(error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim_end();
    let shown = said.get(said.len().saturating_sub(SHOWN)..).unwrap_or(said);
    Err(Error::sandbox(format!("{name} failed ({}): {shown}", output.status)))
}
