//! The workspace as an overlay: the host directory underneath, never written, and the sandbox's writes in a layer of
//! its own. No file is copied at the start, however big the tree is.
//!
//! A tree of root's belongs to another user than the one inside, who could not write to it. An ID-mapped view of it
//! (`guest show`) is what is mounted then.
//!
//! The engine's `local` volume driver mounts it (`type=overlay`), so the engine has to run on this machine. The layer is
//! a directory of the user's on disk, because the engine does not remove what it mounts from there.

use super::engine::Engine;
use super::{as_root, container, failure, podman};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::sanitise::one_line;
use agent_sandbox::bootstrap;
use agent_sandbox::layer::{self, Contents};
use agent_sandbox::ownership::{ProcessId, sandbox_name};
use agent_sandbox::project::{self, Project};
use agent_sandbox::{Access, AddedMount, Copied, Spec};
use bollard::models::{Mount, MountType, MountVolumeOptions, MountVolumeOptionsDriverConfig};
use bollard::query_parameters::RemoveVolumeOptions;
use futures_util::future::try_join_all;
use rustix::process::geteuid;
use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// A layer without an owner and without a container is left over after this long.
const GRACE: Duration = Duration::from_secs(600);

/// The name of the mount point below a layer where the host directory is shown as the sandbox's user's.
const MAPPED: &str = "lower";
/// The name of the file beside it that says which directory that is.
const TREE: &str = "tree";
/// The directory with what is known of each layer that lies under a writable one, and the name of the file with its path.
const BENEATH: &str = "beneath";
const BENEATH_TREE: &str = "layer";
/// The directory that the kernel works in where `$HOME` is an overlay.
const HOME_WORK: &str = "home-work";
/// The volumes that are at several places.
const WORKSPACE_VOLUME: &str = "workspace";
const HOME_VOLUME: &str = "home";

/// The name of the directory that is the workspace where that is a copy.
const WORKSPACE_COPY: &str = "workspace";
/// The name of the file that says which process made the layer.
const OWNER: &str = "owner";

/// Makes the directory in which a session has its layer and its files of accounts.
pub(super) fn make_directory(machine: &Machine, session: &str) -> Result<PathBuf> {
    let layer = layer(machine, session)?;
    let make = || {
        DirBuilder::new().recursive(true).mode(0o700).create(&layer)?;
        fs::write(layer.join(OWNER), ProcessId::this().map_or_else(String::new, |owner| owner.to_string()))
    };
    make().map_err(|error| Error::sandbox(format!("{} cannot be made", layer.display())).caused_by(error))?;
    Ok(layer)
}

