//! Hooks on this machine.

use super::{Hook, MAX_OUTPUT, Ran};
use agent_base::host_process;
use agent_base::host_program;
use agent_base::machine::Machine;
use std::ffi::OsStr;
use std::path::Path;

/// Runs it beside config.toml, with a clean environment and `input` as its standard input: the workspace is the repository's, and
/// nothing in it is started by its name alone. What a hook that has ended left running is the user's. Why it could not be run.
pub async fn run(hook: &Hook, workspace: &Path, machine: &Machine, input: &[u8]) -> Result<Ran, String> {
    let mut shell = host_program::command(OsStr::new("sh"), workspace, machine).ok_or("there is no sh")?;
    let directory = machine.config_dir().map_err(|error| error.to_string())?;
    shell.arg("-c").arg(&hook.command).current_dir(directory);
    let ran = host_process::run(shell, input, hook.timeout, MAX_OUTPUT).await;
    let ran = ran.map_err(|error| error.to_string())?;
    let ran = ran.ok_or_else(|| format!("it took more than {} s", hook.timeout.as_secs_f64()))?;
    Ok(Ran { exit_code: ran.status.code(), stdout: ran.stdout, stderr: ran.stderr })
}
