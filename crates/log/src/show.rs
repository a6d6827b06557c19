//! One session from beginning to end.

use super::id::SessionId;
use super::lines::read_until_fault;
use super::list::Summary;
use super::store::Store;
use agent_event::Record;
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
