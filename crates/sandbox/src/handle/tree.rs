//! Many files in one stream: packed into blocks, by hash where the sandbox may have them already.

use super::connection::Connection;
use super::expect::Expect;
use super::files::MODE_BITS;
use super::stream::{ANSWER_TIMEOUT, Sender};
use super::{FileBytes, Sandbox, unexpected_answer};
use crate::{HOME, HomeFile};
use agent_base::error::{Error, Kind, Result};
use agent_wire::{
    self as wire, CHUNK, Change, ChangeFailure, FileState, FileWrite, MAX_CHANGES, MAX_FRAME, Message, Node,
    Part,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};
use std::collections::{HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The most bytes that a change or a question takes in its message beyond its path and content.
const OVERHEAD: usize = 96;
/// Bytes of files that are sent without asking.
const FEW_BYTES: usize = 64 << 10;
/// Requests of one call that are under way at once.
const PIPELINE: usize = 16;

/// The result of [`Sandbox::put_tree`].
#[derive(Debug)]
pub struct Put {
    /// One result for each file, in order.
    pub results: Vec<Result<()>>,
    /// The number of contents that had to be sent; the sandbox had the others.
    pub sent: usize,
}

impl Sandbox {
    /// Writes files in order, one result each. Each is written to a temporary file beside it and renamed.
    ///
    /// # Errors
    ///
    /// The connection is broken. What is wrong with a single file is its own result.
    pub async fn write_files(&self, files: Vec<FileWrite>) -> Result<Vec<Result<()>>> {
        self.update(files.into_iter().map(Change::Write).collect()).await
    }

    /// Removes files, symbolic links and empty directories in order, one result each: put what is below a directory
    /// before it.
    ///
    /// # Errors
    ///
    /// The connection is broken. What is wrong with a single path is its own result.
    pub async fn remove_files(&self, paths: Vec<PathBuf>) -> Result<Vec<Result<()>>> {
        self.update(paths.into_iter().map(Change::Remove).collect()).await
    }

    /// Writes those of the files that the sandbox does not have already. Two round trips, however many they are.
    ///
    /// # Errors
    ///
    /// As [`Sandbox::write_files`].
    pub async fn put_tree(&self, files: Vec<FileWrite>) -> Result<Put> {
        let missing = self.missing(&files).await?;
        let (sent, mut results) = (missing.len(), Vec::new());
        let all = files.len();
        let mut changes = Vec::with_capacity(sent);
        let mut is_sent = vec![false; all];
        for (index, file) in files.into_iter().enumerate().filter(|(index, _)| missing.contains(index)) {
            is_sent[index] = true;
            changes.push(Change::Write(file));
        }
        let mut of_sent = self.update(changes).await?.into_iter();
        for sent in is_sent {
            results.push(if sent { of_sent.next().unwrap_or(Ok(())) } else { Ok(()) });
        }
        Ok(Put { results, sent })
    }

    /// Puts files below `$HOME`, those that it does not have already. How many could not be written.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub async fn put_home(&self, files: &[HomeFile]) -> Result<usize> {
        if files.is_empty() {
            return Ok(0);
        }
        let write = |file: &HomeFile| FileWrite {
            path: Path::new(HOME).join(&file.path),
            node: Node::Regular(file.bytes.clone()),
            mode: Some(if file.executable { 0o755 } else { 0o644 }),
            mtime_ns: None,
            follow: false,
        };
        let writes = files.iter().map(write).collect();
        let results = match files.iter().map(|file| file.bytes.len()).sum::<usize>() {
            // The question which of them it has takes longer than they do.
            ..=FEW_BYTES => self.write_files(writes).await?,
            _ => self.put_tree(writes).await?.results,
        };
        Ok(results.iter().filter(|result| result.is_err()).count())
    }

    /// Reads regular files, one result each, in order. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// The files hold more than `limit` bytes together, or the connection is broken. What is wrong with a single file
    /// is its own result.
    pub async fn read_files(&self, paths: Vec<PathBuf>, limit: u64) -> Result<Vec<Result<FileBytes>>> {
        let paths = paths.iter().map(|path| self.based(path)).collect();
        let requests = in_frames(paths, |path| path.as_os_str().len());
        let mut results = Vec::new();
        let mut left = limit;
        for paths in requests {
            results.extend(self.read_batch(paths, &mut left).await?);
        }
        Ok(results)
    }

    async fn read_batch(&self, paths: Vec<PathBuf>, left: &mut u64) -> Result<Vec<Result<FileBytes>>> {
        let asked = paths.len();
        let request = &Message::ReadFiles { paths, compress: self.link.is_slow };
        let limit = *left;
        let read = |connection| read_batch(connection, request, asked, limit);
        let (files, rest) = self.link.repeat(read).await?;
        *left = rest;
        Ok(files)
    }

    /// The indexes of what must be written: regular files that the sandbox does not have, and everything else.
    async fn missing(&self, files: &[FileWrite]) -> Result<HashSet<usize>> {
        let mut missing: HashSet<usize> = (0..files.len()).collect();
        let state = |(index, file): (usize, &FileWrite)| match (&file.node, file.mode) {
            (Node::Regular(content), Some(mode)) => {
                let hash = Sha256::digest(content).into();
                let state =
                    FileState { path: self.based(&file.path), mode, size: content.len() as u64, hash };
                Some((index, state))
            }
            _ => None,
        };
        let states = files.iter().enumerate().filter_map(state).collect();
        let batches = in_frames(states, |(_, state)| state.path.as_os_str().len());
        let questions = batches.into_iter().map(async |batch| {
            let (indexes, files): (Vec<usize>, Vec<FileState>) = batch.into_iter().unzip();
            let answer = self.ask(&Message::Missing { files }, Expect::Missing).await?;
            let Message::MissingAre { indexes: absent } = answer else { return Err(unexpected_answer()) };
            let absent: HashSet<usize> = absent.into_iter().map(|index| index as usize).collect();
            // An index that was not asked about names no file.
            Ok((0..)
                .zip(indexes)
                .filter(|(n, _)| !absent.contains(n))
                .map(|(_, index)| index)
                .collect::<Vec<_>>())
        });
        let present: Vec<Vec<usize>> = stream::iter(questions).buffered(PIPELINE).try_collect().await?;
        for index in present.iter().flatten() {
            missing.remove(index);
        }
        Ok(missing)
    }

    fn based_change(&self, change: Change) -> Change {
        match change {
            Change::Write(file) => Change::Write(FileWrite { path: self.based(&file.path), ..file }),
            Change::Begin(file) => Change::Begin(FileWrite { path: self.based(&file.path), ..file }),
            Change::Remove(path) => Change::Remove(self.based(&path)),
            change => change,
        }
    }

    async fn update(&self, changes: Vec<Change>) -> Result<Vec<Result<()>>> {
        let changes: Vec<Change> = changes.into_iter().map(|change| self.based_change(change)).collect();
        let count = changes.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.read_only && !changes.iter().all(|change| is_outside_of_workspace(self.workspace(), change)) {
            return Err(Error::new(Kind::InSandbox, "the workspace is read-only"));
        }
        let changes: Vec<Change> = changes.into_iter().flat_map(split).collect();
        if changes.iter().any(|change| size_of_change(change) > CHUNK) {
            return Err(
                Error::new(Kind::InSandbox, "a path is too long").hint("no file system takes such a path")
            );
        }
        let (changes, compress) = (&changes, self.link.is_slow);
        let sent = AtomicU32::new(0);
        let mut results = self
            .link
            .repeat(|connection| {
                sent.fetch_add(1, Ordering::Relaxed);
                update(connection, changes, count, compress)
            })
            .await?;
        if sent.into_inner() > 1 {
            // What is not there any more was removed by the time before.
            let removals =
                changes.iter().filter(|change| !matches!(change, Change::Append(_) | Change::Finish));
            for (change, result) in removals.zip(&mut results) {
                if matches!(change, Change::Remove(_)) && is_absent(result) {
                    *result = Ok(());
                }
            }
        }
        Ok(results)
    }
}

