//! The commits that were made in the sandbox, on their way into the user's repository as a branch.
//!
//! They are taken from what was recorded of the sandbox's `.git`, and nothing of it is believed. git reads them in empty
//! repositories of our own, beside the host's objects: what is new is packed in one of them and checked in a second one, which
//! has nothing else of the sandbox's, as git checks what a stranger pushes (`index-pack --strict`). Then that one pack is put
//! beside the host's, and the branch is written. No git runs in the user's repository: its configuration and its hooks are not
//! read, and nothing is checked out; the attributes of the files are.

mod blobs;
mod overwriting;
mod taking_back;

use crate::bare_repository::{self, repositories};
use crate::changes::{Change, ChangeSet};
use crate::host_dir::HostDir;
use crate::manifest::{Delta, Manifest, Node, Target};
use crate::notices::listed;
use crate::outer_repository::SETTING;
use crate::repository::{Obstacle, Repository};
use crate::risks;
use crate::store::Store;
use crate::symlinks::{self, Symlinks};
use crate::tracked::{is_sha256, last_commit, object_name};
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_base::host_git::{self, Failure};
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use agent_base::sanitise::one_line;
use rustix::process::Resource;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The time limit for one call of git.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of an answer of git.
const MAX_ANSWER: u64 = 64 << 20;
/// Bytes of all objects that are taken, and of each file that git makes of them.
const MAX_OBJECTS: u64 = 1 << 30;
/// Commits that one branch may bring.
const MAX_COMMITS: usize = 10_000;
/// Commits that the question lists.
const MAX_LISTED: usize = 20;
/// Columns of a commit's subject, and of what git says.
const SUBJECT: usize = 100;
const SAID: usize = 300;
/// The bounds on the memory that git takes, since a few bytes of the sandbox's may stand for any number of them: in all, for a list of
/// the files that the commits change (fifty thousand take less than 32 MB, a hundred thousand, the most of a workspace, twice that),
/// and through the size from which the content of a file is read piece by piece.
const MAX_MEMORY: u64 = 512 << 20;
const LIST_MEMORY: u64 = 128 << 20;
const SETTINGS: [&str; 6] = [
    "core.bigFileThreshold=16m",
    "core.commitGraph=false",
    "core.deltaBaseCacheLimit=32m",
    "pack.deltaCacheSize=32m",
    "pack.threads=2",
    "pack.windowMemory=64m",
];
/// Largest file with references, and largest file with one.
const MAX_PACKED: u64 = 16 << 20;
const MAX_REFERENCE: u64 = 4096;
/// Modes of git for what is not a regular file.
const SYMLINK: &str = "120000";
const SUBMODULE: &str = "160000";
/// Changes of files that are called `HEAD` and are read; more are refused unread.
const MAX_HEADS: usize = 200;
/// In place of the mode of a file that a commit removes.
const GONE: &str = "000000";

/// The recorded state of the sandbox.
pub struct Recorded<'a> {
    /// The workspace on the host.
    pub root: &'a Path,
    /// The tree that the session began with.
    pub base: &'a Manifest,
    /// Differences of the sandbox from the base.
    pub delta: &'a Delta,
    /// Contents.
    pub store: &'a Store,
    /// Object directories of the user's that the host's repository may take objects from.
    pub object_stores: &'a [PathBuf],
    /// The files that the sandbox has otherwise than the base.
    pub own: &'a BTreeSet<TreePath>,
}

/// Commits that passed every check, and are not in the user's repository yet.
pub struct InnerCommits {
    /// The last of them.
    pub id: String,
    /// The subjects with the beginning of each name, newest first; safe to show.
    pub subjects: Vec<String>,
    files: CommittedFiles,
    /// The user's.
    repository: Repository,
    checked: Quarantine,
    /// The pack with its index, in that repository.
    pack: String,
}

