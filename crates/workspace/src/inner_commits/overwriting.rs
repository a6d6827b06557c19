//! What a merge of the sandbox's commits would overwrite on the host.

use super::{InnerCommits, LIST_MEMORY, Quarantine, last_commit};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Files of the user's below a directory that gives way to a file.
const MAX_LOST: usize = 100_000;

impl InnerCommits {
    /// Refuses to overwrite what the user has and has not committed, which a merge or a checkout does without a word where it is ignored: by the
    /// user's rules now, or by those of one of the commits. Blocking.
    pub(super) fn refuse_overwriting(&self) -> Result<()> {
        let (mut judged, mut expendable) = (HashSet::new(), Vec::new());
        for file in &self.files.written {
            let above = file.ancestors().filter(|above| !above.as_bytes().is_empty());
            let all = above.map(|above| (above, true)).chain([(file.clone(), false)]);
            for (path, is_above) in all.filter(|(path, _)| judged.insert(path.clone())) {
                let lost = self.lost(&path, is_above)?;
                expendable.extend(lost.into_iter().map(|lost| (path.clone(), lost)));
            }
        }
        if !expendable.is_empty()
            && let Some(commit) = last_commit(&self.repository)
        {
            let committed = self.checked.files_of(&commit)?;
            let committed: HashSet<&[u8]> = committed.split(|byte| *byte == 0).collect();
            expendable.retain(|(_, lost)| !committed.contains(lost.as_bytes()));
        }
        match self.checked.find_other(&expendable, &self.id)? {
            None => Ok(()),
            Some((path, lost)) => Err(Error::usage(format!(
                "the commits of the sandbox are refused: they write {path}, and you have {lost}, which is not committed"
            ))
            .hint("a merge may overwrite it: leave it out of the commits, or commit yours or move it away")),
        }
    }

    /// The user's files that give way to a file at `path`, or to a directory where it `is_above` one.
    fn lost(&self, path: &TreePath, is_above: bool) -> Result<Vec<TreePath>> {
        let root = &self.checked.root;
        let is_directory =
            |path: &TreePath| root.join(path.as_path()).symlink_metadata().is_ok_and(|found| found.is_dir());
        // Nothing is below a file or a symlink, which is asked about by itself.
        if path.ancestors().any(|above| !is_directory(&above)) {
            return Ok(Vec::new());
        }
        let (mut open, mut lost) = (vec![path.clone()], Vec::new());
        while let Some(next) = open.pop() {
            let Ok(found) = root.join(next.as_path()).symlink_metadata() else { continue };
            if !found.is_dir() {
                lost.push(next);
            } else if !is_above {
                let entries = fs::read_dir(root.join(next.as_path()))?;
                let names = entries.flatten().map(|entry| entry.file_name());
                open.extend(names.filter_map(|name| {
                    TreePath::new(&[next.as_bytes(), b"/", name.as_bytes()].concat()).ok()
                }));
            }
            if open.len() + lost.len() > MAX_LOST {
                let why = format!("the commits of the sandbox write {path}, where you have too many files");
                return Err(Error::new(Kind::Limit, why));
            }
        }
        Ok(lost)
    }
}

impl Quarantine {
    /// The files of a commit, each before a NUL byte.
    fn files_of(&self, commit: &str) -> Result<Vec<u8>> {
        let arguments = ["ls-tree", "-r", "-z", "--name-only", "--full-tree", commit];
        self.run_within(LIST_MEMORY, &arguments.map(OsStr::new), b"")
    }

    /// Finds what the commit `id` would write otherwise than the user has it, of pairs of a path of the commits and a file of the user's that
    /// gives way to it.
    fn find_other<'a>(
        &self,
        pairs: &'a [(TreePath, TreePath)],
        id: &str,
    ) -> Result<Option<&'a (TreePath, TreePath)>> {
        if pairs.is_empty() {
            return Ok(None);
        }
        let alike = pairs.iter().filter(|(path, lost)| path == lost).map(|(_, lost)| lost);
        let on_host = self.on_host(alike.collect())?;
        let committed = self.blobs(id, |path| on_host.contains_key(path))?;
        let is_alike = |lost: &TreePath| {
            let same = committed.get(lost).zip(on_host.get(lost));
            same.is_some_and(|(committed, found)| committed.id == *found)
        };
        Ok(pairs.iter().find(|(path, lost)| path != lost || !is_alike(lost)))
    }
}
