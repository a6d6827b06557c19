//! A session: a conversation, a model, a sandbox, and the events of what happens.

use super::checkpoints::Pace;
use crate::agent::{Interrupt, Price, RunLimits, SandboxFacts, Spent, Startup, Window, system_prompt};
use crate::approval::policy::Gate;
use crate::error::Result;
use crate::event::{Event, Events, Usage};
use crate::model::{ChatModel, Message};
use crate::sandbox::Sandbox;
use crate::tools::{Bounds, Registry};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// What a session is made of.
pub struct Setup {
    /// Who answers.
    pub model: Arc<dyn ChatModel>,
    /// Where everything that happens is said.
    pub events: Arc<Events>,
    /// The sandbox on its way.
    pub startup: Arc<Startup>,
    /// The tools that the model may call.
    pub tools: Registry,
    /// The bounds of tools.
    pub bounds: Bounds,
    /// What ends a wish.
    pub limits: RunLimits,
    /// Judges every call before it runs.
    pub gate: Gate,
    /// What the model's tokens cost.
    pub price: Option<Price>,
    /// The model's context window.
    pub window: Window,
    /// A JSON Schema that the final answer has to satisfy.
    pub answer_schema: Option<Value>,
}

/// A conversation that goes on.
pub struct Session {
    pub(super) setup: Setup,
    pub(super) messages: Vec<Message>,
    pub(super) interrupt: Interrupt,
    pub(super) window: Window,
    pub(super) pace: Pace,
    /// Spent on the wish under way; limits look at this.
    pub(super) spent: Spent,
    /// Spent over the whole session.
    pub(super) total: Spent,
}

/// What an earlier process left of a session.
pub struct Earlier {
    /// The conversation, without its system prompt.
    pub messages: Vec<Message>,
    /// What was spent on it.
    pub spent: Spent,
    /// How often the person said something.
    pub wishes: u64,
}

/// The model's answer to a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text, Markdown usually.
    pub text: String,
}

impl Session {
    /// A new conversation, with the system prompt for its sandbox and workspace.
    pub fn new(setup: Setup, facts: &SandboxFacts, workspace: &Path) -> Self {
        let system = Message::System { text: system_prompt(facts, workspace) };
        Self {
            window: setup.window,
            pace: Pace::default(),
            setup,
            messages: vec![system],
            interrupt: Interrupt::default(),
            spent: Spent::default(),
            total: Spent::default(),
        }
    }

    /// Takes up what an earlier process left.
    pub fn go_on(&mut self, earlier: Earlier) {
        self.messages.extend(earlier.messages);
        self.total = earlier.spent;
        self.pace.wish = earlier.wishes;
    }

    /// The handle that stops the turn under way.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// The session's sandbox, waited for.
    pub async fn sandbox(&self) -> Result<Sandbox> {
        Ok(self.setup.startup.ready().await?.sandbox.clone())
    }

    /// What the session has spent.
    pub fn total(&self) -> Spent {
        self.total
    }

    /// The tokens that the session has used.
    pub fn usage(&self) -> Usage {
        self.total.usage
    }

    /// The model's name.
    pub fn model_name(&self) -> &str {
        self.setup.model.name()
    }

    /// The models that the endpoint offers.
    pub async fn models(&self) -> Result<Vec<String>> {
        self.setup.model.models().await
    }

    /// Lets another model answer from now on.
    pub fn set_model(&mut self, model: Arc<dyn ChatModel>, price: Option<Price>, window: Window) {
        self.setup.model = model;
        self.setup.price = price;
        self.window = window;
    }

    /// The conversation so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Forgets the conversation; sandbox and workspace stay as they are.
    ///
    /// # Errors
    /// It cannot be written down; then nothing is forgotten.
    pub fn clear(&mut self) -> Result<()> {
        self.emit(Event::Cleared {})?;
        self.messages.truncate(1);
        Ok(())
    }

    /// Where everything that happens is said.
    pub fn events(&self) -> &Events {
        &self.setup.events
    }

    pub(super) fn emit(&self, event: Event) -> Result<()> {
        self.setup.events.emit(event)
    }
}
