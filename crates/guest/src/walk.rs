//! Listing and hashing a tree, a slice of time at a time, so that the event loop is not held up.

use crate::client::{Client, Failure};
use crate::directory::{Directory, Names, Stat};
use crate::files;
use agent_wire::sha256::Sha256;
use agent_wire::{Entry, EntryKind, FRAME_COST, Message, WINDOW, WalkEnd, cost, entry_cost};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The time that one step works.
const SLICE: Duration = Duration::from_millis(4);
/// Entries are sent when they cost this much, well below the frame limit and the window.
const BATCH: u32 = 64 << 10;
/// A message is sent at least this often.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A file that changed less than this ago may change again within the same timestamp: it is not remembered.
const SETTLED: Duration = Duration::from_millis(50);
/// More files than this are not remembered (about 20 MB).
const REMEMBERED: usize = 200_000;

/// Hashes of files that have not changed since. A write cannot leave the change time as it was.
#[derive(Default)]
pub struct Hashes(HashMap<(u64, u64), (Stat, [u8; 32])>);

/// Returns whether a file cannot change any more without another change time.
fn is_settled(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, nanoseconds) = stat.ctime;
    let changed = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
    now.saturating_sub(changed) > SETTLED
}

impl Hashes {
    pub fn get(&self, file: &Stat) -> Option<[u8; 32]> {
        let (stat, hash) = self.0.get(&(file.device, file.inode))?;
        (stat == file).then_some(*hash)
    }

