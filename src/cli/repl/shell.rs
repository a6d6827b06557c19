//! `!CMD`: a command in the session's sandbox, which has the terminal until it ends.

use super::Repl;
use crate::cli::ui::terminal::attach;
use crate::error::{Error, Result};
use crate::log::report::duration_text;
use crate::sandbox::{Command, Finished, Outcome, Program, wire};
use crate::session::Frontend;
use crate::tools::{Collector, report_limits};

/// Characters of the output that the model is shown with the next prompt.
const SHOWN_TO_MODEL: usize = 3_000;

impl Repl<'_> {
    /// Runs `command` without a time limit. It gets every key: Ctrl-C interrupts it, not `agent`.
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
            stdin: true,
        };
        let mut copy = Collector::new(SHOWN_TO_MODEL);
        let held = self.screen.hold();
        let finished = attach::run(&sandbox, command, std::io::stderr(), &mut copy).await?;
        drop(held);
        self.remark(&ending(&finished));
        report_limits(self.console.events(), &finished)?;
        let output = copy.finish(None).text;
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
