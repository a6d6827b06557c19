//! `$HOME` of a sandbox, saved beside the session of a fork: what was installed there, and caches.

use crate::error::{Error, Result};
use crate::sandbox::{EntryKind, HOME, Sandbox, WalkOptions};
use crate::workspace::fetch::{Fetched, fetch_group};
use crate::workspace::manifest::{Manifest, Node, Target};
use crate::workspace::store::Store;
use crate::workspace::transfer::write_below;
use crate::workspace::tree_path::TreePath;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Entries and bytes that are saved at most.
const MAX_ENTRIES: u64 = 200_000;
const MAX_BYTES: u64 = 4 << 30;
/// Bytes of small files that are read in one request.
const GROUP_BYTES: u64 = 2 << 20;
const TREE: &str = "tree.json";

/// The directory in `session`, which is that of the session.
fn directory(session: &Path) -> PathBuf {
    session.join("home")
}

/// Saves `$HOME` of `sandbox` for the session in the directory `session`. Sockets, pipes and what cannot be read are left out.
///
/// # Errors
/// It holds too much.
pub async fn save(sandbox: &Sandbox, session: &Path) -> Result<()> {
    let store = Store::open(&directory(session))?;
    let options = WalkOptions { hash: false, exclude: Vec::new(), max_entries: MAX_ENTRIES };
    let entries = sandbox.walk(Path::new(HOME), options).await?;
    if entries.iter().map(|entry| entry.size).sum::<u64>() > MAX_BYTES {
        return Err(Error::sandbox(format!("the sandbox's {HOME} holds more than {} GiB", MAX_BYTES >> 30))
            .hint("remove caches there first"));
    }
    let (mut tree, mut group, mut bytes) = (Manifest::new(), Vec::new(), 0);
    for entry in entries {
        let Ok(path) = TreePath::new(entry.path.as_os_str().as_bytes()) else { continue };
        match entry.kind {
            EntryKind::Directory => drop(tree.insert(path, Node::Directory { mode: entry.mode })),
            EntryKind::Symlink(target) => {
                let target = Target(target.as_os_str().as_bytes().to_vec());
                tree.insert(path, Node::Symlink { target });
            }
            EntryKind::File => {
                bytes += entry.size;
                group.push((path, entry.mode));
            }
            EntryKind::Other => {}
        }
        if bytes > GROUP_BYTES {
            save_group(sandbox, &store, std::mem::take(&mut group), &mut tree).await?;
            bytes = 0;
        }
    }
    save_group(sandbox, &store, group, &mut tree).await?;
    store.save(TREE, &tree)
}

async fn save_group(
    sandbox: &Sandbox,
    store: &Store,
    group: Vec<(TreePath, u32)>,
    tree: &mut Manifest,
) -> Result<()> {
    if group.is_empty() {
        return Ok(());
    }
    let paths: Vec<PathBuf> = group.iter().map(|(path, _)| Path::new(HOME).join(path.as_path())).collect();
    let files: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    for ((path, mode), fetched) in group.into_iter().zip(fetch_group(sandbox, store, &files).await?) {
        if let Fetched::Content(hash, size) = fetched {
            tree.insert(path, Node::File { hash, size, mode });
        }
    }
    Ok(())
}

/// Whether anything is saved for the session in the directory `session`.
pub fn is_saved(session: &Path) -> bool {
    directory(session).join(TREE).exists()
}

/// Removes what was saved for the session in the directory `session`.
pub fn discard(session: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory(session)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Removes what was saved for the session in the directory `session` if it is more than `bytes`.
pub fn keep_at_most(session: &Path, bytes: u64) -> Result<()> {
    if !is_saved(session) {
        return Ok(());
    }
    let tree: Manifest = Store::open(&directory(session))?.load(TREE)?.unwrap_or_default();
    let sizes = tree.values().map(|node| if let Node::File { size, .. } = node { *size } else { 0 });
    if sizes.sum::<u64>() > bytes { discard(session) } else { Ok(()) }
}

/// Copies what was saved for the session in the directory `from` to that in `to`; contents are shared.
pub fn share(from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (Store::open(&directory(from))?, Store::open(&directory(to))?);
    let tree: Manifest = from.load(TREE)?.unwrap_or_default();
    for node in tree.values() {
        if let Node::File { hash, .. } = node {
            to.adopt(&from, *hash)?;
        }
    }
    to.save(TREE, &tree)
}

/// Restores what was saved for the session in the directory `session`, if anything was.
pub async fn restore(sandbox: &Sandbox, session: &Path) -> Result<()> {
    let directory = directory(session);
    if !directory.exists() {
        return Ok(());
    }
    let store = Store::open(&directory)?;
    let tree: Manifest = store.load(TREE)?.unwrap_or_default();
    let (directories, others): (Vec<_>, Vec<_>) = tree.into_iter().partition(|(_, node)| node.is_directory());
    // Some caches are read-only.
    let open = |(path, node): &(TreePath, Node)| {
        (path.clone(), node.clone().with_mode(node.mode().unwrap_or_default() | 0o700))
    };
    let home = Path::new(HOME);
    write_below(sandbox, &store, home, directories.iter().map(open).collect()).await?;
    write_below(sandbox, &store, home, others).await?;
    write_below(sandbox, &store, home, directories).await
}
