//! A commit of what an apply wrote, and of nothing else, with git of this machine.
//!
//! The commit is made beside the user's index, which then gets the same files. A file with other changes of the user's,
//! staged or not, is merged: those stay as they were. Nothing of the repository is executed: no hook, because hooks run
//! files that the session may have written, no filter, and nothing that its configuration names. git works with the
//! repository's objects and index from an empty repository of ours, with those settings alone that say how files are
//! stored (`KEPT`).

use crate::changes::Change;
use crate::changes::ChangeSet;
use crate::diff::Side;
use crate::git_blob::Blob;
use crate::manifest::Node;
use crate::merge;
use crate::repository;
use crate::repository::Obstacle;
use crate::repository::Repository;
use crate::store::MAX_IN_MEMORY;
use crate::store::Store;
use crate::tracked::is_sha256;
use crate::transfer::MAX_CONFIG;
use crate::tree_path::TreePath;
use agent_base::error::Error;
use agent_base::error::Kind;
use agent_base::error::Result;
use agent_base::host_git;
use agent_base::host_git::Failure;
use agent_base::machine::{COMMITTER_NAMES, Machine};
use agent_base::sanitise;
use rustix::process::Resource;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The time limit for one call of git, and the size limit of its answer, in bytes.
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_ANSWER: u64 = 64 << 20;
/// Paths of one call.
const PATHS_AT_ONCE: usize = 200;
/// Subjects of earlier commits.
const SUBJECTS: &str = "--max-count=8";
/// The user's settings that decide what is stored of a file. None of them names a program.
const KEPT: [&str; 12] = [
    "core.attributesfile",
    "core.autocrlf",
    "core.checkroundtripencoding",
    "core.eol",
    "core.excludesfile",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.protecthfs",
    "core.protectntfs",
    "core.safecrlf",
    "core.sharedrepository",
    "i18n.commitencoding",
];
/// Hooks that a commit of the user's own would run.
const HOOKS: [&str; 4] = ["pre-commit", "prepare-commit-msg", "commit-msg", "post-commit"];

/// A file of the commit.
struct Entry {
    /// From the top of the work tree.
    path: Vec<u8>,
    /// The file in the commit; `None` for a deletion.
    committed: Option<Blob>,
    /// The file in the user's index.
    staged: Option<Blob>,
}

/// A commit that can be made.
pub struct CommitPlan {
    git: Git,
    head: Option<String>,
    entries: Vec<Entry>,
    remarks: Vec<String>,
}

/// A commit that was made.
#[derive(Debug)]
pub struct Made {
    /// Its id.
    pub id: String,
    /// `a1b2c3d on main`
    pub name: String,
    /// Remarks for the user, a sentence each.
    pub remarks: Vec<String>,
}

impl CommitPlan {
    /// Looks whether `written`, changes from what the host had to what it gets, can be committed. Writes nothing but contents
    /// into the repository. Blocking.
    ///
    /// # Errors
    /// There is no repository, something else is under way in it, or the user's own changes are in the way.
    pub fn new(root: &Path, written: &ChangeSet, store: &Store, machine: &Machine) -> Result<Self> {
        let git = Git::open(root, machine)?;
        git.refuse_what_is_under_way()?;
        let head = git.place.ask(&["rev-parse", "--verify", "-q", "HEAD^{commit}"]).ok();
        let mut plan = Self { remarks: git.left_undone(), git, head, entries: Vec::new() };
        let files: Vec<(&TreePath, &Change)> =
            written.changes.iter().filter(|(_, change)| !change.is_directory_only()).collect();
        let paths: Vec<Vec<u8>> = files
            .iter()
            .map(|(path, _)| [plan.git.place.prefix.as_bytes(), path.as_bytes()].concat())
            .collect();
        plan.git.refuse_other_repositories(root, &files)?;
        let local = listed(files.iter().map(|(path, _)| path.as_bytes()));
        plan.git.refuse_filters(&local)?;
        let ignored = plan.git.ignored(&local);
        let committed = plan.git.head_entries(plan.head.as_deref(), &paths)?;
        let staged = plan.git.entries(&paths)?;
        for ((path, change), name) in files.into_iter().zip(paths) {
            let is_untracked = !committed.contains_key(&name) && change.before.is_some();
            if ignored.iter().any(|ignored| ignored == path.as_bytes()) || is_untracked {
                let why = if is_untracked { "git did not track it before" } else { ".gitignore names it" };
                plan.remarks.push(format!("{path} is not in the commit: {why}"));
                continue;
            }
            let found = (committed.get(&name), staged.get(&name));
            plan.entries.push(plan.entry(path, change, name, found, store)?);
        }
        Ok(plan)
    }

