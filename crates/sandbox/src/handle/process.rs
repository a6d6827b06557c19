//! Commands and jobs.

use super::connection::Connection;
use super::expect::Expect;
use super::stream::{ANSWER_TIMEOUT, Incoming, Sender};
use super::{Sandbox, unexpected_answer};
use crate::Output;
use agent_base::error::Error;
use agent_base::error::Kind;
use agent_base::error::Result;
use agent_event::Stream;
use agent_wire::{Command, Finished, Message, Outcome, Program, TerminalSize};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The time after a command's limit by which its end must have been reported: the guest's grace period, the killing, and
/// time for a busy machine.
const OVERTIME: Duration = Duration::from_secs(7).saturating_add(ANSWER_TIMEOUT);

/// Jobs that the guest keeps.
const MAX_JOBS: u64 = 64;
/// A job that writes nothing for this long has nothing to say about its end, and how long it is listened to in all.
const SILENCE: Duration = Duration::from_millis(100);
const LISTENED: Duration = Duration::from_secs(1);

impl Sandbox {
    /// Runs a command and waits for its end. Dropping the future kills the command with all that it started.
    /// Where the guest or the connection breaks, the outcome is [`Outcome::Lost`].
    ///
    /// # Errors
    ///
    /// The command could not be started: its working directory is not there, the connection is broken already. A
    /// program that is not there is not an error: the command ends with exit code 127.
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
    /// The connection is broken. [`Process::next`] reports that the command cannot be started.
    pub async fn spawn(&self, command: Command) -> Result<Process> {
        self.spawn_with(command, None).await
    }

    /// Like [`Sandbox::spawn`], with a terminal of this size as standard input and both outputs. `TERM` is the caller's
    /// to set.
    ///
    /// # Errors
    ///
    /// As [`Sandbox::spawn`].
    pub async fn spawn_in_terminal(&self, command: Command, size: TerminalSize) -> Result<Process> {
        self.spawn_with(command, Some(size)).await
    }

    async fn spawn_with(&self, command: Command, terminal: Option<TerminalSize>) -> Result<Process> {
        let command = self.with_long_text(self.in_environment(command)).await?;
        let limit = command.timeout.map(|timeout| timeout.saturating_add(OVERTIME));
        let message = Message::Run { command, terminal, read_only: self.read_only };
        let stream = self.link.request(&message, Expect::Command).await?;
        let deadline = limit.and_then(|limit| tokio::time::Instant::now().checked_add(limit));
        Ok(Process {
            sender: stream.sender(),
            stream,
            deadline,
            job: None,
            followed: self.link.programs.follow(),
        })
    }

    /// A command's own variables are above those of the handle.
    fn in_environment(&self, mut command: Command) -> Command {
        command.env.splice(0..0, self.env.iter().cloned());
        command.cwd = match command.cwd {
            Some(directory) => Some(directory),
            None => self.directory().map(std::path::Path::to_owned),
        };
        command
    }

    /// Starts a background job. It outlives this client. Its output is kept (the last 256 KiB) for
    /// [`Sandbox::job_output`] and [`Sandbox::attach_job`]. The number counts from 1. At most 64 jobs run at once.
    ///
    /// # Errors
    ///
    /// The working directory is not there; too many jobs.
    pub async fn start_job(&self, command: Command) -> Result<u64> {
        self.start_job_with(command, None).await
    }

    /// Like [`Sandbox::start_job`], with a terminal of this size.
    ///
    /// # Errors
    ///
    /// As [`Sandbox::start_job`].
    pub async fn start_job_in_terminal(&self, command: Command, size: TerminalSize) -> Result<u64> {
        self.start_job_with(command, Some(size)).await
    }

    async fn start_job_with(&self, command: Command, terminal: Option<TerminalSize>) -> Result<u64> {
        let (command, read_only) = (self.in_environment(command), self.read_only);
        let text = match &command.program {
            Program::Shell(text) => text.clone(),
            Program::Argv(words) => {
                words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
            }
        };
        let command = self.with_long_text(command).await?;
        let request = Message::StartJob { command, terminal, read_only };
        let connection = self.link.connection().await;
        match connection.request(&request, Expect::JobStarted)?.answer().await {
            Ok(Message::JobStarted { job }) => {
                self.link.jobs.lock().insert(job, text);
                Ok(job)
            }
            Ok(_) => Err(unexpected_answer()),
            // Sent again, it might run twice.
            Err(error) if self.link.is_joined_again(&connection) => {
                Err(Error::new(Kind::InSandbox, format!("whether the job was started is not known: {error}"))
                    .hint("look at the processes, and start it again where it does not run"))
            }
            Err(error) => Err(error),
        }
    }

