//! Hooks in the sandbox.

use super::{Hook, MAX_OUTPUT, Ran, keep};
use agent_event::Stream;
use agent_sandbox::{Command, Outcome, ProcessEvent, Program, Sandbox};

/// Runs it, with `input` as its standard input. Why it could not be run.
pub async fn run(hook: &Hook, sandbox: &Sandbox, input: &[u8]) -> Result<Ran, String> {
    let command = Command {
        program: Program::Shell(hook.command.clone()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(hook.timeout),
        live_bytes: MAX_OUTPUT as u64,
        stdin: true,
    };
    let mut process = sandbox.spawn(command).await.map_err(|error| error.to_string())?;
    let mut ran = Ran { exit_code: None, stdout: Vec::new(), stderr: Vec::new() };
    // A command that does not read it may end all the same, or reaches its time limit.
    let _ = process.write_stdin(input).await;
    process.close_stdin();
    loop {
        match process.next().await.map_err(|error| error.to_string())? {
            ProcessEvent::Output(Stream::Stdout, bytes) => keep(&mut ran.stdout, &bytes),
            ProcessEvent::Output(Stream::Stderr, bytes) => keep(&mut ran.stderr, &bytes),
            ProcessEvent::Gap(_) => {}
            ProcessEvent::Finished(finished) => {
                ran.exit_code = match finished.outcome {
                    Outcome::Exited(code) => Some(code),
                    Outcome::TimedOut => {
                        return Err(format!("it took more than {} s", hook.timeout.as_secs_f64()));
                    }
                    _ => None,
                };
                return Ok(ran);
            }
        }
    }
}
