//! The host's tree, written to so that no symlink leads a write outside.
//!
//! Every step goes from an open directory to a name in it with `O_NOFOLLOW` (openat(2)), so a symlink that takes a
//! directory's place at any moment is an error and never a way out.

mod open_entry;

pub use open_entry::Changed;

use crate::attributes;
use crate::manifest::{Node, Target};
use crate::selection::Stamp;
use crate::tree_path::TreePath;
use agent_base::hash::Hash;
use agent_base::plain_file::{self, Links};
use open_entry::{OpenEntry, Temporary};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::process::geteuid;
use sha2::{Digest, Sha256};
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};
use std::time::{Duration, Instant};

/// The time limit for waiting for the lock, and the pause between two looks.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// An open directory that is the root of everything.
#[derive(Debug)]
pub struct HostDir {
    root: OwnedFd,
}

/// The state of a path when somebody looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The node that was there; `None` for nothing.
    pub node: Option<Node>,
    /// Device, inode, size, modification and change time: unchanged as long as the file is.
    identity: Option<Identity>,
    owner: Option<(u32, u32)>,
    /// The permission bits that give nobody more than the file does, where those in `node` are a mask for an access control list.
    mode_without_list: Option<u32>,
    /// Names that a file has; 1 for anything else.
    pub links: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: i64,
    mtime: (i64, u64),
    ctime: (i64, u64),
}

impl Observed {
    /// Nothing is there.
    pub fn nothing() -> Self {
        Self { node: None, identity: None, owner: None, mode_without_list: None, links: 1 }
    }

    /// The node as it can be restored once it is removed: without an access control list, and for nobody who was kept from it.
    pub fn restorable(&self) -> Option<Node> {
        let node = self.node.clone()?;
        Some(match self.mode_without_list {
            Some(mode) => node.with_mode(mode),
            None => node,
        })
    }

    /// Returns whether it is the same as another one, which was looked at under another name: renaming changes the change time.
    fn is_as(&self, other: &Self) -> bool {
        let without_change = |identity: Identity| Identity { ctime: (0, 0), ..identity };
        self.node == other.node
            && self.owner == other.owner
            && self.identity.map(without_change) == other.identity.map(without_change)
    }
}

/// The lock of a directory, held until it is dropped.
#[derive(Debug)]
pub struct WriteLock(File);

impl Drop for WriteLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that is being forked has the descriptor too.
        let _ = self.0.unlock();
    }
}

