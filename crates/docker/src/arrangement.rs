//! Protection that a container gets where the engine can: a user of its own, the host's directories without their sockets, and limits
//! for all that it runs.
//!
//! Whether an engine can is found out by trying. One that cannot gets a second request for less.

use super::endpoint::Address;
use super::engine::Engine;
use super::{failure, host_image, podman};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_sandbox::project::Project;
use agent_sandbox::{
    EnforcedLimits, HOME, Spec, WORKSPACE, WorkspaceMount, cgroup, sandbox_ids, session_ids,
};
use bollard::models::{ContainerInspectResponse, SystemInfo, VolumeCreateRequest};
use bollard::query_parameters::InspectContainerOptions;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, fstat, open};
use rustix::process::geteuid;
use std::path::{Path, PathBuf};

/// The engine's volume with nothing in it: the second layer of overlays without a writable one. It has a place of the
/// engine's, because everybody inside can read where it is.
const EMPTY: &str = "agent-empty";

/// The settings from which a container is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrangement {
    /// The user and group inside.
    pub ids: (u32, u32),
    /// Set if the engine may be on this machine.
    is_near: bool,
    /// The volumes that the engine fills from the image.
    filled: &'static [&'static str],
    /// Set if directories of the host are shown.
    shows_host: bool,
    /// The empty directory for overlays of the host's directories; without one they are bound.
    pub empty: Option<PathBuf>,
    /// Set if the engine is Podman.
    pub is_podman: bool,
    /// The limits that hold for all processes together; those of each process take the place of the others.
    pub enforced: EnforcedLimits,
}

impl Arrangement {
    /// The strongest that this engine may be able to make.
    pub(super) async fn best(engine: &Engine, spec: &Spec) -> Self {
        let is_near = matches!(engine.endpoint.address, Address::Unix(_));
        // What is written to a bound tree belongs to the user inside, who has to be the same from session to session.
        let has_own_user = is_near && !matches!(spec.workspace, WorkspaceMount::Bind(_));
        let shows_host = is_near && spec.image.as_deref().is_none_or(|name| name == host_image::NAME);
        let is_needed = shows_host || is_near && !spec.added.is_empty();
        let empty = async { if is_needed { empty_volume(engine).await } else { None } };
        let (info, is_podman, empty) = tokio::join!(engine.info(), podman::is_it(engine), empty);
        let mounts_none = is_podman && info.as_ref().is_ok_and(podman::is_rootless);
        Self {
            is_near,
            ids: if has_own_user { session_ids(&spec.session) } else { sandbox_ids() },
            filled: match spec.workspace {
                WorkspaceMount::Empty => &[HOME, WORKSPACE],
                // The layer of an overlay is made for its user.
                WorkspaceMount::Overlay { .. } | WorkspaceMount::Forked { .. } | WorkspaceMount::Bind(_) => {
                    &[HOME]
                }
            },
            shows_host,
            empty: empty.filter(|_| !mounts_none),
            is_podman,
            enforced: info.map_or(EnforcedLimits::ALL, |info| promised(&info)),
        }
    }

    /// Returns what to ask for after `error`; `None` where it is not about these.
    pub(super) fn simpler(&self, error: &Error) -> Option<Self> {
        let text = error.to_string();
        if self.ids != sandbox_ids()
            && (text == NO_OWN_USER || text.contains("setuid") || text.contains("uid"))
        {
            return Some(Self { ids: sandbox_ids(), ..self.clone() });
        }
        (self.empty.is_some() && text.contains("overlay")).then(|| Self { empty: None, ..self.clone() })
    }

    /// Returns whether it shows directories of the host.
    pub(super) fn shows_host(&self) -> bool {
        self.shows_host
    }

    /// Returns the project of `spec` in the container, where that is at its own path. Caches take overlays.
    pub(super) fn project(&self, machine: &Machine, spec: &Spec) -> Option<Project> {
        spec.place.as_ref()?;
        Some(Project::of(machine, spec, self.shows_host && self.empty.is_some()))
    }

