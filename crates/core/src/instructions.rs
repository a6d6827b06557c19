//! The instructions of a project to agents: `AGENTS.md`, or where there is none what it wrote for another agent.

use agent_base::front_matter::{self, field};
use agent_base::plain_file::{self, Links};
use agent_base::sanitise::one_line;
use agent_base::text_encoding::Encoding;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

/// Bytes of all files together.
const MAX_BYTES: usize = 32 << 10;
/// Directories between the root of a repository and the workspace that are looked into.
const MAX_DIRECTORIES: usize = 32;
/// In this order: the first that a directory has is read.
const NAMES: [&str; 4] = ["AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md"];
/// The directory in which one without any of these files may have rules, a file each, and the number of them that are
/// looked at.
const CURSOR_RULES: &str = ".cursor/rules";
const MAX_RULES: usize = 64;
/// The kinds of file that one of them may be a symlink to, by extension and by name: nothing else of the repository gets into the prompt, for
/// it may be a secret of the user's.
const DOCUMENTS: [&str; 4] = ["md", "mdc", "markdown", "txt"];
/// Entries of a directory that are looked at for names in another case.
const MAX_ENTRIES: usize = 10_000;
/// Characters of what a rule says it is about.
const MAX_ABOUT: usize = 200;
const RULES: [&str; 4] = [".cursorrules", ".windsurfrules", ".clinerules", ".rules"];

