//! Beginning the work on a prompt anew: a model that keeps failing repeats its own mistakes as long as it reads them.

use super::Conversation;
use super::assist::NewPrompt;
use agent_base::error::Result;
use agent_event::Event;
use agent_model::Message;
use agent_model::compact::JOB_STARTED;
use std::sync::atomic::Ordering;

impl Conversation {
    /// Puts the conversation and the workspace back to where the task was given, and returns whether that was possible.
    ///
    /// # Errors
    /// An event cannot be written, or the workspace cannot be put back.
    pub(super) async fn start_over(&mut self) -> Result<bool> {
        let is_possible = self.interrupt.reason().is_none()
            && self.spent_on_prompt().reached(&self.setup.limits).is_none()
            && !has_job(&self.messages)
            && self.prompts.holds(self.task_prompt, &self.messages);
        // Not interrupted: half of it would be neither the one state nor the other.
        if !is_possible || !self.setup.environment.restore(self.task_prompt).await? {
            return Ok(false);
        }
        self.attempt += 1;
        self.emit(Event::StartedOver { prompt: self.task_prompt, attempt: self.attempt })?;
        self.discard_tool_state().await?;
        self.messages.edit(|messages| self.prompts.back_to(self.task_prompt, messages));
        self.knows_files.store(self.messages.len() > 2, Ordering::Relaxed);
        self.window.recount(&self.messages);
        // It reads what was sent with the prompt once more.
        self.put(NewPrompt::Again).await?;
        Ok(true)
    }
}

/// Returns whether a job was started, which would run on beside another attempt.
fn has_job(messages: &[Message]) -> bool {
    let is_start =
        |message: &Message| matches!(message, Message::Tool { text, .. } if text.starts_with(JOB_STARTED));
    messages.iter().any(is_start)
}
