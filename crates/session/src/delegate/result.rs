//! The result of a delegated part: for the model, and as an event.

use super::child::Worked;
use crate::status;
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};
use agent_base::shorten::head_and_tail;
use agent_event::{Changes, Event};
use agent_log::SessionId;
use agent_tools::ToolResult;
use agent_workspace::apply::Conflict;
use agent_workspace::tree_path::TreePath;
use agent_workspace::{ChangeSet, Merge, Workspace, diff};
use std::fmt::{Display, Write};
use std::time::Duration;

/// Files that are named in a list.
const NAMED: usize = 50;
/// Files that an event names.
const NAMED_IN_EVENT: usize = 1000;

/// A part of the work that was delegated.
pub(super) struct Part {
    pub session: SessionId,
    pub worked: Worked,
    pub merged: Result<Merge>,
    pub took: Duration,
}

/// The result where no session could be made.
pub(super) fn not_begun(error: &Error) -> ToolResult {
    ToolResult::failure(format!("error: nothing was delegated: {error}"))
}

/// The result while the user has not accepted the model's plan: what a part changes could not be merged.
pub(super) fn read_only() -> ToolResult {
    ToolResult::failure(
        "error: nothing was delegated: the workspace is read-only until the user accepts the plan; answer with the plan"
            .to_owned(),
    )
}

impl Part {
    /// The event at its end.
    pub fn event(&self, call: &str) -> Event {
        let Worked { answer, spent, cost, .. } = &self.worked;
        let merged = self.merged.as_ref().ok();
        let names = |paths: Vec<&TreePath>| {
            paths.into_iter().take(NAMED_IN_EVENT).map(ToString::to_string).collect::<Vec<_>>()
        };
        let conflicts = merged.map(|merge| merge.conflicts.iter().map(|conflict| &conflict.path).collect());
        let error = answer.as_ref().err().or(self.merged.as_ref().err());
        Event::DelegateFinished {
            id: call.to_owned(),
            delegate: self.session.to_string(),
            status: status(answer).to_owned(),
            turns: spent.turns,
            usage: spent.usage,
            cost: *cost,
            duration_ms: u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            changes: merged.map_or(Changes::default(), |merge| merge.changes.counts()),
            merged: merged.map_or(0, |merge| (merge.taken.len() + merge.merged.len()) as u64),
            conflicts: names(conflicts.unwrap_or_default()),
            outside: names(merged.map(|merge| merge.outside.iter().collect()).unwrap_or_default()),
            error: error.map(ToString::to_string),
        }
    }

    /// Returns what the model reads, of about `chars` characters.
    pub fn result(&self, chars: usize) -> Result<ToolResult> {
        let Self { session, worked, .. } = self;
        let answer = match &worked.answer {
            Ok(answer) => answer,
            Err(error) => {
                return Ok(ToolResult::failure(format!(
                    "error: the delegated part failed: {error}\nNothing of it was merged; session {session} has what it changed."
                )));
            }
        };
        let answer = head_and_tail(answer.trim(), chars / 2);
        let merge = match &self.merged {
            Ok(merge) => merge,
            Err(error) => {
                return Ok(ToolResult::failure(format!(
                    "error: the part is done, but its changes could not be merged: {error}\n\nAnswer:\n{answer}"
                )));
            }
        };
        let mut text = match merge.conflicts.len() {
            0 => "done".to_owned(),
            1 => "error: done, but 1 file conflicts and was not merged".to_owned(),
            count => format!("error: done, but {count} files conflict and were not merged"),
        };
        let _ = write!(
            text,
            " (session {session}, {})\n\nAnswer:\n{answer}\n",
            counted(worked.spent.turns, "turn")
        );
        text += &fate(merge);
        if let Some(workspace) = &worked.workspace {
            let left = chars.saturating_sub(text.chars().count()).max(chars / 4);
            let patch = patch(merge, workspace)?;
            if !patch.is_empty() {
                let _ = write!(text, "\nIts diff:\n{}", head_and_tail(&patch, left));
            }
        }
        match merge.conflicts.is_empty() {
            true => Ok(ToolResult::success(text)),
            false => Ok(ToolResult::failure(text)),
        }
    }
}

/// Returns what became of each file.
fn fate(merge: &Merge) -> String {
    let Merge { changes, taken, merged, conflicts, outside } = merge;
    let conflicts = conflicts.iter().map(|Conflict { path, reason }| format!("{path}: {reason}"));
    let messages: Vec<String> = changes.messages().collect();
    let mut text = String::new();
    section(&mut text, "Merged into the workspace", taken.iter());
    section(&mut text, "Merged with other changes of the same files", merged.iter());
    section(
        &mut text,
        "Not merged because of conflicts: the workspace has its own version of these files, unchanged",
        conflicts,
    );
    section(&mut text, "Not merged because they are not in `paths`", outside.iter());
    section(&mut text, "Not merged", messages.into_iter());
    if text.is_empty() { "\nIt changed no file.\n".to_owned() } else { text }
}

fn section(text: &mut String, title: &str, entries: impl ExactSizeIterator<Item = impl Display>) {
    let count = entries.len();
    if count == 0 {
        return;
    }
    let _ = writeln!(text, "\n{title}:");
    for entry in entries.take(NAMED) {
        let _ = writeln!(text, "- {entry}");
    }
    if count > NAMED {
        let _ = writeln!(text, "- and {} more", count - NAMED);
    }
}

/// All that was changed, first what is not in the workspace now.
fn patch(merge: &Merge, workspace: &Workspace) -> Result<String> {
    let is_missing = |path: &TreePath| {
        merge.conflicts.iter().any(|conflict| conflict.path == *path) || merge.outside.contains(path)
    };
    let mut patch = Vec::new();
    for missing in [true, false] {
        let mut part: ChangeSet = merge.changes.without_changes();
        part.changes = merge.changes.changes.clone();
        part.changes.retain(|path, change| !change.is_directory_only() && is_missing(path) == missing);
        (part.refused, part.remarks) = (Vec::new(), Vec::new());
        if !part.is_empty() {
            diff::write_text(&mut patch, &part, workspace.store(), false)?;
        }
    }
    Ok(String::from_utf8_lossy(&patch).into_owned())
}
