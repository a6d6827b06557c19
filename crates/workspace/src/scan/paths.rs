//! A look at single paths of the sandbox's tree, so that following an edit on the host does not depend on the tree's size.

use super::{Look, ScanContext, Scanner, delta, is_rules, now_ns};
use crate::base::Base;
use crate::entries::validate;
use crate::host_watch::within;
use crate::manifest::{Delta, Manifest};
use crate::reconcile;
use crate::selection::MAX_PATHS;
use crate::tree_path::TreePath;
use agent_base::error::{Kind, Result};
use agent_sandbox::{Entry, EntryKind, Sandbox, WalkOptions};
use futures_util::{StreamExt, TryStreamExt};
use std::collections::BTreeSet;
use std::path::Path;

/// Beyond this many paths a look at everything is cheaper, and takes fewer round trips.
const MAX_SINGLE: usize = 500;
/// Questions about single paths that are under way at once.
const AT_ONCE: usize = 64;

impl Scanner {
    /// Returns what differs from the base now at `paths`, and in the repositories that some of them belong to; elsewhere what
    /// `known` says. `None` where only a look at everything tells: new rules of what is ignored, or very many paths.
    ///
    /// What is remembered from one look to the next stays as it is: a file that is another one now differs from that.
    pub async fn scan_paths(
        &mut self,
        sandbox: &Sandbox,
        base: &mut Base,
        known: &Delta,
        places: &ScanContext<'_>,
        paths: &BTreeSet<TreePath>,
    ) -> Result<Option<Delta>> {
        let is_new = |path: &TreePath| !base.nodes.contains_key(path) && repository(path).is_none();
        let needs_rules = !self.has_looked && paths.iter().any(is_new);
        if paths.len() > MAX_SINGLE || needs_rules || paths.iter().any(is_rules) {
            return Ok(None);
        }
        let repositories: BTreeSet<TreePath> = paths.iter().filter_map(repository).collect();
        let mut look = Look { now_ns: now_ns(), budget: super::MAX_BYTES, ..Look::default() };
        let entries = validate(entries(sandbox, paths, &repositories).await?, &mut look.rejected);
        let region = region(base, paths, &repositories);
        // Removed inside, or below a directory that cannot be listed.
        let is_on_host = |path: &TreePath| places.root.join(path.as_path()).symlink_metadata().is_ok();
        let mut missing = paths.iter().filter(|path| is_missing(path, &region, &entries));
        if places.overlay.is_some() && missing.any(is_on_host) {
            return Ok(None);
        }
        for (path, entry) in entries {
            let is_asked = region.contains_key(&path) || repository(&path).is_some() || paths.contains(&path);
            if is_asked && self.is_kept(&path, &entry, base.nodes.contains_key(&path)) {
                look.judge(path.clone(), &entry, self.known(&path, base, places));
            }
        }
        let present = look.fetch(sandbox, places.store).await?;
        let mut found = delta(&region, &present);
        if let Some(known) = places.overlay {
            reconcile::follow_host(base, &mut found, known, &present, places.root).await?;
        }
        reconcile::settle(base, &mut found, places).await?;
        let is_elsewhere = |path: &TreePath| {
            !paths.contains(path)
                && repository(path).is_none_or(|repository| !repositories.contains(&repository))
        };
        found
            .extend(known.iter().filter(|(path, _)| is_elsewhere(path)).map(|(a, b)| (a.clone(), b.clone())));
        Ok(Some(found))
    }

    /// Returns whether an entry takes part, as in a look at everything.
    fn is_kept(&mut self, path: &TreePath, entry: &Entry, is_of_base: bool) -> bool {
        let is_directory = matches!(entry.kind, EntryKind::Directory);
        is_of_base || repository(path).is_some() || !self.ignored.contains(path, is_directory)
    }
}

/// Returns whether the base has a path at which nothing was found; `entries` are ordered.
fn is_missing(path: &TreePath, base: &Manifest, entries: &[(TreePath, Entry)]) -> bool {
    base.contains_key(path) && entries.binary_search_by(|(found, _)| found.cmp(path)).is_err()
}

/// Returns what the base has at `paths` and in `repositories`.
fn region(base: &Base, paths: &BTreeSet<TreePath>, repositories: &BTreeSet<TreePath>) -> Manifest {
    let single = paths.iter().filter_map(|path| base.nodes.get_key_value(path));
    let below = repositories.iter().flat_map(|repository| within(&base.nodes, repository));
    single.chain(below).map(|(path, node)| (path.clone(), node.clone())).collect()
}

/// The `.git` that a path is, or is below: the outermost.
fn repository(path: &TreePath) -> Option<TreePath> {
    let mut length = 0;
    for name in path.names() {
        length += name.len();
        if name == b".git" {
            return TreePath::new(&path.as_bytes()[..length]).ok();
        }
        length += 1;
    }
    None
}

/// Returns what is at `paths` and at the directories above them, and what is in `repositories`.
async fn entries(
    sandbox: &Sandbox,
    paths: &BTreeSet<TreePath>,
    repositories: &BTreeSet<TreePath>,
) -> Result<Vec<Entry>> {
    let single = paths.iter().filter(|path| repository(path).is_none()).chain(repositories);
    // A directory that is a link inside leads to another file.
    let asked: BTreeSet<TreePath> =
        single.flat_map(|path| path.ancestors().chain(std::iter::once(path.clone()))).collect();
    let found: Vec<Option<Entry>> = futures_util::stream::iter(asked)
        .map(|path| stat(sandbox, path))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let mut found: Vec<Entry> = found.into_iter().flatten().collect();
    let is_there = |repository: &&TreePath| {
        let mut directories = found.iter().filter(|entry| matches!(entry.kind, EntryKind::Directory));
        directories.any(|entry| entry.path == repository.as_path())
    };
    let there: Vec<&Path> = repositories.iter().filter(is_there).map(TreePath::as_path).collect();
    for repository in there {
        let options = WalkOptions { hash: false, max_entries: MAX_PATHS as u64, ..WalkOptions::default() };
        let below = sandbox.walk(repository, options).await?.into_iter();
        found.extend(below.map(|entry| Entry { path: repository.join(&entry.path), ..entry }));
    }
    Ok(found)
}

async fn stat(sandbox: &Sandbox, path: TreePath) -> Result<Option<Entry>> {
    match sandbox.stat(path.as_path()).await {
        // As the host named it.
        Ok(entry) => Ok(Some(Entry { path: path.as_path().to_owned(), ..entry })),
        // Nothing is there, or what is there cannot be reached: the session shows no such file.
        Err(error) if error.kind() == Kind::InSandbox => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_outermost_repository() {
        let of =
            |name: &str| repository(&TreePath::new(name.as_bytes()).unwrap()).map(|path| path.to_string());
        assert_eq!(of(".git/HEAD").as_deref(), Some(".git"));
        assert_eq!(of("a/b/.git").as_deref(), Some("a/b/.git"));
        assert_eq!(of("a/.git/modules/c/.git/x").as_deref(), Some("a/.git"));
        assert_eq!(of("a/.github/x"), None);
    }
}
