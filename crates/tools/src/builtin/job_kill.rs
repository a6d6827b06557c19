//! `job_kill`: ends a background job.

use super::{describe, job_output};
use crate::{Context, Tool, ToolResult, arguments};
use agent_base::error::Result;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub struct JobKill;

impl Tool for JobKill {
    describe!("job_kill", JOB_KILL, JobKillArguments);

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { run(context, arguments::read(&arguments)?).await })
    }
}

#[derive(Deserialize, JsonSchema)]
struct JobKillArguments {
    /// The job's number.
    job: u64,
}

async fn run(context: Context<'_>, JobKillArguments { job }: JobKillArguments) -> Result<ToolResult> {
    let output = context.sandbox.job_kill(job).await.map_err(job_output::explained)?;
    Ok(ToolResult { ok: true, ..job_output::result(context, job, output) })
}
