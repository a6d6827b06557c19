//! Checks: commands that have to pass in a fresh sandbox with the original workspace plus the change.

use super::frontend::Step;
use super::startup::{Population, Startup};
use super::{Retention, Session};
use agent_base::error::Error;
use agent_base::error::Kind;
use agent_base::error::Result;
use agent_base::secret_scan;
use agent_core::FailedCheck;
use agent_event::Changes;
use agent_event::Event;
use agent_log::SessionId;
use agent_sandbox::Command;
use agent_sandbox::Outcome;
use agent_sandbox::Program;
use agent_sandbox::Sandbox;
use agent_sandbox::TAIL_BYTES;
use agent_tools::Collector;
use agent_tools::describe;
use agent_tools::report_limits;
use agent_workspace::Workspace;
use std::sync::Arc;

/// Stands for the id of a call where secrets were replaced in the output of a check.
const CHECK: &str = "check";

/// A check that did not pass.
struct Failure {
    command: String,
    outcome: String,
    output: String,
}

/// Lines of a failed check's output that the event has, and bytes of them.
const MAX_LINES: usize = 20;
const MAX_BYTES: usize = 8 << 10;

fn last_lines(output: &str) -> String {
    let output = output.trim_end();
    let start = output.rmatch_indices('\n').nth(MAX_LINES - 1).map_or(0, |(at, _)| at + 1);
    let least = output.len().saturating_sub(MAX_BYTES).max(start);
    let start = (least..=output.len()).find(|at| output.is_char_boundary(*at));
    output[start.unwrap_or(output.len())..].to_owned()
}

impl Failure {
    /// The prompt that reports it to the model.
    fn feedback(&self, changes: Changes) -> String {
        let change = match changes == Changes::default() {
            true => "without any change, because you have changed no file",
            false => "with your change",
        };
        format!(
            "The check `{}` does not pass yet ({}). It ran in a fresh sandbox {change}. Its output:\n\n{}",
            self.command, self.outcome, self.output
        )
    }
}

impl Session {
    /// Runs `commands`, reports a failure to the model, and runs them again, until all pass. The new answer, where the model began its work
    /// anew.
    ///
    /// # Errors
    /// `Check` if one still fails after `attempts` attempts.
    pub async fn run_checks(&mut self, commands: &[String], attempts: u32) -> Result<Option<String>> {
        let mut answer = None;
        for attempt in 1.. {
            let Some(failure) = self.first_failure(commands).await? else { break };
            if attempt >= attempts {
                return Err(Error::new(Kind::Check, format!("the check did not pass: {}", failure.command))
                    .hint("`agent diff` shows the change; none of it was written"));
            }
            let report = failure.feedback(self.changes().await?);
            let Failure { command, outcome, output } = &failure;
            let check = FailedCheck { command, outcome, output };
            let anew = self.conversation.check_failed(&check, report).await?;
            answer = anew.map(|answer| answer.text).or(answer);
        }
        Ok(answer)
    }

    /// Every check in order, up to the first failure.
    async fn first_failure(&self, commands: &[String]) -> Result<Option<Failure>> {
        let startup = self.fresh_sandbox().await?;
        let interrupt = self.conversation.interrupt();
        let checks = async {
            let ready = startup.ready_silently().await?;
            for command in commands {
                if let Some(failure) = self.check(&ready.sandbox, command).await? {
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

    /// A second sandbox with the files of the workspace and nothing else.
    async fn fresh_sandbox(&self) -> Result<Startup> {
        let directory = self.store.dir(&self.id);
        let population = match Workspace::load(&directory, Arc::clone(&self.workspace.machine)).await? {
            Some(workspace) => Population::Restore(Arc::new(workspace.transient())),
            // No tool ran, so nothing changed: the workspace is the host's directory.
            None => self.workspace.populate(&directory, self.sandbox.backend.as_ref())?,
        };
        let settings = super::SandboxSettings { retention: Retention::Remove, ..self.sandbox.clone() };
        let gateway = Arc::clone(self.startup.gateway());
        let frontend = Arc::clone(&self.frontend);
        Ok(Startup::begin(&SessionId::generate(), &settings, population, gateway, frontend))
    }

    async fn check(&self, sandbox: &Sandbox, command: &str) -> Result<Option<Failure>> {
        self.frontend.progress(Step::Check(command));
        let bounds = self.conversation.bounds();
        let mut collector = Collector::new(bounds.output_chars);
        let run = Command {
            program: Program::Shell(command.to_owned()),
            cwd: None,
            env: Vec::new(),
            timeout: Some(bounds.check_timeout),
            live_bytes: TAIL_BYTES as u64,
            stdin: false,
        };
        let finished = sandbox.run(run, &mut |output| collector.push(output)).await?;
        let exit_code = match finished.outcome {
            Outcome::Exited(code) => Some(code),
            _ => None,
        };
        let events = self.frontend.events();
        report_limits(events, &finished)?;
        let duration_ms = finished.duration.as_millis() as u64;
        let ended =
            |output| Event::CheckFinished { command: command.to_owned(), exit_code, duration_ms, output };
        if exit_code == Some(0) {
            events.emit(ended(String::new()))?;
            return Ok(None);
        }
        let mut output = collector.finish(None).text;
        if bounds.redact_secrets
            && let Some(redacted) = secret_scan::redact(&output)
        {
            events.emit(Event::SecretsRedacted { id: CHECK.to_owned(), types: redacted.types })?;
            output = redacted.text;
        }
        events.emit(ended(last_lines(&output)))?;
        Ok(Some(Failure {
            command: command.to_owned(),
            outcome: describe(finished.outcome, Some(bounds.check_timeout)),
            output,
        }))
    }
}
