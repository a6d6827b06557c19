//! Selects what of the host directory the sandbox gets.
//!
//! `.gitignore` is respected as git does; files that git tracks are selected although they are ignored or look like
//! secrets, and so is of `.git` what git needs, so that it works inside. Untracked secrets, huge and sparse files and special files
//! are left out, each with a reason. Nothing is read but names, metadata and the beginnings of files that may hold secrets.

mod ignored_files;

pub use ignored_files::withheld;

use crate::bare_repository;
use crate::git_directory::{self, GitPath};
use crate::ignored::{PatternBudget, Rules, read_rules};
use crate::ignored_index::{Index, RecordIndex, Seen};
use crate::secrets::{self, Suspicion};
use crate::selection::{LeftOut, MAX_PATHS, Picked, PickedKind, Selection, Stamp};
use crate::tracked::{self, Tracked};
use crate::tree_path::{TreePath, is_dot_git};
use crate::walk::{self, Queue};
use crate::withheld::Search;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use agent_sandbox::WorkspaceMount;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The user's options for the selection.
#[derive(Debug, Clone)]
pub struct SelectOptions {
    /// The machine that the directory is on: its git lists what is tracked, and its cache is never selected.
    pub machine: Arc<Machine>,
    /// Globs in `.gitignore`'s syntax: these are copied even if they are ignored, secret or huge.
    pub include: Vec<String>,
    /// Globs in `.gitignore`'s syntax: these are left out, whatever else selects them.
    pub exclude: Vec<String>,
    /// Largest file outside `.git`, in bytes; a larger one is left out with a notice.
    pub max_file_bytes: u64,
    /// Bytes in all; more is an error that asks for `--exclude`.
    pub max_total_bytes: u64,
    /// Set if what git ignores is looked through for what is never shown of it: see [`withheld`] too.
    pub shows_ignored: bool,
}

impl SelectOptions {
    /// Everything that is selected by default.
    pub fn new(machine: Arc<Machine>) -> Self {
        let (include, exclude) = (Vec::new(), Vec::new());
        let (max_file_bytes, max_total_bytes) = (256 << 20, 8 << 30);
        Self { machine, include, exclude, max_file_bytes, max_total_bytes, shows_ignored: false }
    }
}

impl SelectOptions {
    /// Those for a directory beside the workspace: what the user includes is of the workspace.
    pub fn of_added(&self) -> Self {
        Self { include: Vec::new(), ..self.clone() }
    }
}

/// Walks `root` in parallel and decides. Blocking.
pub fn select(root: &Path, options: &SelectOptions) -> Result<Selection> {
    let walk = Walk::new(root, options, &|_| false)?;
    // git lists its index while the tree is walked.
    let (found, tracked) = std::thread::scope(|scope| {
        let tracked = scope.spawn(|| tracked::files(root, &options.machine));
        let found = walk.run(vec![walk.directory(None)]);
        (found, tracked.join())
    });
    let tracked = tracked.map_err(|_| Error::unexpected("listing the files that git tracks failed"))?;
    walk.decide(found, &tracked).finish(options.max_total_bytes)
}

/// Lists `directories` again (`None`: the root), and what is new below them. Directories that are known are not looked
/// into. Blocking.
pub fn list_again(
    root: &Path,
    options: &SelectOptions,
    directories: BTreeSet<Option<TreePath>>,
    is_known: &(dyn Fn(&TreePath) -> bool + Sync),
) -> Result<Selection> {
    let walk = Walk::new(root, options, is_known)?;
    let found = walk.run(directories.into_iter().map(|path| walk.directory(path)).collect());
    // Asking git is worth it only where its answer decides something.
    let tracked = match found.suspects.is_empty() && found.ignored.is_empty() {
        true => Tracked::default(),
        false => tracked::files(root, &options.machine),
    };
    walk.decide(found, &tracked).finish(options.max_total_bytes)
}

impl SelectOptions {
    /// The same, to look at a tree of which the sandbox sees what git ignores, or not. Patterns that hold for that too are followed
    /// now; else [`SelectOptions::search`] looks through it later.
    pub fn looking(&self, shows_ignored: bool) -> Self {
        Self { shows_ignored: shows_ignored && self.has_patterns(), ..self.clone() }
    }

