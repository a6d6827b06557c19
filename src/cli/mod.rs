//! The command line: `commands/` has one file for each command, the other files are what several share. Imports go one way:
//! main, `commands`, the REPL and the shared parts, then `config` and `ui`.

mod apply;
mod artifacts;
mod attach;
mod choices;
mod command_sandbox;
mod commands;
mod completion;
pub mod config;
mod consent;
mod console;
mod endpoint;
mod first_start;
mod forwarding;
mod hooks;
mod kept_session;
mod offered_models;
mod open;
pub mod options;
mod pick_session;
mod plan;
mod print;
mod prompt;
mod proof;
mod race;
mod refuse;
mod repl;
mod sandbox_settings;
mod serving;
mod session_end;
mod signals;
mod startup;
mod unreviewed;
pub mod usage;
mod working_directory;

pub use crate::cli::commands::Cli;
pub use crate::cli::completion::answer_shell;
pub use agent_terminal as ui;

use crate::error::Error;
use crate::machine::Machine;
use crate::mcp::client::login;
use crate::sandbox::removals;
use std::process::ExitCode as ProcessExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The time for which the end of a command waits for removals of sandboxes.
const REMOVALS: Duration = Duration::from_secs(5);

/// Runs the command.
pub fn dispatch(cli: Cli, machine: &Arc<Machine>) -> ProcessExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return print::failure(&Error::unexpected("the runtime could not be started").caused_by(error))
                .into();
        }
    };
    let code = runtime.block_on(async {
        let code = startup::start(cli, machine).await;
        login::settle().await;
        // What is left is swept by a later process.
        removals::settle(REMOVALS).await;
        code
    });
    config::telemetry::end(machine).iter().for_each(|why| print::notice(why));
    // A reader of standard input may be blocked for ever; the process does not wait for it.
    runtime.shutdown_background();
    ui::pictures::settle();
    code
}
