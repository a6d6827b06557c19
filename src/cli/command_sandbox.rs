//! A sandbox for one command of the user, and its standard streams: for `agent exec` and `agent code`.

use super::console::Console;
use super::signals::{until_interrupted, with_signals};
use super::{kept_session, open, print, sandbox_settings};
use crate::agent::Interrupt;
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::cli::ui::json::output_error;
use crate::cli::ui::stderr;
use crate::error::{Error, Kind, Result};
use crate::event::Stream;
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sandbox::{Command, Controls, Finished, Outcome, ProcessEvent, Sandbox, reading_beside, wire};
use crate::sanitise::Sanitiser;
use crate::session::{Frontend, Notice, OneShot};
use rustix::event::{PollFd, PollFlags, poll};
use std::borrow::Cow;
use std::io::{IsTerminal, PipeReader, PipeWriter, Write};
use std::os::fd::BorrowedFd;
use std::process::ExitCode as ProcessExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Bytes of standard input that are read at a time.
const CHUNK: usize = 64 << 10;

/// The code of what ran, or the one for the failure of `agent` itself, which is reported.
pub fn exit_code(result: Result<u8>) -> ProcessExitCode {
    match result {
        Ok(code) => ProcessExitCode::from(code),
        // What a shell returns for a command whose reader is gone: 128 and SIGPIPE.
        Err(error) if error.kind() == Kind::OutputClosed => ProcessExitCode::from(141),
        Err(error) => match print::failure(&error) {
            code @ (ExitCode::Interrupted | ExitCode::Terminated) => code.into(),
            _ => ExitCode::ExecFailed.into(),
        },
    }
}

/// A sandbox for one command of the user: a session's, or a fresh one.
pub struct CommandSandbox {
    pub config: Config,
    pub sandbox: Sandbox,
    pub console: Arc<Console>,
    pub fresh: Option<OneShot>,
}

impl CommandSandbox {
    /// The sandbox of `session`, or a fresh one.
    pub async fn start(machine: &Arc<Machine>, options: &Options, session: Option<&str>) -> Result<Self> {
        let config = Config::load(machine, options)?;
        let console = Arc::new(Console::new(machine, options));
        let (sandbox, fresh) = match session {
            Some(id) => {
                refuse_sandbox_flags(&config.options)?;
                let attaching = kept_session::attach(&config.machine, id, &config.options);
                (until_interrupted(Interrupt::default(), attaching).await?, None)
            }
            None => {
                let fresh = fresh(&config, &console).await?;
                (fresh.sandbox.clone(), Some(fresh))
            }
        };
        // Notices precede the output of the command, and what was shown of the start does not stand in it.
        console.events().flush().await?;
        console.screen.progress().clear();
        Ok(Self { config, sandbox, console, fresh })
    }

    /// Runs `work` until its end or a signal.
    pub async fn run<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        until_interrupted(Interrupt::default(), work).await
    }

    /// Says why the sandbox does not answer any more, where that is known.
    pub async fn explain_loss(&self) {
        const ANSWER: Duration = Duration::from_secs(20);
        if let Ok(Err(error)) = tokio::time::timeout(ANSWER, self.sandbox.facts(&[])).await {
            stderr::write(&format!("agent: {error}\n"));
        }
    }

    /// Removes a fresh sandbox.
    pub async fn end(self) -> Result<()> {
        if let Some(fresh) = self.fresh {
            fresh.end().await;
        }
        self.console.events().flush().await
    }

    /// The time limit, where one was given: a user who waits can interrupt.
    pub fn timeout(&self) -> Option<Duration> {
        self.config.options.resources.timeout.as_ref().map(|_| self.config.bounds.timeout)
    }
}

/// A fresh sandbox. A signal meanwhile removes what there is of it.
async fn fresh(config: &Config, console: &Arc<Console>) -> Result<OneShot> {
    let stop = Interrupt::default();
    let preparing = async {
        let config = open::ask_about_project(config, console).await?;
        let (settings, reason) = sandbox_settings::sandbox(&config).await?;
        if let Some(Notice::Always(text)) = reason {
            console.always_notice(text)?;
        }
        let mut workspace = sandbox_settings::workspace(&config);
        open::ask_about_objects(&mut workspace, console).await?;
        Ok((workspace, settings))
    };
    let (workspace, settings) = until_interrupted(stop.clone(), preparing).await?;
    let directory = config.machine.data_dir()?.join("scratch");
    let starting = OneShot::start(&workspace, &settings, &directory, Arc::clone(console) as _, &stop);
    with_signals(stop.clone(), starting).await
}

/// Refuses the flags that describe how a sandbox is created: a session's exists already.
fn refuse_sandbox_flags(options: &Options) -> Result<()> {
    let Options { copy, backend, resources, keep, .. } = options;
    let given = [
        ("--workspace-mode", copy.workspace_mode.is_some()),
        ("--include", !copy.include.is_empty()),
        ("--exclude", !copy.exclude.is_empty()),
        ("--sandbox", backend.sandbox.is_some()),
        ("--image", backend.image.is_some()),
        ("--runtime", backend.runtime.is_some()),
        ("--allow-docker", backend.allow_docker),
        ("--network", resources.network.is_some()),
        ("--memory", resources.memory.is_some()),
        ("--cpus", resources.cpus.is_some()),
        ("--pids", resources.pids.is_some()),
        ("--disk", resources.disk.is_some()),
        ("--keep", keep.keep),
        ("--ttl", keep.ttl.is_some()),
        ("--delete-after", keep.delete_after.is_some()),
    ];
    let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    let hint = match flag {
        // The session's own process judges its connections.
        "--network" => {
            "allow the host with /network in that session's REPL, or leave -s out for a fresh sandbox"
        }
        _ => "leave it out, or leave -s out for a fresh sandbox",
    };
    Err(Error::usage(format!("{flag} has no effect on the sandbox of another session")).hint(hint))
}

