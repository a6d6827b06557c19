//! `agent completions SHELL`.

use crate::cli::Cli;
use crate::error::Result;
use crate::exit_code::ExitCode;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Prints the script on standard output.
pub fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "agent", &mut script);
    // A reader that has seen enough is no failure.
    let _ = std::io::stdout().lock().write_all(&script);
    Ok(ExitCode::Success)
}
