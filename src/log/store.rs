//! All sessions of this user: creating, finding, removing.

use super::file::{self, Reopened, SessionFile};
use super::id::SessionId;
use super::keys;
use super::lines::{Lines, read_records};
use crate::error::{Error, Result};
use crate::event::{Event, Record, now};
use crate::paths::{self, make_dir, not_made};
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The directory that holds all sessions.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The user's own: [`paths::data_dir`].
    pub fn open() -> Result<Self> {
        Ok(Self::at(paths::data_dir()?))
    }

    /// A store below another directory. Nothing is created before it is needed.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory of a session, whether or not it exists.
    pub fn dir(&self, id: &SessionId) -> PathBuf {
        self.sessions().join(id.as_str())
    }

    /// The file of a session's events.
    pub fn events(&self, id: &SessionId) -> PathBuf {
        self.dir(id).join("events.jsonl")
    }

    /// Creates a session with a new id.
    pub fn create(&self) -> Result<(SessionId, SessionFile)> {
        make_dir(&self.sessions())?;
        // More than a handful of collisions of 1 in 1.6 million is not chance.
        for _ in 0..16 {
            let id = SessionId::generate();
            match DirBuilder::new().mode(0o700).create(self.dir(&id)) {
                Ok(()) => return Ok((id.clone(), SessionFile::create(&self.events(&id))?)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(not_made(&self.dir(&id), error)),
            }
        }
        Err(Error::unexpected(format!("no free session id in {}", self.sessions().display())))
    }

    /// Opens a session to resume it.
    pub fn reopen(&self, id: &SessionId) -> Result<Reopened> {
        SessionFile::reopen(&self.events(id))
    }

    /// The session whose id begins with `text`.
    pub fn find(&self, text: &str) -> Result<SessionId> {
        let wanted = SessionId::parse(text)?;
        let ids = self.ids()?;
        if ids.contains(&wanted) {
            return Ok(wanted);
        }
        let mut found: Vec<SessionId> = ids.into_iter().filter(|id| id.as_str().starts_with(text)).collect();
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(Error::usage(format!("unknown session {text}")).hint("see `agent sessions list`")),
            count => {
                let some: Vec<&str> = found.iter().take(5).map(SessionId::as_str).collect();
                Err(Error::usage(format!("{count} sessions begin with {text}"))
                    .hint(format!("use a longer prefix: {}", some.join(", "))))
            }
        }
    }

    /// The session that was written to last, of those that work on `workspace` where one is given.
    pub fn last(&self, workspace: Option<&Path>) -> Result<SessionId> {
        let mut ids: Vec<_> = self.ids()?.into_iter().map(|id| (modified(&self.events(&id)), id)).collect();
        ids.sort();
        let here = |id: &SessionId| workspace.is_none_or(|path| works_on(&self.events(id), path));
        let ids = || ids.iter().rev().map(|(_, id)| id);
        if let Some(last) = ids().find(|id| here(id)) {
            return Ok(last.clone());
        }
        let place = workspace.map(|path| format!(" of {}", path.display())).unwrap_or_default();
        let error = Error::usage(format!("there is no session{place} yet"));
        // Not taken by itself: what it changed would be written to a directory that nobody named.
        let above = |directory: &Path| {
            Some((ids().find(|id| works_on(&self.events(id), directory))?, directory.to_owned()))
        };
        Err(match workspace.and_then(|path| path.ancestors().skip(1).find_map(above)) {
            Some((id, directory)) => {
                error.hint(format!("the last session of {} is {id}: name it", directory.display()))
            }
            None => error.hint("see `agent sessions list`"),
        })
    }

    /// All ids, oldest first. Other entries of the directory are ignored.
    pub fn ids(&self) -> Result<Vec<SessionId>> {
        let entries = match fs::read_dir(self.sessions()) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            Err(error) => {
                let message = format!("{} could not be listed", self.sessions().display());
                return Err(Error::unexpected(message).caused_by(error));
            }
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut ids: Vec<SessionId> = names.filter_map(|name| SessionId::parse(&name).ok()).collect();
        ids.sort();
        Ok(ids)
    }

    /// Removes a session with all that belongs to it, its key too. One that is in use is refused.
    pub fn remove(&self, id: &SessionId) -> Result<()> {
        let (dir, events, key) = (self.dir(id), self.events(id), self.key_of(id));
        // Held until the directory is gone, so that nobody opens the session meanwhile.
        let _lock = match File::open(&events) {
            Ok(file) => file::lock(&file, &events).map(|()| Some(file))?,
            Err(_) => None,
        };
        let failed = |path: &Path, error| {
            Error::unexpected(format!("{} could not be removed", path.display())).caused_by(error)
        };
        fs::remove_dir_all(&dir).map_err(|error| failed(&dir, error))?;
        key.map_or(Ok(()), |key| keys::forget(&key, id).map_err(|error| failed(&key, error)))
    }

    /// Creates a session that continues from the current state of `source`, with its conversation and checkpoints.
    pub fn fork(&self, source: &SessionId) -> Result<SessionId> {
        // Before the lines, as a session that is running may add some meanwhile.
        let promised = file::read_head(&self.events(source)).map_or(0, |(lines, _)| lines);
        let mut records = read_records(&self.events(source))?;
        let missing = promised.saturating_sub(records.len() as u64);
        if missing > 0 {
            let seq = records.last().map_or(1, |record| record.seq + 1);
            let event = Event::LinesLost { lines: Some(missing) };
            records.push(Record { seq, time: now(), session: String::new(), event });
        }
        let (id, mut file) = self.create()?;
        let filled = fill_fork(&mut file, records, source, &id)
            .and_then(|()| copy_beside(&self.dir(source), &self.dir(&id)));
        drop(file);
        // A failed fork is removed. One that cannot be removed is listed, and pruned some day.
        filled.inspect_err(|_| drop(self.remove(&id)))?;
        Ok(id)
    }

    /// Whether a process is writing the session now.
    pub fn is_running(&self, id: &SessionId) -> bool {
        file::is_locked(&self.events(id))
    }

    /// The directory that holds all of it.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }
}

