//! The changes of the host's tree since the session looked last: found by metadata, without reading a file.
//!
//! Files are compared by their stamps. A directory whose own stamp differs has other names in it and is listed again; the
//! rest of the tree is not. Where the tree is watched, only what was touched is compared.

use crate::base::{Base, is_own_git};
use crate::host_watch::{HostWatch, Touched, within};
use crate::manifest::Node;
use crate::select;
use crate::selection::{LeftOut, Picked, PickedKind, Selection, Stamp};
use crate::tree_path::TreePath;
use agent_base::error::Result;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time after which everything is compared again although the tree is watched, between prompts: what is written through a
/// memory map or through a hard link that was made meanwhile is not reported.
const COMPARE_ALL_AFTER: Duration = Duration::from_secs(600);
/// Fewer files than this are compared by one thread.
const MIN_SHARE: usize = 1_000;

/// The state of the host's tree at the session's last look, beyond what the base records.
#[derive(Debug, Default)]
pub struct HostView {
    root: Option<Stamp>,
    directories: BTreeMap<TreePath, Stamp>,
    /// The topmost files and directories that git ignores.
    ignored: BTreeSet<TreePath>,
    /// Files whose state on the host is known although it is not that of the base: they were applied, or they are in
    /// conflict and the user knows. `None` for one that is gone.
    known: BTreeMap<TreePath, Option<Stamp>>,
    /// Those of them that the sandbox has otherwise, and that it keeps.
    conflicts: BTreeMap<TreePath, Option<Stamp>>,
    /// Watches on all of `directories`.
    watch: Option<HostWatch>,
    /// The time when everything was compared last.
    compared: Option<Instant>,
    /// Paths that differed when everything was compared ahead of a refresh.
    pending: BTreeSet<TreePath>,
    /// Files that were picked before and hold secrets now, each as it was judged.
    secrets: BTreeMap<TreePath, Stamp>,
    /// Files with several names, of which one may lie outside of the tree: they are always compared.
    linked: BTreeSet<TreePath>,
}

/// Paths of the host that may have changed.
#[derive(Debug, Default)]
pub struct HostChanges {
    /// The present state of each; `None` for what is gone. In the order of the paths.
    pub paths: BTreeMap<TreePath, Option<Picked>>,
    /// Paths that are there now and are excluded.
    pub left_out: BTreeMap<TreePath, LeftOut>,
}

impl HostView {
    /// The view of somebody who has just seen `selection`.
    pub fn of(root: &Path, selection: &Selection) -> Self {
        let mut view = Self::default();
        view.take(selection);
        view.root =
            open_root(root).ok().and_then(|root| stat(&root, Path::new(""))).map(|stat| Stamp::from(&stat));
        view
    }

    fn take(&mut self, selection: &Selection) {
        let directories = selection.picked.iter().filter(|(_, picked)| picked.kind == PickedKind::Directory);
        self.directories.extend(directories.map(|(path, picked)| (path.clone(), picked.stamp)));
        self.ignored.extend(selection.ignored.iter().cloned());
    }

    /// Returns what git ignores, as it was listed; some of it may be gone.
    pub fn ignored(&self) -> impl Iterator<Item = &TreePath> {
        self.ignored.iter()
    }

    /// Returns whether git ignored `path`, or a directory that it is in, when the tree was listed.
    pub fn ignores(&self, path: &TreePath) -> bool {
        self.ignored.contains(path) || path.ancestors().any(|above| self.ignored.contains(&above))
    }

    /// Notes that what the host has at `path` needs no further attention.
    pub fn know(&mut self, path: &TreePath, stamp: Option<Stamp>) {
        self.known.insert(path.clone(), stamp);
        self.conflicts.remove(path);
    }

    /// Notes that the sandbox keeps its own of what the host has at `path`.
    pub fn keep(&mut self, path: &TreePath, stamp: Option<Stamp>) {
        self.know(path, stamp);
        self.conflicts.insert(path.clone(), stamp);
    }

    /// Forgets what was noted: the base has it now.
    pub fn forget(&mut self, path: &TreePath) {
        self.known.remove(path);
        self.conflicts.remove(path);
    }

    /// Returns what the sandbox keeps its own of, though the host has it otherwise, as it was seen there.
    pub fn conflicts(&self) -> &BTreeMap<TreePath, Option<Stamp>> {
        &self.conflicts
    }