    /// Returns what is to be said of the protection that it lacks.
    pub(super) fn missing(&self) -> Vec<String> {
        let binds_host = self.shows_host && self.empty.is_none();
        let overlays = binds_host.then(|| NO_OVERLAYS.to_owned());
        overlays.into_iter().chain(unenforced(self.enforced)).collect()
    }

    /// The limits that the engine enforces for a container that has just started, and what only a caller who is root can add
    /// to it before anything is run in it: its user owns what may be written to, and the buffers of its sockets are limited.
    /// An engine fills volumes from the image, where the owner is the user of all sessions.
    ///
    /// # Errors
    /// The container cannot be inspected, or its volumes are not this machine's.
    pub(super) async fn complete(&self, engine: &Engine, container: &str) -> Result<EnforcedLimits> {
        let inspected = engine.client.inspect_container(container, None::<InspectContainerOptions>).await;
        let inspected = inspected
            .map_err(|error| failure::error("the sandbox's container could not be inspected", error))?;
        let enforced = granted(&inspected, self.enforced);
        if !self.is_near || !geteuid().is_root() {
            return Ok(enforced);
        }
        limit_sockets(&inspected);
        if self.is_podman {
            podman::give_volumes(&inspected, self.ids)?;
        }
        if self.ids == sandbox_ids() {
            return Ok(enforced);
        }
        let is_filled = |place: &str| self.filled.contains(&place);
        let volumes = inspected.mounts.unwrap_or_default().into_iter();
        let mut sources = volumes
            .filter(|mount| mount.destination.as_deref().is_some_and(is_filled))
            .filter_map(|mount| mount.source);
        match sources.all(|source| give(Path::new(&source), self.ids)) {
            true => Ok(enforced),
            false => Err(Error::sandbox(NO_OWN_USER)),
        }
    }
}

/// The limits that the engine says it enforces. Rootless Docker answers here alone that it has no control groups.
fn promised(info: &SystemInfo) -> EnforcedLimits {
    let is_able = |able: Option<bool>| able != Some(false);
    EnforcedLimits {
        memory: is_able(info.memory_limit),
        cpus: is_able(info.cpu_cfs_quota),
        pids: is_able(info.pids_limit),
    }
}

/// The limits among `promised` that the container has. Rootless Podman drops those that it cannot enforce, and promises all.
fn granted(container: &ContainerInspectResponse, promised: EnforcedLimits) -> EnforcedLimits {
    let Some(config) = &container.host_config else { return promised };
    let is_set = |value: Option<i64>| value.is_some_and(|value| value > 0);
    EnforcedLimits {
        memory: promised.memory && is_set(config.memory),
        cpus: promised.cpus && (is_set(config.cpu_quota) || is_set(config.nano_cpus)),
        pids: promised.pids && is_set(config.pids_limit),
    }
}

/// Returns what is to be said of limits that hold for less than the sandbox, or not at all.
fn unenforced(enforced: EnforcedLimits) -> Option<String> {
    let limits =
        [(enforced.memory, "memory"), (enforced.pids, "processes"), (enforced.cpus, "processor time")];
    let unlimited: Vec<&str> =
        limits.into_iter().filter(|(is_enforced, _)| !is_enforced).map(|(_, what)| what).collect();
    let what = (!unlimited.is_empty()).then(|| unlimited.join(", "))?;
    Some(format!(
        "The engine does not limit {what} of the sandbox as a whole, at best of each process. {CONTROL_GROUPS}"
    ))
}

/// Limits the buffers of the sockets of a container that has been started, where the caller may.
pub(super) fn limit_sockets(container: &ContainerInspectResponse) {
    let pid = container.state.as_ref().and_then(|state| state.pid).and_then(|pid| u32::try_from(pid).ok());
    let memory = container.host_config.as_ref().and_then(|config| config.memory);
    let memory = memory.and_then(|memory| u64::try_from(memory).ok());
    if let (Some(first), Some(memory), Some(id)) = (pid, memory, &container.id) {
        cgroup::limit_sockets(first, id, cgroup::socket_bytes(memory));
    }
}

