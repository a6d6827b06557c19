//! Hooks on this machine.

use super::{Hook, Ran, keep};
use crate::host_program;
use crate::sandbox::machine::Machine;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long the output of a hook that has ended is waited for: what it left running may hold it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs it beside config.toml, with a clean environment and `input` as its standard input: the workspace is the repository's, and
/// nothing in it is started by its name alone. Why it could not be run.
pub async fn run(hook: &Hook, workspace: &Path, machine: &Machine, input: &[u8]) -> Result<Ran, String> {
    let shell = host_program::command(OsStr::new("sh"), workspace, machine).ok_or("there is no sh")?;
    let directory = machine.config_dir().map_err(|error| error.to_string())?;
    let mut command = Command::from(shell);
    command.arg("-c").arg(&hook.command).current_dir(directory).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let group = Group(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
    feed(&mut child, input.to_vec());
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let status = match timeout(hook.timeout, child.wait()).await {
        Ok(status) => status.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("it took more than {} s", hook.timeout.as_secs_f64())),
    };
    let output = async |reading: JoinHandle<Vec<u8>>| match timeout(OUTPUT_TIMEOUT, reading).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    let ran = Ran { exit_code: status.code(), stdout: output(stdout).await, stderr: output(stderr).await };
    group.leave();
    Ok(ran)
}

/// The hook's processes, which end with it unless it has ended in time: also where the session is interrupted.
struct Group(Option<Pid>);

impl Group {
    /// What a hook that has ended left running is the user's.
    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // A group that is gone has no processes to end.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn feed(child: &mut Child, input: Vec<u8>) {
    if let Some(mut stdin) = child.stdin.take() {
        // A hook that does not read it closes the pipe.
        tokio::spawn(async move { stdin.write_all(&input).await });
    }
}

/// Reads to the end, and keeps the beginning.
fn collect(stream: Option<impl AsyncRead + Send + Unpin + 'static>) -> JoinHandle<Vec<u8>> {
    tokio::spawn(async move {
        let (mut kept, mut buffer) = (Vec::new(), vec![0; 8192]);
        if let Some(mut stream) = stream {
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                keep(&mut kept, &buffer[..length]);
            }
        }
        kept
    })
}
