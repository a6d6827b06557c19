//! The command line: one file for each subcommand, which maps its result to an exit code.

mod acp;
mod answer;
mod apply;
mod arguments;
mod artifacts;
mod batch;
mod choose;
mod code;
mod commands;
mod commit;
mod completions;
pub mod config;
mod console;
mod demo;
mod diff;
mod doctor;
mod earlier;
mod endpoint;
mod exec;
mod fork;
mod forward;
mod guest;
mod hooks;
mod man;
mod mcp;
mod models;
mod open;
pub mod options;
mod picking;
mod plan;
mod print;
mod prompt;
mod race;
mod refuse;
mod repl;
mod replay;
mod resume;
mod review;
mod run;
mod sandbox;
mod serve;
mod serving;
mod sessions;
mod signals;
mod startup;
pub mod ui;
mod undo;
pub mod usage;
mod value_enum;
mod web;

pub use crate::cli::commands::Cli;
pub use crate::cli::completions::answer_shell;

use crate::cli::commands::Command;
use crate::cli::options::Options;
use crate::cli::startup::Start;
use crate::cli::ui::stderr;
use crate::cli::ui::style::Colours;
use crate::cli::ui::trace::{Verbosity, failure_text};
use crate::cli::ui::wrap;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sandbox::host_tree::share_looks;
use config::{File, with_providers};
use std::process::ExitCode as ProcessExitCode;
use std::sync::{Arc, LazyLock};

/// Facts of this machine, and what the user's file says of sandboxes elsewhere, read once.
pub fn machine() -> Arc<Machine> {
    static MACHINE: LazyLock<Arc<Machine>> = LazyLock::new(|| {
        let machine = Machine::of_this_process();
        share_looks(&machine);
        // A file that cannot be read is an error of the commands that need more of it.
        Arc::new(match machine.config_dir().and_then(|directory| File::read_alone(&directory)) {
            Ok(file) => {
                file.kubernetes.keep(&machine);
                with_providers(machine, &file.providers)
            }
            Err(_) => machine,
        })
    });
    Arc::clone(&MACHINE)
}

/// Runs the subcommand.
pub fn dispatch(cli: Cli) -> ProcessExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return end(Err(Error::unexpected("the runtime could not be started").caused_by(error)));
        }
    };
    let code = runtime.block_on(command(cli));
    // A reader of standard input may be blocked for ever; the process does not wait for it.
    runtime.shutdown_background();
    ui::pictures::settle();
    code
}

async fn command(cli: Cli) -> ProcessExitCode {
    let Some(command) = cli.command else {
        return match startup::start(cli.run, cli.prompt_option) {
            Ok(Start::Prompt(arguments)) => run::run(&arguments.options(), *arguments).await.into(),
            Ok(Start::Repl(options)) => repl::repl(&options).await.into(),
            Err(error) => fail(&error).into(),
        };
    };
    match command {
        Command::Run(arguments) => run::run(&arguments.options(), *arguments).await.into(),
        Command::Exec(arguments) => exec::exec(&arguments.options(), arguments).await,
        Command::Code(arguments) => code::code(&arguments.options(), arguments).await,
        Command::Demo(arguments) => demo::demo(&arguments.options(), arguments).await.into(),
        Command::Sessions(arguments) => end(sessions::sessions(&arguments.options(), arguments).await),
        Command::Replay(arguments) => replay::replay(&arguments.options(), arguments).await.into(),
        Command::Batch(arguments) => batch::batch(&arguments.options(), *arguments).await.into(),
        Command::Race(arguments) => race::race(&arguments.options(), *arguments).await.into(),
        Command::Web(arguments) => end(web::web(&arguments.options(), *arguments).await),
        Command::Fork(arguments) => end(fork::fork(&arguments.options(), arguments).await),
        Command::Doctor(arguments) => end(doctor::doctor(&arguments.options(), arguments).await),
        Command::Diff(arguments) => end(diff::diff(&arguments.options(), arguments).await),
        Command::Apply(arguments) => end(apply::apply(&arguments.options(), arguments).await),
        Command::Undo(arguments) => end(undo::undo(&arguments.options(), arguments).await),
        Command::Artifacts(arguments) => end(artifacts::artifacts(&arguments.options(), arguments)),
        Command::Models(arguments) => end(models::models(&arguments.options()).await),
        Command::Completions(arguments) => end(completions::completions(&arguments)),
        Command::Man => end(man::man()),
        Command::Resume(arguments) => resume::resume(&arguments.options(), arguments).await.into(),
        Command::Sandbox(arguments) => end(sandbox::sandbox(&arguments.options(), arguments).await),
        Command::Acp(arguments) => end(acp::acp(&arguments.options(), *arguments).await),
        Command::Mcp(arguments) => end(mcp::mcp(&arguments.options(), *arguments).await),
        Command::Serve(arguments) => end(serve::serve(&arguments.options(), arguments).await),
        Command::Guest(arguments) => end(guest::guest(&arguments)),
        Command::Forward(arguments) => end(forward::forward(&arguments.options(), arguments).await),
    }
}

/// Reports a failure, and returns the exit code.
fn end(result: Result<ExitCode>) -> ProcessExitCode {
    result.unwrap_or_else(|error| fail(&error)).into()
}

/// Reports on stderr what failed and what to do about it.
fn fail(error: &Error) -> ExitCode {
    let stderr = std::io::stderr();
    stderr::write(&failure_text(error, Colours::of(&stderr), wrap::columns_of(&stderr)));
    error.exit_code()
}

fn verbosity(options: &Options) -> Verbosity {
    match (options.quiet, options.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    }
}