    /// The look through what git ignores that is still to be made, for a sandbox with this mount.
    pub fn search(&self, root: &Path, mount: &WorkspaceMount, selection: &Selection) -> Option<Search> {
        let is_shown = matches!(mount, WorkspaceMount::Overlay { .. });
        if is_shown && !self.has_patterns() { Search::begin(root, self, &selection.ignored) } else { None }
    }

    fn has_patterns(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty()
    }
}

/// Returns which of these files of a tree, that were picked before and have changed, are to be left out now. Blocking.
pub fn left_out_now<'a>(
    root: &Path,
    options: &SelectOptions,
    files: impl Iterator<Item = (&'a TreePath, &'a Picked)>,
) -> Result<BTreeMap<TreePath, LeftOut>> {
    let walk = Walk::new(root, options, &|_| true)?;
    let mut left_out = BTreeMap::new();
    for (path, picked) in files {
        if !git_directory::is_judged(root, path) || walk.is_included(path, false) {
            continue;
        }
        let suspicion = if walk.is_judged_as_gits(path) { Suspicion::OfGit } else { secrets::name(path) };
        match walk.is_secret(path, suspicion, picked.stamp.size <= secrets::HEAD as u64) {
            Ok(true) => drop(left_out.insert(path.clone(), LeftOut::Secret)),
            // One that is gone since is seen again by the next look.
            Ok(false) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => drop(left_out.insert(path.clone(), LeftOut::Unreadable)),
        }
    }
    if !left_out.is_empty() {
        let tracked = tracked::files(root, &options.machine);
        let tracked: HashSet<&[u8]> = tracked.names().collect();
        left_out.retain(|path, _| !tracked.contains(path.as_bytes()));
    }
    Ok(left_out)
}

/// Returns whether a file that is there is selected, unless the user excludes it. Blocking.
pub fn is_selected(root: &Path, options: &SelectOptions, path: &TreePath) -> bool {
    let selection = list_again(root, options, BTreeSet::from([path.parent()]), &|_| true);
    selection.is_ok_and(|selection| selection.get(path.as_bytes()).is_some())
}

/// Returns whether git ignores a directory of the tree. Blocking.
pub fn is_ignored(root: &Path, options: &SelectOptions, directory: &TreePath) -> bool {
    let walk = Walk::new(root, options, &|_| true);
    walk.is_ok_and(|walk| matches!(walk.directory(Some(directory.clone())).inside, Inside::Ignored(..)))
}

struct Walk<'a> {
    root: &'a Path,
    include: Gitignore,
    exclude: Gitignore,
    max_file_bytes: u64,
    shows_ignored: bool,
    patterns: PatternBudget,
    /// Paths picked so far, by all threads.
    count: AtomicUsize,
    /// Ignored entries that were looked at.
    ignored_count: AtomicUsize,
    /// Directories that are not looked into.
    is_known: &'a (dyn Fn(&TreePath) -> bool + Sync),
    /// The rules that hold for the root from outside.
    outer: Rules,
    /// The index of what is known of ignored directories.
    index: Option<Index>,
}

/// A directory to be listed.
struct Directory {
    /// `None`: the root.
    path: Option<TreePath>,
    rules: Rules,
    inside: Inside,
}

impl Directory {
    fn ignored(path: TreePath, depth: u16, place: Option<RecordIndex>) -> Self {
        Self { path: Some(path), rules: Rules::default(), inside: Inside::Ignored(depth, place) }
    }
}

/// The kind of directory that something lies in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// One that git would look into.
    Tree,
    /// `.git`: no ignore rules hold.
    Git,
    /// A directory of the tree that is one of git's by what is in it.
    OtherGit,
    /// An ignored one, looked into for what `--include` names and for secrets; how many others are above it, and where its record is.
    Ignored(u16, Option<RecordIndex>),
}

