//! One attempt at one task.

use super::output::Output;
use super::result::{CheckOutcome, TaskResult, Work, seconds};
use super::scheduler::{Halt, Observer, Settings, Update};
use super::task::{Task, TaskLimits};
use super::workspace::Workspaces;
use crate::agent::{Budget, Governed, Interrupt, Price, RunLimits, Spent, Stop};
use crate::error::{Error, Kind, Result};
use crate::event::{Changes, Events, now};
use crate::log::SessionId;
use crate::session::{
    Builder, Governance, ModelSettings, SandboxSettings, Session, Starts, WorkspaceSettings, status,
};
use crate::workspace::git_patch;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often a check starts again whose sandbox failed.
const CHECK_STARTS: u32 = 3;
const CHECK_PAUSE: Duration = Duration::from_secs(2);

/// Gives each session a model of its own.
pub trait Models: Send + Sync {
    /// The model of this name, or the default one.
    ///
    /// # Errors
    /// There is no such model.
    fn settings(&self, name: Option<&str>) -> Result<ModelSettings>;
}

/// What all attempts share.
pub(super) struct Shared {
    pub settings: Settings,
    pub workspaces: Workspaces,
    pub output: Output,
    pub models: Arc<dyn Models>,
    pub budget: Arc<Budget>,
    pub observer: Arc<dyn Observer>,
    pub halt: Arc<watch::Sender<Halt>>,
}

/// How an attempt ended.
pub(super) enum Outcome {
    /// The task is done, well or not.
    Done(Box<TaskResult>),
    /// A failure that is not the task's own.
    Trouble(Trouble),
    /// The batch was stopped.
    Stopped,
}

/// A failure that is not the task's own.
pub(super) struct Trouble {
    pub error: Error,
    pub cause: Cause,
    /// What the result is if the task is not tried again.
    pub result: Box<TaskResult>,
}

/// What the failure means for other tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A sandbox did not start: others will not either, for a while.
    Start,
    /// The endpoint answered nothing, after all of its retries.
    Endpoint,
    /// Something failed that had worked before.
    Broken,
    /// Nothing can be written.
    Disk,
}

/// An attempt under way, and what it has so far.
pub(super) struct Attempt<'a> {
    shared: &'a Shared,
    task: &'a Task,
    number: u32,
    began: Instant,
    session: Option<SessionId>,
    model: String,
    price: Option<Price>,
    answer: String,
    check: Option<CheckOutcome>,
    spent: Spent,
    changes: Changes,
    patch: Option<String>,
    note: Option<String>,
    had_sandbox: bool,
}

impl<'a> Attempt<'a> {
    pub fn new(shared: &'a Shared, task: &'a Task, number: u32) -> Self {
        Self {
            shared,
            task,
            number,
            began: Instant::now(),
            session: None,
            model: task.model.clone().unwrap_or_default(),
            price: None,
            answer: String::new(),
            check: None,
            spent: Spent::default(),
            changes: Changes::default(),
            patch: None,
            note: None,
            had_sandbox: false,
        }
    }

    pub async fn run(mut self) -> Outcome {
        let mut halt = self.shared.halt.subscribe();
        let prepared = tokio::select! {
            prepared = self.shared.workspaces.prepare(self.task) => prepared,
            _ = stopped(&mut halt) => return Outcome::Stopped,
        };
        let result = match prepared {
            Ok(prepared) => {
                let result = self.in_session(&prepared.settings).await;
                prepared.remove().await;
                result
            }
            Err(error) => Err(error),
        };
        self.outcome(result)
    }

    async fn in_session(&mut self, workspace: &WorkspaceSettings) -> Result<()> {
        let mut model = self.shared.models.settings(self.task.model.as_deref())?;
        (self.model, self.price) = (model.client.name().to_owned(), model.price);
        let (observer, id) = (Arc::clone(&self.shared.observer), self.task.id.clone());
        model.client = Arc::new(Governed {
            model: model.client,
            price: model.price,
            budget: Arc::clone(&self.shared.budget),
            on_retry: Box::new(move |wait, reason| observer.on(Update::Retry { id: &id, wait, reason })),
        });
        let events = Arc::new(Events::new(1));
        let mut session = self.builder(workspace, model)?.open(Arc::new(events)).await?;
        self.session = Some(session.id().clone());
        let mut result = self.shared.output.begin(&self.task.id, session.id());
        if result.is_ok() {
            self.shared.observer.on(Update::Started { id: &self.task.id, session: session.id() });
            let interrupt = session.conversation.interrupt();
            let mut halt = self.shared.halt.subscribe();
            result = tokio::select! {
                result = self.work(&mut session) => result,
                never = forward(&mut halt, interrupt) => match never {},
            };
        }
        self.spent = session.conversation.total();
        self.had_sandbox = session.startup().if_ready().is_some();
        if let Err(error) = self.take_change(&session).await {
            match error.is_disk_full() {
                true => result = result.and(Err(error)),
                false => self.note = Some(format!("the change cannot be written as a patch: {error}")),
            }
        }
        let finished = session.finish(&result).await;
        result.and(finished)
    }

