//! `agent mcp login NAME` and `agent mcp logout NAME`: logins to servers elsewhere, which are kept on this machine.

use crate::agent::Interrupt;
use crate::cli::config::Config;
use crate::cli::options::{DirectoryArg, Options};
use crate::cli::signals::until_interrupted;
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::mcp::client::Launch;
use crate::mcp::client::login::{Shown, Store, Way, log_in};
use crate::sanitise::one_line;
use clap::Args;
use std::sync::Arc;
use url::Url;

/// Columns of an address and of a code.
const MAX_ADDRESS: usize = 4_000;
const MAX_CODE: usize = 60;

/// `agent mcp login`
#[derive(Debug, Args)]
pub struct LoginArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    /// The server
    name: String,
    /// Log in with a code on any device, in the place of a browser of this machine
    #[arg(long)]
    device: bool,
    /// The id of a client that you registered with the server, which registers none by itself
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
}

/// `agent mcp logout`
#[derive(Debug, Args)]
pub struct LogoutArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    /// The server
    name: String,
}

/// Logs in, and keeps the token for sessions.
pub async fn login(machine: &Arc<Machine>, arguments: LoginArgs) -> Result<ExitCode> {
    let LoginArgs { directory, name, device, client_id } = arguments;
    let url = address(machine, &directory, &name)?;
    let way = if device { Way::Device } else { Way::Browser };
    let show = |shown: Shown| stderr::write(&text(&shown));
    let store = Store::of(machine)?;
    let logging_in = log_in(&store, &url, way, client_id, &show);
    until_interrupted(Interrupt::default(), logging_in).await?;
    stderr::write(&format!("logged in to {name}; `agent mcp logout {name}` forgets it\n"));
    Ok(ExitCode::Success)
}

/// Forgets the login.
pub async fn logout(machine: &Arc<Machine>, arguments: &LogoutArgs) -> Result<ExitCode> {
    let url = address(machine, &arguments.directory, &arguments.name)?;
    let text = match Store::of(machine)?.remove(&url).await? {
        true => "logged out of",
        false => "there is no login to",
    };
    stderr::write(&format!("{text} {}\n", arguments.name));
    Ok(ExitCode::Success)
}

fn text(shown: &Shown) -> String {
    let line = |url: &Url| one_line(url.as_str(), MAX_ADDRESS);
    match shown {
        Shown::Open(page) => format!("open this page in a browser of this machine:\n{}\n", line(page)),
        Shown::Code(page, code) => {
            format!("open {} and type the code {}\n", line(page), one_line(code, MAX_CODE))
        }
    }
}

fn address(machine: &Arc<Machine>, directory: &DirectoryArg, name: &str) -> Result<Url> {
    let config = Config::load(machine, &Options::of(&[directory]))?;
    let server = config.mcp.servers.iter().find(|server| server.name == name);
    let unknown = || Error::usage(format!("there is no server {name:?}")).hint("`agent mcp list` lists them");
    match &server.ok_or_else(unknown)?.launch {
        Launch::Http { url, .. } => Ok(url.clone()),
        _ => Err(Error::usage(format!("{name} is a program: only servers with a url have logins"))),
    }
}
