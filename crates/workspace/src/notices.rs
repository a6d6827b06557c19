//! Notices about the selection.

use crate::git_directory;
use crate::ignored::MAX_PATTERNS;
use crate::selection::{LeftOut, Selection};
use crate::transfer::MAX_CONFIG;
use crate::tree_path::TreePath;
use agent_base::hash::Hash;
use agent_base::paths;
use agent_base::plain_file::{self, Links};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names that a notice lists.
const LISTED: usize = 5;

/// The notices for a selection of `root`: what is left out, in one line, and what does not work because of it. Blocking:
/// looks into git configurations. `shows_ignored` says whether the sandbox sees what git ignores.
pub fn of(root: &Path, selection: &Selection, shows_ignored: bool) -> Vec<String> {
    let mut parts = Vec::new();
    let left_out = selection.left_out.iter();
    let withheld = selection.withheld.iter().filter(|_| shows_ignored);
    // What `--exclude` names is known to the user.
    let left_out = left_out.chain(withheld).filter(|(_, reason)| **reason != LeftOut::Excluded);
    let (unneeded, left_out): (Vec<_>, Vec<_>) =
        left_out.partition(|(_, reason)| **reason == LeftOut::UnneededByGit);
    let left_out = left_out.into_iter().map(|(path, reason)| format!("{path} ({})", reason.reason()));
    parts.extend(
        list(left_out).map(|names| format!("left out: {names}; --include copies files all the same")),
    );
    let unneeded = list(unneeded.into_iter().map(|(path, _)| path.to_string()));
    parts.extend(
        unneeded
            .map(|names| format!("what git does not need of .git is not copied without --include: {names}")),
    );
    if !shows_ignored {
        let ignored = list(selection.ignored.iter().map(ToString::to_string));
        parts.extend(
            ignored.map(|names| format!("what git ignores is not copied without --include: {names}")),
        );
    }
    let tracked = list(selection.secrets_tracked.iter().map(ToString::to_string));
    parts.extend(
        tracked.map(|names| format!("copied although it looks secret, because git tracks it: {names}")),
    );
    let mut configs = selection
        .picked
        .iter()
        .map(|(path, _)| path)
        .filter(|path| git_directory::of_rewritten(root, path).is_some_and(|path| path.is_config()));
    if configs.any(|path| has_unneeded_settings(root, path)) {
        parts.push("of git's configuration only what git needs inside is copied".to_owned());
    }
    if selection.has_too_many_rules {
        parts.push(format!("there are more than {MAX_PATTERNS} ignore rules, and the rest is not used"));
    }
    match parts.is_empty() {
        true => Vec::new(),
        false => vec![format!("Workspace: {}.", parts.join("; "))],
    }
}

/// The notice of what is withheld among the files that git ignores.
pub fn withheld(withheld: &BTreeMap<TreePath, LeftOut>) -> Option<String> {
    let names = withheld.iter().map(|(path, reason)| format!("{path} ({})", reason.reason()));
    let names = list(names)?;
    Some(format!("Workspace: left out of what git ignores: {names}; --include copies files all the same."))
}

/// Those of `notices` about the workspace `root` that were not reported before, by what `data` records of it.
pub fn unseen(data: &Path, root: &Path, notices: &[String]) -> Vec<String> {
    let directory = data.join("workspaces");
    let name = Hash::of(root.as_os_str().as_bytes()).to_string();
    let record = directory.join(&name[..32]);
    let text = notices.join("\n");
    if text.is_empty() || std::fs::read(&record).is_ok_and(|seen| seen == text.as_bytes()) {
        return Vec::new();
    }
    // If it cannot be kept, the notices are reported again the next time.
    let _ = paths::make_dir(&directory).and_then(|()| Ok(std::fs::write(&record, &text)?));
    notices.to_vec()
}

/// Returns the reason why git works here and not in the sandbox, where not all of its repository is copied; to stand
/// after a colon.
pub fn repository_outside(root: &Path) -> Option<String> {
    let git = |directory: &Path| directory.join(".git").symlink_metadata().ok();
    Some(match git(root).map(|metadata| metadata.file_type()) {
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
            format!("its repository begins above the workspace (-C {} copies all of it)", top.display())
        }
    })
}

/// The notices where the sandbox writes straight into the tree: nothing of it is left out.
pub fn of_bound(selection: &Selection) -> Vec<String> {
    let untracked = selection.left_out.iter().filter(|(_, reason)| **reason == LeftOut::Secret);
    let secrets = untracked.map(|(path, _)| path).chain(&selection.secrets_tracked);
    let bound = "The sandbox reads and writes the workspace itself (--workspace-mode bind), .git included: nothing is \
                 reviewed first. `agent diff` shows what it changed, and `agent undo` takes back a prompt's changes.";
    let secrets = list(secrets.map(ToString::to_string));
    let secrets = secrets.map(|names| format!("Secrets are visible in the sandbox: {names}."));
    std::iter::once(bound.to_owned()).chain(secrets).collect()
}

fn list(names: impl Iterator<Item = String>) -> Option<String> {
    listed(names, LISTED)
}

/// The first `most` names, and how many more there are; `None` where there are none.
pub fn listed(names: impl Iterator<Item = String>, most: usize) -> Option<String> {
    let names: Vec<String> = names.collect();
    let named = names.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        count if count > most => Some(format!("{named} and {} more", count - most)),
        _ => Some(named),
    }
}

fn has_unneeded_settings(root: &Path, path: &TreePath) -> bool {
    let content = plain_file::read(&root.join(path.as_path()), MAX_CONFIG, Links::Refuse);
    content.is_ok_and(|content| git_directory::rewritten(root, path, &content).is_some())
}
