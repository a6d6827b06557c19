//! The commands that the user runs in the sandbox of a session, beside its turns.

use super::super::frame;
use super::super::work::to_end;
use super::Live;
use agent_base::error::{Error, Kind, Result};
use agent_base::sanitise::Sanitiser;
use agent_core::Stop;
use agent_event::Stream;
use agent_sandbox::{Command, Output, Program};
use agent_tools::{Collector, ending, report_limits};
use std::sync::Arc;

/// Characters of a command's output that the model is shown with the next prompt.
const SHOWN_TO_MODEL: usize = 3_000;
/// Bytes of a command's output that a tab gets while it runs; of the rest it gets the end.
const LIVE_BYTES: u64 = 4 << 20;
/// Commands of the user's that run at the same time.
const MAX_COMMANDS: usize = 4;

impl Live {
    /// Starts a command of the user's in the sandbox; its output goes to the tabs.
    ///
    /// # Errors
    /// `Conflict` where too many run.
    pub fn command(self: &Arc<Self>, text: String) -> Result<()> {
        if text.trim().is_empty() {
            return Err(Error::usage("there is no command").hint("for example ls"));
        }
        {
            let mut status = self.status.lock();
            if status.commands >= MAX_COMMANDS {
                return Err(Error::new(Kind::Conflict, format!("{MAX_COMMANDS} commands run already")));
            }
            status.commands += 1;
        }
        self.send_status();
        let (live, mut stopped) = (Arc::clone(self), self.stop_commands.subscribe());
        tokio::spawn(async move {
            let number = live.feed.command_started(&text);
            let (runs, command) = (Arc::clone(&live), text.clone());
            let run = to_end(async move {
                tokio::select! {
                    ran = runs.run(number, &command) => ran,
                    _ = stopped.changed() => Err(Stop::Interrupted.error()),
                }
            });
            let ran = run.await;
            live.status.lock().commands -= 1;
            let (end, note) = match ran {
                Ok((end, output)) => {
                    let note = format!("The user ran `{text}` in the sandbox: {end}. Its output:\n{output}");
                    (end, note)
                }
                Err(error) if error.kind() == Kind::Interrupted => {
                    ("stopped".to_owned(), format!("The user ran `{text}` in the sandbox and stopped it."))
                }
                Err(error) => (error.to_string(), format!("The user's command `{text}` failed: {error}")),
            };
            live.feed.command_ended(number, &frame::visible(&end));
            live.send_status();
            // After the turn that is under way.
            let mut session = live.session.lock().await;
            let _ = session.conversation.note(&note);
            live.changed(&session).await;
        });
        Ok(())
    }

    /// Runs the command, and returns how it ended, and what the model is shown of its output.
    async fn run(&self, number: u64, text: &str) -> Result<(String, String)> {
        let sandbox = self.sandbox().await?;
        let command = Command {
            program: Program::Shell(text.to_owned()),
            cwd: None,
            env: Vec::new(),
            timeout: self.command_time,
            live_bytes: LIVE_BYTES,
            stdin: false,
        };
        let mut copy = Collector::new(SHOWN_TO_MODEL);
        // Each output has characters of its own, which may be cut.
        let mut sanitisers = [Sanitiser::new(false), Sanitiser::new(false)];
        let finished = sandbox
            .run(command, &mut |output| {
                let mut shown = String::new();
                match &output {
                    Output::Data(stream, bytes) => {
                        sanitisers[usize::from(*stream == Stream::Stderr)].push_bytes(bytes, &mut shown);
                    }
                    Output::Gap(bytes) => shown = format!("\n… {bytes} bytes are left out …\n"),
                }
                copy.push(output);
                if !shown.is_empty() {
                    self.feed.command_output(number, &shown);
                }
            })
            .await?;
        report_limits(&self.events, &finished)?;
        Ok((ending(&finished), copy.finish(None).text))
    }
}
