//! The start of a sandbox: images, disk and initial file system are made, QEMU is launched, and the guest is waited for.

use super::Vm;
use super::host::{self, Accelerator, Host};
use super::initial::{self, Shown};
use super::qemu::{self, OWN_MEMORY, Parts};
use super::{disk, engine, images, kernel, modules, named, snapshot, status};
use crate::settings::Settings;
use crate::{CAPABILITIES, NAME};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_event::{Limits, SandboxInfo};
use agent_sandbox::host_tree::{HostTree, host_tree};
use agent_sandbox::ownership::sandbox_name;
use agent_sandbox::{
    Channel, HOME, OnProgress, Spec, WORKSPACE, bootstrap, docker_client_settings, environment, run_bytes,
    seccomp, session_ids,
};
use agent_wire::boot_spec::{CGROUP, DISK_FILE, FRESH_FILE, SESSION_FILE, SessionSpec};
use agent_wire::launch_spec::LaunchSpec;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The directory at which the sandbox that QEMU runs in shows the cache.
const CACHE: &str = "/machine";
/// A machine's initial file system, in its private directory.
const INITIAL_FILE: &str = "/workspace/initial";
/// Threads of QEMU and its keeper.
const THREADS: u64 = 128;
/// Open files of a process, the same as on other backends.
const OPEN_FILES: u64 = 16_384;

impl Vm {
    /// Makes the machine of `spec` and connects to its guest. Where none boots with KVM, which a nested one may only pretend to
    /// have, the processor is emulated from then on.
    pub(crate) async fn start_machine(
        &self,
        spec: &Spec,
        on_progress: OnProgress<'_>,
    ) -> Result<(Channel, SandboxInfo)> {
        CAPABILITIES.check(NAME, spec)?;
        let host = Host::find(&self.machine)?;
        match self.start_on(&host, spec, on_progress).await {
            Err(_) if matches!(host.accelerator, Accelerator::Kvm { .. }) => {
                let emulated = Host { accelerator: Accelerator::Emulated(String::new()), ..host };
                let started = self.start_on(&emulated, spec, on_progress).await?;
                host::give_up_kvm(&self.machine);
                Ok(started)
            }
            started => started,
        }
    }

    async fn start_on(
        &self,
        host: &Host,
        spec: &Spec,
        on_progress: OnProgress<'_>,
    ) -> Result<(Channel, SandboxInfo)> {
        let plan = Plan::make(self, host, spec, on_progress).await?;
        let state = snapshot::ready(self, &plan, spec, on_progress).await;
        let slow = if plan.is_emulated() { ", whose processor is emulated and slow" } else { "" };
        on_progress(&format!("starting the virtual machine{slow}"), 0, 0);
        let restored = match &state {
            Some(state) => self.launch(&plan, spec, &Way::Restored(state)).await,
            None => self.launch(&plan, spec, &Way::Booted).await,
        };
        let channel = match (restored, state) {
            (Err(_), Some(state)) => {
                snapshot::give_up(&state);
                self.launch(&plan, spec, &Way::Booted).await?
            }
            (launched, _) => launched?,
        };
        Ok((
            self.reopened(channel, &spec.session),
            spec.describe(NAME, sandbox_name(&spec.session)?, spec.image.clone()),
        ))
    }

    /// Launches QEMU in a sandbox, and waits until its keeper says that there is a guest.
    pub(super) async fn launch(&self, plan: &Plan, spec: &Spec, way: &Way<'_>) -> Result<Channel> {
        let outer = Limits {
            memory: plan.parts.memory.saturating_add(OWN_MEMORY),
            cpus: spec.limits.cpus,
            pids: THREADS,
            // Its state, where it is paused, is a file as well.
            disk: disk::bytes(spec.limits.disk).max(plan.parts.memory.saturating_mul(2)),
        };
        let prepare = |directory: PathBuf, owner| async move {
            let there = |file: &str| file_in(&directory, file);
            match way {
                Way::Restored(state) => {
                    disk::copy(&snapshot::disk_of(state), &there(DISK_FILE), Some(owner)).map_err(
                        |error| {
                            Error::sandbox("the virtual machine's disk cannot be copied").caused_by(error)
                        },
                    )?;
                    write_owned(&there(FRESH_FILE), &[], owner)?;
                }
                Way::Booted | Way::Saved => {
                    disk::make(&there(DISK_FILE), spec.limits.disk, owner, plan.is_kept).await?;
                }
            }
            // Where a sandbox is kept, it boots when it is started again.
            if !matches!(way, Way::Restored(_)) || plan.is_kept {
                write_owned(&there(INITIAL_FILE), &plan.initial, owner)?;
                write_owned(&there(SESSION_FILE), &plan.session, owner)?;
            }
            outer_sandbox(plan, spec, way)
        };
        let channel = self.keeper.start(spec, &outer, prepare).await?;
        let launcher = self.keeper.launcher(&spec.session);
        let boot = Duration::from_secs(plan.host.boot_timeout.into());
        match status::admitted(channel, boot).await {
            Ok(channel) => Ok(channel),
            Err(error) => {
                self.keeper.remove_failed(&spec.session, launcher).await;
                Err(error)
            }
        }
    }
}

