//! The record of a race, for `agent race show`.

use super::{Contestant, Rules};
use crate::Work;
use agent_base::error::{Error, Kind, Result};
use agent_base::paths::make_dir;
use agent_base::plain_file::{self, Durability};
use agent_event::now;
use agent_log::{SessionId, Store};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// A race without a session that began so long ago and has not ended was killed.
const ABANDONED: SignedDuration = SignedDuration::from_hours(24);

/// A race and its attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RaceRecord {
    pub id: String,
    pub prompt: String,
    pub workspace: PathBuf,
    pub checks: Vec<String>,
    /// RFC 3339.
    pub began: String,
    /// Absent while it runs, and where its process was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The number of the attempt that won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<usize>,
    /// The limit that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    pub attempts: Vec<AttemptRecord>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Counts from 1.
    pub number: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    pub state: AttemptState,
    /// The kind of failure, in the process that ran it.
    #[serde(skip)]
    pub failure: Option<Kind>,
    /// Lines added and removed together.
    pub lines: u64,
    /// The result of its session.
    #[serde(flatten)]
    pub work: Work,
}

/// The state of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    Starting,
    Running,
    /// Its checks passed.
    Passed,
    /// It has an answer, and there is no check.
    Finished,
    Failed,
    /// Another won, or the race was stopped.
    Stopped,
}

impl AttemptState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Passed => "passed",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

impl RaceRecord {
    pub(super) fn new(rules: &Rules, contestants: &[Contestant]) -> Self {
        let attempt = |(index, contestant): (usize, &Contestant)| AttemptRecord {
            number: index + 1,
            temperature: contestant.temperature,
            state: AttemptState::Starting,
            failure: None,
            lines: 0,
            work: Work { model: contestant.model.client.name().to_owned(), ..Work::default() },
        };
        Self {
            id: SessionId::generate().to_string(),
            prompt: rules.prompt.clone(),
            workspace: rules.workspace.root.clone(),
            checks: rules.checks.clone(),
            began: now(),
            ended: None,
            winner: None,
            limit: None,
            attempts: contestants.iter().enumerate().map(attempt).collect(),
        }
    }

    /// The attempt that won.
    pub fn winning(&self) -> Option<&AttemptRecord> {
        self.attempts.iter().find(|attempt| Some(attempt.number) == self.winner)
    }

    /// Marks the sessions of all but the winner as attempts of it: the last session of the workspace is the winner's.
    pub fn mark_losers(&self, store: &Store, winner: &SessionId) -> Result<()> {
        let sessions = self.attempts.iter().filter_map(|attempt| attempt.work.session.as_deref());
        for session in sessions.filter(|session| *session != winner.as_str()) {
            let id = SessionId::parse(session)?;
            if store.dir(&id).is_dir() {
                store.mark_attempt(&id, winner)?;
            }
        }
        Ok(())
    }
}

/// The records of all races.
pub struct Races {
    directory: PathBuf,
}

impl Races {
    /// Those beside the sessions of `store`.
    pub fn of(store: &Store) -> Self {
        Self { directory: store.races() }
    }

    pub(super) fn save(&self, record: &RaceRecord) -> Result<()> {
        make_dir(&self.directory)?;
        let path = self.directory.join(format!("{}.json", record.id));
        let durability = if record.ended.is_some() { Durability::Synced } else { Durability::Renamed };
        plain_file::replace(&path, &serde_json::to_vec(record)?, durability).map_err(|error| {
            Error::unexpected(format!("{} could not be written", path.display())).caused_by(error)
        })
    }

    /// The race whose id begins with `text`; the last one without.
    pub fn find(&self, text: Option<&str>) -> Result<RaceRecord> {
        let text = text.map(|text| SessionId::parse(text).map(|id| id.to_string())).transpose()?;
        let mut found = self.all();
        found.retain(|record| text.as_ref().is_none_or(|text| record.id.starts_with(text)));
        match (found.pop(), found.len(), &text) {
            (Some(last), 0, _) | (Some(last), _, None) => Ok(last),
            (Some(_), others, Some(text)) => {
                Err(Error::usage(format!("{} races begin with {text}", others + 1))
                    .hint("use a longer prefix"))
            }
            (None, ..) => {
                Err(Error::usage("there is no such race").hint("`agent race show` shows the last one"))
            }
        }
    }

    /// Those on `workspace`, oldest first.
    pub fn on(&self, workspace: &Path) -> Vec<RaceRecord> {
        let mut races = self.all();
        races.retain(|race| race.workspace == workspace);
        races
    }

    /// All of them, oldest first.
    fn all(&self) -> Vec<RaceRecord> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let read = |path: PathBuf| serde_json::from_slice(&fs::read(path).ok()?).ok();
        let mut all: Vec<RaceRecord> = entries.filter_map(|entry| read(entry.path())).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Removes the records of races whose sessions were all removed. One that has not ended runs, or was killed a while ago.
    pub(super) fn prune(&self, store: &Store) {
        let exists = |session: &String| SessionId::parse(session).is_ok_and(|id| store.dir(&id).exists());
        let now = Timestamp::now();
        let is_old = |record: &RaceRecord| {
            record.began.parse::<Timestamp>().is_ok_and(|began| now.duration_since(began) > ABANDONED)
        };
        for record in self.all().iter().filter(|record| record.ended.is_some() || is_old(record)) {
            if !record.attempts.iter().filter_map(|attempt| attempt.work.session.as_ref()).any(exists) {
                // It is tried again with the next race.
                let _ = fs::remove_file(self.directory.join(format!("{}.json", record.id)));
            }
        }
    }
}
