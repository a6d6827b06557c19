//! Overlays for Podman. It ignores the options of a volume that comes with the container, and follows those of one that was made before. It
//! changes the owner of what it mounts, so that an overlay of a host directory that can only be read has a layer for that, too.

use super::engine::Engine;
use super::{failure, overlay};
use agent_base::error::{Error, Result};
use agent_sandbox::ownership::sandbox_name;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, Mount, MountPoint, SystemInfo, VolumeCreateRequest,
};
use futures_util::future::try_join_all;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, fstatfs, open};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file beside a layer that has the names of the volumes which were made for it, a line each.
const VOLUMES: &str = "volumes";

/// Returns whether the engine is Podman.
pub(super) async fn is_it(engine: &Engine) -> bool {
    let version = engine.client.version().await;
    let components = version.ok().and_then(|version| version.components).unwrap_or_default();
    components.iter().any(|component| component.name == "Podman Engine")
}

/// Returns whether the engine runs without root, which mounts no overlays of the layers that are made here.
pub(super) fn is_rootless(info: &SystemInfo) -> bool {
    info.security_options.iter().flatten().any(|option| option.contains("rootless"))
}

/// The layers of host directories that can only be read, in the directory of the sandbox.
const SHOWN: &str = "shown";

/// The request for a container, as Podman takes it.
#[derive(Debug, Default, PartialEq)]
struct Translated {
    mounts: Vec<Mount>,
    /// The directories that the overlays need.
    directories: Vec<PathBuf>,
    /// The options of the driver of the volumes that have to be there before, by their names.
    volumes: BTreeMap<String, HashMap<String, String>>,
}

/// Makes the volumes of the container of `session`, and names them in what it is asked for with.
///
/// # Errors
/// Podman cannot be told a path of the machine, or refuses a volume.
pub(super) async fn make_volumes(
    engine: &Engine,
    session: &str,
    body: &mut ContainerCreateBody,
) -> Result<()> {
    let Some(config) = &mut body.host_config else { return Ok(()) };
    let mounts = config.mounts.take().unwrap_or_default();
    let layer = overlay::layer(&engine.machine, session)?;
    let translated = translated(mounts, &sandbox_name(session)?, &layer)?;
    if !translated.volumes.is_empty() {
        overlay::make_directory(&engine.machine, session)?;
        let names: String = translated.volumes.keys().map(|name| format!("{name}\n")).collect();
        std::fs::write(layer.join(VOLUMES), names)?;
    }
    translated.directories.iter().try_for_each(std::fs::create_dir_all)?;
    try_join_all(translated.volumes.into_iter().map(|(name, options)| make(engine, name, options))).await?;
    config.mounts = Some(translated.mounts);
    Ok(())
}

/// Gives the tops of the overlays of a container that runs to the user inside: Podman gave each to the owner of the image's directory in
/// its place.
///
/// # Errors
/// One is not this machine's, or cannot be given.
pub(super) fn give_volumes(container: &ContainerInspectResponse, (uid, gid): (u32, u32)) -> Result<()> {
    let sandbox = container.name.as_deref().unwrap_or_default().trim_start_matches('/');
    let is_own = |mount: &MountPoint| mount.name.as_deref().is_some_and(|name| name.starts_with(sandbox));
    let mounts = container.mounts.iter().flatten().filter(|mount| is_own(mount) && mount.rw == Some(true));
    for source in mounts.filter_map(|mount| mount.source.as_deref()) {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let give = || {
            let directory = open(source, flags, Mode::empty())?;
            match fstatfs(&directory)?.f_type == OVERLAY {
                true => fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))),
                false => Err(Errno::NOTSUP),
            }
        };
        give().map_err(|error| {
            Error::sandbox("an overlay of the engine's cannot be given to the user inside").caused_by(error)
        })?;
    }
    Ok(())
}

/// `OVERLAYFS_SUPER_MAGIC`.
const OVERLAY: rustix::fs::FsWord = 0x794c_7630;

