//! The directory of a batch: what makes it safe to kill it at any moment.
//!
//! ```text
//! OUT/batch.json         the tasks and their digests, replaced as a whole
//!     results.jsonl      one line a task that is done, appended and synced; the only thing that decides whether a task is done
//!     patches/ID.patch   synced and renamed into place before the line is written
//!     running/ID.json    a task that has begun: its session, which is removed if the batch is killed before the line
//!     running/ID.patch   what it has changed, until it is known whether that is its result
//!     spent.json         what all attempts have cost, also those that have no result
//!     workspaces/ID/     the files of a task that is running, where they are not a directory of the user's
//!     repositories/      one bare clone for each repository
//!     lock               held by the running process
//! ```

use super::result::{Summary, TaskResult};
use super::task::Task;
use super::task_file::TaskFile;
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};
use agent_base::file_lock::{Attempt, FileLock};
use agent_base::lock::Lock;
use agent_base::paths::{make_dir, make_dir_of_unrelated};
use agent_base::plain_file::{self, Durability, Links};
use agent_event::{json, now};
use agent_log::{SessionId, Store};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest result line, in bytes.
const MAX_LINE: usize = 32 << 20;
/// The largest file of results, in bytes.
const MAX_RESULTS: u64 = 16 << 30;
const MANIFEST: &str = "batch.json";
const RESULTS: &str = "results.jsonl";
const SPENT: &str = "spent.json";
const LOCK: &str = "lock";
const DIRECTORIES: [&str; 4] = ["patches", "running", "workspaces", "repositories"];

/// The output directory of a batch, locked for this process.
pub struct Output {
    directory: PathBuf,
    results: Lock<Results>,
    spent: Lock<f64>,
    /// Results that failed and are forgotten, so that their tasks run again.
    forgotten: usize,
    _lock: FileLock,
}

struct Results {
    file: File,
    /// The length without a line that could not be written as a whole.
    bytes: u64,
    done: BTreeMap<String, TaskResult>,
    /// Of those that are done.
    summary: Summary,
}

/// The content of `batch.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub version: u32,
    /// The file that the tasks were read from.
    pub source: PathBuf,
    /// RFC 3339.
    pub began: String,
    /// Digests by id.
    pub tasks: BTreeMap<String, String>,
}

/// The content of `spent.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Expenses {
    cost: f64,
}

/// A task that has begun.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Marker {
    pub session: String,
    pub began: String,
}

impl Output {
    /// Opens `directory` for `file`, new or to continue, and cleans up after a process that was killed. With `again` the
    /// results that failed are forgotten.
    ///
    /// # Errors
    /// Another process runs this batch; a task that has a result was changed or removed; the directory is not of a batch.
    pub fn open(directory: &Path, file: &TaskFile, sessions: &Store, again: bool) -> Result<Self> {
        refuse_foreign(directory)?;
        make_dir(directory)?;
        let directory = directory.canonicalize()?;
        let lock = lock(&directory)?;
        for name in DIRECTORIES {
            make_dir_of_unrelated(&directory.join(name))?;
        }
        let results = Results::open(&directory.join(RESULTS))?;
        let spent = read_spent(&directory)?.max(results.summary.cost.unwrap_or_default());
        let mut output =
            Self { directory, results: Lock::new(results), spent: Lock::new(0.0), forgotten: 0, _lock: lock };
        output.compare(&file.tasks, again)?;
        output.spend(spent)?;
        if again {
            output.forgotten = output.forget_failed()?;
        }
        let began = output.manifest()?.map_or_else(now, |manifest| manifest.began);
        let tasks = file.tasks.iter().map(|task| (task.id.clone(), task.digest())).collect();
        let manifest = Manifest { version: 1, source: file.path.clone(), began, tasks };
        output.replace(MANIFEST, &serde_json::to_vec_pretty(&manifest)?)?;
        // The names of the files in it: a result that is synced is of no use in a file that has none.
        plain_file::sync_directory(&output.directory).map_err(|error| {
            Error::unexpected(format!("{} could not be synced", output.directory.display())).caused_by(error)
        })?;
        // Its own name too, where the directory above may be read.
        let _ = output.directory.parent().map(plain_file::sync_directory);
        output.clean_up(sessions);
        Ok(output)
    }

    /// The directory, absolute.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns what has a result.
    pub fn done(&self) -> BTreeMap<String, TaskResult> {
        self.results.lock().done.clone()
    }

