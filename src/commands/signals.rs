//! Ctrl-C and SIGTERM become the session's interrupt.

use crate::agent::{Interrupt, Stop};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

/// Listens from now on. A second Ctrl-C does not wait for anything any more: the sandbox then ends by its idle
/// time-to-live. The task ends when it is aborted.
pub fn listen(interrupt: Interrupt) -> Result<JoinHandle<()>> {
    let failed =
        |error| Error::unexpected("signals cannot be received").caused_by(anyhow::Error::from(error));
    let mut int = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut term = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hup = signal(SignalKind::hangup()).map_err(failed)?;
    Ok(tokio::spawn(async move {
        let mut interrupted = false;
        loop {
            tokio::select! {
                _ = int.recv() => {
                    if interrupted {
                        std::process::exit(ExitCode::Interrupted.code().into());
                    }
                    interrupted = true;
                    interrupt.trigger(Stop::Interrupted);
                }
                _ = term.recv() => interrupt.trigger(Stop::Terminated),
                _ = hup.recv() => interrupt.trigger(Stop::Terminated),
            }
        }
    }))
}
