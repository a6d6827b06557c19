//! One attempt at one task.

use super::output::Output;
use super::pace::Cause;
use super::result::{CheckOutcome, TaskResult, Work, seconds};
use super::scheduler::{Halt, Observer, Settings, Update};
use super::task::{Task, TaskLimits};
use super::workspace::{Prepared, Workspaces};
use agent_base::error::{Error, Kind, Result, Scope};
use agent_core::{Budget, Governed, Interrupt, Price, RunLimits, Spent, Stop};
use agent_event::{Changes, Events, now};
use agent_log::SessionId;
use agent_session::{
    Builder, Governance, ModelSettings, SandboxSettings, Session, Starts, WorkspaceSettings, status,
};
use agent_workspace::{ChangeSet, git_patch, store};
use std::convert::Infallible;
use std::fs::File;
use std::io::{BufWriter, IntoInnerError, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The number of starts of a check whose sandbox failed.
const CHECK_STARTS: u32 = 3;
const CHECK_PAUSE: Duration = Duration::from_secs(2);
/// The pause before a repository is asked for again, for each time that the task has begun.
const CHECKOUT_PAUSE: Duration = Duration::from_secs(5);
const MAX_CHECKOUT_PAUSES: u32 = 6;
/// Names of files that a result lists as missing in its patch.
const MAX_LEFT_OUT: usize = 100;

/// Gives each session a model of its own.
pub trait Models: Send + Sync {
    /// The model of this name, or the default one.
    ///
    /// # Errors
    /// There is no such model.
    fn settings(&self, name: Option<&str>) -> Result<ModelSettings>;
}

/// The state that all attempts share.
pub(super) struct Shared {
    pub settings: Settings,
    pub workspaces: Workspaces,
    pub output: Output,
    pub models: Arc<dyn Models>,
    pub budget: Arc<Budget>,
    pub observer: Arc<dyn Observer>,
    pub halt: Arc<watch::Sender<Halt>>,
}

/// An attempt that ended.
pub(super) struct Ended {
    pub outcome: Outcome,
    pub had_sandbox: bool,
}

/// The outcome of an attempt.
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
    /// The result if the task is not tried again.
    pub result: Box<TaskResult>,
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
    has_patch: bool,
    left_out: Vec<String>,
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
            has_patch: false,
            left_out: Vec::new(),
            had_sandbox: false,
        }
    }

    pub async fn run(mut self) -> Ended {
        let mut halt = self.shared.halt.subscribe();
        let prepared = tokio::select! {
            prepared = self.prepare() => prepared,
            _ = stopped(&mut halt) => return Ended { outcome: Outcome::Stopped, had_sandbox: false },
        };
        let result = match prepared {
            Ok(prepared) => {
                let result = self.in_session(&prepared.settings).await;
                prepared.remove().await;
                result
            }
            Err(error) => Err(error),
        };
        Ended { had_sandbox: self.had_sandbox, outcome: self.outcome(result) }
    }

    async fn prepare(&self) -> Result<Prepared> {
        if self.number > 1 && self.task.repo.is_some() {
            // A server that failed a moment ago gets a moment.
            tokio::time::sleep(CHECKOUT_PAUSE * (self.number - 1).min(MAX_CHECKOUT_PAUSES)).await;
        }
        self.shared.workspaces.prepare(self.task).await
    }

    async fn in_session(&mut self, workspace: &WorkspaceSettings) -> Result<()> {
        let mut model = self.shared.models.settings(self.task.model.as_deref())?;
        (self.model, self.price) = (model.client.name().to_owned(), model.price);
        let (observer, id) = (Arc::clone(&self.shared.observer), self.task.id.clone());
        model.client = Arc::new(Governed {
            model: model.client,
            price: model.price,
            budget: Arc::clone(&self.shared.budget),
            on_retry: Arc::new(move |wait, reason| observer.on(Update::Retry { id: &id, wait, reason })),
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
            // Work without its patch is not done.
            result = result.and(Err(error));
        }
        let finished = session.finish(&result).await;
        result.and(finished)
    }

    fn builder(&self, workspace: &WorkspaceSettings, model: ModelSettings) -> Result<Builder> {
        let Settings { sandbox, governance, store, .. } = &self.shared.settings;
        let env = self.task.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let image = self.task.image.clone().or_else(|| sandbox.image.clone());
        let has_own = self.task.files.is_some() || self.task.repo.is_some() || self.task.workspace.is_some();
        let directory = if has_own { PathBuf::new() } else { sandbox.directory.clone() };
        let setup = sandbox.setup.clone().filter(|_| !has_own);
        let starts = Starts::WhenNeeded;
        Ok(Builder {
            workspace: workspace.clone(),
            sandbox: SandboxSettings { image, env, directory, starts, setup, ..sandbox.clone() },
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
            match session.run_checks(&self.task.check, self.shared.settings.check_rules).await {
                Err(error) if error.kind() == Kind::Sandbox && start < CHECK_STARTS => {
                    tokio::time::sleep(CHECK_PAUSE * start).await;
                }
                result => {
                    self.check = match &result {
                        Ok(_) => Some(CheckOutcome::Passed),
                        Err(error) if error.kind() == Kind::Check => Some(CheckOutcome::Failed),
                        Err(_) => None,
                    };
                    self.answer = result?.unwrap_or(std::mem::take(&mut self.answer));
                    return Ok(());
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
        let (workspace, path) =
            (Arc::clone(&ready.workspace), self.shared.output.staged_patch(&self.task.id));
        let written = tokio::task::spawn_blocking(move || write_patch(&path, &changes, workspace.store()));
        let written = written.await.map_err(std::io::Error::other).map_err(Error::from).flatten();
        let (length, left_out) =
            written.map_err(|error| error.context("the change could not be written as a patch"))?;
        self.left_out = left_out;
        self.has_patch = length > 0;
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
                Kind::Sandbox if self.had_sandbox => Some(Cause::Broken),
                Kind::Sandbox if error.scope() == Scope::Image => Some(Cause::Image),
                Kind::Sandbox if error.is_shortage() => Some(Cause::Room),
                Kind::Sandbox => Some(Cause::Start),
                Kind::Unexpected => Some(Cause::Broken),
                Kind::Endpoint | Kind::Config if self.is_silent() => Some(Cause::Endpoint),
                // The endpoint went away in the middle of the work.
                Kind::Endpoint if error.scope() == Scope::Endpoint => Some(Cause::Broken),
                _ => None,
            },
        };
        let task_result = Box::new(self.result(&result));
        match (cause, result) {
            (Some(cause), Err(error)) => Outcome::Trouble(Trouble { error, cause, result: task_result }),
            _ => Outcome::Done(task_result),
        }
    }

    /// Returns whether the model of the batch has not answered at all.
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
                error: result.as_ref().err().map(ToString::to_string),
                session: self.session.map(|id| id.to_string()),
                model: self.model,
                turns: self.spent.turns,
                usage: self.spent.usage,
                cost: self.price.map(|_| self.spent.cost),
                seconds: seconds(self.began.elapsed()),
                changes: self.changes,
            },
            patch: self.has_patch.then(|| self.shared.output.patch_name(&self.task.id)),
            left_out: self.left_out,
            attempts: self.number,
            ended: now(),
        }
    }
}

/// Writes the patch; its length, and what is not in it.
fn write_patch(path: &Path, changes: &ChangeSet, store: &store::Store) -> Result<(u64, Vec<String>)> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut left_out = Vec::new();
    git_patch::write(&mut file, changes, store, &mut |path| {
        if left_out.len() < MAX_LEFT_OUT {
            left_out.push(path.to_string());
        }
        Ok(())
    })?;
    let mut file = file.into_inner().map_err(IntoInnerError::into_error)?;
    // The result that names it is synced too.
    file.sync_data()?;
    Ok((file.stream_position()?, left_out))
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
