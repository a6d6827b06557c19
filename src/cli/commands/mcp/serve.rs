//! `agent mcp` without a subcommand: the server.

use crate::cli::config::Config;
use crate::cli::options::{BackendArgs, CopyArgs, DirectoryArg, KeepArgs, Options, ResourceArgs};
use crate::cli::serving::FromConfig;
use crate::cli::signals::stopped;
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::server::mcp::{BearerToken, Service, Settings, serve_http, serve_stdio};
use crate::server::{Address, Listener, random_token};
use clap::{Args, ValueEnum};
use std::sync::Arc;

pub const EXAMPLES: &str = "\
Examples:
  claude mcp add sandbox -- agent mcp -C ~/project      a client that starts it
  agent mcp --listen 127.0.0.1:8765                     over HTTP; prints the address and the token
  agent mcp --session-key nightly --network registries  the same sandbox each time, with package registries

Nothing is written to the directory but by the tool `apply`, which asks the client's user; --allow-apply does not.";

/// The variable with the token of `--listen`.
const TOKEN: &str = "AGENT_MCP_TOKEN";
/// Fewer characters can be guessed.
const MIN_TOKEN: usize = 16;

/// The options of the server.
#[derive(Debug, Args)]
pub struct McpServeArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    keep: KeepArgs,
    /// Serve HTTP on this address: 127.0.0.1:8765, [::1]:0, unix:PATH (default: standard input and output)
    #[arg(long, value_name = "ADDRESS", help_heading = "Server")]
    listen: Option<Address>,
    /// With --listen: let every program of this machine in; otherwise AGENT_MCP_TOKEN is required of clients, or a token that
    /// is made up and printed
    #[arg(long, requires = "listen", help_heading = "Server")]
    no_token: bool,
    /// Use the sandbox of this key, or start it: a later server with the key continues there
    #[arg(long, value_name = "KEY", help_heading = "Server")]
    session_key: Option<String>,
    /// Let clients write changes to the directory without asking its user
    #[arg(long, help_heading = "Server")]
    allow_apply: bool,
    /// Which tools clients get
    #[arg(long, value_enum, value_name = "TOOLS", default_value = "default", help_heading = "Server")]
    tools: ToolSet,
}

/// Which tools clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ToolSet {
    /// Those for models
    Default,
    /// Those for programs too: raw output, bytes of files, sandboxes by name
    All,
}

impl McpServeArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory, &self.copy, &self.backend, &self.resources, &self.keep])
    }
}

/// Serves until the client is gone, or until a signal.
pub async fn serve(machine: &Arc<Machine>, arguments: McpServeArgs) -> Result<ExitCode> {
    let options = &arguments.options();
    let config = Config::load(machine, options)?;
    if arguments.session_key.as_deref().is_some_and(|key| key.trim().is_empty()) {
        return Err(Error::usage("--session-key is empty").hint("is the variable set that it comes from?"));
    }
    let settings = Settings {
        workspace: config.workspace.join(&config.directory),
        key: arguments.session_key,
        allow_apply: arguments.allow_apply,
        for_programs: arguments.tools == ToolSet::All,
    };
    let service = Service::new(Arc::new(FromConfig::without_model(machine, options)?), settings);
    let (signal, mut code) = (stopped()?, ExitCode::Success);
    let stop = async { code = signal.await };
    match arguments.listen {
        None => serve_stdio(service, tokio::io::stdin(), std::io::stdout(), stop).await,
        Some(address) => {
            let token = token(arguments.no_token, &address)?;
            let listener = Listener::bind(&address).await?;
            stderr::write(&match listener.address() {
                Address::Tcp(address) => format!("listening on http://{address}/mcp\n"),
                unix => format!("listening on {unix}, path /mcp\n"),
            });
            serve_http(service, listener, token, stop).await;
        }
    }
    Ok(code)
}

/// Returns what clients have to show. One that is made up is printed, because its user has to pass it on.
fn token(none: bool, address: &Address) -> Result<BearerToken> {
    if none {
        return match address.is_local() {
            true => Ok(BearerToken::none()),
            false => Err(Error::usage(format!("--no-token with {address} would let other machines in"))
                .hint("listen on 127.0.0.1, or set AGENT_MCP_TOKEN")),
        };
    }
    match std::env::var(TOKEN) {
        Ok(token) if token.trim().len() < MIN_TOKEN => {
            Err(Error::config(format!("{TOKEN} has fewer than {MIN_TOKEN} characters"))
                .hint("openssl rand -hex 32"))
        }
        Ok(token) => Ok(BearerToken::required(token.trim())),
        Err(_) => {
            let token = random_token()?;
            stderr::write(&format!("token: {token}\n"));
            Ok(BearerToken::required(&token))
        }
    }
}
