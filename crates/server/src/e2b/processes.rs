//! The processes of a sandbox: each is read by a task of its own and followed by any number of clients.

use super::connect::{Code, Failure};
use agent_base::lock::Lock;
use agent_envd::messages::process::{EndEvent, Output, ProcessConfig, Selector};
use agent_event::Stream;
use agent_sandbox::{
    Command, Controls, Finished, Outcome, Process, ProcessEvent, Sandbox, TerminalSize, wire::quota_used_up,
};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// Processes of one sandbox at a time.
const MAX_PROCESSES: usize = 512;
/// Processes that ended and can still be asked for their end.
const MAX_ENDED: usize = 512;
/// Clients that follow one process at a time.
const MAX_FOLLOWERS: usize = 16;
/// Pieces of output that wait for a client; then the program waits.
const QUEUE: usize = 64;
/// The time for which the end of a process can still be asked for.
const END_KEPT: Duration = Duration::from_secs(30);
/// The first number. These are not the numbers that programs inside see.
const FIRST_PID: u32 = 1000;

/// The news of a process for its client.
#[derive(Debug, Clone)]
pub enum News {
    Output(Output),
    End(EndEvent),
    /// It is not known how it ended.
    Failed(Failure),
}

/// A client's place in the queue of a process.
pub struct Follower {
    /// The process.
    pub pid: u32,
    /// The news from now on.
    pub news: mpsc::Receiver<News>,
}

/// A process, running or just ended.
pub struct Entry {
    pub pid: u32,
    pub config: ProcessConfig,
    pub tag: Option<String>,
    pub has_terminal: bool,
    has_stdin: bool,
    controls: Controls,
    /// Held while a request writes: pieces of two are not mixed. `true` when standard input was closed.
    input: Mutex<bool>,
    state: Lock<Followers>,
    reader: Lock<Option<AbortHandle>>,
}

#[derive(Default)]
struct Followers {
    followers: Vec<mpsc::Sender<News>>,
    last: Option<News>,
}

/// The program to start.
pub struct Start {
    pub command: Command,
    pub config: ProcessConfig,
    pub tag: Option<String>,
    pub terminal: Option<TerminalSize>,
    /// It is killed after this long, from here: a guest that is frozen answers late.
    pub limit: Option<Duration>,
}

/// All of a sandbox's.
#[derive(Default)]
pub struct Processes(Arc<Lock<ProcessTable>>);

#[derive(Default)]
struct ProcessTable {
    entries: BTreeMap<u32, Arc<Entry>>,
    started: u32,
}

impl ProcessTable {
    /// Makes room where a client starts many short processes.
    fn forget_ended(&mut self) {
        if self.entries.len() >= MAX_PROCESSES + MAX_ENDED {
            let oldest = self.entries.values().find(|entry| entry.has_ended()).map(|entry| entry.pid);
            oldest.and_then(|pid| self.entries.remove(&pid));
        }
    }
}

impl Processes {
    /// Starts one, followed from its first byte on.
    ///
    /// # Errors
    /// There are too many, or the sandbox is gone.
    pub async fn start(&self, sandbox: &Sandbox, start: Start) -> Result<Follower, Failure> {
        let Start { command, config, tag, terminal, limit } = start;
        if self.running().len() >= MAX_PROCESSES {
            return Err(Failure::new(
                Code::ResourceExhausted,
                format!("{MAX_PROCESSES} processes run already"),
            ));
        }
        let has_stdin = command.stdin;
        let process = match terminal {
            Some(size) => sandbox.spawn_in_terminal(command, size).await,
            None => sandbox.spawn(command).await,
        }
        .map_err(|error| Failure::new(Code::Unavailable, error.to_string()))?;
        let (sender, news) = mpsc::channel(QUEUE);
        let mut table = self.0.lock();
        table.forget_ended();
        let pid = FIRST_PID + table.started;
        table.started += 1;
        let entry = Arc::new(Entry {
            pid,
            config,
            tag,
            has_terminal: terminal.is_some(),
            has_stdin,
            controls: process.controls(),
            input: Mutex::new(false),
            state: Lock::new(Followers { followers: vec![sender], last: None }),
            reader: Lock::default(),
        });
        table.entries.insert(pid, Arc::clone(&entry));
        let reader = tokio::spawn(read(process, limit, Arc::clone(&entry), Arc::clone(&self.0)));
        *entry.reader.lock() = Some(reader.abort_handle());
        Ok(Follower { pid, news })
    }

    /// Those that run, by number.
    pub fn running(&self) -> Vec<Arc<Entry>> {
        self.0.lock().entries.values().filter(|entry| entry.state.lock().last.is_none()).cloned().collect()
    }

    /// Kills them all, with the sandbox. Those who follow one learn that the sandbox is gone.
    pub fn end(&self) {
        for entry in std::mem::take(&mut self.0.lock().entries).into_values() {
            if let Some(reader) = entry.reader.lock().take() {
                reader.abort();
            }
            entry.state.lock().followers.clear();
        }
    }

    /// The process that a request means.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, selector: Option<&Selector>) -> Result<Arc<Entry>, Failure> {
        let table = self.0.lock();
        let (found, shown) = match selector {
            Some(Selector::Pid(pid)) => (table.entries.get(pid).cloned(), format!("pid {pid}")),
            Some(Selector::Tag(tag)) => {
                let has_tag = |entry: &&Arc<Entry>| entry.tag.as_ref() == Some(tag);
                (table.entries.values().rev().find(has_tag).cloned(), format!("tag {tag:?}"))
            }
            None => return Err(Failure::new(Code::InvalidArgument, "the request names no process")),
        };
        found.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no process with {shown}")))
    }
}

