//! The references of repositories in an overlay, which has them of its own.
//!
//! A commit that the user makes while a command runs would move the branch under that command. What it commits on top would take back the
//! user's files that the overlay still shows as they were. On a branch that stays where it was, both are merged as git merges anything.

use crate::base::Base;
use crate::git_directory;
use crate::store::Store;
use crate::transfer::{copy_again, inside, remove_directories};
use crate::tree_path::TreePath;
use agent_base::error::Result;
use agent_sandbox::Sandbox;
use std::path::Path;

/// References, with their directories, that are copied; where there are more, which git would have packed, they stay the host's.
const MAX_REFERENCES: usize = 10_000;

/// Puts copies of the references of `base` into an overlay in which nothing has run yet.
pub async fn copy_in(root: &Path, base: &mut Base, store: &Store, sandbox: &Sandbox) -> Result<()> {
    let all = base.nodes.iter().filter(|(path, _)| git_directory::is_reference(root, path));
    let (directories, files): (Vec<_>, Vec<_>) = all.partition(|(_, node)| node.is_directory());
    if directories.len() + files.len() > MAX_REFERENCES {
        return Ok(());
    }
    let paths = |nodes: &[(&TreePath, _)]| nodes.iter().map(|(path, _)| inside(path)).collect();
    let (removed, emptied) = (paths(&files), paths(&directories));
    let copied = directories.into_iter().chain(files).map(|(path, _)| path.clone()).collect();
    // A directory that is made anew shows nothing of the one underneath, nor what comes there later.
    sandbox.remove_files(removed).await?;
    remove_directories(sandbox, emptied).await?;
    copy_again(root, base, store, sandbox, copied).await
}