/// The files of a request, and what is left of the limit.
async fn read_batch(
    connection: Arc<Connection>,
    request: &Message,
    asked: usize,
    mut left: u64,
) -> Result<(Vec<Result<FileBytes>>, u64)> {
    let mut stream = connection.request(request, Expect::Files)?;
    let mut reader = PartReader::default();
    loop {
        match stream.next(Some(ANSWER_TIMEOUT)).await? {
            Message::Block { block } => {
                let pushed = wire::unpack(&block).map_err(|error| error.to_string()).and_then(|parts| {
                    let is_expected = reader.push(parts, asked);
                    is_expected.then_some(()).ok_or_else(|| "contents that were not asked for".into())
                });
                if let Err(violation) = pushed {
                    connection.fail(format!("the guest violates the protocol ({violation})"));
                    return Err(connection.error());
                }
                left = left.checked_sub(std::mem::take(&mut reader.bytes)).ok_or_else(|| {
                    Error::new(Kind::InSandbox, "the files hold more than the limit")
                        .hint("read fewer or smaller files")
                })?;
            }
            Message::Done {} if reader.files.len() == asked && reader.open.is_none() => {
                stream.end();
                return Ok((reader.files, left));
            }
            _ => {
                connection.fail("the guest violates the protocol (contents are missing)");
                return Err(connection.error());
            }
        }
    }
}

async fn update(
    connection: Arc<Connection>,
    changes: &[Change],
    count: usize,
    compress: bool,
) -> Result<Vec<Result<()>>> {
    let stream = connection.request(&Message::Update {}, Expect::Updated)?;
    send(&stream.sender(), changes, compress).await;
    let Message::Updated { failures, aborted } = stream.answer().await? else {
        return Err(unexpected_answer());
    };
    results(count, failures, aborted).ok_or_else(|| {
        connection.fail("the guest violates the protocol (failures of changes that were not made)");
        connection.error()
    })
}

