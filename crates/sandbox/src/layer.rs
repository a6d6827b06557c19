//! The writable layer of an overlay, filled before it is mounted: what the sandbox must not see is hidden before anything
//! runs in it, and however much that is, each path costs one entry. The layer of a fork is a copy of another one's.

#[cfg(target_os = "linux")]
mod copy;

pub use copy::{Contents, copy, make_plain};

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, FileTimes, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The directory of a fork's layer that holds what a sandbox wrote in its workspace.
pub const UPPER: &str = "upper";
/// Its `$HOME`, beside that.
pub const HOME: &str = "home";
/// The directory beside that for what it wrote in the caches: for each cache a directory with [`UPPER`] and [`SHOWN_AT`].
pub const CACHES: &str = "caches";
/// The file that holds the path inside of a cache.
pub const SHOWN_AT: &str = "inside";

/// Hides the relative paths `hidden` of `lower` by whiteouts in the empty directory `upper`. The directories above them
/// are there with the modes and times that they have in `lower`, and belong to `owner`.
///
/// A whiteout is a character device 0/0, which any user may make since Linux 5.8 (overlayfs.rst, "whiteouts and opaque
/// directories"; mknod(2)).
pub fn hide(upper: &Path, lower: &Path, hidden: &[PathBuf], owner: (u32, u32)) -> io::Result<()> {
    let mut made = BTreeSet::new();
    for path in hidden {
        if let Some(parent) = path.parent() {
            make_parents(upper, parent, owner, &mut made)?;
        }
        whiteout(&upper.join(path))?;
    }
    // The deepest first: what is made in a directory changes its time.
    for path in made.iter().rev() {
        let like = fs::symlink_metadata(lower.join(path))?;
        let directory = File::open(upper.join(path))?;
        directory.set_times(FileTimes::new().set_modified(like.modified()?))?;
        directory.set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
    }
    Ok(())
}

/// Makes `directory` and what is missing above it, and notes what was made.
fn make_parents(
    upper: &Path,
    directory: &Path,
    owner: (u32, u32),
    made: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    if directory.as_os_str().is_empty() || made.contains(directory) {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        make_parents(upper, parent, owner, made)?;
    }
    let path = upper.join(directory);
    DirBuilder::new().mode(0o700).create(&path)?;
    // Only root may, and only root has to: everybody else is the owner anyway.
    let (uid, gid) = owner;
    let made_by = fs::symlink_metadata(&path)?;
    if (made_by.uid(), made_by.gid()) != owner {
        chown(&path, Some(uid), Some(gid))?;
    }
    made.insert(directory.to_owned());
    Ok(())
}

#[cfg(target_os = "linux")]
fn whiteout(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    Ok(mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0)?)
}

#[cfg(not(target_os = "linux"))]
fn whiteout(_: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
mod copy {
    //! Overlays are Linux's.

    use std::io;
    use std::path::Path;

    /// See that of Linux.
    #[derive(Clone, Copy)]
    pub enum Contents {
        Copied,
        Linked,
    }

    pub fn copy(_: &Path, _: &Path, _: Option<(u32, u32)>, _: Contents) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn make_plain(_: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
