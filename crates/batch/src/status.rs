//! How far a batch is, as any process can read it.

use super::output::{is_running, markers, read_manifest, read_results, results_path};
use super::result::Summary;
use agent_base::error::{Error, Result};
use jiff::Timestamp;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The state of a batch.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The file that its tasks were read from.
    pub source: PathBuf,
    /// The time when it was started for the first time, RFC 3339.
    pub began: String,
    /// Set if a process works on it.
    pub is_running: bool,
    #[serde(flatten)]
    pub summary: Summary,
    /// The tasks that are running, the oldest first.
    pub running: Vec<Running>,
    /// Seconds until the end if it goes on as in the last results; absent if nothing runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<f64>,
}

/// A running task.
#[derive(Debug, Serialize)]
pub struct Running {
    pub id: String,
    pub session: String,
    /// Since it began.
    pub seconds: f64,
}

/// Results that the speed is measured over.
const MEASURED: usize = 100;

impl Status {
    /// Reads the directory of a batch.
    pub fn read(directory: &Path) -> Result<Self> {
        let Some(manifest) = read_manifest(directory)? else {
            return Err(Error::usage(format!("{} is not the directory of a batch", directory.display()))
                .hint("name what was given to --out"));
        };
        let (results, _) = read_results(&results_path(directory))?;
        let is_running = is_running(directory);
        let summary = Summary::of(manifest.tasks.len(), results.values());
        let now = Timestamp::now();
        let since = |time: &str| {
            time.parse::<Timestamp>()
                .map_or(0.0, |time| (now - time).total(jiff::Unit::Second).unwrap_or(0.0))
        };
        let mut running = Vec::new();
        if is_running {
            let begun = markers(directory).into_iter().filter(|(id, _)| !results.contains_key(id));
            running.extend(begun.map(|(id, marker)| Running {
                id,
                session: marker.session,
                seconds: since(&marker.began),
            }));
            running.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        }
        let mut ages: Vec<f64> = results.values().map(|result| since(&result.ended)).collect();
        ages.sort_by(f64::total_cmp);
        ages.truncate(MEASURED);
        let left = summary.tasks.saturating_sub(summary.done);
        let seconds_left = match ages.as_slice() {
            [_, .., oldest] if is_running => Some(oldest / ages.len() as f64 * left as f64),
            _ => None,
        };
        Ok(Self {
            source: manifest.source,
            began: manifest.began,
            is_running,
            summary,
            running,
            seconds_left,
        })
    }
}
