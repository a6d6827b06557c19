//! The patches in the form that the SWE-bench harness reads.

use crate::{Task, TaskResult};
use agent_base::error::{Error, Result};
use agent_event::json::to_vec;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Writes a line for each result. A task that changed nothing has an empty patch.
pub(super) fn write(
    out: &mut dyn Write,
    tasks: &[Arc<Task>],
    results: &BTreeMap<String, TaskResult>,
    directory: &Path,
) -> Result<()> {
    for result in tasks.iter().filter_map(|task| results.get(&task.id)) {
        let patch = match &result.patch {
            None => Vec::new(),
            Some(name) => std::fs::read(directory.join(name))
                .map_err(|error| Error::unexpected(format!("{name} cannot be read")).caused_by(error))?,
        };
        let line = json!({
            "instance_id": result.id,
            "model_name_or_path": result.work.model,
            "model_patch": String::from_utf8_lossy(&patch),
        });
        out.write_all(&to_vec(&line)?)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
