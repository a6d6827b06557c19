//! Repositories that do not lie in the workspace as a whole: those of linked work trees, submodules and subdirectories, and
//! clones that take objects from another repository (`git clone --shared`, `--reference`).
//!
//! The sandbox gets a repository of its own in their place, with one pack, the index and the branches. A subdirectory gets
//! its last commit alone. It is made by git in an empty repository beside the host's objects, so nothing that the host's
//! configuration names is run, and nothing of it but the committer's identity gets inside.

use crate::host_dir::HostDir;
use crate::manifest::Manifest;
use crate::manifest::Node;
use crate::notices::repository_outside;
use crate::repository;
use crate::repository::Obstacle;
use crate::repository::Repository;
use crate::repository::setting;
use crate::store::Store;
use crate::tracked::is_sha256;
use crate::transfer::MAX_CONFIG;
use crate::tree_path::TreePath;
use agent_base::error::Error;
use agent_base::error::Result;
use agent_base::host_git::{self, Failure};
use agent_base::machine::Machine;
use agent_base::plain_file;
use agent_base::plain_file::Links;
use rustix::process::Resource;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time limit for one call of git.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of git's answers, of the files with references and of the index.
const MAX_ANSWER: u64 = 16 << 20;
const MAX_INDEX: u64 = 256 << 20;
/// Bytes of packed objects; of a larger repository only the last commit is taken.
const MAX_PACKS: u64 = 512 << 20;
/// References of their own files that are read.
const MAX_REFERENCES: usize = 10_000;
/// The user's setting with the object directories that other repositories of theirs may take objects from.
pub const SETTING: &str = "git_object_stores";

/// The `.git` that the sandbox gets for `root`, its contents in `store`. `None` where the workspace has a repository of its
/// own that is all there, or none at all. Of other repositories of the user's only objects below `allowed` are read. Blocking.
///
/// # Errors
/// Why it cannot be made, to stand after a colon.
pub fn import(
    root: &Path,
    store: &Store,
    machine: &Machine,
    allowed: &[PathBuf],
) -> Result<Option<Manifest>, String> {
    let Some(repository) = found(root).map_err(|obstacle| obstacle.to_string())? else { return Ok(None) };
    let stores = repository.plain_stores(allowed).map_err(|obstacle| match &obstacle {
        Obstacle::Borrows(_) => format!("{obstacle}, which `{SETTING}` in config.toml has to name"),
        obstacle => obstacle.to_string(),
    })?;
    let scratch = tempfile::TempDir::new().map_err(|_| failed().to_string())?;
    let import = Import { root, outer: &repository, stores: &stores, directory: scratch.path(), machine };
    import.run(store).map(Some).map_err(|error| repository_outside(root).unwrap_or_else(|| error.to_string()))
}

/// The object directories of other repositories that [`import`] would have to read, as far as `allowed` does not have them.
pub fn borrowed(root: &Path, allowed: &[PathBuf]) -> Vec<PathBuf> {
    let allowed: Vec<PathBuf> = allowed.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let stores = found(root).ok().flatten().and_then(|repository| repository.borrowed().ok());
    let mut stores = stores.unwrap_or_default();
    stores.retain(|store| !allowed.iter().any(|path| store.starts_with(path)));
    stores
}

/// The repository that does not come into the sandbox with the workspace's own files.
fn found(root: &Path) -> Result<Option<Repository>, Obstacle> {
    let git = root.join(".git");
    if git.is_symlink() && git.canonicalize().is_ok_and(|target| target.starts_with(root)) {
        return Ok(None);
    }
    let Some(repository) = Repository::find(root)? else { return Ok(None) };
    let is_whole = repository.is_in(root) && repository.borrowed()?.is_empty();
    Ok((!is_whole).then_some(repository))
}

/// A repository that is being made in `directory`.
struct Import<'a> {
    root: &'a Path,
    outer: &'a Repository,
    /// Its object directories.
    stores: &'a [PathBuf],
    directory: &'a Path,
    machine: &'a Machine,
}

