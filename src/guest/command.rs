//! A command: how it is started, what becomes of its output, how it ends.

use crate::client::{Client, Failure, would_block};
use crate::facts::OomCounter;
use crate::output::{Spool, SpoolDirectory, Tail};
use crate::plan::plan;
use crate::processes;
use crate::search::SearchPath;
use crate::supervisor::{self, Report};
use crate::sys::{self, POLLIN, POLLOUT, Poll};
use crate::wire::{self, CHUNK, FRAME_COST, Finished, Message, Outcome, WINDOW, cost};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);
/// Between one KILL of all that is left and the next.
const KILL_AGAIN: Duration = Duration::from_millis(20);
/// Processes that a KILL does not end within this time (stuck in the kernel) are given up and counted.
const GIVE_UP: Duration = Duration::from_secs(5);

/// What a command's end is owed to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    TimeLimit,
    Request,
    /// The sandbox's disk quota, in bytes.
    Quota(u64),
}

/// A command that is being ended.
struct Ending {
    reason: Reason,
    since: Instant,
    next: Instant,
    given_up: bool,
}

/// The client's stream that a foreground command reports to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    pub client: u64,
    pub id: u32,
}

/// Standard input on its way to the command.
struct Stdin {
    pipe: Option<File>,
    waiting: Vec<u8>,
    waiting_cost: u32,
    ended: bool,
}

/// One of the two outputs.
struct Source {
    pipe: Option<File>,
    stderr: bool,
    /// Once the command has ended: what is still taken from the pipe.
    left: Option<usize>,
}

pub struct Command {
    /// Where output and end go; `None` for a job, and when the client is gone.
    pub owner: Option<StreamId>,
    supervisor: i32,
    supervisor_gone: bool,
    status: File,
    stdin: Stdin,
    sources: [Source; 2],
    started: Instant,
    deadline: Option<Instant>,
    report: Option<(Report, Duration)>,
    ending: Option<Ending>,
    live_left: u64,
    credit: u32,
    pub tail: Tail,
    spool: Spool,
    output_bytes: u64,
    oom_before: u64,
    /// Set once, when everything that was to be said has been.
    pub finished: Option<Finished>,
}

impl Command {
    /// Starts it. `owner` is `None` for a job.
    pub fn start(
        command: wire::Command,
        owner: Option<StreamId>,
        oom: &OomCounter,
        search: &mut SearchPath,
    ) -> Result<Self, Failure> {
        let stdin = command.stdin && owner.is_some();
        let plan = plan(&command, stdin, search)?;
        let oom_before = oom.read();
        let started = Instant::now();
        let child =
            supervisor::spawn(&plan).map_err(|error| Failure::io("cannot start a process", &error))?;
        let source = |pipe, stderr| Source { pipe: Some(pipe), stderr, left: None };
        Ok(Self {
            owner,
            supervisor: child.supervisor,
            supervisor_gone: false,
            status: child.status,
            stdin: Stdin { pipe: child.stdin, waiting: Vec::new(), waiting_cost: 0, ended: false },
            sources: [source(child.stdout, false), source(child.stderr, true)],
            started,
            deadline: command.timeout_ms.and_then(|ms| started.checked_add(Duration::from_millis(ms))),
            report: None,
            ending: None,
            live_left: if owner.is_some() { command.live_bytes } else { 0 },
            credit: WINDOW,
            tail: Tail::default(),
            spool: Spool::default(),
            output_bytes: 0,
            oom_before,
            finished: None,
        })
    }

    pub fn supervisor(&self) -> i32 {
        self.supervisor
    }

    /// The supervisor has been reaped: no process is left, unless somebody killed the supervisor itself.
    pub fn supervisor_ended(&mut self) {
        // What it wrote last is still in the pipe.
        self.read_report();
        self.supervisor_gone = true;
    }

    /// Whether nothing remains to be done for it.
    pub fn over(&self) -> bool {
        self.finished.is_some() && self.supervisor_gone
    }

    /// Whether it is over but for processes that it left running.
    pub fn left_processes(&self) -> bool {
        self.finished.is_some() && !self.supervisor_gone
    }

