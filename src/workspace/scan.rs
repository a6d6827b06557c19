//! Looks at the sandbox's tree: what differs from the base, with the contents brought into the store.
//!
//! Nothing that the guest says is believed: names go through [`TreePath`], contents are hashed here, and counts and
//! sizes are bounded. Files whose metadata did not change since the last look are not read again (the change time
//! cannot be set by programs inside).

use crate::error::{Error, Kind, Result};
use crate::sandbox::{Entry, EntryKind, Sandbox, WalkOptions};
use crate::workspace::base::Base;
use crate::workspace::changes::MAX_CHANGES;
use crate::workspace::fetch::{Fetched, fetch};
use crate::workspace::host_dir::HostDir;
use crate::workspace::ignored::{Ignored, MAX_RULES};
use crate::workspace::manifest::{Delta, Hash, Manifest, Node, Target};
use crate::workspace::select::{MAX_PATHS, Stamp};
use crate::workspace::store::Store;
use crate::workspace::tree_path::{MAX_PATH, TreePath, printable};
use futures_util::StreamExt;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Bytes that one look may bring out.
const MAX_BYTES: u64 = 2 << 30;
/// Files that are read at the same time.
const AT_ONCE: usize = 16;
/// A file that changed this shortly before a look may change again without another change time: clocks tick every
/// 10 ms at worst. It is read again at the next look.
const SETTLED: Duration = Duration::from_millis(20);
/// Most odd entries that are kept by name.
const MAX_ODD: usize = 1000;

/// What a look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// What differs from the base.
    pub delta: Delta,
    /// Entries that can never be taken over, with the reason. By a name that is safe to show.
    pub odd: BTreeMap<String, String>,
    /// Those of them whose names are at least paths: whatever is at or below them is not taken over.
    pub odd_paths: BTreeSet<TreePath>,
}

/// What is remembered from one look to the next.
#[derive(Default)]
pub struct Scanner {
    seen: HashMap<TreePath, Seen>,
    ignored: Ignored,
    /// The `.gitignore` files whose rules are in force, by content.
    rules: BTreeMap<TreePath, Hash>,
    /// Ignored directories: not even listed.
    skip: Vec<TreePath>,
}

#[derive(Clone)]
struct Seen {
    stamp: GuestStamp,
    node: Node,
    settled: bool,
}

/// What the guest says of a file. Compared, never believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GuestStamp {
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl From<&Entry> for GuestStamp {
    fn from(entry: &Entry) -> Self {
        Self { size: entry.size, mtime_ns: entry.mtime_ns, ctime_ns: entry.ctime_ns }
    }
}

impl GuestStamp {
    fn is_of(self, host: &Stamp) -> bool {
        self == Self { size: host.size, mtime_ns: host.mtime_ns, ctime_ns: host.ctime_ns }
    }

    fn is_settled(self, now_ns: i128) -> bool {
        i128::from(self.ctime_ns) + (SETTLED.as_nanos() as i128) < now_ns
    }
}

/// An entry whose content has to be read.
struct Wanted {
    path: TreePath,
    stamp: GuestStamp,
    mode: u32,
}

/// One look under way.
#[derive(Default)]
struct Look {
    now_ns: i128,
    /// Bytes that may still be brought out.
    budget: u64,
    present: HashMap<TreePath, Seen>,
    wanted: Vec<Wanted>,
    scan: Scan,
}

impl Look {
    /// Decides what is at a path, or that its content is wanted to decide it.
    fn judge(&mut self, path: &TreePath, entry: &Entry, base: &Base, seen: &HashMap<TreePath, Seen>) {
        let (stamp, mode) = (GuestStamp::from(entry), entry.mode & 0o777);
        let known = match &entry.kind {
            EntryKind::Directory => Some(Node::Directory { mode }),
            EntryKind::Symlink(target) => {
                Some(Node::Symlink { target: Target(target.as_os_str().as_bytes().to_owned()) })
            }
            _ => match seen.get(path) {
                Some(seen) if seen.stamp == stamp && seen.settled => Some(seen.node.clone().with_mode(mode)),
                // The very inode of the host, seen through an overlay.
                _ if base.stamps.get(path).is_some_and(|host| stamp.is_of(host)) => {
                    base.nodes.get(path).map(|node| node.clone().with_mode(mode))
                }
                _ => None,
            },
        };
        match known {
            Some(node) => self.note(path.clone(), stamp, node),
            None => self.wanted.push(Wanted { path: path.clone(), stamp, mode }),
        }
    }

    fn note(&mut self, path: TreePath, stamp: GuestStamp, node: Node) {
        self.present.insert(path, Seen { stamp, node, settled: stamp.is_settled(self.now_ns) });
    }

