//! `agent resume [ID]`: an earlier session in the REPL.

use crate::cli::config::Config;
use crate::cli::console::Console;
use crate::cli::open::drive;
use crate::cli::options::{Options, SessionOptions};
use crate::cli::pick_session::pick_session;
use crate::cli::repl::start;
use crate::cli::ui::confirm;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::log::Store;
use crate::machine::Machine;
use crate::session::Resume;
use clap::Args;
use std::sync::Arc;

/// `agent resume`
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    session_options: SessionOptions,
    /// Its id, or the beginning of it (default: one of this workspace is picked from a list)
    id: Option<String>,
    /// The newest session of all
    #[arg(long, conflicts_with = "id")]
    last: bool,
}

impl ResumeArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.session_options])
    }
}

/// The REPL on an earlier session.
pub async fn resume(machine: &Arc<Machine>, arguments: ResumeArgs) -> ExitCode {
    let options = &arguments.options();
    drive(options, Console::repl(machine, options), async |console, slot| {
        let Some(earlier) = earlier(machine, options, arguments, console).await? else { return Ok(()) };
        start(machine, options, Some(earlier), console, slot).await
    })
    .await
}

/// The session with this id, the newest of all, or the one of this workspace that the user picks.
async fn earlier(
    machine: &Arc<Machine>,
    options: &Options,
    arguments: ResumeArgs,
    console: &Console,
) -> Result<Option<Resume>> {
    let store = Store::open(machine)?;
    let id = match arguments.id {
        Some(id) => store.find(&id)?,
        None if arguments.last => store.last(None)?,
        None => {
            let workspace = Config::load(machine, options)?.workspace;
            // Without a terminal the REPL refuses to start.
            if !confirm::is_possible() {
                return Resume::open(&store, store.last(Some(&workspace))?).map(Some);
            }
            match pick_session(&store, &workspace, None, console.screen.progress()).await? {
                Some(id) => id,
                None => return Ok(None),
            }
        }
    };
    Resume::open(&store, id).map(Some)
}