impl InnerCommits {
    /// Finds and checks what the sandbox's branch has that the user's repository has not. Blocking.
    ///
    /// # Errors
    /// There is none, or it fails a check.
    pub fn find(recorded: &Recorded<'_>, machine: &Machine) -> Result<Self> {
        let repository = repository(recorded)?;
        let id = head(recorded)?;
        let new = || Quarantine::new(&repository.common, recorded.root, machine);
        let (found, checked) = (new()?, new()?);
        found.take(recorded)?;
        let range = range(&id, &checked.present(&known(&repository)?)?);
        found.refuse_count(&range, recorded)?;
        let pack = found.pack_into(&checked, &range)?;
        // Only here is each object what its name says.
        let files = checked.refuse_tricks(&range, recorded)?;
        checked.refuse_bare_repositories(&files.written, &id)?;
        let subjects = checked.subjects(&range)?;
        let commits = Self { id, subjects, files, repository, checked, pack };
        commits.refuse_overwriting()?;
        commits.refuse_taking_back(recorded, &range)?;
        Ok(commits)
    }

    /// The commits as lines for the user, with those of their files that other programs execute, and the files that only they or only `shown`,
    /// the diff, have.
    pub fn summary(&self, shown: &ChangeSet) -> String {
        let count = self.subjects.len();
        let mut text = format!("{count} commit{}:\n", if count == 1 { "" } else { "s" });
        for subject in self.subjects.iter().take(MAX_LISTED) {
            text += &format!("  {subject}\n");
        }
        if count > MAX_LISTED {
            text += &format!("  … and {} more\n", count - MAX_LISTED);
        }
        if let Some(risks) = risks::of_new_files(self.files.written.iter().cloned()) {
            text += &format!("{risks}\n");
        }
        let others = self.files.all().filter(|path| !shown.changes.contains_key(*path));
        if let Some(named) = listed(others.map(ToString::to_string), MAX_LISTED) {
            text += &format!("Changed by the commits, and not in the diff: {named}\n");
        }
        let is_left =
            |path: &TreePath, change: &Change| !change.is_directory_only() && !self.files.contains(path);
        let left = shown.changes.iter().filter(|(path, change)| !path.is_outside() && is_left(path, change));
        if let Some(named) = listed(left.map(|(path, _)| path.to_string()), MAX_LISTED) {
            text += &format!("In the diff, and not committed: {named}\n");
        }
        text
    }

