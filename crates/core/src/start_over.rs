//! A small model that keeps failing repeats its own mistakes as long as it reads them. It works on the prompt again, from the beginning.

use super::progress::{Failures, Progress};
use super::{Conversation, asked};
use agent_base::error::Result;
use agent_event::CallForm;
use agent_event::Event;
use agent_model::Message;
use agent_model::compact::JOB_STARTED;
use std::sync::atomic::Ordering;

/// How often the model works on one prompt.
const MAX_ATTEMPTS: u32 = 3;
/// Failures of one command, and of all steps, after which it starts over.
const MAX_FAILURES_OF_COMMAND: usize = 3;
const MAX_FAILURES: usize = 7;
/// Doubts about what programs print, after which it starts over.
const MAX_DOUBTS: usize = 2;

impl Conversation {
    /// Puts the conversation and the workspace back to where the user's prompt was sent, where the model is a small one and has not had
    /// all its attempts. Whether it did.
    ///
    /// # Errors
    /// An event cannot be written, or the workspace cannot be put back.
    pub async fn start_over(&mut self) -> Result<bool> {
        let is_possible = self.setup.model.form() == CallForm::Compact
            && self.attempt < MAX_ATTEMPTS
            && self.interrupt.reason().is_none()
            && self.spent_on_prompt().reached(&self.setup.limits).is_none()
            && !has_job(&self.messages)
            && self.prompts.holds(self.task_prompt, &self.messages);
        // Not interrupted: half of it would be neither the one state nor the other.
        if !is_possible || !self.setup.environment.restore(self.task_prompt).await? {
            self.progress.failures = Failures::default();
            return Ok(false);
        }
        self.attempt += 1;
        self.emit(Event::StartedOver { prompt: self.task_prompt, attempt: self.attempt })?;
        self.discard_tool_state().await?;
        self.messages.edit(|messages| self.prompts.back_to(self.task_prompt, messages));
        self.progress = Progress::default();
        self.knows_files.store(self.messages.len() > 2, Ordering::Relaxed);
        self.window.recount(&self.messages);
        Ok(true)
    }

    /// Whether the model is a small one, a change or a calculation is asked for, and the steps fail again and again.
    pub(super) fn keeps_failing(&self) -> bool {
        let failures = &self.progress.failures;
        // A failure that the prompt is about is seen once before it is corrected.
        let may_fail = MAX_FAILURES_OF_COMMAND + usize::from(asked::expects_failure(&self.task));
        let is_over = failures.all >= MAX_FAILURES
            || failures.most_of_one_command() >= may_fail
            || failures.doubts >= MAX_DOUBTS;
        let makes_something = asked::asks_for_change(&self.task) || asked::is_calculation(&self.task);
        is_over && self.setup.model.form() == CallForm::Compact && makes_something
    }
}

/// Whether a job was started, which would run on beside another attempt.
fn has_job(messages: &[Message]) -> bool {
    let is_start =
        |message: &Message| matches!(message, Message::Tool { text, .. } if text.starts_with(JOB_STARTED));
    messages.iter().any(is_start)
}
