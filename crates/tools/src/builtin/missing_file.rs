//! A list of the workspace's files, for a model that names one that does not exist.

use agent_base::error::{Error, Kind};
use agent_base::file_name::escaped;
use agent_sandbox::{EntryKind, Sandbox, WalkOptions};
use std::path::{Path, PathBuf};

/// Names that are listed.
const MAX_NAMES: usize = 30;
/// A workspace with more entries is not listed.
const MAX_ENTRIES: u64 = 5_000;

/// The error of a file that could not be read; where nothing is there, with names of files that are.
pub async fn explain(sandbox: &Sandbox, path: &Path, error: Error) -> Error {
    if error.kind() != Kind::InSandbox || sandbox.stat(path).await.is_ok() {
        return error;
    }
    let options = WalkOptions { hash: false, exclude: vec![PathBuf::from(".git")], max_entries: MAX_ENTRIES };
    let Ok(entries) = sandbox.walk(sandbox.workspace(), options).await else { return error };
    let files = entries.into_iter().filter(|entry| entry.kind == EntryKind::File).map(|entry| entry.path);
    let mut files: Vec<PathBuf> = files.collect();
    files.sort_by_key(|file| (file.components().count(), file.clone()));
    let names: Vec<String> =
        files.iter().take(MAX_NAMES).map(|file| escaped(&file.display().to_string())).collect();
    match files.len() {
        0 => Error::new(Kind::InSandbox, format!("{error}; {} has no files", sandbox.workspace().display())),
        all if all > MAX_NAMES => {
            Error::new(Kind::InSandbox, format!("{error}; some of the {all} files: {}", names.join(", ")))
        }
        _ => Error::new(Kind::InSandbox, format!("{error}; the files are: {}", names.join(", "))),
    }
}
