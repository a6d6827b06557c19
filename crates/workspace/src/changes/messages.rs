//! What is said beside the changes: what is not applied and why, and what is not part of them.

use super::{ChangeSet, Exclusions, MAX_NAME, Refused};
use crate::manifest::Delta;
use crate::notices::listed;
use crate::tree_path::TreePath;
use agent_base::sanitise;
use std::collections::BTreeMap;

/// Lines that are printed for refused entries with the same reason; the rest are counted.
const MAX_MESSAGES: usize = 20;

impl ChangeSet {
    /// Takes the remark about ignored files out; whether there was one.
    pub fn take_remark_on_ignored(&mut self) -> bool {
        let count = self.remarks.len();
        self.remarks.retain(|remark| !remark.starts_with(OF_IGNORED));
        self.remarks.len() < count
    }

    /// The messages beside the changes, a line each: what is not applied and why, of each reason at most
    /// 20 names, and the remarks. Safe to show.
    pub fn messages(&self) -> impl Iterator<Item = String> {
        let fate = match self.in_place {
            true => "is in the workspace and in no diff",
            false => "is not applied",
        };
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for Refused { name, reason } in &self.refused {
            by_reason.entry(reason).or_default().push(name);
        }
        let refused = by_reason.into_iter().flat_map(move |(reason, names)| {
            let more = names.len().saturating_sub(MAX_MESSAGES);
            let lines = names.into_iter().take(MAX_MESSAGES);
            let lines =
                lines.map(move |name| format!("{} {fate}: {reason}", shortened(&sanitise::plain(name))));
            lines.chain((more > 0).then(|| format!("… and {more} more: {reason}")))
        });
        refused.chain(self.remarks.iter().cloned())
    }
}

/// A name's beginning and end, where all of it would be too long for a line.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= MAX_NAME {
        return name.to_owned();
    }
    let begin: String = name.chars().take(MAX_NAME / 2).collect();
    let end: String = name.chars().skip(count - MAX_NAME / 2).collect();
    format!("{begin}…{end}")
}

/// The beginning of a remark about new files that the ignore rules leave out. It is the same after every prompt.
const OF_IGNORED: &str = "New files that .gitignore names";

/// The beginning of a remark about files of the host's that git ignores.
const CHANGED_IGNORED: &str = "Files that git ignores";

/// Returns what is not part of the changes without having been refused.
pub(super) fn remarks(delta: &Delta, exclusions: &Exclusions<'_>) -> Vec<String> {
    let ignored = exclusions.ignored;
    let mut remarks = Vec::new();
    if delta.keys().any(is_git_history) {
        let remark = match exclusions.in_place {
            true => {
                "The sandbox changed .git in place: commits, branches, configuration or hooks. Look at .git/config and \
                 .git/hooks before you use git here; no diff shows them."
            }
            false => {
                "Commits, branches and configuration of git that were made in the sandbox stay there: apply the files, \
                 and commit on this side, or take the commits with apply --branch NAME."
            }
        };
        remarks.push(remark.to_owned());
    }
    if let Some(names) = listed(ignored.changed.iter().map(ToString::to_string), ignored.changed.len()) {
        remarks.push(format!(
            "{CHANGED_IGNORED} were changed in the sandbox and stay there: {names} (--include, when a session begins, copies such files)."
        ));
    }
    if ignored.count > 0 {
        let names: Vec<String> = ignored.first.iter().map(ToString::to_string).collect();
        let more = match ignored.count.saturating_sub(names.len() as u64) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = names.join(", ");
        remarks.push(match exclusions.in_place {
            true => format!("{OF_IGNORED} are in the workspace and in no diff: {names}{more}."),
            false => format!(
                "{OF_IGNORED} stay in the sandbox: {names}{more} (--include, when a session begins, \
                 copies such files)."
            ),
        });
    }
    remarks
}

/// Returns whether a path is one where git keeps what somebody made: commits, branches, settings. The index and the objects
/// change by looking alone.
fn is_git_history(path: &TreePath) -> bool {
    let mut below = path.names().skip_while(|name| *name != b".git").skip(1);
    below.any(|name| matches!(name, b"refs" | b"HEAD" | b"packed-refs" | b"config" | b"hooks"))
}
