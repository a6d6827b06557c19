//! `agent completions SHELL`.

use super::print::offer;
use crate::cli::options::Cli;
use crate::error::Result;
use crate::exit_code::ExitCode;
use clap::CommandFactory;
use clap_complete::Shell;

/// Prints the script on standard output.
pub fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "agent", &mut script);
    offer(&script)?;
    Ok(ExitCode::Success)
}