impl HostDir {
    /// Opens the root. It may itself be reached through symlinks: the user named it.
    pub fn open(root: &Path) -> io::Result<Self> {
        let root =
            rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root })
    }

    /// Opens a root that is reached through no symlink: its path was resolved when it was named.
    pub fn open_plain(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory = rustix::fs::open("/", flags, Mode::empty())?;
        for name in root.components() {
            match name {
                Component::RootDir => {}
                Component::Normal(name) => {
                    directory = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
                }
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            }
        }
        // What is above it may only be passed through.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: rustix::fs::openat(&directory, ".", flags, Mode::empty())? })
    }

    /// Waits until nobody else has the lock of the directory, which those hold who write changes to it. On a file system without locks there
    /// is none.
    ///
    /// # Errors
    /// Another process did not give it back within ten seconds.
    pub fn lock(&self) -> io::Result<WriteLock> {
        let root = File::from(self.root.try_clone()?);
        let begun = Instant::now();
        loop {
            match root.try_lock() {
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WAIT => {
                    std::thread::sleep(LOCK_PAUSE)
                }
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(()) | Err(TryLockError::Error(_)) => return Ok(WriteLock(root)),
            }
        }
    }

    /// Looks at `path`, and reads and hashes it where it is a file. Something that is neither file, symlink nor
    /// directory is an error; a symlink or a file on the way is `NotADirectory`.
    pub fn observe(&self, path: &TreePath) -> io::Result<Observed> {
        match self.parent(path) {
            Ok(parent) => look_at(&parent, path.name(), true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Observed::nothing()),
            Err(error) => Err(error),
        }
    }

    /// Returns whether something is at `path`. What cannot be looked at may be there.
    pub fn may_have(&self, path: &TreePath) -> bool {
        !matches!(self.stamp(path), Ok(None))
    }

    /// Returns the stamp of whatever is at `path`; `None` for nothing. Reads no content.
    pub fn stamp(&self, path: &TreePath) -> io::Result<Option<Stamp>> {
        let parent = match self.parent(path) {
            Ok(parent) => parent,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        match rustix::fs::statat(&parent, path.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Stamp::from(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a regular file for reading.
    pub fn open_file(&self, path: &TreePath) -> io::Result<File> {
        plain_file::open_at(self.parent(path)?, path.name(), Links::Refuse)
    }

    /// The names in a directory (`None`: the root).
    pub fn list(&self, path: Option<&TreePath>) -> io::Result<Vec<Vec<u8>>> {
        let names = rustix::fs::Dir::read_from(self.directory(path)?)?
            .map(|entry| entry.map(|entry| entry.file_name().to_bytes().to_owned()))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(names.into_iter().filter(|name| !matches!(name.as_slice(), b"." | b"..")).collect())
    }

    /// The names in a directory (`None`: the root) with what the file system says of their kinds, which may be nothing; `max` at most.
    pub fn kinds(&self, path: Option<&TreePath>, max: usize) -> io::Result<Vec<(Vec<u8>, FileType)>> {
        let entry = |entry: rustix::io::Result<rustix::fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.file_name().to_bytes().to_owned(), entry.file_type()))
        };
        let is_other = |entry: &io::Result<(Vec<u8>, FileType)>| {
            !entry.as_ref().is_ok_and(|(name, _)| matches!(name.as_slice(), b"." | b".."))
        };
        let entries = rustix::fs::Dir::read_from(self.directory(path)?)?.map(entry);
        entries.filter(is_other).take(max).collect()
    }

    /// The target of a symlink.
    pub fn read_link(&self, path: &TreePath) -> io::Result<Target> {
        let target = rustix::fs::readlinkat(self.parent(path)?, path.name(), Vec::new())?;
        Ok(Target(target.into_bytes()))
    }

    fn directory(&self, path: Option<&TreePath>) -> io::Result<OwnedFd> {
        match path {
            Some(path) => open_directory(self.parent(path)?.as_fd(), path.name()),
            None => self.root.try_clone(),
        }
    }

    /// Writes a file in the place of `former`: a temporary one in the same directory, flushed to disk, then renamed. Owner and group stay
    /// those of `former` where the system allows it, and so do its extended attributes, among them its access control list; what is new
    /// belongs to whom root writes it for.
    ///
    /// A file that cannot be replaced is written in place: a mount of its own, and one with attributes that no other file
    /// may get.
    ///
    /// # Errors
    /// [`Changed`] where something else is there than `former`, with which nothing is done.
    pub fn write_file(
        &self,
        path: &TreePath,
        content: &mut dyn Read,
        mode: u32,
        former: &Observed,
    ) -> io::Result<()> {
        let place = OpenEntry::holding(self, path, former)?;
        let mut temporary = Temporary::new(&place.parent);
        let mut file = temporary.create(0o600)?;
        io::copy(content, &mut file)?;
        let owner = place.found.owner.or_else(|| new_owner(&place.parent));
        let is_given = owner.is_none_or(|owner| change_owner(&file, owner));
        let attributes = match place.found.node {
            Some(Node::File { .. }) => attributes::copy(&place.parent, path.name(), &file).map(Some),
            _ => Ok(None),
        };
        let of_copy = if is_given { mode } else { for_another_group(mode) };
        rustix::fs::fchmod(&file, Mode::from_raw_mode(of_copy))?;
        file.sync_all()?;
        let replaced = match attributes {
            Ok(attributes) => place.fill(&mut temporary, attributes),
            Err(error) => Err(error.into()),
        };
        match replaced {
            Err(error) if place.found.identity.is_some() && is_not_replaceable(&error) => {
                place.fill_in_place(&mut file, mode)
            }
            replaced => replaced,
        }
    }

    /// Writes a file with the permission bits that the umask leaves, in the place of `former`.
    ///
    /// # Errors
    /// [`Changed`], as for [`HostDir::write_file`].
    pub fn write_plain_file(
        &self,
        path: &TreePath,
        content: &mut dyn Read,
        executable: bool,
        former: &Observed,
    ) -> io::Result<()> {
        let place = OpenEntry::holding(self, path, former)?;
        write_new(&place, content, executable, File::sync_all)
    }

    /// The same, whatever is there, for a file that nobody misses after a crash of the machine: it is not flushed to disk.
    pub fn write_passing_file(
        &self,
        path: &TreePath,
        content: &mut dyn Read,
        executable: bool,
    ) -> io::Result<()> {
        write_new(&OpenEntry::of(self, path)?, content, executable, |_| Ok(()))
    }

    /// Makes a symlink in the place of `former`, which is not a directory.
    ///
    /// # Errors
    /// [`Changed`], as for [`HostDir::write_file`].
    pub fn write_symlink(&self, path: &TreePath, target: &Target, former: &Observed) -> io::Result<()> {
        let place = OpenEntry::holding(self, path, former)?;
        let mut temporary = Temporary::new(&place.parent);
        rustix::fs::symlinkat(target.0.as_slice(), &place.parent, &temporary.name)?;
        if let Some(owner) = new_owner(&place.parent) {
            change_link_owner(&place.parent, &temporary.name, owner);
        }
        place.fill(&mut temporary, None)
    }

    /// Makes a directory; an existing one is not an error. Returns whether there was none.
    pub fn make_directory(&self, path: &TreePath) -> io::Result<bool> {
        let parent = self.parent(path)?;
        let made = rustix::fs::mkdirat(&parent, path.name(), Mode::from_raw_mode(0o777));
        if let Err(error) = made
            && error != Errno::EXIST
        {
            return Err(error.into());
        }
        let directory = open_directory(parent.as_fd(), path.name())?;
        if let (Ok(()), Some(owner)) = (made, new_owner(&parent)) {
            change_owner(directory, owner);
        }
        Ok(made.is_ok())
    }

    /// Sets a directory's permission bits, which are `former` now, where that is known. That of the group for what is made in it, and
    /// the sticky one, stay.
    ///
    /// # Errors
    /// [`Changed`] where they are others.
    pub fn set_directory_mode(&self, path: &TreePath, mode: u32, former: Option<u32>) -> io::Result<()> {
        let directory = open_directory(self.parent(path)?.as_fd(), path.name())?;
        let now = rustix::fs::fstat(&directory)?.st_mode;
        if former.is_some_and(|former| former != now & 0o777) {
            return Err(io::Error::other(Changed));
        }
        Ok(rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode | now & 0o7000))?)
    }

    /// Removes a file or a symlink. A missing one is not an error.
    ///
    /// # Errors
    /// [`Changed`] where something else is there than `former`, with which nothing is done.
    pub fn remove_file(&self, path: &TreePath, former: &Observed) -> io::Result<()> {
        match OpenEntry::holding(self, path, former) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            place => place?.clear(),
        }
    }

    /// Removes an empty directory. A missing one is not an error.
    pub fn remove_directory(&self, path: &TreePath) -> io::Result<()> {
        let parent = match self.parent(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            parent => parent?,
        };
        match rustix::fs::unlinkat(&parent, path.name(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Flushes the names in a directory (`None`: the root) to disk. A missing one is not an error.
    pub fn sync(&self, directory: Option<&TreePath>) -> io::Result<()> {
        let Some(path) = directory else { return Ok(rustix::fs::fsync(&self.root)?) };
        match self.parent(path).and_then(|parent| open_directory(parent.as_fd(), path.name())) {
            Ok(directory) => Ok(rustix::fs::fsync(&directory)?),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The open directory that holds `path`, reached a name at a time without following anything.
    fn parent(&self, path: &TreePath) -> io::Result<OwnedFd> {
        let mut directory = self.root.try_clone()?;
        let names: Vec<&[u8]> = path.names().collect();
        for name in &names[..names.len() - 1] {
            directory = open_directory(directory.as_fd(), name)?;
        }
        Ok(directory)
    }
}

/// Looks at a name in a directory; `read`: and at the content of a file.
fn look_at(parent: &OwnedFd, name: &[u8], read: bool) -> io::Result<Observed> {
    let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Observed::nothing()),
        Err(error) => return Err(error.into()),
    };
    let mode = stat.st_mode & 0o777;
    let (node, stat) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => (Node::Directory { mode }, stat),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
            (Node::Symlink { target: Target(target.into_bytes()) }, stat)
        }
        FileType::RegularFile if read => hash_file(parent, name)?,
        FileType::RegularFile => (Node::File { hash: Hash::UNKNOWN, size: 0, mode }, stat),
        _ => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device, FIFO or socket is there"));
        }
    };
    let is_file = matches!(node, Node::File { .. });
    let links = if is_file { links(&stat) } else { 1 };
    Ok(Observed {
        links,
        mode_without_list: (read && !matches!(node, Node::Symlink { .. }))
            .then(|| attributes::mode_without_list(parent, name, mode))
            .flatten(),
        node: Some(node),
        identity: Some(identity(&stat)),
        owner: Some((stat.st_uid, stat.st_gid)),
    })
}

