//! `--check CMD`: has to pass in a fresh sandbox, made from the original workspace plus the change.

use super::open::{Audience, Opened, spec};
use crate::agent::{Source, Startup};
use crate::cli::config::Config;
use crate::error::{Error, Kind, Result};
use crate::event::Event;
use crate::log::{SessionId, Store};
use crate::sandbox::{Command, Outcome, Program, Sandbox, TAIL_BYTES};
use crate::tools::{Collector, report_limits};
use crate::workspace::Workspace;
use std::sync::Arc;

/// How often a failed check goes back to the model where nothing else was said.
const ATTEMPTS: u32 = 3;

/// Whether every one of `checks` says something. An empty command passes whatever the change is.
///
/// # Errors
/// One does not.
pub fn refuse_empty(checks: &[String]) -> Result<()> {
    match checks.iter().any(|command| command.trim().is_empty()) {
        true => Err(Error::config("--check is empty").hint("is the variable set that it comes from?")),
        false => Ok(()),
    }
}

/// Runs the checks, hands failures back to the model, and runs them again, until they pass or the attempts
/// are used up (an error of kind `Check`).
pub async fn until_passed(config: &Config, audience: &Audience, opened: &mut Opened) -> Result<()> {
    let attempts = config.options.check_attempts.unwrap_or(ATTEMPTS).max(1);
    for attempt in 1..=attempts {
        let Some(failure) = run(config, audience, opened).await? else { return Ok(()) };
        if attempt == attempts {
            return Err(Error::new(Kind::Check, format!("the check did not pass: {}", failure.command))
                .hint("`agent diff` shows the change; nothing of it was written"));
        }
        opened.session.turn(&failure.feedback()).await?;
    }
    Ok(())
}

/// A check that did not pass.
struct Failure {
    command: String,
    ended: String,
    output: String,
}

impl Failure {
    /// What the model is told.
    fn feedback(&self) -> String {
        format!(
            "The check `{}` does not pass yet ({}). It ran in a fresh sandbox with your change. Its output:\n\n{}",
            self.command, self.ended, self.output
        )
    }
}

/// Every check in order, up to the first failure.
async fn run(config: &Config, audience: &Audience, opened: &Opened) -> Result<Option<Failure>> {
    let startup = fresh(config, opened).await?;
    let interrupt = opened.session.interrupt();
    let checks = async {
        let ready = startup.ready().await?;
        for command in &config.options.check {
            if let Some(failure) = check(config, audience, &ready.sandbox, command).await? {
                return Ok(Some(failure));
            }
        }
        Ok(None)
    };
    let result = tokio::select! {
        biased;
        stop = interrupt.triggered() => Err(stop.error()),
        result = checks => result,
    };
    startup.end().await;
    result
}

/// A second sandbox for the same session's workspace, with nothing in it but the files.
async fn fresh(config: &Config, opened: &Opened) -> Result<Startup> {
    let directory = Store::open()?.dir(&opened.id);
    let source = match Workspace::load(&directory).await? {
        Some(workspace) => Source::BringBack(Arc::new(workspace.aside())),
        // No tool ran, so nothing changed and the workspace never got into a sandbox: it is the host's own.
        None => super::open::source(config, &directory, opened.startup.backend().as_ref())?,
    };
    let id = SessionId::generate();
    let (backend, gateway) = (Arc::clone(opened.startup.backend()), Arc::clone(opened.startup.gateway()));
    Ok(Startup::begin(backend, spec(config, &id), source, gateway, Box::new(|_| {})))
}

async fn check(
    config: &Config,
    audience: &Audience,
    sandbox: &Sandbox,
    command: &str,
) -> Result<Option<Failure>> {
    audience
        .screen
        .progress()
        .show(&format!("checking: {}", crate::cli::ui::sanitise::one_line(command, 60)));
    let mut collector = Collector::new(config.bounds.output_chars);
    let run = Command {
        program: Program::Shell(command.to_owned()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(config.bounds.max_timeout),
        live_bytes: TAIL_BYTES as u64,
        stdin: false,
    };
    let finished = sandbox.run(run, &mut |output| collector.push(output)).await?;
    let exit_code = match finished.outcome {
        Outcome::Exited(code) => Some(code),
        _ => None,
    };
    report_limits(&audience.events, &finished)?;
    audience.events.emit(Event::CheckFinished {
        command: command.to_owned(),
        exit_code,
        duration_ms: finished.duration.as_millis() as u64,
    })?;
    Ok((exit_code != Some(0)).then(|| Failure {
        command: command.to_owned(),
        ended: crate::tools::describe(finished.outcome, Some(config.bounds.max_timeout)),
        output: collector.finish(None).text,
    }))
}
