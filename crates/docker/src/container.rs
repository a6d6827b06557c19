//! The container of a sandbox: every default that keeps what runs inside from hurting anything.

use super::accounts;
use super::endpoint::Address;
use super::engine::Engine;
use super::host_image;
use super::image::Image;
use super::overlay;
use super::skeleton::{FILTERS, GUEST};
use super::start::Planned;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_event::Limits;
use agent_sandbox::environment::variables;
use agent_sandbox::ownership::Ownership;
use agent_sandbox::project::Project;
use agent_sandbox::{
    Access, EnforcedLimits, HOME, Network, Spec, WORKSPACE, WorkspaceMount, bootstrap, run_bytes,
};
use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountBindOptions, MountType,
    ResourcesUlimits,
};
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The name of the guest's abstract socket inside.
pub(super) const SOCKET: &str = "agent-guest";
/// Open files a process may have. Engines without the right to raise limits (rootless ones, nested ones) refuse more
/// than they have themselves, so this stays well below what is usual.
const OPEN_FILES: i64 = 16_384;
/// The kernel's default period of the processor quota, in microseconds.
const CPU_PERIOD: i64 = 100_000;

/// Returns what the engine is asked for. The guest is process 1 and talks over the container's standard input and output.
pub(super) fn body(planned: &Planned<'_>, image: &Image, engine: &Engine) -> Result<ContainerCreateBody> {
    let Planned { spec, arrangement, .. } = planned;
    let (uid, gid) = arrangement.ids;
    let (path, home, own) = match planned.on_host_programs(image) {
        Some(project) => (&project.path, &*project.home.to_string_lossy(), &project.env),
        None => (&image.path, HOME, &image.env),
    };
    let env = variables(path, home).into_iter().chain(own.iter().cloned());
    let mut confined = confinement(spec, engine, arrangement.enforced);
    // An image's own `/root` is closed to the user inside.
    let added = planned.project.iter().flat_map(|project| &project.added).map(|added| added.path.as_path());
    let mut shown = added.chain([Path::new(planned.places()?[0])]);
    if planned.on_host_programs(image).is_none() && shown.any(|path| path.starts_with("/root")) {
        let tmpfs = confined.tmpfs.get_or_insert_default();
        tmpfs.insert("/root".to_owned(), "rw,nosuid,nodev,mode=0755,size=1m".to_owned());
    }
    Ok(ContainerCreateBody {
        image: Some(image.tag.clone()),
        entrypoint: Some(vec![GUEST.to_owned()]),
        cmd: Some(serve_arguments(planned, image, &engine.machine)?),
        user: Some(format!("{uid}:{gid}")),
        working_dir: Some(planned.places()?.swap_remove(0).to_owned()),
        hostname: Some("sandbox".to_owned()),
        env: Some(env.map(|(name, value)| format!("{name}={value}")).collect()),
        labels: Some(Ownership::of(spec).labels()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        open_stdin: Some(true),
        // The guest sees the end of its input when the first client goes, however it goes.
        stdin_once: Some(true),
        tty: Some(false),
        host_config: Some(HostConfig { mounts: Some(mounts(planned, image, &engine.machine)?), ..confined }),
        ..Default::default()
    })
}

impl Planned<'_> {
    /// The project, where the container has this machine's programs around it.
    fn on_host_programs(&self, image: &Image) -> Option<&Project> {
        self.project.as_ref().filter(|_| image.name == host_image::NAME)
    }

    /// The names of the workspace, its own path first.
    fn places(&self) -> Result<Vec<&str>> {
        let own = self.project.as_ref().map(|project| text(&project.place)).transpose()?;
        Ok(own.into_iter().filter(|own| *own != WORKSPACE).chain([WORKSPACE]).collect())
    }
}

fn serve_arguments(planned: &Planned<'_>, image: &Image, machine: &Machine) -> Result<Vec<String>> {
    let spec = planned.spec;
    let (idle_ttl, disk) = (spec.idle_ttl.as_secs().to_string(), spec.limits.disk.to_string());
    let mut arguments = vec!["serve", "--idle-ttl", &idle_ttl, "--socket", SOCKET, "--disk", &disk];
    if bootstrap::is_for_this_processor(machine)? {
        arguments.extend(["--filters", FILTERS]);
    }
    arguments.extend(["--workspace", planned.places()?[0]]);
    for (_, inside) in planned.on_host_programs(image).iter().flat_map(|project| &project.caches) {
        arguments.extend(["--disk-directory", text(inside)?]);
    }
    for added in planned.project.iter().flat_map(|project| &project.added) {
        if added.access != Access::ReadOnly {
            arguments.extend(["--disk-directory", text(&added.path)?]);
        }
    }
    Ok(arguments.into_iter().map(str::to_owned).collect())
}

