//! The gateway of a session: judges connections, asks the user, counts, and emits the events.

use super::PORT;
use super::connection::{self, CloseReason, Refusal};
use super::credentials::Bindings;
use super::dial::AddressRule;
use super::environment::variables;
use super::host::Host;
use super::list::Entry;
use super::narrowing::Narrowing;
use super::project::Project;
use super::refusals::{self, Refusals};
use super::request::Request;
use super::rules::{Reach, Rules, Verdict};
use super::traffic::{Limits, Meter};
use super::upstream::{self, Upstream};
use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_event::{Event, Events};
use agent_policy::{Answer, Approver, Question};
use agent_sandbox::{Network, Sandbox, Tunnels};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Questions that wait for the user at once. About further hosts the user is not asked.
const MAX_QUESTIONS: usize = 8;
/// The time for which a connection waits for the user's answer.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(120);
/// The time for which the end of a session waits for the events of its connections.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// The limit on all connections, as events name it.
const CONNECTIONS: &str = "connections";
/// The permission of a connection.
#[derive(Debug, Clone)]
pub(super) struct Permit {
    pub reach: Reach,
    /// The user has allowed exactly this host and port.
    by_user: bool,
    /// The holder of the list that it goes by, where that is not the session's.
    holder: Option<Arc<Holder>>,
}

/// Programs that go by a list of their own.
#[derive(Debug)]
pub(super) struct Holder {
    /// Their name, for messages: `[mcp.servers.fetch]`.
    name: String,
    rules: Rules,
}

/// A question under way, for all who wait for its answer.
type Asked = Shared<BoxFuture<'static, Option<Answer>>>;

/// The gateway that every connection of a session's sandboxes goes through.
pub struct Gateway {
    events: Arc<Events>,
    network: Network,
    limits: Limits,
    rules: Lock<Rules>,
    /// The hosts that a client of this sandbox has taken away from the rules.
    narrowing: Lock<Narrowing>,
    /// The gateway of the session whose denials hold here as well.
    session: Lock<Option<Arc<Gateway>>>,
    /// Lists beside the session's, by the password that programs show.
    holders: Lock<HashMap<String, Arc<Holder>>>,
    approver: Lock<Option<Arc<dyn Approver>>>,
    /// The command that the user types to allow hosts, for messages.
    command: Lock<&'static str>,
    /// The proxy through which this machine reaches others.
    upstream: Lock<Option<Arc<Upstream>>>,
    /// The one that cannot be used, as a message names it.
    unused_proxy: Lock<Option<String>>,
    asked: Lock<HashMap<(Host, u16), Asked>>,
    /// Refusals with the user's words, until the model has them: programs try again and again.
    said: Lock<HashMap<(Host, u16), String>>,
    connections: AtomicU64,
    bytes: Arc<AtomicU64>,
    slots: Semaphore,
    refusals: Refusals,
    /// Set if the user is asked about every host, where no list names any.
    asks: AtomicBool,
    /// The store of the user's answers for the project.
    project: Lock<Option<Project>>,
    /// The credentials that programs inside use without holding them.
    pub(super) bindings: Bindings,
    ended: watch::Sender<bool>,
    /// No more events are emitted.
    silent: Lock<bool>,
}

impl Gateway {
    /// A gateway for a `--network`.
    ///
    /// # Errors
    ///
    /// The list is not valid.
    pub fn new(network: &Network, events: Arc<Events>, limits: Limits) -> Result<Arc<Self>> {
        let rules = match network {
            Network::None | Network::Full => Rules::default(),
            Network::Hosts(hosts) => Rules::parse(&hosts.join(","))?,
        };
        Ok(Arc::new(Self {
            events,
            network: network.clone(),
            slots: Semaphore::new(limits.at_once),
            limits,
            rules: Lock::new(rules),
            narrowing: Lock::default(),
            session: Lock::default(),
            holders: Lock::default(),
            approver: Lock::default(),
            command: Lock::new("--network"),
            upstream: Lock::default(),
            unused_proxy: Lock::default(),
            asked: Lock::default(),
            said: Lock::default(),
            connections: AtomicU64::new(0),
            bytes: Arc::default(),
            refusals: Refusals::default(),
            asks: AtomicBool::new(false),
            project: Lock::default(),
            bindings: Bindings::default(),
            ended: watch::Sender::new(false),
            silent: Lock::new(false),
        }))
    }