    /// Follows a job and feeds its standard input, from byte `from` of its output on: a client that has lost its
    /// connection continues where it was. What is no longer kept is a gap. Dropping the [`Process`] leaves the job
    /// running; a client that attaches later takes it over.
    ///
    /// # Errors
    ///
    /// The connection is broken. [`Process::next`] reports that the job does not exist, or that another client took it
    /// over.
    pub async fn attach_job(&self, job: u64, from: u64) -> Result<Process> {
        let stream = self.link.request(&Message::AttachJob { job, from }, Expect::Command).await?;
        let job = Some((self.clone(), job));
        Ok(Process {
            sender: stream.sender(),
            stream,
            deadline: None,
            job,
            followed: self.link.programs.follow(),
        })
    }

    /// Returns what a job has written since the last call. Where that is nothing, waits for news or the end, for at most
    /// `wait` (which is cut to an hour).
    ///
    /// # Errors
    ///
    /// The job does not exist.
    pub async fn job_output(&self, job: u64, wait: Duration) -> Result<JobOutput> {
        let wait = wait.min(Duration::from_secs(3600));
        // At most 3,600,000: it fits.
        let request = Message::JobOutput { job, wait_ms: wait.as_millis() as u32 };
        self.collect(request, wait + ANSWER_TIMEOUT).await
    }

    /// Kills a job and everything that it started (TERM, 2 s, KILL), waits for the end, and returns what it
    /// wrote since the last call.
    ///
    /// # Errors
    ///
    /// The job does not exist.
    pub async fn job_kill(&self, job: u64) -> Result<JobOutput> {
        self.collect(Message::JobKill { job }, OVERTIME).await
    }

    /// Returns whether this process has started a job.
    pub fn has_started_jobs(&self) -> bool {
        !self.link.jobs.lock().is_empty()
    }

    /// Returns whether something may run that this process has started: a job, a command that has not ended, or what one left behind.
    pub fn may_run_programs(&self) -> bool {
        self.has_started_jobs() || self.link.programs.may_run()
    }

    /// The jobs that run, with what was started where this process did that. What they have written is as unread as before.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub async fn running_jobs(&self) -> Result<Vec<(u64, Option<String>)>> {
        let known = self.link.jobs.lock().clone();
        let mut running = Vec::new();
        for job in 1..=MAX_JOBS.max(known.keys().next_back().copied().unwrap_or(0)) {
            match self.is_running(job).await {
                Ok(true) => running.push((job, known.get(&job).cloned())),
                Ok(false) => {}
                // The oldest that have ended are forgotten; behind the last one there is none.
                Err(error) if error.kind() == Kind::InSandbox && known.range(job..).next().is_some() => {}
                Err(error) if error.kind() == Kind::InSandbox => break,
                Err(error) => return Err(error),
            }
        }
        Ok(running)
    }

    /// Returns whether a job runs: one that has ended says that behind its output.
    async fn is_running(&self, job: u64) -> Result<bool> {
        let mut process = self.attach_job(job, 0).await?;
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < LISTENED {
            match tokio::time::timeout(SILENCE, process.next()).await {
                Err(_) => return Ok(true),
                Ok(Ok(ProcessEvent::Finished(_))) => return Ok(false),
                Ok(event) => drop(event?),
            }
        }
        Ok(true)
    }

    async fn collect(&self, request: Message, timeout: Duration) -> Result<JobOutput> {
        let request = &request;
        let collect = |connection: Arc<Connection>| collect(connection, request, timeout);
        self.link.repeat(collect).await
    }
}

async fn collect(connection: Arc<Connection>, request: &Message, timeout: Duration) -> Result<JobOutput> {
    let mut stream = connection.request(request, Expect::JobOutput)?;
    let mut output = Vec::new();
    loop {
        match stream.next(Some(timeout)).await? {
            Message::Output { stderr, bytes } => output.push(Piece::Data(stream_of(stderr), bytes)),
            Message::Gap { bytes } => output.push(Piece::Gap(bytes)),
            Message::JobState { finished } => {
                stream.end();
                return Ok(JobOutput { output, state: finished });
            }
            _ => return Err(unexpected_answer()),
        }
    }
}

/// The output and the state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutput {
    /// The new output, in order.
    pub output: Vec<Piece>,
    /// The outcome; `None` while it runs.
    pub state: Option<Finished>,
}

/// A piece of a job's output, or a gap in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes as the job wrote them.
    Data(Stream, Vec<u8>),
    /// This many bytes were left out here: they were not asked for in time.
    Gap(u64),
}

/// A running command, or a job that this client is attached to. Dropping it kills a command with all that it started,
/// and leaves a job running.
pub struct Process {
    stream: Incoming,
    sender: Sender,
    deadline: Option<tokio::time::Instant>,
    job: Option<(Sandbox, u64)>,
    followed: Followed,
}

