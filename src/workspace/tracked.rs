//! The files that git tracks.

use crate::error::{Error, Result};
use crate::paths;
use crate::plain_file::{self, Links};
use crate::workspace::transfer::MAX_CONFIG;
use crate::workspace::tree_path::TreePath;
use rustix::fs::CWD;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Most bytes of git's answer that are read: a million names.
const MAX_ANSWER: u64 = 128 << 20;
/// Longest `.git` file that is read.
const MAX_LINK: u64 = 8192;
/// How long git may take. A repository of a million files takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks git, where `root` lies in a work tree and git is there; otherwise there are none. Those whose names are `known`
/// are passed over. Blocking.
///
/// Nothing of the repository is believed but its index, and of what format that is. Its configuration names programs that
/// git runs (a file-system monitor, the `uploadpack` of a remote that missing objects are fetched from), and a directory
/// that looks like a bare repository brings a configuration of its own; so git is given an empty repository of ours
/// instead, and whatever needs more than the index (a sparse one without its trees) gets no answer. It reads no ignore
/// rules either: it would wait for one that is a FIFO.
pub fn files(root: &Path, known: impl Fn(&[u8]) -> bool) -> Vec<TreePath> {
    let Some((top, git_dir)) = repository_of(root) else { return Vec::new() };
    let index = git_dir.join("index");
    if plain_file::open_at(CWD, &index, Links::Refuse).is_err() {
        return Vec::new();
    }
    let Ok(nothing) = empty_repository(is_sha256(&git_dir)) else { return Vec::new() };
    let answer = ask(root, &top, &index, &nothing).unwrap_or_default();
    let names = answer.split(|&b| b == 0).filter(|name| !known(name));
    names.filter_map(|name| TreePath::new(name).ok()).collect()
}

/// git's answer, if there is a git and it answers in time.
fn ask(root: &Path, top: &Path, index: &Path, nothing: &Path) -> Option<Vec<u8>> {
    let mut git = Command::new("git");
    for variable in std::env::vars_os().map(|(name, _)| name) {
        if variable.as_encoded_bytes().starts_with(b"GIT_") {
            git.env_remove(variable);
        }
    }
    git.env("GIT_DIR", nothing)
        .env("GIT_WORK_TREE", top)
        .env("GIT_INDEX_FILE", index)
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "none")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .args(["-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"])
        .args(["ls-files", "-z", "--cached"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = git.spawn().ok()?;
    let stdout = child.stdout.take()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut answer = Vec::new();
        // A read that fails ends like a short answer: fewer files come along.
        let _ = stdout.take(MAX_ANSWER).read_to_end(&mut answer);
        let _ = sender.send(answer);
    });
    // The index comes with the tree, and may be as long as it likes.
    let answer = receiver.recv_timeout(PATIENCE).ok();
    let _ = child.kill();
    let _ = child.wait();
    answer
}

/// The work tree that `root` lies in, and where its index is. A `.git` that is a file (a submodule, a further work tree)
/// says where.
fn repository_of(root: &Path) -> Option<(PathBuf, PathBuf)> {
    let has_git = |directory: &&Path| directory.join(".git").symlink_metadata().is_ok();
    let top = root.ancestors().find(has_git)?;
    let git = top.join(".git");
    if !git.is_file() {
        return Some((top.to_owned(), git));
    }
    let said = plain_file::read(&git, MAX_LINK, Links::Refuse).ok()?;
    let target = said.strip_prefix(b"gitdir: ")?.trim_ascii_end();
    Some((top.to_owned(), top.join(OsStr::from_bytes(target))))
}

/// Whether the names of objects are of the longer kind: an index does not say it of itself.
fn is_sha256(git_dir: &Path) -> bool {
    let read = |name| plain_file::read(&git_dir.join(name), MAX_CONFIG, Links::Refuse).ok();
    // That of a further work tree is two directories above.
    let config = read("config").or_else(|| read("../../config")).unwrap_or_default();
    let config = String::from_utf8_lossy(&config).to_ascii_lowercase();
    let mut settings = config.lines().filter_map(|line| line.split_once('='));
    settings.any(|(key, value)| key.trim() == "objectformat" && value.trim() == "sha256")
}

/// A repository with nothing in it: what git asks for before it reads an index.
fn empty_repository(is_sha256: bool) -> Result<PathBuf> {
    let (name, config) = match is_sha256 {
        false => ("empty.git", ""),
        true => {
            ("empty-sha256.git", "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n")
        }
    };
    let directory = paths::cache_dir()?.join(name);
    let keep = |name: &str, content: &str| {
        let path = directory.join(name);
        // Another process's git may be reading it.
        if std::fs::read(&path).is_ok_and(|there| there == content.as_bytes()) {
            return Ok(());
        }
        std::fs::write(path, content)
    };
    let make = || {
        DirBuilder::new().mode(0o700).recursive(true).create(directory.join("objects"))?;
        DirBuilder::new().mode(0o700).recursive(true).create(directory.join("refs"))?;
        keep("config", config)?;
        keep("HEAD", "ref: refs/heads/none\n")
    };
    make().map_err(|error| Error::unexpected("git could not be asked").caused_by(error))?;
    Ok(directory)
}
