//! The local backend: Linux namespaces around the guest, no engine.
//!
//! The guest's own program makes the namespaces (`src/guest/launch.rs`): it is small, static and has a single thread, as
//! that needs, and none of this process's memory goes with it. Here: what goes into the sandbox, starting the launcher,
//! and finding running sandboxes again.

mod directory;
mod obstacles;
mod process;
mod program;

pub use obstacles::{Checks, Obstacle, checks};
pub use program::Keeper;

use super::cgroup::{self, Cgroups};
use super::ownership::{Ownership, ProcessId, sandbox_name};
use super::{
    Access, Backend, Capabilities, Channel, Copied, EnforcedLimits, Listed, Network, Networks, OnProgress,
    Spec, State, WorkspaceMount, bootstrap, environment, host_ids, layer, run_bytes, seccomp, session_ids,
};
use crate::project::{Beneath, Project};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_event::{Limits, SandboxInfo};
use agent_wire::launch_spec::LaunchSpec;
use async_trait::async_trait;
use directory::{Directory, Record};
use process::Signals;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

/// The time limit for a launcher to say that the sandbox is ready, on a machine under load.
const READY: Duration = Duration::from_secs(20);
/// The time limit for a sandbox to be gone after its first process was killed: its files are being removed.
const REMOVAL: Duration = Duration::from_secs(60);
/// Open files of a process, the same as in a container.
const OPEN_FILES: u64 = 16_384;

/// The backend's name.
pub const NAME: &str = "local";

/// The abilities of Linux namespaces.
pub const CAPABILITIES: Capabilities = Capabilities {
    host_paths: true,
    own_paths: true,
    maps_owners: true,
    images: false,
    runtimes: false,
    pause: true,
    docker: false,
    networks: Networks { isolated: true, full: true },
    limits: EnforcedLimits::ALL,
};

/// The backend over Linux namespaces.
#[derive(Debug, Clone)]
pub struct Local {
    machine: Arc<Machine>,
    /// The name of the directory that holds the private ones of its sandboxes.
    store: &'static str,
}

impl Local {
    /// The backend on this machine.
    pub fn new(machine: Arc<Machine>) -> Self {
        Self { machine, store: "sandboxes" }
    }

    fn directory(&self, session: &str) -> Result<Directory> {
        Directory::of(&self.machine, self.store, session)
    }

    async fn start_sandbox(&self, spec: &Spec) -> Result<(Channel, SandboxInfo)> {
        CAPABILITIES.check(NAME, spec)?;
        let directory = self.directory(&spec.session)?;
        let name = sandbox_name(&spec.session)?;
        let record = Record {
            created: jiff::Timestamp::now().to_string(),
            ownership: Ownership::of(spec),
            limits: spec.limits.clone(),
        };
        let ids = session_ids(&spec.session);
        let owner = host_ids(ids);
        let directories: &[&str] = match spec.workspace {
            WorkspaceMount::Overlay { .. } | WorkspaceMount::Forked { .. } => {
                &["workspace", "home", "upper", "work"]
            }
            WorkspaceMount::Empty | WorkspaceMount::Bind(_) => &["workspace", "home"],
        };
        directory.make(&record, directories, owner)?;
        let beneath = spec.beneath();
        if let Some(Beneath { home: Some(_), .. }) = &beneath {
            directory.make_home_work(owner)?;
        }
        let groups = cgroup::make(&name, &spec.limits);
        let started = async {
            match &spec.workspace {
                WorkspaceMount::Overlay { lower, hidden } => {
                    layer::hide(&directory.path().join("upper"), lower, hidden, owner)
                        .map_err(cannot_hide)?;
                }
                WorkspaceMount::Forked { layer, .. } => directory.take_over(layer, owner).await?,
                WorkspaceMount::Empty | WorkspaceMount::Bind(_) => {}
            }
            let project = Project::of(&self.machine, spec, true);
            project.prepare(directory.path(), owner, spec.workspace.forked())?;
            project.prepare_added(directory.path(), owner)?;
            directory.write_spec(&LaunchSpec {
                beneath_workspace: beneath.as_ref().and_then(|beneath| beneath.workspace.clone()),
                beneath_home: beneath.as_ref().and_then(|beneath| beneath.home.clone()),
                beneath_caches: beneath.map(|beneath| beneath.caches).unwrap_or_default(),
                ..launch_spec(&self.machine, spec, &groups, ids, &project)?
            })?;
            let mut child = launch(&self.machine, &directory, true).await?;
            let channel = child
                .stdout
                .take()
                .zip(child.stdin.take())
                .map(|(stdout, stdin)| Channel::new(stdout, stdin));
            reap(child);
            channel.ok_or_else(|| Error::unexpected("the launcher has no stream"))
        };
        match started.await {
            Ok(channel) => Ok((channel, spec.describe(NAME, name, None))),
            Err(error) => {
                // The first error is the one to tell; what cannot be removed now is swept later.
                let _ = self.destroy_sandbox(&directory).await;
                cgroup::remove(&groups.directories);
                Err(error)
            }
        }
    }

