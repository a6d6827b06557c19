//! One session from beginning to end.

use super::id::SessionId;
use super::lines::read_until_fault;
use super::list::Summary;
use super::store::Store;
use crate::cli::ui::style::{BOLD, Colours};
use crate::cli::ui::trace::{Trace, Verbosity};
use crate::event::{Event, Record};
use crate::sanitise::plain;
use serde::Serialize;

/// A session with all its events.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    #[serde(flatten)]
    pub summary: Summary,
    pub events: Vec<Record>,
}

impl Store {
    /// Reads a whole session; of a damaged file, the events before the damage.
    pub fn show(&self, id: SessionId) -> Shown {
        let (events, _) = read_until_fault(&self.events(&id));
        Shown { summary: self.summary(id), events }
    }
}

impl Shown {
    /// The session as it was printed while it ran: prompts, answers, and the trace between them.
    pub fn to_text(&self, verbosity: Verbosity, colours: Colours) -> String {
        let mut trace = Trace::new(verbosity, colours);
        let text = self.events.iter().filter_map(|record| match &record.event {
            Event::UserMessage { text } => {
                Some(format!("{}\n", colours.paint(BOLD, format!("> {}", plain(text)))))
            }
            Event::AnswerStopped { text, reason } => {
                Some(format!("{}\n", plain(format!("{text}\n[{reason}]").trim_start())))
            }
            Event::AssistantMessage { text, .. } if !text.is_empty() => {
                Some(format!("{}\n{}", plain(text), trace.describe(record).unwrap_or_default()))
            }
            _ => trace.describe(record),
        });
        text.collect()
    }
}
