//! Running what has no result yet, a number of tasks at a time.

use super::output::Output;
use super::pace::{Cause, Next, Others, Pace};
use super::report;
use super::result::{Summary, TaskResult};
use super::runner::{Attempt, Ended, Models, Outcome, Shared, Trouble};
use super::task::Task;
use super::task_file::TaskFile;
use super::workspace::Workspaces;
use agent_base::count_text::counted;
use agent_base::error::{Error, Kind, Result};
use agent_base::exit_code::ExitCode;
use agent_base::lock::Lock;
use agent_core::{Budget, Stop};
use agent_log::{SessionId, Store};
use agent_sandbox::removals;
use agent_session::{CheckRules, Governance, SandboxSettings, WorkspaceSettings};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

/// The time limit for the engine to say that it is there.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);
const FREE_SPACE: &str = "free disk space and run the same command again: what has no result continues";

/// The settings of a batch's run.
pub struct Settings {
    /// Tasks at a time.
    pub parallel: usize,
    /// The rules for running checks. With one attempt the model never sees a failed one.
    pub check_rules: CheckRules,
    /// Limits of each task, and policy.
    pub governance: Governance,
    /// The workspace of tasks that name none.
    pub workspace: WorkspaceSettings,
    /// The sandboxes.
    pub sandbox: SandboxSettings,
    /// The store of the sessions.
    pub store: Store,
}

/// The end of a batch before all is done, if it has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Halt {
    #[default]
    No,
    /// No further task begins.
    Finish,
    /// Running tasks are stopped; they begin again when the batch is continued.
    Stop(Stop),
}

impl Halt {
    /// With `next` asked for too: the harder one, and of two stops the first.
    pub fn and(self, next: Self) -> Self {
        match (self, next) {
            (Self::Stop(_), _) | (Self::Finish, Self::No | Self::Finish) => self,
            (Self::No, _) | (Self::Finish, Self::Stop(_)) => next,
        }
    }
}

/// Follows a batch.
pub trait Observer: Send + Sync {
    fn on(&self, update: Update<'_>);
}

/// An event of a batch.
pub enum Update<'a> {
    /// A task has begun, in this session.
    Started { id: &'a str, session: &'a SessionId },
    /// A task is done.
    Done { result: &'a TaskResult, summary: Summary },
    /// A task failed through no fault of its own, and begins again later.
    Again { id: &'a str, error: &'a Error, pause: Option<Duration> },
    /// The endpoint failed and is asked again.
    Retry { id: &'a str, wait: Duration, reason: &'a str },
}

/// A batch that is ready to run.
pub struct Batch {
    /// Its tasks.
    pub file: TaskFile,
    /// The output directory: its results, and those of earlier runs.
    pub output: Output,
    pub settings: Settings,
    pub models: Arc<dyn Models>,
    /// The budget of all tasks together.
    pub budget: Arc<Budget>,
    pub observer: Arc<dyn Observer>,
    /// Ends it early.
    pub halt: Arc<watch::Sender<Halt>>,
}

/// A batch that runs.
struct Scheduler {
    tasks: Vec<Arc<Task>>,
    shared: Arc<Shared>,
}

/// A task that waits.
struct Job {
    task: Arc<Task>,
    attempts: u32,
    /// Failures that count against the task.
    failures: u32,
}

/// The state that changes while a batch runs.
struct Progress {
    queue: VecDeque<Job>,
    running: JoinSet<(Job, Option<Ended>)>,
    /// Of tasks that ended, to be written.
    results: Vec<TaskResult>,
    pace: Pace,
    /// The reason why the batch ends early.
    fatal: Option<Error>,
}

impl Batch {
    /// Runs every task without a result, and writes the reports.
    ///
    /// # Errors
    /// A task asks for something that the backend does not have; nothing was started. The batch itself failed, reached its
    /// budget or was stopped: the results so far are there, and another run continues.
    pub async fn run(self) -> Result<Summary> {
        self.check()?;
        let Self { file, output, settings, models, budget, observer, halt } = self;
        let workspaces = Workspaces {
            default: settings.workspace.clone(),
            tasks: file.directory,
            output: output.directory().to_owned(),
            cloning: Lock::default(),
        };
        let tasks = file.tasks.into_iter().map(Arc::new).collect();
        let shared = Shared { settings, workspaces, output, models, budget, observer, halt };
        let scheduler = Scheduler { tasks, shared: Arc::new(shared) };
        let ended = scheduler.run_all().await;
        // What was stopped has cost something too.
        let spent = scheduler.shared.output.spend(scheduler.shared.budget.spent().cost);
        let ended = ended.and(spent);
        let reports = report::write(&scheduler.shared.output, &scheduler.tasks);
        ended.and(reports)?;
        Ok(scheduler.summary())
    }

