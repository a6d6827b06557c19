//! Directories that git would take for a repository without a work tree.
//!
//! A directory with `HEAD`, `objects` and `refs` in it is one, whatever its name. git that runs in it or below obeys its
//! `config`, which can name programs to run (`core.fsmonitor`, `core.pager`, a remote's `uploadpack`). So nothing
//! of one is ever written to the host, as nothing of `.git` is. The parts may come one after the other, or on several branches, and
//! what a change removes may stay or be put back. So a part counts as there also where it is removed, and a `HEAD` that git
//! accepts, without which there is no repository, is never added.

use crate::tree_path::{TreePath, folded};
use std::collections::{BTreeMap, BTreeSet};

/// The reason why nothing of one is written, to stand after a colon.
pub const REASON: &str = "git would take it for a repository of its own, whose settings run programs";

/// The same for a `HEAD` alone.
pub const HEAD_REASON: &str = "git would take its directory for a repository of its own once the rest of one is there, whose settings run programs";

/// The marks of a repository (`is_git_directory` in git's `setup.c`), and what such a one obeys. A file system may not tell
/// upper from lower case.
const HEAD: &[u8] = b"HEAD";
const OBJECTS: &[u8] = b"objects";
const REFS: &[u8] = b"refs";
/// In place of objects and refs: where they are.
const COMMON: &[u8] = b"commondir";
const OBEYED: [&[u8]; 7] =
    [b"config", b"config.worktree", b"hooks", b"info", b"rebase-apply", b"rebase-merge", b"sequencer"];

/// As much of a `HEAD` as git reads.
pub const HEAD_LENGTH: u64 = 255;

/// Returns whether git accepts this content of a `HEAD`, whose first [`HEAD_LENGTH`] bytes are enough: the name of a reference or
/// of a commit (`validate_headref` in git's `path.c`).
pub fn is_head(content: &[u8]) -> bool {
    let commit = content.get(..40);
    content.starts_with(b"ref:") || commit.is_some_and(|name| name.iter().all(u8::is_ascii_hexdigit))
}

/// The same of a symlink.
pub fn is_head_target(target: &[u8]) -> bool {
    target.starts_with(b"refs/")
}

/// Returns whether a path has the name of a `HEAD`.
pub fn is_named_head(path: &TreePath) -> bool {
    HEAD.eq_ignore_ascii_case(&folded(path.name()))
}

/// The directories that one of the `written` paths is in and that are repositories once all of them are written; the root, which the user
/// named, is the empty path, and counts only where something of those is written that git knows. `is_there`: whether something else is at
/// a path.
pub fn repositories<'p>(
    written: impl IntoIterator<Item = &'p TreePath>,
    is_there: impl Fn(&TreePath) -> bool,
) -> BTreeSet<Vec<u8>> {
    let mut touched: BTreeMap<&[u8], BTreeSet<&'static [u8]>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for path in written {
        for (directory, known) in candidates([path]) {
            touched.entry(directory).or_default().insert(known);
        }
        let mut above = path.parent_bytes();
        while !above.is_empty() && seen.insert(above) {
            touched.entry(above).or_default();
            above = &above[..above.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
        }
    }
    let is_one = |(directory, changed): &(&[u8], BTreeSet<&'static [u8]>)| {
        is_repository(directory, |name, path| changed.contains(name) || is_there(path))
    };
    touched.into_iter().filter(is_one).map(|(directory, _)| directory.to_vec()).collect()
}

/// The directories in which the `written` paths are, or are below, something that marks a repository or that one obeys, each with its name.
pub fn candidates<'p>(
    written: impl IntoIterator<Item = &'p TreePath>,
) -> impl Iterator<Item = (&'p [u8], &'static [u8])> {
    written.into_iter().flat_map(|path| {
        let mut start = 0;
        path.names().filter_map(move |name| {
            let directory = &path.as_bytes()[..start.max(1) - 1];
            start += name.len() + 1;
            let name = folded(name);
            let mut known = [HEAD, OBJECTS, REFS, COMMON].into_iter().chain(OBEYED);
            known.find(|known| known.eq_ignore_ascii_case(&name)).map(|known| (directory, known))
        })
    })
}

/// Those of `directories` that are repositories by what is there alone.
pub fn complete(directories: &BTreeSet<Vec<u8>>, is_there: impl Fn(&TreePath) -> bool) -> BTreeSet<Vec<u8>> {
    let is_one = |directory: &&Vec<u8>| is_repository(directory, |_, path| is_there(path));
    directories.iter().filter(is_one).cloned().collect()
}

/// Returns whether a path is a repository or in one, by what is there; in the top directory, which the user named, only what git knows.
pub fn is_within(path: &[u8], is_there: impl Fn(&TreePath) -> bool) -> bool {
    let is_one = |directory: &[u8]| is_repository(directory, |_, path| is_there(path));
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let mut ends = slashes.chain([path.len()]).filter(|end| *end > 0);
    ends.any(|end| is_one(&path[..end]))
        || TreePath::new(path).is_ok_and(|path| is_obeyed(&path, b"")) && is_one(b"")
}

/// Returns whether a path is what git obeys in the repository `directory`.
pub fn is_obeyed(path: &TreePath, directory: &[u8]) -> bool {
    candidates([path]).any(|(of, name)| of == directory && (name == COMMON || OBEYED.contains(&name)))
}

