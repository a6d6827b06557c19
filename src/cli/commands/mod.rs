//! The command line: every command, one file each.

mod acp;
mod apply;
mod artifacts;
mod batch;
mod code;
pub mod completions;
mod config;
mod demo;
mod diff;
mod doctor;
mod exec;
mod fork;
mod forward;
mod guest;
mod man;
mod mcp;
mod models;
mod race;
mod replay;
pub mod resume;
mod review;
pub mod run;
mod sandbox;
mod sandbox_setup;
mod serve;
mod sessions;
mod undo;
mod update;
pub mod version;
mod web;

use crate::cli::options::SessionArg;
use crate::cli::print::failure;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode as ProcessExitCode;
use std::sync::Arc;

/// A coding agent for the terminal. Let it do anything: nothing it does can hurt you. Review one diff at the end.
///
/// Without a command it opens the REPL on this directory, which begins with PROMPT if there is one. Without a terminal, and with
/// options that are about the end of a run, it answers one prompt as `agent run` does.
#[derive(Debug, Parser)]
#[command(name = "agent", version, disable_version_flag = true, about, after_help = EXIT_CODES, max_term_width = 110,
          args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(flatten)]
    pub run: run::RunArgs,
    /// Answer this prompt and end, as `agent run` does
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT", conflicts_with = "prompt")]
    pub prompt_option: Option<String>,
    /// Continue the last session of this directory
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["resume", "session", "session_key"], help_heading = "Session")]
    pub continue_last: bool,
    /// Continue an earlier session: the one with this id, or the one that you pick
    #[arg(short = 'r', long, value_name = "ID", num_args = 0..=1, conflicts_with_all = ["session", "session_key"],
          help_heading = "Session")]
    pub resume: Option<Option<String>>,
    /// Print the version; with --verbose or --json also commit, target, features and the hash of the guest
    #[arg(short = 'V', long)]
    pub version: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  finished (and --check, if any, passed)      5  a limit was reached: turns, tokens, cost, time, repetition
  1  agent itself failed; a changed session file 6  --check did not pass; a finding of --severity
  2  usage or configuration is wrong             7  the change could not be applied (conflict)
  3  the model endpoint failed                   130 / 143  interrupted / terminated
  4  the sandbox failed                          `agent exec` and `code` pass the code on; 125: agent failed";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one prompt: PROMPT as an argument, `-` or piped standard input (appended if both are given)
    Run(Box<run::RunArgs>),
    /// Run a command in a session's sandbox, or in a fresh one; its exit code is passed on
    Exec(exec::ExecArgs),
    /// Run code in a session's sandbox, or in a fresh one; its exit code is passed on
    Code(code::CodeArgs),
    /// Play recorded tasks: the model's part is recorded, the tools are real; no key, no network
    Demo(demo::DemoArgs),
    /// List, show, remove and verify sessions
    Sessions(sessions::SessionsArgs),
    /// Resume a session in the REPL
    Resume(resume::ResumeArgs),
    /// Play a recorded session: the model's part is recorded, the tools are real
    Replay(replay::ReplayArgs),
    /// Run many tasks, each in a sandbox of its own; started again, it continues where it was stopped
    Batch(Box<batch::BatchArgs>),
    /// Run several attempts at one prompt at the same time; the first that passes the check wins
    Race(Box<race::RaceArgs>),
    /// Have a model look for defects in a change: findings with file and line
    Review(Box<review::ReviewArgs>),
    /// Serve a page for the browser: chat, trace, commands and review
    Web(Box<web::WebArgs>),
    /// Start a second session from the state of another one
    Fork(SessionArg),
    /// Show what a session changed
    Diff(diff::DiffArgs),
    /// Write what a session changed into the workspace
    Apply(apply::ApplyArgs),
    /// Restore the host's files to their state before an apply
    Undo(SessionArg),
    /// List, draw, copy and open the pictures and files that a session's tools produced
    Artifacts(artifacts::ArtifactsArgs),
    /// List, pause, resume and remove sandboxes
    Sandbox(sandbox::SandboxArgs),
    /// Serve sandboxes to programs that were written for E2B and Novita, with the vendors' own SDKs
    Serve(serve::ServeArgs),
    /// Forward a port of this machine's loopback to a server inside the sandbox
    Forward(forward::ForwardArgs),
    /// Serve an editor that speaks the Agent Client Protocol, on standard input and output
    Acp(Box<acp::AcpArgs>),
    /// Serve the sandbox to programs that speak the Model Context Protocol
    Mcp(Box<mcp::McpArgs>),
    /// Check that this machine and its configuration are ready
    Doctor(doctor::DoctorArgs),
    /// Write the program that runs in every sandbox to a file, for images that are to have it
    Guest(guest::GuestArgs),
    /// List the models that the endpoint offers
    Models(models::ModelsArgs),
    /// Show every setting and where it comes from; write, open and check config.toml
    Config(config::ConfigArgs),
    /// Replace what install.sh installed by the newest release, or by another version
    Update(update::UpdateArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page
    Man,
}

impl Command {
    /// Runs it, and reports its failure.
    pub async fn run(self, machine: &Arc<Machine>) -> ProcessExitCode {
        match self {
            Self::Run(arguments) => run::run(machine, *arguments).await.into(),
            Self::Exec(arguments) => exec::exec(machine, arguments).await,
            Self::Code(arguments) => code::code(machine, arguments).await,
            Self::Demo(arguments) => demo::demo(machine, arguments).await.into(),
            Self::Sessions(arguments) => end(sessions::sessions(machine, arguments).await),
            Self::Replay(arguments) => replay::replay(machine, arguments).await.into(),
            Self::Batch(arguments) => batch::batch(machine, *arguments).await.into(),
            Self::Race(arguments) => race::race(machine, *arguments).await.into(),
            Self::Review(arguments) => review::review(machine, *arguments).await.into(),
            Self::Web(arguments) => end(web::web(machine, *arguments).await),
            Self::Fork(arguments) => end(fork::fork(machine, arguments).await),
            Self::Doctor(arguments) => end(doctor::doctor(machine, arguments).await),
            Self::Diff(arguments) => end(diff::diff(machine, arguments).await),
            Self::Apply(arguments) => end(apply::apply(machine, arguments).await),
            Self::Undo(arguments) => end(undo::undo(machine, arguments).await),
            Self::Artifacts(arguments) => end(artifacts::artifacts(machine, arguments)),
            Self::Models(arguments) => end(models::models(machine, arguments).await),
            Self::Config(arguments) => end(config::config(machine, arguments).await),
            Self::Update(arguments) => end(update::update(machine, arguments).await),
            Self::Completions(arguments) => end(completions::completions(&arguments)),
            Self::Man => end(man::man(Cli::command())),
            Self::Resume(arguments) => resume::resume(machine, arguments).await.into(),
            Self::Sandbox(arguments) => end(sandbox::sandbox(machine, arguments).await),
            Self::Acp(arguments) => end(acp::acp(machine, *arguments).await),
            Self::Mcp(arguments) => end(mcp::mcp(machine, *arguments).await),
            Self::Serve(arguments) => end(serve::serve(machine, arguments).await),
            Self::Guest(arguments) => end(guest::guest(machine, &arguments)),
            Self::Forward(arguments) => end(forward::forward(machine, arguments).await),
        }
    }
}

/// Reports a failure, and returns the exit code.
fn end(result: Result<ExitCode>) -> ProcessExitCode {
    result.unwrap_or_else(|error| failure(&error)).into()
}
