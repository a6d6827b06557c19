//! `agent mcp import PROGRAM`: the servers of another program, added to `config.toml`.

use super::config_file::ConfigFile;
use super::server_line::{DefinedBy, in_full};
use super::sources::{Program, sources};
use crate::cli::config::servers::foreign::FoundServer;
use crate::cli::config::{Config, servers};
use crate::cli::options::{DirectoryArg, Options};
use crate::cli::print::offer;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::{confirm, stderr};
use crate::count_text::counted;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sanitise::one_line;
use crate::visible::visible_name;
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// `agent mcp import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    /// Whose servers
    #[arg(value_enum)]
    program: Program,
    /// Write nothing, and show what would be added
    #[arg(long)]
    dry_run: bool,
    /// Do not ask about the servers that a file of this directory names
    #[arg(short, long)]
    yes: bool,
}

impl ImportArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory])
    }
}

/// Adds them; those that are there stay as they are. The user is asked about those that a file of the workspace names.
pub async fn import(machine: &Arc<Machine>, arguments: &ImportArgs) -> Result<ExitCode> {
    let config = Config::load(machine, &arguments.options())?;
    let home = machine.home().ok_or_else(|| Error::config("HOME is not set"))?;
    let sources = sources(arguments.program, &home, &config.workspace)?;
    if sources.is_empty() {
        return Err(Error::config("no file with servers was found")
            .hint("docs/guides/mcp.md lists where they are looked for"));
    }
    let mut file = ConfigFile::read(&machine.config_dir()?)?;
    let (mut text, mut added) = (String::new(), 0);
    for source in sources {
        text += &format!("{}:\n", visible_name(source.path.as_os_str().as_bytes()));
        let author = if source.is_of_workspace { DefinedBy::Other } else { DefinedBy::User };
        for found in &source.found {
            let is_asked = author == DefinedBy::Other && !arguments.dry_run && !arguments.yes;
            text += &match taken_over(found, author, is_asked, &mut file).await? {
                Ok(server) => {
                    added += 1;
                    server
                }
                Err(why) => format!("  {:<20} {}\n", found.name, one_line(&why, 200)),
            };
        }
    }
    if added > 0 && !arguments.dry_run {
        file.write()?;
        text += &format!(
            "{} added to {}; `agent mcp check` tries them\n",
            counted(added, "server"),
            file.path().display()
        );
    }
    offer(text.as_bytes())?;
    Ok(ExitCode::Success)
}

/// Adds a server to the file, and returns all of it for the user; or why it is not added.
async fn taken_over(
    found: &FoundServer,
    author: DefinedBy,
    is_asked: bool,
    file: &mut ConfigFile,
) -> Result<Result<String, String>> {
    let options = match &found.options {
        Err(why) => return Ok(Err(format!("left out: {why}"))),
        Ok(_) if file.has(&found.name) => return Ok(Err("is there already".to_owned())),
        Ok(options) => options,
    };
    // `docker run -e NAME` names variables of this machine too, and none of them is for a repository's servers.
    let variable = |_: &str| (author == DefinedBy::User).then(|| "set".to_owned());
    let settings = match servers::settings(&found.name, options, &variable) {
        Ok(settings) => settings,
        Err(error) => return Ok(Err(format!("left out: {error}"))),
    };
    if is_asked && !is_wanted(&in_full(&settings, options, author, "")).await? {
        return Ok(Err("not added: this directory names it".to_owned()));
    }
    Ok(match file.add(&found.name, options) {
        Ok(()) => Ok(in_full(&settings, options, author, ", added")),
        Err(error) => Err(format!("left out: {error}")),
    })
}

/// Shows a server that a file of the workspace names, and asks whether it may be the user's own from then on.
async fn is_wanted(server: &str) -> Result<bool> {
    stderr::write(server);
    if !confirm::is_possible() {
        return Err(Error::usage("a file of this directory names a server, and nobody can be asked here")
            .hint("look at it with --dry-run, and add it with --yes"));
    }
    let question =
        "A file of this directory names this server. Add it to your own configuration, for every directory?";
    Ok(confirm::ask(&Progress::stderr(), question, &["yes", "no"]).await? == "yes")
}
