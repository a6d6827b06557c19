//! What of the host directory comes along.
//!
//! `.gitignore` is respected as git does; files that git tracks although they are ignored come along, and so does
//! `.git` itself, whole, so that git works inside. Secrets, huge and sparse files and what is no file at all stay
//! out, each with a reason. Nothing is read but names, metadata and the beginnings of files that may hold secrets.

use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::plain_file::{self, Links};
use crate::workspace::ignored::{Ignored, read_rules};
use crate::workspace::secrets::{self, Suspicion};
use crate::workspace::tracked;
use crate::workspace::tree_path::TreePath;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, WalkBuilder, WalkState};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most paths that a workspace may have.
pub const MAX_PATHS: usize = 1_000_000;

/// What the user says about the selection.
#[derive(Debug, Clone)]
pub struct Options {
    /// Globs in `.gitignore`'s syntax: these come along even if they are ignored, secret or huge.
    pub include: Vec<String>,
    /// Globs in `.gitignore`'s syntax: these stay out, whatever else says otherwise.
    pub exclude: Vec<String>,
    /// Largest file outside `.git`, in bytes; a larger one stays out with a notice.
    pub max_file_bytes: u64,
    /// Bytes in all; more is an error that asks for `--exclude`.
    pub max_total_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { include: Vec::new(), exclude: Vec::new(), max_file_bytes: 256 << 20, max_total_bytes: 8 << 30 }
    }
}

/// What comes along, what stays out and why.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// What comes along.
    pub picked: BTreeMap<TreePath, Picked>,
    /// What stays out although git would not ignore it.
    pub left_out: BTreeMap<TreePath, LeftOut>,
    /// Bytes of all files that come along.
    pub bytes: u64,
    /// What stays out as a secret although git tracks it: what was committed of it is in the history.
    pub committed_secrets: Vec<TreePath>,
    /// Whether there were more ignore rules than are taken.
    pub is_unruly: bool,
}

/// A path that comes along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picked {
    /// What it is.
    pub kind: PickedKind,
    /// Permission bits.
    pub mode: u32,
    /// How it looked when it was picked.
    pub stamp: Stamp,
    /// The user it belongs to.
    pub uid: u32,
    /// The file system it lies on.
    pub device: u64,
}

/// What a picked path is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PickedKind {
    /// A regular file.
    File,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// A directory.
    Directory,
}

/// Enough of a file's metadata to tell whether it was written to since. The change time cannot be set by programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stamp {
    /// Bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Change time in nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Inode number.
    pub inode: u64,
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        Self {
            size: metadata.len(),
            mtime_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }
}

/// Why something stays out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// It holds a secret.
    Secret,
    /// It is larger than the limit.
    Huge,
    /// Most of it is holes.
    Sparse,
    /// A device, FIFO or socket.
    Special,
    /// It could not be looked at.
    Unreadable,
    /// What is in it is nested deeper than a path may be; the directory itself comes along.
    TooDeep,
    /// `--exclude` says so.
    Excluded,
}

impl LeftOut {
    /// The reason in words, to stand after "left out".
    pub fn reason(self) -> &'static str {
        match self {
            LeftOut::Secret => "secret",
            LeftOut::Huge => "too large",
            LeftOut::Sparse => "sparse",
            LeftOut::Special => "not a regular file",
            LeftOut::Unreadable => "cannot be read",
            LeftOut::TooDeep => "nested too deeply",
            LeftOut::Excluded => "excluded",
        }
    }
}

/// Walks `root` in parallel and decides. Blocking.
pub fn select(root: &Path, options: &Options) -> Result<Selection> {
    let walk = Arc::new(Walk::new(root, options)?);
    walk.visible();
    walk.git_directories();
    walk.tracked_but_ignored();
    if !options.include.is_empty() {
        walk.included();
    }
    walk.finish(options.max_total_bytes)
}

struct Walk {
    root: PathBuf,
    include: Gitignore,
    exclude: Gitignore,
    max_file_bytes: u64,
    ignored: Lock<Ignored>,
    found: Lock<Found>,
}

#[derive(Default)]
struct Found {
    selection: Selection,
    /// `.git` directories met on the way: walked on their own, without ignore rules.
    git: Vec<PathBuf>,
    too_many: bool,
}