    /// The launcher removes what it made when the first process ends; what is left then is removed here.
    async fn destroy_sandbox(&self, directory: &Directory) -> Result<()> {
        let groups = directory.spec().map(|spec| spec.cgroups).unwrap_or_default();
        if let Some((launcher, first)) = directory.processes() {
            first.signal(libc::SIGKILL);
            // A frozen process does not die.
            cgroup::freeze(&groups, false);
            // Where this fails, it is alive.
            let _ = tokio::time::timeout(REMOVAL, launcher.ended()).await;
            if launcher.is_alive() {
                return Err(Error::sandbox(format!(
                    "the sandbox in {} does not end",
                    directory.path().display()
                )));
            }
        }
        cgroup::remove(&groups);
        if directory.exists() { remove(&self.machine, directory.path()).await } else { Ok(()) }
    }

    async fn set_frozen(&self, session: &str, frozen: bool) -> Result<()> {
        let directory = self.directory(session)?;
        let Some(first) = directory.running() else {
            return Err(Error::sandbox(format!("session {session} has no running sandbox")));
        };
        let groups = directory.spec().map(|spec| spec.cgroups).unwrap_or_default();
        if cgroup::freeze(&groups, frozen) { Ok(()) } else { stop_all(first, frozen).await }
    }

    async fn resume_sandbox(&self, session: &str) -> Result<()> {
        let directory = self.directory(session)?;
        if directory.running().is_some() {
            return self.set_frozen(session, false).await;
        }
        let (Some(record), Some(mut spec)) = (directory.record(), directory.spec()) else {
            return Err(Error::sandbox(format!("session {session} has no sandbox")));
        };
        if !spec.keep {
            let message = format!("the sandbox of session {session} has ended and is not kept");
            return Err(Error::sandbox(message)
                .hint(format!("`agent resume {session}` restores the session in a fresh one")));
        }
        let groups = cgroup::make(&sandbox_name(session)?, &record.limits);
        (spec.cgroups, spec.cgroup_files) = (groups.directories.clone(), groups.counters.clone());
        spec.rlimits = resource_limits(&record.limits, &groups);
        directory.write_spec(&spec)?;
        reap(launch(&self.machine, &directory, false).await?);
        Ok(())
    }

    fn listed(&self) -> Result<Vec<Listed>> {
        let all = Directory::list(&self.machine, self.store)?.into_iter();
        let described = all.filter_map(|(session, directory)| {
            let Record { created, ownership, .. } = directory.record()?;
            let expires = ownership.expiry_date().map(str::to_owned);
            let id = sandbox_name(&session).ok()?;
            Some(Listed { id, session, state: state(&directory), created, expires })
        });
        Ok(described.collect())
    }

    async fn sweep_abandoned(&self) -> Result<()> {
        cgroup::sweep();
        let mut result = Ok(());
        for (_, directory) in Directory::list(&self.machine, self.store)? {
            if directory.is_left_over(state(&directory)) {
                result = self.destroy_sandbox(&directory).await.and(result);
            }
        }
        result
    }
}

#[async_trait]
impl Backend for Local {
    fn name(&self) -> &'static str {
        NAME
    }

    fn location(&self) -> String {
        "this machine".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        let limits = obstacles::enforced_limits();
        Capabilities { maps_owners: obstacles::is_root(), limits, ..CAPABILITIES }
    }

    async fn start(&self, spec: &Spec, _: OnProgress<'_>) -> Result<(Channel, SandboxInfo)> {
        self.start_sandbox(spec).await
    }

    async fn attach(&self, session: &str) -> Result<Channel> {
        let (_directory, socket) = self.directory(session)?.socket()?;
        let stream = UnixStream::connect(socket).await.map_err(|error| {
            Error::sandbox(format!("session {session} has no running sandbox")).caused_by(error)
        })?;
        let (reader, writer) = stream.into_split();
        Ok(Channel::new(reader, writer))
    }

    async fn destroy(&self, session: &str) -> Result<()> {
        self.destroy_sandbox(&self.directory(session)?).await
    }

    async fn fork(&self, session: &str, into: &Path) -> Result<Copied> {
        self.directory(session)?.copy_layers(into).await
    }

    async fn show_anew(&self, session: &str, _has_news: bool) -> Result<()> {
        let directory = self.directory(session)?;
        // Added directories and caches of the project are overlays too.
        let is_overlay =
            directory.spec().is_some_and(|spec| spec.overlay.is_some() || !spec.caches.is_empty());
        match directory.running().filter(|_| is_overlay) {
            Some(first) => show_anew(&self.machine, first).await,
            None => Ok(()),
        }
    }

    async fn pause(&self, session: &str) -> Result<()> {
        self.set_frozen(session, true).await
    }

    async fn resume(&self, session: &str) -> Result<()> {
        self.resume_sandbox(session).await
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        self.listed()
    }

    async fn sweep(&self) -> Result<()> {
        self.sweep_abandoned().await
    }
}

