//! `!CMD`: a command in the session's sandbox, which has the terminal until it ends.

use super::Repl;
use crate::cli::attach;
use crate::error::{Error, Result};
use crate::sandbox::{Command, Outcome, Program};
use crate::session::Frontend;
use crate::tools::{Collector, ending, report_limits};

/// Characters of the output that the model is shown with the next prompt.
const SHOWN_TO_MODEL: usize = 3_000;

impl Repl<'_> {
    /// Runs `command` without a time limit; while a plan waits, it cannot change the workspace either: what it leaves running could do
    /// for the model what that one may not. It gets every key: Ctrl-C interrupts it, not `agent`.
    pub(super) async fn shell(&mut self, command: &str) -> Result<()> {
        if command.is_empty() {
            return Err(Error::usage("there is no command").hint("for example !ls"));
        }
        self.screen.progress().show("waiting for the sandbox");
        let sandbox = self.session.sandbox().await?;
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
        if finished.outcome != Outcome::Exited(0) {
            self.remark_on_plan();
        }
        report_limits(self.console.events(), &finished)?;
        self.session.ports().report_new().await?;
        let output = copy.finish(None).text;
        self.note(&format!(
            "The user ran `{text}` in the sandbox: {}. Its output:\n{output}",
            ending(&finished)
        ))
    }
}
