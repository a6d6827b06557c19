//! The results of a task, and of all tasks together.

use agent_event::{Changes, Usage};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The result of a session that worked on a prompt: that of a task, and that of an attempt of a race.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The final answer; empty where there is none.
    pub answer: String,
    /// The reason why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The session, for `agent sessions show`, once it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The model.
    pub model: String,
    /// Requests that the model answered.
    pub turns: u64,
    /// Its tokens.
    pub usage: Usage,
    /// Their cost, where the model has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Wall time.
    pub seconds: f64,
    /// Files changed.
    pub changes: Changes,
}

/// A duration as [`Work::seconds`]: to the millisecond.
pub(super) fn seconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 1000.0).round() / 1000.0
}

/// One line of `results.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The task.
    pub id: String,
    /// The version of the task: [`super::Task::digest`].
    pub digest: String,
    /// As in `session_finished`: `completed`, `check_failed`, `limit` or `failed`.
    pub status: String,
    /// The exit code that `agent run` would have had.
    pub exit_code: u8,
    /// The outcome of the check; absent where the task has none or it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckOutcome>,
    /// The result of its session.
    #[serde(flatten)]
    pub work: Work,
    /// The change, as a path relative to the output directory; absent where nothing changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Changed files that are not in the patch, because they are too large for one; at most a hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The number of times that it was started: more than one after failures that were not its own.
    pub attempts: u32,
    /// The time when it ended, RFC 3339.
    pub ended: String,
}

/// The outcome of a task's check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    Passed,
    Failed,
}

impl TaskResult {
    /// Returns whether it completed and its check, if any, passed.
    pub fn passed(&self) -> bool {
        self.exit_code == 0
    }
}

/// The numbers of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Tasks of the file.
    pub tasks: usize,
    /// Tasks with a result.
    pub done: usize,
    pub passed: usize,
    pub failed: usize,
    /// Tokens of all results.
    pub usage: Usage,
    /// Cost of all results, where models have prices.
    pub cost: Option<f64>,
}

impl Summary {
    /// Of `tasks` tasks, so far with these results.
    pub fn of<'a>(tasks: usize, results: impl IntoIterator<Item = &'a TaskResult>) -> Self {
        results.into_iter().fold(Self { tasks, ..Self::default() }, |mut summary, result| {
            summary.add(result);
            summary
        })
    }

    /// Counts one result.
    pub fn add(&mut self, result: &TaskResult) {
        self.done += 1;
        *(if result.passed() { &mut self.passed } else { &mut self.failed }) += 1;
        self.usage.add(result.work.usage);
        if let Some(cost) = result.work.cost {
            self.cost = Some(self.cost.unwrap_or_default() + cost);
        }
    }
}