/// Gives a volume's directory to the user `ids`, if it belongs to the user of all sessions, or is that user's already: then
/// it is the engine's own, on this machine, and no other user namespace lies in between.
fn give(volume: &Path, (uid, gid): (u32, u32)) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = open(volume, flags, Mode::empty()) else { return false };
    let Ok(owner) = fstat(&directory) else { return false };
    match (owner.st_uid, owner.st_gid) {
        found if found == (uid, gid) => true,
        found if found == sandbox_ids() => {
            fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).is_ok()
        }
        _ => false,
    }
}

/// The error of an engine whose volumes are elsewhere, or whose users are others.
const NO_OWN_USER: &str = "the engine's volumes cannot be given to a user of the session's own";

/// The requirement for enforcing limits, for the notice that they cannot be.
const CONTROL_GROUPS: &str = "That takes control groups, which an engine of root's has, and a rootless one where they are of version 2.";

/// The notice where the host's directories are bound.
const NO_OVERLAYS: &str = "The engine does not mount overlays of this machine's directories: the caches of package managers are not shown, and the \
     sandbox can reach sockets and FIFOs that programs of this machine make below them from now on. `--sandbox local` or another image (`--image python:3-slim`) avoids it.";

/// Returns the path of the empty volume; `None` where the engine has none and makes none.
async fn empty_volume(engine: &Engine) -> Option<PathBuf> {
    let path = |mountpoint: String| Some(PathBuf::from(mountpoint)).filter(|path| path.is_absolute());
    let find = async || engine.client.inspect_volume(EMPTY).await;
    if let Ok(volume) = find().await {
        return path(volume.mountpoint);
    }
    let request = VolumeCreateRequest { name: Some(EMPTY.to_owned()), ..Default::default() };
    match engine.client.create_volume(request).await {
        Ok(volume) => path(volume.mountpoint),
        // Podman refuses a name that another process has taken meanwhile.
        Err(_) => path(find().await.ok()?.mountpoint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_refuses_overlays_gets_binds_and_the_user_is_told() {
        let empty = Some(PathBuf::from("/volumes/empty"));
        let best = Arrangement {
            ids: sandbox_ids(),
            is_near: true,
            filled: &[HOME],
            shows_host: true,
            empty,
            is_podman: false,
            enforced: EnforcedLimits::ALL,
        };
        assert_eq!(best.missing(), Vec::<String>::new());
        let refusal = Error::sandbox("error while mounting volume: type: overlay: invalid argument");
        let simpler = best.simpler(&refusal).expect("another attempt");
        assert_eq!((simpler.empty.as_ref(), simpler.missing()), (None, vec![NO_OVERLAYS.to_owned()]));
        assert_eq!(simpler.simpler(&refusal), None);
        assert_eq!(best.simpler(&Error::sandbox("no space left on device")), None);
    }

    #[test]
    fn limits_that_an_engine_denies_or_drops_are_reported() {
        let rootless_docker =
            SystemInfo { memory_limit: Some(false), pids_limit: Some(false), ..Default::default() };
        let promised = promised(&rootless_docker);
        assert_eq!(promised, EnforcedLimits { memory: false, cpus: true, pids: false });
        let config = |quota| {
            let config = bollard::models::HostConfig { cpu_quota: Some(quota), ..Default::default() };
            ContainerInspectResponse { host_config: Some(config), ..Default::default() }
        };
        assert_eq!(granted(&config(50_000), promised), promised);
        assert_eq!(granted(&config(0), promised), EnforcedLimits::default());
        let said = unenforced(promised).expect("a notice");
        assert!(said.contains("memory") && said.contains("processes") && !said.contains("processor time"));
        assert_eq!(unenforced(EnforcedLimits::ALL), None);
    }
}
