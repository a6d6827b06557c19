//! Facts that the guest knows about its sandbox: control groups of both versions, the disk, programs on `PATH`.

use crate::directory;
use crate::search::SearchPath;
use crate::sys;
use agent_wire::Facts;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Counts processes that the kernel killed for want of memory.
pub struct OomCounter(Option<File>);

impl OomCounter {
    /// Keeps the file open: it is read before and after every command.
    pub fn open() -> Self {
        let v2 = cgroup_file("", "memory.events");
        Self(
            v2.or_else(|| cgroup_file("memory", "memory.oom_control")).and_then(|path| File::open(path).ok()),
        )
    }

    /// Returns their number since the sandbox started; 0 where it is unknown.
    pub fn read(&self) -> u64 {
        let Some(file) = &self.0 else { return 0 };
        let mut buffer = [0; 512];
        let length = file.read_at(&mut buffer, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&buffer[..length]);
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill "))
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    }
}

pub fn gather(tools: Vec<String>, oom: &OomCounter, search: &mut SearchPath) -> Facts {
    let number = |v2: &str, controller: &str, v1: &str| {
        let path = cgroup_file("", v2).or_else(|| cgroup_file(controller, v1))?;
        // "max", and the huge number that stands for it in version 1, mean that there is no limit.
        std::fs::read_to_string(path).ok()?.trim().parse().ok().filter(|&n: &u64| n < 1 << 60)
    };
    let disk = sys::file_system(Path::new(".")).ok();
    Facts {
        bash: search.find(b"bash", None).is_some(),
        tools: tools.into_iter().filter(|tool| search.find(tool.as_bytes(), None).is_some()).collect(),
        memory_bytes: number("memory.current", "memory", "memory.usage_in_bytes"),
        memory_limit: number("memory.max", "memory", "memory.limit_in_bytes"),
        pids: number("pids.current", "pids", "pids.current"),
        pids_limit: number("pids.max", "pids", "pids.max"),
        disk_bytes: disk.as_ref().map(|disk| disk.bytes.saturating_sub(disk.free_bytes)),
        disk_free: disk.as_ref().map(|disk| disk.available_bytes),
        oom_kills: oom.read(),
        takes_no_automount: directory::takes_no_automount(),
    }
}

/// A file of this process's own control group. `controller` is empty in version 2. The launcher of namespaces shows
/// the files one by one. Inside a container the group named by the kernel is usually not there, because the
/// container's own is mounted as the root.
pub fn cgroup_file(controller: &str, name: &str) -> Option<PathBuf> {
    let shown = Path::new("/run/agent/cgroup").join(name);
    if shown.exists() {
        return Some(shown);
    }
    let groups = std::fs::read("/proc/self/cgroup").ok()?;
    let mount = Path::new("/sys/fs/cgroup").join(controller);
    groups
        .split(|&byte| byte == b'\n')
        .find_map(|line| {
            let mut fields = line.splitn(3, |&byte| byte == b':').skip(1);
            let own = fields.next()?.split(|&byte| byte == b',').any(|c| c == controller.as_bytes());
            let group = Path::new(std::ffi::OsStr::from_bytes(fields.next()?));
            own.then(|| mount.join(group.strip_prefix("/").unwrap_or(group)))
        })
        .into_iter()
        .chain([mount.clone()])
        .map(|directory| directory.join(name))
        .find(|path| path.exists())
}
