//! The paths of the host's tree that somebody has written to, as the kernel reports them: no file needs to be looked at for that.
//!
//! Each directory has a watch (inotify), so it is an offer: of a file system that other machines write to as well, of a
//! tree with very many directories and beside too many other watches there is none, and the tree is compared instead.

use crate::file_system;
use crate::tree_path::TreePath;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Directories that are watched at most. The user's other programs need watches too: at most a quarter of what the
/// user may have.
const MAX_DIRECTORIES: usize = 16 << 10;
const MAX_WATCHES_FILE: &str = "/proc/sys/fs/inotify/max_user_watches";
/// Trees that one process watches at most: a user may have 128 instances.
const MAX_TREES: usize = 8;
const EVENT_BYTES: usize = 16 << 10;

/// The trees that are watched.
static TREES: AtomicUsize = AtomicUsize::new(0);

/// Watches on the directories of a tree.
#[derive(Debug)]
pub struct HostWatch {
    events: OwnedFd,
    /// `None`: the root.
    directories: HashMap<i32, Option<TreePath>>,
    watches: BTreeMap<TreePath, i32>,
    max_directories: usize,
    /// Paths that were there before the tree was watched.
    unsettled: BTreeSet<TreePath>,
    _counted: Counted,
}

/// Paths that may have changed since the last look.
#[derive(Debug, Default)]
pub struct Touched {
    pub paths: BTreeSet<TreePath>,
    /// Directories that are others than before, or may be: everything below them counts.
    pub trees: BTreeSet<TreePath>,
}

impl HostWatch {
    /// Watches `root` and `directories` in it. What happens after this is reported.
    pub fn start<'a>(root: &Path, directories: impl Iterator<Item = &'a TreePath>) -> Option<Self> {
        let counted = Counted::new()?;
        let is_local = file_system::LOCAL.contains(&file_system::kind(root)?);
        let limit: usize = std::fs::read_to_string(MAX_WATCHES_FILE).ok()?.trim().parse().ok()?;
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let mut watch = Self {
            events,
            directories: HashMap::new(),
            watches: BTreeMap::new(),
            max_directories: MAX_DIRECTORIES.min(limit / 4),
            unsettled: BTreeSet::new(),
            _counted: counted,
        };
        let device = rustix::fs::stat(root).ok()?.st_dev;
        let is_same = |path: &TreePath| {
            rustix::fs::lstat(root.join(path.as_path())).is_ok_and(|stat| stat.st_dev == device)
        };
        let is_watched = is_local
            && watch.add(root, None)
            && directories.into_iter().all(|path| is_same(path) && watch.add(root, Some(path)));
        watch.unsettled.clear();
        is_watched.then_some(watch)
    }

    /// Watches a directory that was found. `false` if that is not possible.
    pub fn add(&mut self, root: &Path, path: Option<&TreePath>) -> bool {
        if path.is_some_and(|path| self.watches.contains_key(path)) {
            return true;
        }
        if self.directories.len() >= self.max_directories {
            return false;
        }
        let flags = WatchFlags::ATTRIB
            | WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW
            | WatchFlags::EXCL_UNLINK;
        let absolute = path.map_or(root.to_owned(), |path| root.join(path.as_path()));
        match inotify::add_watch(&self.events, &absolute, flags) {
            Ok(number) => {
                if let Some(path) = path {
                    self.watches.insert(path.clone(), number);
                    self.unsettled.insert(path.clone());
                }
                self.directories.insert(number, path.cloned());
                true
            }
            // Gone or replaced since it was found, which its own directory reports.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => path.is_some(),
            Err(_) => false,
        }
    }

    /// Returns whether something was touched since the last call of [`HostWatch::take`].
    pub fn has_events(&self) -> bool {
        rustix::io::ioctl_fionread(&self.events).map_or(true, |bytes| bytes > 0)
    }

    /// Returns what was touched since the last call; `None` where that is not known.
    pub fn take(&mut self) -> Option<Touched> {
        let mut touched = Touched { paths: BTreeSet::new(), trees: std::mem::take(&mut self.unsettled) };
        let mut gone = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = Reader::new(&self.events, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            let flags = event.events();
            if flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
                return None;
            }
            if flags.contains(ReadFlags::IGNORED) {
                if let Some(Some(path)) = self.directories.remove(&event.wd()) {
                    self.watches.remove(&path);
                }
                continue;
            }
            let Some(directory) = self.directories.get(&event.wd()) else { continue };
            touched.paths.extend(directory.clone());
            let Some(name) = event.file_name() else { continue };
            let path = match directory {
                Some(directory) => directory.join(name.to_bytes()),
                None => TreePath::new(name.to_bytes()),
            };
            // A name that no tree of ours can have.
            let Ok(path) = path else { continue };
            let moves = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
            if flags.contains(ReadFlags::ISDIR) && flags.intersects(moves) {
                gone.push(path.clone());
                touched.trees.insert(path.clone());
            }
            touched.paths.insert(path);
        }
        for path in gone {
            self.forget(&path);
        }
        Some(touched)
    }

    /// Ends the watches of a directory that was moved or removed, and of those below it. What is there now is found by
    /// listing.
    fn forget(&mut self, path: &TreePath) {
        let below: Vec<TreePath> = within(&self.watches, path).map(|(path, _)| path.clone()).collect();
        for path in below {
            if let Some(number) = self.watches.remove(&path) {
                // It may belong to another path by now, under which it is watched again once it is listed.
                self.directories.remove(&number);
                let _ = inotify::remove_watch(&self.events, number);
            }
        }
    }
}

