//! `agent resume [ID]`: an earlier session in the REPL.

use super::arguments::SessionOptions;
use super::completions::values;
use super::console::Console;
use super::open::drive;
use super::repl::start;
use crate::cli::config::Config;
use crate::cli::machine;
use crate::cli::options::Options;
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
    /// Its id, or the beginning of it (default: the newest of this workspace)
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
        start(options, Some(earlier(options, arguments)?), console, slot).await
    })
    .await
}

/// The session with this id, the newest of all, or the newest of this workspace.
fn earlier(options: &Options, arguments: ResumeArgs) -> Result<Resume> {
    let store = Store::open(&machine())?;
    let id = match arguments.id {
        Some(id) => store.find(&id)?,
        None if arguments.last => store.last(None)?,
        None => store.last(Some(&Config::load(options)?.workspace))?,
    };
    Resume::open(&store, id)
}
