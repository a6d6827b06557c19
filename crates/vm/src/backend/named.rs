//! Images named by `--image` as the root of a machine: of an engine of this machine (`docker save`, `podman save`), or of an archive. Each
//! is unpacked and becomes a read-only image of the machine's once.

use super::archive::{Config, ImageArchive};
use super::initial::Shown;
use super::{images, tool};
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::host_process::{self, Ran};
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use agent_sandbox::host_tree::HostTree;
use agent_sandbox::{OnProgress, environment};
use agent_wire::boot_spec::IMAGES;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The programs of engines; the first that has the image is asked for it.
const ENGINES: [&str; 2] = ["docker", "podman"];
/// The variables that they need to find their engine and the user's registries.
const VARIABLES: [&str; 9] = [
    "HOME",
    "PATH",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "CONTAINER_HOST",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
];
const QUESTION: Duration = Duration::from_secs(30);
const TRANSFER: Duration = Duration::from_secs(30 * 60);
const MAX_SAID: usize = 16 << 10;
/// The most that a description may take, how many images are kept, and the links of one that are made.
const MAX_DESCRIPTION: u64 = 1 << 20;
const KEPT: usize = 3;
const MAX_ENTRIES: usize = 1000;
const PREFIX: &str = "named-";
/// `PATH` of an image that says nothing about it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The paths that a sandbox has of its own, and that are not shown of an image.
const OWN: [&str; 20] = [
    "dev",
    "proc",
    "sys",
    "tmp",
    "run",
    "home",
    "workspace",
    "root",
    ".dockerenv",
    "var/tmp",
    "var/run",
    "var/lock",
    "etc/passwd",
    "etc/group",
    "etc/hosts",
    "etc/hostname",
    "etc/nsswitch.conf",
    "etc/resolv.conf",
    "etc/mtab",
    "etc/shadow",
];
/// Of these each entry is shown by itself.
const OPENED: [&str; 2] = ["etc", "var"];

/// The parts of an image that are shown, as they are noted beside its file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Described {
    path: String,
    env: Vec<(String, String)>,
    binds: Vec<PathBuf>,
    symlinks: Vec<(PathBuf, PathBuf)>,
}

/// An image that is ready.
pub struct Root {
    pub image: PathBuf,
    pub tree: HostTree,
    pub shown: Shown,
}

/// The image `name` in `cache`, which is made where it is missing.
///
/// # Errors
/// No engine has it and it is not an archive, or it cannot be unpacked.
pub async fn ready(machine: &Machine, name: &str, cache: &Path, on_progress: OnProgress<'_>) -> Result<Root> {
    let source = Source::find(machine, name, on_progress).await?;
    let image = cache.join(format!("{PREFIX}{}.erofs", Hash::of(source.id()).short(8)));
    let description = image.with_extension("json");
    if !image.is_file() || !description.is_file() {
        let _lock = images::lock(cache, on_progress).await?;
        if !image.is_file() || !description.is_file() {
            on_progress(&format!("making an image of {name}, once"), 0, 0);
            let scratch = Scratch::new(cache)?;
            let archive = source.archive(machine, &scratch.0).await?;
            make(archive, &scratch.0, &image, &description).await?;
            images::remove_older(cache, PREFIX, "erofs", KEPT, |path| path.with_extension("json"));
        }
    }
    images::note_use(&image);
    let described = plain_file::read(&description, MAX_DESCRIPTION, Links::Refuse)
        .and_then(|text| Ok(serde_json::from_slice::<Described>(&text)?));
    let described = described.map_err(|error| {
        Error::sandbox(format!("{} cannot be read", description.display()))
            .caused_by(error)
            .hint("remove it, and the image is made again")
    })?;
    Ok(described.root(image))
}

impl Described {
    fn root(self, image: PathBuf) -> Root {
        let below = Path::new(IMAGES).join("0");
        let binds: Vec<(PathBuf, PathBuf)> =
            self.binds.iter().map(|path| (below.join(path), Path::new("/").join(path))).collect();
        let mut tree = HostTree::default();
        tree.symlinks =
            self.symlinks.into_iter().map(|(link, target)| (Path::new("/").join(link), target)).collect();
        (tree.path, tree.env) = (self.path, self.env);
        Root { image, tree, shown: Shown { binds, ..Shown::default() } }
    }

