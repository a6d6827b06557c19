//! `agent serve`: sandboxes for programs that were written for E2B and Novita.

mod key;
mod names;

use crate::cli::config::project::ConfiguredProject;
use crate::cli::config::{Config, units};
use crate::cli::options::{BackendArgs, Options, ResourceArgs};
use crate::cli::print::offer;
use crate::cli::sandbox_settings;
use crate::cli::signals::{Received, listen_with};
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::server::e2b;
use crate::server::{Address, Listener};
use crate::session::Notice;
use clap::Args;
use names::Names;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const EXAMPLES: &str = "\
Examples:
  agent serve                                   sandboxes without a network
  agent serve --sandbox docker --image python:3.13 --network registries
  eval \"$(agent serve --print-env)\"             in the shell of a program that uses e2b or novita-sandbox

The key is in AGENT_SERVE_KEY, or is made once and kept in a file that only you can read.
When the server ends, its sandboxes are removed.";

/// `agent serve`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Where to listen: 127.0.0.1:8931, [::1]:8931; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8931")]
    listen: Address,
    /// Listen on an address that other machines can reach: without TLS, the key can be read on the way
    #[arg(long)]
    allow_remote: bool,
    /// Sandboxes at a time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_sandboxes: u16,
    /// The longest time that a client may give a sandbox
    #[arg(long, value_name = "TIME", default_value = "24h")]
    max_time_to_live: String,
    /// Below which sandboxes have names: PORT-ID.DOMAIN has to lead here
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Print the variables that point the vendors' SDKs here, for a shell, and exit
    #[arg(long)]
    print_env: bool,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    resources: ResourceArgs,
}

impl ServeArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.backend, &self.resources])
    }
}

/// Serves until a signal.
pub async fn serve(machine: &Arc<Machine>, arguments: ServeArgs) -> Result<ExitCode> {
    let key = key::key(machine)?;
    if arguments.print_env {
        let names = Names::printable(&arguments.listen, arguments.domain.as_deref(), machine).await?;
        offer(names.variables(&key).as_bytes())?;
        return Ok(ExitCode::Success);
    }
    if !arguments.listen.is_local() && !arguments.allow_remote {
        return Err(Error::usage(format!("{} can be reached from other machines", arguments.listen))
            .hint("use 127.0.0.1, or add --allow-remote and encrypt the traffic yourself"));
    }
    let max_time = units::duration(&arguments.max_time_to_live)?;
    let mut config = Config::load(machine, &arguments.options())?;
    // What is served has workspaces of its own.
    config.project = ConfiguredProject::default();
    let (mut sandbox, reason) = sandbox_settings::sandbox(&config).await?;
    sandbox.added.clear();
    if let Some(Notice::Always(text)) = reason {
        stderr::write(&format!("{text}\n"));
    }
    let mut listener = Listener::bind(&arguments.listen).await?;
    let names = match listener.address().clone() {
        Address::Tcp(address) => Some(Names::of(address, arguments.domain.as_deref(), machine).await?),
        Address::Unix(_) => None,
    };
    if let Some(names) = &names {
        listener = listener.with_tls(names.identity().acceptor()?);
    }
    let (stop, mut stopped) = watch::channel(None);
    let listening = listen_with(move |signal| {
        let code = match signal {
            Received::Interrupt(1) => ExitCode::Interrupted,
            // What is left then is ended by its guests.
            Received::Interrupt(_) => std::process::exit(ExitCode::Interrupted.code().into()),
            Received::End => ExitCode::Terminated,
        };
        stop.send_replace(Some(code));
    })?;
    offer(ready(listener.address(), names.as_ref()).as_bytes())?;
    let settings = e2b::E2bSettings {
        sandbox,
        machine: Arc::clone(machine),
        key,
        domain: names.map(|names| names.domain),
        max_sandboxes: arguments.max_sandboxes.into(),
        max_time: max_time.max(Duration::from_secs(1)),
        snapshots: machine.data_dir()?.join("serve/snapshots"),
    };
    let mut ended = stopped.clone();
    e2b::serve(settings, listener, async {
        // The sender lives as long as the signals are listened to.
        let _ = ended.wait_for(Option::is_some).await;
    })
    .await;
    listening.abort();
    Ok(stopped.borrow_and_update().unwrap_or(ExitCode::Success))
}

/// Returns what is printed when clients can connect.
fn ready(address: &Address, names: Option<&Names>) -> String {
    match names {
        Some(names) => format!(
            "listening on http://{address}\nE2B_DOMAIN={domain} NOVITA_DOMAIN={domain}\n",
            domain = names.domain
        ),
        None => format!("listening on {address}\n"),
    }
}
