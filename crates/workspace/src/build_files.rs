//! New files that only a tool writes: byte code, caches of tests and linters, what an editor or the system drops.
//!
//! They are not part of the change unless the user asks for them. Names that real files often have (build,
//! dist, out, target, *.log) are not in the table, and what the host knows at or below a path keeps it a change.

use crate::changes::{Change, ChangeSet, Refused};
use crate::manifest::{Delta, Manifest, Node};
use crate::store::Store;
use crate::tree_path::TreePath;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::ops::Bound;
use std::path::Path;

/// Names that the line about them shows.
const MAX_NAMED: usize = 5;
/// Bytes of a file's beginning that a rule may look at.
const HEAD: u64 = 64;

/// A rule that recognises what a tool wrote.
enum Rule {
    /// A directory of this name, with all that is in it.
    Directory(&'static str),
    /// A regular file of this name. One `*` stands for any characters.
    File(&'static str),
    /// A regular file of this name whose beginning passes a test.
    FileThat(&'static str, fn(&[u8]) -> bool),
    /// A directory that holds a regular file of this name, and has the name that is given first, if one is.
    Holds(Option<&'static str>, &'static str),
    /// A directory that holds a regular file of this name whose beginning passes a test.
    HoldsThat(&'static str, fn(&[u8]) -> bool),
}

/// The table.
const RULES: &[Rule] = {
    use Rule::{Directory, File, FileThat, Holds, HoldsThat};
    &[
        // https://bford.info/cachedir/
        HoldsThat("CACHEDIR.TAG", |head| head.starts_with(b"Signature: 8a477f597d28d172789f06886806bc55")),
        // Python.
        Directory("__pycache__"),
        File("*.pyc"),
        File("*.pyo"),
        Directory(".pytest_cache"),
        Directory(".mypy_cache"),
        Directory(".ruff_cache"),
        Directory(".hypothesis"),
        Directory(".tox"),
        Directory(".nox"),
        Directory(".ipynb_checkpoints"),
        Directory(".eggs"),
        File(".coverage"),
        Holds(None, "pyvenv.cfg"),
        // JavaScript.
        Holds(Some("node_modules"), ".package-lock.json"),
        Holds(Some("node_modules"), ".modules.yaml"),
        Holds(Some("node_modules"), ".yarn-integrity"),
        Directory(".nyc_output"),
        Directory(".parcel-cache"),
        Directory(".next"),
        Directory(".nuxt"),
        Directory(".svelte-kit"),
        File(".eslintcache"),
        File(".stylelintcache"),
        File("*.tsbuildinfo"),
        File("npm-debug.log*"),
        // Others.
        Directory(".gradle"),
        Directory(".zig-cache"),
        Directory(".stack-work"),
        Directory("dist-newstyle"),
        Directory(".dart_tool"),
        Directory("CMakeFiles"),
        File("CMakeCache.txt"),
        File("hs_err_pid*.log"),
        File("erl_crash.dump"),
        File("rustc-ice-*.txt"),
        // The system and editors.
        FileThat("core*", is_core_dump),
        File(".DS_Store"),
        // AppleDouble.
        FileThat("._*", |head| head.starts_with(&[0, 5, 0x16, 7])),
        FileThat(".*.sw*", |head| head.starts_with(b"b0VIM")),
        File(".nfs*"),
        File(".fuse_hidden*"),
        File("nohup.out"),
    ]
};

/// Returns whether a file begins as a core dump in ELF: of that type (`ET_CORE`), whatever its byte order.
fn is_core_dump(head: &[u8]) -> bool {
    let kind = head.get(16..18);
    head.starts_with(b"\x7fELF") && (kind == Some(&[4, 0]) || kind == Some(&[0, 4]))
}

/// Files that are kept out of a change because only a tool writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildFiles {
    changes: BTreeMap<TreePath, Change>,
    refused: Vec<Refused>,
    /// Their names in the table, with how many files each has.
    names: BTreeMap<String, u64>,
}

impl BuildFiles {
    /// One line about them; `None` where there is no file.
    pub(super) fn remark(&self) -> Option<String> {
        let count: u64 = self.names.values().sum();
        let (files, are) = if count == 1 { ("file", "is") } else { ("files", "are") };
        let mut names: Vec<(&String, &u64)> = self.names.iter().collect();
        names.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let more = match names.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named: Vec<&str> = names.iter().take(MAX_NAMED).map(|(name, _)| name.as_str()).collect();
        let named = named.join(", ");
        (count > 0).then(|| {
            format!(
                "{count} {files} of build tools {are} not part of the change: {named}{more}; --all shows them"
            )
        })
    }

    /// Adds those of the directory `root` beside the workspace.
    pub(super) fn add(&mut self, root: &Path, other: Self) {
        let outside = |(path, change): (TreePath, Change)| (TreePath::outside(root, &path), change);
        self.changes.extend(other.changes.into_iter().map(outside));
        self.refused.extend(other.refused);
        for (name, count) in other.names {
            *self.names.entry(name).or_default() += count;
        }
    }

    /// Those at or below a path.
    pub(super) fn any_within(&self, path: &[u8]) -> bool {
        self.changes.keys().any(|other| other.is_within(path))
    }

    /// Puts them into a change again.
    pub(super) fn return_to(self, set: &mut ChangeSet) {
        set.changes.extend(self.changes);
        set.refused.extend(self.refused);
    }
}

/// The trees of host and sandbox, and their contents.
pub struct Trees<'a> {
    /// The tree that the session began with.
    pub base: &'a Manifest,
    /// Differences of the host from the base that an apply wrote.
    pub accepted: &'a Delta,
    /// Differences of the sandbox from the base.
    pub delta: &'a Delta,
    /// The store of contents.
    pub store: &'a Store,
}

/// Takes out of a change what only tools write.
pub fn separate(set: &mut ChangeSet, trees: &Trees<'_>) -> BuildFiles {
    let mut judge = Judge { trees, directories: HashMap::new() };
    let mut found = BuildFiles::default();
    set.changes.retain(|path, change| {
        if change.before.is_some() {
            return true;
        }
        let Some(name) = judge.name_of(path, change.after.as_ref()) else { return true };
        let is_file = change.after.as_ref().is_some_and(|node| !node.is_directory());
        *found.names.entry(name).or_default() += u64::from(is_file);
        found.changes.insert(path.clone(), change.clone());
        false
    });
    set.refused.retain(|refused| {
        // Its name may be escaped, and then nothing of the tree has it.
        let Ok(path) = TreePath::new(refused.name.as_bytes()) else { return true };
        let Some(name) = path.ancestors().find_map(|directory| judge.directory(&directory)) else {
            return true;
        };
        *found.names.entry(name).or_default() += 1;
        found.refused.push(refused.clone());
        false
    });
    found.names.retain(|_, count| *count > 0);
    found
}

/// Leaves out of `paths` those of new files that only tools write.
pub fn leave_out(mut paths: Vec<TreePath>, trees: &Trees<'_>) -> Vec<TreePath> {
    let mut judge = Judge { trees, directories: HashMap::new() };
    paths.retain(|path| {
        let node = trees.delta.get(path).and_then(Option::as_ref);
        trees.base.contains_key(path) || judge.name_of(path, node).is_none()
    });
    paths
}

struct Judge<'a> {
    trees: &'a Trees<'a>,
    /// Directories that were judged already.
    directories: HashMap<TreePath, Option<String>>,
}

impl Judge<'_> {
    /// Returns what the table knows a new path by.
    fn name_of(&mut self, path: &TreePath, node: Option<&Node>) -> Option<String> {
        // The outermost directory counts: all of it is one thing.
        let mut above: Vec<TreePath> = path.ancestors().collect();
        above.reverse();
        if let Some(name) = above.iter().find_map(|directory| self.directory(directory)) {
            return Some(name);
        }
        match node? {
            Node::Directory { .. } => self.directory(path),
            node => RULES
                .iter()
                .any(|rule| match rule {
                    Rule::File(pattern) => is_regular(node) && matches(pattern, path.name()),
                    Rule::FileThat(pattern, test) => {
                        matches(pattern, path.name()) && test(&self.head(Some(node)))
                    }
                    _ => false,
                })
                .then(|| shown(path)),
        }
    }

