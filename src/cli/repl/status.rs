//! The status line under the prompt.

use super::Repl;
use crate::agent::Spent;
use crate::cli::ui::status_line::{StatusItem, StatusLine};
use crate::cli::ui::trace::prompt_text;
use crate::count_text::counted;
use crate::error::Result;
use crate::event::{Changes, Usage};
use crate::log::Store;
use crate::sanitise;
use crate::workspace::{Workspace, tracked};
use std::sync::Arc;
use std::time::Instant;

/// The items that are shown by default.
const DEFAULT: [StatusItem; 7] = [
    StatusItem::Model,
    StatusItem::Context,
    StatusItem::Cost,
    StatusItem::Branch,
    StatusItem::Changes,
    StatusItem::Sandbox,
    StatusItem::Network,
];
/// Columns of a model's or a branch's name.
const MAX_NAME: usize = 32;

impl Repl<'_> {
    /// The line as it is now. What it shows is known already, but for the branch, which is one small file.
    pub(super) async fn status(&self) -> StatusLine {
        let items = self.config.file.ui.status.as_deref().unwrap_or(&DEFAULT);
        if self.config.options.is_quiet() || items.is_empty() {
            return StatusLine::default();
        }
        let mut parts = Vec::new();
        for item in items {
            parts.extend(self.status_of(*item).await);
        }
        StatusLine { parts }
    }

    async fn status_of(&self, item: StatusItem) -> Option<String> {
        let conversation = &self.session.conversation;
        match item {
            StatusItem::Model => Some(sanitise::one_line(conversation.model_name(), MAX_NAME)),
            StatusItem::Context => match conversation.context() {
                (0, _) => None,
                (used, Some(size)) if size > 0 => {
                    Some(format!("{} % of {}", used * 100 / size, thousands(size)))
                }
                (used, _) => Some(format!("{} tokens", thousands(used))),
            },
            StatusItem::Cost => conversation.cost().map(|cost| format!("{cost:.4}")),
            StatusItem::Branch => {
                let branch = tracked::branch(&self.config.workspace)?;
                Some(sanitise::one_line(&branch, MAX_NAME))
            }
            StatusItem::Changes => match self.changed_files().await {
                0 => None,
                files => Some(counted(files, "file") + " changed"),
            },
            StatusItem::Sandbox => Some(self.session.startup().backend().name().to_owned()),
            StatusItem::Network => Some(format!("network {}", self.network_in_short())),
        }
    }

    /// Files with changes that are not applied, as they were recorded last.
    async fn changed_files(&self) -> u64 {
        let counts = self.recorded_changes().await;
        counts.map_or(0, |counts| counts.added + counts.modified + counts.deleted)
    }

    /// After a prompt: a line with what it took, and what waits to be applied. Nothing where the model was not reached.
    pub(super) async fn report_prompt(&self, started: Instant, before: &Spent) -> Result<()> {
        self.screen.settle()?;
        let now = self.session.conversation.total();
        if self.config.options.is_quiet() || now.turns == before.turns {
            return Ok(());
        }
        let usage = Usage {
            input: now.usage.input.saturating_sub(before.usage.input),
            output: now.usage.output.saturating_sub(before.usage.output),
            cached: now.usage.cached.saturating_sub(before.usage.cached),
            written: now.usage.written.saturating_sub(before.usage.written),
        };
        let cost = self.session.conversation.cost().map(|_| now.cost - before.cost);
        let took = started.elapsed().as_millis() as u64;
        self.remark(&prompt_text(took, usage, cost, self.changed_files().await));
        Ok(())
    }

    /// Returns what is changed and not applied, which a session that was resumed knows before its sandbox has started.
    async fn recorded_changes(&self) -> Option<Changes> {
        let changes = match self.session.startup().if_ready() {
            Some(ready) => ready.workspace.recorded_changes().await,
            None if self.session.is_resumed() => {
                let machine = Arc::clone(&self.config.machine);
                let directory = Store::open(&machine).ok()?.dir(self.session.id());
                Workspace::load(&directory, machine).await.ok()??.recorded_changes().await
            }
            None => return None,
        };
        changes.ok().map(|changes| changes.counts())
    }

    fn network_in_short(&self) -> String {
        let gateway = self.session.startup().gateway();
        let rules = gateway.rules();
        match rules.allowed() {
            _ if gateway.is_full() => "full".to_owned(),
            [] => "none".to_owned(),
            [only] => sanitise::one_line(&only.to_string(), MAX_NAME),
            several => format!("{} hosts", several.len()),
        }
    }
}

/// `950`, `12k`, `1.2M`
pub(super) fn thousands(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn counts_are_short() {
        assert_eq!([950, 128_000, 1_250_000].map(thousands), ["950", "128k", "1.2M"]);
    }
}
