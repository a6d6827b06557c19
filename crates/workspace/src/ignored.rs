//! Which new files in the sandbox `.gitignore` leaves out: build outputs, installed packages, caches.
//!
//! They are neither recorded by checkpoints nor part of the change set. The rules are those of the sandbox's own
//! `.gitignore` files (a rule that it adds can only keep a file out of the changes), and the host's outer ones.

use crate::tree_path::TreePath;
use agent_base::lock::Lock;
use agent_base::plain_file::{self, Links};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, Glob};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

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
    rules: HashMap<Vec<u8>, DirectoryRules>,
    /// All patterns.
    patterns: usize,
    /// Patterns of what is included whatever the rules say.
    include: Option<Gitignore>,
    /// Directories that were judged already.
    judged: BTreeMap<TreePath, bool>,
}

/// The rules of one directory.
struct DirectoryRules {
    globs: Gitignore,
    patterns: usize,
    is_cut_short: bool,
}

impl DirectoryRules {
    /// The first patterns of `text`, as many as `budget` allows.
    fn parse(directory: &Path, text: &[u8], budget: usize) -> Self {
        let text = String::from_utf8_lossy(&text[..text.len().min(MAX_RULES)]);
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let mut builder = GitignoreBuilder::new(directory);
        let (mut patterns, mut is_cut_short) = (0, false);
        for line in lines {
            let count = 1 + line.len() / USUAL_PATTERN;
            if patterns + count > budget {
                is_cut_short = true;
                break;
            }
            patterns += count;
            // Like git, ignores a line that is not a valid pattern.
            let _ = builder.add_line(None, line);
        }
        let globs = builder.build().unwrap_or_else(|_| Gitignore::empty());
        Self { globs, patterns, is_cut_short }
    }
}

/// The number of patterns that a walk has used, within its limit.
#[derive(Default)]
pub struct PatternBudget(Lock<Budget>);

#[derive(Default)]
struct Budget {
    used: usize,
    is_used_up: bool,
}

impl PatternBudget {
    fn parse(&self, directory: &Path, text: &[u8]) -> Gitignore {
        let mut budget = self.0.lock();
        let rules = DirectoryRules::parse(directory, text, MAX_PATTERNS - budget.used);
        budget.used += rules.patterns;
        budget.is_used_up |= rules.is_cut_short;
        rules.globs
    }

    /// Returns whether there were more patterns than are used.
    pub fn is_used_up(&self) -> bool {
        self.0.lock().is_used_up
    }
}

/// The rules in force in one directory of a walk: its own and those of the directories above it.
#[derive(Clone, Default)]
pub struct Rules(Option<Arc<Link>>);

struct Link {
    globs: Globs,
    above: Rules,
}

enum Globs {
    /// Of a directory in the tree; paths are relative to the tree.
    Inner(Gitignore),
    /// From outside; paths are absolute.
    Outer(Vec<Gitignore>),
}

impl Rules {
    /// The rules that hold for `root` from outside. Blocking.
    pub fn outer(root: &Path, budget: &PatternBudget) -> Self {
        let outer = outer(root, budget);
        match outer.is_empty() {
            true => Self::default(),
            false => Self::default().with_globs(Globs::Outer(outer)),
        }
    }

    /// With the text of a directory's `.gitignore`.
    #[must_use]
    pub fn with(self, directory: Option<&TreePath>, text: &[u8], budget: &PatternBudget) -> Self {
        let globs = budget.parse(directory.map_or(Path::new(""), TreePath::as_path), text);
        if globs.is_empty() { self } else { self.with_globs(Globs::Inner(globs)) }
    }

    fn with_globs(self, globs: Globs) -> Self {
        Self(Some(Arc::new(Link { globs, above: self })))
    }

    /// Returns whether they ignore something in that directory. The innermost rule that matches decides.
    pub fn ignore(&self, root: &Path, path: &TreePath, is_directory: bool) -> bool {
        let mut rules = self;
        while let Some(link) = &rules.0 {
            let decided = match &link.globs {
                Globs::Inner(globs) => globs.matched(path.as_path(), is_directory),
                Globs::Outer(outer) => match_outer(outer, root, path, is_directory),
            };
            if !decided.is_none() {
                return decided.is_ignore();
            }
            rules = &link.above;
        }
        false
    }
}

/// The rules from outside the tree.
fn outer(root: &Path, budget: &PatternBudget) -> Vec<Gitignore> {
    let mut files = vec![(root, ".git/info/exclude")];
    if let Some(above) = root.parent().filter(|_| root.join(".git").symlink_metadata().is_err()) {
        // Up to the work tree's root, as git does; without one there are no rules from above.
        if let Some(top) = above.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()) {
            let dirs = above.ancestors().take_while(|dir| dir.starts_with(top));
            files.extend(dirs.map(|dir| (dir, ".gitignore")));
            files.push((top, ".git/info/exclude"));
        }
    }
    let read = |(directory, name): (&Path, &str)| budget.parse(directory, &read_rules(&directory.join(name)));
    let mut outer: Vec<Gitignore> = files.into_iter().map(read).collect();
    outer.push(Gitignore::global().0);
    outer.retain(|rules| !rules.is_empty());
    outer
}

/// The first of the rules from outside that matches decides.
fn match_outer<'r>(
    outer: &'r [Gitignore],
    root: &Path,
    path: &TreePath,
    is_directory: bool,
) -> Match<&'r Glob> {
    let absolute = root.join(path.as_path());
    let mut decided = outer.iter().map(|rules| rules.matched(&absolute, is_directory));
    decided.find(|decided| !decided.is_none()).unwrap_or(Match::None)
}

impl Ignored {
    /// The rules that hold for `root` from outside. Blocking.
    pub fn outer(root: &Path) -> Self {
        let budget = PatternBudget::default();
        let outer = outer(root, &budget);
        Self { outer, root: root.to_owned(), patterns: budget.0.lock().used, ..Self::default() }
    }

    /// The rules that hold for `root` now, with those of the `.gitignore` files among `paths`. Blocking.
    pub fn of_tree<'p>(root: &Path, paths: impl Iterator<Item = &'p TreePath>) -> Self {
        let mut ignored = Self::outer(root);
        for path in paths.filter(|path| path.name() == b".gitignore") {
            ignored.set(path.parent().as_ref(), &read_rules(&root.join(path.as_path())));
        }
        ignored
    }

    /// With globs for what is included all the same.
    pub fn including(mut self, include: Gitignore) -> Self {
        self.include = Some(include).filter(|globs| !globs.is_empty());
        self
    }

    /// Returns whether something in an ignored directory may be included.
    pub fn may_include_below(&self) -> bool {
        self.include.is_some()
    }

    /// Sets the rules of one directory (`None`: the root) from the text of its `.gitignore`.
    pub fn set(&mut self, directory: Option<&TreePath>, text: &[u8]) {
        self.unset(directory);
        let path = directory.map_or(Path::new(""), TreePath::as_path);
        let rules = DirectoryRules::parse(path, text, MAX_PATTERNS.saturating_sub(self.patterns));
        self.patterns += rules.patterns;
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

    /// Returns whether `path` or a directory above it is ignored.
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

    /// The innermost directory with a matching rule decides.
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
        match_outer(&self.outer, &self.root, path, is_directory).is_ignore()
    }
}

/// The text of a file of rules on the host, as far as it is one. Like git, no symlink is followed.
pub fn read_rules(path: &Path) -> Vec<u8> {
    // What cannot be read has no rules.
    plain_file::read(path, MAX_RULES as u64, Links::Refuse).unwrap_or_default()
}