    fn entry(
        &self,
        path: &TreePath,
        change: &Change,
        name: Vec<u8>,
        (head, index): (Option<&Blob>, Option<&Blob>),
        store: &Store,
    ) -> Result<Entry> {
        let conflict = |what: &str| {
            Error::new(
                Kind::Conflict,
                format!("nothing was committed: {path} has {what} of yours in the same lines"),
            )
            .hint("commit or stash them first, or apply without --commit")
        };
        let before = self.git.blob(&name, change.before.as_ref(), store, false)?;
        let after = self.git.blob(&name, change.after.as_ref(), store, true)?;
        let committed = match (before.as_ref(), head) {
            (before, head) if before == head => after,
            (Some(before), Some(head)) => {
                // What was uncommitted is not in the repository yet, and a merge reads it there.
                self.git.blob(&name, change.before.as_ref(), store, true)?;
                let merged = self.git.merged(before, head, after.as_ref())?;
                Some(merged.ok_or_else(|| conflict("uncommitted changes"))?)
            }
            _ => return Err(conflict("uncommitted changes")),
        };
        let staged = match (index, head) {
            (index, head) if index == head => committed.clone(),
            (Some(index), Some(head)) => {
                let merged = self.git.merged(head, index, committed.as_ref())?;
                Some(merged.ok_or_else(|| conflict("staged changes"))?)
            }
            _ => return Err(conflict("staged changes")),
        };
        Ok(Entry { path: name, committed, staged })
    }

    /// Returns whether nothing of it can be committed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the reasons why files are missing in it, and what git would do otherwise.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// The subjects of the last commits, for their style.
    pub fn subjects(&self) -> String {
        // What another repository has is not for the model's endpoint.
        let Some(head) = self.head.as_deref().filter(|_| !self.git.place.is_borrowing) else {
            return String::new();
        };
        let listed = self.git.text(&["rev-list", SUBJECTS, "--no-merges", "--format=%s", head, "--"]);
        // Each has a line with the commit above it.
        let subjects: String =
            listed.unwrap_or_default().lines().skip(1).step_by(2).map(|line| format!("{line}\n")).collect();
        sanitise::plain(&subjects).into_owned()
    }

    /// Makes the commit. Blocking.
    ///
    /// # Errors
    /// Nothing changed since the last commit, or git failed.
    pub fn commit(self, message: &str) -> Result<Made> {
        let Self { git, head, entries, mut remarks } = self;
        let scratch = tempfile::TempDir::new()?;
        let beside = git.with_index(&scratch.path().join("index"));
        if let Some(head) = &head {
            beside.read_tree(head)?;
        }
        beside.update(entries.iter().map(|entry| (&entry.path, &entry.committed)))?;
        // What a partial clone has not fetched is as the last commit has it.
        let tree = beside.text(&["write-tree", "--missing-ok"])?;
        let unchanged = head.as_ref().map(|head| git.text(&["rev-parse", &format!("{head}^{{tree}}")]));
        if unchanged.transpose()?.as_ref() == Some(&tree) {
            return Err(Error::usage("nothing was committed: the last commit has all of this already"));
        }
        let parents: Vec<&str> = head.iter().flat_map(|head| ["-p", head]).collect();
        let arguments = [&["commit-tree", &tree, "-F", "-"], parents.as_slice()].concat();
        let commit = String::from_utf8_lossy(&git.run(&arguments, message.as_bytes())?).trim().to_owned();
        let subject = format!("commit: {}", message.lines().next().unwrap_or_default());
        // An empty old value: the branch must not exist yet.
        let old = head.unwrap_or_else(|| "0".repeat(commit.len()));
        git.place.ask(&["update-ref", "-m", &subject, "HEAD", &commit, &old])?;
        if let Err(error) = git.update(entries.iter().map(|entry| (&entry.path, &entry.staged))) {
            remarks.push(format!("the index could not be brought up to date ({error}): git reset does it"));
        }
        let branch = git.place.ask(&["symbolic-ref", "--short", "-q", "HEAD"]);
        let branch = branch.unwrap_or_else(|_| "a detached HEAD".to_owned());
        let name = format!("{} on {}", &commit[..commit.len().min(10)], sanitise::one_line(&branch, 60));
        Ok(Made { id: commit, name, remarks })
    }
}