    /// Returns whether paths wait for the next refresh.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Has the next refresh look once more at what of `is_wanted` needed no attention.
    pub fn look_again(&mut self, is_wanted: impl Fn(&TreePath) -> bool) {
        let again: Vec<TreePath> = self.known.keys().filter(|path| is_wanted(path)).cloned().collect();
        for path in again {
            self.known.remove(&path);
            // What the base does not have is found by listing.
            for above in path.ancestors() {
                self.directories.remove(&above);
                self.pending.insert(above);
            }
            self.pending.insert(path);
        }
    }

    /// Returns whether everything is to be compared ahead of the next refresh.
    pub fn is_due(&self) -> bool {
        self.compared.is_none_or(|compared| compared.elapsed() >= COMPARE_ALL_AFTER)
    }

    /// Returns whether the tree may have changed since the last look.
    pub fn has_news(&self) -> bool {
        !self.pending.is_empty() || self.watch.as_ref().is_none_or(HostWatch::has_events)
    }

    /// Compares everything, so that the next refresh only looks at what differs and at what is touched from now on.
    /// Blocking.
    pub fn prepare(&mut self, root: &Path, base: &Base) -> Result<()> {
        let open = open_root(root)?;
        let now = stat(&open, Path::new("")).map(|stat| Stamp::from(&stat));
        // What was touched until now is found by comparing.
        drop(self.touched(root, now));
        self.compared = Some(Instant::now());
        if self.watch.is_some() {
            self.pending = self.look(&open, base, None).into_iter().map(|(path, _)| path).collect();
        }
        Ok(())
    }

    /// Has the next refresh compare everything, and list all directories again.
    pub fn compare_everything(&mut self) {
        (self.watch, self.root) = (None, None);
        self.directories.clear();
        self.secrets.clear();
    }

    /// Looks again. Blocking.
    pub fn refresh(
        &mut self,
        root: &Path,
        options: &select::SelectOptions,
        base: &Base,
    ) -> Result<HostChanges> {
        let open = open_root(root)?;
        let mut changes = HostChanges::default();
        let mut listed = BTreeSet::new();
        // The sandbox may have given way since.
        for path in self.conflicts.keys() {
            match base.nodes.contains_key(path) {
                true => drop(self.known.remove(path)),
                // As if it had been something else.
                false => drop(self.known.insert(path.clone(), Some(Stamp::default()))),
            }
            self.pending.insert(path.clone());
        }
        let now = stat(&open, Path::new("")).map(|stat| Stamp::from(&stat));
        let touched = self.touched(root, now);
        if self.root != now {
            self.root = now;
            listed.insert(None);
        }
        let mut rules_changed = false;
        for (path, looked) in self.look(&open, base, touched) {
            match looked {
                Looked::Listing => {
                    listed.insert(Some(path));
                }
                Looked::Now(picked) => {
                    rules_changed |= path.name() == b".gitignore";
                    changes.paths.insert(path, picked.map(|picked| *picked));
                }
            }
        }
        if rules_changed {
            let selection = select::select(root, options)?;
            self.ignored.clear();
            self.take(&selection);
            self.watch_found(root, &selection);
            self.add(&mut changes, selection, base);
        } else if !listed.is_empty() {
            let is_known = |path: &TreePath| matches!(base.nodes.get(path), Some(Node::Directory { .. }));
            let selection = select::list_again(root, options, listed, &is_known)?;
            self.take(&selection);
            self.watch_found(root, &selection);
            self.add(&mut changes, selection, base);
        }
        self.leave_out_secrets(root, options, &mut changes)?;
        Ok(changes)
    }

    /// Has files that hold secrets now be gone, as those are not there which held some when the session began.
    fn leave_out_secrets(
        &mut self,
        root: &Path,
        options: &select::SelectOptions,
        changes: &mut HostChanges,
    ) -> Result<()> {
        let is_judged = |path: &TreePath, picked: &Option<Picked>| {
            picked.as_ref().is_some_and(|picked| self.secrets.get(path) == Some(&picked.stamp))
        };
        changes.paths.retain(|path, picked| !is_judged(path, picked));
        self.secrets.retain(|path, _| !changes.paths.contains_key(path));
        let files = changes.paths.iter().filter_map(|(path, picked)| Some((path, picked.as_ref()?)));
        let files = files.filter(|(_, picked)| picked.kind == PickedKind::File);
        for (path, reason) in select::left_out_now(root, options, files)? {
            if let Some(picked) = changes.paths.insert(path.clone(), None).flatten() {
                self.secrets.insert(path.clone(), picked.stamp);
            }
            changes.left_out.insert(path, reason);
        }
        Ok(())
    }

