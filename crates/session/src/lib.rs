//! A session as a library: built from plain data, driven by a [`Frontend`].
//!
//! Nothing here, and nothing that it calls, reads the command line, the environment, the current directory or a terminal:
//! what describes this machine is a [`Machine`](agent_base::machine::Machine), which the caller passes.

mod answer_schema;
mod builder;
mod check_sandbox;
mod checkpoints;
mod checks;
mod delegate;
mod environment;
mod facts;
mod fork;
mod frontend;
pub mod hooks;
mod mcp;
mod mentions;
mod observer;
mod one_shot;
mod plan;
mod ports;
mod project_setup;
mod resume;
mod server_sandbox;
mod settings;
mod snapshot;
mod startup;
mod waits;

pub use answer_schema::AnswerSchema;
pub use builder::{Builder, Notice, Start};
pub use checkpoints::Checkpoints;
pub use checks::CheckRules;
pub use delegate::Origin;
pub use fork::{Fork, fork};
pub use frontend::{Frontend, Step};
pub use mcp::CheckSite;
pub use mentions::MAX_IMAGE;
pub use observer::Observer;
pub use one_shot::{OneShot, attach};
pub use ports::Ports;
pub use project_setup::{LOCK_FILES, ProjectSetup, forget_setups};
pub use resume::{Resume, check_workspace};
pub use settings::{
    Governance, ModelSettings, NetworkOrigin, Retention, SandboxSettings, Starts, WorkspaceSettings,
};
pub use startup::{Population, Ready, Startup};

use agent_base::error::{Error, Kind, Result};
use agent_base::exit_code::ExitCode;
use agent_core::{Answer, Conversation, Skills, Spent, Stop, Window};
use agent_event::{Changes, Event};
use agent_log::{History, SessionId, Store, read_records};
use agent_mcp::client::Servers;
use agent_sandbox::{Network, with_inside_paths};
use agent_tools::Plan;
use agent_workspace::notices::listed;
use agent_workspace::tree_path::TreePath;
use agent_workspace::{AddedDirectory, ChangeSet};
use agent_workspace::{Refreshed, Restored};
use delegate::Delegate;
use hooks::{Hooks, Moment, Said};
use mcp::SessionServers;
use serde_json::{Value, json};
use snapshot::NotedSnapshot;
use std::sync::Arc;

/// Files that a notice or note names.
const NAMED: usize = 20;

/// An open session: a conversation, and the sandbox that it works in.
pub struct Session {
    /// The conversation.
    pub conversation: Conversation,
    id: SessionId,
    startup: Arc<Startup>,
    checkpoints: Arc<Checkpoints>,
    frontend: Arc<dyn Frontend>,
    store: Store,
    workspace: WorkspaceSettings,
    sandbox: SandboxSettings,
    skills: Skills,
    plan: Arc<Plan>,
    hooks: Arc<Hooks>,
    servers: SessionServers,
    /// Set if the hooks of its start have run.
    begun: bool,
    /// The tool that delegates; `None` if its model may not.
    delegate: Option<Arc<Delegate>>,
    resumed: bool,
    ports: Arc<Ports>,
    /// The facts about what the endpoint does not accept, as they are stored.
    learned: Option<Value>,
}

impl Session {
    /// Works on one prompt until the model answers.
    pub async fn prompt(&mut self, text: &str) -> Result<Answer> {
        self.begin().await?;
        self.follow_host().await?;
        self.offer_servers().await?;
        let text = &*with_inside_paths(text, &*self.sandbox.backend, &self.workspace.root);
        self.attach(text).await?;
        let answer = self.conversation.turn(text).await;
        self.keep_learned();
        answer
    }

    /// Works on a prompt that a program wrote: an MCP server, or a command around texts of others. An `@` in it names nothing: which
    /// files are sent is the user's choice.
    pub async fn prompt_of_program(&mut self, text: &str) -> Result<Answer> {
        self.begin().await?;
        self.follow_host().await?;
        self.offer_servers().await?;
        let answer = self.conversation.turn_of_server(text).await;
        self.keep_learned();
        answer
    }

