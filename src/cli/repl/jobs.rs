//! `/jobs` and `/forward`: what runs in the sandbox, and the way to it.

use super::{Flow, Repl};
use crate::cli::console::Console;
use crate::cli::forwarding::{parse, serve};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::sanitise::one_line;
use crate::session::{Frontend, Session};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Columns of a job's command.
const COMMAND: usize = 80;
/// The time for which leaving waits to learn what runs.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Ports that are forwarded at once.
const MAX_FORWARDED: usize = 16;

/// Servers inside on this machine's loopback, until it is dropped.
#[derive(Default)]
pub(super) struct Forwarded(Vec<JoinHandle<()>>);

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Repl<'_> {
    pub(super) async fn jobs(&mut self) -> Result<Flow> {
        let Some(running) = running(self.session).await? else {
            self.remark("nothing has run in the sandbox");
            return Ok(Flow::Continue);
        };
        if running.is_empty() {
            self.remark("no job runs and nothing listens");
        }
        for line in running {
            self.remark(&line);
        }
        Ok(Flow::Continue)
    }

    pub(super) async fn forward(&mut self, ports: &str) -> Result<Flow> {
        if ports.is_empty() {
            return Err(
                Error::usage("name a port: /forward PORT[:LOCAL]").hint("/jobs lists those that listen")
            );
        }
        let (inside, local) = parse(ports)?;
        if self.forwarded.0.len() >= MAX_FORWARDED {
            return Err(Error::usage(format!("{MAX_FORWARDED} ports are forwarded already")));
        }
        let sandbox = self.session.startup().ready().await?.sandbox.clone();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.map_err(|error| {
            Error::usage(format!("port {local} of this machine cannot be used"))
                .caused_by(error)
                .hint(format!("name another one: /forward {inside}:LOCAL"))
        })?;
        let address = listener.local_addr()?;
        self.forwarded.0.push(tokio::spawn(async move {
            // It ends when the listener fails, or with the session.
            let _ = serve(listener, sandbox, inside).await;
        }));
        self.remark(&format!("http://{address} is port {inside} inside, until you leave"));
        Ok(Flow::Continue)
    }
}

/// A line for each job that runs and each port on which something listens; `None` where there is no sandbox.
async fn running(session: &Session) -> Result<Option<Vec<String>>> {
    let Some(ready) = session.startup().if_ready() else { return Ok(None) };
    let jobs = ready.sandbox.running_jobs().await?.into_iter().map(|(job, command)| match command {
        Some(command) => format!("job {job}: {}", one_line(&command, COMMAND)),
        None => format!("job {job}, from before"),
    });
    let ports = session.ports().listening().await.into_iter().map(|port| format!("port {port} listens"));
    Ok(Some(jobs.chain(ports).collect()))
}

/// Reports what ends with the session.
pub(super) async fn report_end(console: &Console, session: &Session) -> Result<()> {
    if !session.ends_its_sandbox() {
        return Ok(());
    }
    // A sandbox that gives no answer ends as well.
    let Ok(Ok(Some(running))) = timeout(LEAVE_TIMEOUT, running(session)).await else { return Ok(()) };
    match running.is_empty() {
        true => Ok(()),
        false => {
            let text =
                format!("this ends what runs in the sandbox (--keep keeps it): {}", running.join("; "));
            console.events().emit(Event::Notice { text })
        }
    }
}
