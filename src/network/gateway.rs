//! The gateway of a session: what it lets through, whom it asks, and what it tells.

use super::PORT;
use super::connection::{self, End};
use super::environment::variables;
use super::host::Host;
use super::list::{Entry, entries};
use super::request::Request;
use super::rules::{Reach, Rules, Verdict};
use super::traffic::{Limits, Meter};
use crate::error::Result;
use crate::event::{Event, Events};
use crate::sandbox::{Network, Sandbox, Tunnels};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Questions that wait for a person at once. A program that asks for more hosts than that is not asked about them.
const MAX_QUESTIONS: usize = 8;
/// Refusals that are remembered for the model.
const MAX_REFUSALS: usize = 10;
/// Different refusals that are told with a `denied` of their own; one notice says where that ends. Each of their
/// connections is told in any case.
const MAX_DENIALS: usize = 100;
/// How long the end waits for connections to be told.
const END_WAIT: Duration = Duration::from_secs(1);
/// The limit on all connections, as events name it.
const CONNECTIONS: &str = "connections";
/// Why a host is refused that nobody said anything about.
const NOT_LISTED: &str = "it is not on the list of --network";

/// Asks a person about a connection. The question is one line. `None`: there is no answer.
pub type Ask = Arc<dyn Fn(String) -> BoxFuture<'static, Option<Answer>> + Send + Sync>;

/// What a person says about a host that is not on the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// This connection, and those that wait for the same answer.
    Once,
    /// From now on, until the session ends.
    Session,
    /// Not in this session, without another question.
    Never,
}

/// What a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Permit {
    pub reach: Reach,
    /// A person has said yes to this very host and port.
    by_person: bool,
}

/// A question under way, for all who wait for its answer.
type Asked = Shared<BoxFuture<'static, Option<Answer>>>;

/// Lets connections of a session's sandboxes through, or not.
pub struct Gateway {
    events: Arc<Events>,
    is_full: bool,
    limits: Limits,
    rules: Mutex<Rules>,
    ask: Mutex<Option<Ask>>,
    asked: Mutex<HashMap<(Host, u16), Asked>>,
    connections: AtomicU64,
    bytes: AtomicU64,
    room: Semaphore,
    refusals: Mutex<Vec<String>>,
    limits_told: Mutex<HashSet<&'static str>>,
    /// What was refused and why, of which one `denied` is enough.
    denials_told: Mutex<HashSet<String>>,
    over: watch::Sender<bool>,
    /// Nothing more is told.
    silent: Mutex<bool>,
}

impl Gateway {
    /// A gateway for what `--network` says.
    ///
    /// # Errors
    ///
    /// The list is none.
    pub fn new(network: &Network, events: Arc<Events>, limits: Limits) -> Result<Arc<Self>> {
        let allowed = match network {
            Network::None | Network::Full => Vec::new(),
            Network::Hosts(hosts) => entries(&hosts.join(","))?,
        };
        Ok(Arc::new(Self {
            events,
            is_full: *network == Network::Full,
            room: Semaphore::new(limits.at_once),
            limits,
            rules: Mutex::new(Rules::new(allowed)),
            ask: Mutex::default(),
            asked: Mutex::default(),
            connections: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            refusals: Mutex::default(),
            limits_told: Mutex::default(),
            denials_told: Mutex::default(),
            over: watch::Sender::new(false),
            silent: Mutex::new(false),
        }))
    }

    /// Whether the sandbox has the engine's ordinary network, so that nothing passes here.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The rules as they stand.
    pub fn rules(&self) -> Rules {
        lock(&self.rules).clone()
    }

