//! `agent mcp`: the sandbox as a server of the Model Context Protocol, and the servers whose tools the model may call.

mod add;
mod approve;
mod check;
mod config_file;
pub(in crate::cli) mod import;
mod list;
mod serve;
mod take_over;
pub(in crate::cli) mod workspace_file;

use crate::cli::options::Options;
use crate::error::Result;
use crate::exit_code::ExitCode;
use clap::{Args, Subcommand};

/// `agent mcp`
#[derive(Debug, Args)]
#[command(after_help = serve::EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct McpArgs {
    #[command(flatten)]
    serve: serve::ServeArgs,
    #[command(subcommand)]
    command: Option<McpCommand>,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    /// Add a server to config.toml, whose tools the model may then call
    Add(Box<add::AddArgs>),
    /// List the servers
    List(list::ListArgs),
    /// Run servers in a throw-away sandbox: their tools, how long they take to start, the hosts that they try to reach
    Check(Box<check::CheckArgs>),
    /// Show the servers of .mcp.json in the workspace, and approve them
    Approve(approve::ApproveArgs),
    /// Add the servers of another program to config.toml
    Import(take_over::ImportArgs),
}

impl McpArgs {
    pub fn options(&self) -> Options {
        match &self.command {
            None => self.serve.options(),
            Some(McpCommand::Add(_)) => Options::default(),
            Some(McpCommand::List(arguments)) => arguments.options(),
            Some(McpCommand::Check(arguments)) => arguments.options(),
            Some(McpCommand::Approve(arguments)) => arguments.options(),
            Some(McpCommand::Import(arguments)) => arguments.options(),
        }
    }
}

/// Runs the command.
pub async fn mcp(options: &Options, arguments: McpArgs) -> Result<ExitCode> {
    match arguments.command {
        None => serve::serve(options, arguments.serve).await,
        Some(McpCommand::Add(arguments)) => add::add(*arguments),
        Some(McpCommand::List(_)) => list::list(options),
        Some(McpCommand::Check(arguments)) => check::check(options, *arguments).await,
        Some(McpCommand::Approve(arguments)) => approve::approve(options, &arguments).await,
        Some(McpCommand::Import(arguments)) => take_over::import(options, &arguments),
    }
}
