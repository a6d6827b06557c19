//! All sessions of this user: creating, finding, removing.

use super::artifacts;
use super::attempts;
use super::file::{self, Reopened, SessionFile};
use super::id::SessionId;
use super::keys;
use super::lines::{Lines, read_records};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::paths::{create_error, make_dir, make_dir_of_unrelated};
use agent_base::plain_file::{self, Durability, Links};
use agent_event::{Event, Record, now};
use serde_json::Value;
use std::collections::HashSet;
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
    /// The store of the user of `machine`.
    pub fn open(machine: &Machine) -> Result<Self> {
        Ok(Self::at(machine.data_dir()?))
    }

    /// A store in `root`. Nothing is created before it is needed.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory of a session, which need not exist.
    pub fn dir(&self, id: &SessionId) -> PathBuf {
        self.sessions().join(id.as_str())
    }

    /// The file of a session's events.
    pub fn events(&self, id: &SessionId) -> PathBuf {
        self.dir(id).join("events.jsonl")
    }

    /// Creates a session with a new id.
    pub fn create(&self) -> Result<(SessionId, SessionFile)> {
        make_dir_of_unrelated(&self.sessions())?;
        // The probability of a collision is 1 in 1.6 million.
        for _ in 0..16 {
            let id = SessionId::generate();
            match DirBuilder::new().mode(0o700).create(self.dir(&id)) {
                Ok(()) => return Ok((id.clone(), SessionFile::create(&self.events(&id))?)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(create_error(&self.dir(&id), error)),
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

    /// The session that was written last, of those with this `workspace` if one is given. Attempts that lost a race do not count, and one
    /// that was left without a prompt only where there is no other.
    pub fn last(&self, workspace: Option<&Path>) -> Result<SessionId> {
        let mut ids: Vec<_> = self.ids()?.into_iter().map(|id| (modified(&self.events(&id)), id)).collect();
        ids.sort();
        let here = |id: &SessionId| is_of(&self.events(id), workspace) && self.attempt_of(id).is_none();
        let ids = || ids.iter().rev().map(|(_, id)| id);
        let worked_in = ids().find(|id| here(id) && !was_only_opened(&self.events(id)));
        if let Some(last) = worked_in.or_else(|| ids().find(|id| here(id))) {
            return Ok(last.clone());
        }
        let place = workspace.map(|path| format!(" of {}", path.display())).unwrap_or_default();
        let error = Error::usage(format!("no session{place} yet"));
        // Not resumed: its changes would be applied to a directory that the user did not name.
        let above = |directory: &Path| {
            Some((ids().find(|id| is_of(&self.events(id), Some(directory)))?, directory.to_owned()))
        };
        Err(match workspace.and_then(|path| path.ancestors().skip(1).find_map(above)) {
            Some((id, directory)) => {
                error.hint(format!("the last session of {} is {id}: name it", directory.display()))
            }
            None => error.hint("see `agent sessions list`"),
        })
    }

    /// The sessions of `workspace`, the one written last first. Replays are not among them.
    pub fn of_workspace(&self, workspace: &Path) -> Result<Vec<SessionId>> {
        let mut ids: Vec<_> = self.ids()?.into_iter().map(|id| (modified(&self.events(&id)), id)).collect();
        ids.sort();
        let ids = ids.into_iter().rev().map(|(_, id)| id);
        Ok(ids.filter(|id| is_of(&self.events(id), Some(workspace))).collect())
    }

    /// Returns whether the session works on `workspace`: the user's own, a replay, or one that a model delegated.
    pub fn is_on(&self, id: &SessionId, workspace: &Path) -> bool {
        let first = Lines::open(&self.events(id)).and_then(|mut lines| lines.next_record());
        let event = first.ok().flatten().map(|record| record.event);
        matches!(event, Some(Event::SessionStarted { workspace: named, .. }) if Path::new(&named) == workspace)
    }

    /// The number of the session's last event; 0 for one without events.
    pub fn last_seq(&self, id: &SessionId) -> Result<u64> {
        let (mut lines, mut last) = (Lines::open(&self.events(id))?, 0);
        while let Some(record) = lines.next_record()? {
            last = record.seq;
        }
        Ok(last)
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

    /// Removes a session and its key.
    ///
    /// # Errors
    /// The session is in use, or a file could not be removed.
    pub fn remove(&self, id: &SessionId) -> Result<()> {
        let (dir, events, key) = (self.dir(id), self.events(id), self.key_of(id));
        // Held until the directory is removed, so that no other process opens the session meanwhile.
        let _lock = match File::open(&events) {
            Ok(file) => Some(file::lock(&file, &events)?),
            Err(_) => None,
        };
        let failed = |path: &Path, error| {
            Error::unexpected(format!("{} could not be removed", path.display())).caused_by(error)
        };
        fs::remove_dir_all(&dir).map_err(|error| failed(&dir, error))?;
        key.map_or(Ok(()), |key| keys::remove(&key, id).map_err(|error| failed(&key, error)))
    }

    /// Returns the directory in which a fork has what the sandbox of its source had written, until its own sandbox has
    /// started.
    pub fn layer(&self, id: &SessionId) -> PathBuf {
        self.dir(id).join(LAYER)
    }

    /// Returns the path of the note about the copy at a provider that the sandbox of a fork begins as, until that sandbox
    /// has started.
    pub fn snapshot(&self, id: &SessionId) -> PathBuf {
        self.dir(id).join(SNAPSHOT)
    }

    /// Returns the path of the note that the session's sandbox is still to be removed, until it is, or the session is
    /// resumed.
    pub fn removal(&self, id: &SessionId) -> PathBuf {
        self.dir(id).join(REMOVAL)
    }

    /// Creates a session that continues from the current state of `source`, with its conversation and checkpoints.
    pub fn fork(&self, source: &SessionId) -> Result<SessionId> {
        // Read before the lines, to which a running session may add.
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
        // A failed fork is removed. If that fails too, it is listed and can be pruned.
        filled.inspect_err(|_| drop(self.remove(&id)))?;
        Ok(id)
    }

    /// Tells the model of session `id` with its next prompt what happened meanwhile.
    ///
    /// # Errors
    /// The session is in use, or its file is damaged.
    pub fn note(&self, id: &SessionId, text: &str) -> Result<()> {
        let mut file = self.reopen(id)?.file;
        let event = Event::Note { text: text.to_owned() };
        file.append(&Record { seq: file.next_seq(), time: now(), session: id.to_string(), event })
    }

    /// The sessions to which the models of `sessions` delegated, oldest first.
    pub fn delegates_of(&self, sessions: &[SessionId]) -> Result<Vec<SessionId>> {
        let sessions: HashSet<&str> = sessions.iter().map(SessionId::as_str).collect();
        let is_delegate = |other: &SessionId| {
            let first = Lines::open(&self.events(other)).and_then(|mut lines| lines.next_record());
            let event = first.ok().flatten().map(|record| record.event);
            matches!(event, Some(Event::SessionStarted { parent: Some(parent), .. }) if sessions.contains(parent.as_str()))
        };
        Ok(self.ids()?.into_iter().filter(is_delegate).collect())
    }

    /// Returns whether a process is writing the session now.
    pub fn is_running(&self, id: &SessionId) -> bool {
        file::is_locked(&self.events(id))
    }

    /// Returns what [`Store::keep_learned`] kept for the session.
    pub fn learned(&self, id: &SessionId) -> Option<Value> {
        let text = plain_file::read(&self.dir(id).join(LEARNED), MAX_LEARNED + 1, Links::Refuse).ok()?;
        (text.len() as u64 <= MAX_LEARNED).then(|| serde_json::from_slice(&text).ok())?
    }

    /// Keeps what was learned about the session's endpoint, for when the session is resumed.
    pub fn keep_learned(&self, id: &SessionId, learned: &Value) -> Result<()> {
        let path = self.dir(id).join(LEARNED);
        plain_file::replace(&path, learned.to_string().as_bytes(), Durability::Renamed).map_err(|error| {
            Error::unexpected(format!("{} could not be written", path.display())).caused_by(error)
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of what is kept about races of sessions.
    pub fn races(&self) -> PathBuf {
        self.root.join("races")
    }

    fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }
}

/// The most events of a session in which nothing was done.
const MAX_OPENING: usize = 30;
/// The file of what was learned about a session's endpoint.
const LEARNED: &str = "endpoint.json";
const MAX_LEARNED: u64 = 1 << 20;
/// The directory of [`Store::layer`].
const LAYER: &str = "layer";
/// The file of [`Store::snapshot`].
const SNAPSHOT: &str = "snapshot.json";
/// The file of [`Store::removal`].
const REMOVAL: &str = "removal";
/// Names of what belongs to one session alone.
const OWN: [&str; 7] = ["events.jsonl", "head", keys::KEY, attempts::ATTEMPT, LAYER, SNAPSHOT, REMOVAL];
/// Names of what is beside a session file and never changed, only replaced: a fork has the same files.
const SHARED: [&str; 3] = ["workspace", "home", artifacts::DIRECTORY];

/// Writes the events of the session `source` into the file of session `id`.
fn fill_fork(file: &mut SessionFile, records: Vec<Record>, source: &SessionId, id: &SessionId) -> Result<()> {
    for mut record in records {
        record.session = id.to_string();
        if let Event::SessionStarted { parent, .. } = &mut record.event {
            // It is the user's own.
            *parent = None;
        }
        file.append(&record)?;
    }
    let event = Event::Notice { text: format!("forked from session {source}") };
    file.append(&Record { seq: file.next_seq(), time: now(), session: id.to_string(), event })
}

/// Copies the other files of a session.
fn copy_beside(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if OWN.iter().all(|own| name != *own) {
            copy_tree(&from.join(&name), &to.join(&name), SHARED.iter().any(|shared| name == *shared))?;
        }
    }
    Ok(())
}

/// Copies files and directories, nothing else; as hard links to the original if `shared` is set.
fn copy_tree(from: &Path, to: &Path, shared: bool) -> Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_dir() {
        make_dir(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy_tree(&from.join(&name), &to.join(&name), shared)?;
        }
    } else if kind.is_file() && !(shared && fs::hard_link(from, to).is_ok()) {
        fs::copy(from, to)?;
    }
    Ok(())
}

/// Returns whether a session was opened and left, and nothing else happened in it.
fn was_only_opened(events: &Path) -> bool {
    let Ok(mut lines) = Lines::open(events) else { return false };
    let mut is_left = false;
    for _ in 0..MAX_OPENING {
        match lines.next_record().map(|record| record.map(|record| record.event)) {
            Ok(Some(Event::SessionFinished { .. })) => is_left = true,
            Ok(Some(Event::SessionStarted { .. } | Event::SandboxReady { .. } | Event::Notice { .. })) => {}
            Ok(None) => return is_left,
            Ok(Some(_)) | Err(_) => return false,
        }
    }
    false
}

/// Returns whether the session in `events` is one of the user's own on `workspace`, or on any directory. A replay, which has no
/// endpoint, is none, nor is what a model delegated.
fn is_of(events: &Path, workspace: Option<&Path>) -> bool {
    let first = Lines::open(events).and_then(|mut lines| lines.next_record());
    match first.map(|record| record.map(|record| record.event)) {
        Ok(Some(Event::SessionStarted { workspace: named, base_url, parent, .. })) => {
            !base_url.is_empty()
                && parent.is_none()
                && workspace.is_none_or(|workspace| Path::new(&named) == workspace)
        }
        // An empty or damaged one is the user's too.
        _ => workspace.is_none(),
    }
}

/// Returns the time when a file was last written; the Unix epoch if that is unknown.
pub(super) fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}
