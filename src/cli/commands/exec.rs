//! `agent exec [-s ID] CMD…`: one command in a session's sandbox, or in a fresh one.

use crate::cli::attach;
use crate::cli::command_sandbox::{CommandSandbox, code_of, exit_code, pump};
use crate::cli::options::{BackendArgs, CopyArgs, DirectoryArg, Options, ResourceArgs, VerbosityArgs};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::sandbox::{Command, Finished, Outcome, Program};
use crate::tools::Collector;
use clap::Args;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode as ProcessExitCode;
use std::sync::Arc;

/// `agent exec`
#[derive(Debug, Args)]
pub struct ExecArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
    /// The session whose sandbox to use
    #[arg(short, long, value_name = "ID")]
    session: Option<String>,
    /// Give the command a terminal: the default where standard input and output are one
    #[arg(short, long, overrides_with = "no_tty")]
    tty: bool,
    /// Give it pipes
    #[arg(short = 'T', long)]
    no_tty: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl ExecArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory, &self.copy, &self.backend, &self.resources, &self.verbosity])
    }
}

/// Runs the command; its exit code is this process's. Where `agent` itself fails it is 125.
pub async fn exec(machine: &Arc<Machine>, arguments: ExecArgs) -> ProcessExitCode {
    exit_code(run(machine, arguments).await.map(|finished| code_of(&finished)))
}

async fn run(machine: &Arc<Machine>, arguments: ExecArgs) -> Result<Finished> {
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if arguments.tty && !has_terminal {
        return Err(Error::usage("-t needs a terminal: standard input and output are not both one")
            .hint("without -t the command reads and writes pipes"));
    }
    let inside = CommandSandbox::start(machine, &arguments.options(), arguments.session.as_deref()).await?;
    let command = command(&inside, arguments.command);
    let result = match has_terminal && !arguments.no_tty {
        // Nothing is kept of what it writes.
        true => {
            let mut copy = Collector::new(0);
            inside.run(attach::run(&inside.sandbox, command, std::io::stdout(), &mut copy)).await
        }
        false => inside.run(pump(&inside.sandbox, command)).await,
    };
    if result.as_ref().is_ok_and(|finished| finished.outcome == Outcome::Lost) {
        inside.explain_loss().await;
    }
    inside.end().await.and(result)
}

fn command(inside: &CommandSandbox, argv: Vec<OsString>) -> Command {
    Command {
        program: Program::Argv(argv),
        cwd: None,
        env: Vec::new(),
        timeout: inside.timeout(),
        live_bytes: u64::MAX,
        stdin: true,
    }
}
