//! What a project asks of agents: `AGENTS.md`, or `CLAUDE.md` where there is none.

use agent_base::plain_file::{self, Links};
use std::path::{Path, PathBuf};

/// Bytes of all files together.
const MAX_BYTES: usize = 32 << 10;
/// Directories between the root of a repository and the workspace that are looked into.
const MAX_DIRECTORIES: usize = 32;
/// In this order: the first that a directory has is read.
const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// The instructions from the root of the repository down to `workspace`, outermost first, so that the nearer ones have the
/// last word. Outside of a repository only those of the workspace itself.
pub fn instructions(workspace: &Path) -> Option<String> {
    let found: Vec<(PathBuf, String)> =
        directories(workspace).iter().filter_map(|directory| of_directory(directory, workspace)).collect();
    let root = found.first()?.0.parent()?.to_owned();
    let mut text = String::new();
    for (path, content) in &found {
        // The heading of the prompt names `AGENTS.md`; only what differs from one such file is said.
        if found.len() > 1 || !path.ends_with(NAMES[0]) {
            let name = path.strip_prefix(&root).unwrap_or(path);
            text += &format!("From {}:\n", name.display().to_string().escape_debug());
        }
        text += content.trim();
        text += "\n\n";
    }
    let mut end = text.len().min(MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    Some(text.trim().to_owned())
}

/// From the root of the repository down to `workspace`.
fn directories(workspace: &Path) -> Vec<&Path> {
    let is_root = |directory: &&Path| directory.join(".git").symlink_metadata().is_ok();
    let above: Vec<&Path> = workspace.ancestors().take(MAX_DIRECTORIES).collect();
    let depth = above.iter().position(is_root).unwrap_or(0);
    above.into_iter().take(depth + 1).rev().collect()
}

/// The first of the files that is a regular one with text: a symlink could lead anywhere. Above the workspace only files of root,
/// of the caller and of the workspace's owner count: others may write there too.
fn of_directory(directory: &Path, workspace: &Path) -> Option<(PathBuf, String)> {
    NAMES.iter().map(|name| directory.join(name)).find_map(|path| {
        let bytes = match directory == workspace {
            true => plain_file::read(&path, MAX_BYTES as u64, Links::Refuse),
            false => plain_file::read_of_owner(&path, MAX_BYTES as u64, workspace),
        };
        let bytes = bytes.ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (!text.trim().is_empty()).then_some((path, text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    #[test]
    fn instructions_come_from_the_repositorys_root_down_and_not_from_above_it() {
        let directory = tempfile::tempdir().unwrap();
        let (root, inner) = (directory.path().join("repo"), directory.path().join("repo/crates/one"));
        create_dir_all(&inner).unwrap();
        write(directory.path().join("AGENTS.md"), "Not of this repository.").unwrap();
        assert_eq!(instructions(&inner), None, "without a repository only the workspace counts");
        std::fs::create_dir(root.join(".git")).unwrap();
        write(root.join("AGENTS.md"), "Use tabs.\n").unwrap();
        assert_eq!(instructions(&root).unwrap(), "Use tabs.");
        write(inner.join("CLAUDE.md"), "Use spaces here.").unwrap();
        assert_eq!(
            instructions(&inner).unwrap(),
            "From AGENTS.md:\nUse tabs.\n\nFrom crates/one/CLAUDE.md:\nUse spaces here."
        );
        write(inner.join("AGENTS.md"), "Four spaces.").unwrap();
        assert!(!instructions(&inner).unwrap().contains("Use spaces here."), "AGENTS.md comes first");
    }

    #[test]
    fn links_are_not_followed_and_long_files_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/hostname", directory.path().join("AGENTS.md")).unwrap();
        assert_eq!(instructions(directory.path()), None);
        write(directory.path().join("CLAUDE.md"), "é".repeat(40_000)).unwrap();
        let text = instructions(directory.path()).unwrap();
        assert!(text.starts_with("From CLAUDE.md:\né") && text.len() <= MAX_BYTES, "{}", text.len());
    }
}
