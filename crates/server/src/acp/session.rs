//! One session of a client: its prompts, and how it ends.

use super::editor::Editor;
use super::options::{self, APPLY, Current, MODEL, NETWORK};
use super::prompt::Prompt;
use super::updates::chunk;
use crate::Opener;
use crate::rpc::{error_object, with_hint};
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_base::sanitise::one_line;
use agent_core::{Interrupt, Stop};
use agent_mcp::jsonrpc::{ErrorObject, INVALID_REQUEST};
use agent_session::{ModelSettings, Session, Startup};
use agent_workspace::ChangeSet;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{Mutex, OwnedSemaphorePermit};

/// Characters of a session's title.
const TITLE: usize = 72;

/// The mode in which what a session has changed is written to the user's own files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApplyMode {
    /// The user is asked at the end of a turn.
    #[default]
    Ask,
    /// At the end of a turn.
    Auto,
    /// Only at the user's `/apply`.
    Never,
}

/// A session that a client has opened.
pub struct OpenSession {
    /// Its client.
    pub editor: Arc<Editor>,
    root: PathBuf,
    session: Mutex<Session>,
    interrupt: Interrupt,
    is_busy: AtomicBool,
    mode: Lock<ApplyMode>,
    /// The changes that the user keeps in the sandbox: they are not asked about them again.
    kept: Lock<Option<ChangeSet>>,
    proposals: AtomicU64,
    has_title: AtomicBool,
    /// The commands that were announced, with the prompts of MCP servers.
    commands: Lock<Value>,
    startup: Arc<Startup>,
    first_network: String,
    has_cost_limit: bool,
    /// The name of the model, and of all that the endpoint offers, as far as that is known.
    model: Lock<String>,
    models: Lock<Vec<String>>,
    /// The settings that were made since the last prompt began.
    pending: Lock<Pending>,
    _slot: OwnedSemaphorePermit,
}

/// The text that the next prompt begins with.
#[derive(Default)]
struct Pending {
    model: Option<ModelSettings>,
    /// A note for the model.
    note: Option<String>,
}

/// The work on one prompt, which has the session for itself.
pub struct Work<'a> {
    /// The part that outlives it.
    pub owner: &'a OpenSession,
    /// The session.
    pub session: &'a mut Session,
    /// The source of further settings.
    pub opener: &'a dyn Opener,
}

impl OpenSession {
    /// Takes over a session that was opened with `editor`, and that has one of the places for sessions.
    pub fn new(
        session: Session,
        editor: Arc<Editor>,
        root: PathBuf,
        mode: ApplyMode,
        slot: OwnedSemaphorePermit,
    ) -> Arc<Self> {
        let interrupt = session.conversation.interrupt();
        editor.known_as(session.id().clone(), interrupt.clone());
        Arc::new(Self {
            editor,
            root,
            interrupt,
            is_busy: AtomicBool::new(false),
            mode: Lock::new(mode),
            kept: Lock::default(),
            proposals: AtomicU64::new(0),
            has_title: AtomicBool::new(session.is_resumed()),
            commands: Lock::new(super::commands::available(&[])),
            startup: Arc::clone(session.startup()),
            first_network: options::network_value(&session.startup().gateway().rules()),
            has_cost_limit: session.conversation.has_cost_limit(),
            model: Lock::new(session.conversation.model_name().to_owned()),
            models: Lock::default(),
            pending: Lock::default(),
            _slot: slot,
            session: Mutex::new(session),
        })
    }

    /// Returns the mode in which changes are written.
    pub fn mode(&self) -> ApplyMode {
        *self.mode.lock()
    }

    /// Sets when changes are written.
    pub fn set_mode(&self, mode: ApplyMode) {
        *self.mode.lock() = mode;
    }

    /// Its settings, as clients offer them.
    pub fn options(&self) -> Value {
        let gateway = self.startup.gateway();
        let current = Current {
            apply: self.mode(),
            model: self.model.lock().clone(),
            models: self.models.lock().clone(),
            network: (!gateway.is_full()).then(|| gateway.rules()),
            first_network: self.first_network.clone(),
        };
        current.list()
    }

    /// Learns which models there are.
    pub fn offer_models(&self, models: Vec<String>) {
        *self.models.lock() = models;
    }

