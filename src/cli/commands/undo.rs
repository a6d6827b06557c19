//! `agent undo [ID]`: restores the host's files to their state before the last apply, of any session or of the named one.

use crate::cli::apply::Author;
use crate::cli::kept_session::{find_idle, find_last_applied};
use crate::cli::options::SessionArg;
use crate::cli::print::{counted, print};
use crate::cli::ui::stderr;
use crate::error::Result;
use crate::event::Changes;
use crate::exit_code::ExitCode;
use crate::log::SessionId;
use crate::machine::Machine;
use serde_json::{Value, json};
use std::sync::Arc;

/// Reverts the last apply that has not been reverted yet.
pub async fn undo(machine: &Arc<Machine>, arguments: SessionArg) -> Result<ExitCode> {
    let options = &arguments.options();
    let kept = match arguments.id {
        Some(id) => find_idle(machine, options, Some(id), Vec::new()).await?,
        None => find_last_applied(machine, options).await?,
    };
    let changes = match kept.workspace.undo_apply().await {
        Ok(changes) => changes,
        Err(error) => {
            if let Some(conflicts) = error.known_details() {
                print(options, "", &to_json(&kept.id, Changes::default(), conflicts.clone()))?;
            }
            return Err(error);
        }
    };
    let in_place = kept.workspace.is_in_place();
    let note = if in_place { REVERTED_IN_PLACE } else { REVERTED };
    Author::Kept { machine, options, id: &kept.id }.note(note)?;
    stderr::write(&match in_place {
        true => format!("{}: what the session's last prompt had written\n", counted(changes)),
        false => format!("{} (`agent apply {}` applies it again)\n", counted(changes), kept.id),
    });
    print(options, "", &to_json(&kept.id, changes, json!([])))
}

/// The text for the model.
const REVERTED: &str =
    "The user took back what was written to their own files last; the sandbox still has the changes.";

/// As [`REVERTED`], where the sandbox has the user's own files.
const REVERTED_IN_PLACE: &str = "The user took back what was changed last in the files.";

fn to_json(id: &SessionId, undone: Changes, conflicts: Value) -> Value {
    json!({ "session": id, "undone": undone, "conflicts": conflicts })
}