impl Walk {
    fn new(root: &Path, options: &Options) -> Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            include: globs(root, &options.include, "--include")?,
            exclude: globs(root, &options.exclude, "--exclude")?,
            max_file_bytes: options.max_file_bytes,
            ignored: Lock::new(Ignored::outer(root)),
            found: Lock::default(),
        })
    }

    /// Everything that git does not ignore, but for `.git`.
    fn visible(self: &Arc<Self>) {
        let mut builder = WalkBuilder::new(&self.root);
        self.take_rules(&self.root, None);
        // Not the walker's own filters: they open whatever is called `.gitignore`.
        builder.standard_filters(false).follow_links(false);
        self.run(builder, |walk, entry| {
            if walk.is_excluded(entry) {
                return false;
            }
            if entry.file_name() == ".git" {
                walk.found.lock().git.push(entry.path().to_owned());
                return false;
            }
            !walk.is_ignored(entry)
        });
    }

    fn git_directories(self: &Arc<Self>) {
        let found = std::mem::take(&mut self.found.lock().git);
        for git in found {
            // A walk follows the symlink that it begins at, and that may lead anywhere.
            if let (Some(path), Ok(metadata)) = (self.relative(&git), git.symlink_metadata())
                && !metadata.is_dir()
            {
                self.take(path, &git, &metadata);
                continue;
            }
            let mut builder = WalkBuilder::new(&git);
            builder.standard_filters(false).follow_links(false);
            self.run(builder, |walk, entry| !walk.is_excluded(entry));
        }
    }

    fn tracked_but_ignored(&self) {
        let is_secret =
            |name: &[u8]| self.found.lock().selection.left_out.get(name) == Some(&LeftOut::Secret);
        let known = |name: &[u8]| {
            let Found { selection, .. } = &*self.found.lock();
            selection.picked.contains_key(name) || selection.left_out.contains_key(name)
        };
        for tracked in tracked::files(&self.root, |name| known(name) && !is_secret(name)) {
            let above: Vec<_> = tracked.ancestors().collect();
            for path in above.into_iter().rev().chain([tracked.clone()]) {
                let absolute = self.root.join(path.as_path());
                // A tracked file that is deleted on the host is simply not there.
                let Ok(metadata) = absolute.symlink_metadata() else { break };
                if self.exclude.matched_path_or_any_parents(&absolute, metadata.is_dir()).is_ignore() {
                    break;
                }
                if !known(path.as_bytes()) {
                    self.take(path, &absolute, &metadata);
                }
                // What an index names below a symlink is no part of the tree.
                if !metadata.is_dir() {
                    break;
                }
            }
            if is_secret(tracked.as_bytes()) {
                self.found.lock().selection.committed_secrets.push(tracked);
            }
        }
    }

    /// What `--include` names: found by a second walk that ignores nothing.
    fn included(self: &Arc<Self>) {
        let mut builder = WalkBuilder::new(&self.root);
        builder.standard_filters(false).follow_links(false);
        builder.filter_entry({
            let walk = self.clone();
            move |entry| entry.file_name() != ".git" && !walk.is_excluded(entry)
        });
        for entry in builder.build().flatten() {
            let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
            if !is_dir && self.is_included(entry.path()) {
                for directory in entry.path().ancestors().skip(1).take_while(|dir| *dir != self.root) {
                    if let (Some(path), Ok(metadata)) =
                        (self.relative(directory), directory.symlink_metadata())
                    {
                        self.take(path, directory, &metadata);
                    }
                }
                // Last: where it lies too deep, that is noted at a directory above it.
                self.take_entry(&entry);
            }
        }
    }

    fn run(self: &Arc<Self>, mut builder: WalkBuilder, enter: fn(&Walk, &DirEntry) -> bool) {
        let walk = self.clone();
        builder.filter_entry(move |entry| enter(&walk, entry));
        builder.build_parallel().run(|| {
            Box::new(|entry| match entry {
                Ok(entry) => self.take_entry(&entry),
                Err(error) => self.cannot_read(&error),
            })
        });
    }

    fn take_entry(&self, entry: &DirEntry) -> WalkState {
        match (self.relative(entry.path()), entry.path().symlink_metadata()) {
            (Some(path), Ok(metadata)) => self.take(path, entry.path(), &metadata),
            // Gone between the listing and now: as if it had never been there.
            (_, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            (Some(path), Err(_)) => self.leave(path, LeftOut::Unreadable),
            (None, _) => self.leave_below(entry.path()),
        }
        if self.found.lock().too_many { WalkState::Quit } else { WalkState::Continue }
    }

    fn take(&self, path: TreePath, absolute: &Path, metadata: &Metadata) {
        let kind = metadata.file_type();
        let picked = if kind.is_dir() {
            PickedKind::Directory
        } else if kind.is_symlink() {
            match std::fs::read_link(absolute) {
                Ok(target) => PickedKind::Symlink(target.as_os_str().as_bytes().to_owned()),
                Err(_) => return self.leave(path, LeftOut::Unreadable),
            }
        } else if kind.is_file() {
            if let Some(reason) = self.judge(&path, absolute, metadata) {
                return self.leave(path, reason);
            }
            PickedKind::File
        } else {
            return self.leave(path, LeftOut::Special);
        };
        let picked = Picked {
            kind: picked,
            mode: metadata.mode() & 0o777,
            stamp: metadata.into(),
            uid: metadata.uid(),
            device: metadata.dev(),
        };
        let mut found = self.found.lock();
        found.selection.left_out.remove(&path);
        found.selection.picked.insert(path, picked);
        found.too_many |= found.selection.picked.len() > MAX_PATHS;
    }

    /// Why a regular file stays out, where it does.
    fn judge(&self, path: &TreePath, absolute: &Path, metadata: &Metadata) -> Option<LeftOut> {
        if path.is_git_internal() || self.is_included(absolute) {
            return None;
        }
        let secret = match secrets::name(path) {
            Suspicion::Certain(_) => true,
            Suspicion::Look => match plain_file::read(absolute, secrets::HEAD as u64, Links::Refuse) {
                Ok(head) => secrets::content(path, &head).is_some(),
                Err(_) => return Some(LeftOut::Unreadable),
            },
            Suspicion::None => false,
        };
        // `st_blocks` counts 512 bytes whatever the file system's block is (stat(2)).
        let on_disk = metadata.blocks().saturating_mul(512);
        match metadata.len() {
            _ if secret => Some(LeftOut::Secret),
            size if size > self.max_file_bytes => Some(LeftOut::Huge),
            size if size > SPARSE_MIN && on_disk < size / 2 => Some(LeftOut::Sparse),
            _ => None,
        }
    }

    fn leave(&self, path: TreePath, reason: LeftOut) {
        self.found.lock().selection.left_out.insert(path, reason);
    }

    /// Notes what is nested too deeply, at the innermost directory that has a path. The root has none above it either.
    fn leave_below(&self, absolute: &Path) {
        if let Some(path) = absolute.ancestors().find_map(|above| self.relative(above)) {
            self.leave(path, LeftOut::TooDeep);
        }
    }

    fn cannot_read(&self, error: &ignore::Error) -> WalkState {
        match error_path(error).map(|absolute| (self.relative(absolute), absolute)) {
            Some((Some(path), _)) => self.leave(path, LeftOut::Unreadable),
            Some((None, absolute)) => self.leave_below(absolute),
            None => {}
        }
        WalkState::Continue
    }

    fn is_included(&self, absolute: &Path) -> bool {
        !self.include.is_empty() && self.include.matched_path_or_any_parents(absolute, false).is_ignore()
    }

    /// Whether `--exclude` names it. Noted, so that nothing from the sandbox is ever written there.
    fn is_excluded(&self, entry: &DirEntry) -> bool {
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        let excluded = entry.depth() > 0 && self.exclude.matched(entry.path(), is_dir).is_ignore();
        if excluded && let Some(path) = self.relative(entry.path()) {
            self.leave(path, LeftOut::Excluded);
        }
        excluded
    }

    /// Whether a rule says so. A directory that is walked into brings its own rules.
    fn is_ignored(&self, entry: &DirEntry) -> bool {
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        let path = self.relative(entry.path());
        if path.as_ref().is_some_and(|path| self.ignored.lock().contains(path, is_dir)) {
            return true;
        }
        if is_dir {
            self.take_rules(entry.path(), path.as_ref());
        }
        false
    }

    fn take_rules(&self, directory: &Path, path: Option<&TreePath>) {
        if self.ignored.lock().is_cut_short() {
            return;
        }
        let rules = read_rules(&directory.join(".gitignore"));
        if !rules.is_empty() {
            self.ignored.lock().set(path, &rules);
        }
    }

    /// `None` for the root itself and for what is nested too deeply.
    fn relative(&self, absolute: &Path) -> Option<TreePath> {
        TreePath::new(absolute.strip_prefix(&self.root).ok()?.as_os_str().as_bytes()).ok()
    }

    fn finish(&self, max_total_bytes: u64) -> Result<Selection> {
        let mut found = self.found.lock();
        if found.too_many {
            return Err(Error::usage(format!("the workspace has more than {MAX_PATHS} files"))
                .hint("name a smaller directory with -C, or leave parts out with --exclude"));
        }
        let mut selection = std::mem::take(&mut found.selection);
        selection.is_unruly = self.ignored.lock().is_cut_short();
        let files = selection.picked.values().filter(|picked| picked.kind == PickedKind::File);
        selection.bytes = files.map(|picked| picked.stamp.size).sum();
        if selection.bytes > max_total_bytes {
            return Err(Error::usage(format!(
                "the workspace holds {} MB, more than the limit of {} MB",
                selection.bytes >> 20,
                max_total_bytes >> 20
            ))
            .hint("name a smaller directory with -C, or leave parts out with --exclude"));
        }
        Ok(selection)
    }
}

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

fn error_path(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => error_path(err),
        _ => None,
    }
}
