//! Reports of a batch for other programs, made from its results: JUnit XML, a page, predictions.

mod junit;
mod page;
mod predictions;

use super::output::Output;
use super::task::Task;
use agent_base::error::Result;
use std::fs::{self, File};
use std::io::{BufWriter, IntoInnerError};
use std::sync::Arc;

/// Writes `junit.xml`, `report.html` and `predictions.jsonl`.
pub(super) fn write(output: &Output, tasks: &[Arc<Task>]) -> Result<()> {
    let results = output.done();
    output.replace("junit.xml", junit::document(tasks, &results).as_bytes())?;
    output.replace("report.html", page::page(tasks, &results, output.summary(tasks.len())).as_bytes())?;
    // The patches together may be large: one at a time is in memory.
    let path = output.directory().join("predictions.jsonl");
    let new = path.with_extension("jsonl.new");
    let mut file = BufWriter::new(File::create(&new)?);
    predictions::write(&mut file, tasks, &results, output.directory())?;
    file.into_inner().map_err(IntoInnerError::into_error)?;
    Ok(fs::rename(&new, &path)?)
}