/// The content of a layer at its beginning.
pub(super) enum Filling<'a> {
    /// Whiteouts of these paths.
    Hidden(&'a [PathBuf]),
    /// A copy of what another sandbox had written: the directory that [`copy`] made.
    Forked(&'a Path),
}

/// Makes the layer for the session of `spec` over the directory `lower` for the user inside.
pub(super) fn make(
    machine: &Machine,
    spec: &Spec,
    lower: &Path,
    filling: &Filling<'_>,
    (uid, gid): (u32, u32),
) -> Result<()> {
    escaped(lower, true)?;
    let layer = make_directory(machine, &spec.session)?;
    let fill = || {
        let upper = layer.join(layer::UPPER);
        fs::create_dir(layer.join("work"))?;
        match filling {
            Filling::Hidden(_) => fs::create_dir(&upper)?,
            Filling::Forked(from) => {
                layer::copy(&from.join(layer::UPPER), &upper, Some((uid, gid)), Contents::Linked)?;
            }
        }
        // The top of the layer stands for the workspace itself, and has to belong to who works there.
        chown(&upper, Some(uid), Some(gid))?;
        map(&layer, lower, (uid, gid))?;
        if let Some(tree) = spec.beneath().and_then(|beneath| beneath.workspace) {
            lay_beneath(&layer, WORKSPACE_VOLUME, &tree, (uid, gid))?;
        }
        match filling {
            Filling::Hidden(hidden) => layer::hide(&upper, lower, hidden, (uid, gid)),
            Filling::Forked(_) => Ok(()),
        }
    };
    fill().map_err(|error| {
        Error::sandbox(format!("{} cannot hold the sandbox's writes", layer.display())).caused_by(error)
    })
}

/// Copies what the sandbox of `session` has written into the new directory `into`, if its workspace is an overlay, with `$HOME` and
/// the caches where they are directories of the layer's. Only root sees which directories of a layer hide those underneath.
pub(super) fn copy(machine: &Machine, session: &str, into: &Path) -> Result<Copied> {
    let layer = layer(machine, session)?;
    if !geteuid().is_root() || !layer.join(layer::UPPER).is_dir() {
        return Ok(Copied::default());
    }
    let copy = |name: &str| layer::copy(&layer.join(name), &into.join(name), None, Contents::Copied);
    let copied = || {
        copy(layer::UPPER)?;
        let home = layer.join(layer::SHOWN_AT).is_file();
        if home {
            copy(layer::HOME)?;
            project::copy_caches(&layer, into)?;
        }
        Ok(Copied { workspace: true, home })
    };
    copied().map_err(|error: io::Error| {
        Error::sandbox(format!("{} cannot be copied", layer.display())).caused_by(error)
    })
}

/// Shows the host directories of `session` below their layers for as long as the engine needs to mount the overlays, where they
/// belong to another user than the one inside: root's trees, for the sandbox of a caller who is root. The kernel's overlays keep
/// a hold of them from then on.
pub(super) async fn show_mapped(machine: &Machine, session: &str) -> Result<Vec<Mapped>> {
    let shown = layers_of(&layer(machine, session)?).into_iter().map(|layer| show_one(machine, layer));
    Ok(try_join_all(shown).await?.into_iter().flatten().collect())
}

/// The layer of the workspace and those of the caches.
fn layers_of(layer: &Path) -> Vec<PathBuf> {
    let caches = (0..).map(|index| Project::layers(layer, index)).take_while(|layer| layer.is_dir());
    let beneath = fs::read_dir(layer.join(BENEATH)).into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(layer.to_owned()).chain(caches).chain(beneath).collect()
}

async fn show_one(machine: &Machine, layer: PathBuf) -> Result<Option<Mapped>> {
    let tree = match fs::read(layer.join(TREE)) {
        Ok(tree) => OsString::from_vec(tree),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let target = layer.join(MAPPED);
    let inside = fs::metadata(layer.join("upper"))?;
    let (uid, gid) = (inside.uid(), inside.gid());
    let (program, _open) = bootstrap::program(machine)?;
    let mut show = tokio::process::Command::new(program);
    show.arg("show").arg(tree).arg(&target).args([uid.to_string(), gid.to_string()]).env_clear();
    show.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = || Error::sandbox("the workspace cannot be shown as the sandbox's user's own");
    let mut helper = show.spawn().map_err(|error| failed().caused_by(error))?;
    let mut said = Vec::new();
    if let Some(stdout) = helper.stdout.take() {
        stdout.take(16).read_to_end(&mut said).await?;
    }
    if said == b"ready" {
        return Ok(Some(Mapped { helper, target }));
    }
    let output = helper.wait_with_output().await.map_err(|error| failed().caused_by(error))?;
    let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(failed().caused_by(anyhow::Error::msg(said)))
}

/// A host directory that is shown below a layer, read-only. It goes with the helper's standard input: when this is dropped,
/// and also when this process is killed.
pub(super) struct Mapped {
    helper: tokio::process::Child,
    target: PathBuf,
}

impl Mapped {
    /// Takes it away, and waits until it is.
    pub(super) async fn end(mut self) {
        drop(self.helper.stdin.take());
        // A helper that was killed leaves the mount.
        if !self.helper.wait().await.is_ok_and(|status| status.success()) {
            unmount(&self.target);
        }
    }
}

/// Takes away every mount at `target`. What is in use goes on being there for its users alone.
fn unmount(target: &Path) {
    let Ok(path) = CString::new(target.as_os_str().as_bytes()) else { return };
    // SAFETY: the path is NUL-terminated. An error says that nothing is mounted there (any more).
    while unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) } == 0 {}
}

/// Returns the mounts of the layer of `session` over `lower`, at each of `places`.
pub(super) fn mounts(machine: &Machine, session: &str, lower: &Path, places: &[&str]) -> Result<Vec<Mount>> {
    let private = layer(machine, session)?;
    let lowers = [beneath(&private, WORKSPACE_VOLUME)?, Some(lower_of(&private, lower))];
    let options = options(&private.join(layer::UPPER), &private.join("work"), &lowers)?;
    shared(session, WORKSPACE_VOLUME, places, &options)
}

