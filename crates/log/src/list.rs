//! The list of sessions.

use super::history::{Finished, History};
use super::id::SessionId;
use super::lines::{Lines, read_until_fault};
use super::store::{Store, modified};
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};
use agent_base::sanitise::{one_line, truncate};
use agent_event::{Changes, Event, Record, Usage};
use jiff::{Span, SpanRelativeTo, Timestamp};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A terminal of this many columns shows all that is listed of a session.
const WIDE: usize = 100;

/// One session in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub id: SessionId,
    /// The session whose model delegated to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The session that won the race which this one lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_of: Option<SessionId>,
    /// `running`, `empty`, `unfinished` (killed), `broken` (the file cannot be read), or how the last run
    /// ended: `completed`, `interrupted`, …
    pub status: String,
    /// The time when it was written last, RFC 3339.
    pub updated: String,
    /// Its title, or the first prompt, on one line of at most 72 columns.
    pub preview: String,
    pub model: String,
    /// The host directory.
    pub workspace: String,
    /// The directory of it that commands start in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The backend of its sandbox: `docker` or `local`; empty if none was chosen.
    pub sandbox: String,
    /// Requests to the model.
    pub turns: u64,
    pub usage: Usage,
    /// The changes in the workspace, as `session_finished` reports them.
    pub changes: Changes,
    /// The error message, if it failed.
    pub error: Option<String>,
}

impl Store {
    /// Every session, the one written last first, and behind each those to which its model delegated. One whose file cannot be
    /// read is listed as `broken`.
    pub fn list(&self) -> Result<Vec<Summary>> {
        let mut summaries: Vec<Summary> = self.ids()?.into_iter().map(|id| self.summary(id)).collect();
        summaries.sort_by(|a, b| b.updated.cmp(&a.updated).then_with(|| b.id.cmp(&a.id)));
        Ok(behind_parents(summaries))
    }

    /// The sessions whose ids begin with `prefix`, the one written last first, at most `limit`, each with its first prompt on
    /// one line. Only the beginning of their files is read.
    pub fn recent(&self, prefix: &str, limit: usize) -> Result<Vec<(SessionId, String)>> {
        let ids = self.ids()?.into_iter().filter(|id| id.as_str().starts_with(prefix));
        let mut ids: Vec<_> = ids.map(|id| (modified(&self.events(&id)), id)).collect();
        ids.sort_by(|a, b| b.cmp(a));
        ids.truncate(limit);
        Ok(ids
            .into_iter()
            .map(|(_, id)| (id.clone(), first_prompt(&self.events(&id)).unwrap_or_default()))
            .collect())
    }

    /// The sessions of `workspace`, the one written last first, and behind each those to which its model delegated.
    pub fn list_of(&self, workspace: &Path) -> Result<Vec<Summary>> {
        let mut ids = self.of_workspace(workspace)?;
        ids.extend(self.delegates_of(&ids)?);
        Ok(behind_parents(ids.into_iter().map(|id| self.summary(id)).collect()))
    }

    /// One session as a list shows it.
    pub fn summary(&self, id: SessionId) -> Summary {
        let updated = rfc3339(modified(&self.events(&id)));
        let running = self.is_running(&id);
        let (records, fault) = read_until_fault(&self.events(&id));
        let (attempt_of, title) = (self.attempt_of(&id), self.title(&id));
        let mut summary = Summary { attempt_of, ..summarise(id, updated, running, &records) };
        if let Some(title) = title {
            summary.preview = title;
        }
        if let Some(fault) = fault {
            summary.status = "broken".to_owned();
            summary.error = Some(fault.to_string());
        }
        summary
    }

    /// Removes every session that was last written before `now - age` and is not in use. Returns the removed ones.
    pub fn prune(&self, age: Duration) -> Result<Vec<Summary>> {
        let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let old = |id: &SessionId| {
            // An empty session has no events file: the age of its directory counts.
            let events = self.events(id);
            modified(if events.exists() { &events } else { events.parent().unwrap_or(&events) }) <= before
        };
        let mut removed = Vec::new();
        for id in self.ids()? {
            if old(&id) && !self.is_running(&id) {
                let summary = self.summary(id);
                self.remove(&summary.id)?;
                removed.push(summary);
            }
        }
        Ok(removed)
    }
}

