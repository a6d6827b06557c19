//! Files that git ignores and that are never shown: secrets, devices, what cannot be read.

use super::{Directory, Found, SelectOptions, Walk, entries_of, open_directory};
use crate::bare_repository;
use crate::git_directory;
use crate::ignored_index::{Index, Kind, Listed, RecordIndex, Seen};
use crate::secrets::{self, Suspicion};
use crate::selection::LeftOut;
use crate::tree_path::TreePath;
use crate::walk::Queue;
use agent_base::error::{Error, Result};
use memchr::memmem;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Ignored entries that are looked at; what lies beyond is not shown.
const MAX_IGNORED: usize = 4_000_000;
/// Names of ignored files whose meaning one thread keeps.
const MAX_JUDGED_NAMES: usize = 20_000;

/// Returns what of `ignored`, files and directories that git ignores, is never shown. Blocking.
///
/// # Errors
/// There are more files than can be looked at.
pub fn withheld(
    root: &Path,
    options: &SelectOptions,
    ignored: &[TreePath],
) -> Result<BTreeMap<TreePath, LeftOut>> {
    // With patterns every name counts.
    let index = (!options.has_patterns()).then(|| Index::open(root, &options.machine)).flatten();
    withheld_by(root, options, ignored, index)
}

/// Lists what the index does not know, and has it keep that.
fn withheld_by(
    root: &Path,
    options: &SelectOptions,
    ignored: &[TreePath],
    index: Option<Index>,
) -> Result<BTreeMap<TreePath, LeftOut>> {
    let options = SelectOptions { shows_ignored: true, ..options.clone() };
    let walk = Walk { index, ..Walk::new(root, &options, &|_| false)? };
    let (mut found, mut directories) = (Found::default(), Vec::new());
    for path in ignored {
        // Removed since it was listed.
        let Ok(stat) = rustix::fs::lstat(root.join(path.as_path())) else { continue };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let place = walk.index.as_ref().and_then(|index| index.find(path));
                directories.push(Directory::ignored(path.clone(), 0, place));
            }
            kind => found.take_ignored_file(path.clone(), kind),
        }
    }
    found.merge(walk.run(directories));
    if let Some(index) = &walk.index {
        index.keep(std::mem::take(&mut found.seen), ignored);
    }
    walk.judge_ignored(&mut found);
    if found.withheld.iter().any(|(_, reason)| *reason == LeftOut::TooMany) {
        return Err(Error::sandbox(format!("git ignores more than {MAX_IGNORED} files")));
    }
    Ok(found.withheld.into_iter().collect())
}

impl Found {
    /// Returns what the name of an ignored file suggests.
    fn judge_name(&mut self, directory: &TreePath, name: &[u8]) -> Suspicion {
        if secrets::is_known_by_place(directory, name) {
            return directory.join(name).map_or(Suspicion::Look, |path| secrets::name(&path));
        }
        if let Some(known) = self.judged_names.get(name) {
            return *known;
        }
        let suspicion = TreePath::new(name).map_or(Suspicion::Look, |name| secrets::name(&name));
        if self.judged_names.len() < MAX_JUDGED_NAMES {
            self.judged_names.insert(name.to_owned(), suspicion);
        }
        suspicion
    }

    /// Takes what is itself ignored and is not a directory.
    pub(super) fn take_ignored_file(&mut self, path: TreePath, kind: FileType) {
        match kind {
            FileType::RegularFile => match secrets::name(&path) {
                Suspicion::None => {}
                suspicion => self.ignored_suspects.push((path, suspicion)),
            },
            FileType::Symlink => {}
            _ => self.withheld.push((path, LeftOut::Special)),
        }
    }

