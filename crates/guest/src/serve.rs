//! `guest serve`: the event loop.
//!
//! One thread, one `poll`, everything non-blocking. Long work (a walk, a large file) is done a slice at a
//! time. A single thread makes forking safe and keeps the memory small.

use crate::client::Client;
use crate::command::{Command, StreamId};
use crate::facts::OomCounter;
use crate::filters;
use crate::launch;
use crate::outlet::Outlet;
use crate::output::SpoolDirectory;
use crate::process_limit::ProcessLimit;
use crate::processes;
use crate::quota::Quota;
use crate::relay::Relay;
use crate::requests::{Activity, answer_about_job};
use crate::search::SearchPath;
use crate::socket_memory::{self, SocketMemory};
use crate::sys::{self, POLLIN, Poll, Signals};
use crate::walk::{Hashes, Snapshots};
use agent_wire::{CHUNK, Message, WindowBudget};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Clients at once; more are refused.
const MAX_CLIENTS: usize = 16;
/// The most that the windows of inputs and connections may grow by together, in bytes.
const GROWTH: u32 = 32 << 20;
/// The interval of looks for processes that have lost their supervisor, once there may be some.
const ORPHANS_AGAIN: Duration = Duration::from_millis(20);

pub struct Options {
    idle_ttl: Option<Duration>,
    listener: Option<Listener>,
    workspace: PathBuf,
    /// A client that sends nothing for this long is gone.
    keepalive: Option<Duration>,
    /// Bytes that the sandbox's files may take on the disk.
    disk: Option<u64>,
    /// The file with the system call filters to install.
    filters: Option<PathBuf>,
    /// Directories of that disk that count beside the workspace and `$HOME`.
    disk_directories: Vec<PathBuf>,
    /// The gate at which WebSockets come in.
    gate: Option<Gate>,
    /// A container engine runs beside the guest: its processes have no supervisor, and containers reach the outlet.
    pub has_engine: bool,
    /// The socket at which the kernel is asked about others, opened before the filters were installed.
    questions: Option<OwnedFd>,
}

struct Gate {
    socket: TcpListener,
    /// The SHA-256 of the secret that a client has to name.
    verifier: [u8; 32],
}

impl Options {
    /// The listening socket, which stays open.
    fn listening(&self) -> Option<RawFd> {
        let gate = self.gate.as_ref().map(|gate| gate.socket.as_raw_fd());
        self.listener.as_ref().map(|listener| listener.socket.as_raw_fd()).or(gate)
    }
}

struct Listener {
    socket: UnixListener,
    /// The only user who may connect.
    only: Option<u32>,
}

impl Listener {
    /// Listens at a name of the abstract namespace.
    fn bind(name: &str, only: u32) -> Result<Self, String> {
        SocketAddr::from_abstract_name(name)
            .and_then(|address| UnixListener::bind_addr(&address))
            .map(|socket| Self { socket, only: Some(only) })
            .map_err(|error| format!("cannot listen at @{name}: {error}"))
    }
}

/// The guest's whole state.
pub struct Server {
    pub options: Options,
    pub signals: Signals,
    pub poll: Poll,
    pub buffer: Vec<u8>,
    pub clients: BTreeMap<u64, Client>,
    pub commands: BTreeMap<u64, Command>,
    /// Job number to command.
    pub jobs: BTreeMap<u64, u64>,
    pub activities: BTreeMap<StreamId, Activity>,
    pub outlet: Option<Outlet>,
    pub spools: SpoolDirectory,
    pub hashes: Hashes,
    pub snapshots: Snapshots,
    pub budget: WindowBudget,
    pub oom: OomCounter,
    pub search: SearchPath,
    pub quota: Quota,
    pub socket_memory: SocketMemory,
    pub process_limit: ProcessLimit,
    pub next_client: u64,
    pub next_command: u64,
    pub next_job: u64,
    pub alone_since: Instant,
    /// Processes without a supervisor may have been left to this one.
    pub orphans: bool,
    pub stop: bool,
}

