//! `guest launch DIRECTORY`: makes a sandbox of Linux namespaces around the guest and cleans up after it.
//!
//! The directory is private to the sandbox (mode 0700, on the host's disk) and was made by the host side:
//!
//! | name | what |
//! |---|---|
//! | `spec` | a [`LaunchSpec`]: how to make the sandbox |
//! | `root` | an empty directory: where the new root is mounted, in the sandbox's mount namespace only |
//! | `workspace`, `home` | what becomes `/workspace` and `/home/agent` |
//! | `upper`, `work` | the writable layer, where the workspace is an overlay |
//! | `caches/N/upper`, `caches/N/work` | that of the Nth directory that is shown copy-on-write |
//! | `var-lib`, `var-log`, `etc-docker` | made here: `/var/lib`, `/var/log` and `/etc/docker`, where the kernel is the sandbox's own |
//! | `socket` | made here: the Unix socket at which the guest takes further clients. Not visible inside |
//! | `processes` | made here: process id and start time of the launcher and of the sandbox's PID 1, a line each |
//!
//! Two processes take part. The **launcher** stays outside, owns nothing of the stream, waits, and removes control groups and
//! directory at the end, so that nothing is left however the sandbox and `agent` end. Its child becomes PID 1: it joins
//! the control groups, builds its root, gives up every privilege, and executes the guest's `serve`, which finds the
//! stream on stdin and stdout and the listening socket at descriptor 3.
//!
//! On stderr the launcher says one word, `ready`, right before PID 1 turns into the guest, or else why there will be none;
//! then stderr is closed. Inside, the counters of the control groups are below `/run/agent/cgroup/`, under the kernel's
//! names (`memory.oom_control` and `pids.current`, or `memory.events`, …), as far as there are any.

pub mod anew;
pub mod detached;
mod engine;
pub mod enter;
mod identity;
mod idmap;
pub mod landlock;
mod mounts;
pub mod probe;
mod remove;
pub mod step;
pub mod sys;

use agent_wire::launch_spec::{self, LaunchSpec};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use step::{FailedStep, Step};
use sys::MS_RDONLY;

/// The names of the workspace and of `$HOME` in every sandbox.
const WORKSPACE: &str = "/workspace";
const HOME: &str = "/home/agent";
/// The descriptor at which the guest finds its listening socket (`serve --listen-fd 3`).
const LISTEN_FD: i32 = 3;
/// The byte that the launcher writes to PID 1's gate; the end of the pipe without it means that the launcher has failed.
const GO: u8 = b'g';
/// The number of times that a removal begins anew where something was gone already.
const REMOVALS: usize = 1000;
/// SIGHUP, SIGINT, SIGQUIT, SIGTERM.
const TERMINATING_SIGNALS: [i32; 4] = [1, 2, 3, 15];

/// `guest launch DIRECTORY`. Returns when the sandbox has ended and is removed.
pub fn main(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    // The launcher outlives what signals the terminal sends to `agent`.
    sys::leave_session();
    TERMINATING_SIGNALS.iter().for_each(|signal| crate::sys::ignore_signal(*signal));
    sys::close_from(3);
    crate::sys::set_umask(0o022);
    let directory = arguments.next().ok_or("which directory?")?;
    launch(Path::new(&directory)).map_err(|failure| failure.to_string())
}

/// `guest remove DIRECTORY`: removes what a launcher that was itself killed has left. See [`remove::remove_tree`].
pub fn remove(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let directory = arguments.next().ok_or("which directory?")?;
    for _ in 0..REMOVALS {
        match remove::remove_tree(Path::new(&directory)) {
            // The launcher is removing it as well, and was quicker with something: that brings both nearer to the end.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result.map_err(|error| format!("remove {directory}: {error}")),
        }
    }
    Err(format!("remove {directory}: it changes all the time"))
}