/// Returns the mounts of `$HOME` of `session`, at each of `places`, where something lies under it; `None` where nothing
/// does.
pub(super) fn home_over_layer(
    machine: &Machine,
    session: &str,
    places: &[&str],
) -> Result<Option<Vec<Mount>>> {
    let private = layer(machine, session)?;
    let Some(lower) = beneath(&private, HOME_VOLUME)? else { return Ok(None) };
    let options = options(&private.join(project::PRIVATE_HOME), &private.join(HOME_WORK), &[Some(lower)])?;
    shared(session, HOME_VOLUME, places, &options).map(Some)
}

/// A volume with these options at each of `places`. One that is at several needs a name, and is not removed with the container.
fn shared(session: &str, volume_of: &str, places: &[&str], options: &str) -> Result<Vec<Mount>> {
    let name = if places.len() > 1 { Some(volume_name(session, volume_of)?) } else { None };
    let mount = |place: &&str| Mount { source: name.clone(), ..volume(place, Some(options)) };
    Ok(places.iter().map(mount).collect())
}

fn volume_name(session: &str, volume_of: &str) -> Result<String> {
    Ok(format!("{}-{volume_of}", sandbox_name(session)?))
}

/// Returns the mount of the cache with this index, which is the host's `lower`, at `inside`.
pub(super) fn cache(
    machine: &Machine,
    session: &str,
    index: usize,
    (lower, inside): &(PathBuf, PathBuf),
) -> Result<Mount> {
    let options = layer_options(machine, session, index, lower)?;
    let inside = inside.to_str().ok_or_else(|| not_plain(inside))?;
    Ok(volume(inside, Some(&options)))
}

/// The options of an overlay of `lower` below the layer with this index.
fn layer_options(machine: &Machine, session: &str, index: usize, lower: &Path) -> Result<String> {
    let private = layer(machine, session)?;
    let layers = Project::layers(&private, index);
    let lowers = [beneath(&private, &cache_layer(index))?, Some(lower_of(&layers, lower))];
    options(&layers.join(layer::UPPER), &layers.join("work"), &lowers)
}

/// Returns the mount of a directory beside the workspace, with the index of its layer. Where the engine has no overlays,
/// what can only be read is bound as it is.
///
/// # Errors
/// Something in it is to be hidden, which takes an overlay.
pub(super) fn added(
    machine: &Machine,
    session: &str,
    (index, added): (usize, &AddedMount),
    has_overlays: bool,
) -> Result<Mount> {
    let path = added.path.to_str().ok_or_else(|| not_plain(&added.path))?;
    if added.access == Access::Copy {
        let own = Project::layers(&layer(machine, session)?, index).join(layer::UPPER);
        return container::bind(&own, &added.path, false);
    }
    if has_overlays {
        let options = layer_options(machine, session, index, &added.path)?;
        // Engines take no read-only volume without a name.
        let access = if added.access == Access::ReadOnly { READ_ONLY } else { "" };
        return Ok(volume(path, Some(&format!("{access}{options}"))));
    }
    if added.access == Access::CopyOnWrite {
        return Err(Error::sandbox("the engine mounts no overlays of this machine's directories"));
    }
    if let Some(hidden) = added.hidden.first() {
        let text = format!(
            "{path} cannot be added: the engine mounts no overlays, without which {} cannot be kept out",
            one_line(&hidden.to_string_lossy(), 200)
        );
        return Err(Error::sandbox(text).hint("use --sandbox local, or add a directory without secrets"));
    }
    container::bind(&added.path, &added.path, true)
}

/// The directory that is `$HOME` of `session`, at `inside`. That it is, is noted: an image of its own has a volume of the engine's.
pub(super) fn home(machine: &Machine, session: &str, inside: &Path) -> Result<PathBuf> {
    let layer = layer(machine, session)?;
    fs::write(layer.join(layer::SHOWN_AT), inside.as_os_str().as_bytes())?;
    Ok(layer.join(project::PRIVATE_HOME))
}

/// The directory that is the workspace of `session`, where that is a copy.
pub(super) fn workspace(machine: &Machine, session: &str) -> Result<PathBuf> {
    Ok(layer(machine, session)?.join(WORKSPACE_COPY))
}

