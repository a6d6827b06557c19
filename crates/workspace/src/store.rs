//! The records that a session keeps of the workspace: contents by their SHA-256, and small JSON records.
//!
//! It lies on the host, outside every sandbox, so that nothing inside can tamper with it. Contents are checked
//! against their hash whenever they are read.

use crate::pending::Pending;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Largest content that is held in memory as a whole, in bytes (for diffs and merges).
pub const MAX_IN_MEMORY: u64 = 64 << 20;

/// A temporary file that is older than this was left behind by a writer that was killed.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A session's directory: `blobs/ab/cdef…` and records beside it.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    /// Bytes of all contents, once they were counted.
    bytes: Arc<OnceLock<AtomicU64>>,
    pending: Arc<Pending>,
    /// Others whose contents can be read through this one.
    beside: Arc<[Store]>,
}

impl Store {
    /// Returns the directory in which it is kept.
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// The store in the session's directory `dir`, made where it is missing. Only its owner may look inside.
    pub fn open(dir: &Path) -> Result<Self> {
        let store = Self {
            dir: dir.to_owned(),
            bytes: Arc::default(),
            pending: Arc::default(),
            beside: Arc::default(),
        };
        let blobs = dir.join("blobs");
        private_dir(&blobs).map_err(|error| store.failed("made", &blobs, error))?;
        Ok(store)
    }

    /// The same store, through which the contents of the `others` can be read too.
    pub fn reading_beside(&self, others: impl Iterator<Item = Store>) -> Self {
        Self { beside: others.collect(), ..self.clone() }
    }

