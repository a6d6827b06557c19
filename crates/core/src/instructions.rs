//! What a project asks of agents: `AGENTS.md`, or `CLAUDE.md` where there is none.

use agent_base::plain_file::{self, Links};
use std::path::{Path, PathBuf};

/// Bytes of all files together.
const MAX_BYTES: usize = 32 << 10;
/// Directories between the root of a repository and the workspace that are looked into.
const MAX_DIRECTORIES: usize = 32;
/// In this order: the first that a directory has is read.
const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// What one of them may be a symlink to, by extension and by name: nothing else of the repository gets into the prompt, for
/// it may be a secret of the user's.
const DOCUMENTS: [&str; 4] = ["md", "mdc", "markdown", "txt"];
const RULES: [&str; 4] = [".cursorrules", ".windsurfrules", ".clinerules", ".rules"];

/// The instructions from the root of the repository down to `workspace`, outermost first, so that the nearer ones have the
/// last word. Outside of a repository only those of the workspace itself.
pub fn instructions(workspace: &Path) -> Option<String> {
    let directories = directories(workspace);
    let top = directories.first()?;
    let found: Vec<(PathBuf, String)> =
        directories.iter().filter_map(|directory| of_directory(directory, top, workspace)).collect();
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

/// The first of the files that has text. Above the workspace only files of root, of the caller and of the workspace's owner count:
/// others may write there too.
fn of_directory(directory: &Path, root: &Path, workspace: &Path) -> Option<(PathBuf, String)> {
    NAMES.iter().map(|name| directory.join(name)).find_map(|path| {
        let target = target_of(&path, root).ok()?;
        let bytes = match directory == workspace {
            true => plain_file::read(&target, MAX_BYTES as u64, Links::Refuse),
            false => plain_file::read_of_owner(&target, MAX_BYTES as u64, workspace),
        };
        let bytes = bytes.ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (!text.trim().is_empty()).then_some((path, text))
    })
}

/// The file that is read for `path`. A symlink could lead anywhere: one to a document in the repository `root` is followed.
fn target_of(path: &Path, root: &Path) -> Result<PathBuf, &'static str> {
    if !path.is_symlink() {
        return Ok(path.to_owned());
    }
    let target = path.canonicalize().map_err(|_| "a symlink to nothing")?;
    let root = root.canonicalize().map_err(|_| "a symlink to nothing")?;
    let inner = target.strip_prefix(&root).map_err(|_| "a symlink that leads out of the repository")?;
    let extension = inner.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let is_document = DOCUMENTS.contains(&extension.as_str())
        || inner.file_name().is_some_and(|name| RULES.iter().any(|rules| name == *rules));
    match inner.components().any(|part| part.as_os_str() == ".git") || !is_document {
        true => Err("a symlink to something else than a document"),
        false => Ok(target),
    }
}

/// Which of the files are symlinks that are not followed, a sentence each.
pub fn not_followed(workspace: &Path) -> Vec<String> {
    let directories = directories(workspace);
    let Some(root) = directories.first() else { return Vec::new() };
    let files = directories.iter().flat_map(|directory| NAMES.map(|name| directory.join(name)));
    files
        .filter_map(|path| {
            let why = target_of(&path, root).err()?;
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            Some(format!("{} is not read: it is {why}.", name.escape_debug()))
        })
        .collect()
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

    /// A bug: instructions that are a symlink to a document of the repository were not read.
    #[test]
    fn a_symlink_is_followed_to_a_document_of_the_repository() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("repo");
        create_dir_all(root.join(".git")).unwrap();
        create_dir_all(root.join("docs")).unwrap();
        create_dir_all(root.join("sub")).unwrap();
        write(root.join("docs/agents.md"), "Use tables.").unwrap();
        symlink("docs/agents.md", root.join("AGENTS.md")).unwrap();
        symlink("../AGENTS.md", root.join("sub/CLAUDE.md")).unwrap();
        let text = instructions(&root.join("sub")).unwrap();
        assert_eq!(text, "From AGENTS.md:\nUse tables.\n\nFrom sub/CLAUDE.md:\nUse tables.");
        assert_eq!(not_followed(&root.join("sub")), Vec::<String>::new());
        write(root.join(".git/x.md"), "secret").unwrap();
        write(root.join(".env"), "secret").unwrap();
        write(directory.path().join("other.md"), "secret").unwrap();
        for (target, why) in [
            (".git/x.md", "to something else than a document"),
            (".env", "to something else than a document"),
            ("../other.md", "that leads out of the repository"),
            ("missing.md", "to nothing"),
        ] {
            std::fs::remove_file(root.join("AGENTS.md")).unwrap();
            symlink(target, root.join("AGENTS.md")).unwrap();
            assert_eq!(instructions(&root), None, "{target}");
            assert_eq!(not_followed(&root), [format!("AGENTS.md is not read: it is a symlink {why}.")]);
        }
    }

    #[test]
    fn links_that_lead_out_are_not_followed_and_long_files_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/hostname", directory.path().join("AGENTS.md")).unwrap();
        assert_eq!(instructions(directory.path()), None);
        write(directory.path().join("CLAUDE.md"), "é".repeat(40_000)).unwrap();
        let text = instructions(directory.path()).unwrap();
        assert!(text.starts_with("From CLAUDE.md:\né") && text.len() <= MAX_BYTES, "{}", text.len());
    }
}
