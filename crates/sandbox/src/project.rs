//! Where a project is in a sandbox with this machine's programs, and what is shown around it: at the paths that it has on the host,
//! because virtual environments, build directories and compiled programs name them.

use crate::caches::{self, Cache, Caches};
use crate::host_tree::{self, HostTree};
use crate::layer::Contents;
use crate::place::can_be_a_place;
use crate::{Access, AddedMount, HOME, Spec, WORKSPACE, WorkspaceMount, layer};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, chown, lchown};
use std::path::{Path, PathBuf};

/// The directory of `$HOME` in a sandbox's private one.
pub const PRIVATE_HOME: &str = "home";

/// The paths inside, and what is shown there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The path of the workspace.
    pub place: PathBuf,
    /// `$HOME`.
    pub home: PathBuf,
    /// Directories that are shown copy-on-write: the path on the host and the one inside.
    pub caches: Vec<(PathBuf, PathBuf)>,
    /// Links of the machine's directories.
    pub symlinks: Vec<(PathBuf, PathBuf)>,
    /// `PATH`.
    pub path: String,
    /// Variables beside those of every sandbox.
    pub env: Vec<(String, String)>,
    /// Directories beside the workspace. Their writable layers come after those of the caches.
    pub added: Vec<AddedMount>,
    hidden: Vec<Vec<PathBuf>>,
    settings: Vec<(PathBuf, Vec<u8>)>,
}

impl Project {
    /// Returns what `spec` asks for on this machine; without caches where the sandbox cannot show them copy-on-write.
    pub fn of(machine: &Machine, spec: &Spec, shows_caches: bool) -> Self {
        let tree = host_tree::host_tree(machine);
        let Some(place) = &spec.place else { return Self::elsewhere(&tree) };
        let added = spec.added.clone();
        let home = machine.home().filter(|home| can_be_a_home(home, place));
        let Caches { directories, settings, env } = match home {
            Some(_) if shows_caches => caches::find(machine),
            _ => Caches::default(),
        };
        let is_added = |path: &Path| added.iter().any(|added| path.starts_with(&added.path));
        let shown = |cache: &Cache| {
            let is_beside = !cache.inside.starts_with(place) && !place.starts_with(&cache.inside);
            is_beside && !is_added(&cache.inside)
        };
        let directories: Vec<Cache> = directories.into_iter().filter(shown).collect();
        let is_cached = |path: &Path| directories.iter().any(|cache| path.starts_with(&cache.inside));
        let home = home.unwrap_or_else(|| HOME.into());
        let is_own = |link: &Path| link.starts_with(&home) || is_cached(link) || is_added(link);
        let symlinks = tree.symlinks.iter().filter(|(link, _)| !is_own(link));
        let visible =
            |directory: &Path| directory.starts_with(place) || is_cached(directory) || is_added(directory);
        let java = |(name, value): &(String, String)| {
            let own = machine.text(name).filter(|own| is_cached(Path::new(own)));
            (name.clone(), own.unwrap_or_else(|| value.clone()))
        };
        Self {
            path: host_tree::search_path(machine, &tree, &home, &visible),
            env: tree.env.iter().map(java).chain(env).collect(),
            symlinks: symlinks.cloned().collect(),
            place: place.clone(),
            home,
            caches: directories.iter().map(|cache| (cache.host.clone(), cache.inside.clone())).collect(),
            hidden: directories.into_iter().map(|cache| cache.hidden).collect(),
            settings,
            added,
        }
    }

    /// Returns the project of a sandbox whose workspace has no path of its own: it is at the usual one.
    fn elsewhere(tree: &HostTree) -> Self {
        Self {
            place: WORKSPACE.into(),
            home: HOME.into(),
            caches: Vec::new(),
            symlinks: tree.symlinks.clone(),
            path: tree.path.clone(),
            env: tree.env.clone(),
            hidden: Vec::new(),
            settings: Vec::new(),
            added: Vec::new(),
        }
    }

    /// Each directory beside the workspace, with the index of its writable layer.
    pub fn added(&self) -> impl Iterator<Item = (usize, &AddedMount)> {
        (self.caches.len()..).zip(&self.added)
    }