    /// Changes the rules. Where something is allowed for the first time, [`Gateway::attach`] opens the proxy.
    pub fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut lock(&self.rules));
    }

    /// Lets a person be asked about hosts that are not on the list.
    pub fn ask_with(&self, ask: Ask) {
        *lock(&self.ask) = Some(ask);
    }

    /// Opens the proxy in a sandbox, if any host is allowed: while none is, nothing listens there. Called again after a
    /// change, it brings the variables up to date.
    ///
    /// # Errors
    ///
    /// The port is taken inside, or the guest is gone.
    pub async fn attach(self: &Arc<Self>, sandbox: &Sandbox) -> Result<()> {
        let rules = self.rules();
        if self.is_full || rules.allowed().is_empty() {
            return Ok(());
        }
        sandbox.listen(PORT, &variables(&rules)).await.map_err(|error| {
            error.hint(format!("the network's proxy needs port {PORT} of the sandbox's loopback; does something else listen there?"))
        })?;
        // Where there are none, they are being served already.
        if let Some(tunnels) = sandbox.tunnels() {
            tokio::spawn(Arc::clone(self).serve(tunnels));
        }
        Ok(())
    }

    async fn serve(self: Arc<Self>, mut tunnels: Tunnels) {
        while let Some(tunnel) = tunnels.next().await {
            tokio::spawn(connection::serve(Arc::clone(&self), tunnel.accept()));
        }
    }

    /// Ends every connection and tells of it. Nothing is told any more after this.
    pub async fn end(&self) {
        self.over.send_replace(true);
        // All of the room is there when every connection has ended.
        let all = u32::try_from(self.limits.at_once).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(END_WAIT, self.room.acquire_many(all)).await;
        *lock(&self.silent) = true;
    }

    /// What was refused since this was asked last, for the model.
    pub fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.refusals))
    }

    /// `work`, unless the session ends first.
    pub(super) async fn until_over<T>(&self, work: impl Future<Output = Result<T, End>>) -> Result<T, End> {
        let mut over = self.over.subscribe();
        tokio::select! {
            biased;
            _ = over.wait_for(|over| *over) => Err(End::Gone),
            result = work => result,
        }
    }

    /// Takes up a connection, for as long as the permit lives.
    pub(super) fn admit(&self) -> Result<SemaphorePermit<'_>, End> {
        let (at_once, all) = (self.limits.at_once, self.limits.connections);
        if self.connections.fetch_add(1, Relaxed) >= all {
            return Err(End::Limit(CONNECTIONS, format!("the limit of {all} connections is reached")));
        }
        let full = |_| End::Limit("connections_at_once", format!("{at_once} connections are open already"));
        self.room.try_acquire().map_err(full)
    }

    pub(super) fn meter(&self) -> Meter<'_> {
        Meter::new(&self.bytes, self.limits.bytes)
    }

    /// Whether the rules, or a person, allow a connection.
    pub(super) async fn judge(&self, host: &Host, port: u16) -> Result<Permit, End> {
        let refused = |why: &str| Err(End::Refused(why.to_owned()));
        let verdict = lock(&self.rules).judge(host, port);
        match verdict {
            Verdict::Allowed(reach) => return Ok(Permit { reach, by_person: false }),
            Verdict::Denied => return refused("the person said no to it"),
            Verdict::Unknown => {}
        }
        let entry = Entry::exactly(host, port);
        let reach = if entry.names_port() { Reach::Anything } else { Reach::Web };
        match self.answer(host, port).await {
            None => return refused(NOT_LISTED),
            Some(Answer::Never) => {
                self.change(|rules| rules.deny(entry));
                return refused("the person who was asked said never");
            }
            Some(Answer::Session) => self.change(|rules| rules.allow(entry)),
            Some(Answer::Once) => {}
        }
        Ok(Permit { reach, by_person: true })
    }

    /// What the person says; all who wait for the same host get the same answer. `None`: nobody can be asked.
    async fn answer(&self, host: &Host, port: u16) -> Option<Answer> {
        let ask = lock(&self.ask).clone()?;
        let key = (host.clone(), port);
        let asked = {
            let mut all = lock(&self.asked);
            if all.len() >= MAX_QUESTIONS && !all.contains_key(&key) {
                return None;
            }
            let begin = || {
                // A task of its own: whoever has asked may be gone before the person has answered.
                let asking = tokio::spawn(ask(question(host, port)));
                async move { asking.await.unwrap_or(None) }.boxed().shared()
            };
            all.entry(key.clone()).or_insert_with(begin).clone()
        };
        let answer = asked.clone().await;
        let mut all = lock(&self.asked);
        if all.get(&key).is_some_and(|current| current.ptr_eq(&asked)) {
            all.remove(&key);
        }
        answer
    }

    /// Whether an address of the machine's own network was named itself, with its port.
    pub(super) fn names(&self, permit: &Permit, host: &Host, address: IpAddr, port: u16) -> bool {
        let by_person = permit.by_person && *host == Host::Ip(address);
        by_person || lock(&self.rules).names(address, port)
    }

    /// Tells what came of a connection; of those beyond the limit of all only the first.
    pub(super) fn tell(&self, request: &Request, meter: &Meter<'_>, allowed: bool, end: Option<&End>) {
        let (host, port) = (&request.host, request.port);
        if let Some(End::Limit(limit, _)) = end {
            match lock(&self.limits_told).insert(limit) {
                true => self.emit(Event::LimitReached { limit: (*limit).to_owned() }),
                false if *limit == CONNECTIONS => return,
                false => {}
            }
        }
        let reason = end.and_then(End::reason).map(str::to_owned);
        if let (false, Some(reason)) = (allowed, &reason) {
            self.deny(&format!("{host}:{port}"), reason);
        }
        self.emit(Event::Connection {
            host: host.to_string().trim_matches(['[', ']']).to_owned(),
            port,
            allowed,
            sent: meter.sent.load(Relaxed),
            received: meter.received.load(Relaxed),
            duration_ms: u64::try_from(meter.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            reason,
        });
    }

    /// Remembers a refusal for the model, and tells of it, where it is the first of its kind. Programs try again and again.
    fn deny(&self, target: &str, reason: &str) {
        let refusal = format!("{target} ({reason})");
        let mut refusals = lock(&self.refusals);
        if refusals.len() < MAX_REFUSALS && !refusals.contains(&refusal) {
            refusals.push(refusal.clone());
        }
        drop(refusals);
        let mut told = lock(&self.denials_told);
        if told.len() > MAX_DENIALS || !told.insert(refusal) {
            return;
        }
        let is_last = told.len() > MAX_DENIALS;
        drop(told);
        self.emit(match is_last {
            false => Event::Denied { what: format!("connect to {target}"), rule: reason.to_owned() },
            true => Event::Notice {
                text: format!(
                    "the network refused more than {MAX_DENIALS} targets; further ones are told by connection events alone"
                ),
            },
        });
    }

    fn emit(&self, event: Event) {
        let silent = lock(&self.silent);
        if !*silent {
            // A session file that cannot be written fails at the next event of the turn itself.
            let _ = self.events.emit(event);
        }
    }
}

/// What a person reads.
fn question(host: &Host, port: u16) -> String {
    let what = match host {
        Host::Ip(address) => super::objection(*address).map(|what| format!(", {what}")).unwrap_or_default(),
        Host::Name(_) => String::new(),
    };
    format!("A program in the sandbox wants to connect to {host}:{port}{what}. Allow it?")
}

/// A panic while the lock was held has been reported already; what is behind it is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
