//! What a fresh sandbox gets of the changes that the former one has made to repositories.

use crate::base::Base;
use crate::git_directory;
use crate::manifest::{Delta, Node};
use crate::store::Store;
use crate::tree_path::TreePath;

/// The delta to be restored on top of the host's tree, which is `fresh` now and was `former`.
///
/// An index is of a commit: one that the user has made others on top of would take these back with the next commit. Without a branch of the
/// session's own, the fresh sandbox has the user's index, and what the session has added is to be added again. With one, the session goes on
/// on that branch, whatever the user has checked out meanwhile.
pub fn delta(delta: &Delta, former: &Base, fresh: &Base, store: &Store) -> Delta {
    let mut restored = delta.clone();
    if fresh.has_own_git {
        return restored;
    }
    for index in delta.keys().filter(|path| git_directory::is_index(path)) {
        let Some(directory) = index.parent() else { continue };
        if !has_own_branch(delta, &directory) {
            restored.remove(index);
            continue;
        }
        let Ok(head) = directory.join(b"HEAD") else { continue };
        if delta.contains_key(&head) || fresh.nodes.get(&head) == former.nodes.get(&head) {
            continue;
        }
        match former.nodes.get(&head) {
            Some(node @ Node::File { hash, .. }) if store.contains(*hash) => {
                restored.insert(head, Some(node.clone()));
            }
            // What was checked out is not known any more.
            _ => drop(restored.remove(index)),
        }
    }
    restored
}

/// Returns whether the session has moved a branch of the repository of a git directory, or checked out another one.
fn has_own_branch(delta: &Delta, directory: &TreePath) -> bool {
    // A linked work tree has its branches in the repository.
    let common =
        directory.parent().filter(|parent| parent.name() == b"worktrees").and_then(|parent| parent.parent());
    let below = |path: &TreePath, directory: &TreePath| {
        let rest = path.as_bytes().strip_prefix(directory.as_bytes())?.strip_prefix(b"/")?;
        Some(matches!(rest, b"HEAD" | b"packed-refs") || rest.starts_with(b"refs/heads/"))
    };
    let is_own = |path: &TreePath| {
        let directories = [Some(directory), common.as_ref()];
        directories.into_iter().flatten().any(|directory| below(path, directory) == Some(true))
    };
    delta.keys().any(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_base::hash::Hash;

    fn path(path: &str) -> TreePath {
        TreePath::new(path.as_bytes()).unwrap()
    }

    #[test]
    fn an_index_is_restored_with_the_branch_that_it_is_of() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let head = Node::File { hash: store.put(b"ref: refs/heads/main\n").unwrap(), size: 21, mode: 0o644 };
        let other = Node::File { hash: Hash::of(b"ref: refs/heads/other\n"), size: 22, mode: 0o644 };
        let mut bases = [Base::default(), Base::default()];
        for (base, node) in bases.iter_mut().zip([&head, &other]) {
            base.nodes.insert(path(".git/HEAD"), node.clone());
        }
        let [former, fresh] = bases;
        let restored = |names: &[&str]| {
            let all: Delta = names.iter().map(|name| (path(name), None)).collect();
            let restored = delta(&all, &former, &fresh, &store);
            restored.keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            restored(&[".git/index", ".git/config", ".git/objects/aa/b", "f"]),
            [".git/config", ".git/objects/aa/b", "f"]
        );
        assert_eq!(restored(&[".git/index", ".git/refs/tags/index"]), [".git/refs/tags/index"]);
        assert_eq!(
            restored(&[".git/index", ".git/refs/heads/main"]),
            [".git/HEAD", ".git/index", ".git/refs/heads/main"]
        );
        assert_eq!(restored(&[".git/HEAD", ".git/index", "sub/.git/index"]), [".git/HEAD", ".git/index"]);
        // The head of the nested one is in neither base.
        assert_eq!(
            restored(&["sub/.git/index", "sub/.git/refs/heads/x"]),
            ["sub/.git/index", "sub/.git/refs/heads/x"]
        );
        let linked = [".git/refs/heads/side", ".git/worktrees/side/index"];
        assert_eq!(restored(&linked), linked);
    }
}
