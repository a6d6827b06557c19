//! Three-way merges of files that both the sandbox and the host changed.

use crate::error::Result;
use crate::workspace::changes::Change;
use crate::workspace::host_dir::HostDir;
use crate::workspace::manifest::{Hash, Node};
use crate::workspace::store::Store;
use crate::workspace::tree_path::TreePath;
use std::io::Read;

/// Largest file that is merged, in bytes: the time of a comparison grows with the square of the differences.
const MAX_MERGE: u64 = 4 << 20;

/// Merges what the host has (`found`) with the change. `None` where lines conflict, where a side is no text, or
/// where the common ancestor is not kept: conflict markers are never written. The merged content and the host's
/// own are kept in `store`.
pub fn three_way(
    host: &HostDir,
    path: &TreePath,
    found: Option<&Node>,
    change: &Change,
    store: &Store,
) -> Result<Option<Node>> {
    let (Some(ours @ Node::File { .. }), Some(base @ Node::File { .. }), Some(theirs @ Node::File { .. })) =
        (found, &change.before, &change.after)
    else {
        return Ok(None);
    };
    let sizes = [ours, base, theirs].map(|node| if let Node::File { size, .. } = node { *size } else { 0 });
    let hash = |node: &Node| if let Node::File { hash, .. } = node { *hash } else { Hash::UNKNOWN };
    if sizes.iter().any(|&size| size > MAX_MERGE) || !store.contains(hash(base)) {
        return Ok(None);
    }
    let mut host_content = Vec::new();
    host.open_file(path)?.take(MAX_MERGE).read_to_end(&mut host_content)?;
    let (base_content, sandbox_content) = (store.read(hash(base))?, store.read(hash(theirs))?);
    if [&host_content, &base_content, &sandbox_content].iter().any(|content| content.contains(&0)) {
        return Ok(None);
    }
    let Ok(merged) = diffy::merge_bytes(&base_content, &host_content, &sandbox_content) else {
        return Ok(None);
    };
    // Two sides may each change the bits; the sandbox's word counts where it has one.
    let mode = if change.changes_mode() { theirs.mode() } else { ours.mode() }.unwrap_or(0o644);
    let size = merged.len() as u64;
    Ok(Some(Node::File { hash: store.put(&merged)?, size, mode }))
}