/// `guest show DIRECTORY TARGET UID GID`: mounts `DIRECTORY` read-only at `TARGET`, its owner exchanged with that user and
/// group, says `ready` on stdout, and takes the mount away again at the end of stdin: also where `agent` is killed. For
/// the other backend, whose engine makes the sandbox but cannot do this.
pub fn show(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let mut next = |what: &str| arguments.next().ok_or(format!("which {what}?"));
    let (tree, target) = (next("directory")?, next("target")?);
    let number =
        |text: String| text.parse::<u32>().map_err(|_| format!("{text} is not a valid user or group id"));
    let (uid, gid) = (number(next("user")?)?, number(next("group")?)?);
    let (tree, target) = (Path::new(&tree), Path::new(&target));
    let show = || match idmap::exchange(tree, uid, gid)? {
        Some(owners) => idmap::mount(tree, target, &owners, MS_RDONLY),
        None => Err(io::Error::other("it belongs to that user already")),
    };
    sys::leave_session();
    TERMINATING_SIGNALS.iter().for_each(|signal| crate::sys::ignore_signal(*signal));
    show().map_err(|error| format!("show {}: {error}", tree.display()))?;
    let _ = io::stdout().write_all(b"ready");
    // The end is the end, whatever it looks like.
    let _ = detach_stdout().and_then(|()| io::copy(&mut io::stdin(), &mut io::sink()));
    sys::unmount(target).map_err(|error| format!("unmount {}: {error}", target.display()))
}

/// So that the end of what is said is seen.
fn detach_stdout() -> io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    io::stdout().flush()?;
    sys::duplicate_to(null.as_raw_fd(), 1)
}

fn launch(directory: &Path) -> Result<(), FailedStep> {
    let directory = fs::canonicalize(directory).step_at("find", directory)?;
    let spec = fs::read(directory.join(launch_spec::FILE)).and_then(|bytes| LaunchSpec::decode(&bytes));
    let spec = spec.step("read the launch specification")?;
    let listener = listen(&directory).step("listen")?;
    // PID 1 waits at this pipe until it is written down who it is, and it is in its control groups.
    let (gate, mut opener) = io::pipe().step("make a pipe")?;
    let is_root = sys::effective_user() == 0 && identity::can_become(&spec);
    let caller = (sys::effective_user(), sys::effective_group());
    let owners = match spec.overlay.as_ref().or(spec.bind_workspace.as_ref()).filter(|_| is_root) {
        Some(tree) => idmap::exchange(tree, spec.uid, spec.gid).step_at("map the owners of", tree)?,
        None => None,
    };
    // Those of the caches are mostly all the same.
    let mut cache_owners: Vec<CacheOwners> = Vec::new();
    for (tree, _) in spec.caches.iter().filter(|_| is_root) {
        let Ok(owner) = fs::metadata(tree).map(|found| (found.uid(), found.gid())) else { continue };
        if !cache_owners.iter().any(|known| known.owner == owner) {
            // Without a map it is there to read.
            let map = idmap::exchange(tree, spec.uid, spec.gid).ok().flatten();
            cache_owners.push(CacheOwners { owner, map });
        }
    }
    let beneath = spec.beneath_workspace.as_ref().or(spec.beneath_home.as_ref()).filter(|_| is_root);
    let beneath_owners = match beneath {
        Some(tree) => idmap::exchange(tree, spec.uid, spec.gid).step_at("map the owners of", tree)?,
        None => None,
    };
    let pid = sys::fork_into(namespaces(&spec, is_root)).step("make the namespaces")?;
    if pid == 0 {
        drop(opener);
        let plan = InitPlan {
            spec: &spec,
            private: &directory,
            is_root,
            caller,
            owners,
            cache_owners,
            beneath_owners,
        };
        let failure = become_guest(&plan, gate, listener);
        eprint!("{failure}");
        std::process::exit(1);
    }
    drop((gate, listener));
    let admitted = admit(&spec, &directory, pid);
    let detached = detach();
    if admitted.is_ok() && detached.is_ok() {
        let _ = opener.write_all(&[GO]);
    }
    drop(opener);
    let waited = sys::wait_for(pid).step("wait for the sandbox");
    clean_up(&spec, &directory);
    waited.map(drop).and(admitted).and(detached)
}