/// The paths at which git looks for what it obeys in the repository `directory`.
pub fn obeyed(directory: &[u8]) -> impl Iterator<Item = TreePath> {
    OBEYED.into_iter().chain([COMMON]).filter_map(move |name| below(directory, name))
}

/// The name of such a directory for the user.
pub fn shown(directory: &[u8]) -> String {
    TreePath::new(directory).map_or_else(|_| ".".to_owned(), |directory| directory.to_string())
}

fn is_repository(directory: &[u8], has: impl Fn(&[u8], &TreePath) -> bool) -> bool {
    is_marked(|name| below(directory, name).is_some_and(|path| has(name, &path)))
}

/// Returns whether a directory that has these names in it is one of git's.
pub fn is_marked(has: impl Fn(&'static [u8]) -> bool) -> bool {
    has(HEAD) && (has(COMMON) || has(OBJECTS) && has(REFS))
}

fn below(directory: &[u8], name: &[u8]) -> Option<TreePath> {
    let path = if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() };
    TreePath::new(&path).ok()
}

#[cfg(test)]
mod tests {
    use super::{is_head, is_named_head, repositories};
    use crate::changes::{Change, ChangeSet};
    use crate::manifest::Node;
    use crate::tree_path::TreePath;
    use std::collections::BTreeSet;

    fn found(added: &[&str], there: &[&str]) -> Vec<String> {
        let path = |text: &str| TreePath::new(text.as_bytes()).unwrap();
        let added: Vec<TreePath> = added.iter().map(|text| path(text)).collect();
        let there: BTreeSet<TreePath> = there.iter().map(|text| path(text)).collect();
        let found = repositories(&added, |path| there.contains(path));
        found.into_iter().map(|directory| String::from_utf8(directory).unwrap()).collect()
    }

    #[test]
    fn all_at_once_or_a_piece_at_a_time() {
        assert_eq!(found(&["sub/HEAD", "sub/objects/info/k", "sub/refs/heads/k", "a.txt"], &[]), ["sub"]);
        assert_eq!(found(&["HEAD", "objects/a", "refs/a"], &[]), [""]);
        assert_eq!(found(&["a/b/objects/k"], &["a/b/HEAD", "a/b/refs"]), ["a/b"]);
        assert_eq!(found(&["x/config"], &["x/HEAD", "x/objects", "x/refs"]), ["x"]);
        assert_eq!(found(&["x/rebase-merge/git-rebase-todo"], &["x/HEAD", "x/objects", "x/refs"]), ["x"]);
        assert_eq!(found(&["a/x/y/packed"], &["a/x/HEAD", "a/x/objects", "a/x/refs"]), ["a/x"]);
        assert_eq!(found(&["x/head", "x/Objects/a", "x/REFS/b"], &[]), ["x"]);
        assert_eq!(found(&["x/HEAD", "x/commondir"], &[]), ["x"]);
        assert_eq!(found(&["x/HE\u{34f}AD", "x/common\u{ad}dir"], &[]), ["x"]);
        assert_eq!(found(&["x/HEAD", "x/object\u{17f}/k", "x/ref\u{17f}/k"], &[]), ["x"]);
    }

    #[test]
    fn what_is_removed_counts_as_there_for_what_is_written_beside_it() {
        let path = |text: &str| TreePath::new(text.as_bytes()).unwrap();
        let change = |(name, stays): (&str, bool)| {
            let after = stays.then_some(Node::Directory { mode: 0o755 });
            (path(name), Change { before: None, after })
        };
        let changes = |of: &[(&str, bool)]| {
            let changes = of.iter().copied().map(change).collect();
            ChangeSet { changes, ..ChangeSet::default() }
        };
        assert!(changes(&[("x/config", false), ("x/HEAD", false)]).repositories(|_| true).is_empty());
        assert_eq!(changes(&[("x/config", true), ("x/HEAD", false)]).repositories(|_| true).len(), 1);
        assert_eq!(changes(&[("x/config", true)]).repositories(|_| true).len(), 1);
    }

    #[test]
    fn a_head_is_the_name_of_a_reference_or_of_a_commit() {
        let commit = [b'a'; 40];
        for content in [
            &b"ref: refs/heads/main\n"[..],
            b"ref:\trefs/x",
            &commit,
            &[b'0'; 64],
            &[&commit[..], b"\n"].concat(),
        ] {
            assert!(is_head(content), "{}", content.escape_ascii());
        }
        for content in [&b""[..], b"#!/bin/sh\n", b"reference", &[b'a'; 39], &[b'x'; 41]] {
            assert!(!is_head(content), "{}", content.escape_ascii());
        }
        for (path, is_one) in
            [("sub/HEAD", true), ("head", true), ("HE\u{34f}AD", true), ("HEAD/x", false), ("head.c", false)]
        {
            assert_eq!(is_named_head(&TreePath::new(path.as_bytes()).unwrap()), is_one, "{path}");
        }
    }

    #[test]
    fn what_only_looks_a_little_like_one_is_none() {
        assert!(found(&["HEAD", "objects/a", "config", "hooks/pre-commit"], &[]).is_empty());
        assert!(found(&["refs/a", "objects/a"], &["sub/HEAD"]).is_empty());
        assert!(found(&["y.txt"], &["HEAD", "objects", "refs"]).is_empty());
        assert!(found(&["x.txt"], &["x/HEAD", "x/objects", "x/refs"]).is_empty());
    }
}
