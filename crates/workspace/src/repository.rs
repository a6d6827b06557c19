//! The repository of a work tree, as both of them say it.
//!
//! What lies in a tree may be anybody's: a `.git` file, `commondir`, `core.worktree`, symlinks and alternates lead to any
//! repository of the user's. So one outside of the tree counts only if it names the tree itself, which nobody but git or the
//! user made it do; and its parts count only where they lie in it, without symlinks.

use crate::host_dir::HostDir;
use crate::transfer::MAX_CONFIG;
use crate::tree_path::TreePath;
use agent_base::plain_file::{self, Links};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Longest file that contains a path.
const MAX_LINK: u64 = 8192;
/// Longest list of alternates.
const MAX_ALTERNATES: u64 = 64 << 10;
/// Object directories that borrow from each other. git follows five levels of them.
const MAX_STORES: usize = 16;
/// Entries of an object directory that are looked at.
const MAX_OBJECTS: usize = 4_000_000;

/// The repository of a directory.
pub struct Repository {
    /// The work tree, which has its `.git`.
    pub top: PathBuf,
    /// The directory of its `HEAD` and index, without symlinks.
    pub git_dir: PathBuf,
    /// The directory of its objects and references, without symlinks.
    pub common: PathBuf,
    /// The directory's path in the work tree; empty for the work tree itself.
    pub prefix: PathBuf,
}

/// The reason why a repository is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// This leads to a repository that does not name the work tree.
    Stranger(PathBuf),
    /// This is a symlink, or neither a file nor a directory.
    NotPlain(PathBuf),
    /// Objects of it are in this directory of another one.
    Borrows(PathBuf),
    /// This cannot be read as git would read it.
    Unreadable(PathBuf),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger(path) => {
                write!(f, "{} leads to a repository that does not name this work tree", path.display())
            }
            Self::NotPlain(path) => {
                write!(f, "{} of its repository is a symlink or a special file", path.display())
            }
            Self::Borrows(path) => write!(f, "its repository takes objects from {}", path.display()),
            Self::Unreadable(path) => write!(f, "{} of its repository cannot be read", path.display()),
        }
    }
}

impl Repository {
    /// That of `root`, which is absolute and without symlinks; `None` where there is none.
    ///
    /// # Errors
    /// It is that of another work tree, for all that is known.
    pub fn find(root: &Path) -> Result<Option<Self>, Obstacle> {
        let kind = |directory: &Path| directory.join(".git").symlink_metadata().ok().map(|it| it.file_type());
        let Some((top, kind)) = root.ancestors().find_map(|top| Some((top, kind(top)?))) else {
            return Ok(None);
        };
        let git = top.join(".git");
        let git_dir = match kind {
            kind if kind.is_dir() => git.clone(),
            kind if kind.is_symlink() => git.canonicalize().map_err(|_| Obstacle::Unreadable(git.clone()))?,
            _ => named_by(&git).ok_or_else(|| Obstacle::Unreadable(git.clone()))?,
        };
        let commondir = git_dir.join("commondir");
        let common = match (kind.is_dir(), commondir.symlink_metadata().is_ok()) {
            (true, false) => git_dir.clone(),
            (true, true) => return Err(Obstacle::Stranger(commondir)),
            (false, true) => common_of(&git_dir, top).ok_or(Obstacle::Stranger(git))?,
            (false, false) if is_work_tree_of(&git_dir, top) => git_dir.clone(),
            (false, false) => return Err(Obstacle::Stranger(git)),
        };
        let prefix = root.strip_prefix(top).unwrap_or(Path::new("")).to_owned();
        Ok(Some(Self { top: top.to_owned(), git_dir, common, prefix }))
    }

