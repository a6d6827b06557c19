//! The directories of the host in which changed paths lie: links of the user's in them that no manifest has, because git ignores
//! them, and repositories.

use crate::git_files::GitFiles;
use crate::host_dir::HostDir;
use crate::manifest::Target;
use crate::risks::is_control_directory;
use crate::tree_path::TreePath;
use agent_base::machine::Machine;
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Directories of the host that are looked at, the upper ones first, and those that are looked for.
const MAX_DIRECTORIES: usize = 1_000;
const MAX_LOOKED_FOR: usize = 50_000;
/// Entries of them all.
const MAX_ENTRIES: usize = 20_000;
/// The time for which what was found counts.
const FRESH: Duration = Duration::from_secs(2);

/// The directories above each of `changed`.
pub(crate) fn directories_above<'p>(changed: impl Iterator<Item = &'p TreePath>) -> BTreeSet<TreePath> {
    changed.flat_map(TreePath::ancestors).collect()
}

/// Facts about the directories above changes that hold for a moment: a prompt's end asks for them several times.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    above: BTreeSet<TreePath>,
    at: Instant,
    /// Symlinks with their targets.
    pub links: Arc<Vec<(TreePath, Target)>>,
    pub git_files: Arc<GitFiles>,
}

impl Surroundings {
    /// Looks around changes below the directories `above` of the workspace `root`. Blocking.
    pub fn look(root: &Path, host: Option<&HostDir>, above: BTreeSet<TreePath>, machine: &Machine) -> Self {
        let found = host.map(|host| HostListing::of(host, &above)).unwrap_or_default();
        let git_files = Arc::new(GitFiles::of(root, &found.repositories, machine));
        Self { above, at: Instant::now(), links: Arc::new(found.links), git_files }
    }

    /// Returns whether it was found just now, around changes in the same directories.
    pub fn is_of(&self, above: &BTreeSet<TreePath>) -> bool {
        self.at.elapsed() < FRESH && self.above == *above
    }
}

/// What directories of the host hold.
#[derive(Debug, Default)]
struct HostListing {
    links: Vec<(TreePath, Target)>,
    /// The directories with a repository of their own. That of the top is not among them.
    repositories: Vec<TreePath>,
}

impl HostListing {
    /// Looks at the top, at the directories `above` changes, and at directories in those that programs obey by their name.
    fn of(host: &HostDir, above: &BTreeSet<TreePath>) -> Self {
        let mut upper_first: Vec<&TreePath> = above.iter().collect();
        upper_first.sort_by_key(|path| path.names().count());
        // Most of them are new where a session has made them.
        let is_there = |path: &&&TreePath| host.stamp(path).is_ok_and(|stamp| stamp.is_some());
        let there = upper_first.iter().take(MAX_LOOKED_FOR).filter(is_there).take(MAX_DIRECTORIES);
        let mut found = Self::default();
        let mut room = MAX_ENTRIES;
        let mut obeyed = found.look(host, None, &mut room);
        for directory in there {
            obeyed.extend(found.look(host, Some(directory), &mut room));
        }
        for directory in obeyed.iter().filter(|path| !above.contains(*path)).take(MAX_DIRECTORIES) {
            found.look(host, Some(directory), &mut room);
        }
        found
    }

    /// Looks at one directory; gives those in it that programs obey by their name.
    fn look(&mut self, host: &HostDir, directory: Option<&TreePath>, room: &mut usize) -> Vec<TreePath> {
        // What cannot be listed has no links that are known.
        let entries = host.kinds(directory, *room).unwrap_or_default();
        *room -= entries.len();
        let mut obeyed = Vec::new();
        for (name, kind) in entries {
            if name == b".git" {
                self.repositories.extend(directory.cloned());
                continue;
            }
            let path = directory.map_or_else(|| TreePath::new(&name), |above| above.join(&name));
            let Ok(path) = path else { continue };
            match kind {
                FileType::Directory if is_control_directory(&path) => obeyed.push(path),
                // Some file systems do not say what an entry is.
                FileType::Symlink | FileType::Unknown => {
                    self.links.extend(host.read_link(&path).ok().map(|target| (path, target)));
                }
                _ => {}
            }
        }
        obeyed
    }
}

#[cfg(test)]
mod tests {
    use super::{HostListing, directories_above};
    use crate::host_dir::HostDir;
    use crate::tree_path::TreePath;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_repositories_at_the_top_and_above_what_changed_are_found() {
        let root = tempfile::tempdir().expect("a directory");
        for path in [".git", ".vscode", "a/b/.git", "a/.claude", "other/.git"] {
            fs::create_dir_all(root.path().join(path)).expect("a directory");
        }
        for link in ["top", ".vscode/tasks.json", "a/x", "a/b/y", "a/.claude/z", "other/unseen"] {
            symlink("somewhere", root.path().join(link)).expect("a link");
        }
        let host = HostDir::open(root.path()).expect("a directory");
        let changed = [TreePath::new(b"a/b/c/file").expect("a path")];
        let found = HostListing::of(&host, &directories_above(changed.iter()));
        let mut links: Vec<String> = found.links.iter().map(|(link, _)| link.to_string()).collect();
        links.sort();
        assert_eq!(links, [".vscode/tasks.json", "a/.claude/z", "a/b/y", "a/x", "top"]);
        let repositories: Vec<String> = found.repositories.iter().map(ToString::to_string).collect();
        assert_eq!(repositories, ["a/b"]);
    }
}
