//! Checks: commands that have to pass in a second sandbox with the change as it would be applied.

use super::Session;
use super::check_sandbox::CheckSandbox;
use super::frontend::Step;
use agent_base::error::Error;
use agent_base::error::Kind;
use agent_base::error::Result;
use agent_base::secret_scan;
use agent_core::FailedCheck;
use agent_event::Changes;
use agent_event::Event;
use agent_sandbox::Command;
use agent_sandbox::Outcome;
use agent_sandbox::Program;
use agent_sandbox::Sandbox;
use agent_sandbox::TAIL_BYTES;
use agent_tools::Collector;
use agent_tools::describe;
use agent_tools::report_limits;

/// The rules for running checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckRules {
    /// The number of times that a check is run before its failure counts.
    pub attempts: u32,
    /// Set if the sandbox has the change and nothing else of the session. Otherwise it has what the session has outside of the
    /// diff too.
    pub is_clean: bool,
}

/// Stands for the id of a call where secrets were replaced in the output of a check.
const CHECK: &str = "check";

/// A check that did not pass.
struct Failure {
    command: String,
    outcome: String,
    output: String,
    /// Set if it ran in a copy of the session's sandbox.
    is_copy: bool,
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
        let place = if self.is_copy { "a copy of this sandbox" } else { "a fresh sandbox" };
        format!(
            "The check `{}` does not pass yet ({}). It ran in {place} {change}. Its output:\n\n{}",
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
    pub async fn run_checks(&mut self, commands: &[String], rules: CheckRules) -> Result<Option<String>> {
        let (mut answer, mut told) = (None, None);
        for attempt in 1.. {
            let Some(failure) = self.first_failure(commands, rules, &mut told).await? else { break };
            if attempt >= rules.attempts {
                return Err(Error::new(Kind::Check, format!("the check did not pass: {}", failure.command))
                    .hint("`agent diff` shows the change; none of it was written"));
            }
            let report = failure.feedback(self.changes().await?);
            let Failure { command, outcome, output, .. } = &failure;
            let check = FailedCheck { command, outcome, output };
            let anew = self.conversation.check_failed(&check, report).await?;
            answer = anew.map(|answer| answer.text).or(answer);
        }
        Ok(answer)
    }

    /// Every check in order, up to the first failure. `told`: the last notice about what their sandbox has beside the change.
    async fn first_failure(
        &self,
        commands: &[String],
        rules: CheckRules,
        told: &mut Option<String>,
    ) -> Result<Option<Failure>> {
        let sandbox = CheckSandbox::begin(self, rules.is_clean).await?;
        let interrupt = self.conversation.interrupt();
        let checks = async {
            let (ready, beside) = sandbox.ready(self).await?;
            if let Some(text) = beside.filter(|text| told.as_ref() != Some(text)) {
                self.frontend.events().emit(Event::Notice { text: text.clone() })?;
                *told = Some(text);
            }
            for command in commands {
                if let Some(failure) = self.check(&ready.sandbox, command).await? {
                    return Ok(Some(Failure { is_copy: sandbox.is_copy(), ..failure }));
                }
            }
            Ok(None)
        };
        let result = tokio::select! {
            biased;
            stop = interrupt.triggered() => Err(stop.error()),
            result = checks => result,
        };
        sandbox.end().await;
        result
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
            is_copy: false,
        }))
    }
}
