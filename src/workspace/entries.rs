//! The sandbox's tree as its guest tells it, put in order; what cannot be as it is told, or could never be taken over, is
//! set aside by name.

use crate::error::Result;
use crate::sandbox::{Entry, EntryKind, Listing, Sandbox, WalkOptions};
use crate::workspace::select::MAX_PATHS;
use crate::workspace::tree_path::{MAX_PATH, TreePath, printable};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most odd entries that are kept by name.
const MAX_ODD: usize = 1000;

/// Entries that can never be taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Odd {
    /// The reasons, by a name that is safe to show.
    pub names: BTreeMap<String, String>,
    /// Those of them whose names are at least paths: whatever is at or below them is not taken over.
    pub paths: BTreeSet<TreePath>,
}

impl Odd {
    /// Sets a path aside.
    pub fn note(&mut self, path: TreePath, reason: String) {
        self.note_name(path.to_string(), reason);
        if self.paths.len() < MAX_PATHS {
            self.paths.insert(path);
        }
    }

    fn note_name(&mut self, name: String, reason: String) {
        if self.names.len() < MAX_ODD {
            self.names.insert(name, reason);
        }
    }
}

/// Lists the sandbox's workspace except the directories `skip`; with `hash`, regular files with their hashes.
pub async fn walk(
    sandbox: &Sandbox,
    listing: &mut Listing,
    skip: &[TreePath],
    hash: bool,
) -> Result<Vec<Entry>> {
    let options = WalkOptions {
        hash,
        exclude: skip.iter().map(|path| path.as_path().to_owned()).collect(),
        max_entries: MAX_PATHS as u64,
    };
    listing.refresh(sandbox, Path::new("."), options).await
}

/// Keeps what has a plain name and a known kind, ordered by path, each once.
pub fn sort_out(entries: Vec<Entry>, odd: &mut Odd) -> Vec<(TreePath, Entry)> {
    let mut kept: Vec<(TreePath, Entry)> = Vec::with_capacity(entries.len());
    for entry in entries {
        let bytes = entry.path.as_os_str().as_bytes();
        match (TreePath::new(bytes), oddity(&entry)) {
            (Ok(path), None) => kept.push((path, entry)),
            (Ok(path), Some(reason)) => odd.note(path, reason.to_owned()),
            (Err(reason), _) => {
                odd.note_name(printable(&bytes[..bytes.len().min(MAX_PATH)]), reason.to_owned())
            }
        }
    }
    kept.sort_by(|(a, _), (b, _)| a.cmp(b));
    kept.dedup_by(|(path, _), (former, _)| {
        let twice = path == former;
        if twice {
            odd.note(path.clone(), "the sandbox names it twice".to_owned());
        }
        twice
    });
    only_below_directories(kept, odd)
}

/// Why an entry is nothing that could be taken over.
fn oddity(entry: &Entry) -> Option<&'static str> {
    match &entry.kind {
        EntryKind::Other => Some("a device, FIFO or socket"),
        EntryKind::Symlink(target) if target.as_os_str().len() > MAX_PATH => {
            Some("a symlink with a target that is too long")
        }
        // Its files would look deleted.
        EntryKind::Directory if !entry.readable => Some("a directory that cannot be listed"),
        _ => None,
    }
}

/// Below something that is no directory there cannot be anything, whatever the guest says.
fn only_below_directories(entries: Vec<(TreePath, Entry)>, odd: &mut Odd) -> Vec<(TreePath, Entry)> {
    let mut directories: HashSet<TreePath> = HashSet::new();
    let mut kept = Vec::with_capacity(entries.len());
    for (path, entry) in entries {
        // A directory comes before what is in it.
        if !path.parent_bytes().is_empty() && !directories.contains(path.parent_bytes()) {
            odd.note(path, "it lies below what is no directory".to_owned());
            continue;
        }
        if matches!(entry.kind, EntryKind::Directory) {
            directories.insert(path.clone());
        }
        kept.push((path, entry));
    }
    kept
}