    /// `file` is from before it was read, and `after` from after that.
    pub fn put(&mut self, file: &Stat, after: &Stat, hash: [u8; 32]) {
        if file == after && is_settled(file) {
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
            self.0.insert((file.device, file.inode), (*file, hash));
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

fn digest(stat: &Stat) -> u64 {
    if !is_settled(stat) {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    stat.hash(&mut hasher);
    hasher.finish().max(1)
}

/// A walk under way. Directories are listed one after the other, so only the root and one other are open at a time.
pub struct Walk {
    root: PathBuf,
    top: Directory,
    hash: bool,
    exclude: HashSet<PathBuf>,
    depth: u32,
    entries_left: u64,
    /// Paths that an earlier walk has seen and this one has not seen yet.
    before: HashMap<PathBuf, u64>,
    /// Paths that this one has seen, where they are to be remembered.
    seen: Option<HashMap<PathBuf, u64>>,
    complete: bool,
    /// Directories still to be listed, which are sent then.
    directories: Vec<UnlistedDirectory>,
    /// The directory that is being listed; it is the root where none is open.
    listing: Option<(PathBuf, Option<Directory>)>,
    names: Names,
    hashing: Option<Hashing>,
    batch: Vec<Entry>,
    batch_cost: u32,
    sent: Instant,
    pub credit: u32,
}

/// A directory to be listed.
struct UnlistedDirectory {
    entry: Entry,
    /// Set if an earlier walk has seen the same.
    is_known: bool,
}

struct Hashing {
    file: File,
    stat: Stat,
    hash: Sha256,
    entry: Entry,
}

impl Walk {
    /// `snapshot` is taken where it is what the walk's `since` means.
    pub fn start(request: Request, snapshot: &mut Option<Snapshot>) -> Result<Self, Failure> {
        let Request { root, hash, exclude, max_entries, since, depth } = request;
        let top = Directory::open(&root).map_err(|error| Failure::io(root.display(), &error))?;
        let known = snapshot.take_if(|s| {
            since == Some(s.generation)
                && (&s.root, s.hash, &s.exclude, s.depth) == (&root, hash, &exclude, depth)
        });
        Ok(Self {
            root,
            top,
            hash,
            exclude,
            depth,
            entries_left: max_entries,
            complete: known.is_none(),
            before: known.map(|snapshot| snapshot.entries).unwrap_or_default(),
            seen: since.map(|_| HashMap::new()),
            directories: Vec::new(),
            listing: Some((PathBuf::new(), None)),
            names: Names::default(),
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
        if let Some((directory, open)) = &self.listing {
            let open = open.as_ref().unwrap_or(&self.top);
            match self.names.next(open) {
                Ok(Some((name, stat))) => {
                    let path = directory.join(name);
                    self.visit(path, stat, hashes)?;
                }
                Ok(None) => self.listing = None,
                Err(error) => {
                    let path = self.root.join(directory);
                    // Gone since it was opened, which the kernel says of its names too.
                    if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() {
                        self.listing = None;
                        return Ok(true);
                    }
                    return Err(Failure::io(path.display(), &error));
                }
            }
            return Ok(true);
        }
        let Some(UnlistedDirectory { mut entry, is_known }) = self.directories.pop() else {
            return Ok(false);
        };
        let open = self.top.below(&entry.path);
        match open.and_then(|open| self.names.begin(&open).map(|()| open)) {
            Ok(open) => self.listing = Some((entry.path.clone(), Some(open))),
            // Gone since its name was listed. In an overlay another one may have taken its place underneath while a process held it.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && self.root.join(&entry.path).symlink_metadata().is_err() =>
            {
                return Ok(true);
            }
            Err(_) => {
                entry.readable = false;
                // Sent at the next walk too: that it can be listed again may not show in its metadata.
                if let Some(seen) = &mut self.seen {
                    seen.insert(entry.path.clone(), 0);
                }
            }
        }
        if !is_known || !entry.readable {
            self.found(entry);
        }
        Ok(true)
    }

    fn visit(&mut self, path: PathBuf, stat: io::Result<Stat>, hashes: &Hashes) -> Result<(), Failure> {
        let full = self.root.join(&path);
        let stat = match stat {
            Ok(stat) => stat,
            // Gone since its directory was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A socket or pipe of a mounted directory, which gVisor does not show, or in a directory that may only be listed; or, in an
            // overlay, a directory that got its name underneath while a process held it under the former one.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::StaleNetworkFileHandle
                ) =>
            {
                Stat::default()
            }
            Err(error) => return Err(Failure::io(full.display(), &error)),
        };
        self.count()?;
        let is_known = self.is_unchanged(&path, &stat);
        if is_known && !stat.is_directory() {
            return Ok(());
        }
        let mut entry = files::entry(&full, path, &stat);
        match entry.kind {
            EntryKind::Directory if !self.exclude.contains(&entry.path) && !self.is_deepest(&entry.path) => {
                self.directories.push(UnlistedDirectory { entry, is_known });
                return Ok(());
            }
            EntryKind::File if self.hash => match hashes.get(&stat) {
                Some(hash) => entry.hash = Some(hash),
                None => match files::open_regular(&full) {
                    Ok((file, metadata)) => {
                        let stat = Stat::from(&metadata);
                        self.hashing = Some(Hashing { file, stat, hash: Sha256::new(), entry });
                        return Ok(());
                    }
                    Err(_) => entry.readable = false,
                },
            },
            _ => {}
        }
        if !is_known {
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
    fn is_unchanged(&mut self, path: &Path, stat: &Stat) -> bool {
        let before = self.before.remove(path);
        let Some(seen) = &mut self.seen else { return false };
        let digest = digest(stat);
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
                    hashes.put(&self.stat, &Stat::from(&after), hash);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk ended with an error where git had removed a directory of objects meanwhile.
    #[test]
    fn a_directory_that_is_removed_while_it_is_listed_has_no_entries() {
        let root = std::env::temp_dir().join(format!("agent-walk-{}", std::process::id()));
        std::fs::create_dir_all(root.join("gone")).expect("a directory");
        let exclude = HashSet::new();
        let request =
            Request { root: root.clone(), hash: false, exclude, max_entries: 9, since: None, depth: 0 };
        let mut walk = Walk::start(request, &mut None).expect("it begins");
        let is_open = |walk: &Walk| walk.listing.as_ref().is_some_and(|(path, _)| path == Path::new("gone"));
        while !is_open(&walk) {
            assert!(walk.advance(&mut Hashes::default(), &mut []).is_ok_and(|goes_on| goes_on));
        }
        std::fs::remove_dir_all(&root).expect("it is removed");
        while walk.advance(&mut Hashes::default(), &mut []).expect("no error") {}
        assert_eq!(walk.batch.len(), 1);
    }
}
