//! `agent mcp`: the sandbox as a server of the Model Context Protocol, and the servers whose tools the model may call.

mod add;
mod approve;
mod check;
mod config_file;
mod import;
mod list;
mod login;
mod serve;
mod server_line;
mod sources;

use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use clap::{Args, Subcommand};
use std::sync::Arc;

/// `agent mcp`
#[derive(Debug, Args)]
#[command(after_help = serve::EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct McpArgs {
    #[command(flatten)]
    serve: serve::McpServeArgs,
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
    Check(Box<check::CheckServersArgs>),
    /// Log in to a server elsewhere by OAuth; the token stays on this machine
    Login(login::LoginArgs),
    /// Forget the login to a server
    Logout(login::LogoutArgs),
    /// Show the servers of .mcp.json in the workspace, and approve them
    Approve(approve::ApproveServersArgs),
    /// Add the servers of another program to config.toml
    Import(import::ImportArgs),
}

/// Runs the command.
pub async fn mcp(machine: &Arc<Machine>, arguments: McpArgs) -> Result<ExitCode> {
    match arguments.command {
        None => serve::serve(machine, arguments.serve).await,
        Some(McpCommand::Add(arguments)) => add::add(machine, *arguments),
        Some(McpCommand::List(arguments)) => list::list(machine, &arguments),
        Some(McpCommand::Check(arguments)) => check::check(machine, *arguments).await,
        Some(McpCommand::Login(arguments)) => login::login(machine, arguments).await,
        Some(McpCommand::Logout(arguments)) => login::logout(machine, &arguments).await,
        Some(McpCommand::Approve(arguments)) => approve::approve(machine, &arguments).await,
        Some(McpCommand::Import(arguments)) => import::import(machine, &arguments).await,
    }
}
