//! The requests of clients.

use crate::attributes;
use crate::client::{Client, Failure};
use crate::command::{Command, StreamId};
use crate::facts;
use crate::files::{self, Reading, resolve};
use crate::launch::landlock;
use crate::outlet::Outlet;
use crate::plan::plan;
use crate::processes;
use crate::relay::Relay;
use crate::serve::Server;
use crate::sys;
use crate::update::{self, ReadingFiles, Update};
use crate::walk::{self, Walk};
use agent_wire::{self as wire, Block, Message, TerminalSize};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// Commands that have processes, those left behind included.
const MAX_COMMANDS: usize = 128;
/// Jobs that are remembered; of those that have ended the oldest are forgotten first.
const MAX_JOBS: usize = 64;
/// Connections to ports inside and out of the sandbox, together.
const MAX_RELAYS: usize = 256;
/// Requests under way, over all clients.
const MAX_ACTIVITIES: usize = 1024;

/// The subject of a stream.
pub enum Activity {
    Command(u64),
    AwaitJob {
        job: u64,
        until: Instant,
        death: bool,
    },
    /// A job that the client is attached to.
    Attached(u64),
    Reading(Reading),
    ReadingFiles(ReadingFiles),
    Update(Box<Update>),
    Walk(Box<Walk>),
    Relay(Relay),
}

impl Server {
    pub fn handle(&mut self, stream: StreamId, message: Message) {
        match message {
            Message::Data { bytes } => self.data(stream, &bytes),
            Message::Block { block } => self.update(stream, &block),
            Message::Eof {} => self.end_of_data(stream),
            Message::Credit { bytes } => self.credit(stream, bytes),
            Message::Kill {} | Message::Reset {} => self.give_up(stream),
            Message::Resize { size } => self.with_command(stream, |command| command.resize(size)),
            Message::Signal { signal } => self.with_command(stream, |command| command.signal(signal)),
            Message::Shutdown {} => self.stop = true,
            Message::Opened {} => {
                if let Some(Activity::Relay(relay)) = self.activities.get_mut(&stream) {
                    relay.accepted();
                }
            }
            // The host does not take a connection that was offered: it is closed.
            Message::Failed { .. } => self.end_activity(stream),
            request => match self.request(stream, request) {
                Ok(Some(answer)) => self.send(stream, &answer),
                Ok(None) => {}
                Err(failure) => self.fail(stream, &failure),
            },
        }
    }

    /// Answers a request, or begins what will answer it.
    fn request(&mut self, stream: StreamId, request: Message) -> Result<Option<Message>, Failure> {
        if self.activities.len() >= MAX_ACTIVITIES {
            return Err(Failure::new("too many requests are under way"));
        }
        let activity = match request {
            Message::Run { command, terminal, read_only } => {
                Activity::Command(self.start(Some(stream), command, terminal, read_only)?)
            }
            Message::StartJob { command, terminal, read_only } => {
                let job = self.start_job(command, terminal, read_only)?;
                return Ok(Some(Message::JobStarted { job }));
            }
            Message::AttachJob { job, from } => Activity::Attached(self.attach(stream, job, from)?),
            Message::JobOutput { job, wait_ms } => {
                self.await_job(job, Duration::from_millis(wait_ms.into()), false)?
            }
            Message::JobKill { job } => {
                self.job(job)?.end();
                // Processes that do not end are abandoned after a bounded time, so this one is never reached.
                self.await_job(job, Duration::from_secs(60), true)?
            }
            Message::Stat { path } => {
                return Ok(Some(Message::Stated { entry: files::stat(&resolve(path))? }));
            }
            Message::ReadFile { path, offset, limit } => {
                let (reading, file_is) = Reading::start(resolve(path), offset, limit)?;
                self.activities.insert(stream, Activity::Reading(reading));
                return Ok(Some(file_is));
            }
            Message::Update {} => Activity::Update(Box::default()),
            Message::ReadFiles { paths, compress } => {
                Activity::ReadingFiles(ReadingFiles::start(paths, compress))
            }
            Message::Missing { files } => {
                return Ok(Some(Message::MissingAre { indexes: update::missing(files, &mut self.hashes) }));
            }
            Message::Walk { root, hash, exclude, max_entries, since, depth } => {
                let exclude = exclude.into_iter().collect();
                let root = resolve(root);
                let request = walk::Request { root, hash, exclude, max_entries, since, depth };
                Activity::Walk(Box::new(Walk::start(request, &mut self.snapshots.last)?))
            }
            Message::GetFacts { tools } => {
                let facts = facts::gather(tools, &self.oom, &mut self.search);
                return Ok(Some(Message::FactsAre { facts }));
            }
            Message::Listen { port, env } => {
                return self.open_outlet(stream.client, port, env).map(|()| Some(Message::Done {}));
            }
            Message::Connect { port } => Activity::Relay(self.connect(port)?),
            Message::EndProcesses {} => return self.end_processes().map(|()| Some(Message::Done {})),
            Message::Replace { nonce } => {
                self.replace(stream.client, &nonce);
                return Ok(Some(Message::Done {}));
            }
            request => return attributes::answer(request).map(Some),
        };
        self.activities.insert(stream, activity);
        Ok(None)
    }

