//! Changes that other programs will execute or obey: a hint where to look first, not a defence.

use crate::changes::{Change, ChangeSet};
use crate::git_files::GitFiles;
use crate::manifest::Node;
use crate::symlinks::Symlinks;
use crate::tree_path::{TreePath, folded};
use agent_base::hash::Hash;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::LazyLock;

/// Paths of one kind that the summary names; the others are counted.
const NAMED: usize = 3;
/// The control files, by kind, with where they are described.
const CONTROL_FILES: &str = include_str!("risks/control_files.txt");

/// Names through symlinks that are looked at in all changes, beside some for each of them, and of one file.
const MAX_OTHER_NAMES: usize = 5_000;
const NAMES_OF_EACH: usize = 8;
const MAX_NAMES_OF_ONE: usize = 64;

const GIT_HOOK: &str = "git hook";
/// The kind of what the settings of the user's git name.
const GIT_PROGRAM: &str = "git program";
/// The kind of what programs load without reading it as text.
const LIBRARY: &str = "library that programs load";
/// The kind of what builds read.
const BUILD: &str = "build";
/// What the names of files that make reads begin with, before a dot.
const MAKEFILES: [&[u8]; 4] = [b"makefile", b"gnumakefile", b"bsdmakefile", b"kbuild"];
/// The endings of what make's built-in rules make the file without it from.
const MAKE_SOURCES: [&[u8]; 11] =
    [b".c", b".cc", b".cpp", b".f", b".m", b".mod", b".o", b".p", b".r", b".s", b".sh"];
/// Rules of make that are looked at one after the other: it uses none of them twice, but there are many.
const MAX_MADE: usize = 4;
/// The kind of what has more names than are looked at.
const MANY_NAMES: &str = "many symlinks lead to it";

/// A changed path that somebody else executes or follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// The path, safe to show.
    pub path: String,
    /// The kind of the risk: what executes the path, or what it is.
    pub kind: &'static str,
    /// The name that it has through a symlink, where that is the one by which it is executed or followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
}

impl Risk {
    /// `docs/agents.md as CLAUDE.md`
    pub fn named(&self) -> String {
        self.through
            .as_ref()
            .map_or_else(|| self.path.clone(), |through| format!("{} as {through}", self.path))
    }
}

/// The risks in `changes`, by path. A deletion is not a risk.
pub fn risks(changes: &ChangeSet) -> Vec<Risk> {
    let mut room = MAX_OTHER_NAMES + NAMES_OF_EACH * changes.changes.len();
    let risk = |(shown, change): (&TreePath, &Change)| {
        let (place, path) = Place::of(changes, shown);
        let (kind, through) = place.kind(&path, change, &mut room)?;
        Some(Risk { path: shown.to_string(), kind, through: through.map(|name| name.to_string()) })
    };
    changes.changes.iter().filter_map(risk).collect()
}

/// One line to print with a diff; `None` where there are no risks.
pub fn summary(changes: &ChangeSet) -> Option<String> {
    let kinds = by_kind(changes);
    let is_cut = kinds.iter().any(|kind| kind.is_cut);
    let all = if is_cut { " (`agent diff --risks` lists all)" } else { "" };
    let kinds: Vec<String> = kinds.into_iter().map(|kind| kind.text).collect();
    (!kinds.is_empty()).then(|| format!("Executed by other programs: {}{all}", kinds.join("; ")))
}

/// The same for new files that are in no change, by their names alone.
pub fn of_new_files(files: impl IntoIterator<Item = TreePath>) -> Option<String> {
    let file = Node::File { hash: Hash::UNKNOWN, size: 0, mode: 0o644 };
    let change = |path| (path, Change { before: None, after: Some(file.clone()) });
    let changes = ChangeSet { changes: files.into_iter().map(change).collect(), ..ChangeSet::default() };
    let kinds: Vec<String> = by_kind(&changes).into_iter().map(|kind| kind.text).collect();
    (!kinds.is_empty()).then(|| format!("Executed by other programs: {}", kinds.join("; ")))
}

/// The risks of one kind, in words.
pub struct OfKind {
    /// `.envrc, sub/.envrc (shell)`
    pub text: String,
    /// Set if some of them are only counted.
    is_cut: bool,
}

