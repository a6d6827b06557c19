//! The user's pager.

use super::host_programs::HostPrograms;
use agent_base::error::Result;
use std::io::{ErrorKind, Write};
use std::process::Stdio;

/// Shows `text`, which is sanitised, in `$PAGER` (default: `less`); `false` if there is none. As with git, `less` gets `FRX`:
/// colours, and no pager for what fits the screen.
pub fn page(programs: &HostPrograms, text: &[u8]) -> Result<bool> {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    let words = shell_words::split(&pager).unwrap_or_default();
    let Some((program, arguments)) = words.split_first().filter(|(program, _)| *program != "cat") else {
        return Ok(false);
    };
    let Some(mut command) = programs.command(program) else { return Ok(false) };
    command.args(arguments).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return Ok(false) };
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(text) {
            // The user has left the pager.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            result => result?,
        }
    }
    child.wait()?;
    Ok(true)
}
