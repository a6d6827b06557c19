//! The output of a command: all of it in a bounded file, the end of it in memory.

use agent_wire::{CHUNK, cost};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Output up to this long stays in memory and gets no file: as much as the least that a model can be set to see.
const IN_MEMORY: usize = 4_000;
/// The most that one file holds.
const SPOOL_LIMIT: u64 = 64 << 20;
/// The most that all files hold together; the oldest go first.
const SPOOLS_LIMIT: u64 = 256 << 20;
/// At least this much of the end is kept in memory.
const TAIL: u32 = 256 << 10;

/// A piece of output.
struct Piece {
    /// Its offset in the output.
    offset: u64,
    stderr: bool,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// The end of an output. Its readers have positions of their own, so that one that lost its connection can read again.
#[derive(Default)]
pub struct Tail {
    pieces: VecDeque<Piece>,
    cost: u32,
    end: u64,
}

/// The next step for a reader of a [`Tail`].
pub enum Next<'a> {
    /// This many bytes are no longer kept.
    Gap(u64),
    Output {
        stderr: bool,
        bytes: &'a [u8],
    },
}

impl Tail {
    pub fn push(&mut self, stderr: bool, bytes: &[u8]) {
        match self.pieces.back_mut() {
            Some(last) if last.stderr == stderr && last.bytes.len() + bytes.len() <= CHUNK => {
                last.bytes.extend_from_slice(bytes);
                self.cost += bytes.len() as u32;
            }
            _ => {
                self.cost += cost(bytes.len());
                self.pieces.push_back(Piece { offset: self.end, stderr, bytes: bytes.to_vec() });
            }
        }
        self.end += bytes.len() as u64;
        while let Some(first) = self.pieces.front()
            && self.cost - cost(first.bytes.len()) >= TAIL
        {
            self.cost -= cost(first.bytes.len());
            self.pieces.pop_front();
        }
    }

    /// Bytes that were ever pushed.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns what follows position `from`; `None` at the end.
    pub fn next(&self, from: u64) -> Option<Next<'_>> {
        let index = self.pieces.partition_point(|piece| piece.end() <= from);
        let piece = self.pieces.get(index)?;
        Some(match from.checked_sub(piece.offset) {
            Some(skipped) => Next::Output { stderr: piece.stderr, bytes: &piece.bytes[skipped as usize..] },
            None => Next::Gap(piece.offset - from),
        })
    }
}

/// One command's whole output.
pub enum Spool {
    Memory(Vec<u8>),
    File {
        file: File,
        path: PathBuf,
        written: u64,
        full: bool,
    },
    /// The file could not be created.
    Nothing,
}

impl Default for Spool {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

impl Spool {
    pub fn push(&mut self, bytes: &[u8], directory: &mut SpoolDirectory) {
        if let Self::Memory(memory) = self {
            if memory.len() + bytes.len() <= IN_MEMORY {
                memory.extend_from_slice(bytes);
                return;
            }
            let memory = std::mem::take(memory);
            *self = match directory.create() {
                Ok((file, path)) => Self::File { file, path, written: 0, full: false },
                Err(_) => Self::Nothing,
            };
            self.append(&memory);
        }
        self.append(bytes);
    }

    /// Past the limit, or on a full disk, the file ends; `written` is its length.
    fn append(&mut self, bytes: &[u8]) {
        let Self::File { file, written, full, .. } = self else { return };
        let mut rest = bytes;
        while !rest.is_empty() && !*full {
            let space = usize::try_from(SPOOL_LIMIT - *written).unwrap_or(usize::MAX);
            match file.write(&rest[..rest.len().min(space)]) {
                Ok(length) if length > 0 => {
                    *written += length as u64;
                    rest = &rest[length..];
                }
                _ => *full = true,
            }
        }
    }

    /// The file, where there is one, and how much of the output it holds.
    pub fn finish(&mut self, directory: &mut SpoolDirectory) -> Option<(PathBuf, u64)> {
        match std::mem::take(self) {
            Self::File { path, written, .. } => {
                directory.keep(path.clone(), written);
                Some((path, written))
            }
            Self::Memory(_) | Self::Nothing => None,
        }
    }
}

/// The directory of the files.
pub struct SpoolDirectory {
    path: PathBuf,
    next: u64,
    kept: VecDeque<(PathBuf, u64)>,
}

impl SpoolDirectory {
    /// Below `parent`; nothing is made before it is needed.
    pub fn new(parent: &Path) -> Self {
        Self { path: parent.join(".agent"), next: 1, kept: VecDeque::new() }
    }

    fn create(&mut self) -> io::Result<(File, PathBuf)> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        loop {
            let path = self.path.join(format!("output-{}.log", self.next));
            self.next += 1;
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok((file, path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn keep(&mut self, path: PathBuf, size: u64) {
        self.kept.push_back((path, size));
        while self.kept.iter().map(|(_, size)| size).sum::<u64>() > SPOOLS_LIMIT
            && let Some((oldest, _)) = self.kept.pop_front()
        {
            // One that does not exist any more is fine.
            let _ = std::fs::remove_file(oldest);
        }
    }
}
