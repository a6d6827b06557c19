//! A command or job: its start, its input and output, its end.

use crate::client::{Client, Failure, would_block};
use crate::facts::OomCounter;
use crate::output::{Next, Spool, SpoolDirectory, Tail};
use crate::processes;
use crate::supervisor::{self, Plan, Report};
use crate::sys::{self, POLLIN, POLLOUT, Poll};
use agent_wire::{
    self as wire, CHUNK, FRAME_COST, Finished, Message, Outcome, ReceiveWindow, TerminalSize, WINDOW,
    WindowBudget, cost,
};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Signals that wait for a program that is being started, and how often it is looked for.
const MAX_UNSENT: usize = 16;
const SIGNAL_PAUSE: Duration = Duration::from_millis(5);
/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);
/// Between one KILL of all that is left and the next.
const KILL_AGAIN: Duration = Duration::from_millis(20);
/// Processes that a KILL does not end within this time (stuck in the kernel) are abandoned and counted.
const GIVE_UP: Duration = Duration::from_secs(5);

/// More output than this that an attached client has not received yet holds the job up.
const UNRECEIVED: u64 = 128 << 10;
/// After a command has ended, at most this much is read from its terminal.
const TERMINAL_REST: usize = 1 << 20;
/// Ends the input of a program that reads lines from a terminal: Ctrl-D.
const END_OF_TRANSMISSION: u8 = 4;

/// The reason why a command is being ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    TimeLimit,
    Request,
    /// The sandbox's disk quota, in bytes.
    Quota(u64),
    /// Its sockets hold too much memory.
    Memory,
}

/// A command that is being ended.
struct Ending {
    reason: Reason,
    since: Instant,
    next: Instant,
    given_up: bool,
}

/// The stream of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    pub client: u64,
    pub id: u32,
}

/// Standard input that the command has not read yet.
struct Stdin {
    pipe: Option<File>,
    waiting: Vec<u8>,
    waiting_cost: u32,
    window: ReceiveWindow,
    ended: bool,
}

/// One of the two outputs, or the terminal.
struct Source {
    pipe: Option<File>,
    stderr: bool,
    /// Once the command has ended: what is still read from the pipe.
    left: Option<usize>,
}

pub struct Command {
    /// The receiver of output and end; `None` for a job that nobody is attached to, and when the client is gone.
    pub owner: Option<StreamId>,
    is_job: bool,
    supervisor: i32,
    supervisor_gone: bool,
    status: File,
    stdin: Stdin,
    sources: [Source; 2],
    terminal: Option<File>,
    started: Instant,
    deadline: Option<Instant>,
    report: Option<(Report, Duration)>,
    ending: Option<Ending>,
    /// Signals that came before the program was there.
    unsent: Vec<i32>,
    live_left: u64,
    credit: u32,
    tail: Tail,
    /// The position in the tail up to which the owner has received it.
    received: u64,
    /// The position in the tail up to which it has been reported to those who ask for a job's output.
    reported: u64,
    spool: Spool,
    output_bytes: u64,
    oom_before: u64,
    /// Set once, when the command has ended and its output has been read.
    pub finished: Option<Finished>,
}

impl Command {
    /// Starts it. `owner` is `None` for a job.
    pub fn start(
        command: wire::Command,
        plan: &Plan,
        owner: Option<StreamId>,
        oom: &OomCounter,
    ) -> Result<Self, Failure> {
        let oom_before = oom.read();
        let started = Instant::now();
        let child = supervisor::spawn(plan).map_err(|error| Failure::io("cannot start a process", &error))?;
        let source = |pipe, stderr| Source { pipe, stderr, left: None };
        Ok(Self {
            owner,
            is_job: owner.is_none(),
            supervisor: child.supervisor,
            supervisor_gone: false,
            status: child.status,
            stdin: Stdin {
                pipe: child.stdin,
                waiting: Vec::new(),
                waiting_cost: 0,
                window: ReceiveWindow::default(),
                ended: false,
            },
            sources: [source(Some(child.stdout), false), source(child.stderr, true)],
            terminal: child.terminal,
            started,
            deadline: command.timeout.and_then(|timeout| started.checked_add(timeout)),
            report: None,
            ending: None,
            unsent: Vec::new(),
            live_left: if owner.is_some() { command.live_bytes } else { 0 },
            credit: WINDOW,
            tail: Tail::default(),
            received: 0,
            reported: 0,
            spool: Spool::default(),
            output_bytes: 0,
            oom_before,
            finished: None,
        })
    }

