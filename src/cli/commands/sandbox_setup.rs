//! `agent sandbox setup`: what a project asks to be set up with, and what was kept of it.

use crate::cli::config::Config;
use crate::cli::config::project_setup::{self, NAME};
use crate::cli::consent::approves;
use crate::cli::options::{DirectoryArg, Options};
use crate::cli::print::offer;
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sanitise::one_line;
use crate::session::{ProjectSetup, forget_setups};
use clap::Args;
use std::sync::Arc;

/// `agent sandbox setup`
#[derive(Debug, Args)]
pub struct SetupArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    /// Do not ask
    #[arg(short, long, conflicts_with = "revoke")]
    yes: bool,
    /// Take the approval back
    #[arg(long)]
    revoke: bool,
    /// Remove what was kept, so that the next start runs it again
    #[arg(long)]
    again: bool,
}

/// Shows the setup of the workspace, and approves that of a project as it is now.
pub async fn setup(machine: &Arc<Machine>, arguments: &SetupArgs) -> Result<ExitCode> {
    let config = Config::load(machine, &Options::of(&[&arguments.directory]))?;
    if arguments.again {
        let removed = forget_setups(&config.workspace, machine, false)?;
        stderr::write(&format!("removed {removed} kept result(s)\n"));
    }
    let asked = project_setup::read(&config.workspace, machine).transpose();
    let asked = asked.map_err(|error| Error::config(format!("{NAME}: {error}")))?;
    let Some(shown) = config.setup.setup.clone().or_else(|| asked.as_ref().map(|asked| asked.setup.clone()))
    else {
        return Err(Error::config(format!("nothing sets {} up", config.workspace.display()))
            .hint(format!("write [workspace] setup = \"COMMAND\" into {NAME} of the project")));
    };
    offer(described(&shown).as_bytes())?;
    let Some(asked) = asked.filter(|asked| asked.setup == shown) else {
        stderr::write("config.toml names it\n");
        return Ok(ExitCode::Success);
    };
    if arguments.revoke {
        asked.approve(false, machine)?;
        forget_setups(&config.workspace, machine, false)?;
        stderr::write("not approved any more\n");
        return Ok(ExitCode::Success);
    }
    if asked.is_approved {
        stderr::write("approved as it is\n");
        return Ok(ExitCode::Success);
    }
    let question = "It runs in a sandbox when the next session starts, and its result is kept. Approve?";
    if !approves(question, arguments.yes).await? {
        return Ok(ExitCode::Success);
    }
    asked.approve(true, machine)?;
    stderr::write("approved as it is now\n");
    Ok(ExitCode::Success)
}

fn described(setup: &ProjectSetup) -> String {
    let files: Vec<String> =
        setup.files.iter().map(|file| one_line(&file.display().to_string(), 100)).collect();
    format!(
        "command:  {}\nnetwork:  {}\nagain if: {}\n",
        one_line(&setup.command, 4000),
        one_line(&setup.network.to_string(), 400),
        files.join(", ")
    )
}
