//! Single files and listings. Paths need not be UTF-8.

use super::connection::Connection;
use super::expect::Expect;
use super::stream::ANSWER_TIMEOUT;
use super::tree::in_frames;
use super::{Sandbox, unexpected_answer};
use agent_base::error::{Error, Kind, Result};
use agent_wire::{Attribute, Entry, Message};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The permission bits that a guest may report.
pub(super) const MODE_BITS: u32 = 0o7777;

/// The bytes that were read of a file.
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

/// The options for listing a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkOptions {
    /// Set if regular files are hashed. Files that have not changed since the last time are not read again.
    pub hash: bool,
    /// Directories, relative to the root, that are named but not looked into.
    pub exclude: Vec<PathBuf>,
    /// More entries than this are an error.
    pub max_entries: u64,
}

/// The changes of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Entries that are new or have changed.
    pub entries: Vec<Entry>,
    /// Relative paths of what is not there any more.
    pub removed: Vec<PathBuf>,
    /// Names this state of the tree; 0 where the guest could not remember it.
    pub generation: u64,
    /// Set if these are all entries of the tree, because the guest does not know the state asked for.
    pub complete: bool,
}

impl Default for WalkOptions {
    /// Hashes, leaves nothing out, and stops at a million entries.
    fn default() -> Self {
        Self { hash: true, exclude: Vec::new(), max_entries: 1_000_000 }
    }
}

/// Bytes of the extended attributes that one call returns.
const MAX_ATTRIBUTES: usize = 8 << 20;

impl Sandbox {
    /// Returns what is at `path`; a symbolic link is not followed.
    ///
    /// # Errors
    ///
    /// Nothing is there, or it cannot be reached.
    pub async fn stat(&self, path: &Path) -> Result<Entry> {
        let request = Message::Stat { path: self.based(path) };
        match self.ask(&request, Expect::Stated).await? {
            Message::Stated { entry } => Ok(checked(entry)),
            _ => Err(unexpected_answer()),
        }
    }

    /// The extended attributes of these files whose names begin with `prefix`, one list each, in order. Of what a symbolic link leads
    /// to; a file that cannot be read has none.
    ///
    /// # Errors
    ///
    /// The connection is broken, or they are more than 8 MiB together.
    pub async fn attributes(&self, paths: &[PathBuf], prefix: &str) -> Result<Vec<Vec<Attribute>>> {
        let paths = paths.iter().map(|path| self.based(path)).collect();
        let (mut files, mut left) = (Vec::new(), MAX_ATTRIBUTES);
        for mut paths in in_frames(paths, |path| path.as_os_str().len()) {
            while !paths.is_empty() {
                let request = Message::Attributes { paths: paths.clone(), prefix: prefix.into() };
                let Message::AttributesAre { files: first } = self.ask(&request, Expect::Attributes).await?
                else {
                    return Err(unexpected_answer());
                };
                if first.is_empty() || first.len() > paths.len() {
                    let connection = self.link.latest();
                    connection.fail("the guest violates the protocol (attributes of other files)");
                    return Err(connection.error());
                }
                paths.drain(..first.len());
                let sizes = first.iter().flatten().map(|it| it.name.len() + it.value.len());
                left = left.checked_sub(sizes.sum()).ok_or_else(|| {
                    Error::new(
                        Kind::Limit,
                        format!("the files have more than {MAX_ATTRIBUTES} bytes of attributes"),
                    )
                })?;
                files.extend(first);
            }
        }
        Ok(files)
    }

    /// Gives a file these extended attributes, and no others whose names begin with `prefix`.
    ///
    /// # Errors
    ///
    /// It is not there, or its file system has none.
    pub async fn set_attributes(&self, path: &Path, prefix: &str, attributes: Vec<Attribute>) -> Result<()> {
        if self.read_only {
            return Err(Error::new(Kind::InSandbox, "the workspace is read-only"));
        }
        let request = Message::SetAttributes { path: self.based(path), prefix: prefix.into(), attributes };
        self.ask(&request, Expect::Done).await.map(drop)
    }

    /// Reads at most `limit` bytes of a regular file, from byte `offset`. Symbolic links are followed. Never waits
    /// for a pipe or a device.
    ///
    /// # Errors
    ///
    /// Nothing is there, it cannot be read, or it is not a regular file.
    pub async fn read_file(&self, path: &Path, offset: u64, limit: u64) -> Result<FileBytes> {
        let request = &Message::ReadFile { path: self.based(path), offset, limit };
        let read = |connection: Arc<Connection>| async move { read_file(&connection, request, limit).await };
        self.link.repeat(read).await
    }

