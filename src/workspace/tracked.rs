//! The files that git tracks although `.gitignore` names them.

use crate::workspace::tree_path::TreePath;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// Most bytes of git's answer that are read.
const MAX_ANSWER: u64 = 64 << 20;

/// Asks git, where `root` lies in a work tree and git is there; otherwise there are none. Blocking.
///
/// Only the index is read: no hook, filter or file-system monitor that the repository's configuration names runs.
pub fn ignored(root: &Path) -> Vec<TreePath> {
    if !root.ancestors().any(|directory| directory.join(".git").symlink_metadata().is_ok()) {
        return Vec::new();
    }
    let mut git = Command::new("git");
    git.args([
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.untrackedCache=false",
        "-c",
        "core.hooksPath=/dev/null",
    ])
    .args(["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"])
    .current_dir(root)
    .stdin(Stdio::null())
    .stdout(Stdio::piped())
    .stderr(Stdio::null());
    for variable in
        ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_CEILING_DIRECTORIES"]
    {
        git.env_remove(variable);
    }
    let Ok(mut child) = git.spawn() else { return Vec::new() };
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // A read that fails ends like a short answer: fewer files come along.
        let _ = stdout.take(MAX_ANSWER).read_to_end(&mut answer);
    }
    let _ = child.kill();
    let _ = child.wait();
    answer.split(|&b| b == 0).filter_map(|name| TreePath::new(name).ok()).collect()
}
