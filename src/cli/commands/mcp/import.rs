//! `agent mcp import PROGRAM`: the servers of another program, added to `config.toml`.

use super::config_file::ConfigFile;
use super::sources::{Program, sources};
use crate::cli::config::{Config, servers};
use crate::cli::options::{DirectoryArg, Options};
use crate::cli::print::offer;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sanitise::one_line;
use clap::Args;
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
}

impl ImportArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory])
    }
}

/// Adds them; those that are there stay as they are.
pub fn import(machine: &Arc<Machine>, arguments: &ImportArgs) -> Result<ExitCode> {
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
        text += &format!("{}:\n", one_line(&source.path.display().to_string(), 200));
        for found in source.found {
            let outcome = match found.options {
                Err(why) => format!("left out: {why}"),
                Ok(_) if file.has(&found.name) => "is there already".to_owned(),
                Ok(options) => {
                    let usable = servers::settings(&found.name, &options, &|_| Some("set".to_owned()));
                    match usable.and_then(|settings| file.add(&found.name, &options).map(|()| settings)) {
                        Ok(settings) => {
                            added += 1;
                            format!("added: {}", settings.launch)
                        }
                        Err(error) => format!("left out: {error}"),
                    }
                }
            };
            text += &format!("  {:<20} {}\n", found.name, one_line(&outcome, 200));
        }
    }
    if added > 0 && !arguments.dry_run {
        file.write()?;
        text +=
            &format!("{added} server(s) added to {}; `agent mcp check` tries them\n", file.path().display());
    }
    offer(text.as_bytes())?;
    Ok(ExitCode::Success)
}
