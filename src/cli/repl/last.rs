//! `/last`: all of a tool's result, in the pager.

use super::{Flow, Repl};
use crate::cli::ui::pager;
use crate::cli::ui::style::BOLD;
use crate::cli::ui::trace::call_text;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::log::{Store, read_records};
use crate::sanitise;
use serde_json::Value;
use std::collections::HashMap;

/// Results that `/last` goes back by at most.
const MAX_BACK: usize = 1_000;

impl Repl<'_> {
    /// Shows the last result, or with a number the one so many back.
    pub(super) fn last(&mut self, number: &str) -> Result<Flow> {
        let back = match number {
            "" => 1,
            number => number.parse().ok().filter(|back| (1..=MAX_BACK).contains(back)).ok_or_else(|| {
                Error::usage("/last takes the number of the result, counted from the end").hint("/last 2")
            })?,
        };
        let Some(text) = self.result(back)? else {
            self.remark(if back == 1 { "no tool has run yet" } else { "there are not so many results" });
            return Ok(Flow::Continue);
        };
        let hold = self.screen.progress().hold();
        if !pager::page(&self.config.programs(), text.as_bytes())? {
            self.screen.say(&text);
        }
        drop(hold);
        Ok(Flow::Continue)
    }

    /// The result that is `back` from the end, below the call that it answers.
    fn result(&self, back: usize) -> Result<Option<String>> {
        let records = read_records(&Store::open(&self.config.machine)?.events(self.session.id()))?;
        let mut calls: HashMap<&str, &Value> = HashMap::new();
        let mut results = Vec::new();
        for record in &records {
            match &record.event {
                Event::ToolStarted { id, arguments, .. } => drop(calls.insert(id, arguments)),
                Event::ToolFinished { id, name, result, .. } => {
                    results.push((name, calls.get(id.as_str()).copied(), result.as_str()));
                }
                Event::CheckFinished { command, output, .. } if !output.is_empty() => {
                    results.push((command, None, output));
                }
                _ => {}
            }
        }
        let Some((name, arguments, result)) = results.len().checked_sub(back).map(|at| &results[at]) else {
            return Ok(None);
        };
        let call = call_text(name, arguments.unwrap_or(&Value::Null));
        let call = self.colours.paint(BOLD, sanitise::plain(&call));
        Ok(Some(format!("{call}\n{}\n", sanitise::plain(result).trim_end())))
    }
}
