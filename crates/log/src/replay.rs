//! Comparing a replay with its recording: the first result that differs.

use super::normalise::normalise;
use super::recording::{Recording, ToolOutcome};
use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_event::{Event, Listener, Record};
use similar::TextDiff;
use std::collections::VecDeque;
use std::sync::Arc;

/// A listener that compares each tool's result with the recorded one. Clones share their state.
#[derive(Debug, Clone)]
pub struct Comparison {
    state: Arc<Lock<State>>,
}

#[derive(Debug)]
struct State {
    expected: VecDeque<ToolOutcome>,
    /// The call that is running: the tool and its arguments.
    tool_call: String,
    compared: u64,
    difference: Option<Difference>,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayResult {
    /// Number of compared tool results.
    pub compared: u64,
    /// The first that differs.
    pub difference: Option<Difference>,
}

/// A tool result that differs from the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The number of the tool call in the session, counting from 1.
    pub call: u64,
    /// The tool and its arguments.
    pub tool_call: String,
    /// The recorded result; `None` if the recording has no more calls.
    pub recorded: Option<String>,
    /// The new result; `None` if the call was not made.
    pub replayed: Option<String>,
}

impl Comparison {
    /// Compares with the results in `recording`.
    pub fn with(recording: &Recording) -> Self {
        let expected = recording.outcomes().into();
        let state = State { expected, tool_call: String::new(), compared: 0, difference: None };
        Self { state: Arc::new(Lock::new(state)) }
    }

    /// The result, once the replay has ended.
    pub fn result(&self) -> ReplayResult {
        let state = self.state.lock();
        let missing = state.expected.front().map(|expected| Difference {
            call: state.compared + 1,
            tool_call: expected.name.clone(),
            recorded: Some(expected.result.clone()),
            replayed: None,
        });
        ReplayResult { compared: state.compared, difference: state.difference.clone().or(missing) }
    }
}

impl Listener for Comparison {
    fn on_event(&mut self, record: &Record, _: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        if let Event::ToolStarted { name, arguments, .. } = &record.event {
            state.tool_call = format!("{name} {arguments}");
        }
        if let Some(replayed) = ToolOutcome::of(&record.event) {
            state.compare(replayed);
        }
        Ok(())
    }
}

impl State {
    fn compare(&mut self, replayed: ToolOutcome) {
        let recorded = self.expected.pop_front();
        self.compared += 1;
        if self.difference.is_some() || recorded.as_ref().is_some_and(|recorded| same(recorded, &replayed)) {
            return;
        }
        self.difference = Some(Difference {
            call: self.compared,
            tool_call: self.tool_call.clone(),
            recorded: recorded.map(|recorded| recorded.result),
            replayed: Some(replayed.result),
        });
    }
}

fn same(recorded: &ToolOutcome, replayed: &ToolOutcome) -> bool {
    (&recorded.name, recorded.ok, recorded.exit_code) == (&replayed.name, replayed.ok, replayed.exit_code)
        && normalise(&recorded.result) == normalise(&replayed.result)
}

impl ReplayResult {
    /// The result as a sentence, with a diff where two results differ.
    pub fn to_text(&self) -> String {
        let Some(difference) = &self.difference else {
            return format!("all {} results are as recorded\n", self.compared);
        };
        let Difference { call, tool_call, recorded, replayed } = difference;
        let tool_call: String = tool_call.chars().take(200).collect();
        match (recorded, replayed) {
            (Some(recorded), Some(replayed)) => {
                let (recorded, replayed) = (normalise(recorded) + "\n", normalise(replayed) + "\n");
                let changes = TextDiff::from_lines(&recorded, &replayed);
                let diff =
                    changes.unified_diff().context_radius(2).header("recorded", "replayed").to_string();
                let shown: Vec<&str> = diff.lines().take(MAX_DIFF_LINES).collect();
                format!("the result of call {call} differs: {tool_call}\n{}\n", shown.join("\n"))
            }
            (Some(_), None) => format!("call {call} was recorded but not made: {tool_call}\n"),
            _ => format!("call {call} was not recorded: {tool_call}\n"),
        }
    }
}

const MAX_DIFF_LINES: usize = 60;