fn is_absent(result: &Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.known_errno() == Some(libc::ENOENT))
}

/// Returns whether the change is certainly none of the workspace.
fn is_outside_of_workspace(workspace: &Path, change: &Change) -> bool {
    let path = match change {
        Change::Write(file) | Change::Begin(file) => &file.path,
        Change::Remove(path) => path,
        Change::Append(_) | Change::Finish => return true,
    };
    let is_plain = !path.components().any(|component| component == Component::ParentDir);
    let is_outside = [HOME, "/tmp"].iter().any(|outside| path.starts_with(outside));
    is_plain && is_outside && !path.starts_with(workspace)
}

/// Sends changes in blocks. Where the guest has answered already, the answer gives the reason.
async fn send(sender: &Sender, changes: &[Change], compress: bool) {
    let mut start = 0;
    let mut size = 0;
    for (index, change) in changes.iter().enumerate() {
        let length = size_of_change(change);
        if size + length > CHUNK || index - start == MAX_CHANGES {
            if !sender.block(wire::pack(&changes[start..index], compress)).await {
                return;
            }
            (start, size) = (index, 0);
        }
        size += length;
    }
    if sender.block(wire::pack(&changes[start..], compress)).await {
        sender.eof();
    }
}

/// A file that does not fit a block in pieces that do.
fn split(change: Change) -> VecDeque<Change> {
    match change {
        Change::Write(FileWrite { node: Node::Regular(content), path, mode, mtime_ns, follow })
            if content.len() > CHUNK / 2 =>
        {
            let begin = FileWrite { node: Node::Regular(Vec::new()), path, mode, mtime_ns, follow };
            let pieces = content.chunks(CHUNK - OVERHEAD).map(|piece| Change::Append(piece.to_vec()));
            [Change::Begin(begin)].into_iter().chain(pieces).chain([Change::Finish]).collect()
        }
        change => VecDeque::from([change]),
    }
}

fn size_of_change(change: &Change) -> usize {
    OVERHEAD
        + match change {
            Change::Write(write) | Change::Begin(write) => {
                write.path.as_os_str().len()
                    + match &write.node {
                        Node::Regular(content) => content.len(),
                        Node::Symlink(target) => target.as_os_str().as_bytes().len(),
                        Node::Directory => 0,
                    }
            }
            Change::Append(bytes) => bytes.len(),
            Change::Remove(path) => path.as_os_str().len(),
            Change::Finish => 0,
        }
}

/// The result of each change; `None` where the failures cannot be those of `count` changes.
fn results(count: usize, failures: Vec<ChangeFailure>, aborted: bool) -> Option<Vec<Result<()>>> {
    let mut results: Vec<Result<()>> = Vec::new();
    for failure in failures {
        let index = failure.index as usize;
        if index < results.len() || index >= count {
            return None;
        }
        results.resize_with(index, || Ok(()));
        results.push(Err(Error::new(Kind::InSandbox, failure.message).errno(failure.errno)));
    }
    let rest = || {
        if aborted {
            Err(Error::new(Kind::InSandbox, "not tried, because too many others failed"))
        } else {
            Ok(())
        }
    };
    results.resize_with(count, rest);
    Some(results)
}

/// Items in groups that each fit a message.
pub(super) fn in_frames<T>(items: Vec<T>, length: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut groups = Vec::new();
    let mut size = MAX_FRAME;
    for item in items {
        let length = OVERHEAD + length(&item);
        size += length;
        if size > MAX_FRAME - OVERHEAD {
            groups.push(Vec::new());
            size = length;
        }
        if let Some(group) = groups.last_mut() {
            group.push(item);
        }
    }
    groups
}

/// Puts the contents of several files together from their parts.
#[derive(Default)]
struct PartReader {
    files: Vec<Result<FileBytes>>,
    open: Option<FileBytes>,
    /// Bytes that have arrived since this was last reset.
    bytes: u64,
}

impl PartReader {
    /// `false` where the parts are not those of `asked` files.
    fn push(&mut self, parts: Vec<Part>, asked: usize) -> bool {
        for part in parts {
            match part {
                _ if self.files.len() == asked => return false,
                Part::File { size, mode, mtime_ns } if self.open.is_none() => {
                    let mode = mode & MODE_BITS;
                    self.open = Some(FileBytes { bytes: Vec::new(), size, mode, mtime_ns });
                }
                Part::Failed { errno, message } => {
                    self.open = None;
                    self.files.push(Err(Error::new(Kind::InSandbox, message).errno(errno)));
                }
                Part::Bytes(bytes) => {
                    let Some(open) = &mut self.open else { return false };
                    self.bytes += bytes.len() as u64;
                    open.bytes.extend_from_slice(&bytes);
                }
                Part::End => {
                    let Some(open) = self.open.take() else { return false };
                    self.files.push(Ok(open));
                }
                Part::File { .. } => return false,
            }
        }
        true
    }
}
