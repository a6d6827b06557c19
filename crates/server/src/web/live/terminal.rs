//! The terminals of a session.

use super::super::terminal::Terminal;
use super::Live;
use agent_base::error::{Error, Kind, Result};
use agent_sandbox::wire::TerminalSize;
use agent_session::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time without typing after which the change is counted again.
const QUIET: Duration = Duration::from_secs(2);

/// The use of a session's terminals.
#[derive(Default)]
pub(super) struct Typing {
    count: AtomicU64,
    /// Set until the model has a note of it.
    is_new: AtomicBool,
    /// Set while something waits to count what changed.
    is_awaited: AtomicBool,
}

impl Live {
    /// Starts a terminal in the sandbox, which may not change the workspace while a plan waits.
    ///
    /// # Errors
    /// `Conflict` where there are too many; the sandbox does not start.
    pub async fn open_terminal(self: &Arc<Self>, size: TerminalSize) -> Result<Arc<Terminal>> {
        let sandbox = self.sandbox().await?;
        let live = Arc::downgrade(self);
        let watch = move |has_ended: bool| {
            let Some(live) = live.upgrade() else { return };
            live.terminal_used();
            if has_ended {
                live.send_status();
            }
        };
        let terminal = self.terminals.start(&sandbox, size, Arc::new(watch)).await?;
        self.send_status();
        Ok(terminal)
    }

    /// Ends a terminal, with all that runs in it.
    ///
    /// # Errors
    /// `Conflict` where there is none of this number.
    pub fn close_terminal(self: &Arc<Self>, number: u64) -> Result<()> {
        if !self.terminals.close(number) {
            return Err(no_terminal());
        }
        self.terminal_used();
        self.send_status();
        Ok(())
    }

    /// Has the change counted once nothing is typed any more.
    fn terminal_used(self: &Arc<Self>) {
        self.status.lock().last_used = Some(Instant::now());
        let mut seen = self.typing.count.fetch_add(1, Ordering::AcqRel);
        self.typing.is_new.store(true, Ordering::Release);
        if self.typing.is_awaited.swap(true, Ordering::AcqRel) {
            return;
        }
        let live = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(QUIET).await;
                let Some(live) = live.upgrade() else { return };
                let count = live.typing.count.load(Ordering::Acquire);
                if count != seen {
                    seen = count;
                    continue;
                }
                live.typing.is_awaited.store(false, Ordering::Release);
                // A turn that is under way has it counted at its end.
                if let Ok(session) = live.idle().await {
                    live.changed(&session).await;
                }
                return;
            }
        });
    }

    /// Tells the model before a prompt of what it has not seen.
    pub(super) fn note_terminals(&self, session: &mut Session) -> Result<()> {
        if !self.typing.is_new.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        session.conversation.note("The user has used a terminal in the sandbox: files may be different now.")
    }
}

/// The failure of a request that names a terminal which is closed.
pub fn no_terminal() -> Error {
    Error::new(Kind::Conflict, "this terminal is closed").hint("open another one")
}
