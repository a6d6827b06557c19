//! Texts that become part of a conversation at the beginning and at the end of a prompt.

use super::Conversation;
use agent_base::error::{Error, Kind, Result};
use agent_event::Event;
use agent_model::Message;
use agent_model::dialogue::{self, awaits_answer, well_formed};

impl Conversation {
    pub(super) fn add_prompt(&mut self, text: &str) -> Result<()> {
        self.emit(Event::UserMessage { text: text.to_owned() })?;
        let written = text;
        let text = self.notes.before(text);
        self.prompts.push(self.prompt, written, &text);
        let images = std::mem::take(&mut self.images);
        if !images.is_empty() {
            self.setup.model.add_images(&text, images);
        }
        self.messages.push(Message::User { text });
        Ok(())
    }

    /// Ends a prompt that failed so that the next one can follow: what had arrived of the answer is kept, with the reason.
    pub(super) fn keep_stopped(&mut self, error: &Error) -> Result<()> {
        let text = std::mem::take(&mut self.arrived);
        if !awaits_answer(&self.messages) {
            // A call may lack its result if that could not be recorded.
            self.close_gaps();
            return Ok(());
        }
        let reason = match error.kind() {
            Kind::Interrupted => "the user stopped this answer here".to_owned(),
            Kind::Terminated => "the session was ended here".to_owned(),
            _ => format!("this ended here without an answer: {error}"),
        };
        self.messages.push(dialogue::stopped(&text, &reason));
        self.close_gaps();
        self.emit(Event::AnswerStopped { text, reason })
    }

    fn close_gaps(&mut self) {
        let formed = well_formed(self.messages.to_vec());
        if formed[..] != self.messages[..] {
            self.messages = formed.into();
        }
    }
}
