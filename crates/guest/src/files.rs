//! File operations. None blocks: pipes, devices and sockets are refused before they are opened.

use crate::client::{Client, Failure};
use crate::directory::Stat;
use crate::sys;
use agent_wire::{CHUNK, Entry, EntryKind, FRAME_COST, FileWrite, Message, Node, WINDOW, cost};
use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// A path from the host: relative ones are relative to the workspace, which is where the guest itself is. They stay
/// relative, so that none of their components but their own has to be looked up.
pub fn resolve(path: PathBuf) -> PathBuf {
    if path.as_os_str().is_empty() { ".".into() } else { path }
}

/// The directory that something stands in.
fn directory_of(path: &Path) -> Option<&Path> {
    path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::io(path.display(), error)
}

/// Returns what is at `path`; a symbolic link is not followed.
pub fn stat(path: &Path) -> Result<Entry, Failure> {
    let metadata = fs::symlink_metadata(path).map_err(|error| failure(path, &error))?;
    Ok(entry(path, path.to_owned(), &Stat::from(&metadata)))
}

/// The entry at `path` under the name `name`.
pub fn entry(path: &Path, name: PathBuf, stat: &Stat) -> Entry {
    let kind = match stat {
        stat if stat.is_regular() => EntryKind::File,
        stat if stat.is_directory() => EntryKind::Directory,
        stat if stat.is_symlink() => EntryKind::Symlink(fs::read_link(path).unwrap_or_default()),
        _ => EntryKind::Other,
    };
    let ns = |(seconds, ns): (i64, i64)| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    Entry {
        path: name,
        kind,
        mode: stat.mode & 0o7777,
        size: stat.size,
        mtime_ns: ns(stat.mtime),
        ctime_ns: ns(stat.ctime),
        hash: None,
        readable: true,
    }
}

pub fn mtime_ns(metadata: &Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}

/// Opens a regular file for reading, and nothing else.
pub fn open_regular(path: &Path) -> Result<(File, Metadata), Failure> {
    let regular = |metadata: Metadata| {
        let kind = metadata.file_type();
        let what = match kind {
            _ if kind.is_file() => return Ok(metadata),
            _ if kind.is_dir() => "a directory",
            _ if kind.is_fifo() => "a named pipe",
            _ if kind.is_socket() => "a socket",
            _ => "a device",
        };
        Err(Failure::new(format!("{} is {what}, not a regular file", path.display())))
    };
    regular(fs::metadata(path).map_err(|error| failure(path, &error))?)?;
    // It may have been swapped for a pipe just now, so the open must not wait, and is checked again.
    let file = File::options()
        .read(true)
        .custom_flags(sys::O_NONBLOCK)
        .open(path)
        .map_err(|error| failure(path, &error))?;
    let metadata = regular(file.metadata().map_err(|error| failure(path, &error))?)?;
    refuse_own(path, &file)?;
    Ok((file, metadata))
}

/// `/proc/self` is meant to be the program's, not the guest's.
fn refuse_own(path: &Path, file: &File) -> Result<(), Failure> {
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
    if real.starts_with(format!("/proc/{}", std::process::id())) {
        return Err(Failure::new(format!("{} belongs to the sandbox's guest", path.display())));
    }
    Ok(())
}

/// A file that is being sent to the host.
pub struct Reading {
    file: File,
    path: PathBuf,
    left: u64,
    pub credit: u32,
}

impl Reading {
    /// Opens the file; the message describes it.
    pub fn start(path: PathBuf, offset: u64, limit: u64) -> Result<(Self, Message), Failure> {
        let (mut file, metadata) = open_regular(&path)?;
        if offset > 0 {
            file.seek(SeekFrom::Start(offset)).map_err(|error| failure(&path, &error))?;
        }
        let is = Message::FileIs {
            size: metadata.len(),
            mode: metadata.mode() & 0o7777,
            mtime_ns: mtime_ns(&metadata),
        };
        Ok((Self { file, path, left: limit, credit: WINDOW }, is))
    }