    /// Puts the objects into the user's repository and writes the branch. Blocking.
    ///
    /// # Errors
    /// The name is not one of a branch; the branch is checked out, or exists and is not an ancestor.
    pub fn write(&self, branch: &str) -> Result<()> {
        let reference = format!("refs/heads/{branch}");
        let is_name = !branch.starts_with('-')
            && branch != "HEAD"
            && self.checked.git(&["check-ref-format", &reference], b"").is_ok();
        if !is_name {
            let shown = one_line(branch, SUBJECT);
            return Err(Error::usage(format!("{shown:?} is not a valid name of a branch")));
        }
        let common = &self.repository.common;
        if common.join("reftable").exists() {
            return Err(Error::usage(
                "the repository keeps its branches in a reftable, which is not written",
            ));
        }
        self.refuse_checked_out(&reference)?;
        let path = common.join(&reference);
        let parent = path.parent().ok_or_else(failed)?;
        let taken = |error: std::io::Error| {
            Error::usage(format!("the branch {branch} cannot be written")).caused_by(error)
        };
        DirBuilder::new().recursive(true).create(parent).map_err(taken)?;
        if !parent.canonicalize()?.starts_with(common) {
            return Err(Error::usage(format!("{} leads out of the repository", parent.display())));
        }
        // As git does: who has this file may write the branch.
        let lock = parent.join(format!("{}.lock", path.file_name().unwrap_or_default().to_string_lossy()));
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o644).open(&lock).map_err(taken)?;
        let written = self.refuse_other_history(branch, &reference).and_then(|()| {
            self.copy_pack()?;
            file.write_all(format!("{}\n", self.id).as_bytes())?;
            file.sync_all()?;
            // One that an earlier branch has left is empty, and git removes it as well.
            let _ = fs::remove_dir(&path);
            fs::rename(&lock, &path).map_err(taken)
        });
        if written.is_err() {
            let _ = fs::remove_file(&lock);
        }
        written
    }

    /// A branch that is checked out would differ from its files.
    fn refuse_checked_out(&self, reference: &str) -> Result<()> {
        let Repository { git_dir, common, .. } = &self.repository;
        let trees = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
        let others = trees.map(|entry| entry.path());
        for directory in [git_dir.clone(), common.clone()].into_iter().chain(others) {
            let head = plain_file::read(&directory.join("HEAD"), MAX_REFERENCE, Links::Refuse);
            let head = head.unwrap_or_default();
            if head.strip_prefix(b"ref: ").is_some_and(|name| name.trim_ascii() == reference.as_bytes()) {
                let name = reference.trim_start_matches("refs/heads/");
                return Err(Error::usage(format!("the branch {name} is checked out"))
                    .hint("name another one, and merge it: git merge NAME"));
            }
        }
        Ok(())
    }

    /// A branch that exists may only grow.
    fn refuse_other_history(&self, branch: &str, reference: &str) -> Result<()> {
        let packed = packed(&self.repository.common)?;
        let before = self.users(reference, &packed);
        let nested = |(_, name): &(String, String)| {
            name.starts_with(&format!("{reference}/")) || reference.starts_with(&format!("{name}/"))
        };
        if packed.iter().any(nested) {
            return Err(Error::usage(format!("another branch is in the way of {branch}")));
        }
        let Some(before) = before else { return Ok(()) };
        let grows = object_name(&before).is_some_and(|before| {
            self.checked.git(&["merge-base", "--is-ancestor", &before, &self.id], b"").is_ok()
        });
        match grows {
            true => Ok(()),
            false => {
                Err(Error::new(Kind::Conflict, format!("the branch {branch} exists and has other commits"))
                    .hint("name another branch"))
            }
        }
    }

    /// The text of a reference of the user's, which may be among the packed ones.
    fn users(&self, reference: &str, packed: &[(String, String)]) -> Option<String> {
        let loose = plain_file::read(&self.repository.common.join(reference), MAX_REFERENCE, Links::Refuse);
        let loose = loose.ok().map(|text| String::from_utf8_lossy(text.trim_ascii()).into_owned());
        let is_at = |(_, name): &&(String, String)| *name == reference;
        loose.or_else(|| packed.iter().find(is_at).map(|(id, _)| id.clone()))
    }

    /// The pack first: git looks for packs by their indexes.
    fn copy_pack(&self) -> Result<()> {
        let from = self.checked.directory.path().join("objects/pack");
        let to = self.repository.common.join("objects/pack");
        DirBuilder::new().recursive(true).create(&to)?;
        for suffix in ["pack", "idx"] {
            let name = format!("{}.{suffix}", self.pack);
            if to.join(&name).exists() {
                continue;
            }
            let mut new = tempfile::Builder::new().prefix("tmp_pack_").tempfile_in(&to)?;
            std::io::copy(&mut File::open(from.join(&name))?, &mut new)?;
            new.as_file().set_permissions(fs::Permissions::from_mode(0o444))?;
            new.as_file().sync_all()?;
            new.persist(to.join(&name)).map_err(|error| error.error)?;
        }
        plain_file::sync_directory(&to)?;
        Ok(())
    }
}

/// The files that commits touch.
#[derive(Default)]
struct CommittedFiles {
    /// Those that any of them writes.
    written: BTreeSet<TreePath>,
    /// Those that any of them removes.
    removed: BTreeSet<TreePath>,
}

impl CommittedFiles {
    fn all(&self) -> impl Iterator<Item = &TreePath> {
        self.written.union(&self.removed)
    }

    fn contains(&self, path: &TreePath) -> bool {
        self.written.contains(path) || self.removed.contains(path)
    }
}

/// The user's repository, if it is one that is written to.
fn repository(recorded: &Recorded<'_>) -> Result<Repository> {
    let refused = |obstacle: Obstacle| {
        let error = Error::usage(format!("no branch is written to this repository: {obstacle}"));
        match obstacle {
            Obstacle::Borrows(_) => error.hint(format!("allow it with {SETTING} in config.toml")),
            _ => error.hint("apply the files, and commit them with git"),
        }
    };
    let repository = Repository::find(recorded.root)
        .map_err(refused)?
        .ok_or_else(|| Error::usage("the workspace is not in a repository of git"))?;
    if !repository.prefix.as_os_str().is_empty() {
        return Err(Error::usage("the sandbox had a repository of its own for this subdirectory")
            .hint(format!("start the session in {}, or apply the files", repository.top.display())));
    }
    repository.check_written().map_err(refused)?;
    repository.plain_stores(recorded.object_stores).map_err(refused)?;
    Ok(repository)
}

