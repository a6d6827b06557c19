//! `job_output` and `job_kill`: commands that go on running in the background.

use super::output::Collector;
use super::{Context, ToolResult, describe, tell_limits};
use crate::error::Result;
use crate::sandbox::{JobOutput, Outcome, Output, Piece};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// The longest wait for news of a job, in seconds.
const MAX_WAIT_S: f64 = 600.0;

#[derive(Deserialize, JsonSchema)]
pub struct OutputArguments {
    /// The job's number.
    job: u64,
    /// How many seconds to wait for news.
    wait_s: Option<f64>,
}

#[derive(Deserialize, JsonSchema)]
pub struct KillArguments {
    /// The job's number.
    job: u64,
}

pub async fn output(context: Context<'_>, arguments: OutputArguments) -> Result<ToolResult> {
    let wait = arguments.wait_s.filter(|seconds| seconds.is_finite()).unwrap_or(0.0).clamp(0.0, MAX_WAIT_S);
    let output = context.sandbox.job_output(arguments.job, Duration::from_secs_f64(wait)).await?;
    output.state.iter().try_for_each(|finished| tell_limits(context.events, finished))?;
    Ok(result(context, arguments.job, output))
}

pub async fn kill(context: Context<'_>, arguments: KillArguments) -> Result<ToolResult> {
    let output = context.sandbox.job_kill(arguments.job).await?;
    Ok(ToolResult { ok: true, ..result(context, arguments.job, output) })
}

fn result(context: Context<'_>, job: u64, output: JobOutput) -> ToolResult {
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
            (describe(finished.outcome, None), code == Some(0), code)
        }
    };
    let text = match collected.text.is_empty() {
        true => "(nothing new)",
        false => &collected.text,
    };
    ToolResult { ok, exit_code, truncated: collected.truncated, text: format!("job {job}: {state}\n{text}") }
}