/// The findings of one thread.
#[derive(Default)]
struct Found {
    picked: Vec<(TreePath, Picked)>,
    left_out: Vec<(TreePath, LeftOut)>,
    ignored: Vec<TreePath>,
    /// Files that may hold secrets.
    suspects: Vec<(TreePath, Picked, Suspicion)>,
    /// Paths in an ignored directory that `--include` names.
    included: Vec<TreePath>,
    /// Ignored entries that are never shown.
    withheld: Vec<(TreePath, LeftOut)>,
    /// Ignored files that may hold secrets.
    ignored_suspects: Vec<(TreePath, Suspicion)>,
    /// Judgements of the names of ignored files: packages have the same ones over and over.
    judged_names: HashMap<Vec<u8>, Suspicion>,
    /// The ignored directories that were looked into, for the index.
    seen: Vec<(TreePath, Seen)>,
}

impl Found {
    fn merge(&mut self, other: Found) {
        self.picked.extend(other.picked);
        self.left_out.extend(other.left_out);
        self.ignored.extend(other.ignored);
        self.suspects.extend(other.suspects);
        self.included.extend(other.included);
        self.withheld.extend(other.withheld);
        self.ignored_suspects.extend(other.ignored_suspects);
        self.seen.extend(other.seen);
    }
}

impl<'a> Walk<'a> {
    fn new(
        root: &'a Path,
        options: &SelectOptions,
        is_known: &'a (dyn Fn(&TreePath) -> bool + Sync),
    ) -> Result<Self> {
        let patterns = PatternBudget::default();
        Ok(Self {
            root,
            include: globs(root, &options.include, "--include")?,
            exclude: globs(root, &options.exclude, "--exclude")?,
            max_file_bytes: options.max_file_bytes,
            shows_ignored: options.shows_ignored,
            outer: Rules::outer(root, &patterns),
            patterns,
            count: AtomicUsize::new(0),
            ignored_count: AtomicUsize::new(0),
            is_known,
            index: None,
        })
    }

    /// A directory of the tree with the rules that hold in it, but for its own.
    fn directory(&self, path: Option<TreePath>) -> Directory {
        let (mut rules, mut inside) = (self.outer.clone(), Inside::Tree);
        if git_directory::is_marked(self.root) {
            inside = Inside::OtherGit;
        }
        let mut above = None;
        let mut chain: Vec<TreePath> = path.iter().flat_map(TreePath::ancestors).collect();
        chain.reverse();
        for below in chain.into_iter().chain(path.clone()) {
            if let Inside::Tree | Inside::OtherGit = inside {
                let directory = above
                    .as_ref()
                    .map_or(self.root.to_owned(), |above: &TreePath| self.root.join(above.as_path()));
                rules =
                    rules.with(above.as_ref(), &read_rules(&directory.join(".gitignore")), &self.patterns);
                if is_dot_git(below.name()) {
                    inside = Inside::Git;
                } else if rules.ignore(self.root, &below, true) {
                    inside = Inside::Ignored(0, None);
                } else if git_directory::is_marked(&self.root.join(below.as_path())) {
                    inside = Inside::OtherGit;
                }
            }
            above = Some(below);
        }
        Directory { path, rules, inside }
    }

    fn run(&self, directories: Vec<Directory>) -> Found {
        let mut found = walk::each_directory(directories, |directory, queue, found: &mut Found| {
            if self.count.load(Ordering::Relaxed) <= MAX_PATHS {
                self.list(directory, queue, found);
            }
        });
        // A stable sort of all of them then only merges.
        std::thread::scope(|scope| {
            for found in found.iter_mut().filter(|found| found.picked.len() >= SORTED_APART) {
                scope.spawn(|| found.picked.sort_unstable_by(|(a, _), (b, _)| a.cmp(b)));
            }
        });
        found
            .into_iter()
            .reduce(|mut all, found| {
                all.merge(found);
                all
            })
            .unwrap_or_default()
    }

    fn list(&self, mut directory: Directory, queue: &Queue<Directory>, found: &mut Found) {
        if let (Inside::Ignored(depth, place), Some(path)) = (directory.inside, &directory.path) {
            return self.look_through(path, depth, place, queue, found);
        }
        let absolute = match &directory.path {
            Some(path) => self.root.join(path.as_path()),
            None => self.root.to_owned(),
        };
        let (dir, entries) = match open_directory(&absolute).and_then(entries_of) {
            Ok(listed) => listed,
            // Removed since its parent was listed.
            Err(Errno::NOENT) => return,
            Err(_) => {
                found.left_out.extend(directory.path.map(|path| (path, LeftOut::Unreadable)));
                return;
            }
        };
        let has_rules = entries.iter().any(|entry| entry.file_name() == c".gitignore");
        let has = |name| entries.iter().any(|entry| entry.file_name().to_bytes() == name);
        if directory.inside == Inside::Tree && bare_repository::is_marked(has) {
            directory.inside = Inside::OtherGit;
        }
        if matches!(directory.inside, Inside::Tree | Inside::OtherGit) && has_rules {
            let text = read_rules(&absolute.join(".gitignore"));
            directory.rules = directory.rules.with(directory.path.as_ref(), &text, &self.patterns);
        }
        let mut below = Vec::new();
        for entry in entries {
            self.take_entry(&dir, &entry, &directory, &mut below, found);
        }
        queue.extend(below);
    }

