//! The model endpoint: what is asked, what comes back, and who answers.

pub mod client;
pub mod compact;
mod described;
pub mod dialogue;
mod ending;
pub mod endpoint;
mod limiter;
mod listed;
mod messages;
mod price;
pub mod probe;
pub mod prompted;
mod protocol;
pub mod providers;
pub mod replayed;
pub mod results;
pub mod size;
pub mod tool_calls;

pub use client::{Facts, OWN_FIELDS, OpenAi, plain_without_null};
pub use ending::Ending;
pub use endpoint::{Endpoint, KeySource, Secret};
pub use limiter::{Limiter, Slot};
pub use listed::{ListedModel, listed};
pub use messages::Messages;
pub use price::{Costs, Price};
pub use protocol::Protocol;
pub use replayed::Replayed;

use agent_base::error::Result;
use agent_event::{CallForm, Opaque, ToolCall, Usage};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// One message of the conversation, free of any wire format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// The instructions; always first.
    System {
        /// The text.
        text: String,
    },
    /// A prompt of the user's.
    User {
        /// The text.
        text: String,
    },
    /// The model.
    Assistant {
        /// The text; may be empty beside tool calls.
        text: String,
        /// The reasoning, kept for the providers that want it echoed.
        reasoning: Option<String>,
        /// The tools it asked for.
        tool_calls: Vec<ToolCall>,
        /// Fields that go back to the endpoint as they came.
        #[serde(default, skip_serializing_if = "Opaque::is_empty")]
        opaque: Opaque,
    },
    /// A tool's answer.
    Tool {
        /// The id of the call it answers.
        id: String,
        /// The tool's name.
        name: String,
        /// The result.
        text: String,
    },
}

impl Message {
    /// Bytes of its text, its reasoning and its calls.
    pub fn bytes(&self) -> usize {
        match self {
            Self::System { text } | Self::User { text } | Self::Tool { text, .. } => text.len(),
            Self::Assistant { text, reasoning, tool_calls, .. } => {
                let calls = tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
                text.len() + reasoning.as_ref().map_or(0, String::len) + calls.sum::<usize>()
            }
        }
    }
}

/// A tool as it is described to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name.
    pub name: String,
    /// Its description for the model, from `prompts/`.
    pub description: String,
    /// The JSON Schema of its arguments. Shared, so that specifications are copied and compared without it.
    pub parameters: Arc<Value>,
}

/// A request to the model.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The whole conversation. What was sent of it before is not encoded again.
    pub messages: &'a Messages,
    /// The tools that may be called; the same in every request of a session, so that prompt caches hit.
    pub tools: &'a [ToolSpec],
    /// A JSON Schema that the final answer has to satisfy, where one was asked for.
    pub answer_schema: Option<&'a Value>,
    /// The attempt at the prompt that this is part of, counting from 1: from the second one on, an answer as before is of
    /// no use.
    pub attempt: u32,
}

impl<'a> Request<'a> {
    /// A request for an answer in plain text.
    pub fn plain(messages: &'a Messages) -> Self {
        Self { messages, tools: &[], answer_schema: None, attempt: 1 }
    }
}

/// The model's answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// The text.
    pub text: String,
    /// The reasoning, where there is some.
    pub reasoning: Option<String>,
    /// The tools it asks for, ids unique and not empty.
    pub tool_calls: Vec<ToolCall>,
    /// The reason why it stopped, in the endpoint's word.
    pub finish_reason: Option<String>,
    /// Tokens, where the endpoint says.
    pub usage: Option<Usage>,
    /// Fields that go back to the endpoint as they came.
    pub opaque: Opaque,
}

impl Reply {
    /// Returns the kind of its end.
    pub fn ending(&self) -> Ending {
        Ending::of(self.finish_reason.as_deref().unwrap_or_default())
    }

    /// Returns whether it ended to have tools called and calls none: the call was lost on its way.
    pub fn lacks_calls(&self) -> bool {
        self.tool_calls.is_empty() && self.finish_reason.as_deref().is_some_and(ending::wants_calls)
    }

    /// Returns whether the answer was cut off at the token limit.
    pub fn is_cut_off(&self) -> bool {
        self.ending() == Ending::CutOff
    }
}

/// A step of an answer that is under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress<'a> {
    /// A piece of the answer.
    Text(&'a str),
    /// A piece of the reasoning.
    Reasoning(&'a str),
    /// The request failed and will be tried again; nothing of the broken answer counts.
    Retry {
        /// Counts from 1.
        attempt: u32,
        /// The time until then.
        wait: Duration,
        /// The reason, in words.
        reason: &'a str,
    },
    /// Something the user should know, a fallback for example.
    Notice(&'a str),
    /// The form of the tool calls from now on.
    Form {
        /// The form.
        form: CallForm,
        /// The reason why it was chosen.
        reason: &'a str,
    },
}

/// The receiver of progress.
pub type OnProgress<'a> = &'a mut (dyn FnMut(Progress<'_>) + Send);

/// A model that can be asked: an endpoint, or a recording of one.
pub trait ChatModel: Send + Sync {
    /// Asks and waits for the whole answer. Dropping the future gives the request up.
    ///
    /// Retries are made inside and shown as [`Progress::Retry`]. Errors are of kind `Endpoint`,
    /// `Config` or `ContextOverflow`.
    fn ask<'a>(&'a self, request: Request<'a>, on_progress: OnProgress<'a>) -> BoxFuture<'a, Result<Reply>>;

    /// The names of the models that the endpoint offers.
    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>>;

    /// The model's name.
    fn name(&self) -> &str;

    /// The model's context window in tokens, as far as it is known yet.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// Learns before the first request what decides about the form of the tool calls and about help, where that can be known by
    /// then.
    fn decide_form<'a>(&'a self, _tools: &'a [ToolSpec], _on_progress: OnProgress<'a>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Returns the form in which tools are offered and calls are written, as far as that is decided.
    fn form(&self) -> CallForm {
        CallForm::Native
    }

    /// Returns whether the steps of its work are helped along, as far as that is decided: see the trait `Assist` of `agent-core`.
    fn is_assisted(&self) -> bool {
        false
    }

    /// Continues with the form that the session had.
    fn resume_form(&self, _form: CallForm) {}

    /// Returns what its endpoint turned out not to take, to be kept with the session; `None` where that is nothing.
    fn learned(&self) -> Option<Value> {
        None
    }

    /// Continues with what [`ChatModel::learned`] gave, where that was about the same model at the same endpoint.
    fn resume_learned(&self, _learned: &Value) {}

    /// The same model, for a second conversation at the same time. `None` where there can be only one: answers that were
    /// recorded.
    fn for_another_conversation(&self) -> Option<Arc<dyn ChatModel>> {
        None
    }

    /// Returns whether it takes images.
    fn takes_images(&self) -> bool {
        false
    }

    /// Adds images, as `data:` URLs, to the result of a call, or to the prompt with this text, before that is first sent.
    fn add_images(&self, _to: &str, _images: Vec<String>) {}
}