    /// Connects through the proxy that this machine's variables name, if there is one.
    pub fn through_proxy_of(&self, machine: &Machine) {
        let upstream = Upstream::of(machine).map(Arc::new);
        *self.unused_proxy.lock() = if upstream.is_none() { upstream::unused(machine) } else { None };
        *self.upstream.lock() = upstream;
    }

    /// Returns what connections go through.
    pub(super) fn upstream(&self) -> Option<Arc<Upstream>> {
        self.upstream.lock().clone()
    }

    /// Returns whether a target is allowed by its own name, and not because every public host is.
    pub(super) fn names(&self, permit: &Permit, host: &Host, port: u16) -> bool {
        match &permit.holder {
            Some(holder) => holder.rules.names(host, port),
            None => permit.by_user || self.in_force().names(host, port),
        }
    }

    /// Explains a failed connection that may be due to a proxy which cannot be used (SOCKS 4, or one that is spoken to in TLS).
    pub(super) fn mention_proxy(&self, reason: CloseReason) -> CloseReason {
        match (reason, &*self.unused_proxy.lock()) {
            (CloseReason::Failed(text), Some(proxy)) => CloseReason::Failed(format!(
                "{text} ({proxy} is not used for the sandbox: that takes one of http:// or socks5h://)"
            )),
            (reason, _) => reason,
        }
    }

    /// Returns whether the sandbox has the engine's ordinary network, which bypasses this gateway.
    pub fn is_full(&self) -> bool {
        self.network == Network::Full
    }

    /// The current rules.
    pub fn rules(&self) -> Rules {
        self.rules.lock().clone()
    }

    /// The current rules, and the hosts of the session's credentials, which no list has to name.
    fn in_force(&self) -> Rules {
        let mut rules = self.rules();
        for entry in self.credentials().iter().flat_map(|credentials| credentials.hosts()) {
            rules.add(entry);
        }
        rules
    }

    /// Begins with other rules than those of `--network`.
    pub fn begin_with(&self, rules: Rules) {
        *self.rules.lock() = rules;
    }

    /// Takes this away from what the rules allow, instead of what was taken away before.
    pub fn narrow(&self, narrowing: Narrowing) {
        *self.narrowing.lock() = narrowing;
    }

    /// Changes the rules for the user, which is an event. After the first entry is allowed, [`Gateway::attach`] opens the proxy.
    pub fn change(&self, change: impl FnOnce(&mut Rules)) {
        let changed = {
            let mut rules = self.rules.lock();
            let before = rules.clone();
            change(&mut rules);
            (*rules != before).then(|| rules.words())
        };
        if let Some(hosts) = changed {
            self.emit(Event::NetworkChanged { hosts });
        }
    }

    /// Asks the user about every host: there is a proxy although no host is allowed yet. What the user allowed for the project
    /// earlier is allowed.
    pub fn ask_about_all(&self) {
        self.asks.store(true, Relaxed);
        let known = self.project.lock().as_ref().map(Project::entries).unwrap_or_default();
        let mut rules = self.rules.lock();
        let is_denied = |entry: &Entry, rules: &Rules| rules.denied().contains(entry);
        for entry in known {
            if !is_denied(&entry, &rules) {
                rules.allow(entry);
            }
        }
    }

    /// Returns whether the user is asked about every host.
    pub fn asks_about_all(&self) -> bool {
        self.asks.load(Relaxed)
    }

    /// Sets where the user's answers for the project are kept.
    pub fn keep_answers_in(&self, project: Project) {
        *self.project.lock() = Some(project);
    }

    /// Forgets that the user allowed these for the project.
    ///
    /// # Errors
    /// That cannot be written.
    pub fn forget_in_project(&self, entries: &[Entry]) -> Result<()> {
        let project = self.project.lock().clone();
        let forget = |project: &Project| {
            entries.iter().try_for_each(|entry| project.forget(&entry.to_string()).map(drop))
        };
        project.iter().try_for_each(forget)
    }

    /// Denies here too what the user denies in a session, now or later: for a sandbox of one of its servers.
    pub fn deny_like(&self, session: &Arc<Self>) {
        *self.session.lock() = Some(Arc::clone(session));
    }

