//! Docker and Podman: a container a session, with the guest as its first process.

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
mod owner;
mod pull;
mod removal;
mod skeleton;
mod start;
mod submounts;

use crate::error::{Error, Result};
use crate::event::SandboxInfo;
use crate::sandbox::{Backend, Channel, Listed, OnPull, Spec};
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    InspectContainerOptions, ListContainersOptionsBuilder, StartContainerOptions,
};
use engine::Engine;
use futures_util::future::BoxFuture;
use std::collections::HashMap;

pub use named_image::DEFAULT as DEFAULT_IMAGE;

/// The backend over a container engine.
#[derive(Debug, Clone)]
pub struct Docker {
    engine: Engine,
}

impl Docker {
    /// Finds an engine that answers. The error says where it was looked for, and what to do.
    pub async fn connect() -> Result<Docker> {
        Ok(Docker { engine: Engine::find().await? })
    }

    /// The engine in use.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Joins the guest's socket as the container's root, which has no capabilities but is nobody that runs inside.
    async fn join(&self, session: &str) -> Result<Channel> {
        let name = owner::container_name(session)?;
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
        let exec = self.engine.client.create_exec(&name, exec).await.map_err(failed)?;
        match self.engine.client.start_exec(&exec.id, None).await.map_err(failed)? {
            StartExecResults::Attached { output, input } => Ok(channel::channel(output, input)),
            StartExecResults::Detached => Err(Error::sandbox("the engine did not attach to the sandbox")),
        }
    }

    /// The containers that `agent` made on this machine for this user, stopped ones included.
    pub(super) async fn containers(&self) -> Result<Vec<ContainerSummary>> {
        let ours = format!("{}={}", owner::HOST, owner::this_host());
        let filters = HashMap::from([("label", vec![ours])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        self.engine
            .client
            .list_containers(Some(options))
            .await
            .map_err(|error| failure::error("the sandboxes could not be listed", error))
    }

    async fn freeze(&self, session: &str) -> Result<()> {
        let name = owner::container_name(session)?;
        self.engine.client.pause_container(&name).await.map_err(|error| {
            failure::error(format!("the sandbox of session {session} could not be paused"), error)
        })
    }

    async fn thaw(&self, session: &str) -> Result<()> {
        let name = owner::container_name(session)?;
        let failed =
            |error| failure::error(format!("the sandbox of session {session} could not be resumed"), error);
        let client = &self.engine.client;
        let container =
            client.inspect_container(&name, None::<InspectContainerOptions>).await.map_err(failed)?;
        match container.state.and_then(|state| state.status) {
            Some(ContainerStateStatusEnum::RUNNING) => Ok(()),
            Some(ContainerStateStatusEnum::PAUSED) => client.unpause_container(&name).await.map_err(failed),
            _ => {
                let mapped = overlay::show_mapped(session).await?;
                let started = client.start_container(&name, None::<StartContainerOptions>).await;
                if let Some(mapped) = mapped {
                    mapped.end().await;
                }
                started.map_err(failed)
            }
        }
    }
}

impl Backend for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn can_overlay(&self) -> bool {
        cfg!(target_os = "linux") && matches!(self.engine.endpoint.address, endpoint::Address::Unix(_))
    }

    /// It could be done as for an overlay, but no filter here refuses set-user-id files: on the host they would be root's.
    fn maps_owners(&self) -> bool {
        false
    }

    fn start<'a>(
        &'a self,
        spec: &'a Spec,
        on_pull: OnPull<'a>,
    ) -> BoxFuture<'a, Result<(Channel, SandboxInfo)>> {
        Box::pin(self.start_sandbox(spec, on_pull))
    }

    fn attach<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Channel>> {
        Box::pin(self.join(session))
    }

    fn destroy<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.remove(&owner::container_name(session)?).await?;
            overlay::remove(&self.engine, session).await
        })
    }

    fn pause<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.freeze(session))
    }

    fn resume<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.thaw(session))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>>> {
        Box::pin(async move { Ok(self.containers().await?.into_iter().filter_map(listed).collect()) })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.remove_abandoned())
    }
}

fn listed(container: ContainerSummary) -> Option<Listed> {
    let mut labels = container.labels?;
    let session = labels.remove(owner::SESSION)?;
    let expires = owner::expiry_date(&labels);
    let state = match container.state? {
        ContainerSummaryStateEnum::RUNNING => "running",
        ContainerSummaryStateEnum::PAUSED => "paused",
        _ => "stopped",
    };
    let created = jiff::Timestamp::from_second(container.created?).ok()?.to_string();
    Some(Listed { session, id: start::short(&container.id?), state: state.to_owned(), created, expires })
}
