//! Changes of the file tree and contents of many files, packed into blocks.

use crate::client::{Client, Failure};
use crate::directory::Stat;
use crate::files::{self, Writing, resolve};
use crate::quota::Quota;
use crate::walk::Hashes;
use agent_wire::sha256::Sha256;
use agent_wire::{
    self as wire, Block, CHUNK, Change, ChangeFailure, FRAME_COST, FileState, MAX_CHANGES, Message, Part,
    ReceiveWindow, WINDOW, WindowBudget, cost,
};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// Failures of one update that are reported in full; after these it is aborted. All fit one frame.
const MAX_FAILURES: usize = 32;
/// The most bytes that a part takes in a block beyond its own.
const PART_OVERHEAD: usize = 32;
/// A part is not begun with less space than this left in its block.
const LEAST_PART: usize = 1 << 10;

/// An update under way.
#[derive(Default)]
pub struct Update {
    next: u32,
    open: Option<(u32, Writing)>,
    failures: Vec<ChangeFailure>,
    aborted: bool,
    window: ReceiveWindow,
}

impl Update {
    /// Makes the changes of a block. `None` where the host violates the protocol, else the credit to return.
    pub fn push(
        &mut self,
        block: &Block,
        quota: &mut Quota,
        budget: &mut WindowBudget,
    ) -> Option<Option<u32>> {
        let cost = cost(block.size());
        if !self.window.receive(cost) {
            return None;
        }
        for change in wire::unpack(block).ok()? {
            self.apply(change, quota);
        }
        Some(self.window.consume(cost, true, budget))
    }

    fn apply(&mut self, change: Change, quota: &mut Quota) {
        let index = self.next;
        if matches!(change, Change::Write(_) | Change::Begin(_) | Change::Remove(_)) {
            self.next = self.next.saturating_add(1);
        }
        if self.aborted {
            return;
        }
        let result = match change {
            Change::Write(write) => quota.require_files_allowed().and_then(|()| files::write(write)),
            Change::Begin(write) => quota.require_files_allowed().and_then(|()| {
                self.open = Some((index, files::begin(write)?));
                Ok(())
            }),
            Change::Remove(path) => files::remove(&resolve(path)),
            Change::Append(bytes) => match &mut self.open {
                Some((begun, writing)) => {
                    let (begun, result) = (*begun, writing.push(&bytes));
                    return self.settle_open(begun, result);
                }
                // It has failed before.
                None => return,
            },
            Change::Finish => match self.open.take() {
                Some((begun, writing)) => return self.settle_open(begun, writing.finish()),
                None => return,
            },
        };
        if let Err(failure) = result {
            self.fail(index, failure);
        }
    }

    fn settle_open(&mut self, index: u32, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.open = None;
            self.fail(index, failure);
        }
    }

    fn fail(&mut self, index: u32, failure: Failure) {
        let Failure { errno, message } = failure;
        self.failures.push(ChangeFailure { index, errno, message });
        self.aborted = self.failures.len() == MAX_FAILURES;
    }

    /// Returns what the update has come to. A file that was not finished is not there.
    pub fn finish(self) -> Message {
        Message::Updated { failures: self.failures, aborted: self.aborted }
    }

    pub fn release(&mut self, budget: &mut WindowBudget) {
        self.window.release(budget);
    }
}

/// Files whose contents are being sent.
pub struct ReadingFiles {
    /// The next one last.
    paths: Vec<PathBuf>,
    open: Option<(PathBuf, File)>,
    compress: bool,
    pub credit: u32,
}

impl ReadingFiles {
    pub fn start(mut paths: Vec<PathBuf>, compress: bool) -> Self {
        paths.reverse();
        Self { paths, open: None, compress, credit: WINDOW }
    }

    pub fn runnable(&self, client: &Client) -> bool {
        self.credit as usize >= CHUNK + FRAME_COST as usize && !client.congested()
    }

    /// Sends the next block. `true` when the stream has ended.
    pub fn step(&mut self, id: u32, client: &mut Client, buffer: &mut [u8]) -> bool {
        let mut parts = Vec::new();
        let mut space = CHUNK;
        while parts.len() < MAX_CHANGES && space >= LEAST_PART {
            let Some(part) = self.next_part(space - PART_OVERHEAD, buffer) else { break };
            space = space.saturating_sub(PART_OVERHEAD);
            match &part {
                Part::Bytes(bytes) => space -= bytes.len(),
                Part::Failed { message, .. } => space = space.saturating_sub(message.len()),
                Part::File { .. } | Part::End => {}
            }
            parts.push(part);
        }
        if parts.is_empty() {
            client.send(id, &Message::Done {});
            return true;
        }
        let block = wire::pack(&parts, self.compress);
        self.credit = self.credit.saturating_sub(cost(block.size()));
        client.send(id, &Message::Block { block });
        false
    }

    fn next_part(&mut self, space: usize, buffer: &mut [u8]) -> Option<Part> {
        let failed = |failure: Failure| {
            let mut message = failure.message;
            let end = (0..=LEAST_PART / 2).rev().find(|end| message.is_char_boundary(*end));
            message.truncate(end.unwrap_or(0));
            Part::Failed { errno: failure.errno, message }
        };
        let Some((path, file)) = &mut self.open else {
            let path = resolve(self.paths.pop()?);
            return Some(match files::open_regular(&path) {
                Ok((file, metadata)) => {
                    self.open = Some((path, file));
                    let mode = metadata.permissions().mode() & 0o7777;
                    Part::File { size: metadata.len(), mode, mtime_ns: files::mtime_ns(&metadata) }
                }
                Err(failure) => failed(failure),
            });
        };
        let space = space.min(buffer.len());
        match file.read(&mut buffer[..space]) {
            Ok(0) => {
                self.open = None;
                Some(Part::End)
            }
            Ok(length) => Some(Part::Bytes(buffer[..length].to_vec())),
            Err(error) => {
                let failure = Failure::io(path.display(), &error);
                self.open = None;
                Some(failed(failure))
            }
        }
    }
}

/// The files that are not there as described.
pub fn missing(files: Vec<FileState>, hashes: &mut Hashes) -> Vec<u32> {
    let mut is_missing = |state: FileState| {
        let path = resolve(state.path);
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { return true };
        if !metadata.is_file() || metadata.len() != state.size || metadata.mode() & 0o7777 != state.mode {
            return true;
        }
        hash(path, hashes) != Some(state.hash)
    };
    (0..).zip(files).filter_map(|(index, state)| is_missing(state).then_some(index)).collect()
}

fn hash(path: PathBuf, hashes: &mut Hashes) -> Option<[u8; 32]> {
    let (mut file, metadata) = files::open_regular(&path).ok()?;
    if let Some(hash) = hashes.get(&Stat::from(&metadata)) {
        return Some(hash);
    }
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => break,
            length => hasher.update(&buffer[..length]),
        }
    }
    let hash = hasher.finish();
    hashes.put(&Stat::from(&metadata), &Stat::from(&file.metadata().ok()?), hash);
    Some(hash)
}
