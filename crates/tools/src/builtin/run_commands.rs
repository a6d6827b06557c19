//! `run_commands`: the shell.

use super::describe;
use crate::{self as tools, Collector, Context, Tool, ToolResult, arguments, report_limits};
use agent_base::error::Result;
use agent_model::compact::JOB_STARTED;
use agent_policy::policy::Action;
use agent_sandbox::{Command, Program, TAIL_BYTES};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

pub struct RunCommands;

impl Tool for RunCommands {
    describe!("run_commands", RUN_COMMANDS, RunCommandsArguments);

    fn action<'a>(&self, arguments: &'a Value) -> Option<Action<'a>> {
        Some(Action::Command(arguments.get("command")?.as_str()?))
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { run(context, arguments::read(&arguments)?).await })
    }
}

#[derive(Deserialize, JsonSchema)]
struct RunCommandsArguments {
    /// The shell commands.
    command: String,
    /// The time limit in seconds.
    timeout_s: Option<f64>,
    /// Goes on running as a background job.
    background: Option<bool>,
}

async fn run(context: Context<'_>, arguments: RunCommandsArguments) -> Result<ToolResult> {
    let background = arguments.background.unwrap_or(false);
    let timeout = limit(context, arguments.timeout_s, background);
    let command = Command {
        program: Program::Shell(arguments.command),
        cwd: None,
        env: Vec::new(),
        timeout,
        live_bytes: TAIL_BYTES as u64,
        stdin: false,
    };
    if background {
        let job = context.sandbox.start_job(command).await?;
        return Ok(ToolResult::success(format!(
            "{JOB_STARTED}{job}; see its output with job_output {{\"job\": {job}}}"
        )));
    }
    let mut collector = Collector::new(context.bounds.output_chars);
    let (mut live, mut listening) = (context.live_output(), Ok(()));
    let finished = context
        .sandbox
        .run(command, &mut |output| {
            collector.push(output);
            if listening.is_ok() {
                listening = live.emit(output);
            }
        })
        .await?;
    listening.and(live.finish())?;
    report_limits(context.events, &finished)?;
    Ok(tools::command_result(&finished, timeout, collector))
}

/// The time limit in force: a foreground command always has one, a background job only where it was asked for.
fn limit(context: Context<'_>, asked: Option<f64>, background: bool) -> Option<Duration> {
    let bounds = context.bounds;
    match asked.filter(|seconds| seconds.is_finite() && *seconds > 0.0) {
        Some(seconds) => Some(Duration::from_secs_f64(seconds.min(bounds.max_timeout.as_secs_f64()))),
        None if background => None,
        None => Some(bounds.timeout),
    }
}
