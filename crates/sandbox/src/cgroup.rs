//! Control groups for a local sandbox: memory, processes, processor time and the freezer, where this process may make one.
//!
//! Both generations of the kernel's interface, each controller by itself: version 1 (a hierarchy for each controller) and
//! version 2 (one for all). Where neither is to be had, the sandbox has resource limits instead, and says what is weaker.

use super::EnforcedLimits;
use super::ownership::PREFIX;
use agent_event::Limits;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The control groups of one sandbox, made and with their limits set, still empty.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// The directories: processes join by writing to their `cgroup.procs`.
    pub directories: Vec<PathBuf>,
    /// The files by which the guest learns what is used and what the kernel killed.
    pub counters: Vec<PathBuf>,
    /// The limits in force.
    pub limited: EnforcedLimits,
}

/// Those of version 1's groups for memory and processes, and those of version 2's one group.
const COUNTERS: [(&str, &[&str]); 3] = [
    ("memory", &["memory.oom_control", "memory.usage_in_bytes", "memory.limit_in_bytes"]),
    ("pids", &["pids.current", "pids.max"]),
    (UNIFIED, &["memory.events", "memory.current", "memory.max", "pids.current", "pids.max"]),
];
/// The name for all controllers where one group has all of them.
const UNIFIED: &str = "";

impl Cgroups {
    fn add(&mut self, controller: &str, directory: PathBuf) {
        let counters = COUNTERS.iter().filter(|(of, _)| *of == controller).flat_map(|(_, names)| *names);
        self.counters.extend(counters.map(|name| directory.join(name)).filter(|file| file.exists()));
        self.directories.push(directory);
    }
}

/// The controllers of version 1 that a sandbox has a group of.
const CONTROLLERS: [&str; 4] = ["memory", "pids", "cpu", "freezer"];

/// Makes control groups called `name`, which begins with [`PREFIX`]. What cannot be made is missing from [`Cgroups::limited`].
pub(super) fn make(name: &str, limits: &Limits) -> Cgroups {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return Cgroups::default() };
    let Ok(own) = fs::read_to_string("/proc/self/cgroup") else { return Cgroups::default() };
    let mut made = Cgroups::default();
    if let Some(directory) = unified(&mounts, &own).and_then(|here| make_unified(&here, name)) {
        made.limited = limit_unified(&directory, limits);
        made.add(UNIFIED, directory);
    }
    for controller in CONTROLLERS {
        let directory = separate(&mounts, &own, controller).map(|here| here.join(name));
        if let Some(directory) = directory.filter(|directory| fs::create_dir(directory).is_ok()) {
            limit_separate(&directory, controller, limits, &mut made.limited);
            made.add(controller, directory);
        }
    }
    made
}

/// Removes control groups that no process is in any more.
pub(super) fn remove(directories: &[PathBuf]) {
    for directory in directories {
        // One with processes in it stays for the next sweep; one that is gone is what was wanted.
        let _ = fs::remove_dir(directory);
    }
}

/// Removes the control groups that sandboxes of this user have left beside those of this process: empty ones that were
/// made more than a minute ago. (One that is about to be filled is younger; one with processes cannot be removed.)
pub(super) fn sweep() {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return };
    let Ok(own) = fs::read_to_string("/proc/self/cgroup") else { return };
    let unified = unified(&mounts, &own).map(|here| [here.parent().map(Path::to_owned), Some(here)]);
    let separate = CONTROLLERS.map(|controller| separate(&mounts, &own, controller));
    let parents = unified.into_iter().flatten().chain(separate).flatten();
    for entry in parents.filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let made = entry.metadata().and_then(|metadata| metadata.modified());
        let old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age.as_secs() > 60));
        if ours && old {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Freezes or thaws. `false` where no group of the sandbox can.
pub(super) fn freeze(directories: &[PathBuf], frozen: bool) -> bool {
    let (state, flag) = if frozen { ("FROZEN", "1") } else { ("THAWED", "0") };
    directories.iter().any(|directory| {
        set(&directory.join("freezer.state"), state) || set(&directory.join("cgroup.freeze"), flag)
    })
}

/// Returns whether [`freeze`] has frozen it.
pub(super) fn frozen(directories: &[PathBuf]) -> bool {
    let says = |path: PathBuf, wanted: &[&str]| {
        fs::read_to_string(path).is_ok_and(|state| wanted.contains(&state.trim()))
    };
    directories.iter().any(|directory| {
        says(directory.join("freezer.state"), &["FROZEN", "FREEZING"])
            || says(directory.join("cgroup.freeze"), &["1"])
    })
}

/// Writes to a control file that exists (an ordinary file is never made in its place).
fn set(file: &Path, value: &str) -> bool {
    fs::OpenOptions::new()
        .write(true)
        .open(file)
        .is_ok_and(|mut file| file.write_all(value.as_bytes()).is_ok())
}

/// The directory of this process in version 2's hierarchy.
fn unified(mounts: &str, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let mount = Mount::parse(line)?;
        (mount.kind == "cgroup2").then(|| mount.directory(path))?
    })
}

/// The directory of this process in version 1's hierarchy of `controller`.
fn separate(mounts: &str, own: &str, controller: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let mount = Mount::parse(line)?;
        let is_it = mount.kind == "cgroup" && mount.options.split(',').any(|option| option == controller);
        is_it.then(|| mount.directory(path))?
    })
}

