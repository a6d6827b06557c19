//! The turn loop's view of its session.

use super::checkpoints::Checkpoints;
use super::hooks::{self, Hooks, Said};
use super::ports::Ports;
use super::startup::Startup;
use agent_base::error::{Kind, Result};
use agent_core::{Environment, Moment};
use agent_policy::policy::Action;
use agent_sandbox::{Sandbox, WorkspaceMount};
use agent_tools::{Plan, Reach, ToolResult};
use agent_workspace::notices::listed;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;

/// Withheld files that the model is shown by name.
const NAMED: usize = 20;

/// The sandbox, the checkpoints and the plan of a session.
pub(super) struct SessionEnvironment {
    pub startup: Arc<Startup>,
    pub checkpoints: Arc<Checkpoints>,
    pub plan: Arc<Plan>,
    pub hooks: Arc<Hooks>,
    pub ports: Arc<Ports>,
}

impl SessionEnvironment {
    async fn run_hooks(&self, moment: hooks::Moment, tool: &str, details: Value) -> Result<Said> {
        let tool = Some(tool);
        if !self.hooks.has(moment, tool) {
            return Ok(Said::default());
        }
        let sandbox = match self.hooks.needs_sandbox(moment, tool) {
            true => Some(self.sandbox().await?),
            false => None,
        };
        self.hooks.run(moment, tool, details, sandbox.as_ref()).await
    }
}

impl Reach for SessionEnvironment {
    fn reach<'a>(&'a self, hosts: &'a [&'a str], purpose: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        self.startup.reach(hosts, purpose)
    }
}

impl Environment for SessionEnvironment {
    fn sandbox(&self) -> BoxFuture<'_, Result<Sandbox>> {
        async { Ok(self.plan.sandbox(self.startup.ready().await?.sandbox.clone())) }.boxed()
    }

    fn explain(&self, output: &str) -> Option<String> {
        self.startup.gateway().explain(output)
    }

    fn about_files(&self) -> BoxFuture<'_, Option<String>> {
        async {
            let ready = self.startup.if_ready()?;
            let withheld = ready.workspace.withheld_secrets().await.ok()?;
            let names = listed(withheld.iter().map(ToString::to_string), NAMED)?;
            Some(format!(
                "[note from agent: files of the workspace that look like secrets are not in the sandbox: {names}. Do not \
                 create them; the user can copy them with --include]"
            ))
        }
        .boxed()
    }

    fn refusal(&self, action: Option<&Action<'_>>) -> Option<String> {
        // A server on the host could write to the user's files.
        let may_write = matches!(action, Some(Action::Write { .. } | Action::Tool { is_on_host: true, .. }));
        (may_write && self.plan.is_read_only()).then(|| {
            "error: the workspace is read-only until the user accepts the plan; answer with the plan"
                .to_owned()
        })
    }

    fn before_tool<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        async move {
            let details = json!({ "tool": tool, "arguments": arguments });
            Ok(self.run_hooks(hooks::Moment::BeforeTool, tool, details).await?.blocked)
        }
        .boxed()
    }

    fn after_tool<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Value,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        async move {
            let ToolResult { ok, exit_code, text, .. } = result;
            let details =
                json!({ "tool": tool, "arguments": arguments, "ok": ok, "exit_code": exit_code, "result": text });
            Ok(self.run_hooks(hooks::Moment::AfterTool, tool, details).await?.blocked)
        }
        .boxed()
    }

    fn checkpoint(&self, prompt: u64, moment: Moment) -> BoxFuture<'_, Result<()>> {
        async move {
            self.checkpoints.after(prompt, moment).await?;
            self.ports.report_new().await
        }
        .boxed()
    }

    fn restore(&self, prompt: u64) -> BoxFuture<'_, Result<bool>> {
        async move {
            let Some(ready) = self.startup.if_ready() else { return Ok(true) };
            if matches!(ready.workspace.mount().await, WorkspaceMount::Bind(_)) {
                // What the user has written into it meanwhile would be undone as well.
                return Ok(false);
            }
            match self.checkpoints.undo_to(prompt).await {
                Err(error) if error.kind() == Kind::Usage => Ok(false),
                restored => restored.map(|_| true),
            }
        }
        .boxed()
    }
}