/// The name of the commit that the sandbox has checked out.
fn head(recorded: &Recorded<'_>) -> Result<String> {
    let none = || Error::usage("nothing was committed in the sandbox");
    let head = content(recorded, ".git/HEAD").ok_or_else(none)?;
    let Some(name) = head.strip_prefix("ref: ") else { return object_name(&head).ok_or_else(none) };
    if let Some(commit) = content(recorded, &format!(".git/{name}")) {
        return object_name(&commit).ok_or_else(none);
    }
    let packed = content(recorded, ".git/packed-refs").unwrap_or_default();
    let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(_, packed)| *packed == name).and_then(|(commit, _)| object_name(commit));
    found.ok_or_else(none)
}

/// The text of a file in the sandbox's tree, if it has one.
fn content(recorded: &Recorded<'_>, path: &str) -> Option<String> {
    let path = TreePath::new(path.as_bytes()).ok()?;
    let node = match recorded.delta.get(&path) {
        Some(changed) => changed.as_ref()?,
        None => recorded.base.get(&path)?,
    };
    let Node::File { hash, size, .. } = node else { return None };
    let bytes = match recorded.store.contains(*hash) {
        true if *size <= MAX_PACKED => recorded.store.read(*hash).ok()?,
        true => return None,
        // The host's own, which the sandbox has not changed.
        false => plain_file::read(&recorded.root.join(path.as_path()), MAX_PACKED, Links::Refuse).ok()?,
    };
    Some(String::from_utf8_lossy(bytes.trim_ascii()).into_owned())
}

/// The commits that the user's repository has, by all its references.
fn known(repository: &Repository) -> Result<Vec<String>> {
    let common = &repository.common;
    let mut known: Vec<String> = packed(common)?.into_iter().map(|(id, _)| id).collect();
    known.extend(last_commit(repository));
    let mut open = vec![common.join("refs")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                let text = plain_file::read(&entry.path(), MAX_REFERENCE, Links::Refuse).unwrap_or_default();
                known.extend(object_name(&String::from_utf8_lossy(text.trim_ascii())));
            }
            if known.len() + open.len() > MAX_ANSWER as usize / 64 {
                return Err(Error::new(Kind::Limit, "the repository has too many references"));
            }
        }
    }
    Ok(known)
}

/// The references that are packed into one file.
fn packed(common: &Path) -> Result<Vec<(String, String)>> {
    let text = match plain_file::read(&common.join("packed-refs"), MAX_PACKED + 1, Links::Refuse) {
        Ok(text) if text.len() as u64 > MAX_PACKED => {
            return Err(Error::new(Kind::Limit, "the repository has too many references"));
        }
        Ok(text) => text,
        Err(_) => return Ok(Vec::new()),
    };
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.filter_map(|(id, name)| Some((object_name(id)?, name.to_owned()))).collect())
}

/// Returns what `--stdin` of rev-list takes: one commit and its ancestors, without others and theirs.
fn range(id: &str, known: &[String]) -> Vec<u8> {
    let without: String = known.iter().map(|known| format!("^{known}\n")).collect();
    format!("{id}\n{without}").into_bytes()
}

/// An empty repository beside the host's objects. Its configuration is ours.
struct Quarantine {
    directory: TempDir,
    root: PathBuf,
    machine: Machine,
}

impl Quarantine {
    fn new(common: &Path, root: &Path, machine: &Machine) -> Result<Self> {
        let directory = TempDir::new()?;
        host_git::make_repository(directory.path(), host_git::format_config(is_sha256(common)))?;
        DirBuilder::new().mode(0o700).create(directory.path().join("objects/pack"))?;
        let alternates = [common.join("objects").as_os_str().as_bytes(), b"\n"].concat();
        fs::write(directory.path().join("objects/info/alternates"), alternates)?;
        // Without `shallow`, git would look for the commits that a shallow clone does not have.
        for name in ["shallow", "info/attributes"] {
            if let Ok(content) = plain_file::read(&common.join(name), MAX_PACKED, Links::Refuse) {
                fs::write(directory.path().join(name), content)?;
            }
        }
        Ok(Self { directory, root: root.to_owned(), machine: machine.clone() })
    }

