//! Where a workspace is inside.

use crate::{Backend, WORKSPACE};
use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

/// The path of the workspace `root` in sandboxes of `backend`, where that is its own.
pub fn own_place(backend: &dyn Backend, root: &Path) -> Option<PathBuf> {
    (backend.capabilities().own_paths && can_be_a_place(root)).then(|| root.to_owned())
}

/// Returns `text` with the paths of this machine that lead into the workspace `root` as they are in sandboxes of `backend`.
pub fn with_inside_paths<'t>(text: &'t str, backend: &dyn Backend, root: &Path) -> Cow<'t, str> {
    match root.to_str() {
        Some(root) if own_place(backend, Path::new(root)).is_none() => renamed(text, root),
        _ => Cow::Borrowed(text),
    }
}

/// `text` with the path `root` as [`WORKSPACE`], wherever it is a whole path or the beginning of one.
fn renamed<'t>(text: &'t str, root: &str) -> Cow<'t, str> {
    let is_name = |c: char| c.is_alphanumeric() || "_-.~".contains(c);
    let mut renamed = String::new();
    let mut kept = 0;
    for (at, _) in text.match_indices(root) {
        let end = at + root.len();
        let begins = !text[..at].ends_with(|c| is_name(c) || c == '/');
        // A sentence may end behind it.
        let rest = text[end..].strip_prefix('.').unwrap_or(&text[end..]);
        if begins && !rest.starts_with(is_name) && root != "/" {
            renamed.push_str(&text[kept..at]);
            renamed.push_str(WORKSPACE);
            kept = end;
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    renamed.push_str(&text[kept..]);
    Cow::Owned(renamed)
}

/// Returns whether a directory can have the path inside that it has here: not where the sandbox has files of its own.
pub(crate) fn can_be_a_place(path: &Path) -> bool {
    const OWN: [&str; 6] = [WORKSPACE, "/proc", "/sys", "/dev", "/etc", "/run"];
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    path.is_absolute() && is_plain && path.parent().is_some() && !OWN.iter().any(|own| path.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_paths_into_the_workspace_are_renamed_and_others_stay() {
        let root = "/home/u/app";
        let of = |text: &str| renamed(text, root).into_owned();
        assert_eq!(
            of("See /home/u/app/src/a.rs:3 in (/home/u/app)."),
            "See /workspace/src/a.rs:3 in (/workspace)."
        );
        assert_eq!(of("@/home/u/app/x 修复 /home/u/app。"), "@/workspace/x 修复 /workspace。");
        assert_eq!(of("/home/u/app."), "/workspace.");
        for other in ["/home/u/app2/x", "/mnt/home/u/app/x", "/home/u/app.old", "/home/u", "/home/u/app-1"] {
            assert_eq!(of(other), other);
        }
    }
}