    /// Forgets an activity, and what its window grew by.
    pub fn end_activity(&mut self, stream: StreamId) {
        match self.activities.remove(&stream) {
            Some(Activity::Relay(mut relay)) => relay.release(&mut self.budget),
            Some(Activity::Update(mut update)) => update.release(&mut self.budget),
            _ => {}
        }
    }

    fn send(&mut self, stream: StreamId, message: &Message) {
        if let Some(client) = self.clients.get_mut(&stream.client) {
            client.send(stream.id, message);
        }
    }

    fn fail(&mut self, stream: StreamId, failure: &Failure) {
        if let Some(client) = self.clients.get_mut(&stream.client) {
            client.fail(stream.id, failure);
        }
    }

    fn connect(&self, port: u16) -> Result<Relay, Failure> {
        if !self.can_open_relay() {
            return Err(Failure::new(format!("{MAX_RELAYS} connections are open; close some")));
        }
        Relay::connect(port).map_err(|error| Failure::io("nothing answers on the port", &error))
    }

    pub fn can_open_relay(&self) -> bool {
        let relays = self.activities.values().filter(|activity| matches!(activity, Activity::Relay(_)));
        relays.count() < MAX_RELAYS
    }

    /// Opens the outlet for a client, or replaces its variables.
    fn open_outlet(&mut self, client: u64, port: u16, env: Vec<(OsString, OsString)>) -> Result<(), Failure> {
        match &mut self.outlet {
            Some(outlet) if outlet.owner != client => Err(Failure::new("another client has the outlet")),
            Some(outlet) => {
                outlet.env = env;
                Ok(())
            }
            None => {
                let outlet = Outlet::open(port, self.options.has_engine, client, env)
                    .map_err(|error| Failure::io(format!("cannot listen on port {port}"), &error))?;
                self.outlet = Some(outlet);
                Ok(())
            }
        }
    }

    /// Drops the client that `by` was before.
    fn replace(&mut self, by: u64, nonce: &[u8; 32]) {
        for (key, client) in &mut self.clients {
            client.closed |= *key != by && client.nonce.as_ref() == Some(nonce);
        }
        self.forget();
    }

    fn start(
        &mut self,
        owner: Option<StreamId>,
        mut command: wire::Command,
        terminal: Option<TerminalSize>,
        read_only: bool,
    ) -> Result<u64, Failure> {
        if read_only {
            landlock::require_read_only()?;
        }
        if self.commands.values().filter(|command| !command.over()).count() >= MAX_COMMANDS {
            return Err(Failure::new(format!("{MAX_COMMANDS} commands have processes running; end some")));
        }
        self.quota.require_commands_allowed()?;
        self.require_processes()?;
        if let Some(outlet) = &self.outlet {
            // The command's own variables come later and win.
            command.env.splice(..0, outlet.env.iter().cloned());
        }
        let plan = plan(&command, terminal, read_only, &mut self.search)?;
        let command = Command::start(command, &plan, owner, &self.oom)?;
        let key = self.next_command;
        self.next_command += 1;
        self.commands.insert(key, command);
        Ok(key)
    }