/// The instructions from the root of the repository down to `workspace`, outermost first, so that the nearer ones have the
/// last word. Outside of a repository only those of the workspace itself.
pub fn instructions(workspace: &Path) -> Option<String> {
    let directories = directories(workspace);
    let top = directories.first()?;
    let in_each = directories.iter().map(|directory| (directory, of_directory(directory, top, workspace)));
    let found: Vec<_> = in_each.skip_while(|(_, files)| files.is_empty()).collect();
    let root = found.first()?.0;
    let found: Vec<(PathBuf, String)> = found.iter().flat_map(|(_, files)| files.clone()).collect();
    let mut text = String::new();
    for (path, content) in &found {
        // The heading of the prompt names `AGENTS.md`; only what differs from one such file is said.
        if found.len() > 1 || !path.ends_with(NAMES[0]) {
            let name = path.strip_prefix(root).unwrap_or(path);
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

/// The first of the files that has text, or else the rules. Above the workspace only files of root, of the caller and of the
/// workspace's owner count: others may write there too.
fn of_directory(directory: &Path, root: &Path, workspace: &Path) -> Vec<(PathBuf, String)> {
    let read = |path: PathBuf| {
        let target = target_of(directory, &path, root).ok()?;
        let bytes = match directory == workspace {
            true => plain_file::read(&target, MAX_BYTES as u64, Links::Refuse),
            false => plain_file::read_of_owner(&target, MAX_BYTES as u64, workspace),
        };
        let bytes = bytes.ok()?;
        let text = Encoding::of(&bytes, None).decode(&bytes).into_owned();
        (!text.trim().is_empty()).then_some((path, text))
    };
    let exact = || NAMES.iter().map(|name| directory.join(name)).find_map(read);
    match exact().or_else(|| in_other_case(directory).into_iter().find_map(read)) {
        Some(found) => vec![found],
        None => rules(directory).into_iter().filter_map(read).filter_map(without_front_matter).collect(),
    }
}

/// The files whose names differ from those in case alone (`agents.md`), which some file systems take for the same.
fn in_other_case(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().into_iter().flatten().flatten().take(MAX_ENTRIES);
    let rank = |entry: &DirEntry| NAMES.iter().position(|name| entry.file_name().eq_ignore_ascii_case(name));
    let mut found: Vec<_> = entries.filter_map(|entry| Some((rank(&entry)?, entry.path()))).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// The files with Cursor's rules, in the order of their names.
fn rules(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.join(CURSOR_RULES).read_dir().into_iter().flatten().flatten();
    let is_rule =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension == "mdc" || extension == "md");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_rule).take(MAX_RULES).collect();
    paths.sort();
    paths
}

/// A rule that is for every task as it is, and of one for some files or tasks a line that says when to read it.
fn without_front_matter((path, text): (PathBuf, String)) -> Option<(PathBuf, String)> {
    let text = text.replace("\r\n", "\n");
    let (fields, rule) = front_matter::split(&text);
    let given = |name| field(&fields, name).filter(|value| !value.trim().is_empty());
    if fields.is_empty() || given("alwaysApply") == Some("true") {
        return Some((path, rule.to_owned()));
    }
    let about = [("for files like ", given("globs")), ("about: ", given("description"))];
    let about: Vec<String> = about
        .iter()
        .filter_map(|(what, value)| Some(format!("{what}{}", one_line((*value)?, MAX_ABOUT))))
        .collect();
    // Without either, it is a rule that only a user names.
    (!about.is_empty()).then(|| (path, format!("Read this file before work {}.", about.join(", "))))
}

/// The file that is read for `path`. A symlink could lead anywhere: one to a document in the repository `root` is followed, none of
/// a directory below `directory`.
fn target_of(directory: &Path, path: &Path, root: &Path) -> Result<PathBuf, &'static str> {
    let mut between = path.ancestors().skip(1).take_while(|above| *above != directory);
    if between.any(Path::is_symlink) {
        return Err("in a directory that is a symlink");
    }
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

/// Names those of the files that are symlinks that are not followed, a sentence each.
pub fn not_followed(workspace: &Path) -> Vec<String> {
    let directories = directories(workspace);
    let Some(root) = directories.first() else { return Vec::new() };
    let files = directories.iter().flat_map(|directory| NAMES.map(|name| (directory, directory.join(name))));
    files
        .filter_map(|(directory, path)| {
            let why = target_of(directory, &path, root).err().filter(|_| path.symlink_metadata().is_ok())?;
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

    #[test]
    fn what_a_project_wrote_for_other_agents_is_read_where_it_has_no_instructions_of_ours() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let rules = root.join(".cursor/rules");
        create_dir_all(&rules).unwrap();
        write(rules.join("a.mdc"), "---\ndescription: x\nalwaysApply: true\n---\nUse tabs.\n").unwrap();
        write(
            rules.join("b.mdc"),
            "---\ndescription: The database\nglobs: src/db/**\nalwaysApply: false\n---\nNo SQL.\n",
        )
        .unwrap();
        write(rules.join("c.mdc"), "---\nalwaysApply: false\n---\nOnly where it is named.\n").unwrap();
        write(rules.join("notes.json"), "{}").unwrap();
        assert_eq!(
            instructions(root).unwrap(),
            "From .cursor/rules/a.mdc:\nUse tabs.\n\nFrom .cursor/rules/b.mdc:\n\
             Read this file before work for files like src/db/**, about: The database."
        );
        create_dir_all(root.join(".github")).unwrap();
        write(root.join(".github/copilot-instructions.md"), "Of Copilot.").unwrap();
        assert_eq!(instructions(root).unwrap(), "From .github/copilot-instructions.md:\nOf Copilot.");
        write(root.join("GEMINI.md"), "Of Gemini.").unwrap();
        assert_eq!(instructions(root).unwrap(), "From GEMINI.md:\nOf Gemini.");
        write(root.join("AGENTS.md"), "Ours.").unwrap();
        assert_eq!(instructions(root).unwrap(), "Ours.");
    }

    #[test]
    fn instructions_are_read_in_any_encoding_and_case() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        write(root.join("agents.md"), "Lower.").unwrap();
        assert_eq!(instructions(root).unwrap(), "From agents.md:\nLower.");
        let utf16: Vec<u8> = "\u{feff}Use tabs é.\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for content in [&utf16[..], "\u{feff}Use tabs é.\r\n".as_bytes()] {
            write(root.join("AGENTS.md"), content).unwrap();
            assert_eq!(instructions(root).unwrap(), "Use tabs é.");
        }
    }

    #[test]
    fn a_linked_directory_of_rules_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let (root, other) = (directory.path().join("repo"), directory.path().join("other"));
        create_dir_all(other.join("rules")).unwrap();
        create_dir_all(&root).unwrap();
        write(other.join("rules/a.mdc"), "secret").unwrap();
        write(other.join("copilot-instructions.md"), "secret").unwrap();
        std::os::unix::fs::symlink(&other, root.join(".cursor")).unwrap();
        std::os::unix::fs::symlink(&other, root.join(".github")).unwrap();
        assert_eq!(instructions(&root), None);
        assert_eq!(
            not_followed(&root),
            [".github/copilot-instructions.md is not read: it is in a directory that is a symlink."]
        );
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