/// The plan of what PID 1 is to become.
struct InitPlan<'a> {
    spec: &'a LaunchSpec,
    private: &'a Path,
    /// Set if the launcher can become the sandbox's user. Otherwise a user namespace makes one of the caller.
    is_root: bool,
    /// The caller's user and group.
    caller: (u32, u32),
    /// The user namespace that maps the owners of the workspace's tree, where they are others than the user inside.
    owners: Option<File>,
    /// Those of the caches.
    cache_owners: Vec<CacheOwners>,
    /// That of what lies beneath the writable layers.
    beneath_owners: Option<File>,
}

/// The user namespace that maps one owner of caches to the user inside, where they are not the same.
struct CacheOwners {
    owner: (u32, u32),
    map: Option<File>,
}

impl InitPlan<'_> {
    /// Returns the path of the workspace inside.
    fn place(&self) -> &Path {
        if self.spec.place.as_os_str().is_empty() { Path::new(WORKSPACE) } else { &self.spec.place }
    }

    /// `$HOME` inside.
    fn home(&self) -> &Path {
        if self.spec.home.as_os_str().is_empty() { Path::new(HOME) } else { &self.spec.home }
    }
}

fn namespaces(spec: &LaunchSpec, is_root: bool) -> u64 {
    let always = sys::CLONE_NEWNS | sys::CLONE_NEWPID | sys::CLONE_NEWIPC | sys::CLONE_NEWUTS;
    let network = if spec.host_network { 0 } else { sys::CLONE_NEWNET };
    let user = if is_root { 0 } else { sys::CLONE_NEWUSER };
    always | network | user
}

/// The socket's path may be longer than an address can be, so it is bound from inside its directory.
fn listen(directory: &Path) -> io::Result<UnixListener> {
    std::env::set_current_dir(directory)?;
    match fs::remove_file("socket") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind("socket"),
    }
}

/// Puts PID 1 into its control groups and writes down who it is, while it builds its root: joining takes the kernel
/// milliseconds.
fn admit(spec: &LaunchSpec, directory: &Path, pid: i32) -> Result<(), FailedStep> {
    note_processes(directory, pid)?;
    for cgroup in &spec.cgroups {
        fs::write(cgroup.join("cgroup.procs"), pid.to_string()).step_at("join the control group", cgroup)?;
    }
    Ok(())
}

/// Writes the file `processes`, whole or not at all.
fn note_processes(directory: &Path, pid_1: i32) -> Result<(), FailedStep> {
    let line = |pid: i32| Ok::<_, io::Error>(format!("{pid} {}\n", start_time(pid)?));
    let write = || {
        let text = line(std::process::id() as i32)? + &line(pid_1)?;
        fs::write(directory.join("processes.new"), text)?;
        fs::rename(directory.join("processes.new"), directory.join("processes"))
    };
    write().step("note the processes")
}

/// Returns the start of a process, in clock ticks since boot: field 22 of proc_pid_stat(5). With it, a process id that
/// was given to another process meanwhile is recognised.
fn start_time(pid: i32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Field 2 is the program's name in parentheses and may hold anything; field 3 comes after the last one.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
    let ticks = fields.and_then(|mut fields| fields.nth(19)?.parse().ok());
    ticks.ok_or_else(|| io::Error::other("an odd line in /proc"))
}

/// Lets go of the stream and of stderr, so that their ends are seen by whom they concern.
fn detach() -> Result<(), FailedStep> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").step("open /dev/null")?;
    (0..=2).try_for_each(|fd| sys::duplicate_to(null.as_raw_fd(), fd)).step("let go of the stream")
}

/// The life of PID 1 until it executes the guest. Returns only what went wrong.
fn become_guest(plan: &InitPlan<'_>, gate: io::PipeReader, listener: UnixListener) -> FailedStep {
    let mut status =
        match begin(plan, gate).and_then(|()| descriptors(listener).step("arrange the descriptors")) {
            Err(failure) => return failure,
            Ok(status) => status,
        };
    let failure = match confine(plan) {
        Err(failure) => failure,
        Ok(()) => execute(plan.spec, &mut status),
    };
    let _ = write!(status, ": {failure}");
    failure
}

