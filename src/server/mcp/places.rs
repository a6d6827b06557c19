//! The sandboxes of all clients, by name: each is a session, whose file says what was done in it.

use crate::error::{Error, Kind, Result};
use crate::event::{Event, Events};
use crate::lock::Lock;
use crate::log::{ArtifactLimits, Artifacts, SessionId};
use crate::server::{Opener, StartFrom};
use crate::session::{Ready, Session};
use crate::workspace::ChangeSet;
use futures_util::future::join_all;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// Sandboxes of one server.
const MAX_PLACES: usize = 32;
/// One that nobody has used for this long ends.
const MAX_IDLE: Duration = Duration::from_secs(3600);
/// How long the end of all of them may take.
const END_TIMEOUT: Duration = Duration::from_millis(1800);
/// The longest name, in bytes.
const MAX_NAME: usize = 200;

/// A sandbox of a client, with the session that it belongs to.
pub struct Place {
    /// The session.
    pub session: Session,
    /// Its bus.
    pub events: Arc<Events>,
    /// The files that its tools have produced.
    pub artifacts: Artifacts,
    /// What a client's user is being asked about: the token of the question, and the changes.
    pub question: Lock<Option<(String, ChangeSet)>>,
    calls: AtomicU64,
    used: Lock<Instant>,
}

/// All sandboxes.
pub struct Places {
    opener: Arc<dyn Opener>,
    workspace: PathBuf,
    all: Lock<HashMap<String, Arc<OnceCell<Arc<Place>>>>>,
}

impl Places {
    /// None yet, of `workspace`.
    pub fn new(opener: Arc<dyn Opener>, workspace: PathBuf) -> Self {
        Self { opener, workspace, all: Lock::default() }
    }

    /// The sandbox called `name`, opened by the first that asks; `key` is the session's where it is to be found again.
    ///
    /// # Errors
    /// There are too many, or it cannot be opened: the next call tries again.
    pub async fn get(&self, name: &str, key: Option<&str>) -> Result<Arc<Place>> {
        let cell = self.cell(name).await?;
        let place = cell.get_or_try_init(|| async {
            let from = match key {
                Some(key) => StartFrom::Session(self.opener.store().for_key(key)?),
                None => StartFrom::New,
            };
            self.open(from).await
        });
        let place = match place.await {
            Ok(place) => Arc::clone(place),
            Err(error) => {
                // What could not be opened takes no place.
                let mut all = self.all.lock();
                if all.get(name).is_some_and(|other| Arc::ptr_eq(other, &cell) && !other.initialized()) {
                    all.remove(name);
                }
                return Err(error);
            }
        };
        *place.used.lock() = Instant::now();
        Ok(place)
    }

    async fn cell(&self, name: &str) -> Result<Arc<OnceCell<Arc<Place>>>> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Error::usage(format!("the name of a sandbox has 1 to {MAX_NAME} bytes")));
        }
        self.end_idle().await;
        let mut all = self.all.lock();
        if !all.contains_key(name) && all.len() >= MAX_PLACES {
            return Err(Error::usage(format!("{MAX_PLACES} sandboxes are open, which is the limit"))
                .hint("close one that is not needed any more"));
        }
        Ok(Arc::clone(all.entry(name.to_owned()).or_default()))
    }

    async fn open(&self, from: StartFrom) -> Result<Arc<Place>> {
        let events = Arc::new(Events::new(1));
        let frontend = Arc::new(Arc::clone(&events));
        let session = self.opener.open(&self.workspace, from, frontend).await?;
        let directory = self.opener.store().dir(session.id());
        Ok(Arc::new(Place {
            artifacts: Artifacts::of_session(&directory, ArtifactLimits::default()),
            session,
            events,
            question: Lock::default(),
            calls: AtomicU64::new(0),
            used: Lock::new(Instant::now()),
        }))
    }

    /// A second sandbox called `name`, with the workspace and `$HOME` of `source` as they are now.
    pub async fn fork(&self, source: &Place, name: &str) -> Result<SessionId> {
        let cell = self.cell(name).await?;
        if cell.initialized() {
            return Err(
                Error::usage(format!("there is a sandbox called {name:?}")).hint("choose another name")
            );
        }
        // What is not needed yet does not run yet, and could not be copied.
        source.ready().await?;
        let fork = source.session.fork().await?;
        let place = cell.get_or_try_init(|| self.open(StartFrom::Session(fork.id.clone()))).await?;
        Ok(place.session.id().clone())
    }

    /// Ends the sandbox called `name`, if there is one.
    pub async fn end(&self, name: &str) -> bool {
        let removed = self.all.lock().remove(name);
        match removed.and_then(|cell| cell.get().cloned()) {
            Some(place) => {
                place.end().await;
                true
            }
            None => false,
        }
    }

    async fn end_idle(&self) {
        let is_idle = |cell: &Arc<OnceCell<Arc<Place>>>| {
            cell.get()
                .is_some_and(|place| place.used.lock().elapsed() > MAX_IDLE && Arc::strong_count(place) == 1)
        };
        let idle: Vec<_> = {
            let mut all = self.all.lock();
            let names: Vec<String> =
                all.iter().filter(|(_, cell)| is_idle(cell)).map(|(name, _)| name.clone()).collect();
            names.iter().filter_map(|name| all.remove(name)).collect()
        };
        for place in idle.iter().filter_map(|cell| cell.get()) {
            place.end().await;
        }
    }

    /// Ends all of them. What does not end in time ends by its idle timeout.
    pub async fn end_all(&self) {
        let all: Vec<_> = self.all.lock().drain().filter_map(|(_, cell)| cell.get().cloned()).collect();
        let ending = join_all(all.iter().map(|place| place.end()));
        let _ = tokio::time::timeout(END_TIMEOUT, ending).await;
    }
}

impl Place {
    /// The sandbox, which starts if it has not.
    pub async fn ready(&self) -> Result<Arc<Ready>> {
        self.session.startup().ready().await
    }

    /// An id for the next call.
    pub fn next_call(&self) -> String {
        format!("mcp_{}", self.calls.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Records what happened, so that nothing is lost with the sandbox.
    pub async fn record(&self) -> Result<()> {
        match self.session.startup().if_ready() {
            Some(_) => self.session.checkpoints().save().await,
            None => Ok(()),
        }
    }

    async fn end(&self) {
        self.session.conversation.interrupt().trigger(crate::agent::Stop::Terminated);
        // What it holds is recorded once more; if that fails, what was recorded before is there.
        let _ = self.record().await;
        let ended: Result<()> = Ok(());
        let _ = self.session.finish(&ended).await;
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
    pub fn new(place: &Place, id: &str, name: &str) -> Self {
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
        });
    }
}

/// Whether an error is one that a client can act on.
pub fn is_for_client(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::InSandbox | Kind::Usage | Kind::Config | Kind::Conflict | Kind::Limit | Kind::Sandbox
    )
}