/// Puts each session to which another one delegated behind that one, the oldest first.
fn behind_parents(summaries: Vec<Summary>) -> Vec<Summary> {
    // Of those alone, so that none is left out whatever the files say.
    let heads: BTreeSet<String> = summaries
        .iter()
        .filter(|summary| summary.parent.is_none())
        .map(|summary| summary.id.to_string())
        .collect();
    let mut delegates: BTreeMap<String, Vec<Summary>> = BTreeMap::new();
    let mut sorted = Vec::with_capacity(summaries.len());
    for summary in summaries {
        match summary.parent.as_ref().filter(|parent| heads.contains(*parent)) {
            Some(parent) => delegates.entry(parent.clone()).or_default().push(summary),
            None => sorted.push(summary),
        }
    }
    let with_delegates = sorted.into_iter().flat_map(|summary| {
        let mut behind = delegates.remove(summary.id.as_str()).unwrap_or_default();
        behind.sort_by(|a, b| a.id.cmp(&b.id));
        std::iter::once(summary).chain(behind)
    });
    with_delegates.collect()
}

/// Reads an age in common notation: `90s`, `12h`, `7d`, `2 weeks`. A day has 24 hours.
pub fn parse_age(text: &str) -> Result<Duration> {
    let span: Option<Span> = text.parse().ok();
    let age = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    age.and_then(|age| Duration::try_from(age).ok())
        .ok_or_else(|| Error::usage(format!("\"{text}\" is not an age")).hint("write 12h, 7d or 2w"))
}

/// The first prompt, if it is near the beginning of the file.
fn first_prompt(events: &Path) -> Option<String> {
    const NEAR: u64 = 64 << 10;
    let mut lines = Lines::new(BufReader::new(File::open(events).ok()?.take(NEAR)), "");
    while let Some(record) = lines.next_record().ok()? {
        if let Event::UserMessage { text } = record.event {
            return Some(one_line(&text, 72));
        }
    }
    None
}

fn summarise(id: SessionId, updated: String, running: bool, records: &[Record]) -> Summary {
    let history = History::of(records);
    let Finished { status, changes, error } = history.finished.unwrap_or(Finished {
        status: if records.is_empty() { "empty" } else { "unfinished" }.to_owned(),
        changes: Changes::default(),
        error: None,
    });
    let prompt = records.iter().find_map(|record| match &record.event {
        Event::UserMessage { text } => Some(one_line(text, 72)),
        _ => None,
    });
    Summary {
        id,
        parent: history.parent,
        attempt_of: None,
        status: if running { "running".to_owned() } else { status },
        updated,
        preview: prompt.unwrap_or_default(),
        model: history.model,
        workspace: history.workspace,
        directory: history.directory,
        sandbox: history.sandbox.backend,
        turns: history.turns,
        usage: history.usage,
        changes,
        error,
    }
}

fn rfc3339(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// The list as text, one line a session. On a terminal of this width each is cut to it, and a narrow one shows what a session
/// was about rather than its tokens.
pub fn to_text(summaries: &[Summary], columns: Option<usize>) -> String {
    let mut text = String::new();
    let is_narrow = columns.is_some_and(|columns| columns < WIDE);
    for summary in summaries {
        let updated = summary.updated.get(..16).unwrap_or(&summary.updated).replace('T', " ");
        let about =
            summary.error.as_deref().filter(|_| summary.status == "broken").unwrap_or(&summary.preview);
        let about = match (&summary.parent, &summary.attempt_of) {
            (Some(_), _) => format!("  delegated: {about}"),
            (None, Some(winner)) => format!("attempt of {winner}: {about}"),
            (None, None) => about.to_owned(),
        };
        let Summary { id, status, turns, usage, .. } = summary;
        let spent = match is_narrow {
            true => String::new(),
            false => format!(
                "{:>9} {:>8} tokens  ",
                counted(*turns, "turn"),
                usage.input.saturating_add(usage.output)
            ),
        };
        let line = format!("{id:<22} {updated}  {status:<12} {spent}{about}");
        match columns {
            Some(columns) => text += &truncate(&line, columns),
            None => text += &line,
        }
        text.push('\n');
    }
    text
}