fn confinement(spec: &Spec, engine: &Engine, enforced: EnforcedLimits) -> HostConfig {
    let limits = &spec.limits;
    let memory = signed(limits.memory);
    HostConfig {
        network_mode: Some(
            match spec.network {
                // Named hosts are reached through the guest's proxy, without an interface.
                Network::None | Network::Hosts(_) => "none",
                Network::Full => "bridge",
            }
            .to_owned(),
        ),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        readonly_rootfs: Some(true),
        tmpfs: Some(tmpfs(limits.memory)),
        shm_size: Some(signed(limits.memory / 4)),
        ipc_mode: Some("private".to_owned()),
        memory: Some(memory),
        memory_swap: Some(memory),
        cpu_period: Some(CPU_PERIOD),
        // A quota may exceed what the machine has, which `NanoCpus` may not.
        cpu_quota: Some(((limits.cpus * CPU_PERIOD as f64) as i64).max(1_000)),
        pids_limit: Some(signed(limits.pids)),
        ulimits: Some(ulimits(limits, engine, enforced)),
        log_config: Some(no_log()),
        auto_remove: Some(spec.ephemeral),
        init: Some(false),
        runtime: spec.runtime.clone(),
        ..Default::default()
    }
}

/// The limits of each process, which take the place of those that the engine does not enforce for all of them.
///
/// Podman asks for 1,048,576 processes of a user where nothing else is asked for, and an engine that may not raise limits
/// (CAP_SYS_RESOURCE) cannot grant them. What this process may have, an engine beside it may have too; Podman lowers its
/// own limit to the highest number of processes that the kernel can have.
fn ulimits(limits: &Limits, engine: &Engine, enforced: EnforcedLimits) -> Vec<ResourcesUlimits> {
    let mut ulimits =
        vec![ulimit("nofile", OPEN_FILES), ulimit("fsize", signed(limits.disk)), ulimit("core", 0)];
    if !enforced.memory {
        // Private writable memory; runtimes reserve far more addresses than they ever use.
        ulimits.push(ulimit("data", signed(limits.memory)));
    }
    let most = match &engine.endpoint.address {
        Address::Unix(_) => getrlimit(Resource::Nproc).maximum.map(|most| most.min(most_processes())),
        _ => None,
    };
    let pids = (!enforced.pids).then(|| limits.pids.min(most.unwrap_or(u64::MAX)));
    ulimits.extend(pids.or(most).map(|processes| ulimit("nproc", signed(processes))));
    ulimits
}

/// The highest number of processes that this kernel can have.
fn most_processes() -> u64 {
    let ids = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok();
    ids.and_then(|ids| ids.trim().parse().ok()).unwrap_or(u64::MAX)
}

/// `/tmp` allows programs: builds and test runners put them there. It counts as memory. Podman takes no owner for `/run`,
/// so everyone inside, which is one user, may write there; see [`Skeleton::base`](super::skeleton::Skeleton::base) too.
fn tmpfs(memory: u64) -> HashMap<String, String> {
    [
        ("/tmp", format!("rw,exec,nosuid,nodev,mode=1777,size={}", memory / 2)),
        ("/run", format!("rw,noexec,nosuid,nodev,mode=1777,size={}", run_bytes(memory))),
    ]
    .map(|(path, options)| (path.to_owned(), options))
    .into()
}

