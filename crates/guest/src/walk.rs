//! Listing and hashing a tree, a slice of time at a time, so that the event loop is not held up.

use crate::client::{Client, Failure};
use crate::files;
use agent_wire::sha256::Sha256;
use agent_wire::{Entry, EntryKind, FRAME_COST, Message, WINDOW, WalkEnd, cost, entry_cost};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, FileType, Metadata, ReadDir};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How long one step works.
const SLICE: Duration = Duration::from_millis(4);
/// Entries are sent when they cost this much, well below the frame limit and the window.
const BATCH: u32 = 64 << 10;
/// A message is sent at least this often.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A file that changed less than this ago may change again within the same timestamp: it is not remembered.
const SETTLED: Duration = Duration::from_millis(50);
/// More files than this are not remembered (about 20 MB).
const REMEMBERED: usize = 200_000;

/// Hashes of files that have not changed since.
#[derive(Default)]
pub struct Hashes(HashMap<(u64, u64), (Stamp, [u8; 32])>);

/// The stamp that changes when a file changes. A write cannot leave the ctime as it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.len(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (seconds, nanoseconds) = self.ctime;
        let changed =
            Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
        now.saturating_sub(changed) > SETTLED
    }
}

impl Hashes {
    pub fn get(&self, metadata: &Metadata) -> Option<[u8; 32]> {
        let (stamp, hash) = self.0.get(&(metadata.dev(), metadata.ino()))?;
        (*stamp == Stamp::of(metadata)).then_some(*hash)
    }

    /// `metadata` is from before the file was read, and `after` from after it.
    pub fn put(&mut self, metadata: &Metadata, after: &Metadata, hash: [u8; 32]) {
        let stamp = Stamp::of(metadata);
        if stamp == Stamp::of(after) && stamp.settled() {
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
            self.0.insert((metadata.dev(), metadata.ino()), (stamp, hash));
        }
    }
}

/// The state of a tree that a walk has seen, so that a later one lists only what has changed.
pub struct Snapshot {
    generation: u64,
    root: PathBuf,
    hash: bool,
    exclude: HashSet<PathBuf>,
    depth: u32,
    /// A digest of each entry's metadata; 0 where it may change again within the same timestamp.
    entries: HashMap<PathBuf, u64>,
}

/// The last walk that is remembered.
#[derive(Default)]
pub struct Snapshots {
    pub last: Option<Snapshot>,
    generation: u64,
}

impl Snapshots {
    /// Remembers what a walk has seen; its generation, or 0 where that is too much.
    fn keep(&mut self, walk: &Walk, entries: HashMap<PathBuf, u64>) -> u64 {
        if entries.len() > REMEMBERED {
            return 0;
        }
        self.generation += 1;
        let Walk { root, hash, exclude, depth, .. } = walk;
        self.last = Some(Snapshot {
            generation: self.generation,
            root: root.clone(),
            hash: *hash,
            exclude: exclude.clone(),
            depth: *depth,
            entries,
        });
        self.generation
    }
}

/// The request for a list.
pub struct Request {
    pub root: PathBuf,
    pub hash: bool,
    pub exclude: HashSet<PathBuf>,
    pub max_entries: u64,
    pub since: Option<u64>,
    /// 1 is the directory's own entries, 0 the whole tree.
    pub depth: u32,
}

fn digest(metadata: &Metadata) -> u64 {
    let stamp = Stamp::of(metadata);
    if !stamp.settled() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (stamp, metadata.mode(), metadata.dev(), metadata.ino()).hash(&mut hasher);
    hasher.finish().max(1)
}

/// An entry whose path is longer than the kernel takes: of it only its kind is known.
fn beyond_reach(path: PathBuf, kind: FileType) -> Entry {
    let kind = match kind {
        kind if kind.is_file() => EntryKind::File,
        kind if kind.is_dir() => EntryKind::Directory,
        _ => EntryKind::Other,
    };
    Entry { path, kind, mode: 0, size: 0, mtime_ns: 0, ctime_ns: 0, hash: None, readable: false }
}