    fn take_entry(
        &self,
        dir: &Dir,
        entry: &DirEntry,
        directory: &Directory,
        below: &mut Vec<Directory>,
        found: &mut Found,
    ) {
        let name = entry.file_name().to_bytes();
        let path = match &directory.path {
            Some(parent) => parent.join(name),
            None => TreePath::new(name),
        };
        let Ok(path) = path else {
            found.left_out.extend(directory.path.clone().map(|path| (path, LeftOut::TooDeep)));
            return;
        };
        let stat = || rustix::fs::statat(dir.fd()?, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
        let kind = match entry.file_type() {
            // Some file systems do not say it in a listing.
            FileType::Unknown => {
                stat().map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
            }
            kind => kind,
        };
        let is_directory = kind == FileType::Directory;
        if self.exclude.matched(path.as_path(), is_directory).is_ignore() {
            found.left_out.push((path, LeftOut::Excluded));
            return;
        }
        let inside = match directory.inside {
            Inside::Tree | Inside::OtherGit if is_dot_git(name) => Inside::Git,
            Inside::Tree | Inside::OtherGit if directory.rules.ignore(self.root, &path, is_directory) => {
                Inside::Ignored(0, None)
            }
            inside => inside,
        };
        if let Inside::Ignored(..) = inside {
            found.ignored.push(path.clone());
            if is_directory && (self.shows_ignored || !self.include.is_empty()) {
                below.push(Directory::ignored(path, 0, None));
            } else if !is_directory && self.is_included(&path, false) {
                found.included.push(path);
            } else if self.shows_ignored && !is_directory {
                found.take_ignored_file(path, kind);
            }
            return;
        }
        if inside == Inside::Git && !self.is_needed(&path, kind) {
            return found.left_out.push((path, LeftOut::UnneededByGit));
        }
        match stat() {
            Ok(stat) => self.take(path.clone(), &stat, inside == Inside::OtherGit, found),
            // Removed since the directory was listed.
            Err(Errno::NOENT) => return,
            Err(_) => found.left_out.push((path.clone(), LeftOut::Unreadable)),
        }
        if is_directory && !(self.is_known)(&path) {
            below.push(Directory { path: Some(path), rules: directory.rules.clone(), inside });
        }
    }

    /// Picks a path, or leaves it out.
    fn take(&self, path: TreePath, stat: &Stat, is_in_other_git: bool, found: &mut Found) {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => PickedKind::File,
            FileType::Directory => PickedKind::Directory,
            FileType::Symlink => match std::fs::read_link(self.root.join(path.as_path())) {
                Ok(target) => PickedKind::Symlink(target.into_os_string().into_vec()),
                Err(_) => return found.left_out.push((path, LeftOut::Unreadable)),
            },
            _ => return found.left_out.push((path, LeftOut::Special)),
        };
        let picked = Picked {
            kind,
            mode: stat.st_mode & 0o777,
            stamp: stat.into(),
            uid: stat.st_uid,
            device: stat.st_dev,
        };
        self.count.fetch_add(1, Ordering::Relaxed);
        let is_file = picked.kind == PickedKind::File;
        if !is_file || !git_directory::is_judged(self.root, &path) || self.is_included(&path, false) {
            return found.picked.push((path, picked));
        }
        if is_in_other_git && self.is_judged_as_gits(&path) {
            return found.suspects.push((path, picked, Suspicion::OfGit));
        }
        if let Some(reason) = self.unsuitable(stat) {
            return found.left_out.push((path, reason));
        }
        match secrets::name(&path) {
            Suspicion::None => found.picked.push((path, picked)),
            suspicion => found.suspects.push((path, picked, suspicion)),
        }
    }

