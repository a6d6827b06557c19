//! The files that a delegated part may change.

use agent_base::error::{Error, Result};
use agent_sandbox::WORKSPACE;
use agent_workspace::select::globs;
use agent_workspace::tree_path::TreePath;
use ignore::gitignore::Gitignore;
use std::path::Path;

/// Names in one call.
const MAX_PATHS: usize = 200;

/// The paths that were named; all files if none was.
pub(super) struct Paths {
    names: Vec<String>,
    matcher: Gitignore,
}

impl Paths {
    /// # Errors
    /// `Usage` where one is not in the workspace or not a glob.
    pub fn parse(given: Vec<String>) -> Result<Self> {
        if given.len() > MAX_PATHS {
            return Err(Error::usage(format!("there are more than {MAX_PATHS} paths; name directories")));
        }
        let names: Vec<String> = given.iter().map(|name| plain(name)).collect::<Result<_>>()?;
        let anchored: Vec<String> = names.iter().map(|name| format!("/{name}")).collect();
        let matcher = globs(Path::new(""), &anchored, "paths")?;
        Ok(Self { names, matcher })
    }

    /// As they are relative to the workspace.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn allow(&self, path: &TreePath) -> bool {
        self.names.is_empty() || self.matcher.matched_path_or_any_parents(path.as_path(), false).is_ignore()
    }

    /// The prompt for this task.
    pub fn prompt(&self, task: &str) -> String {
        let mut prompt = format!("{task}\n\n{}", agent_prompts::DELEGATED.trim());
        if !self.names.is_empty() {
            prompt += &format!(
                " You may change only these files, directories or globs; other changes are not merged: {}",
                self.names.join(", ")
            );
        }
        prompt
    }
}

/// A name relative to the workspace.
fn plain(name: &str) -> Result<String> {
    let outside = || Error::usage(format!("{name:?} in `paths` is not in the workspace"));
    let inside = match name.strip_prefix(WORKSPACE) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
        _ if name.starts_with('/') => return Err(outside()),
        _ => name,
    };
    let names: Vec<&str> = inside.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    match names.contains(&"..") {
        true => Err(outside()),
        // The workspace itself.
        false if names.is_empty() => Ok("**".to_owned()),
        false => Ok(names.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(paths: &[&str], path: &str) -> bool {
        let paths = Paths::parse(paths.iter().map(|path| (*path).to_owned()).collect()).unwrap();
        paths.allow(&TreePath::new(path.as_bytes()).unwrap())
    }

    #[test]
    fn files_directories_and_globs_are_relative_to_the_workspace() {
        for (paths, path, expected) in [
            (&[][..], "a", true),
            (&["src"], "src/a/b.rs", true),
            (&["src/"], "src", true),
            (&["./src"], "lib/src/a", false),
            (&["/workspace/a.txt"], "a.txt", true),
            (&["a.txt"], "b/a.txt", false),
            (&["src/**/*.rs"], "src/x/y/z.rs", true),
            (&["src/*.rs"], "src/x.txt", false),
            (&["."], "any/file", true),
            (&["!a"], "b", false),
            (&["a", "b"], "b", true),
        ] {
            assert_eq!(allows(paths, path), expected, "{paths:?} {path}");
        }
    }

    #[test]
    fn what_leads_out_of_the_workspace_is_refused() {
        for path in ["..", "a/../../b", "/etc", "/workspaces/a"] {
            assert!(Paths::parse(vec![path.to_owned()]).is_err(), "{path}");
        }
    }
}
