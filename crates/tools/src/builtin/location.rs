//! The file that a path means: models and users write paths of the host, of their home, and names as they look.

use agent_base::file_name::{self, Likeness};
use agent_sandbox::{HOME, Sandbox};
use std::path::{Component, Path, PathBuf};

/// Entries of a directory in which a name is looked for.
const MAX_ENTRIES: u64 = 5_000;

/// The place in the sandbox that a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The absolute path.
    pub path: PathBuf,
    /// Names the file where it is another one than was written.
    pub note: Option<String>,
}

/// The file that `path` means: the one of that very name, else the one of the name without the quotation marks around it, else
/// the only one whose name looks the same, else the only one that differs in case, if `most` allows that. Where there is none,
/// the path as it is written.
pub async fn locate(sandbox: &Sandbox, path: &str, most: Likeness) -> Located {
    let exact = absolute(sandbox, path).await;
    if sandbox.stat(&exact).await.is_ok() {
        return Located { path: exact, note: None };
    }
    match meant(sandbox, path, &exact, most).await {
        Some(found) => {
            let name = found.strip_prefix(sandbox.workspace()).unwrap_or(&found).display().to_string();
            let note = format!("{} is not there; {} is meant", path, file_name::escaped(&name));
            Located { path: found, note: Some(note) }
        }
        None => Located { path: exact, note: None },
    }
}

/// The file that is meant by a path where there is none.
async fn meant(sandbox: &Sandbox, path: &str, exact: &Path, most: Likeness) -> Option<PathBuf> {
    if let Some(inner) = unquoted(path) {
        let inner = absolute(sandbox, inner).await;
        return match sandbox.stat(&inner).await {
            Ok(_) => Some(inner),
            Err(_) => similar(sandbox, &inner, most).await,
        };
    }
    similar(sandbox, exact, most).await
}

/// A path without the quotation marks of a text in which it stands.
fn unquoted(path: &str) -> Option<&str> {
    let marks = ['`', '"', '\''];
    let inner = marks.iter().find_map(|mark| path.strip_prefix(*mark)?.strip_suffix(*mark))?;
    (!inner.is_empty() && !inner.contains(marks)).then_some(inner)
}

/// Returns the name of the file at `path` for the user: relative to the workspace where it is in it.
pub fn name(sandbox: &Sandbox, path: &Path) -> String {
    path.strip_prefix(sandbox.workspace()).unwrap_or(path).to_string_lossy().into_owned()
}

/// The paths that a write to `path` may reach, for the policy: see [`absolute`].
pub fn targets<'a>(path: &'a str, data: &'a str) -> Vec<(&'a str, &'a str)> {
    let written = std::iter::once(path).chain(unquoted(path));
    let below = |path: &'a str| Path::new(path).strip_prefix("workspace").ok().and_then(Path::to_str);
    written.flat_map(|path| std::iter::once(path).chain(below(path))).map(|path| (path, data)).collect()
}

/// The absolute path in the sandbox. The home is the sandbox's, the host's path of the workspace is the workspace, and
/// models write `workspace/a` for `/workspace/a`, which it is unless there is a directory of that name.
async fn absolute(sandbox: &Sandbox, path: &str) -> PathBuf {
    if let Some(below) = below_home(path) {
        return Path::new(HOME).join(below);
    }
    let written = Path::new(path);
    match written.strip_prefix("workspace") {
        Ok(inner) if sandbox.stat(&sandbox.locate(Path::new("workspace"))).await.is_err() => {
            sandbox.workspace().join(inner)
        }
        _ => sandbox.locate(written),
    }
}

/// Returns what stands behind the home directory in a path as shells take it.
fn below_home(path: &str) -> Option<&str> {
    let rest = ["~", "$HOME", "${HOME}"].iter().find_map(|home| path.strip_prefix(home))?;
    match rest.strip_prefix('/') {
        Some(below) => Some(below.trim_start_matches('/')),
        None => rest.is_empty().then_some(""),
    }
}

/// The only path that is like `path`, a name at a time.
async fn similar(sandbox: &Sandbox, path: &Path, most: Likeness) -> Option<PathBuf> {
    let inner = path.strip_prefix(sandbox.workspace()).ok()?;
    let mut found = sandbox.workspace().to_owned();
    for part in inner.components() {
        let Component::Normal(name) = part else { return None };
        let next = found.join(name);
        if sandbox.stat(&next).await.is_ok() {
            found = next;
            continue;
        }
        let entries = sandbox.list_dir(&found, 1, MAX_ENTRIES).await.ok()?;
        let names: Vec<&str> = entries.iter().filter_map(|entry| entry.path.file_name()?.to_str()).collect();
        found.push(file_name::meant(name.to_str()?, &names, most)?);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::{below_home, targets, unquoted};

    #[test]
    fn a_tilde_is_the_home_where_a_shell_takes_it_for_that() {
        for (path, below) in [
            ("~/notes.txt", Some("notes.txt")),
            ("$HOME//a/b", Some("a/b")),
            ("${HOME}", Some("")),
            ("~", Some("")),
            ("~user/a", None),
            ("$HOMES/a", None),
            ("a/~/b", None),
        ] {
            assert_eq!(below_home(path), below, "{path}");
        }
    }
    #[test]
    fn a_write_to_a_quoted_path_may_reach_the_file_of_the_name_within() {
        for (path, inner) in [
            ("`a.rs`", Some("a.rs")),
            ("'a b'", Some("a b")),
            ("\"a\"", Some("a")),
            ("'a' and 'b'", None),
            ("it's", None),
            ("'a\"", None),
            ("''", None),
            ("'", None),
        ] {
            assert_eq!(unquoted(path), inner, "{path}");
        }
        let paths: Vec<&str> = targets("'workspace/.env'", "").into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["'workspace/.env'", "workspace/.env", ".env"]);
    }
}