    fn check(&self) -> Result<()> {
        let backend = &self.settings.sandbox.backend;
        let capabilities = backend.capabilities();
        for task in &self.file.tasks {
            let named = |error: Error| Error::config(format!("task {}: {error}", task.id));
            capabilities.check_image(backend.name(), task.image.as_deref(), None).map_err(named)?;
            if let Some(model) = &task.model {
                self.models.settings(Some(model)).map_err(named)?;
            }
        }
        Ok(())
    }
}

impl Scheduler {
    fn summary(&self) -> Summary {
        self.shared.output.summary(self.tasks.len())
    }

    async fn run_all(&self) -> Result<()> {
        let waiting = self.tasks.iter().filter(|task| !self.shared.output.is_done(&task.id));
        let job = |task: &Arc<Task>| Job { task: Arc::clone(task), attempts: 0, failures: 0 };
        let mut progress = Progress {
            queue: waiting.map(job).collect(),
            running: JoinSet::new(),
            results: Vec::new(),
            pace: Pace::new(self.shared.settings.parallel, self.summary().passed > 0),
            fatal: None,
        };
        let mut halt = self.shared.halt.subscribe();
        loop {
            if !self.is_ending(&progress) {
                self.start(&mut progress);
            }
            // The places of those that ended are taken: tasks do not wait for the disk.
            self.record(&mut progress).await;
            let is_ending = self.is_ending(&progress);
            if progress.running.is_empty() && (is_ending || progress.queue.is_empty()) {
                break;
            }
            let pause = progress.pace.paused_until().filter(|_| !is_ending && !progress.queue.is_empty());
            tokio::select! {
                Some(ended) = progress.running.join_next() => {
                    self.ended(&mut progress, ended).await;
                    while let Some(ended) = progress.running.try_join_next() {
                        self.ended(&mut progress, ended).await;
                    }
                }
                () = sleep_until(pause) => {}
                () = removals::place_freed(), if !is_ending && !progress.queue.is_empty() => {}
                Ok(()) = halt.changed() => {}
            }
        }
        self.verdict(progress)
    }

    fn is_ending(&self, progress: &Progress) -> bool {
        progress.fatal.is_some()
            || *self.shared.halt.borrow() != Halt::No
            || self.shared.budget.exhausted().is_some()
    }

    fn verdict(&self, progress: Progress) -> Result<()> {
        if let Some(error) = progress.fatal {
            return Err(error);
        }
        let Summary { tasks, done, .. } = self.summary();
        let halted = *self.shared.halt.borrow();
        match halted {
            _ if done == tasks => Ok(()),
            Halt::No => self.shared.budget.exhausted().map_or(Ok(()), Err),
            Halt::Finish | Halt::Stop(_) => {
                let kind =
                    if halted == Halt::Stop(Stop::Terminated) { Kind::Terminated } else { Kind::Interrupted };
                Err(Error::new(kind, format!("stopped: {done} of {} done", counted(tasks, "task")))
                    .hint("the same command continues with the others"))
            }
        }
    }

    /// Starts as many tasks as may run. A sandbox that is being removed still has its memory, and its part of a quota.
    fn start(&self, progress: &mut Progress) {
        let has_place = |progress: &Progress| {
            progress.pace.paused_until().is_none()
                && progress.running.len() + removals::places() < progress.pace.parallel()
        };
        while has_place(progress) {
            let Some(mut job) = progress.queue.pop_front() else { break };
            job.attempts += 1;
            let shared = Arc::clone(&self.shared);
            progress.running.spawn(async move {
                let (task, attempts) = (Arc::clone(&job.task), job.attempts);
                let attempt = tokio::spawn(async move { Attempt::new(&shared, &task, attempts).run().await });
                (job, attempt.await.ok())
            });
        }
    }

