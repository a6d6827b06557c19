//! What a session keeps of the workspace: contents by their SHA-256, and small JSON records.
//!
//! It lies on the host, outside every sandbox, so that nothing inside can tamper with it. Contents are checked
//! against their hash whenever they are read.

use crate::error::{Error, Result};
use crate::workspace::manifest::Hash;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest content that is held in memory as a whole, in bytes (for diffs and merges).
pub const MAX_IN_MEMORY: u64 = 64 << 20;

/// A session's directory: `blobs/ab/cdef…` and records beside it.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// The store in the session's directory `dir`, made where it is missing. Only its owner may look inside.
    pub fn open(dir: &Path) -> Result<Self> {
        let store = Self { dir: dir.to_owned() };
        let blobs = dir.join("blobs");
        private_dir(&blobs).map_err(|error| store.failed("made", &blobs, error))?;
        Ok(store)
    }

    /// Whether the content is here.
    pub fn contains(&self, hash: Hash) -> bool {
        self.path(hash).is_file()
    }

    /// Keeps `content`; once it returns, the content outlives a power failure.
    pub fn put(&self, content: &[u8]) -> Result<Hash> {
        let hash = Hash::of(content);
        if !self.contains(hash) {
            let mut writer = self.writer()?;
            writer.write(content)?;
            writer.finish()?;
        }
        Ok(hash)
    }

    /// Keeps everything that `source` gives. Bounded memory.
    pub fn put_from(&self, source: &mut dyn Read) -> Result<(Hash, u64)> {
        let mut writer = self.writer()?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match source.read(&mut buffer)? {
                0 => return writer.finish(),
                n => writer.write(&buffer[..n])?,
            }
        }
    }

    /// Starts a content that comes in pieces.
    pub fn writer(&self) -> Result<BlobWriter> {
        let temporary = self.dir.join("blobs").join(format!("tmp-{:016x}", fastrand::u64(..)));
        let file = new_file(&temporary).map_err(|error| self.failed("made", &temporary, error))?;
        Ok(BlobWriter { store: self.clone(), file, temporary, hasher: Sha256::new(), size: 0 })
    }

    /// Opens a content for reading. Whoever reads it checks its hash (see [`Checked`]).
    pub fn open_blob(&self, hash: Hash) -> Result<Checked<File>> {
        let path = self.path(hash);
        let file = File::open(&path).map_err(|error| self.failed("read", &path, error))?;
        Ok(Checked { inner: file, hasher: Sha256::new(), expected: hash })
    }

    /// A whole content of at most [`MAX_IN_MEMORY`] bytes.
    pub fn read(&self, hash: Hash) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let limit = MAX_IN_MEMORY + 1;
        self.open_blob(hash)?.take(limit).read_to_end(&mut content)?;
        match content.len() as u64 {
            length if length == limit => Err(Error::unexpected("a file is too large to compare in memory")),
            _ => Ok(content),
        }
    }

    /// Writes a record atomically; once it returns, it outlives a power failure.
    pub fn save<T: Serialize>(&self, name: &str, record: &T) -> Result<()> {
        let path = self.dir.join(name);
        let temporary = self.dir.join(format!("{name}.tmp-{:016x}", fastrand::u64(..)));
        let write = || -> io::Result<()> {
            if let Some(parent) = path.parent() {
                private_dir(parent)?;
            }
            let mut file = new_file(&temporary)?;
            {
                let mut buffered = io::BufWriter::new(&mut file);
                serde_json::to_writer(&mut buffered, record)?;
                buffered.flush()?;
            }
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            sync_dir(path.parent().unwrap_or(&self.dir))
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&temporary);
            self.failed("written", &path, error)
        })
    }

    /// Reads a record; `None` where there is none.
    pub fn load<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.dir.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("read", &path, error)),
        };
        let record = serde_json::from_reader(io::BufReader::new(file));
        record.map(Some).map_err(|error| self.failed("read", &path, error.into()))
    }

    fn path(&self, hash: Hash) -> PathBuf {
        let name = hash.to_string();
        self.dir.join("blobs").join(&name[..2]).join(&name[2..])
    }

    fn failed(&self, verb: &str, path: &Path, error: io::Error) -> Error {
        Error::unexpected(format!("{} could not be {verb}", path.display()))
            .caused_by(error)
            .hint("see whether the disk is full and who owns the directory")
    }
}

/// A content on its way into the store. Dropped unfinished, it leaves nothing.
pub struct BlobWriter {
    store: Store,
    file: File,
    temporary: PathBuf,
    hasher: Sha256,
    size: u64,
}

impl BlobWriter {
    /// Adds a piece.
    pub fn write(&mut self, piece: &[u8]) -> Result<()> {
        self.hasher.update(piece);
        self.size += piece.len() as u64;
        self.file.write_all(piece).map_err(|error| self.store.failed("written", &self.temporary, error))
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Keeps it: its hash and its size in bytes.
    pub fn finish(mut self) -> Result<(Hash, u64)> {
        let hash = Hash(std::mem::take(&mut self.hasher).finalize().into());
        let path = self.store.path(hash);
        let keep = || -> io::Result<()> {
            if path.is_file() {
                return fs::remove_file(&self.temporary);
            }
            let directory = path.parent().unwrap_or(&self.store.dir);
            private_dir(directory)?;
            self.file.sync_all()?;
            fs::rename(&self.temporary, &path)?;
            sync_dir(directory)
        };
        keep().map_err(|error| self.store.failed("written", &path, error))?;
        Ok((hash, self.size))
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        // Already renamed or removed once it is finished: then there is nothing to remove.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// A reader that fails at its end where the content is not what its hash says.
pub struct Checked<R> {
    inner: R,
    hasher: Sha256,
    expected: Hash,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        if n == 0 && !buffer.is_empty() && Hash(self.hasher.clone().finalize().into()) != self.expected {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a kept file was changed on disk"));
        }
        Ok(n)
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
