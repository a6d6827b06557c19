//! The command line: every command.

use super::acp::AcpArgs;
use super::apply::ApplyArgs;
use super::arguments::SessionArg;
use super::artifacts::ArtifactsArgs;
use super::batch::BatchArgs;
use super::code::CodeArgs;
use super::completions::CompletionsArgs;
use super::demo::DemoArgs;
use super::diff::DiffArgs;
use super::doctor::DoctorArgs;
use super::exec::ExecArgs;
use super::forward::ForwardArgs;
use super::guest::GuestArgs;
use super::mcp::McpArgs;
use super::models::ModelsArgs;
use super::race::RaceArgs;
use super::replay::ReplayArgs;
use super::resume::ResumeArgs;
use super::run::RunArgs;
use super::sandbox::SandboxArgs;
use super::serve::ServeArgs;
use super::sessions::SessionsArgs;
use super::web::WebArgs;
use clap::{Parser, Subcommand};

/// A coding agent for the terminal. Let it do anything: nothing it does can hurt you. Review one diff at the end.
///
/// Without a command and a prompt it opens the REPL on this directory; with a prompt it is `agent run`.
#[derive(Debug, Parser)]
#[command(name = "agent", version, about, after_help = EXIT_CODES, max_term_width = 110,
          args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(flatten)]
    pub run: RunArgs,
    /// The prompt, for one that could be taken for a command
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT", conflicts_with = "prompt")]
    pub prompt_option: Option<String>,
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  finished (and --check, if any, passed)      5  a limit was reached: turns, tokens, cost, time, repetition
  1  agent itself failed; a changed session file 6  --check did not pass
  2  usage or configuration is wrong             7  the change could not be applied (conflict)
  3  the model endpoint failed                   130 / 143  interrupted / terminated
  4  the sandbox failed                          `agent exec` and `code` pass the code on; 125: agent failed";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one prompt: PROMPT as an argument, `-` or piped standard input (appended if both are given)
    Run(Box<RunArgs>),
    /// Run a command in a session's sandbox, or in a fresh one; its exit code is passed on
    Exec(ExecArgs),
    /// Run code in a session's sandbox, or in a fresh one; its exit code is passed on
    Code(CodeArgs),
    /// Play recorded tasks: the model's part is recorded, the tools are real; no key, no network
    Demo(DemoArgs),
    /// List, show, remove and verify sessions
    Sessions(SessionsArgs),
    /// Resume a session in the REPL
    Resume(ResumeArgs),
    /// Play a recorded session: the model's part is recorded, the tools are real
    Replay(ReplayArgs),
    /// Run many tasks, each in a sandbox of its own; started again, it continues where it was stopped
    Batch(Box<BatchArgs>),
    /// Run several attempts at one prompt at the same time; the first that passes the check wins
    Race(Box<RaceArgs>),
    /// Serve a page for the browser: chat, trace, commands and review
    Web(Box<WebArgs>),
    /// Start a second session from the state of another one
    Fork(SessionArg),
    /// Show what a session changed
    Diff(DiffArgs),
    /// Write what a session changed into the workspace
    Apply(ApplyArgs),
    /// Restore the host's files to their state before an apply
    Undo(SessionArg),
    /// List, draw, copy and open the pictures and files that a session's tools produced
    Artifacts(ArtifactsArgs),
    /// List, pause, resume and remove sandboxes
    Sandbox(SandboxArgs),
    /// Serve sandboxes to programs that were written for E2B and Novita, with the vendors' own SDKs
    Serve(ServeArgs),
    /// Forward a port of this machine's loopback to a server inside the sandbox
    Forward(ForwardArgs),
    /// Serve an editor that speaks the Agent Client Protocol, on standard input and output
    Acp(Box<AcpArgs>),
    /// Serve the sandbox to programs that speak the Model Context Protocol
    Mcp(Box<McpArgs>),
    /// Check that this machine and its configuration are ready
    Doctor(DoctorArgs),
    /// Write the program that runs in every sandbox to a file, for images that are to have it
    Guest(GuestArgs),
    /// List the models that the endpoint offers
    Models(ModelsArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man,
}