fn state(directory: &Directory) -> State {
    let groups = directory.spec().map(|spec| spec.cgroups).unwrap_or_default();
    match (directory.processes(), directory.running()) {
        (None, _) => State::Starting,
        (_, None) => State::Stopped,
        (_, Some(first)) if cgroup::frozen(&groups) || first.is_stopped() => State::Paused,
        (_, Some(_)) => State::Running,
    }
}

fn launch_spec(
    machine: &Machine,
    spec: &Spec,
    groups: &Cgroups,
    (uid, gid): (u32, u32),
    project: &Project,
) -> Result<LaunchSpec> {
    let tree = super::host_tree::host_tree(machine);
    let home = project.home.to_string_lossy();
    let variables =
        environment::variables(&project.path, &home).into_iter().chain(project.env.iter().cloned());
    let idle_ttl = spec.idle_ttl.as_secs().max(1).to_string();
    let disk = spec.limits.disk.to_string();
    let argv = ["/proc/self/exe", "serve", "--listen-fd", "3", "--idle-ttl", &idle_ttl, "--disk", &disk];
    let mut argv: Vec<OsString> = argv.map(OsString::from).into();
    argv.extend([OsString::from("--workspace"), project.place.clone().into()]);
    let written = project.added.iter().filter(|added| added.access != Access::ReadOnly);
    for inside in project.caches.iter().map(|(_, inside)| inside).chain(written.map(|added| &added.path)) {
        argv.extend([OsString::from("--disk-directory"), inside.clone().into()]);
    }
    let added = project.added.iter().map(|added| (added.path.clone(), added.path.clone()));
    let with = |access| {
        let of_it = project.added.iter().filter(|added| added.access == access);
        of_it.map(|added| added.path.clone()).collect()
    };
    let memory = spec.limits.memory;
    let (overlay, bind_workspace) = match &spec.workspace {
        WorkspaceMount::Empty => (None, None),
        WorkspaceMount::Overlay { lower, .. } | WorkspaceMount::Forked { lower, .. } => {
            (Some(lower.clone()), None)
        }
        WorkspaceMount::Bind(directory) => (None, Some(directory.clone())),
    };
    Ok(LaunchSpec {
        uid,
        gid,
        argv,
        env: variables.map(|(name, value)| (name.into(), value.into())).collect(),
        binds: tree.binds.clone(),
        symlinks: project.symlinks.clone(),
        place: project.place.clone(),
        home: project.home.clone(),
        caches: project.caches.iter().cloned().chain(added).collect(),
        added: project.added.iter().map(|added| added.path.clone()).collect(),
        read_only: with(Access::ReadOnly),
        own: with(Access::Copy),
        overlay,
        beneath_workspace: None,
        beneath_home: None,
        beneath_caches: Vec::new(),
        bind_workspace,
        cgroups: groups.directories.clone(),
        cgroup_files: groups.counters.clone(),
        rlimits: resource_limits(&spec.limits, groups),
        seccomp: seccomp::filters()?,
        host_network: spec.network == Network::Full,
        tmp_bytes: memory / 2,
        shm_bytes: memory / 4,
        run_bytes: run_bytes(memory),
        devices: Vec::new(),
        keep: !spec.ephemeral,
        // The kernel is this machine's.
        own_kernel: false,
        engine: Vec::new(),
        engine_env: Vec::new(),
        engine_client: Vec::new(),
    })
}

