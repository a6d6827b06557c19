//! A session that is open in this process: one turn at a time, commands of the user beside it.

mod command;
mod terminal;

pub use terminal::no_terminal;

use super::chips::{self, chips};
use super::feed::Feed;
use super::frame;
use super::frontend::PageFrontend;
use super::questions::Questions;
use super::terminal::Terminals;
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_core::{Interrupt, Stop};
use agent_event::Events;
use agent_log::SessionId;
use agent_sandbox::Sandbox;
use agent_session::{ModelSettings, Ready, Session, Startup};
use agent_tools::Plan;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::task::JoinHandle;

/// Prompts whose keys are remembered, and characters of a key.
const MAX_KEYS: usize = 64;
const MAX_KEY: usize = 64;
/// The time that the last turn has to end when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which something waits for what else is done with the session outside of a turn.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A session that is open.
pub struct Live {
    /// Its id.
    pub id: SessionId,
    /// Its stream.
    pub feed: Arc<Feed>,
    /// Its open questions.
    pub questions: Arc<Questions>,
    /// Its terminals.
    pub terminals: Terminals,
    /// Held while what is refused of the change is written down.
    pub deciding: Mutex<()>,
    session: Mutex<Session>,
    startup: Arc<Startup>,
    plan: Arc<Plan>,
    events: Arc<Events>,
    interrupt: Interrupt,
    status: Lock<Status>,
    /// Of the last prompts.
    keys: Lock<VecDeque<String>>,
    /// Its limits, in words.
    limits: Vec<String>,
    /// The time limit for a command of the user's.
    command_time: Option<Duration>,
    /// Stops the commands of the user that run.
    stop_commands: watch::Sender<u64>,
    typing: terminal::Typing,
}

/// The bounds of a session.
#[derive(Debug, Clone, Default)]
pub struct LiveLimits {
    /// The time limit for a command of the user's.
    pub command_time: Option<Duration>,
    /// A session's limits, in words.
    pub in_words: Vec<String>,
}

/// The state of a session that the page shows beside its events.
#[derive(Default)]
struct Status {
    is_busy: bool,
    commands: usize,
    model: String,
    error: Option<Value>,
    cost: Option<f64>,
    context: (u64, Option<u64>),
    changes: Option<Value>,
    fixed: Value,
    last_used: Option<Instant>,
}

impl Live {
    /// `session`, which was opened with `frontend`; `facts` are shown with its status, and `seq` is its last earlier event.
    pub async fn new(
        session: Session,
        frontend: &PageFrontend,
        mut facts: Value,
        seq: u64,
        limits: LiveLimits,
    ) -> Arc<Self> {
        let LiveLimits { command_time, in_words: limits } = limits;
        facts["session"] = json!(session.id());
        let status = Status { fixed: facts, last_used: Some(Instant::now()), ..Status::default() };
        frontend.feed.begin(seq, session.conversation.total().usage);
        let live = Arc::new(Self {
            id: session.id().clone(),
            feed: Arc::clone(&frontend.feed),
            questions: Arc::clone(&frontend.questions),
            startup: Arc::clone(session.startup()),
            plan: Arc::clone(session.plan()),
            events: Arc::clone(&frontend.events),
            interrupt: session.conversation.interrupt(),
            status: Lock::new(status),
            keys: Lock::default(),
            limits,
            command_time,
            stop_commands: watch::Sender::new(0),
            terminals: Terminals::default(),
            typing: terminal::Typing::default(),
            deciding: Mutex::default(),
            session: Mutex::new(session),
        });
        let watched = Arc::downgrade(&live);
        live.questions.watch(Arc::new(move || {
            if let Some(live) = watched.upgrade() {
                live.send_status();
            }
        }));
        let session = live.session.lock().await;
        live.look(&session).await;
        drop(session);
        live
    }

