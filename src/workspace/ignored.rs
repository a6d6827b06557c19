//! Which new files in the sandbox `.gitignore` leaves out: build outputs, installed packages, caches.
//!
//! They are neither recorded by checkpoints nor part of the change set. The rules are those of the sandbox's own
//! `.gitignore` files (a rule that it adds can only hide a file from being taken over), and the host's outer ones.

use crate::plain_file::{self, Links};
use crate::workspace::tree_path::TreePath;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Largest `.gitignore` that is read, in bytes.
pub const MAX_RULES: usize = 1 << 20;

/// The rules in force.
#[derive(Default)]
pub struct Ignored {
    /// Rules from outside the tree: above it, `.git/info/exclude`, the user's own. Paths are absolute there.
    outer: Vec<Gitignore>,
    root: std::path::PathBuf,
    /// By directory; the empty name is the root.
    rules: HashMap<Vec<u8>, Gitignore>,
    /// What takes part whatever the rules say.
    include: Option<Gitignore>,
    /// Directories that were judged already.
    judged: BTreeMap<TreePath, bool>,
}

impl Ignored {
    /// The rules that hold for `root` from outside. Blocking.
    pub fn outer(root: &Path) -> Self {
        let mut outer = vec![rules_in(root, ".git/info/exclude")];
        if let Some(above) = root.parent().filter(|_| root.join(".git").symlink_metadata().is_err()) {
            // Up to the work tree's root, as git does; without one there are no rules from above.
            if let Some(top) = above.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()) {
                let dirs = above.ancestors().take_while(|dir| dir.starts_with(top));
                outer.extend(dirs.map(|dir| rules_in(dir, ".gitignore")));
                outer.push(rules_in(top, ".git/info/exclude"));
            }
        }
        outer.push(Gitignore::global().0);
        outer.retain(|rules| !rules.is_empty());
        Self { outer, root: root.to_owned(), ..Self::default() }
    }

    /// With globs for what takes part all the same.
    pub fn including(mut self, include: Gitignore) -> Self {
        self.include = Some(include).filter(|globs| !globs.is_empty());
        self
    }

    /// Whether something in an ignored directory may take part.
    pub fn may_include_below(&self) -> bool {
        self.include.is_some()
    }

    /// Sets the rules of one directory (`None`: the root) from the text of its `.gitignore`.
    pub fn set(&mut self, directory: Option<&TreePath>, text: &[u8]) {
        let key = directory.map_or_else(Vec::new, |path| path.as_bytes().to_vec());
        let rules = parse(directory.map_or(Path::new(""), TreePath::as_path), text);
        match rules.is_empty() {
            false => self.rules.insert(key, rules),
            true => self.rules.remove(&key),
        };
        self.judged.clear();
    }

    /// Forgets the rules of one directory, whose `.gitignore` is gone.
    pub fn unset(&mut self, directory: Option<&TreePath>) {
        if self.rules.remove(directory.map_or(&b""[..], TreePath::as_bytes)).is_some() {
            self.judged.clear();
        }
    }

    /// Whether `path` or a directory above it is ignored.
    pub fn contains(&mut self, path: &TreePath, is_directory: bool) -> bool {
        if let Some(judged) = self.judged.get(path) {
            return *judged;
        }
        let above = path.parent().is_some_and(|parent| self.contains(&parent, true));
        let included =
            |globs: &Gitignore| globs.matched_path_or_any_parents(path.as_path(), is_directory).is_ignore();
        let ignored =
            (above || self.matches(path, is_directory)) && !self.include.as_ref().is_some_and(included);
        if is_directory {
            self.judged.insert(path.clone(), ignored);
        }
        ignored
    }

    /// The innermost directory that says something decides.
    fn matches(&self, path: &TreePath, is_directory: bool) -> bool {
        let directories = path.ancestors().map(|dir| dir.as_bytes().to_vec()).chain([Vec::new()]);
        for directory in directories {
            if let Some(rules) = self.rules.get(&directory) {
                match rules.matched(path.as_path(), is_directory) {
                    Match::None => {}
                    decided => return decided.is_ignore(),
                }
            }
        }
        let absolute = self.root.join(path.as_path());
        let decided =
            self.outer.iter().map(|rules| rules.matched(&absolute, is_directory)).find(|m| !m.is_none());
        decided.is_some_and(|decided| decided.is_ignore())
    }
}

/// The rules in the file `name` of a host directory. Like git, no symlink is followed.
fn rules_in(directory: &Path, name: &str) -> Gitignore {
    parse(directory, &read_rules(&directory.join(name)))
}

/// The text of a file of rules on the host, as far as it is one.
pub fn read_rules(path: &Path) -> Vec<u8> {
    // What cannot be read has no rules.
    plain_file::read(path, MAX_RULES as u64, Links::Refuse).unwrap_or_default()
}

fn parse(directory: &Path, text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new(directory);
    for line in String::from_utf8_lossy(&text[..text.len().min(MAX_RULES)]).lines() {
        // git, too, passes over a line that is no pattern.
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
