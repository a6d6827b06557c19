//! The snapshot of a tree that the sandbox writes straight into: what a diff shows and an undo puts back.

use crate::base::Base;
use crate::host_dir::HostDir;
use crate::manifest::Node;
use crate::selection::{PickedKind, Selection};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};

/// Bytes of a tree that is kept; what git ignores and its objects do not count.
const MAX_BYTES: u64 = 1 << 30;
/// Files of it.
const MAX_FILES: usize = 50_000;

/// Checks that a tree is small enough.
///
/// # Errors
/// `Usage`: it is not.
pub fn check(selection: &Selection) -> Result<()> {
    let kept = selection
        .picked
        .iter()
        .filter(|(path, picked)| picked.kind == PickedKind::File && !is_git_object(path));
    let (files, bytes) = kept.fold((0_usize, 0_u64), |(files, bytes), (_, picked)| {
        (files + 1, bytes.saturating_add(picked.stamp.size))
    });
    if files <= MAX_FILES && bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--workspace-mode bind keeps a copy of the workspace to undo with, and this one is too large for that: {}, \
         {} MiB (at most {MAX_FILES} and {} MiB)",
        counted(files, "file"),
        bytes >> 20,
        MAX_BYTES >> 20
    ))
    .hint("leave --workspace-mode out, which copies nothing of a large tree, or leave parts out of the copy with --exclude GLOB"))
}

/// Keeps the content of every file of the tree, before the sandbox can write to it. Blocking.
///
/// # Errors
/// The store cannot be written.
pub fn take(base: &mut Base, host: &HostDir, store: &Store) -> Result<()> {
    let files =
        base.nodes.iter().filter(|(path, node)| matches!(node, Node::File { .. }) && !is_git_object(path));
    let files: Vec<TreePath> = files.map(|(path, _)| path.clone()).collect();
    files.iter().try_for_each(|path| base.settle(path, host, store))
}

/// Returns whether a file is one of git's objects, which are never written again under the same name.
fn is_git_object(path: &TreePath) -> bool {
    let mut below = path.names().skip_while(|name| *name != b".git").skip(1);
    below.next() == Some(b"objects")
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, check};
    use crate::selection::{Picked, PickedKind, Selection, Stamp};
    use crate::tree_path::TreePath;

    fn with_file(name: &str, size: u64) -> Selection {
        let stamp = Stamp { size, ..Stamp::default() };
        let picked = Picked { kind: PickedKind::File, mode: 0o644, stamp, uid: 0, device: 0 };
        let path = TreePath::new(name.as_bytes()).expect("a path");
        Selection { picked: vec![(path, picked)], ..Selection::default() }
    }

    #[test]
    fn a_tree_that_is_too_large_is_refused_and_git_objects_do_not_count() {
        check(&with_file("a.bin", MAX_BYTES)).expect("it fits");
        check(&with_file(".git/objects/pack/a.pack", 2 * MAX_BYTES)).expect("objects are not kept");
        let refused = check(&with_file("a.bin", 2 * MAX_BYTES)).expect_err("it is too large");
        assert!(refused.to_string().contains("1 file, 2048 MiB (at most 50000 and 1024 MiB)"), "{refused}");
        assert!(refused.hint_text().is_some_and(|hint| hint.contains("--exclude")), "{refused:?}");
    }
}
