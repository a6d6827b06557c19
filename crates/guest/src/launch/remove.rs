//! Removes a directory that a hostile program has filled: directories without permissions, a nesting of thousands, names
//! of every kind, symlinks to anywhere. Nothing outside is ever touched.

use super::sys;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// `O_DIRECTORY | O_NOFOLLOW`.
const DIRECTORY_NOFOLLOW: i32 =
    if cfg!(target_arch = "aarch64") { 0o40_000 | 0o100_000 } else { 0o200_000 | 0o400_000 };

/// The number of times that a removal that somebody else is at too is begun again, and the pause between.
const ATTEMPTS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// Removes `directory` and everything in it. Not there is not an error, and another process may be removing it too.
pub fn remove_tree(directory: &Path) -> io::Result<()> {
    for _ in 1..ATTEMPTS {
        match remove_once(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    remove_once(directory)
}

/// Walks by changing the current directory a level at a time, so neither path length, nor descriptors, nor stack grow with
/// the depth; only for a process that has a single thread and no use for its current directory any more. Nothing that could
/// rename directories meanwhile may be running.
fn remove_once(directory: &Path) -> io::Result<()> {
    let Some((parent, name)) = directory.parent().zip(directory.file_name()) else { return Ok(()) };
    std::env::set_current_dir(parent)?;
    let mut entered: Vec<OsString> = Vec::new();
    let mut next = match fs::symlink_metadata(name) {
        Ok(metadata) if metadata.is_dir() => Some(name.to_owned()),
        Ok(_) => return fs::remove_file(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    loop {
        match next {
            Some(name) => {
                enter(Path::new(&name))?;
                entered.push(name);
            }
            None => {
                let Some(name) = entered.pop() else { return Ok(()) };
                std::env::set_current_dir("..")?;
                fs::remove_dir(&name)?;
                if entered.is_empty() {
                    return Ok(());
                }
            }
        }
        next = remove_files()?;
    }
}

/// Changes into the directory `name`, which must not be a symlink, after checking that it can be read and emptied.
fn enter(name: &Path) -> io::Result<()> {
    let open = || OpenOptions::new().read(true).custom_flags(DIRECTORY_NOFOLLOW).open(name);
    let directory: File = match open() {
        // Not a symlink: that would have been another error, so chmod stays on this very directory.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(name, Permissions::from_mode(0o700))?;
            open()
        }
        other => other,
    }?;
    directory.set_permissions(Permissions::from_mode(0o700))?;
    sys::enter_directory(directory.as_raw_fd())
}

/// Removes what is not a directory from the current one, up to the first directory, whose name it returns.
fn remove_files() -> io::Result<Option<OsString>> {
    for entry in fs::read_dir(".")? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            return Ok(Some(entry.file_name()));
        }
        fs::remove_file(entry.file_name())?;
    }
    Ok(None)
}