/// git with an index.
struct Git {
    place: Arc<CommitTarget>,
    index: PathBuf,
}

/// The repository of a workspace, and the one of ours that git works in.
struct CommitTarget {
    machine: Machine,
    root: PathBuf,
    repository: Repository,
    /// Set if objects of it are in other repositories.
    is_borrowing: bool,
    /// The workspace's path in the work tree, with a slash at its end; empty at the top.
    prefix: String,
    /// The settings as the user's git has them, names in lower case but for what is between the dots.
    settings: Vec<(String, String)>,
    /// The committer, as variables.
    identity: Vec<(&'static str, String)>,
    /// An empty repository.
    apart: tempfile::TempDir,
}

impl CommitTarget {
    fn open(root: &Path, machine: &Machine) -> Result<Self> {
        let refused = |obstacle: Obstacle| {
            Error::usage(format!("this repository is not committed to: {obstacle}"))
                .hint("commit with git; `git worktree repair` there makes a linked work tree's repository name it again")
        };
        let not_in_one =
            || Error::usage(format!("{} is not in a repository that can be committed to", root.display()));
        let repository = Repository::find(root).map_err(refused)?.ok_or_else(not_in_one)?;
        repository.check_written().map_err(refused)?;
        let mut place = Self {
            machine: machine.clone(),
            root: root.to_owned(),
            is_borrowing: !repository.borrowed().map_err(refused)?.is_empty(),
            repository,
            prefix: String::new(),
            settings: Vec::new(),
            identity: Vec::new(),
            apart: tempfile::TempDir::new()?,
        };
        let found =
            ["rev-parse", "--absolute-git-dir", "--git-common-dir", "--show-toplevel", "--show-prefix"];
        let found = place.ask(&found).map_err(|error| not_in_one().caused_by(error))?;
        let found: Vec<&str> = found.split('\n').collect();
        let Repository { git_dir, common, top, .. } = &place.repository;
        let is = |at: usize, expected: &Path| {
            found
                .get(at)
                .is_some_and(|path| root.join(path).canonicalize().is_ok_and(|path| path == expected))
        };
        if !is(0, git_dir) || !is(1, common) || !is(2, top) {
            return Err(refused(Obstacle::Stranger(top.join(".git"))));
        }
        place.prefix = found.get(3).copied().unwrap_or_default().to_owned();
        place.settings = place.read_settings()?;
        place.identity = place.who_commits()?;
        place.furnish()?;
        Ok(place)
    }

    fn no_git() -> Error {
        Error::usage("there is no git to commit with").hint("install it, or apply without --commit")
    }

    fn read_settings(&self) -> Result<Vec<(String, String)>> {
        let mut git = host_git::config(&self.root, &self.machine).ok_or_else(Self::no_git)?;
        git.args(["--list", "-z"]);
        let listed = host_git::run(git, b"", TIMEOUT, MAX_ANSWER).map_err(|failure| failed(&failure))?;
        let listed = String::from_utf8_lossy(&listed);
        let settings = listed.split('\0').filter(|entry| !entry.is_empty());
        // A name alone stands for `true`.
        let setting = |entry: &str| {
            let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
            (name.to_owned(), value.to_owned())
        };
        Ok(settings.map(setting).collect())
    }

    /// The last value of a setting.
    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns what the environment says about who commits. An empty variable says nothing, but git would take it.
    fn who(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        let set = |name| self.machine.variable(name).filter(|value| !value.is_empty());
        COMMITTER_NAMES.into_iter().filter_map(move |name| Some((name, set(name)?)))
    }