/// The start of a machine, by where its state comes from.
pub(super) enum Way<'a> {
    Booted,
    /// From this file of the cache.
    Restored(&'a Path),
    /// It boots, and its state is written to a file of its own.
    Saved,
}

/// The parts of a machine, and what it shows of this one.
pub(super) struct Plan {
    pub host: Host,
    pub cache: PathBuf,
    pub parts: Parts,
    pub kernel: PathBuf,
    pub initial: Vec<u8>,
    /// The session that the machine is given once it has booted: the same for all sessions with these limits.
    pub session: Vec<u8>,
    pub is_kept: bool,
    tree: Arc<HostTree>,
}

impl Plan {
    async fn make(vm: &Vm, host: &Host, spec: &Spec, on_progress: OnProgress<'_>) -> Result<Self> {
        let cache = cache(&vm.machine)?;
        let tree = host_tree(&vm.machine);
        let kernel = in_cache(&kernel::ready(&host.kernel, &cache)?);
        let (inside, shown, images) = match spec.image.as_deref().filter(|image| *image != "host") {
            None => {
                let shown = Shown::of(&tree);
                let images = images::ready(&shown.images, &cache, on_progress).await?;
                (Arc::clone(&tree), shown, images)
            }
            Some(name) => {
                let root = named::ready(&vm.machine, name, &cache, on_progress).await?;
                (Arc::new(root.tree), root.shown, vec![root.image])
            }
        };
        let parts = Parts {
            images: images.iter().map(|image| in_cache(image)).collect(),
            disk: DISK_FILE.into(),
            memory: spec.limits.memory.saturating_add(qemu::kernel_memory(spec.limits.memory)),
            cpus: spec.limits.cpus,
        };
        let guest = bootstrap::bytes(&vm.machine)?;
        let modules = modules::read(&host.modules, host.board, spec.docker)?;
        let initial = initial::archive(&guest, modules, &shown, images.len())?;
        let session = SessionSpec {
            memory: spec.limits.memory,
            pids: spec.limits.pids,
            launch: inner_sandbox(&inside, &shown, spec)?.encode(),
        };
        Ok(Self {
            host: host.clone(),
            cache,
            parts,
            kernel,
            initial,
            session: session.encode(),
            is_kept: !spec.ephemeral,
            tree,
        })
    }

    pub fn is_emulated(&self) -> bool {
        matches!(self.host.accelerator, Accelerator::Emulated(_))
    }
}

/// Returns the path on this machine of a machine's file, which the sandbox that QEMU runs in has at `file`: `directory`
/// is the workspace there.
pub(super) fn file_in(directory: &Path, file: &str) -> PathBuf {
    directory.join(Path::new(file).file_name().unwrap_or_default())
}

/// Returns the path of a file of the cache in the sandbox that QEMU runs in.
fn in_cache(path: &Path) -> PathBuf {
    Path::new(CACHE).join(path.file_name().unwrap_or_default())
}

/// Returns the directory of kernels and images, and makes it where it is missing.
pub(crate) fn cache(machine: &Machine) -> Result<PathBuf> {
    let cache = match Settings::of(machine).cache {
        Some(cache) => cache,
        None => machine.cache_dir()?.join(NAME),
    };
    DirBuilder::new()
        .mode(0o755)
        .recursive(true)
        .create(&cache)
        .map_err(|error| Error::sandbox(format!("{} cannot be made", cache.display())).caused_by(error))?;
    Ok(cache)
}

fn write_owned(path: &Path, content: &[u8], (uid, gid): (u32, u32)) -> Result<()> {
    let written = images::write_whole(path, content).and_then(|()| chown(path, Some(uid), Some(gid)));
    written.map_err(|error| Error::sandbox(format!("{} cannot be written", path.display())).caused_by(error))
}