    /// Notes for a resume what the endpoint turned out not to take in this prompt.
    fn keep_learned(&mut self) {
        let learned = self.conversation.learned();
        if learned != self.learned {
            // What could not be kept is learned again.
            let _ = learned.as_ref().map(|learned| self.store.keep_learned(&self.id, learned));
            self.learned = learned;
        }
    }

    /// Runs the hooks of the session's start before its first prompt.
    async fn begin(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let details = json!({ "model": self.conversation.model_name(), "resumed": self.resumed });
        let interrupt = self.conversation.interrupt();
        let said = tokio::select! {
            biased;
            stop = interrupt.triggered() => Err(stop.error()),
            said = self.run_hooks(Moment::SessionStart, details) => said?.or_refuse("the session"),
        };
        match said {
            Ok(output) if output.is_empty() => Ok(()),
            Ok(output) => {
                self.conversation.note(&format!("A hook of the user's says at the start:\n{output}"))
            }
            Err(error) => {
                // Neither is the next prompt worked on.
                self.begun = false;
                Err(error)
            }
        }
    }

    /// Runs the hooks before changes are written to the user's files.
    ///
    /// # Errors
    /// One of them refuses it.
    pub async fn before_apply(&self, changes: &ChangeSet) -> Result<()> {
        self.run_hooks(Moment::BeforeApply, hooks::of_apply(changes)).await?.or_refuse("the apply").map(drop)
    }

    /// The MCP servers whose tools its model may call.
    pub fn servers(&self) -> &Servers {
        &self.servers.all
    }

    /// The user's hooks.
    pub fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    async fn run_hooks(&self, moment: Moment, details: Value) -> Result<Said> {
        if !self.hooks.has(moment, None) {
            return Ok(Said::default());
        }
        // The end of a session that needed no sandbox needs none either.
        let may_start = moment != Moment::SessionEnd || self.startup.has_begun();
        let ready = match may_start && self.hooks.needs_sandbox(moment, None) {
            true => self.startup.ready().await.ok(),
            false => None,
        };
        self.hooks.run(moment, None, details, ready.as_ref().map(|ready| &ready.sandbox)).await
    }

    /// Brings the sandbox up to date with the user's edits since the last prompt, and tells user and model.
    async fn follow_host(&mut self) -> Result<()> {
        let ready = match self.startup.if_ready() {
            Some(ready) => ready,
            // It has the files of an earlier process. A fresh one gets those of now.
            None if self.startup.is_reattached().await => self.startup.ready().await?,
            None => return Ok(()),
        };
        if let Err(error) = self.startup.show_anew(&ready.workspace, true).await {
            self.frontend.events().emit(Event::Notice { text: format!("{error}.") })?;
        }
        let refreshed = ready.workspace.refresh(&ready.sandbox).await;
        self.prepare_prompt();
        let Refreshed { followed, merged, conflicts, withheld } = match refreshed {
            Ok(refreshed) => refreshed,
            // What the user added since, and the sandbox is not to see, may be visible.
            Err(error) if ready.workspace.shows_host().await => {
                let hint = format!(
                    "`agent sandbox rm {}` ends the sandbox, and the next prompt has a new one with all that the session changed",
                    self.id
                );
                return Err(error.hint(hint));
            }
            Err(error) => {
                let text = format!("The host's files could not be compared with the sandbox's: {error}.");
                return self.frontend.events().emit(Event::Notice { text });
            }
        };
        if let Some(text) = withheld {
            self.frontend.events().emit(Event::Notice { text })?;
        }
        let names = |paths: &[TreePath]| listed(paths.iter().map(ToString::to_string), NAMED);
        if let Some(names) = names(&followed) {
            self.conversation
                .note(&format!("The user changed these files, and the sandbox has them: {names}."))?;
        }
        if let Some(names) = names(&merged) {
            self.conversation.note(&format!(
                "The user edited these files too, and the sandbox has both changes merged: {names}."
            ))?;
            self.frontend
                .events()
                .emit(Event::Notice { text: format!("merged with your edits: {names}") })?;
        }
        if let Some(names) = names(&conflicts) {
            let text =
                format!("Changed on the host and in the sandbox, which keeps its own version: {names}.");
            self.conversation.note(&text)?;
            self.conversation.note("Until then, the sandbox's branch does not follow the user's commits.")?;
            let hint = "An apply merges what can be merged, or reports a conflict.";
            self.frontend.always_notice(format!("{text} {hint}"))?;
        }
        Ok(())
    }

