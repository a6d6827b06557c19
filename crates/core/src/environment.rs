//! The interface that the turn loop needs from its session.

use agent_base::error::Result;
use agent_policy::policy::Action;
use agent_sandbox::Sandbox;
use agent_tools::{Reach, ToolResult};
use futures_util::future::BoxFuture;
use serde_json::Value;

/// The environment in which the tools of a conversation run.
pub trait Environment: Reach {
    /// The sandbox, once it is up.
    fn sandbox(&self) -> BoxFuture<'_, Result<Sandbox>>;

    /// Returns what the model should know about the network beside a tool's `output`: programs seldom show why the proxy refused a
    /// connection.
    fn explain(&self, output: &str) -> Option<String>;

    /// Returns what the model should know about the sandbox's files, once it has used them: asked for beside the first result.
    fn about_files(&self) -> BoxFuture<'_, Option<String>>;

    /// Returns the reason why this action is not possible now, for the model; `None` if it is.
    fn refusal(&self, _action: Option<&Action<'_>>) -> Option<String> {
        None
    }

    /// Runs what the user has set to run before a tool. Why the call must not run, for the model.
    fn before_tool<'a>(
        &'a self,
        _tool: &'a str,
        _arguments: &'a Value,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        Box::pin(async { Ok(None) })
    }

    /// Runs what the user has set to run after a tool. What the model should know of it.
    fn after_tool<'a>(
        &'a self,
        _tool: &'a str,
        _arguments: &'a Value,
        _result: &'a ToolResult,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        Box::pin(async { Ok(None) })
    }

    /// Records the workspace as it is after work on the session's prompt number `prompt`.
    fn checkpoint(&self, prompt: u64, moment: Moment) -> BoxFuture<'_, Result<()>>;

    /// Puts the workspace back to before the session's prompt number `prompt`. Whether that is possible: not where the earlier files
    /// are not kept any more, or the user works in the same directory.
    fn restore(&self, prompt: u64) -> BoxFuture<'_, Result<bool>>;
}

/// The moment at which a checkpoint is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Between two requests to the model: only where it is cheap, so that a crash loses little.
    BetweenTurns,
    /// At the end of the work on a prompt.
    AtEnd,
}
