//! How the workspace gets into the sandbox: copied, as an overlay, or bound.

use crate::selection::{Picked, Selection};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_sandbox::{WorkspaceMount, sandbox_ids};
use rustix::fs::{Access, access};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mode in which the sandbox gets the workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Overlay for a large tree and for what git ignores where it works, else copy
    #[default]
    Auto,
    /// Every file is copied in.
    Copy,
    /// The directory read-only underneath; writes go to a layer of the sandbox's own.
    Overlay,
    /// The sandbox writes straight into the directory. Only ever chosen by name.
    Bind,
}

impl Mode {
    /// Returns whether the sandbox sees what git ignores, where it can have an overlay.
    pub fn shows_ignored(self, can_overlay: bool) -> bool {
        can_overlay && matches!(self, Mode::Auto | Mode::Overlay)
    }
}

/// Of trees smaller than this in both ways, without what git ignores, the files are copied, even where an overlay would work:
/// it takes a fraction of a second, what the user edits meanwhile is not visible inside, and directories can be renamed.
const SMALL_PATHS: usize = 2_000;
const SMALL_BYTES: u64 = 32 << 20;

/// The decisions.
pub struct ModeDecision {
    /// The mount that the backend is to make.
    pub mount: WorkspaceMount,
    /// Set if the files are copied into it: all of them, or, into an overlay, those that git does not ignore.
    pub copies: bool,
    /// With [`Mode::Auto`], the reason why there is no overlay although one would have been used.
    pub notice: Option<String>,
}

/// Decides. `can_overlay`: this is Linux, and the sandbox runs on this machine. `is_layered`: something is to lie under what the sandbox
/// writes, which takes an overlay with directories that are the host's.
pub fn decide(
    mode: Mode,
    root: &Path,
    selection: &Selection,
    can_overlay: bool,
    is_layered: bool,
) -> Result<ModeDecision> {
    let overlay = |copies| {
        let hidden = hidden(root, selection, copies);
        let mount = WorkspaceMount::Overlay { lower: root.to_owned(), hidden };
        ModeDecision { mount, copies, notice: None }
    };
    let copy = |notice| ModeDecision { mount: WorkspaceMount::Empty, copies: true, notice };
    let obstacle = || match can_overlay {
        true => obstacle(root, selection),
        false => Ok(Some("the sandbox does not run on this Linux machine".to_owned())),
    };
    let is_small = selection.picked.len() < SMALL_PATHS && selection.bytes < SMALL_BYTES;
    match mode {
        Mode::Copy => Ok(copy(None)),
        Mode::Bind => {
            Ok(ModeDecision { mount: WorkspaceMount::Bind(root.to_owned()), copies: false, notice: None })
        }
        Mode::Auto
            if is_small && !(is_layered && can_overlay) && (selection.ignored.is_empty() || !can_overlay) =>
        {
            Ok(copy(None))
        }
        Mode::Auto => match obstacle()? {
            Some(obstacle) => Ok(copy(Some(copied(&obstacle)))),
            None => Ok(overlay(is_small && !is_layered)),
        },
        Mode::Overlay => match obstacle()? {
            Some(obstacle) => Err(Error::usage(format!("the workspace cannot be an overlay: {obstacle}"))
                .hint("use `--workspace-mode copy`")),
            None => Ok(overlay(false)),
        },
    }
}

/// Checks that the sandbox may write to a bound `root`, so that a failing command is not the first sign of it.
///
/// # Errors
/// `Usage`: its user may not write to the directory itself.
pub fn bindable(root: &Path) -> Result<()> {
    let top = std::fs::metadata(root)?;
    let (uid, gid) = sandbox_ids();
    let is_caller = geteuid().as_raw() == uid;
    let may_write = match is_caller {
        true => access(root, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
        false if top.uid() == uid => top.mode() & 0o300 == 0o300,
        false if top.gid() == gid => top.mode() & 0o030 == 0o030,
        false => top.mode() & 0o003 == 0o003,
    };
    if may_write {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--workspace-mode bind is not possible: the sandbox runs as user {uid}, who may not write to {}",
        root.display()
    ))
    .hint(
        "run as the owner of the directory, or as root with --sandbox local, or leave --workspace-mode out",
    ))
}

/// The notice for a large tree that is copied because it could not be an overlay.
pub fn copied(obstacle: &str) -> String {
    format!("The workspace is copied, because an overlay is not possible here: {obstacle}.")
}

/// Returns what of the tree an overlay could not show, or not let the sandbox change.
fn obstacle(root: &Path, selection: &Selection) -> Result<Option<String>> {
    let top = std::fs::metadata(root)?;
    let owner = match geteuid().as_raw() {
        // Root's sandbox runs as another user, to whom a mapped mount gives what belongs to the directory's owner.
        0 => top.uid(),
        caller => caller,
    };
    Ok(selection.picked.iter().find_map(|(path, picked)| match picked {
        // Copied up it would still be the other user's; and in a user namespace, which maps the caller alone, it cannot be
        // copied up at all (EOVERFLOW).
        Picked { uid, .. } if *uid != owner => Some(format!("{path} belongs to another user")),
        // A lower layer is a single mount: it has nothing at the place of a further one.
        Picked { device, .. } if *device != top.dev() => Some(format!("{path} is on another file system")),
        _ => None,
    }))
}

/// The usual names of files with secrets, at the top: an overlay hides these even before they are there. What else is
/// made on the host while a session runs is seen inside.
pub const SECRETS_TO_COME: [&str; 4] = [".env", ".env.local", ".env.development", ".env.production"];

/// Returns what an overlay has to hide. Where the files are copied into it, also the host's own: each directory that holds nothing
/// ignored as a whole, so that the sandbox makes it anew, and can rename it (overlayfs refuses that for a directory that is
/// underneath as well).
fn hidden(root: &Path, selection: &Selection, copies: bool) -> Vec<PathBuf> {
    let is_missing = |name: &&&str| root.join(name).symlink_metadata().is_err();
    let to_come = SECRETS_TO_COME.iter().filter(is_missing).map(PathBuf::from);
    let mut hidden: Vec<PathBuf> =
        to_come.chain(selection.hidden.iter().map(|path| path.as_path().to_owned())).collect();
    if copies {
        let shown: HashSet<TreePath> = selection.ignored.iter().flat_map(TreePath::ancestors).collect();
        let is_covered = |path: &TreePath| path.ancestors().any(|above| !shown.contains(&above));
        let picked = selection.picked.iter().map(|(path, _)| path);
        let whole: Vec<&TreePath> =
            picked.filter(|path| !shown.contains(*path) && !is_covered(path)).collect();
        // What is hidden with all that is in it has nothing left to be hidden.
        hidden.retain(|path| {
            let parents = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
            parents
                .map(|above| above.as_os_str().as_bytes())
                .all(|above| whole.binary_search_by(|path| path.as_bytes().cmp(above)).is_err())
        });
        hidden.extend(whole.into_iter().map(|path| path.as_path().to_owned()));
    }
    hidden
}
