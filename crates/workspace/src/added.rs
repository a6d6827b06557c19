//! Directories beside the workspace that a session sees at their own paths (`--add-dir PATH[:ro]`).

use crate::git_directory;
use crate::mode::SECRETS_TO_COME;
use crate::select::{self, select};
use crate::selection::PickedKind;
use crate::transfer;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use agent_base::visible::visible_name;
use agent_sandbox::caches::SYSTEM_DIRECTORIES;
use agent_sandbox::{Access, AddedMount};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most directories that a session has beside its workspace.
const MAX_ADDED: usize = 20;

/// A directory beside the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedDirectory {
    /// Its path, absolute and without symlinks.
    pub path: PathBuf,
    /// Set if the session can only read it.
    pub read_only: bool,
}

impl AddedDirectory {
    /// Returns the directory that `text` names: `PATH` or `PATH:ro`, where PATH may begin with `~`.
    ///
    /// # Errors
    /// It is not a directory, or its name is not UTF-8.
    pub fn named(text: &str, machine: &Machine) -> Result<Self> {
        let (name, read_only) = match text.strip_suffix(":ro") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let real = machine.in_home(Path::new(name)).canonicalize().map_err(|error| {
            Error::usage(format!("the directory {name} cannot be added"))
                .hint("name a directory of this machine: --add-dir PATH, or PATH:ro to read it alone")
                .caused_by(error)
        })?;
        if !real.is_dir() {
            return Err(Error::usage(format!("{name} cannot be added: it is not a directory"))
                .hint("name the directory that it is in"));
        }
        if real.to_str().is_none() {
            return Err(Error::usage(format!("{name} cannot be added: its path is not UTF-8"))
                .hint("rename the directory, or mount it at another place"));
        }
        Ok(Self { path: real, read_only })
    }

    /// Returns whether it is `other`, in it or around it.
    pub fn overlaps(&self, other: &Path) -> bool {
        self.path.starts_with(other) || other.starts_with(&self.path)
    }
}

/// As it is written after `--add-dir`.
impl fmt::Display for AddedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = if self.read_only { ":ro" } else { "" };
        write!(f, "{}{access}", visible_name(self.path.as_os_str().as_bytes()))
    }
}

/// Refuses directories that cannot be shown beside the workspace `root`.
///
/// # Errors
/// One is the machine's or the whole home directory, belongs to this program, holds credentials, or overlaps the workspace or another.
pub fn check(added: &[AddedDirectory], root: &Path, machine: &Machine) -> Result<()> {
    if added.len() > MAX_ADDED {
        return Err(Error::usage(format!("more than {MAX_ADDED} directories cannot be added"))
            .hint("name a directory that holds several of them"));
    }
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    for (index, directory) in added.iter().enumerate() {
        let overlapped = || added[..index].iter().find(|other| directory.overlaps(&other.path));
        let reason = if let Some(refusal) = refusal(&directory.path, machine) {
            Some(refusal)
        } else if directory.path.starts_with(&root) {
            Some(("it is in the workspace already".to_owned(), "leave it out: the session sees it"))
        } else if root.starts_with(&directory.path) {
            Some(("the workspace is in it".to_owned(), "name it with -C instead, to work on all of it"))
        } else {
            overlapped().map(|other| {
                let text = format!("{} is added too, and one is in the other", other.path.display());
                (text, "name the outer one alone")
            })
        };
        if let Some((reason, hint)) = reason {
            let path = directory.path.display();
            return Err(Error::usage(format!("{path} cannot be added: {reason}")).hint(hint));
        }
    }
    Ok(())
}

/// Directories of `$HOME` that are there for keys, tokens and passwords, or for browsers' sessions.
const CREDENTIALS: [&str; 18] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".oci",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".config/sops",
    ".config/google-chrome",
    ".config/chromium",
    ".local/share/keyrings",
    ".pki",
];