    /// Returns whether what git needs to know it by lies in it, without symlinks.
    pub fn is_plain(&self) -> bool {
        let is_file = |path: PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_file());
        let is_directory = |name| self.common.join(name).symlink_metadata().is_ok_and(|found| found.is_dir());
        is_file(self.git_dir.join("HEAD")) && is_directory("objects") && is_directory("refs")
    }

    /// Returns whether it is a directory of `root`'s own.
    pub fn is_in(&self, root: &Path) -> bool {
        self.common == root.join(".git")
    }

    /// The object directories beside its own that this takes objects from. Their contents are not looked at.
    ///
    /// # Errors
    /// One of the lists is not read as git would read it, or there are too many.
    pub fn borrowed(&self) -> Result<Vec<PathBuf>, Obstacle> {
        Ok(self.stores()?.split_off(1))
    }

    /// All its object directories, its own first, if they hold plain files alone and the others are below one of `allowed`.
    ///
    /// # Errors
    /// What git would read lies elsewhere.
    pub fn plain_stores(&self, allowed: &[PathBuf]) -> Result<Vec<PathBuf>, Obstacle> {
        let stores = self.stores()?;
        let allowed: Vec<PathBuf> = allowed.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let is_allowed = |store: &PathBuf| allowed.iter().any(|path| store.starts_with(path));
        if let Some(other) = stores.iter().skip(1).find(|store| !is_allowed(store)) {
            return Err(Obstacle::Borrows(other.clone()));
        }
        let mut seen = 0;
        stores.iter().try_for_each(|store| check_plain(store, &mut seen))?;
        Ok(stores)
    }

    /// Checks that what git writes with a commit lies in the repository itself.
    ///
    /// # Errors
    /// A symlink leads elsewhere.
    pub fn check_written(&self) -> Result<(), Obstacle> {
        let is_link = |path: &PathBuf| path.is_symlink();
        let files = ["HEAD", "index", "config", "packed-refs"];
        let files = files.iter().flat_map(|name| [self.git_dir.join(name), self.common.join(name)]);
        if let Some(link) = files.into_iter().find(is_link) {
            return Err(Obstacle::NotPlain(link));
        }
        let mut seen = 0;
        ["objects", "refs", "logs", "reftable"]
            .iter()
            .flat_map(|name| [self.git_dir.join(name), self.common.join(name)])
            .filter(|directory| directory.symlink_metadata().is_ok())
            .try_for_each(|directory| check_plain(&directory, &mut seen))
    }

    fn stores(&self) -> Result<Vec<PathBuf>, Obstacle> {
        let mut stores = vec![self.common.join("objects")];
        let mut next = 0;
        while let Some(store) = stores.get(next).cloned() {
            next += 1;
            for other in alternates(&store)? {
                if stores.len() == MAX_STORES {
                    return Err(Obstacle::Unreadable(store.join("info/alternates")));
                }
                if !stores.contains(&other) {
                    stores.push(other);
                }
            }
        }
        Ok(stores)
    }
}

/// The directory that a `.git` file names.
fn named_by(git: &Path) -> Option<PathBuf> {
    let link = plain_file::read(git, MAX_LINK, Links::Refuse).ok()?;
    let target = link.strip_prefix(b"gitdir: ")?.trim_ascii_end();
    git.parent()?.join(OsStr::from_bytes(target)).canonicalize().ok()
}

/// The path in the file `name` of a git directory.
fn path_in(git_dir: &Path, name: &str) -> Option<PathBuf> {
    let path = plain_file::read(&git_dir.join(name), MAX_LINK, Links::Refuse).ok()?;
    Some(git_dir.join(OsStr::from_bytes(path.trim_ascii())))
}

/// The repository that has `top` as a linked work tree, whose part of it is `git_dir`: that lies below its `worktrees`, where git
/// made it, and leads to `top`.
fn common_of(git_dir: &Path, top: &Path) -> Option<PathBuf> {
    let worktrees = git_dir.parent().filter(|parent| parent.file_name() == Some(OsStr::new("worktrees")))?;
    let common = worktrees.parent()?;
    let is_common = path_in(git_dir, "commondir")?.canonicalize().is_ok_and(|path| path == common);
    let back = path_in(git_dir, "gitdir")?;
    let leads_back = back.file_name() == Some(OsStr::new(".git"))
        && back.parent()?.canonicalize().is_ok_and(|path| path == top);
    let is_linked_itself = common.join("commondir").symlink_metadata().is_ok();
    (is_common && leads_back && !is_linked_itself).then(|| common.to_owned())
}

/// Returns whether the repository's configuration says that `top` is its work tree, as that of a submodule does.
fn is_work_tree_of(git_dir: &Path, top: &Path) -> bool {
    ["config.worktree", "config"].iter().any(|name| {
        let config = plain_file::read(&git_dir.join(name), MAX_CONFIG, Links::Refuse).unwrap_or_default();
        setting(&String::from_utf8_lossy(&config), "core", "worktree")
            .is_some_and(|path| git_dir.join(path).canonicalize().is_ok_and(|path| path == top))
    })
}

