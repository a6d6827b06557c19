//! Writing a session file: the log of the event bus.

use super::chain::{prev_of, seal};
use super::lines::{Lines, MAX_LINE};
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};
use agent_base::file_lock::{Attempt, FileLock};
use agent_base::hash::Hash;
use agent_base::plain_file;
use agent_event::{Event, Listener, Record, json, now};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file of a session that is being written, locked against every other process until it is dropped.
///
/// An event that was accepted survives a crash of this process (though not of the machine). One that was refused, because
/// the disk is full for example, leaves the file unchanged.
#[derive(Debug)]
pub struct SessionFile {
    path: PathBuf,
    file: File,
    _lock: FileLock,
    head: Option<File>,
    last: Hash,
    lines: u64,
    bytes: u64,
    seq: u64,
    /// The session of the last event, as the file names it.
    session: String,
}

/// A session that was opened to be resumed.
#[derive(Debug)]
pub struct Reopened {
    pub file: SessionFile,
    pub records: Vec<Record>,
    /// Losses, as notices. Usually none.
    pub losses: Vec<String>,
}

impl SessionFile {
    /// Starts a recording at `path`: the same format, without a `head`. An existing file is replaced.
    pub fn record(path: &Path) -> Result<Self> {
        let planted = plain_file::refuse_planted(path)
            .map_err(|error| Error::usage(format!("{} is not written: {error}", path.display())));
        let file = planted.and_then(|()| open(path)).map_err(|error| {
            Error::usage(error.to_string()).hint("name a file in a directory that you can write to")
        })?;
        let lock = lock(&file, path)?;
        // A pipe cannot be truncated and does not need to be.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(Self::at_start(path, file, lock, None))
    }

    /// Starts the file of a new session in its directory, which exists and is empty.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = open(path)?;
        let lock = lock(&file, path)?;
        let session = Self::at_start(path, file, lock, Some(open_head(path)?));
        session.write_head()?;
        Ok(session)
    }

    /// Opens the file of a session to resume it. The chain has to be valid; an incomplete last line is dropped. Lines that
    /// `head` counts but that are missing are not an error: a power failure may have lost them, as neither file is synced
    /// after each line. The loss is recorded as a line, so that `verify` always finds it.
    pub(super) fn reopen(path: &Path) -> Result<Reopened> {
        let file = open(path)?;
        let lock = lock(&file, path)?;
        let promised = read_head(path);
        let mut session = Self::at_start(path, file, lock, Some(open_head(path)?));
        let (mut records, torn) = session.catch_up(promised)?;
        let mut losses = Vec::new();
        if torn > 0 {
            session.file.set_len(session.bytes)?;
            losses.push(format!(
                "the last line of the session file was incomplete and was dropped ({torn} bytes)"
            ));
        }
        match promised {
            Some((promised, _)) if promised > session.lines => {
                let missing = promised - session.lines;
                losses.push(format!(
                    "the session file lacks {} at its end; `agent sessions verify` will report it",
                    counted(missing, "line")
                ));
                records.push(session.record_loss(Some(missing))?);
            }
            None if session.lines > 0 => {
                losses.push(
                    "the end of the session file cannot be verified: its `head` file is missing".to_owned(),
                );
                records.push(session.record_loss(None)?);
            }
            _ => session.write_head()?,
        }
        Ok(Reopened { file: session, records, losses })
    }

    /// The number that the next event gets.
    pub fn next_seq(&self) -> u64 {
        self.seq + 1
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one event, whatever its kind.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        self.append_json(record.seq, &json::to_vec(record)?)
    }

    fn append_json(&mut self, seq: u64, json: &[u8]) -> Result<()> {
        let mut line = seal(json, self.last);
        if line.len() > MAX_LINE {
            let size = line.len() >> 20;
            return Err(Error::unexpected(format!(
                "an event of {size} MiB is too large for the session file"
            )));
        }
        let hash = Hash::of(&line);
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            return Err(self.undo_partial_write(error));
        }
        self.last = hash;
        self.lines += 1;
        self.bytes += line.len() as u64;
        self.seq = self.seq.max(seq);
        self.write_head()
    }

    /// Records in the chain that `lines` are missing here, and syncs it: after a power failure the old `head` must not
    /// reappear beside newer lines.
    fn record_loss(&mut self, lines: Option<u64>) -> Result<Record> {
        let record = Record {
            seq: self.next_seq(),
            time: now(),
            session: self.session.clone(),
            event: Event::LinesLost { lines },
        };
        self.append(&record)?;
        self.file.sync_data()?;
        self.head.as_ref().map_or(Ok(()), File::sync_data)?;
        Ok(record)
    }

    fn at_start(path: &Path, file: File, lock: FileLock, head: Option<File>) -> Self {
        Self {
            path: path.to_owned(),
            file,
            _lock: lock,
            head,
            last: Hash::UNKNOWN,
            lines: 0,
            bytes: 0,
            seq: 0,
            session: String::new(),
        }
    }

    /// Reads the existing lines, compares them with `head`, and returns the records and the length of an incomplete last line.
    fn catch_up(&mut self, head: Option<(u64, Hash)>) -> Result<(Vec<Record>, u64)> {
        let mut lines = Lines::open(&self.path)?;
        let mut records = Vec::new();
        while let Some(line) = lines.next_line()? {
            let (hash, prev) = (Hash::of(line), prev_of(line));
            let record = lines.parse()?;
            if prev != Some(self.last) {
                return Err(changed(
                    &self.path,
                    format!("line {} does not follow the one before", lines.number()),
                ));
            }
            // `record_loss` syncs the line before `head`.
            let is_loss = matches!(record.event, Event::LinesLost { .. });
            if head.is_some_and(|(number, last)| number == lines.number() && last != hash) && !is_loss {
                return Err(changed(&self.path, format!("line {} was replaced", lines.number())));
            }
            (self.last, self.seq) = (hash, self.seq.max(record.seq));
            if !record.session.is_empty() {
                self.session.clone_from(&record.session);
            }
            records.push(record);
        }
        (self.lines, self.bytes) = (lines.number(), lines.complete());
        Ok((records, lines.torn()))
    }

    /// A write that failed may have left half a line.
    fn undo_partial_write(&mut self, error: std::io::Error) -> Error {
        // If this fails too, the partial line stays last and is dropped when the session is reopened.
        let _ = self.file.set_len(self.bytes);
        Error::unexpected(format!("{} could not be written", self.path.display()))
            .caused_by(error)
            .hint("the session is saved up to here: free disk space, then run `agent resume`")
    }

    fn write_head(&self) -> Result<()> {
        let Some(head) = &self.head else { return Ok(()) };
        head.write_all_at(format!("{:020} {}\n", self.lines, self.last).as_bytes(), 0)?;
        Ok(())
    }
}