    /// Describes the parts of the unpacked image at `root` that are shown.
    fn of(root: &Path, config: &Config) -> io::Result<Self> {
        let mut described = Self { path: PATH.to_owned(), ..Self::default() };
        let own = environment::variables("", "");
        for variable in config.config.env.iter().flatten() {
            match variable.split_once('=') {
                Some(("PATH", path)) => described.path = path.to_owned(),
                Some((name, value)) if own.iter().all(|(own, _)| own != name) => {
                    described.env.push((name.to_owned(), value.to_owned()));
                }
                _ => {}
            }
        }
        described.add(root, Path::new(""))?;
        Ok(described)
    }

    fn add(&mut self, root: &Path, directory: &Path) -> io::Result<()> {
        let mut names: Vec<PathBuf> = fs::read_dir(root.join(directory))?
            .map(|entry| Ok::<_, io::Error>(directory.join(entry?.file_name())))
            .collect::<io::Result<_>>()?;
        names.sort();
        for path in names {
            if self.binds.len() + self.symlinks.len() >= MAX_ENTRIES {
                return Err(io::Error::other("it has too much in its uppermost directories"));
            }
            if OWN.iter().any(|own| path == Path::new(own)) {
                continue;
            }
            let metadata = fs::symlink_metadata(root.join(&path))?;
            if metadata.is_symlink() {
                let target = fs::read_link(root.join(&path))?;
                self.symlinks.push((path, target));
            } else if metadata.is_dir() && OPENED.iter().any(|opened| path == Path::new(opened)) {
                self.add(root, &path)?;
            } else if metadata.is_dir() || metadata.is_file() {
                self.binds.push(path);
            }
        }
        Ok(())
    }
}

/// The source of an image.
enum Source {
    /// An archive, and what tells it from a later one.
    File(PathBuf, String),
    /// The program of an engine, and the image's id.
    Engine(PathBuf, String),
}

impl Source {
    async fn find(machine: &Machine, name: &str, on_progress: OnProgress<'_>) -> Result<Self> {
        let path = machine.in_home(Path::new(name.strip_prefix("oci-archive:").unwrap_or(name)));
        if let Ok(found) = fs::metadata(&path)
            && found.is_file()
        {
            let id =
                format!("{path:?} {} {} {}.{}", found.ino(), found.size(), found.mtime(), found.mtime_nsec());
            return Ok(Self::File(path, id));
        }
        let is_name = name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:@".contains(c));
        if !is_name {
            return Err(Error::config(format!(
                "{name} is not the name of an image, and no archive is there"
            )));
        }
        let engines: Vec<PathBuf> = ENGINES.iter().filter_map(|engine| tool::find(engine)).collect();
        if engines.is_empty() {
            return Err(Error::config(format!("no engine of this machine could have the image {name}")).hint(
                "install docker or podman, or name an archive that `docker save` or `skopeo copy` has written",
            ));
        }
        for engine in &engines {
            if let Some(id) = inspect(machine, engine, name).await? {
                return Ok(Self::Engine(engine.clone(), id));
            }
        }
        on_progress(&format!("pulling {name}"), 0, 0);
        let mut said = String::new();
        for engine in engines {
            let pulled = ask(machine, &engine, &["pull", "--quiet", name], TRANSFER).await?;
            if pulled.status.success()
                && let Some(id) = inspect(machine, &engine, name).await?
            {
                return Ok(Self::Engine(engine, id));
            }
            said = String::from_utf8_lossy(&pulled.stderr).trim().to_owned();
        }
        Err(Error::sandbox(format!(
            "the image {name} could not be pulled: {}",
            agent_base::sanitise::plain(&said)
        ))
        .hint("`docker pull` and `podman pull` take the same names"))
    }

    fn id(&self) -> &str {
        match self {
            Self::File(_, id) | Self::Engine(_, id) => id,
        }
    }

