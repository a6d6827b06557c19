//! `agent fork ID`: a second session from the state of another one.

use super::arguments::SessionArg;
use super::print::print;
use crate::cli::config::Config;
use crate::cli::machine;
use crate::cli::options::Options;
use crate::cli::ui::stderr;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::log::Store;
use crate::sanitise::one_line;
use crate::session::{Fork, fork as fork_session};
use serde_json::json;

/// Prints the new session's id.
pub async fn fork(options: &Options, arguments: SessionArg) -> Result<ExitCode> {
    let store = Store::open(&machine())?;
    let source = match arguments.id {
        Some(id) => store.find(&id)?,
        None => store.last(Some(&Config::load(options)?.workspace))?,
    };
    let Fork { id, has_home, unknown } = fork_session(&store, &source, &machine()).await?;
    if let Some(error) = unknown.filter(|_| !has_home) {
        stderr::write(&format!(
            "[NOTICE] the fork has the workspace as of the last prompt, because the sandbox of {source} cannot be asked: {}\n",
            one_line(&error.to_string(), 300)
        ));
    }
    print(options, &format!("{id}\n"), &json!({"session": id, "forked_from": source, "home": has_home}))
}
