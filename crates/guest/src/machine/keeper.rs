//! `guest keep`: process 1 of the namespaces around a virtual machine. Starts QEMU, keeps the last words of its console, hands
//! its clients' streams to the guest in the machine, and ends with it: also where the machine hangs or does not boot.
//!
//! The first byte that a client reads is `r`, after which comes the guest's protocol, or `f` and why there is no guest.

use super::clock::Clock;
use super::console::{LAST_WORDS, TextTail, read_some};
use super::monitor::Monitor;
use super::mux::{ENTROPY, Event, MAX_CONTENT, Mux, Notice};
use super::qemu::{Launched, Machine, launch};
use crate::sys::{self, POLLIN, Poll, Signals};
use agent_wire::boot_spec::{
    DISK_FILE, FRESH_FILE, PAUSE_SIGNAL, RESUME_SIGNAL, SESSION_FILE, STATE_FILE, UNSAVED_FILE,
};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Clients at once; more are refused.
const MAX_CLIENTS: usize = 16;
/// Silence after which the guest is asked whether it is there, and after which the machine is given up.
const PING_AFTER: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(30);
/// The longest wait of the loop for something to do.
const TURN: Duration = Duration::from_secs(1);
/// A turn that took longer than this was not the machine's fault: everything was frozen.
const FROZEN: Duration = Duration::from_secs(4);
/// The time for which clients that come back to ask learn why the machine has ended.
const LINGER: Duration = Duration::from_secs(5);
/// The time by which this side waits longer for a client than the guest inside.
const GRACE: Duration = Duration::from_secs(30);
const DISK_IS_FULL: &str = "the virtual machine has ended: this machine has no space left for its disk";

struct KeeperOptions {
    /// The guest inside ends after this time without a client.
    idle_ttl: Duration,
    /// The time limit for the machine to boot.
    boot: Duration,
    /// Set where the machine is booted to be saved, and becomes nobody's.
    is_saved: bool,
    /// The state to restore as long as nothing was written to the disk. Where it is not there any more, the machine boots.
    state: Option<String>,
    command: Vec<String>,
    /// The arguments that are added to the command where the machine boots.
    boot_arguments: Vec<String>,
}

/// A client that waits for the machine.
struct WaitingClient {
    input: OwnedFd,
    output: OwnedFd,
}

/// The stage of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It boots, or is being restored.
    Starting,
    /// Clients are served.
    Ready,
    /// It was asked to have nothing under way, to be saved.
    Pausing,
}

struct Keeper {
    options: KeeperOptions,
    listener: UnixListener,
    signals: Signals,
    mux: Mux,
    machine: Child,
    monitor: Monitor,
    console: Option<File>,
    errors: Option<File>,
    console_tail: TextTail,
    errors_tail: TextTail,
    waiting: Vec<WaitingClient>,
    /// It begins with a state, and stands still.
    is_restored: bool,
    /// Set once the machine has booted, or was restored: it gets its session once.
    has_booted: bool,
    stage: Stage,
    /// The first client is waited for: the machine is not started for nobody.
    is_for_client: bool,
    /// Set where the machine is to go on once it is saved.
    is_wanted: bool,
    clock: Clock,
    started: Instant,
    last_heard: Instant,
    last_ping: Instant,
    alone_since: Instant,
}

/// The reason why the machine is not served any more.
enum End {
    /// As it should.
    Clean,
    Failure(String),
}

