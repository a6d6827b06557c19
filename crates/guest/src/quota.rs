//! The disk quota, where the file system itself knows none.
//!
//! While commands run, the free space of the file systems that the sandbox writes to is read twenty times a second: a
//! system call each, nothing else. Only when one has lost more than the quota, every process is stopped and the sandbox's
//! files are counted (`usage.rs`). Where they are within the quota, another writer filled the disk, and all continues; else
//! everything that runs is killed. So the quota is exceeded by what can be written within [`INTERVAL`] and [`ALLOWANCE`], at
//! most [`STRIKES`] times before commands are refused. The count starts again when a kept sandbox is started again.

use crate::client::Failure;
use crate::command::Command;
use crate::filters;
use crate::processes;
use crate::sys;
use crate::usage::{self, Places, Usage};
use agent_wire::{files_of_quota, quota_used_up};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Between two readings of the free space.
const INTERVAL: Duration = Duration::from_millis(50);
/// The bytes and files that a sandbox over its quota may take further, so that it can be cleaned up.
const ALLOWANCE: Usage = Usage { bytes: 64 << 20, files: 4096 };
/// The number of times that a sandbox may go over its quota without coming back below it.
const STRIKES: u32 = 4;
/// A disk that has lost the quota and has less than this part of itself left is full, no matter which process filled it.
const LAST_PART: u64 = 20;

pub struct Quota {
    /// `None`: there is none.
    limit: Option<Usage>,
    places: Places,
    /// One for each of the places.
    disks: Vec<Disk>,
    next: Instant,
    /// The most that the sandbox can have taken of a disk, or what was counted.
    used: Usage,
    /// The usage when the quota was exceeded, until the sandbox is back below it.
    over: Option<Usage>,
    strikes: u32,
}

/// A file system at its emptiest.
struct Disk {
    free_bytes: u64,
    files: u64,
}

impl Quota {
    /// Of `bytes` on the disks of `workspace`, `$HOME` and `more`.
    pub fn new(bytes: Option<u64>, workspace: &Path, more: &[PathBuf]) -> Self {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let all: Vec<_> =
            std::iter::once(workspace.to_owned()).chain(home).chain(more.iter().cloned()).collect();
        // What lies in another one is counted with that: a project in `$HOME`, a cache.
        let is_within = |path: &PathBuf| all.iter().any(|other| other != path && path.starts_with(other));
        let directories: Vec<_> = all.iter().filter(|path| !is_within(path)).cloned().collect();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let limit = bytes.map(|bytes| Usage { bytes, files: files_of_quota(bytes) });
        let disk = |path: &PathBuf| {
            let now = sys::file_system(path).unwrap_or_default();
            Disk { free_bytes: now.free_bytes, files: now.files }
        };
        if limit.is_some() {
            filters::refuse_allocation();
        }
        Self {
            limit,
            disks: directories.iter().map(disk).collect(),
            // The clock of a file system ticks a little behind.
            places: Places { directories, since: i64::try_from(now.as_secs()).unwrap_or(i64::MAX) - 1 },
            next: Instant::now(),
            used: Usage::default(),
            over: None,
            strikes: 0,
        }
    }

    /// Returns the time of the next check, while commands run.
    pub fn next_check(&self) -> Option<Instant> {
        self.limit.map(|_| self.next)
    }

    /// Checks, if it is time. Kills what runs where the quota is used up.
    pub fn watch<'c>(&mut self, commands: impl Iterator<Item = &'c mut Command>) {
        let Some(limit) = self.limit.filter(|_| Instant::now() >= self.next) else { return };
        let nearly_full = self.look();
        let allowed = self.over.map_or(limit, |over| over.and(ALLOWANCE).at_least(limit));
        let may_be_over = self.used.exceeds(allowed);
        if may_be_over || self.over.is_some() && !self.used.exceeds(limit) {
            let mut commands: Vec<&mut Command> = commands.filter(|command| !command.over()).collect();
            let supervisors: Vec<i32> = commands.iter().map(|command| command.supervisor()).collect();
            let stopped = processes::stop_below(std::process::id() as i32);
            let own = usage::count(&self.places, &supervisors);
            if let Some(own) = own {
                self.others_took_the_rest(own);
            }
            // What is hidden from the count counts as the sandbox's.
            let is_over = own.map_or(may_be_over, |own| own.exceeds(allowed));
            if is_over || may_be_over && nearly_full {
                commands.iter_mut().for_each(|command| command.end_over_quota(limit.bytes));
                self.strikes += 1;
                self.over = Some(self.used);
            } else if !self.used.exceeds(limit) {
                (self.over, self.strikes) = (None, 0);
            }
            stopped.into_iter().for_each(|process| sys::kill(process, sys::SIGCONT));
        }
        self.next = Instant::now() + INTERVAL;
    }

    /// Measures how much at most the sandbox has taken of any disk, and returns whether one of those is nearly full.
    fn look(&mut self) -> bool {
        let mut nearly_full = false;
        self.used = Usage::default();
        for (place, disk) in self.places.directories.iter().zip(&mut self.disks) {
            let Ok(now) = sys::file_system(place) else { continue };
            disk.free_bytes = disk.free_bytes.max(now.free_bytes);
            disk.files = disk.files.min(now.files);
            self.used.bytes = self.used.bytes.max(disk.free_bytes - now.free_bytes);
            self.used.files = self.used.files.max(now.files - disk.files);
            nearly_full |= now.free_bytes < now.bytes / LAST_PART;
        }
        nearly_full
    }

    /// Counts no longer against the sandbox what the disk has lost beyond what is its own.
    fn others_took_the_rest(&mut self, own: Usage) {
        for (place, disk) in self.places.directories.iter().zip(&mut self.disks) {
            let Ok(now) = sys::file_system(place) else { continue };
            (disk.free_bytes, disk.files) =
                (now.free_bytes.saturating_add(own.bytes), now.files.saturating_sub(own.files));
        }
        self.used = own;
    }

    /// Refuses to write a file where there is no space left.
    pub fn require_files_allowed(&self) -> Result<(), Failure> {
        match self.limit.filter(|limit| self.used.exceeds(*limit)) {
            Some(limit) => {
                Err(Failure::new(format!("{}: remove what is not needed", quota_used_up(limit.bytes))))
            }
            None => Ok(()),
        }
    }

    /// Refuses to start a command in a sandbox that has exceeded its quota repeatedly.
    pub fn require_commands_allowed(&self) -> Result<(), Failure> {
        match self.limit.filter(|limit| self.strikes >= STRIKES && self.used.exceeds(*limit)) {
            Some(limit) => Err(Failure::new(format!(
                "{}, and commands went over it {STRIKES} times: no more are run in this sandbox",
                quota_used_up(limit.bytes)
            ))),
            None => Ok(()),
        }
    }
}