impl Listener for SessionFile {
    fn on_event(&mut self, record: &Record, line: &[u8]) -> Result<()> {
        if record.event.is_live_only() { Ok(()) } else { self.append_json(record.seq, line) }
    }
}

/// Returns the number of lines that the session file next to `head` should have, and the hash of the last; `None` where
/// that cannot be read.
pub(super) fn read_head(events: &Path) -> Option<(u64, Hash)> {
    let text = std::fs::read(events.with_file_name("head")).ok()?;
    let (lines, hash) = text.strip_suffix(b"\n")?.split_at_checked(20)?;
    let lines = std::str::from_utf8(lines).ok()?.parse().ok()?;
    Some((lines, Hash::parse(hash.strip_prefix(b" ")?)?))
}

/// Returns whether the session is open for writing, in this process or another.
pub(super) fn is_locked(events: &Path) -> bool {
    FileLock::is_taken(events)
}

/// Locks the file for as long as the lock lives.
pub(super) fn lock(file: &File, path: &Path) -> Result<FileLock> {
    let in_use = || Error::usage(format!("{} is in use by another process", path.display()));
    let mut tries = 0;
    let lock = loop {
        match FileLock::attempt(file, path) {
            Ok(Attempt::Locked(lock)) => break lock,
            // `is_locked` of another process holds the lock for microseconds.
            Ok(Attempt::Taken) if tries < 10 => std::thread::sleep(Duration::from_millis(5)),
            Ok(Attempt::Taken) => {
                return Err(in_use().hint("wait until it ends, or `agent fork` the session"));
            }
            Ok(Attempt::TakenElsewhere(marker)) => {
                return Err(in_use().hint(format!(
                    "it runs on another machine; if it does not run any more, remove {}",
                    marker.display()
                )));
            }
            Err(error) => {
                let message = format!("{} could not be locked", path.display());
                return Err(Error::unexpected(message).caused_by(error));
            }
        }
        tries += 1;
    };
    if file.metadata()?.nlink() == 0 {
        return Err(Error::usage(format!("{} was just removed", path.display())));
    }
    Ok(lock)
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(|error| {
        Error::unexpected(format!("{} could not be opened for writing", path.display())).caused_by(error)
    })
}

fn open_head(events: &Path) -> Result<File> {
    let path = events.with_file_name("head");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    file.map_err(|error| {
        Error::unexpected(format!("{} could not be opened for writing", path.display())).caused_by(error)
    })
}

fn changed(path: &Path, how: String) -> Error {
    Error::unexpected(format!("{} was changed by something else: {how}", path.display()))
        .hint("see where with `agent sessions verify`; `agent sessions show` can still read it")
}
