//! The sandbox's tree as its guest reports it, validated and sorted; entries that are impossible or could never be
//! applied are rejected by name.

use crate::selection::MAX_PATHS;
use crate::tree_path::{MAX_PATH, TreePath};
use agent_base::error::Result;
use agent_base::visible::visible_name;
use agent_sandbox::{Entry, EntryKind, Listing, Sandbox, WalkOptions};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most rejected entries that are kept by name.
const MAX_ODD: usize = 1000;

/// Entries that can never be applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rejected {
    /// The reasons, by a name that is safe to show.
    pub names: BTreeMap<String, String>,
    /// Those whose names are valid paths: nothing at or below them is applied.
    pub paths: BTreeSet<TreePath>,
    /// Those of them that are directories whose entries could not be listed.
    #[serde(default)]
    pub unlisted: BTreeSet<TreePath>,
}

impl Rejected {
    pub fn reject(&mut self, path: TreePath, reason: String) {
        self.reject_name(path.to_string(), reason);
        if self.paths.len() < MAX_PATHS {
            self.paths.insert(path);
        }
    }

    fn reject_name(&mut self, name: String, reason: String) {
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
pub fn validate(entries: Vec<Entry>, rejected: &mut Rejected) -> Vec<(TreePath, Entry)> {
    let mut kept: Vec<(TreePath, Entry)> = Vec::with_capacity(entries.len());
    for entry in entries {
        let bytes = entry.path.as_os_str().as_bytes();
        match (TreePath::new(bytes), rejection_reason(&entry)) {
            (Ok(path), None) => kept.push((path, entry)),
            (Ok(path), Some(reason)) => {
                if matches!(entry.kind, EntryKind::Directory) && rejected.unlisted.len() < MAX_PATHS {
                    rejected.unlisted.insert(path.clone());
                }
                rejected.reject(path, reason.to_owned());
            }
            (Err(reason), _) => {
                rejected.reject_name(visible_name(&bytes[..bytes.len().min(MAX_PATH)]), reason.to_owned())
            }
        }
    }
    kept.sort_by(|(a, _), (b, _)| a.cmp(b));
    kept.dedup_by(|(path, _), (former, _)| {
        let twice = path == former;
        if twice {
            rejected.reject(path.clone(), "the sandbox names it twice".to_owned());
        }
        twice
    });
    only_below_directories(kept, rejected)
}

/// Returns the reason why an entry could never be applied; `None` if it can be.
fn rejection_reason(entry: &Entry) -> Option<&'static str> {
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

/// Drops entries below something that is not a directory: the guest cannot be believed there.
fn only_below_directories(
    entries: Vec<(TreePath, Entry)>,
    rejected: &mut Rejected,
) -> Vec<(TreePath, Entry)> {
    let mut directories: HashSet<TreePath> = HashSet::new();
    let mut kept = Vec::with_capacity(entries.len());
    for (path, entry) in entries {
        // A directory comes before what is in it.
        if !path.parent_bytes().is_empty() && !directories.contains(path.parent_bytes()) {
            rejected.reject(path, "its parent is not a directory".to_owned());
            continue;
        }
        if matches!(entry.kind, EntryKind::Directory) {
            directories.insert(path.clone());
        }
        kept.push((path, entry));
    }
    kept
}
