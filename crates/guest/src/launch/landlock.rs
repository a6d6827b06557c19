//! Landlock (landlock(7)), a second barrier behind the read-only mounts: nothing is written, made or removed but below the
//! directories that are meant for it, no mount is changed, and neither signals nor abstract Unix sockets reach past the
//! sandbox, not even where it shares the host's network.

use super::sys;
use crate::client::Failure;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The workspace.
const WORKSPACE: &str = "/workspace";
/// The directories beside it that are meant to be written to. The rest is below read-only mounts.
const WRITABLE: [&str; 5] = ["/home/agent", "/tmp", "/run", "/dev", "/proc"];
/// The version of the interface from which on it covers truncating, and so all writing.
const COVERS_WRITING: i64 = 3;

/// Rights to change files (`LANDLOCK_ACCESS_FS_*`): write, remove directories and files, make directories, regular files,
/// sockets, pipes and symlinks, and rename from one directory into another.
const CHANGE: u64 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13;
/// Make character and block devices: handled, and allowed nowhere.
const MAKE_DEVICES: u64 = 1 << 6 | 1 << 11;
/// From version 3 of the interface on.
const TRUNCATE: u64 = 1 << 14;
/// From version 6 on: abstract Unix sockets and signals.
const SCOPES: u64 = 0b11;

/// Restricts this process and all that come from it, as far as this kernel can. Before version 2 of the interface
/// (Linux 5.19) every rename into another directory would be refused, so there it is not used. `own` are further directories
/// that may be written to.
pub fn restrict(own: &[&Path]) -> io::Result<()> {
    let version = sys::landlock_version();
    if version < 2 {
        return Ok(());
    }
    let change = CHANGE | if version >= 3 { TRUNCATE } else { 0 };
    let scopes = if version >= 6 { SCOPES } else { 0 };
    let rules: OwnedFd = sys::landlock_rules(change | MAKE_DEVICES, scopes)?;
    let usual = WRITABLE.iter().chain([&WORKSPACE]).map(Path::new);
    for directory in usual.chain(own.iter().copied()) {
        sys::landlock_allow(rules.as_raw_fd(), change, File::open(directory)?.as_raw_fd())?;
    }
    sys::landlock_restrict(rules.as_raw_fd())
}

/// Fails where this kernel cannot keep the workspace as it is.
pub fn require_read_only() -> Result<(), Failure> {
    match sys::landlock_version() {
        COVERS_WRITING.. => Ok(()),
        _ => Err(Failure::new(
            "this kernel cannot keep the workspace read-only: that needs Landlock of Linux 6.2 or newer",
        )),
    }
}

/// Keeps this process and all that come from it from writing, making or removing anything in the workspace. Modes and
/// owners are not Landlock's: see [`crate::filters::refuse_modes`].
pub fn keep_workspace(place: &Path) -> io::Result<()> {
    let rules: OwnedFd = sys::landlock_rules(CHANGE | TRUNCATE, 0)?;
    // In a container both of its names are mounts.
    let workspaces = [fs::canonicalize(WORKSPACE)?, fs::canonicalize(place)?];
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut allowed = Vec::new();
    for directory in WRITABLE.iter().map(PathBuf::from).chain(home) {
        if let Ok(directory) = fs::canonicalize(directory) {
            add_beside(&workspaces, directory, &mut allowed);
        }
    }
    // An image may lack one of them.
    for directory in allowed.iter().filter_map(|directory| File::open(directory).ok()) {
        sys::landlock_allow(rules.as_raw_fd(), CHANGE | TRUNCATE, directory.as_raw_fd())?;
    }
    sys::landlock_restrict(rules.as_raw_fd())
}

/// Adds `directory`, or, where the workspace lies in it, what else is in it: a rule holds for all that is below.
fn add_beside(workspaces: &[PathBuf], directory: PathBuf, allowed: &mut Vec<PathBuf>) {
    if !workspaces.iter().any(|workspace| workspace.starts_with(&directory)) {
        allowed.push(directory);
    } else if !workspaces.contains(&directory) {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.for_each(|entry| add_beside(workspaces, entry.path(), allowed));
    }
}
