//! The files that git tracks.

use crate::repository::{self, Repository, setting};
use crate::select;
use crate::transfer::MAX_CONFIG;
use crate::tree_path::TreePath;
use agent_base::error::Result;
use agent_base::host_git;
use agent_base::machine::Machine;
use agent_base::plain_file;
use agent_base::plain_file::Links;
use rustix::fs::CWD;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of git's answer that are read: a million names.
const MAX_ANSWER: u64 = 128 << 20;
/// Longest `.git` file that is read.
const MAX_LINK: u64 = 8192;
/// The time limit for git. A repository of a million files takes a few seconds.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The time limit for git to say whether something is uncommitted: the first request to the model waits for it.
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);
/// Largest file of packed references that is read.
const MAX_PACKED: u64 = 16 << 20;

/// The paths in git's index, relative to the directory that was asked about.
#[derive(Default)]
pub struct Tracked {
    /// Each ends with a NUL byte.
    names: Vec<u8>,
}

impl Tracked {
    /// The names, as git has them.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.split(|&b| b == 0).filter(|name| !name.is_empty())
    }
}

/// Asks git if `root` lies in a work tree and git is installed; otherwise the list is empty. Blocking.
///
/// Of the repository only its index is used, and the object format. Its configuration names programs that git runs (a
/// file-system monitor, the `uploadpack` of a remote that missing objects are fetched from), and a directory that looks
/// like a bare repository brings a configuration of its own; so git is given an empty repository of ours instead, and
/// whatever needs more than the index (a sparse one without its trees) gets no answer. It reads no ignore rules either: it
/// would block on one that is a FIFO.
pub fn files(root: &Path, machine: &Machine) -> Tracked {
    let Some((top, git_dir)) = repository_of(root) else { return Tracked::default() };
    let index = git_dir.join("index");
    if plain_file::open_at(CWD, &index, Links::Refuse).is_err() {
        return Tracked::default();
    }
    let Ok(empty) = empty_repository(is_sha256(&git_dir), machine) else { return Tracked::default() };
    Tracked { names: ask(root, &top, &index, &empty, machine).unwrap_or_default() }
}

/// Returns whether files that git tracks differ from the last commit of the repository of `root`, staged or not. `None` where there is
/// no commit, or git gives no answer in time. Blocking.
///
/// As for [`files`], nothing of the repository but its index and objects is used, and of other repositories' objects those
/// alone that are below one of `object_stores`.
pub fn has_uncommitted(root: &Path, object_stores: &[PathBuf], machine: &Machine) -> Option<bool> {
    let repository = Repository::find(root).ok()??;
    let index = repository.git_dir.join("index");
    plain_file::open_at(CWD, &index, Links::Refuse).ok()?;
    repository.plain_stores(object_stores).ok()?;
    let commit = last_commit(&repository)?;
    let empty = empty_repository(is_sha256(&repository.common), machine).ok()?;
    let mut git = command(root, &repository.top, &index, &empty, machine)?;
    git.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", repository.common.join("objects")).args([
        "diff",
        "--name-only",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=all",
        &commit,
        "--",
    ]);
    // One name is enough: git ends early where nobody reads the others.
    match host_git::run(git, b"", STATUS_TIMEOUT, 1) {
        Ok(names) => Some(!names.is_empty()),
        Err(failure) => (!failure.answer.is_empty()).then_some(true),
    }
}

/// The name of the commit that `HEAD` leads to, read without git.
pub(super) fn last_commit(repository: &Repository) -> Option<String> {
    let text = |directory: &Path, name: &str, most| {
        let text = repository::read(directory, name.as_bytes(), most).ok()?;
        Some(String::from_utf8_lossy(text.trim_ascii()).into_owned())
    };
    let Repository { git_dir, common, .. } = repository;
    let head = text(git_dir, "HEAD", MAX_LINK)?;
    let Some(name) = head.strip_prefix("ref: ") else { return object_name(&head) };
    if !name.starts_with("refs/") {
        return None;
    }
    if let Some(commit) = text(common, name, MAX_LINK) {
        return object_name(&commit);
    }
    let packed = text(common, "packed-refs", MAX_PACKED)?;
    let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(_, packed)| *packed == name).and_then(|(commit, _)| object_name(commit))
}

pub(super) fn object_name(text: &str) -> Option<String> {
    let is_name = [40, 64].contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_name.then(|| text.to_owned())
}