    /// Reads what is wanted.
    async fn fetch(&mut self, sandbox: &Sandbox, store: &Store) -> Result<()> {
        let wanted = std::mem::take(&mut self.wanted);
        if wanted.len() > MAX_CHANGES {
            return Err(Error::new(
                Kind::Limit,
                format!("the sandbox changed more than {MAX_CHANGES} files"),
            )
            .hint("leave what is generated out with .gitignore or --exclude"));
        }
        let mut reads = futures_util::stream::iter(wanted)
            .map(|wanted| async { (fetch(sandbox, store, &wanted.path).await, wanted) })
            .buffer_unordered(AT_ONCE);
        while let Some((result, Wanted { path, stamp, mode })) = reads.next().await {
            match result? {
                Fetched::Content(hash, size) => {
                    self.budget = self.budget.checked_sub(size).ok_or_else(too_much)?;
                    self.note(path, stamp, Node::File { hash, size, mode });
                }
                Fetched::Gone => {}
                Fetched::Odd(reason) => note_odd(&mut self.scan, path, reason),
            }
        }
        Ok(())
    }
}

/// Where the base and the contents are.
pub struct Places<'a> {
    /// The host's tree.
    pub root: &'a Path,
    /// The session's store.
    pub store: &'a Store,
}

impl Scanner {
    /// With the rules that hold for `root` from outside. Blocking.
    pub fn new(root: &Path) -> Self {
        Self { ignored: Ignored::outer(root), ..Self::default() }
    }

    /// Takes note of a sandbox that is known to hold `tree`, so that the first look need not read every file.
    ///
    /// With `hashed`, files whose hash is another one, in the guest's word, are left to the next look; without, a
    /// sandbox in which nothing has run yet is believed to hold what was written.
    pub async fn remember(&mut self, sandbox: &Sandbox, tree: &Manifest, hashed: bool) -> Result<()> {
        let now_ns = now_ns();
        for entry in walk(sandbox, &self.skip, hashed).await? {
            let Ok(path) = TreePath::new(entry.path.as_os_str().as_bytes()) else { continue };
            if let (EntryKind::File, Some(node @ Node::File { hash, .. })) = (&entry.kind, tree.get(&path))
                && (!hashed || entry.hash == Some(hash.0))
            {
                let stamp = GuestStamp::from(&entry);
                let node = node.clone().with_mode(entry.mode & 0o777);
                self.seen.insert(path, Seen { stamp, node, settled: stamp.is_settled(now_ns) });
            }
        }
        Ok(())
    }

    /// Looks. What differs is in the store afterwards, its former content too.
    pub async fn scan(&mut self, sandbox: &Sandbox, base: &mut Base, places: &Places<'_>) -> Result<Scan> {
        let mut look = Look { now_ns: now_ns(), budget: MAX_BYTES, ..Look::default() };
        let mut entries = sort_out(walk(sandbox, &self.skip, false).await?, &mut look.scan);
        for (path, entry) in entries.iter().filter(|(path, _)| path.name() == b".gitignore") {
            look.judge(path, entry, base, &self.seen);
        }
        look.fetch(sandbox, places.store).await?;
        self.take_rules(&look.present, base, places)?;

        self.skip.clear();
        entries.retain(|path, entry| !look.present.contains_key(path) && self.is_relevant(path, entry, base));
        for (path, entry) in &entries {
            look.judge(path, entry, base, &self.seen);
        }
        look.fetch(sandbox, places.store).await?;

        let Look { present, mut scan, .. } = look;
        scan.delta = delta(base, &present);
        settle(base, &mut scan.delta, places).await?;
        self.seen = present;
        Ok(scan)
    }

    /// Whether an entry takes part. Ignored ones do where the base has them, and all of git's own do.
    fn is_relevant(&mut self, path: &TreePath, entry: &Entry, base: &Base) -> bool {
        if base.nodes.contains_key(path) || path.names().any(|name| name == b".git") {
            return true;
        }
        let is_directory = matches!(entry.kind, EntryKind::Directory);
        let ignored = self.ignored.contains(path, is_directory);
        if ignored && is_directory && self.skip.last().is_none_or(|last| !path.is_within(last.as_bytes())) {
            self.skip.push(path.clone());
        }
        !ignored
    }

    /// Brings the rules in force up to date with the `.gitignore` files that are there.
    fn take_rules(
        &mut self,
        present: &HashMap<TreePath, Seen>,
        base: &Base,
        places: &Places<'_>,
    ) -> Result<()> {
        let files: BTreeMap<TreePath, Hash> = present
            .iter()
            .filter_map(|(path, seen)| match seen.node {
                Node::File { hash, .. } if path.name() == b".gitignore" => Some((path.clone(), hash)),
                _ => None,
            })
            .collect();
        for path in self.rules.keys().filter(|path| !files.contains_key(*path)) {
            self.ignored.unset(path.parent().as_ref());
        }
        let host = HostDir::open(places.root)?;
        for (path, hash) in &files {
            if self.rules.get(path) != Some(hash) || *hash == Hash::UNKNOWN {
                let text = if places.store.contains(*hash) {
                    places.store.read(*hash)?
                } else if base.nodes.contains_key(path) {
                    read_rules(&host, path)
                } else {
                    Vec::new()
                };
                self.ignored.set(path.parent().as_ref(), &text);
            }
        }
        self.rules = files;
        Ok(())
    }
}

