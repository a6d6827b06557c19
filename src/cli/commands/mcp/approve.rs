//! `agent mcp approve`: the servers that a repository names in `.mcp.json`.

use super::server_line::{DefinedBy, in_full};
use crate::cli::config::servers::workspace_file::{self, NAME};
use crate::cli::config::{Config, servers};
use crate::cli::consent::approves;
use crate::cli::options::{DirectoryArg, Options};
use crate::cli::print::offer;
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sanitise::one_line;
use clap::Args;
use std::sync::Arc;

/// `agent mcp approve`
#[derive(Debug, Args)]
pub struct ApproveServersArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    /// Do not ask
    #[arg(short, long, conflicts_with = "revoke")]
    yes: bool,
    /// Take the approval back
    #[arg(long)]
    revoke: bool,
}

impl ApproveServersArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory])
    }
}

/// Shows what the file names, and approves it as it is now: once it changes, it has to be approved again.
pub async fn approve(machine: &Arc<Machine>, arguments: &ApproveServersArgs) -> Result<ExitCode> {
    let config = Config::load(machine, &arguments.options())?;
    let in_file = |error: Error| Error::config(format!("{NAME}: {error}"));
    let file = workspace_file::read(&config.workspace, machine)
        .ok_or_else(|| Error::config(format!("there is no {NAME} in {}", config.workspace.display())))?
        .map_err(in_file)?;
    let mut text = String::new();
    for found in &file.found {
        let settings = found.options.as_ref().map_err(Clone::clone).and_then(|options| {
            servers::settings(&found.name, options, &|_| None).map_err(|error| error.to_string())
        });
        text += &match (&settings, &found.options) {
            (Ok(settings), Ok(options)) => in_full(settings, options, DefinedBy::Other, ""),
            (Err(why), _) | (_, Err(why)) => {
                format!("  {:<20} left out: {}\n", found.name, one_line(why, 200))
            }
        };
    }
    offer(text.as_bytes())?;
    if arguments.revoke {
        file.approve(false, machine)?;
        stderr::write(&format!("{NAME} is not approved any more\n"));
        return Ok(ExitCode::Success);
    }
    if file.is_approved {
        stderr::write(&format!("{NAME} is approved as it is\n"));
        return Ok(ExitCode::Success);
    }
    let question = "Programs run in the sandbox of each session here; addresses are connected to from this machine. Approve?";
    if !approves(question, arguments.yes).await? {
        return Ok(ExitCode::Success);
    }
    file.approve(true, machine)?;
    stderr::write("approved as it is now\n");
    Ok(ExitCode::Success)
}
