//! What a merge of the sandbox's commits would take back of the user's.
//!
//! A commit has each file as git's index had it. Where that is of an earlier state than the commit below it (a directory that the sandbox could
//! not be shown, an index that was restored, a merge that the user began meanwhile), the commit undoes what the user has committed, and a merge
//! takes that over without a word.

use super::{InnerCommits, MAX_LISTED, Quarantine, failed, last_commit};
use crate::git_blob::Blob;
use crate::merge::{self, MAX_MERGE};
use crate::notices::listed;
use crate::tracked::object_name;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_base::plain_file::{self, Links};
use std::collections::{BTreeMap, BTreeSet};

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
        let is_dirty = |path: &TreePath, blob: &Blob| on_host.get(path).is_some_and(|id| *id != blob.id);
        let dirty = committed.iter().filter(|(path, blob)| is_dirty(path, blob));
        let mut changed = BTreeSet::new();
        for (path, blob) in dirty {
            if changed.len() == MAX_COMPARED {
                return Err(Error::new(
                    Kind::Limit,
                    "the commits of the sandbox have too many files that you have changed since",
                )
                .hint("commit yours first"));
            }
            // git may write other ends of lines than it commits.
            let found = self.text_on_host(path).map(|text| with_line_feeds(&text));
            if found.is_none() || found != self.text(&blob.id)? {
                changed.insert(path.clone());
            }
        }
        let with_state = |(path, blob)| {
            let is_clean = !changed.contains(&path);
            (path, OfUser { blob, is_clean })
        };
        Ok(committed.into_iter().map(with_state).collect())
    }

    /// Returns whether a merge would change without a word what the user has, where both began with `base`.
    fn is_taken_back(
        &self,
        path: &TreePath,
        users: &OfUser,
        base: Option<&Blob>,
        theirs: Option<&Blob>,
    ) -> Result<bool> {
        if theirs == base || theirs == Some(&users.blob) {
            return Ok(false);
        }
        if users.is_clean && base == Some(&users.blob) {
            return Ok(true);
        }
        // Of what both have otherwise git says that it conflicts, but for other lines of a text.
        let (Some(base), Some(theirs)) = (base, theirs) else { return Ok(false) };
        let ours = if users.is_clean { self.text(&users.blob.id)? } else { self.text_on_host(path) };
        let (Some(base), Some(ours), Some(theirs)) = (self.text(&base.id)?, ours, self.text(&theirs.id)?)
        else {
            return Ok(false);
        };
        Ok(merge::lines_merged(&base, &ours, &theirs).is_ok_and(|merged| merged != ours))
    }

    /// The content of a blob, unless it is too large to be merged or is not text.
    fn text(&self, id: &str) -> Result<Option<Vec<u8>>> {
        let size = self.git(&["cat-file", "-s", id], b"")?;
        if size.trim().parse::<u64>().map_err(|_| failed())? > MAX_MERGE {
            return Ok(None);
        }
        Ok(Some(self.git_bytes(&["cat-file", "blob", id], b"")?).filter(is_text))
    }

    /// The same of a file on the host.
    fn text_on_host(&self, path: &TreePath) -> Option<Vec<u8>> {
        let found = plain_file::read(&self.root.join(path.as_path()), MAX_MERGE + 1, Links::Refuse).ok()?;
        Some(found).filter(|found| found.len() as u64 <= MAX_MERGE && is_text(found))
    }
}

fn is_text(content: &Vec<u8>) -> bool {
    !content.contains(&0)
}

fn with_line_feeds(text: &[u8]) -> Vec<u8> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.collect::<Vec<_>>().join(&b'\n')
}
