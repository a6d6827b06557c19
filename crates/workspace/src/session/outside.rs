//! The files of a sandbox outside of the diff: what git ignores, and `$HOME`.

use super::state::SessionState;
use super::{Options, Workspace, blocking};
use crate::entries::validate;
use crate::saved_tree;
use crate::transfer::{inside, remove_directories};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_base::machine::Machine;
use agent_base::visible::visible_name;
use agent_sandbox::{Entry, EntryKind, HOME, HomeFile, Sandbox, WalkOptions, WorkspaceMount, layer};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Entries of a workspace that are compared at most.
const MAX_ENTRIES: u64 = 200_000;
/// Entries of `$HOME` that are looked at to see whether one is the session's own.
const MAX_LOOKED_AT: usize = 10_000;
/// Entries that are kept by name.
const MAX_NAMED: usize = 6;

/// The topmost entries that a sandbox has outside of the diff, by names that are safe to show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outside {
    /// The first of them.
    pub names: Vec<String>,
    /// The number of all of them.
    pub count: usize,
}

impl Outside {
    fn add(&mut self, name: String) {
        if self.names.len() < MAX_NAMED {
            self.names.push(name);
        }
        self.count += 1;
    }
}

/// The paths that a look for changes outside of the diff goes by.
struct Tree {
    /// The paths that are in the diff, or as the user has them.
    paths: BTreeSet<TreePath>,
    /// The files that this program puts below `$HOME`.
    home: BTreeSet<PathBuf>,
    /// The user's `$HOME`, of which some settings are copied.
    users: Option<PathBuf>,
}

impl Workspace {
    /// Returns what is outside of the diff in the copy `layer` of what the sandbox has written. `home`: what this program put into its
    /// `$HOME`.
    pub async fn outside_of_layer(&self, layer: &Path, home: &[HomeFile]) -> Result<Outside> {
        let (mut tree, layer) = (self.outer_tree().await?, layer.to_owned());
        tree.home = home.iter().chain(&self.git_settings().await?).map(|file| file.path.clone()).collect();
        blocking(move || {
            let mut found = Outside::default();
            in_workspace(&layer.join(layer::UPPER), None, &tree, &mut found)?;
            in_home(&layer.join(layer::HOME), &tree, &mut found)?;
            in_caches(&layer.join(layer::CACHES), &mut found)?;
            Ok(found)
        })
        .await
    }

    /// Copies what `from` has outside of the diff to `to`, which has the same workspace otherwise: through both guests, by way of the
    /// empty directory `scratch`.
    ///
    /// # Errors
    /// It is too much, or a sandbox is lost. Some may have been copied then.
    pub async fn carry(&self, from: &Sandbox, to: &Sandbox, scratch: &Path) -> Result<Outside> {
        let mut found = Outside::default();
        // A bound directory is the same one.
        if !matches!(self.mount().await, WorkspaceMount::Bind(_)) {
            let tree = self.outer_tree().await?;
            let (theirs, ours) = (list(from, &tree).await?, list(to, &tree).await?);
            remove(to, &theirs, &ours).await?;
            let differs =
                |path: &TreePath, entry: &Entry| !ours.get(path).is_some_and(|is| is_same(is, entry));
            let mut topmost: Option<TreePath> = None;
            let mut wanted = Vec::new();
            for (path, entry) in theirs.iter().filter(|(path, entry)| differs(path, entry)) {
                if !topmost.as_ref().is_some_and(|top| path.is_within(top.as_bytes())) {
                    found.add(path.to_string());
                    topmost = Some(path.clone());
                }
                wanted.push(entry.clone());
            }
            let directory = scratch.join("outside");
            saved_tree::save_entries(from, Path::new("."), wanted, &directory).await?;
            saved_tree::restore(to, Path::new(""), &directory).await?;
        }
        let directory = scratch.join("home");
        saved_tree::save(from, Path::new(HOME), &directory).await?;
        saved_tree::restore(to, Path::new(HOME), &directory).await?;
        Ok(found)
    }