/// The sandbox in the machine: as on this machine, over images and a disk. Its user is the same in all machines, which have no other.
fn inner_sandbox(tree: &HostTree, shown: &Shown, spec: &Spec) -> Result<LaunchSpec> {
    let (uid, gid) = if spec.docker { (0, 0) } else { session_ids(NAME) };
    let idle_ttl = spec.idle_ttl.as_secs().clamp(1, u64::from(u32::MAX)).to_string();
    let (disk, memory) = (spec.limits.disk.to_string(), spec.limits.memory);
    let argv = [
        "/proc/self/exe",
        "serve",
        "--listen-fd",
        "3",
        "--idle-ttl",
        &idle_ttl,
        "--disk",
        &disk,
        "--workspace",
        WORKSPACE,
        "--engine",
        if spec.docker { "yes" } else { "no" },
    ];
    let mut variables = environment::variables(&tree.path, HOME);
    if spec.docker {
        variables.retain(|(name, _)| !["USER", "LOGNAME"].contains(&name.as_str()));
        variables.extend(["USER", "LOGNAME"].map(|name| (name.to_owned(), "root".to_owned())));
    }
    let variables = variables.into_iter().chain(tree.env.iter().cloned());
    let (engine, engine_env) = if spec.docker { engine::command() } else { Default::default() };
    let engine_client =
        if spec.docker { docker_client_settings().to_string().into_bytes() } else { Vec::new() };
    let counters = ["memory.events", "memory.current", "memory.max", "pids.current", "pids.max"];
    Ok(LaunchSpec {
        uid,
        gid,
        argv: argv.map(OsString::from).into(),
        env: variables.map(|(name, value)| (name.into(), value.into())).collect(),
        binds: shown.binds.clone(),
        symlinks: tree.symlinks.clone(),
        cgroups: vec![CGROUP.into()],
        cgroup_files: counters.iter().map(|name| Path::new(CGROUP).join(name)).collect(),
        rlimits: vec![
            (libc::RLIMIT_NOFILE as i32, OPEN_FILES),
            (libc::RLIMIT_CORE as i32, 0),
            (libc::RLIMIT_FSIZE as i32, spec.limits.disk),
        ],
        own_kernel: spec.docker,
        engine,
        engine_env,
        engine_client,
        seccomp: seccomp::filters()?,
        tmp_bytes: memory / 2,
        shm_bytes: memory / 4,
        run_bytes: run_bytes(memory),
        keep: true,
        ..LaunchSpec::default()
    })
}

/// The sandbox around QEMU: this machine's programs and the cache, both read-only.
fn outer_sandbox(plan: &Plan, spec: &Spec, way: &Way<'_>) -> Result<LaunchSpec> {
    let (host, tree) = (&plan.host, &plan.tree);
    let idle_ttl = spec.idle_ttl.as_secs().clamp(1, u64::from(u32::MAX)).to_string();
    let boot = host.boot_timeout.to_string();
    let mut argv: Vec<OsString> =
        ["/proc/self/exe", "keep", "--idle-ttl", &idle_ttl, "--boot", &boot].map(OsString::from).into();
    match way {
        Way::Booted => {}
        Way::Restored(state) => argv.extend(["--restore".into(), in_cache(state).into()]),
        Way::Saved => argv.push("--save".into()),
    }
    argv.extend(qemu::command(host, &plan.parts));
    argv.push("--".into());
    argv.extend(qemu::boot_arguments(host, &plan.kernel, Path::new(INITIAL_FILE)));
    let is_system = |inside: &Path| {
        ["/usr", "/bin", "/sbin", "/lib", "/nix"].iter().any(|root| inside.starts_with(root))
            || inside.to_string_lossy().starts_with("/lib")
            || inside.starts_with("/etc/ld.so.cache")
    };
    let mut binds: Vec<(PathBuf, PathBuf)> =
        tree.binds.iter().filter(|(_, inside)| is_system(inside)).cloned().collect();
    let real = std::fs::canonicalize(&plan.cache)
        .map_err(|error| Error::sandbox(format!("{} is not there", plan.cache.display())).caused_by(error))?;
    binds.push((real, CACHE.into()));
    // Only root can become a member of the group.
    // SAFETY: only reads the process's credentials.
    let is_root = unsafe { libc::geteuid() } == 0;
    let (devices, gid) = match host.accelerator {
        Accelerator::Kvm { group } => (vec![OsString::from("kvm")], if is_root { group } else { 0 }),
        Accelerator::Emulated(_) => (Vec::new(), 0),
    };
    Ok(LaunchSpec {
        gid,
        devices,
        argv,
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        binds,
        symlinks: tree.symlinks.clone(),
        seccomp: seccomp::filters()?,
        tmp_bytes: 16 << 20,
        shm_bytes: 16 << 20,
        run_bytes: 16 << 20,
        ..LaunchSpec::default()
    })
}