    /// Adds what is new or another thing among what was listed again. Files that are known were looked at already.
    fn add(&self, changes: &mut HostChanges, selection: Selection, base: &Base) {
        for (path, picked) in selection.picked {
            if base.has_own_git && is_own_git(&path) {
                continue;
            }
            let is_same = match (base.nodes.get(&path), &picked.kind) {
                (Some(Node::File { .. }), PickedKind::File)
                | (Some(Node::Directory { .. }), PickedKind::Directory) => true,
                (Some(Node::Symlink { target }), PickedKind::Symlink(now)) => target.0 == *now,
                (None, PickedKind::File) => self.known.get(&path) == Some(&Some(picked.stamp)),
                _ => false,
            };
            if !is_same {
                changes.paths.insert(path, Some(picked));
            }
        }
        changes.left_out = selection.left_out;
        changes.left_out.retain(|path, _| !base.left_out.contains_key(path));
    }

    /// Returns what was touched; `None` where everything is to be compared. Begins to watch the tree where that is possible.
    fn touched(&mut self, root: &Path, now: Option<Stamp>) -> Option<Touched> {
        let mut pending = std::mem::take(&mut self.pending);
        let is_same_root = now.map(|now| now.inode) == self.root.map(|root| root.inode);
        if let Some(watch) = &mut self.watch
            && let Some(mut touched) = watch.take().filter(|_| is_same_root)
        {
            touched.paths.append(&mut pending);
            return Some(touched);
        }
        // The watches of before end first.
        self.watch = None;
        self.watch = HostWatch::start(root, self.directories.keys());
        self.compared = Some(Instant::now());
        None
    }

    /// Watches what was listed too; a tree that cannot be watched whole is not watched.
    fn watch_found(&mut self, root: &Path, selection: &Selection) {
        let Some(watch) = &mut self.watch else { return };
        let mut directories =
            selection.picked.iter().filter(|(_, picked)| picked.kind == PickedKind::Directory);
        if !directories.all(|(path, _)| watch.add(root, Some(path))) {
            self.watch = None;
        }
    }

    /// Returns what differs from before of what the base knows, or of what was touched of that.
    fn look(&mut self, root: &OwnedFd, base: &Base, touched: Option<Touched>) -> Vec<(TreePath, Looked)> {
        let nodes = self.to_compare(base, touched.as_ref());
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        let (mut found, linked) = self.look_at_all(root, base, &nodes, threads);
        if touched.is_none() {
            self.linked.clear();
        }
        self.linked.extend(linked);
        let secrets = self.secrets.iter().map(|(path, stamp)| (path, Some(*stamp)));
        let others = self.known.iter().map(|(path, known)| (path, *known)).chain(secrets);
        let others = others.filter(|(path, _)| !base.nodes.contains_key(*path));
        found.extend(others.filter_map(|(path, known)| {
            let now = stat(root, path.as_path());
            (now.as_ref().map(Stamp::from) != known).then(|| (path.clone(), Looked::Now(now.and_then(pick))))
        }));
        found
    }