/// Writes the events of the session `source` into the file of session `id`, under its own name.
fn fill_fork(file: &mut SessionFile, records: Vec<Record>, source: &SessionId, id: &SessionId) -> Result<()> {
    for mut record in records {
        record.session = id.to_string();
        file.append(&record)?;
    }
    let event = Event::Notice { text: format!("forked from session {source}") };
    file.append(&Record { seq: file.next_seq(), time: now(), session: id.to_string(), event })
}

/// Copies the other files of a session.
fn copy_beside(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if name != "events.jsonl" && name != "head" && name != keys::KEY {
            copy_tree(&from.join(&name), &to.join(&name), false)?;
        }
    }
    Ok(())
}

/// Copies files and directories; anything else does not belong there and is left out. Contents (`blobs`) never
/// change once they are there, so they are `shared` with the original as links.
fn copy_tree(from: &Path, to: &Path, shared: bool) -> Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_dir() {
        make_dir(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy_tree(&from.join(&name), &to.join(&name), shared || name == "blobs")?;
        }
    } else if kind.is_file() && !(shared && fs::hard_link(from, to).is_ok()) {
        fs::copy(from, to)?;
    }
    Ok(())
}

/// Whether the session in `events` works on the host directory `workspace`.
fn works_on(events: &Path, workspace: &Path) -> bool {
    let first = Lines::open(events).and_then(|mut lines| lines.next_record());
    matches!(first, Ok(Some(record)) if matches!(&record.event,
        Event::SessionStarted { workspace: named, .. } if Path::new(named) == workspace))
}

/// When a file was last written; the Unix epoch if that is unknown.
pub(super) fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}