/// Makes the directories of the session of `spec` for the user inside, and what its project needs; where the machine's programs
/// are around that (`is_around`), also what they need.
pub(super) fn prepare(
    machine: &Machine,
    project: &Project,
    is_around: bool,
    ids: (u32, u32),
    spec: &Spec,
) -> Result<()> {
    let (private, forked) = (make_directory(machine, &spec.session)?, spec.workspace.forked());
    let failed =
        |error| Error::sandbox(format!("{} cannot be made ready", private.display())).caused_by(error);
    let make = |directory: PathBuf| {
        fs::create_dir(&directory).and_then(|()| chown(&directory, Some(ids.0), Some(ids.1))).map_err(failed)
    };
    make(private.join(WORKSPACE_COPY))?;
    project.prepare_added(&private, ids)?;
    for (index, added) in project.added() {
        if added.access != Access::Copy {
            map(&Project::layers(&private, index), &added.path, ids).map_err(failed)?;
        }
    }
    if !is_around {
        return Ok(());
    }
    let home = private.join(project::PRIVATE_HOME);
    match forked.map(|forked| forked.join(layer::HOME)).filter(|forked| forked.is_dir()) {
        Some(forked) => layer::copy(&forked, &home, Some(ids), Contents::Linked).map_err(failed)?,
        None => make(home)?,
    }
    project.prepare(&private, ids, forked)?;
    for (index, (lower, _)) in project.caches.iter().enumerate() {
        map(&Project::layers(&private, index), lower, ids).map_err(failed)?;
    }
    let Some(beneath) = spec.beneath() else { return Ok(()) };
    if let Some(home) = &beneath.home {
        lay_beneath(&private, HOME_VOLUME, home, ids).map_err(failed)?;
        make(private.join(HOME_WORK))?;
    }
    for (index, (_, inside)) in project.caches.iter().enumerate() {
        if let Some((tree, _)) = beneath.caches.iter().find(|(_, shown_at)| shown_at == inside) {
            lay_beneath(&private, &cache_layer(index), tree, ids).map_err(failed)?;
        }
    }
    Ok(())
}

/// Notes that the directory `lower` is to be shown as that of the user inside, where it is another's.
fn map(layer: &Path, lower: &Path, ids: (u32, u32)) -> io::Result<()> {
    let owner = fs::metadata(lower)?;
    if (owner.uid(), owner.gid()) == ids {
        return Ok(());
    }
    fs::create_dir(layer.join(MAPPED))?;
    fs::write(layer.join(TREE), lower.as_os_str().as_bytes())
}

/// Returns the path at which the engine finds the directory `lower`, of which there may be a view at `layer`.
fn lower_of(layer: &Path, lower: &Path) -> PathBuf {
    let mapped = layer.join(MAPPED);
    if mapped.is_dir() { mapped } else { lower.to_owned() }
}

/// The options of an overlay over those of `lowers` that are there, the upmost first.
fn options(upper: &Path, work: &Path, lowers: &[Option<PathBuf>]) -> Result<String> {
    let lowers = lowers.iter().flatten().map(|lower| escaped(lower, true)).collect::<Result<Vec<_>>>()?;
    Ok(format!(
        "redirect_dir=on,lowerdir={},upperdir={},workdir={}",
        lowers.join(":"),
        escaped(upper, false)?,
        escaped(work, false)?
    ))
}

fn cache_layer(index: usize) -> String {
    format!("cache-{index}")
}

/// Notes that `tree` is to lie under the layer called `name` of the session with this private directory, for the user inside.
fn lay_beneath(private: &Path, name: &str, tree: &Path, ids: (u32, u32)) -> io::Result<()> {
    let directory = private.join(BENEATH).join(name);
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    fs::write(directory.join(BENEATH_TREE), tree.as_os_str().as_bytes())?;
    // What is mapped is mapped to the owner of this.
    let like = directory.join(layer::UPPER);
    fs::create_dir(&like)?;
    chown(&like, Some(ids.0), Some(ids.1))?;
    map(&directory, tree, ids)
}