    /// Takes the objects that are new in the sandbox: single ones as they are, and packs through git, which makes their indexes.
    fn take(&self, recorded: &Recorded<'_>) -> Result<()> {
        let mut bytes = 0_u64;
        for (path, node) in recorded.delta {
            let (Some(Node::File { hash, size, .. }), Ok(path)) =
                (node, std::str::from_utf8(path.as_bytes()))
            else {
                continue;
            };
            let Some(name) = path.strip_prefix(".git/objects/") else { continue };
            bytes = bytes.saturating_add(*size);
            if bytes > MAX_OBJECTS {
                return Err(too_much());
            }
            if let Some(pack) = name.strip_prefix("pack/").filter(|name| name.ends_with(".pack")) {
                let copy = self.packs().join(format!("pack-{hash}.pack"));
                std::io::copy(&mut recorded.store.open_blob(*hash)?, &mut File::create(&copy)?)?;
                self.git_at(&["index-pack"], &copy, b"").map_err(|_| {
                    Error::usage(format!("a pack of the sandbox is not valid: {}", one_line(pack, SUBJECT)))
                })?;
            } else if let Some((directory, rest)) = name.split_once('/')
                && object_name(&format!("{directory}{rest}")).is_some()
                && directory.len() == 2
            {
                let directory = self.directory.path().join("objects").join(directory);
                DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
                let mut file = File::create(directory.join(rest))?;
                std::io::copy(&mut recorded.store.open_blob(*hash)?, &mut file)?;
            }
        }
        Ok(())
    }

    /// Those of these objects that are there: a reference may be broken.
    fn present(&self, ids: &[String]) -> Result<Vec<String>> {
        let ids: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let found = self.git(&["cat-file", "--batch-check=%(objectname)", "--buffer"], ids.as_bytes())?;
        Ok(found.lines().filter_map(object_name).collect())
    }

    /// Refuses no commits, and too many.
    fn refuse_count(&self, range: &[u8], recorded: &Recorded<'_>) -> Result<()> {
        let most = format!("--max-count={}", MAX_COMMITS + 1);
        match self.git(&["rev-list", &most, "--stdin"], range)?.lines().count() {
            0 => {
                let branch =
                    |path: &TreePath| path.to_string().strip_prefix(".git/refs/heads/").map(str::to_owned);
                let others = recorded.delta.iter().filter(|(_, node)| node.is_some());
                let why = "nothing was committed in the sandbox that your repository does not have";
                Err(match listed(others.filter_map(|(path, _)| branch(path)), MAX_LISTED) {
                    None => Error::usage(why),
                    Some(named) => Error::usage(format!("{why}, on the branch that is checked out there"))
                        .hint(format!("check out another one there: {named}")),
                })
            }
            count if count > MAX_COMMITS => {
                Err(Error::new(Kind::Limit, format!("the sandbox made more than {MAX_COMMITS} commits")))
            }
            _ => Ok(()),
        }
    }

    /// Packs the commits with all that they need, and lets git check the pack in another repository; the pack's name.
    fn pack_into(&self, checked: &Self, range: &[u8]) -> Result<String> {
        let new = self.directory.path().join("new");
        let name = self.git_at(&["pack-objects", "-q", "--revs", "--delta-base-offset"], &new, range)?;
        let name = object_name(name.trim()).ok_or_else(failed)?;
        let new = self.directory.path().join(format!("new-{name}.pack"));
        if new.metadata()?.len() > MAX_OBJECTS {
            return Err(too_much());
        }
        let pack = checked.packs().join(format!("pack-{name}.pack"));
        fs::rename(new, &pack)?;
        checked.git_at(&["index-pack", "--strict", "--fsck-objects"], &pack, b"").map_err(|error| {
            Error::usage("the commits of the sandbox are not valid: git fsck --strict refuses them")
                .hint("apply the files without --branch, and commit them")
                .caused_by(error)
        })?;
        Ok(format!("pack-{name}"))
    }

    /// The subjects of the commits, newest first.
    fn subjects(&self, range: &[u8]) -> Result<Vec<String>> {
        let subjects = self.git_bytes(&["log", "--no-decorate", "--format=%h %s", "-z", "--stdin"], range)?;
        // A commit need not be UTF-8.
        let subjects = subjects.split(|&b| b == 0).filter(|line| !line.is_empty());
        Ok(subjects.map(|line| one_line(&String::from_utf8_lossy(line), SUBJECT)).collect())
    }

