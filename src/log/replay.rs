//! Comparing a replay with its recording: the first result that differs.

use super::normalise::normalise;
use super::recording::{Recording, ToolOutcome};
use crate::error::Result;
use crate::event::{Event, Listener, Record};
use crate::lock::Lock;
use serde::Serialize;
use similar::TextDiff;
use std::collections::VecDeque;
use std::sync::Arc;

/// A listener that holds each tool's result against the recorded one. Clones share what they found.
#[derive(Debug, Clone)]
pub struct Comparison {
    state: Arc<Lock<State>>,
}

#[derive(Debug)]
struct State {
    expected: VecDeque<ToolOutcome>,
    /// What was asked of the tool that runs now.
    asked: String,
    compared: u64,
    difference: Option<Difference>,
}

/// What a comparison came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// How many results were compared.
    pub compared: u64,
    /// The first that differs, where one does.
    pub difference: Option<Difference>,
}

/// A result that is not what was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which tool call of the session, counting from 1.
    pub call: u64,
    /// The tool and its arguments.
    pub asked: String,
    /// The recorded result; `None` where there was no further one.
    pub recorded: Option<String>,
    /// The result now; `None` where the call was not made.
    pub replayed: Option<String>,
}

impl Comparison {
    /// Compares with the results in `recording`.
    pub fn with(recording: &Recording) -> Self {
        let expected = recording.outcomes().into();
        let state = State { expected, asked: String::new(), compared: 0, difference: None };
        Self { state: Arc::new(Lock::new(state)) }
    }

    /// What it came to; to be asked when the replay is over.
    pub fn outcome(&self) -> Outcome {
        let state = self.state.lock();
        let missing = state.expected.front().map(|expected| Difference {
            call: state.compared + 1,
            asked: expected.name.clone(),
            recorded: Some(expected.result.clone()),
            replayed: None,
        });
        Outcome { compared: state.compared, difference: state.difference.clone().or(missing) }
    }
}

impl Listener for Comparison {
    fn on_event(&mut self, record: &Record, _: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        if let Event::ToolStarted { name, arguments, .. } = &record.event {
            state.asked = format!("{name} {arguments}");
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
            asked: self.asked.clone(),
            recorded: recorded.map(|recorded| recorded.result),
            replayed: Some(replayed.result),
        });
    }
}

fn same(recorded: &ToolOutcome, replayed: &ToolOutcome) -> bool {
    (&recorded.name, recorded.ok, recorded.exit_code) == (&replayed.name, replayed.ok, replayed.exit_code)
        && normalise(&recorded.result) == normalise(&replayed.result)
}

impl Outcome {
    /// The outcome in words.
    pub fn to_words(&self) -> String {
        let Some(difference) = &self.difference else {
            return format!("all {} results are as recorded\n", self.compared);
        };
        let Difference { call, asked, recorded, replayed } = difference;
        let asked: String = asked.chars().take(200).collect();
        match (recorded, replayed) {
            (Some(recorded), Some(replayed)) => {
                // What does not count as a difference is not shown as one.
                let (recorded, replayed) = (normalise(recorded) + "\n", normalise(replayed) + "\n");
                let changes = TextDiff::from_lines(&recorded, &replayed);
                let diff =
                    changes.unified_diff().context_radius(2).header("recorded", "replayed").to_string();
                let shown: Vec<&str> = diff.lines().take(MAX_DIFF_LINES).collect();
                format!("call {call} gives another result: {asked}\n{}\n", shown.join("\n"))
            }
            (Some(_), None) => format!("call {call} was recorded and not made again: {asked}\n"),
            _ => format!("call {call} was not recorded: {asked}\n"),
        }
    }
}

/// How much of a difference is shown.
const MAX_DIFF_LINES: usize = 60;