/// Serves until it is stopped, or no client has been connected for the idle time-to-live.
pub fn main(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let mut options = parse(arguments)?;
    let questions = options.questions.as_ref().map(AsRawFd::as_raw_fd);
    let kept: Vec<RawFd> = options.listening().into_iter().chain(questions).collect();
    sys::close_what_was_left_open(&kept);
    let questions = options.questions.take().or_else(socket_memory::questions);
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    sys::prctl(sys::PR_SET_DUMPABLE, 0).map_err(failed("cannot become undumpable"))?;
    filters::refuse_limits_of_others();
    // Process 1 inherits every orphan anyway; gVisor before 2023 has no subreapers.
    let subreaper = sys::prctl(sys::PR_SET_CHILD_SUBREAPER, 1);
    if std::process::id() != 1 {
        subreaper.map_err(failed("cannot become a subreaper"))?;
    }
    sys::prctl(sys::PR_SET_NO_NEW_PRIVS, 1).map_err(failed("cannot drop privileges"))?;
    if let Some(file) = &options.filters {
        std::fs::read(file)
            .and_then(|stored| filters::install(&stored))
            .map_err(failed("cannot install the system call filters"))?;
    }
    let signals = Signals::block(&[sys::SIGCHLD, sys::SIGTERM, sys::SIGINT, sys::SIGHUP])
        .map_err(failed("cannot block signals"))?;
    sys::set_umask(0o022);
    std::env::set_current_dir(&options.workspace).map_err(failed("cannot enter the workspace"))?;
    let (input, output) = sys::take_stdio().map_err(failed("cannot take standard input and output"))?;
    let temporary = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let quota = Quota::new(options.disk, &options.workspace, &options.disk_directories);
    let mut server = Server {
        options,
        signals,
        poll: Poll::default(),
        buffer: vec![0; CHUNK],
        clients: BTreeMap::new(),
        commands: BTreeMap::new(),
        jobs: BTreeMap::new(),
        activities: BTreeMap::new(),
        outlet: None,
        spools: SpoolDirectory::new(&temporary),
        hashes: Hashes::default(),
        snapshots: Snapshots::default(),
        budget: WindowBudget::new(GROWTH),
        oom: OomCounter::open(),
        search: SearchPath::default(),
        quota,
        socket_memory: SocketMemory::new(questions),
        process_limit: ProcessLimit::open(),
        next_client: 1,
        next_command: 1,
        next_job: 1,
        alone_since: Instant::now(),
        orphans: false,
        stop: false,
    };
    server.welcome(input, output);
    while !server.stop {
        server.turn();
    }
    server.end_everything();
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        idle_ttl: None,
        listener: None,
        workspace: "/workspace".into(),
        keepalive: None,
        disk: None,
        filters: None,
        gate: None,
        has_engine: false,
        questions: None,
        disk_directories: Vec::new(),
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(crate::USAGE)?;
        let number = || value.parse::<u32>().map_err(|_| format!("{value} is not a number"));
        match name.as_str() {
            "--idle-ttl" => options.idle_ttl = Some(Duration::from_secs(number()?.into())),
            "--keepalive" => options.keepalive = Some(Duration::from_secs(number()?.into())),
            "--workspace" => options.workspace = value.into(),
            "--disk-directory" => options.disk_directories.push(value.into()),
            "--filters" => options.filters = Some(value.into()),
            "--disk" => options.disk = Some(value.parse().map_err(|_| format!("{value} is not a number"))?),
            "--engine" => options.has_engine = value == "yes",
            "--socket" => options.listener = Some(Listener::bind(&value, 0)?),
            // Where every process of the sandbox has one user, the guest's clients too.
            "--user-socket" => {
                options.listener = Some(Listener::bind(&value, launch::sys::effective_user())?)
            }
            "--listen-fd" => {
                let fd = sys::adopt(number()? as RawFd)
                    .map_err(|error| format!("cannot listen at descriptor {value}: {error}"))?;
                options.listener = Some(Listener { socket: fd.into(), only: None });
            }
            "--socket-questions-fd" => {
                let fd = sys::adopt(number()? as RawFd);
                options.questions = Some(fd.map_err(|error| format!("no descriptor {value}: {error}"))?);
            }
            "--websocket-fd" => {
                let verifier = arguments.next().and_then(|hash| crate::hex(&hash)?.try_into().ok());
                let fd = sys::adopt(number()? as RawFd)
                    .map_err(|error| format!("cannot listen at descriptor {value}: {error}"))?;
                options.gate = Some(Gate { socket: fd.into(), verifier: verifier.ok_or(crate::USAGE)? });
            }
            _ => return Err(crate::USAGE.to_owned()),
        }
    }
    if let Some(gate) = &options.gate {
        gate.socket.set_nonblocking(true).map_err(|error| format!("cannot listen: {error}"))?;
    }
    if let Some(listener) = &options.listener {
        listener.socket.set_nonblocking(true).map_err(|error| format!("cannot listen: {error}"))?;
    }
    Ok(options)
}

