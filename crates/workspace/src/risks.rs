//! Changes that other programs will execute or follow: a hint where to look first, not a defence.

use crate::changes::{Change, ChangeSet};
use crate::manifest::Node;
use crate::tree_path::TreePath;
use serde::Serialize;

/// Paths that the summary names.
const NAMED: usize = 5;

/// A changed path that somebody else executes or follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// The path, safe to show.
    pub path: String,
    /// Who executes it, or what it is.
    pub kind: &'static str,
}

/// The risks in `changes`, by path. A deletion is not a risk.
pub fn risks(changes: &ChangeSet) -> Vec<Risk> {
    let risk = |(path, change): (&TreePath, &Change)| {
        Some(Risk { path: path.to_string(), kind: kind(path, change)? })
    };
    changes.changes.iter().filter_map(risk).collect()
}

/// One line to print above the diff; `None` where there are no risks.
pub fn summary(changes: &ChangeSet) -> Option<String> {
    let risks = risks(changes);
    let named: Vec<String> =
        risks.iter().take(NAMED).map(|Risk { path, kind }| format!("{path} ({kind})")).collect();
    let more = match risks.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more (`agent diff --risks`)"),
    };
    (!risks.is_empty()).then(|| format!("Executed by other programs: {}{more}", named.join(", ")))
}

fn kind(path: &TreePath, change: &Change) -> Option<&'static str> {
    match change.after.as_ref()? {
        Node::Directory { .. } => None,
        Node::Symlink { .. } => Some("symlink"),
        Node::File { mode, .. } => by_path(path).or_else(|| {
            let was_executable = matches!(&change.before, Some(Node::File { mode, .. }) if mode & 0o111 != 0);
            (mode & 0o111 != 0 && !was_executable).then_some("new executable")
        }),
    }
}

fn by_path(path: &TreePath) -> Option<&'static str> {
    let lower = String::from_utf8_lossy(path.as_bytes()).to_lowercase();
    let name = lower.rsplit('/').next().unwrap_or_default();
    let is_in = |directory: &&str| lower.starts_with(*directory) || lower.contains(&format!("/{directory}"));
    let directory = DIRECTORIES.iter().find(|(_, directories)| directories.iter().any(is_in));
    let named = || NAMES.iter().find(|(_, names)| names.contains(&name));
    directory.or_else(named).map(|(kind, _)| *kind).or(match name {
        _ if name.starts_with("dockerfile.") || name.ends_with(".dockerfile") => Some("container"),
        _ if name.ends_with(".mk") || name.ends_with(".cmake") || name.ends_with(".gemspec") => Some("build"),
        _ if name.ends_with(".pth") => Some("Python start"),
        _ => None,
    })
}

/// Directories whose files other programs execute.
const DIRECTORIES: [(&str, &[&str]); 4] = [
    ("CI", &[".github/workflows/", ".github/actions/", ".circleci/", ".buildkite/", ".gitea/", ".forgejo/"]),
    ("editor", &[".vscode/", ".idea/", ".devcontainer/", ".zed/"]),
    ("git hook", &[".husky/", ".githooks/", "git-hooks/"]),
    ("build", &[".cargo/"]),
];

/// Files that other programs execute or take commands from, in lower case.
const NAMES: [(&str, &[&str]); 7] = [
    (
        "CI",
        &[
            ".gitlab-ci.yml",
            ".travis.yml",
            "azure-pipelines.yml",
            "jenkinsfile",
            "bitbucket-pipelines.yml",
            ".drone.yml",
            "appveyor.yml",
            ".woodpecker.yml",
            "action.yml",
            "action.yaml",
        ],
    ),
    (
        "shell or editor",
        &[
            ".envrc",
            ".mise.toml",
            "mise.toml",
            ".tool-versions",
            ".vimrc",
            ".nvimrc",
            ".exrc",
            ".dir-locals.el",
        ],
    ),
    (
        "git hook",
        &[".pre-commit-config.yaml", "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".overcommit.yml"],
    ),
    ("git", &[".gitmodules", ".gitattributes"]),
    (
        "package scripts",
        &["package.json", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "composer.json"],
    ),
    (
        "build",
        &[
            "build.rs",
            "makefile",
            "gnumakefile",
            "justfile",
            "rakefile",
            "gemfile",
            "cmakelists.txt",
            "meson.build",
            "setup.py",
            "setup.cfg",
            "pyproject.toml",
            "conftest.py",
            "noxfile.py",
            "tox.ini",
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "gradlew",
            "mvnw",
            "pom.xml",
            "configure",
            "configure.ac",
            "taskfile.yml",
            "build.xml",
            "sitecustomize.py",
            "rust-toolchain.toml",
            "flake.nix",
            "default.nix",
            "shell.nix",
        ],
    ),
    (
        "container",
        &[
            "dockerfile",
            "containerfile",
            "compose.yml",
            "compose.yaml",
            "docker-compose.yml",
            "docker-compose.yaml",
            "vagrantfile",
        ],
    ),
];
