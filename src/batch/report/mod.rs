//! What other programs read of a batch, made from its results: JUnit XML, a page, predictions.

mod junit;
mod page;
mod predictions;

use super::output::Output;
use super::task::Task;
use crate::error::Result;
use std::sync::Arc;

/// Writes `junit.xml`, `report.html` and `predictions.jsonl`.
pub(super) fn write(output: &Output, tasks: &[Arc<Task>]) -> Result<()> {
    let results = output.done();
    output.replace("junit.xml", junit::document(tasks, &results).as_bytes())?;
    output.replace("report.html", page::page(tasks, &results, output.summary(tasks.len())).as_bytes())?;
    output.replace("predictions.jsonl", &predictions::lines(tasks, &results, output.directory())?)
}
