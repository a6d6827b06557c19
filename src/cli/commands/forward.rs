//! `agent forward [ID] PORT[:LOCAL]`: a server inside the sandbox, on this machine's loopback.

use crate::agent::Interrupt;
use crate::cli::forwarding::{parse, serve};
use crate::cli::kept_session::{attach, named_or_last};
use crate::cli::options::{DirectoryArg, Options};
use crate::cli::signals::until_interrupted;
use crate::cli::ui::stderr;
use crate::error::{Error, Kind, Result};
use crate::exit_code::ExitCode;
use crate::log::Store;
use crate::machine::Machine;
use clap::Args;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// `agent forward`
#[derive(Debug, Args)]
pub struct ForwardArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    /// The session (default: the newest of this workspace), and the port inside with the one on this machine
    #[arg(required = true, num_args = 1..=2, value_name = "[ID] PORT[:LOCAL]")]
    target: Vec<String>,
}

impl ForwardArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory])
    }
}

/// Forwards until Ctrl-C.
pub async fn forward(machine: &Arc<Machine>, arguments: ForwardArgs) -> Result<ExitCode> {
    let options = &arguments.options();
    let (id, ports) = match arguments.target.as_slice() {
        [ports] => (None, ports),
        [id, ports] => (Some(id.as_str()), ports),
        _ => return Err(Error::usage("name a port: agent forward [ID] PORT[:LOCAL]")),
    };
    let (inside, local) = parse(ports)?;
    let id = match id {
        Some(id) => id.to_owned(),
        None => named_or_last(machine, &Store::open(machine)?, options, None)?.to_string(),
    };
    let sandbox = attach(machine, &id, options).await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.map_err(|error| {
        Error::usage(format!("port {local} of this machine cannot be used"))
            .caused_by(error)
            .hint(format!("name another one: agent forward {inside}:LOCAL"))
    })?;
    let address = listener.local_addr()?;
    stderr::write(&format!("http://{address} is port {inside} inside the sandbox of {id}; Ctrl-C ends it\n"));
    match until_interrupted(Interrupt::default(), serve(listener, sandbox, inside)).await {
        Err(error) if error.kind() == Kind::Interrupted => Ok(ExitCode::Success),
        other => other,
    }
}
