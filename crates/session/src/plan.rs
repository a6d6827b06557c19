//! Planning first: the sandbox cannot change the workspace until the user accepts the plan.

use super::Session;
use agent_base::error::{Error, Result};
use agent_sandbox::{Command, Outcome, Program, Sandbox};
use agent_tools::{Plan, UpdatePlan};
use std::sync::Arc;
use std::time::Duration;

/// The text that tells the model that planning begins.
const BEGUN: &str = agent_prompts::PLAN;
const ACCEPTED: &str = "The user accepted the plan: the workspace can be changed now.";
const LEFT: &str = "The user wants no plan any more: the workspace can be changed now.";
/// The time limit for the attempt that shows whether this sandbox can be read-only.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

impl Session {
    /// The model's plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The sandbox, once it is there, for commands of the user's; while a plan waits, none of them changes the workspace.
    pub async fn sandbox(&self) -> Result<Sandbox> {
        Ok(self.plan.sandbox(self.startup.ready().await?.sandbox.clone()))
    }

    /// Makes the workspace read-only for everything that the model starts from now on, until the plan is accepted. What ran before
    /// ends: jobs, servers, and processes that commands left behind.
    ///
    /// # Errors
    /// The sandbox's kernel cannot do that.
    pub async fn begin_plan(&mut self) -> Result<()> {
        if self.plan.is_read_only() {
            return Ok(());
        }
        self.try_read_only().await?;
        // What runs already could write on, and do for others what they may not.
        self.conversation.discard_tool_state().await?;
        self.startup.ready().await?.sandbox.end_processes().await?;
        self.conversation.offer(Arc::new(UpdatePlan(Arc::clone(&self.plan))))?;
        self.plan.set_read_only(true, self.frontend.events())?;
        self.conversation.note(BEGUN.trim())
    }

    /// Makes the workspace read-only for as long as the session is open, without a plan.
    ///
    /// # Errors
    /// The sandbox's kernel cannot do that.
    pub async fn keep_read_only(&mut self) -> Result<()> {
        self.try_read_only().await?;
        self.plan.set_read_only(true, self.frontend.events())
    }

    /// Makes the workspace writable again because the user accepted the plan, or wants none any more.
    pub async fn end_plan(&mut self, accepted: bool) -> Result<()> {
        if !self.plan.is_read_only() {
            return Ok(());
        }
        // It was started for reading, and would stay so.
        self.conversation.discard_tool_state().await?;
        self.plan.set_read_only(false, self.frontend.events())?;
        self.conversation.note(if accepted { ACCEPTED } else { LEFT })
    }

    async fn try_read_only(&self) -> Result<()> {
        if self.sandbox.docker {
            let text = "containers of this sandbox could write to the workspace while it is read-only";
            return Err(Error::usage(text).hint("start the session without --allow-docker"));
        }
        if let Some(written) = self.added().iter().find(|added| !added.read_only) {
            return Err(Error::usage(format!(
                "{written} is written to beside the workspace, and only that can be kept as it is"
            ))
            .hint(format!("add it as {written}:ro")));
        }
        let sandbox = self.startup.ready().await?.sandbox.clone().read_only();
        let trial = Command {
            program: Program::Shell("true".to_owned()),
            cwd: None,
            env: Vec::new(),
            timeout: Some(TRIAL_TIMEOUT),
            live_bytes: 4096,
            stdin: false,
        };
        let impossible = |why: String| {
            Error::sandbox(format!("the workspace cannot be kept as it is: {why}"))
                .hint("ask for a plan or a review in a prompt; what the model changes is in its sandbox alone until you apply it")
        };
        match sandbox.run(trial, &mut |_| {}).await {
            Ok(finished) if finished.outcome == Outcome::Exited(0) => Ok(()),
            Ok(_) => Err(impossible("this sandbox cannot keep the workspace read-only".to_owned())),
            Err(error) => Err(impossible(error.to_string())),
        }
    }
}
