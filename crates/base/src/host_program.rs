//! Programs of this machine that `agent` starts for the user: git, a pager, what opens a file.
//!
//! The working directory belongs to the repository, and so may entries of `PATH` (`./bin`, `node_modules/.bin`, an empty
//! one): whatever lies there is not started.

use crate::machine::Machine;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables that a host program gets, beside those whose name begins with `LC_` or `XDG_`. Neither keys nor what makes a
/// program load or start another one.
const KEPT: [&str; 19] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "COLUMNS",
    "LINES",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "LESS",
    "LESSCHARSET",
];

/// A command for `program`, a name that is looked up in `PATH` or an absolute path, with a clean environment. `None` where
/// such a program exists nowhere else than in `workspace` and the work tree around it.
pub fn command(program: &OsStr, workspace: &Path, machine: &Machine) -> Option<Command> {
    let search = Search::new(machine.variable("PATH").unwrap_or_default(), workspace);
    let mut command = Command::new(search.find(program)?);
    command
        .env_clear()
        .env("PATH", search.path())
        .envs(machine.variables().filter(|(name, _)| is_kept(name)));
    Some(command)
}

/// Variables of programs that reach the network for the user: proxies, certificates, the agent that has SSH keys.
const OF_NETWORK: [&str; 12] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "SSH_AUTH_SOCK",
];

/// [`command`] for a program that fetches something for the user.
pub fn networked(program: &OsStr, workspace: &Path, machine: &Machine) -> Option<Command> {
    let mut command = command(program, workspace, machine)?;
    command.envs(OF_NETWORK.iter().filter_map(|name| Some((name, machine.variable(name)?))));
    Some(command)
}

/// Returns whether a host program may get this variable of the environment, from [`command`] or from [`networked`].
pub fn may_get(name: &OsStr) -> bool {
    is_kept(name) || OF_NETWORK.iter().any(|of_network| of_network.as_bytes() == name.as_encoded_bytes())
}

fn is_kept(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"LC_") || name.starts_with(b"XDG_") || KEPT.iter().any(|kept| kept.as_bytes() == name)
}

/// The directories in which programs are looked for.
struct Search {
    directories: Vec<PathBuf>,
    /// The workspace and its work tree, without symlinks.
    untrusted: PathBuf,
}

impl Search {
    fn new(path: &OsStr, workspace: &Path) -> Self {
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let has_git = |directory: &&Path| directory.join(".git").symlink_metadata().is_ok();
        let untrusted = workspace.ancestors().filter(has_git).last().unwrap_or(&workspace).to_owned();
        let mut search = Self { directories: Vec::new(), untrusted };
        let directories = std::env::split_paths(path).filter(|directory| directory.is_absolute());
        search.directories = directories.filter(|directory| search.is_outside(directory)).collect();
        search
    }

    fn path(&self) -> OsString {
        // Each of them was split off a path, so none holds a separator.
        std::env::join_paths(&self.directories).unwrap_or_default()
    }

    fn find(&self, program: &OsStr) -> Option<PathBuf> {
        let named = Path::new(program);
        if named.is_absolute() {
            return self.is_program(named).then(|| named.to_owned());
        }
        // A relative path is relative to the repository.
        if program.is_empty() || program.as_encoded_bytes().contains(&b'/') {
            return None;
        }
        self.directories.iter().map(|directory| directory.join(named)).find(|path| self.is_program(path))
    }

    fn is_program(&self, path: &Path) -> bool {
        let is_executable = rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
        is_executable && path.is_file() && self.is_outside(path)
    }

    fn is_outside(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|real| !real.starts_with(&self.untrusted))
    }
}

#[cfg(test)]
mod tests {
    use super::Search;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn programs_of_the_work_tree_and_relative_entries_are_skipped() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (tree, system) = (place.join("tree"), place.join("system"));
        fs::create_dir_all(tree.join(".git")).unwrap();
        for path in [tree.join("bin/git"), tree.join("sub/git"), system.join("git"), system.join("other")] {
            program(&path);
        }
        fs::create_dir(place.join("links")).unwrap();
        symlink(tree.join("bin/git"), place.join("links/git")).unwrap();
        let path = format!(
            ":.:bin:{tree}/bin:{tree}/sub/../bin:{place}/links:{place}/missing:{system}",
            tree = tree.display(),
            place = place.display(),
            system = system.display(),
        );
        for workspace in [tree.clone(), tree.join("sub")] {
            let search = Search::new(OsStr::new(&path), &workspace);
            assert_eq!(search.find(OsStr::new("git")), Some(system.join("git")));
            assert_eq!(search.path(), OsStr::new(&format!("{}/links:{}", place.display(), system.display())));
            let other = system.join("other");
            assert_eq!(search.find(other.as_os_str()), Some(other));
            for refused in ["bin/git", "./git", "", "missing", tree.join("bin/git").to_str().unwrap()] {
                assert_eq!(search.find(OsStr::new(refused)), None, "{refused}");
            }
        }
    }
}
