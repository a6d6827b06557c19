//! Docker and Podman: a container a session, with the guest as its first process.

mod accounts;
mod arrangement;
mod as_root;
mod channel;
pub mod checks;
mod container;
mod context;
pub mod endpoint;
pub mod engine;
mod failure;
mod host_image;
mod image;
mod named_image;
mod overlay;
mod podman;
mod pull;
mod removal;
mod skeleton;
mod start;
mod submounts;

use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_event::SandboxInfo;
use agent_sandbox::image::ImageProgram;
use agent_sandbox::ownership::{self, Ownership, sandbox_name};
use agent_sandbox::{
    Backend, Capabilities, Channel, Copied, EnforcedLimits, Listed, Networks, OnProgress, Spec, State,
};
use async_trait::async_trait;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    InspectContainerOptions, ListContainersOptionsBuilder, StartContainerOptions,
};
use engine::Engine;
use futures_util::future::join_all;
use overlay::Mapped;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The backend's name.
pub const NAME: &str = "docker";

/// The abilities of a container engine on this machine.
pub const CAPABILITIES: Capabilities = Capabilities {
    host_paths: true,
    own_paths: true,
    // It could be done as for an overlay, but no filter here refuses set-user-id files: on the host they would be root's.
    maps_owners: false,
    images: true,
    runtimes: true,
    pause: true,
    docker: false,
    networks: Networks { isolated: true, full: true },
    limits: EnforcedLimits::ALL,
};

/// The backend over a container engine.
#[derive(Debug, Clone)]
pub struct Docker {
    engine: Engine,
    /// The id of each session's container.
    known: Arc<Lock<HashMap<String, String>>>,
}

impl Docker {
    /// Finds an engine that answers. The error says where it was looked for, and what to do.
    pub async fn connect(machine: Arc<Machine>) -> Result<Docker> {
        Ok(Docker { engine: Engine::find(machine).await?, known: Arc::default() })
    }

    /// The engine in use.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Notes which container the sandbox of `session` is.
    pub(crate) fn know(&self, session: &str, id: &str) {
        self.known.lock().insert(session.to_owned(), id.to_owned());
    }

    /// The containers that `agent` made on this machine for this user, stopped ones included.
    pub(crate) async fn containers(&self) -> Result<Vec<ContainerSummary>> {
        let ours = format!("{}={}", ownership::HOST, ownership::this_host());
        let filters = HashMap::from([("label", vec![ours])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        failure::settled(|| self.engine.client.list_containers(Some(options.clone())))
            .await
            .map_err(|error| failure::error("the sandboxes could not be listed", error))
    }
}

#[async_trait]
impl Backend for Docker {
    fn name(&self) -> &'static str {
        NAME
    }

    fn location(&self) -> String {
        self.engine.endpoint.to_string()
    }

    fn capabilities(&self) -> Capabilities {
        let is_near = self.engine.endpoint.address.is_near();
        let host_paths = cfg!(target_os = "linux") && is_near;
        let own_paths = host_paths && !self.engine.endpoint.address.is_of_caller();
        Capabilities { host_paths, own_paths, ..CAPABILITIES }
    }

    async fn start(&self, spec: &Spec, on_progress: OnProgress<'_>) -> Result<(Channel, SandboxInfo)> {
        self.capabilities().check(self.name(), spec)?;
        self.start_sandbox(spec, on_progress).await
    }

    /// Connects to the guest's socket as the container's root, which has no capabilities and is nobody that runs inside.
    async fn image_program(&self, name: &str, on_progress: OnProgress<'_>) -> Result<ImageProgram> {
        named_image::program(&self.engine, name, on_progress).await
    }

    async fn attach(&self, session: &str) -> Result<Channel> {
        let name = sandbox_name(session)?;
        let failed = |error| match failure::status(&error) {
            Some(404 | 409) => Error::sandbox(format!("session {session} has no running sandbox")),
            _ => failure::error("the sandbox could not be attached to", error),
        };
        let exec = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            user: Some("0:0"),
            cmd: Some(vec![skeleton::GUEST, "attach", "--socket", container::SOCKET]),
            ..Default::default()
        };
        let found = self.engine.client.inspect_container(&name, None::<InspectContainerOptions>);
        let id = found.await.map_err(failed)?.id.unwrap_or(name);
        let exec = self.engine.client.create_exec(&id, exec).await.map_err(failed)?;
        match self.engine.client.start_exec(&exec.id, None).await.map_err(failed)? {
            StartExecResults::Attached { output, input } => {
                self.know(session, &id);
                Ok(channel::channel(&self.engine.endpoint.address, output, input))
            }
            StartExecResults::Detached => Err(Error::sandbox("the engine did not attach to the sandbox")),
        }
    }

