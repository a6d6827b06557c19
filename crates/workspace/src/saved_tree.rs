//! A directory of a sandbox, saved on this machine with its contents and modes.

use crate::fetch::{Fetched, fetch_group};
use crate::manifest::{Manifest, Node, Target};
use crate::store::Store;
use crate::transfer::write_below;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_sandbox::{Entry, EntryKind, Sandbox, WalkOptions};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Entries and bytes that are saved at most.
const MAX_ENTRIES: u64 = 200_000;
const MAX_BYTES: u64 = 4 << 30;
/// Bytes of small files that are read in one request.
const GROUP_BYTES: u64 = 2 << 20;
/// The record of what is saved.
pub const TREE: &str = "tree.json";

/// Saves what is below `root` in `sandbox`, in `directory`. Sockets, pipes and what cannot be read are left out.
///
/// # Errors
/// It holds too much.
pub async fn save(sandbox: &Sandbox, root: &Path, directory: &Path) -> Result<()> {
    let options = WalkOptions { hash: false, exclude: Vec::new(), max_entries: MAX_ENTRIES };
    let entries = sandbox.walk(root, options).await?;
    save_entries(sandbox, root, entries, directory).await
}

/// Saves these entries of what is below `root` in `sandbox`, in `directory`.
///
/// # Errors
/// They hold too much.
pub async fn save_entries(
    sandbox: &Sandbox,
    root: &Path,
    entries: Vec<Entry>,
    directory: &Path,
) -> Result<()> {
    let store = Store::open(directory)?;
    if entries.iter().map(|entry| entry.size).sum::<u64>() > MAX_BYTES {
        let held = format!("the sandbox's {} holds more than {} GiB", root.display(), MAX_BYTES >> 30);
        return Err(Error::sandbox(held).hint("remove caches there first"));
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
            save_group(sandbox, root, &store, std::mem::take(&mut group), &mut tree).await?;
            bytes = 0;
        }
    }
    save_group(sandbox, root, &store, group, &mut tree).await?;
    store.save(TREE, &tree)
}

async fn save_group(
    sandbox: &Sandbox,
    root: &Path,
    store: &Store,
    group: Vec<(TreePath, u32)>,
    tree: &mut Manifest,
) -> Result<()> {
    if group.is_empty() {
        return Ok(());
    }
    let paths: Vec<PathBuf> = group.iter().map(|(path, _)| root.join(path.as_path())).collect();
    let files: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    for ((path, mode), fetched) in group.into_iter().zip(fetch_group(sandbox, store, &files).await?) {
        if let Fetched::Content(hash, size) = fetched {
            tree.insert(path, Node::File { hash, size, mode });
        }
    }
    Ok(())
}

/// Restores below `root` what was saved in `directory`, if anything was.
pub async fn restore(sandbox: &Sandbox, root: &Path, directory: &Path) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    let store = Store::open(directory)?;
    let tree: Manifest = store.load(TREE)?.unwrap_or_default();
    let (directories, others): (Vec<_>, Vec<_>) = tree.into_iter().partition(|(_, node)| node.is_directory());
    // Some directories of caches are read-only.
    let open = |(path, node): &(TreePath, Node)| {
        (path.clone(), node.clone().with_mode(node.mode().unwrap_or_default() | 0o700))
    };
    write_below(sandbox, &store, root, directories.iter().map(open).collect()).await?;
    write_below(sandbox, &store, root, others).await?;
    write_below(sandbox, &store, root, directories).await
}
