//! `agent forward [ID] PORT[:LOCAL]`: a server inside the sandbox, on this machine's loopback.

use crate::agent::Interrupt;
use crate::cli::kept_session::{attach, named_or_last};
use crate::cli::options::{DirectoryArg, Options};
use crate::cli::signals::until_interrupted;
use crate::cli::ui::stderr;
use crate::error::{Error, Kind, Result};
use crate::exit_code::ExitCode;
use crate::log::Store;
use crate::machine::Machine;
use crate::sandbox::Sandbox;
use clap::Args;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

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

/// Connections at once; further ones wait.
const MAX_CONNECTIONS: usize = 64;

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

async fn serve(listener: TcpListener, sandbox: Sandbox, port: u16) -> Result<ExitCode> {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&slots).acquire_owned().await else { return Ok(ExitCode::Success) };
        let (connection, _) = listener.accept().await?;
        let sandbox = sandbox.clone();
        tokio::spawn(async move {
            carry(connection, &sandbox, port).await;
            drop(permit);
        });
    }
}

/// Carries one connection. If it fails, it ends.
async fn carry(mut connection: TcpStream, sandbox: &Sandbox, port: u16) {
    match sandbox.connect_port(port).await {
        Ok(mut inside) => drop(tokio::io::copy_bidirectional(&mut connection, &mut inside).await),
        Err(error) => stderr::write(&format!("port {port} inside: {error}\n")),
    }
}

/// `PORT` or `PORT:LOCAL`.
fn parse(text: &str) -> Result<(u16, u16)> {
    let (inside, local) = text.split_once(':').unwrap_or((text, text));
    let port = |text: &str| {
        text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| {
            Error::usage(format!("{text:?} is not a valid port"))
                .hint("write it as PORT or PORT:LOCAL, like 8000 or 8000:9000")
        })
    };
    Ok((port(inside)?, port(local)?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn ports_are_read() {
        assert_eq!(parse("8000").ok(), Some((8000, 8000)));
        assert_eq!(parse("8000:9000").ok(), Some((8000, 9000)));
        for text in ["", "0", "x", "80:", "70000", "1:2:3"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
