//! Restores a recorded state of the sandbox's tree: contents, deletions, modes, symlinks.

use crate::base::Base;
use crate::manifest::{Delta, Node};
use crate::selection::MAX_PATHS;
use crate::store::Store;
use crate::transfer::{inside, remove_directories, write_nodes};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_sandbox::{EntryKind, Sandbox, WalkOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;

/// The paths to remove and to write so that a sandbox that has `from` has `to` (both as differences from the
/// base).
struct Steps {
    remove: Vec<TreePath>,
    write: BTreeMap<TreePath, Node>,
}

/// Turns the state `from` into the state `to`. Times are new, so that build tools see what was put back.
///
/// Nothing is touched where a content is not kept any more; the error names the first such file.
pub async fn restore(sandbox: &Sandbox, base: &Base, store: &Store, from: &Delta, to: &Delta) -> Result<()> {
    let steps = plan(base, from, to);
    let lost = steps.write.iter().find(|(_, node)| match node {
        Node::File { hash, .. } => *hash == Hash::UNKNOWN || !store.contains(*hash),
        _ => false,
    });
    if let Some((path, _)) = lost {
        return Err(Error::unexpected(format!("{path} cannot be restored: its earlier content is not kept"))
            .hint("it changed on the host and in the sandbox within the same turn"));
    }
    let closed = closed(base, from, steps.remove.iter().chain(steps.write.keys()));
    let opened = closed.iter().map(|(path, node)| (path.clone(), open(node.clone()))).collect();
    write_nodes(sandbox, store, opened).await?;
    remove(sandbox, base, from, steps.remove).await?;
    let (mut directories, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        steps.write.into_iter().partition(|(_, node)| node.is_directory());
    let stays = |path: TreePath| state(base, to, &path).filter(Node::is_directory).map(|node| (path, node));
    directories.extend(closed.into_keys().filter_map(stays));
    let open = directories.iter().map(|(path, node)| (path.clone(), open(node.clone()))).collect();
    write_nodes(sandbox, store, open).await?;
    write_nodes(sandbox, store, others.into_iter().collect()).await?;
    write_nodes(sandbox, store, directories.into_iter().collect()).await
}

/// Opens the directories `closed`, which cannot be listed, and those below them, to their owner; otherwise with the modes of the base.
pub async fn open_closed(
    sandbox: &Sandbox,
    base: &Base,
    store: &Store,
    mut closed: BTreeSet<TreePath>,
) -> Result<()> {
    let mut seen = BTreeSet::new();
    while let Some(path) = closed.pop_first() {
        let node = base.nodes.get(&path).filter(|node| node.is_directory());
        let node = node.cloned().unwrap_or(Node::Directory { mode: 0o755 });
        write_nodes(sandbox, store, vec![(path.clone(), open(node))]).await?;
        let options = WalkOptions { max_entries: MAX_PATHS as u64, ..WalkOptions::default() };
        let below = sandbox.walk(&inside(&path), options).await.unwrap_or_default().into_iter();
        let below = below.filter(|entry| matches!(entry.kind, EntryKind::Directory) && !entry.readable);
        let below = below.filter_map(|entry| path.join(entry.path.as_os_str().as_bytes()).ok());
        // One that cannot be listed for another reason stays so.
        seen.insert(path.clone());
        closed.extend(below.filter(|path| !seen.contains(path)));
    }
    Ok(())
}

/// The directories above `paths` that their owner may not write to or look into, the upmost first.
fn closed<'a>(
    base: &Base,
    from: &Delta,
    paths: impl Iterator<Item = &'a TreePath>,
) -> BTreeMap<TreePath, Node> {
    let above: BTreeSet<TreePath> = paths.flat_map(TreePath::ancestors).collect();
    let is_closed = |node: &Node| matches!(node, Node::Directory { mode } if mode & 0o700 != 0o700);
    let node = |path: TreePath| state(base, from, &path).filter(is_closed).map(|node| (path, node));
    above.into_iter().filter_map(node).collect()
}

/// Files and symlinks first, then directories, the deepest first. A directory that holds ignored files stays, and so
/// do they.
async fn remove(sandbox: &Sandbox, base: &Base, from: &Delta, paths: Vec<TreePath>) -> Result<()> {
    let (directories, files): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| state(base, from, path).is_some_and(|node| node.is_directory()));
    let files = files.iter().map(inside).collect();
    sandbox.remove_files(files).await?.into_iter().collect::<Result<()>>()?;
    remove_directories(sandbox, directories.iter().map(inside).collect()).await.map(drop)
}

fn state(base: &Base, delta: &Delta, path: &TreePath) -> Option<Node> {
    delta.get(path).cloned().unwrap_or_else(|| base.nodes.get(path).cloned())
}

fn open(node: Node) -> Node {
    let mode = node.mode().unwrap_or(0o755);
    node.with_mode(mode | 0o700)
}

fn plan(base: &Base, from: &Delta, to: &Delta) -> Steps {
    let mut steps = Steps { remove: Vec::new(), write: BTreeMap::new() };
    let paths: BTreeSet<_> = from.keys().chain(to.keys()).collect();
    for path in paths {
        let (now, wanted) = (state(base, from, path), state(base, to, path));
        if now == wanted {
            continue;
        }
        let changes_kind = |now: &Node, wanted: &Node| now.is_directory() != wanted.is_directory();
        match (&now, &wanted) {
            (Some(_), None) => steps.remove.push(path.clone()),
            (Some(now), Some(wanted)) if changes_kind(now, wanted) => steps.remove.push(path.clone()),
            _ => {}
        }
        if let Some(wanted) = wanted {
            steps.write.insert(path.clone(), wanted);
        }
    }
    steps
}
