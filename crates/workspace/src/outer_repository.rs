//! Repositories that lie outside of the workspace: those of linked work trees, submodules and subdirectories.
//!
//! The sandbox gets a repository of its own in their place, with one pack, the index and the branches. A subdirectory gets
//! its last commit alone. It is made by git in an empty repository beside the host's objects, so nothing that the host's
//! configuration names is run, and nothing of it but the committer's identity gets inside.

use crate::manifest::{Manifest, Node};
use crate::store::Store;
use crate::tracked::{is_sha256, repository_of};
use crate::transfer::MAX_CONFIG;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_base::host_program;
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use std::fs::{self, DirBuilder};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// How long one call of git may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of git's answers, of the files with references and of the index.
const MAX_ANSWER: u64 = 16 << 20;
const MAX_INDEX: u64 = 256 << 20;
/// Bytes of packed objects; of a larger repository only the last commit is taken.
const MAX_PACKS: u64 = 512 << 20;
/// References of their own files that are read.
const MAX_REFERENCES: usize = 10_000;

/// A repository outside of the workspace.
struct Outer {
    /// Where its `HEAD` and index are.
    git_dir: PathBuf,
    /// Where its objects and references are.
    common: PathBuf,
    /// The workspace's path in its work tree; empty for the work tree itself.
    prefix: PathBuf,
}

/// The `.git` that the sandbox gets for `root`, its contents in `store`. `None` where the workspace has a repository of its
/// own, or none at all, or where it cannot be made. Blocking.
pub fn import(root: &Path, store: &Store, machine: &Machine) -> Option<Manifest> {
    let outer = Outer::find(root)?;
    let scratch = tempfile::TempDir::new().ok()?;
    let import = Import { root, outer: &outer, directory: scratch.path(), machine };
    // Without it git does not work inside, which a notice says.
    import.run(store).ok()
}

impl Outer {
    fn find(root: &Path) -> Option<Self> {
        let is_own = root.join(".git").symlink_metadata().is_ok_and(|found| !found.is_file());
        let (top, git_dir) = repository_of(root).filter(|_| !is_own)?;
        let git_dir = git_dir.canonicalize().ok()?;
        let is_linked = top.join(".git").is_file();
        // A file that anybody may have written into the workspace names it: the repository has to name the work tree too.
        if is_linked && !belongs(&git_dir, &top) {
            return None;
        }
        let common = match plain_file::read(&git_dir.join("commondir"), 4096, Links::Refuse) {
            Ok(path) => git_dir.join(std::ffi::OsStr::from_bytes(path.trim_ascii())).canonicalize().ok()?,
            Err(_) => git_dir.clone(),
        };
        let prefix = root.strip_prefix(&top).ok()?.to_owned();
        Some(Self { git_dir, common, prefix })
    }
}

/// Whether the repository in `git_dir` says that `top` is its work tree: that of a linked one, or that of a submodule.
fn belongs(git_dir: &Path, top: &Path) -> bool {
    let is_top = |path: &Path| path.canonicalize().is_ok_and(|path| Some(path) == top.canonicalize().ok());
    if let Ok(back) = plain_file::read(&git_dir.join("gitdir"), 4096, Links::Refuse) {
        let back = git_dir.join(std::ffi::OsStr::from_bytes(back.trim_ascii()));
        return back.parent().is_some_and(is_top);
    }
    let Ok(config) = plain_file::read(&git_dir.join("config"), MAX_CONFIG, Links::Refuse) else {
        return false;
    };
    let config = String::from_utf8_lossy(&config).into_owned();
    let mut settings = config.lines().filter_map(|line| line.split_once('='));
    settings.any(|(key, value)| key.trim() == "worktree" && is_top(&git_dir.join(value.trim())))
}

