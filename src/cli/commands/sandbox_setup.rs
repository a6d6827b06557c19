//! `agent sandbox setup`: what a project asks to be set up with, and what was kept of it.

use crate::cli::config::Config;
use crate::cli::config::project::{self, NAME, Request};
use crate::cli::consent::approves;
use crate::cli::options::{DirectoryArg, Options};
use crate::cli::print::offer;
use crate::cli::ui::stderr;
use crate::count_text::counted;
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

/// Shows what the workspace is prepared with, and approves what a file of the project asks for, as it is now.
pub async fn setup(machine: &Arc<Machine>, arguments: &SetupArgs) -> Result<ExitCode> {
    let config = Config::load(machine, &Options::of(&[&arguments.directory]))?;
    if arguments.again {
        let removed = forget_setups(&config.workspace, machine, false)?;
        stderr::write(&format!("removed {}\n", counted(removed, "kept result")));
    }
    let asked = project::read(&config.workspace, machine)?;
    let of_user = config.project.settings.setup.as_ref();
    if let Some(setup) = of_user.filter(|setup| {
        asked.as_ref().and_then(|asked| asked.request.settings.setup.as_ref()) != Some(*setup)
    }) {
        offer(described(setup).as_bytes())?;
        stderr::write("config.toml names it\n");
        return Ok(ExitCode::Success);
    }
    let Some(asked) = asked else {
        return Err(Error::config(format!("nothing sets {} up", config.workspace.display()))
            .hint(format!("write [workspace] setup = \"COMMAND\" into {NAME} of the project")));
    };
    offer(requested(&asked.request).as_bytes())?;
    if asked.request.is_empty() {
        return Err(Error::config(format!(
            "{} asks for nothing that a sandbox has",
            asked.request.source.name()
        )));
    }
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
    let question = "It is used in the sandboxes of this project, from the next one on. Approve?";
    if !approves(question, arguments.yes).await? {
        return Ok(ExitCode::Success);
    }
    asked.approve(true, machine)?;
    stderr::write("approved as it is now\n");
    Ok(ExitCode::Success)
}

/// Everything that is asked for, and what has no effect.
fn requested(request: &Request) -> String {
    let mut text = format!("file:     {}\n", request.source.name());
    if let Some(image) = &request.settings.image {
        text.push_str(&format!("image:    {}\n", one_line(image, 400)));
    }
    for (name, value) in &request.settings.env {
        text.push_str(&format!("variable: {}={}\n", one_line(name, 100), one_line(value, 4000)));
    }
    if !request.settings.exclude.is_empty() {
        text.push_str(&format!("left out: {}\n", one_line(&request.settings.exclude.join(", "), 4000)));
    }
    for (verdict, rules) in [("denied", &request.settings.rules.deny), ("asked", &request.settings.rules.ask)]
    {
        for (name, rule) in rules {
            text.push_str(&format!(
                "{verdict}: {} ({})\n",
                one_line(name, 100),
                one_line(&rule.summary(), 4000)
            ));
        }
    }
    text.extend(request.settings.setup.as_ref().map(described));
    for remark in &request.remarks {
        text.push_str(&format!("no effect: {}\n", one_line(remark, 300)));
    }
    text
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
