//! One request to the model, and what is reported of it.

use super::Conversation;
use agent_base::error::Result;
use agent_event::{Event, Events};
use agent_model::{Message, Progress, Reply, Request};

impl Conversation {
    /// One request to the model; its message becomes part of the conversation.
    pub(super) async fn ask(&mut self) -> Result<Reply> {
        self.emit(Event::TurnStarted { turn: self.total.turns + 1 })?;
        let request = Request {
            messages: &self.messages,
            tools: self.setup.tools.specs(),
            answer_schema: self.setup.answer_schema.as_ref(),
            attempt: self.attempt,
        };
        let (events, model) = (&self.setup.events, self.setup.model.name());
        let (mut emitted, arrived) = (Ok(()), &mut self.arrived);
        arrived.clear();
        let mut on_progress = |progress: Progress<'_>| {
            match progress {
                Progress::Text(text) => arrived.push_str(text),
                Progress::Retry { .. } => arrived.clear(),
                _ => {}
            }
            if emitted.is_ok() {
                emitted = report(events, model, progress);
            }
        };
        let mut reply = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            reply = self.setup.model.ask(request, &mut on_progress) => reply?,
        };
        emitted?;
        if reply.is_cut_off()
            && let Some(usage) = reply.usage.as_mut().filter(|usage| usage.input == 0)
        {
            // An answer that was stopped has no count of the server's.
            usage.input = self.window.used(&self.messages);
        }
        self.arrived.clear();
        self.turns += 1;
        self.setup.shared.prompt.add(reply.usage, self.setup.price);
        self.total.add(reply.usage, self.setup.price);
        if let Some(usage) = reply.usage {
            self.window.count(usage.input, &self.messages);
            if let Some(text) = self.cache.add(usage) {
                self.emit(Event::Notice { text })?;
            }
        }
        self.emit(Event::AssistantMessage {
            text: reply.text.clone(),
            reasoning: reply.reasoning.clone(),
            tool_calls: reply.tool_calls.clone(),
            finish_reason: reply.finish_reason.clone(),
            usage: reply.usage,
            opaque: reply.opaque.clone(),
        })?;
        self.messages.push(Message::Assistant {
            text: reply.text.clone(),
            reasoning: reply.reasoning.clone(),
            tool_calls: reply.tool_calls.clone(),
            opaque: reply.opaque.clone(),
        });
        Ok(reply)
    }
}

/// Turns the model's progress into events.
pub(super) fn report(events: &Events, model: &str, progress: Progress<'_>) -> Result<()> {
    events.emit(match progress {
        Progress::Text(text) => Event::TextDelta { text: text.to_owned() },
        Progress::Reasoning(text) => Event::ReasoningDelta { text: text.to_owned() },
        Progress::Notice(text) => Event::Notice { text: text.to_owned() },
        Progress::Form { form, reason } => {
            events.emit(Event::Notice {
                text: format!("tools are offered in the {form} form: {reason} ([models.NAME] form in config.toml sets it)"),
            })?;
            Event::CallForm { model: model.to_owned(), form, reason: reason.to_owned() }
        }
        Progress::Retry { attempt, wait, reason } => {
            Event::Retry { attempt, wait_ms: wait.as_millis() as u64, reason: reason.to_owned() }
        }
    })
}
