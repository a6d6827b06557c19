//! The disk space of the sandbox's own files, those without a name included.
//!
//! Counted only while every process is stopped, and only when the disk has lost more than the quota. Files that were
//! there before the sandbox are recognised by their change time, which no program can set.

use crate::processes;
use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time limit for counting; the event loop waits for it.
const TIME: Duration = Duration::from_secs(5);
/// The number of looks at a process that hides its files, and the pause between two.
const ENDING_LOOKS: usize = 20;
const ENDING_INTERVAL: Duration = Duration::from_millis(1);
/// The unit of `st_blocks`, whatever the file system's own blocks are.
const BLOCK: u64 = 512;

/// Bytes on the disk, and files of any kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    pub files: u64,
}

impl Usage {
    /// Returns whether either is more than `limit` has of it.
    pub fn exceeds(self, limit: Usage) -> bool {
        self.bytes > limit.bytes || self.files > limit.files
    }

    /// The sum of both.
    pub fn and(self, more: Usage) -> Usage {
        Usage { bytes: self.bytes.saturating_add(more.bytes), files: self.files.saturating_add(more.files) }
    }

    /// The larger of each.
    pub fn at_least(self, other: Usage) -> Usage {
        Usage { bytes: self.bytes.max(other.bytes), files: self.files.max(other.files) }
    }
}

/// The places where the sandbox writes to the disk, and since when.
pub struct Places {
    pub directories: Vec<PathBuf>,
    /// Seconds since 1970. What did not change since is not the sandbox's.
    pub since: i64,
}

/// Returns what the sandbox's files take; `None` where something is hidden from the count (directories that cannot be listed, files
/// that are only mapped or on their way through a socket) or where there is too much to count. `exempt` are processes of the
/// guest's own, whose descriptors cannot be listed.
pub fn count(places: &Places, exempt: &[i32]) -> Option<Usage> {
    let mut count =
        Count { usage: Usage::default(), places, until: Instant::now() + TIME, seen: HashSet::new() };
    for directory in &places.directories {
        count.tree(directory)?;
    }
    for process in processes::descendants(std::process::id() as i32) {
        if !exempt.contains(&process) && count.held_by(process).is_none() && !ends(process) {
            return None;
        }
    }
    Some(count.usage)
}

/// Returns whether a process is dead, or about to be: between giving up its memory and its end, its files cannot be looked at by other than root,
/// and it holds none.
fn ends(process: i32) -> bool {
    (0..ENDING_LOOKS).any(|_| {
        let is_dead = processes::is_dead(process);
        if !is_dead {
            std::thread::sleep(ENDING_INTERVAL);
        }
        is_dead
    })
}

/// A count under way. Its steps are `None` where it cannot be finished.
struct Count<'a> {
    usage: Usage,
    places: &'a Places,
    until: Instant,
    /// Files that can be met twice: several names, or descriptors.
    seen: HashSet<(u64, u64)>,
}

impl Count<'_> {
    fn tree(&mut self, root: &Path) -> Option<()> {
        let mut directories = vec![root.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in unless_gone(fs::read_dir(directory))?.into_iter().flatten() {
                let Some(entry) = unless_gone(entry)? else { continue };
                let Some(metadata) = unless_gone(entry.metadata())? else { continue };
                if metadata.is_dir() {
                    directories.push(entry.path());
                }
                self.add(&metadata)?;
            }
        }
        Some(())
    }

    /// Returns what the threads of a process hold open that has no name any more.
    fn held_by(&mut self, process: i32) -> Option<()> {
        let directory = PathBuf::from(format!("/proc/{process}"));
        let maps = unless_gone(fs::read(directory.join("maps")))?.unwrap_or_default();
        if maps.split(|&byte| byte == b'\n').any(|line| self.maps_a_removed_file(line)) {
            return None;
        }
        for thread in unless_gone(fs::read_dir(directory.join("task")))?.into_iter().flatten() {
            let thread = thread.ok()?.path();
            for descriptor in unless_gone(fs::read_dir(thread.join("fd")))?.into_iter().flatten() {
                let descriptor = descriptor.ok()?;
                let Some(metadata) = unless_gone(fs::metadata(descriptor.path()))? else { continue };
                if metadata.is_file() && metadata.nlink() == 0 {
                    self.add(&metadata)?;
                }
                let kind = metadata.file_type();
                if kind.is_socket() && carries_files(&thread.join("fdinfo").join(descriptor.file_name())) {
                    return None;
                }
            }
        }
        Some(())
    }

    /// Returns whether a line of `/proc/PID/maps` is of a file of the sandbox's that has no name any more.
    fn maps_a_removed_file(&self, line: &[u8]) -> bool {
        let path = line.splitn(2, |&byte| byte == b'/').nth(1).unwrap_or_default();
        let below = |place: &PathBuf| path.starts_with(&place.as_os_str().as_encoded_bytes()[1..]);
        line.ends_with(b" (deleted)") && self.places.directories.iter().any(below)
    }

    fn add(&mut self, metadata: &Metadata) -> Option<()> {
        let met = metadata.nlink() != 1
            && !metadata.is_dir()
            && !self.seen.insert((metadata.dev(), metadata.ino()));
        if metadata.ctime() >= self.places.since && !met {
            self.usage = self.usage.and(Usage { bytes: metadata.blocks().saturating_mul(BLOCK), files: 1 });
        }
        (Instant::now() < self.until).then_some(())
    }
}

/// Returns whether descriptors wait in a socket to be received. Kernels before 5.8 do not report it.
fn carries_files(info: &Path) -> bool {
    let info = fs::read_to_string(info).unwrap_or_default();
    info.lines().filter_map(|line| line.strip_prefix("scm_fds:")).any(|count| count.trim() != "0")
}

/// A file that is gone counts as nothing; any other failure hides something.
fn unless_gone<T>(result: io::Result<T>) -> Option<Option<T>> {
    const ESRCH: i32 = 3;
    match result {
        Ok(value) => Some(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH) => {
            Some(None)
        }
        Err(_) => None,
    }
}