impl Server {
    /// Waits once and does everything that can be done then.
    fn turn(&mut self) {
        self.wait();
        self.read_signals();
        self.accept();
        self.accept_websocket();
        self.offer_connection();
        for key in self.clients.keys().copied().collect::<Vec<_>>() {
            if let Some(client) = self.clients.get_mut(&key) {
                client.receive(&self.poll, &mut self.buffer);
            }
            while let Some((id, message)) = self.clients.get_mut(&key).and_then(Client::next) {
                self.handle(StreamId { client: key, id }, message);
            }
        }
        self.step_commands();
        self.quota.watch(self.commands.values_mut());
        self.socket_memory.watch(self.commands.values_mut());
        self.step_activities();
        self.sweep_orphans();
        self.clients.values_mut().for_each(Client::flush);
        self.forget();
    }

    fn wait(&mut self) {
        self.poll.clear();
        self.poll.add(self.signals.fd(), POLLIN);
        if let Some(listening) = self.options.listening() {
            self.poll.add(listening, POLLIN);
        }
        if let Some(outlet) = self.outlet.as_ref().filter(|_| self.can_open_relay()) {
            outlet.interest(&mut self.poll);
        }
        let mut until = self.idle_deadline();
        let mut runnable = false;
        let mut soonest = |deadline: Option<Instant>| until = until.into_iter().chain(deadline).min();
        for client in self.clients.values() {
            client.interest(&mut self.poll);
            soonest(client.upgrade_deadline());
            soonest(self.options.keepalive.and_then(|keepalive| client.last_heard.checked_add(keepalive)));
        }
        for command in self.commands.values() {
            let client = command.owner.and_then(|owner| self.clients.get(&owner.client));
            command.interest(client, &mut self.poll);
            soonest(command.next_deadline());
        }
        for (stream, activity) in &self.activities {
            let Some(client) = self.clients.get(&stream.client) else { continue };
            match activity {
                Activity::Reading(reading) => runnable |= reading.runnable(client),
                Activity::ReadingFiles(reading) => runnable |= reading.runnable(client),
                Activity::Walk(walk) => runnable |= walk.runnable(client),
                Activity::Relay(relay) => relay.interest(client, &mut self.poll),
                Activity::AwaitJob { until, .. } => soonest(Some(*until)),
                Activity::Command(_) | Activity::Attached(_) | Activity::Update(_) => {}
            }
        }
        if self.commands.values().any(|command| !command.over()) {
            soonest(self.quota.next_check());
            soonest(self.socket_memory.next_check());
        }
        if self.orphans {
            soonest(Some(Instant::now() + ORPHANS_AGAIN));
        }
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.poll.wait(if runnable { Some(Duration::ZERO) } else { timeout });
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let is_alone = self.clients.values().all(|client| client.upgrade_deadline().is_some());
        let ttl = self.options.idle_ttl.filter(|_| is_alone)?;
        self.alone_since.checked_add(ttl)
    }