    /// Makes the layers of the directories beside the workspace in the sandbox's private directory, for `owner`.
    ///
    /// # Errors
    /// Something cannot be made, or the directory is not what it was.
    pub fn prepare_added(&self, private: &Path, owner: (u32, u32)) -> Result<()> {
        for (index, added) in self.added() {
            let layers = Self::layers(private, index);
            let make = || {
                DirBuilder::new().mode(0o700).recursive(true).create(&layers)?;
                make_writable(&layers.join("work"), owner)?;
                let upper = layers.join(layer::UPPER);
                make_writable(&upper, owner)?;
                if added.access != Access::Copy {
                    let hidden: Vec<PathBuf> = added.hidden.iter().chain(&added.to_come).cloned().collect();
                    layer::hide(&upper, &added.path, &hidden, owner)?;
                }
                fs::write(layers.join(layer::SHOWN_AT), added.path.as_os_str().as_bytes())
            };
            make().map_err(|error| {
                Error::sandbox(format!("{} cannot be added", added.path.display())).caused_by(error)
            })?;
        }
        Ok(())
    }

    /// The directory of the writable layer of the cache with this index, in a sandbox's private one.
    pub fn layers(private: &Path, index: usize) -> PathBuf {
        private.join(layer::CACHES).join(index.to_string())
    }

    /// Makes in the sandbox's private directory, which has that of `$HOME` already, what this needs, for `owner`. The caches are
    /// as another sandbox had them, where `forked` holds what that one wrote ([`copy_caches`]).
    ///
    /// # Errors
    /// Something cannot be made, or `$HOME`, which may be that of another sandbox, holds a link in its place.
    pub fn prepare(&self, private: &Path, owner: (u32, u32), forked: Option<&Path>) -> Result<()> {
        self.make(private, owner, forked).map_err(|error| {
            Error::sandbox(format!("{} cannot be made ready", private.display())).caused_by(error)
        })
    }

    fn make(&self, private: &Path, owner: (u32, u32), forked: Option<&Path>) -> io::Result<()> {
        let written: BTreeMap<PathBuf, PathBuf> =
            forked.into_iter().flat_map(caches_of).map(|(layers, inside)| (inside, layers)).collect();
        for (index, ((lower, inside), hidden)) in self.caches.iter().zip(&self.hidden).enumerate() {
            let layers = Self::layers(private, index);
            DirBuilder::new().mode(0o700).recursive(true).create(&layers)?;
            make_writable(&layers.join("work"), owner)?;
            let upper = layers.join(layer::UPPER);
            match written.get(inside) {
                // It hides what the other sandbox was not to see.
                Some(written) => {
                    layer::copy(&written.join(layer::UPPER), &upper, Some(owner), Contents::Linked)?;
                }
                None => {
                    make_writable(&upper, owner)?;
                    layer::hide(&upper, lower, hidden, owner)?;
                }
            }
            fs::write(layers.join(layer::SHOWN_AT), inside.as_os_str().as_bytes())?;
        }
        let home = private.join(PRIVATE_HOME);
        let added = self.added.iter().map(|added| &added.path);
        let mount_points = self.caches.iter().map(|(_, inside)| inside).chain(added).chain([&self.place]);
        for below in mount_points.filter_map(|inside| inside.strip_prefix(&self.home).ok()) {
            make_in(&home, below, owner)?;
        }
        self.settings.iter().try_for_each(|(file, content)| write_in(&home, file, content, owner))
    }
}

/// The layers of the caches of the sandbox whose private directory this is, or of a copy of it, and their paths inside.
fn caches_of(private: &Path) -> Vec<(PathBuf, PathBuf)> {
    let layers = (0..).map(|index| Project::layers(private, index)).take_while(|layers| layers.is_dir());
    let shown = layers.filter_map(|layers| {
        let inside = fs::read(layers.join(layer::SHOWN_AT)).ok()?;
        Some((layers, PathBuf::from(OsString::from_vec(inside))))
    });
    shown.collect()
}

/// The directories under the writable layers of a sandbox.
pub struct Beneath {
    /// Under that of the workspace.
    pub workspace: Option<PathBuf>,
    /// Under that of `$HOME`.
    pub home: Option<PathBuf>,
    /// Under those of caches, each with its path inside.
    pub caches: Vec<(PathBuf, PathBuf)>,
}

impl Spec {
    /// Returns whether the workspace is an overlay.
    pub fn is_overlay(&self) -> bool {
        matches!(self.workspace, WorkspaceMount::Overlay { .. } | WorkspaceMount::Forked { .. })
    }