/// A walk under way. Directories are listed one after the other, so only one is open at a time.
pub struct Walk {
    root: PathBuf,
    hash: bool,
    exclude: HashSet<PathBuf>,
    depth: u32,
    entries_left: u64,
    /// Paths that an earlier walk has seen and this one has not seen yet.
    before: HashMap<PathBuf, u64>,
    /// Paths that this one has seen, where they are to be remembered.
    seen: Option<HashMap<PathBuf, u64>>,
    complete: bool,
    /// Relative paths of directories still to be listed.
    directories: Vec<PathBuf>,
    listing: Option<(PathBuf, ReadDir)>,
    hashing: Option<Hashing>,
    batch: Vec<Entry>,
    batch_cost: u32,
    sent: Instant,
    pub credit: u32,
}

struct Hashing {
    file: File,
    metadata: Metadata,
    hash: Sha256,
    entry: Entry,
}

impl Walk {
    /// `snapshot` is taken where it is what the walk's `since` means.
    pub fn start(request: Request, snapshot: &mut Option<Snapshot>) -> Result<Self, Failure> {
        let Request { root, hash, exclude, max_entries, since, depth } = request;
        let listing = fs::read_dir(&root).map_err(|error| Failure::io(root.display(), &error))?;
        let known = snapshot.take_if(|s| {
            since == Some(s.generation)
                && (&s.root, s.hash, &s.exclude, s.depth) == (&root, hash, &exclude, depth)
        });
        Ok(Self {
            root,
            hash,
            exclude,
            depth,
            entries_left: max_entries,
            complete: known.is_none(),
            before: known.map(|snapshot| snapshot.entries).unwrap_or_default(),
            seen: since.map(|_| HashMap::new()),
            directories: Vec::new(),
            listing: Some((PathBuf::new(), listing)),
            hashing: None,
            batch: Vec::new(),
            batch_cost: FRAME_COST,
            sent: Instant::now(),
            credit: WINDOW,
        })
    }

    pub fn runnable(&self, client: &Client) -> bool {
        // Enough for the batch and the entry after it; names are at most 4 KiB, targets too.
        self.credit >= 2 * BATCH && !client.congested()
    }

    /// Works for a slice of time. `true` when the stream has ended.
    pub fn step(
        &mut self,
        id: u32,
        client: &mut Client,
        hashes: &mut Hashes,
        snapshots: &mut Snapshots,
        buffer: &mut [u8],
    ) -> bool {
        let end = Instant::now() + SLICE;
        while Instant::now() < end && self.batch_cost < BATCH {
            match self.advance(hashes, buffer) {
                Ok(true) => {}
                Ok(false) => return self.finish(id, client, snapshots),
                Err(failure) => {
                    client.fail(id, &failure);
                    return true;
                }
            }
        }
        if self.batch_cost >= BATCH || self.sent.elapsed() > HEARTBEAT {
            self.send(id, client, Vec::new(), None);
        }
        false
    }

    /// Lists what is not there any more, and remembers what is. `true` when all has been sent.
    fn finish(&mut self, id: u32, client: &mut Client, snapshots: &mut Snapshots) -> bool {
        let mut removed = Vec::new();
        while self.batch_cost < BATCH
            && let Some(path) = self.before.keys().next().cloned()
        {
            self.before.remove(&path);
            self.batch_cost += cost(path.as_os_str().len());
            removed.push(path);
        }
        let end = self.before.is_empty().then(|| WalkEnd {
            generation: self.seen.take().map_or(0, |entries| snapshots.keep(self, entries)),
            complete: self.complete,
        });
        self.send(id, client, removed, end);
        end.is_some()
    }

    fn send(&mut self, id: u32, client: &mut Client, removed: Vec<PathBuf>, last: Option<WalkEnd>) {
        client.send(id, &Message::Entries { entries: std::mem::take(&mut self.batch), removed, last });
        self.credit -= self.batch_cost;
        self.batch_cost = FRAME_COST;
        self.sent = Instant::now();
    }

