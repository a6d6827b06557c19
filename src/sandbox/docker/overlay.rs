//! The workspace as an overlay: the host directory underneath, never written, and the sandbox's writes in a layer of
//! its own. No file is copied at the start, however big the tree is.
//!
//! The engine's `local` volume driver mounts it (`type=overlay`), so the engine has to run on this machine. The layer is
//! a directory of the user's on disk, for the engine does not remove what it was told to mount.

use super::engine::Engine;
use super::{container, failure, host_image, owner};
use crate::error::{Error, Result};
use crate::paths;
use crate::sandbox::{WORKSPACE, sandbox_ids};
use bollard::models::{Mount, MountType, MountVolumeOptions, MountVolumeOptionsDriverConfig};
use bollard::query_parameters::{CreateContainerOptions, StartContainerOptions, WaitContainerOptionsBuilder};
use futures_util::StreamExt;
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
pub(super) async fn remove(engine: &Engine, session: &str) -> Result<()> {
    let layer = layer(session)?;
    let failed = |error| Error::sandbox(format!("{} could not be removed", layer.display())).caused_by(error);
    match fs::remove_dir_all(&layer) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            empty_as_root(engine, &layer).await?;
            fs::remove_dir_all(&layer).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// The kernel leaves files of root's in the work directory, which an ordinary user cannot remove; `rm` as the root of a
/// container that sees this one directory can.
async fn empty_as_root(engine: &Engine, layer: &Path) -> Result<()> {
    let failed = |error| failure::error(format!("{} could not be emptied", layer.display()), error);
    let (image, skeleton) = host_image::describe()?;
    let body = container::emptying(&image, layer)?;
    let create = || engine.client.create_container(None::<CreateContainerOptions>, body.clone());
    let created = match create().await {
        Err(error) if failure::status(&error) == Some(404) => {
            host_image::make(engine, &image, &skeleton).await?;
            create().await
        }
        result => result,
    };
    let id = created.map_err(failed)?.id;
    let options = WaitContainerOptionsBuilder::default().condition("removed").build();
    let mut gone = engine.client.wait_container(&id, Some(options));
    engine.client.start_container(&id, None::<StartContainerOptions>).await.map_err(failed)?;
    // Whether it did its work shows when the directory is removed.
    let _ = gone.next().await;
    Ok(())
}

/// Removes the layers of sessions that have no container.
pub(super) async fn sweep(engine: &Engine, sessions: &HashSet<String>) -> Result<()> {
    let entries = match fs::read_dir(layers()?) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for entry in entries.flatten() {
        let age = entry.metadata().and_then(|metadata| metadata.modified()).map(|made| made.elapsed());
        let is_old = age.is_ok_and(|age| age.is_ok_and(|age| age > GRACE));
        if let Some(session) = entry.file_name().to_str()
            && !sessions.contains(session)
            && is_old
        {
            remove(engine, session).await?;
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