    /// Returns what the rules say here, unless the session's deny it.
    fn verdict(&self, host: &Host, port: u16) -> Verdict {
        let session = self.session.lock().clone();
        match session.map(|session| session.verdict(host, port)) {
            Some(Verdict::Denied) => Verdict::Denied,
            _ => self.in_force().judge(host, port),
        }
    }

    /// Sets who is asked about hosts that are not on the list.
    pub fn ask_with(&self, approver: Arc<dyn Approver>) {
        *self.approver.lock() = Some(approver);
    }

    /// Sets what the user types to allow hosts, for messages: `--network` unless there is a better way.
    pub fn allow_with(&self, command: &'static str) {
        *self.command.lock() = command;
    }

    /// Returns the approver that is asked.
    pub(super) fn approver(&self) -> Option<Arc<dyn Approver>> {
        self.approver.lock().clone()
    }

    /// Returns the store of the user's answers for the project.
    pub(super) fn project(&self) -> Option<Project> {
        self.project.lock().clone()
    }

    pub(super) fn command(&self) -> &'static str {
        *self.command.lock()
    }

    /// Opens the proxy in a sandbox, if any host is allowed; otherwise nothing listens there. Called again after a change, it
    /// updates the variables.
    ///
    /// # Errors
    ///
    /// The port is in use in the sandbox, or the guest is gone.
    pub async fn attach(self: &Arc<Self>, sandbox: &Sandbox) -> Result<()> {
        let rules = self.in_force();
        let is_closed = rules.allowed().is_empty() && !self.asks_about_all();
        if self.is_full() || (is_closed && self.holders.lock().is_empty()) {
            return Ok(());
        }
        // Where only others have a list, the session's commands do not find the proxy.
        let mut variables = if is_closed { Vec::new() } else { variables(&rules, None) };
        if let Some(credentials) = self.credentials() {
            variables.extend(credentials.variables());
        }
        sandbox.listen(PORT, &variables).await.map_err(|error| {
            error.hint(format!("the network's proxy needs port {PORT} of the sandbox's loopback; does something else listen there?"))
        })?;
        // `None`: they are being served already.
        if let Some(tunnels) = sandbox.tunnels() {
            tokio::spawn(Arc::clone(self).serve(tunnels));
        }
        Ok(())
    }

    /// Lets programs go by a list of their own: the variables that they start with. After this, [`Gateway::attach`] opens the proxy.
    ///
    /// It separates what is meant for one program from what is meant for others. A program of the same sandbox that looks for the password
    /// can find it.
    ///
    /// # Errors
    ///
    /// The list is not valid.
    pub fn give_list(&self, name: &str, hosts: &[String]) -> Result<Vec<(String, String)>> {
        if self.is_full() {
            return Ok(Vec::new());
        }
        let rules = Rules::parse(&hosts.join(","))?;
        let mut holders = self.holders.lock();
        // It keeps its password as long as its list is the same.
        let known = holders.iter().find(|(_, holder)| holder.name == name && holder.rules == rules);
        let pass = known.map_or_else(new_pass, |(pass, _)| pass.clone());
        let variables = variables(&rules, Some(&pass));
        holders.retain(|_, holder| holder.name != name);
        holders.insert(pass, Arc::new(Holder { name: name.to_owned(), rules }));
        Ok(variables)
    }

    /// Returns the holder of the list that a password stands for.
    pub(super) fn holder(&self, pass: &str) -> Option<Arc<Holder>> {
        self.holders.lock().get(pass).cloned()
    }

    /// Judges a connection by a list beside the session's. What the user denied is denied for all.
    pub(super) fn judge_by(
        &self,
        holder: &Arc<Holder>,
        host: &Host,
        port: u16,
    ) -> Result<Permit, CloseReason> {
        if self.verdict(host, port) == Verdict::Denied {
            return Err(CloseReason::Refused(Refusal::denied("the user denied it")));
        }
        match holder.rules.judge(host, port) {
            Verdict::Allowed(reach) => Ok(Permit { reach, by_user: false, holder: Some(Arc::clone(holder)) }),
            Verdict::Denied => {
                Err(CloseReason::Refused(Refusal::denied(format!("{} denies it", holder.name))))
            }
            Verdict::Unknown => Err(CloseReason::Refused(Refusal::unlisted_of(&holder.name))),
        }
    }

    /// Makes sure that programs in the sandbox may connect to these hosts. Where they may not yet, the user is asked, and a
    /// proxy that is not there is opened. What to do about it, where they may not.
    ///
    /// # Errors
    ///
    /// The user ended the turn instead of an answer; the proxy cannot be opened.
    pub async fn reach(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        hosts: &[&str],
        purpose: &str,
    ) -> Result<Option<String>> {
        if self.is_full() {
            return Ok(None);
        }
        let mut missing = Vec::new();
        for name in hosts {
            let host = Host::Name((*name).to_owned());
            match self.rules.lock().judge(&host, 443) {
                Verdict::Allowed(_) => {}
                Verdict::Denied => return Ok(Some(format!("the user denied connections to {name}"))),
                Verdict::Unknown => missing.push(host),
            }
        }
        if missing.is_empty() {
            return Ok(None);
        }
        let approver = self.approver.lock().clone();
        let answer = match approver {
            Some(approver) => approver.ask(&Question::Reach { purpose, hosts }).await?,
            None => Answer::No,
        };
        if let Some(reason) = answer.reason() {
            return Ok(Some(reason));
        }
        if answer != Answer::Once {
            let command = self.command();
            return Ok(Some(format!("only the user can allow it, with {command} registries")));
        }
        self.change(|rules| missing.iter().for_each(|host| rules.allow(Entry::exactly(host, 443))));
        self.attach(sandbox).await?;
        Ok(None)
    }

    async fn serve(self: Arc<Self>, mut tunnels: Tunnels) {
        while let Some(tunnel) = tunnels.next().await {
            tokio::spawn(connection::serve(Arc::clone(&self), tunnel.accept()));
        }
    }

    /// Closes every connection and reports it. After this no more events are emitted.
    pub async fn end(&self) {
        self.ended.send_replace(true);
        // All slots are free when every connection has ended.
        let all = u32::try_from(self.limits.at_once).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(END_TIMEOUT, self.slots.acquire_many(all)).await;
        *self.silent.lock() = true;
    }

    /// Returns what the model should know about the network beside a tool's output: what was refused since the last call, or that
    /// there is no network where a program failed for that reason.
    pub fn explain(&self, output: &str) -> Option<String> {
        self.said.lock().clear();
        self.bindings.forget_said();
        if let Some(refused) = self.refusals.take() {
            return Some(refused);
        }
        let has_list = !self.rules.lock().allowed().is_empty();
        if self.is_full() || has_list || !refusals::names_missing_network(output) {
            return None;
        }
        if self.asks_about_all() {
            return Some(
                "[the sandbox reaches hosts only through the proxy that the *_proxy variables name]"
                    .to_owned(),
            );
        }
        self.refusals.count_missing_network(output);
        let remedy = self.remedy();
        Some(format!("[the sandbox has no network; only the user can change that: {remedy}]"))
    }

    fn remedy(&self) -> String {
        format!("{} HOST,… allows hosts (`registries`: package registries)", self.command())
    }

    /// Returns what a user who was not asked should know at the end: what needed a network, and how it is allowed.
    pub fn missed(&self) -> Option<String> {
        self.refusals.missed(self.command(), &self.remedy())
    }

    /// Runs `work`, unless the session ends first.
    pub(super) async fn until_end<T>(
        &self,
        work: impl Future<Output = Result<T, CloseReason>>,
    ) -> Result<T, CloseReason> {
        let mut ended = self.ended.subscribe();
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => Err(CloseReason::Gone),
            result = work => result,
        }
    }

    /// Takes a slot for a connection, for as long as the permit lives.
    pub(super) fn admit(&self) -> Result<SemaphorePermit<'_>, CloseReason> {
        let (at_once, all) = (self.limits.at_once, self.limits.connections);
        if self.connections.fetch_add(1, Relaxed) >= all {
            return Err(CloseReason::Limit(
                CONNECTIONS,
                format!("the limit of {all} connections is reached"),
            ));
        }
        let full =
            |_| CloseReason::Limit("connections_at_once", format!("{at_once} connections are open already"));
        self.slots.try_acquire().map_err(full)
    }

    pub(super) fn meter(&self) -> Meter {
        Meter::new(Arc::clone(&self.bytes), self.limits.bytes)
    }

    /// Judges a connection by the rules and the user. What needs no lookup is judged before the user is asked; a name is
    /// resolved only after that, because the lookup itself is a message to the servers of the domain.
    pub(super) async fn judge(&self, host: &Host, port: u16) -> Result<Permit, CloseReason> {
        let denied = |why: &str| Err(CloseReason::Refused(Refusal::denied(why)));
        if self.narrowing.lock().denies(host, None) {
            return Err(CloseReason::Refused(Refusal::narrowed()));
        }
        match self.verdict(host, port) {
            Verdict::Allowed(reach) => return Ok(Permit { reach, by_user: false, holder: None }),
            Verdict::Denied => return denied("the user denied it"),
            Verdict::Unknown => {}
        }
        if let Host::Name(name) = host
            && (name == "localhost" || name.ends_with(".localhost"))
        {
            let target = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            let reason = format!("its address is a loopback address, and {target} is not on the list");
            return Err(CloseReason::Refused(Refusal::address(reason, target)));
        }
        // The proxy is there for others.
        if self.rules.lock().allowed().is_empty() && !self.asks_about_all() {
            return Err(CloseReason::Refused(Refusal::unlisted(host, port)));
        }
        if let Some(said) = self.said.lock().get(&(host.clone(), port)) {
            return denied(said);
        }
        let entry = Entry::exactly(host, port);
        let reach = if entry.names_port() { Reach::Anything } else { Reach::Web };
        match self.answer(host, port).await {
            None | Some(Answer::No) => {
                return Err(CloseReason::Refused(Refusal::unlisted(host, port)));
            }
            Some(Answer::Never) => {
                self.change(|rules| rules.deny(entry));
                return denied("the user denied it for this session");
            }
            Some(Answer::Always) => self.change(|rules| rules.allow(entry)),
            Some(Answer::Project) => {
                let project = self.project.lock().clone();
                if let Some(Err(error)) = project.map(|project| project.allow(&entry)) {
                    self.emit(Event::Notice { text: format!("allowed for this session only: {error}") });
                }
                self.change(|rules| rules.allow(entry));
            }
            Some(Answer::Once) => {}
            Some(answer @ Answer::Said(_)) => {
                let reason = answer.reason().unwrap_or_default();
                let mut said = self.said.lock();
                if said.len() < MAX_QUESTIONS {
                    said.insert((host.clone(), port), reason.clone());
                }
                return denied(&reason);
            }
        }
        Ok(Permit { reach, by_user: true, holder: None })
    }

    /// The user's answer, shared by all connections that wait for the same host. `None` where nobody can be asked.
    async fn answer(&self, host: &Host, port: u16) -> Option<Answer> {
        let approver = self.approver.lock().clone()?;
        let key = (host.clone(), port);
        let asked = {
            let mut all = self.asked.lock();
            if all.len() >= MAX_QUESTIONS && !all.contains_key(&key) {
                return None;
            }
            let start = || {
                // In its own task: the connection may be gone before the user answers.
                let asking = tokio::spawn(ask(approver, host.clone(), port));
                async move { asking.await.unwrap_or(None) }.boxed().shared()
            };
            all.entry(key.clone()).or_insert_with(start).clone()
        };
        let answer = asked.clone().await;
        let mut all = self.asked.lock();
        if all.get(&key).is_some_and(|current| current.ptr_eq(&asked)) {
            all.remove(&key);
        }
        answer
    }

    /// Returns what the rules say about an address that the host resolved to.
    pub(super) fn judge_address(
        &self,
        permit: &Permit,
        host: &Host,
        address: IpAddr,
        port: u16,
    ) -> AddressRule {
        if self.narrowing.lock().denies(host, Some(address)) {
            return AddressRule::Denied;
        }
        let rule = self.in_force().judge_address(address, port);
        let rule = match (&permit.holder, rule) {
            (_, AddressRule::Denied) | (None, _) => rule,
            (Some(holder), _) => holder.rules.judge_address(address, port),
        };
        match rule {
            // The user was asked about this very address.
            AddressRule::Unnamed if permit.by_user && *host == Host::Ip(address) => AddressRule::Named,
            rule => rule,
        }
    }

    /// Emits the event of a connection; of those beyond the limit on all connections only the first.
    pub(super) fn report(&self, request: &Request, meter: &Meter, allowed: bool, end: Option<&CloseReason>) {
        let (host, port) = (&request.host, request.port);
        if let Some(CloseReason::Limit(limit, _)) = end {
            match self.refusals.is_new_limit(limit) {
                true => self.emit(Event::LimitReached { limit: (*limit).to_owned() }),
                false if *limit == CONNECTIONS => return,
                false => {}
            }
        }
        let reason = end.and_then(CloseReason::reason).map(str::to_owned);
        if !allowed && Entry::Registries.covers(host, port) {
            self.refusals.count_registry();
        }
        if let (false, Some(reason)) = (allowed, &reason) {
            self.deny("connect to ", &format!("{host}:{port}"), reason);
        }
        self.emit(Event::Connection {
            host: host.to_string().trim_matches(['[', ']']).to_owned(),
            port,
            allowed,
            sent: meter.sent.load(Relaxed),
            received: meter.received.load(Relaxed),
            duration_ms: u64::try_from(meter.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            reason,
        });
    }

    /// Keeps a refusal for the model, and emits a `denied` event for the first of its kind: programs try again and again.
    pub(super) fn deny(&self, verb: &str, target: &str, reason: &str) {
        if let Some(event) = self.refusals.denied(verb, target, reason) {
            self.emit(event);
        }
    }

    pub(super) fn emit(&self, event: Event) {
        let silent = self.silent.lock();
        if !*silent {
            // A session file that cannot be written fails at the next event of the turn.
            let _ = self.events.emit(event);
        }
    }
}

