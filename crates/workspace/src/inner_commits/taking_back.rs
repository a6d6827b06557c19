//! What a merge of the sandbox's commits would take back of the user's.
//!
//! A commit has each file as git's index had it. Where that is of an earlier state than the commit below it (a directory that the sandbox could
//! not be shown, an index that was restored, a merge that the user began meanwhile), the commit undoes what the user has committed, and a merge
//! takes that over without a word.

use super::{
    InnerCommits, LIST_MEMORY, MAX_LISTED, Quarantine, Recorded, SUBMODULE, SYMLINK, content, failed,
    last_commit, packed,
};
use crate::git_blob::Blob;
use crate::merge::{self, MAX_MERGE, Unmerged};
use crate::notices::listed;
use crate::tracked::object_name;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_base::plain_file::{self, Links};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

/// Contents that are read and compared.
const MAX_COMPARED: usize = 4_000;
/// Commits by which git would merge both sides: more than one where branches were merged crosswise.
const MAX_BASES: usize = 16;
/// New files that are looked for by name among those that the user has removed once, and how many at once.
const MAX_NEW: usize = 1_000;
const NEW_AT_ONCE: usize = 200;
/// Most of the user's branches that commits of the sandbox build on.
const MAX_PARENTS: usize = 4;
/// Bytes in which git looks for a NUL byte, which text has none of.
const BEGINNING: usize = 8_000;

impl InnerCommits {
    /// Refuses commits whose merge would revert the user's files that the session has not changed; one that it has changed is its own as a whole.
    /// Blocking.
    pub(super) fn refuse_taking_back(&self, recorded: &Recorded<'_>, range: &[u8]) -> Result<()> {
        let own = recorded.own;
        let files: BTreeSet<&TreePath> = self.files.all().filter(|path| !own.contains(*path)).collect();
        let Some(head) = last_commit(&self.repository).filter(|_| !files.is_empty()) else { return Ok(()) };
        let checked = &self.checked;
        let blobs = |commit: &str| checked.blobs(commit, |path| files.contains(path));
        let (users, theirs) = (blobs(&head)?, blobs(&self.id)?);
        let bases = checked.merge_bases(&head, &self.id)?;
        let bases = bases.iter().map(|base| blobs(base)).collect::<Result<Vec<_>>>()?;
        let is_changed = |(path, base): &(&TreePath, &BTreeMap<TreePath, Blob>)| {
            let theirs = theirs.get(*path);
            theirs != base.get(*path) && theirs != users.get(*path)
        };
        let pairs = files.iter().flat_map(|path| bases.iter().map(|base| (*path, base)));
        let changed: Vec<_> = pairs.filter(is_changed).collect();
        let is_elsewhere = self.is_elsewhere(recorded, &head)?;
        let parents = Parents::find(checked, range, &head, is_elsewhere, &files)?;
        let others = parents.taking_back(&files, &theirs);
        let judged = changed.iter().map(|(path, _)| *path).chain(others.iter().copied());
        let mut comparison = Comparison::new(checked, judged.collect())?;
        let mut taken_back = BTreeSet::new();
        for (path, base) in changed {
            if comparison.is_taken_back(path, base.get(path), users.get(path), theirs.get(path))? {
                taken_back.insert(path.clone());
            }
        }
        for path in others {
            // What was committed inside from the user's uncommitted edits is the user's own.
            let is_edited = users.get(path) != theirs.get(path) && parents.has(path, users.get(path));
            if !is_edited || !comparison.is_on_host(path, theirs.get(path))? {
                taken_back.insert(path.clone());
            }
        }
        let is_new = |path: &&TreePath| {
            let before = bases.iter().chain([&users]);
            theirs.contains_key(*path) && before.into_iter().all(|commit| !commit.contains_key(*path))
        };
        taken_back.extend(checked.removed_once(&head, files.iter().copied().filter(is_new).collect())?);
        let named = taken_back.iter().map(|path| match theirs.contains_key(path) {
            true => path.to_string(),
            false => format!("{path} (removed)"),
        });
        match listed(named, MAX_LISTED) {
            None => Ok(()),
            Some(named) => Err(Error::usage(format!(
                "the commits of the sandbox are refused: to merge them would change what the session has not changed: {named}"
            ))
            .hint("tell it to commit these as your last commit has them, commit your own edits of them, or apply without --branch")),
        }
    }

    /// Returns whether the sandbox has had a branch checked out all the time that the user has not any more, whose last commit is `head`.
    fn is_elsewhere(&self, recorded: &Recorded<'_>, head: &str) -> Result<bool> {
        if recorded.delta.keys().any(|path| path.as_bytes() == b".git/HEAD") {
            return Ok(false);
        }
        let name =
            content(recorded, ".git/HEAD").and_then(|text| text.strip_prefix("ref: ").map(str::to_owned));
        let is_plain =
            |name: &String| name.starts_with("refs/heads/") && !name.split('/').any(|part| part == "..");
        let Some(name) = name.filter(is_plain) else { return Ok(false) };
        let branch = self.users(&name, &packed(&self.repository.common)?);
        Ok(branch.is_some_and(|branch| branch != head))
    }
}