    /// Returns what of the base is to be compared.
    fn to_compare<'a>(
        &'a self,
        base: &'a Base,
        touched: Option<&'a Touched>,
    ) -> Vec<(&'a TreePath, &'a Node)> {
        let is_own = |path: &TreePath| base.has_own_git && is_own_git(path);
        let Some(touched) = touched else {
            return base.nodes.iter().filter(|(path, _)| !is_own(path)).collect();
        };
        let one = touched.paths.iter().chain(&self.linked);
        let below = touched.trees.iter().flat_map(|tree| within(&base.nodes, tree));
        let all = one.filter_map(|path| base.nodes.get_key_value(path)).chain(below);
        all.filter(|(path, _)| !is_own(path)).collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    /// Returns what of `nodes` differs, and which of them have several names.
    fn look_at_all(
        &self,
        root: &OwnedFd,
        base: &Base,
        nodes: &[(&TreePath, &Node)],
        threads: usize,
    ) -> (Vec<(TreePath, Looked)>, Vec<TreePath>) {
        let look = |nodes: &[(&TreePath, &Node)]| {
            let (mut found, mut linked) = (Vec::new(), Vec::new());
            for (path, node) in nodes {
                let now = stat(root, path.as_path());
                if !node.is_directory() && now.is_some_and(|now| now.st_nlink > 1) {
                    linked.push((*path).clone());
                }
                found.extend(self.look_at(base, path, node, now).map(|looked| ((*path).clone(), looked)));
            }
            (found, linked)
        };
        let share = nodes.len().div_ceil(threads).max(MIN_SHARE);
        let (first, others) = nodes.split_at(share.min(nodes.len()));
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                others.chunks(share).map(|nodes| scope.spawn(move || look(nodes))).collect();
            let (mut found, mut linked) = look(first);
            for thread in threads {
                let (more, more_linked) = thread.join().unwrap_or_default();
                found.extend(more);
                linked.extend(more_linked);
            }
            (found, linked)
        })
    }

    fn look_at(&self, base: &Base, path: &TreePath, node: &Node, now: Option<Stat>) -> Option<Looked> {
        let stamp = now.as_ref().map(Stamp::from);
        let former = match (self.known.get(path), node) {
            (Some(known), _) => *known,
            (None, Node::Directory { .. }) => self.directories.get(path).copied(),
            (None, Node::File { .. }) => base.stamps.get(path).copied(),
            // The directory of a symlink that was replaced is listed again.
            (None, Node::Symlink { .. }) if stamp.is_some() => return None,
            (None, Node::Symlink { .. }) => Some(Stamp::default()),
        };
        // One that was not listed by this process has no former stamp.
        let is_gone = stamp.is_none() && node.is_directory() && !self.known.contains_key(path);
        if stamp == former && !is_gone {
            return None;
        }
        let is_directory = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        match (node, now) {
            (Node::Directory { .. }, Some(now)) if is_directory(&now) => Some(Looked::Listing),
            (_, now) => Some(Looked::Now(now.and_then(pick))),
        }
    }
}

enum Looked {
    /// A directory with other names in it.
    Listing,
    /// The present state of the path.
    Now(Option<Box<Picked>>),
}

fn open_root(root: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(root, flags, Mode::empty()).map_err(std::io::Error::from)?)
}

/// Returns the metadata of something. A directory on the way that became a symlink differs itself, and what is read later
/// is opened without following links.
fn stat(root: &OwnedFd, path: &Path) -> Option<Stat> {
    match path.as_os_str().is_empty() {
        true => rustix::fs::fstat(root).ok(),
        false => rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW).ok(),
    }
}

/// The file at `path` of the tree `root` as it is now, as a selection picks it.
pub fn picked_now(root: &Path, path: &TreePath) -> Option<Picked> {
    let open = open_root(root).ok()?;
    stat(&open, path.as_path()).and_then(pick).map(|picked| *picked)
}

/// A file as a selection picks it. Anything else is found by listing its directory again.
fn pick(stat: Stat) -> Option<Box<Picked>> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => PickedKind::File,
        FileType::Directory => PickedKind::Directory,
        _ => return None,
    };
    let (mode, uid, device) = (stat.st_mode & 0o777, stat.st_uid, stat.st_dev);
    Some(Box::new(Picked { kind, mode, stamp: Stamp::from(&stat), uid, device }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_base::machine::Machine;
    use std::sync::Arc;

    /// Everything was compared at the first prompt of a session, and once in ten minutes.
    #[test]
    fn after_a_comparison_ahead_only_what_was_touched_is_compared() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for number in 0..200 {
            std::fs::create_dir_all(root.join(format!("d{}", number % 10))).unwrap();
            std::fs::write(root.join(format!("d{}/f{number}", number % 10)), "1").unwrap();
        }
        let options = select::SelectOptions::new(Arc::new(Machine::new([])));
        let selection = select::select(root, &options).unwrap();
        let mut view = HostView::of(root, &selection);
        let base = Base::new(selection);
        std::fs::write(root.join("d1/f1"), "before").unwrap();
        assert!(view.is_due());
        view.prepare(root, &base).unwrap();
        // No watch is left on this machine.
        if view.watch.is_none() {
            return;
        }
        assert!(!view.is_due());
        std::fs::write(root.join("d2/f2"), "after").unwrap();
        let now = stat(&open_root(root).unwrap(), Path::new("")).map(|stat| Stamp::from(&stat));
        let touched = view.touched(root, now).unwrap();
        let compared: Vec<String> =
            view.to_compare(&base, Some(&touched)).iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(compared, ["d1/f1", "d2", "d2/f2"]);
        view.pending = touched.paths;
        let changes = view.refresh(root, &options, &base).unwrap();
        let names: Vec<String> = changes.paths.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["d1/f1", "d2/f2"]);
    }
}
