//! Making the directories in which `agent` keeps its files. Where they are: [`crate::machine::Machine`].

use crate::error::{Error, Result};
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a directory and its parents, accessible to this user only.
///
/// # Errors
/// `Config` if the directory cannot be created there: the home is missing, read-only or not owned by the user.
pub fn make_dir(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| create_error(path, error))
}

/// Creates a directory and its parents, as [`make_dir`] does, for directories that come and go and have nothing to do with each other.
///
/// # Errors
/// Those of [`make_dir`].
pub fn make_dir_of_unrelated(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    make_dir(path)?;
    place_apart(path);
    Ok(())
}

/// Asks ext4 to place what is made in a directory apart (`chattr +T`). Where it has no journal, it looks at each inode nearby that was
/// removed in the last minutes before it gives out another one, which takes longer than all else that a session does. Other file
/// systems refuse it.
#[cfg(target_os = "linux")]
pub fn place_apart(path: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    if let Ok(directory) = std::fs::File::open(path)
        && let Ok(flags) = ioctl_getflags(&directory)
    {
        let _ = ioctl_setflags(&directory, flags | IFlags::TOPDIR);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn place_apart(_: &Path) {}

/// The error for a file or directory that could not be created in `path`.
pub fn create_error(path: &Path, error: io::Error) -> Error {
    let message = format!("{} could not be created", path.display());
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::AlreadyExists
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem => Error::config(message).caused_by(error).hint(
            "agent keeps its sessions and its cache in the home directory: \
             set AGENT_HOME to a directory that you can write to",
        ),
        _ => Error::unexpected(message).caused_by(error),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::fs::{FsWord, IFlags, fstatfs, ioctl_getflags};
    use std::os::unix::fs::PermissionsExt;

    /// `EXT4_SUPER_MAGIC` of `<linux/magic.h>`.
    const EXT4: FsWord = 0xef53;

    #[test]
    fn directories_of_unrelated_things_are_private_and_placed_apart_where_the_file_system_can() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("a/sessions");
        for _ in 0..2 {
            make_dir_of_unrelated(&path).expect("made, and there already");
        }
        let directory = std::fs::File::open(&path).expect("it is there");
        let mode = directory.metadata().expect("its metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        if fstatfs(&directory).is_ok_and(|system| system.f_type == EXT4) {
            assert!(ioctl_getflags(&directory).expect("its flags").contains(IFlags::TOPDIR));
        }
        let file = parent.path().join("file");
        std::fs::write(&file, "").expect("written");
        make_dir_of_unrelated(&file).expect_err("a file is in its place");
        place_apart(&parent.path().join("missing"));
    }
}