/// The image's own read-only binds, and volumes without a name for what may be written: they are removed with the
/// container, and take the ownership of the directory that the image has in their place.
fn mounts(planned: &Planned<'_>, image: &Image, machine: &Machine) -> Result<Vec<Mount>> {
    let Planned { spec, arrangement, .. } = planned;
    let project = planned.on_host_programs(image);
    let home = project.map_or(HOME.into(), |project| project.home.to_string_lossy());
    // What lies in $HOME is shown by the caches, or by nothing.
    let is_in_home = |inside: &Path| project.is_some_and(|project| inside.starts_with(&project.home));
    // An overlay's sockets are others than the host's; gVisor cannot mount anything on a socket.
    let is_needless = |host: &Path, inside: &Path| {
        arrangement.empty.is_some() && covers_socket_of_overlay(image, host, inside)
    };
    let binds = image.binds.iter().filter(|(host, inside)| !is_in_home(inside) && !is_needless(host, inside));
    let shown = binds.map(|(host, inside)| show(host, inside, arrangement.empty.as_deref()));
    let mut mounts = shown.collect::<Result<Vec<_>>>()?;
    for (file, inside) in accounts::write(machine, &spec.session, image, arrangement.ids, &home)? {
        mounts.push(bind(&file, inside, true)?);
    }
    match project {
        Some(project) => mounts.extend(around(project, machine, &spec.session)?),
        None => mounts.push(overlay::volume(HOME, None)),
    }
    for added in planned.project.iter().flat_map(Project::added) {
        mounts.push(overlay::added(machine, &spec.session, added, arrangement.empty.is_some())?);
    }
    let places = planned.places()?;
    mounts.extend(match &spec.workspace {
        WorkspaceMount::Empty if planned.project.is_some() => {
            let directory = overlay::workspace(machine, &spec.session)?;
            places.iter().map(|place| bind(&directory, Path::new(place), false)).collect::<Result<_>>()?
        }
        WorkspaceMount::Empty => vec![overlay::volume(WORKSPACE, None)],
        WorkspaceMount::Bind(directory) => {
            let directory = real(directory)?;
            places.iter().map(|place| bind(&directory, Path::new(place), false)).collect::<Result<_>>()?
        }
        WorkspaceMount::Overlay { lower, .. } | WorkspaceMount::Forked { lower, .. } => {
            overlay::mounts(machine, &spec.session, &real(lower)?, &places)?
        }
    });
    Ok(mounts)
}

/// `$HOME` at both of its names, and the caches.
fn around(project: &Project, machine: &Machine, session: &str) -> Result<Vec<Mount>> {
    let home = overlay::home(machine, session, &project.home)?;
    let own = Some(text(&project.home)?).filter(|own| *own != HOME);
    let places: Vec<&str> = own.into_iter().chain([HOME]).collect();
    let mut mounts = match overlay::home_over_layer(machine, session, &places)? {
        Some(mounts) => mounts,
        None => places.iter().map(|place| bind(&home, Path::new(place), false)).collect::<Result<_>>()?,
    };
    for (index, cache) in project.caches.iter().enumerate() {
        mounts.push(overlay::cache(machine, session, index, cache)?);
    }
    Ok(mounts)
}

/// A part of the host, read-only: a directory as an overlay, where sockets and FIFOs are others than the host's. Those of
/// `/etc` are bound: volumes take some milliseconds each, and what is in these was looked at.
fn show(host: &Path, inside: &Path, empty: Option<&Path>) -> Result<Mount> {
    match (empty, inside.to_str()) {
        (Some(empty), Some(text)) if host.is_dir() && !inside.starts_with("/etc") => {
            overlay::read_only(host, text, empty).or_else(|_| bind(host, inside, true))
        }
        _ => bind(host, inside, true),
    }
}

/// Returns whether `/dev/null` covers a socket below a directory that [`show`] makes an overlay.
fn covers_socket_of_overlay(image: &Image, host: &Path, inside: &Path) -> bool {
    let is_socket =
        |file: &Path| std::fs::symlink_metadata(file).is_ok_and(|file| file.file_type().is_socket());
    host == Path::new("/dev/null")
        && !inside.starts_with("/etc")
        && image.binds.iter().any(|(shown, at)| {
            inside.strip_prefix(at).is_ok_and(|below| shown.is_dir() && is_socket(&shown.join(below)))
        })
}

pub(super) fn binds(image: &Image) -> Result<Vec<Mount>> {
    image.binds.iter().map(|(host, inside)| bind(host, inside, true)).collect()
}

pub(super) fn real(workspace: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(workspace).map_err(|error| {
        Error::usage(format!("{} is not a valid workspace", workspace.display())).caused_by(error)
    })
}

pub(super) fn bind(host: &Path, inside: &Path, read_only: bool) -> Result<Mount> {
    Ok(Mount {
        typ: Some(MountType::BIND),
        source: Some(text(host)?.to_owned()),
        target: Some(text(inside)?.to_owned()),
        read_only: Some(read_only),
        // What is mounted below would be writable on older engines: see `submounts`.
        bind_options: Some(MountBindOptions { non_recursive: Some(read_only), ..Default::default() }),
        ..Default::default()
    })
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::sandbox(format!("the engine cannot mount {}: the name is not UTF-8", path.display()))
    })
}

/// The guest's output is for its client alone.
pub(super) fn no_log() -> HostConfigLogConfig {
    HostConfigLogConfig { typ: Some("none".to_owned()), config: None }
}

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(value), hard: Some(value) }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
