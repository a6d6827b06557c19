//! Scans the sandbox's tree: what differs from the base, with the contents copied into the store.
//!
//! Nothing that the guest reports is trusted: names go through [`TreePath`], contents are hashed here, and counts and
//! sizes are bounded. Files whose metadata did not change since the last look are not read again (the change time
//! cannot be set by programs inside).
//!
//! Everything is ordered by path (the entries, what was seen, the base), so that a look goes through all of it side by
//! side, once.

mod paths;

use crate::base::Base;
use crate::changes::MAX_CHANGES;
use crate::entries::{Rejected, validate, walk};
use crate::fetch::{Fetched, fetch_group};
use crate::host_changes::HostView;
use crate::host_dir::HostDir;
use crate::ignored::{Ignored, MAX_RULES};
use crate::manifest::{Delta, Manifest, Node, Target};
use crate::reconcile;
use crate::selection::Stamp;
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_base::hash::Hash;
use agent_sandbox::{Entry, EntryKind, Listing, Sandbox};
use futures_util::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Bytes that one scan may copy.
const MAX_BYTES: u64 = 2 << 30;
/// Files that are read in one request, and bytes of them, as listed. A larger file has requests of its own.
const GROUP: (usize, u64) = (500, 1 << 20);
/// Groups that are read at the same time.
const AT_ONCE: usize = 8;
/// A file that changed this shortly before a look may change again without another change time: clocks tick every
/// 10 ms at worst. It is read again at the next look.
const SETTLED: Duration = Duration::from_millis(20);
/// Ignored files of the host's that are compared at one look.
const MAX_COMPARED: usize = 2_000;
/// Ignored entries that are kept by name.
const MAX_NAMED: usize = 5;

/// The findings of a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Differences from the base.
    pub delta: Delta,
    /// Entries that can never be applied.
    pub rejected: Rejected,
    /// New entries that the ignore rules leave out.
    pub ignored: IgnoredEntries,
}

/// New entries that the ignore rules leave out; what is in such a directory is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IgnoredEntries {
    /// The number of them.
    pub count: u64,
    /// The first of them.
    pub first: Vec<TreePath>,
    /// The first of the host's ignored files that are other ones in the sandbox.
    #[serde(default)]
    pub changed: Vec<TreePath>,
}

/// The sightings at each path, ordered by path.
type Sightings = Vec<(TreePath, SeenPath)>;

/// The memory from one look to the next.
#[derive(Default)]
pub struct Scanner {
    listing: Listing,
    seen: Sightings,
    ignored: Ignored,
    /// The `.gitignore` files whose rules are in force, by content.
    rules: BTreeMap<TreePath, Hash>,
    /// Ignored directories: not looked into.
    skip: Vec<TreePath>,
    /// Set if the rules in force are known: there was a look at everything.
    has_looked: bool,
}

/// The sighting of a path at the last look.
#[derive(Clone)]
pub struct SeenPath {
    /// Its stamp at that time.
    pub stamp: GuestStamp,
    /// The node that it was.
    pub node: Node,
    settled: bool,
}

/// The guest's report about a file. Compared, never trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestStamp {
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
    /// Returns whether it matches the host's view of the same inode.
    pub fn is_of(self, host: &Stamp) -> bool {
        self == Self { size: host.size, mtime_ns: host.mtime_ns, ctime_ns: host.ctime_ns }
    }

    fn is_settled(self, now_ns: i128) -> bool {
        i128::from(self.ctime_ns) + (SETTLED.as_nanos() as i128) < now_ns
    }
}

/// Facts about a path that are known beforehand.
#[derive(Clone, Copy)]
struct Known<'a> {
    seen: Option<&'a SeenPath>,
    stamp: Option<&'a Stamp>,
    base: Option<&'a Node>,
}

/// An entry whose content has to be read.
struct Wanted {
    /// The index in [`Look::found`] at which it belongs.
    place: usize,
    stamp: GuestStamp,
    mode: u32,
}