    /// Kills all commands and jobs with everything that they started or left running, and what has no supervisor any more. What is
    /// killed executes nothing any more once this returns.
    fn end_processes(&mut self) -> Result<(), Failure> {
        if self.options.has_engine {
            return Err(Failure::new("the container engine of this sandbox would end, too"));
        }
        self.commands.values_mut().filter(|command| !command.over()).for_each(Command::end_now);
        let is_supervisor = |id: &i32| self.commands.values().any(|command| command.supervisor() == *id);
        let own = std::process::id().cast_signed();
        for id in processes::children(own).into_iter().filter(|id| !is_supervisor(id)) {
            processes::kill_below(id);
            sys::kill(id, sys::SIGKILL);
        }
        Ok(())
    }

    /// Kills what finished commands have left running, where that leaves no processes for another.
    fn require_processes(&mut self) -> Result<(), Failure> {
        if self.commands.values().all(Command::over) {
            // The kernel counts a process for a moment longer than it lives: after a bomb there is none to kill.
            self.process_limit.wait_for_the_dead();
        }
        let mut left: Vec<_> =
            self.commands.values_mut().filter(|command| command.left_processes()).collect();
        if left.is_empty() || !self.process_limit.is_nearly_reached() {
            return Ok(());
        }
        left.iter_mut().for_each(|command| command.end());
        Err(Failure::new(
            "no process could be started: earlier commands left too many running. Those are being killed; try again",
        ))
    }

    fn start_job(
        &mut self,
        command: wire::Command,
        terminal: Option<TerminalSize>,
        read_only: bool,
    ) -> Result<u64, Failure> {
        if self.jobs.len() >= MAX_JOBS {
            let over = |key: &u64| self.commands.get(key).is_none_or(Command::over);
            let oldest = self.jobs.iter().find(|(_, key)| over(key)).map(|(job, key)| (*job, *key));
            let (job, key) =
                oldest.ok_or_else(|| Failure::new(format!("{MAX_JOBS} jobs are running; end some")))?;
            self.jobs.remove(&job);
            self.commands.remove(&key);
        }
        let key = self.start(None, command, terminal, read_only)?;
        let job = self.next_job;
        self.next_job += 1;
        self.jobs.insert(job, key);
        Ok(job)
    }

    fn job(&mut self, job: u64) -> Result<&mut Command, Failure> {
        self.jobs
            .get(&job)
            .and_then(|key| self.commands.get_mut(key))
            .ok_or_else(|| Failure::new(format!("there is no job {job}")))
    }

    fn await_job(&mut self, job: u64, wait: Duration, death: bool) -> Result<Activity, Failure> {
        self.job(job)?;
        let now = Instant::now();
        Ok(Activity::AwaitJob { job, until: now.checked_add(wait).unwrap_or(now), death })
    }

    fn data(&mut self, stream: StreamId, bytes: &[u8]) {
        let result = match self.activities.get_mut(&stream) {
            Some(Activity::Command(key) | Activity::Attached(key)) => {
                self.commands.get_mut(key).is_none_or(|command| command.push_stdin(bytes))
            }
            Some(Activity::Relay(relay)) => relay.push(bytes),
            // The stream has ended in the meantime.
            _ => true,
        };
        if let (false, Some(client)) = (result, self.clients.get_mut(&stream.client)) {
            client.closed = true;
        }
    }

    fn update(&mut self, stream: StreamId, block: &Block) {
        let Some(Activity::Update(update)) = self.activities.get_mut(&stream) else { return };
        let Some(client) = self.clients.get_mut(&stream.client) else { return };
        match update.push(block, &mut self.quota, &mut self.budget) {
            Some(Some(bytes)) => client.send(stream.id, &Message::Credit { bytes }),
            Some(None) => {}
            None => client.closed = true,
        }
    }

