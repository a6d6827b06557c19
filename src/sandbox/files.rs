//! Files inside the sandbox: bytes, never strings; paths need not be UTF-8.

use super::client::{Sandbox, out_of_place};
use super::expect::Expect;
use super::stream::PATIENCE;
use super::wire::{self, CHUNK, Message};
use crate::error::Result;
use futures_util::{StreamExt, stream};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Requests of one call that are under way at once.
const PIPELINE: usize = 64;
/// The permission bits that a guest may report.
const MODE_BITS: u32 = 0o7777;

/// A directory entry, its symbolic link not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As asked for ([`Sandbox::stat`]), or relative to the root: at least one component, none of them `..`.
    pub path: PathBuf,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits, at most 0o7777.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Change time in nanoseconds since 1970. Programs inside cannot set it, so a file that was written to has another.
    pub ctime_ns: i64,
    /// SHA-256 of a regular file, where it was asked for and the file can be read.
    pub hash: Option<[u8; 32]>,
    /// Whether the directory could be listed, the file hashed. What is below a directory that cannot be listed is
    /// missing from a walk.
    pub readable: bool,
}

/// What a directory entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link and where it leads, as written.
    Symlink(PathBuf),
    /// A directory.
    Directory,
    /// A device, a pipe, a socket.
    Other,
}

/// What was read of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBytes {
    /// The bytes, from the offset asked for.
    pub bytes: Vec<u8>,
    /// The whole file's size; 0 where the kernel makes the file up while it is read (`/proc`).
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// A file to write. Missing parents are made; the file appears whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileWrite {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub node: Node,
    /// Permission bits; `None` keeps those of the file that is there, else 0644 (a directory: 0755).
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since 1970; `None` is now. Not for directories.
    pub mtime_ns: Option<i64>,
    /// Whether a symbolic link at `path` is followed, as an editor does; otherwise it is replaced.
    pub follow: bool,
}

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file with these bytes.
    Regular(Vec<u8>),
    /// A symbolic link that leads there.
    Symlink(PathBuf),
    /// A directory.
    Directory,
}

/// How to list a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkOptions {
    /// Whether regular files are hashed. Files that have not changed since the last time are not read again.
    pub hash: bool,
    /// Directories, relative to the root, that are named but not looked into.
    pub exclude: Vec<PathBuf>,
    /// More entries than this are an error.
    pub max_entries: u64,
}

impl Default for WalkOptions {
    /// Hashes, leaves nothing out, and stops at a million entries.
    fn default() -> Self {
        Self { hash: true, exclude: Vec::new(), max_entries: 1_000_000 }
    }
}

impl Sandbox {
    /// What is at `path`; a symbolic link is not followed.
    ///
    /// # Errors
    ///
    /// Nothing is there, or it cannot be reached.
    pub async fn stat(&self, path: &Path) -> Result<Entry> {
        let request = Message::Stat { path: bytes(path) };
        match self.connection.request(&request, Expect::Stated)?.answer().await? {
            Message::Stated { entry } => Ok(entry.into()),
            _ => Err(out_of_place()),
        }
    }

    /// Reads at most `limit` bytes of a regular file, from byte `offset`. Symbolic links are followed. Never waits
    /// for a pipe or a device.
    ///
    /// # Errors
    ///
    /// Nothing is there, it cannot be read, or it is no regular file.
    pub async fn read_file(&self, path: &Path, offset: u64, limit: u64) -> Result<FileBytes> {
        let request = Message::ReadFile { path: bytes(path), offset, limit };
        let mut stream = self.connection.request(&request, Expect::File { begun: false })?;
        let Message::FileIs { size, mode, mtime_ns } = stream.next(Some(PATIENCE)).await? else {
            return Err(out_of_place());
        };
        let mut content = Vec::new();
        loop {
            match stream.next(Some(PATIENCE)).await? {
                Message::Data { bytes } => content.extend_from_slice(&bytes.0),
                Message::Done {} => break,
                _ => return Err(out_of_place()),
            }
            if content.len() as u64 > limit {
                self.connection
                    .fail("the guest does not keep to the protocol (more of a file than asked for)");
                return Err(self.connection.error());
            }
        }
        stream.end();
        Ok(FileBytes { bytes: content, size, mode: mode & MODE_BITS, mtime_ns })
    }

    /// Writes files, one result each, in order. Each is written to a temporary file beside it and renamed. Many
    /// are under way at once, so no file may lie below another one's symbolic link, and directories that get a
    /// mode of their own belong into a call after the files below them.
    ///
    /// # Errors
    ///
    /// The connection is broken. What is wrong with a single file is its own result.
    pub async fn write_files(&self, files: Vec<FileWrite>) -> Result<Vec<Result<()>>> {
        let writes = files.into_iter().map(|file| self.write_file(file));
        settle(stream::iter(writes).buffered(PIPELINE).collect().await)
    }

