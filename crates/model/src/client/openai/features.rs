//! What a request has that an endpoint may not understand, and how it is asked without.

use super::{OpenAi, has_answer};
use crate::client::failure::{Failure, Feature, Reason};
use crate::client::{schema, wire};
use crate::protocol::Protocol;
use crate::{ChatModel, Message, OnProgress, Progress, Request, ToolSpec};
use agent_event::CallForm;
use std::collections::HashSet;
/// Tokens of an answer that every model of Messages takes.
const SMALL_MAX_TOKENS: u32 = 4_096;

impl OpenAi {
    pub(super) fn wire_form(&self, refused: &HashSet<Feature>) -> wire::Form<'_> {
        let (endpoint, provider) = (&self.endpoint, self.endpoint.provider);
        let is_refused = |feature| refused.contains(&feature);
        let max_tokens = match (self.max_tokens(), is_refused(Feature::MaxTokens), endpoint.protocol) {
            (tokens, false, _) => tokens.map(|tokens| ("max_tokens", tokens)),
            (tokens, true, Protocol::Messages) => {
                Some(("max_tokens", tokens.unwrap_or(SMALL_MAX_TOKENS).min(SMALL_MAX_TOKENS)))
            }
            (tokens, true, _) => tokens.map(|tokens| ("max_completion_tokens", tokens)),
        };
        wire::Form {
            model: &endpoint.model,
            base_url: &endpoint.base_url,
            stream: !is_refused(Feature::Streaming),
            stream_options: provider.stream_options && !is_refused(Feature::StreamOptions),
            max_tokens,
            temperature: self.temperature().filter(|_| !is_refused(Feature::Temperature)),
            top_p: endpoint.top_p.filter(|_| !is_refused(Feature::TopP)),
            reasoning_effort: endpoint.reasoning_effort.as_deref().filter(|_| !is_refused(Feature::Effort)),
            reasoning_budget: endpoint.reasoning_budget.filter(|_| !is_refused(Feature::Effort)),
            extras: wire::Extras {
                cache_key: !is_refused(Feature::CacheKey),
                encrypted: !is_refused(Feature::EncryptedReasoning),
                summaries: !is_refused(Feature::Summaries),
                adaptive: !is_refused(Feature::AdaptiveThinking),
            },
            body: &endpoint.body,
            manner: wire::Manner {
                protocol: endpoint.protocol,
                no_reasoning: endpoint.protocol != Protocol::Chat && is_refused(Feature::Reasoning),
                cache_marks: endpoint.protocol == Protocol::Messages && !is_refused(Feature::CacheMarks),
                reasoning_echo: match (provider.reasoning_echo, is_refused(Feature::Reasoning)) {
                    (echo, false) => echo,
                    // It was refused where it was sent, or missed where it was not.
                    (Some(_), true) => None,
                    (None, true) => Some("reasoning_content"),
                },
                short_ids: is_refused(Feature::CallIds),
                no_images: is_refused(Feature::Images),
                plain_schemas: endpoint.takes_plain_schemas_only() || is_refused(Feature::FullSchemas),
            },
        }
    }

    /// Gives up what the endpoint did not understand, for the session. `false` where there is nothing to give up.
    pub(super) fn do_without(
        &self,
        failure: &Failure,
        request: &Request<'_>,
        on_progress: OnProgress<'_>,
    ) -> bool {
        let is_chat = self.is_chat();
        let feature = match failure.reason {
            // There signatures belong to the reasoning, which can be left out.
            Reason::Unsupported(Feature::UnsignedCalls) if !is_chat => Feature::Reasoning,
            Reason::Unsupported(feature) => feature,
            // An endpoint whose model has answered before does stream; then the model said nothing.
            Reason::Empty if !has_answer(request.messages) => Feature::Streaming,
            _ => return false,
        };
        if !self.was_used(feature, request) || !self.refused.lock().insert(feature) {
            return false;
        }
        let instead = instead_of(feature, is_chat);
        on_progress(Progress::Notice(&format!("{instead} ({})", failure.message)));
        true
    }

    pub(super) fn is_chat(&self) -> bool {
        self.endpoint.protocol == Protocol::Chat
    }

    /// Returns whether the request has the feature, so that leaving it out changes something.
    fn was_used(&self, feature: Feature, request: &Request<'_>) -> bool {
        let is_chat = self.is_chat();
        match feature {
            Feature::Tools => !request.tools.is_empty(),
            Feature::AnswerSchema => request.answer_schema.is_some() || self.form() == CallForm::Compact,
            Feature::Temperature => self.temperature().is_some(),
            Feature::MaxTokens => self.max_tokens().is_some() || self.endpoint.protocol == Protocol::Messages,
            Feature::Effort => {
                self.endpoint.reasoning_effort.is_some() || self.endpoint.reasoning_budget.is_some()
            }
            Feature::Summaries => !is_chat && self.endpoint.reasoning_effort.is_some(),
            Feature::AdaptiveThinking => {
                self.endpoint.protocol == Protocol::Messages && self.endpoint.reasoning_effort.is_some()
            }
            Feature::TopP => self.endpoint.top_p.is_some(),
            Feature::CacheKey | Feature::EncryptedReasoning => self.endpoint.protocol == Protocol::Responses,
            Feature::CacheMarks => self.endpoint.protocol == Protocol::Messages,
            Feature::Reasoning if !is_chat => request
                .messages
                .iter()
                .any(|message| matches!(message, Message::Assistant { opaque, .. } if !opaque.is_empty())),
            Feature::CallIds => has_call(request.messages),
            Feature::Images => self.encoded.lock().has_images(),
            Feature::FullSchemas => {
                let is_plain = |tool: &ToolSpec| schema::plain(&tool.parameters) == *tool.parameters;
                !self.endpoint.takes_plain_schemas_only() && !request.tools.iter().all(is_plain)
            }
            // There may be more of them later: after a resume, for example.
            Feature::UnsignedCalls if !self.write_unsigned_calls_as_text(request.messages) => false,
            Feature::UnsignedCalls => {
                self.refused.lock().remove(&feature);
                true
            }
            Feature::SystemRole => {
                is_chat && request.messages.iter().any(|message| matches!(message, Message::System { .. }))
            }
            Feature::Streaming | Feature::StreamOptions | Feature::Reasoning => true,
        }
    }

    /// Notes the calls that the endpoint misses a signature of; all of them, where none lacks one. `false` if there are none that
    /// are not written as text already.
    fn write_unsigned_calls_as_text(&self, messages: &[Message]) -> bool {
        let mut as_text = self.as_text.lock();
        let of_rounds = |only_unsigned: bool| {
            messages.iter().filter_map(move |message| match message {
                Message::Assistant { tool_calls, opaque, .. } => {
                    let opaque = opaque.of(&self.endpoint.model, &self.endpoint.base_url);
                    let signed = opaque.is_some_and(|opaque| !opaque.calls.is_empty());
                    Some(tool_calls).filter(|_| !(only_unsigned && signed))
                }
                _ => None,
            })
        };
        let before = as_text.len();
        for only_unsigned in [true, false] {
            as_text.extend(of_rounds(only_unsigned).flatten().map(|call| call.id.clone()));
            if as_text.len() > before {
                return true;
            }
        }
        false
    }
}

