//! `agent resume [ID]`: an earlier session in the REPL.

use super::arguments::SessionOptions;
use super::completions::values;
use super::console::Console;
use super::open::drive;
use super::picking;
use super::repl::start;
use crate::cli::config::Config;
use crate::cli::machine;
use crate::cli::options::Options;
use crate::cli::ui::confirm;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::log::Store;
use crate::session::Resume;
use clap::Args;

/// `agent resume`
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    session_options: SessionOptions,
    /// Its id, or the beginning of it (default: one of this workspace is picked from a list)
    #[arg(add = values::sessions())]
    id: Option<String>,
    /// The newest session of all
    #[arg(long, conflicts_with = "id")]
    last: bool,
}

impl ResumeArgs {
    pub fn options(&self) -> Options {
        Options::of(&[&self.session_options])
    }
}

/// The REPL on an earlier session.
pub async fn resume(options: &Options, arguments: ResumeArgs) -> ExitCode {
    drive(options, Console::repl(options), async |console, slot| {
        let Some(earlier) = earlier(options, arguments, console).await? else { return Ok(()) };
        start(options, Some(earlier), console, slot).await
    })
    .await
}

/// The session with this id, the newest of all, or the one of this workspace that the user picks.
async fn earlier(options: &Options, arguments: ResumeArgs, console: &Console) -> Result<Option<Resume>> {
    let store = Store::open(&machine())?;
    let id = match arguments.id {
        Some(id) => store.find(&id)?,
        None if arguments.last => store.last(None)?,
        None => {
            let workspace = Config::load(options)?.workspace;
            // Without a terminal the REPL refuses to start.
            if !confirm::is_possible() {
                return Resume::open(&store, store.last(Some(&workspace))?).map(Some);
            }
            match picking::session(&store, &workspace, None, console.screen.progress()).await? {
                Some(id) => id,
                None => return Ok(None),
            }
        }
    };
    Resume::open(&store, id).map(Some)
}
