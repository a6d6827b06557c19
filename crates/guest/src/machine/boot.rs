//! `guest boot`: process 1 of a virtual machine. Mounts what the machine has, launches a sandbox as `guest launch` does on
//! this machine, and carries its clients' streams over the virtio port. When the sandbox has ended, it switches the machine off.

use super::modules;
use super::mux::{ENTROPY, Event, Mux, Notice};
use crate::launch::step::{FailedStep, Step};
use crate::launch::sys::{self, MS_BIND, MS_MOVE, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY};
use crate::sys::{Poll, reboot, synchronise};
use agent_wire::boot_spec::{self, BootSpec, CGROUP, DISK, IMAGES, INITIAL, PORT, SessionSpec, WRITABLE};
use agent_wire::launch_spec::{self, LaunchSpec};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time limit for devices to appear after their modules were loaded.
const DEVICES: Duration = Duration::from_secs(20);
/// The time limit for the last words to be on the port.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The longest wait for something to do, before a look whether the sandbox has ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The greatest error of the clock that is left as it is.
const MAX_DRIFT: Duration = Duration::from_millis(200);
/// The number of times that processes are moved that were started while others were.
const REGROUPINGS: usize = 100;
/// The controllers of control groups that a sandbox with an engine of its own has.
const DELEGATED: [&str; 5] = ["memory", "pids", "cpu", "cpuset", "io"];
/// The new root, while it is made.
const ROOT: &str = "/root";

/// `guest boot`. Returns only where the machine cannot be switched off.
pub fn main() -> Result<(), String> {
    if std::process::id() != 1 {
        return Err("boot is for process 1 of a virtual machine".to_owned());
    }
    crate::sys::set_umask(0o022);
    if let Err(failure) = run() {
        // On the console, which is all there is without a port.
        eprintln!("guest: {failure}");
    }
    synchronise();
    reboot().map_err(|error| format!("the machine cannot be switched off: {error}"))
}