    /// One entry, one directory opened, or one piece of a file hashed. `false` when there is nothing left.
    fn advance(&mut self, hashes: &mut Hashes, buffer: &mut [u8]) -> Result<bool, Failure> {
        if let Some(hashing) = &mut self.hashing {
            if let Some(entry) = hashing.advance(hashes, buffer) {
                self.hashing = None;
                self.found(entry);
            }
            return Ok(true);
        }
        if let Some((directory, listing)) = &mut self.listing {
            match listing.next() {
                Some(Ok(item)) => {
                    let path = directory.join(item.file_name());
                    match (item.metadata(), item.file_type()) {
                        // musl's standard library asks by the whole path, glibc's through the open directory.
                        (Err(error), Ok(kind)) if error.kind() == io::ErrorKind::InvalidFilename => {
                            self.count()?;
                            self.found(beyond_reach(path, kind));
                        }
                        (metadata, _) => self.visit(path, metadata, hashes)?,
                    }
                }
                Some(Err(error)) => {
                    let path = self.root.join(&*directory);
                    return Err(Failure::io(path.display(), &error));
                }
                None => self.listing = None,
            }
            return Ok(true);
        }
        let Some(directory) = self.directories.pop() else { return Ok(false) };
        // It was listable when it was visited; it may be gone by now.
        self.listing = fs::read_dir(self.root.join(&directory)).ok().map(|listing| (directory, listing));
        Ok(true)
    }

    fn visit(
        &mut self,
        path: PathBuf,
        metadata: io::Result<Metadata>,
        hashes: &Hashes,
    ) -> Result<(), Failure> {
        let full = self.root.join(&path);
        let metadata = match metadata {
            Ok(metadata) => metadata,
            // Gone since its directory was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Failure::io(full.display(), &error)),
        };
        self.count()?;
        let unchanged = self.is_unchanged(&path, &metadata);
        if unchanged && !metadata.is_dir() {
            return Ok(());
        }
        let mut entry = files::entry(&full, path.clone(), &metadata);
        match entry.kind {
            EntryKind::Directory if self.exclude.contains(&path) || self.is_deepest(&path) => {}
            EntryKind::Directory => {
                entry.readable = fs::read_dir(&full).is_ok();
                if entry.readable {
                    self.directories.push(path);
                }
            }
            EntryKind::File if self.hash => match hashes.get(&metadata) {
                Some(hash) => entry.hash = Some(hash),
                None => match files::open_regular(&full) {
                    Ok((file, metadata)) => {
                        self.hashing = Some(Hashing { file, metadata, hash: Sha256::new(), entry });
                        return Ok(());
                    }
                    Err(_) => entry.readable = false,
                },
            },
            _ => {}
        }
        if !unchanged {
            self.found(entry);
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), Failure> {
        self.entries_left = self.entries_left.checked_sub(1).ok_or_else(|| {
            Failure::new(format!("{} holds more entries than the limit", self.root.display()))
        })?;
        Ok(())
    }

    /// Returns whether what is below `path` is deeper than asked for.
    fn is_deepest(&self, path: &Path) -> bool {
        self.depth != 0 && path.components().count() >= self.depth as usize
    }

    /// Returns whether the earlier walk has seen the same. Remembers it for a later one.
    fn is_unchanged(&mut self, path: &Path, metadata: &Metadata) -> bool {
        let before = self.before.remove(path);
        let Some(seen) = &mut self.seen else { return false };
        let digest = digest(metadata);
        seen.insert(path.to_owned(), digest);
        digest != 0 && before == Some(digest)
    }

    fn found(&mut self, entry: Entry) {
        self.batch_cost += entry_cost(&entry);
        self.batch.push(entry);
    }
}

impl Hashing {
    /// Hashes the next piece; the entry when it was the last.
    fn advance(&mut self, hashes: &mut Hashes, buffer: &mut [u8]) -> Option<Entry> {
        match self.file.read(buffer) {
            Ok(0) => {
                let hash = std::mem::replace(&mut self.hash, Sha256::new()).finish();
                if let Ok(after) = self.file.metadata() {
                    hashes.put(&self.metadata, &after, hash);
                }
                self.entry.hash = Some(hash);
            }
            Ok(length) => {
                self.hash.update(&buffer[..length]);
                return None;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return None,
            Err(_) => self.entry.readable = false,
        }
        Some(self.entry.clone())
    }
}