    /// Returns whether the task has a result.
    pub fn is_done(&self, id: &str) -> bool {
        self.results.lock().done.contains_key(id)
    }

    /// The numbers so far, of `tasks` tasks.
    pub fn summary(&self, tasks: usize) -> Summary {
        Summary { tasks, ..self.results.lock().summary }
    }

    /// Returns the number of results that failed and were forgotten.
    pub fn forgotten(&self) -> usize {
        self.forgotten
    }

    /// Returns what all attempts of all runs have cost, so far as it was noted.
    pub fn spent(&self) -> f64 {
        *self.spent.lock()
    }

    /// Notes what all attempts have cost.
    pub fn spend(&self, cost: f64) -> Result<()> {
        let mut noted = self.spent.lock();
        if cost > *noted {
            let expenses = serde_json::to_vec(&Expenses { cost })?;
            self.replace_at(&self.directory.join(SPENT), &expenses, Durability::Synced)?;
            *noted = cost;
        }
        Ok(())
    }

    fn forget_failed(&self) -> Result<usize> {
        let mut results = self.results.lock();
        let (kept, failed): (Vec<&TaskResult>, Vec<&TaskResult>) =
            results.done.values().partition(|result| result.passed());
        let forgotten = failed.len();
        if forgotten > 0 {
            let mut lines = Vec::new();
            for result in kept {
                lines.extend(json::to_vec(result)?);
                lines.push(b'\n');
            }
            self.replace_at(&self.directory.join(RESULTS), &lines, Durability::Synced)?;
            *results = Results::open(&self.directory.join(RESULTS))?;
        }
        Ok(forgotten)
    }

    /// Writes the results of tasks, with one sync for all: from here on they are done. Their patches are put in place.
    ///
    /// # Errors
    /// Not all of them could be written.
    pub fn record(&self, results: &[TaskResult]) -> Result<()> {
        let failed = |error: io::Error| {
            Error::unexpected("the results could not be written")
                .caused_by(error)
                .hint("free disk space and run the same command again: what has no result continues")
        };
        self.place_patches(results).map_err(failed)?;
        let mut file = self.results.lock();
        let written = file.append(results).map_err(failed);
        for result in results.iter().filter(|result| file.done.contains_key(&result.id)) {
            // A marker that is left is removed by the next process.
            let _ = fs::remove_file(self.marker(&result.id));
        }
        written
    }

    /// Puts the patches of these results in place, and removes those of earlier attempts.
    fn place_patches(&self, results: &[TaskResult]) -> io::Result<()> {
        for result in results {
            let place = self.directory.join(self.patch_name(&result.id));
            match result.patch {
                Some(_) => fs::rename(self.staged_patch(&result.id), place)?,
                None => {
                    remove_if_there(&place)?;
                    remove_if_there(&self.staged_patch(&result.id))?;
                }
            }
        }
        match results.iter().any(|result| result.patch.is_some()) {
            true => plain_file::sync_directory(&self.directory.join("patches")),
            false => Ok(()),
        }
    }

    /// Notes that a task has begun, in this session.
    pub fn begin(&self, id: &str, session: &SessionId) -> Result<()> {
        let marker = serde_json::json!({ "session": session, "began": now() });
        self.replace_at(&self.marker(id), marker.to_string().as_bytes(), Durability::Renamed)
    }

    /// A task's patch, relative to the directory.
    pub fn patch_name(&self, id: &str) -> String {
        format!("patches/{id}.patch")
    }

    /// Returns the path of a task's patch before it is known whether the attempt is the task's result.
    pub fn staged_patch(&self, id: &str) -> PathBuf {
        self.directory.join("running").join(format!("{id}.patch"))
    }