    /// Compares the host's tree with what the sandbox has, in the background and once that is up, so that the next prompt
    /// need not wait for it. For sessions whose user is about to write one.
    pub fn prepare_prompt(&self) {
        let startup = Arc::clone(&self.startup);
        tokio::spawn(async move {
            if startup.has_begun()
                && let Ok(ready) = startup.ready_silently().await
            {
                // What fails is tried again, and reported, by the next prompt.
                let _ = ready.workspace.prepare_refresh().await;
            }
        });
    }

    /// Undoes the last `prompts` prompts, as [`Checkpoints::undo`] does, and discards what tools keep between calls: it belongs
    /// to what was undone.
    pub async fn undo(&self, prompts: usize) -> Result<Option<(Restored, usize)>> {
        let undone = self.checkpoints.undo(prompts).await?;
        if undone.is_some() {
            self.conversation.discard_tool_state().await?;
        }
        Ok(undone)
    }

    /// Goes back to before a prompt: the conversation, and the workspace with all that commands did in it. What the user
    /// wrote, and what was restored. `None` where the conversation does not hold that prompt any more.
    pub async fn rewind(&mut self, prompt: u64) -> Result<Option<(String, Option<Restored>)>> {
        if !self.conversation.prompts().iter().any(|(number, _)| *number == prompt) {
            return Ok(None);
        }
        let restored = self.checkpoints.undo_to(prompt).await?;
        if restored.is_some() {
            self.conversation.discard_tool_state().await?;
        }
        Ok(self.conversation.rewind(prompt)?.map(|text| (text, restored)))
    }

    /// Changes the model.
    ///
    /// # Errors
    /// The session's cost is limited, and the model has no price.
    pub fn set_model(&mut self, model: ModelSettings) -> Result<()> {
        if self.conversation.has_cost_limit() {
            model.check_price()?;
        }
        let window = Window::new(model.context_window, model.compaction);
        self.conversation.set_model(Arc::clone(&model.client), model.price, window);
        if let Some(delegate) = &self.delegate {
            *delegate.model.lock() = model;
        }
        Ok(())
    }

    /// Closes the session after its last prompt, with that prompt's result, and emits `session_finished`.
    pub async fn finish<T>(&self, result: &Result<T>) -> Result<()> {
        finish(&*self.frontend, Some(self), result).await
    }

    /// Returns what programs missed of the network, for a user who was not asked and did not say that there is to be none.
    fn missed_network(&self) -> Option<String> {
        let gateway = self.startup.gateway();
        let SandboxSettings { network, network_origin, .. } = &self.sandbox;
        let is_meant = *network == Network::None && *network_origin == NetworkOrigin::Call;
        if is_meant || gateway.asks_about_all() { None } else { gateway.missed() }
    }

    /// Its id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The directories that it sees beside its workspace.
    pub fn added(&self) -> &[AddedDirectory] {
        &self.sandbox.added
    }

    /// Its sandbox.
    pub fn startup(&self) -> &Arc<Startup> {
        &self.startup
    }

    /// The skills that the model knows of.
    pub fn skills(&self) -> &Skills {
        &self.skills
    }

    /// Returns what listens in its sandbox.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Returns whether its sandbox, with what runs there, ends with it.
    pub fn ends_its_sandbox(&self) -> bool {
        self.sandbox.retention == Retention::Remove
    }

    /// Returns what undoes and redoes its prompts.
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Returns whether an earlier process began it.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// The number of files that it has changed so far, applied or not.
    pub async fn changes(&self) -> Result<Changes> {
        match self.startup.if_ready() {
            Some(ready) => ready.workspace.all_changes().await,
            None => Ok(Changes::default()),
        }
    }