impl Import<'_> {
    fn run(&self, store: &Store) -> Result<Manifest> {
        self.begin()?;
        let head = self.git(&["rev-parse", "--verify", "-q", "HEAD^{commit}"], &[]).ok();
        let staged = self.staged();
        let tree = match (&staged, &head) {
            (Ok(tree), _) => Some(tree.clone()),
            (Err(_), Some(_)) => self.git(&["rev-parse", "--verify", "-q", &self.tree_of_head()], &[]).ok(),
            (Err(_), None) => None,
        };
        let branch = self.branch();
        let commit = match head {
            Some(head) if self.is_subdirectory() => self.last_commit(&head)?,
            head => head,
        };
        if self.is_subdirectory() {
            self.forget_references()?;
        } else if self.size() > MAX_PACKS {
            self.forget_references()?;
            self.write("shallow", format!("{}\n", commit.clone().unwrap_or_default()).as_bytes())?;
        }
        if let (Some(commit), Some(branch)) = (&commit, &branch) {
            self.write(&format!("refs/heads/{branch}"), format!("{commit}\n").as_bytes())?;
        } else if let Some(commit) = &commit {
            self.write("HEAD", format!("{commit}\n").as_bytes())?;
        }
        let references = self.git(&["for-each-ref", "--format=%(objectname) %(refname)"], &[])?;
        let tips: Vec<&str> = references.lines().filter_map(|line| line.split(' ').next()).collect();
        let tips =
            tips.into_iter().chain(commit.as_deref()).chain(tree.as_deref()).collect::<Vec<_>>().join("\n");
        let pack = self.directory.join("made");
        let pack = pack.to_str().ok_or_else(failed)?;
        let name = self.git_within(
            host_git::PACKING_MEMORY,
            &["pack-objects", "-q", "--revs", "--delta-base-offset", pack],
            tips.as_bytes(),
        )?;
        if let Some(tree) = &tree {
            fs::remove_file(self.directory.join("index")).ok();
            self.git_within(host_git::TREE_MEMORY, &["read-tree", tree], &[])?;
        }
        self.collect(store, name.trim(), &references, branch.as_deref(), commit.as_deref())
    }

    fn is_subdirectory(&self) -> bool {
        !self.outer.prefix.as_os_str().is_empty()
    }

    /// Makes the repository: the host's objects are its alternates, and its references are copies.
    fn begin(&self) -> Result<()> {
        host_git::make_repository(self.directory, &self.config())?;
        let objects = self.outer.common.join("objects");
        // git finds further ones in this one's list.
        self.write("objects/info/alternates", &[objects.as_os_str().as_bytes(), b"\n"].concat())?;
        self.copy(&self.outer.git_dir, "HEAD", 4096)?;
        // A repository without commits has neither.
        let _ = self.copy(&self.outer.common, "packed-refs", MAX_ANSWER);
        let _ = self.copy(&self.outer.git_dir, "index", MAX_INDEX);
        let _ = self.copy(&self.outer.common, "shallow", MAX_ANSWER);
        for entry in fs::read_dir(&self.outer.git_dir)?.flatten() {
            if let Some(name) = entry.file_name().to_str().filter(|name| name.starts_with("sharedindex.")) {
                self.copy(&self.outer.git_dir, name, MAX_INDEX)?;
            }
        }
        self.copy_references()
    }

    fn copy_references(&self) -> Result<()> {
        let common = HostDir::open(&self.outer.common)?;
        let mut open = [b"refs/heads".as_slice(), b"refs/tags", b"refs/remotes"]
            .into_iter()
            .filter_map(|path| TreePath::new(path).ok())
            .collect::<Vec<_>>();
        let mut count = 0;
        while let Some(path) = open.pop() {
            // No symlink is followed to either of them.
            if let Ok(names) = common.list(Some(&path)) {
                open.extend(names.iter().filter_map(|name| path.join(name).ok()));
            } else if let Ok(file) = common.open_file(&path)
                && count < MAX_REFERENCES
            {
                count += 1;
                let mut content = Vec::new();
                file.take(4096).read_to_end(&mut content)?;
                let target = self.directory.join(path.as_path());
                fs::create_dir_all(target.parent().unwrap_or(self.directory))?;
                fs::write(target, content)?;
            }
        }
        Ok(())
    }

    fn forget_references(&self) -> Result<()> {
        fs::remove_file(self.directory.join("packed-refs")).ok();
        fs::remove_dir_all(self.directory.join("refs"))?;
        Ok(fs::create_dir_all(self.directory.join("refs/heads"))?)
    }

    /// git's own settings, and who commits.
    fn config(&self) -> String {
        let (version, extensions) = match is_sha256(&self.outer.common) {
            true => (1, "[extensions]\n\tobjectformat = sha256\n"),
            false => (0, ""),
        };
        let config = repository::read(&self.outer.common, b"config", MAX_CONFIG).unwrap_or_default();
        let identity = identity_in(&String::from_utf8_lossy(&config));
        format!(
            "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n{extensions}{identity}"
        )
    }

    /// The branch that is checked out, if its name is a plain one.
    fn branch(&self) -> Option<String> {
        let head = repository::read(&self.outer.git_dir, b"HEAD", 4096).ok()?;
        let name = String::from_utf8(head.strip_prefix(b"ref: refs/heads/")?.trim_ascii().to_vec()).ok()?;
        let is_plain =
            TreePath::new(name.as_bytes()).is_ok() && !name.split('/').any(|part| part.starts_with('.'));
        is_plain.then_some(name)
    }

    /// The tree of what is staged.
    fn staged(&self) -> Result<String> {
        match self.outer.prefix.to_str() {
            Some("") => self.git(&["write-tree"], &[]),
            Some(prefix) => self.git(&["write-tree", &format!("--prefix={prefix}/")], &[]),
            None => Err(failed()),
        }
    }

    fn tree_of_head(&self) -> String {
        format!("HEAD:{}", self.outer.prefix.display())
    }

    /// A commit like `head`, of the subdirectory alone and without ancestors. `None` where the directory is not in it.
    fn last_commit(&self, head: &str) -> Result<Option<String>> {
        let Ok(tree) = self.git(&["rev-parse", "--verify", "-q", &self.tree_of_head()], &[]) else {
            return Ok(None);
        };
        let header = self.git(&["cat-file", "commit", head], &[])?;
        let (header, message) = header.split_once("\n\n").unwrap_or((&header, ""));
        let authors =
            header.lines().filter(|line| line.starts_with("author ") || line.starts_with("committer "));
        let authors = authors.collect::<Vec<_>>().join("\n");
        let prefix = self.outer.prefix.display();
        let commit = format!(
            "tree {tree}\n{authors}\n\n{}\n\n(only {prefix} of {head}, without its history)\n",
            message.trim_end()
        );
        self.git(&["hash-object", "-t", "commit", "-w", "--stdin"], commit.as_bytes()).map(Some)
    }

    /// Bytes of the host's packs.
    fn size(&self) -> u64 {
        let packs = self.stores.iter().filter_map(|store| fs::read_dir(store.join("pack")).ok());
        packs
            .flatten()
            .flatten()
            .filter_map(|entry| entry.metadata().ok())
            .map(|metadata| metadata.len())
            .sum()
    }

    /// Puts what was made into the store.
    fn collect(
        &self,
        store: &Store,
        pack: &str,
        references: &str,
        branch: Option<&str>,
        commit: Option<&str>,
    ) -> Result<Manifest> {
        let mut git = Manifest::new();
        for directory in
            ["", "/objects", "/objects/pack", "/objects/info", "/refs", "/refs/heads", "/refs/tags", "/info"]
        {
            git.insert(git_path(directory)?, Node::Directory { mode: 0o755 });
        }
        let head = match (branch, commit) {
            (Some(branch), _) => format!("ref: refs/heads/{branch}\n"),
            (None, Some(commit)) => format!("{commit}\n"),
            (None, None) => "ref: refs/heads/main\n".to_owned(),
        };
        let mut add = |name: &str, content: &mut dyn Read, mode: u32| -> Result<()> {
            let (hash, size) = store.put_from(content)?;
            git.insert(git_path(name)?, Node::File { hash, size, mode });
            Ok(())
        };
        add("/HEAD", &mut head.as_bytes(), 0o644)?;
        add("/config", &mut self.config().as_bytes(), 0o644)?;
        let end = if references.is_empty() { "" } else { "\n" };
        let packed = format!("# pack-refs with: sorted \n{references}{end}");
        add("/packed-refs", &mut packed.as_bytes(), 0o644)?;
        add("/info/exclude", &mut self.ignore_rules().as_slice(), 0o644)?;
        for name in ["index", "shallow"] {
            if let Ok(mut file) = fs::File::open(self.directory.join(name)) {
                add(&format!("/{name}"), &mut file, 0o644)?;
            }
        }
        for end in ["pack", "idx"] {
            let mut file = fs::File::open(self.directory.join(format!("made-{pack}.{end}")))?;
            add(&format!("/objects/pack/pack-{pack}.{end}"), &mut file, 0o444)?;
        }
        Ok(git)
    }

    /// The rules that hold for the workspace from above it. Those with a directory in them begin elsewhere.
    fn ignore_rules(&self) -> Vec<u8> {
        let above = self.root.ancestors().skip(1).take(self.outer.prefix.components().count());
        let above =
            above.map(|directory| plain_file::read(&directory.join(".gitignore"), MAX_CONFIG, Links::Refuse));
        let own = repository::read(&self.outer.common, b"info/exclude", MAX_CONFIG);
        let mut rules = Vec::new();
        for text in above.chain([own]).collect::<Vec<_>>().into_iter().rev().flatten() {
            for line in text.split(|&byte| byte == b'\n') {
                let pattern = line.trim_ascii_end();
                if !self.is_subdirectory() || !pattern.strip_suffix(b"/").unwrap_or(pattern).contains(&b'/') {
                    rules.extend_from_slice(line);
                    rules.push(b'\n');
                }
            }
        }
        rules
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap_or(self.directory))?;
        Ok(fs::write(path, content)?)
    }

    fn copy(&self, from: &Path, name: &str, max: u64) -> Result<()> {
        self.write(name, &repository::read(from, name.as_bytes(), max)?)
    }

    fn call(&self, arguments: &[&str]) -> Result<Command> {
        let mut git = host_git::apart(self.directory, self.root, self.machine).ok_or_else(failed)?;
        git.args(arguments).current_dir(self.directory);
        Ok(git)
    }

    /// [`Import::git`] with other bytes of memory than the usual ones.
    fn git_within(&self, memory: u64, arguments: &[&str], input: &[u8]) -> Result<String> {
        let most = [(Resource::Data, memory)];
        answered(host_git::run_within(&most, self.call(arguments)?, input, TIMEOUT, MAX_ANSWER))
    }

    /// git's answer, without the line feed at its end.
    fn git(&self, arguments: &[&str], input: &[u8]) -> Result<String> {
        let git = self.call(arguments)?;
        answered(host_git::run(git, input, TIMEOUT, MAX_ANSWER))
    }
}

fn answered(answer: Result<Vec<u8>, Failure>) -> Result<String> {
    let answer = String::from_utf8(answer.map_err(|_| failed())?).map_err(|_| failed())?;
    Ok(answer.strip_suffix('\n').unwrap_or(&answer).to_owned())
}

fn git_path(name: &str) -> Result<TreePath> {
    TreePath::new(format!(".git{name}").as_bytes()).map_err(Error::unexpected)
}

/// The `[user]` section's name and address.
fn identity_in(config: &str) -> String {
    let quoted = |value: String| value.replace('\\', "\\\\").replace('"', "\\\"");
    let line = |key| Some(format!("\t{key} = \"{}\"\n", quoted(setting(config, "user", key)?)));
    let identity: String = ["name", "email"].into_iter().filter_map(line).collect();
    if identity.is_empty() { identity } else { format!("[user]\n{identity}") }
}

fn failed() -> Error {
    Error::unexpected("git could not make a repository for the sandbox")
}
