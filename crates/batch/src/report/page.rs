//! The results as one HTML page that needs no network.

use crate::{Summary, Task, TaskResult};
use agent_log::report::html::{document, escape};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn page(tasks: &[Arc<Task>], results: &BTreeMap<String, TaskResult>, summary: Summary) -> String {
    let Summary { tasks: all, done, passed, failed, usage, cost } = summary;
    let facts = [
        ("Passed", format!("{passed} of {done} done, {all} in all")),
        ("Failed", failed.to_string()),
        ("Tokens", format!("{} in ({} cached), {} out", usage.input, usage.cached, usage.output)),
        ("Cost", cost.map_or_else(|| "no price is configured".to_owned(), |cost| format!("{cost:.4}"))),
    ];
    let facts: String = facts
        .iter()
        .map(|(name, fact)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escape(fact)))
        .collect();
    let head = "<tr><th>task</th><th>status</th><th>model</th><th>turns</th><th>tokens</th><th>cost</th><th>seconds</th><th>session</th></tr>\n";
    let rows: String = tasks.iter().map(|task| row(task, results.get(&task.id))).collect();
    let body = format!("<dl>\n{facts}</dl>\n<h2>Tasks</h2>\n<table>\n{head}{rows}</table>\n");
    document("Batch", &body)
}

fn row(task: &Task, result: Option<&TaskResult>) -> String {
    let id = escape(&task.id);
    let Some(result) = result else {
        return format!("<tr><td>{id}</td><td>no result yet</td></tr>\n");
    };
    let class = if result.passed() { "good" } else { "bad" };
    let error =
        result.work.error.as_deref().map(|error| format!("<br>{}", escape(error))).unwrap_or_default();
    let name = match &result.patch {
        Some(patch) => format!("<a href=\"{}\">{id}</a>", escape(patch)),
        None => id,
    };
    let cost = result.work.cost.map(|cost| format!("{cost:.4}")).unwrap_or_default();
    format!(
        "<tr><td>{name}</td><td><span class=\"{class}\">{}</span>{error}</td><td>{}</td><td>{}</td><td>{}</td><td>{cost}</td>\
         <td>{:.1}</td><td><code>{}</code></td></tr>\n",
        escape(&result.status),
        escape(&result.work.model),
        result.work.turns,
        result.work.usage.input + result.work.usage.output,
        result.work.seconds,
        escape(result.work.session.as_deref().unwrap_or_default()),
    )
}