fn write_new(
    place: &OpenEntry<'_>,
    content: &mut dyn Read,
    executable: bool,
    flush: fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut temporary = Temporary::new(&place.parent);
    let mut file = temporary.create(if executable { 0o777 } else { 0o666 })?;
    io::copy(content, &mut file)?;
    if let Some(owner) = new_owner(&place.parent) {
        change_owner(&file, owner);
    }
    flush(&file)?;
    place.fill(&mut temporary, None)
}

/// Returns whether a file has to be written in place.
fn is_not_replaceable(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::BUSY | Errno::PERM | Errno::ACCESS | Errno::NOTSUP))
}

/// The rights of a group are not for another one: that gets those of all others.
fn for_another_group(mode: u32) -> u32 {
    mode & !0o070 | (mode & 0o007) << 3
}

#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
fn links(stat: &Stat) -> u64 {
    u64::from(stat.st_nlink)
}

/// The owner of something new in a directory: the directory's own, if root works in another user's tree.
fn new_owner(directory: &OwnedFd) -> Option<(u32, u32)> {
    let stat = rustix::fs::fstat(directory).ok()?;
    let is_root = geteuid().is_root();
    (is_root && stat.st_uid != 0).then_some((stat.st_uid, stat.st_gid))
}

/// Only root may, or a member of the group, and not on every file system; otherwise the caller stays the owner. Returns whether the group
/// is the wanted one.
fn change_owner(what: impl AsFd, (uid, gid): (u32, u32)) -> bool {
    let group = Some(Gid::from_raw(gid));
    if rustix::fs::fchown(&what, Some(Uid::from_raw(uid)), group).is_err() {
        let _ = rustix::fs::fchown(&what, None, group);
    }
    rustix::fs::fstat(what).is_ok_and(|stat| stat.st_gid == gid)
}

