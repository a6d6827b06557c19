//! `agent serve`: sandboxes for programs that were written for E2B and Novita.

use crate::cli::config::{Config, units};
use crate::cli::options::{BackendArgs, Options, ResourceArgs};
use crate::cli::print::offer;
use crate::cli::sandbox_settings;
use crate::cli::signals::{Received, listen_with};
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::paths;
use crate::server::e2b::{self, Secret};
use crate::server::{Address, Listener};
use crate::session::Notice;
use clap::Args;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The variable that holds the key.
const KEY_VARIABLE: &str = "AGENT_SERVE_KEY";
/// The shortest key that is accepted.
const MIN_KEY: usize = 16;

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
    let key = key(machine)?;
    if arguments.print_env {
        offer(variables(&arguments.listen, &key)?.as_bytes())?;
        return Ok(ExitCode::Success);
    }
    if !arguments.listen.is_local() && !arguments.allow_remote {
        return Err(Error::usage(format!("{} can be reached from other machines", arguments.listen))
            .hint("use 127.0.0.1, or add --allow-remote and encrypt the traffic yourself"));
    }
    let max_time = units::duration(&arguments.max_time_to_live)?;
    let config = Config::load(machine, &arguments.options())?;
    let (sandbox, reason) = sandbox_settings::sandbox(&config).await?;
    if let Some(Notice::Always(text)) = reason {
        stderr::write(&format!("{text}\n"));
    }
    let listener = Listener::bind(&arguments.listen).await?;
    let address = listener.address().clone();
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
    offer(ready(&address).as_bytes())?;
    let settings = e2b::Settings {
        sandbox,
        machine: Arc::clone(machine),
        key,
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

/// What is printed when clients can connect.
fn ready(address: &Address) -> String {
    match address {
        Address::Tcp(address) => format!("listening on http://{address}\n"),
        Address::Unix(_) => format!("listening on {address}\n"),
    }
}

/// What a shell has to evaluate.
fn variables(address: &Address, key: &Secret) -> Result<String> {
    let Address::Tcp(address) = address else {
        return Err(Error::usage("the SDKs connect to a port").hint("use --listen 127.0.0.1:PORT"));
    };
    if address.port() == 0 {
        return Err(Error::usage("--print-env needs the port that the server listens on")
            .hint("name it in --listen, here and where the server is started"));
    }
    let mut text = String::new();
    for vendor in ["E2B", "NOVITA"] {
        text.push_str(&format!(
            "export {vendor}_API_KEY={}\nexport {vendor}_API_URL=http://{address}\nexport {vendor}_SANDBOX_URL=http://{address}\n",
            key.reveal()
        ));
    }
    // Without TLS no HTTP/2 is negotiated.
    text.push_str("export E2B_HTTP_VERSION=1.1\n");
    Ok(text)
}

/// The key of this user's servers.
fn key(machine: &Machine) -> Result<Secret> {
    let is_valid = |key: &str| {
        key.len() >= MIN_KEY && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if let Some(key) = std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty()) {
        return match is_valid(&key) {
            true => Ok(Secret::new(key)),
            false => Err(Error::config(format!("{KEY_VARIABLE} does not hold a valid key"))
                .hint(format!("use at least {MIN_KEY} letters, digits and underscores"))),
        };
    }
    let directory = machine.data_dir()?.join("serve");
    paths::make_dir(&directory)?;
    let path = directory.join("key");
    match std::fs::read_to_string(&path) {
        Ok(key) if is_valid(key.trim()) => return Ok(Secret::new(key.trim())),
        Ok(_) => {
            return Err(Error::config(format!("{} does not hold a valid key", path.display()))
                .hint("remove the file: a new key is made"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(unusable(&path, error)),
    }
    let key = Secret::generate("e2b_")?;
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(key.reveal().as_bytes()));
    written.map_err(|error| unusable(&path, error))?;
    Ok(key)
}

fn unusable(path: &Path, error: std::io::Error) -> Error {
    Error::config(format!("{} cannot be used", path.display()))
        .caused_by(error)
        .hint(format!("or set {KEY_VARIABLE}"))
}