    fn who_commits(&self) -> Result<Vec<(&'static str, String)>> {
        let identities = [
            ("GIT_AUTHOR_IDENT", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"),
            ("GIT_COMMITTER_IDENT", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
        ];
        let mut identity = Vec::new();
        for (variable, name, email) in identities {
            let unknown = || {
                Error::usage("git does not know who commits").hint(
                    "git config --global user.name NAME; git config --global user.email ADDRESS; or set GIT_AUTHOR_NAME, \
                     GIT_AUTHOR_EMAIL, GIT_COMMITTER_NAME and GIT_COMMITTER_EMAIL",
                )
            };
            // `A User <user@example.org> 1700000000 +0000`
            let person = self.ask(&["var", variable]).map_err(|error| unknown().caused_by(error))?;
            let (of_name, rest) = person.split_once(" <").ok_or_else(unknown)?;
            let (of_email, _) = rest.split_once('>').ok_or_else(unknown)?;
            identity.extend([(name, of_name.to_owned()), (email, of_email.to_owned())]);
        }
        Ok(identity)
    }

    /// Makes the empty repository, with what decides about paths beside their own rules, and with the parts of a split index.
    fn furnish(&self) -> Result<()> {
        let Repository { git_dir, common, .. } = &self.repository;
        let apart = self.apart.path();
        host_git::make_repository(apart, host_git::format_config(is_sha256(common)))?;
        for name in ["info/attributes", "info/exclude"] {
            if let Ok(rules) = repository::read(common, name.as_bytes(), MAX_CONFIG) {
                fs::write(apart.join(name), rules)?;
            }
        }
        for entry in fs::read_dir(git_dir)? {
            let entry = entry?;
            let is_part = entry.file_name().as_bytes().starts_with(b"sharedindex.");
            if is_part && entry.file_type()?.is_file() {
                symlink(entry.path(), apart.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Asks git in the repository itself: where it is, what is set, what `HEAD` is, and to have that changed.
    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut git = host_git::within(&self.root, &self.machine).ok_or_else(Self::no_git)?;
        // Those that lie in files are turned off already.
        for (name, _) in &self.settings {
            if let Some((hook, _)) = name.strip_prefix("hook.").and_then(|name| name.rsplit_once('.')) {
                git.args(["-c", &format!("hook.{hook}.enabled=false")]);
            }
        }
        git.args(arguments).envs(self.who());
        let answer = host_git::run(git, b"", TIMEOUT, MAX_ANSWER).map_err(|failure| failed(&failure))?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Ok(answer.strip_suffix('\n').unwrap_or(&answer).to_owned())
    }
}

impl Git {
    fn open(root: &Path, machine: &Machine) -> Result<Self> {
        let place = Arc::new(CommitTarget::open(root, machine)?);
        Ok(Self { index: place.repository.git_dir.join("index"), place })
    }

    /// The same with another index.
    fn with_index(&self, index: &Path) -> Self {
        Self { place: Arc::clone(&self.place), index: index.to_owned() }
    }

    fn refuse_what_is_under_way(&self) -> Result<()> {
        let states = ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply"];
        match states.iter().find(|name| self.place.repository.git_dir.join(name).exists()) {
            None => Ok(()),
            Some(_) => {
                Err(Error::usage("a merge, rebase, cherry-pick or revert is under way in the repository")
                    .hint("finish it first, or apply without --commit"))
            }
        }
    }

    fn refuse_other_repositories(&self, root: &Path, files: &[(&TreePath, &Change)]) -> Result<()> {
        let has_own = |path: &TreePath| {
            path.ancestors().any(|directory| root.join(directory.as_path()).join(".git").exists())
        };
        match files.iter().find(|(path, _)| has_own(path)) {
            None => Ok(()),
            Some((path, _)) => Err(Error::usage(format!("{path} belongs to another repository"))
                .hint("apply without --commit, and commit in each of them")),
        }
    }

    /// A filter (Git LFS) would be a program that the repository chooses.
    fn refuse_filters(&self, paths: &[u8]) -> Result<()> {
        let answer = self.run(&["check-attr", "-z", "--stdin", "filter"], paths)?;
        let fields: Vec<&[u8]> = answer.split(|&byte| byte == 0).collect();
        let filtered = |fields: &&[&[u8]]| !matches!(fields.get(2), Some(&b"unspecified" | &b"unset") | None);
        match fields.chunks_exact(3).find(filtered) {
            None => Ok(()),
            Some(fields) => {
                let name = |bytes: &[u8]| sanitise::one_line(&String::from_utf8_lossy(bytes), 100);
                let message = format!("{} passes the filter {} of git", name(fields[0]), name(fields[2]));
                Err(Error::usage(message).hint("apply without --commit, and commit with git"))
            }
        }
    }

    /// Those of `paths` that git does not track and that an ignore rule names.
    fn ignored(&self, paths: &[u8]) -> Vec<Vec<u8>> {
        // It ends with 1 where nothing is ignored.
        let answer = self.run(&["check-ignore", "-z", "--stdin"], paths).unwrap_or_default();
        answer.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
    }

    fn head_entries(&self, head: Option<&str>, paths: &[Vec<u8>]) -> Result<BTreeMap<Vec<u8>, Blob>> {
        let Some(head) = head else { return Ok(BTreeMap::new()) };
        let scratch = tempfile::TempDir::new()?;
        let beside = self.with_index(&scratch.path().join("index"));
        beside.read_tree(head)?;
        beside.entries(paths)
    }

    /// Returns what the index has of `paths`.
    fn entries(&self, paths: &[Vec<u8>]) -> Result<BTreeMap<Vec<u8>, Blob>> {
        let mut entries = BTreeMap::new();
        for some in paths.chunks(PATHS_AT_ONCE) {
            let mut arguments: Vec<&OsStr> =
                ["--literal-pathspecs", "ls-files", "-s", "-z", "--full-name", "--"].map(OsStr::new).to_vec();
            let from_top: Vec<Vec<u8>> = some.iter().map(|path| self.in_directory(path)).collect();
            arguments.extend(from_top.iter().map(|path| OsStr::from_bytes(path)));
            for line in self.run(&arguments, b"")?.split(|&byte| byte == 0).filter(|line| !line.is_empty()) {
                let Some((facts, path)) = split_at_tab(line) else { continue };
                let facts = String::from_utf8_lossy(facts).into_owned();
                let [mode, id, stage] = facts.split(' ').collect::<Vec<_>>()[..] else { continue };
                if stage != "0" {
                    return Err(Error::usage("the repository's index has files that are not merged")
                        .hint("resolve them first, or apply without --commit"));
                }
                // A file in the place of which there is a directory lists what is in that.
                if some.iter().any(|wanted| wanted == path) {
                    entries.insert(path.to_vec(), Blob { mode: mode.to_owned(), id: id.to_owned() });
                }
            }
        }
        Ok(entries)
    }

    /// A path of the work tree as git takes it in the workspace's directory.
    fn in_directory(&self, path: &[u8]) -> Vec<u8> {
        path.strip_prefix(self.place.prefix.as_bytes()).unwrap_or(path).to_vec()
    }

    /// The name that git has for a node; with `keep` its content gets into the repository.
    fn blob(&self, path: &[u8], node: Option<&Node>, store: &Store, keep: bool) -> Result<Option<Blob>> {
        let Some(node) = node.filter(|node| !node.is_directory()) else { return Ok(None) };
        let Side::Content(content) = Side::load(Some(node), store, MAX_IN_MEMORY)? else {
            return Err(Error::usage(format!("{} is too large to commit", String::from_utf8_lossy(path)))
                .hint("apply without --commit, and commit with git"));
        };
        let mode = match node {
            Node::Symlink { .. } => "120000",
            Node::File { mode, .. } if mode & 0o100 != 0 => "100755",
            Node::File { .. } | Node::Directory { .. } => "100644",
        };
        // Line ends are converted as the attributes of the path say.
        let place = [b"--path=".as_slice(), &self.in_directory(path)].concat();
        let place = if mode == "120000" { OsStr::new("--no-filters") } else { OsStr::from_bytes(&place) };
        let mut arguments = vec![OsStr::new("hash-object"), place, OsStr::new("--stdin")];
        arguments.extend(keep.then_some(OsStr::new("-w")));
        let id = String::from_utf8_lossy(&self.run(&arguments, &content)?).trim().to_owned();
        Ok(Some(Blob { mode: mode.to_owned(), id }))
    }

    /// Returns what `ours` becomes by the change from `base` to `theirs`; `None` where both changed the same lines.
    fn merged(&self, base: &Blob, ours: &Blob, theirs: Option<&Blob>) -> Result<Option<Blob>> {
        let Some(theirs) = theirs else { return Ok(None) };
        let mode = if base.mode == theirs.mode { &ours.mode } else { &theirs.mode };
        if base.id == theirs.id {
            return Ok(Some(Blob { mode: mode.clone(), id: ours.id.clone() }));
        }
        if [base, ours, theirs].iter().any(|blob| blob.mode == "120000" || blob.mode == "160000") {
            return Ok(None);
        }
        let content = |blob: &Blob| self.run(&["cat-file", "blob", &blob.id], b"");
        let (base, ours, theirs) = (content(base)?, content(ours)?, content(theirs)?);
        let Ok(merged) = merge::lines_merged(&base, &ours, &theirs) else { return Ok(None) };
        let id = self.run(&["hash-object", "-w", "--no-filters", "--stdin"], &merged)?;
        Ok(Some(Blob { mode: mode.clone(), id: String::from_utf8_lossy(&id).trim().to_owned() }))
    }

    /// Writes entries into the index.
    fn update<'a>(
        &self,
        entries: impl Iterator<Item = (&'a Vec<u8>, &'a Option<Blob>)> + Clone,
    ) -> Result<()> {
        let mut input = Vec::new();
        // Deletions first: a directory may take the place of a file.
        for (path, _) in entries.clone().filter(|(_, blob)| blob.is_none()) {
            input.extend([b"0 0000000000000000000000000000000000000000\t", path.as_slice(), b"\0"].concat());
        }
        for (path, blob) in entries {
            if let Some(Blob { mode, id }) = blob {
                input.extend([format!("{mode} {id}\t").as_bytes(), path, b"\0"].concat());
            }
        }
        self.run(&["update-index", "-z", "--index-info"], &input).map(drop)
    }

    /// Returns what the user's own `git commit` would do, and this one does not.
    fn left_undone(&self) -> Vec<String> {
        let CommitTarget { repository, settings, .. } = &*self.place;
        let hooks = match self.place.setting("core.hookspath") {
            None | Some("") => repository.common.join("hooks"),
            Some(path) => repository.top.join(path),
        };
        let in_files = HOOKS.into_iter().filter(|name| hooks.join(name).is_file());
        let set = settings.iter().filter(|(name, _)| name.starts_with("hook.") && name.ends_with(".event"));
        let set = set.filter_map(|(_, event)| HOOKS.into_iter().find(|name| name == event));
        let named: BTreeSet<&str> = in_files.chain(set).collect();
        let mut remarks = Vec::new();
        if !named.is_empty() {
            remarks.push(format!(
                "hooks were not run ({}): they may execute what the session wrote; git commit --amend runs them",
                named.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
        let is_signed = self.place.setting("commit.gpgsign").map(str::to_ascii_lowercase);
        if is_signed.is_some_and(|value| matches!(value.as_str(), "true" | "yes" | "on" | "1")) {
            remarks.push("the commit is not signed; git commit --amend signs it".to_owned());
        }
        remarks
    }

    fn text(&self, arguments: &[&str]) -> Result<String> {
        let answer = String::from_utf8_lossy(&self.run(arguments, b"")?).into_owned();
        Ok(answer.strip_suffix('\n').unwrap_or(&answer).to_owned())
    }

    /// Makes the index that of a commit.
    fn read_tree(&self, commit: &str) -> Result<()> {
        let most = [(Resource::Data, host_git::TREE_MEMORY)];
        let git = self.call(&["read-tree", commit])?;
        host_git::run_within(&most, git, b"", TIMEOUT, MAX_ANSWER)
            .map(drop)
            .map_err(|failure| failed(&failure))
    }

    /// Runs git beside the repository.
    fn run(&self, arguments: &[impl AsRef<OsStr>], input: &[u8]) -> Result<Vec<u8>> {
        let git = self.call(arguments)?;
        host_git::run(git, input, TIMEOUT, MAX_ANSWER).map_err(|failure| failed(&failure))
    }

    fn call(&self, arguments: &[impl AsRef<OsStr>]) -> Result<Command> {
        let CommitTarget { machine, root, repository, settings, identity, apart, .. } = &*self.place;
        let mut git = host_git::apart(apart.path(), root, machine).ok_or_else(CommitTarget::no_git)?;
        git.env("GIT_WORK_TREE", &repository.top)
            .env("GIT_OBJECT_DIRECTORY", repository.common.join("objects"))
            .env("GIT_INDEX_FILE", &self.index)
            .envs(self.place.who())
            .envs(identity.iter().map(|(name, value)| (name, value)));
        for (name, value) in settings.iter().filter(|(name, _)| KEPT.contains(&name.as_str())) {
            git.args(["-c", &format!("{name}={value}")]);
        }
        // The parts of a split one would lie here.
        git.args(["-c", "core.splitIndex=false"]).args(arguments).current_dir(root);
        Ok(git)
    }
}

fn failed(failure: &Failure) -> Error {
    let said = String::from_utf8_lossy(&failure.said).into_owned();
    let why = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it gave no reason");
    Error::usage(format!("git failed: {}", sanitise::one_line(why, 200)))
}

/// Paths as git reads them with `-z`.
fn listed<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    paths.flat_map(|path| [path, b"\0"].concat()).collect()
}

fn split_at_tab(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|&byte| byte == b'\t')?;
    Some((&line[..at], &line[at + 1..]))
}
