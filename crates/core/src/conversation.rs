//! A conversation with a model.

use super::assist::Assist;
use super::environment::Environment;
use crate::Interrupt;
use crate::Price;
use crate::RunLimits;
use crate::SandboxFacts;
use crate::Shared;
use crate::Spent;
use crate::Window;
use crate::cache_watch::CacheWatch;
use crate::system_prompt;
use agent_base::error::Result;
use agent_base::secret_scan;
use agent_base::visible::without_tags;
use agent_event::Artifact;
use agent_event::Event;
use agent_event::Events;
use agent_log::Artifacts;
use agent_model::ChatModel;
use agent_model::Message;
use agent_model::Messages;
use agent_model::Request;
use agent_model::dialogue;
use agent_model::dialogue::Notes;
use agent_model::prompted::Prompts;
use agent_policy::policy::Gate;
use agent_tools::Bounds;
use agent_tools::Registry;
use agent_tools::Tool;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The parts of a conversation.
pub struct Setup {
    /// The model.
    pub model: Arc<dyn ChatModel>,
    /// The session's bus.
    pub events: Arc<Events>,
    /// The environment in which tools run.
    pub environment: Arc<dyn Environment>,
    /// The help for the model.
    pub assist: Arc<dyn Assist>,
    /// The tools that the model may call.
    pub tools: Registry,
    /// The store of files that tools produce.
    pub artifacts: Artifacts,
    /// The bounds of tools.
    pub bounds: Bounds,
    /// The limits that end the work on one prompt.
    pub limits: RunLimits,
    /// Judges every call before it runs.
    pub gate: Arc<Gate>,
    /// The budgets that the sessions which the model delegates to share with this one.
    pub shared: Shared,
    /// The price of the model's tokens.
    pub price: Option<Price>,
    /// The model's context window.
    pub window: Window,
    /// A JSON Schema that the final answer has to satisfy.
    pub answer_schema: Option<Value>,
}

/// A conversation that can be continued.
pub struct Conversation {
    pub(super) setup: Setup,
    pub(super) messages: Messages,
    /// The prompts that can be gone back to.
    pub(super) prompts: Prompts,
    /// The number of the last task, which follow-ups are about, and how often the model has begun to work on it.
    pub(super) task_prompt: u64,
    pub(super) attempt: u32,
    /// Notes that the model gets with the next prompt.
    pub(super) notes: Notes,
    /// Images that the next prompt names, as `data:` URLs.
    pub(super) images: Vec<String>,
    /// The text that has arrived of the message that the model is writing.
    pub(super) arrived: String,
    /// Set if the model knows what its files are.
    pub(super) knows_files: AtomicBool,
    pub(super) interrupt: Interrupt,
    pub(super) window: Window,
    /// The record of what the endpoint reads from its cache.
    pub(super) cache: CacheWatch,
    /// The prompt under way, or the last one, counting from 1 over the whole session.
    pub(super) prompt: u64,
    /// Requests that were answered for the prompt under way.
    pub(super) turns: u64,
    /// Spent over the whole session, but for what sessions have spent that this process delegated to.
    pub(super) total: Spent,
    /// Set if the endpoint ends every answer as if a call followed.
    pub(super) announces_always: bool,
}

/// The conversation of an earlier process.
pub struct Earlier {
    /// The conversation, without its system prompt.
    pub messages: Vec<Message>,
    /// The artifacts of tool calls, by the call, oldest first.
    pub artifacts: Vec<(String, Artifact)>,
    /// Notes that the model gets with the next prompt.
    pub notes: Notes,
    /// Its cost.
    pub spent: Spent,
    /// The number of prompts that the session has had.
    pub prompts: u64,
    /// Those that can be gone back to.
    pub prompted: Prompts,
}

/// The final answer to a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text, Markdown usually.
    pub text: String,
}