    pub fn runnable(&self, client: &Client) -> bool {
        self.credit > FRAME_COST && !client.congested()
    }

    /// Sends the next piece. `true` when the stream has ended.
    pub fn step(&mut self, id: u32, client: &mut Client, buffer: &mut [u8]) -> bool {
        let space = (self.credit - FRAME_COST) as usize;
        let wanted = space.min(CHUNK).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        match self.file.read(&mut buffer[..wanted]) {
            Ok(0) => {
                client.send(id, &Message::Done {});
                true
            }
            Ok(length) => {
                client.send(id, &Message::Data { bytes: buffer[..length].to_vec() });
                self.credit -= cost(length);
                self.left -= length as u64;
                false
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(error) => {
                client.fail(id, &failure(&self.path, &error));
                true
            }
        }
    }
}

/// The bits of a mode that a new file gets at once: the rest is kept back by the umask, or lost by the first write.
const UNMASKED: u32 = 0o755;
/// Set-id bits are never made: the system call filter of a local sandbox would refuse the rest of the mode with them.
const NO_SET_ID: u32 = 0o1777;
/// A file at least this large is replaced by an ordinary rename: on an overlay an exchange would copy it up first.
const EXCHANGE_BELOW: u64 = 1 << 20;

/// A file that is being written. Dropped before [`Writing::finish`], it leaves nothing.
pub struct Writing {
    file: File,
    temporary: Temporary,
    target: PathBuf,
    mode: u32,
    mtime_ns: Option<i64>,
    /// Set if it takes the place of a small file.
    exchange: bool,
}

/// Writes a symbolic link, a directory or a regular file.
pub fn write(write: FileWrite) -> Result<(), Failure> {
    let (target, there) = target_of(&write)?;
    let result = match write.node {
        Node::Directory => make_directory(&target, write.mode),
        Node::Symlink(to) => make_symlink(&target, &to, write.mtime_ns),
        Node::Regular(content) => {
            let mut writing = Writing::start(target, there.as_ref(), write.mode, write.mtime_ns)?;
            writing.push(&content)?;
            return writing.finish();
        }
    };
    result.map_err(|error| failure(&target, &error))
}

/// Begins a regular file, whose other bytes follow.
pub fn begin(write: FileWrite) -> Result<Writing, Failure> {
    let (target, there) = target_of(&write)?;
    let Node::Regular(content) = write.node else {
        return Err(Failure::new(format!("{} is not a regular file", target.display())));
    };
    let mut writing = Writing::start(target, there.as_ref(), write.mode, write.mtime_ns)?;
    writing.push(&content)?;
    Ok(writing)
}

/// Returns the path to write to, and the metadata of what is there.
fn target_of(write: &FileWrite) -> Result<(PathBuf, Option<Metadata>), Failure> {
    let target = resolve(write.path.clone());
    let there = fs::symlink_metadata(&target).ok();
    if write.follow && there.as_ref().is_some_and(Metadata::is_symlink) {
        let target = follow(target)?;
        let there = fs::symlink_metadata(&target).ok();
        return Ok((target, there));
    }
    Ok((target, there))
}

/// Returns the path that a symbolic link leads to in the end. What is not there yet is taken as written.
fn follow(path: PathBuf) -> Result<PathBuf, Failure> {
    match fs::canonicalize(&path) {
        Ok(real) => Ok(real),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let target = fs::read_link(&path).map_err(|error| failure(&path, &error))?;
            Ok(directory_of(&path).unwrap_or(Path::new("/")).join(target))
        }
        Err(error) => Err(failure(&path, &error)),
    }
}

fn make_directory(path: &Path, mode: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(path)?;
    mode.map_or(Ok(()), |mode| fs::set_permissions(path, Permissions::from_mode(mode & NO_SET_ID)))
}

fn make_symlink(path: &Path, to: &Path, mtime_ns: Option<i64>) -> io::Result<()> {
    let (mut temporary, ()) = Temporary::beside(path, |path| symlink(to, path))?;
    if let Some(mtime_ns) = mtime_ns {
        sys::set_link_mtime(&temporary.path, mtime_ns)?;
    }
    temporary.rename(path)
}

