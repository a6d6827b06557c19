//! `agent undo [ID]`: puts the host's files back as they were before the session's last apply.

use super::apply::counted;
use super::print::print;
use super::review::find_idle;
use crate::cli::{Options, SessionArg};
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::ui::stderr;
use serde_json::json;

/// Takes the last apply back that was not taken back yet.
pub async fn undo(options: &Options, arguments: SessionArg) -> Result<ExitCode> {
    let kept = find_idle(options, arguments.id, Vec::new()).await?;
    let changes = kept.workspace.undo_apply().await?;
    stderr::write(&format!("{} (`agent apply {}` applies it again)\n", counted(changes), kept.id));
    print(options, "", &json!({ "session": kept.id, "undone": changes }))
}
