//! Servers inside that the user may want to reach, and the jobs that run there.

use super::startup::Startup;
use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_event::Event;
use agent_network::PORT;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The time limit for a look, which is made between two turns.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// The ports that listen in a session's sandbox, as far as the user knows.
pub struct Ports {
    startup: Arc<Startup>,
    /// The ports of the last look; `None` before the first one.
    known: Lock<Option<BTreeSet<u16>>>,
}

impl Ports {
    pub(super) fn new(startup: Arc<Startup>) -> Self {
        Self { startup, known: Lock::default() }
    }

    /// The ports on which something listens now. Empty where that cannot be told.
    pub async fn listening(&self) -> BTreeSet<u16> {
        // The engine's ordinary network may be this machine's.
        let Some(ready) = self.startup.if_ready().filter(|_| !self.startup.gateway().is_full()) else {
            return BTreeSet::new();
        };
        let looked = timeout(LOOK_TIMEOUT, ready.sandbox.listening_ports()).await;
        let mut ports = looked.map_or_else(|_| BTreeSet::new(), Result::unwrap_or_default);
        ports.remove(&PORT);
        ports
    }

    /// Reports what has begun to listen since the last look.
    ///
    /// # Errors
    /// The session cannot be written.
    pub async fn report_new(&self) -> Result<()> {
        let is_far = !self.startup.backend().capabilities().host_paths;
        let ready = self.startup.if_ready();
        let may_listen = match is_far {
            true => ready.is_some_and(|ready| ready.sandbox.has_started_jobs()),
            false => ready.is_some_and(|ready| ready.reattached || ready.sandbox.may_run_programs()),
        };
        // A look takes the kernel as long as several turns: it passes over a table for the connections of the whole machine.
        if !may_listen && (!is_far || self.known.lock().is_some()) {
            return Ok(());
        }
        let now = self.listening().await;
        let before = self.known.lock().replace(now.clone());
        let before = match before {
            Some(before) => before,
            // A provider's machine has servers of its own.
            None if is_far => return Ok(()),
            None => BTreeSet::new(),
        };
        let command = self.startup.frontend().forward_command();
        for port in now.difference(&before) {
            let text = format!("port {port} listens in the sandbox: {command} {port}");
            self.startup.events().emit(Event::Notice { text })?;
        }
        Ok(())
    }
}