/// A line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut filesystem = filesystem.split(' ');
        Some(Self {
            root: mount.next()?,
            point: mount.next()?,
            kind: filesystem.next()?,
            options: filesystem.nth(1)?,
        })
    }

    /// Returns the directory of the control group `path` below this mount, which may show a part of the hierarchy only.
    fn directory(&self, path: &str) -> Option<PathBuf> {
        let below = Path::new(path).strip_prefix(self.root).ok()?;
        Some(Path::new(self.point).join(below)).filter(|directory| directory.is_dir())
    }
}

/// A group beside the one of this process, or below it. Version 2 limits only groups whose parent has no processes of its
/// own, which the root alone is free of.
fn make_unified(here: &Path, name: &str) -> Option<PathBuf> {
    let beside = here.parent().filter(|parent| parent.join("cgroup.procs").exists());
    beside.into_iter().chain([here]).find_map(|parent| {
        // Where version 1 has this controller, there is nothing to limit with here.
        let controllers = fs::read_to_string(parent.join("cgroup.controllers")).ok()?;
        if !controllers.split_whitespace().any(|controller| controller == "memory") {
            return None;
        }
        for controller in ["+memory", "+pids", "+cpu"] {
            set(&parent.join("cgroup.subtree_control"), controller);
        }
        let directory = parent.join(name);
        fs::create_dir(&directory).ok()?;
        // A process may be moved only by one who may write to both groups' common ancestor.
        let joinable = writable(&parent.join("cgroup.procs")) && directory.join("memory.max").exists();
        if !joinable {
            remove(std::slice::from_ref(&directory));
        }
        joinable.then_some(directory)
    })
}

fn writable(file: &Path) -> bool {
    fs::OpenOptions::new().write(true).open(file).is_ok()
}

fn limit_unified(directory: &Path, limits: &Limits) -> EnforcedLimits {
    let file = |name: &str| directory.join(name);
    // Where the kernel has no swap accounting there is no such file, and no limit is wanted where there is no swap.
    set(&file("memory.swap.max"), "0");
    EnforcedLimits {
        memory: set(&file("memory.max"), &limits.memory.to_string()),
        pids: set(&file("pids.max"), &limits.pids.to_string()),
        cpus: set(&file("cpu.max"), &format!("{} {PERIOD_US}", quota(limits))),
    }
}

fn limit_separate(directory: &Path, controller: &str, limits: &Limits, limited: &mut EnforcedLimits) {
    let file = |name: &str| directory.join(name);
    match controller {
        "memory" => {
            let memory = limits.memory.to_string();
            limited.memory = set(&file("memory.limit_in_bytes"), &memory);
            // Memory and swap together; only after the limit on memory, which it may not be below.
            set(&file("memory.memsw.limit_in_bytes"), &memory);
            // Version 1 does not count the buffers of sockets as memory of the group; version 2 does.
            set(&file(SOCKETS), &socket_bytes(limits.memory).to_string());
        }
        "pids" => limited.pids = set(&file("pids.max"), &limits.pids.to_string()),
        "cpu" => {
            limited.cpus = set(&file("cpu.cfs_period_us"), &PERIOD_US.to_string())
                && set(&file("cpu.cfs_quota_us"), &quota(limits).to_string());
        }
        _ => {}
    }
}

/// Returns what the buffers of sockets may take on top of the memory, where version 1 counts it.
pub fn socket_bytes(memory: u64) -> u64 {
    memory / 8
}

/// Limits the buffers of the sockets of a container whose first process is `pid` here. An engine does not: its runtime ignores
/// what the API has for it. Nothing happens where the process is not in a group of version 1 that is named after `container`.
pub fn limit_sockets(pid: u32, container: &str, bytes: u64) {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return };
    let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return };
    let group = separate(&mounts, &groups, "memory")
        .filter(|group| group.file_name().is_some_and(|name| name.to_string_lossy().contains(container)));
    if let Some(group) = group {
        set(&group.join(SOCKETS), &bytes.to_string());
    }
}

/// Has the limit on the buffers of all sockets but Unix ones, whose buffers are the group's memory: since Linux 4.10 those of
/// UDP too.
const SOCKETS: &str = "memory.kmem.tcp.limit_in_bytes";

/// The kernel's default period, in microseconds.
const PERIOD_US: u64 = 100_000;

/// Microseconds of processor time in each period; the kernel takes no less than 1000.
fn quota(limits: &Limits) -> u64 {
    ((limits.cpus * PERIOD_US as f64) as u64).max(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_may_show_a_part_of_the_hierarchy() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        let line =
            format!("30 23 0:26 /a {} rw,nosuid shared:5 - cgroup cgroup rw,memory", dir.path().display());
        let own = "4:memory:/a/b\n0::/\n";
        assert_eq!(separate(&line, own, "memory"), Some(dir.path().join("b")));
        assert_eq!(separate(&line, own, "pids"), None);
        assert_eq!(separate(&line, "4:memory:/elsewhere\n", "memory"), None);
    }

    #[test]
    fn the_quota_is_a_share_of_the_period() {
        let limits = |cpus| Limits { cpus, ..Limits::default() };
        assert_eq!(quota(&limits(1.5)), 150_000);
        assert_eq!(quota(&limits(0.0)), 1_000);
    }
}
