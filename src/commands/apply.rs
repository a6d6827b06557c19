//! `agent apply [ID] [PATH…]`: writes what a session changed into the workspace.

use super::review::{ask, find_idle};
use crate::cli::{ApplyArgs, Options};
use crate::error::{Error, Result};
use crate::event::Changes;
use crate::exit_code::ExitCode;
use crate::ui::confirm;
use crate::ui::progress::Progress;

/// Asks where there is a person, and writes.
pub async fn apply(options: &Options, arguments: ApplyArgs) -> Result<ExitCode> {
    let kept = find_idle(options, arguments.id, arguments.paths).await?;
    let mut changes = kept.workspace.recorded_changes().await?.select(&kept.paths)?;
    for refused in &changes.refused {
        eprintln!("not taken over: {}: {}", refused.name, refused.reason);
    }
    if changes.is_empty() {
        eprintln!("There is nothing to apply.");
        return Ok(ExitCode::Success);
    }
    if !arguments.yes {
        if !confirm::is_possible() {
            return Err(Error::usage("there is nobody to ask whether to apply").hint("add --yes"));
        }
        changes = ask(&changes, kept.workspace.store(), &Progress::stderr()).await?;
    }
    if changes.is_empty() {
        eprintln!("Nothing was written.");
        return Ok(ExitCode::Success);
    }
    let applied = kept.workspace.apply(&changes, arguments.merge, None).await?;
    eprintln!("{} (`agent undo {}` takes it back)", written(applied.changes), kept.id);
    for path in applied.merged {
        eprintln!("merged with the host's version: {path}");
    }
    Ok(ExitCode::Success)
}

/// `2 files added, 1 modified, 0 deleted`
pub fn written(changes: Changes) -> String {
    let plural = if changes.added == 1 { "" } else { "s" };
    format!(
        "{} file{plural} added, {} modified, {} deleted",
        changes.added, changes.modified, changes.deleted
    )
}
