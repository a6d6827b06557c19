//! Parse, dispatch, end with the right exit code. Nothing else.

use agent::cli::{self, Cli};
use agent::exit_code::ExitCode;
use clap::Parser;
use std::process::ExitCode as ProcessExitCode;

fn main() -> ProcessExitCode {
    let machine = cli::config::machine();
    match cli::answer_shell(&machine) {
        Ok(false) => {}
        Ok(true) => return ExitCode::Success.into(),
        // Nothing to complete. A shell shows nothing either way.
        Err(_) => return ExitCode::Failure.into(),
    }
    let arguments = cli::usage::options_behind_command(std::env::args_os().collect());
    let is_exec = arguments.get(1).is_some_and(|argument| argument == "exec");
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli::dispatch(cli, &machine),
        Err(error) => {
            // Help and version are errors too. If the terminal is gone, there is nobody left to report it to.
            let _ = error.print();
            if let Some(hint) = cli::usage::hint(&error, &arguments) {
                cli::ui::stderr::write(&format!("hint: {hint}\n"));
            }
            let asked_for = !error.use_stderr();
            match (asked_for, is_exec) {
                (true, _) => ExitCode::Success.into(),
                // Codes below 125 belong to the command that `exec` runs.
                (false, true) => ExitCode::ExecFailed.into(),
                (false, false) => ExitCode::Usage.into(),
            }
        }
    }
}