    /// Replaces a file of the directory, as a whole or not at all.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<()> {
        self.replace_at(&self.directory.join(name), content, Durability::Renamed)
    }

    fn replace_at(&self, path: &Path, content: &[u8], durability: Durability) -> Result<()> {
        plain_file::replace(path, content, durability).map_err(|error| {
            Error::unexpected(format!("{} could not be written", path.display())).caused_by(error)
        })
    }

    fn marker(&self, id: &str) -> PathBuf {
        self.directory.join("running").join(format!("{id}.json"))
    }

    fn manifest(&self) -> Result<Option<Manifest>> {
        read_manifest(&self.directory)
    }

    /// Refuses tasks that are not those of the results. With `again` those that failed may have changed: they run again.
    fn compare(&self, tasks: &[Task], again: bool) -> Result<()> {
        let tasks: BTreeMap<&str, String> =
            tasks.iter().map(|task| (task.id.as_str(), task.digest())).collect();
        let results = self.results.lock();
        let differs = |result: &&TaskResult| tasks.get(result.id.as_str()) != Some(&result.digest);
        let counts = |result: &&TaskResult| !again || result.passed();
        let changed: Vec<&str> =
            results.done.values().filter(counts).filter(differs).map(|result| result.id.as_str()).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let some = changed[..changed.len().min(5)].join(", ");
        Err(Error::usage(format!(
            "{} with a result in {}, changed or removed since: {some}",
            counted(changed.len(), "task"),
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
        }
        let entries = |name| fs::read_dir(self.directory.join(name)).into_iter().flatten().flatten();
        // What cannot be removed is replaced, or removed the next time.
        entries("running").for_each(|entry| drop(fs::remove_file(entry.path())));
        entries("workspaces").for_each(|entry| drop(fs::remove_dir_all(entry.path())));
        let results = self.results.lock();
        let is_of_result = |name: &str| {
            let id = name.strip_suffix(".patch");
            id.and_then(|id| results.done.get(id)).is_some_and(|result| result.patch.is_some())
        };
        for entry in entries("patches").filter(|entry| !entry.file_name().to_str().is_some_and(is_of_result))
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A file that is not there is as good as removed.
fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a directory that something else than a batch has files in: some of what is in a batch's is removed when it continues.
fn refuse_foreign(directory: &Path) -> Result<()> {
    if read_manifest(directory)?.is_some() {
        return Ok(());
    }
    // A process that was killed at its very beginning has left nothing but empty files and directories of these names.
    let is_ours = |entry: &fs::DirEntry| {
        let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else { return false };
        let is = |known: &str| name.to_str() == Some(known);
        if kind.is_dir() {
            let mut inside = fs::read_dir(entry.path()).into_iter().flatten();
            return DIRECTORIES.iter().any(|known| is(known)) && inside.next().is_none();
        }
        let is_empty = kind.is_file() && entry.metadata().is_ok_and(|metadata| metadata.len() == 0);
        is_empty && (is(LOCK) || is(RESULTS))
            || is("batch.json.new")
            || is("spent.json")
            || is("spent.json.new")
    };
    let has_others = match fs::read_dir(directory) {
        Ok(mut entries) => entries.any(|entry| !entry.is_ok_and(|entry| is_ours(&entry))),
        Err(error) => error.kind() != ErrorKind::NotFound,
    };
    match has_others {
        true => Err(Error::usage(format!("{} is not empty, and not of a batch", directory.display()))
            .hint("name a new directory with --out")),
        false => Ok(()),
    }
}

/// Returns what was noted; nothing in the directory of an earlier version.
fn read_spent(directory: &Path) -> Result<f64> {
    let path = directory.join(SPENT);
    match plain_file::read(&path, 1 << 10, Links::Refuse) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(|Expenses { cost }| cost).map_err(|error| {
            Error::usage(format!("{} is damaged", path.display()))
                .caused_by(error)
                .hint("remove it: then only what has a result counts for --max-cost")
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0.0),
        Err(error) => Err(Error::usage(format!("{} cannot be read", path.display())).caused_by(error)),
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
fn lock(directory: &Path) -> Result<FileLock> {
    let path = directory.join(LOCK);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
    let running = || Error::usage(format!("another process runs the batch in {}", directory.display()));
    for attempt in 0.. {
        match FileLock::attempt(&file, &path) {
            Ok(Attempt::Locked(lock)) => return Ok(lock),
            Ok(Attempt::Taken) if attempt < 20 => std::thread::sleep(Duration::from_millis(50)),
            Ok(Attempt::Taken) => return Err(running().hint("`agent batch status` shows it")),
            Ok(Attempt::TakenElsewhere(marker)) => {
                return Err(running().hint(format!(
                    "it is one of another machine; if it does not run any more, remove {}",
                    marker.display()
                )));
            }
            Err(error) => {
                return Err(
                    Error::unexpected(format!("{} could not be locked", path.display())).caused_by(error)
                );
            }
        }
    }
    Err(running())
}

/// Returns whether a process runs the batch.
pub(super) fn is_running(directory: &Path) -> bool {
    FileLock::is_taken(&directory.join(LOCK))
}
