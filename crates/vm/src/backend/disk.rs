//! The writable disk of a virtual machine: a sparse file with an empty file system in it.

use super::host::MKE2FS;
use super::tool;
use agent_base::error::{Error, Result};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, chown};
use std::path::Path;

/// Space beyond what the sandbox may use: the guest notices that it uses more, as on every backend, before the disk is full.
const SPARE: u64 = 512 << 20;
/// The number of bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// So many that the guest's limit on files is reached first.
const BYTES_FOR_EACH_FILE: u64 = 4 << 10;

/// Bytes of the file, which takes only what was written, for a sandbox that may use `limit`.
pub fn bytes(limit: u64) -> u64 {
    limit.saturating_add(limit / 8).saturating_add(SPARE) >> 20 << 20
}

/// Makes the disk at `path` for `owner`. One that is kept has a journal.
///
/// # Errors
/// It cannot be made.
pub async fn make(path: &Path, limit: u64, owner: (u32, u32), is_kept: bool) -> Result<()> {
    let create = || -> io::Result<()> {
        let file = File::options().create_new(true).write(true).mode(0o600).open(path)?;
        file.set_len(bytes(limit))
    };
    create().map_err(|error| Error::sandbox("the virtual machine's disk cannot be made").caused_by(error))?;
    let features = if is_kept { "has_journal" } else { "^has_journal" };
    let inode_ratio = BYTES_FOR_EACH_FILE.to_string();
    let options = [
        "-t",
        "ext4",
        "-q",
        "-F",
        "-m",
        "0",
        "-i",
        &inode_ratio,
        "-O",
        features,
        "-E",
        "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
    ];
    let arguments = options.map(OsString::from).into_iter().chain([path.into()]);
    tool::run(MKE2FS, arguments).await?;
    chown(path, Some(owner.0), Some(owner.1))
        .map_err(|error| Error::sandbox("the virtual machine's disk cannot be given away").caused_by(error))
}

/// Copies a disk to the new file `to`, without its holes.
///
/// # Errors
/// One cannot be read or written.
pub fn copy(from: &Path, to: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    let from = File::open(from)?;
    let copy = File::options().create_new(true).write(true).mode(0o600).open(to)?;
    copy.set_len(from.metadata()?.len())?;
    let mut buffer = vec![0; PIECE];
    let mut end = 0;
    while let Some(start) = seek(&from, end, libc::SEEK_DATA)? {
        end = seek(&from, start, libc::SEEK_HOLE)?.unwrap_or(start);
        let mut at = start;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            from.read_exact_at(&mut buffer[..length], at)?;
            copy.write_all_at(&buffer[..length], at)?;
            at += length as u64;
        }
    }
    owner.map_or(Ok(()), |(uid, gid)| chown(to, Some(uid), Some(gid)))
}

/// Returns the position at which data, or a hole, begins at or after `from`; `None` where there is none.
fn seek(file: &File, from: u64, what: libc::c_int) -> io::Result<Option<u64>> {
    let from = libc::off_t::try_from(from).map_err(io::Error::other)?;
    // SAFETY: takes no pointer.
    match u64::try_from(unsafe { libc::lseek(file.as_raw_fd(), from, what) }) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn holes_are_not_copied() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let file = File::create(&from).unwrap();
        file.set_len(256 << 20).unwrap();
        file.write_all_at(b"begins", 0).unwrap();
        file.write_all_at(b"is written", 128 << 20).unwrap();
        copy(&from, &to, None).unwrap();
        let copied = File::open(&to).unwrap();
        let mut there = [0; 10];
        copied.read_exact_at(&mut there, 128 << 20).unwrap();
        assert_eq!(&there, b"is written");
        let metadata = copied.metadata().unwrap();
        assert_eq!(metadata.len(), 256 << 20);
        assert!(metadata.blocks() * 512 < 16 << 20, "{} blocks", metadata.blocks());
        assert!(copy(&from, &to, None).is_err(), "a disk is never overwritten");
    }
}
