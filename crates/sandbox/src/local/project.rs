//! Where a project is in a local sandbox, and what is shown around it: at the paths that it has on the host, because virtual
//! environments, build directories and compiled programs name them.

use super::directory::Directory;
use crate::caches::{self, Cache, Caches};
use crate::host_tree::{self, HostTree};
use crate::place::can_be_a_place;
use crate::{HOME, Spec, WORKSPACE};
use agent_base::error::Result;
use agent_base::machine::Machine;
use std::path::{Path, PathBuf};

/// The paths inside, and what is shown there.
pub(super) struct Project {
    /// Where the workspace is.
    pub place: PathBuf,
    /// `$HOME`.
    pub home: PathBuf,
    /// What is shown copy-on-write: the path on the host and the one inside.
    pub caches: Vec<(PathBuf, PathBuf)>,
    pub symlinks: Vec<(PathBuf, PathBuf)>,
    /// `PATH`.
    pub path: String,
    /// Variables beside those of every sandbox.
    pub env: Vec<(String, String)>,
    hidden: Vec<Vec<PathBuf>>,
    settings: Vec<(PathBuf, Vec<u8>)>,
}

impl Project {
    pub fn of(machine: &Machine, spec: &Spec) -> Self {
        let tree = host_tree::host_tree(machine);
        let Some(place) = &spec.place else { return Self::elsewhere(&tree) };
        let home = machine.home().filter(|home| can_be_a_home(home, place));
        let Caches { directories, settings, env } = match home {
            Some(_) => caches::find(machine),
            None => Caches::default(),
        };
        let shown = |cache: &Cache| !cache.inside.starts_with(place) && !place.starts_with(&cache.inside);
        let directories: Vec<Cache> = directories.into_iter().filter(shown).collect();
        let is_cached = |path: &Path| directories.iter().any(|cache| path.starts_with(&cache.inside));
        let home = home.unwrap_or_else(|| HOME.into());
        let symlinks = tree.symlinks.iter().filter(|(link, _)| !link.starts_with(&home) && !is_cached(link));
        let visible = |directory: &Path| directory.starts_with(place) || is_cached(directory);
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
        }
    }

    /// Where nothing is known of the workspace's place: in every sandbox's usual one.
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
        }
    }

    /// Makes in the sandbox's private directory what this needs, for `owner`.
    pub fn prepare(&self, directory: &Directory, owner: (u32, u32)) -> Result<()> {
        for (index, ((host, _), hidden)) in self.caches.iter().zip(&self.hidden).enumerate() {
            directory.make_cache(index, host, hidden, owner)?;
        }
        let mount_points = self.caches.iter().map(|(_, inside)| inside).chain([&self.place]);
        for below in mount_points.filter_map(|inside| inside.strip_prefix(&self.home).ok()) {
            directory.make_in_home(below, owner)?;
        }
        self.settings.iter().try_for_each(|(file, content)| directory.write_in_home(file, content, owner))
    }
}

/// Whether `$HOME` can have the path inside that it has here.
fn can_be_a_home(home: &Path, place: &Path) -> bool {
    const SYSTEM: [&str; 9] =
        ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/run", "/nonexistent"];
    let is_system = SYSTEM.iter().any(|system| home.starts_with(system));
    can_be_a_place(home) && !is_system && home != Path::new("/tmp") && !home.starts_with(place)
}
