//! Watching directories: they are listed and compared, so that it works on every backend.

use super::connect::{Code, Events, Failure};
use super::filesystem::{failure, info};
use super::hosted::Hosted;
use super::metadata;
use super::secret::random_text;
use agent_base::lock::Lock;
use agent_envd::messages::Empty;
use agent_envd::messages::filesystem::{
    EntryInfo, EventType, FilesystemEvent, WatchEvent, WatchRequest, WatchResponse,
};
use agent_sandbox::{Entry, EntryKind};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The interval in which a watched directory is listed.
const INTERVAL: Duration = Duration::from_millis(200);
/// The number of listings without a change between two keepalives.
const KEEPALIVE: u32 = 150;
/// The most entries of a watched directory.
const MAX_ENTRIES: u64 = 20_000;
/// Watchers of one sandbox that are asked for their events.
const MAX_WATCHERS: usize = 64;

/// A watched directory as it was last seen.
pub struct Watch {
    root: PathBuf,
    depth: u32,
    include_entry: bool,
    seen: HashMap<PathBuf, Entry>,
}

impl Watch {
    /// Looks at the directory for the first time.
    ///
    /// # Errors
    /// It is not there, or holds too much.
    pub async fn begin(hosted: &Hosted, request: &WatchRequest) -> Result<Self, Failure> {
        let root = hosted.paths.resolve(&request.path);
        let depth = if request.recursive { u32::MAX } else { 1 };
        let mut watch = Self { root, depth, include_entry: request.include_entry, seen: HashMap::new() };
        watch.seen = watch.look(hosted).await?;
        Ok(watch)
    }

    async fn look(&self, hosted: &Hosted) -> Result<HashMap<PathBuf, Entry>, Failure> {
        let listed = hosted.sandbox.list_dir(&self.root, self.depth, MAX_ENTRIES).await;
        let entries = listed.map_err(|error| match error.known_errno() {
            Some(libc::ENOTDIR) => Failure::new(Code::InvalidArgument, "path is not a directory"),
            _ => failure(&error),
        })?;
        Ok(entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect())
    }

    /// Returns what has changed since the last time.
    ///
    /// # Errors
    /// The directory is gone, or holds too much.
    pub async fn events(&mut self, hosted: &Hosted) -> Result<Vec<FilesystemEvent>, Failure> {
        let now = self.look(hosted).await?;
        let event = |path: &PathBuf, kind: EventType, entry: Option<&Entry>| FilesystemEvent {
            name: path.to_string_lossy().into_owned(),
            kind: kind as i32,
            entry: entry
                .filter(|_| self.include_entry)
                .map(|entry| info(hosted, &self.root.join(path), entry)),
        };
        let removed = self.seen.keys().filter(|path| !now.contains_key(*path));
        let mut events: Vec<_> = removed.map(|path| event(path, EventType::Remove, None)).collect();
        for (path, entry) in &now {
            match self.seen.get(path) {
                None => {
                    events.push(event(path, EventType::Create, Some(entry)));
                    if entry.kind == EntryKind::File {
                        // Its mode, owner and times are set after it is made, which the kernel reports as this.
                        events.push(event(path, EventType::Chmod, Some(entry)));
                        events.extend((entry.size > 0).then(|| event(path, EventType::Write, Some(entry))));
                    }
                }
                Some(before) => {
                    let is_written = (before.size, before.mtime_ns) != (entry.size, entry.mtime_ns);
                    if entry.kind != EntryKind::Directory && is_written {
                        events.push(event(path, EventType::Write, Some(entry)));
                    }
                    if before.mode != entry.mode {
                        events.push(event(path, EventType::Chmod, Some(entry)));
                    }
                }
            }
        }
        let entries = events.iter_mut().filter_map(|event| {
            let path = self.root.join(&event.name);
            event.entry.as_mut().map(|entry| (path, entry))
        });
        let (paths, entries): (Vec<PathBuf>, Vec<&mut EntryInfo>) = entries.unzip();
        if !paths.is_empty() {
            let metadata = metadata::of(hosted, &paths).await?;
            entries.into_iter().zip(metadata).for_each(|(entry, metadata)| entry.metadata = metadata);
        }
        events.sort_by(|one, other| (&one.name, one.kind).cmp(&(&other.name, other.kind)));
        self.seen = now;
        Ok(events)
    }
}

/// A watched directory whose events are streamed.
pub struct Watching {
    hosted: Arc<Hosted>,
    watch: Watch,
    waiting: VecDeque<FilesystemEvent>,
    has_begun: bool,
}

impl Watching {
    /// Watches from now on.
    ///
    /// # Errors
    /// As [`Watch::begin`].
    pub async fn begin(hosted: &Arc<Hosted>, request: &WatchRequest) -> Result<Self, Failure> {
        let watch = Watch::begin(hosted, request).await?;
        Ok(Self { hosted: Arc::clone(hosted), watch, waiting: VecDeque::new(), has_begun: false })
    }
}

impl Events for Watching {
    type Message = WatchResponse;

    async fn next(&mut self) -> Result<Option<WatchResponse>, Failure> {
        let response = |event| Ok(Some(WatchResponse { event: Some(event) }));
        if !std::mem::replace(&mut self.has_begun, true) {
            return response(WatchEvent::Start(Empty {}));
        }
        for _ in 0..KEEPALIVE {
            if let Some(event) = self.waiting.pop_front() {
                return response(WatchEvent::Filesystem(event));
            }
            tokio::time::sleep(INTERVAL).await;
            // A paused sandbox does not answer, and nothing changes in it.
            if !self.hosted.life().is_paused {
                self.waiting.extend(self.watch.events(&self.hosted).await?);
            }
        }
        response(WatchEvent::Keepalive(Empty {}))
    }
}

/// Watched directories whose events are asked for.
#[derive(Default)]
pub struct Watches(Lock<BTreeMap<String, Arc<Mutex<Watch>>>>);

impl Watches {
    /// Adds one; its name.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&self, watch: Watch) -> Result<String, Failure> {
        let id = random_text::<16>().map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
        let mut watches = self.0.lock();
        if watches.len() >= MAX_WATCHERS {
            let text = format!("there are {MAX_WATCHERS} watchers already");
            return Err(Failure::new(Code::ResourceExhausted, text));
        }
        watches.insert(id.clone(), Arc::new(Mutex::new(watch)));
        Ok(id)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, id: &str) -> Result<Arc<Mutex<Watch>>, Failure> {
        let missing = || Failure::new(Code::NotFound, "there is no such watcher");
        self.0.lock().get(id).cloned().ok_or_else(missing)
    }

    /// Removes one.
    pub fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }
}
