//! `$HOME` of a sandbox, saved beside the session of a fork: what was installed there, and caches.

use crate::manifest::{Manifest, Node};
use crate::saved_tree::{self, TREE};
use crate::store::Store;
use agent_base::error::Result;
use agent_sandbox::{HOME, Sandbox};
use std::path::{Path, PathBuf};

/// The directory in `session`, which is that of the session.
fn directory(session: &Path) -> PathBuf {
    session.join("home")
}

/// Saves `$HOME` of `sandbox` for the session in the directory `session`.
///
/// # Errors
/// It holds too much.
pub async fn save(sandbox: &Sandbox, session: &Path) -> Result<()> {
    saved_tree::save(sandbox, Path::new(HOME), &directory(session)).await
}

/// Returns whether anything is saved for the session in the directory `session`.
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
    saved_tree::restore(sandbox, Path::new(HOME), &directory(session)).await
}
