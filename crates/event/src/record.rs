//! An event with its place in the session.

use super::types::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One line of `--json` and of the session file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Counts from 1. Live-only events count too, so the session file may skip numbers.
    #[schemars(range(min = 1))]
    pub seq: u64,
    /// RFC 3339, UTC, milliseconds.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// The session's id. Absent if a run failed before its session existed, and in older session files, where only
    /// `session_started` has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// The current time in the format of [`Record::time`].
pub fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}