fn has_call(messages: &[Message]) -> bool {
    messages
        .iter()
        .any(|message| matches!(message, Message::Assistant { tool_calls, .. } if !tool_calls.is_empty()))
}

/// The messages with what the system says in front of the first prompt, for templates that have no such role.
pub fn without_system_role(messages: &[Message]) -> Vec<Message> {
    let (mut system, mut written) = (Vec::new(), Vec::with_capacity(messages.len()));
    for message in messages {
        match message {
            Message::System { text } => system.push(text.as_str()),
            Message::User { text } if !system.is_empty() => {
                let text = format!("{}\n\n{text}", system.join("\n\n"));
                system.clear();
                written.push(Message::User { text });
            }
            other => written.push(other.clone()),
        }
    }
    if !system.is_empty() {
        written.insert(0, Message::User { text: system.join("\n\n") });
    }
    written
}

/// Tells what happens in place of a feature that the endpoint did not understand.
fn instead_of(feature: Feature, is_chat: bool) -> &'static str {
    match feature {
        Feature::Streaming => "the endpoint does not stream: answers come in one piece from now on",
        Feature::StreamOptions => "the endpoint does not take stream_options: token counts may be missing",
        Feature::Tools => "the endpoint does not take tools: they are described in the prompt from now on",
        Feature::AnswerSchema => {
            "the endpoint does not take an answer schema: the answer is only checked here"
        }
        Feature::Temperature => "the endpoint does not take a temperature: it is left out from now on",
        Feature::MaxTokens if is_chat => "the endpoint takes max_completion_tokens in place of max_tokens",
        Feature::MaxTokens => "the endpoint takes fewer tokens of an answer: fewer are asked for from now on",
        Feature::Effort => {
            "the endpoint does not take how much the model shall think: it is left out from now on"
        }
        Feature::Summaries => {
            "the endpoint does not summarise the reasoning: no summaries are asked for from now on"
        }
        Feature::AdaptiveThinking => "the model takes a budget for its thinking, and gets one from now on",
        Feature::TopP => "the endpoint does not take top_p: it is left out from now on",
        Feature::CacheKey => "the endpoint does not take prompt_cache_key: it is left out from now on",
        Feature::CacheMarks => {
            "the endpoint does not take marks for its prompt cache: they are left out from now on"
        }
        Feature::EncryptedReasoning => {
            "the model has no encrypted reasoning: it is not asked for from now on"
        }
        Feature::Reasoning if !is_chat => {
            "the endpoint refuses earlier reasoning: it is left out from now on"
        }
        Feature::Reasoning => "the endpoint wants reasoning handled differently in the conversation",
        Feature::CallIds => "the endpoint does not take the ids of the calls: they are rewritten from now on",
        Feature::UnsignedCalls => {
            "the endpoint misses signatures of earlier calls: those calls are sent as text"
        }
        Feature::Images => {
            "the endpoint refuses an image: images are left out of this conversation from now on"
        }
        Feature::SystemRole => {
            "the endpoint does not take a system message: it stands before the first prompt from now on"
        }
        Feature::FullSchemas => {
            "the endpoint does not take the schema of a tool: schemas are simplified from now on"
        }
    }
}
