//! How many processes the sandbox may still start.
//!
//! A command that is over may have left so many running that the next one cannot do anything: a fork bomb does.

use crate::facts::cgroup_file;
use crate::processes;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// With fewer than these to come a shell cannot do its work.
const FEW: u64 = 8;

pub struct ProcessRoom {
    /// How many there are, counted by a control group with threads and all, where there is one.
    counter: Option<File>,
    limit: Option<u64>,
}

impl ProcessRoom {
    /// Keeps the counter open.
    pub fn open() -> Self {
        let file = |name| cgroup_file("", name).or_else(|| cgroup_file("pids", name));
        let group_limit =
            file("pids.max").and_then(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
        let counter = group_limit.and_then(|_: u64| File::open(file("pids.current")?).ok());
        Self { counter, limit: group_limit.or_else(own_limit) }
    }

    /// Whether almost no further process can be started.
    pub fn is_scarce(&self) -> bool {
        let Some(limit) = self.limit else { return false };
        let counted = self.counter.as_ref().and_then(|file| {
            let mut buffer = [0; 32];
            let length = file.read_at(&mut buffer, 0).ok()?;
            std::str::from_utf8(&buffer[..length]).ok()?.trim().parse().ok()
        });
        let running =
            counted.unwrap_or_else(|| processes::descendants(std::process::id() as i32).len() as u64);
        running + FEW > limit
    }
}

/// The limit of the user's processes, which stands in where there are no control groups.
fn own_limit() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max processes")?.split_whitespace().next()?.parse().ok())
}