impl Quarantine {
    /// The commits that git would merge two others by.
    fn merge_bases(&self, one: &str, other: &str) -> Result<Vec<String>> {
        let arguments = ["merge-base", "--all", one, other].map(OsStr::new);
        // It ends with 1, without a word, where there is none.
        let found = self.run_or_code(LIST_MEMORY, &arguments, b"", 1)?.unwrap_or_default();
        let bases: Vec<String> = String::from_utf8_lossy(&found).lines().filter_map(object_name).collect();
        match bases.len() > MAX_BASES {
            true => {
                Err(Error::new(Kind::Limit, "the commits of the sandbox have too many merges below them"))
            }
            false => Ok(bases),
        }
    }

    /// Those of `files` that git commits with other contents than they have, by the attributes in the user's directory and repository.
    fn converted(&self, files: &BTreeSet<&TreePath>) -> Result<BTreeSet<TreePath>> {
        let [root, check] = [self.root.as_os_str(), OsStr::new("check-attr")];
        let before = ["-c", "core.bare=false", "-C"].map(OsStr::new);
        let attributes = ["-z", "--stdin", "filter", "ident", "working-tree-encoding"].map(OsStr::new);
        let arguments: Vec<&OsStr> = before.into_iter().chain([root, check]).chain(attributes).collect();
        let paths: Vec<u8> = files.iter().flat_map(|path| [path.as_bytes(), b"\0"].concat()).collect();
        let answer = self.run_within(LIST_MEMORY, &arguments, &paths)?;
        // `PATH ATTRIBUTE VALUE`, each before a NUL byte.
        let fields: Vec<&[u8]> = answer.split(|byte| *byte == 0).collect();
        let set = fields.chunks_exact(3).filter(|fields| !matches!(fields[2], b"unspecified" | b"unset"));
        Ok(set.filter_map(|fields| TreePath::new(fields[0]).ok()).collect())
    }

    /// Those of `files` that a commit below `head` has removed.
    fn removed_once(&self, head: &str, files: Vec<&TreePath>) -> Result<Vec<TreePath>> {
        let arguments = [
            "--literal-pathspecs",
            "log",
            "--format=",
            "--name-only",
            "--diff-filter=D",
            "--no-renames",
            "-z",
            head,
            "--",
        ];
        let mut found = Vec::new();
        // All that was ever removed, where there are too many to name.
        let (at_once, are_named) =
            if files.len() > MAX_NEW { (files.len(), false) } else { (NEW_AT_ONCE, true) };
        for some in files.chunks(at_once) {
            let paths = some.iter().filter(|_| are_named).map(|path| path.as_path().as_os_str());
            let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).chain(paths).collect();
            let removed = self.run_within(LIST_MEMORY, &arguments, b"")?;
            let removed: BTreeSet<&[u8]> = removed.split(|byte| *byte == 0).collect();
            found.extend(
                some.iter().filter(|path| removed.contains(path.as_bytes())).map(|path| (*path).clone()),
            );
        }
        Ok(found)
    }
}

/// The user's commits that commits of the sandbox build on, where one of them is not below the user's last one, or that is of another branch:
/// what is merged then is not what the user has checked out.
#[derive(Default)]
struct Parents {
    /// The files of each.
    files: Vec<BTreeMap<TreePath, Blob>>,
    /// The files of what each has in common with each other.
    common: Vec<Vec<BTreeMap<TreePath, Blob>>>,
}

impl Parents {
    fn find(
        checked: &Quarantine,
        range: &[u8],
        head: &str,
        is_elsewhere: bool,
        files: &BTreeSet<&TreePath>,
    ) -> Result<Self> {
        let listed = checked.git(&["rev-list", "--boundary", "--stdin"], range)?;
        let parents: BTreeSet<String> =
            listed.lines().filter_map(|line| line.strip_prefix('-')).filter_map(object_name).collect();
        if parents.len() > MAX_BASES {
            return Err(too_many());
        }
        let mut are_below = !is_elsewhere;
        for parent in &parents {
            let arguments = ["merge-base", "--is-ancestor", parent, head].map(OsStr::new);
            are_below &= checked.run_or_code(LIST_MEMORY, &arguments, b"", 1)?.is_some();
        }
        // What is on top of one commit alone may be a copy of the user's own: of a rebase, or a cherry-pick.
        if are_below || parents.len() == 1 && !is_elsewhere {
            return Ok(Self::default());
        }
        if parents.len() > MAX_PARENTS {
            return Err(too_many());
        }
        let blobs = |commit: &str| checked.blobs(commit, |path| files.contains(path));
        let common = |one: &String, other: &String| match checked.merge_bases(one, other)?.first() {
            Some(base) => blobs(base),
            None => Ok(BTreeMap::new()),
        };
        let row = |one| parents.iter().map(|other| common(one, other)).collect();
        Ok(Self {
            files: parents.iter().map(|parent| blobs(parent)).collect::<Result<_>>()?,
            common: parents.iter().map(row).collect::<Result<_>>()?,
        })
    }