    /// Returns what is known of the machine that it is on.
    pub fn machine(&self) -> Arc<Machine> {
        Arc::clone(&self.options.machine)
    }

    /// Lays what an earlier sandbox over this workspace wrote outside of the diff under what the session's sandboxes write.
    pub async fn lay_beneath(&self, layer: PathBuf) {
        self.state.lock().await.beneath = Some(layer);
    }

    /// Returns what lies under what the session's sandboxes write, as far as it is still there.
    pub async fn beneath(&self) -> Option<PathBuf> {
        self.state.lock().await.beneath.clone().filter(|layer| layer.is_dir())
    }

    /// The same workspace as it is now, for a sandbox of its own, with its records in `directory`.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub async fn afresh(&self, directory: &Path) -> Result<Self> {
        let select = self.options.clone();
        let options = Options {
            mode: self.mode,
            can_overlay: true,
            named: true,
            is_layered: true,
            ..Options::new(Arc::clone(&select.machine))
        };
        Ok(Self::open(&self.root, directory, Options { select, ..options }).await?.transient())
    }

    /// Removes from the copy `layer` of what `sandbox` has written all that is in the diff or in the repository, so that what lies
    /// outside of it is left. The files in the diff.
    ///
    /// # Errors
    /// The sandbox is lost, or something cannot be removed.
    pub async fn keep_outside(&self, sandbox: &Sandbox, layer: &Path) -> Result<Vec<TreePath>> {
        let changes = self.changes(sandbox).await?;
        let (tree, upper) = (self.outer_tree().await?, layer.join(layer::UPPER));
        blocking(move || keep(&upper, None, &tree)).await?;
        let changed = changes.changes.into_iter().filter(|(_, change)| !change.is_directory_only());
        Ok(changed.map(|(path, _)| path).collect())
    }

    async fn outer_tree(&self) -> Result<Tree> {
        let state = self.state().await?;
        let SessionState { base, history, .. } = &*state;
        let paths = base.nodes.keys().chain(history.delta().keys()).cloned().collect();
        let users = self.options.machine.home();
        Ok(Tree { paths, home: BTreeSet::new(), users })
    }
}

/// Returns what is there beside the tree, ordered by path.
async fn list(sandbox: &Sandbox, tree: &Tree) -> Result<BTreeMap<TreePath, Entry>> {
    let options = WalkOptions { hash: false, exclude: vec![".git".into()], max_entries: MAX_ENTRIES };
    let entries = sandbox.walk(Path::new("."), options).await?;
    let all = validate(entries, &mut crate::entries::Rejected::default());
    Ok(all.into_iter().filter(|(path, _)| path.as_bytes() != b".git" && !tree.paths.contains(path)).collect())
}

fn is_same(a: &Entry, b: &Entry) -> bool {
    a.kind == b.kind
        && a.mode == b.mode
        && (a.kind != EntryKind::File || (a.size, a.mtime_ns) == (b.size, b.mtime_ns))
}

/// Removes from `sandbox` what only it has, or has as something else.
async fn remove(
    sandbox: &Sandbox,
    theirs: &BTreeMap<TreePath, Entry>,
    ours: &BTreeMap<TreePath, Entry>,
) -> Result<()> {
    let is_directory = |entry: &Entry| entry.kind == EntryKind::Directory;
    let goes = |path: &TreePath, entry: &Entry| {
        theirs.get(path).is_none_or(|other| is_directory(other) != is_directory(entry))
    };
    let (directories, files): (Vec<_>, Vec<_>) =
        ours.iter().filter(|(path, entry)| goes(path, entry)).partition(|(_, entry)| is_directory(entry));
    let removed = sandbox.remove_files(files.into_iter().map(|(path, _)| inside(path)).collect()).await?;
    let removed = removed.into_iter().chain(
        remove_directories(sandbox, directories.into_iter().map(|(path, _)| inside(path)).collect()).await?,
    );
    for result in removed {
        result.map_err(|error| {
            Error::new(Kind::Sandbox, "what the session removed could not be").caused_by(error)
        })?;
    }
    Ok(())
}

