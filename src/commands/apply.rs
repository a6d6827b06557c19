//! Writing what a session changed into the workspace: `agent apply`, and the end of `agent run`.

use super::open::{Audience, Opened};
use crate::config::Config;
use crate::error::Result;
use crate::event::{Changes, Event};
use crate::ui::confirm;
use crate::ui::sanitise::plain;

/// The end of `agent run`: with `--apply` the change is written, a person at a terminal is asked, and anybody else
/// is told how to write it later.
pub async fn after_run(config: &Config, audience: &Audience, opened: &Opened) -> Result<()> {
    let Some(ready) = opened.startup.if_ready() else { return Ok(()) };
    let changes = ready.workspace.changes(&ready.sandbox).await?;
    for refused in &changes.refused {
        let text = format!("{} is not taken over: {}", plain(&refused.name), refused.reason);
        audience.events.emit(Event::Notice { text })?;
    }
    if changes.is_empty() {
        return Ok(());
    }
    let wanted = config.options.apply || (confirm::is_possible() && ask(audience, changes.counts()).await?);
    if !wanted {
        let text = format!(
            "{}; nothing is written yet: `agent diff {id}` shows it, `agent apply {id}` writes it",
            counted(changes.counts()),
            id = opened.id
        );
        return audience.events.emit(Event::Notice { text });
    }
    let applied = ready.workspace.apply(&changes, false, Some(&ready.sandbox)).await?;
    let text = format!("{}, written to {}", counted(applied.changes), config.workspace.display());
    audience.events.emit(Event::Notice { text })
}

async fn ask(audience: &Audience, changes: Changes) -> Result<bool> {
    audience.screen.settle()?;
    let question = format!("{}. Write them into the workspace?", counted(changes));
    Ok(confirm::ask(audience.screen.progress(), &question, &["yes", "no"]).await? == "yes")
}

/// `1 file added, 2 modified, 0 deleted`
pub fn counted(changes: Changes) -> String {
    let Changes { added, modified, deleted } = changes;
    format!("{added} file(s) added, {modified} modified, {deleted} deleted")
}
