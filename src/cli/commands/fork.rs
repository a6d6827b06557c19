//! `agent fork ID`: a second session from the state of another one.

use crate::cli::kept_session::named_or_last;
use crate::cli::options::SessionArg;
use crate::cli::print::{notice, print};
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::log::Store;
use crate::machine::Machine;
use crate::session::{Fork, fork as fork_session};
use serde_json::json;
use std::sync::Arc;

/// Prints the new session's id.
pub async fn fork(machine: &Arc<Machine>, arguments: SessionArg) -> Result<ExitCode> {
    let options = &arguments.options();
    let store = Store::open(machine)?;
    let source = named_or_last(machine, &store, options, arguments.id.as_deref())?;
    let Fork { id, has_home, unknown } = fork_session(&store, &source, machine).await?;
    if let Some(error) = unknown.filter(|_| !has_home) {
        notice(&format!(
            "the fork has the workspace as of the last prompt, because the sandbox of {source} cannot be asked: {error}"
        ));
    }
    print(options, &format!("{id}\n"), &json!({"session": id, "forked_from": source, "home": has_home}))
}
