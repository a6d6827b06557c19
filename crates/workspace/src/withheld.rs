//! The files that git ignores and that are never shown. There may be very many, so they are looked for beside the start of
//! a sandbox, and what is found is removed in it before anything runs there. What the user adds to them later is removed before the
//! next prompt.

use crate::host_dir::HostDir;
use crate::select;
use crate::selection::{LeftOut, MAX_PATHS};
use crate::transfer::{self, inside};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_sandbox::Sandbox;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tokio::task::{JoinHandle, spawn_blocking};

/// A look through ignored files that is under way.
pub struct Search {
    looking: JoinHandle<Result<BTreeMap<TreePath, LeftOut>>>,
}

impl Search {
    /// Begins to look through what lies in `root` at `ignored`. `None` where that is nothing.
    pub fn begin(root: &Path, options: &select::SelectOptions, ignored: &[TreePath]) -> Option<Self> {
        if ignored.is_empty() {
            return None;
        }
        let (root, options, ignored) = (root.to_owned(), options.clone(), ignored.to_vec());
        let looking = spawn_blocking(move || select::withheld(&root, &options, &ignored));
        Some(Self { looking })
    }

    /// Waits for the end of it, and removes what it found from the workspace's overlay, where nothing has run yet. The host's files
    /// are underneath and stay.
    ///
    /// # Errors
    /// There is more than can be looked through, or something cannot be removed.
    pub async fn withhold(self, sandbox: &Sandbox) -> Result<BTreeMap<TreePath, LeftOut>> {
        let withheld = self.found().await?;
        remove(sandbox, &withheld).await?;
        Ok(withheld)
    }

    async fn found(self) -> Result<BTreeMap<TreePath, LeftOut>> {
        let failed =
            |error| Error::unexpected("the files that git ignores were not looked through").caused_by(error);
        self.looking.await.map_err(failed)?
    }
}

/// Looks through `ignored` again, and removes from the overlay what is to be withheld and is not `known` to be: something that the
/// sandbox has made itself where the host has such a file stays.
///
/// # Errors
/// As for [`Search::withhold`].
pub async fn withhold_new(
    root: &Path,
    options: &select::SelectOptions,
    ignored: Vec<TreePath>,
    known: &BTreeSet<TreePath>,
    sandbox: &Sandbox,
) -> Result<BTreeMap<TreePath, LeftOut>> {
    let Some(search) = Search::begin(root, options, &ignored) else { return Ok(BTreeMap::new()) };
    let mut withheld = search.found().await?;
    withheld.retain(|path, _| !known.contains(path));
    if !withheld.is_empty() {
        // What is not there may only be out of sight, and is looked for again.
        for path in remove(sandbox, &withheld).await? {
            withheld.remove(&path);
        }
    }
    Ok(withheld)
}

/// Removes from an overlay of the tree `root` what is left out, directories with all that the host has in them. Returns what was not there: it
/// may only be out of sight, below a directory that is not the host's any more but that a process of the sandbox still holds.
///
/// # Errors
/// Something cannot be removed, or there is too much of it.
pub async fn hide(
    root: &Path,
    left_out: BTreeMap<TreePath, LeftOut>,
    sandbox: &Sandbox,
) -> Result<BTreeMap<TreePath, LeftOut>> {
    let root = root.to_owned();
    let found = spawn_blocking(move || {
        let mut below: Vec<(TreePath, LeftOut)> = left_out.into_iter().collect();
        let mut at = 0;
        while let Some((path, reason)) = below.get(at).cloned() {
            at += 1;
            let names = HostDir::open(&root)?.list(Some(&path)).unwrap_or_default();
            below.extend(names.iter().filter_map(|name| Some((path.join(name).ok()?, reason))));
            if below.len() > MAX_PATHS {
                return Err(Error::sandbox(format!(
                    "{path} and what is beside it cannot be withheld: too many files"
                )));
            }
        }
        Ok(below)
    });
    let failed = |error| Error::unexpected("what is left out was not looked through").caused_by(error);
    let mut absent = BTreeMap::new();
    for mut level in by_depth(found.await.map_err(failed)??) {
        absent.extend(remove(sandbox, &level).await?.iter().filter_map(|path| level.remove_entry(path)));
    }
    Ok(absent)
}

/// Divides paths by their depth, the deepest first.
fn by_depth(paths: Vec<(TreePath, LeftOut)>) -> impl Iterator<Item = BTreeMap<TreePath, LeftOut>> {
    let mut levels: BTreeMap<usize, BTreeMap<TreePath, LeftOut>> = BTreeMap::new();
    for (path, reason) in paths {
        levels.entry(path.names().count()).or_default().insert(path, reason);
    }
    levels.into_values().rev()
}

/// Returns those that were not there.
async fn remove(sandbox: &Sandbox, withheld: &BTreeMap<TreePath, LeftOut>) -> Result<Vec<TreePath>> {
    let removed = sandbox.remove_files(withheld.keys().map(inside).collect()).await?;
    let mut absent = Vec::new();
    for ((path, reason), result) in withheld.iter().zip(removed) {
        let Err(error) = result else { continue };
        if transfer::says_absent(&error) || transfer::is_absent(sandbox, path).await {
            absent.push(path.clone());
        } else if *reason != LeftOut::Unreadable {
            // What the caller may not read, nobody inside may, who is the same user or has fewer rights.
            return Err(Error::sandbox(format!("{path}, which is not for the sandbox, cannot be withheld"))
                .caused_by(error));
        }
    }
    Ok(absent)
}
