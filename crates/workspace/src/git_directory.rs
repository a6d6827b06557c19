//! What the sandbox gets of a `.git` directory: what git needs inside, by name, and without credentials in its texts.
//!
//! Other programs keep keys and tokens there (git-crypt, git-annex), editors copies of the configuration, and nobody knows the next
//! one. What is not on the list is not shown in any mode.

use crate::bare_repository;
use crate::git_config;
use crate::tree_path::{TreePath, is_dot_git};
use crate::userinfo;
use memchr::memmem;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Files of a git directory, of a linked work tree's and of a submodule's: <https://git-scm.com/docs/gitrepository-layout>.
const FILES: [&str; 22] = [
    "AUTO_MERGE",
    "COMMIT_EDITMSG",
    "EDIT_DESCRIPTION",
    "HEAD",
    "MERGE_AUTOSTASH",
    "MERGE_MODE",
    "MERGE_MSG",
    "MERGE_RR",
    "NOTES_EDITMSG",
    "NOTES_MERGE_PARTIAL",
    "NOTES_MERGE_REF",
    "SQUASH_MSG",
    "TAG_EDITMSG",
    "commondir",
    "config",
    "config.worktree",
    "description",
    "gitdir",
    "index",
    "locked",
    "packed-refs",
    "shallow",
];
/// Directories with all that is in them.
const DIRECTORIES: [&str; 12] = [
    "NOTES_MERGE_WORKTREE",
    "branches",
    "hooks",
    "logs",
    "objects",
    "rebase-apply",
    "rebase-merge",
    "refs",
    "reftable",
    "remotes",
    "rr-cache",
    "sequencer",
];
/// Entries of directories of which not all is needed: what Git LFS and git-annex have of the tree's own files is as good as tracked.
const ENTRIES: [(&str, &[&str]); 3] = [
    ("annex", &["objects"]),
    ("info", &["attributes", "exclude", "grafts", "packs", "refs", "sparse-checkout"]),
    ("lfs", &["objects"]),
];

/// Directories of files with URLs in them: logs, and remotes as git had them before it had settings for them.
const URLS: [&[u8]; 3] = [b"logs", b"branches", b"remotes"];
/// Directories in which other programs keep keys or passwords; git-annex only below `creds`.
const KEYS: [&[u8]; 4] = [b"annex", b"git-crypt", b"sourcetree", b"svn"];
/// Directories of contents of files as text, and of hooks, beside which anything may lie.
const JUDGED: [&[u8]; 6] =
    [b"NOTES_MERGE_WORKTREE", b"hooks", b"rebase-apply", b"rebase-merge", b"rr-cache", b"sequencer"];
/// The place of a path in a git directory: the names behind that directory.
pub struct GitPath<'a>(Vec<&'a [u8]>);

impl<'a> GitPath<'a> {
    /// The place of a path of the tree `root` in a `.git`: in the innermost directory of a submodule or of a linked work tree. `None` for what
    /// lies in none.
    pub fn of(root: &Path, path: &'a TreePath) -> Option<Self> {
        let start = path.names().position(is_dot_git)? + 1;
        Some(Self::innermost(root, path, start))
    }

    /// The place in a directory of a submodule or of a linked work tree, if it lies in one, or else in the git directory whose names end
    /// before `start`.
    fn innermost(root: &Path, path: &'a TreePath, mut start: usize) -> Self {
        let names: Vec<&[u8]> = path.names().collect();
        let has_head = |count: usize| {
            let directory = path.as_path().ancestors().nth(names.len() - count);
            directory.is_some_and(|directory| root.join(directory).join("HEAD").symlink_metadata().is_ok())
        };
        loop {
            start = match names.get(start) {
                // Where `a/b` is a submodule's name, `a` is a directory and nothing else.
                Some(&b"modules") => match (start + 2..names.len()).find(|end| has_head(*end)) {
                    Some(end) => end,
                    None => break,
                },
                Some(&b"worktrees") if start + 2 < names.len() => start + 2,
                _ => break,
            }
        }
        Self(names[start..].to_vec())
    }

    /// The same for a path that may lie in a git directory of any name: one with its marks.
    pub fn anywhere(root: &Path, path: &'a TreePath) -> Option<Self> {
        Self::of(root, path).or_else(|| {
            let mut above = path.ancestors().map(|above| root.join(above.as_path())).chain([root.to_owned()]);
            let above = above.position(|directory| is_marked(&directory))?;
            Some(Self::innermost(root, path, path.names().count() - 1 - above))
        })
    }

    /// Returns whether git needs it inside. `is_file` says whether it is a regular file.
    pub fn is_needed(&self, is_file: bool) -> bool {
        match self.0.as_slice() {
            [] => true,
            [b"modules", ..] | [b"worktrees", ..] => !is_file,
            [name, rest @ ..] => is_entry(name, rest.first().copied(), is_file),
        }
    }