    /// Notes that the model was changed to the one of this name.
    pub(super) fn model_is(&self, name: &str) {
        name.clone_into(&mut self.model.lock());
    }

    /// Changes a setting. A prompt that is being worked on keeps its model.
    pub async fn set_option(&self, id: &str, value: &str, opener: &dyn Opener) -> Result<()> {
        match id {
            APPLY => {
                let mode = ApplyMode::parse(value);
                self.set_mode(mode.ok_or_else(|| Error::usage("the value of apply is ask, auto or never"))?);
            }
            MODEL if value.trim().is_empty() => return Err(Error::usage("the value of model is a name")),
            MODEL => {
                let model = opener.model(value).await?;
                if self.has_cost_limit {
                    model.check_price()?;
                }
                self.model_is(value);
                self.pending.lock().model = Some(model);
            }
            NETWORK => self.set_network(value).await?,
            _ => return Err(Error::usage("there is no such option: there are apply, model and network")),
        }
        Ok(())
    }

    async fn set_network(&self, value: &str) -> Result<()> {
        let gateway = self.startup.gateway();
        if gateway.is_full() {
            return Err(Error::usage("the sandbox has the engine's network: there is no list to change"));
        }
        let mut changed = Ok(());
        gateway.change(|rules| changed = options::set_network(rules, value));
        changed?;
        if let Some(ready) = self.startup.if_ready() {
            gateway.attach(&ready.sandbox).await?;
        }
        let words = options::network_value(&gateway.rules());
        let note = format!("The user changed what the sandbox may reach: {words}.");
        self.pending.lock().note = Some(note);
        Ok(())
    }

    /// Returns whether the user keeps exactly these changes in the sandbox.
    pub(super) fn is_kept(&self, changes: &ChangeSet) -> bool {
        self.kept.lock().as_ref() == Some(changes)
    }

    pub(super) fn keep(&self, changes: ChangeSet) {
        *self.kept.lock() = Some(changes);
    }

    pub(super) fn next_proposal(&self) -> String {
        format!("apply-{}", self.proposals.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Begins a prompt. An earlier cancellation does not count for it, and a later one does.
    ///
    /// # Errors
    /// One is being worked on.
    pub fn begin(&self) -> Result<(), ErrorObject> {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            let message = "a prompt of this session is being worked on: wait for its end, or cancel it";
            return Err(ErrorObject::new(INVALID_REQUEST, message));
        }
        self.interrupt.reset();
        Ok(())
    }

    /// Stops the prompt that is being worked on.
    pub fn cancel(&self) {
        self.interrupt.trigger(Stop::Interrupted);
    }

    /// Works on a prompt that was begun.
    pub async fn prompt(&self, params: &Value, opener: &dyn Opener) -> Result<Value, ErrorObject> {
        let result = async {
            let prompt = Prompt::read(params.get("prompt").unwrap_or(&Value::Null), &self.root);
            let prompt = prompt.map_err(Error::usage)?;
            let mut session = self.session.lock().await;
            let mut work = Work { owner: self, session: &mut session, opener };
            let result = work.run(prompt).await;
            self.editor.settle().await.and(result)
        };
        let result = result.await;
        let answer = self.answer(result).await;
        self.is_busy.store(false, Ordering::Release);
        answer
    }

    /// Answers with the stop reason of a prompt, in the protocol's words. A cancelled one is never an error.
    async fn answer(&self, result: Result<()>) -> Result<Value, ErrorObject> {
        let limit = self.editor.take_limit();
        let reason = match result {
            _ if matches!(self.interrupt.reason(), Some(Stop::Interrupted | Stop::Terminated)) => "cancelled",
            Ok(()) => "end_turn",
            Err(error) if error.kind() == Kind::Limit => {
                let text = format!("\n\n{}", with_hint(&error));
                let session = self.session.lock().await;
                // That it ended so is in the answer as well.
                let _ = self.editor.update(session.id(), chunk("agent_message_chunk", "limit", &text)).await;
                match limit.as_deref() {
                    Some("turns" | "repetition" | "bad_calls") => "max_turn_requests",
                    _ => "max_tokens",
                }
            }
            Err(error) => return Err(error_object(&error)),
        };
        Ok(json!({ "stopReason": reason }))
    }

    /// Ends the session, and its sandbox unless that is kept.
    pub async fn close(&self) {
        self.cancel();
        let session = self.session.lock().await;
        let ended: Result<()> = Ok(());
        // The client has gone, or does not want to hear of it any more.
        let _ = session.finish(&ended).await;
    }
}

impl Work<'_> {
    async fn run(&mut self, prompt: Prompt) -> Result<()> {
        let result = self.run_prompt(prompt).await;
        self.announce_prompts().await.and(result)
    }

