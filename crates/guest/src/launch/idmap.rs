//! The user's own files for the user inside, where these are not the same: a launcher that is root runs the sandbox as
//! another user, who could not write to a tree of root's. An ID-mapped mount shows the tree as that user's, and gives what
//! is written to it back to the owner (mount_setattr(2); Linux 5.12, below an overlay 5.19).

use super::sys;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A user namespace that exchanges the owner of `tree` and the user inside; `None` where they are the same.
///
/// Made before the sandbox's own namespaces, because its process has to be found in `/proc`.
pub fn exchange(tree: &Path, uid: u32, gid: u32) -> io::Result<Option<File>> {
    let metadata = fs::metadata(tree)?;
    if (metadata.uid(), metadata.gid()) == (uid, gid) {
        return Ok(None);
    }
    let pid = sys::fork_into(sys::CLONE_NEWUSER)?;
    if pid == 0 {
        let _ = sys::die_with_parent();
        // Lives until it is killed, which is when the namespace is held by its descriptor.
        loop {
            std::thread::park();
        }
    }
    let namespace = || {
        fs::write(format!("/proc/{pid}/uid_map"), map(metadata.uid(), uid))?;
        fs::write(format!("/proc/{pid}/gid_map"), map(metadata.gid(), gid))?;
        File::open(format!("/proc/{pid}/ns/user"))
    };
    let namespace = namespace();
    crate::sys::kill(pid, crate::sys::SIGKILL);
    sys::wait_for(pid)?;
    namespace.map(Some)
}

/// Mounts `tree`, without what is mounted below it, at `target` with `flags`, its owners as `namespace` maps them.
pub fn mount(tree: &Path, target: &Path, namespace: &File, flags: u64) -> io::Result<()> {
    let mount = sys::clone_mount(tree)?;
    sys::map_owners(mount.as_raw_fd(), namespace.as_raw_fd(), flags)?;
    sys::attach_mount(mount.as_raw_fd(), target)
}

/// A map of all ids (user_namespaces(7)) in which two are exchanged and the others stay: lines of the first id inside, the
/// first outside, and how many.
fn map(one: u32, other: u32) -> String {
    // `u32::MAX` stands for "no id" and cannot be mapped.
    if one == other {
        return format!("0 0 {}", u32::MAX);
    }
    let (low, high) = (one.min(other), one.max(other));
    [
        (0, 0, low),
        (low, high, 1),
        (low + 1, low + 1, high - low - 1),
        (high, low, 1),
        (high + 1, high + 1, u32::MAX - high - 1),
    ]
    .into_iter()
    .filter(|(_, _, count)| *count > 0)
    .map(|(inside, outside, count)| format!("{inside} {outside} {count}\n"))
    .collect()
}