/// One look under way.
#[derive(Default)]
struct Look {
    now_ns: i128,
    /// Bytes that may still be copied.
    budget: u64,
    /// By path; `None` where the content is wanted, or there is nothing to apply after all.
    found: Vec<(TreePath, Option<SeenPath>)>,
    wanted: Vec<Wanted>,
    rejected: Rejected,
    ignored: IgnoredEntries,
    /// Ignored files of the host's that were compared.
    compared: usize,
}

impl Look {
    /// Decides what is at a path, or that its content is wanted to decide it.
    fn judge(&mut self, path: TreePath, entry: &Entry, known: Known<'_>) {
        let (stamp, mode) = (GuestStamp::from(entry), entry.mode & 0o777);
        let node = match &entry.kind {
            EntryKind::Directory => Some(Node::Directory { mode }),
            EntryKind::Symlink(target) => {
                Some(Node::Symlink { target: Target(target.as_os_str().as_bytes().to_owned()) })
            }
            _ => match known {
                Known { seen: Some(seen), .. } if seen.stamp == stamp && seen.settled => {
                    Some(seen.node.clone().with_mode(mode))
                }
                // The very inode of the host, seen through an overlay.
                Known { stamp: Some(host), base, .. } if stamp.is_of(host) => {
                    base.map(|node| node.clone().with_mode(mode))
                }
                _ => None,
            },
        };
        if node.is_none() {
            self.wanted.push(Wanted { place: self.found.len(), stamp, mode });
        }
        let seen = node.map(|node| self.seen(stamp, node));
        self.found.push((path, seen));
    }

    fn seen(&self, stamp: GuestStamp, node: Node) -> SeenPath {
        SeenPath { stamp, node, settled: stamp.is_settled(self.now_ns) }
    }

    /// Reads what is wanted, and hands over all that was found.
    async fn fetch(&mut self, sandbox: &Sandbox, store: &Store) -> Result<Sightings> {
        let mut found = std::mem::take(&mut self.found);
        let wanted = std::mem::take(&mut self.wanted);
        if wanted.len() > MAX_CHANGES {
            return Err(Error::new(
                Kind::Limit,
                format!("the sandbox changed more than {MAX_CHANGES} files"),
            )
            .hint("exclude generated files with .gitignore or --exclude"));
        }
        let groups: Vec<(Vec<TreePath>, Vec<Wanted>)> = groups(wanted)
            .into_iter()
            .map(|group| (group.iter().map(|wanted| found[wanted.place].0.clone()).collect(), group))
            .collect();
        let mut reads = futures_util::stream::iter(groups)
            .map(|(paths, group)| async move {
                let files: Vec<&Path> = paths.iter().map(TreePath::as_path).collect();
                (fetch_group(sandbox, store, &files).await, paths, group)
            })
            .buffer_unordered(AT_ONCE);
        while let Some((fetched, paths, group)) = reads.next().await {
            for ((fetched, path), Wanted { place, stamp, mode }) in fetched?.into_iter().zip(paths).zip(group)
            {
                match fetched {
                    Fetched::Content(hash, size) => {
                        self.budget = self.budget.checked_sub(size).ok_or_else(too_much)?;
                        found[place].1 = Some(self.seen(stamp, Node::File { hash, size, mode }));
                    }
                    Fetched::Gone => {}
                    Fetched::Rejected(reason) => self.rejected.reject(path, reason),
                }
            }
        }
        Ok(found.into_iter().filter_map(|(path, seen)| Some((path, seen?))).collect())
    }

    fn note_ignored(&mut self, path: &TreePath) {
        self.ignored.count += 1;
        if self.ignored.first.len() < MAX_NAMED {
            self.ignored.first.push(path.clone());
        }
    }