    pub fn supervisor(&self) -> i32 {
        self.supervisor
    }

    /// The supervisor has been reaped: no process is left, unless the supervisor itself was killed.
    pub fn supervisor_ended(&mut self) {
        // What it wrote last is still in the pipe.
        self.read_report();
        self.supervisor_gone = true;
    }

    /// Returns whether nothing remains to be done for it.
    pub fn over(&self) -> bool {
        self.finished.is_some() && self.supervisor_gone
    }

    /// Returns whether it is over but for processes that it left running.
    pub fn left_processes(&self) -> bool {
        self.finished.is_some() && !self.supervisor_gone
    }

    /// Returns whether it is being killed and not dead yet.
    pub fn dying(&self) -> bool {
        !self.supervisor_gone && self.ending.as_ref().is_some_and(|ending| !ending.given_up)
    }

    /// Ends it and everything that it started.
    pub fn end(&mut self) {
        self.begin_to_end(Reason::Request);
    }

    /// The owner's connection has ended: a command ends with it, a job continues.
    pub fn owner_is_gone(&mut self) {
        self.owner = None;
        if self.finished.is_none() && !self.is_job {
            self.end();
        }
    }

    /// Kills it and everything that it started at once, because the sandbox's disk quota of `bytes` is used up.
    pub fn end_over_quota(&mut self, bytes: u64) {
        self.end_at_once(Reason::Quota(bytes));
    }

    /// Kills it and everything that it started at once, because the sandbox's sockets hold more memory than they may.
    pub fn end_out_of_memory(&mut self) {
        self.end_at_once(Reason::Memory);
    }

    /// Kills it and everything that it started at once.
    pub fn end_now(&mut self) {
        self.end_at_once(Reason::Request);
    }

    fn end_at_once(&mut self, reason: Reason) {
        processes::kill_below(self.supervisor);
        self.begin_to_end(reason);
        if let Some(ending) = &mut self.ending {
            // No time to take more.
            ending.since = ending.since.checked_sub(GRACE).unwrap_or(ending.since);
            ending.next = Instant::now();
        }
    }

    fn begin_to_end(&mut self, reason: Reason) {
        if self.ending.is_none() && !self.supervisor_gone {
            let now = Instant::now();
            self.ending = Some(Ending { reason, since: now, next: now, given_up: false });
        }
    }

