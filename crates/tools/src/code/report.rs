//! The report of a run for the model.

use super::answer::Status;
use super::interpreter::{Ended, Gone};
use super::runner::{CellRan, Ran};
use crate::{Collector, Context, NO_OUTPUT, ToolResult, command_result, describe, report_limits};
use agent_base::error::Result;
use agent_event::Stream;
use agent_sandbox::{Outcome, Output};
use std::time::Duration;

/// The result for the model.
pub fn result(
    context: Context<'_>,
    ran: Ran,
    timeout: Duration,
    mut collector: Collector,
) -> Result<ToolResult> {
    let cell = match ran {
        Ran::Snippet(ran) => {
            report_limits(context.events, &ran.finished)?;
            let mut result = command_result(&ran.finished, Some(timeout), collector);
            if ran.is_build_failure {
                result.text = format!("the code does not build: {}", result.text);
            }
            return Ok(result);
        }
        Ran::Cell(cell) => cell,
    };
    if let Ended::Gone(Gone::Ended(finished) | Gone::NotStarted(Some(finished))) = &cell.ended {
        report_limits(context.events, finished)?;
    }
    let report = CellReport::of(&cell, timeout);
    // The value and the exception come last, so that they are in the part that is kept of a long output.
    for (label, text) in [("value: ", &report.value), ("", &report.error)] {
        if !text.is_empty() {
            collector.push(Output::Data(Stream::Stdout, collector.line_break()));
            collector.push(Output::Data(Stream::Stdout, format!("{label}{text}").as_bytes()));
        }
    }
    let collected = collector.finish(None);
    let output = if collected.text.is_empty() { NO_OUTPUT } else { &collected.text };
    let text = format!("{}{output}", headline(&report, cell.duration));
    Ok(ToolResult {
        ok: report.exit_code == Some(0),
        exit_code: report.exit_code,
        truncated: collected.truncated,
        text,
        ..ToolResult::default()
    })
}

/// The report about a cell, in words.
pub struct CellReport {
    /// The outcome: one of those that a command can have.
    pub outcome: String,
    /// The exit code that a program would have had.
    pub exit_code: Option<i32>,
    /// Remarks about the interpreter.
    pub notes: Vec<String>,
    /// The value of a last expression.
    pub value: String,
    /// The exception, with its traceback.
    pub error: String,
}

impl CellReport {
    /// The report of a cell that had this time limit.
    pub fn of(ran: &CellRan, timeout: Duration) -> Self {
        let name = ran.language.name();
        let renewed = ran.renewed.as_ref();
        let mut notes: Vec<String> = renewed
            .map(|why| format!("this is a new {name} interpreter, because {why}: earlier variables are gone"))
            .into_iter()
            .collect();
        let lost = format!(
            "the {name} interpreter ended: its variables are gone, and the next call starts a new one"
        );
        let (outcome, exit_code, value, error) = match &ran.ended {
            Ended::Answered { answer, timed_out } => {
                let exit_code = i32::from(answer.exit_code);
                let (outcome, exit_code) = match answer.status {
                    Status::Interrupted if *timed_out => {
                        notes.push("the program was interrupted; its variables are kept".to_owned());
                        (describe(Outcome::TimedOut, Some(timeout)), None)
                    }
                    Status::Interrupted => ("interrupted".to_owned(), None),
                    _ => (describe(Outcome::Exited(exit_code), None), Some(exit_code)),
                };
                (outcome, exit_code, answer.value.clone(), answer.error.clone())
            }
            Ended::Gone(Gone::Ended(finished)) => {
                if ran.ended.is_closed_channel() {
                    notes.push(
                        "the program closed the descriptors that the interpreter is driven by".to_owned(),
                    );
                }
                notes.push(lost);
                let code = match finished.outcome {
                    Outcome::Exited(code) => Some(code),
                    _ => None,
                };
                // Nothing ends an interpreter with success: the code behind that was not run.
                let outcome = match code {
                    Some(0) => "exit code 0, before the end of the code".to_owned(),
                    _ => describe(finished.outcome, None),
                };
                (outcome, code.filter(|code| *code != 0), String::new(), String::new())
            }
            Ended::Gone(Gone::NotStarted(finished)) => {
                let (outcome, verb) = match finished {
                    Some(finished) => (finished.outcome, "did not start"),
                    None => (Outcome::TimedOut, "had not started yet"),
                };
                // What made it new is said by the call that runs in it.
                notes = vec![format!("the {name} interpreter {verb}: nothing of the code was run")];
                (describe(outcome, Some(timeout)), None, String::new(), String::new())
            }
            Ended::Gone(Gone::Killed) => {
                notes.push("it did not stop when it was interrupted, and was killed".to_owned());
                notes.push(lost);
                (describe(Outcome::TimedOut, Some(timeout)), None, String::new(), String::new())
            }
            Ended::Gone(Gone::Garbage) => {
                notes.push("the program wrote to the descriptor of the interpreter's answers".to_owned());
                notes.push(lost);
                (describe(Outcome::Signaled(libc::SIGKILL), None), None, String::new(), String::new())
            }
        };
        Self { outcome, exit_code, notes, value, error }
    }
}

/// The first lines: the outcome, the time, what happened to the interpreter.
pub fn headline(report: &CellReport, duration: Duration) -> String {
    let notes = report.notes.iter().map(|note| format!("[{note}]\n")).collect::<String>();
    format!("{}, {:.2} s\n{notes}", report.outcome, duration.as_secs_f64())
}
