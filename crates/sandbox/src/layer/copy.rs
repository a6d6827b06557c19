//! A copy of what a sandbox has written, for a fork of it. The sandbox may be hostile and still be writing: every step goes
//! from an open directory to a name in it that is not followed, and what is copied is bounded.

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Entries and bytes that are copied at most.
const MAX_ENTRIES: u64 = 200_000;
const MAX_BYTES: u64 = 4 << 30;
/// The greatest depth of directories within each other: two are open for each.
const MAX_DEPTH: usize = 200;
/// The attribute by which overlayfs knows a directory that hides the one underneath, of root's mounts and of others.
const OPAQUE: [&CStr; 2] = [c"trusted.overlay.opaque", c"user.overlay.opaque"];
/// The one that says where underneath a directory was before it was renamed, which nobody sets but the kernel for root's mounts.
const REDIRECT: &CStr = c"trusted.overlay.redirect";
/// Longest value of it: a path.
const MAX_REDIRECT: usize = 4096;
/// Those that stand for contents elsewhere. They exist only where the kernel was configured so.
const ELSEWHERE: [&CStr; 3] =
    [c"trusted.overlay.metacopy", c"user.overlay.redirect", c"user.overlay.metacopy"];

/// The relation of the copied files to the originals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// They are copied: somebody may still write to the original.
    Copied,
    /// They are other names of the same files, where that is possible: the original is about to be removed.
    Linked,
}

/// Copies the directory `from` to `to`, which is made, for `owner`; `None`: the caller. Whiteouts and what marks a directory as
/// opaque are copied; FIFOs and sockets are left out.
///
/// # Errors
/// It holds too much, or something that cannot be copied as it is. What was copied until then is left there.
pub fn copy(from: &Path, to: &Path, owner: Option<(u32, u32)>, contents: Contents) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let from = rustix::fs::open(from, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&from)?;
    rustix::fs::mkdirat(CWD, to, Mode::RWXU)?;
    let to = rustix::fs::open(to, flags, Mode::empty())?;
    let mut copying = Copying { owner, contents, entries: MAX_ENTRIES, bytes: MAX_BYTES };
    copying.directory(&from, &to, &stat, MAX_DEPTH)
}

/// Takes from a directory of a layer what makes it hide the one underneath, or stand for another one.
pub fn make_plain(directory: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    for attribute in OPAQUE.into_iter().chain([REDIRECT]) {
        if rustix::fs::fgetxattr(&directory, attribute, &mut [0_u8; MAX_REDIRECT]).is_ok() {
            rustix::fs::fremovexattr(&directory, attribute)?;
        }
    }
    Ok(())
}

/// One copy under way, and what it may still hold.
struct Copying {
    owner: Option<(u32, u32)>,
    contents: Contents,
    entries: u64,
    bytes: u64,
}

impl Copying {
    /// Copies what is in `from`, and then how it looks: what is made in a directory changes its time.
    fn directory(&mut self, from: &OwnedFd, to: &OwnedFd, stat: &Stat, depth: usize) -> io::Result<()> {
        refuse_elsewhere(from.as_fd())?;
        for entry in Dir::read_from(from)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                self.entries = self.entries.checked_sub(1).ok_or_else(too_much)?;
                self.entry(from, to, name, depth)?;
            }
        }
        for attribute in OPAQUE.into_iter().chain([REDIRECT]) {
            let mut value = [0; MAX_REDIRECT];
            if let Ok(length) = rustix::fs::fgetxattr(from, attribute, &mut value) {
                rustix::fs::fsetxattr(to, attribute, &value[..length], XattrFlags::empty())?;
            }
        }
        self.complete(to.as_fd(), stat)
    }

    fn entry(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr, depth: usize) -> io::Result<()> {
        let stat = match rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW) {
            // It was removed meanwhile.
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let depth = depth.checked_sub(1).ok_or_else(too_much)?;
                let from = open(from, name, OFlags::DIRECTORY)?;
                rustix::fs::mkdirat(to, name, Mode::RWXU)?;
                let to = open(to, name, OFlags::DIRECTORY)?;
                self.directory(&from, &to, &stat, depth)
            }
            FileType::RegularFile => self.file(from, to, name, &stat),
            FileType::Symlink => {
                let target: CString = rustix::fs::readlinkat(from, name, Vec::new())?;
                rustix::fs::symlinkat(target.as_c_str(), to, name)?;
                self.own(to, name)
            }
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                Ok(rustix::fs::mknodat(to, name, FileType::CharacterDevice, Mode::empty(), 0)?)
            }
            _ => Ok(()),
        }
    }

    fn file(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr, stat: &Stat) -> io::Result<()> {
        if self.contents == Contents::Linked
            && rustix::fs::linkat(from, name, to, name, AtFlags::empty()).is_ok()
        {
            return self.own(to, name);
        }
        let source = open(from, name, OFlags::NONBLOCK)?;
        refuse_elsewhere(source.as_fd())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut target = File::from(target);
        let bytes = match rustix::fs::ioctl_ficlone(&target, &source) {
            Ok(()) => target.metadata()?.len(),
            Err(_) if u64::try_from(stat.st_size).is_ok_and(|size| size > self.bytes) => {
                return Err(too_much());
            }
            // It may grow while it is read.
            Err(_) => io::copy(&mut File::from(source).take(self.bytes + 1), &mut target)?,
        };
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(too_much)?;
        self.complete(target.as_fd(), stat)
    }

    /// Owner, permissions and time.
    fn complete(&self, file: BorrowedFd<'_>, stat: &Stat) -> io::Result<()> {
        if let Some((uid, gid)) = self.owner {
            rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        rustix::fs::fchmod(file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
        let time = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
        Ok(rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time })?)
    }

    fn own(&self, directory: &OwnedFd, name: &CStr) -> io::Result<()> {
        let Some((uid, gid)) = self.owner else { return Ok(()) };
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        Ok(rustix::fs::chownat(directory, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

fn open(directory: &OwnedFd, name: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

fn refuse_elsewhere(file: BorrowedFd<'_>) -> io::Result<()> {
    let is_set =
        |attribute: &CStr| rustix::fs::fgetxattr(file, attribute, &mut [0_u8; 16]) != Err(Errno::NODATA);
    match ELSEWHERE.into_iter().any(is_set) {
        true => Err(io::Error::new(io::ErrorKind::Unsupported, "the overlay names contents elsewhere")),
        false => Ok(()),
    }
}

fn too_much() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the sandbox has written too much to copy it")
}