fn run() -> Result<(), FailedStep> {
    let spec = fs::read(boot_spec::FILE).and_then(|bytes| BootSpec::decode(&bytes));
    let spec = spec.step("read the boot specification")?;
    basic_mounts()?;
    for module in &spec.modules {
        let file = below(Path::new(INITIAL), module);
        modules::load(&file).step_at("load", module)?;
        // The initial file system is memory.
        fs::remove_file(&file).step_at("remove", module)?;
    }
    let port = wait_for(find_port).step("find the port")?;
    let mut mux = Mux::new(port).step("open the port")?;
    match become_a_sandbox(&spec, &mut mux) {
        Ok(launcher) => {
            mux.send(Notice::Ready, &[]);
            serve(&mut mux, launcher);
            let _ = unmount_disk();
            mux.send(Notice::Ended, &[]);
        }
        Err(failure) => mux.send(Notice::Failed, failure.to_string().as_bytes()),
    }
    let until = Instant::now() + LAST_WORDS;
    while mux.has_waiting() && Instant::now() < until && mux.flush().is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Makes what the sandbox needs, waits for the session, and launches its sandbox.
fn become_a_sandbox(spec: &BootSpec, mux: &mut Mux) -> Result<Child, FailedStep> {
    for index in 0..spec.images {
        let target = Path::new(IMAGES).join(index.to_string());
        mount_disk(&format!("image{index}"), &target, "erofs", MS_RDONLY | MS_NOSUID | MS_NODEV, "")?;
    }
    // As on most machines, whose memory is larger than a sandbox's limit: what asks for too much is ended by its control group.
    fs::write("/proc/sys/vm/overcommit_memory", "1").step("let memory be promised")?;
    let groups = Path::new("/sys/fs/cgroup/cgroup.subtree_control");
    fs::write(groups, "+memory +pids").step("delegate control groups")?;
    // Only a sandbox with an engine of its own hands these on, and not every kernel has them.
    for controller in DELEGATED {
        let _ = fs::write(groups, format!("+{controller}"));
    }
    fs::create_dir(CGROUP).step("make the control group")?;
    mux.send(Notice::Booted, &[]);
    let session = wait_for_session(mux).step("wait for the session")?;
    let Some((entropy, session)) = session.split_first_chunk::<ENTROPY>() else {
        return Err(FailedStep::new("read the session", io::ErrorKind::InvalidData.into()));
    };
    crate::sys::add_entropy(entropy).step("stir the random numbers")?;
    let session = SessionSpec::decode(session).step("read the session")?;
    // The rest of the file is zeros already, and the machine need not write them.
    let sandbox = session.launch().step("read the launch specification")?;
    // Images of an engine inside have devices, and programs that change the user.
    let flags = if sandbox.own_kernel { 0 } else { MS_NOSUID | MS_NODEV };
    mount_disk(DISK, Path::new(WRITABLE), "ext4", flags, "noinit_itable")?;
    let limit = |name: &str, value: u64| {
        let file = Path::new(CGROUP).join(name);
        fs::write(&file, value.to_string()).step_at("write", &file)
    };
    limit("memory.max", session.memory)?;
    limit("pids.max", session.pids)?;
    let launcher = launch(&session, &sandbox)?;
    if sandbox.own_kernel {
        delegate_groups().step("delegate control groups to the sandbox")?;
    }
    Ok(launcher)
}

/// Has the sandbox's own control groups below its own, with limits of their own: a group that has processes cannot have such.
fn delegate_groups() -> io::Result<()> {
    let group = Path::new(CGROUP);
    let processes = group.join("processes");
    fs::create_dir(&processes)?;
    // What is started meanwhile is found the next time.
    for _ in 0..REGROUPINGS {
        let members = fs::read_to_string(group.join("cgroup.procs"))?;
        if members.is_empty() {
            break;
        }
        for member in members.lines() {
            // It may have ended.
            let _ = fs::write(processes.join("cgroup.procs"), member);
        }
    }
    for controller in DELEGATED {
        // Not every kernel has all of them.
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    Ok(())
}

/// Waits for a session, and for the time: how late it is when the session is read, the other side does not know.
fn wait_for_session(mux: &mut Mux) -> io::Result<Vec<u8>> {
    let mut poll = Poll::default();
    let mut events = Vec::new();
    let mut session = Vec::new();
    loop {
        poll.clear();
        mux.interest(&mut poll);
        poll.wait(None);
        mux.step(&poll, &mut events)?;
        for event in events.drain(..) {
            match event {
                Event::Notice(Notice::Session, content) => {
                    session = content;
                    mux.send(Notice::Clock, &[]);
                }
                Event::Notice(Notice::Clock, content) if !session.is_empty() => {
                    set_clock(&content);
                    return Ok(session);
                }
                Event::Notice(Notice::Ping, content) => mux.send(Notice::Pong, &content),
                _ => {}
            }
        }
    }
}

/// The file systems of the kernel, in the root that the sandbox is launched from.
fn basic_mounts() -> Result<(), FailedStep> {
    let root = Path::new(ROOT);
    fs::create_dir_all(root).step("make the root")?;
    mount("tmpfs", root, "tmpfs", MS_NOSUID, "mode=0755")?;
    for (name, kind, flags, options) in [
        ("proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, ""),
        ("sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, ""),
        ("dev", "devtmpfs", MS_NOSUID, "mode=0755"),
    ] {
        let target = root.join(name);
        fs::create_dir(&target).step_at("make", &target)?;
        mount(kind, &target, kind, flags, options)?;
    }
    let initial = below(root, INITIAL);
    fs::create_dir(&initial).step_at("make", &initial)?;
    mount("/", &initial, "", MS_BIND, "")?;
    // The root of the initial file system cannot be left by pivot_root(2).
    std::env::set_current_dir(root).step("enter the root")?;
    mount(".", Path::new("/"), "", MS_MOVE, "")?;
    sys::change_root(Path::new(".")).step("change the root")?;
    std::env::set_current_dir("/").step("enter the root")?;
    mount("cgroup2", Path::new("/sys/fs/cgroup"), "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, "")
}

/// Mounts the disk with this serial number.
fn mount_disk(serial: &str, target: &Path, kind: &str, flags: u64, options: &str) -> Result<(), FailedStep> {
    fs::create_dir_all(target).step_at("make", target)?;
    let device = wait_for(|| find_disk(serial)).step_at("find the disk of", target)?;
    mount(device, target, kind, flags, options)
}

fn find_disk(serial: &str) -> Option<PathBuf> {
    let disks = fs::read_dir("/sys/block").ok()?.flatten();
    let is_it = |disk: &fs::DirEntry| {
        fs::read_to_string(disk.path().join("serial")).is_ok_and(|found| found.trim_end() == serial)
    };
    let name = disks.into_iter().find(is_it)?.file_name();
    Some(Path::new("/dev").join(name)).filter(|device| device.exists())
}

fn find_port() -> Option<OwnedFd> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?.flatten();
    let is_it = |port: &fs::DirEntry| {
        fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim_end() == PORT)
    };
    let name = ports.into_iter().find(is_it)?.file_name();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(crate::sys::O_CLOEXEC);
    options.open(Path::new("/dev").join(name)).ok().map(OwnedFd::from)
}

fn wait_for<T>(find: impl Fn() -> Option<T>) -> io::Result<T> {
    let until = Instant::now() + DEVICES;
    loop {
        match find() {
            Some(found) => return Ok(found),
            None if Instant::now() > until => return Err(io::ErrorKind::NotFound.into()),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Launches the sandbox, whose directory is on the writable disk, and waits until its guest listens.
fn launch(spec: &SessionSpec, sandbox: &LaunchSpec) -> Result<Child, FailedStep> {
    // A kernel begins with fewer open files than a sandbox may have, and the launcher only lowers limits.
    for (resource, limit) in &sandbox.rlimits {
        sys::raise_limit(*resource, *limit).step("raise the resource limits")?;
    }
    let directory = Path::new(WRITABLE).join("sandbox");
    for (name, is_private) in [("", true), ("root", true), ("workspace", false), ("home", false)] {
        let path = directory.join(name);
        if path.is_dir() {
            continue;
        }
        fs::create_dir(&path).step_at("make", &path)?;
        match is_private {
            true => fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).step_at("make", &path)?,
            false => chown(&path, Some(sandbox.uid), Some(sandbox.gid)).step_at("give away", &path)?,
        }
    }
    fs::write(directory.join(launch_spec::FILE), &spec.launch).step("write the launch specification")?;
    let mut launcher = Command::new("/proc/self/exe")
        .arg("launch")
        .arg(&directory)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .step("start the launcher")?;
    let mut said = String::new();
    if let Some(stderr) = launcher.stderr.take() {
        stderr.take(4 << 10).read_to_string(&mut said).step("read from the launcher")?;
    }
    match said.as_str() {
        "ready" => Ok(launcher),
        said => Err(FailedStep::new("launch the sandbox", io::Error::other(said.to_owned()))),
    }
}

/// Carries streams until the sandbox has ended. Meanwhile the machine may be saved, and is restored with another session's disk, or with
/// its own a while later: it gets random bytes, and asks for the time, before anything moves.
fn serve(mux: &mut Mux, mut launcher: Child) {
    let mut poll = Poll::default();
    let mut events = Vec::new();
    let mut is_restored = false;
    while launcher.try_wait().is_ok_and(|ended| ended.is_none()) {
        poll.clear();
        mux.interest(&mut poll);
        poll.wait(Some(LOOK_AGAIN));
        if mux.step(&poll, &mut events).is_err() {
            return;
        }
        for event in events.drain(..) {
            match event {
                Event::Opened(id) => connect(mux, id),
                Event::Notice(Notice::Ping, content) => mux.send(Notice::Pong, &content),
                Event::Notice(Notice::Pause, _) => {
                    mux.set_quiet(true);
                    mux.send(Notice::Paused, &[]);
                }
                Event::Notice(Notice::Reset, _) => mux.reset(),
                Event::Notice(Notice::Session, content) => {
                    is_restored =
                        content.first_chunk().is_some_and(|bytes| crate::sys::add_entropy(bytes).is_ok());
                    mux.send(Notice::Clock, &[]);
                }
                Event::Notice(Notice::Clock, content) => {
                    set_clock(&content);
                    if std::mem::take(&mut is_restored) {
                        mux.set_quiet(false);
                        mux.send(Notice::Ready, &[]);
                    }
                }
                Event::Notice(..) => {}
            }
        }
        // Orphans of the sandbox are its own process 1's; those of the launcher end with it.
        let _ = mux.flush();
    }
}

/// Sets the clock where it is wrong by more than [`MAX_DRIFT`]: after a restore, or when the machine was stopped.
fn set_clock(content: &[u8]) {
    let Ok(bytes) = <[u8; 8]>::try_from(content) else { return };
    let right = Duration::from_nanos(u64::from_le_bytes(bytes));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if now.abs_diff(right) > MAX_DRIFT {
        // Without it the clock stays as it was.
        let _ = crate::sys::set_clock(u64::from_le_bytes(bytes));
    }
}

fn connect(mux: &mut Mux, id: u32) {
    let socket = UnixStream::connect(Path::new(WRITABLE).join("sandbox/socket"));
    let connected = socket.and_then(|socket| {
        let copy = socket.try_clone()?;
        mux.join(id, socket.into(), copy.into())
    });
    if connected.is_err() {
        mux.close(id);
    }
}

/// So that the disk of a sandbox that is kept is whole.
fn unmount_disk() -> io::Result<()> {
    File::open(WRITABLE)?.sync_all()?;
    sys::unmount(Path::new(WRITABLE))
}

fn mount(
    source: impl AsRef<Path>,
    target: &Path,
    kind: &str,
    flags: u64,
    options: &str,
) -> Result<(), FailedStep> {
    sys::mount_at(source.as_ref(), target, kind, flags, OsStr::new(options)).step_at("mount", target)
}

fn below(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}
