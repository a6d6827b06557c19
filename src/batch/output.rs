//! The directory of a batch: what makes it safe to kill it at any moment.
//!
//! ```text
//! OUT/batch.json         the tasks and their digests, replaced as a whole
//!     results.jsonl      one line a task that is done, appended and synced; the only thing that decides whether a task is done
//!     patches/ID.patch   renamed into place before the line is written
//!     running/ID.json    a task that has begun: its session, which is removed if the batch is killed before the line
//!     workspaces/ID/     the files of a task that is running, where they are not a directory of the user's
//!     repositories/      one bare clone for each repository
//!     lock               held by the running process
//! ```

use super::result::{Summary, TaskResult};
use super::task::Task;
use super::task_file::TaskFile;
use crate::error::{Error, Result};
use crate::event::{json, now};
use crate::lock::Lock;
use crate::log::{SessionId, Store};
use crate::paths::make_dir;
use crate::plain_file::{self, Links};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest result line, in bytes.
const MAX_LINE: usize = 32 << 20;
/// The largest file of results, in bytes.
const MAX_RESULTS: u64 = 16 << 30;
const MANIFEST: &str = "batch.json";
const RESULTS: &str = "results.jsonl";

/// The output directory of a batch, locked for this process.
pub struct Output {
    directory: PathBuf,
    results: Lock<Results>,
    _lock: File,
}

struct Results {
    file: File,
    /// The length without a line that could not be written as a whole.
    bytes: u64,
    done: BTreeMap<String, TaskResult>,
    /// Of those that are done.
    summary: Summary,
}

/// What `batch.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub version: u32,
    /// Where the tasks were read from.
    pub source: PathBuf,
    /// RFC 3339.
    pub began: String,
    /// Digests by id.
    pub tasks: BTreeMap<String, String>,
}

/// A task that has begun.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Marker {
    pub session: String,
    pub began: String,
}

impl Output {
    /// Opens `directory` for `file`, new or to continue, and cleans up after a process that was killed.
    ///
    /// # Errors
    /// Another process runs this batch; a task that has a result was changed or removed.
    pub fn open(directory: &Path, file: &TaskFile, sessions: &Store) -> Result<Self> {
        let is_ours = directory.join(MANIFEST).exists() || directory.join("lock").exists();
        let is_empty = fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
        if !is_ours && !is_empty {
            return Err(Error::usage(format!("{} is not empty, and not of a batch", directory.display()))
                .hint("name a new directory with --out"));
        }
        make_dir(directory)?;
        let directory = directory.canonicalize()?;
        let lock = lock(&directory)?;
        for name in ["patches", "running", "workspaces", "repositories"] {
            make_dir(&directory.join(name))?;
        }
        let results = Results::open(&directory.join(RESULTS))?;
        let output = Self { directory, results: Lock::new(results), _lock: lock };
        output.compare(&file.tasks)?;
        let began = output.manifest()?.map_or_else(now, |manifest| manifest.began);
        let tasks = file.tasks.iter().map(|task| (task.id.clone(), task.digest())).collect();
        let manifest = Manifest { version: 1, source: file.path.clone(), began, tasks };
        output.replace(MANIFEST, &serde_json::to_vec_pretty(&manifest)?)?;
        output.clean_up(sessions);
        Ok(output)
    }

    /// The directory, absolute.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What has a result.
    pub fn done(&self) -> BTreeMap<String, TaskResult> {
        self.results.lock().done.clone()
    }

    /// Whether the task has a result.
    pub fn is_done(&self, id: &str) -> bool {
        self.results.lock().done.contains_key(id)
    }

    /// The numbers so far, of `tasks` tasks.
    pub fn summary(&self, tasks: usize) -> Summary {
        Summary { tasks, ..self.results.lock().summary }
    }