    /// Refuses what a checkout of the commits would do beyond writing the repository's own files. Returns the paths that they touch.
    fn refuse_tricks(&self, range: &[u8], recorded: &Recorded<'_>) -> Result<CommittedFiles> {
        // `:MODE MODE ID ID STATUS`, then the path, each behind a NUL byte.
        let arguments = [
            "log",
            "--format=",
            "--raw",
            "-r",
            "-m",
            "--root",
            "--no-renames",
            "--no-abbrev",
            "-z",
            "--stdin",
        ];
        let listed = self.run_within(LIST_MEMORY, &arguments.map(OsStr::new), range)?;
        let mut fields =
            listed.split(|&b| b == 0).map(<[u8]>::trim_ascii_start).filter(|field| !field.is_empty());
        let mut touched = CommittedFiles::default();
        let mut links = Vec::new();
        let mut heads = 0;
        while let Some(field) = fields.next() {
            let (Some(header), Some(path)) = (field.strip_prefix(b":"), fields.next()) else {
                return Err(failed());
            };
            let header = String::from_utf8_lossy(header).into_owned();
            let mut words = header.split(' ');
            let [former_mode, mode, former, id] = std::array::from_fn(|_| words.next().unwrap_or_default());
            let path = TreePath::new(path);
            let refused = |why: &str| {
                refused(&path.as_ref().map_or_else(|_| "a file".to_owned(), ToString::to_string), why)
            };
            let is_new_head = path.as_ref().is_ok_and(bare_repository::is_named_head) && {
                heads += 1;
                heads > MAX_HEADS || self.is_head(mode, id)? && !self.is_head(former_mode, former)?
            };
            match (&path, mode) {
                (Err(why), _) => return Err(refused(&format!("cannot be written: {why}"))),
                (Ok(path), _) if path.is_git_internal() => {
                    return Err(refused("may be taken for git's own directory"));
                }
                (Ok(_), SUBMODULE) => return Err(refused("is a submodule")),
                (Ok(_), _) if is_new_head => {
                    return Err(refused(&format!("is not written: {}", bare_repository::HEAD_REASON)));
                }
                (Ok(path), SYMLINK) => {
                    let target = Target(self.git_bytes(&["cat-file", "blob", id], b"")?);
                    if target.leads_out(path) {
                        return Err(refused("is a symlink that leads out of the repository"));
                    }
                    links.push((path.clone(), target));
                }
                _ => {}
            }
            let paths = if mode == GONE { &mut touched.removed } else { &mut touched.written };
            paths.extend(path);
        }
        self.refuse_links_into_git(links, recorded)?;
        Ok(touched)
    }

    /// Refuses symlinks of the commits that lead into git's own directory, also through those of the tree.
    fn refuse_links_into_git(&self, links: Vec<(TreePath, Target)>, recorded: &Recorded<'_>) -> Result<()> {
        if links.is_empty() {
            return Ok(());
        }
        let of_tree = symlinks::links(recorded.base, recorded.delta);
        let roots = symlinks::names_of(recorded.root, &self.machine);
        let symlinks = Symlinks::of(&roots, of_tree.into_iter().chain(links.iter().cloned()));
        let host = HostDir::open(&self.root).ok();
        let is_there = |path: &TreePath| host.as_ref().is_some_and(|host| host.may_have(path));
        let refusal = |link, target| symlinks.refusal(link, target, is_there);
        let found = links.iter().find_map(|(link, target)| Some((link, refusal(link, target)?)));
        match found {
            None => Ok(()),
            Some((link, reason)) => Err(refused(&link.to_string(), &format!("is {reason}"))),
        }
    }

    /// Returns whether git would accept an object as the `HEAD` of a repository.
    fn is_head(&self, mode: &str, id: &str) -> Result<bool> {
        let content = || self.git_bytes(&["cat-file", "blob", id], b"");
        Ok(match mode {
            GONE | SUBMODULE => false,
            SYMLINK => bare_repository::is_head_target(&content()?),
            _ => bare_repository::is_head(&content()?),
        })
    }

