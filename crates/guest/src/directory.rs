//! Directories by their open descriptors: what is in one costs the lookup of one name, however deep it lies.

use crate::sys::{c_path, check, ffi};
use std::ffi::{CStr, OsStr, c_int, c_long};
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const AT_FDCWD: c_int = -100;
const AT_SYMLINK_NOFOLLOW: c_int = 0x100;
const O_CLOEXEC: c_int = 0o2_000_000;
#[cfg(target_arch = "x86_64")]
const O_DIRECTORY: c_int = 0o200_000;
#[cfg(target_arch = "aarch64")]
const O_DIRECTORY: c_int = 0o40_000;
#[cfg(target_arch = "x86_64")]
const O_NOFOLLOW: c_int = 0o400_000;
#[cfg(target_arch = "aarch64")]
const O_NOFOLLOW: c_int = 0o100_000;
#[cfg(target_arch = "x86_64")]
const SYS_GETDENTS64: c_long = 217;
#[cfg(target_arch = "aarch64")]
const SYS_GETDENTS64: c_long = 61;
#[cfg(target_arch = "x86_64")]
const SYS_NEWFSTATAT: c_long = 262;
#[cfg(target_arch = "aarch64")]
const SYS_NEWFSTATAT: c_long = 79;

#[cfg(target_arch = "x86_64")]
const SYS_STATX: c_long = 332;
#[cfg(target_arch = "aarch64")]
const SYS_STATX: c_long = 291;

/// Bytes of names that are taken from the kernel at once.
const BUFFER: usize = 32 << 10;
/// The offset of the name of an entry.
const NAME_AT: usize = 19;

const TYPE_BITS: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// The kernel's `struct stat`.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Default)]
struct KernelStat {
    device: u64,
    inode: u64,
    links: u64,
    mode: u32,
    owner: [u32; 3],
    rdev: u64,
    size: i64,
    blocks: [i64; 2],
    times: [[i64; 2]; 3],
    unused: [i64; 3],
}

#[cfg(target_arch = "aarch64")]
#[repr(C)]
#[derive(Default)]
struct KernelStat {
    device: u64,
    inode: u64,
    mode: u32,
    links: u32,
    owner: [u32; 2],
    rdev: u64,
    padding: u64,
    size: i64,
    blocks: [i64; 2],
    times: [[i64; 2]; 3],
    unused: i64,
}

/// The metadata of a file. Times are seconds and nanoseconds. The default is a file of no kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Stat {
    pub device: u64,
    pub inode: u64,
    /// With its type.
    pub mode: u32,
    pub size: u64,
    pub mtime: (i64, i64),
    pub ctime: (i64, i64),
}

impl From<&Metadata> for Stat {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            mode: metadata.mode(),
            size: metadata.len(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Stat {
    pub fn is_directory(&self) -> bool {
        self.mode & TYPE_BITS == DIRECTORY
    }

    pub fn is_regular(&self) -> bool {
        self.mode & TYPE_BITS == REGULAR
    }

    pub fn is_symlink(&self) -> bool {
        self.mode & TYPE_BITS == SYMLINK
    }
}

/// An open directory.
pub struct Directory(OwnedFd);

impl Directory {
    /// Opens a directory that is named relative to the working directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_at(AT_FDCWD, path, 0)
    }

    /// Opens a directory below this one. Its name may not be that of a symbolic link.
    pub fn below(&self, path: &Path) -> io::Result<Self> {
        Self::open_at(self.0.as_raw_fd(), path, O_NOFOLLOW)
    }

    fn open_at(directory: c_int, path: &Path, flags: c_int) -> io::Result<Self> {
        let path = c_path(path)?;
        let flags = O_DIRECTORY | O_CLOEXEC | flags;
        // SAFETY: the path lives across the call; the descriptor is new and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(check(ffi::openat(directory, path.as_ptr(), flags))?) }))
    }

    fn stat(&self, name: &CStr) -> io::Result<Stat> {
        let (mut stat, flags) = (KernelStat::default(), AT_SYMLINK_NOFOLLOW);
        // SAFETY: the name lives across the call, and the structure is the one that the kernel writes.
        check(unsafe {
            ffi::syscall(SYS_NEWFSTATAT, self.0.as_raw_fd(), name.as_ptr(), &raw mut stat, flags)
        })?;
        let [_, mtime, ctime] = stat.times.map(|[seconds, nanoseconds]| (seconds, nanoseconds));
        let KernelStat { device, inode, mode, size, .. } = stat;
        Ok(Stat { device, inode, mode, size: size.cast_unsigned(), mtime, ctime })
    }
}

/// Names of a directory as the kernel gives them, many at once. The space is used for one directory after the other.
pub struct Names {
    bytes: Box<[u8]>,
    /// The beginning of the next entry, and the end of the last one.
    at: usize,
    end: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self { bytes: vec![0; BUFFER].into(), at: 0, end: 0 }
    }
}

impl Names {
    /// Begins with the names of a directory that was opened just now.
    pub fn begin(&mut self, directory: &Directory) -> io::Result<()> {
        self.fill(directory).map(drop)
    }

    /// The next entry of a directory, `None` at the end.
    pub fn next(&mut self, directory: &Directory) -> io::Result<Option<(&OsStr, io::Result<Stat>)>> {
        let name = loop {
            if self.at >= self.end && !self.fill(directory)? {
                return Ok(None);
            }
            let name = self.entry().ok_or(io::ErrorKind::InvalidData)?;
            if !matches!(&self.bytes[name.clone()], b"." | b"..") {
                break name;
            }
        };
        let with_end = &self.bytes[name.start..=name.end];
        let stat = CStr::from_bytes_with_nul(with_end)
            .map_err(io::Error::other)
            .and_then(|name| directory.stat(name));
        Ok(Some((OsStr::from_bytes(&self.bytes[name]), stat)))
    }

    /// Passes over an entry; where its name is, before the zero that ends it.
    fn entry(&mut self) -> Option<Range<usize>> {
        // struct linux_dirent64: inode, offset, length of the entry, type, name.
        let entry = self.bytes.get(self.at..self.end)?;
        let length = usize::from(u16::from_ne_bytes([*entry.get(16)?, *entry.get(17)?]));
        let name = entry.get(NAME_AT..length)?;
        let name_length = name.iter().position(|byte| *byte == 0)?;
        let start = self.at + NAME_AT;
        self.at += length;
        Some(start..start + name_length)
    }

    /// Takes the next names from the kernel; `false` where there are none.
    fn fill(&mut self, directory: &Directory) -> io::Result<bool> {
        (self.at, self.end) = (0, 0);
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        let length = check(unsafe {
            ffi::syscall(SYS_GETDENTS64, directory.0.as_raw_fd(), self.bytes.as_mut_ptr(), self.bytes.len())
        })?;
        self.end = usize::try_from(length).unwrap_or_default();
        Ok(self.end > 0)
    }
}

/// Returns whether statx(2) takes `AT_NO_AUTOMOUNT`. gVisor's releases of 2022 do not, nor where the C library falls back to fstatat(2)
/// with the same flag.
pub fn takes_no_automount() -> bool {
    const AT_NO_AUTOMOUNT: c_int = 0x800;
    const EINVAL: i32 = 22;
    let mut found = [0_u64; 32];
    // SAFETY: the name lives across the call, and `struct statx` has 256 bytes.
    let result = unsafe {
        ffi::syscall(SYS_STATX, AT_FDCWD, c"/".as_ptr(), AT_NO_AUTOMOUNT, 0 as c_int, found.as_mut_ptr())
    };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(EINVAL)
}