/// The host's own rules; what cannot be read has none.
fn read_rules(host: &HostDir, path: &TreePath) -> Vec<u8> {
    use std::io::Read;
    let mut text = Vec::new();
    if let Ok(file) = host.open_file(path) {
        let _ = file.take(MAX_RULES as u64).read_to_end(&mut text);
    }
    text
}

async fn walk(sandbox: &Sandbox, skip: &[TreePath], hash: bool) -> Result<Vec<Entry>> {
    let options = WalkOptions {
        hash,
        exclude: skip.iter().map(|path| path.as_path().to_owned()).collect(),
        max_entries: MAX_PATHS as u64,
    };
    sandbox.walk(Path::new("."), options).await
}

/// Keeps what has a plain name and a known kind, by name.
fn sort_out(entries: Vec<Entry>, scan: &mut Scan) -> BTreeMap<TreePath, Entry> {
    let mut kept = BTreeMap::new();
    for entry in entries {
        let bytes = entry.path.as_os_str().as_bytes();
        let path = match TreePath::new(bytes) {
            Ok(path) => path,
            Err(reason) => {
                note_odd_name(scan, printable(&bytes[..bytes.len().min(MAX_PATH)]), reason.to_owned());
                continue;
            }
        };
        match &entry.kind {
            EntryKind::Other => note_odd(scan, path, "a device, FIFO or socket".into()),
            EntryKind::Symlink(target) if target.as_os_str().len() > MAX_PATH => {
                note_odd(scan, path, "a symlink with a target that is too long".into());
            }
            // Its files would look deleted.
            EntryKind::Directory if !entry.readable => {
                note_odd(scan, path, "a directory that cannot be listed".into())
            }
            _ if kept.contains_key(&path) => note_odd(scan, path, "the sandbox names it twice".into()),
            _ => {
                kept.insert(path, entry);
            }
        }
    }
    // Below something that is no directory there cannot be anything, whatever the guest says.
    let is_directory =
        |path: &TreePath| matches!(kept.get(path), Some(Entry { kind: EntryKind::Directory, .. }));
    let orphans: Vec<_> =
        kept.keys().filter(|path| path.parent().is_some_and(|p| !is_directory(&p))).cloned().collect();
    for path in orphans {
        kept.remove(&path);
        note_odd(scan, path, "it lies below what is no directory".into());
    }
    kept
}

fn note_odd(scan: &mut Scan, path: TreePath, reason: String) {
    note_odd_name(scan, path.to_string(), reason);
    if scan.odd_paths.len() < MAX_PATHS {
        scan.odd_paths.insert(path);
    }
}

fn note_odd_name(scan: &mut Scan, name: String, reason: String) {
    if scan.odd.len() < MAX_ODD {
        scan.odd.insert(name, reason);
    }
}

fn delta(base: &Base, present: &HashMap<TreePath, Seen>) -> Delta {
    let gone = base.nodes.keys().filter(|path| !present.contains_key(*path)).map(|path| (path.clone(), None));
    let differing = present.iter().filter(|(path, seen)| match (base.nodes.get(*path), &seen.node) {
        // The base's content of an overlay is known by being the same inode.
        (Some(Node::File { hash, mode, .. }), Node::File { hash: now, mode: mode_now, .. }) => {
            hash != now || mode != mode_now
        }
        (base, node) => base != Some(node),
    });
    gone.chain(differing.map(|(path, seen)| (path.clone(), Some(seen.node.clone())))).collect()
}

/// Keeps the former contents, and drops from `delta` what turns out to be the base after all (an overlay's file
/// that was written with the same content, or whose mode alone changed).
async fn settle(base: &mut Base, delta: &mut Delta, places: &Places<'_>) -> Result<()> {
    let (root, store) = (places.root.to_owned(), places.store.clone());
    let (mut moved_base, moved_delta) = (std::mem::take(base), std::mem::take(delta));
    let task = tokio::task::spawn_blocking(move || {
        let result = HostDir::open(&root)
            .map_err(Error::from)
            .and_then(|host| moved_delta.keys().try_for_each(|path| moved_base.settle(path, &host, &store)));
        (moved_base, moved_delta, result)
    });
    let (settled_base, settled_delta, result) =
        task.await.map_err(|error| Error::unexpected("a look at the host broke off").caused_by(error))?;
    (*base, *delta) = (settled_base, settled_delta);
    result?;
    delta.retain(|path, node| match (node, base.nodes.get(path)) {
        (Some(node @ Node::File { hash: Hash::UNKNOWN, .. }), Some(known @ Node::File { .. })) => {
            *node = known.clone().with_mode(node.mode().unwrap_or(0o644));
            known != node
        }
        (node, known) => node.as_ref() != known,
    });
    Ok(())
}

fn too_much() -> Error {
    Error::new(Kind::Limit, format!("the sandbox changed more than {} MB", MAX_BYTES >> 20))
        .hint("leave what is generated out with .gitignore or --exclude")
}

fn now_ns() -> i128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_nanos() as i128)
}