    /// Forgets the results of tasks that failed, so that they run again; how many.
    pub fn forget_failed(&self) -> Result<usize> {
        let mut results = self.results.lock();
        let kept: BTreeMap<String, TaskResult> = results
            .done
            .iter()
            .filter(|(_, result)| result.passed())
            .map(|(id, result)| (id.clone(), result.clone()))
            .collect();
        let forgotten = results.done.len() - kept.len();
        if forgotten > 0 {
            let mut lines = Vec::new();
            for result in kept.values() {
                lines.extend(json::to_vec(result)?);
                lines.push(b'\n');
            }
            self.replace(RESULTS, &lines)?;
            *results = Results::open(&self.directory.join(RESULTS))?;
        }
        Ok(forgotten)
    }

    /// Writes the results of tasks, whose patches are in place, with one sync for all: from here on they are done.
    ///
    /// # Errors
    /// Not all of them could be written.
    pub fn record(&self, results: &[TaskResult]) -> Result<()> {
        let mut file = self.results.lock();
        let written = file.append(results).map_err(|error| {
            Error::unexpected("the results could not be written")
                .caused_by(error)
                .hint("free disk space and run the same command again: what has no result continues")
        });
        for result in results.iter().filter(|result| file.done.contains_key(&result.id)) {
            // A marker that is left is removed by the next process.
            let _ = fs::remove_file(self.marker(&result.id));
        }
        written
    }

    /// Notes that a task has begun, in this session.
    pub fn begin(&self, id: &str, session: &SessionId) -> Result<()> {
        let marker = serde_json::json!({ "session": session, "began": now() });
        self.replace_at(&self.marker(id), marker.to_string().as_bytes())
    }

    /// Writes a task's patch; its name relative to the directory.
    pub fn write_patch(&self, id: &str, patch: &[u8]) -> Result<String> {
        let name = format!("patches/{id}.patch");
        self.replace(&name, patch)?;
        Ok(name)
    }