    /// Refuses commits that make a repository that git finds without a `.git`, with what the last one and the user's directory
    /// have beside what they write; of one that the user has already, such as the fixture of a test, what git obeys.
    fn refuse_bare_repositories(&self, written: &BTreeSet<TreePath>, id: &str) -> Result<()> {
        if bare_repository::candidates(written).next().is_none() {
            return Ok(());
        }
        let arguments = ["ls-tree", "-r", "-t", "-z", "--name-only", "--full-tree", id];
        let listed = self.run_within(LIST_MEMORY, &arguments.map(OsStr::new), b"")?;
        let listed: HashSet<&[u8]> = listed.split(|&byte| byte == 0).collect();
        let host = HostDir::open(&self.root).ok();
        let is_on_host = |path: &TreePath| host.as_ref().is_some_and(|host| host.may_have(path));
        let found = repositories(written, |path| listed.contains(path.as_bytes()) || is_on_host(path));
        let users = bare_repository::complete(&found, is_on_host);
        let is_obeyed =
            |directory: &[u8]| written.iter().any(|path| bare_repository::is_obeyed(path, directory));
        match found.iter().find(|directory| !users.contains(*directory) || is_obeyed(directory)) {
            None => Ok(()),
            Some(directory) => {
                let name = bare_repository::shown(directory);
                let why =
                    format!("the commits of the sandbox are refused: {name}: {}", bare_repository::REASON);
                Err(Error::usage(why).hint("leave it out of the commits"))
            }
        }
    }

    fn git(&self, arguments: &[&str], input: &[u8]) -> Result<String> {
        String::from_utf8(self.git_bytes(arguments, input)?).map_err(|_| failed())
    }

    /// The same for a call whose last argument is a path.
    fn git_at(&self, arguments: &[&str], path: &Path, input: &[u8]) -> Result<String> {
        let path = path.as_os_str();
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).chain([path]).collect();
        String::from_utf8(self.run(&arguments, input)?).map_err(|_| failed())
    }

    fn git_bytes(&self, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        self.run(&arguments, input)
    }

    fn run(&self, arguments: &[&OsStr], input: &[u8]) -> Result<Vec<u8>> {
        self.run_within(MAX_MEMORY, arguments, input)
    }

    fn run_within(&self, memory: u64, arguments: &[&OsStr], input: &[u8]) -> Result<Vec<u8>> {
        self.run_or_code(memory, arguments, input, 0)?.ok_or_else(failed)
    }

    /// The answer of git, or nothing where it ends with `code`.
    fn run_or_code(
        &self,
        memory: u64,
        arguments: &[&OsStr],
        input: &[u8],
        code: i32,
    ) -> Result<Option<Vec<u8>>> {
        let directory = self.directory.path();
        let mut git = host_git::apart(directory, &self.root, &self.machine).ok_or_else(no_git)?;
        git.env("GIT_ATTR_NOSYSTEM", "1");
        git.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        git.args(arguments).current_dir(directory);
        let most = [(Resource::Data, memory), (Resource::Fsize, MAX_OBJECTS)];
        let said = |failure: Failure| one_line(&String::from_utf8_lossy(&failure.said), SAID);
        let answer = match host_git::run_within(&most, git, input, TIMEOUT, MAX_ANSWER + 1) {
            Err(failure) if failure.code == Some(code) && failure.said.is_empty() => return Ok(None),
            answer => answer.map_err(|failure| failed().caused_by(std::io::Error::other(said(failure))))?,
        };
        match answer.len() as u64 > MAX_ANSWER {
            true => Err(Error::new(Kind::Limit, "git's answer about the commits of the sandbox is too long")),
            false => Ok(Some(answer)),
        }
    }

    /// Returns the directory of its packs.
    fn packs(&self) -> PathBuf {
        self.directory.path().join("objects/pack")
    }
}

fn refused(name: &str, why: &str) -> Error {
    Error::usage(format!("the commits of the sandbox are refused: {name} {why}"))
        .hint("apply the files without --branch, and commit them")
}

fn no_git() -> Error {
    Error::usage("git is not installed on this machine")
}

fn failed() -> Error {
    Error::usage("git could not read the commits of the sandbox")
        .hint("apply the files without --branch, and commit them")
}

fn too_much() -> Error {
    Error::new(Kind::Limit, format!("the sandbox committed more than {} MB", MAX_OBJECTS >> 20))
}