    /// Whether it is being killed and not dead yet.
    pub fn dying(&self) -> bool {
        !self.supervisor_gone && self.ending.as_ref().is_some_and(|ending| !ending.given_up)
    }

    /// Ends it and everything that it started.
    pub fn end(&mut self) {
        self.begin_to_end(Reason::Request);
    }

    /// Kills it and everything that it started at once, because the sandbox's disk quota of `bytes` is used up.
    pub fn end_over_quota(&mut self, bytes: u64) {
        processes::kill_below(self.supervisor);
        self.begin_to_end(Reason::Quota(bytes));
        if let Some(ending) = &mut self.ending {
            // No time to go on writing.
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

    /// Takes standard input from the host. `false` when that is more than it may send.
    pub fn push_stdin(&mut self, bytes: &[u8]) -> bool {
        self.stdin.waiting_cost = self.stdin.waiting_cost.saturating_add(cost(bytes.len()));
        if self.stdin.pipe.is_some() {
            self.stdin.waiting.extend_from_slice(bytes);
        }
        self.stdin.waiting_cost <= WINDOW
    }

    pub fn end_stdin(&mut self) {
        self.stdin.ended = true;
    }

    /// When this must be looked at again even if nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
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

    /// How many bytes may be taken from a source now.
    fn appetite(&self, source: &Source, client: Option<&Client>) -> usize {
        let wanted = source.left.unwrap_or(CHUNK).min(CHUNK);
        match client {
            // Nobody listens any more, or it is only kept: everything is taken.
            _ if self.finished.is_some() || self.live_left == 0 => wanted,
            None => wanted,
            Some(client) if client.congested() => 0,
            Some(_) => wanted
                .min(self.credit.saturating_sub(FRAME_COST) as usize)
                .min(usize::try_from(self.live_left).unwrap_or(usize::MAX)),
        }
    }

    /// Moves bytes, looks at the clock, and says the end when it has come.
    pub fn step(
        &mut self,
        mut client: Option<&mut Client>,
        poll: &Poll,
        buffer: &mut [u8],
        spools: &mut SpoolDirectory,
        oom: &OomCounter,
    ) {
        self.read_report();
        self.feed(client.as_deref_mut());
        for index in 0..self.sources.len() {
            self.drain(index, client.as_deref_mut(), poll, buffer, spools);
        }
        self.watch_the_clock();
        if self.finished.is_none() && self.concluded() {
            if let Some(client) = client.as_deref_mut()
                && !self.send_tail(client)
            {
                return;
            }
            let finished = self.conclude(spools, oom);
            // A background child may hold the pipes; it would die of a closed one, so they are drained on.
            self.sources.iter_mut().for_each(|source| source.left = None);
            if let (Some(client), Some(owner)) = (client, self.owner) {
                client.send(owner.id, &Message::Finished { finished: finished.clone() });
            }
            self.finished = Some(finished);
        }
    }

    fn read_report(&mut self) {
        let mut bytes = [0; Report::BYTES];
        if self.report.is_none() && matches!(self.status.read(&mut bytes), Ok(Report::BYTES)) {
            self.report = Some((Report::from_bytes(bytes), self.started.elapsed()));
        }
    }

    /// Writes standard input and hands credit back for what was taken.
    fn feed(&mut self, client: Option<&mut Client>) {
        let stdin = &mut self.stdin;
        while let Some(pipe) = &mut stdin.pipe
            && !stdin.waiting.is_empty()
        {
            match pipe.write(&stdin.waiting) {
                Ok(length) => drop(stdin.waiting.drain(..length)),
                Err(error) if would_block(&error) => return,
                Err(_) => {
                    // The command reads no more. What still comes is thrown away.
                    stdin.pipe = None;
                    stdin.waiting = Vec::new();
                }
            }
        }
        if stdin.ended {
            stdin.pipe = None;
        }
        if let (Some(client), Some(owner), 1..) = (client, self.owner, stdin.waiting_cost) {
            client.send(owner.id, &Message::Credit { bytes: std::mem::take(&mut stdin.waiting_cost) });
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
            // What a background child writes from now on is not the command's output.
            source.left = Some(sys::bytes_waiting(pipe.as_raw_fd()));
        }
        let wanted = appetite.min(source.left.unwrap_or(usize::MAX));
        if wanted == 0 || !(poll.readable(pipe.as_raw_fd()) || source.left.is_some()) {
            return;
        }
        let stderr = source.stderr;
        let length = match pipe.read(&mut buffer[..wanted]) {
            Err(error) if would_block(&error) => return,
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
            (Some(client), Some(owner)) if self.live_left > 0 => {
                client.send(owner.id, &Message::Output { stderr, bytes: bytes.into() });
                self.credit -= cost(bytes.len());
                self.live_left -= bytes.len() as u64;
            }
            _ => self.tail.push(stderr, bytes),
        }
    }

    fn watch_the_clock(&mut self) {
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

    /// Whether the command's processes have come to their end, as far as it is waited for.
    fn ended(&self) -> bool {
        match &self.ending {
            Some(ending) => self.supervisor_gone || ending.given_up,
            None => self.report.is_some() || self.supervisor_gone,
        }
    }

    fn concluded(&self) -> bool {
        self.ended() && self.sources.iter().all(|source| source.pipe.is_none() || source.left == Some(0))
    }

    /// Sends what was held back. `false` while credit for it is missing.
    fn send_tail(&mut self, client: &mut Client) -> bool {
        let Some(owner) = self.owner else { return true };
        send_tail(&mut self.tail, owner.id, client, &mut self.credit)
    }

    fn conclude(&mut self, spools: &mut SpoolDirectory, oom: &OomCounter) -> Finished {
        let oom_kills = oom.read().saturating_sub(self.oom_before);
        let (spool, spool_bytes) = self.spool.finish(spools).map_or((None, 0), |(path, bytes)| {
            (Some(path.into_os_string().into_encoded_bytes().into()), bytes)
        });
        let left = |report: &Report| report.children_left && !self.supervisor_gone;
        let left_running = match &self.report {
            Some((report, _)) if left(report) => processes::descendants(self.supervisor).len(),
            None if !self.supervisor_gone => processes::descendants(self.supervisor).len(),
            _ => 0,
        };
        let duration = self.report.map_or_else(|| self.started.elapsed(), |(_, duration)| duration);
        Finished {
            outcome: self.outcome(oom_kills),
            duration_us: duration.as_micros() as u64,
            output_bytes: self.output_bytes,
            spool,
            spool_bytes,
            left_running: left_running as u32,
            oom_kills: u32::try_from(oom_kills).unwrap_or(u32::MAX),
        }
    }

    fn outcome(&self, oom_kills: u64) -> Outcome {
        match self.ending.as_ref().map(|ending| ending.reason) {
            Some(Reason::TimeLimit) => return Outcome::TimedOut {},
            Some(Reason::Quota(bytes)) => return Outcome::OverQuota { bytes },
            Some(Reason::Request) | None => {}
        }
        let Some((report, _)) = self.report else { return Outcome::Lost {} };
        let signal = report.status & 0x7f;
        let code = report.status >> 8 & 0xff;
        match signal {
            sys::SIGKILL if oom_kills > 0 => Outcome::OomKilled {},
            // A shell says so of a command that a signal killed.
            0 if code == 128 + sys::SIGKILL && oom_kills > 0 => Outcome::OomKilled {},
            0 => Outcome::Exited { code },
            signal => Outcome::Signaled { signal },
        }
    }
}

/// Sends the tail, the gap before it first. `false` while credit is missing.
pub fn send_tail(tail: &mut Tail, id: u32, client: &mut Client, credit: &mut u32) -> bool {
    if *credit < FRAME_COST {
        return false;
    }
    let dropped = tail.take_dropped();
    if dropped > 0 {
        client.send(id, &Message::Gap { bytes: dropped });
        *credit -= FRAME_COST;
    }
    while let Some(needed) = tail.next_cost() {
        if *credit < needed {
            return false;
        }
        if let Some(piece) = tail.pop() {
            client.send(id, &Message::Output { stderr: piece.stderr, bytes: piece.bytes.into() });
            *credit -= needed;
        }
    }
    true
}
