//! Reading regular files of an untrusted tree: reading a FIFO would block, a device
//! would never end.
//!
//! Every file of the workspace that is opened by name is opened here: regular files only, without blocking, and up to a
//! limit.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::path::Arg;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// Whether the last name may be a symlink.
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
    use super::{Links, read};
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
}
