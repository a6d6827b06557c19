//! `agent resume [ID]`: an earlier session in the REPL.

use crate::cli::config::Config;
use crate::cli::console::Console;
use crate::cli::kept_session::last;
use crate::cli::open::drive;
use crate::cli::options::{Options, SessionOptions};
use crate::cli::pick_session::pick_session;
use crate::cli::repl::start;
use crate::cli::ui::confirm;
use crate::cli::working_directory::WorkingDirectory;
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
    /// Continue with this prompt
    prompt: Option<String>,
    /// The newest session of this workspace
    #[arg(long, conflicts_with = "id")]
    last: bool,
}

/// The choice of the session to resume.
#[derive(Debug, Clone)]
pub enum Which {
    /// The one whose id begins so.
    Named(String),
    /// The newest of this workspace.
    Last,
    /// The one of this workspace that the user picks.
    Picked,
}

/// `agent resume`
pub async fn resume(machine: &Arc<Machine>, arguments: ResumeArgs) -> ExitCode {
    let options = Options::of(&[&arguments.session_options]);
    let which = match arguments.id {
        Some(id) => Which::Named(id),
        None if arguments.last => Which::Last,
        None => Which::Picked,
    };
    in_repl(machine, &options, which, arguments.prompt).await
}

/// The REPL on an earlier session, which continues with `prompt`.
pub async fn in_repl(
    machine: &Arc<Machine>,
    options: &Options,
    which: Which,
    prompt: Option<String>,
) -> ExitCode {
    drive(options, Console::repl(machine, options), async |console, slot| {
        let Some(earlier) = earlier(machine, options, which, console).await? else { return Ok(()) };
        start(machine, options, Some(earlier), prompt, console, slot).await
    })
    .await
}

async fn earlier(
    machine: &Arc<Machine>,
    options: &Options,
    which: Which,
    console: &Console,
) -> Result<Option<Resume>> {
    let store = Store::open(machine)?;
    let id = match which {
        Which::Named(id) => store.find(&id)?,
        Which::Last => last(&store, &WorkingDirectory::of(machine, &options.directory)?)?,
        Which::Picked => {
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