impl Entry {
    /// Follows it from now on.
    ///
    /// # Errors
    /// Too many do already.
    pub fn follow(&self) -> Result<Follower, Failure> {
        let (sender, news) = mpsc::channel(QUEUE);
        let mut state = self.state.lock();
        state.followers.retain(|follower| !follower.is_closed());
        if let Some(last) = &state.last {
            // There is room for one.
            let _ = sender.try_send(last.clone());
        } else if state.followers.len() < MAX_FOLLOWERS {
            state.followers.push(sender);
        } else {
            let text = format!("{MAX_FOLLOWERS} clients follow the process already");
            return Err(Failure::new(Code::ResourceExhausted, text));
        }
        Ok(Follower { pid: self.pid, news })
    }

    /// Feeds standard input, as fast as the program reads it.
    ///
    /// # Errors
    /// It has none, or has ended.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let refused = |text: &str| Err(Failure::new(Code::FailedPrecondition, text));
        if !self.has_stdin {
            return refused("the process was started without standard input");
        }
        let is_closed = self.input.lock().await;
        if *is_closed {
            return refused("the standard input of the process is closed");
        }
        match self.controls.write(bytes).await {
            true => Ok(()),
            false => Err(Failure::new(Code::NotFound, "the process has ended")),
        }
    }

    /// Ends standard input.
    ///
    /// # Errors
    /// It is a terminal, which has no end.
    pub async fn close_stdin(&self) -> Result<(), Failure> {
        if self.has_terminal {
            let text = "a terminal's input cannot be closed: send the character 0x04";
            return Err(Failure::new(Code::FailedPrecondition, text));
        }
        *self.input.lock().await = true;
        self.controls.close_stdin();
        Ok(())
    }

    /// Sends a signal to its process group.
    pub fn signal(&self, signal: i32) {
        self.controls.signal(signal);
    }

    /// Changes its terminal's size.
    pub fn resize(&self, size: TerminalSize) {
        self.controls.resize(size);
    }

    /// Returns whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.state.lock().last.is_some()
    }
}

/// Hands what the process does to everybody who follows it, and forgets it some time after its end.
async fn read(
    mut process: Process,
    limit: Option<Duration>,
    entry: Arc<Entry>,
    table: Arc<Lock<ProcessTable>>,
) {
    let ends = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut is_over = false;
    let last = loop {
        let event = tokio::select! {
            event = process.next() => event,
            () = at(ends), if !is_over => {
                is_over = true;
                process.kill();
                continue;
            }
        };
        let output = match event {
            Ok(ProcessEvent::Output(stream, bytes)) => match stream {
                _ if entry.has_terminal => Output::Pty(bytes),
                Stream::Stdout => Output::Stdout(bytes),
                Stream::Stderr => Output::Stderr(bytes),
            },
            // Everything is streamed, so nothing is ever left out.
            Ok(ProcessEvent::Gap(_)) => continue,
            Ok(ProcessEvent::Finished(_)) if is_over => {
                let text = "the process reached its time limit";
                break News::Failed(Failure::new(Code::DeadlineExceeded, text));
            }
            Ok(ProcessEvent::Finished(finished)) => break end(&finished),
            Err(error) => break News::Failed(Failure::new(Code::InvalidArgument, error.to_string())),
        };
        let followers = entry.state.lock().followers.clone();
        let passing_on = async {
            for follower in followers {
                let news = News::Output(output.clone());
                // One that has gone is removed with the next one that comes. After the end of its time, a process waits for none.
                match is_over {
                    true => drop(follower.try_send(news)),
                    false => drop(follower.send(news).await),
                }
            }
        };
        tokio::select! {
            () = passing_on => {}
            () = at(ends), if !is_over => {
                is_over = true;
                process.kill();
            }
        }
    };
    let followers = {
        let mut state = entry.state.lock();
        state.last = Some(last.clone());
        std::mem::take(&mut state.followers)
    };
    // One that does not read holds up none of the others.
    join_all(followers.iter().map(|follower| follower.send(last.clone()))).await;
    tokio::time::sleep(END_KEPT).await;
    table.lock().entries.remove(&entry.pid);
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn end(finished: &Finished) -> News {
    let exited = |exit_code, status: String| EndEvent { exit_code, exited: true, status, error: None };
    let killed = |status: String| {
        News::End(EndEvent { exit_code: -1, exited: false, error: Some(status.clone()), status })
    };
    match finished.outcome {
        Outcome::Exited(0) => News::End(exited(0, "exit status 0".into())),
        Outcome::Exited(code) => {
            let status = format!("exit status {code}");
            News::End(EndEvent { error: Some(status.clone()), ..exited(code, status) })
        }
        Outcome::Signaled(libc::SIGKILL) => killed("signal: killed".into()),
        Outcome::Signaled(libc::SIGTERM) => killed("signal: terminated".into()),
        Outcome::Signaled(signal) => killed(format!("signal: {signal}")),
        Outcome::OomKilled => killed("signal: killed (out of memory)".into()),
        Outcome::OverQuota { bytes } => killed(format!("signal: killed ({})", quota_used_up(bytes))),
        Outcome::TimedOut | Outcome::Lost => News::Failed(Failure::new(
            Code::Unavailable,
            "the connection to the sandbox ended before the process did",
        )),
    }
}
