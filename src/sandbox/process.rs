//! Commands: run, followed piece by piece, or left in the background.

use super::client::{Sandbox, out_of_place};
use super::expect::Expect;
use super::stream::{Incoming, PATIENCE, Sender};
use super::wire::{self, Message};
use super::{Command, Finished, Outcome, Output, Program};
use crate::error::{Error, Kind, Result};
use crate::event::Stream;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// How long after its time limit a command must have been reported: the guest's grace period, the killing, and
/// patience for a machine that is busy.
const OVERTIME: Duration = Duration::from_secs(7).saturating_add(PATIENCE);

impl Sandbox {
    /// Runs a command and waits for its end. Dropping the future kills the command with all that it started.
    /// Where guest or connection break meanwhile, the outcome is [`Outcome::Lost`].
    ///
    /// # Errors
    ///
    /// The command could not be started: its working directory is not there, the connection is broken already. A
    /// program that is not there is no error: the command ends with exit code 127 and says so.
    pub async fn run(
        &self,
        command: Command,
        on_output: &mut (dyn FnMut(Output<'_>) + Send),
    ) -> Result<Finished> {
        let mut process = self.spawn(command).await?;
        loop {
            match process.next().await? {
                ProcessEvent::Output(stream, bytes) => on_output(Output::Data(stream, &bytes)),
                ProcessEvent::Gap(bytes) => on_output(Output::Gap(bytes)),
                ProcessEvent::Finished(finished) => return Ok(finished),
            }
        }
    }

    /// Starts a command to be followed piece by piece. Output that is not asked for holds the command up once
    /// half a megabyte of it is waiting.
    ///
    /// # Errors
    ///
    /// The connection is broken. That the command cannot be started is told by [`Process::next`].
    pub async fn spawn(&self, command: Command) -> Result<Process> {
        let limit = command.timeout.map(|timeout| timeout.saturating_add(OVERTIME));
        let request = Message::Run { command: command.into() };
        let stream = self.connection.request(&request, Expect::Command)?;
        let stdin = stream.sender();
        let deadline = limit.and_then(|limit| tokio::time::Instant::now().checked_add(limit));
        Ok(Process { stream, stdin, deadline })
    }

    /// Starts a background job: its output is kept (the last 256 KiB) until [`Sandbox::job_output`] asks for it.
    /// The number counts from 1. At most 64 jobs run at once.
    ///
    /// # Errors
    ///
    /// The working directory is not there; too many jobs.
    pub async fn start_job(&self, command: Command) -> Result<u64> {
        let request = Message::StartJob { command: command.into() };
        match self.connection.request(&request, Expect::JobStarted)?.answer().await? {
            Message::JobStarted { job } => Ok(job),
            _ => Err(out_of_place()),
        }
    }

    /// What a job has written since the last call. Where that is nothing, waits for news or the end, for at most
    /// `wait` (which is cut to an hour).
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub async fn job_output(&self, job: u64, wait: Duration) -> Result<JobOutput> {
        let wait = wait.min(Duration::from_secs(3600));
        // At most 3,600,000: it fits.
        let request = Message::JobOutput { job, wait_ms: wait.as_millis() as u32 };
        self.collect(&request, wait + PATIENCE).await
    }

    /// Kills a job and everything that it started (TERM, 2 s, KILL), waits for the end, and hands over what it
    /// wrote since the last call.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub async fn job_kill(&self, job: u64) -> Result<JobOutput> {
        self.collect(&Message::JobKill { job }, OVERTIME).await
    }

    async fn collect(&self, request: &Message, patience: Duration) -> Result<JobOutput> {
        let mut stream = self.connection.request(request, Expect::JobOutput)?;
        let mut output = Vec::new();
        loop {
            match stream.next(Some(patience)).await? {
                Message::Output { stderr, bytes } => output.push(Piece::Data(stream_of(stderr), bytes.0)),
                Message::Gap { bytes } => output.push(Piece::Gap(bytes)),
                Message::JobState { finished } => {
                    stream.end();
                    return Ok(JobOutput { output, state: finished.map(Finished::from) });
                }
                _ => return Err(out_of_place()),
            }
        }
    }
}

/// What a job wrote and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutput {
    /// What is new, in order.
    pub output: Vec<Piece>,
    /// How it ended; `None` while it runs.
    pub state: Option<Finished>,
}