/// The programs of a sandbox that this process has started and that may run.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// Commands whose end is not known.
    followed: AtomicUsize,
    /// Set if a command has left something behind.
    were_left: AtomicBool,
}

impl Programs {
    fn follow(self: &Arc<Self>) -> Followed {
        self.followed.fetch_add(1, Ordering::Relaxed);
        Followed(Arc::clone(self))
    }

    fn may_run(&self) -> bool {
        self.followed.load(Ordering::Relaxed) > 0 || self.were_left.load(Ordering::Relaxed)
    }
}

/// A command that counts as running until it is dropped.
struct Followed(Arc<Programs>);

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.followed.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for `reading` a command's output, and runs `feeding` its input beside it: a command may write much before it
/// reads anything, and may end without having read.
pub async fn reading_beside<T>(feeding: impl Future<Output = ()>, reading: impl Future<Output = T>) -> T {
    let mut reading = pin!(reading);
    tokio::select! {
        read = &mut reading => read,
        () = feeding => reading.await,
    }
}

/// The next step of a running command.
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
    /// Returns what happens next. After [`ProcessEvent::Finished`] do not ask again.
    ///
    /// # Errors
    ///
    /// [`Kind::InSandbox`]: the command could not be started. A broken connection is not an error but
    /// [`Outcome::Lost`].
    pub async fn next(&mut self) -> Result<ProcessEvent> {
        let timeout = self
            .deadline
            .map(|at| at.saturating_duration_since(tokio::time::Instant::now()).max(ANSWER_TIMEOUT));
        match self.stream.next(timeout).await {
            Ok(Message::Output { stderr, bytes }) => Ok(ProcessEvent::Output(stream_of(stderr), bytes)),
            Ok(Message::Gap { bytes }) => Ok(ProcessEvent::Gap(bytes)),
            Ok(Message::Finished { finished }) => {
                self.stream.end();
                if finished.left_running > 0 {
                    self.followed.0.were_left.store(true, Ordering::Relaxed);
                }
                Ok(ProcessEvent::Finished(finished))
            }
            Ok(_) => Err(unexpected_answer()),
            Err(error) if error.kind() == Kind::Sandbox => Ok(ProcessEvent::Finished(lost())),
            Err(error) => Err(error),
        }
    }

    /// Feeds standard input, as fast as the command takes it. What a command that has closed its standard input
    /// does not read is discarded. A command whose output is not read meanwhile may take no more: more than a few
    /// bytes are fed beside the reading, see [`Process::controls`] and [`reading_beside`].
    ///
    /// # Errors
    ///
    /// The command has ended.
    pub async fn write_stdin(&self, bytes: &[u8]) -> Result<()> {
        if self.sender.data(bytes).await {
            Ok(())
        } else {
            Err(Error::new(Kind::InSandbox, "the command has ended and reads no more"))
        }
    }

    /// Ends standard input.
    pub fn close_stdin(&self) {
        self.sender.eof();
    }

    /// Returns what controls the command while [`Process::next`] is waited for.
    pub fn controls(&self) -> Controls {
        Controls(self.sender.clone())
    }

    /// Kills the command or job with all that it started: TERM, 2 s, KILL. [`Process::next`] reports its end.
    pub fn kill(&self) {
        match &self.job {
            None => self.sender.send(&Message::Kill {}),
            // A broken connection is reported by `next`.
            Some((sandbox, job)) => {
                drop(sandbox.link.latest().request(&Message::JobKill { job: *job }, Expect::JobOutput))
            }
        }
    }

    /// Sends a signal to the command's process group, or to the foreground process group of its terminal.
    pub fn signal(&self, signal: i32) {
        self.sender.send(&Message::Signal { signal });
    }

    /// Sets the size of the command's terminal. Without a terminal nothing happens.
    pub fn resize(&self, size: TerminalSize) {
        self.sender.send(&Message::Resize { size });
    }
}

/// The standard input, the size and the end of a running command.
#[derive(Clone)]
pub struct Controls(Sender);

impl Controls {
    /// Feeds standard input, as fast as the command takes it. `false` where the command has ended.
    pub async fn write(&self, bytes: &[u8]) -> bool {
        self.0.data(bytes).await
    }

    /// Ends standard input.
    pub fn close_stdin(&self) {
        self.0.eof();
    }

    /// Sends a signal to the command's process group, or to the foreground process group of its terminal.
    pub fn signal(&self, signal: i32) {
        self.0.send(&Message::Signal { signal });
    }

    /// Sets the size of the command's terminal. Without a terminal nothing happens.
    pub fn resize(&self, size: TerminalSize) {
        self.0.send(&Message::Resize { size });
    }

    /// Kills the command with all that it started: TERM, 2 s, KILL. Of a job, it ends the connection to it.
    pub fn kill(&self) {
        self.0.send(&Message::Kill {});
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
