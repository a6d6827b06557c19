//! The end of a run or of the REPL: what is not written yet is offered to the user, or it is said how to write it later.

use super::apply::{Ask, Author, ChosenChanges, Dialogue, Files, choose, remarks_on, resolve, write};
use super::console::Console;
use super::print::counted;
use crate::cli::config::Config;
use crate::cli::ui::confirm;
use crate::error::Result;
use crate::event::Event;
use crate::session::{Frontend, Ready, Session};
use crate::workspace::{ChangeSet, risks};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The time limit for a session that failed to look at its sandbox once more.
const LAST_LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The end of `agent run`: with `--apply` the change is written, a user at a terminal is asked, and otherwise
/// a message names the command that writes it later.
pub async fn after_run(config: &Config, console: &Console, session: &mut Session) -> Result<()> {
    // The end of the prompt has just recorded it.
    let is_recorded = session.startup().if_ready().is_some();
    let Some(ready) = ready(session).await? else { return Ok(()) };
    let changes = match is_recorded {
        true => ready.workspace.recorded_changes().await?,
        false => ready.workspace.changes(&ready.sandbox).await?,
    };
    for message in changes.messages() {
        // What is refused is not written, and that is always reported.
        match changes.remarks.contains(&message) {
            true => console.events().emit(Event::Notice { text: message })?,
            false => console.always_notice(message)?,
        }
    }
    if changes.is_empty() || changes.in_place {
        return report_unwritten(console, session, ready.workspace.root(), &changes);
    }
    let chosen = if config.options.apply.apply {
        risks::summary(&changes).map_or(Ok(()), |risks| console.always_notice(risks))?;
        ChosenChanges::all(changes.clone())
    } else if confirm::is_possible() {
        console.screen.settle()?;
        let dialogue = Dialogue { progress: console.screen.progress(), programs: config.programs() };
        let mut chosen = choose(&changes, &ready.workspace, &dialogue, Ask::Whole, true).await?;
        resolve(&mut chosen, &changes, &ready.workspace, &dialogue, false).await?;
        chosen
    } else {
        ChosenChanges::all(ChangeSet::default())
    };
    let mut author = Author::Open(session);
    chosen.note_of_refused().map_or(Ok(()), |note| author.note(&note))?;
    if chosen.changes.is_empty() {
        return report_unwritten(console, session, ready.workspace.root(), &changes);
    }
    let (machine, sandbox) = (&config.machine, Some(&ready.sandbox));
    let files = Files { machine, workspace: &ready.workspace, sandbox };
    let applied = write(&mut author, &files, &chosen).await?;
    let text = format!("{}, written to {}", counted(applied.changes), config.workspace.display());
    console.events().emit(Event::Notice { text })?;
    remarks_on(&applied).try_for_each(|text| console.events().emit(Event::Notice { text }))
}

/// The end of the REPL: reports how to write later what is not written yet.
pub async fn after_repl(console: &Console, session: &Session) -> Result<()> {
    let Some(ready) = ready(session).await? else { return Ok(()) };
    let changes = match ready.workspace.changes(&ready.sandbox).await {
        Ok(changes) => changes,
        // What was recorded is there even where the sandbox is not any more.
        Err(_) => ready.workspace.recorded_changes().await?,
    };
    report_unwritten(console, session, ready.workspace.root(), &changes)
}

/// The end of a run or of the REPL that failed, reached a limit or was terminated: what the sandbox holds is recorded once
/// more, and what is not written is reported.
pub async fn after_failure(console: &Console, session: &Session) {
    let Some(ready) = session.startup().if_ready() else { return };
    let changes = match timeout(LAST_LOOK_TIMEOUT, ready.workspace.changes(&ready.sandbox)).await {
        Ok(Ok(changes)) => Ok(changes),
        Ok(Err(_)) | Err(_) => ready.workspace.recorded_changes().await,
    };
    // The failure that led here is the one to end with.
    let _ = changes.and_then(|changes| report_unwritten(console, session, ready.workspace.root(), &changes));
}

/// The sandbox, where it may hold a change.
async fn ready(session: &Session) -> Result<Option<Arc<Ready>>> {
    match session.startup().if_ready() {
        Some(ready) => Ok(Some(ready)),
        // An earlier run of the session may have changed something.
        None if session.is_resumed() => session.startup().ready().await.map(Some),
        // No tool ran, so nothing changed.
        None => Ok(None),
    }
}

/// Reports what is not written, and how to write it later.
fn report_unwritten(console: &Console, session: &Session, root: &Path, changes: &ChangeSet) -> Result<()> {
    let (counted, id) = (counted(changes.counts()), session.id());
    if changes.is_empty() {
        return Ok(());
    }
    console.always_notice(match changes.in_place {
        true => format!(
            "{counted}, in {} already (--workspace-mode bind): `agent diff {id}` shows it, \
             `agent undo {id}` takes back the last prompt's",
            root.display()
        ),
        false => format!(
            "{counted}; nothing is written yet: `agent diff {id}` shows it, `agent apply {id}` writes it, \
             `agent resume {id}` continues"
        ),
    })
}
