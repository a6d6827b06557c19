//! What the person is told about the selection, one sentence a kind.

use crate::plain_file::{self, Links};
use crate::workspace::ignored::MAX_PATTERNS;
use crate::workspace::select::{LeftOut, PickedKind, Selection};
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
        (LeftOut::TooDeep, "Files that are nested too deeply stay out of the sandbox, all below", ""),
    ];
    let mut notices: Vec<String> = kinds
        .into_iter()
        .filter_map(|(kind, what, hint)| {
            let paths = selection.left_out.iter().filter(|(_, reason)| **reason == kind);
            list(what, paths.map(|(path, _)| path), hint)
        })
        .collect();
    // One that --include names comes along itself.
    let still_out = |path: &&TreePath| selection.left_out.contains_key(*path);
    notices.extend(list(
        "Secrets that git tracks are in its history, which comes along and can be read inside",
        selection.committed_secrets.iter().filter(|_| has_history(selection)).filter(still_out),
        "--exclude .git leaves it out",
    ));
    let rewritten =
        selection.picked.keys().filter(|path| is_git_config(path) && holds_credentials(root, path));
    notices.extend(list("Credentials in git's configuration stay out of the sandbox", rewritten, ""));
    if selection.is_unruly {
        notices.push(format!(
            "There are more than {MAX_PATTERNS} ignore rules: some are passed over, and what only they name comes along."
        ));
    }
    notices.extend(repository_outside(root));
    notices
}

/// Where git works here and not in the sandbox, because not all of its repository comes along.
fn repository_outside(root: &Path) -> Option<String> {
    let git = |directory: &Path| directory.join(".git").symlink_metadata().ok();
    let why = match git(root).map(|metadata| metadata.file_type()) {
        Some(kind) if kind.is_file() => {
            "this is a linked work tree or a submodule, and its repository lies outside of the workspace"
                .to_owned()
        }
        Some(kind) if kind.is_symlink() => match root.join(".git").canonicalize() {
            Ok(target) if target.starts_with(root) => return None,
            _ => ".git is a symlink that leads out of the workspace".to_owned(),
        },
        Some(_) => return None,
        None => {
            let top = root.ancestors().skip(1).find(|directory| git(directory).is_some())?;
            format!("its repository begins above the workspace (-C {} takes all of it along)", top.display())
        }
    };
    Some(format!("git does not work inside the sandbox: {why}."))
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

/// Whether git's own directory comes along.
fn has_history(selection: &Selection) -> bool {
    let git = selection.picked.get(&b".git"[..]);
    git.is_some_and(|picked| picked.kind == PickedKind::Directory)
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
