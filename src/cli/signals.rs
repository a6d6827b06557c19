//! Ctrl-C and SIGTERM become the session's interrupt.

use crate::agent::{Interrupt, Stop};
use crate::cli::ui::terminal::mode;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// Does `work`; signals meanwhile trigger `interrupt`, which it observes.
pub async fn with_signals<T>(interrupt: Interrupt, work: impl Future<Output = Result<T>>) -> Result<T> {
    let listening = listen(interrupt)?;
    let result = work.await;
    listening.abort();
    result
}

/// Does `work` until its end or until `interrupt` is triggered, by a signal or otherwise: then it is dropped.
pub async fn until_interrupted<T>(interrupt: Interrupt, work: impl Future<Output = Result<T>>) -> Result<T> {
    with_signals(interrupt.clone(), async {
        tokio::select! {
            biased;
            stop = interrupt.triggered() => Err(stop.error()),
            result = work => result,
        }
    })
    .await
}

/// Listens until the returned task is aborted. A second Ctrl-C exits at once; the sandbox then ends by its idle timeout.
fn listen(interrupt: Interrupt) -> Result<JoinHandle<()>> {
    listen_with(move |signal| match signal {
        Received::Interrupt(1) => interrupt.trigger(Stop::Interrupted),
        Received::Interrupt(_) => {
            mode::restore();
            std::process::exit(ExitCode::Interrupted.code().into())
        }
        Received::End => interrupt.trigger(Stop::Terminated),
    })
}

/// A signal that asks the process to stop.
pub enum Received {
    /// Ctrl-C, for this time, counting from 1.
    Interrupt(u32),
    /// SIGTERM or SIGHUP.
    End,
}

/// Hands the signals to `handle` until the returned task is aborted.
pub fn listen_with(handle: impl Fn(Received) + Send + 'static) -> Result<JoinHandle<()>> {
    let mut int = receive(SignalKind::interrupt())?;
    let mut end = End::new()?;
    Ok(tokio::spawn(async move {
        let mut count = 0;
        loop {
            let received = tokio::select! {
                _ = int.recv() => {
                    count += 1;
                    Received::Interrupt(count)
                }
                () = end.wait() => Received::End,
            };
            handle(received);
        }
    }))
}

/// Waits for a signal that asks a server to stop: with which code it ends.
pub fn stopped() -> Result<impl Future<Output = ExitCode>> {
    let mut int = receive(SignalKind::interrupt())?;
    let mut end = End::new()?;
    Ok(async move {
        tokio::select! {
            _ = int.recv() => ExitCode::Interrupted,
            () = end.wait() => ExitCode::Terminated,
        }
    })
}

/// A request to end the process: SIGTERM, or SIGHUP because the terminal is closed.
pub struct End {
    terminate: Signal,
    hang_up: Option<Signal>,
}

impl End {
    /// Starts to listen. If SIGHUP is ignored already, as under `nohup`, it stays ignored.
    pub fn new() -> Result<Self> {
        let hang_up = match is_ignored(libc::SIGHUP) {
            true => None,
            false => Some(receive(SignalKind::hangup())?),
        };
        Ok(Self { terminate: receive(SignalKind::terminate())?, hang_up })
    }

    /// Waits for either.
    pub async fn wait(&mut self) {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = hang_up => {}
        }
    }
}

fn receive(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Error::unexpected("signals cannot be received").caused_by(error))
}

fn is_ignored(number: i32) -> bool {
    // SAFETY: all zero is a valid value; without a new action the kernel only writes the old one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}