    /// Does something to the command or job of a stream, if there is one.
    fn with_command(&mut self, stream: StreamId, action: impl FnOnce(&mut Command)) {
        if let Some(Activity::Command(key) | Activity::Attached(key)) = self.activities.get(&stream)
            && let Some(command) = self.commands.get_mut(key)
        {
            action(command);
        }
    }

    fn attach(&mut self, stream: StreamId, job: u64, from: u64) -> Result<u64, Failure> {
        let unknown = || Failure::new(format!("there is no job {job}"));
        let key = self.jobs.get(&job).copied().ok_or_else(unknown)?;
        let command = self.commands.get_mut(&key).ok_or_else(unknown)?;
        if let Some(before) = command.attach(stream, from, &mut self.budget)? {
            // Removed now, so that what the other client still sends on it is ignored.
            self.activities.remove(&before);
            self.fail(before, &Failure::new("another client is attached to the job now"));
        }
        Ok(key)
    }

    fn end_of_data(&mut self, stream: StreamId) {
        match self.activities.get_mut(&stream) {
            Some(Activity::Command(key) | Activity::Attached(key)) => {
                if let Some(command) = self.commands.get_mut(key) {
                    command.end_stdin();
                }
            }
            Some(Activity::Relay(relay)) => relay.end(),
            Some(Activity::Update(_)) => {
                let Some(Activity::Update(mut update)) = self.activities.remove(&stream) else { return };
                update.release(&mut self.budget);
                self.send(stream, &update.finish());
            }
            _ => {}
        }
    }

    fn credit(&mut self, stream: StreamId, bytes: u32) {
        let credit = match self.activities.get_mut(&stream) {
            Some(Activity::Command(key) | Activity::Attached(key)) => {
                if let Some(command) = self.commands.get_mut(key) {
                    command.give_credit(bytes);
                }
                return;
            }
            Some(Activity::Reading(reading)) => &mut reading.credit,
            Some(Activity::ReadingFiles(reading)) => &mut reading.credit,
            Some(Activity::Walk(walk)) => &mut walk.credit,
            Some(Activity::Relay(relay)) => &mut relay.credit,
            _ => return,
        };
        *credit = credit.saturating_add(bytes);
    }

    fn give_up(&mut self, stream: StreamId) {
        match self.activities.get(&stream) {
            Some(Activity::Command(key)) => {
                if let Some(command) = self.commands.get_mut(key) {
                    command.end();
                }
            }
            Some(Activity::Attached(key)) => {
                // The job continues.
                if let Some(command) = self.commands.get_mut(key) {
                    command.owner.take_if(|owner| *owner == stream);
                }
                self.activities.remove(&stream);
                self.fail(stream, &Failure::new("detached from the job"));
            }
            Some(Activity::Relay(relay)) => {
                let ended = relay.ended();
                self.end_activity(stream);
                if !ended {
                    self.send(stream, &Message::Reset {});
                }
            }
            Some(_) => {
                self.end_activity(stream);
                if let Some(client) = self.clients.get_mut(&stream.client) {
                    client.fail(stream.id, &Failure::new("the request was cancelled"));
                }
            }
            None => {}
        }
    }
}

/// Answers once there is output, the job has ended, or the time is up.
pub fn answer_about_job(
    id: u32,
    command: Option<&mut Command>,
    until: Instant,
    death: bool,
    client: &mut Client,
) -> bool {
    let Some(command) = command else {
        client.fail(id, &Failure::new("the job has been forgotten"));
        return true;
    };
    let news = if death {
        command.finished.is_some() && !command.dying()
    } else {
        command.finished.is_some() || command.has_news()
    };
    if !news && Instant::now() < until {
        return false;
    }
    command.report_output(id, client);
    client.send(id, &Message::JobState { finished: command.finished.clone() });
    true
}