    /// Returns whether it is a configuration.
    pub fn is_config(&self) -> bool {
        matches!(self.0.as_slice(), [b"config" | b"config.worktree"])
    }

    /// Returns whether it is a copy of a configuration by its name: `config.bak`, `config~`, `config.lock`.
    fn is_copied_config(&self) -> bool {
        let is_copy = |name: &[u8]| memmem::find(name, b"config").is_some();
        matches!(self.0.as_slice(), [name] if is_copy(name)) && !self.is_config()
    }

    /// Returns whether it is judged by its name and content as files of the tree are: anything may lie among the hooks, and where git keeps
    /// contents of files as text.
    pub fn is_judged(&self) -> bool {
        matches!(self.0.as_slice(), [directory, _, ..] if JUDGED.contains(directory))
    }

    /// Returns whether other programs keep keys or passwords there.
    pub fn holds_keys(&self) -> bool {
        match self.0.as_slice() {
            [b"annex", below, ..] => *below == b"creds",
            [b"credentials"] => true,
            [directory, ..] => KEYS.contains(directory),
            [] => false,
        }
    }

    /// Returns whether the sandbox may get other contents than the host has: a configuration, or what names the URLs of others.
    pub fn is_rewritten(&self) -> bool {
        self.is_config()
            || matches!(self.0.as_slice(), [b"FETCH_HEAD"])
            || matches!(self.0.as_slice(), [directory, _, ..] if URLS.contains(directory))
    }

    /// Returns whether it is a reference, or names one: a branch, a tag, `HEAD`.
    fn is_reference(&self) -> bool {
        matches!(self.0.as_slice(), [b"HEAD" | b"packed-refs"] | [b"refs", ..])
    }

    /// The content as the sandbox gets it. `None` where that is the host's.
    pub fn rewritten(&self, content: &[u8]) -> Option<Vec<u8>> {
        match self.is_rewritten() {
            true if self.is_config() => git_config::needed(content),
            true => userinfo::without_userinfo(content),
            false => None,
        }
    }

    /// Returns whether it is judged by [`Self::has_credentials`].
    pub fn may_have_credentials(&self) -> bool {
        self.is_rewritten() || self.is_copied_config()
    }

    /// Returns whether it holds a password or token, which [`Self::rewritten`] would take out.
    pub fn has_credentials(&self, content: &[u8]) -> bool {
        match self.may_have_credentials() {
            true if self.is_config() || self.is_copied_config() => git_config::has_credentials(content),
            true => userinfo::without_userinfo(content).is_some(),
            false => false,
        }
    }
}

/// Returns whether a directory is one of git's by what is in it.
pub fn is_marked(directory: &Path) -> bool {
    bare_repository::is_marked(|name| directory.join(OsStr::from_bytes(name)).symlink_metadata().is_ok())
}

/// Returns whether the files of a directory, which may lie in a git directory of any name, have URLs or keys in them. All of them are judged then.
pub fn is_of_urls_or_keys(root: &Path, directory: &TreePath) -> bool {
    // Asked about every directory of a tree.
    let is_named = |name: &[u8]| URLS.contains(&name) || KEYS.contains(&name);
    directory.names().any(is_named)
        && directory.join(b"x").is_ok_and(|file| {
            GitPath::anywhere(root, &file)
                .is_some_and(|path| path.holds_keys() || path.may_have_credentials())
        })
}

/// Returns whether a directory is that of a linked work tree or of a submodule in a git directory of any name.
pub fn is_linked(root: &Path, directory: &TreePath) -> bool {
    directory.names().any(|name| matches!(name, b"worktrees" | b"modules"))
        && directory
            .join(b"config")
            .is_ok_and(|file| GitPath::anywhere(root, &file).is_some_and(|path| path.is_config()))
}

/// [`GitPath::is_needed`] of a path of the tree `root`. All that lies in no `.git` is.
pub fn is_needed(root: &Path, path: &TreePath, is_file: bool) -> bool {
    GitPath::of(root, path).is_none_or(|path| path.is_needed(is_file))
}

/// [`GitPath::is_judged`] of a path of the tree `root`. All that lies in no `.git` is.
pub fn is_judged(root: &Path, path: &TreePath) -> bool {
    !path.is_git_internal() || GitPath::of(root, path).is_some_and(|path| path.is_judged())
}

/// The place of a file of the tree `root` that [`GitPath::is_rewritten`].
pub fn of_rewritten<'a>(root: &Path, path: &'a TreePath) -> Option<GitPath<'a>> {
    // Asked about every path of a tree: nearly all are ruled out by their last name or by a word in them.
    let is_of_urls = || URLS.iter().any(|name| memmem::find(path.as_bytes(), name).is_some());
    let may_be = matches!(path.name(), b"config" | b"config.worktree" | b"FETCH_HEAD") || is_of_urls();
    may_be.then(|| GitPath::of(root, path)).flatten().filter(GitPath::is_rewritten)
}

