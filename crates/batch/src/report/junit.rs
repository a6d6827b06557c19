//! The results as CI systems read test results.

use crate::{Task, TaskResult};
use agent_log::report::html::escape;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// A test case for each task: a failure where its check did not pass, an error where it did not complete, skipped where it
/// has no result yet.
pub(super) fn document(tasks: &[Arc<Task>], results: &BTreeMap<String, TaskResult>) -> String {
    let (mut cases, mut failures, mut errors, mut skipped, mut total) = (String::new(), 0, 0, 0, 0.0);
    for task in tasks {
        let name = escape(&task.id);
        let Some(result) = results.get(&task.id) else {
            skipped += 1;
            // A string takes everything.
            let _ = writeln!(cases, "  <testcase classname=\"agent\" name=\"{name}\"><skipped/></testcase>");
            continue;
        };
        total += result.work.seconds;
        let _ = write!(
            cases,
            "  <testcase classname=\"agent\" name=\"{name}\" time=\"{:.3}\"",
            result.work.seconds
        );
        if result.passed() {
            cases += "/>\n";
            continue;
        }
        let kind = match result.status.as_str() {
            "check_failed" => {
                failures += 1;
                "failure"
            }
            _ => {
                errors += 1;
                "error"
            }
        };
        let message = escape(result.work.error.as_deref().unwrap_or(&result.status));
        let (status, answer) = (escape(&result.status), escape(&result.work.answer));
        let _ = writeln!(
            cases,
            ">\n    <{kind} type=\"{status}\" message=\"{message}\">{answer}</{kind}>\n  </testcase>"
        );
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"agent batch\" tests=\"{}\" failures=\"{failures}\" \
         errors=\"{errors}\" skipped=\"{skipped}\" time=\"{total:.3}\">\n{cases}</testsuite>\n",
        tasks.len()
    )
}
