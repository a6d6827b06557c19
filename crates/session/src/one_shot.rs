//! A sandbox without a conversation: a running session's, or a fresh one for one command.

use super::frontend::Frontend;
use super::settings::{Retention, SandboxSettings, WorkspaceSettings};
use super::startup::{Population, Startup};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::paths;
use agent_core::Interrupt;
use agent_log::SessionId;
use agent_network::{self as network, Gateway};
use agent_policy::Approver;
use agent_sandbox::{Backend, Sandbox, State};
use agent_tools::Reach;
use agent_workspace::Workspace;
use futures_util::FutureExt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A sandbox that is created for one command, with a copy of the workspace.
pub struct OneShot {
    /// The handle.
    pub sandbox: Sandbox,
    startup: Startup,
    _scratch: Option<Scratch>,
}

impl OneShot {
    /// Starts it; its temporary files are below `directory`. A `stop` meanwhile removes what there is of it.
    ///
    /// # Errors
    /// It does not start, or is stopped.
    pub async fn start(
        workspace: &WorkspaceSettings,
        settings: &SandboxSettings,
        directory: &Path,
        frontend: Arc<dyn Frontend>,
        stop: &Interrupt,
    ) -> Result<Self> {
        workspace.validate()?;
        settings.check_added(&workspace.root, &workspace.machine)?;
        let id = SessionId::generate();
        let scratch = Scratch::create(directory, &id)?;
        let population = match workspace.populate(&scratch.directory, settings)? {
            // Nobody resumes it, so nothing is recorded.
            Population::Fill(opening) => Population::Fill(async { Ok(opening.await?.transient()) }.boxed()),
            population => population,
        };
        let machine = Arc::clone(&workspace.machine);
        Self::begin((id, Some(scratch)), settings, population, &machine, frontend, stop).await
    }

    /// Starts one with the workspace that a session has left; it stays as it is.
    pub async fn restored(
        workspace: Workspace,
        settings: &SandboxSettings,
        machine: &Machine,
        frontend: Arc<dyn Frontend>,
    ) -> Result<Self> {
        let population = Population::Restore(Arc::new(workspace.transient()));
        let settings = SandboxSettings { retention: Retention::Remove, ..settings.clone() };
        let stop = Interrupt::default();
        Self::begin((SessionId::generate(), None), &settings, population, machine, frontend, &stop).await
    }

    async fn begin(
        (id, scratch): (SessionId, Option<Scratch>),
        settings: &SandboxSettings,
        population: Population,
        machine: &Machine,
        frontend: Arc<dyn Frontend>,
        stop: &Interrupt,
    ) -> Result<Self> {
        let events = Arc::clone(frontend.events());
        let gateway = Gateway::new(&settings.network, events, network::Limits::default())?;
        gateway.through_proxy_of(machine);
        gateway.bind(&settings.credentials, &[], machine)?;
        let startup = Startup::begin(&id, settings, population, gateway, frontend);
        let ready = tokio::select! {
            biased;
            stop = stop.triggered() => Err(stop.error()),
            ready = startup.ready_silently() => ready,
        };
        match ready {
            Ok(ready) => Ok(Self { sandbox: ready.sandbox.clone(), startup, _scratch: scratch }),
            Err(error) => {
                startup.end().await;
                Err(error)
            }
        }
    }

    /// Returns the hosts that programs in it may connect to, for a change; `approver` is asked.
    pub fn reach(&self, approver: Option<Arc<dyn Approver>>) -> &dyn Reach {
        if let Some(approver) = approver {
            self.startup.gateway().ask_with(approver);
        }
        &self.startup
    }

    /// Its start, and what its connections go through.
    pub(super) fn startup(&self) -> &Startup {
        &self.startup
    }

    /// Removes the sandbox.
    pub async fn end(&self) {
        self.startup.gateway().end().await;
        self.startup.end().await;
    }
}

/// A handle to the sandbox of session `id`, which runs; a paused one is resumed.
pub async fn attach(backend: &dyn Backend, id: &SessionId) -> Result<Sandbox> {
    let listed = backend.list().await.unwrap_or_default();
    if listed.iter().any(|listed| listed.session == id.as_str() && listed.state == State::Paused) {
        backend.resume(id.as_str()).await?;
    }
    let channel = backend.attach(id.as_str()).await.map_err(|error| {
        error.hint(format!("its sandbox may not exist any more: `agent resume {id}` restores the session"))
    })?;
    Sandbox::connect(channel).await
}

/// The files of a one-shot sandbox on the host; removed with it, or by the next one if this process is killed.
struct Scratch {
    directory: PathBuf,
    /// Locked as long as this process runs.
    _lock: File,
}

const LOCK: &str = "lock";

impl Scratch {
    fn create(parent: &Path, id: &SessionId) -> Result<Self> {
        let directory = parent.join(id.as_str());
        paths::make_dir(&directory)?;
        let locked = || {
            let lock = File::create_new(directory.join(LOCK))?;
            lock.lock()?;
            Ok(lock)
        };
        let _lock = locked().map_err(|error: std::io::Error| {
            Error::unexpected(format!("{} could not be created", directory.display())).caused_by(error)
        })?;
        remove_abandoned(parent);
        Ok(Self { directory, _lock })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only copies of the workspace; what cannot be removed now is removed later.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes the directories whose lock nobody holds. One without a lock file is about to get it.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            // What cannot be removed now is removed later.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