/// Standard input into the command, its output to ours, until it ends. Neither direction waits for the other.
pub async fn pump(sandbox: &Sandbox, command: Command) -> Result<Finished> {
    let mut process = sandbox.spawn(command).await?;
    let controls = process.controls();
    let following = async {
        let mut output = ProgramOutput::new();
        loop {
            match process.next().await? {
                ProcessEvent::Output(stream, bytes) => output.pass_on(stream, &bytes).await?,
                // Everything is streamed, so nothing is ever left out.
                ProcessEvent::Gap(_) => {}
                ProcessEvent::Finished(finished) => return Ok(finished),
            }
        }
    };
    reading_beside(feed(&controls), following).await
}

/// Passes standard input on, until its end or the command's.
async fn feed(controls: &Controls) {
    let mut input = read_stdin();
    while let Some(bytes) = input.pieces.recv().await {
        // A command that has ended without reading all of it has not failed.
        if !controls.write(&bytes).await {
            return;
        }
    }
    controls.close_stdin();
}

/// Standard input in pieces. Dropping it ends the thread that reads: what a terminal answers later is for others.
struct StandardInput {
    pieces: mpsc::Receiver<Vec<u8>>,
    _reading: Option<PipeWriter>,
}

fn read_stdin() -> StandardInput {
    let (sender, pieces) = mpsc::channel(4);
    // Without a pipe the thread reads as long as this process runs.
    let (stopped, reading) = std::io::pipe().ok().unzip();
    std::thread::spawn(move || {
        let stdin = rustix::stdio::stdin();
        let mut buffer = vec![0; CHUNK];
        while is_input_wanted(stdin, stopped.as_ref())
            && let Ok(read @ 1..) = rustix::io::retry_on_intr(|| rustix::io::read(stdin, &mut buffer))
        {
            if sender.blocking_send(buffer[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    StandardInput { pieces, _reading: reading }
}

/// Waits for input; `false` where nobody wants it any more.
fn is_input_wanted(stdin: BorrowedFd<'_>, stopped: Option<&PipeReader>) -> bool {
    let Some(stopped) = stopped else { return true };
    loop {
        let mut waiting =
            [PollFd::from_borrowed_fd(stdin, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Ok(_) => return waiting[1].revents().is_empty(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

/// The output of the command: as it is into files and pipes, made harmless onto a terminal.
pub struct ProgramOutput {
    stdout: Option<Sanitiser>,
    stderr: Option<Sanitiser>,
}

impl ProgramOutput {
    pub fn new() -> Self {
        let sanitiser = |is_terminal: bool| is_terminal.then(Sanitiser::keeping_returns);
        Self {
            stdout: sanitiser(std::io::stdout().is_terminal()),
            stderr: sanitiser(std::io::stderr().is_terminal()),
        }
    }

    pub fn write(&mut self, stream: Stream, bytes: &[u8]) -> Result<()> {
        let bytes = self.harmless(stream, bytes);
        let mut out: Box<dyn Write> = match stream {
            Stream::Stdout => Box::new(std::io::stdout().lock()),
            Stream::Stderr => Box::new(std::io::stderr().lock()),
        };
        out.write_all(&bytes).and_then(|()| out.flush()).map_err(output_error)
    }

    /// [`Terminal::write`] that holds nothing else up while nobody reads there: neither the input nor a Ctrl-C.
    async fn pass_on(&mut self, stream: Stream, bytes: &[u8]) -> Result<()> {
        let bytes = self.harmless(stream, bytes);
        let mut out: Box<dyn AsyncWrite + Send + Unpin> = match stream {
            Stream::Stdout => Box::new(tokio::io::stdout()),
            Stream::Stderr => Box::new(tokio::io::stderr()),
        };
        out.write_all(&bytes).await.map_err(output_error)?;
        out.flush().await.map_err(output_error)
    }

    fn harmless<'a>(&mut self, stream: Stream, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let sanitiser = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let Some(sanitiser) = sanitiser else { return bytes.into() };
        let mut clean = String::new();
        sanitiser.push(&String::from_utf8_lossy(bytes), &mut clean);
        clean.into_bytes().into()
    }
}

/// The code that a shell would give: 128 and the signal, 124 for a time limit.
pub fn code_of(finished: &Finished) -> u8 {
    match finished.outcome {
        Outcome::Exited(code) => code as u8,
        Outcome::Signaled(signal) => 128u8.wrapping_add(signal as u8),
        Outcome::TimedOut => {
            stderr::write("agent: the command timed out\n");
            124
        }
        Outcome::OomKilled => {
            stderr::write("agent: the command was killed: out of memory\n");
            137
        }
        Outcome::OverQuota { bytes } => {
            stderr::write(&format!("agent: the command was killed: {}\n", wire::quota_used_up(bytes)));
            137
        }
        Outcome::Lost => {
            stderr::write("agent: the sandbox did not say how the command ended\n");
            ExitCode::ExecFailed.code()
        }
    }
}