    /// Takes note of an ignored file of the host's that the sandbox sees, if it is another one there. What was changed below an
    /// ignored directory, as builds do, is not looked at.
    fn compare_ignored(&mut self, root: &Path, path: &TreePath, entry: &Entry) {
        let is_full = self.ignored.changed.len() == MAX_NAMED;
        if !matches!(entry.kind, EntryKind::File) || is_full || self.compared == MAX_COMPARED {
            return;
        }
        self.compared += 1;
        let Ok(host) = root.join(path.as_path()).symlink_metadata() else { return };
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        let mtime_ns = ns(host.mtime(), host.mtime_nsec());
        // The host may write it at this moment, as a server does its log.
        let is_settled = i128::from(ns(host.ctime(), host.ctime_nsec())) < self.now_ns;
        if is_settled && (host.len(), mtime_ns) != (entry.size, entry.mtime_ns) {
            self.ignored.changed.push(path.clone());
        }
    }
}

/// The places of the base and of the contents.
pub struct ScanContext<'a> {
    /// The host's tree.
    pub root: &'a Path,
    /// The session's store.
    pub store: &'a Store,
    /// The differences from the base that the sandbox is known to have, where the tree is an overlay. Whatever differs
    /// beyond that may be a change on the host, which is visible through the overlay.
    pub overlay: Option<&'a Delta>,
    /// The differences from the base at the last look.
    pub known: &'a Delta,
    /// The host's tree as it was looked at last, where the sandbox sees what git ignores on the host.
    pub shown: Option<&'a HostView>,
    /// Set if the sandbox writes straight into the host's tree.
    pub in_place: bool,
}

impl ScanContext<'_> {
    /// Returns whether the sandbox is known to have a file of its own at a path: a copy, or what lies in an overlay above the host's. One of
    /// the host's that was written within the same tick of the clock has the same stamp.
    fn has_own(&self, path: &TreePath) -> bool {
        !self.in_place && self.overlay.is_none_or(|known| known.contains_key(path))
    }
}

impl Scanner {
    /// With the rules from outside the tree, and what is included in spite of them.
    pub fn new(ignored: Ignored) -> Self {
        Self { ignored, ..Self::default() }
    }

    /// Takes note of directories that are ignored, so that the first look need not go through them.
    pub fn skip(&mut self, ignored: &[TreePath]) {
        if !self.ignored.may_include_below() {
            self.skip = ignored.to_vec();
        }
    }

    /// Takes note of a sandbox that is known to hold `tree`, so that the first look need not read every file.
    ///
    /// With `hashed`, files whose hash is another one, in the guest's word, are left to the next look; without, a
    /// sandbox in which nothing has run yet is believed to hold what was written.
    pub async fn remember(&mut self, sandbox: &Sandbox, tree: &Manifest, hashed: bool) -> Result<()> {
        let now_ns = now_ns();
        self.seen.clear();
        if !tree.values().any(|node| matches!(node, Node::File { .. })) {
            return Ok(());
        }
        for entry in walk(sandbox, &mut self.listing, &self.skip, hashed).await? {
            let Ok(path) = TreePath::new(entry.path.as_os_str().as_bytes()) else { continue };
            if let (EntryKind::File, Some(node @ Node::File { hash, .. })) = (&entry.kind, tree.get(&path))
                && (!hashed || entry.hash == Some(hash.0))
            {
                let stamp = GuestStamp::from(&entry);
                let node = node.clone().with_mode(entry.mode & 0o777);
                self.seen.push((path, SeenPath { stamp, node, settled: stamp.is_settled(now_ns) }));
            }
        }
        self.seen.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(())
    }

    /// Looks. What differs is in the store afterwards, its former content too.
    pub async fn scan(
        &mut self,
        sandbox: &Sandbox,
        base: &mut Base,
        places: &ScanContext<'_>,
    ) -> Result<Scan> {
        let mut look = Look { now_ns: now_ns(), budget: MAX_BYTES, ..Look::default() };
        let entries =
            validate(walk(sandbox, &mut self.listing, &self.skip, false).await?, &mut look.rejected);
        for (path, entry) in entries.iter().filter(|(path, _)| is_rules(path)) {
            look.judge(path.clone(), entry, self.known(path, base, places));
        }
        let rules = look.fetch(sandbox, places.store).await?;
        self.take_rules(&rules, base, places)?;
        self.judge_all(&mut look, entries, &rules, base, places);
        let present = look.fetch(sandbox, places.store).await?;

        let mut delta = delta(&base.nodes, &present);
        keep_unlisted(&mut delta, places.known, &look.rejected.unlisted);
        if let Some(known) = places.overlay {
            reconcile::follow_host(base, &mut delta, known, &present, places.root).await?;
        }
        reconcile::settle(base, &mut delta, places).await?;
        self.seen = present;
        self.has_looked = true;
        Ok(Scan { delta, rejected: look.rejected, ignored: look.ignored })
    }