    /// Bytes that all contents take together.
    pub fn bytes(&self) -> Result<u64> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes.load(Ordering::Relaxed));
        }
        let mut total = 0;
        self.each_blob(|_, metadata| {
            total += metadata.len();
            Ok(())
        })?;
        Ok(self.bytes.get_or_init(|| AtomicU64::new(total)).load(Ordering::Relaxed))
    }

    /// Removes every content that `wanted` does not want, and what writers that were killed left behind.
    pub fn retain(&self, wanted: impl Fn(Hash) -> bool) -> Result<()> {
        self.flush()?;
        let mut total = 0;
        self.each_blob(|path, metadata| {
            let keep = match self.hash_of(path) {
                Some(hash) => wanted(hash),
                None => metadata.modified()?.elapsed().is_ok_and(|age| age < ABANDONED),
            };
            total += if keep { metadata.len() } else { 0 };
            if keep { Ok(()) } else { fs::remove_file(path) }
        })?;
        self.bytes.get_or_init(AtomicU64::default).store(total, Ordering::Relaxed);
        Ok(())
    }

    /// Every file below `blobs`: contents in directories, temporary files beside those.
    fn each_blob(&self, mut act: impl FnMut(&Path, fs::Metadata) -> io::Result<()>) -> Result<()> {
        let blobs = self.dir.join("blobs");
        let mut walk = || -> io::Result<()> {
            for entry in fs::read_dir(&blobs)? {
                let entry = entry?;
                if !entry.file_type()?.is_dir() {
                    act(&entry.path(), entry.metadata()?)?;
                    continue;
                }
                for entry in fs::read_dir(entry.path())? {
                    let entry = entry?;
                    act(&entry.path(), entry.metadata()?)?;
                }
            }
            Ok(())
        };
        walk().map_err(|error| self.failed("looked through", &blobs, error))
    }

    /// The hash by which a content is named; `None` for a temporary file.
    fn hash_of(&self, path: &Path) -> Option<Hash> {
        let name = path.strip_prefix(self.dir.join("blobs")).ok()?.to_str()?;
        let (directory, rest) = name.split_once('/')?;
        serde_json::from_value(serde_json::Value::String(format!("{directory}{rest}"))).ok()
    }

    /// Returns whether the content can be read.
    pub fn contains(&self, hash: Hash) -> bool {
        self.holds(hash) || self.beside.iter().any(|other| other.holds(hash))
    }

    /// Returns whether the content is here.
    fn holds(&self, hash: Hash) -> bool {
        self.pending.get(hash).is_some() || self.path(hash).is_file()
    }

    /// Keeps `content`. It outlives a power failure once a record was saved after it.
    pub fn put(&self, content: &[u8]) -> Result<Hash> {
        let hash = Hash::of(content);
        if !self.holds(hash) {
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

    /// Takes a content over from another store, as a link where that is possible: contents never change.
    pub fn adopt(&self, other: &Store, hash: Hash) -> Result<()> {
        other.flush()?;
        let (from, to) = (other.path(hash), self.path(hash));
        let link = || -> io::Result<()> {
            private_dir(to.parent().unwrap_or(&self.dir))?;
            fs::hard_link(&from, &to)
        };
        match self.holds(hash) || link().is_ok() {
            true => Ok(()),
            false => self.put_from(&mut other.open_blob(hash)?).map(drop),
        }
    }

    /// Opens a content for reading. Its hash is checked while it is read (see [`Checked`]).
    pub fn open_blob(&self, hash: Hash) -> Result<Checked<File>> {
        if let Some(other) = self.beside.iter().find(|other| other.holds(hash)).filter(|_| !self.holds(hash))
        {
            return other.open_blob(hash);
        }
        let path = self.path(hash);
        let pending = self.pending.get(hash).and_then(|pending| File::open(pending).ok());
        let file = match pending {
            Some(file) => file,
            None => File::open(&path).map_err(|error| self.failed("read", &path, error))?,
        };
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

    /// Writes a record atomically; once it returns, it outlives a power failure, and so does every content that was kept
    /// before.
    pub fn save<T: Serialize>(&self, name: &str, record: &T) -> Result<()> {
        self.flush()?;
        self.write(name, record, true)?;
        let path = self.dir.join(name);
        sync_dir(path.parent().unwrap_or(&self.dir)).map_err(|error| self.failed("written", &path, error))
    }

    /// Writes two records, one after the other; what holds for [`Store::save`] holds for both once it returns.
    pub fn save_both<T: Serialize, U: Serialize>(&self, first: (&str, &T), second: (&str, &U)) -> Result<()> {
        self.write(first.0, first.1, true)?;
        self.save(second.0, second.1)
    }

    /// Writes a record atomically that a power failure may take away: what it tells of does not outlive one either.
    pub fn mark<T: Serialize>(&self, name: &str, record: &T) -> Result<()> {
        self.write(name, record, false)
    }

    fn write<T: Serialize>(&self, name: &str, record: &T, is_synced: bool) -> Result<()> {
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
            if is_synced {
                file.sync_all()?;
            }
            fs::rename(&temporary, &path)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&temporary);
            self.failed("written", &path, error)
        })
    }

    /// Returns whether there is such a record.
    pub fn has(&self, name: &str) -> bool {
        self.dir.join(name).is_file()
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

    /// Removes a record. A missing one is not an error.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("removed", &path, error))
            }
            _ => Ok(()),
        }
    }

    fn flush(&self) -> Result<()> {
        let flushed = self.pending.flush(|hash| self.path(hash));
        flushed.map_err(|error| self.failed("written", &self.dir.join("blobs"), error))
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
        if self.store.holds(hash) {
            // Dropped, it removes its file.
            return Ok((hash, self.size));
        }
        let temporary = std::mem::take(&mut self.temporary);
        let kept = self.store.pending.add(hash, temporary);
        kept.map_err(|error| self.store.failed("written", &self.store.path(hash), error))?;
        if let Some(bytes) = self.store.bytes.get() {
            bytes.fetch_add(self.size, Ordering::Relaxed);
        }
        Ok((hash, self.size))
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        // Once it is finished there is nothing to remove.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// A reader that fails at its end if the content does not match its hash.
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

pub(super) fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