    /// The name of a directory that only a tool writes.
    fn directory(&mut self, directory: &TreePath) -> Option<String> {
        if let Some(judged) = self.directories.get(directory) {
            return judged.clone();
        }
        let is_tools = RULES.iter().any(|rule| match rule {
            Rule::Directory(name) => directory.name() == name.as_bytes(),
            Rule::Holds(name, file) => {
                name.is_none_or(|name| directory.name() == name.as_bytes())
                    && self.file_in(directory, file).is_some_and(is_regular)
            }
            Rule::HoldsThat(file, test) => {
                let file = self.file_in(directory, file);
                file.is_some() && test(&self.head(file))
            }
            Rule::File(_) | Rule::FileThat(..) => false,
        });
        let judged = (is_tools && !self.host_knows(directory)).then(|| shown(directory));
        self.directories.insert(directory.clone(), judged.clone());
        judged
    }

    fn file_in(&self, directory: &TreePath, name: &str) -> Option<&Node> {
        self.trees.delta.get(&directory.join(name.as_bytes()).ok()?)?.as_ref()
    }

    /// Returns whether the host has something at or below a directory that is not itself a directory.
    fn host_knows(&self, directory: &TreePath) -> bool {
        let begin = [directory.as_bytes(), b"/"].concat();
        let from = || (Bound::Included(&begin[..]), Bound::<&[u8]>::Unbounded);
        let is_below = |path: &TreePath| path.as_bytes().starts_with(&begin);
        let mut base = self.trees.base.range::<[u8], _>(from()).take_while(|(path, _)| is_below(path));
        let mut accepted =
            self.trees.accepted.range::<[u8], _>(from()).take_while(|(path, _)| is_below(path));
        base.any(|(_, node)| !node.is_directory())
            || accepted.any(|(_, node)| node.as_ref().is_some_and(|node| !node.is_directory()))
            || self.trees.base.get(directory).is_some_and(|node| !node.is_directory())
    }

