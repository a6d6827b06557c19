//! Where a workspace is inside.

use crate::{Backend, WORKSPACE};
use std::path::{Component, Path, PathBuf};

/// The path of the workspace `root` in sandboxes of `backend`, where that is its own.
pub fn own_place(backend: &dyn Backend, root: &Path) -> Option<PathBuf> {
    (backend.capabilities().own_paths && can_be_a_place(root)).then(|| root.to_owned())
}

/// Returns whether a directory can have the path inside that it has here: not where the sandbox has files of its own.
pub(crate) fn can_be_a_place(path: &Path) -> bool {
    const OWN: [&str; 6] = [WORKSPACE, "/proc", "/sys", "/dev", "/etc", "/run"];
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    path.is_absolute() && is_plain && path.parent().is_some() && !OWN.iter().any(|own| path.starts_with(own))
}