    /// Removes files, symbolic links and empty directories, one result each, in order: put what is below a
    /// directory before it.
    ///
    /// # Errors
    ///
    /// The connection is broken. What is wrong with a single path is its own result.
    pub async fn remove_files(&self, paths: Vec<PathBuf>) -> Result<Vec<Result<()>>> {
        let removals = paths.into_iter().map(async |path| {
            let request = Message::Remove { path: bytes(&path) };
            self.connection.request(&request, Expect::Done)?.answer().await.map(drop)
        });
        settle(stream::iter(removals).buffered(PIPELINE).collect().await)
    }

    /// Lists the tree below `root`, in no particular order but parents before children.
    ///
    /// # Errors
    ///
    /// There is no such directory, or it holds more than `max_entries`.
    pub async fn walk(&self, root: &Path, options: WalkOptions) -> Result<Vec<Entry>> {
        let request = Message::Walk {
            root: bytes(root),
            hash: options.hash,
            exclude: options.exclude.iter().map(|path| bytes(path)).collect(),
            max_entries: options.max_entries,
        };
        let mut stream = self.connection.request(&request, Expect::Entries)?;
        let mut found = Vec::new();
        loop {
            let Message::Entries { entries, last } = stream.next(Some(PATIENCE)).await? else {
                return Err(out_of_place());
            };
            let before = found.len();
            found.extend(entries.into_iter().map(Entry::from));
            if found.len() as u64 > options.max_entries || !found[before..].iter().all(is_below) {
                self.connection.fail("the guest does not keep to the protocol (a listing that cannot be)");
                return Err(self.connection.error());
            }
            if last {
                stream.end();
                return Ok(found);
            }
        }
    }

    async fn write_file(&self, file: FileWrite) -> Result<()> {
        let (node, rest) = match file.node {
            Node::Directory => (wire::Node::Directory {}, None),
            Node::Symlink(target) => (wire::Node::Symlink { target: bytes(&target) }, None),
            Node::Regular(content) if content.len() <= CHUNK => {
                (wire::Node::Regular { bytes: content.into(), more: false }, None)
            }
            Node::Regular(content) => {
                (wire::Node::Regular { bytes: wire::Bytes::default(), more: true }, Some(content))
            }
        };
        let write = wire::FileWrite {
            path: bytes(&file.path),
            node,
            mode: file.mode,
            mtime_ns: file.mtime_ns,
            follow: file.follow,
        };
        let stream = self.connection.request(&Message::WriteFile { write }, Expect::Done)?;
        if let Some(content) = rest {
            let sender = stream.sender();
            // Where the guest has answered already, the answer says why.
            if sender.data(&content).await {
                sender.eof();
            }
        }
        stream.answer().await.map(drop)
    }
}

/// A broken connection is the whole call's error.
fn settle(mut results: Vec<Result<()>>) -> Result<Vec<Result<()>>> {
    let broken =
        |result: &Result<()>| result.as_ref().is_err_and(|error| error.kind() == crate::error::Kind::Sandbox);
    match results.iter().position(broken) {
        Some(index) => results.swap_remove(index).map(|()| Vec::new()),
        None => Ok(results),
    }
}

/// Whether the path stays below the root it is relative to.
fn is_below(entry: &Entry) -> bool {
    let path = entry.path.as_os_str().as_bytes();
    !path.is_empty()
        && !path.contains(&0)
        && entry.path.components().all(|component| matches!(component, Component::Normal(_)))
}

fn bytes(path: &Path) -> wire::Bytes {
    path.as_os_str().as_bytes().into()
}

fn path(bytes: wire::Bytes) -> PathBuf {
    OsString::from_vec(bytes.0).into()
}

impl From<wire::Entry> for Entry {
    fn from(entry: wire::Entry) -> Self {
        Self {
            path: path(entry.path),
            kind: match entry.kind {
                wire::EntryKind::File {} => EntryKind::File,
                wire::EntryKind::Symlink { target } => EntryKind::Symlink(path(target)),
                wire::EntryKind::Directory {} => EntryKind::Directory,
                wire::EntryKind::Other {} => EntryKind::Other,
            },
            mode: entry.mode & MODE_BITS,
            size: entry.size,
            mtime_ns: entry.mtime_ns,
            ctime_ns: entry.ctime_ns,
            hash: entry.hash,
            readable: entry.readable,
        }
    }
}
