//! Writing what a session changed into the workspace: `agent apply`, and the end of `agent run`.

use super::open::{Audience, Opened};
use super::print::print;
use super::review;
use crate::agent::Ready;
use crate::cli::config::Config;
use crate::cli::options::{ApplyArgs, Options};
use crate::cli::ui::confirm;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::event::{Changes, Event};
use crate::exit_code::ExitCode;
use crate::log::SessionId;
use crate::workspace::tree_path::TreePath;
use crate::workspace::{Applied, ChangeSet};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the sandbox is looked at once more where the session is not to go on.
const MAX_LOOK: Duration = Duration::from_secs(5);

/// `agent apply [ID] [PATH…]`: asks where there is a person, and writes.
pub async fn apply(options: &Options, arguments: ApplyArgs) -> Result<ExitCode> {
    let kept = review::find_idle(options, arguments.id, arguments.paths).await?;
    let mut changes = kept.workspace.recorded_changes().await?.select(&kept.paths)?;
    changes.asides().for_each(|aside| stderr::write(&format!("{aside}\n")));
    if changes.is_empty() {
        stderr::write("There is nothing to apply.\n");
        return told(options, &kept.id, &changes, &Applied::default());
    }
    // A script that calls this means it.
    if !arguments.yes && !options.json && confirm::is_possible() {
        changes = review::ask(&changes, kept.workspace.store(), &Progress::stderr()).await?;
    }
    if changes.is_empty() {
        stderr::write("Nothing was written.\n");
        return told(options, &kept.id, &changes, &Applied::default());
    }
    let applied = match kept.workspace.apply(&changes, arguments.merge, None).await {
        Err(error) => return Err(told_conflicts(options, &kept.id, &changes, error)?),
        Ok(applied) => applied,
    };
    stderr::write(&format!("{} (`agent undo {}` takes it back)\n", counted(applied.changes), kept.id));
    for path in &applied.merged {
        stderr::write(&format!("merged with the host's version: {path}\n"));
    }
    told(options, &kept.id, &changes, &applied)
}

/// With `--json`, what was done.
fn told(options: &Options, id: &SessionId, changes: &ChangeSet, applied: &Applied) -> Result<ExitCode> {
    print(options, "", &to_json(id, changes, applied, json!([])))
}

/// With `--json`, that nothing was done, and why; gives back the failure to end with.
fn told_conflicts(options: &Options, id: &SessionId, changes: &ChangeSet, error: Error) -> Result<Error> {
    if let Some(conflicts) = error.known_details() {
        let nothing = (changes.without_changes(), Applied::default());
        print(options, "", &to_json(id, &nothing.0, &nothing.1, conflicts.clone()))?;
    }
    Ok(error)
}

fn to_json(id: &SessionId, changes: &ChangeSet, applied: &Applied, conflicts: Value) -> Value {
    let names = |paths: &mut dyn Iterator<Item = &TreePath>| -> Vec<String> {
        paths.map(ToString::to_string).collect()
    };
    let files = changes.changes.iter().filter(|(_, change)| !change.is_directory_only());
    json!({
        "session": id,
        "applied": applied.changes,
        "files": names(&mut files.map(|(path, _)| path)),
        "merged": names(&mut applied.merged.iter()),
        "refused": changes.refused,
        "remarks": changes.remarks,
        "conflicts": conflicts,
    })
}

/// The end of `agent run`: with `--apply` the change is written, a person at a terminal is asked, and anybody else
/// is told how to write it later.
pub async fn after_run(config: &Config, audience: &Audience, opened: &Opened) -> Result<()> {
    let Some(ready) = ready(opened).await? else { return Ok(()) };
    let changes = ready.workspace.changes(&ready.sandbox).await?;
    for aside in changes.asides() {
        // What is refused is not written, which is told whatever else is not.
        match changes.remarks.contains(&aside) {
            true => audience.events.emit(Event::Notice { text: aside })?,
            false => audience.always_notice(aside)?,
        }
    }
    if changes.is_empty() || changes.in_place {
        return tell_unwritten(config, audience, &opened.id, &changes);
    }
    let wanted = if config.options.apply {
        changes.clone()
    } else if confirm::is_possible() {
        audience.screen.settle()?;
        review::ask(&changes, ready.workspace.store(), audience.screen.progress()).await?
    } else {
        ChangeSet::default()
    };
    if wanted.is_empty() {
        return tell_unwritten(config, audience, &opened.id, &changes);
    }
    let applied = ready.workspace.apply(&wanted, false, Some(&ready.sandbox)).await?;
    let text = format!("{}, written to {}", counted(applied.changes), config.workspace.display());
    audience.events.emit(Event::Notice { text })
}

/// The end of the REPL: the person is told how to write later what is not written yet.
pub async fn after_talk(config: &Config, audience: &Audience, opened: &Opened) -> Result<()> {
    let Some(ready) = ready(opened).await? else { return Ok(()) };
    let changes = match ready.workspace.changes(&ready.sandbox).await {
        Ok(changes) => changes,
        // What was recorded is there even where the sandbox is not any more.
        Err(_) => ready.workspace.recorded_changes().await?,
    };
    tell_unwritten(config, audience, &opened.id, &changes)
}

/// The end of a run or of the REPL that failed, came to a limit or was told to end: what the sandbox holds is recorded
/// once more, and it is said what is not written.
pub async fn after_failure(config: &Config, audience: &Audience, opened: &Opened) {
    let Some(ready) = opened.startup.if_ready() else { return };
    let changes = match timeout(MAX_LOOK, ready.workspace.changes(&ready.sandbox)).await {
        Ok(Ok(changes)) => Ok(changes),
        Ok(Err(_)) | Err(_) => ready.workspace.recorded_changes().await,
    };
    // The failure that led here is the one to end with.
    let _ = changes.and_then(|changes| tell_unwritten(config, audience, &opened.id, &changes));
}

/// The sandbox, where it may hold a change.
async fn ready(opened: &Opened) -> Result<Option<Arc<Ready>>> {
    match opened.startup.if_ready() {
        Some(ready) => Ok(Some(ready)),
        // An earlier run of the session may have changed something.
        None if opened.goes_on => opened.startup.ready().await.map(Some),
        // No tool ran, so nothing changed.
        None => Ok(None),
    }
}

/// Says what is not written, and how to get at it later.
fn tell_unwritten(config: &Config, audience: &Audience, id: &SessionId, changes: &ChangeSet) -> Result<()> {
    let counted = counted(changes.counts());
    if changes.is_empty() {
        return Ok(());
    }
    audience.always_notice(match changes.in_place {
        true => format!(
            "{counted}, in {} already (--workspace-mode bind): `agent diff {id}` shows it",
            config.workspace.display()
        ),
        false => format!(
            "{counted}; nothing is written yet: `agent diff {id}` shows it, `agent apply {id}` writes it, \
             `agent resume {id}` goes on"
        ),
    })
}

/// `1 file added, 2 modified, 0 deleted`
pub fn counted(changes: Changes) -> String {
    let Changes { added, modified, deleted } = changes;
    let plural = if added == 1 { "" } else { "s" };
    format!("{added} file{plural} added, {modified} modified, {deleted} deleted")
}
