//! The question about each file that the user and the session changed in the same lines.

use super::{ChosenChanges, Dialogue};
use crate::cli::ui::confirm;
use crate::error::Result;
use crate::workspace::resolution::{Decided, Resolution, Undecided};
use crate::workspace::{ChangeSet, Workspace};

/// Asks about each file of what was chosen that cannot be merged. With `no` nothing is chosen any more. Where a file is beyond
/// such a choice (a directory is in its place), nobody is asked, and the apply is a conflict. `changes` are all that were to
/// be chosen from. `can_revise`: a next prompt can have the model resolve it.
///
/// # Errors
/// [`crate::error::Kind::Interrupted`] after Ctrl-C and Ctrl-D.
pub async fn resolve(
    chosen: &mut ChosenChanges,
    changes: &ChangeSet,
    workspace: &Workspace,
    dialogue: &Dialogue<'_>,
    can_revise: bool,
) -> Result<()> {
    let Some(undecided) = workspace.undecided(&chosen.changes).await? else { return Ok(()) };
    for Undecided { path, reason, found, can_mark } in undecided {
        // Lines that were refused cannot be told from the user's own any more once markers are among them.
        let is_whole = chosen.changes.changes.get(&path) == changes.changes.get(&path);
        let mut choices = vec!["ours", "theirs"];
        choices.extend((can_mark && is_whole).then_some("markers"));
        choices.extend((can_mark && is_whole && can_revise).then_some("resolve"));
        choices.push("no");
        let meanings = choices.iter().map(|choice| format!("\n  {}", meaning(choice))).collect::<String>();
        let question = format!("{path}: {reason}{meanings}\nWrite which version?");
        let resolution = match confirm::ask(dialogue.progress, &question, &choices).await? {
            "ours" => Resolution::Ours,
            "theirs" => Resolution::Theirs,
            "markers" => Resolution::Markers,
            "resolve" => Resolution::Revise,
            _ => {
                chosen.changes = chosen.changes.without_changes();
                chosen.resolutions.clear();
                return Ok(());
            }
        };
        if resolution == Resolution::Ours {
            chosen.edited.remove(&path);
        }
        chosen.resolutions.insert(path, Decided { resolution, found });
    }
    Ok(())
}

fn meaning(choice: &str) -> &'static str {
    match choice {
        "ours" => "ours: your file stays as it is, and the sandbox gets it",
        "theirs" => "theirs: the session's version replaces your file",
        "markers" => "markers: your file gets both, between <<<<<<< and >>>>>>>",
        "resolve" => "resolve: the model merges both in the sandbox, as its next prompt",
        _ => "no: nothing is written, of no file",
    }
}
