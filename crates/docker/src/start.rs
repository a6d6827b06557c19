//! The start of a sandbox: create, attach, start; and nothing left behind where that stops half-way.

use super::arrangement::Arrangement;
use super::image::Image;
use super::overlay::{Filling, Mapped};
use super::{Docker, NAME, accounts, channel, container, failure, host_image, named_image, overlay, podman};
use agent_base::error::{Error, Result};
use agent_event::SandboxInfo;
use agent_sandbox::ownership::sandbox_name;
use agent_sandbox::project::Project;
use agent_sandbox::{Backend, Channel, EnforcedLimits, OnProgress, Spec, WorkspaceMount};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, StartContainerOptions,
};
use futures_util::future::join_all;
use std::time::Duration;

/// A container that is to be made.
pub(super) struct Planned<'a> {
    pub spec: &'a Spec,
    pub arrangement: &'a Arrangement,
    /// The project in it, where that is at its own path.
    pub project: Option<Project>,
}

/// The pause before the same is asked of an engine again that refused it.
const PAUSE: Duration = Duration::from_millis(200);

impl Docker {
    /// Creates and starts the container of `spec`.
    pub(super) async fn start_sandbox(
        &self,
        spec: &Spec,
        on_progress: OnProgress<'_>,
    ) -> Result<(Channel, SandboxInfo)> {
        let mut arrangement = Arrangement::best(&self.engine, spec).await;
        let mut refused = None;
        loop {
            match self.start_as(spec, &arrangement, on_progress).await {
                Ok((channel, info, enforced)) if enforced == arrangement.enforced => {
                    return Ok((channel, info));
                }
                // Limits of each process are set when a container is made.
                Ok((channel, _, enforced)) => {
                    drop(channel);
                    self.destroy(&spec.session).await?;
                    arrangement.enforced = enforced;
                }
                Err(error) => {
                    let simpler = arrangement.simpler(&error).ok_or(error)?;
                    // An engine that fails for a moment costs no protection.
                    if refused.as_ref() == Some(&simpler) {
                        arrangement = simpler;
                    } else {
                        refused = Some(simpler);
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    /// One attempt, with the limits that the engine turned out to enforce. Nothing is left of one that failed.
    async fn start_as(
        &self,
        spec: &Spec,
        arrangement: &Arrangement,
        on_progress: OnProgress<'_>,
    ) -> Result<(Channel, SandboxInfo, EnforcedLimits)> {
        let layer = match &spec.workspace {
            WorkspaceMount::Overlay { lower, hidden } => Some((lower, Filling::Hidden(hidden))),
            WorkspaceMount::Forked { lower, layer } => Some((lower, Filling::Forked(layer))),
            WorkspaceMount::Empty | WorkspaceMount::Bind(_) => None,
        };
        if let Some((lower, filling)) = layer {
            let lower = container::real(lower)?;
            overlay::make(&self.engine.machine, spec, &lower, &filling, arrangement.ids)?;
        }
        let planned = Planned { spec, arrangement, project: arrangement.project(&self.engine.machine, spec) };
        let created = match self.prepare(&planned) {
            Ok(()) => self.create(&planned, on_progress).await,
            Err(error) => Err(error),
        };
        let (id, image) = match created {
            Ok(created) => created,
            Err(error) => {
                // The first error is reported; a layer that cannot be removed now is swept later.
                let _ = overlay::remove(&self.engine, &spec.session).await;
                return Err(error);
            }
        };
        self.know(&spec.session, &id);
        let unfinished = Unfinished { docker: self.clone(), id: Some(id.clone()) };
        let launched = self.launch(&spec.session, &id, arrangement).await;
        unfinished.disarm();
        match launched {
            Ok((channel, enforced)) => {
                let info = spec.describe(NAME, short(&id), Some(image.name));
                Ok((channel, SandboxInfo { missing: arrangement.missing(), ..info }, enforced))
            }
            Err(error) => {
                // The first error is reported; what cannot be removed now is swept later.
                let _ = self.remove(&id).await;
                let _ = overlay::remove(&self.engine, &spec.session).await;
                Err(error)
            }
        }
    }

    /// Makes on this machine what the container is to show of it.
    fn prepare(&self, Planned { spec, arrangement, project }: &Planned<'_>) -> Result<()> {
        let Some(project) = project else { return Ok(()) };
        overlay::prepare(&self.engine.machine, project, arrangement.shows_host(), arrangement.ids, spec)
    }

    /// Creates the container. Whether the image is there is found out by trying, which costs nothing when it is.
    async fn create(&self, planned: &Planned<'_>, on_progress: OnProgress<'_>) -> Result<(String, Image)> {
        let Planned { spec, arrangement, .. } = planned;
        let asked_for = spec.image.as_deref();
        if asked_for.is_none_or(|name| name == host_image::NAME) {
            let (image, skeleton) = host_image::describe(&self.engine.machine)?;
            if let Some(id) = self.try_create(planned, &image).await? {
                return Ok((id, image));
            }
            if host_image::make(&self.engine, &image, &skeleton).await? {
                return self.create_from(planned, image).await;
            }
            if asked_for.is_some() {
                return Err(host_image::not_here(&self.engine));
            }
        }
        let name = asked_for.unwrap_or(agent_sandbox::image::DEFAULT);
        let (mut image, underneath) = named_image::find(&self.engine, name, on_progress).await?;
        image.accounts = accounts::recall(&self.engine.machine, &image)?;
        let is_known = image.accounts.is_some() || !accounts::are_needed(arrangement.ids);
        if is_known && let Some(id) = self.try_create(planned, &image).await? {
            return Ok((id, image));
        }
        image.accounts = Some(named_image::prepare(&self.engine, &image, &underneath).await?);
        self.create_from(planned, image).await
    }

    /// Creates the container from an image that was made just now.
    async fn create_from(&self, planned: &Planned<'_>, image: Image) -> Result<(String, Image)> {
        match self.try_create(planned, &image).await? {
            Some(id) => {
                image.remove_former(&self.engine).await;
                Ok((id, image))
            }
            None => Err(Error::sandbox(format!("the image {} was made and is gone again", image.tag))),
        }
    }

    /// The container's id; `None` where the engine does not have the image.
    async fn try_create(&self, planned: &Planned<'_>, image: &Image) -> Result<Option<String>> {
        let spec = planned.spec;
        let name = sandbox_name(&spec.session)?;
        let mut body = container::body(planned, image, &self.engine)?;
        if planned.arrangement.is_podman {
            podman::make_volumes(&self.engine, &spec.session, &mut body).await?;
        }
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        match self.engine.client.create_container(Some(options), body).await {
            Ok(created) => Ok(Some(created.id)),
            Err(error) => match failure::status(&error) {
                Some(404) if failure::text(&error).to_lowercase().contains("no such image") => Ok(None),
                Some(409) => Err(Error::sandbox(format!("session {} already has a sandbox", spec.session))),
                _ => Err(not_created(spec, error)),
            },
        }
    }

    /// Attaches first, so that nothing the guest says is lost, then starts.
    async fn launch(
        &self,
        session: &str,
        id: &str,
        arrangement: &Arrangement,
    ) -> Result<(Channel, EnforcedLimits)> {
        // Podman mounts when it is attached to, Docker when it starts.
        let mapped = overlay::show_mapped(&self.engine.machine, session).await?;
        let options = AttachContainerOptionsBuilder::default().stream(true).stdin(true).stdout(true).build();
        let attached = self
            .engine
            .client
            .attach_container(id, Some(options))
            .await
            .map_err(|error| failure::error("the sandbox's container could not be attached to", error))?;
        let started = self.engine.client.start_container(id, None::<StartContainerOptions>).await;
        join_all(mapped.into_iter().map(Mapped::end)).await;
        started.map_err(not_started)?;
        let enforced = arrangement.complete(&self.engine, id).await?;
        Ok((channel::channel(&self.engine.endpoint.address, attached.output, attached.input), enforced))
    }
}

fn not_created(spec: &Spec, error: bollard::errors::Error) -> Error {
    let text = failure::text(&error);
    let of_the_runtime = spec.runtime.is_some() && text.contains("runtime");
    let of_a_mount = text.contains("mount") && text.contains("permission denied");
    let error = failure::error("the sandbox's container could not be created", error);
    if of_the_runtime {
        return error.hint("`agent doctor --runtime NAME` lists the runtimes of the engine");
    }
    if of_a_mount {
        return error.hint(
            "the engine runs as a user who may not read that file: run `agent` as the same user, or use \
             `--sandbox local`",
        );
    }
    error
}

fn not_started(error: bollard::errors::Error) -> Error {
    let text = failure::text(&error);
    let (of_another_machine, of_limits) = (text.contains("exec format error"), text.contains("rlimit"));
    let error = failure::error("the sandbox's container could not be started", error);
    if of_another_machine {
        return error.hint(
            "image and engine are for another processor: AGENT_GUEST can name a guest built for theirs",
        );
    }
    if of_limits {
        return error.hint(
            "the engine may not set resource limits (CAP_SYS_RESOURCE is missing): start it with that right, or use \
             --sandbox local",
        );
    }
    error
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

/// The first twelve digits of an id, as the docker client shows it.
pub(super) fn short(id: &str) -> String {
    id.chars().take(12).collect()
}
