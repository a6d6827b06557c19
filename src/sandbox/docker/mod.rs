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
mod skeleton;
mod submounts;

use crate::error::{Error, Result};
use crate::event::SandboxInfo;
use crate::sandbox::{Backend, Channel, Listed, Network, OnPull, Spec};
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, InspectContainerOptions,
    ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
    WaitContainerOptionsBuilder,
};
use engine::Engine;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use image::Image;
use std::collections::HashMap;
use std::time::Duration;

/// How long a removal that is under way may take before it is an error.
const REMOVAL: Duration = Duration::from_secs(30);

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

    async fn start_sandbox(&self, spec: &Spec, on_pull: OnPull<'_>) -> Result<(Channel, SandboxInfo)> {
        let (id, image) = self.create(spec, on_pull).await?;
        let unfinished = Unfinished { docker: self.clone(), id: Some(id.clone()) };
        match self.launch(&id).await {
            Ok(channel) => {
                unfinished.disarm();
                Ok((channel, describe(spec, &id, &image)))
            }
            Err(error) => {
                unfinished.disarm();
                // The first error is the one to tell; what cannot be removed now is swept later.
                let _ = self.remove(&id).await;
                Err(error)
            }
        }
    }

    /// Creates the container. Whether the image is there is found out by trying, which costs nothing when it is.
    async fn create(&self, spec: &Spec, on_pull: OnPull<'_>) -> Result<(String, Image)> {
        let asked_for = spec.image.as_deref();
        if asked_for.is_none_or(|name| name == host_image::NAME) {
            let (image, skeleton) = host_image::describe()?;
            if let Some(id) = self.try_create(spec, &image).await? {
                return Ok((id, image));
            }
            if host_image::make(&self.engine, &image, &skeleton).await? {
                return self.create_from(spec, image).await;
            }
            if asked_for.is_some() {
                return Err(host_image::not_here(&self.engine));
            }
        }
        let name = asked_for.unwrap_or(named_image::DEFAULT);
        let (image, underneath) = named_image::find(&self.engine, name, on_pull).await?;
        if let Some(id) = self.try_create(spec, &image).await? {
            return Ok((id, image));
        }
        named_image::prepare(&self.engine, &image, &underneath).await?;
        self.create_from(spec, image).await
    }

    async fn create_from(&self, spec: &Spec, image: Image) -> Result<(String, Image)> {
        match self.try_create(spec, &image).await? {
            Some(id) => Ok((id, image)),
            None => Err(Error::sandbox(format!("the image {} was made and is gone again", image.tag))),
        }
    }

    /// The container's id; `None` where the engine does not have the image.
    async fn try_create(&self, spec: &Spec, image: &Image) -> Result<Option<String>> {
        let name = owner::container_name(&spec.session)?;
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let body = container::body(spec, image)?;
        match self.engine.client.create_container(Some(options), body).await {
            Ok(created) => Ok(Some(created.id)),
            Err(error) => match failure::status(&error) {
                Some(404) if failure::text(&error).contains("No such image") => Ok(None),
                Some(409) => Err(Error::sandbox(format!("session {} has a sandbox already", spec.session))),
                _ => Err(failure::error("the sandbox's container could not be created", error)),
            },
        }
    }

    /// Attaches first, so that nothing the guest says is lost, then starts.
    async fn launch(&self, id: &str) -> Result<Channel> {
        let options = AttachContainerOptionsBuilder::default().stream(true).stdin(true).stdout(true).build();
        let attached = self
            .engine
            .client
            .attach_container(id, Some(options))
            .await
            .map_err(|error| failure::error("the sandbox's container could not be attached to", error))?;
        self.engine
            .client
            .start_container(id, None::<StartContainerOptions>)
            .await
            .map_err(|error| failure::error("the sandbox's container could not be started", error))?;
        Ok(channel::channel(attached.output, attached.input))
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

    /// Removes a container and its volumes, running or not, and comes back when it is gone.
    async fn remove(&self, container: &str) -> Result<()> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.engine.client.remove_container(container, Some(options)).await {
            Ok(()) => Ok(()),
            Err(error) => match failure::status(&error) {
                Some(404) => Ok(()),
                // Its removal is under way: it has just ended by itself.
                Some(409) => self.wait_until_removed(container).await,
                _ => Err(failure::error("the sandbox could not be removed", error)),
            },
        }
    }

    async fn wait_until_removed(&self, container: &str) -> Result<()> {
        let options = WaitContainerOptionsBuilder::default().condition("removed").build();
        let mut gone = self.engine.client.wait_container(container, Some(options));
        // Whatever the answer says, an exit code or "no such container", the wait is over with it.
        tokio::time::timeout(REMOVAL, gone.next()).await.map(drop).map_err(|_| {
            Error::sandbox(format!("the sandbox is still being removed after {} s", REMOVAL.as_secs()))
        })
    }

    /// The containers that `agent` made on this machine for this user, stopped ones included.
    async fn containers(&self) -> Result<Vec<ContainerSummary>> {
        let ours = format!("{}={}", owner::HOST, owner::this_host());
        let filters = HashMap::from([("label", vec![ours])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        self.engine
            .client
            .list_containers(Some(options))
            .await
            .map_err(|error| failure::error("the sandboxes could not be listed", error))
    }

    async fn remove_abandoned(&self) -> Result<()> {
        let is_abandoned = |c: &ContainerSummary| c.labels.as_ref().is_some_and(owner::is_abandoned);
        let (abandoned, living): (Vec<_>, Vec<_>) =
            self.containers().await?.into_iter().partition(is_abandoned);
        let removals = abandoned.iter().filter_map(|c| c.id.as_deref()).map(|id| self.remove(id));
        join_all(removals).await.into_iter().collect::<Result<()>>()?;
        let session = |c: ContainerSummary| c.labels?.remove(owner::SESSION);
        overlay::sweep(&self.engine, &living.into_iter().filter_map(session).collect()).await
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
            _ => client.start_container(&name, None::<StartContainerOptions>).await.map_err(failed),
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

/// Removes the container of a start that was given up half-way.
struct Unfinished {
    docker: Docker,
    id: Option<String>,
}

impl Unfinished {
    fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) {
            let docker = self.docker.clone();
            runtime.spawn(async move { docker.remove(&id).await });
        }
    }
}

fn describe(spec: &Spec, id: &str, image: &Image) -> SandboxInfo {
    SandboxInfo {
        backend: "docker".to_owned(),
        id: short(id),
        image: Some(image.name.clone()),
        network: match &spec.network {
            Network::None => "none".to_owned(),
            Network::Hosts(hosts) => hosts.join(","),
            Network::Full => "full".to_owned(),
        },
        limits: spec.limits.clone(),
    }
}

/// The first twelve digits of an id, as the docker client shows it.
fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

fn listed(container: ContainerSummary) -> Option<Listed> {
    let session = container.labels?.remove(owner::SESSION)?;
    let state = match container.state? {
        ContainerSummaryStateEnum::RUNNING => "running",
        ContainerSummaryStateEnum::PAUSED => "paused",
        _ => "stopped",
    };
    let created = jiff::Timestamp::from_second(container.created?).ok()?.to_string();
    Some(Listed { session, id: short(&container.id?), state: state.to_owned(), created })
}
