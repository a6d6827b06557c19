//! The limit of processes. A finished command may have left so many running that the next one cannot work: a fork bomb
//! does.

use crate::facts::cgroup_file;
use crate::processes;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// With fewer than these left a shell cannot work.
const FEW: u64 = 8;

/// The length of one wait for the dead, and the number of waits.
const WAIT: Duration = Duration::from_millis(5);
const WAITS: u32 = 400;

pub struct ProcessLimit {
    /// The number of processes and threads, where a control group counts them.
    counter: Option<File>,
    limit: Option<u64>,
}

impl ProcessLimit {
    /// Keeps the counter open.
    pub fn open() -> Self {
        let file = |name| cgroup_file("", name).or_else(|| cgroup_file("pids", name));
        let group_limit =
            file("pids.max").and_then(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
        let counter = group_limit.and_then(|_: u64| File::open(file("pids.current")?).ok());
        Self { counter, limit: group_limit.or_else(user_limit) }
    }

    /// Waits, as long as nothing runs that would be held up, until the processes that were killed do not count any more.
    pub fn wait_for_the_dead(&self) {
        for _ in 0..WAITS {
            if !self.is_nearly_reached() {
                return;
            }
            std::thread::sleep(WAIT);
        }
    }

    /// Returns whether almost no further process can be started.
    pub fn is_nearly_reached(&self) -> bool {
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

/// The limit of the user's processes, used where there are no control groups.
fn user_limit() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max processes")?.split_whitespace().next()?.parse().ok())
}
