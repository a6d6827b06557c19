//! Ports inside the sandbox, carried to this machine.

use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::sandbox::Sandbox;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at once; further ones wait.
const MAX_CONNECTIONS: usize = 64;

/// Serves until the listener fails.
pub async fn serve(listener: TcpListener, sandbox: Sandbox, port: u16) -> Result<ExitCode> {
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
pub fn parse(text: &str) -> Result<(u16, u16)> {
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