/// The risks, each kind with its count, so that many of one kind hide no other. Paths near the top are named first.
pub fn by_kind(changes: &ChangeSet) -> Vec<OfKind> {
    let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for risk in risks(changes) {
        kinds.entry(risk.kind).or_default().push(risk.named());
    }
    let words = |(kind, mut paths): (&str, Vec<String>)| {
        paths.sort_by_key(|path| path.matches('/').count());
        let more = paths.len().saturating_sub(NAMED);
        paths.truncate(NAMED);
        let named = paths.join(", ");
        match more {
            0 => OfKind { text: format!("{named} ({kind})"), is_cut: false },
            more => OfKind { text: format!("{named} and {more} more ({kind})"), is_cut: true },
        }
    };
    kinds.into_iter().map(words).collect()
}

/// Facts about a directory of the host that decide how a path in it is judged.
struct Place<'a> {
    git_files: &'a GitFiles,
    symlinks: &'a Symlinks,
}

impl<'a> Place<'a> {
    /// The place of a path of `changes`, and its path there.
    fn of(changes: &'a ChangeSet, path: &TreePath) -> (Self, TreePath) {
        match changes.root_of(path) {
            Some((root, path)) => (Self { git_files: &root.git_files, symlinks: &root.symlinks }, path),
            None => (Self { git_files: &changes.git_files, symlinks: &changes.symlinks }, path.clone()),
        }
    }

    /// The kind of a change, and the name through a symlink that makes it one of that kind.
    fn kind(
        &self,
        path: &TreePath,
        change: &Change,
        room: &mut usize,
    ) -> Option<(&'static str, Option<TreePath>)> {
        let after = change.after.as_ref().filter(|node| !node.is_directory())?;
        let is_symlink = matches!(after, Node::Symlink { .. });
        if let Some(kind) = self.obeyed(path, is_symlink) {
            return Some((kind, None));
        }
        let by_link = |name: &TreePath| Some((self.obeyed(name, is_symlink)?, Some(name.clone())));
        if let Some(found) = self.symlinks.find(path, room, by_link).unwrap_or(Some((MANY_NAMES, None))) {
            return Some(found);
        }
        let was_executable = change.before.as_ref().is_some_and(Node::is_executable);
        match is_symlink {
            true => Some(("symlink", None)),
            false => (after.is_executable() && !was_executable).then_some(("new executable", None)),
        }
    }

    /// The kind that a path has by its name alone. A symlink may stand for a directory.
    fn obeyed(&self, path: &TreePath, is_symlink: bool) -> Option<&'static str> {
        let GitFiles { hooks, programs } = self.git_files;
        if hooks.iter().any(|hooks| is_hook(path, hooks, is_symlink)) {
            return Some(GIT_HOOK);
        }
        let is_program =
            |program: &Vec<u8>| program == path.as_bytes() || (is_symlink && is_above(path, program));
        by_path(path, is_symlink).or_else(|| programs.iter().any(is_program).then_some(GIT_PROGRAM))
    }
}

/// Returns whether it lies where the user's git looks for hooks. In the top directory those alone are hooks that are called like one.
fn is_hook(path: &TreePath, hooks: &[u8], is_symlink: bool) -> bool {
    match hooks.is_empty() {
        true => path.parent().is_none() && HOOKS.contains(&path.name()),
        false => path.is_within(hooks) || (is_symlink && is_above(path, hooks)),
    }
}

