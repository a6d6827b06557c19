//! The question about each file that the user and the session changed in the same lines.

use super::{ChosenChanges, Dialogue};
use crate::cli::ui::confirm::{Choice, Reply, reply};
use crate::error::Result;
use crate::workspace::resolution::{Decided, Resolution, Undecided};
use crate::workspace::{ChangeSet, Workspace};

const OURS: Choice = Choice { word: "ours", help: "your file stays as it is, and the sandbox gets it" };
const THEIRS: Choice = Choice { word: "theirs", help: "the session's version replaces your file" };
const MARKERS: Choice = Choice { word: "markers", help: "your file gets both, between <<<<<<< and >>>>>>>" };
const RESOLVE: Choice =
    Choice { word: "resolve", help: "the model merges both in the sandbox, as its next prompt" };
const NO: Choice = Choice { word: "no", help: "nothing is written, of no file" };

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
        let mut choices = vec![OURS, THEIRS];
        choices.extend((can_mark && is_whole).then_some(MARKERS));
        choices.extend((can_mark && is_whole && can_revise).then_some(RESOLVE));
        choices.push(NO);
        let meanings = choices.iter().map(|choice| format!("\n  {}: {}", choice.word, choice.help));
        let question = format!("{path}: {reason}{}\nWrite which version?", meanings.collect::<String>());
        let resolution = match reply(dialogue.progress, &question, &choices, &[]).await? {
            Reply::Chosen("ours") => Resolution::Ours,
            Reply::Chosen("theirs") => Resolution::Theirs,
            Reply::Chosen("markers") => Resolution::Markers,
            Reply::Chosen("resolve") => Resolution::Revise,
            other => {
                chosen.changes = chosen.changes.without_changes();
                chosen.resolutions.clear();
                if let Reply::Words(words) = other {
                    chosen.said = Some(words);
                }
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