    /// Returns whether one of them has the file so.
    fn has(&self, path: &TreePath, blob: Option<&Blob>) -> bool {
        self.files.iter().any(|files| files.get(path) == blob)
    }

    /// Those of `files` that the commits have neither as one of these has them nor as a merge of them would.
    fn taking_back<'a>(
        &self,
        files: &BTreeSet<&'a TreePath>,
        theirs: &BTreeMap<TreePath, Blob>,
    ) -> Vec<&'a TreePath> {
        let is_taken_back = |path: &TreePath| {
            let (theirs, count) = (theirs.get(path), self.files.len());
            let of = |n: usize| self.files[n].get(path);
            let is_kept = |n: usize| {
                // Where both sides have changed it, either may be what the conflict was resolved to.
                let is_lost = |other: usize| {
                    let common = self.common[n][other].get(path);
                    of(other) != theirs && of(other) != common && of(n) == common
                };
                of(n) == theirs && !(0..count).any(is_lost)
            };
            // What differs from all of them, which differ themselves, is a merge of lines.
            let is_merged = (0..count).all(|n| of(n) != theirs) && (1..count).any(|n| of(n) != of(0));
            count > 0 && !is_merged && !(0..count).any(is_kept)
        };
        files.iter().copied().filter(|path| is_taken_back(path)).collect()
    }
}

/// Files of the user's directory, to be compared with those of commits.
struct Comparison<'a> {
    quarantine: &'a Quarantine,
    /// The names of the contents that they have, of regular files.
    found: BTreeMap<&'a TreePath, String>,
    /// Those that git commits with other contents. Whether they are as they were committed is not known.
    converted: BTreeSet<TreePath>,
    /// Contents that may still be read.
    left: usize,
}

/// The outcome of merging lines.
#[derive(PartialEq, Eq)]
enum Lines {
    /// They stay as the user has them.
    Same,
    /// git would change them without a word.
    Changed,
    /// git would say that there is a conflict.
    Conflict,
    /// They differ too much, or a file is gone, too large or not text.
    Unknown,
}

impl<'a> Comparison<'a> {
    fn new(quarantine: &'a Quarantine, files: BTreeSet<&'a TreePath>) -> Result<Self> {
        let converted = quarantine.converted(&files)?;
        let found = quarantine.on_host(files.into_iter().collect())?;
        Ok(Self { quarantine, found, converted, left: MAX_COMPARED })
    }

    /// Returns whether a merge by `base` would change a file that the user has committed as `users` to what the commits have, without a word.
    fn is_taken_back(
        &mut self,
        path: &TreePath,
        base: Option<&Blob>,
        users: Option<&Blob>,
        theirs: Option<&Blob>,
    ) -> Result<bool> {
        // Where the user has renamed it, git looks for the new name.
        let Some(users) = users else { return Ok(base.is_some() && theirs.is_some()) };
        if self.is_mode_taken_back(path, base, users, theirs) {
            return Ok(true);
        }
        let id = |blob: Option<&Blob>| blob.map(|blob| blob.id.clone());
        if id(theirs) == id(base) || self.is_on_host(path, theirs)? {
            return Ok(false);
        }
        let is_committed = self.converted.contains(path) || self.is_on_host(path, Some(users))?;
        if id(base).as_ref() == Some(&users.id) {
            // Otherwise the user has edits that are not committed.
            let lines = |it: &mut Self| it.lines(path, base, None, theirs);
            return Ok(is_committed || matches!(lines(self)?, Lines::Changed | Lines::Unknown));
        }
        // Of what both sides have otherwise git says that it conflicts, but for other lines of a text.
        let (Some(base), Some(theirs)) = (base, theirs) else { return Ok(false) };
        let sides = [base, users, theirs];
        if !sides.iter().all(|blob| is_file(blob)) {
            return Ok(false);
        }
        match self.lines(path, Some(base), is_committed.then_some(users), Some(theirs))? {
            Lines::Same | Lines::Conflict => Ok(false),
            Lines::Changed => Ok(true),
            Lines::Unknown => Ok(!self.are_binary(&sides)?),
        }
    }

