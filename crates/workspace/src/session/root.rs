//! Which directory can be a workspace.

use crate::file_system;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use std::path::{Path, PathBuf};

/// The directory as it really is, if it can be a workspace. `named`: whether the user named it with `-C`.
pub fn validate(root: &Path, named: bool, machine: &Machine) -> Result<PathBuf> {
    let cannot = |error| {
        Error::usage(format!("{} cannot be the workspace", root.display()))
            .caused_by(anyhow::Error::from(error))
    };
    let real = root.canonicalize().map_err(cannot)?;
    if !real.is_dir() {
        return Err(
            Error::usage(format!("{} is not a directory", root.display())).hint("name a directory with -C")
        );
    }
    if real.to_str().is_none() {
        // Sessions, events and engines name the workspace as text.
        return Err(Error::usage(format!(
            "{} cannot be the workspace: its path is not UTF-8",
            real.display()
        ))
        .hint("rename the directory, or mount it at another place"));
    }
    if real == Path::new("/") {
        return Err(
            Error::usage("the whole machine cannot be the workspace").hint("name a directory with -C")
        );
    }
    let home = machine.home().and_then(|home| home.canonicalize().ok());
    if !named && home.is_some_and(|home| home == real) {
        return Err(Error::usage("your whole home directory would be the workspace")
            .hint(format!("change to a project's directory, or name this one: -C {}", root.display())));
    }
    Ok(real)
}

/// Returns whether the writable layer of an overlay can lie in `directory`: not on an overlay itself (that of a container's root).
pub fn can_hold_layers(directory: &Path) -> bool {
    let is_overlay =
        |directory: &Path| file_system::kind(directory).map(|kind| kind == file_system::OVERLAYFS);
    let mut there = directory.ancestors().filter_map(is_overlay);
    !there.next().unwrap_or_default()
}
