//! `/diff`, `/apply`, `/undo`, `/redo` and `/checkpoints`: what the session did to the workspace.

use super::{Flow, Repl};
use crate::approval::choose_changes;
use crate::cli::apply::counted;
use crate::cli::review;
use crate::cli::ui::style::BOLD;
use crate::error::{Error, Result};
use crate::session::Ready;
use crate::workspace::{ChangeSet, Checkpoint, diff, risks};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

impl Repl<'_> {
    /// Without a pager; `agent diff` has one.
    pub(super) async fn diff(&mut self, paths: &str) -> Result<Flow> {
        let (ready, changes) = self.changes(paths).await?;
        let mut text = Vec::new();
        if let Some(risks) = risks::summary(&changes) {
            writeln!(text, "{risks}\n")?;
        }
        diff::write_text(&mut text, &changes, ready.workspace.store(), self.colours.0)?;
        self.screen.say(&String::from_utf8_lossy(&text));
        if changes.is_empty() {
            self.remark("nothing has changed");
        }
        Ok(Flow::Continue)
    }

    /// Shows the summary and asks; a conflict writes nothing.
    pub(super) async fn apply(&mut self, paths: &str) -> Result<Flow> {
        let (ready, changes) = self.changes(paths).await?;
        if changes.is_empty() {
            self.remark("there is nothing to apply");
            return Ok(Flow::Continue);
        }
        let chosen = choose_changes(&changes, ready.workspace.store(), self.console.user()).await?;
        if chosen.is_empty() {
            self.remark("nothing was written");
            return Ok(Flow::Continue);
        }
        let applied = ready.workspace.apply(&chosen, false, Some(&ready.sandbox)).await?;
        self.remark(&format!("written: {}", counted(applied.changes)));
        Ok(Flow::Continue)
    }

    pub(super) async fn undo(&mut self, prompts: &str) -> Result<Flow> {
        let prompts = match prompts {
            "" => 1,
            count => count.parse().map_err(|_| Error::usage("/undo takes the number of prompts to undo"))?,
        };
        match self.session.checkpoints().undo(prompts).await? {
            Some((checkpoint, undone)) => {
                let only = match undone < prompts {
                    true => format!("; {undone} undone, there were no more"),
                    false => String::new(),
                };
                self.remark(&format!("the workspace is at checkpoint {}{only}", words(&checkpoint)));
            }
            None => self.remark("there is nothing to undo"),
        }
        Ok(Flow::Continue)
    }

    pub(super) async fn redo(&mut self) -> Result<Flow> {
        let checkpoint = self.session.checkpoints().redo().await?;
        self.remark(&format!("the workspace is at checkpoint {}", words(&checkpoint)));
        Ok(Flow::Continue)
    }

    pub(super) async fn checkpoints(&mut self) -> Result<Flow> {
        let (list, position) = self.ready().await?.workspace.checkpoints().await;
        let mut text = String::new();
        for (index, checkpoint) in list.iter().enumerate() {
            let line = format!("{} {}\n", if index == position { "*" } else { " " }, words(checkpoint));
            text += &if index == position { self.colours.paint(BOLD, line) } else { line };
        }
        self.screen.say(&text);
        Ok(Flow::Continue)
    }

    async fn changes(&self, paths: &str) -> Result<(Arc<Ready>, ChangeSet)> {
        let paths = shell_words::split(paths).map_err(|_| Error::usage("a quotation mark is not closed"))?;
        let paths: Vec<PathBuf> = paths.into_iter().map(PathBuf::from).collect();
        let ready = self.ready().await?;
        let paths = review::within(ready.workspace.root(), &paths)?;
        let changes = ready.workspace.changes(&ready.sandbox).await?.select(&paths)?;
        Ok((ready, changes))
    }

    async fn ready(&self) -> Result<Arc<Ready>> {
        self.screen.progress().show("waiting for the sandbox");
        let ready = self.session.startup().ready().await?;
        self.screen.progress().clear();
        Ok(ready)
    }
}

/// `2 (prompt 1, 3 files changed)`
fn words(checkpoint: &Checkpoint) -> String {
    let Checkpoint { id, files, prompt, .. } = checkpoint;
    match (id.as_str(), *files) {
        ("0", _) => "0 (the beginning of the session)".to_owned(),
        (_, 1) => format!("{id} (prompt {prompt}, 1 file changed)"),
        _ => format!("{id} (prompt {prompt}, {files} files changed)"),
    }
}
