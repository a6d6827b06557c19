//! One sandbox of a client: a session, whose file says what was done in it.

use super::question::Proposal;
use crate::{Opener, StartFrom};
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_core::Stop;
use agent_event::{Event, Events};
use agent_log::{ArtifactLimits, Artifacts};
use agent_session::{Ready, Session};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time limit for recording what a sandbox holds at its end, and for the rest of its end. A client that waits less
/// kills this process, and finds what was recorded before.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);
const END_TIMEOUT: Duration = Duration::from_millis(1800);

/// A sandbox of a client, with the session that it belongs to.
pub struct ClientSandbox {
    /// The session.
    pub session: Session,
    /// Its bus.
    pub events: Arc<Events>,
    /// The files that its tools have produced.
    pub artifacts: Artifacts,
    /// The question that a client's user is being asked, and its token.
    pub question: Lock<Option<(String, Proposal)>>,
    calls: AtomicU64,
    used: Lock<Instant>,
    /// Set if it is going to be recorded soon.
    is_due: AtomicBool,
}

impl ClientSandbox {
    /// Opens the session.
    pub async fn open(opener: &dyn Opener, workspace: &Path, from: StartFrom) -> Result<Arc<Self>> {
        let events = Arc::new(Events::new(1));
        let frontend = Arc::new(Arc::clone(&events));
        let session = opener.open(workspace, from, frontend).await?;
        let directory = opener.store().dir(session.id());
        Ok(Arc::new(Self {
            artifacts: Artifacts::of_session(&directory, ArtifactLimits::default()),
            session,
            events,
            question: Lock::default(),
            calls: AtomicU64::new(0),
            used: Lock::new(Instant::now()),
            is_due: AtomicBool::new(false),
        }))
    }

    /// The sandbox, which starts if it has not.
    pub async fn ready(&self) -> Result<Arc<Ready>> {
        self.session.startup().ready().await
    }

    /// An id for the next call.
    pub fn next_call(&self) -> String {
        format!("mcp_{}", self.calls.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Somebody uses it now.
    pub fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// Returns the time since anybody used it.
    pub fn unused_for(&self) -> Duration {
        self.used.lock().elapsed()
    }

    /// Records what happened.
    pub async fn record(&self) -> Result<()> {
        match self.session.startup().if_ready() {
            Some(_) => self.session.checkpoints().save().await,
            None => Ok(()),
        }
    }

    /// Records what a call has changed, so that it is not lost with this process: at once, or where that takes too much of the
    /// time, a little later together with what follows.
    pub async fn record_soon(self: &Arc<Self>) -> Result<()> {
        let Some(wait) = self.session.checkpoints().between().await? else { return Ok(()) };
        if self.is_due.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let place = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let Some(place) = place.upgrade() else { return };
            place.is_due.store(false, Ordering::Release);
            if let Err(error) = place.record().await {
                let text = format!("What the last calls changed could not be recorded: {error}.");
                // A session file that cannot be written fails at the next call.
                let _ = place.events.emit(Event::Notice { text });
            }
        });
        Ok(())
    }

    /// Ends the session, after what its sandbox holds was recorded once more.
    pub async fn end(&self) {
        self.session.conversation.interrupt().trigger(Stop::Terminated);
        let recorded = tokio::time::timeout(RECORD_TIMEOUT, self.record()).await;
        let recorded = recorded.unwrap_or_else(|_| {
            Err(Error::new(Kind::Sandbox, format!("it takes more than {} s", RECORD_TIMEOUT.as_secs())))
        });
        if let Err(error) = recorded {
            let text =
                format!("The sandbox could not be recorded at its end: {error}. What was before is there.");
            let _ = self.events.emit(Event::Notice { text });
        }
        let ended: Result<()> = Ok(());
        // What does not end in time ends by its idle timeout.
        let _ = tokio::time::timeout(END_TIMEOUT, self.session.finish(&ended)).await;
    }
}

/// The result of a call that was cancelled, for the session's file.
pub struct Running {
    events: Arc<Events>,
    id: String,
    name: String,
    is_done: bool,
}

impl Running {
    /// A call that begins.
    pub fn new(place: &ClientSandbox, id: &str, name: &str) -> Self {
        let events = Arc::clone(&place.events);
        Self { events, id: id.to_owned(), name: name.to_owned(), is_done: false }
    }

    /// It has ended by itself.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // A session file that cannot be written fails at the next call.
        let _ = self.events.emit(Event::ToolFinished {
            id: self.id.clone(),
            name: self.name.clone(),
            ok: false,
            exit_code: None,
            duration_ms: 0,
            truncated: false,
            result: "error: cancelled by the client".to_owned(),
            content: Vec::new(),
            edits: Vec::new(),
        });
    }
}

/// Returns whether an error is one that a client can act on.
pub fn is_for_client(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::InSandbox | Kind::Usage | Kind::Config | Kind::Conflict | Kind::Limit | Kind::Sandbox
    )
}