/// The last value of a setting in a git configuration, one to a line as git writes it. Files that it includes are not read.
pub(super) fn setting(config: &str, section: &str, key: &str) -> Option<String> {
    let (mut is_inside, mut value) = (false, None);
    for line in config.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            is_inside = header.strip_suffix(']').is_some_and(|name| name.eq_ignore_ascii_case(section));
        } else if let (true, Some((name, text))) = (is_inside, line.split_once('='))
            && name.trim().eq_ignore_ascii_case(key)
        {
            value = Some(unquoted(text.trim()));
        }
    }
    value
}

/// A value without its quotes, escapes and comment.
fn unquoted(text: &str) -> String {
    let (mut value, mut is_quoted, mut end) = (String::new(), false, 0);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => is_quoted = !is_quoted,
            '#' | ';' if !is_quoted => break,
            '\\' => value.extend(characters.next().map(|escaped| match escaped {
                'n' => '\n',
                't' => '\t',
                other => other,
            })),
            plain => value.push(plain),
        }
        if is_quoted || !character.is_whitespace() {
            end = value.len();
        }
    }
    value.truncate(end);
    value
}

/// The object directories that one takes objects from, by its list.
fn alternates(store: &Path) -> Result<Vec<PathBuf>, Obstacle> {
    let list = store.join("info/alternates");
    let unreadable = || Obstacle::Unreadable(list.clone());
    let mut text = Vec::new();
    match plain_file::open_at(rustix::fs::CWD, &list, Links::Refuse) {
        Ok(file) => file.take(MAX_ALTERNATES + 1).read_to_end(&mut text).map_err(|_| unreadable())?,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(_) => return Err(Obstacle::NotPlain(list)),
    };
    // Quoted lines are not read here, and git ends at a NUL.
    if text.len() as u64 > MAX_ALTERNATES || text.contains(&0) {
        return Err(unreadable());
    }
    let real = store.canonicalize().map_err(|_| unreadable())?;
    let mut stores = Vec::new();
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#') {
        if line[0] == b'"' {
            return Err(unreadable());
        }
        // One that is not there has no objects, and git goes on without it.
        stores.extend(normalised(&real.join(OsStr::from_bytes(line))).canonicalize());
    }
    Ok(stores)
}

/// A path without `.` and `..`, which git takes away before the file system sees them.
pub(super) fn normalised(path: &Path) -> PathBuf {
    let mut normalised = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normalised.pop()),
            Component::CurDir => {}
            part => normalised.push(part),
        }
    }
    normalised
}

/// Looks through an object directory, in which git would follow every symlink.
fn check_plain(store: &Path, seen: &mut usize) -> Result<(), Obstacle> {
    if !store.symlink_metadata().is_ok_and(|store| store.is_dir()) {
        return Err(Obstacle::NotPlain(store.to_owned()));
    }
    let mut open = vec![store.to_owned()];
    while let Some(directory) = open.pop() {
        let unreadable = || Obstacle::Unreadable(directory.clone());
        for entry in fs::read_dir(&directory).map_err(|_| unreadable())? {
            let entry = entry.map_err(|_| unreadable())?;
            *seen += 1;
            match entry.file_type().map_err(|_| unreadable())? {
                _ if *seen > MAX_OBJECTS => return Err(unreadable()),
                kind if kind.is_dir() => open.push(entry.path()),
                kind if kind.is_file() => {}
                _ => return Err(Obstacle::NotPlain(entry.path())),
            }
        }
    }
    Ok(())
}

/// At most `max` bytes of a file of a git directory, to which no symlink leads.
pub(super) fn read(git_dir: &Path, name: &[u8], max: u64) -> std::io::Result<Vec<u8>> {
    let path = TreePath::new(name).map_err(|_| ErrorKind::InvalidInput)?;
    let mut bytes = Vec::new();
    HostDir::open(git_dir)?.open_file(&path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::setting;

    #[test]
    fn settings_are_read_as_git_writes_them() {
        let config =
            "[user]\n\tname = A \\\"B\\\"  # c\n\temail = \" a#b ; \"\n[core]\n\tWorktree = ../a b\n\tx=\n";
        let get = |section, key| setting(config, section, key);
        assert_eq!(get("user", "name").as_deref(), Some("A \"B\""));
        assert_eq!(get("user", "email").as_deref(), Some(" a#b ; "));
        assert_eq!(get("core", "worktree").as_deref(), Some("../a b"));
        assert_eq!(get("core", "x").as_deref(), Some(""));
        assert_eq!(get("user", "worktree"), None);
    }
}