/// git's answer, if there is a git and it answers in time.
fn ask(root: &Path, top: &Path, index: &Path, empty: &Path, machine: &Machine) -> Option<Vec<u8>> {
    let mut git = command(root, top, index, empty, machine)?;
    git.args(["ls-files", "-z", "--cached"]);
    // The index belongs to the repository, and may be of any length: after an answer that is cut short, fewer files are known
    // to be tracked.
    Some(host_git::run(git, b"", TIMEOUT, MAX_ANSWER).unwrap_or_else(|failure| failure.answer))
}

/// git in an empty repository, with the index and the work tree of another one.
fn command(root: &Path, top: &Path, index: &Path, empty: &Path, machine: &Machine) -> Option<Command> {
    let mut git = host_git::apart(empty, root, machine)?;
    git.env("GIT_WORK_TREE", top)
        .env("GIT_INDEX_FILE", index)
        .args(["-c", "core.untrackedCache=false"])
        .current_dir(root);
    Some(git)
}

/// The work tree that `root` lies in, and where its index is. A `.git` that is a file (a submodule, a linked work tree)
/// contains the path.
fn repository_of(root: &Path) -> Option<(PathBuf, PathBuf)> {
    let has_git = |directory: &&Path| directory.join(".git").symlink_metadata().is_ok();
    let top = root.ancestors().find(has_git)?;
    let git = top.join(".git");
    if !git.is_file() {
        return Some((top.to_owned(), git));
    }
    let link = plain_file::read(&git, MAX_LINK, Links::Refuse).ok()?;
    let target = link.strip_prefix(b"gitdir: ")?.trim_ascii_end();
    Some((top.to_owned(), top.join(OsStr::from_bytes(target))))
}

/// The repository that `directory` is part of, as git would take it from there: its top level, and where in it the directory is.
/// `None` where there is none that names its work tree, where git ignores the directory, so that no change in it would be shown, or where the repository
/// is another user's, or all of `$HOME`. Blocking.
pub fn containing(directory: &Path, machine: &Arc<Machine>) -> Option<(PathBuf, PathBuf)> {
    let repository = Repository::find(directory).ok().flatten().filter(Repository::is_plain)?;
    let Repository { top, prefix: below, .. } = repository;
    let is_own =
        |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.uid() == geteuid().as_raw());
    let home = machine.home().and_then(|home| home.canonicalize().ok());
    let is_of_user = is_own(&top) && is_own(&top.join(".git"));
    if !is_of_user || top.parent().is_none() || home.is_some_and(|home| home.starts_with(&top)) {
        return None;
    }
    let is_ignored = match TreePath::new(below.as_os_str().as_bytes()) {
        Ok(path) => select::is_ignored(&top, &select::SelectOptions::new(Arc::clone(machine)), &path),
        Err(_) => false,
    };
    (!is_ignored).then_some((top, below))
}

/// The branch that is checked out in the repository of `root`, or the beginning of the commit's name.
pub fn branch(root: &Path) -> Option<String> {
    let repository = Repository::find(root).ok()??;
    let head = repository::read(&repository.git_dir, b"HEAD", MAX_LINK).ok()?;
    let head = String::from_utf8_lossy(head.trim_ascii()).into_owned();
    match head.strip_prefix("ref: ") {
        Some(name) => Some(name.strip_prefix("refs/heads/").unwrap_or(name).to_owned()),
        None => Some(object_name(&head)?.chars().take(10).collect()),
    }
}

/// Returns whether the repository uses SHA-256: its index does not contain the object format.
pub(super) fn is_sha256(git_dir: &Path) -> bool {
    let read = |name| plain_file::read(&git_dir.join(name), MAX_CONFIG, Links::Refuse).ok();
    // That of a linked work tree is two directories above.
    let config = read("config").or_else(|| read("../../config")).unwrap_or_default();
    let format = setting(&String::from_utf8_lossy(&config), "extensions", "objectformat");
    format.is_some_and(|format| format.eq_ignore_ascii_case("sha256"))
}

/// A repository with nothing in it: what git asks for before it reads an index.
fn empty_repository(is_sha256: bool, machine: &Machine) -> Result<PathBuf> {
    let directory = machine.cache_dir()?.join(if is_sha256 { "empty-sha256.git" } else { "empty.git" });
    host_git::make_repository(&directory, host_git::format_config(is_sha256))?;
    Ok(directory)
}
