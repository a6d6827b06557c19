//! How the workspace gets into the sandbox: copied, as an overlay, or bound.

use crate::selection::{Picked, Selection};
use agent_base::error::{Error, Result};
use agent_sandbox::{WorkspaceMount, sandbox_ids};
use rustix::fs::{Access, access};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How the workspace gets into the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Overlay for a large tree where it works, else copy
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
/// and what the user edits meanwhile is not visible inside.
const SMALL_PATHS: usize = 2_000;
const SMALL_BYTES: u64 = 32 << 20;

/// Decides. `can_overlay`: this is Linux, and the sandbox runs on this machine. With [`Mode::Auto`], the reason
/// why a large tree is copied all the same.
pub fn decide(
    mode: Mode,
    root: &Path,
    selection: &Selection,
    can_overlay: bool,
) -> Result<(WorkspaceMount, Option<String>)> {
    let overlay = || WorkspaceMount::Overlay { lower: root.to_owned(), hidden: hidden(root, selection) };
    let obstacle = || match can_overlay {
        true => obstacle(root, selection),
        false => Ok(Some("the sandbox does not run on this Linux machine".to_owned())),
    };
    let is_small = selection.picked.len() < SMALL_PATHS && selection.bytes < SMALL_BYTES;
    match mode {
        Mode::Copy => Ok((WorkspaceMount::Empty, None)),
        Mode::Bind => Ok((WorkspaceMount::Bind(root.to_owned()), None)),
        Mode::Auto if is_small => Ok((WorkspaceMount::Empty, None)),
        Mode::Auto => match obstacle()? {
            Some(obstacle) => Ok((WorkspaceMount::Empty, Some(copied(&obstacle)))),
            None => Ok((overlay(), None)),
        },
        Mode::Overlay => match obstacle()? {
            Some(obstacle) => Err(Error::usage(format!("the workspace cannot be an overlay: {obstacle}"))
                .hint("use `--workspace-mode copy`")),
            None => Ok((overlay(), None)),
        },
    }
}

/// Whether the sandbox may write to a bound `root`, so that a failing command is not the first sign of it.
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

/// What of the tree an overlay could not show, or not let the sandbox change.
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

/// Where secrets are made most, at the top: an overlay hides these even before they are there. What else is made on the host
/// while a session runs is seen inside.
const SECRETS_TO_COME: [&str; 4] = [".env", ".env.local", ".env.development", ".env.production"];

/// What an overlay has to hide: everything in the picked directories that was not picked itself.
fn hidden(root: &Path, selection: &Selection) -> Vec<PathBuf> {
    let is_missing = |name: &&&str| root.join(name).symlink_metadata().is_err();
    let to_come = SECRETS_TO_COME.iter().filter(is_missing).map(PathBuf::from);
    to_come.chain(selection.hidden.iter().map(|path| path.as_path().to_owned())).collect()
}
