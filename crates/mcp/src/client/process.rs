//! A server's program: in a sandbox, or on this machine where the user chooses that by name.

use super::peer::{MAX_MESSAGE, Peer};
use crate::jsonrpc::Lines;
use agent_base::error::{Error, Result};
use agent_base::host_program;
use agent_base::machine::Machine;
use agent_base::sanitise::plain;
use agent_event::Stream;
use agent_sandbox::{Command, Controls, Finished, Outcome, Process, ProcessEvent, Sandbox};
use agent_tools::describe;
use agent_wire::CHUNK;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The bytes that are kept of the end of standard error.
const MAX_STDERR: usize = 4 << 10;
/// The time that a program has to end once its standard input is closed.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// The status that a shell returns for a program that is not there.
const NOT_FOUND: i32 = 127;

/// A running program. Dropping it kills it.
pub struct Running {
    /// The peer that it is spoken to through.
    pub peer: Arc<Peer>,
    writing: JoinHandle<()>,
    reading: JoinHandle<()>,
}

/// A program of this machine.
pub struct HostProgram<'a> {
    /// Its name, or its absolute path.
    pub command: &'a str,
    /// Its arguments.
    pub args: &'a [String],
    /// Its variables, beside those of every host program.
    pub env: &'a [(String, String)],
    /// Its working directory.
    pub cwd: Option<&'a str>,
}

impl Running {
    /// Starts it in a sandbox.
    ///
    /// # Errors
    /// The connection to the sandbox is broken. That the program cannot be started shows with the first request.
    pub async fn in_sandbox(sandbox: &Sandbox, command: Command, shown: String) -> Result<Self> {
        let process = sandbox.spawn(command).await?;
        let (peer, lines) = Peer::new();
        let writing = tokio::spawn(feed(process.controls(), lines));
        let reading = tokio::spawn(follow(process, Arc::clone(&peer), shown));
        Ok(Self { peer, writing, reading })
    }

    /// Starts it on this machine, with a clean environment and its own variables, beside config.toml: the workspace is the
    /// repository's.
    ///
    /// # Errors
    /// There is no such program outside of the workspace.
    pub fn on_host(
        HostProgram { command, args, env, cwd }: HostProgram<'_>,
        workspace: &Path,
        machine: &Machine,
    ) -> Result<Self> {
        let missing = || {
            Error::config(format!("{command:?} is not a program of this machine"))
                .hint("name it as it is in PATH, or with its absolute path outside of the workspace")
        };
        let program = host_program::networked(OsStr::new(command), workspace, machine).ok_or_else(missing)?;
        let directory = match cwd {
            Some(cwd) => cwd.into(),
            None => machine.config_dir()?,
        };
        let mut program = tokio::process::Command::from(program);
        program
            .args(args)
            .envs(env.iter().cloned())
            .current_dir(directory)
            .process_group(0)
            .kill_on_drop(true);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().map_err(|error| missing().caused_by(error))?;
        let group = Group(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
        let (peer, mut lines) = Peer::new();
        let stdin = child.stdin.take();
        let writing = tokio::spawn(async move {
            let Some(mut stdin) = stdin else { return };
            while let Some(line) = lines.recv().await {
                if stdin.write_all(&line).await.is_err() {
                    return;
                }
            }
        });
        let reading = tokio::spawn(follow_child(child, group, Arc::clone(&peer)));
        Ok(Self { peer, writing, reading })
    }

    /// Closes its standard input, and kills it if it does not end by itself.
    pub async fn end(mut self) {
        self.writing.abort();
        let _ = tokio::time::timeout(END_TIMEOUT, &mut self.reading).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The task that reads owns the process.
        self.writing.abort();
        self.reading.abort();
        self.peer.end("it was ended");
    }
}

/// Writes lines to the standard input, and closes it in the end.
async fn feed(controls: Controls, mut lines: mpsc::Receiver<Vec<u8>>) {
    let _close = CloseStdin(controls.clone());
    while let Some(line) = lines.recv().await {
        for piece in line.chunks(CHUNK) {
            if !controls.write(piece).await {
                return;
            }
        }
    }
}

struct CloseStdin(Controls);

impl Drop for CloseStdin {
    fn drop(&mut self) {
        self.0.close_stdin();
    }
}

/// Reads what it writes until it ends.
async fn follow(mut process: Process, peer: Arc<Peer>, shown: String) {
    let (mut lines, mut stderr) = (Lines::new(MAX_MESSAGE), Vec::new());
    let why = loop {
        match process.next().await {
            Ok(ProcessEvent::Output(Stream::Stdout, bytes)) => {
                if let Err(why) = peer.take(&bytes, &mut lines) {
                    break why;
                }
            }
            Ok(ProcessEvent::Output(Stream::Stderr, bytes)) => keep_end(&mut stderr, &bytes),
            Ok(ProcessEvent::Gap(_)) => {}
            Ok(ProcessEvent::Finished(finished)) => break ended(&finished, &stderr, &shown),
            Err(error) => break format!("it could not be started: {error}"),
        }
    };
    peer.end(&why);
}

async fn follow_child(mut child: tokio::process::Child, _group: Group, peer: Arc<Peer>) {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let reading = async {
        let (mut lines, mut buffer) = (Lines::new(MAX_MESSAGE), vec![0; CHUNK]);
        while let Some(stdout) = &mut stdout
            && let Ok(read @ 1..) = stdout.read(&mut buffer).await
        {
            peer.take(&buffer[..read], &mut lines)?;
        }
        Ok::<_, String>(())
    };
    let mut last = Vec::new();
    let complaining = async {
        let mut buffer = vec![0; CHUNK];
        while let Some(stderr) = &mut stderr
            && let Ok(read @ 1..) = stderr.read(&mut buffer).await
        {
            keep_end(&mut last, &buffer[..read]);
        }
        std::future::pending::<()>().await;
    };
    let read = tokio::select! {
        read = reading => read,
        () = complaining => Ok(()),
    };
    let why = match read {
        Err(why) => why,
        Ok(()) => match tokio::time::timeout(END_TIMEOUT, child.wait()).await {
            Ok(Ok(status)) => format!("it ended ({status}){}", last_words(&last)),
            _ => format!("it closed its standard output{}", last_words(&last)),
        },
    };
    peer.end(&why);
}

/// The processes of a server on this machine, which end with it.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // A group that is gone has no processes to end.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn keep_end(kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_STDERR)..]);
    kept.drain(..kept.len().saturating_sub(MAX_STDERR));
}

fn ended(finished: &Finished, stderr: &[u8], shown: &str) -> String {
    let how = match finished.outcome {
        Outcome::Exited(NOT_FOUND) => format!("`{shown}` is not in the sandbox"),
        outcome => format!("it ended ({})", describe(outcome, None)),
    };
    format!("{how}{}", last_words(stderr))
}

/// The end of standard error, where there is any.
fn last_words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    match plain(text.trim()) {
        text if text.is_empty() => String::new(),
        text => format!("; the end of its standard error:\n{text}"),
    }
}