fn is_above(path: &TreePath, below: &[u8]) -> bool {
    below.strip_prefix(path.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Returns whether other programs execute or obey a file of this name.
pub fn is_control_file(path: &TreePath) -> bool {
    by_path(path, false).is_some()
}

/// Returns whether other programs read a file of `changes` as text to execute or obey it, under any name that it has.
pub(crate) fn is_obeyed_text(changes: &ChangeSet, path: &TreePath) -> bool {
    let ((place, path), mut room) = (Place::of(changes, path), MAX_NAMES_OF_ONE);
    let is_obeyed = |name: &TreePath| place.obeyed(name, false).filter(|kind| *kind != LIBRARY).map(|_| ());
    let by_link = || place.symlinks.find(&path, &mut room, is_obeyed).unwrap_or(Some(()));
    is_obeyed(&path).or_else(by_link).is_some()
}

/// Returns whether other programs execute or obey all that is in a directory of this name.
pub(crate) fn is_control_directory(path: &TreePath) -> bool {
    path.join(b"x").is_ok_and(|below| is_control_file(&below))
}

/// The kind of a path, whose names are compared as file systems compare them that take no notice of case. A symlink has the kind of what
/// would be below it.
fn by_path(path: &TreePath, is_symlink: bool) -> Option<&'static str> {
    let plain = folded(path.as_bytes());
    // A name of nothing else is empty now, and a path that begins with a slash would be no path of the tree.
    let names: Vec<&[u8]> = plain.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    let plain = names.join(&b'/');
    let of = |path: &[u8]| {
        let path = Path::new(OsStr::from_bytes(path));
        KINDS.iter().find(|kind| kind.matches(path))
    };
    let above = Path::new(OsStr::from_bytes(&plain));
    let as_directory =
        || KINDS.iter().find(|kind| is_symlink && kind.above.matched(above, false).is_ignore());
    let as_package = || of(&[plain.strip_suffix(b"/__init__.py")?, b".py"].concat());
    let kind = of(&plain).or_else(as_package).or_else(as_directory).map(|kind| kind.name);
    let is_made = || {
        let (name, above) = names.split_last()?;
        is_made_to_makefile(name, above.last() == Some(&&b"rcs"[..]), MAX_MADE).then_some(BUILD)
    };
    kind.or_else(is_made)
}

/// Returns whether make writes a file that it reads from one of this name, in `steps` at most: it remakes these before anything else, by its
/// built-in rules (`make -p`) too, so that `Makefile.sh` and `RCS/rules.mk.c,v` are makefiles that nothing names. In small letters.
fn is_made_to_makefile(name: &[u8], is_in_rcs: bool, steps: usize) -> bool {
    let endings: [&[u8]; 3] = [b".mk", b".mak", b".make"];
    let is_makefile = |name: &[u8]| {
        let first = name.split(|byte| *byte == b'.').next().unwrap_or_default();
        MAKEFILES.contains(&first) || endings.iter().any(|ending| name.ends_with(ending))
    };
    let versions = name.strip_suffix(b",v").or_else(|| name.strip_prefix(b"s."));
    let sources = MAKE_SOURCES.iter().map(|ending| name.strip_suffix(*ending)).chain([versions]);
    let made = |name| is_makefile(name) || steps > 1 && is_made_to_makefile(name, false, steps - 1);
    sources.chain([is_in_rcs.then_some(name)]).flatten().any(made)
}

/// The patterns of one kind. Those that end in a slash stand for what is below a directory, and the others for files alone.
struct ControlFiles {
    name: &'static str,
    files: Gitignore,
    directories: Gitignore,
    /// The directories that one of the patterns begins with.
    above: Gitignore,
}

impl ControlFiles {
    fn new(name: &'static str, lines: &'static str) -> Self {
        let lines = || lines.lines().filter(|line| !line.starts_with('#'));
        let of = |is_directory| patterns(lines().filter(|line| line.ends_with('/') == is_directory));
        let above = lines()
            .flat_map(|line| line.match_indices('/').filter(|(at, _)| *at > 0).map(|(at, _)| &line[..at]));
        Self { name, files: of(false), directories: of(true), above: patterns(above) }
    }

    fn matches(&self, path: &Path) -> bool {
        self.files.matched(path, false).is_ignore()
            || self.directories.matched_path_or_any_parents(path, false).is_ignore()
    }
}

fn patterns(lines: impl Iterator<Item = &'static str>) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    // A test looks at every line.
    let _ = builder.case_insensitive(true);
    for line in lines {
        // A slash in the middle would tie a pattern to the top, and a project may lie in any directory.
        let is_tied = line.trim_end_matches('/').contains('/') && !line.starts_with('/');
        let line = if is_tied { Cow::Owned(format!("**/{line}")) } else { Cow::Borrowed(line) };
        drop(builder.add_line(None, &line));
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

static KINDS: LazyLock<Vec<ControlFiles>> = LazyLock::new(|| {
    let sections = CONTROL_FILES.split("\n[").skip(1).filter_map(|section| section.split_once("]\n"));
    sections.map(|(name, lines)| ControlFiles::new(name, lines)).collect()
});

/// <https://git-scm.com/docs/githooks>
const HOOKS: [&[u8]; 28] = [
    b"applypatch-msg",
    b"pre-applypatch",
    b"post-applypatch",
    b"pre-commit",
    b"pre-merge-commit",
    b"prepare-commit-msg",
    b"commit-msg",
    b"post-commit",
    b"pre-rebase",
    b"post-checkout",
    b"post-merge",
    b"pre-push",
    b"pre-receive",
    b"update",
    b"proc-receive",
    b"post-receive",
    b"post-update",
    b"reference-transaction",
    b"push-to-checkout",
    b"pre-auto-gc",
    b"post-rewrite",
    b"sendemail-validate",
    b"fsmonitor-watchman",
    b"p4-changelist",
    b"p4-prepare-changelist",
    b"p4-post-changelist",
    b"p4-pre-submit",
    b"post-index-change",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Target;

    fn kind_of(path: &str) -> Option<&'static str> {
        by_path(&TreePath::new(path.as_bytes()).expect("a path"), false)
    }

    #[test]
    fn names_of_characters_that_are_not_seen_are_no_paths_of_the_host() {
        for name in ["\u{200b}/\u{ad}/x", "\u{200b}/x", "\u{200b}"] {
            assert_eq!(kind_of(name), None, "{name:?}");
        }
        assert_eq!(kind_of("\u{200b}/.vscode/tasks.json"), Some("editor"));
    }

    #[test]
    fn every_line_of_the_table_is_a_pattern_that_matches() {
        let mut kind = "";
        for line in CONTROL_FILES.lines() {
            if let Some(named) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                kind = named;
            } else if !line.is_empty() && !line.starts_with('#') {
                let sample = line.replace('*', "x");
                let sample = if line.ends_with('/') { format!("{sample}x") } else { sample };
                for directory in ["", "a/", "a/b/c/"] {
                    let path = format!("{directory}{}", sample.trim_start_matches('/'));
                    let is_tied = line.starts_with('/') && !directory.is_empty();
                    assert_eq!(kind_of(&path).is_some(), !is_tied, "{kind}: {line}: {path}");
                }
            }
        }
        assert_eq!(KINDS.len(), CONTROL_FILES.lines().filter(|line| line.starts_with('[')).count());
    }

    /// Dummies of links pushed the link out of the summary that is a control file, or a directory above one, as one more symlink.
    #[test]
    fn a_symlink_in_the_place_of_a_control_file_has_its_kind() {
        let link = Node::Symlink { target: Target(b"docs/notes.txt".to_vec()) };
        let change = Change { before: None, after: Some(link) };
        for (path, of_link) in [
            (".envrc", "shell"),
            (".husky/pre-commit", GIT_HOOK),
            ("my/hooks/post-merge", GIT_HOOK),
            ("a/Makefile", "build"),
            ("a/.vscode", "editor"),
            ("my", GIT_HOOK),
            ("a/.config", GIT_HOOK),
            ("gradle", "build"),
            ("src/META-INF", "build"),
            (".github", "instructions and settings of agents"),
            ("mine", GIT_PROGRAM),
            ("notes", "symlink"),
        ] {
            let git_files =
                GitFiles { hooks: [b"my/hooks".to_vec()].into(), programs: [b"mine/diff".to_vec()].into() };
            let place = Place { git_files: &git_files, symlinks: &Symlinks::default() };
            let path = TreePath::new(path.as_bytes()).expect("a path");
            assert_eq!(place.kind(&path, &change, &mut 9), Some((of_link, None)), "{path}");
        }
    }

    /// Instructions, settings of editors and hooks that a repository has behind symlinks were not named.
    #[test]
    fn what_is_reached_as_a_control_file_through_a_symlink_is_named() {
        let path = |text: &str| TreePath::new(text.as_bytes()).expect("a path");
        let link = |link: &str, target: &[u8]| (path(link), Target(target.to_vec()));
        let links = [
            link(".claude", b"ai"),
            link("CLAUDE.md", b"docs/notes.md"),
            link("hk", b"my/h"),
            link("notes", b"docs"),
        ];
        let file = Node::File { hash: Hash::UNKNOWN, size: 1, mode: 0o755 };
        let change = Change { before: Some(file.clone()), after: Some(file) };
        let changed = ["ai/settings.json", "docs/notes.md", "my/h/pre-commit", "docs/other.md", "Makefile"];
        let changes = changed.into_iter().map(|name| (path(name), change.clone())).collect();
        let symlinks = Symlinks::of(&["/tree".into()], links);
        let git_files = GitFiles { hooks: [b"hk".to_vec()].into(), ..GitFiles::default() };
        let changes = ChangeSet { changes, symlinks, git_files: git_files.into(), ..ChangeSet::default() };
        assert_eq!(
            summary(&changes).as_deref(),
            Some(
                "Executed by other programs: Makefile (build); my/h/pre-commit as hk/pre-commit (git hook); docs/notes.md as \
                 CLAUDE.md, ai/settings.json as .claude/settings.json (instructions and settings of agents)"
            )
        );
        let place = Place { git_files: &GitFiles::default(), symlinks: &changes.symlinks };
        assert_eq!(place.kind(&path("docs/other.md"), &change, &mut 0), Some((MANY_NAMES, None)));
    }

    #[test]
    fn names_that_stand_for_those_of_control_files_are_named() {
        for (path, kind) in [
            ("Makefile.sh", BUILD),
            ("GNUmakefile.C", BUILD),
            ("a/rules.mk.sh", BUILD),
            ("common.mak.sh,v", BUILD),
            ("Makefile.config.c", BUILD),
            ("RCS/s.rules.mk,v", BUILD),
            ("RCS/Makefile,v", BUILD),
            ("RCS/Makefile", BUILD),
            ("a/RCS/x.mk", BUILD),
            ("SCCS/s.Makefile", BUILD),
            ("s.GNUmakefile", BUILD),
            ("lib/sitecustomize/__init__.py", "Python start"),
            ("tasks/__init__.py", BUILD),
            ("a/x.h.gch", LIBRARY),
            ("x_amd64.syso", LIBRARY),
            ("uno.config.ts", "settings of tools"),
            (".detoxrc.js", "settings of tools"),
            ("fixture/config", "git"),
            ("a/hooks/post-update", GIT_HOOK),
            (".ssh/config", "shell"),
        ] {
            assert_eq!(kind_of(path), Some(kind), "{path}");
        }
    }

    #[test]
    fn files_of_agents_builds_editors_and_hooks_are_named_wherever_they_lie() {
        for (path, kind) in [
            ("AGENTS.md", "instructions and settings of agents"),
            ("sub/.claude/settings.json", "instructions and settings of agents"),
            (".mcp.json", "instructions and settings of agents"),
            (".cursor/mcp.json", "instructions and settings of agents"),
            (".github/workflows/ci.yml", "CI"),
            (".VSCODE/tasks.json", "editor"),
            ("deep/down/.devcontainer/devcontainer.json", "editor"),
            (".husky/pre-commit", "git hook"),
            ("frontend/vite.config.ts", "build"),
            ("makefile", "build"),
            ("lib/.pnpmfile.cjs", "package manager"),
            (".yarn/plugins/x.cjs", "package manager"),
            ("a/b.pth", "Python start"),
            ("eslint.config.mjs", "linters and formatters"),
            ("dev.Dockerfile", "container and deployment"),
            ("AGEN\u{34f}TS.md", "instructions and settings of agents"),
            (".v\u{17f}code/tasks.json", "editor"),
            ("Make\u{fb01}le", "build"),
            ("Ma\u{212a}efile", "build"),
            ("backend/gradle/wrapper/gradle-wrapper.properties", "build"),
            ("src/main/resources/META-INF/services/x.Processor", "build"),
            ("x.egg-info/entry_points.txt", "Python start"),
            ("docs/conf.py", "build"),
            ("a/x.sqlproj", "build"),
            (".pytest.toml", "tests"),
            ("a/.RData", "shell"),
            ("lib/libx.so-gdb.py", "shell"),
            ("docs/.vitepress/config.ts", "build"),
            ("src/Makevars", "build"),
            (".pdm-plugins/x.pth", "package manager"),
        ] {
            assert_eq!(kind_of(path), Some(kind), "{path}");
        }
        for path in [
            "src/main.rs",
            "README.md",
            "docs/build.md",
            "agents.py",
            "build/main.js",
            "bootstrap/x.css",
            "github/workflows.md",
            "tests/makefile.rs",
            "src/bootstrap.c",
            "src/config.c",
            "config/x.rb",
            "src/s.rs",
            "rcs/notes",
            "src/x/__init__.py",
            "app.config",
        ] {
            assert_eq!(kind_of(path), None, "{path}");
        }
    }
}