    /// Returns what an entry of an ignored directory is, below `depth` other ones; `None` for one that can be shown. Settings are what
    /// packages are full of: those that are read lie at most directly in a directory that is itself ignored.
    fn kind(
        &mut self,
        root: &Path,
        (directory, of_git): (&TreePath, OfGit),
        depth: u16,
        (name, kind): (&[u8], FileType),
    ) -> Option<Kind> {
        let is_of_git = || {
            of_git.is_judged(name)
                || directory.is_git_internal()
                    && directory.join(name).is_ok_and(|path| {
                        git_directory::is_rewritten(root, &path)
                            || !git_directory::is_needed(root, &path, true)
                    })
        };
        match kind {
            FileType::Directory => Some(Kind::Directory(None)),
            FileType::Symlink => None,
            FileType::RegularFile => match self.judge_name(directory, name) {
                Suspicion::None if !is_of_git() => None,
                Suspicion::Settings if depth > 0 && !is_of_git() => None,
                _ => Some(Kind::Suspect),
            },
            _ => Some(Kind::Special),
        }
    }
}

/// What an ignored directory is of a git directory that is not called `.git`.
#[derive(Clone, Copy)]
enum OfGit {
    Nothing,
    /// The git directory, by what is in it, or one of a linked work tree in it.
    Directory,
    /// One of those of logs and of keys in it.
    UrlsOrKeys,
}

impl OfGit {
    /// Returns whether a file of this name in it is judged as git's.
    fn is_judged(self, name: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Directory => {
                matches!(name, b"credentials" | b"FETCH_HEAD") || memmem::find(name, b"config").is_some()
            }
            Self::UrlsOrKeys => true,
        }
    }
}