    /// Lists the tree below `root`, in no particular order but parents before children.
    ///
    /// # Errors
    ///
    /// The directory does not exist, or holds more than `max_entries`.
    pub async fn walk(&self, root: &Path, options: WalkOptions) -> Result<Vec<Entry>> {
        Ok(self.list(root, options, None, 0).await?.entries)
    }

    /// Lists what has changed below `root` since the [`Changes::generation`] of an earlier call with the same options;
    /// 0 lists everything. The guest remembers the last such call of any client; where that is another, everything is
    /// listed.
    ///
    /// # Errors
    ///
    /// As [`Sandbox::walk`].
    pub async fn walk_since(&self, root: &Path, options: WalkOptions, generation: u64) -> Result<Changes> {
        self.list(root, options, Some(generation), 0).await
    }

    /// Lists the directory `root` down to `depth` (1: its own entries), without hashes.
    ///
    /// # Errors
    ///
    /// The directory does not exist, or holds more than `max_entries`.
    pub async fn list_dir(&self, root: &Path, depth: u32, max_entries: u64) -> Result<Vec<Entry>> {
        let options = WalkOptions { hash: false, exclude: Vec::new(), max_entries };
        Ok(self.list(root, options, None, depth.max(1)).await?.entries)
    }

    async fn list(
        &self,
        root: &Path,
        options: WalkOptions,
        since: Option<u64>,
        depth: u32,
    ) -> Result<Changes> {
        let WalkOptions { hash, exclude, max_entries } = options;
        let request = &Message::Walk { root: self.based(root), hash, exclude, max_entries, since, depth };
        let list = |connection: Arc<Connection>| async move {
            list(&connection, request, max_entries, matches!(since, None | Some(0))).await
        };
        self.link.repeat(list).await
    }
}

async fn read_file(connection: &Arc<Connection>, request: &Message, limit: u64) -> Result<FileBytes> {
    let mut stream = connection.request(request, Expect::File { begun: false })?;
    let Message::FileIs { size, mode, mtime_ns } = stream.next(Some(ANSWER_TIMEOUT)).await? else {
        return Err(unexpected_answer());
    };
    let mut content = Vec::new();
    loop {
        match stream.next(Some(ANSWER_TIMEOUT)).await? {
            Message::Data { bytes } => content.extend_from_slice(&bytes),
            Message::Done {} => break,
            _ => return Err(unexpected_answer()),
        }
        if content.len() as u64 > limit {
            connection.fail("the guest violates the protocol (more of a file than asked for)");
            return Err(connection.error());
        }
    }
    stream.end();
    Ok(FileBytes { bytes: content, size, mode: mode & MODE_BITS, mtime_ns })
}

/// Nothing can have been removed from what `is_whole`.
async fn list(
    connection: &Arc<Connection>,
    request: &Message,
    max_entries: u64,
    is_whole: bool,
) -> Result<Changes> {
    let mut stream = connection.request(request, Expect::Entries)?;
    let mut changes = Changes::default();
    loop {
        let Message::Entries { entries, removed, last } = stream.next(Some(ANSWER_TIMEOUT)).await? else {
            return Err(unexpected_answer());
        };
        let is_below = entries.iter().map(|entry| &entry.path).chain(&removed).all(|path| is_below(path));
        changes.entries.extend(entries.into_iter().map(checked));
        changes.removed.extend(removed);
        let listed = changes.entries.len().max(changes.removed.len()) as u64;
        let impossible = !is_below || listed > max_entries || !changes.removed.is_empty() && is_whole;
        if impossible {
            connection.fail("the guest violates the protocol (a listing that cannot be)");
            return Err(connection.error());
        }
        if let Some(end) = last {
            stream.end();
            (changes.generation, changes.complete) = (end.generation, end.complete);
            return Ok(changes);
        }
    }
}

/// Returns whether the path stays below the root that it is relative to.
fn is_below(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.is_empty()
        && !bytes.contains(&0)
        && path.components().all(|component| matches!(component, Component::Normal(_)))
}

fn checked(mut entry: Entry) -> Entry {
    entry.mode &= MODE_BITS;
    entry
}