/// `path` and what is below it.
pub fn within<'a, T>(
    map: &'a BTreeMap<TreePath, T>,
    path: &'a TreePath,
) -> impl Iterator<Item = (&'a TreePath, &'a T)> {
    let bound = |last: u8| [path.as_bytes(), &[last]].concat();
    let bounds = (bound(b'/'), bound(b'/' + 1));
    let below = (Bound::Included(bounds.0.as_slice()), Bound::Excluded(bounds.1.as_slice()));
    map.get_key_value(path).into_iter().chain(map.range::<[u8], _>(below))
}

/// One of the trees that this process watches.
#[derive(Debug)]
struct Counted;

impl Counted {
    fn new() -> Option<Self> {
        let add = |trees| (trees < MAX_TREES).then_some(trees + 1);
        TREES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok().then_some(Self)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        TREES.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> TreePath {
        TreePath::new(name.as_bytes()).unwrap()
    }

    fn names(touched: &BTreeSet<TreePath>) -> Vec<String> {
        touched.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_written_made_moved_and_removed_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), "1").unwrap();
        let known = [path("a"), path("a/b")];
        // Nothing is watched on a machine that has no watch left.
        let Some(mut watch) = HostWatch::start(root, known.iter()) else { return };
        let mut take = || watch.take().expect("no event is lost");
        assert!(take().paths.is_empty());
        std::fs::write(root.join("a/b/file"), "2").unwrap();
        assert_eq!(names(&take().paths), ["a/b", "a/b/file"]);
        assert!(take().paths.is_empty());
        std::fs::write(root.join("new"), "").unwrap();
        assert_eq!(names(&take().paths), ["new"]);
        std::fs::rename(root.join("a"), root.join("c")).unwrap();
        assert_eq!(names(&take().trees), ["a", "c"]);
        std::fs::write(root.join("c/b/file"), "3").unwrap();
        assert!(take().paths.is_empty(), "what was moved is watched once it is listed");
        assert!(watch.add(root, Some(&path("c"))) && watch.add(root, Some(&path("c/b"))));
        let touched = watch.take().unwrap();
        assert_eq!(names(&touched.trees), ["c", "c/b"], "it may have changed before it was watched");
        std::fs::write(root.join("c/b/file"), "4").unwrap();
        assert_eq!(names(&watch.take().unwrap().paths), ["c/b", "c/b/file"]);
    }

    #[test]
    fn what_is_below_a_directory_is_found_beside_similar_names() {
        let map: BTreeMap<TreePath, ()> =
            ["a", "a-b", "a.c", "a/x", "a/x/y", "a0", "b"].map(|name| (path(name), ())).into();
        let a = path("a");
        let found: Vec<String> = within(&map, &a).map(|(path, ())| path.to_string()).collect();
        assert_eq!(found, ["a", "a/x", "a/x/y"]);
    }
}
