//! `agent undo [ID]`: restores the host's files to their state before the last apply, of any session or of the named one.

use super::apply::counted;
use super::arguments::SessionArg;
use super::print::print;
use super::review::{find_idle, find_last_applied};
use crate::cli::machine;
use crate::cli::options::Options;
use crate::cli::ui::stderr;
use crate::error::Result;
use crate::event::Changes;
use crate::exit_code::ExitCode;
use crate::log::{SessionId, Store};
use serde_json::{Value, json};

/// Reverts the last apply that has not been reverted yet.
pub async fn undo(options: &Options, arguments: SessionArg) -> Result<ExitCode> {
    let kept = match arguments.id {
        Some(id) => find_idle(options, Some(id), Vec::new()).await?,
        None => find_last_applied(options).await?,
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
    // It is reverted, whether or not the session learns of it.
    let _ = Store::open(&machine()).and_then(|store| store.note(&kept.id, REVERTED));
    stderr::write(&format!("{} (`agent apply {}` applies it again)\n", counted(changes), kept.id));
    print(options, "", &to_json(&kept.id, changes, json!([])))
}

/// What the model learns.
const REVERTED: &str =
    "The user took back what was written to their own files last; the sandbox still has the changes.";

fn to_json(id: &SessionId, undone: Changes, conflicts: Value) -> Value {
    json!({ "session": id, "undone": undone, "conflicts": conflicts })
}