/// A repository that is being made in `directory`.
struct Import<'a> {
    root: &'a Path,
    outer: &'a Outer,
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
        let name =
            self.git(&["pack-objects", "-q", "--revs", "--delta-base-offset", pack], tips.as_bytes())?;
        if let Some(tree) = &tree {
            fs::remove_file(self.directory.join("index")).ok();
            self.git(&["read-tree", tree], &[])?;
        }
        self.collect(store, name.trim(), &references, branch.as_deref(), commit.as_deref())
    }

    fn is_subdirectory(&self) -> bool {
        !self.outer.prefix.as_os_str().is_empty()
    }

    /// Makes the repository: the host's objects are its alternates, and its references are copies.
    fn begin(&self) -> Result<()> {
        for directory in ["objects/info", "refs/heads", "refs/tags", "info"] {
            DirBuilder::new().recursive(true).mode(0o700).create(self.directory.join(directory))?;
        }
        self.write("config", self.config().as_bytes())?;
        let objects = self.outer.common.join("objects");
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
        let mut open =
            vec![PathBuf::from("refs/heads"), PathBuf::from("refs/tags"), PathBuf::from("refs/remotes")];
        let mut count = 0;
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(self.outer.common.join(&directory)).into_iter().flatten().flatten() {
                let (kind, path) = (entry.file_type()?, directory.join(entry.file_name()));
                if kind.is_dir() {
                    open.push(path);
                } else if kind.is_file() && count < MAX_REFERENCES {
                    count += 1;
                    let content = plain_file::read(&self.outer.common.join(&path), 4096, Links::Refuse)?;
                    let target = self.directory.join(&path);
                    fs::create_dir_all(target.parent().unwrap_or(self.directory))?;
                    fs::write(target, content)?;
                }
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
        let identity = plain_file::read(&self.outer.common.join("config"), MAX_CONFIG, Links::Refuse);
        let identity =
            identity.map(|config| identity_in(&String::from_utf8_lossy(&config))).unwrap_or_default();
        format!(
            "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n{extensions}{identity}"
        )
    }

    /// The branch that is checked out, if its name is a plain one.
    fn branch(&self) -> Option<String> {
        let head = plain_file::read(&self.outer.git_dir.join("HEAD"), 4096, Links::Refuse).ok()?;
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
        let packs = fs::read_dir(self.outer.common.join("objects/pack")).into_iter().flatten().flatten();
        packs.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
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
        let mut files: Vec<PathBuf> = above.map(|directory| directory.join(".gitignore")).collect();
        files.push(self.outer.common.join("info/exclude"));
        let mut rules = Vec::new();
        for file in files.iter().rev() {
            let text = plain_file::read(file, MAX_CONFIG, Links::Refuse).unwrap_or_default();
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
        self.write(name, &plain_file::read(&from.join(name), max, Links::Refuse)?)
    }

    /// git's answer, without the line feed at its end.
    fn git(&self, arguments: &[&str], input: &[u8]) -> Result<String> {
        let mut git = host_program::command("git".as_ref(), self.root, self.machine).ok_or_else(failed)?;
        git.env("GIT_DIR", self.directory)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_ALLOW_PROTOCOL", "none")
            .args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
            .args(arguments)
            .current_dir(self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = git.spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let input = input.to_vec();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // git may end without reading it.
            let _ = stdin.map(|mut stdin| stdin.write_all(&input));
        });
        std::thread::spawn(move || {
            let mut answer = Vec::new();
            let read = stdout.map(|stdout| stdout.take(MAX_ANSWER).read_to_end(&mut answer));
            let _ = sender.send(read.is_some_and(|read| read.is_ok()).then_some(answer));
        });
        let answer = receiver.recv_timeout(TIMEOUT).ok().flatten();
        if answer.is_none() {
            let _ = child.kill();
        }
        let is_done = child.wait()?.success();
        let answer = answer.filter(|_| is_done).ok_or_else(failed)?;
        let answer = String::from_utf8(answer).map_err(|_| failed())?;
        Ok(answer.strip_suffix('\n').unwrap_or(&answer).to_owned())
    }
}

fn git_path(name: &str) -> Result<TreePath> {
    TreePath::new(format!(".git{name}").as_bytes()).map_err(Error::unexpected)
}

/// The `[user]` section's name and address.
fn identity_in(config: &str) -> String {
    let mut identity = String::new();
    let mut is_user = false;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            is_user = line.eq_ignore_ascii_case("[user]");
        } else if let (true, Some((key, value))) = (is_user, line.split_once('='))
            && matches!(key.trim(), "name" | "email")
        {
            identity += &format!("\t{} = {}\n", key.trim(), value.trim());
        }
    }
    if identity.is_empty() { identity } else { format!("[user]\n{identity}") }
}

fn failed() -> Error {
    Error::unexpected("git could not make a repository for the sandbox")
}
