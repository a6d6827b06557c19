//! `job_output`: what a background job has written.

use super::describe;
use crate::{self as tools, Collector, Context, Tool, ToolResult, arguments, report_limits};
use agent_base::error::{Error, Kind, Result};
use agent_sandbox::{self as sandbox, Outcome, Output, Piece};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// The longest wait for output of a job, in seconds.
const MAX_WAIT_S: f64 = 600.0;

pub struct JobOutput;

impl Tool for JobOutput {
    describe!("job_output", JOB_OUTPUT, JobOutputArguments);

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { run(context, arguments::read(&arguments)?).await })
    }
}

#[derive(Deserialize, JsonSchema)]
struct JobOutputArguments {
    /// The job's number.
    job: u64,
    /// How many seconds to wait for news.
    wait_s: Option<f64>,
}

async fn run(context: Context<'_>, arguments: JobOutputArguments) -> Result<ToolResult> {
    let wait = arguments.wait_s.filter(|seconds| seconds.is_finite()).unwrap_or(0.0).clamp(0.0, MAX_WAIT_S);
    let output = context.sandbox.job_output(arguments.job, Duration::from_secs_f64(wait)).await;
    let output = output.map_err(explained)?;
    output.state.iter().try_for_each(|finished| report_limits(context.events, finished))?;
    Ok(result(context, arguments.job, output))
}

/// The error about a job that does not exist, with what the model can do instead.
pub fn explained(error: Error) -> Error {
    match error.kind() {
        Kind::InSandbox => Error::new(
            Kind::InSandbox,
            format!(
                "{error}; run_commands with \"background\": true starts a job and gives its number. The output of other \
                 commands came with their results"
            ),
        ),
        _ => error,
    }
}

/// The state of a job and what it has written since the last call.
pub fn result(context: Context<'_>, job: u64, output: sandbox::JobOutput) -> ToolResult {
    let mut collector = Collector::new(context.bounds.output_chars);
    for piece in &output.output {
        collector.push(match piece {
            Piece::Data(stream, bytes) => Output::Data(*stream, bytes),
            Piece::Gap(missing) => Output::Gap(*missing),
        });
    }
    let collected = collector.finish(output.state.as_ref().and_then(|finished| finished.spool.as_deref()));
    let (state, ok, exit_code) = match &output.state {
        None => ("running".to_owned(), true, None),
        Some(finished) => {
            let code = match finished.outcome {
                Outcome::Exited(code) => Some(code),
                _ => None,
            };
            (tools::describe(finished.outcome, None), code == Some(0), code)
        }
    };
    let text = match collected.text.is_empty() {
        true => "(nothing new)",
        false => &collected.text,
    };
    let text = format!("job {job}: {state}\n{text}");
    ToolResult { ok, exit_code, truncated: collected.truncated, text, ..ToolResult::default() }
}