    /// The status as the page shows it.
    pub fn status(&self) -> Value {
        let used = self.feed.used();
        let questions = self.questions.to_json();
        let mut status = self.status.lock();
        status.last_used = Some(Instant::now());
        let mut shown = status.fixed.clone();
        let gateway = self.startup.gateway();
        let network = match gateway.rules().allowed() {
            _ if gateway.is_full() => "full".to_owned(),
            [] => "none".to_owned(),
            hosts => hosts.iter().take(20).map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let chips = chips(&chips::ChipFacts {
            sandbox: self.startup.backend().name(),
            network: &network,
            used,
            context: status.context,
            cost: status.cost,
            limits: &self.limits,
        });
        for (name, value) in [
            ("chips", json!(chips)),
            ("busy", json!(status.is_busy)),
            ("commands", json!(status.commands)),
            ("model", json!(status.model)),
            ("error", json!(status.error)),
            ("changes", json!(status.changes)),
            ("questions", questions),
            ("planning", json!(self.plan.is_read_only())),
            ("terminals", self.terminals.to_json()),
        ] {
            shown[name] = value;
        }
        shown
    }

    fn send_status(&self) {
        let status = self.status();
        self.feed.send("status", &status);
    }

    /// If nothing happens in it and no tab shows it: when something was last asked of it.
    pub fn idle_since(&self) -> Option<Instant> {
        self.unused_since().filter(|_| self.feed.tabs() == 0)
    }

    /// If nothing happens in it: when something was last asked of it.
    pub fn unused_since(&self) -> Option<Instant> {
        let status = self.status.lock();
        (!status.is_busy && status.commands == 0).then_some(status.last_used).flatten()
    }

    /// Starts to work on `text`. A second prompt with the same `key` is the first one, whose answer the page did not get.
    ///
    /// # Errors
    /// `Conflict` while something else is under way.
    pub fn prompt(self: &Arc<Self>, text: String, key: Option<&str>) -> Result<()> {
        if text.trim().is_empty() {
            return Err(Error::usage("the prompt is empty"));
        }
        let mut keys = self.keys.lock();
        let key = key.map(|key| key.chars().take(MAX_KEY).collect::<String>());
        if key.as_ref().is_some_and(|key| keys.contains(key)) {
            return Ok(());
        }
        self.begin()?;
        keys.extend(key);
        if keys.len() > MAX_KEYS {
            keys.pop_front();
        }
        drop(keys);
        let live = Arc::clone(self);
        let work = tokio::spawn(async move {
            let mut session = live.session.lock().await;
            let result = match live.note_terminals(&mut session) {
                Ok(()) => session.prompt(&text).await.map(drop),
                Err(error) => Err(error),
            };
            live.end(&session, result).await;
        });
        self.after_panic(work);
        Ok(())
    }

    /// Reports the turn that `work` does as ended where a panic ended it.
    fn after_panic(self: &Arc<Self>, work: JoinHandle<()>) {
        let live = Arc::clone(self);
        tokio::spawn(async move {
            if work.await.is_err() {
                let mut status = live.status.lock();
                status.is_busy = false;
                status.error = Some(describe(&Error::unexpected("this failed for a reason of agent's own")));
                drop(status);
                live.send_status();
            }
        });
    }

    /// Marks the session as busy.
    fn begin(&self) -> Result<()> {
        let mut status = self.status.lock();
        if status.is_busy {
            return Err(busy());
        }
        (status.is_busy, status.error) = (true, None);
        drop(status);
        self.interrupt.reset();
        self.send_status();
        Ok(())
    }

    /// Reports how something that [`Live::begin`] began has ended.
    async fn end(&self, session: &Session, result: Result<()>) {
        // What is shown as the end comes after everything that led to it.
        let flushed = self.events.flush().await;
        self.look(session).await;
        let mut status = self.status.lock();
        status.is_busy = false;
        status.error = result.and(flushed).err().map(|error| describe(&error));
        drop(status);
        self.send_status();
    }

    /// Notes what the session's own state says.
    async fn look(&self, session: &Session) {
        let changes = match self.startup.if_ready() {
            Some(ready) => {
                ready.workspace.recorded_changes().await.ok().map(|changes| json!(changes.counts()))
            }
            None => None,
        };
        let conversation = &session.conversation;
        let mut status = self.status.lock();
        status.model = frame::visible(conversation.model_name());
        status.cost = conversation.cost();
        status.context = conversation.context();
        status.changes = changes.or(status.changes.take());
    }

    /// Stops the turn, its questions and the user's commands.
    pub fn stop(&self) {
        self.interrupt.trigger(Stop::Interrupted);
        self.questions.stop();
        self.stop_commands.send_modify(|count| *count += 1);
    }

    /// The session, for something short. Something else that is short, like the look at what a command changed, is waited
    /// for.
    ///
    /// # Errors
    /// `Conflict` while a turn is under way.
    pub async fn idle(&self) -> Result<MutexGuard<'_, Session>> {
        if self.status.lock().is_busy {
            return Err(busy());
        }
        tokio::time::timeout(IDLE_TIMEOUT, self.session.lock()).await.map_err(|_| busy())
    }

    /// Reports what changed in the session's state, by a command or an answer of the user's: no checkpoint has it.
    pub async fn changed(&self, session: &Session) {
        self.look(session).await;
        if let Some(ready) = self.startup.if_ready()
            && let Ok(changes) = ready.workspace.changes(&ready.sandbox).await
        {
            self.status.lock().changes = Some(json!(changes.counts()));
        }
        self.send_status();
    }

    /// Its sandbox, which starts where it has not.
    ///
    /// # Errors
    /// It could not be started.
    pub async fn ready(&self) -> Result<Arc<Ready>> {
        self.startup.ready().await
    }

    /// The same for what the user does in it: its workspace is read-only while a plan waits.
    ///
    /// # Errors
    /// As [`Live::ready`].
    pub async fn sandbox(&self) -> Result<Sandbox> {
        Ok(self.plan.sandbox(self.ready().await?.sandbox.clone()))
    }

    /// Changes the model.
    ///
    /// # Errors
    /// `Conflict` while a turn is under way; the model has no price, which a limited cost needs.
    pub async fn set_model(&self, model: ModelSettings) -> Result<()> {
        let mut session = self.idle().await?;
        session.set_model(model)?;
        self.changed(&session).await;
        Ok(())
    }

    /// Ends the session: the process ends, or the session makes room for another one.
    pub async fn close(&self, result: Result<()>) {
        self.interrupt.trigger(match &result {
            Ok(()) => Stop::Interrupted,
            Err(_) => Stop::Terminated,
        });
        self.questions.stop();
        self.stop_commands.send_modify(|count| *count += 1);
        self.terminals.close_all();
        if let Ok(session) = tokio::time::timeout(CLOSE_TIMEOUT, self.session.lock()).await {
            let _ = session.finish(&result).await;
        }
        let _ = self.events.flush().await;
        self.events.end();
        self.feed.send("closed", &json!({}));
        self.feed.close();
    }
}

/// An error as the page shows it.
pub fn describe(error: &Error) -> Value {
    json!({
        "error": frame::visible(&error.to_string()),
        "hint": error.hint_text().map(frame::visible),
        "interrupted": error.kind() == Kind::Interrupted,
    })
}

fn busy() -> Error {
    Error::new(Kind::Conflict, "a turn is under way").hint("wait for its end, or stop it")
}