/// A password that nobody guesses.
fn new_pass() -> String {
    let [first, second] = [random(), random()];
    format!("{first:016x}{second:016x}")
}

/// A number that nobody guesses.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Each is keyed with random bytes of the system.
    RandomState::new().hash_one(0_u8)
}

/// Returns what the user answers; `None` where nobody did in time.
async fn ask(approver: Arc<dyn Approver>, host: Host, port: u16) -> Option<Answer> {
    let remark = match &host {
        Host::Ip(address) => super::objection(*address),
        Host::Name(_) => None,
    };
    let question = Question::Connect { host: &host.to_string(), port, remark };
    answer_in_time(&*approver, &question).await
}

/// The user's answer to a question that a connection waits for; `None` where it does not come in time.
pub(super) async fn answer_in_time(approver: &dyn Approver, question: &Question<'_>) -> Option<Answer> {
    tokio::time::timeout(QUESTION_TIMEOUT, approver.ask(question)).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_session_denies_is_denied_in_a_sandbox_of_its_servers_too() {
        let gateway = |hosts: &[&str]| {
            let network = Network::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
            Gateway::new(&network, Arc::new(Events::new(1)), Limits::default()).expect("a gateway")
        };
        let (session, server) = (gateway(&["d.example"]), gateway(&["a.example", "b.example"]));
        server.deny_like(&session);
        let is_allowed = |name: &str| {
            let verdict = server.verdict(&Host::parse(name).expect("a host"), 443);
            matches!(verdict, Verdict::Allowed(_))
        };
        assert!(is_allowed("a.example") && is_allowed("b.example"));
        assert!(!is_allowed("c.example"), "the server has a list of its own");
        session.change(|rules| rules.deny(Entry::parse("a.example").expect("an entry")));
        assert!(!is_allowed("a.example") && is_allowed("b.example"));
        session.change(|rules| rules.allow(Entry::parse("c.example").expect("an entry")));
        assert!(!is_allowed("c.example"), "what the session allows is not the server's");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_two_minutes_for_the_user_and_is_then_refused() {
        let gateway = Gateway::new(&Network::None, Arc::new(Events::new(1)), Limits::default());
        let gateway = gateway.expect("a gateway");
        gateway.ask_about_all();
        gateway.ask_with(Arc::new(|_: &Question<'_>| std::future::pending().boxed()));
        let begun = tokio::time::Instant::now();
        let judged = gateway.judge(&Host::parse("a.example").expect("a host"), 443).await;
        assert!(matches!(judged, Err(CloseReason::Refused(_))), "{judged:?}");
        assert_eq!(begun.elapsed().as_secs(), 120);
    }
}