    /// A second session from the state of this one: its conversation, its workspace and `$HOME` of its sandbox.
    pub async fn fork(&self) -> Result<Fork> {
        let prompts = History::of(&read_records(&self.store.events(&self.id))?).prompts;
        let running = self.startup.if_ready().map(|ready| fork::Running {
            backend: Arc::clone(self.startup.backend()),
            sandbox: ready.sandbox.clone(),
            machine: Arc::clone(&self.workspace.machine),
        });
        fork::fork_with(&self.store, &self.id, prompts, running).await
    }

    /// So many forks of the session as it is now. What its sandbox holds is read once, or copied by its backend for each.
    ///
    /// # Errors
    /// As [`fork()`]; there is none then.
    pub async fn forks(&self, count: usize) -> Result<Vec<SessionId>> {
        let mut forks = Vec::new();
        for _ in 0..count {
            let fork = match forks.first() {
                None => self.fork().await,
                Some(first) if NotedSnapshot::of(&self.store, first).is_none() => {
                    fork::fork_unstarted(&self.store, first).await
                }
                // Each has a copy at the provider of its own.
                Some(_) => self.fork().await,
            };
            match fork {
                Ok(fork) => forks.push(fork.id),
                Err(error) => {
                    // What is left of them is listed and can be removed.
                    for fork in &forks {
                        drop(self.store.remove(fork));
                        drop(self.startup.backend().destroy(fork.as_str()).await);
                    }
                    return Err(error);
                }
            }
        }
        Ok(forks)
    }

    /// Ends the session's connections, and its sandbox unless that is kept.
    async fn close(&self) {
        self.servers.all.end().await;
        self.startup.gateway().end().await;
        let keeps = match self.sandbox.retention {
            // It is created for the next process even if no tool ran. A failure was reported if a tool needed it.
            Retention::Keep { .. } if self.conversation.interrupt().reason() == Some(Stop::Terminated) => {
                self.startup.if_ready().is_some()
            }
            Retention::Keep { .. } => self.startup.ready().await.is_ok(),
            Retention::Remove => self.startup.is_reattached().await,
        };
        if !keeps {
            self.startup.end().await;
        }
    }
}

/// Closes a session that ended with `result`, and emits `session_finished`: also for one that could not be opened.
pub async fn finish<T>(frontend: &dyn Frontend, session: Option<&Session>, result: &Result<T>) -> Result<()> {
    let (mut total, mut cost, mut changes) = (Spent::default(), None, Changes::default());
    let mut delegated = None;
    if let Some(session) = session {
        delegated = Some(session.conversation.delegated()).filter(|delegated| delegated.turns > 0);
        let details =
            json!({ "status": status(result), "error": result.as_ref().err().map(ToString::to_string) });
        // Its result counts, and not what they make of it.
        let _ = session.run_hooks(Moment::SessionEnd, details).await;
        (total, cost) = (session.conversation.total(), session.conversation.cost());
        if let Some(text) = session.missed_network() {
            frontend.events().emit(Event::Notice { text })?;
        }
        changes = session.changes().await.unwrap_or_default();
        session.close().await;
    }
    let code = result.as_ref().map_or_else(Error::exit_code, |_| ExitCode::Success);
    frontend.events().emit(Event::SessionFinished {
        status: status(result).to_owned(),
        exit_code: code.code(),
        turns: total.turns,
        usage: total.usage,
        cost,
        delegated: delegated.map(|delegated| delegated.usage),
        changes,
        error: result.as_ref().err().map(ToString::to_string),
    })
}

/// The word for a result in `session_finished`.
pub fn status<T>(result: &Result<T>) -> &'static str {
    match result.as_ref().map_err(Error::kind) {
        Ok(_) => "completed",
        Err(Kind::Interrupted) => "interrupted",
        Err(Kind::Terminated) => "terminated",
        Err(Kind::Limit) => "limit",
        Err(Kind::Check) => "check_failed",
        Err(Kind::Difference) => "differs",
        Err(Kind::Conflict) => "conflict",
        Err(_) => "failed",
    }
}
