//! The workspace as an overlay: the host directory underneath, never written, and the sandbox's writes in a layer of
//! its own. No file is copied at the start, however big the tree is.
//!
//! The engine's `local` volume driver mounts it (`type=overlay`), so the engine has to run on this machine. The layer is
//! a directory of the user's on disk, for the engine does not remove what it was told to mount.

use super::owner;
use crate::error::{Error, Result};
use crate::paths;
use crate::sandbox::{WORKSPACE, sandbox_ids};
use bollard::models::{Mount, MountType, MountVolumeOptions, MountVolumeOptionsDriverConfig};
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A layer without a container is left over after this long; until then its container may be about to be created.
const GRACE: Duration = Duration::from_secs(600);

/// Makes an empty layer for `session` over the directory `lower` and says how to mount the two.
pub(super) fn make(session: &str, lower: &Path) -> Result<Mount> {
    let layer = layer(session)?;
    let failed = |error| {
        Error::sandbox(format!("{} cannot hold the sandbox's writes", layer.display())).caused_by(error)
    };
    let (upper, work) = (layer.join("upper"), layer.join("work"));
    for directory in [&upper, &work] {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    // The top of the layer stands for the workspace itself, and has to belong to who works there.
    let (uid, gid) = sandbox_ids();
    chown(&upper, Some(uid), Some(gid)).map_err(failed)?;
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        escaped(lower, true)?,
        escaped(&upper, false)?,
        escaped(&work, false)?
    );
    Ok(Mount {
        typ: Some(MountType::VOLUME),
        target: Some(WORKSPACE.to_owned()),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            driver_config: Some(MountVolumeOptionsDriverConfig {
                name: Some("local".to_owned()),
                options: Some(
                    [("type", "overlay"), ("device", "overlay"), ("o", &options)]
                        .map(|(name, value)| (name.to_owned(), value.to_owned()))
                        .into(),
                ),
            }),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// Removes the layer of `session`, where it has one. The container has to be gone.
pub(super) fn remove(session: &str) -> Result<()> {
    let layer = layer(session)?;
    match fs::remove_dir_all(&layer) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::sandbox(format!("{} could not be removed", layer.display())).caused_by(error))
        }
        _ => Ok(()),
    }
}

/// Removes the layers of sessions that have no container.
pub(super) fn sweep(sessions: &HashSet<String>) -> Result<()> {
    let entries = match fs::read_dir(layers()?) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for entry in entries.flatten() {
        let is_old = || {
            entry
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|t| t.elapsed().is_ok_and(|age| age > GRACE))
        };
        if let Some(session) = entry.file_name().to_str()
            && !sessions.contains(session)
            && is_old()
        {
            remove(session)?;
        }
    }
    Ok(())
}

fn layers() -> Result<PathBuf> {
    Ok(paths::cache_dir()?.join("layers"))
}

fn layer(session: &str) -> Result<PathBuf> {
    owner::container_name(session)?;
    Ok(layers()?.join(session))
}

/// A path as the kernel's overlay options take it: a comma ends an option, a colon ends a lower directory.
fn escaped(path: &Path, is_lower: bool) -> Result<String> {
    let text = path.to_str().filter(|text| !text.contains(['"', '\n'])).ok_or_else(|| {
        Error::sandbox(format!("the engine cannot mount {}: the name is not plain text", path.display()))
            .hint("use `--workspace-mode copy`")
    })?;
    let mut escaped = String::new();
    for c in text.chars() {
        if matches!(c, ',' | '\\') || (c == ':' && is_lower) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    Ok(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_one_option() {
        assert_eq!(escaped(Path::new("/a,b:c\\d"), true).unwrap(), "/a\\,b\\:c\\\\d");
        assert_eq!(escaped(Path::new("/a:b"), false).unwrap(), "/a:b");
    }
}
