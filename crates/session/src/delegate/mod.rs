//! `delegate`: a part of the work in a session of its own, in a fork of the sandbox.

mod approver;
mod child;
mod origin;
mod paths;
mod result;

pub use origin::Origin;
pub(super) use origin::Parent;

use super::{Checkpoints, Frontend, Governance, ModelSettings, SandboxSettings, Startup, WorkspaceSettings};
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_core::{Shared, Stop};
use agent_event::Event;
use agent_log::{SessionId, Store};
use agent_policy::policy::Gate;
use agent_sandbox::Sandbox;
use agent_tools::{Context, Registry, Tool, ToolResult, arguments};
use agent_workspace::{Merge, Workspace};
use child::Worked;
use futures_util::future::BoxFuture;
use paths::Paths;
use result::Part;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{Mutex, Semaphore};

/// Sessions that work at the same time; further calls wait.
const MAX_AT_ONCE: usize = 8;

/// The tool, and what a session has for those that its model delegates to.
pub(super) struct Delegate {
    /// The session whose model calls it.
    pub parent: SessionId,
    pub model: Lock<ModelSettings>,
    /// Without this one: what is delegated is not delegated further.
    pub tools: Registry,
    pub governance: Governance,
    pub workspace: WorkspaceSettings,
    pub sandbox: SandboxSettings,
    pub store: Store,
    pub frontend: Arc<dyn Frontend>,
    pub startup: Arc<Startup>,
    pub checkpoints: Arc<Checkpoints>,
    pub gate: Arc<Gate>,
    pub shared: Shared,
    pub state: DelegateState,
}

/// The state that changes between calls.
pub(super) struct DelegateState {
    /// Number of sessions so far.
    begun: AtomicU64,
    slots: Semaphore,
    /// Held while changes are merged into the workspace.
    merging: Mutex<()>,
    /// The last directory in which `$HOME` was saved, for other calls of the same message.
    home: Mutex<Option<SavedHome>>,
}

/// `$HOME` of the sandbox, saved for a session.
struct SavedHome {
    /// The time when the workspace was recorded last.
    recorded: Option<Instant>,
    session: PathBuf,
}

impl Default for DelegateState {
    fn default() -> Self {
        let (begun, slots) = (AtomicU64::new(0), Semaphore::new(MAX_AT_ONCE));
        Self { begun, slots, merging: Mutex::default(), home: Mutex::default() }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The task, with everything that has to be known for it.
    task: String,
    /// The files, directories or globs that it may change; without them all.
    paths: Option<Vec<String>>,
}

impl Tool for Delegate {
    fn name(&self) -> &str {
        "delegate"
    }

    fn description(&self) -> &str {
        agent_prompts::tools::DELEGATE
    }

    fn parameters(&self) -> Value {
        arguments::schema::<Arguments>()
    }

    fn delegates(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { self.delegate(context, arguments::read(&arguments)?).await })
    }
}

impl Delegate {
    async fn delegate(&self, context: Context<'_>, arguments: Arguments) -> Result<ToolResult> {
        let task = arguments.task.trim();
        if task.is_empty() {
            return Err(Error::usage("the task is empty"));
        }
        if context.sandbox.is_read_only() {
            return Ok(result::read_only());
        }
        let paths = Paths::parse(arguments.paths.unwrap_or_default())?;
        let slot = self.unless_stopped(async {
            self.state.slots.acquire().await.map_err(|_| Stop::Interrupted.error())
        });
        let _slot = slot.await?;
        let origin = match self.unless_stopped(self.begin(context.sandbox)).await {
            Ok(origin) => origin,
            Err(error) if self.is_stopped() => return Err(error),
            Err(error) => return Ok(result::not_begun(&error)),
        };
        let started = Instant::now();
        let (session, number) = (origin.id.clone(), self.state.begun.fetch_add(1, Ordering::Relaxed) + 1);
        context.events.emit(Event::DelegateStarted {
            id: context.call.to_owned(),
            delegate: session.to_string(),
            task: task.to_owned(),
            paths: paths.names().to_vec(),
        })?;
        let worked = self.work(origin, number, &paths.prompt(task)).await;
        let merged = self.merge(&worked, context.sandbox, &paths).await;
        self.bound_home(&session).await;
        let part = Part { session, worked, merged, took: started.elapsed() };
        context.events.emit(part.event(context.call))?;
        match (&part.worked.answer, &part.merged) {
            (Err(error), _) if self.is_stopped() => Err(error.repeat()),
            // The session's own sandbox is gone.
            (_, Err(error)) if error.kind() == Kind::Sandbox => Err(error.repeat()),
            _ => part.result(context.bounds.output_chars),
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.interrupt.reason().is_some()
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            stop = self.shared.interrupt.triggered() => Err(stop.error()),
            result = work => result,
        }
    }

    /// Merges what was changed, if the part was done.
    async fn merge(&self, worked: &Worked, sandbox: &Sandbox, paths: &Paths) -> Result<Merge> {
        let Some(workspace) = &worked.workspace else { return Ok(Merge::default()) };
        if worked.answer.is_err() {
            return Ok(Merge { changes: workspace.recorded_changes().await?, ..Merge::default() });
        }
        let _merging = self.state.merging.lock().await;
        workspace.merge_into(sandbox, |path| paths.allow(path)).await
    }
}