/// A piece of a job's output, or a gap in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes as the job wrote them.
    Data(Stream, Vec<u8>),
    /// This many bytes were left out here: nobody asked for them in time.
    Gap(u64),
}

/// A running command. Dropping it kills the command with all that it started.
pub struct Process {
    stream: Incoming,
    stdin: Sender,
    deadline: Option<tokio::time::Instant>,
}

/// What a running command does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEvent {
    /// It wrote something.
    Output(Stream, Vec<u8>),
    /// It wrote this many bytes that are left out here.
    Gap(u64),
    /// It ended. Nothing comes after this.
    Finished(Finished),
}

impl Process {
    /// What happens next. After [`ProcessEvent::Finished`] do not ask again.
    ///
    /// # Errors
    ///
    /// [`Kind::InSandbox`]: the command could not be started. A broken connection is no error but
    /// [`Outcome::Lost`].
    pub async fn next(&mut self) -> Result<ProcessEvent> {
        let patience =
            self.deadline.map(|at| at.saturating_duration_since(tokio::time::Instant::now()).max(PATIENCE));
        match self.stream.next(patience).await {
            Ok(Message::Output { stderr, bytes }) => Ok(ProcessEvent::Output(stream_of(stderr), bytes.0)),
            Ok(Message::Gap { bytes }) => Ok(ProcessEvent::Gap(bytes)),
            Ok(Message::Finished { finished }) => {
                self.stream.end();
                Ok(ProcessEvent::Finished(finished.into()))
            }
            Ok(_) => Err(out_of_place()),
            Err(error) if error.kind() == Kind::Sandbox => Ok(ProcessEvent::Finished(lost())),
            Err(error) => Err(error),
        }
    }

    /// Feeds standard input, as fast as the command takes it. What a command that has closed its standard input
    /// does not read is thrown away.
    ///
    /// # Errors
    ///
    /// The command has ended.
    pub async fn write_stdin(&self, bytes: &[u8]) -> Result<()> {
        if self.stdin.data(bytes).await {
            Ok(())
        } else {
            Err(Error::new(Kind::InSandbox, "the command has ended and reads no more"))
        }
    }

    /// Ends standard input.
    pub fn close_stdin(&self) {
        self.stdin.eof();
    }

    /// Kills the command with all that it started: TERM, 2 s, KILL. Its end is told by [`Process::next`].
    pub fn kill(&self) {
        self.stdin.say(&Message::Kill {});
    }
}

fn lost() -> Finished {
    Finished {
        outcome: Outcome::Lost,
        duration: Duration::ZERO,
        output_bytes: 0,
        spool: None,
        spool_bytes: 0,
        left_running: 0,
        oom_kills: 0,
    }
}

fn stream_of(stderr: bool) -> Stream {
    if stderr { Stream::Stderr } else { Stream::Stdout }
}

impl From<Command> for wire::Command {
    fn from(command: Command) -> Self {
        let bytes = |text: OsString| wire::Bytes(text.into_vec());
        Self {
            program: match command.program {
                Program::Shell(text) => wire::Program::Shell { text: text.into_bytes().into() },
                Program::Argv(words) => wire::Program::Argv { words: words.into_iter().map(bytes).collect() },
            },
            cwd: command.cwd.map(|path| path.as_os_str().as_bytes().into()),
            env: command.env.into_iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            timeout_ms: command.timeout.map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
            live_bytes: command.live_bytes,
            stdin: command.stdin,
        }
    }
}

impl From<wire::Finished> for Finished {
    fn from(finished: wire::Finished) -> Self {
        Self {
            outcome: match finished.outcome {
                wire::Outcome::Exited { code } => Outcome::Exited(code),
                wire::Outcome::Signaled { signal } => Outcome::Signaled(signal),
                wire::Outcome::TimedOut {} => Outcome::TimedOut,
                wire::Outcome::OomKilled {} => Outcome::OomKilled,
                wire::Outcome::OverQuota { bytes } => Outcome::OverQuota { bytes },
                wire::Outcome::Lost {} => Outcome::Lost,
            },
            duration: Duration::from_micros(finished.duration_us),
            output_bytes: finished.output_bytes,
            spool: finished.spool.map(|path| PathBuf::from(OsString::from_vec(path.0))),
            spool_bytes: finished.spool_bytes,
            left_running: finished.left_running,
            oom_kills: finished.oom_kills,
        }
    }
}
