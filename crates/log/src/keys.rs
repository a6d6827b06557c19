//! Sessions that callers name by a key of their own (`--session-key`).

use super::id::SessionId;
use super::store::Store;
use agent_base::error::{Error, Result};
use agent_base::file_lock::FileLock;
use agent_base::hash::Hash;
use agent_base::paths::make_dir;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file in a session's directory that names its key's file.
pub(super) const KEY: &str = "key";
/// More bytes than a key's hash or a session's id has.
const MAX_NAME_BYTES: u64 = 100;

impl Store {
    /// The session of the caller's `key`, created if there is none. Two processes that call this at once get the same one.
    pub fn for_key(&self, key: &str) -> Result<SessionId> {
        let (name, file, _lock) = self.key_file(key)?;
        if let Ok(id) = SessionId::parse(&read(&file))
            && self.events(&id).exists()
        {
            return Ok(id);
        }
        let (id, _) = self.create()?;
        self.bind(&name, file, &id)?;
        Ok(id)
    }

    /// Makes `key` name the session `id`, whatever it named before.
    pub fn bind_key(&self, key: &str, id: &SessionId) -> Result<()> {
        let (name, file, _lock) = self.key_file(key)?;
        self.bind(&name, file, id)
    }

    /// Opens and locks the key's file; its name, too.
    fn key_file(&self, key: &str) -> Result<(String, File, FileLock)> {
        let name = Hash::of(key.as_bytes()).to_string();
        let path = self.keys().join(&name);
        make_dir(&self.keys())?;
        let (file, lock) = open(&path, true).map_err(|error| {
            Error::unexpected(format!("{} could not be opened", path.display())).caused_by(error)
        })?;
        Ok((name, file, lock))
    }

    fn bind(&self, name: &str, mut file: File, id: &SessionId) -> Result<()> {
        let mut options = OpenOptions::new();
        let beside = options.write(true).create(true).truncate(true).mode(0o600).open(self.dir(id).join(KEY));
        writeln!(beside?, "{name}")?;
        file.rewind()?;
        file.set_len(0)?;
        writeln!(file, "{id}")?;
        Ok(())
    }

    /// The file of the key that names the session `id`.
    pub(super) fn key_of(&self, id: &SessionId) -> Option<PathBuf> {
        let name = read(&File::open(self.dir(id).join(KEY)).ok()?);
        // The name becomes a path: only a hash is accepted.
        let is_hash =
            name.len() == Hash::UNKNOWN.to_string().len() && name.bytes().all(|b| b.is_ascii_hexdigit());
        is_hash.then(|| self.keys().join(name))
    }

    fn keys(&self) -> PathBuf {
        self.root().join("keys")
    }
}

/// Removes the key's file if it still names the session `id`.
pub(super) fn remove(path: &Path, id: &SessionId) -> io::Result<()> {
    match open(path, false) {
        Ok((file, _lock)) if read(&file) == id.as_str() => fs::remove_file(path),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens a key's file and locks it.
fn open(path: &Path, create: bool) -> io::Result<(File, FileLock)> {
    loop {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(create).truncate(false).mode(0o600).open(path)?;
        let lock = FileLock::wait(&file, path)?;
        // If the file was removed while this waited for the lock, nobody would see what is written to it.
        if file.metadata()?.nlink() > 0 {
            return Ok((file, lock));
        }
    }
}

/// The content of the file; empty if it cannot be read (the machine may have crashed while it was written).
fn read(file: &File) -> String {
    let mut text = String::new();
    let _ = file.take(MAX_NAME_BYTES).read_to_string(&mut text);
    text.trim_end().to_owned()
}