/// [`GitPath::is_rewritten`] of a path of the tree `root`.
pub fn is_rewritten(root: &Path, path: &TreePath) -> bool {
    of_rewritten(root, path).is_some()
}

/// [`GitPath::is_reference`] of a path of the tree `root`.
pub fn is_reference(root: &Path, path: &TreePath) -> bool {
    // Asked about every path of a tree.
    let may_be = path.names().any(|name| matches!(name, b"HEAD" | b"packed-refs" | b"refs"));
    may_be && GitPath::of(root, path).is_some_and(|path| path.is_reference())
}

/// Returns whether an overlay has a file of its own at a path of the tree `root`, whatever the session has done.
pub fn is_of_overlay(root: &Path, path: &TreePath) -> bool {
    is_rewritten(root, path) || is_reference(root, path)
}

/// Returns whether a change says that the session has used a repository for more than looking at it, which writes indexes, and for more than tags
/// and stashes.
pub fn is_beyond_index(path: &TreePath) -> bool {
    let mut below = path.names().skip_while(|name| *name != b".git").skip(1);
    match (below.next(), below.next()) {
        (None | Some(b"index" | b"objects" | b"logs" | b"ORIG_HEAD"), _) => false,
        (Some(b"modules" | b"worktrees"), _) => !is_index(path),
        (Some(b"refs"), next) => next.is_some_and(|name| name == b"heads"),
        (Some(_), _) => true,
    }
}

/// Returns whether a path is that of an index: of a repository, a submodule or a linked work tree.
pub fn is_index(path: &TreePath) -> bool {
    let mut below = path.names().skip_while(|name| *name != b".git").skip(1);
    path.name() == b"index"
        && match below.next() {
            Some(b"modules" | b"worktrees") => !below.any(|name| matches!(name, b"refs" | b"logs")),
            first => first == Some(b"index"),
        }
}

/// [`GitPath::rewritten`] of a path of the tree `root`.
pub fn rewritten(root: &Path, path: &TreePath, content: &[u8]) -> Option<Vec<u8>> {
    of_rewritten(root, path)?.rewritten(content)
}

/// Returns whether an entry of a git directory is needed, of which `next` is the next name of the path.
fn is_entry(name: &[u8], next: Option<&[u8]>, is_file: bool) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    if let Some((_, needed)) = ENTRIES.iter().find(|(directory, _)| *directory == name) {
        return match next {
            Some(next) => needed.iter().any(|name| name.as_bytes() == next),
            None => !is_file,
        };
    }
    // With nothing of it but its own name it may be a link to a directory.
    let is_last = next.is_none();
    DIRECTORIES.contains(&name)
        || is_last && (FILES.contains(&name) || is_pseudo_ref(name) || is_shared_index(name))
}