    /// Returns whether a merge would change a mode that only the commits have changed, and the user not as well.
    fn is_mode_taken_back(
        &self,
        path: &TreePath,
        base: Option<&Blob>,
        users: &Blob,
        theirs: Option<&Blob>,
    ) -> bool {
        let Some((base, theirs)) = base.zip(theirs) else { return false };
        let mode = |is: &fs::Metadata| if is.permissions().mode() & 0o100 == 0 { "100644" } else { "100755" };
        let found = self.quarantine.root.join(path.as_path()).symlink_metadata();
        theirs.mode != base.mode
            && base.mode == users.mode
            && is_file(theirs)
            && is_file(base)
            && !found.is_ok_and(|found| found.is_file() && mode(&found) == theirs.mode)
    }

    /// Returns whether the user's directory has that content at `path`, or nothing.
    fn is_on_host(&mut self, path: &TreePath, blob: Option<&Blob>) -> Result<bool> {
        let file = self.quarantine.root.join(path.as_path());
        let Some(blob) = blob else { return Ok(file.symlink_metadata().is_err()) };
        if let Some(found) = self.found.get(path) {
            // git may write other ends of lines than it commits.
            return Ok(*found == blob.id || {
                let text = self.text_on_host(path).map(|text| with_line_feeds(&text));
                text.is_some() && text == self.text(blob)?
            });
        }
        let Ok(found) = file.symlink_metadata() else { return Ok(false) };
        match blob.mode.as_str() {
            SUBMODULE => Ok(found.is_dir()),
            SYMLINK => {
                let target = file.read_link().unwrap_or_default();
                Ok(self.content(blob)?.is_some_and(|content| target.as_os_str().as_bytes() == content))
            }
            // A name that git cannot be told.
            _ => {
                let text = self.text_on_host(path);
                Ok(text.is_some() && text == self.text(blob)?)
            }
        }
    }

    /// Merges the lines of the file with those of `ours`, by default as the directory has it.
    fn lines(
        &mut self,
        path: &TreePath,
        base: Option<&Blob>,
        ours: Option<&Blob>,
        theirs: Option<&Blob>,
    ) -> Result<Lines> {
        let Some((base, theirs)) = base.zip(theirs) else { return Ok(Lines::Unknown) };
        let (Some(base), Some(theirs)) = (self.text(base)?, self.text(theirs)?) else {
            return Ok(Lines::Unknown);
        };
        let ours = match ours {
            Some(ours) => self.text(ours)?,
            None if base.contains(&b'\r') => self.text_on_host(path),
            None => self.text_on_host(path).map(|text| with_line_feeds(&text)),
        };
        let Some(ours) = ours else { return Ok(Lines::Unknown) };
        Ok(match merge::lines_merged(&base, &ours, &theirs) {
            Ok(merged) if merged == ours => Lines::Same,
            Ok(_) => Lines::Changed,
            Err(Unmerged::Conflict) => Lines::Conflict,
            Err(Unmerged::TooDifferent) => Lines::Unknown,
        })
    }

    /// Returns whether git would merge none of their lines.
    fn are_binary(&mut self, blobs: &[&Blob]) -> Result<bool> {
        for blob in blobs {
            if self.content(blob)?.is_some_and(|content| !is_text(&content)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn text(&mut self, blob: &Blob) -> Result<Option<Vec<u8>>> {
        Ok(self.content(blob)?.filter(|content| is_text(content)))
    }

    /// The content of a blob, unless it is too large to be merged.
    fn content(&mut self, blob: &Blob) -> Result<Option<Vec<u8>>> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            let why = "the commits of the sandbox have too many files that you have changed since";
            Error::new(Kind::Limit, why).hint("apply without --branch")
        })?;
        let size = self.quarantine.git(&["cat-file", "-s", &blob.id], b"")?;
        if size.trim().parse::<u64>().map_err(|_| failed())? > MAX_MERGE {
            return Ok(None);
        }
        self.quarantine.git_bytes(&["cat-file", "blob", &blob.id], b"").map(Some)
    }

    fn text_on_host(&self, path: &TreePath) -> Option<Vec<u8>> {
        let file = self.quarantine.root.join(path.as_path());
        let found = plain_file::read(&file, MAX_MERGE + 1, Links::Refuse).ok()?;
        Some(found).filter(|found| found.len() as u64 <= MAX_MERGE && is_text(found))
    }
}

fn too_many() -> Error {
    Error::new(Kind::Limit, "the commits of the sandbox merge too many branches")
        .hint("apply without --branch")
}

/// Returns whether a blob is neither a symlink nor a submodule.
fn is_file(blob: &Blob) -> bool {
    blob.mode != SYMLINK && blob.mode != SUBMODULE
}

fn is_text(content: &[u8]) -> bool {
    !content[..content.len().min(BEGINNING)].contains(&0)
}

fn with_line_feeds(text: &[u8]) -> Vec<u8> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.collect::<Vec<_>>().join(&b'\n')
}
