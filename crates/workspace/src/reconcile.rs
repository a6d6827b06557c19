//! A look at the sandbox held against the host: what the host itself changed underneath an overlay, and what the base held
//! where the sandbox has something else now.

use crate::base::{Base, is_own_git};
use crate::host_dir::HostDir;
use crate::manifest::{Delta, Node};
use crate::scan::{ScanContext, SeenPath};
use crate::selection::Stamp;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use std::path::Path;

/// Takes into the base, and drops from `delta`, what changed on the host and not in the sandbox: it looks exactly as the
/// host's own does now.
pub async fn follow_host(
    base: &mut Base,
    delta: &mut Delta,
    known: &Delta,
    present: &[(TreePath, SeenPath)],
    root: &Path,
) -> Result<()> {
    let new = delta.keys().filter(|path| !known.contains_key(*path));
    let stamp = |path: &TreePath| {
        let at = present.binary_search_by(|(other, _)| other.cmp(path)).ok()?;
        Some(present[at].1.stamp)
    };
    let new: Vec<_> = new.map(|path| (path.clone(), stamp(path))).collect();
    let root = root.to_owned();
    let task = tokio::task::spawn_blocking(move || -> Result<Vec<(TreePath, Option<Stamp>)>> {
        let host = HostDir::open(&root)?;
        let mut followed = Vec::new();
        for (path, inside) in new {
            let now = host.stamp(&path)?;
            if inside.is_none() && now.is_none() || inside.zip(now).is_some_and(|(a, b)| a.is_of(&b)) {
                followed.push((path, now));
            }
        }
        Ok(followed)
    });
    let followed =
        task.await.map_err(|error| Error::unexpected("a look at the host failed").caused_by(error))??;
    for (path, stamp) in followed {
        match delta.remove(&path).flatten().zip(stamp) {
            Some((node, stamp)) => {
                if matches!(node, Node::File { .. }) {
                    base.stamps.insert(path.clone(), stamp);
                }
                base.nodes.insert(path, node);
            }
            None => {
                base.stamps.remove(&path);
                base.nodes.remove(&path);
            }
        }
    }
    Ok(())
}

/// Keeps the former contents, and drops from `delta` what turns out to be the base after all (an overlay's file
/// that was written with the same content, or whose mode alone changed).
pub async fn settle(base: &mut Base, delta: &mut Delta, places: &ScanContext<'_>) -> Result<()> {
    let (root, store) = (places.root.to_owned(), places.store.clone());
    let (mut moved_base, moved_delta) = (std::mem::take(base), std::mem::take(delta));
    // The user may check out another branch before the commits on this one are taken.
    let has_git = moved_delta.keys().any(is_own_git);
    let head = TreePath::new(b".git/HEAD").ok().filter(|_| has_git);
    let task = tokio::task::spawn_blocking(move || {
        let mut paths = moved_delta.keys().chain(&head);
        let result = HostDir::open(&root)
            .map_err(Error::from)
            .and_then(|host| paths.try_for_each(|path| moved_base.settle(path, &host, &store)));
        (moved_base, moved_delta, result)
    });
    let (settled_base, settled_delta, result) =
        task.await.map_err(|error| Error::unexpected("a look at the host failed").caused_by(error))?;
    (*base, *delta) = (settled_base, settled_delta);
    result?;
    delta.retain(|path, node| match (node, base.nodes.get(path)) {
        (Some(node @ Node::File { hash: Hash::UNKNOWN, .. }), Some(known @ Node::File { .. })) => {
            *node = known.clone().with_mode(node.mode().unwrap_or(0o644));
            known != node
        }
        (node, known) => node.as_ref() != known,
    });
    Ok(())
}
