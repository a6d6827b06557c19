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
/// Most patterns that are in force. One may take 5 KB of memory, and 40 µs to prepare.
pub const MAX_PATTERNS: usize = 20_000;
/// Bytes of a pattern; a longer one counts for several.
const USUAL_PATTERN: usize = 64;

/// The rules in force.
#[derive(Default)]
pub struct Ignored {
    /// Rules from outside the tree: above it, `.git/info/exclude`, the user's own. Paths are absolute there.
    outer: Vec<Gitignore>,
    root: std::path::PathBuf,
    /// By directory; the empty name is the root.
    rules: HashMap<Vec<u8>, Rules>,
    /// All patterns.
    patterns: usize,
    is_cut_short: bool,
    /// What takes part whatever the rules say.
    include: Option<Gitignore>,
    /// Directories that were judged already.
    judged: BTreeMap<TreePath, bool>,
}

/// The rules of one directory.
struct Rules {
    globs: Gitignore,
    patterns: usize,
}

impl Ignored {
    /// The rules that hold for `root` from outside. Blocking.
    pub fn outer(root: &Path) -> Self {
        let mut files = vec![(root, ".git/info/exclude")];
        if let Some(above) = root.parent().filter(|_| root.join(".git").symlink_metadata().is_err()) {
            // Up to the work tree's root, as git does; without one there are no rules from above.
            if let Some(top) = above.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()) {
                let dirs = above.ancestors().take_while(|dir| dir.starts_with(top));
                files.extend(dirs.map(|dir| (dir, ".gitignore")));
                files.push((top, ".git/info/exclude"));
            }
        }
        let mut ignored = Self { root: root.to_owned(), ..Self::default() };
        for (directory, name) in files {
            let rules = ignored.parse(directory, &read_rules(&directory.join(name)));
            ignored.outer.push(rules.globs);
        }
        ignored.outer.push(Gitignore::global().0);
        ignored.outer.retain(|rules| !rules.is_empty());
        ignored
    }

    /// Whether there were more patterns than are taken.
    pub fn is_cut_short(&self) -> bool {
        self.is_cut_short
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
        self.unset(directory);
        let rules = self.parse(directory.map_or(Path::new(""), TreePath::as_path), text);
        if rules.patterns > 0 {
            self.rules.insert(directory.map_or_else(Vec::new, |path| path.as_bytes().to_vec()), rules);
            self.judged.clear();
        }
    }

    /// Forgets the rules of one directory, whose `.gitignore` is gone.
    pub fn unset(&mut self, directory: Option<&TreePath>) {
        if let Some(rules) = self.rules.remove(directory.map_or(&b""[..], TreePath::as_bytes)) {
            self.patterns -= rules.patterns;
            self.judged.clear();
        }
    }

    /// As many of the patterns as may still be taken.
    fn parse(&mut self, directory: &Path, text: &[u8]) -> Rules {
        let text = String::from_utf8_lossy(&text[..text.len().min(MAX_RULES)]);
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let mut builder = GitignoreBuilder::new(directory);
        let mut patterns = 0;
        for line in lines {
            let count = 1 + line.len() / USUAL_PATTERN;
            if self.patterns + count > MAX_PATTERNS {
                self.is_cut_short = true;
                break;
            }
            self.patterns += count;
            patterns += count;
            // git, too, passes over a line that is no pattern.
            let _ = builder.add_line(None, line);
        }
        Rules { globs: builder.build().unwrap_or_else(|_| Gitignore::empty()), patterns }
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
                match rules.globs.matched(path.as_path(), is_directory) {
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

/// The text of a file of rules on the host, as far as it is one. Like git, no symlink is followed.
pub fn read_rules(path: &Path) -> Vec<u8> {
    // What cannot be read has no rules.
    plain_file::read(path, MAX_RULES as u64, Links::Refuse).unwrap_or_default()
}