/// As [`change_owner`], for a symlink. The directory's owner may have put something else in its place: a hard link to a
/// symlink of root's, or a file.
fn change_link_owner(parent: &OwnedFd, name: &str, (uid, gid): (u32, u32)) {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(link) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return };
    let is_ours = rustix::fs::fstat(&link).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Symlink && stat.st_nlink == 1 && stat.st_uid == 0
    });
    if is_ours {
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        let _ = rustix::fs::chownat(&link, "", owner.0, owner.1, AtFlags::EMPTY_PATH);
    }
}

fn open_directory(parent: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        // The error for a symlink under `O_DIRECTORY | O_NOFOLLOW` differs between systems.
        Err(Errno::LOOP | Errno::MLINK) => Err(Errno::NOTDIR.into()),
        opened => Ok(opened?),
    }
}

fn hash_file(parent: &OwnedFd, name: &[u8]) -> io::Result<(Node, Stat)> {
    let mut file = plain_file::open_at(parent, name, Links::Refuse)?;
    let stat = rustix::fs::fstat(&file)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut size = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => {
                hasher.update(&buffer[..n]);
                size += n as u64;
            }
        }
    }
    Ok((Node::File { hash: Hash(hasher.finalize().into()), size, mode: stat.st_mode & 0o777 }, stat))
}

// The widths of these fields differ between systems.
#[allow(clippy::unnecessary_cast)]
fn identity(stat: &Stat) -> Identity {
    Identity {
        device: stat.st_dev as u64,
        inode: stat.st_ino as u64,
        size: stat.st_size as i64,
        mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
        ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// Two sessions wrote the halves of a repository at the same time, each of which saw nothing of the other.
    #[test]
    fn nobody_else_has_the_lock_until_it_is_dropped() {
        let place = tempfile::tempdir().unwrap();
        let lock = HostDir::open(place.path()).unwrap().lock().unwrap();
        let other = fs::File::open(place.path()).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(lock);
        other.try_lock().unwrap();
    }

    /// A bug: the owner of the directory put another's link in the place of the temporary one, and got it.
    #[test]
    fn only_a_link_that_root_just_made_is_given_away() {
        if !geteuid().is_root() {
            eprintln!("not tested: only root gives files away");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        symlink("target", path("fresh")).unwrap();
        symlink("target", path("elsewhere")).unwrap();
        fs::hard_link(path("elsewhere"), path("linked")).unwrap();
        fs::write(path("file"), "root's").unwrap();
        let parent: OwnedFd = fs::File::open(place.path()).unwrap().into();
        for (name, owner) in [("fresh", 12_345), ("linked", 0), ("file", 0)] {
            change_link_owner(&parent, name, (12_345, 12_345));
            assert_eq!(fs::symlink_metadata(path(name)).unwrap().uid(), owner, "{name}");
        }
    }
}
