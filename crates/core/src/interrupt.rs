//! The one way to stop what a session is doing.

use agent_base::error::{Error, Kind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The reason why a turn has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM.
    Terminated,
    /// The time limit is reached.
    OutOfTime,
}

impl Stop {
    /// The error that a turn ends with.
    pub fn error(self) -> Error {
        match self {
            Stop::Interrupted => Error::new(Kind::Interrupted, "interrupted"),
            Stop::Terminated => Error::new(Kind::Terminated, "terminated"),
            Stop::OutOfTime => Error::new(Kind::Limit, "the time limit is reached")
                .hint("raise --max-time, or continue with `agent resume`"),
        }
    }
}

/// A handle that stops the turn under way. Cheap to clone; every clone stops the same session.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<watch::Sender<Option<Stop>>>);

impl Default for Interrupt {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Interrupt {
    /// Stops the turn under way: its model request is cancelled, its command killed. The first reason counts.
    pub fn trigger(&self, stop: Stop) {
        self.0.send_if_modified(|reason| {
            let first = reason.is_none();
            *reason = reason.or(Some(stop));
            first
        });
    }

    /// Clears an earlier stop, so that the next turn can run.
    pub fn reset(&self) {
        self.0.send_replace(None);
    }

    /// Returns the reason why the turn has to stop, if it has to.
    pub fn reason(&self) -> Option<Stop> {
        *self.0.borrow()
    }

    /// Waits for a stop.
    pub async fn triggered(&self) -> Stop {
        let mut receiver = self.0.subscribe();
        loop {
            if let Some(stop) = *receiver.borrow_and_update() {
                return stop;
            }
            if receiver.changed().await.is_err() {
                // The sender is part of `self`; without it nothing could trigger any more.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Triggers after `time`, unless the returned task is aborted.
    pub fn after(&self, time: Duration) -> tokio::task::JoinHandle<()> {
        let interrupt = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            interrupt.trigger(Stop::OutOfTime);
        })
    }
}
