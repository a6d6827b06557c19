//! Recorded sessions, and the parts of them that are replayed: prompts, answers, tool results.

use super::lines::Lines;
use agent_base::error::{Error, Result};
use agent_event::{Event, Record};
use agent_model::Reply;
use std::path::Path;

/// A session that was recorded, in a file or in the binary.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    records: Vec<Record>,
}

/// The result of a tool call, recorded or new.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome {
    /// The tool's name.
    pub name: String,
    /// Set if the call succeeded.
    pub ok: bool,
    /// The exit code, if a command exited.
    pub exit_code: Option<i32>,
    /// The text that was returned to the model.
    pub result: String,
}

impl Recording {
    /// Reads a recording or a session file.
    ///
    /// # Errors
    /// It is not a recording, or no model answers in it.
    pub fn load(path: &Path) -> Result<Self> {
        Self::read(Lines::open(path)?, &path.display().to_string())
    }

    /// Reads the session file `events`, which error messages call `name`.
    pub fn of_session(name: &str, events: &Path) -> Result<Self> {
        Self::read(Lines::open(events)?, name)
    }

    /// Reads a recording from memory, which error messages call `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        Self::read(Lines::new(text.as_bytes(), name), name)
    }

    fn read<R: std::io::BufRead>(mut lines: Lines<R>, name: &str) -> Result<Self> {
        let records = std::iter::from_fn(|| lines.next_record().transpose()).collect::<Result<_>>();
        let records = records.map_err(|error| {
            let hint = error.hint_text().map(str::to_owned);
            let error = Error::usage(format!("{name} is not a valid recording")).caused_by(error);
            error.hint(hint.unwrap_or_else(|| MAKING.to_owned()))
        })?;
        let recording = Self { records };
        if recording.replies().is_empty() {
            return Err(Error::usage(format!("no model answers in {name}")).hint(MAKING));
        }
        Ok(recording)
    }

    /// Returns whether it ends without the model's final answer, because the session was stopped or failed.
    pub fn is_cut_off(&self) -> bool {
        let ending = self.records.iter().rev().find_map(|record| match &record.event {
            Event::UserMessage { .. } => Some(true),
            Event::AssistantMessage { tool_calls, .. } => Some(!tool_calls.is_empty()),
            _ => None,
        });
        ending.unwrap_or(false)
    }

    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The prompts, in order.
    pub fn prompts(&self) -> Vec<String> {
        let prompt = |record: &Record| match &record.event {
            Event::UserMessage { text } => Some(text.clone()),
            _ => None,
        };
        self.records.iter().filter_map(prompt).collect()
    }

    /// The model's messages, in order.
    pub fn replies(&self) -> Vec<Reply> {
        let prompts = |from: usize| {
            let mut later = self.records[from..].iter();
            later.any(|record| matches!(record.event, Event::UserMessage { .. }))
        };
        let reply = |(at, record): (usize, &Record)| match record.event.clone() {
            Event::AssistantMessage { text, reasoning, tool_calls, finish_reason, usage, opaque } => {
                Some(Reply { text, reasoning, tool_calls, finish_reason, usage, opaque })
            }
            // The prompt that follows needs the answer to this one to be over.
            Event::AnswerStopped { text, reason } if !self.is_limit(at) && prompts(at) => Some(Reply {
                text: format!("{text}\n[{reason}]").trim_start().to_owned(),
                ..Reply::default()
            }),
            _ => None,
        };
        self.records.iter().enumerate().filter_map(reply).collect()
    }

    /// Returns whether the record before says that a limit was reached, which a replay reaches again.
    fn is_limit(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.records.get(before));
        before.is_some_and(|record| matches!(record.event, Event::LimitReached { .. }))
    }

    /// The results of the tools, in order.
    pub fn outcomes(&self) -> Vec<ToolOutcome> {
        self.records.iter().filter_map(|record| ToolOutcome::of(&record.event)).collect()
    }
}

/// A hint that says how to make a recording.
const MAKING: &str = "make a recording with --record FILE, or replay any session by its id";

impl ToolOutcome {
    /// The outcome that a `tool_finished` event carries.
    pub fn of(event: &Event) -> Option<Self> {
        match event.clone() {
            Event::ToolFinished { name, ok, exit_code, result, .. } => {
                Some(Self { name, ok, exit_code, result })
            }
            _ => None,
        }
    }
}
