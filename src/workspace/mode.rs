//! How the workspace comes into the sandbox: copied, as an overlay, or bound.

use crate::error::{Error, Result};
use crate::sandbox::{WorkspaceMount, sandbox_ids};
use crate::workspace::host_dir::HostDir;
use crate::workspace::select::{PickedKind, Selection};
use crate::workspace::tree_path::TreePath;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How the workspace comes into the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Overlay for a big tree where it works, else copy
    #[default]
    Auto,
    /// Every file is copied in.
    Copy,
    /// The directory read-only underneath; writes go to a layer of the sandbox's own.
    Overlay,
    /// The sandbox writes straight into the directory. Only ever chosen by name.
    Bind,
}

/// Trees smaller than this in both ways are copied, even where an overlay would work: it takes a fraction of a second,
/// and what the user edits meanwhile does not shine through.
const SMALL_PATHS: usize = 2_000;
const SMALL_BYTES: u64 = 32 << 20;

/// Decides. `can_overlay`: this is Linux, and the sandbox runs on this machine.
pub fn decide(mode: Mode, root: &Path, selection: &Selection, can_overlay: bool) -> Result<WorkspaceMount> {
    let overlay = || WorkspaceMount::Overlay(root.to_owned());
    let foreign = foreign(selection);
    match mode {
        Mode::Copy => Ok(WorkspaceMount::Empty),
        Mode::Bind => Ok(WorkspaceMount::Bind(root.to_owned())),
        Mode::Overlay if !can_overlay => {
            Err(Error::usage("the workspace cannot be an overlay: the sandbox does not run on this Linux machine")
                .hint("use `--workspace-mode copy`"))
        }
        Mode::Overlay => match foreign {
            Some(path) => Err(Error::usage(format!("the workspace cannot be an overlay: {path} belongs to another user than the sandbox runs as, and could not be changed there"))
                .hint("use `--workspace-mode copy`")),
            None => Ok(overlay()),
        },
        Mode::Auto => {
            let is_small = selection.picked.len() < SMALL_PATHS && selection.bytes < SMALL_BYTES;
            Ok(if is_small || !can_overlay || foreign.is_some() { WorkspaceMount::Empty } else { overlay() })
        }
    }
}

/// A path of another owner: its copy-up fails (EOVERFLOW in a user namespace that does not map the owner, EACCES
/// where it is mapped).
fn foreign(selection: &Selection) -> Option<&TreePath> {
    let (uid, _) = sandbox_ids();
    selection.picked.iter().find(|(_, picked)| picked.uid != uid).map(|(path, _)| path)
}

/// What an overlay has to hide: everything in the picked directories that was not picked itself, each directory as
/// one path. Blocking.
pub fn hidden(root: &Path, selection: &Selection) -> Result<Vec<TreePath>> {
    let host = HostDir::open(root)?;
    let directories = selection.picked.iter().filter(|(_, picked)| picked.kind == PickedKind::Directory);
    let mut hidden = Vec::new();
    let listed = |directory: Option<&TreePath>| host.list(directory).map(|names| (directory.cloned(), names));
    for (directory, names) in
        std::iter::once(listed(None)).chain(directories.map(|(path, _)| listed(Some(path)))).flatten()
    {
        let prefix = directory.map_or_else(Vec::new, |path| [path.as_bytes(), b"/"].concat());
        for name in names {
            // A name that is no path of ours cannot be hidden by it; no host file system has such names.
            if let Ok(path) = TreePath::new(&[prefix.as_slice(), &name].concat())
                && !selection.picked.contains_key(&path)
            {
                hidden.push(path);
            }
        }
    }
    Ok(hidden)
}
