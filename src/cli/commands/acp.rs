//! `agent acp`: the agent for editors that speak the Agent Client Protocol.

use crate::cli::options::{
    BackendArgs, CopyArgs, DelegateArg, EndpointArgs, KeepArgs, ModelArg, Options, PromptLimitArgs,
    ResourceArgs,
};
use crate::cli::serving::FromConfig;
use crate::cli::signals::stopped;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::server::acp::{self, ApplyMode};
use clap::{Args, ValueEnum};
use std::sync::Arc;

const ABOUT: &str = "\
Editors start this program and speak with it over its standard input and output; `docs/guides/acp.md` has their settings.
Nothing is asked while it works. At the end of a turn the editor shows one diff, and its user decides.";

/// `agent acp`
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub struct AcpArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    limits: PromptLimitArgs,
    #[command(flatten)]
    delegate: DelegateArg,
    /// When changes are written to the user's files
    #[arg(long, value_enum, value_name = "WHEN", default_value = "ask")]
    apply: When,
}

/// When changes are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum When {
    /// The user is asked at the end of a turn
    Ask,
    /// At the end of each turn
    Auto,
    /// When the user says /apply
    Never,
}

impl AcpArgs {
    fn options(&self) -> Options {
        Options::of(&[
            &self.model,
            &self.endpoint,
            &self.copy,
            &self.backend,
            &self.resources,
            &self.keep,
            &self.limits,
            &self.delegate,
        ])
    }
}

/// Serves until the client is gone.
pub async fn acp(machine: &Arc<Machine>, arguments: AcpArgs) -> Result<ExitCode> {
    let mode = match arguments.apply {
        When::Ask => ApplyMode::Ask,
        When::Auto => ApplyMode::Auto,
        When::Never => ApplyMode::Never,
    };
    let opener = Arc::new(FromConfig::new(machine, &arguments.options())?);
    let (signal, mut code) = (stopped()?, ExitCode::Success);
    let stop = async { code = signal.await };
    acp::serve(opener, mode, tokio::io::stdin(), std::io::stdout(), stop).await;
    Ok(code)
}
