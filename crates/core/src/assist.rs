//! Help beside the conversation. The turn loop knows no kind of model: who helps one is asked at four moments, and decides by what was
//! done and what came of it.

use super::ask::report;
use super::conversation::Setup;
use agent_base::error::Result;
use agent_model::{Message, Progress, Reply};
use agent_sandbox::Sandbox;
use agent_tools::ToolResult;
use futures_util::future::BoxFuture;
use serde_json::Value;

/// Help for the model. Whatever is not implemented leaves everything as it is.
pub trait Assist: Send + Sync {
    /// A prompt is about to be added to the conversation.
    ///
    /// # Errors
    /// An event cannot be written.
    fn prompt<'a>(&'a self, _at: At<'a>, _prompt: NewPrompt<'a>) -> BoxFuture<'a, Result<PromptHelp>> {
        Box::pin(async { Ok(PromptHelp::default()) })
    }

    /// A call is about to run, which is allowed.
    fn before_call<'a>(&'a self, _at: At<'a>, _call: ToolUse<'a>) -> BoxFuture<'a, BeforeCall> {
        Box::pin(async { BeforeCall::Run })
    }

    /// A call has run, or could not be read.
    fn after_call<'a>(
        &'a self,
        _at: At<'a>,
        _call: ToolUse<'a>,
        _result: &'a ToolResult,
    ) -> BoxFuture<'a, AfterCall> {
        Box::pin(async { AfterCall::default() })
    }

    /// The model sent a message without a call. What it is asked instead of accepting that as its answer.
    fn answer(&self, _at: At<'_>, _reply: &Reply) -> Option<String> {
        None
    }
}

/// Nobody helps.
impl Assist for () {}

/// The state of a conversation.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// The setup that it is made of.
    pub setup: &'a Setup,
    /// Its messages.
    pub messages: &'a [Message],
}

impl At<'_> {
    /// The sandbox; `None` if it does not start, which the first step reports.
    pub async fn sandbox(&self) -> Option<Sandbox> {
        self.setup.environment.sandbox().await.ok()
    }

    /// Learns what is not known about the model yet, as far as that can be known before the first request.
    ///
    /// # Errors
    /// The event that reports it cannot be written.
    pub async fn learn_model(&self) -> Result<()> {
        let Setup { model, events, tools, .. } = self.setup;
        let mut emitted = Ok(());
        let mut on_progress = |progress: Progress<'_>| {
            if emitted.is_ok() {
                emitted = report(events, model.name(), progress);
            }
        };
        model.decide_form(tools.specs(), &mut on_progress).await;
        emitted
    }
}

/// The prompt that is put to the model.
#[derive(Debug, Clone, Copy)]
pub enum NewPrompt<'a> {
    /// A task.
    Task {
        /// As it was written.
        text: &'a str,
        /// Set if the user wrote it, and not a server.
        is_users: bool,
    },
    /// A further prompt about the task.
    FollowUp,
    /// A check of the task that failed.
    Check(&'a FailedCheck<'a>),
    /// The task once more, from its beginning.
    Again,
}

/// A check of the user's that failed.
#[derive(Debug, Clone, Copy)]
pub struct FailedCheck<'a> {
    /// Its command.
    pub command: &'a str,
    /// The outcome, in words.
    pub outcome: &'a str,
    /// Its output.
    pub output: &'a str,
}

/// The help with a prompt.
#[derive(Debug, Default)]
pub struct PromptHelp {
    /// The names and the texts of files that are sent with it.
    pub attached: Vec<(String, String)>,
    /// The text that is sent in its place.
    pub instead: Option<String>,
    /// Set if the work on it may be given up: the workspace is recorded before.
    pub may_start_over: bool,
    /// Set if the work on the task begins anew, where that is possible.
    pub starts_over: bool,
}

/// A call of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolUse<'a> {
    /// Its id.
    pub id: &'a str,
    /// The tool's name.
    pub tool: &'a str,
    /// The arguments; null where they cannot be read.
    pub arguments: &'a Value,
}

impl<'a> ToolUse<'a> {
    /// An argument that is a text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.arguments.get(name)?.as_str()
    }
}

/// The decision about a call before it runs.
#[derive(Debug)]
pub enum BeforeCall {
    /// It runs.
    Run,
    /// It runs with other arguments, which are judged as the model's are.
    Instead(Value),
    /// It does not run; this is its result.
    Refuse(String),
}

/// The consequences of a call that has run.
#[derive(Debug, Default)]
pub struct AfterCall {
    /// A note in its result beside what the tool says.
    pub note: String,
    /// Set if the work on the task begins anew, where that is possible.
    pub starts_over: bool,
}