impl Conversation {
    /// A new conversation, with the system prompt for its sandbox and workspace.
    pub fn new(setup: Setup, facts: &SandboxFacts, workspace: &Path) -> Self {
        let system = Message::System { text: system_prompt(facts, workspace, setup.bounds.redact_secrets) };
        Self {
            window: setup.window,
            cache: CacheWatch::default(),
            interrupt: setup.shared.interrupt.clone(),
            setup,
            messages: vec![system].into(),
            prompts: Prompts::default(),
            task_prompt: 0,
            attempt: 1,
            notes: Notes::default(),
            images: Vec::new(),
            arrived: String::new(),
            knows_files: AtomicBool::new(false),
            prompt: 0,
            turns: 0,
            total: Spent::default(),
            announces_always: false,
        }
    }

    /// Restores the conversation of an earlier process.
    pub fn resume(&mut self, mut earlier: Earlier) {
        // They may have been recorded while secrets were not replaced.
        for message in &mut earlier.messages {
            if let Message::Tool { text, .. } = message
                && let Some(redacted) = secret_scan::redact(text).filter(|_| self.bounds().redact_secrets)
            {
                *text = redacted.text;
            }
        }
        self.messages.edit(|messages| messages.extend(earlier.messages));
        self.send_earlier_images(earlier.artifacts);
        self.notes = earlier.notes;
        self.total = earlier.spent;
        self.prompt = earlier.prompts;
        self.prompts = earlier.prompted;
    }

    /// The handle that stops the turn under way.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Returns what the session has spent, with the sessions that its model delegated to. Their requests are not turns of it.
    pub fn total(&self) -> Spent {
        let (mut total, delegated) = (self.total, self.delegated());
        total.usage.add(delegated.usage);
        Spent { cost: total.cost + delegated.cost, ..total }
    }

    /// Returns what sessions have spent that its model delegated to since it was opened.
    pub fn delegated(&self) -> Spent {
        self.setup.shared.delegated.spent()
    }

    /// The session's cost, where prices are configured.
    pub fn cost(&self) -> Option<f64> {
        self.setup.price.map(|_| self.total().cost)
    }

    /// Tells the model with the next prompt what happened since the last one.
    ///
    /// # Errors
    /// The event cannot be written; then the model does not learn of it.
    pub fn note(&mut self, text: &str) -> Result<()> {
        let text = self.redacted(dialogue::bounded(text));
        self.emit(Event::Note { text: text.clone() })?;
        self.notes.push(&text);
        Ok(())
    }