/// Removes from `directory` of a layer what is in the tree, and deletions. A directory of the tree stays where something else is in it,
/// and hides nothing of the one underneath.
fn keep(directory: &Path, at: Option<&TreePath>, tree: &Tree) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let path = match at {
            Some(at) => at.join(name.as_bytes()),
            None => TreePath::new(name.as_bytes()),
        };
        let is_content = kind.is_dir() || kind.is_file() || kind.is_symlink();
        match path {
            Ok(path) if path.as_bytes() == b".git" && kind.is_dir() => fs::remove_dir_all(entry.path())?,
            Ok(path) if tree.paths.contains(&path) && kind.is_dir() => {
                layer::make_plain(&entry.path())?;
                keep(&entry.path(), Some(&path), tree)?;
                match fs::remove_dir(entry.path()) {
                    Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => return Err(error.into()),
                    _ => {}
                }
            }
            Ok(path) if is_content && path.as_bytes() != b".git" && !tree.paths.contains(&path) => {}
            _ if kind.is_dir() => fs::remove_dir_all(entry.path())?,
            _ => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Returns what lies in `directory` of a layer beside the tree. Deletions are left out: what is withheld is one too.
fn in_workspace(directory: &Path, at: Option<&TreePath>, tree: &Tree, found: &mut Outside) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let path = match at {
            Some(at) => at.join(name.as_bytes()),
            None => TreePath::new(name.as_bytes()),
        };
        let kind = entry.file_type()?;
        let is_content = kind.is_dir() || kind.is_file() || kind.is_symlink();
        match path {
            Ok(path) if path.as_bytes() == b".git" => {}
            Ok(path) if tree.paths.contains(&path) => {
                if kind.is_dir() {
                    in_workspace(&entry.path(), Some(&path), tree, found)?;
                }
            }
            _ if !is_content => {}
            Ok(path) => found.add(path.to_string()),
            Err(_) => found.add(visible_name(name.as_bytes())),
        }
    }
    Ok(())
}

/// Returns what the session put into `home`: its entries that hold something that neither this program nor the user has there.
fn in_home(home: &Path, tree: &Tree, found: &mut Outside) -> Result<()> {
    if !home.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(home)? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        let is_known = |path: &Path| {
            tree.home.contains(path)
                || tree.users.as_ref().is_some_and(|users| fs::symlink_metadata(users.join(path)).is_ok())
        };
        let mut budget = MAX_LOOKED_AT;
        if holds_a_file(&entry.path(), &name, &is_known, &mut budget) {
            found.add(format!("$HOME/{}", visible_name(name.as_os_str().as_bytes())));
        }
    }
    Ok(())
}

fn in_caches(caches: &Path, found: &mut Outside) -> Result<()> {
    if !caches.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(caches)? {
        let cache = entry?.path();
        let mut budget = MAX_LOOKED_AT;
        if holds_a_file(&cache.join(layer::UPPER), Path::new(""), &|_| false, &mut budget) {
            let inside = fs::read(cache.join(layer::SHOWN_AT))?;
            found.add(visible_name(&inside));
        }
    }
    Ok(())
}

/// Returns whether `path`, which is `name` in the directory that is looked at, is or holds a file that is not known. With more entries than
/// are looked at, it is taken to.
fn holds_a_file(path: &Path, name: &Path, is_known: &dyn Fn(&Path) -> bool, budget: &mut usize) -> bool {
    if *budget == 0 {
        return true;
    }
    *budget -= 1;
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    if !metadata.is_dir() {
        return (metadata.is_file() || metadata.is_symlink()) && !is_known(name);
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut below = entries.map(|entry| (entry.path(), name.join(entry.file_name())));
    below.any(|(path, name)| holds_a_file(&path, &name, is_known, budget))
}