/// Returns the path at which the engine finds what lies under the layer called `name`, if anything does.
fn beneath(private: &Path, name: &str) -> Result<Option<PathBuf>> {
    let directory = private.join(BENEATH).join(name);
    match fs::read(directory.join(BENEATH_TREE)) {
        Ok(tree) => Ok(Some(lower_of(&directory, Path::new(&OsString::from_vec(tree))))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The host directory `host` read-only at `inside`, as an overlay without a writable layer over the empty directory `empty`:
/// there, sockets and FIFOs are others than the host's. An overlay without a writable layer takes two directories.
pub(super) fn read_only(host: &Path, inside: &str, empty: &Path) -> Result<Mount> {
    let options = format!("{READ_ONLY}lowerdir={}:{}", escaped(host, true)?, escaped(empty, true)?);
    Ok(volume(inside, Some(&options)))
}

/// The options that an overlay which can only be read begins with.
pub(super) const READ_ONLY: &str = "ro,nosuid,nodev,";
/// The option of the engine's driver that has those of the mount.
pub(super) const OPTIONS: &str = "o";

/// A volume without a name, which the engine removes with the container: an overlay with these options, or a directory of its own.
pub(super) fn volume(inside: &str, options: Option<&str>) -> Mount {
    Mount {
        typ: Some(MountType::VOLUME),
        target: Some(inside.to_owned()),
        volume_options: options.map(|options| MountVolumeOptions {
            no_copy: Some(true),
            driver_config: Some(MountVolumeOptionsDriverConfig {
                name: Some("local".to_owned()),
                options: Some(
                    [("type", "overlay"), ("device", "overlay"), (OPTIONS, options)]
                        .map(|(name, value)| (name.to_owned(), value.to_owned()))
                        .into(),
                ),
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Removes the layer of `session`, where it has one. The container has to be gone.
pub(super) async fn remove(engine: &Engine, session: &str) -> Result<()> {
    let layer = layer(&engine.machine, session)?;
    let failed = |error| Error::sandbox(format!("{} could not be removed", layer.display())).caused_by(error);
    // Left over where the start was killed at the wrong moment. It is read-only, so that not even a mount that stays
    // could make the removal reach the host's files.
    layers_of(&layer).iter().for_each(|layer| unmount(&layer.join(MAPPED)));
    let shared = [WORKSPACE_VOLUME, HOME_VOLUME].map(|volume_of| volume_name(session, volume_of));
    for volume in shared.into_iter().chain(podman::volumes(engine, session)?.into_iter().map(Ok)) {
        remove_volume(engine, &volume?).await?;
    }
    match fs::remove_dir_all(&layer) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            // The kernel leaves files of root's in the work directory.
            as_root::empty(engine, &layer).await?;
            fs::remove_dir_all(&layer).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// An engine says for a moment that a volume is in use by a container that it has just removed.
async fn remove_volume(engine: &Engine, name: &str) -> Result<()> {
    for attempt in 1.. {
        match engine.client.remove_volume(name, None::<RemoveVolumeOptions>).await {
            Err(error) if failure::status(&error) == Some(409) && attempt < REMOVALS => {
                tokio::time::sleep(REMOVAL_PAUSE).await;
            }
            Err(error) if failure::status(&error) != Some(404) => {
                return Err(failure::error(format!("the volume {name} could not be removed"), error));
            }
            _ => break,
        }
    }
    Ok(())
}

/// Attempts to remove a volume, and the time between them.
const REMOVALS: u32 = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(50);

/// Returns whether the workspace of `session` is an overlay.
pub(super) fn has_workspace(machine: &Machine, session: &str) -> Result<bool> {
    Ok(layer(machine, session)?.join(layer::UPPER).is_dir())
}

/// The sessions that have a layer.
pub(super) fn sessions(machine: &Machine) -> Result<Vec<String>> {
    match fs::read_dir(layers(machine)?) {
        Ok(entries) => {
            Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the layer of `session`, which has no container, is not about to get one: the process that made it is gone.
pub(super) fn is_abandoned(machine: &Machine, session: &str) -> bool {
    let Ok(layer) = layer(machine, session) else { return false };
    match fs::read_to_string(layer.join(OWNER)) {
        Ok(owner) => !owner.parse().is_ok_and(ProcessId::is_alive),
        // Made a moment ago, or before owners were written down.
        Err(_) => {
            let made = fs::symlink_metadata(&layer).and_then(|metadata| metadata.modified());
            made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > GRACE))
        }
    }
}

fn layers(machine: &Machine) -> Result<PathBuf> {
    Ok(machine.cache_dir()?.join("layers"))
}

/// The directory of the sandbox of `session`.
pub(super) fn layer(machine: &Machine, session: &str) -> Result<PathBuf> {
    sandbox_name(session)?;
    Ok(layers(machine)?.join(session))
}

fn not_plain(path: &Path) -> Error {
    Error::sandbox(format!("the engine cannot mount {}: the name is not plain text", path.display()))
        .hint("use `--workspace-mode copy`")
}

/// A path as the kernel's overlay options take it: a comma ends an option, a colon ends a lower directory.
pub(super) fn escaped(path: &Path, is_lower: bool) -> Result<String> {
    let text = path.to_str().filter(|text| !text.contains(['"', '\n'])).ok_or_else(|| not_plain(path))?;
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