impl Walk<'_> {
    /// Looks through an ignored directory by names and kinds alone: it may hold very many files.
    pub(super) fn look_through(
        &self,
        directory: &TreePath,
        depth: u16,
        place: Option<RecordIndex>,
        queue: &Queue<Directory>,
        found: &mut Found,
    ) {
        let known = self
            .index
            .as_ref()
            .zip(place)
            .and_then(|(index, place)| Some((index, place, index.record(place)?)));
        let mut below = Vec::new();
        match &known {
            Some((index, place, record)) if index.is_unchanged(record, directory, depth) => {
                if !self.count_ignored(directory, record.count as usize, found) {
                    return;
                }
                for (kind, name) in &record.entries {
                    self.take_ignored_entry(directory, depth, (Some(*kind), name), &mut below, found);
                }
                found.seen.push((directory.clone(), Seen::Unchanged(*place)));
            }
            _ => {
                let places = known.iter().flat_map(|(.., record)| &record.entries);
                let places = places.filter_map(|(kind, name)| match kind {
                    Kind::Directory(Some(place)) => Some((*name, *place)),
                    _ => None,
                });
                self.list_ignored(directory, depth, &places.collect(), &mut below, found);
            }
        }
        queue.extend(below);
    }

    /// Lists an ignored directory, in which directories may have records at `places`.
    fn list_ignored(
        &self,
        directory: &TreePath,
        depth: u16,
        places: &HashMap<&[u8], RecordIndex>,
        below: &mut Vec<Directory>,
        found: &mut Found,
    ) {
        let listed = open_directory(&self.root.join(directory.as_path())).and_then(|open| {
            let record = self.index.as_ref().and_then(|index| index.begin(&open, depth));
            Ok((record, entries_of(open)?.1))
        });
        let (mut record, entries) = match listed {
            Ok(listed) => listed,
            // Removed since its parent was listed.
            Err(Errno::NOENT) => return,
            Err(_) => return found.withheld.push((directory.clone(), LeftOut::Unreadable)),
        };
        if !self.count_ignored(directory, entries.len(), found) {
            return;
        }
        let is_marked = bare_repository::is_marked(|name| {
            entries.iter().any(|entry| entry.file_name().to_bytes() == name)
        });
        let of_git = match is_marked || git_directory::is_linked(self.root, directory) {
            true => OfGit::Directory,
            false if git_directory::is_of_urls_or_keys(self.root, directory) => OfGit::UrlsOrKeys,
            false => OfGit::Nothing,
        };
        for entry in &entries {
            let name = entry.file_name().to_bytes();
            let file_type = match entry.file_type() {
                FileType::Unknown => self.kind_of(directory, name),
                known => known,
            };
            let kind = match found.kind(self.root, (directory, of_git), depth, (name, file_type)) {
                Some(Kind::Directory(_)) => Some(Kind::Directory(places.get(name).copied())),
                kind => kind,
            };
            if let (Some(record), Some(kind)) = (&mut record, kind) {
                record.add(kind, name);
            }
            self.take_ignored_entry(directory, depth, (kind, name), below, found);
        }
        let record = record.map(|record: Listed| record.counting(entries.len()));
        found.seen.extend(record.map(|record| (directory.clone(), Seen::Listed(record))));
    }

    /// Counts the entries of an ignored directory; `false` where that are too many.
    fn count_ignored(&self, directory: &TreePath, entries: usize, found: &mut Found) -> bool {
        let is_within = self.ignored_count.fetch_add(entries, Ordering::Relaxed) <= MAX_IGNORED;
        if !is_within {
            found.withheld.push((directory.clone(), LeftOut::TooMany));
        }
        is_within
    }

    /// Takes an entry of an ignored directory; `kind` is `None` for one that can be shown.
    fn take_ignored_entry(
        &self,
        directory: &TreePath,
        depth: u16,
        (kind, name): (Option<Kind>, &[u8]),
        below: &mut Vec<Directory>,
        found: &mut Found,
    ) {
        if kind.is_none() && self.include.is_empty() && self.exclude.is_empty() {
            return;
        }
        let Ok(path) = directory.join(name) else {
            return found.withheld.push((directory.clone(), LeftOut::TooDeep));
        };
        let is_directory = matches!(kind, Some(Kind::Directory(_)));
        if self.exclude.matched(path.as_path(), is_directory).is_ignore() {
            return found.left_out.push((path, LeftOut::Excluded));
        }
        match kind {
            Some(Kind::Directory(place)) => {
                below.push(Directory::ignored(path, depth.saturating_add(1), place));
            }
            _ if self.is_included(&path, false) => found.included.push(path),
            Some(Kind::Suspect) if self.shows_ignored => {
                let suspicion = secrets::name(&path);
                found.ignored_suspects.push((path, suspicion));
            }
            Some(Kind::Special) if self.shows_ignored => found.withheld.push((path, LeftOut::Special)),
            _ => {}
        }
    }

    fn kind_of(&self, directory: &TreePath, name: &[u8]) -> FileType {
        let path = self.root.join(directory.as_path()).join(OsStr::from_bytes(name));
        rustix::fs::lstat(path).map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
    }

    /// Withholds the secrets among the ignored files.
    pub(super) fn judge_ignored(&self, found: &mut Found) {
        let suspects = std::mem::take(&mut found.ignored_suspects);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let judge = |suspects: &[(TreePath, Suspicion)]| {
            let mut withheld = Vec::new();
            for (path, suspicion) in suspects {
                if path.is_git_internal() && !git_directory::is_needed(self.root, path, true) {
                    withheld.push((path.clone(), LeftOut::UnneededByGit));
                    continue;
                }
                let is_gits = matches!(suspicion, Suspicion::None | Suspicion::Settings)
                    && self.is_judged_as_gits(path);
                match self.is_secret(path, if is_gits { Suspicion::OfGit } else { *suspicion }, true) {
                    Ok(true) => withheld.push((path.clone(), LeftOut::Secret)),
                    Ok(false) => {}
                    // Removed since it was listed.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(_) => withheld.push((path.clone(), LeftOut::Unreadable)),
                }
            }
            withheld
        };
        std::thread::scope(|scope| {
            let shares = suspects.chunks(suspects.len().div_ceil(threads).max(64));
            let shares: Vec<_> = shares.map(|share| scope.spawn(move || judge(share))).collect();
            for share in shares {
                match share.join() {
                    Ok(withheld) => found.withheld.extend(withheld),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_base::machine::Machine;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::Arc;
    use std::{fs, io};

    /// A project with ignored directories, and a home for the index.
    struct Project(tempfile::TempDir);

    impl Project {
        fn new() -> Self {
            let project = Self(tempfile::tempdir().unwrap());
            for file in
                ["modules/a/index.js", "modules/a/lib/x.js", "modules/b/key.pem", "modules/b/package.json"]
            {
                project.file(file, "1");
            }
            project
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join("project").join(name)
        }

        fn file(&self, name: &str, content: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), content).unwrap();
        }

        fn index_file(&self) -> io::Result<PathBuf> {
            let mut files = fs::read_dir(self.0.path().join("home/cache/ignored"))?;
            files.next().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into())).map(|entry| entry.path())
        }

        /// The index as a process opens it that begins `seconds` from now; `None` where the temporary directory has no reliable
        /// change times.
        fn look(&self, ignored: &[&str], seconds: i64) -> Option<Vec<String>> {
            let home = self.0.path().join("home");
            let machine = Arc::new(Machine::new([("AGENT_HOME".into(), home.into())]));
            let (root, options) = (self.path(""), SelectOptions::new(machine));
            let index = Index::open(&root, &options.machine)?.beginning(seconds);
            let ignored: Vec<TreePath> =
                ignored.iter().map(|name| TreePath::new(name.as_bytes()).unwrap()).collect();
            let found = withheld_by(&root, &options, &ignored, Some(index)).unwrap();
            Some(found.keys().map(ToString::to_string).collect())
        }

        /// A look when all is settled, whether it listed something, and what it found.
        fn later(&self) -> Option<(bool, Vec<String>)> {
            let written =
                || self.index_file().and_then(fs::metadata).map(|file| (file.ino(), file.mtime_nsec())).ok();
            let before = written();
            let found = self.look(&["modules"], 3600)?;
            Some((before.is_none() || written() != before, found))
        }
    }

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n";

    #[test]
    fn only_what_has_changed_is_listed_again() {
        let project = Project::new();
        let Some(first) = project.later() else { return };
        assert_eq!(first, (true, vec![]));
        assert_eq!(project.later().unwrap(), (false, vec![]));
        project.file("modules/a/lib/.env", "KEY=1");
        project.file("modules/new/deep/id_rsa", "1");
        assert!(Command::new("mkfifo").arg(project.path("modules/b/pipe")).status().unwrap().success());
        let found =
            ["modules/a/lib/.env", "modules/b/pipe", "modules/new/deep/id_rsa"].map(str::to_owned).to_vec();
        assert_eq!(project.later().unwrap(), (true, found.clone()));
        assert_eq!(project.later().unwrap(), (false, found));
        fs::remove_dir_all(project.path("modules/new")).unwrap();
        fs::rename(project.path("modules/a"), project.path("modules/c")).unwrap();
        let found = ["modules/b/pipe", "modules/c/lib/.env"].map(str::to_owned).to_vec();
        assert_eq!(project.later().unwrap(), (true, found.clone()));
        assert_eq!(project.later().unwrap(), (false, found));
    }

    #[test]
    fn contents_are_read_each_time() {
        let project = Project::new();
        let Some(first) = project.later() else { return };
        assert_eq!(first, (true, vec![]));
        // Neither changes its directory.
        fs::write(project.path("modules/b/key.pem"), KEY).unwrap();
        assert_eq!(project.later().unwrap(), (false, vec!["modules/b/key.pem".to_owned()]));
        fs::write(project.path("modules/b/key.pem"), "1").unwrap();
        assert_eq!(project.later().unwrap(), (false, vec![]));
    }

    #[test]
    fn what_changed_just_now_is_not_recorded() {
        let project = Project::new();
        let Some(found) = project.look(&["modules"], 0) else { return };
        assert!(found.is_empty() && project.index_file().is_err(), "nothing is settled");
        project.file("modules/a/.env", "KEY=1");
        assert_eq!(project.look(&["modules"], 0).unwrap(), ["modules/a/.env"]);
    }

    /// The times that programs can set are not those that count.
    #[test]
    fn a_directory_in_the_place_of_another_is_listed() {
        let project = Project::new();
        project.file("modules/other/.env", "KEY=1");
        let Some(first) = project.later() else { return };
        assert_eq!(first.1, ["modules/other/.env"]);
        let swap = "mv modules/other aside && mv modules/a modules/other && mv aside modules/a && touch -r ../home modules";
        let done = Command::new("sh").args(["-c", swap]).current_dir(project.path("")).status().unwrap();
        assert!(done.success());
        assert_eq!(project.later().unwrap(), (true, vec!["modules/a/.env".to_owned()]));
    }

    #[test]
    fn of_a_git_directory_that_is_ignored_only_what_git_needs_is_shown() {
        let project = Project::new();
        for file in
            ["HEAD", "refs/heads/main", "objects/aa/bb", "git-crypt/keys/default", "config~", "hooks/x.key"]
        {
            project.file(&format!("modules/a/.git/{file}"), "1");
        }
        project.file("modules/a/.git/logs/HEAD", "pull https://u:p@h/x\n");
        project.file("modules/a/.git/FETCH_HEAD", "of https://h/x\n");
        let Some(first) = project.later() else { return };
        let found =
            ["config~", "git-crypt/keys/default", "logs/HEAD"].map(|name| format!("modules/a/.git/{name}"));
        assert_eq!(first.1, found);
        assert_eq!(project.later().unwrap(), (false, found.to_vec()));
    }

    /// Keys and logs were shown where the directory is not called `.git`.
    #[test]
    fn of_a_git_directory_of_another_name_that_is_ignored_no_keys_are_shown() {
        let project = Project::new();
        for file in
            ["HEAD", "refs/heads/main", "objects/aa/bb", "git-crypt/keys/default", "credentials", "svn/auth"]
        {
            project.file(&format!("modules/a.git/{file}"), "1");
        }
        for file in ["logs/refs/heads/main", "branches/old", "worktrees/w/logs/HEAD"] {
            project.file(&format!("modules/a.git/{file}"), "url = https://u:p@h/x\n");
        }
        for file in ["config", "config.bak", "worktrees/w/config.worktree"] {
            project.file(&format!("modules/a.git/{file}"), "[http]\n\textraheader = token\n");
        }
        // Nothing of it is git's.
        project.file("modules/a/logs/x", "pull https://u:p@h/x\n");
        let Some(first) = project.later() else { return };
        let found = [
            "branches/old",
            "config",
            "config.bak",
            "credentials",
            "git-crypt/keys/default",
            "logs/refs/heads/main",
            "svn/auth",
            "worktrees/w/config.worktree",
            "worktrees/w/logs/HEAD",
        ];
        let found = found.map(|name| format!("modules/a.git/{name}"));
        assert_eq!(first.1, found);
        assert_eq!(project.later().unwrap(), (false, found.to_vec()));
    }

    /// Settings are read where they lie directly in what is ignored, which may be another directory than before.
    #[test]
    fn what_is_ignored_elsewhere_than_before_is_listed() {
        let project = Project::new();
        project.file("modules/b/package.json", &format!("{{\"key\": \"{KEY}\"}}"));
        project.file("modules/b/settings.conf", KEY);
        let Some(first) = project.later() else { return };
        assert_eq!(first, (true, vec![]));
        assert_eq!(project.look(&["modules/b"], 3600).unwrap(), ["modules/b/settings.conf"]);
    }

    #[test]
    fn an_index_that_is_damaged_or_somebody_elses_does_not_count() {
        let project = Project::new();
        project.file("modules/a/.env", "KEY=1");
        let Some((_, found)) = project.later() else { return };
        assert_eq!(found, ["modules/a/.env"]);
        let file = project.index_file().unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let whole = fs::read(&file).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&file, damaged).unwrap();
            assert_eq!(project.look(&["modules"], 0).unwrap(), ["modules/a/.env"], "byte {at}");
            fs::write(&file, &whole[..at]).unwrap();
            assert_eq!(project.look(&["modules"], 0).unwrap(), ["modules/a/.env"], "{at} bytes");
        }
        fs::write(&file, whole).unwrap();
        assert!(!project.later().unwrap().0);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(project.later().unwrap().0, "others could have written it");
    }
}