    /// Returns what is known of one path.
    fn known<'a>(&'a self, path: &TreePath, base: &'a Base, places: &ScanContext<'_>) -> Known<'a> {
        let seen = self.seen.binary_search_by(|(seen, _)| seen.cmp(path)).ok().map(|at| &self.seen[at].1);
        let stamp = base.stamps.get(path).filter(|_| !places.has_own(path));
        Known { seen, stamp, base: base.nodes.get(path) }
    }

    /// Decides about every entry that takes part. The `.gitignore` files are decided about already.
    fn judge_all(
        &mut self,
        look: &mut Look,
        entries: Vec<(TreePath, Entry)>,
        rules: &Sightings,
        base: &Base,
        places: &ScanContext<'_>,
    ) {
        let is_of_host = |path: &TreePath| places.shown.is_some_and(|host| host.ignores(path));
        let seen = std::mem::take(&mut self.seen);
        let mut seen = seen.iter().map(|(path, seen)| (path, seen)).peekable();
        let mut rules = rules.iter().map(|(path, seen)| (path, seen)).peekable();
        let (mut stamps, mut nodes) = (base.stamps.iter().peekable(), base.nodes.iter().peekable());
        self.skip.clear();
        for (path, entry) in entries {
            let known = Known {
                seen: seek(&mut seen, &path),
                stamp: seek(&mut stamps, &path).filter(|_| !places.has_own(&path)),
                base: seek(&mut nodes, &path),
            };
            // The `.gitignore` of an ignored directory is as ignored as what else is in it.
            let rules_seen = seek(&mut rules, &path).cloned();
            // Of a tree that is shared with the user, what git ignored there is theirs, whatever the rules say now.
            let is_users = places.in_place && known.base.is_none() && is_of_host(&path);
            match self.is_relevant(&path, &entry, known) && !is_users {
                true if is_rules(&path) => look.found.push((path, rules_seen)),
                true => look.judge(path, &entry, known),
                false if is_of_host(&path) && places.in_place => (),
                false if is_of_host(&path) => look.compare_ignored(places.root, &path, &entry),
                false => look.note_ignored(&path),
            }
        }
    }

    /// Returns whether an entry takes part. Ignored ones do where the base has them, and all of git's own do. Nothing below an
    /// ignored directory counts.
    fn is_relevant(&mut self, path: &TreePath, entry: &Entry, known: Known<'_>) -> bool {
        if known.base.is_some() || path.names().any(|name| name == b".git") {
            return true;
        }
        let is_directory = matches!(entry.kind, EntryKind::Directory);
        let ignored = self.ignored.contains(path, is_directory);
        if ignored && is_directory && !self.ignored.may_include_below() {
            self.skip.push(path.clone());
        }
        !ignored
    }

    /// Brings the rules in force up to date with the `.gitignore` files that are there.
    fn take_rules(&mut self, present: &Sightings, base: &Base, places: &ScanContext<'_>) -> Result<()> {
        let files: BTreeMap<TreePath, Hash> = present
            .iter()
            .filter_map(|(path, seen)| match seen.node {
                Node::File { hash, .. } => Some((path.clone(), hash)),
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

/// Neighbours in groups that fit one request.
fn groups(wanted: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    let mut groups: Vec<Vec<Wanted>> = Vec::new();
    let mut bytes = 0_u64;
    for wanted in wanted {
        bytes = bytes.saturating_add(wanted.stamp.size);
        match groups.last_mut().filter(|group| group.len() < GROUP.0 && bytes <= GROUP.1) {
            Some(group) => group.push(wanted),
            None => {
                bytes = wanted.stamp.size;
                groups.push(vec![wanted]);
            }
        }
    }
    groups
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

fn is_rules(path: &TreePath) -> bool {
    path.name() == b".gitignore"
}

/// Returns what `items`, which are ordered, have at `path`. Paths are asked for in order, so that each item is passed once.
fn seek<'a, V>(
    items: &mut Peekable<impl Iterator<Item = (&'a TreePath, &'a V)>>,
    path: &TreePath,
) -> Option<&'a V> {
    while items.next_if(|(other, _)| *other < path).is_some() {}
    items.next_if(|(other, _)| *other == path).map(|(_, value)| value)
}

/// Returns what `present` has otherwise than `base`.
fn delta(base: &Manifest, present: &Sightings) -> Delta {
    let mut delta = Delta::new();
    let mut nodes = base.iter().peekable();
    for (path, seen) in present {
        while let Some((gone, _)) = nodes.next_if(|(other, _)| *other < path) {
            delta.insert(gone.clone(), None);
        }
        let former = nodes.next_if(|(other, _)| *other == path).map(|(_, node)| node);
        if differs(former, &seen.node) {
            delta.insert(path.clone(), Some(seen.node.clone()));
        }
    }
    delta.extend(nodes.map(|(gone, _)| (gone.clone(), None)));
    delta
}

/// Has what is in directories that could not be listed be as it was known: an overlay cannot list one that the user has replaced while a
/// process of the sandbox holds it.
fn keep_unlisted(delta: &mut Delta, known: &Delta, unlisted: &BTreeSet<TreePath>) {
    if unlisted.is_empty() {
        return;
    }
    let is_unlisted =
        |path: &TreePath| unlisted.contains(path) || path.ancestors().any(|above| unlisted.contains(&above));
    delta.retain(|path, _| !is_unlisted(path));
    let known = known.iter().filter(|(path, _)| is_unlisted(path));
    delta.extend(known.map(|(path, node)| (path.clone(), node.clone())));
}

fn differs(base: Option<&Node>, now: &Node) -> bool {
    match (base, now) {
        // The base's content of an overlay is known by being the same inode.
        (Some(Node::File { hash, mode, .. }), Node::File { hash: now, mode: mode_now, .. }) => {
            hash != now || mode != mode_now
        }
        (base, node) => base != Some(node),
    }
}

fn too_much() -> Error {
    Error::new(Kind::Limit, format!("the sandbox changed more than {} MB", MAX_BYTES >> 20))
        .hint("exclude generated files with .gitignore or --exclude")
}

fn now_ns() -> i128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_nanos() as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A merge and the user's edit within one tick of the clock, in a file that kept its size: the sandbox's change was lost.
    #[test]
    fn a_file_of_the_sandbox_is_not_taken_for_the_hosts_by_its_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let path = |name: &str| TreePath::new(name.as_bytes()).unwrap();
        let node = Node::File { hash: Hash::of(b"the host's"), size: 10, mode: 0o644 };
        let base = Base {
            nodes: [path("own"), path("other")].map(|path| (path, node.clone())).into(),
            stamps: [path("own"), path("other")].map(|path| (path, Stamp::default())).into(),
            ..Base::default()
        };
        let known = Delta::from([(path("own"), Some(node))]);
        let places = ScanContext {
            root: directory.path(),
            store: &store,
            overlay: Some(&known),
            known: &known,
            shown: None,
            in_place: false,
        };
        let scanner = Scanner::default();
        assert!(scanner.known(&path("own"), &base, &places).stamp.is_none());
        assert!(scanner.known(&path("other"), &base, &places).stamp.is_some());
        let copy = ScanContext { overlay: None, ..places };
        assert!(scanner.known(&path("other"), &base, &copy).stamp.is_none());
    }
}
