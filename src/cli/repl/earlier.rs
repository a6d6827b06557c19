//! The part of a resumed session that is shown: the end of its conversation with the traces of its tools, as much as fits.

use super::Repl;
use crate::cli::kept_session::unapplied_elsewhere;
use crate::cli::print::counted;
use crate::cli::ui::wrap::{terminal_columns, terminal_rows};
use crate::event::{Event, Record};
use crate::log::{Store, read_records};
use unicode_width::UnicodeWidthStr;

/// Events of the conversation that are looked at.
const MAX_EVENTS: usize = 400;
/// Rows for the lines about the session and for the prompt.
const OTHER_ROWS: usize = 10;
/// Rows that are shown in a low window too.
const MIN_ROWS: usize = 6;

/// Earlier sessions that a new one looks at: what takes time would be in front of the first prompt.
const MAX_SESSIONS: usize = 3;

impl Repl<'_> {
    /// Says what earlier sessions of this workspace changed that is not applied.
    pub(super) async fn remark_on_unapplied(&self) {
        if self.config.options.is_quiet() {
            return;
        }
        let (machine, root) = (&self.config.machine, &self.config.workspace);
        // What cannot be read is reported by the commands that are about it.
        let unapplied = unapplied_elsewhere(machine, root, self.session.id(), MAX_SESSIONS).await;
        for (id, changes) in unapplied.unwrap_or_default() {
            self.remark(&format!(
                "not applied yet: {}, in session {id} (`agent diff {id}`, `agent apply {id}`, /resume {id})",
                counted(changes)
            ));
        }
    }

    /// Says which session this is, with the end of its conversation.
    pub(super) fn show_resumed(&self) {
        let id = self.session.id();
        self.remark(&format!("Resumed session {id}"));
        // One that cannot be read would not have been opened.
        let records = Store::open(&self.config.machine).and_then(|store| read_records(&store.events(id)));
        let records = conversation(&records.unwrap_or_default());
        let text = self.screen.transcript(&records);
        let stderr = std::io::stderr();
        let rows = terminal_rows(&stderr).saturating_sub(OTHER_ROWS).max(MIN_ROWS);
        let (shown, is_cut) = last_rows(&text, rows, terminal_columns(&stderr));
        if is_cut {
            self.remark(&format!("earlier… `agent sessions show {id}` has all of it"));
        }
        self.screen.say(shown);
    }
}

/// The last events of the conversation as it is now, without what it was cleared of.
fn conversation(records: &[Record]) -> Vec<Record> {
    let cleared = records.iter().rposition(|record| matches!(record.event, Event::Cleared {}));
    let is_shown = |record: &&Record| {
        matches!(
            record.event,
            Event::UserMessage { .. }
                | Event::AssistantMessage { .. }
                | Event::AnswerStopped { .. }
                | Event::ToolStarted { .. }
                | Event::ToolFinished { .. }
                | Event::CheckFinished { .. }
                | Event::Checkpoint { .. }
        )
    };
    let shown: Vec<&Record> = records[cleared.map_or(0, |at| at + 1)..].iter().filter(is_shown).collect();
    shown[shown.len().saturating_sub(MAX_EVENTS)..].iter().map(|record| (*record).clone()).collect()
}

/// The last lines of the text that fit into so many rows, and whether there are others above them.
fn last_rows(text: &str, rows: usize, columns: usize) -> (&str, bool) {
    let (mut used, mut from) = (0, text.len());
    for line in text.split_inclusive('\n').rev() {
        used += line.trim_end().width().div_ceil(columns.max(1)).max(1);
        if used > rows {
            return (&text[from..], true);
        }
        from -= line.len();
    }
    (text, false)
}

#[cfg(test)]
mod tests {
    use super::last_rows;

    #[test]
    fn the_last_lines_fit_into_the_rows() {
        assert_eq!(last_rows("a\nb\nc\n", 3, 80), ("a\nb\nc\n", false));
        assert_eq!(last_rows("a\nb\nc\n", 2, 80), ("b\nc\n", true));
        assert_eq!(last_rows("a\nbbbb\nc\n", 2, 3), ("c\n", true), "a line is wrapped into two rows");
        assert_eq!(last_rows("", 2, 3), ("", false));
    }
}
