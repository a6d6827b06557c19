//! Hooks in the sandbox.

use super::{Hook, MAX_OUTPUT, Ran, keep};
use agent_event::Stream;
use agent_sandbox::{Command, Outcome, ProcessEvent, Program, Sandbox, reading_beside};

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
    let controls = process.controls();
    let feeding = async {
        // A command that does not read it may end all the same, or reaches its time limit.
        controls.write(input).await;
        controls.close_stdin();
    };
    let reading = async {
        loop {
            match process.next().await.map_err(|error| error.to_string())? {
                ProcessEvent::Output(Stream::Stdout, bytes) => keep(&mut ran.stdout, &bytes),
                ProcessEvent::Output(Stream::Stderr, bytes) => keep(&mut ran.stderr, &bytes),
                ProcessEvent::Gap(_) => {}
                ProcessEvent::Finished(finished) => return Ok::<_, String>(finished.outcome),
            }
        }
    };
    ran.exit_code = match reading_beside(feeding, reading).await? {
        Outcome::Exited(code) => Some(code),
        Outcome::TimedOut => return Err(format!("it took more than {} s", hook.timeout.as_secs_f64())),
        _ => None,
    };
    Ok(ran)
}