    /// More of the output may be sent.
    pub fn give_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes);
    }

    /// Accepts standard input from the host. `false` when that is more than it may send.
    pub fn push_stdin(&mut self, bytes: &[u8]) -> bool {
        let cost = cost(bytes.len());
        self.stdin.waiting_cost = self.stdin.waiting_cost.saturating_add(cost);
        if self.stdin.pipe.is_some() {
            self.stdin.waiting.extend_from_slice(bytes);
        }
        self.stdin.window.receive(cost)
    }

    /// Has the output of a job from byte `from` sent to `stream`, which may feed its input. The stream that was attached
    /// before.
    pub fn attach(
        &mut self,
        stream: StreamId,
        from: u64,
        budget: &mut WindowBudget,
    ) -> Result<Option<StreamId>, Failure> {
        if from > self.tail.end() {
            return Err(Failure::new(format!("the job has written only {} bytes", self.tail.end())));
        }
        self.received = from;
        self.credit = WINDOW;
        self.stdin.window.release(budget);
        self.stdin.window = ReceiveWindow::default();
        self.stdin.waiting_cost = 0;
        Ok(self.owner.replace(stream))
    }

    pub fn resize(&self, size: TerminalSize) {
        if let Some(terminal) = &self.terminal {
            sys::set_terminal_size(terminal.as_raw_fd(), size.rows, size.columns);
        }
    }

    /// Signals the terminal's foreground process group, or the command's own. Before the program is there, the signal waits for it.
    pub fn signal(&mut self, signal: i32) {
        if self.finished.is_none() && self.unsent.len() < MAX_UNSENT {
            self.unsent.push(signal);
            self.send_signals();
        }
    }

    fn send_signals(&mut self) {
        if self.report.is_some() || self.supervisor_gone {
            self.unsent.clear();
        }
        if self.unsent.is_empty() {
            return;
        }
        let Some(group) = processes::first_child_group(self.supervisor) else { return };
        for signal in self.unsent.drain(..) {
            match &self.terminal {
                Some(terminal) => sys::signal_terminal(terminal.as_raw_fd(), signal),
                None => sys::kill(-group, signal),
            }
        }
    }

    pub fn end_stdin(&mut self) {
        self.stdin.ended = true;
    }

    /// Returns the time when this must be stepped again even if nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.unsent.is_empty() {
            return Some(Instant::now() + SIGNAL_PAUSE);
        }
        match &self.ending {
            Some(ending) if !self.supervisor_gone && !ending.given_up => Some(ending.next),
            None if self.report.is_none() => self.deadline,
            _ => None,
        }
    }

    pub fn interest(&self, client: Option<&Client>, poll: &mut Poll) {
        if self.report.is_none() && !self.supervisor_gone {
            poll.add(self.status.as_raw_fd(), POLLIN);
        }
        for source in &self.sources {
            if let Some(pipe) = &source.pipe
                && self.appetite(source, client) > 0
            {
                poll.add(pipe.as_raw_fd(), POLLIN);
            }
        }
        if let Some(pipe) = &self.stdin.pipe
            && !self.stdin.waiting.is_empty()
        {
            poll.add(pipe.as_raw_fd(), POLLOUT);
        }
    }

    /// Returns the number of bytes that may be taken from a source now.
    fn appetite(&self, source: &Source, client: Option<&Client>) -> usize {
        let wanted = source.left.unwrap_or(CHUNK).min(CHUNK);
        match client {
            Some(_) if self.is_job && self.tail.end() - self.received >= UNRECEIVED => 0,
            // It is only kept, or not even that.
            _ if self.finished.is_some() || self.live_left == 0 => wanted,
            None => wanted,
            Some(client) if client.congested() => 0,
            Some(_) => wanted
                .min(self.credit.saturating_sub(FRAME_COST) as usize)
                .min(usize::try_from(self.live_left).unwrap_or(usize::MAX)),
        }
    }

    /// Moves bytes, checks deadlines, and reports the end.
    #[expect(clippy::too_many_arguments, reason = "parts of the server that are borrowed one by one")]
    pub fn step(
        &mut self,
        mut client: Option<&mut Client>,
        poll: &Poll,
        buffer: &mut [u8],
        spools: &mut SpoolDirectory,
        budget: &mut WindowBudget,
        oom: &OomCounter,
    ) {
        self.read_report();
        self.send_signals();
        self.feed(client.as_deref_mut(), budget);
        for index in 0..self.sources.len() {
            self.drain(index, client.as_deref_mut(), poll, buffer, spools);
        }
        self.check_deadlines();
        let ended = self.finished.is_none() && self.concluded();
        let sent = match client.as_deref_mut() {
            Some(client) if self.is_job || ended => self.send_tail(client),
            _ => true,
        };
        // The end of a command's output is sent before its end; a job's is kept.
        if ended && (sent || self.is_job) {
            self.finished = Some(self.conclude(spools, oom));
            self.stdin.window.release(budget);
            // A background child may hold the pipes; it would die of a closed one, so they are drained further.
            self.sources.iter_mut().for_each(|source| source.left = None);
        }
        if sent
            && let (Some(client), Some(finished)) = (client, &self.finished)
            && let Some(owner) = self.owner.take()
        {
            client.send(owner.id, &Message::Finished { finished: finished.clone() });
        }
    }

    fn read_report(&mut self) {
        let mut bytes = [0; Report::BYTES];
        if self.report.is_none() && matches!(self.status.read(&mut bytes), Ok(Report::BYTES)) {
            self.report = Some((Report::from_bytes(bytes), self.started.elapsed()));
        }
    }

    /// Writes standard input and returns credit for what was written.
    fn feed(&mut self, client: Option<&mut Client>, budget: &mut WindowBudget) {
        let is_terminal = self.terminal.is_some();
        let stdin = &mut self.stdin;
        while let Some(pipe) = &mut stdin.pipe
            && !stdin.waiting.is_empty()
        {
            match pipe.write(&stdin.waiting) {
                Ok(length) => drop(stdin.waiting.drain(..length)),
                Err(error) if would_block(&error) => return,
                Err(_) => {
                    // The command reads no more. What still arrives is discarded.
                    stdin.pipe = None;
                    stdin.waiting = Vec::new();
                }
            }
        }
        if stdin.ended
            && let Some(mut pipe) = stdin.pipe.take()
            && is_terminal
        {
            // A full terminal has no reader to notify.
            let _ = pipe.write(&[END_OF_TRANSMISSION]);
        }
        if let (Some(client), Some(owner), 1..) = (client, self.owner, stdin.waiting_cost) {
            let written = std::mem::take(&mut stdin.waiting_cost);
            if let Some(bytes) = stdin.window.consume(written, true, budget) {
                client.send(owner.id, &Message::Credit { bytes });
            }
        }
    }

    fn drain(
        &mut self,
        index: usize,
        client: Option<&mut Client>,
        poll: &Poll,
        buffer: &mut [u8],
        spools: &mut SpoolDirectory,
    ) {
        let ended = self.finished.is_none() && self.ended();
        let appetite = self.appetite(&self.sources[index], client.as_deref());
        let source = &mut self.sources[index];
        let Some(pipe) = &mut source.pipe else { return };
        if ended && source.left.is_none() {
            // What a background child writes from now on is not the command's output. A terminal passes on what was
            // written to it when it is read, and does not count it before.
            let is_terminal = self.terminal.is_some();
            let waiting = if is_terminal { TERMINAL_REST } else { sys::bytes_waiting(pipe.as_raw_fd()) };
            source.left = Some(waiting);
        }
        let wanted = appetite.min(source.left.unwrap_or(usize::MAX));
        if wanted == 0 || !(poll.readable(pipe.as_raw_fd()) || source.left.is_some()) {
            return;
        }
        let stderr = source.stderr;
        let length = match pipe.read(&mut buffer[..wanted]) {
            Err(error) if would_block(&error) => {
                if self.terminal.is_some() && source.left.is_some() {
                    source.left = Some(0);
                }
                return;
            }
            Ok(0) | Err(_) => {
                source.pipe = None;
                return;
            }
            Ok(length) => length,
        };
        if let Some(left) = &mut source.left {
            *left -= length;
        }
        if self.finished.is_none() {
            self.keep(stderr, &buffer[..length], client, spools);
        }
    }

    fn keep(&mut self, stderr: bool, bytes: &[u8], client: Option<&mut Client>, spools: &mut SpoolDirectory) {
        self.output_bytes += bytes.len() as u64;
        self.spool.push(bytes, spools);
        match (client, self.owner) {
            (Some(client), Some(owner)) if self.live_left > 0 && !self.is_job => {
                client.send(owner.id, &Message::Output { stderr, bytes: bytes.into() });
                self.credit -= cost(bytes.len());
                self.live_left -= bytes.len() as u64;
            }
            _ => self.tail.push(stderr, bytes),
        }
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        if self.report.is_none() && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.begin_to_end(Reason::TimeLimit);
        }
        let Some(ending) = &mut self.ending else { return };
        if self.supervisor_gone || ending.given_up || now < ending.next {
            return;
        }
        // A supervisor that was stopped from inside could not reap what is killed below it.
        sys::kill(self.supervisor, sys::SIGCONT);
        let elapsed = now - ending.since;
        if elapsed >= GRACE + GIVE_UP {
            ending.given_up = true;
        } else if elapsed >= GRACE {
            processes::kill_below(self.supervisor);
            ending.next = now + KILL_AGAIN;
        } else {
            processes::terminate_below(self.supervisor);
            ending.next = ending.since + GRACE;
        }
    }

    /// Returns whether the command's processes have come to their end, as far as it is waited for.
    fn ended(&self) -> bool {
        match &self.ending {
            Some(ending) => self.supervisor_gone || ending.given_up,
            None => self.report.is_some() || self.supervisor_gone,
        }
    }

    fn concluded(&self) -> bool {
        self.ended() && self.sources.iter().all(|source| source.pipe.is_none() || source.left == Some(0))
    }

    /// Sends the owner what it has not received yet. `false` while credit for it is missing.
    fn send_tail(&mut self, client: &mut Client) -> bool {
        let Some(owner) = self.owner else { return true };
        send_tail(&self.tail, &mut self.received, owner.id, client, &mut self.credit)
    }

    /// Returns whether there is output that has not been reported yet.
    pub fn has_news(&self) -> bool {
        self.tail.end() > self.reported
    }

    /// Sends what has not been reported yet. The tail is smaller than a fresh stream's credit.
    pub fn report_output(&mut self, id: u32, client: &mut Client) {
        send_tail(&self.tail, &mut self.reported, id, client, &mut { WINDOW });
    }

    fn conclude(&mut self, spools: &mut SpoolDirectory, oom: &OomCounter) -> Finished {
        let oom_kills = oom.read().saturating_sub(self.oom_before);
        let (spool, spool_bytes) =
            self.spool.finish(spools).map_or((None, 0), |(path, bytes)| (Some(path), bytes));
        let left = |report: &Report| report.children_left && !self.supervisor_gone;
        let left_running = match &self.report {
            Some((report, _)) if left(report) => processes::descendants(self.supervisor).len(),
            None if !self.supervisor_gone => processes::descendants(self.supervisor).len(),
            _ => 0,
        };
        let duration = self.report.map_or_else(|| self.started.elapsed(), |(_, duration)| duration);
        Finished {
            outcome: self.outcome(oom_kills),
            duration,
            output_bytes: self.output_bytes,
            spool,
            spool_bytes,
            left_running: left_running as u32,
            oom_kills: u32::try_from(oom_kills).unwrap_or(u32::MAX),
        }
    }

    fn outcome(&self, oom_kills: u64) -> Outcome {
        match self.ending.as_ref().map(|ending| ending.reason) {
            Some(Reason::TimeLimit) => return Outcome::TimedOut,
            Some(Reason::Quota(bytes)) => return Outcome::OverQuota { bytes },
            Some(Reason::Memory) => return Outcome::OomKilled,
            Some(Reason::Request) | None => {}
        }
        let Some((report, _)) = self.report else { return Outcome::Lost };
        let signal = report.status & 0x7f;
        let code = report.status >> 8 & 0xff;
        match signal {
            sys::SIGKILL if oom_kills > 0 => Outcome::OomKilled,
            // How a shell reports a command that a signal killed.
            0 if code == 128 + sys::SIGKILL && oom_kills > 0 => Outcome::OomKilled,
            0 => Outcome::Exited(code),
            signal => Outcome::Signaled(signal),
        }
    }
}

/// Sends what follows position `from`, which advances. `false` while credit is missing.
fn send_tail(tail: &Tail, from: &mut u64, id: u32, client: &mut Client, credit: &mut u32) -> bool {
    while let Some(next) = tail.next(*from) {
        if *credit <= FRAME_COST {
            return false;
        }
        match next {
            Next::Gap(bytes) => {
                client.send(id, &Message::Gap { bytes });
                *credit -= FRAME_COST;
                *from += bytes;
            }
            Next::Output { stderr, bytes } => {
                let bytes = &bytes[..bytes.len().min((*credit - FRAME_COST) as usize)];
                client.send(id, &Message::Output { stderr, bytes: bytes.into() });
                *credit -= cost(bytes.len());
                *from += bytes.len() as u64;
            }
        }
    }
    true
}