    /// The beginning of a regular file; nothing where its content is not known.
    fn head(&self, node: Option<&Node>) -> Vec<u8> {
        let mut head = Vec::new();
        if let Some(Node::File { hash, .. }) = node
            && let Ok(file) = self.trees.store.open_blob(*hash)
        {
            // What cannot be read passes no test, and so is part of the change.
            let _ = file.take(HEAD).read_to_end(&mut head);
        }
        head
    }
}

fn is_regular(node: &Node) -> bool {
    matches!(node, Node::File { .. })
}

fn shown(path: &TreePath) -> String {
    String::from_utf8_lossy(path.name()).into_owned()
}

/// Returns whether a name is as `pattern` says, in which `*` stands for any characters.
fn matches(pattern: &str, name: &[u8]) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default().as_bytes();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&[u8]> = parts.map(str::as_bytes).collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match memchr::memmem::find(rest, part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_base::hash::Hash;

    /// Judges new files by their path and content; those of `host` are known to it.
    fn kept_out(host: &[&str], new: &[(&str, &[u8])]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let path = |text: &str| TreePath::new(text.as_bytes()).unwrap();
        let node = |hash: Hash, size| Node::File { hash, size, mode: 0o644 };
        let base: Manifest =
            host.iter().map(|text| (path(text), node(store.put(b"host").unwrap(), 4))).collect();
        let delta: Delta = new
            .iter()
            .map(|(text, content)| {
                (path(text), Some(node(store.put(content).unwrap(), content.len() as u64)))
            })
            .collect();
        let accepted = Delta::new();
        let changes = delta.iter().map(|(path, after)| {
            (path.clone(), Change { before: base.get(path).cloned(), after: after.clone() })
        });
        let mut set = ChangeSet { changes: changes.collect(), ..ChangeSet::default() };
        let trees = Trees { base: &base, accepted: &accepted, delta: &delta, store: &store };
        let found = separate(&mut set, &trees);
        found.changes.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn what_only_a_tool_writes_is_kept_out_and_what_is_often_real_is_not() {
        let tag = b"Signature: 8a477f597d28d172789f06886806bc55";
        let core: &[u8] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\x3e\0";
        let program: &[u8] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0";
        let kept = kept_out(
            &[],
            &[
                ("a/__pycache__/m.cpython-312.pyc", b"x"),
                ("cache/CACHEDIR.TAG", tag),
                ("cache/deep/entry", b"x"),
                ("core", core),
                ("core.1234", core),
                (".DS_Store", b"x"),
                ("web/node_modules/.package-lock.json", b"{}"),
                ("web/node_modules/left-pad/index.js", b"x"),
                ("venv/pyvenv.cfg", b"home = /usr/bin"),
                ("venv/lib/site.py", b"x"),
                (".a.py.swp", b"b0VIM 8.2"),
            ],
        );
        assert_eq!(kept.len(), 11, "{kept:?}");
        let real = kept_out(
            &[],
            &[
                ("core", b"#!/bin/sh"),
                ("core.so", program),
                ("core/main.py", b"x"),
                ("build/main.py", b"x"),
                ("dist/a.js", b"x"),
                ("out/a", b"x"),
                ("run.log", b"x"),
                ("node_modules/mine.js", b"x"),
                ("tagged/CACHEDIR.TAG", b"not a signature"),
                ("._config", b"a file of somebody"),
                ("CACHEDIR.TAG", tag),
                ("src.py", b"x"),
            ],
        );
        assert_eq!(real, Vec::<String>::new());
    }

    #[test]
    fn a_directory_of_which_the_host_knows_a_file_is_part_of_the_change() {
        let tag = b"Signature: 8a477f597d28d172789f06886806bc55";
        let new: &[(&str, &[u8])] = &[("src/CACHEDIR.TAG", tag), ("src/new.rs", b"x"), (".next/a", b"x")];
        assert_eq!(kept_out(&["src/main.rs", ".next/tracked"], new), Vec::<String>::new());
        assert_eq!(kept_out(&["src-of-another/main.rs"], new).len(), 3);
        assert_eq!(kept_out(&["nohup.out"], &[("nohup.out", b"x")]), Vec::<String>::new());
    }
}