    /// An archive with the image in it.
    async fn archive(&self, machine: &Machine, scratch: &Path) -> Result<PathBuf> {
        let (engine, id) = match self {
            Self::File(path, _) => return Ok(path.clone()),
            Self::Engine(engine, id) => (engine, id),
        };
        let archive = scratch.join("archive");
        let arguments = [OsStr::new("save"), OsStr::new("--output"), archive.as_os_str(), OsStr::new(id)];
        let saved = ask(machine, engine, &arguments, TRANSFER).await?;
        match saved.status.success() {
            true => Ok(archive),
            false => {
                let said = String::from_utf8_lossy(&saved.stderr).trim().to_owned();
                Err(Error::sandbox(format!(
                    "the engine does not save the image: {}",
                    agent_base::sanitise::plain(&said)
                )))
            }
        }
    }
}

async fn inspect(machine: &Machine, engine: &Path, name: &str) -> Result<Option<String>> {
    let asked = ask(machine, engine, &["image", "inspect", "--format", "{{.Id}}", name], QUESTION).await?;
    let id = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    let is_id = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == ':');
    Ok(Some(id).filter(|_| asked.status.success() && is_id))
}

async fn ask(
    machine: &Machine,
    engine: &Path,
    arguments: &[impl AsRef<OsStr>],
    limit: Duration,
) -> Result<Ran> {
    let mut command = Command::new(engine);
    command.args(arguments).env_clear();
    command.envs(VARIABLES.iter().filter_map(|name| Some((name, machine.variable(name)?))));
    let failed = || Error::sandbox(format!("{} does not answer", engine.display()));
    match host_process::run(command, &[], limit, MAX_SAID).await {
        Ok(Some(ran)) => Ok(ran),
        Ok(None) => Err(failed()),
        Err(error) => Err(failed().caused_by(error)),
    }
}

async fn make(archive: PathBuf, scratch: &Path, image: &Path, description: &Path) -> Result<()> {
    let root = scratch.join("root");
    let unpack = {
        let root = root.clone();
        move || -> Result<Described> {
            let failed = |error: io::Error| Error::sandbox("the image cannot be unpacked").caused_by(error);
            fs::create_dir(&root).map_err(failed)?;
            let mut archive = ImageArchive::open(&archive)?;
            let (config, layers) = archive.image()?;
            let here = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
            if !config.architecture.is_empty() && config.architecture != here {
                let what = format!("the image is for {}, and this machine is {here}", config.architecture);
                return Err(Error::config(agent_base::sanitise::plain(&what).into_owned()));
            }
            archive.unpack(&layers, &root).map_err(failed)?;
            Described::of(&root, &config).map_err(failed)
        }
    };
    let described = tokio::task::spawn_blocking(unpack)
        .await
        .map_err(|error| Error::unexpected("an image was not unpacked").caused_by(error))??;
    images::make(&root, image, &["--all-root"]).await?;
    images::write_whole(description, &serde_json::to_vec(&described)?).map_err(|error| {
        Error::sandbox(format!("{} cannot be written", description.display())).caused_by(error)
    })
}

/// A directory of the cache that goes with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new(cache: &Path) -> Result<Self> {
        let path = cache.join(format!("unpacked-{}", std::process::id()));
        // Of a process before that had the same number.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path)
            .map_err(|error| Error::sandbox(format!("{} cannot be made", path.display())).caused_by(error))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left of it is removed by the next one.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sandbox_has_of_its_own_is_not_the_images() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["usr/bin", "etc/ssl", "var/lib", "var/tmp", "tmp", "home/someone"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join("etc/passwd"), "").unwrap();
        fs::write(root.path().join("etc/debian_version"), "").unwrap();
        std::os::unix::fs::symlink("usr/bin", root.path().join("bin")).unwrap();
        let config: Config =
            serde_json::from_str(r#"{"config": {"Env": ["PATH=/usr/bin", "LANG=C", "HOME=/root", "odd"]}}"#)
                .unwrap();
        let described = Described::of(root.path(), &config).unwrap();
        assert_eq!(described.path, "/usr/bin");
        assert_eq!(described.env, [("LANG".to_owned(), "C".to_owned())]);
        let binds: Vec<&str> = described.binds.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(binds, ["etc/debian_version", "etc/ssl", "usr", "var/lib"]);
        assert_eq!(described.symlinks, [("bin".into(), "usr/bin".into())]);
        let root = described.root("/cache/image".into());
        assert_eq!(root.shown.binds[2], ("/images/0/usr".into(), "/usr".into()));
    }
}