    fn read_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            // As PID 1 it obeys only signals from outside, so that nothing inside can end the sandbox this way.
            let obey = std::process::id() != 1 || signal.sender == 0;
            if signal.number == sys::SIGTERM || signal.number == sys::SIGINT {
                self.stop |= obey;
            }
        }
        while let Some((process, status)) = sys::reap() {
            if let Some(command) = self.commands.values_mut().find(|c| c.supervisor() == process) {
                command.supervisor_ended();
                self.orphans |= status != 0 && !self.options.has_engine;
            }
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.options.listener else { return };
        if !self.poll.readable(listener.socket.as_raw_fd()) {
            return;
        }
        let Ok((stream, _)) = listener.socket.accept() else { return };
        let allowed = listener.only.is_none_or(|only| sys::peer_uid(&stream).is_ok_and(|uid| uid == only));
        if allowed
            && self.clients.len() < MAX_CLIENTS
            && let Ok(copy) = stream.try_clone()
        {
            self.welcome(copy.into(), stream.into());
        }
    }

    /// Anybody inside can connect here, so those that have not named the secret yet are counted apart, and the oldest of
    /// them makes room.
    fn accept_websocket(&mut self) {
        let Some(gate) =
            self.options.gate.as_ref().filter(|gate| self.poll.readable(gate.socket.as_raw_fd()))
        else {
            return;
        };
        let Ok((stream, _)) = gate.socket.accept() else { return };
        let waiting = self.clients.iter().filter(|(_, client)| client.upgrade_deadline().is_some());
        let waiting: Vec<u64> = waiting.map(|(key, _)| *key).collect();
        if self.clients.len() - waiting.len() >= MAX_CLIENTS {
            return;
        }
        if let (MAX_CLIENTS.., Some(oldest)) = (waiting.len(), waiting.first()) {
            self.clients.remove(oldest);
        }
        if let Ok(client) = Client::over_websocket(stream, gate.verifier) {
            self.clients.insert(self.next_client, client);
            self.next_client += 1;
        }
    }

    /// Offers the next connection to the outlet to its client.
    fn offer_connection(&mut self) {
        let Some(socket) = self.outlet.as_ref().and_then(|outlet| outlet.accept(&self.poll)) else { return };
        let owner = self.outlet.as_ref().map_or(0, |outlet| outlet.owner);
        let Some(client) = self.clients.get_mut(&owner) else { return };
        if let Some(id) = client.next_tunnel() {
            client.send(id, &Message::Open {});
            let stream = StreamId { client: owner, id };
            self.activities.insert(stream, Activity::Relay(Relay::offered(socket)));
        }
    }

    fn welcome(&mut self, input: OwnedFd, output: OwnedFd) {
        if let Ok(client) = Client::new(input, output) {
            self.clients.insert(self.next_client, client);
            self.next_client += 1;
        }
    }

    fn step_commands(&mut self) {
        for command in self.commands.values_mut() {
            let client = command.owner.and_then(|owner| self.clients.get_mut(&owner.client));
            command.step(client, &self.poll, &mut self.buffer, &mut self.spools, &mut self.budget, &self.oom);
        }
    }

    fn step_activities(&mut self) {
        let mut ended = Vec::new();
        for (stream, activity) in &mut self.activities {
            let Some(client) = self.clients.get_mut(&stream.client) else {
                ended.push(*stream);
                continue;
            };
            let over = match activity {
                Activity::Command(key) => {
                    self.commands.get(key).is_none_or(|command| command.finished.is_some())
                }
                Activity::Attached(key) => {
                    self.commands.get(key).is_none_or(|command| command.owner != Some(*stream))
                }
                Activity::AwaitJob { job, until, death } => {
                    let command = self.jobs.get(job).and_then(|key| self.commands.get_mut(key));
                    answer_about_job(stream.id, command, *until, *death, client)
                }
                Activity::Reading(reading) => {
                    reading.runnable(client) && reading.step(stream.id, client, &mut self.buffer)
                }
                Activity::ReadingFiles(reading) => {
                    reading.runnable(client) && reading.step(stream.id, client, &mut self.buffer)
                }
                Activity::Walk(walk) => {
                    let Self { hashes, snapshots, buffer, .. } = self;
                    walk.runnable(client) && walk.step(stream.id, client, hashes, snapshots, buffer)
                }
                Activity::Relay(relay) => {
                    relay.step(stream.id, client, &self.poll, &mut self.buffer, &mut self.budget)
                }
                Activity::Update(_) => false,
            };
            if over {
                ended.push(*stream);
            }
        }
        ended.into_iter().for_each(|stream| self.end_activity(stream));
    }

    /// Kills processes that this one inherited because their supervisor was killed.
    fn sweep_orphans(&mut self) {
        if self.orphans {
            let supervised = |id: &i32| self.commands.values().any(|command| command.supervisor() == *id);
            let mut orphans = processes::children(std::process::id() as i32);
            orphans.retain(|id| !supervised(id));
            for &id in &orphans {
                processes::kill_below(id);
                sys::kill(id, sys::SIGKILL);
            }
            self.orphans = !orphans.is_empty();
        }
    }

    /// Drops clients that are gone, with their commands, and commands that no client can ask about.
    pub fn forget(&mut self) {
        let connected = |clients: &BTreeMap<u64, Client>| {
            clients.values().filter(|c| c.upgrade_deadline().is_none()).count()
        };
        let before = connected(&self.clients);
        if let Some(keepalive) = self.options.keepalive {
            self.clients
                .values_mut()
                .for_each(|client| client.closed |= client.last_heard.elapsed() >= keepalive);
        }
        let is_late = |client: &Client| client.upgrade_deadline().is_some_and(|late| late <= Instant::now());
        self.clients.retain(|_, client| !client.closed && !is_late(client));
        if connected(&self.clients) < before {
            self.alone_since = Instant::now();
        }
        self.outlet.take_if(|outlet| !self.clients.contains_key(&outlet.owner));
        let jobs: HashSet<u64> = self.jobs.values().copied().collect();
        for command in self.commands.values_mut() {
            if let Some(owner) = command.owner
                && !self.clients.contains_key(&owner.client)
            {
                command.owner_is_gone();
            }
        }
        self.commands.retain(|key, command| jobs.contains(key) || !command.over());
        self.stop |= self.idle_deadline().is_some_and(|deadline| deadline <= Instant::now());
    }

    /// As PID 1 the end of this process would be enough; elsewhere it is not.
    fn end_everything(&mut self) {
        self.clients.values_mut().for_each(Client::flush);
        for command in self.commands.values().filter(|command| !command.over()) {
            processes::kill_below(command.supervisor());
        }
        processes::kill_below(std::process::id() as i32);
    }
}