/// Returns what control groups cannot limit, and a substitute for those that could not be made.
fn resource_limits(limits: &Limits, groups: &Cgroups) -> Vec<(i32, u64)> {
    let mut rlimits = vec![
        (libc::RLIMIT_NOFILE as i32, OPEN_FILES),
        (libc::RLIMIT_CORE as i32, 0),
        (libc::RLIMIT_FSIZE as i32, limits.disk),
    ];
    if !groups.limited.memory {
        // Private writable memory. Not RLIMIT_AS: runtimes reserve far more addresses than they ever use.
        rlimits.push((libc::RLIMIT_DATA as i32, limits.memory));
    }
    if !groups.limited.pids {
        rlimits.push((libc::RLIMIT_NPROC as i32, limits.pids));
    }
    rlimits
}

fn cannot_hide(error: std::io::Error) -> Error {
    Error::sandbox("the excluded files of the workspace could not be hidden").caused_by(error)
}

/// Starts the launcher and waits until its sandbox is ready. With a stream, the guest's first client is at it.
async fn launch(machine: &Machine, directory: &Directory, with_stream: bool) -> Result<Child> {
    let (program, _open) = bootstrap::program(machine)?;
    let stream = || if with_stream { Stdio::piped() } else { Stdio::null() };
    let mut child = Command::new(program)
        .arg("launch")
        .arg(directory.path())
        .env_clear()
        .stdin(stream())
        .stdout(stream())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Error::sandbox("the sandbox's launcher could not be started").caused_by(error))?;
    let said = match child.stderr.take() {
        None => String::new(),
        Some(stderr) => tokio::time::timeout(READY, all_of(stderr))
            .await
            .map_err(|_| Error::sandbox(format!("the sandbox was not ready after {} s", READY.as_secs())))?,
    };
    match said.strip_prefix("ready") {
        Some("") => Ok(child),
        _ => Err(did_not_start(said.trim_start_matches("ready").trim_start_matches(": "))),
    }
}

/// Returns what is said until the end, up to 4 KiB.
async fn all_of(stderr: tokio::process::ChildStderr) -> String {
    let mut said = Vec::new();
    // A stream that breaks has ended.
    let _ = stderr.take(4 << 10).read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

fn did_not_start(said: &str) -> Error {
    let what = if said.is_empty() { "its launcher died" } else { said };
    match obstacles::obstacles().into_iter().next() {
        Some(known) => Error::sandbox(format!("the local sandbox did not start: {}: {what}", known.what))
            .hint(known.hint),
        None => Error::sandbox(format!("the local sandbox did not start: {what}"))
            .hint("`agent doctor` looks at what a local sandbox needs; --sandbox docker does without it"),
    }
}

/// Waits for the launcher in the background, so that it leaves no zombie while this process lives.
fn reap(mut child: Child) {
    tokio::spawn(async move {
        // Whatever it ended with: the stream's end is what its client acts upon.
        let _ = child.wait().await;
    });
}

/// Removes a private directory by the guest's hand, which knows how to remove what a hostile program has left.
async fn remove(machine: &Machine, path: &Path) -> Result<()> {
    by_guest(machine, &[OsStr::new("remove"), path.as_os_str()], "a sandbox could not be removed").await
}

/// Has the overlays that a process of a sandbox sees show what is underneath now.
async fn show_anew(machine: &Machine, first: ProcessId) -> Result<()> {
    let process = first.pid.to_string();
    by_guest(machine, &["anew", &process].map(OsStr::new), "the sandbox may show former files").await
}

/// Runs the guest's program outside of a sandbox; `failed` says what it means that it fails.
async fn by_guest(machine: &Machine, arguments: &[&OsStr], failed: &str) -> Result<()> {
    let (program, _open) = bootstrap::program(machine)?;
    // What is given up ends with that: the next attempt is the only one then.
    let mut guest = Command::new(program);
    guest.args(arguments).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    let output = guest.output().await.map_err(|error| Error::sandbox(failed.to_owned()).caused_by(error))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(Error::sandbox(format!("{failed}: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
        }
    }
}

/// Stops every process of a sandbox, or lets all go on: again and again, until no new one has appeared meanwhile.
async fn stop_all(first: ProcessId, stopped: bool) -> Result<()> {
    const ROUNDS: usize = 500;
    for _ in 0..ROUNDS {
        let others =
            first.tree().into_iter().filter(|process| process.is_alive() && process.is_stopped() != stopped);
        let others: Vec<ProcessId> = others.collect();
        if others.is_empty() {
            return Ok(());
        }
        others.iter().for_each(|process| {
            process.signal(if stopped { libc::SIGSTOP } else { libc::SIGCONT });
        });
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Err(Error::sandbox("the sandbox's processes multiply faster than they can be stopped"))
}