impl Writing {
    /// `there` is what the target is now; what keeps it from being examined fails the creation of the file as well.
    fn start(
        target: PathBuf,
        there: Option<&Metadata>,
        mode: Option<u32>,
        mtime_ns: Option<i64>,
    ) -> Result<Self, Failure> {
        if there.is_some_and(|there| !there.is_file() && !there.is_symlink()) {
            return Err(Failure::new(format!("{} exists and is not a regular file", target.display())));
        }
        let file_there = there.filter(|there| there.is_file());
        let exchange = file_there.is_some_and(|file| file.len() < EXCHANGE_BELOW);
        let mode = mode.or(file_there.map(Metadata::mode)).unwrap_or(0o644) & NO_SET_ID;
        let (temporary, file) = Temporary::beside(&target, |path| {
            File::options().write(true).create_new(true).mode(mode).open(path)
        })
        .map_err(|error| failure(&target, &error))?;
        Ok(Self { file, temporary, target, mode, mtime_ns, exchange })
    }

    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|error| failure(&self.target, &error))
    }

    pub fn finish(mut self) -> Result<(), Failure> {
        let mut finish = || {
            if self.mode & !UNMASKED != 0 {
                self.file.set_permissions(Permissions::from_mode(self.mode))?;
            }
            if let Some(mtime_ns) = self.mtime_ns {
                self.file.set_times(FileTimes::new().set_modified(system_time(mtime_ns)))?;
            }
            // ext4 writes a file out at once when it is renamed over another, which takes ten times as long as all
            // the rest; of two that change places it does not. The old one is then the temporary, and goes with it.
            if self.exchange && sys::exchange(&self.temporary.path, &self.target).is_ok() {
                return Ok(());
            }
            self.temporary.rename(&self.target)
        };
        finish().map_err(|error| failure(&self.target, &error))
    }
}

fn system_time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}

/// The name of a file that does not outlive this value unless it was renamed.
struct Temporary {
    path: PathBuf,
    renamed: bool,
}

impl Temporary {
    /// Makes something in the same directory, which is made where it is missing. The name does not depend on the
    /// target's, which may already be as long as names can be; a guest that was killed may have left some behind.
    fn beside<T>(target: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(Self, T)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let directory = directory_of(target).ok_or(io::ErrorKind::IsADirectory)?;
        loop {
            let path = directory.join(format!(".agent-{}.tmp", NEXT.fetch_add(1, Ordering::Relaxed)));
            match make(&path) {
                Ok(made) => return Ok((Self { path, renamed: false }, made)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // Looked for only now: mostly it is there.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => {
                    fs::create_dir_all(directory)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn rename(&mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Changes something in a directory of one's own that is closed to writing, as those of module caches are, or below one that cannot be looked
/// into.
fn in_closed(directory: &Path, change: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
    let former = match (fs::symlink_metadata(directory), directory.parent()) {
        (Err(error), Some(above)) if error.kind() == io::ErrorKind::PermissionDenied => {
            return in_closed(above, &|| in_closed(directory, change));
        }
        (found, _) => found?,
    };
    if !former.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    fs::set_permissions(directory, Permissions::from_mode(former.mode() | 0o700))?;
    let changed = change();
    fs::set_permissions(directory, former.permissions())?;
    changed
}

/// Removes a file, a symbolic link or an empty directory.
pub fn remove(path: &Path) -> Result<(), Failure> {
    let remove = || match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        // gVisor does not show the sockets and pipes of a directory that is mounted, and removes them all the same.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => fs::remove_file(path),
        Err(error) => Err(error),
    };
    let result = match (remove(), path.parent()) {
        (Err(error), Some(directory)) if error.kind() == io::ErrorKind::PermissionDenied => {
            in_closed(directory, &remove)
        }
        (removed, _) => removed,
    };
    result.map_err(|error| failure(path, &error))
}
