//! `agent completions SHELL`.

use super::commands::Cli;
use super::print::offer;
use crate::error::Result;
use crate::exit_code::ExitCode;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// `agent completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script on standard output.
pub fn completions(arguments: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "agent", &mut script);
    offer(&script)?;
    Ok(ExitCode::Success)
}