    /// Returns what lies under the writable layers, where anything does.
    pub fn beneath(&self) -> Option<Beneath> {
        let directory = self.beneath.as_ref()?;
        let is_overlay = self.is_overlay();
        let part = |name: &str| Some(directory.join(name)).filter(|part| is_overlay && part.is_dir());
        let caches =
            caches_of(directory).into_iter().map(|(layers, inside)| (layers.join(layer::UPPER), inside));
        Some(Beneath {
            workspace: part(layer::UPPER),
            home: part(layer::HOME),
            caches: caches.filter(|_| is_overlay).collect(),
        })
    }
}

/// Copies what the sandbox with this private directory has written in its caches to `into`, for a fork. A cache that holds too
/// much is begun anew there, as caches can be.
pub fn copy_caches(private: &Path, into: &Path) -> io::Result<()> {
    let mut copied = 0;
    for (layers, inside) in caches_of(private) {
        let to = Project::layers(into, copied);
        DirBuilder::new().mode(0o700).recursive(true).create(&to)?;
        match layer::copy(&layers.join(layer::UPPER), &to.join(layer::UPPER), None, Contents::Copied) {
            Ok(()) => {
                fs::write(to.join(layer::SHOWN_AT), inside.as_os_str().as_bytes())?;
                copied += 1;
            }
            Err(_) => fs::remove_dir_all(&to)?,
        }
    }
    Ok(())
}

/// Makes a directory of `home` with those above it, of which some may be there already.
fn make_in(home: &Path, directory: &Path, owner: (u32, u32)) -> io::Result<()> {
    let mut above = home.to_owned();
    for name in directory {
        above.push(name);
        match make_writable(&above, owner) {
            // That of a fork holds what a sandbox has written: no link of it is followed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(&above)?.is_dir() {
                    return Err(ErrorKind::NotADirectory.into());
                }
            }
            made => made?,
        }
    }
    Ok(())
}

/// Writes a file of `home` that is not there yet.
fn write_in(home: &Path, file: &Path, content: &[u8], owner: (u32, u32)) -> io::Result<()> {
    make_in(home, file.parent().unwrap_or(Path::new("")), owner)?;
    let path = home.join(file);
    let write = || {
        File::create_new(&path)?.write_all(content)?;
        lchown(&path, Some(owner.0), Some(owner.1))
    };
    match write() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

fn make_writable(directory: &Path, owner: (u32, u32)) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(directory)?;
    chown(directory, Some(owner.0), Some(owner.1))
}

/// Returns whether `$HOME` can have the path inside that it has here.
fn can_be_a_home(home: &Path, place: &Path) -> bool {
    // `/var/tmp` is a link inside.
    const SYSTEM: [&str; 10] =
        ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/run", "/nonexistent", "/var/tmp"];
    let is_system = SYSTEM.iter().any(|system| home.starts_with(system));
    can_be_a_place(home) && !is_system && home != Path::new("/tmp") && !home.starts_with(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{host_ids, sandbox_ids};

    /// A workspace below such a home did not start: the link led elsewhere while the root was made.
    #[test]
    fn a_home_below_the_link_of_temporary_files_has_another_path_inside() {
        let can_be = |home: &str| can_be_a_home(Path::new(home), Path::new("/work"));
        assert!(can_be("/srv/u") && !can_be("/var/tmp/u"));
    }

    /// The `$HOME` of a fork is what another sandbox has written.
    #[test]
    fn what_a_fork_is_given_in_its_home_is_made_through_no_link() {
        let made = tempfile::tempdir().unwrap();
        let (home, victim) = (made.path().join("home"), made.path().join("victim"));
        fs::create_dir(&home).unwrap();
        fs::create_dir(&victim).unwrap();
        std::os::unix::fs::symlink(&victim, home.join(".cargo")).unwrap();
        let owner = host_ids(sandbox_ids());
        make_in(&home, Path::new(".cargo/registry"), owner).unwrap_err();
        write_in(&home, Path::new(".cargo/config.toml"), b"x", owner).unwrap_err();
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        make_in(&home, Path::new(".npm"), owner).unwrap();
        make_in(&home, Path::new(".npm/_cacache"), owner).unwrap();
    }
}