    /// Lists the commands again where the prompts of MCP servers are others than the client knows.
    async fn announce_prompts(&self) -> Result<()> {
        let prompts = self.session.servers().prompts();
        let commands = super::commands::available(&prompts);
        if std::mem::replace(&mut *self.owner.commands.lock(), commands.clone()) == commands {
            return Ok(());
        }
        self.update(commands).await
    }

    async fn run_prompt(&mut self, mut prompt: Prompt) -> Result<()> {
        let Pending { model, note } = std::mem::take(&mut *self.owner.pending.lock());
        if let Some(model) = model {
            self.session.set_model(model)?;
        }
        if let Some(note) = note {
            self.session.conversation.note(&note)?;
        }
        let of_server = match super::commands::of_server(&prompt.text) {
            Some((name, arguments)) => Some(self.prompt_of_server(name, arguments).await?),
            None => None,
        };
        let is_of_server = of_server.is_some();
        if let Some(text) = of_server {
            prompt.text = text;
        } else if let Some(command) = super::commands::parse(&prompt.text) {
            let (command, interrupt) = (command?, self.owner.interrupt.clone());
            if command.writes_files() {
                return self.command(command).await;
            }
            return tokio::select! {
                biased;
                stop = interrupt.triggered() => Err(stop.error()),
                done = self.command(command) => done,
            };
        }
        if !self.owner.has_title.swap(true, Ordering::Relaxed) {
            let title = one_line(&prompt.text, TITLE);
            self.update(json!({ "sessionUpdate": "session_info_update", "title": title })).await?;
        }
        if self.session.conversation.takes_images() {
            for picture in prompt.pictures {
                self.session.conversation.attach_image(picture);
            }
        } else if !prompt.pictures.is_empty() {
            let model = one_line(self.session.conversation.model_name(), 100);
            self.say(&format!("{model} is not sent pictures; if it takes them, write `images = true` below [models.{model:?}] in config.toml\n\n")).await?;
        }
        prompt.text.push_str(&prompt.behind);
        // A server does not choose which files are sent.
        let result = match is_of_server {
            true => self.session.prompt_of_program(&prompt.text).await,
            false => self.session.prompt(&prompt.text).await,
        };
        if self.owner.interrupt.reason() == Some(Stop::OutOfTime) {
            // It has ended this prompt, and the user is still to be asked about what it changed.
            self.owner.interrupt.reset();
        }
        let (used, size) = self.session.conversation.context();
        if let Some(size) = size {
            self.update(json!({ "sessionUpdate": "usage_update", "used": used, "size": size })).await?;
        }
        match result {
            // What it has changed until then is there to be decided about.
            Err(error) if error.kind() == Kind::Limit => self.propose().await.and(Err(error)),
            Err(error) => Err(error),
            Ok(_) => self.propose().await,
        }
    }

    /// Waits for `work`, unless the turn is cancelled meanwhile.
    pub(super) async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            stop = self.owner.interrupt.triggered() => Err(stop.error()),
            result = work => result,
        }
    }

    /// Sends an update.
    pub(super) async fn update(&self, update: Value) -> Result<()> {
        self.owner.editor.update(self.session.id(), update).await
    }

    /// Shows text that is not the model's.
    pub(super) async fn say(&self, text: &str) -> Result<()> {
        self.update(chunk("agent_message_chunk", "agent", text)).await
    }

    /// Tells the client when changes are written from now on.
    pub(super) async fn mode_changed(&self) -> Result<()> {
        let mode = self.owner.mode();
        self.update(json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode.id() })).await?;
        self.options_changed().await
    }

    /// Tells the client what the settings are now.
    pub(super) async fn options_changed(&self) -> Result<()> {
        let options = self.owner.options();
        self.update(json!({ "sessionUpdate": "config_option_update", "configOptions": options })).await
    }
}