/// Makes the sandbox, and starts what runs in it beside the guest.
fn begin(plan: &InitPlan<'_>, gate: io::PipeReader) -> Result<(), FailedStep> {
    enter(plan, gate)?;
    TERMINATING_SIGNALS.iter().for_each(|signal| sys::default_signal(*signal));
    engine::start(plan.spec)
}

/// Makes the sandbox's namespaces what they are to be, as far as that takes privileges.
fn enter(plan: &InitPlan<'_>, mut gate: io::PipeReader) -> Result<(), FailedStep> {
    let InitPlan { spec, is_root, caller, .. } = *plan;
    if !is_root {
        identity::map_caller(spec, caller)?;
    }
    if !spec.host_network {
        sys::loopback_up().step("bring the loopback interface up")?;
        sys::set_host_name("sandbox").step("set the host name")?;
    }
    mounts::enter_new_root(plan)?;
    gate.read_exact(&mut [0]).step("wait for the launcher")?;
    // Only now, so that the control groups that were joined are the roots of what the sandbox sees of them.
    sys::unshare_namespaces(sys::CLONE_NEWCGROUP).step("make the cgroup namespace")?;
    if spec.own_kernel { engine::mount_kernel_files() } else { Ok(()) }
}

fn confine(plan: &InitPlan<'_>) -> Result<(), FailedStep> {
    let own: Vec<&Path> = [plan.place(), plan.home()]
        .into_iter()
        .chain(plan.spec.caches.iter().map(|(_, inside)| inside.as_path()))
        .filter(|path| !plan.spec.read_only.iter().any(|read_only| read_only == path))
        .collect();
    match plan.spec.own_kernel {
        true => identity::lower_limits(plan.spec)?,
        false => identity::give_up_privileges(plan.spec, plan.is_root, &own)?,
    }
    // After the change of user, which takes the setting back.
    sys::die_with_parent().step("bind the sandbox's life to the launcher's")?;
    std::env::set_current_dir(plan.place()).step("enter the workspace")
}

/// Becomes the guest. Returns only what went wrong.
fn execute(spec: &LaunchSpec, status: &mut File) -> FailedStep {
    let Some((program, arguments)) = spec.argv.split_first() else {
        return FailedStep::new("start the guest", io::Error::other("nothing to start was given"));
    };
    let _ = status.write_all(b"ready");
    let environment = spec.env.iter().map(|(name, value)| (name, value));
    FailedStep::new(
        "start the guest",
        Command::new(program).args(arguments).env_clear().envs(environment).exec(),
    )
}

/// The listening socket at 3, stderr at `/dev/null`, and what was stderr on a descriptor that exec closes.
fn descriptors(listener: UnixListener) -> io::Result<File> {
    // Out of the way of LISTEN_FD first: any of these may have that very number. All of them are closed by exec.
    let copy = own(sys::duplicate_above(listener.as_raw_fd())?);
    drop(listener);
    let status = own(sys::duplicate_above(2)?);
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    sys::duplicate_to(null.as_raw_fd(), 2)?;
    drop(null);
    sys::duplicate_to(copy.as_raw_fd(), LISTEN_FD)?;
    Ok(File::from(status))
}

fn own(fd: i32) -> OwnedFd {
    // SAFETY: `fd` was just made by fcntl(2) and belongs to nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Removes the control groups and, unless the sandbox is kept, the private directory. What cannot be removed now is found
/// by the next sweep.
fn clean_up(spec: &LaunchSpec, directory: &Path) {
    for cgroup in &spec.cgroups {
        // Its last processes may still be on their way out: for a moment, and on a machine under load for seconds.
        for _ in 0..1000 {
            match fs::remove_dir(cgroup) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                _ => break,
            }
        }
    }
    if !spec.keep {
        let _ = remove::remove_tree(directory);
    }
}