    fn builder(&self, workspace: &WorkspaceSettings, model: ModelSettings) -> Result<Builder> {
        let Settings { sandbox, governance, store, .. } = &self.shared.settings;
        let env = self.task.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let image = self.task.image.clone().or_else(|| sandbox.image.clone());
        Ok(Builder {
            workspace: workspace.clone(),
            sandbox: SandboxSettings { image, env, starts: Starts::WhenNeeded, ..sandbox.clone() },
            governance: Governance {
                limits: limits(&self.task.limits, &governance.limits),
                ..governance.clone()
            },
            store: store.clone(),
            ..Builder::new(Arc::clone(&workspace.machine), &workspace.root, model)?
        })
    }

    async fn work(&mut self, session: &mut Session) -> Result<()> {
        self.answer = session.prompt(&self.task.prompt).await?.text;
        if self.task.check.is_empty() {
            return Ok(());
        }
        // The model's work is paid for, and is not repeated because a sandbox does not start.
        for start in 1.. {
            match session.run_checks(&self.task.check, self.shared.settings.check_attempts).await {
                Err(error) if error.kind() == Kind::Sandbox && start < CHECK_STARTS => {
                    tokio::time::sleep(CHECK_PAUSE * start).await;
                }
                result => {
                    self.check = match &result {
                        Ok(()) => Some(CheckOutcome::Passed),
                        Err(error) if error.kind() == Kind::Check => Some(CheckOutcome::Failed),
                        Err(_) => None,
                    };
                    return result;
                }
            }
        }
        Ok(())
    }

    /// Writes what the session has recorded of the workspace, which is what its checks saw.
    async fn take_change(&mut self, session: &Session) -> Result<()> {
        let Some(ready) = session.startup().if_ready() else { return Ok(()) };
        let changes = ready.workspace.recorded_changes().await?;
        self.changes = changes.counts();
        if changes.is_empty() || changes.in_place {
            return Ok(());
        }
        let mut patch = Vec::new();
        git_patch::write(&mut patch, &changes, ready.workspace.store())?;
        self.patch = Some(self.shared.output.write_patch(&self.task.id, &patch)?);
        Ok(())
    }

    fn outcome(self, result: Result<()>) -> Outcome {
        let cause = match &result {
            Ok(()) => None,
            Err(error) if matches!(error.kind(), Kind::Interrupted | Kind::Terminated) => {
                return Outcome::Stopped;
            }
            Err(error) if error.kind() == Kind::Limit && self.shared.budget.exhausted().is_some() => {
                return Outcome::Stopped;
            }
            Err(error) if error.is_disk_full() => Some(Cause::Disk),
            Err(error) => match error.kind() {
                Kind::Sandbox if !self.had_sandbox => Some(Cause::Start),
                Kind::Sandbox | Kind::Unexpected => Some(Cause::Broken),
                Kind::Endpoint | Kind::Config if self.is_silent() => Some(Cause::Endpoint),
                _ => None,
            },
        };
        let task_result = Box::new(self.result(&result));
        match (cause, result) {
            (Some(cause), Err(error)) => Outcome::Trouble(Trouble { error, cause, result: task_result }),
            _ => Outcome::Done(task_result),
        }
    }

    /// Whether the model of the batch has not answered at all.
    fn is_silent(&self) -> bool {
        self.session.is_some() && self.spent.turns == 0 && self.task.model.is_none()
    }

    fn result(self, result: &Result<()>) -> TaskResult {
        TaskResult {
            id: self.task.id.clone(),
            digest: self.task.digest(),
            status: status(result).to_owned(),
            exit_code: result.as_ref().map_or_else(|error| error.exit_code().code(), |()| 0),
            check: self.check,
            work: Work {
                answer: self.answer,
                error: result.as_ref().err().map(ToString::to_string).or(self.note),
                session: self.session.map(|id| id.to_string()),
                model: self.model,
                turns: self.spent.turns,
                usage: self.spent.usage,
                cost: self.price.map(|_| self.spent.cost),
                seconds: seconds(self.began.elapsed()),
                changes: self.changes,
            },
            patch: self.patch,
            attempts: self.number,
            ended: now(),
        }
    }
}

/// The limits of a task above those of the batch.
fn limits(task: &TaskLimits, batch: &RunLimits) -> RunLimits {
    RunLimits {
        turns: task.max_turns.unwrap_or(batch.turns),
        tokens: task.max_tokens_total.or(batch.tokens),
        cost: task.max_cost.or(batch.cost),
        time: task.max_time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).or(batch.time),
    }
}

/// Waits until running tasks have to stop.
pub(super) async fn stopped(halt: &mut watch::Receiver<Halt>) -> Stop {
    loop {
        if let Halt::Stop(stop) = *halt.borrow_and_update() {
            return stop;
        }
        if halt.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Stops a session when the batch is stopped. Never ends: the session does.
pub(super) async fn forward(halt: &mut watch::Receiver<Halt>, interrupt: Interrupt) -> Infallible {
    interrupt.trigger(stopped(halt).await);
    std::future::pending().await
}