    /// Returns the reason why a file of this size and shape is left out, if it is.
    fn unsuitable(&self, stat: &Stat) -> Option<LeftOut> {
        // `st_blocks` counts 512 bytes whatever the file system's block is (stat(2)).
        let on_disk = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512);
        match Stamp::from(stat).size {
            size if size > self.max_file_bytes => Some(LeftOut::Huge),
            size if size > SPARSE_MIN && on_disk < size / 2 => Some(LeftOut::Sparse),
            _ => None,
        }
    }

    fn is_included(&self, path: &TreePath, is_directory: bool) -> bool {
        !self.include.is_empty()
            && self.include.matched_path_or_any_parents(path.as_path(), is_directory).is_ignore()
    }

    /// Returns whether a path in a `.git` directory is for the sandbox.
    fn is_needed(&self, path: &TreePath, kind: FileType) -> bool {
        git_directory::is_needed(self.root, path, kind == FileType::RegularFile)
            || self.is_included(path, kind == FileType::Directory)
    }

    /// Returns whether a file may hold credentials or keys because of its place in a git directory of any name.
    fn is_judged_as_gits(&self, path: &TreePath) -> bool {
        GitPath::anywhere(self.root, path)
            .is_some_and(|path| path.holds_keys() || path.may_have_credentials())
    }

    /// Decides about what depends on whether git tracks it: ignored files and suspects.
    fn decide(&self, mut found: Found, tracked: &Tracked) -> Selection {
        // git lists them in order.
        let mut tracked: Vec<&[u8]> = tracked.names().collect();
        tracked.sort();
        let mut ignored = std::mem::take(&mut found.ignored);
        self.take_ignored(&mut found, &tracked, &mut ignored);
        self.judge_ignored(&mut found);
        let mut secrets_tracked = Vec::new();
        for (path, picked, suspicion) in std::mem::take(&mut found.suspects) {
            let is_tracked = tracked.binary_search(&path.as_bytes()).is_ok();
            // What is tracked is copied whatever it holds: reading all of its settings would only name more of them.
            let is_read = !is_tracked && picked.stamp.size <= secrets::HEAD as u64;
            let suspicion =
                if is_tracked && suspicion == Suspicion::OfGit { Suspicion::None } else { suspicion };
            match self.is_secret(&path, suspicion, is_read) {
                Ok(true) if is_tracked => {
                    secrets_tracked.push(path.clone());
                    found.picked.push((path, picked));
                }
                Ok(true) => found.left_out.push((path, LeftOut::Secret)),
                Ok(false) => found.picked.push((path, picked)),
                Err(_) => found.left_out.push((path, LeftOut::Unreadable)),
            }
        }
        found.picked.sort_by(|(a, _), (b, _)| a.cmp(b));
        secrets_tracked.sort();
        let mut selection = Selection {
            picked: found.picked,
            left_out: found.left_out.into_iter().collect(),
            secrets_tracked,
            has_too_many_rules: self.patterns.is_used_up(),
            ..Selection::default()
        };
        let is_picked = |path: &TreePath| selection.get(path.as_bytes()).is_some();
        ignored.retain(|path| !is_picked(path));
        found.withheld.retain(|(path, _)| !is_picked(path));
        let left_out = selection.left_out.keys().filter(|path| !is_picked(path));
        let hidden = left_out.chain(found.withheld.iter().map(|(path, _)| path)).cloned().collect();
        (selection.hidden, selection.ignored) = (hidden, ignored);
        selection.withheld = found.withheld.into_iter().collect();
        selection
    }

    /// Picks, with the directories above it, what is ignored but tracked by git or named by `--include`. What else is in
    /// a directory that is picked this way is `hidden`.
    fn take_ignored(&self, found: &mut Found, tracked: &[&[u8]], hidden: &mut Vec<TreePath>) {
        let included = std::mem::take(&mut found.included);
        if hidden.is_empty() {
            return;
        }
        let ignored: HashSet<&[u8]> = hidden.iter().map(TreePath::as_bytes).collect();
        let is_ignored = |path: &TreePath| {
            ignored.contains(path.as_bytes())
                || path.ancestors().any(|above| ignored.contains(above.as_bytes()))
        };
        let wanted = tracked.iter().filter_map(|name| TreePath::new(name).ok()).filter(is_ignored);
        let wanted: BTreeSet<TreePath> = wanted.chain(included).collect();
        let (mut taken, mut beside) = (HashSet::new(), Vec::new());
        for path in wanted {
            let above: Vec<_> = path.ancestors().collect();
            for path in above.into_iter().rev().chain([path]).filter(is_ignored) {
                let absolute = self.root.join(path.as_path());
                // A tracked file may be deleted on the host.
                let Ok(stat) = rustix::fs::lstat(&absolute) else { break };
                let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                if self.exclude.matched_path_or_any_parents(path.as_path(), is_directory).is_ignore() {
                    break;
                }
                if taken.insert(path.clone()) {
                    if is_directory {
                        beside.extend(paths_in(&absolute, &path));
                    }
                    self.take(path, &stat, false, found);
                }
                // What an index names below a symlink is not part of the tree.
                if !is_directory {
                    break;
                }
            }
        }
        hidden.extend(beside);
    }

    /// Returns whether a file that is suspected by its name holds a secret. Settings are only read where `read_settings`.
    fn is_secret(&self, path: &TreePath, suspicion: Suspicion, read_settings: bool) -> std::io::Result<bool> {
        match suspicion {
            Suspicion::Certain(_) => Ok(true),
            Suspicion::Look | Suspicion::Settings if suspicion == Suspicion::Look || read_settings => {
                let absolute = self.root.join(path.as_path());
                let head = plain_file::read(&absolute, secrets::HEAD as u64, Links::Refuse)?;
                Ok(secrets::content(path, &head).is_some())
            }
            Suspicion::OfGit => {
                let Some(git) = GitPath::anywhere(self.root, path) else { return Ok(false) };
                let read =
                    || plain_file::read(&self.root.join(path.as_path()), MAX_OF_GIT + 1, Links::Refuse);
                let is_secret =
                    |content: Vec<u8>| content.len() as u64 > MAX_OF_GIT || git.has_credentials(&content);
                if git.holds_keys() { Ok(true) } else { read().map(is_secret) }
            }
            _ => Ok(false),
        }
    }
}

