//! What a merge of the sandbox's commits would take back of the user's.
//!
//! A commit has each file as git's index had it. Where that is of an earlier state than the commit below it (a directory that the sandbox could
//! not be shown, an index that was restored, a merge that the user began meanwhile), the commit undoes what the user has committed, and a merge
//! takes that over without a word.

use super::{InnerCommits, MAX_LISTED, Quarantine, SUBMODULE, SYMLINK, failed, last_commit};
use crate::git_blob::Blob;
use crate::merge::{self, MAX_MERGE};
use crate::notices::listed;
use crate::tracked::object_name;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_base::plain_file::{self, Links};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

/// Files that the user has changed since, and whose lines are compared.
const MAX_COMPARED: usize = 1_000;

/// A file that the user has committed.
struct OfUser {
    blob: Blob,
    /// Set if it is in the directory as it was committed.
    is_clean: bool,
}

impl InnerCommits {
    /// Refuses commits of which a merge would change what the user has, in files that the sandbox has as the user has them: in others than
    /// `own`. Blocking.
    pub(super) fn refuse_taking_back(&self, own: &BTreeSet<TreePath>) -> Result<()> {
        let files: BTreeSet<&TreePath> = self.files.all().filter(|path| !own.contains(*path)).collect();
        let Some(head) = last_commit(&self.repository).filter(|_| !files.is_empty()) else { return Ok(()) };
        let checked = &self.checked;
        let blobs = |commit: &str| checked.blobs(commit, |path| files.contains(path));
        let (users, theirs) = (checked.as_user_has(blobs(&head)?)?, blobs(&self.id)?);
        let mut taken_back = BTreeSet::new();
        for base in checked.merge_bases(&head, &self.id)? {
            let base = blobs(&base)?;
            for (path, users) in &users {
                if checked.is_taken_back(path, users, base.get(path), theirs.get(path))? {
                    taken_back.insert(path.to_string());
                }
            }
        }
        match listed(taken_back.into_iter(), MAX_LISTED) {
            None => Ok(()),
            Some(named) => Err(Error::usage(format!(
                "the commits of the sandbox are refused: to merge them would change what the session has not changed: {named}"
            ))
            .hint("have these files committed as they are in the sandbox, or apply without --branch")),
        }
    }
}

impl Quarantine {
    /// The commits that git would merge two others by.
    fn merge_bases(&self, one: &str, other: &str) -> Result<Vec<String>> {
        // It ends with 1 where there is none.
        let found = self.git(&["merge-base", "--all", one, other], b"").unwrap_or_default();
        Ok(found.lines().filter_map(object_name).collect())
    }

    /// The files of the user's last commit, with whether they are in the directory as they are in it.
    fn as_user_has(&self, committed: BTreeMap<TreePath, Blob>) -> Result<BTreeMap<TreePath, OfUser>> {
        let on_host = self.on_host(committed.keys().collect())?;
        let (mut clean, mut compared) = (BTreeSet::new(), 0);
        for (path, blob) in &committed {
            let found = on_host.get(path);
            compared += usize::from(found.is_some_and(|id| *id != blob.id));
            if compared > MAX_COMPARED {
                let why = "the commits of the sandbox have too many files that you have changed since";
                return Err(Error::new(Kind::Limit, why).hint("commit yours first"));
            }
            if self.is_clean(path, blob, found)? {
                clean.insert(path.clone());
            }
        }
        let with_state = |(path, blob)| {
            let is_clean = clean.contains(&path);
            (path, OfUser { blob, is_clean })
        };
        Ok(committed.into_iter().map(with_state).collect())
    }

    /// Returns whether a file is on the host as it was committed, where a regular one has the content `found`.
    fn is_clean(&self, path: &TreePath, blob: &Blob, found: Option<&String>) -> Result<bool> {
        if let Some(found) = found {
            // git may write other ends of lines than it commits.
            let is_converted = || {
                let text = self.text_on_host(path).map(|text| with_line_feeds(&text));
                Ok(text.is_some() && text == self.text(&blob.id)?)
            };
            return if *found == blob.id { Ok(true) } else { is_converted() };
        }
        let file = self.root.join(path.as_path());
        Ok(match (file.symlink_metadata(), blob.mode.as_str()) {
            (Ok(is), SYMLINK) if is.is_symlink() => {
                let target = self.git_bytes(&["cat-file", "blob", &blob.id], b"")?;
                file.read_link().is_ok_and(|found| found.as_os_str().as_bytes() == target)
            }
            (Ok(is), SUBMODULE) => is.is_dir(),
            // Its name has the end of a line in it.
            (Ok(is), _) => is.is_file(),
            (Err(_), _) => false,
        })
    }

    /// Returns whether a merge would change without a word what the user has, where both began with `base`.
    fn is_taken_back(
        &self,
        path: &TreePath,
        users: &OfUser,
        base: Option<&Blob>,
        theirs: Option<&Blob>,
    ) -> Result<bool> {
        if theirs == base || theirs == Some(&users.blob) || self.is_mode_of_host(path, base, theirs) {
            return Ok(false);
        }
        if users.is_clean && base == Some(&users.blob) {
            return Ok(true);
        }
        // Of what both have otherwise git says that it conflicts, but for other lines of a text.
        let (Some(base), Some(theirs)) = (base, theirs) else { return Ok(false) };
        let is_file = |blob: &&Blob| blob.mode != SYMLINK && blob.mode != SUBMODULE;
        if ![base, theirs, &users.blob].iter().all(is_file) {
            return Ok(false);
        }
        let ours = if users.is_clean { self.text(&users.blob.id)? } else { self.text_on_host(path) };
        let (Some(base), Some(ours), Some(theirs)) = (self.text(&base.id)?, ours, self.text(&theirs.id)?)
        else {
            return Ok(false);
        };
        Ok(merge::lines_merged(&base, &ours, &theirs).is_ok_and(|merged| merged != ours))
    }

    /// Returns whether the commits change nothing but a mode, to that which the user's file has.
    fn is_mode_of_host(&self, path: &TreePath, base: Option<&Blob>, theirs: Option<&Blob>) -> bool {
        let Some((base, theirs)) = base.zip(theirs).filter(|(base, theirs)| base.id == theirs.id) else {
            return false;
        };
        let mode = |is: fs::Metadata| if is.permissions().mode() & 0o100 == 0 { "100644" } else { "100755" };
        let found = self.root.join(path.as_path()).symlink_metadata();
        found.is_ok_and(|found| found.is_file() && mode(found) == theirs.mode && base.mode != theirs.mode)
    }

    /// The content of a blob, unless it is too large to be merged or is not text.
    fn text(&self, id: &str) -> Result<Option<Vec<u8>>> {
        let size = self.git(&["cat-file", "-s", id], b"")?;
        if size.trim().parse::<u64>().map_err(|_| failed())? > MAX_MERGE {
            return Ok(None);
        }
        Ok(Some(self.git_bytes(&["cat-file", "blob", id], b"")?).filter(|content| is_text(content)))
    }

    /// The same of a file on the host.
    fn text_on_host(&self, path: &TreePath) -> Option<Vec<u8>> {
        let found = plain_file::read(&self.root.join(path.as_path()), MAX_MERGE + 1, Links::Refuse).ok()?;
        Some(found).filter(|found| found.len() as u64 <= MAX_MERGE && is_text(found))
    }
}

fn is_text(content: &[u8]) -> bool {
    !content.contains(&0)
}

fn with_line_feeds(text: &[u8]) -> Vec<u8> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.collect::<Vec<_>>().join(&b'\n')
}