    /// Replaces a file of the directory, as a whole or not at all.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<()> {
        self.replace_at(&self.directory.join(name), content)
    }

    fn replace_at(&self, path: &Path, content: &[u8]) -> Result<()> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        fs::write(&new, content).and_then(|()| fs::rename(&new, path)).map_err(|error| {
            let _ = fs::remove_file(&new);
            Error::unexpected(format!("{} could not be written", path.display())).caused_by(error)
        })
    }

    fn marker(&self, id: &str) -> PathBuf {
        self.directory.join("running").join(format!("{id}.json"))
    }

    fn manifest(&self) -> Result<Option<Manifest>> {
        read_manifest(&self.directory)
    }

    /// Refuses tasks that are not those of the results.
    fn compare(&self, tasks: &[Task]) -> Result<()> {
        let tasks: BTreeMap<&str, String> =
            tasks.iter().map(|task| (task.id.as_str(), task.digest())).collect();
        let results = self.results.lock();
        let differs = |result: &&TaskResult| tasks.get(result.id.as_str()) != Some(&result.digest);
        let changed: Vec<&str> =
            results.done.values().filter(differs).map(|result| result.id.as_str()).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let some = changed[..changed.len().min(5)].join(", ");
        Err(Error::usage(format!(
            "{} task(s) with a result in {} were changed or removed since: {some}",
            changed.len(),
            self.directory.display()
        ))
        .hint("name another directory with --out, or restore the tasks; others may be added"))
    }

    /// Removes what tasks left that were running when their process was killed. They begin again.
    fn clean_up(&self, sessions: &Store) {
        for (id, marker) in markers(&self.directory) {
            if !self.is_done(&id) {
                // Its result will be that of another session. Where it cannot be removed it is merely listed.
                let _ = SessionId::parse(&marker.session).and_then(|session| sessions.remove(&session));
            }
            let _ = fs::remove_file(self.marker(&id));
        }
        for entry in fs::read_dir(self.directory.join("workspaces")).into_iter().flatten().flatten() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Results {
    fn open(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| {
            Error::unexpected(format!("{} could not be opened", path.display())).caused_by(error)
        };
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
        let (done, bytes) = read_results(path)?;
        // A line that was cut off: its task is not done.
        file.set_len(bytes).map_err(failed)?;
        let summary = Summary::of(0, done.values());
        Ok(Self { file, bytes, done, summary })
    }

    /// Appends the results up to the first that cannot be written.
    fn append(&mut self, results: &[TaskResult]) -> io::Result<()> {
        let (mut bytes, mut lines, mut failure) = (self.bytes, 0, Ok(()));
        for result in results {
            match self.append_line(result) {
                Ok(length) => (bytes, lines) = (bytes + length, lines + 1),
                Err(error) => {
                    // If this fails too, the next process drops what is there of the line.
                    let _ = self.file.set_len(bytes);
                    failure = Err(error);
                    break;
                }
            }
        }
        if let Err(error) = self.file.sync_data() {
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes = bytes;
        for result in &results[..lines] {
            self.summary.add(result);
            self.done.insert(result.id.clone(), result.clone());
        }
        failure
    }

    fn append_line(&mut self, result: &TaskResult) -> io::Result<u64> {
        let mut line = json::to_vec(result).map_err(io::Error::other)?;
        if line.len() >= MAX_LINE {
            return Err(io::Error::other("the line is too long"));
        }
        line.push(b'\n');
        self.file.write_all(&line)?;
        Ok(line.len() as u64)
    }
}

/// The results in `path`, and the length of the file without a line that was cut off.
pub(super) fn read_results(path: &Path) -> Result<(BTreeMap<String, TaskResult>, u64)> {
    let bytes = match plain_file::read(path, MAX_RESULTS, Links::Refuse) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::usage(format!("{} cannot be read", path.display())).caused_by(error)),
    };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut done = BTreeMap::new();
    for (number, line) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
        let result: TaskResult = serde_json::from_slice(line).map_err(|error| {
            let place = format!("{}, line {}", path.display(), number + 1);
            Error::usage(format!("{place} is not the result of a task"))
                .caused_by(error)
                .hint("remove that line: its task runs again")
        })?;
        done.insert(result.id.clone(), result);
    }
    Ok((done, whole as u64))
}

pub(super) fn read_manifest(directory: &Path) -> Result<Option<Manifest>> {
    let path = directory.join(MANIFEST);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| Error::usage(format!("{} is damaged", path.display())).caused_by(error)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Error::usage(format!("{} cannot be read", path.display())).caused_by(error)),
    }
}

pub(super) fn results_path(directory: &Path) -> PathBuf {
    directory.join(RESULTS)
}

/// The tasks that have begun.
pub(super) fn markers(directory: &Path) -> Vec<(String, Marker)> {
    let entries = fs::read_dir(directory.join("running")).into_iter().flatten().flatten();
    let read = |path: PathBuf| {
        let id = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
        Some((id, serde_json::from_slice(&fs::read(&path).ok()?).ok()?))
    };
    entries.filter_map(|entry| read(entry.path())).collect()
}

/// Locks the directory, also against a process that is just being killed.
fn lock(directory: &Path) -> Result<File> {
    let path = directory.join("lock");
    let file = File::create(&path)?;
    for attempt in 0.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if attempt < 20 => std::thread::sleep(Duration::from_millis(50)),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::usage(format!(
                    "another process runs the batch in {}",
                    directory.display()
                ))
                .hint("`agent batch status` shows it"));
            }
            Err(TryLockError::Error(error)) => {
                return Err(
                    Error::unexpected(format!("{} could not be locked", path.display())).caused_by(error)
                );
            }
        }
    }
    Ok(file)
}

/// Whether a process runs the batch.
pub(super) fn is_running(directory: &Path) -> bool {
    File::open(directory.join("lock")).is_ok_and(|file| match file.try_lock_shared() {
        Ok(()) => file.unlock().is_err(),
        Err(error) => matches!(error, TryLockError::WouldBlock),
    })
}