/// Returns the reason why no session sees this directory, and what to do; `None` if one may.
fn refusal(path: &Path, machine: &Machine) -> Option<(String, &'static str)> {
    const TOP: [&str; 8] = ["/home", "/root", "/var", "/opt", "/srv", "/mnt", "/media", "/tmp"];
    const NAME_ONE: &str = "name a directory of a project or of its data";
    if path == Path::new("/") {
        return Some(("it is the whole machine".to_owned(), NAME_ONE));
    }
    let home = machine.home().map(|home| home.canonicalize().unwrap_or(home));
    if let Some(home) = &home {
        if path == home {
            return Some(("it is your whole home directory".to_owned(), NAME_ONE));
        }
        if home.starts_with(path) {
            return Some(("your home directory is in it".to_owned(), NAME_ONE));
        }
    }
    if SYSTEM_DIRECTORIES.iter().any(|system| path.starts_with(system))
        || TOP.iter().any(|top| path == Path::new(top))
    {
        return Some(("it is a directory of the system".to_owned(), NAME_ONE));
    }
    let own = [machine.data_dir(), machine.cache_dir(), machine.config_dir()];
    let overlaps = |other: &Path| other.starts_with(path) || path.starts_with(other);
    // `path` is without links, which these may be.
    let is_own = |own: PathBuf| overlaps(&own) || own.canonicalize().is_ok_and(|own| overlaps(&own));
    if own.into_iter().flatten().any(is_own) {
        return Some(("this program keeps its own files there".to_owned(), NAME_ONE));
    }
    let credentials = home.iter().flat_map(|home| CREDENTIALS.map(|directory| home.join(directory)));
    if credentials.into_iter().any(is_own) {
        return Some(("credentials are kept there".to_owned(), "a sandbox never sees such files"));
    }
    None
}

/// Returns the mount by which the backend shows a directory that can only be read: without what looks like a secret, by
/// name and by content. Blocking.
///
/// # Errors
/// It cannot be looked through, or holds more files than can be.
pub fn read_only_mount(directory: &Path, machine: &Arc<Machine>) -> Result<AddedMount> {
    let failed = |error: Error| error.context(&format!("{} cannot be added", directory.display()));
    // Nothing is copied.
    let options = select::SelectOptions {
        max_file_bytes: u64::MAX,
        max_total_bytes: u64::MAX,
        ..select::SelectOptions::new(Arc::clone(machine))
    };
    let selection = select(directory, &options).map_err(failed)?;
    let withheld = select::withheld(directory, &options, &selection.ignored).map_err(failed)?;
    let files = selection.picked.iter().filter(|(_, picked)| picked.kind == PickedKind::File);
    let configs = files.map(|(path, _)| path).filter(|path| has_credentials(directory, path));
    let hidden = selection.hidden.iter().chain(withheld.keys()).chain(configs);
    let mut hidden: Vec<PathBuf> = hidden.map(|path| path.as_path().to_owned()).collect();
    hidden.sort();
    hidden.dedup();
    let is_missing = |name: &&&str| directory.join(name).symlink_metadata().is_err();
    let to_come = SECRETS_TO_COME.iter().filter(is_missing).map(PathBuf::from).collect();
    Ok(AddedMount { path: directory.to_owned(), hidden, to_come, access: Access::ReadOnly })
}

/// Returns whether a file is one of git's with something that is not for the sandbox, or that cannot be read. It cannot be rewritten
/// in a directory that is shown as it is.
fn has_credentials(directory: &Path, path: &TreePath) -> bool {
    let read = || plain_file::read(&directory.join(path.as_path()), transfer::MAX_CONFIG, Links::Refuse);
    git_directory::of_rewritten(directory, path)
        .is_some_and(|path| read().map_or(true, |content| path.has_credentials(&content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str, root: &str) -> Option<String> {
        let machine = Machine::new([("HOME".into(), "/home/me".into())]);
        let added = [AddedDirectory { path: path.into(), read_only: true }];
        check(&added, Path::new(root), &machine).err().map(|error| error.to_string())
    }

    #[test]
    fn directories_that_are_not_a_projects_are_refused_by_name() {
        for (path, reason) in [
            ("/", "the whole machine"),
            ("/home/me", "your whole home directory"),
            ("/home", "your home directory is in it"),
            ("/etc", "directory of the system"),
            ("/usr/share/doc", "directory of the system"),
            ("/srv", "directory of the system"),
            ("/proc/1", "directory of the system"),
            ("/home/me/.ssh", "credentials are kept there"),
            ("/home/me/.aws/sso", "credentials are kept there"),
            ("/home/me/.config", "keeps its own files there"),
            ("/work/app/sub", "in the workspace already"),
            ("/work/app", "in the workspace already"),
            ("/work", "the workspace is in it"),
        ] {
            let said = refused(path, "/work/app").unwrap_or_default();
            assert!(said.contains(reason) && said.contains(path), "{path}: {said}");
        }
        assert_eq!(refused("/home/me/lib", "/work/app"), None);
        assert_eq!(refused("/srv/lib", "/work/app"), None);
    }
}
