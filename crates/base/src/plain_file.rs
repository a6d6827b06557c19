//! Reading regular files of an untrusted tree: reading a FIFO would block, a device
//! would never end. And replacing files of our own as a whole.
//!
//! Every file of the workspace that is opened by name is opened here: regular files only, without blocking, and up to a
//! limit.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::path::Arg;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The treatment of a symlink as the last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// The target is read: for files that users like to keep elsewhere.
    Follow,
    /// A symlink is not a regular file.
    Refuse,
}

/// At most the first `limit` bytes of a regular file.
pub fn read(path: &Path, limit: u64, links: Links) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_at(CWD, path, links)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// [`read`] without symlinks, of a file that belongs to root, to the caller, or to the owner of `place`.
pub fn read_of_owner(path: &Path, limit: u64, place: &Path) -> io::Result<Vec<u8>> {
    let file = open_at(CWD, path, Links::Refuse)?;
    let owners = [0, rustix::process::geteuid().as_raw(), fs::metadata(place)?.uid()];
    if !owners.contains(&file.metadata()?.uid()) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a file or symlink that another user may have planted under a name of the caller's: in a directory that everybody may write
/// to and that keeps names apart (`/tmp`), one of neither the caller nor the directory's owner. The kernel does the same
/// where `fs.protected_symlinks` and `fs.protected_regular` are set.
pub fn refuse_planted(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(directory), Ok(found)) = (fs::metadata(parent), path.symlink_metadata()) else { return Ok(()) };
    const STICKY_FOR_ALL: u32 = 0o1002;
    let is_shared = directory.mode() & STICKY_FOR_ALL == STICKY_FOR_ALL;
    let owners = [rustix::process::geteuid().as_raw(), directory.uid()];
    match is_shared && !owners.contains(&found.uid()) {
        true => Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user made what is there")),
        false => Ok(()),
    }
}

/// The guarantee that a file is there after a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It and its name are on the disk when the call returns.
    Synced,
    /// A process that is killed leaves the old or the new content.
    Renamed,
}

/// Replaces the file as a whole or not at all, by way of `PATH.new`.
pub fn replace(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let replaced = write_new(Path::new(&new), content, durability).and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        // The name is written again next time.
        let _ = fs::remove_file(&new);
    }
    replaced?;
    match durability {
        Durability::Synced => sync_directory(path.parent().unwrap_or(path)),
        Durability::Renamed => Ok(()),
    }
}

/// Replaces the file as a whole or not at all by one that only this user can read. Several may replace it at the same time: each writes a
/// file of its own beside it, and the last one counts.
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let partial = path.with_extension(format!("{:x}.partial", fastrand::u64(..)));
    let file = File::options().write(true).create_new(true).mode(0o600).open(&partial);
    let written = file.and_then(|mut file| file.write_all(content)).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        // What is left of it has no use.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn write_new(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    if durability == Durability::Synced { file.sync_all() } else { Ok(()) }
}

/// Makes the names in a directory last.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Opens a regular file for reading, relative to an open directory.
pub fn open_at(directory: impl AsFd, path: impl Arg, links: Links) -> io::Result<File> {
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    flags.set(OFlags::NOFOLLOW, links == Links::Refuse);
    let file = File::from(rustix::fs::openat(directory, path, flags, Mode::empty())?);
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Durability, Links, read, replace};
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn only_regular_files_are_read_and_only_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("file"), "12345").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        assert!(Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
        assert_eq!(read(&path("file"), 3, Links::Refuse).unwrap(), b"123");
        assert_eq!(read(&path("link"), 9, Links::Follow).unwrap(), b"12345");
        assert!(read(&path("link"), 9, Links::Refuse).is_err());
        for name in ["zero", "fifo", ".", "missing"] {
            assert!(read(&path(name), 9, Links::Follow).is_err(), "{name}");
        }
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (content, durability) in [(b"1", Durability::Renamed), (b"2", Durability::Synced)] {
            replace(&path, content, durability).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
        std::fs::create_dir(directory.path().join("taken")).unwrap();
        assert!(replace(&directory.path().join("taken"), b"3", Durability::Synced).is_err());
        let mut left: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["file", "taken"], "nothing unfinished is left");
    }
}
