//! `agent mcp`: the sandbox as a server of the Model Context Protocol.

mod serve;

use crate::cli::options::Options;
use crate::error::Result;
use crate::exit_code::ExitCode;
use clap::Args;

/// `agent mcp`
#[derive(Debug, Args)]
#[command(after_help = serve::EXAMPLES)]
pub struct McpArgs {
    #[command(flatten)]
    serve: serve::ServeArgs,
}

impl McpArgs {
    pub fn options(&self) -> Options {
        self.serve.options()
    }
}

/// Runs the command.
pub async fn mcp(options: &Options, arguments: McpArgs) -> Result<ExitCode> {
    serve::serve(options, arguments.serve).await
}