/// The names of the volumes that were made for the sandbox of `session`.
pub(super) fn volumes(engine: &Engine, session: &str) -> Result<Vec<String>> {
    match std::fs::read_to_string(overlay::layer(&engine.machine, session)?.join(VOLUMES)) {
        Ok(names) => Ok(names.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

async fn make(engine: &Engine, name: String, options: HashMap<String, String>) -> Result<()> {
    let request = VolumeCreateRequest {
        name: Some(name),
        driver: Some("local".to_owned()),
        driver_opts: Some(options),
        ..Default::default()
    };
    let made = engine.client.create_volume(request).await;
    made.map(drop)
        .map_err(|error| failure::error("a volume of the sandbox (an overlay) could not be made", error))
}

fn translated(mounts: Vec<Mount>, sandbox: &str, layer: &Path) -> Result<Translated> {
    let mut translated = Translated::default();
    for mut mount in mounts {
        let Some(mut driver) = driver_options(&mut mount) else {
            translated.mounts.push(mount);
            continue;
        };
        let mut options = driver.remove(overlay::OPTIONS).unwrap_or_default();
        if !options.contains("upperdir=") {
            let own = layer.join(SHOWN).join(translated.mounts.len().to_string());
            let (upper, work) = (own.join("upper"), own.join("work"));
            options = format!(
                "{options},upperdir={},workdir={}",
                overlay::escaped(&upper, false)?,
                overlay::escaped(&work, false)?
            );
            translated.directories.extend([upper, work]);
        }
        // Its options are those of mount(8), which knows no way to write these.
        if options.contains('\\') {
            return Err(Error::sandbox(
                "Podman mounts no overlay of a path with a comma, a colon or a backslash",
            ));
        }
        let name = mount.source.take().unwrap_or_else(|| format!("{sandbox}-{}", translated.volumes.len()));
        let writable = options.strip_prefix(overlay::READ_ONLY);
        let read_only = Some(writable.is_some());
        driver.insert(overlay::OPTIONS.to_owned(), writable.unwrap_or(&options).to_owned());
        translated.mounts.push(Mount { source: Some(name.clone()), read_only, ..mount });
        translated.volumes.insert(name, driver);
    }
    Ok(translated)
}

/// Takes the options of the driver out of a mount that has some.
fn driver_options(mount: &mut Mount) -> Option<HashMap<String, String>> {
    mount.volume_options.as_mut()?.driver_config.take()?.options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlays_are_volumes_with_names_and_what_can_only_be_read_has_a_layer() {
        let shared = || Mount {
            source: Some("s-workspace".into()),
            ..overlay::volume("/w", Some("lowerdir=/a,upperdir=/u"))
        };
        let mounts = vec![
            overlay::read_only(Path::new("/usr"), "/usr", Path::new("/empty")).unwrap(),
            shared(),
            Mount { target: Some("/workspace".into()), ..shared() },
            overlay::volume("/b", Some("ro,nosuid,nodev,lowerdir=/b,upperdir=/v")),
            overlay::volume("/home", None),
        ];
        let translated = translated(mounts, "s", Path::new("/l")).unwrap();
        let names: Vec<_> = translated.mounts.iter().map(|mount| mount.source.as_deref()).collect();
        assert_eq!(names, [Some("s-0"), Some("s-workspace"), Some("s-workspace"), Some("s-2"), None]);
        let is_read_only = translated.mounts.iter().map(|mount| mount.read_only == Some(true));
        assert_eq!(is_read_only.collect::<Vec<_>>(), [true, false, false, true, false]);
        let volumes: Vec<_> = translated.volumes.values().map(|driver| driver["o"].as_str()).collect();
        let usr = "lowerdir=/usr:/empty,upperdir=/l/shown/0/upper,workdir=/l/shown/0/work";
        assert_eq!(volumes, [usr, "lowerdir=/b,upperdir=/v", "lowerdir=/a,upperdir=/u"]);
        assert_eq!(translated.directories, ["/l/shown/0/upper", "/l/shown/0/work"].map(PathBuf::from));
        let odd = overlay::read_only(Path::new("/a:b"), "/ab", Path::new("/empty")).unwrap();
        assert!(super::translated(vec![odd], "s", Path::new("/l")).is_err());
    }
}