    /// Asks the model something beside the conversation, which stays as it is. It counts as spent.
    ///
    /// # Errors
    /// The model could not be asked, or the user interrupted it.
    pub async fn ask_beside(&mut self, messages: &Messages) -> Result<String> {
        let request = Request::plain(messages);
        let mut ignore = |_: agent_model::Progress<'_>| {};
        let reply = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            reply = self.setup.model.ask(request, &mut ignore) => reply?,
        };
        self.total.add_usage(reply.usage, self.setup.price);
        Ok(reply.text)
    }

    /// Discards what tools keep in the sandbox between calls, because the workspace was put back to an earlier state.
    ///
    /// # Errors
    /// The event that reports it cannot be written.
    pub async fn discard_tool_state(&self) -> Result<()> {
        for text in self.setup.tools.discard_state().await {
            self.emit(Event::Notice { text })?;
        }
        Ok(())
    }

    /// Offers a tool to the model from the next request on, unless it is there already.
    ///
    /// # Errors
    /// The name is not valid.
    pub fn offer(&mut self, tool: Arc<dyn Tool>) -> Result<()> {
        match self.setup.tools.get(tool.name()) {
            Some(_) => Ok(()),
            None => self.setup.tools.add(tool),
        }
    }

    /// Changes the tools that the model is offered from the next request on.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change_tools(&mut self, change: impl FnOnce(&mut Registry) -> Result<()>) -> Result<()> {
        change(&mut self.setup.tools)
    }

    /// Adds what the next prompt names with `@`; the caller bounds it.
    ///
    /// # Errors
    /// The event cannot be written; then the model does not read it.
    pub fn attach(&mut self, name: &str, text: &str) -> Result<()> {
        let text = self.redacted(text.to_owned());
        self.emit(Event::Attached { name: name.to_owned(), text: text.clone() })?;
        self.notes.attach(name, &text);
        Ok(())
    }

    /// Adds an image, as a `data:` URL, that the next prompt names.
    pub fn attach_image(&mut self, url: String) {
        self.images.push(url);
    }

    /// Returns whether the model is sent images.
    pub fn takes_images(&self) -> bool {
        self.setup.model.takes_images()
    }

    /// `text` without secrets, unless the user wants them to be sent.
    pub(super) fn redacted(&self, text: String) -> String {
        match self.setup.bounds.redact_secrets {
            true => without_tags(secret_scan::redact(&text).map_or(text, |redacted| redacted.text)),
            false => without_tags(text),
        }
    }

    /// The bounds of one tool call.
    pub fn bounds(&self) -> Bounds {
        self.setup.bounds
    }

    /// Tokens that the conversation takes, partly estimated, and those that fit into the model's context window, where that
    /// is known.
    pub fn context(&self) -> (u64, Option<u64>) {
        let size = self.window.size.or_else(|| self.setup.model.context_window());
        (self.window.used(&self.messages), size)
    }

    /// The model's name.
    pub fn model_name(&self) -> &str {
        self.setup.model.name()
    }

    /// Returns what the model's endpoint turned out not to take.
    pub fn learned(&self) -> Option<Value> {
        self.setup.model.learned()
    }

    /// The models that the endpoint offers.
    pub async fn models(&self) -> Result<Vec<String>> {
        self.setup.model.models().await
    }

    /// Changes the model.
    pub fn set_model(&mut self, model: Arc<dyn ChatModel>, price: Option<Price>, window: Window) {
        self.setup.model = model;
        self.setup.price = price;
        self.window = window;
        self.cache.restart();
    }

    /// Returns the price of a million of its tokens, where that is configured.
    pub fn price(&self) -> Option<Price> {
        self.setup.price
    }

    /// Returns whether what its prompts cost is limited.
    pub fn has_cost_limit(&self) -> bool {
        self.setup.limits.cost.is_some()
    }

    /// Clears the conversation; sandbox and workspace are unchanged.
    ///
    /// # Errors
    /// The event cannot be written; then nothing is cleared.
    pub fn clear(&mut self) -> Result<()> {
        self.emit(Event::Cleared {})?;
        self.cache.restart();
        self.messages.edit(|messages| messages.truncate(1));
        self.prompts.clear();
        self.knows_files.store(false, Ordering::Relaxed);
        self.notes.clear();
        Ok(())
    }

    /// The prompts that the conversation still holds, oldest first: their numbers and what the user wrote.
    pub fn prompts(&self) -> Vec<(u64, String)> {
        let found = self.prompts.found(&self.messages).into_iter();
        found.map(|(prompted, _)| (prompted.prompt, prompted.text.clone())).collect()
    }

    /// Goes back to before a prompt, and returns what the user wrote. `None` where the conversation does not hold it any
    /// more.
    ///
    /// # Errors
    /// The event cannot be written; then nothing is changed.
    pub fn rewind(&mut self, prompt: u64) -> Result<Option<String>> {
        if !self.prompts().iter().any(|(number, _)| *number == prompt) {
            return Ok(None);
        }
        self.emit(Event::Rewound { prompt })?;
        self.cache.restart();
        let text = self.messages.edit(|messages| self.prompts.rewind(prompt, messages));
        self.knows_files.store(self.messages.len() > 1, Ordering::Relaxed);
        self.window.recount(&self.messages);
        Ok(text)
    }

    pub(super) fn emit(&self, event: Event) -> Result<()> {
        self.setup.events.emit(event)
    }
}