    async fn destroy(&self, session: &str) -> Result<()> {
        self.remove(&sandbox_name(session)?).await?;
        overlay::remove(&self.engine, session).await?;
        self.known.lock().remove(session);
        Ok(())
    }

    fn identity(&self, session: &str) -> Option<String> {
        self.known.lock().get(session).cloned()
    }

    async fn destroy_only(&self, session: &str, id: &str) -> Result<()> {
        self.remove(id).await?;
        // The layer belongs to the container that has the name of the session.
        if !self.has_container(&sandbox_name(session)?).await? {
            overlay::remove(&self.engine, session).await?;
        }
        let mut known = self.known.lock();
        if known.get(session).is_some_and(|known| known == id) {
            known.remove(session);
        }
        Ok(())
    }

    async fn fork(&self, session: &str, into: &Path) -> Result<Copied> {
        let (machine, session, into) =
            (Arc::clone(&self.engine.machine), session.to_owned(), into.to_owned());
        let copied = tokio::task::spawn_blocking(move || overlay::copy(&machine, &session, &into)).await;
        copied.map_err(|error| Error::sandbox("the layer could not be copied").caused_by(error))?
    }

    async fn show_anew(&self, session: &str, has_news: bool) -> Result<()> {
        match has_news && overlay::has_workspace(&self.engine.machine, session)? {
            true => as_root::show_anew(&self.engine, &sandbox_name(session)?).await,
            false => Ok(()),
        }
    }

    async fn pause(&self, session: &str) -> Result<()> {
        let name = sandbox_name(session)?;
        self.engine.client.pause_container(&name).await.map_err(|error| {
            let takes_groups = failure::text(&error).contains("cgroup");
            let error = failure::error(format!("the sandbox of session {session} could not be paused"), error);
            match takes_groups {
                true => error.hint(
                    "pausing takes control groups, which this engine may not use; `agent sandbox rm` ends the sandbox, and \
                     `agent resume` restores it",
                ),
                false => error,
            }
        })
    }

    async fn resume(&self, session: &str) -> Result<()> {
        let name = sandbox_name(session)?;
        let failed =
            |error| failure::error(format!("the sandbox of session {session} could not be resumed"), error);
        let client = &self.engine.client;
        let inspect = || client.inspect_container(&name, None::<InspectContainerOptions>);
        let container = failure::settled(inspect).await.map_err(failed)?;
        match container.state.and_then(|state| state.status) {
            Some(ContainerStateStatusEnum::RUNNING) => Ok(()),
            Some(ContainerStateStatusEnum::PAUSED) => client.unpause_container(&name).await.map_err(failed),
            _ => {
                let mapped = overlay::show_mapped(&self.engine.machine, session).await?;
                let started = client.start_container(&name, None::<StartContainerOptions>).await;
                join_all(mapped.into_iter().map(Mapped::end)).await;
                started.map_err(failed)?;
                // The control groups of before are gone.
                if let Ok(started) = inspect().await {
                    arrangement::limit_sockets(&started);
                }
                Ok(())
            }
        }
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        Ok(self.containers().await?.into_iter().filter_map(listed).collect())
    }

    async fn sweep(&self) -> Result<()> {
        self.remove_abandoned().await
    }
}

fn listed(container: ContainerSummary) -> Option<Listed> {
    let ownership = Ownership::from_labels(container.labels.as_ref()?)?;
    let created = jiff::Timestamp::from_second(container.created?).ok()?.to_string();
    let expires = ownership.expiry_date().map(str::to_owned);
    let state = state(&container);
    Some(Listed { session: ownership.session, id: start::short(&container.id?), state, created, expires })
}

fn state(container: &ContainerSummary) -> State {
    match container.state {
        Some(ContainerSummaryStateEnum::CREATED) => State::Starting,
        Some(ContainerSummaryStateEnum::RUNNING) => State::Running,
        Some(ContainerSummaryStateEnum::PAUSED) => State::Paused,
        _ => State::Stopped,
    }
}
