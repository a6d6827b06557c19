//! What the sandbox gets of a `.git` directory: what git needs inside, by name, and without credentials in its texts.
//!
//! Other programs keep keys and tokens there (git-crypt, git-annex), editors copies of the configuration, and nobody knows the next
//! one. What is not on the list is not shown in any mode.

use crate::git_config;
use crate::tree_path::{TreePath, is_dot_git};
use crate::userinfo;
use memchr::memmem;
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
const URLS: [&[u8]; 3] = [b"/logs/", b"/branches/", b"/remotes/"];

/// Returns whether git needs a path of the tree `root` inside, where it lies in a `.git` directory; all else is needed. `is_file` says
/// whether it is a regular file.
pub fn is_needed(root: &Path, path: &TreePath, is_file: bool) -> bool {
    let mut names = path.names().skip_while(|name| !is_dot_git(name)).skip(1);
    loop {
        let Some(name) = names.next() else { return true };
        match name {
            // Where `a/b` is a submodule's name, `a` is a directory and nothing else.
            b"modules" => match below_modules(root, path, &mut names) {
                Module::Inside => {}
                Module::Above => return !is_file,
            },
            b"worktrees" => match names.next() {
                Some(_) if names.clone().next().is_none() => return !is_file,
                Some(_) => {}
                None => return !is_file,
            },
            _ => return is_entry(name, names.next(), is_file),
        }
    }
}

/// The place of a path below `modules`.
enum Module {
    /// It lies in a submodule's git directory, whose names follow.
    Inside,
    /// It is one of the directories that lead to one, or none is there.
    Above,
}

/// Takes the names of a submodule, each of which is a directory: its git directory has a `HEAD`.
fn below_modules<'a>(
    root: &Path,
    path: &'a TreePath,
    names: &mut (impl Iterator<Item = &'a [u8]> + Clone),
) -> Module {
    while names.next().is_some() {
        let count = names.clone().count();
        if count == 0 {
            return Module::Above;
        }
        let directory = path.as_path().ancestors().nth(count);
        if directory.is_some_and(|directory| root.join(directory).join("HEAD").symlink_metadata().is_ok()) {
            return Module::Inside;
        }
    }
    Module::Above
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

/// Returns whether a file of the tree is a git configuration, or is called like one.
pub fn is_config(path: &TreePath) -> bool {
    // Asked about every path of a tree: nearly all are ruled out by their last bytes.
    let bytes = path.as_bytes();
    (bytes.ends_with(b"config") || bytes.ends_with(b"config.worktree"))
        && is_named_config(path)
        && path.is_git_internal()
}

fn is_named_config(path: &TreePath) -> bool {
    matches!(path.name(), b"config" | b"config.worktree")
}

/// Returns whether the sandbox may get other contents than the host has: a configuration, or what names the URLs of others.
pub fn is_rewritten(path: &TreePath) -> bool {
    is_config(path)
        || (path.name() == b"FETCH_HEAD"
            || URLS.iter().any(|names| memmem::find(path.as_bytes(), names).is_some()))
            && path.is_git_internal()
}

/// Returns whether a file is judged as one of the tree is, though it lies in a `.git` directory: anything may lie among the hooks.
pub fn is_judged(path: &TreePath) -> bool {
    memmem::find(path.as_bytes(), b"/hooks/").is_some() || !path.is_git_internal()
}

/// The content of a file of the tree as the sandbox gets it. `None` where that is the host's.
pub fn rewritten(path: &TreePath, content: &[u8]) -> Option<Vec<u8>> {
    match is_rewritten(path) {
        // A branch can be called `config` too: it holds the name of a commit, and its log begins with one.
        true if is_config(path) && !is_object_name(content) => git_config::needed(content),
        true => userinfo::without_userinfo(content),
        false => None,
    }
}

/// Returns whether a file holds a password or token of git's, which [`rewritten`] would take out of one in a `.git`: the directory of a
/// repository may have any name.
pub fn has_credentials(path: &TreePath, content: &[u8]) -> bool {
    match is_rewritten(path) {
        _ if is_named_config(path) && !is_object_name(content) => git_config::has_credentials(content),
        true => userinfo::without_userinfo(content).is_some(),
        false => false,
    }
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
        let rewritten = |path: &str, content: &str| {
            rewritten(&TreePath::new(path.as_bytes()).expect("a path"), content.as_bytes())
                .map(|content| String::from_utf8_lossy(&content).into_owned())
        };
        let commit = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let log = |url: &str| format!("{commit} {commit} A <a@b> 1 +0000\tclone: from {url}\n");
        for path in [
            ".git/logs/HEAD",
            ".git/logs/refs/heads/config",
            ".git/modules/logs/logs/HEAD",
            ".git/FETCH_HEAD",
        ] {
            let found = rewritten(path, &log("https://u:p@h/x"));
            assert_eq!(found.as_deref(), Some(log("https://h/x").as_str()), "{path}");
            assert_eq!(rewritten(path, &log("https://h/x")), None, "{path}");
        }
        assert_eq!(rewritten(".git/refs/heads/config", &format!("{commit}\n")), None);
        assert_eq!(rewritten(".git/modules/logs/config", "[x]\ny = z\n").as_deref(), Some(""));
        assert_eq!(rewritten("logs/FETCH_HEAD", "https://u:p@h/x"), None);
    }
}