/// `guest keep`. Returns when the machine has ended.
pub fn main(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let options = parse(arguments)?;
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let listener = sys::adopt(3).map_err(failed("no descriptor 3"))?;
    let listener = UnixListener::from(listener);
    listener.set_nonblocking(true).map_err(failed("cannot listen"))?;
    sys::prctl(sys::PR_SET_DUMPABLE, 0).map_err(failed("cannot become undumpable"))?;
    let (input, output) = sys::take_stdio().map_err(failed("cannot take standard input and output"))?;
    let input = File::from(input);
    // Where the sandbox is started again, nobody is there yet.
    let is_client = input.metadata().is_ok_and(|found| !found.file_type().is_char_device());
    let waiting = is_client.then(|| WaitingClient { input: input.into(), output });
    let signals = Signals::block(&[PAUSE_SIGNAL, RESUME_SIGNAL]).map_err(failed("cannot block signals"))?;
    match Keeper::start(options, listener, signals, waiting.into_iter().collect()) {
        Ok(mut keeper) => {
            let end = keeper.keep();
            keeper.end(end);
            Ok(())
        }
        Err((waiting, error)) => {
            let why = format!("the virtual machine could not be started: {error}");
            waiting.into_iter().for_each(|client| refuse(client, &why));
            Err(why)
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<KeeperOptions, String> {
    let mut number = |expected: &str| {
        let is_it = arguments.next().is_some_and(|name| name == expected);
        let value = arguments.next().and_then(|value| value.parse::<u32>().ok());
        value.filter(|_| is_it).map(|value| Duration::from_secs(value.into())).ok_or(crate::USAGE)
    };
    let (idle_ttl, boot) = (number("--idle-ttl")?, number("--boot")?);
    let mut arguments = arguments.peekable();
    let is_saved = arguments.next_if(|argument| argument == "--save").is_some();
    let state = match arguments.next_if(|argument| argument == "--restore") {
        Some(_) => Some(arguments.next().ok_or(crate::USAGE)?),
        None => None,
    };
    let command: Vec<String> = arguments.by_ref().take_while(|argument| argument != "--").collect();
    if command.is_empty() {
        return Err(crate::USAGE.to_owned());
    }
    Ok(KeeperOptions { idle_ttl, boot, is_saved, state, command, boot_arguments: arguments.collect() })
}

type Started = Result<Keeper, (Vec<WaitingClient>, io::Error)>;

impl Keeper {
    fn start(
        options: KeeperOptions,
        listener: UnixListener,
        signals: Signals,
        waiting: Vec<WaitingClient>,
    ) -> Started {
        let is_fresh = fs::remove_file(FRESH_FILE).is_ok();
        let is_paused = !options.is_saved && Path::new(STATE_FILE).is_file();
        let state = match &options.state {
            _ if is_paused => Some(STATE_FILE),
            state => state.as_deref().filter(|state| is_fresh && Path::new(state).is_file()),
        };
        let started = launch(&options.command, &options.boot_arguments, state)
            .and_then(|launched| Ok((Mux::new(launched.port)?, launched.rest)));
        let (mut mux, Machine { machine, monitor, console, errors }) = match started {
            Ok(started) => started,
            Err(error) => return Err((waiting, error)),
        };
        if is_paused {
            mux.send(Notice::Reset, &[]);
        }
        let now = Instant::now();
        Ok(Self {
            is_restored: state.is_some(),
            has_booted: state.is_some(),
            options,
            listener,
            signals,
            mux,
            machine,
            monitor,
            console,
            errors,
            console_tail: TextTail::default(),
            errors_tail: TextTail::default(),
            is_for_client: !waiting.is_empty(),
            waiting,
            stage: Stage::Starting,
            is_wanted: false,
            clock: Clock::now(),
            started: now,
            last_heard: now,
            last_ping: now,
            alone_since: now,
        })
    }

    /// Serves until the machine has ended, or has to.
    fn keep(&mut self) -> End {
        if self.is_restored && self.go_on().is_err() {
            return self.lost();
        }
        let mut poll = Poll::default();
        let mut events = Vec::new();
        loop {
            let began = Instant::now();
            self.wait(&mut poll);
            let was_frozen = began.elapsed() > FROZEN;
            if was_frozen {
                self.last_heard = Instant::now();
                self.alone_since = Instant::now();
            }
            if self.stage == Stage::Ready && (self.clock.has_jumped() || was_frozen) {
                self.mux.send(Notice::Clock, &now_in_bytes());
            }
            self.listen_to_machine(&poll);
            self.obey_signals();
            self.accept(&poll);
            match self.mux.step(&poll, &mut events) {
                Ok(true) => self.last_heard = Instant::now(),
                Ok(false) => {}
                Err(_) => return self.lost(),
            }
            for event in events.drain(..) {
                if let Some(end) = self.obey(event) {
                    return end;
                }
            }
            // After the port, on which a machine that ends has said why.
            if poll.readable(self.monitor.fd()) {
                match self.monitor.disk_is_full() {
                    Ok(false) => {}
                    Ok(true) => return End::Failure(DISK_IS_FULL.to_owned()),
                    Err(_) => return self.lost(),
                }
            }
            if self.machine.try_wait().is_ok_and(|ended| ended.is_some()) {
                return self.lost();
            }
            if self.stage == Stage::Starting && self.is_for_client && !self.has_waiting_client(&poll) {
                return End::Clean;
            }
            if let Some(end) = self.too_late() {
                return end;
            }
        }
    }

    /// Does what the machine says, if it may say that now.
    fn obey(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Notice(Notice::Ready, _) if self.stage == Stage::Starting => {
                let failed = self.ready().err()?;
                Some(End::Failure(format!("the virtual machine cannot be saved: {failed}")))
            }
            Event::Notice(Notice::Failed, why) => {
                let why = String::from_utf8_lossy(&why[..why.len().min(LAST_WORDS)]).into_owned();
                Some(End::Failure(format!("the virtual machine did not become a sandbox: {why}")))
            }
            Event::Notice(Notice::Ended, _) => Some(End::Clean),
            Event::Notice(Notice::Booted, _) if !self.has_booted => {
                self.has_booted = true;
                let failed = send_session(&mut self.mux).err()?;
                Some(End::Failure(format!("the virtual machine gets no session: {failed}")))
            }
            Event::Notice(Notice::Paused, _) if self.stage == Stage::Pausing => self.sleep(),
            // One who asks and does not read gets no answer.
            Event::Notice(Notice::Clock, _) if self.mux.has_space() => {
                self.mux.send(Notice::Clock, &now_in_bytes());
                None
            }
            Event::Notice(Notice::Clock | Notice::Ping | Notice::Pong, _) => None,
            // What is said once is not said twice.
            Event::Notice(..) | Event::Opened(_) => Some(self.lost()),
        }
    }

    fn wait(&mut self, poll: &mut Poll) {
        poll.clear();
        self.mux.interest(poll);
        poll.add(self.listener.as_raw_fd(), POLLIN);
        poll.add(self.signals.fd(), POLLIN);
        poll.add(self.monitor.fd(), POLLIN);
        for file in self.console.iter().chain(&self.errors) {
            poll.add(file.as_raw_fd(), POLLIN);
        }
        // Only the end of one that waits is of interest: what it sends waits with it.
        self.waiting.iter().for_each(|client| poll.add(client.input.as_raw_fd(), 0));
        poll.wait(Some(TURN));
    }

    /// Forgets clients that went away while they waited; `false` where none is left.
    fn has_waiting_client(&mut self, poll: &Poll) -> bool {
        self.waiting.retain(|client| !poll.readable(client.input.as_raw_fd()));
        !self.waiting.is_empty()
    }

    fn listen_to_machine(&mut self, poll: &Poll) {
        for (file, tail) in
            [(&mut self.console, &mut self.console_tail), (&mut self.errors, &mut self.errors_tail)]
        {
            let Some(open) = file.as_mut().filter(|file| poll.readable(file.as_raw_fd())) else { continue };
            if !read_some(open, tail) {
                *file = None;
            }
        }
    }

    fn accept(&mut self, poll: &Poll) {
        if !poll.readable(self.listener.as_raw_fd()) {
            return;
        }
        let Some(client) = accepted(&self.listener) else { return };
        if self.waiting.len() + self.mux.clients() >= MAX_CLIENTS {
            return refuse(client, "the virtual machine has as many clients as it may have");
        }
        match self.stage {
            Stage::Ready => self.admit(client),
            Stage::Starting | Stage::Pausing => self.waiting.push(client),
        }
    }

    /// Serves clients from now on. A machine that is nobody's is saved instead, and stands still.
    fn ready(&mut self) -> io::Result<()> {
        match self.options.is_saved {
            true => self.monitor.save(&mut File::create(STATE_FILE)?)?,
            // What it was restored from, if it was.
            false => drop(fs::remove_file(STATE_FILE)),
        }
        self.serve();
        Ok(())
    }

    fn serve(&mut self) {
        self.stage = Stage::Ready;
        self.mux.set_quiet(false);
        for client in std::mem::take(&mut self.waiting) {
            self.admit(client);
        }
    }

    /// Lets a machine go on that was restored, with random bytes that nobody knows. It asks for the time then.
    fn go_on(&mut self) -> io::Result<()> {
        self.monitor.go_on()?;
        self.mux.send(Notice::Session, &entropy()?);
        Ok(())
    }

    /// Begins to pause the machine, or notes that it is to go on.
    fn obey_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match (signal.number, self.stage) {
                (PAUSE_SIGNAL, Stage::Ready) => {
                    self.stage = Stage::Pausing;
                    self.is_wanted = false;
                    self.mux.set_quiet(true);
                    self.mux.send(Notice::Pause, &[]);
                }
                (PAUSE_SIGNAL, Stage::Starting) => say_unsaved("it has not started yet"),
                (RESUME_SIGNAL, _) => self.is_wanted = true,
                _ => {}
            }
        }
    }

    /// Saves the machine, which has nothing under way, and ends it; waits until it is wanted again, and restores it.
    fn sleep(&mut self) -> Option<End> {
        if let Err(error) = self.save_and_end() {
            say_unsaved(&error.to_string());
            self.stage = Stage::Starting;
            self.is_for_client = false;
            return self.go_on().is_err().then(|| self.lost());
        }
        let mut poll = Poll::default();
        while !self.is_wanted {
            poll.clear();
            poll.add(self.listener.as_raw_fd(), POLLIN);
            poll.add(self.signals.fd(), POLLIN);
            poll.wait(None);
            self.accept(&poll);
            self.obey_signals();
        }
        match self.wake() {
            Ok(()) => self.go_on().is_err().then(|| self.lost()),
            Err(error) => {
                Some(End::Failure(format!("the paused virtual machine could not be started: {error}")))
            }
        }
    }

    fn save_and_end(&mut self) -> io::Result<()> {
        let unfinished = Path::new(STATE_FILE).with_extension("new");
        let saved = File::create(&unfinished).and_then(|mut file| {
            self.monitor.save(&mut file)?;
            file.sync_all()?;
            File::open(DISK_FILE)?.sync_all()
        });
        if let Err(error) = saved {
            // It is the rest of a failure that is reported.
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        let _ = self.machine.kill();
        let _ = self.machine.wait();
        fs::rename(&unfinished, STATE_FILE)
    }

    /// Starts QEMU again with what was saved.
    fn wake(&mut self) -> io::Result<()> {
        let Launched { port, rest } =
            launch(&self.options.command, &self.options.boot_arguments, Some(STATE_FILE))?;
        (self.machine, self.monitor) = (rest.machine, rest.monitor);
        (self.console, self.errors) = (rest.console, rest.errors);
        self.mux.move_to(port)?;
        let now = Instant::now();
        (self.started, self.last_heard, self.last_ping, self.alone_since) = (now, now, now, now);
        (self.stage, self.is_for_client) = (Stage::Starting, false);
        self.clock = Clock::now();
        Ok(())
    }

    fn admit(&mut self, client: WaitingClient) {
        let mut output = File::from(client.output);
        if output.write_all(b"r").is_ok() {
            // One whose descriptors cannot be used is gone.
            let _ = self.mux.open(client.input, output.into());
        }
    }

    /// Pings where nothing was heard, and says where something has taken too long.
    fn too_late(&mut self) -> Option<End> {
        let now = Instant::now();
        if self.stage == Stage::Starting {
            let is_late = now > self.started + self.options.boot;
            return is_late.then(|| {
                let words = self.last_words();
                let seconds = self.options.boot.as_secs();
                End::Failure(format!("the virtual machine did not boot within {seconds} s{words}"))
            });
        }
        if self.mux.clients() > 0 {
            self.alone_since = now;
        }
        if now > self.alone_since + self.options.idle_ttl + GRACE {
            return Some(End::Clean);
        }
        if now > self.last_heard + SILENCE {
            let seconds = SILENCE.as_secs();
            let words = self.last_words();
            return Some(End::Failure(format!(
                "the virtual machine has not answered for {seconds} s: it is stopped, or its kernel hangs{words}"
            )));
        }
        let is_silent = now > self.last_heard + PING_AFTER && now > self.last_ping + PING_AFTER;
        if is_silent && self.stage == Stage::Ready {
            self.mux.send(Notice::Ping, &[]);
            self.mux.send(Notice::Clock, &now_in_bytes());
            self.last_ping = now;
        }
        None
    }

    /// The port has ended, or QEMU has, without a word of the guest.
    fn lost(&mut self) -> End {
        self.switched_off();
        let _ = self.machine.kill();
        let status = self.machine.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        for (file, tail) in
            [(&mut self.console, &mut self.console_tail), (&mut self.errors, &mut self.errors_tail)]
        {
            file.as_mut().map(|file| read_some(file, tail));
        }
        let words = self.last_words();
        let console = self.console_tail.text();
        End::Failure(match console.rfind("Kernel panic") {
            Some(at) => {
                let line = console[at..].lines().next().unwrap_or_default().trim_end();
                format!("the kernel of the virtual machine has panicked: {line}{words}")
            }
            None if self.stage != Stage::Starting => {
                format!("the virtual machine has ended: QEMU, {status}{words}")
            }
            None => format!("the virtual machine ended before it had booted: QEMU, {status}{words}"),
        })
    }

    /// The last lines of QEMU and of the console, to be added to a message.
    fn last_words(&self) -> String {
        let lines = |tail: &TextTail| -> Vec<String> {
            let text = tail.text();
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            lines[lines.len().saturating_sub(8)..].iter().map(|line| line.trim_end().to_owned()).collect()
        };
        let said = [lines(&self.errors_tail), lines(&self.console_tail)].concat();
        if said.is_empty() { String::new() } else { format!("\n{}", said.join("\n")) }
    }

    /// Ends the machine, and tells why: those who wait, and those who come back because their stream was cut.
    fn end(mut self, end: End) {
        let _ = self.mux.flush();
        if matches!(end, End::Clean) && self.stage == Stage::Ready {
            self.switched_off();
        }
        let _ = self.machine.kill();
        let _ = self.machine.wait();
        let End::Failure(why) = end else { return };
        let clients = self.mux.clients();
        drop(self.mux);
        let had_waiting = !self.waiting.is_empty();
        self.waiting.drain(..).for_each(|client| refuse(client, &why));
        if clients == 0 && had_waiting {
            return;
        }
        let until = Instant::now() + LINGER;
        let mut poll = Poll::default();
        while Instant::now() < until {
            poll.clear();
            poll.add(self.listener.as_raw_fd(), POLLIN);
            poll.wait(Some(TURN));
            if let Some(client) = accepted(&self.listener) {
                refuse(client, &why);
            }
        }
    }

    /// Waits a moment until the machine has switched itself off.
    fn switched_off(&mut self) {
        const OFF: Duration = Duration::from_secs(1);
        let until = Instant::now() + OFF;
        while Instant::now() < until && self.machine.try_wait().is_ok_and(|ended| ended.is_none()) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Tells the machine whose it is.
fn send_session(mux: &mut Mux) -> io::Result<()> {
    let mut content = entropy()?.to_vec();
    content.extend(fs::read(SESSION_FILE)?);
    if content.len() > MAX_CONTENT {
        return Err(io::Error::other("the specification of the session is too long"));
    }
    mux.send(Notice::Session, &content);
    Ok(())
}

/// Random bytes that nobody knows.
fn entropy() -> io::Result<[u8; ENTROPY]> {
    let mut bytes = [0; ENTROPY];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Tells who has asked for it why the machine is not paused, and goes on.
fn say_unsaved(why: &str) {
    // Who asked gives up after a while.
    let _ = fs::write(UNSAVED_FILE, why);
}

fn now_in_bytes() -> [u8; 8] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
}

fn accepted(listener: &UnixListener) -> Option<WaitingClient> {
    let (stream, _) = listener.accept().ok()?;
    let output = stream.try_clone().ok()?.into();
    Some(WaitingClient { input: stream.into(), output })
}

/// Tells a client why there is no guest for it.
fn refuse(client: WaitingClient, why: &str) {
    // A client that is gone reads nothing.
    let _ = sys::set_nonblocking(client.output.as_raw_fd());
    let _ = File::from(client.output).write_all(format!("f{why}").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// A keeper whose machine is this text of bash, and its client. The port is the descriptor `$fd`.
    fn keeper_of(script: &str) -> (Keeper, UnixStream) {
        let (client, mine) = UnixStream::pair().unwrap();
        let path = std::env::temp_dir().join(format!("keeper-{}-{}", std::process::id(), script.len()));
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let script = format!("fd=${{1##*=}}; {script}");
        let options = KeeperOptions {
            idle_ttl: Duration::from_secs(1),
            boot: Duration::from_secs(60),
            is_saved: false,
            state: None,
            boot_arguments: Vec::new(),
            command: vec!["/bin/bash".into(), "-c".into(), script],
        };
        let copy = mine.try_clone().unwrap();
        let waiting = vec![WaitingClient { input: mine.into(), output: copy.into() }];
        let signals = Signals::block(&[]).unwrap();
        (Keeper::start(options, listener, signals, waiting).map_err(|(_, error)| error).unwrap(), client)
    }

    /// Returns the text that a client reads whose machine is this text of bash.
    fn said_of(script: &str) -> String {
        let (mut keeper, mut client) = keeper_of(script);
        let end = keeper.keep();
        keeper.end(end);
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        said
    }

    /// A kernel that said so a thousand times was answered each time with its session, which nobody read.
    #[test]
    fn a_machine_that_says_twice_that_it_is_there_is_given_up() {
        for (kind, is_said) in [(Notice::Booted, true), (Notice::Ready, false)] {
            let bytes = format!("\\x{:02x}\\0\\0\\0\\0\\0\\0\\0\\0", kind as u8);
            let script = format!("for ((n = 0; n < 1000; n++)); do printf '{bytes}'; done >&$fd; sleep 60");
            let (mut keeper, client) = keeper_of(&script);
            keeper.has_booted = is_said;
            let End::Failure(why) = keeper.keep() else { panic!("the machine ended as it should") };
            assert!(why.contains("the virtual machine"), "{why}");
            // Of Ready the first one was obeyed: a stream was opened for the client.
            assert!(!keeper.mux.has_waiting() || kind == Notice::Ready);
            assert!(keeper.machine.try_wait().unwrap().is_some());
            drop(client);
        }
    }

    #[test]
    fn a_machine_that_does_not_start_is_told_to_who_waits() {
        assert_eq!(
            said_of("echo 'no such machine' >&2; exit 3"),
            "fthe virtual machine ended before it had booted: QEMU, exit status: 3\nno such machine"
        );
    }

    #[test]
    fn a_panic_is_told_from_other_ends() {
        assert_eq!(
            said_of("echo 'Kernel panic - not syncing: why'; echo 'Call Trace:'"),
            "fthe kernel of the virtual machine has panicked: Kernel panic - not syncing: why\n\
             Kernel panic - not syncing: why\nCall Trace:"
        );
    }
    /// A machine that speaks all the time was not told that this one had been suspended.
    #[test]
    fn a_clock_that_jumps_is_told_to_the_machine() {
        let ready = "\\x01\\0\\0\\0\\0\\0\\0\\0\\0";
        // The first frame opens the client's stream; of the next one the kind is shown.
        let script =
            format!("printf '{ready}' >&$fd; head -c 9 <&$fd >/dev/null; head -c 1 <&$fd | od -An -tu1");
        let (mut keeper, _client) = keeper_of(&script);
        keeper.clock.time -= Duration::from_secs(3600);
        let End::Failure(why) = keeper.keep() else { panic!("the machine ended as it should") };
        assert!(why.trim_end().ends_with(&(Notice::Clock as u8).to_string()), "{why}");
    }

    #[test]
    fn a_machine_whose_disk_finds_no_space_is_given_up() {
        let event = r#"{"event": "BLOCK_IO_ERROR", "data": {"nospace": true}}"#;
        // The monitor is the third of the arguments.
        let (mut keeper, _client) = keeper_of(&format!("echo '{event}' >&${{3##*=}}; sleep 60"));
        let End::Failure(why) = keeper.keep() else { panic!("the machine ended as it should") };
        assert_eq!(why, DISK_IS_FULL);
        keeper.end(End::Clean);
    }
}