    async fn ended(
        &self,
        progress: &mut Progress,
        ended: std::result::Result<(Job, Option<Ended>), JoinError>,
    ) {
        // The attempts catch panics themselves.
        let Ok((job, ended)) = ended else { return };
        let Some(Ended { outcome, had_sandbox }) = ended else {
            let message = format!("the work on {} ended unexpectedly", job.task.id);
            return self.give_up(progress, Error::unexpected(message));
        };
        if had_sandbox {
            progress.pace.started();
        }
        match outcome {
            Outcome::Done(result) => {
                // The endpoint may refuse others too.
                if result.exit_code != ExitCode::Endpoint.code() {
                    progress.pace.done();
                }
                progress.results.push(*result);
            }
            Outcome::Trouble(trouble) => self.failed(progress, job, trouble).await,
            Outcome::Stopped => {}
        }
    }

    /// A task failed through no fault of its own.
    async fn failed(&self, progress: &mut Progress, mut job: Job, trouble: Trouble) {
        let Trouble { error, mut cause, result } = trouble;
        let others = Others { running: progress.running.len(), waiting: progress.queue.len() };
        if cause == Cause::Start && others.running == 0 && !self.engine_answers().await {
            cause = Cause::Engine;
        }
        match progress.pace.failed(cause, &mut job.failures, others) {
            Next::Result => progress.results.push(*result),
            Next::GiveUp if cause == Cause::Disk => self.give_up(progress, error.hint(FREE_SPACE)),
            Next::GiveUp => self.give_up(progress, error),
            Next::Again(pause) => {
                self.shared.observer.on(Update::Again { id: &job.task.id, error: &error, pause });
                progress.queue.push_back(job);
            }
        }
    }

    /// Returns whether the engine is there: then it may be the task that cannot start.
    async fn engine_answers(&self) -> bool {
        let listed = self.shared.settings.sandbox.backend.list();
        matches!(tokio::time::timeout(ENGINE_TIMEOUT, listed).await, Ok(Ok(_)))
    }

    /// Writes the results that have come since the last time.
    async fn record(&self, progress: &mut Progress) {
        if progress.results.is_empty() {
            return;
        }
        let (results, shared) = (std::mem::take(&mut progress.results), Arc::clone(&self.shared));
        let recorded = tokio::task::spawn_blocking(move || {
            let spent = shared.output.spend(shared.budget.spent().cost);
            let recorded = shared.output.record(&results).and(spent);
            (results, recorded)
        });
        match recorded.await {
            Ok((results, recorded)) => {
                let output = &self.shared.output;
                for result in results.iter().filter(|result| output.is_done(&result.id)) {
                    self.shared.observer.on(Update::Done { result, summary: self.summary() });
                }
                if let Err(error) = recorded {
                    self.give_up(progress, error);
                }
            }
            Err(error) => {
                self.give_up(progress, Error::unexpected("a result could not be written").caused_by(error));
            }
        }
    }

    /// Ends the batch: what runs is stopped. The first reason counts.
    fn give_up(&self, progress: &mut Progress, error: Error) {
        progress.fatal.get_or_insert(error);
        self.shared.halt.send_modify(|halt| *halt = halt.and(Halt::Stop(Stop::Interrupted)));
    }
}

async fn sleep_until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::Halt;
    use agent_core::Stop;

    #[test]
    fn a_ctrl_c_after_a_stop_takes_nothing_back() {
        // The first Ctrl-C after SIGTERM, or after a fatal error, let the running tasks finish.
        let stop = Halt::Stop(Stop::Terminated);
        assert_eq!(stop.and(Halt::Finish), stop);
        assert_eq!(stop.and(Halt::Stop(Stop::Interrupted)), stop);
        assert_eq!(Halt::No.and(Halt::Finish), Halt::Finish);
        assert_eq!(Halt::Finish.and(stop), stop);
    }
}
