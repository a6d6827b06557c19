//! The files of commits and of the host's directory, by the names that git has for their contents.

use super::{LIST_MEMORY, Quarantine};
use crate::git_blob::Blob;
use crate::tree_path::TreePath;
use agent_base::error::Result;
use agent_base::plain_file::{self, Links};
use rustix::fs::CWD;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

impl Quarantine {
    /// The files of a commit that are `wanted`.
    pub(super) fn blobs(
        &self,
        commit: &str,
        wanted: impl Fn(&TreePath) -> bool,
    ) -> Result<BTreeMap<TreePath, Blob>> {
        let arguments = ["ls-tree", "-r", "-z", "--full-tree", commit].map(OsStr::new);
        let listed = self.run_within(LIST_MEMORY, &arguments, b"")?;
        // `MODE TYPE NAME<tab>PATH`
        let entries = listed.split(|byte| *byte == 0).filter_map(|entry| {
            let tab = entry.iter().position(|byte| *byte == b'\t')?;
            let path = TreePath::new(&entry[tab + 1..]).ok().filter(&wanted)?;
            let mut words = std::str::from_utf8(&entry[..tab]).ok()?.split(' ');
            let (mode, id) = (words.next()?.to_owned(), words.nth(1)?.to_owned());
            Some((path, Blob { mode, id }))
        });
        Ok(entries.collect())
    }

    /// The names of the contents that those of `paths` have on the host that are regular files, as they are there.
    pub(super) fn on_host<'a>(&self, paths: Vec<&'a TreePath>) -> Result<BTreeMap<&'a TreePath, String>> {
        // git reads names up to the end of a line.
        let is_line = |name: &OsStr| !name.as_bytes().iter().any(|byte| matches!(byte, b'\n' | b'\r'));
        let is_comparable = |path: &&TreePath| {
            let file = self.root.join(path.as_path());
            is_line(file.as_os_str()) && plain_file::open_at(CWD, &file, Links::Refuse).is_ok()
        };
        let paths: Vec<&TreePath> = paths.into_iter().filter(is_comparable).collect();
        let mut names = Vec::new();
        for path in &paths {
            names.extend_from_slice(self.root.join(path.as_path()).as_os_str().as_bytes());
            names.push(b'\n');
        }
        let ids = self.git(&["hash-object", "--no-filters", "--stdin-paths"], &names)?;
        Ok(paths.into_iter().zip(ids.lines().map(str::to_owned)).collect())
    }
}