/// `ORIG_HEAD`, `FETCH_HEAD`, `CHERRY_PICK_HEAD`, `BISECT_START`
fn is_pseudo_ref(name: &str) -> bool {
    (name.ends_with("_HEAD") || name.starts_with("BISECT_"))
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

fn is_shared_index(name: &str) -> bool {
    name.strip_prefix("sharedindex.").is_some_and(|hash| is_object_name(hash.as_bytes()))
}

fn is_object_name(name: &[u8]) -> bool {
    name.len() >= 40 && name[..40].iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIT_DIRECTORIES: [&str; 7] = [
        ".git",
        "sub/.git",
        ".GIT",
        ".git/worktrees/one",
        ".git/modules/lib",
        ".git/modules/vendor/a",
        ".git/worktrees/one/worktrees/two",
    ];

    const NEEDED: [&str; 33] = [
        "HEAD",
        "ORIG_HEAD",
        "FETCH_HEAD",
        "MERGE_HEAD",
        "MERGE_MSG",
        "CHERRY_PICK_HEAD",
        "BISECT_EXPECTED_REV",
        "BISECT_LOG",
        "COMMIT_EDITMSG",
        "config",
        "config.worktree",
        "index",
        "sharedindex.4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "packed-refs",
        "shallow",
        "description",
        "info/exclude",
        "info/sparse-checkout",
        "objects/4b/825dc642cb6eb9a060e54bf8d69288fbee4904",
        "objects/info/commit-graphs/commit-graph-chain",
        "refs/heads/config",
        "refs/stash",
        "refs/notes/commits",
        "logs/HEAD",
        "logs/refs/heads/credentials",
        "hooks/pre-commit",
        "rebase-merge/git-rebase-todo",
        "rebase-apply/next",
        "sequencer/opts",
        "reftable/tables.list",
        "rr-cache/4b825dc642cb6eb9a060e54bf8d69288fbee4904/preimage",
        "lfs/objects/aa/bb/aabb",
        "annex/objects/aa/bb/SHA256E-s1--a",
    ];

    const NOT_NEEDED: [&str; 16] = [
        "git-crypt/keys/default",
        "annex/creds/1b2c",
        "credentials",
        "config~",
        "config.bak",
        "config.lock",
        ".config.swp",
        "config/x",
        "HEAD~",
        "index.lock",
        "sharedindex.txt",
        "info/exclude~",
        "lfs/logs/20260101.log",
        "svn/.metadata",
        "gk/config",
        ".git/config",
    ];

    fn is_needed_in(root: &Path, path: &str, is_file: bool) -> bool {
        is_needed(root, &TreePath::new(path.as_bytes()).expect("a path"), is_file)
    }

    /// Keys of git-crypt and git-annex and editors' copies of the configuration were copied.
    #[test]
    fn of_a_git_directory_only_what_git_needs_is_copied() {
        let root = tempfile::tempdir().expect("a directory");
        for module in ["lib", "vendor/a"] {
            let git_dir = root.path().join(".git/modules").join(module);
            std::fs::create_dir_all(&git_dir).expect("a directory");
            std::fs::write(git_dir.join("HEAD"), "ref: refs/heads/main\n").expect("a file");
        }
        for git_dir in GIT_DIRECTORIES {
            for name in NEEDED {
                assert!(is_needed_in(root.path(), &format!("{git_dir}/{name}"), true), "{git_dir}/{name}");
            }
            for name in NOT_NEEDED {
                assert!(!is_needed_in(root.path(), &format!("{git_dir}/{name}"), true), "{git_dir}/{name}");
            }
            for directory in [
                "refs",
                "info",
                "lfs",
                "annex",
                "modules",
                "modules/x",
                "modules/x/y",
                "worktrees",
                "worktrees/x",
            ] {
                assert!(
                    is_needed_in(root.path(), &format!("{git_dir}/{directory}"), false),
                    "{git_dir}/{directory}"
                );
            }
            for directory in ["git-crypt", "lfs/cache", "annex/creds", "x"] {
                assert!(
                    !is_needed_in(root.path(), &format!("{git_dir}/{directory}"), false),
                    "{git_dir}/{directory}"
                );
            }
        }
        for outside in ["git-crypt/keys/default", "a/config~", ".gitmodules", ".git"] {
            assert!(is_needed_in(root.path(), outside, true), "{outside}");
        }
        for file in [
            ".git/modules/x",
            ".git/modules/vendor/x",
            ".git/modules/x/git-crypt/keys/config",
            ".git/worktrees/x",
        ] {
            assert!(!is_needed_in(root.path(), file, true), "{file}");
        }
    }

    /// A branch of that name was lost, and what others' programs and older versions of git wrote into logs was copied.
    #[test]
    fn urls_lose_their_credentials_and_branches_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        for module in ["logs", "packages/remotes/lib"] {
            let git_dir = root.path().join(".git/modules").join(module);
            std::fs::create_dir_all(&git_dir).expect("a directory");
            std::fs::write(git_dir.join("HEAD"), "ref: refs/heads/main\n").expect("a file");
        }
        let rewritten = |path: &str, content: &str| {
            rewritten(root.path(), &TreePath::new(path.as_bytes()).expect("a path"), content.as_bytes())
                .map(|content| String::from_utf8_lossy(&content).into_owned())
        };
        let commit = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let log = |url: &str| format!("{commit} {commit} A <a@b> 1 +0000\tclone: from {url}\n");
        for path in [
            ".git/logs/HEAD",
            ".git/logs/refs/heads/config",
            ".git/modules/logs/logs/HEAD",
            ".git/modules/packages/remotes/lib/logs/HEAD",
            ".git/branches/old",
            ".git/remotes/old",
            ".git/FETCH_HEAD",
        ] {
            let found = rewritten(path, &log("https://u:p@h/x"));
            assert_eq!(found.as_deref(), Some(log("https://h/x").as_str()), "{path}");
            assert_eq!(rewritten(path, &log("https://h/x")), None, "{path}");
        }
        assert_eq!(rewritten(".git/refs/heads/config", &format!("{commit}\n")), None);
        assert_eq!(rewritten(".git/modules/logs/config", "[x]\ny = z\n").as_deref(), Some(""));
        // Bytes of objects may look like a URL.
        for path in [
            "logs/FETCH_HEAD",
            "branches/main/.git/objects/4b/825dc642cb6eb9a060e54bf8d69288fbee4904",
            ".git/modules/packages/remotes/lib/objects/4b/825dc642cb6eb9a060e54bf8d69288fbee4904",
            ".git/refs/remotes/origin/main",
        ] {
            assert_eq!(rewritten(path, "https://u:p@h/x"), None, "{path}");
        }
    }
}
