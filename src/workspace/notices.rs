//! What the person is told about the selection, one sentence a kind.

use crate::plain_file::{self, Links};
use crate::workspace::select::{LeftOut, Selection};
use crate::workspace::transfer::{MAX_CONFIG, is_git_config};
use crate::workspace::tree_path::TreePath;
use std::path::Path;

/// Names that a notice lists.
const LISTED: usize = 5;

/// The notices for a selection of `root`. Blocking: looks into git configurations.
pub fn of(root: &Path, selection: &Selection) -> Vec<String> {
    let kinds = [
        (LeftOut::Secret, "Secrets stay out of the sandbox", "--include takes them along"),
        (LeftOut::Huge, "Large files stay out of the sandbox", "--include takes them along"),
        (LeftOut::Sparse, "Sparse files stay out of the sandbox", "--include takes them along"),
        (LeftOut::Special, "Devices, FIFOs and sockets stay out of the sandbox", ""),
        (LeftOut::Unreadable, "Files that cannot be read stay out of the sandbox", ""),
    ];
    let mut notices: Vec<String> = kinds
        .into_iter()
        .filter_map(|(kind, what, hint)| {
            let paths = selection.left_out.iter().filter(|(_, reason)| **reason == kind);
            list(what, paths.map(|(path, _)| path), hint)
        })
        .collect();
    let rewritten =
        selection.picked.keys().filter(|path| is_git_config(path) && holds_credentials(root, path));
    notices.extend(list("Credentials in git's configuration stay out of the sandbox", rewritten, ""));
    if root.join(".git").symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
        notices.push("git does not work inside the sandbox: this is a linked work tree or a submodule, and its repository lies outside of the workspace.".into());
    }
    notices
}

/// The notices where the sandbox writes straight into the tree: nothing of it stays out.
pub fn of_bound(selection: &Selection) -> Vec<String> {
    let secrets = selection.left_out.iter().filter(|(_, reason)| **reason == LeftOut::Secret);
    let bound = "The sandbox reads and writes the workspace itself (--workspace-mode bind), .git included: there is no diff to \
                 review first.";
    std::iter::once(bound.to_owned())
        .chain(list("Secrets are visible in the sandbox", secrets.map(|(path, _)| path), ""))
        .collect()
}

fn list<'a>(what: &str, paths: impl Iterator<Item = &'a TreePath>, hint: &str) -> Option<String> {
    let paths: Vec<String> = paths.map(ToString::to_string).collect();
    let more = match paths.len().checked_sub(LISTED) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    let hint = if hint.is_empty() { String::new() } else { format!(" ({hint})") };
    let named = paths.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    (!paths.is_empty()).then(|| format!("{what}: {named}{more}{hint}."))
}

fn holds_credentials(root: &Path, path: &TreePath) -> bool {
    let content = plain_file::read(&root.join(path.as_path()), MAX_CONFIG, Links::Refuse);
    content.is_ok_and(|content| crate::workspace::secrets::without_git_credentials(&content).is_some())
}
