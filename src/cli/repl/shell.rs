//! `!CMD`: a command in the session's sandbox, its output as it comes.

use super::Repl;
use crate::error::{Error, Result};
use crate::log::report::duration_text;
use crate::sandbox::{Command, Finished, Outcome, Output, Program, wire};
use crate::sanitise::Sanitiser;
use crate::session::Frontend;
use crate::tools::{Collector, report_limits};

/// Characters of the output that the model is shown with the next prompt.
const SHOWN_TO_MODEL: usize = 3_000;

impl Repl<'_> {
    /// Runs `command` without a time limit: Ctrl-C ends it.
    pub(super) async fn shell(&mut self, command: &str) -> Result<()> {
        if command.is_empty() {
            return Err(Error::usage("there is no command").hint("for example !ls"));
        }
        self.screen.progress().show("waiting for the sandbox");
        let sandbox = self.session.startup().ready().await?.sandbox.clone();
        self.screen.progress().clear();
        let text = command;
        let command = Command {
            program: Program::Shell(text.to_owned()),
            cwd: None,
            env: Vec::new(),
            timeout: None,
            live_bytes: u64::MAX,
            stdin: false,
        };
        let mut sanitiser = Sanitiser::new(self.colours.0);
        let screen = self.screen.clone();
        let mut at_line_start = true;
        let mut collector = Collector::new(SHOWN_TO_MODEL);
        let mut show = |output: Output<'_>| {
            let mut clean = String::new();
            collector.push(output);
            match output {
                Output::Data(_, bytes) => sanitiser.push_bytes(bytes, &mut clean),
                Output::Gap(bytes) => clean = format!("\n[{bytes} bytes are omitted here]\n"),
            }
            if !clean.is_empty() {
                at_line_start = clean.ends_with('\n');
                screen.say(&clean);
            }
        };
        let finished = sandbox.run(command, &mut show).await?;
        let mut rest = String::new();
        sanitiser.finish(&mut rest);
        if !at_line_start {
            rest.push('\n');
        }
        self.screen.say(&rest);
        self.remark(&ending(&finished));
        report_limits(self.console.events(), &finished)?;
        let output = collector.finish(None).text;
        self.note(&format!(
            "The user ran `{text}` in the sandbox: {}. Its output:\n{output}",
            ending(&finished)
        ))
    }
}

/// `exit 0 in 12 ms`
fn ending(finished: &Finished) -> String {
    let how = match finished.outcome {
        Outcome::Exited(code) => format!("exit {code}"),
        Outcome::Signaled(signal) => format!("killed by signal {signal}"),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::OomKilled => "killed: out of memory".to_owned(),
        Outcome::OverQuota { bytes } => format!("killed: {}", wire::quota_used_up(bytes)),
        Outcome::Lost => "lost: the sandbox did not say how it ended".to_owned(),
    };
    let time = duration_text(finished.duration.as_millis() as u64);
    match finished.left_running {
        0 => format!("{how} in {time}"),
        left => format!("{how} in {time}; {left} process(es) are still running"),
    }
}