fn open_directory(absolute: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, absolute, flags, Mode::empty())
}

/// An open directory and what is in it.
fn entries_of(directory: OwnedFd) -> rustix::io::Result<(Dir, Vec<DirEntry>)> {
    let mut dir = Dir::new(directory)?;
    let is_inside = |entry: &rustix::io::Result<DirEntry>| {
        !entry.as_ref().is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    };
    let entries = dir.by_ref().filter(is_inside).collect::<rustix::io::Result<_>>()?;
    Ok((dir, entries))
}

/// The paths in a directory of the tree.
fn paths_in(absolute: &Path, path: &TreePath) -> Vec<TreePath> {
    let entries = std::fs::read_dir(absolute).into_iter().flatten().flatten();
    let join = |entry: std::fs::DirEntry| path.join(entry.file_name().as_bytes());
    // A name that is not a valid path cannot be hidden by it; no host file system has such names.
    entries.filter_map(|entry| join(entry).ok()).collect()
}

/// Paths of one thread from which on it pays to sort them on a thread.
const SORTED_APART: usize = 5_000;
/// Largest file of a git directory that is judged by what it holds.
const MAX_OF_GIT: u64 = 16 << 20;
/// Files below this are not asked whether they have holes.
const SPARSE_MIN: u64 = 16 << 20;

/// Globs in `.gitignore`'s syntax, as `option` gave them.
pub fn globs(root: &Path, patterns: &[String], option: &str) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new(root);
    // In an ignore file it matches itself; on a command line something was forgotten.
    builder.allow_unclosed_class(false);
    for pattern in patterns {
        let wrong = |error| {
            Error::usage(format!("{option} {pattern}: not a glob"))
                .caused_by(anyhow::Error::from(error))
                .hint("a backslash before a character takes it as it is")
        };
        builder.add_line(None, pattern).map_err(wrong)?;
    }
    builder.build().map_err(|error| Error::usage(format!("{option}: not a glob")).caused_by(error))
}
