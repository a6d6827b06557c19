//! The interface of a provider, and the backend over it.

use super::api::LONG;
use super::guest::{self, Launch};
use super::snapshot::{self, ListedSnapshot};
use super::websocket;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_event::SandboxInfo;
use agent_sandbox::ownership::{Ownership, SESSION, sandbox_name, this_host};
use agent_sandbox::{
    Backend, Capabilities, Channel, EnforcedLimits, Listed, Network, Networks, OnProgress, Reopen, Reopened,
    Spec, State,
};
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use reqwest::Url;
use reqwest::header::HeaderMap;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// The most that a provider's sandbox can do: what it enforces is for each of them to say.
pub const CAPABILITIES: Capabilities = Capabilities {
    host_paths: false,
    own_paths: false,
    maps_owners: false,
    images: true,
    runtimes: false,
    pause: true,
    docker: false,
    networks: Networks { isolated: true, full: true },
    limits: EnforcedLimits { memory: false, cpus: false, pids: false },
};

/// The same of Modal, which has no pause.
pub const MODAL_CAPABILITIES: Capabilities = Capabilities { pause: false, ..CAPABILITIES };

/// The longest time by which a sandbox's end is set ahead, where a client can move it.
pub const LEASH: Duration = Duration::from_secs(600);
/// The interval in which a client that is connected moves it.
const REFRESH: Duration = Duration::from_secs(60);
/// The least that it is set ahead: two refreshes may fail.
const SHORTEST_LEASH: Duration = REFRESH.saturating_mul(3);
/// The time limit for the way to a new port to be there: proxies learn of it late.
const WARM_UP: Duration = Duration::from_secs(15);
/// The label that tells one creation from all others, also from earlier ones of the same session.
pub const CREATION: &str = "agent.creation";
/// The prefix of the path of the guest's file, inside.
const GUEST_FILE: &str = "/tmp/.agent-guest-";

/// A sandbox, as its provider describes it. Holds tokens, so it is not printed.
#[derive(Clone)]
pub struct Instance {
    /// The provider's id of it.
    pub id: String,
    /// Its state; `None` where it is being removed.
    pub state: Option<State>,
    /// The labels or metadata that it was made with.
    pub labels: HashMap<String, String>,
    /// The time when it was made, RFC 3339; empty where the provider does not say.
    pub created: String,
    /// The address of its files, commands and ports, where that is not the provider's API itself.
    pub address: Option<Url>,
    /// The token that a connection to one of its ports has to name, beside the session's secret.
    pub token: Option<String>,
    /// The token that opens its files and commands, where that is not the key.
    pub access: Option<String>,
}

/// A sandbox that is to be made.
pub struct Creation<'a> {
    /// Its name, made of the session's id.
    pub name: String,
    /// The labels or metadata that name session, owner and expiry.
    pub labels: HashMap<String, String>,
    /// The specification that was asked for.
    pub spec: &'a Spec,
}

/// The exit code of a command, and what it printed on both streams.
pub struct Executed {
    /// Its exit code.
    pub exit_code: i64,
    /// Its output, as far as the provider has it.
    pub output: String,
}

/// The interface of a provider. Ids that come from it are checked before they become parts of an address.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The backend's name.
    fn name(&self) -> &'static str;

    /// Returns the place where it is, for messages.
    fn location(&self) -> String;

    /// Its abilities.
    fn capabilities(&self) -> Capabilities;

    /// A hash of the key, from which the secrets of sessions are derived.
    fn fingerprint(&self) -> Hash;

    /// The address at which the guest listens for what the provider forwards.
    fn listen_address(&self) -> &'static str {
        "127.0.0.1"
    }

    /// Returns whether [`Provider::join`] leads to the guest, not [`Provider::port`].
    fn has_streams(&self) -> bool {
        false
    }

    /// Makes a sandbox and waits until it runs. Also returns what of the limits does not hold, for the user.
    async fn create(
        &self,
        creation: &Creation<'_>,
        on_progress: OnProgress<'_>,
    ) -> Result<(Instance, Vec<String>)>;

    /// Removes the session's other sandboxes: names and labels need not be unique. Beside the upload of the guest, this takes no time.
    async fn replace_earlier(&self, made: &Instance, creation: &Creation<'_>) -> Result<()> {
        for earlier in self.of_session(&creation.spec.session).await? {
            if earlier.id != made.id {
                self.remove(&earlier).await?;
            }
        }
        Ok(())
    }

    /// The sandboxes of a session: one, unless a client was killed while it made another.
    async fn of_session(&self, session: &str) -> Result<Vec<Instance>>;

    /// Every sandbox that is ours, as its labels say.
    async fn list(&self) -> Result<Vec<Instance>>;

    /// Writes a file.
    async fn upload(&self, instance: &Instance, path: &str, bytes: &[u8]) -> Result<()>;

    /// Runs shell text that ends soon.
    async fn execute(&self, instance: &Instance, command: &str) -> Result<Executed>;

    /// The address of a port of the sandbox, and the headers that open it.
    async fn port(&self, _instance: &Instance, _port: u16) -> Result<(Url, HeaderMap)> {
        Err(Error::unexpected(format!("no port of a {} sandbox is opened", self.name())))
    }

    /// The stream of a command that joins `socket` of the guest, whose file is `guest`, as soon as both are there.
    async fn join(
        &self,
        _instance: &Instance,
        _guest: &str,
        _socket: &str,
        _time: Duration,
    ) -> Result<Channel> {
        Err(Error::unexpected(format!("no command of a {} sandbox has a stream", self.name())))
    }

    /// Returns whether files, commands and ports of a new sandbox may be asked for at the same time: a command then runs while the
    /// file arrives that it waits for, and a port at which nothing listens yet answers with a status of its own.
    fn is_concurrent(&self) -> bool {
        false
    }

    /// The client for the address of a port.
    fn http(&self) -> Option<&reqwest::Client> {
        None
    }

    /// Moves the sandbox's end.
    async fn refresh(&self, instance: &Instance) -> Result<()>;

    /// Removes it. One that is gone is not an error.
    async fn remove(&self, instance: &Instance) -> Result<()>;

    /// Copies a sandbox as it is now, under a name that nothing else has: the id of the copy, which [`Spec::snapshot`] names, or
    /// `None` where the provider has no copies whose sandboxes have labels, a network and an end of their own.
    async fn snapshot(&self, _instance: &Instance, _name: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// The copies that exist until they are removed.
    async fn snapshots(&self) -> Result<Vec<ListedSnapshot>> {
        Ok(Vec::new())
    }

    /// Removes a copy. One that is gone is not an error.
    async fn remove_snapshot(&self, _id: &str) -> Result<()> {
        Ok(())
    }

    /// Stops it, its files kept.
    async fn pause(&self, instance: &Instance) -> Result<()>;

    /// Starts it again. `true`: its processes have ended, so the guest has to be started again.
    async fn resume(&self, instance: &Instance) -> Result<(Instance, bool)>;
}

/// The backend over a provider.
pub struct Cloud<P> {
    provider: Arc<P>,
    machine: Arc<Machine>,
    /// The sandboxes that were made here or attached to, each the only one of its session: their end need not look for them.
    known: Arc<Mutex<HashMap<String, Instance>>>,
}

impl<P: Provider> Cloud<P> {
    /// The backend over `provider`.
    pub fn new(provider: P, machine: Arc<Machine>) -> Self {
        Self { provider: Arc::new(provider), machine, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Instance>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the guest of a session shows to be let in, in hexadecimal digits.
    fn secret(&self, session: &str) -> String {
        let session = Hash::of(format!("the channel of session {session}"));
        Hash::of([self.provider.fingerprint().0, session.0].concat()).to_string()
    }

    /// Puts the guest into a running sandbox and connects to it.
    async fn serve(
        &self,
        instance: &Instance,
        launch: &Launch,
        on_progress: OnProgress<'_>,
    ) -> Result<Channel> {
        let packed = guest::packed(&self.machine).await?;
        on_progress("uploading the guest", 0, packed.bytes.len() as u64);
        let path = format!("{GUEST_FILE}{}", packed.id);
        let verifier = Hash::of(self.secret(&launch.session));
        let address = match self.provider.has_streams() {
            true => format!("@{}", guest::socket(&launch.session)),
            false => format!("{}:{}", self.provider.listen_address(), guest::port(&launch.session)),
        };
        let command = launch.command(&path, packed.bytes.len(), &address, &verifier)?;
        let archive = format!("{path}.gz");
        let upload = self.provider.upload(instance, &archive, &packed.bytes);
        let start = async {
            let executed = self.provider.execute(instance, &command).await?;
            guest::check_start(self.provider.name(), &executed)
        };
        if !self.provider.is_concurrent() {
            upload.await?;
            on_progress("starting the guest", 0, 0);
            start.await?;
            return self.connect(instance, &launch.session, WARM_UP).await;
        }
        // The command waits for the file, and the port is asked for until something listens: one round trip for all three.
        let started = pin!(async { tokio::try_join!(upload, start).map(drop) });
        let connected = pin!(self.connect(instance, &launch.session, LONG));
        match select(started, connected).await {
            Either::Left((started, connecting)) => {
                started?;
                let late = |_| Err(guest::unreachable(self.provider.name(), "its port does not answer"));
                timeout(WARM_UP, connecting).await.unwrap_or_else(late)
            }
            Either::Right((channel, starting)) => {
                let channel = channel?;
                starting.await?;
                Ok(channel)
            }
        }
    }

    /// Opens the stream to a guest that listens, or does within `time`.
    async fn connect(&self, instance: &Instance, session: &str, time: Duration) -> Result<Channel> {
        if self.provider.has_streams() {
            let id = instance.labels.get(guest::FILE).filter(|id| guest::is_file_id(id));
            let none = || guest::unreachable(self.provider.name(), "its tags do not name the guest's file");
            let file = format!("{GUEST_FILE}{}", id.ok_or_else(none)?);
            let channel = self.provider.join(instance, &file, &guest::socket(session), time).await?;
            return Ok(Channel { reopen: Some(self.reopen(session)), ..channel });
        }
        let (url, headers) = self.provider.port(instance, guest::port(session)).await?;
        let name = self.provider.name();
        let http =
            self.provider.http().ok_or_else(|| guest::unreachable(name, "its ports are not opened"))?;
        let stream = websocket::open(name, http, url, headers, &self.secret(session), time).await?;
        let (provider, instance) = (Arc::clone(&self.provider), instance.clone());
        let channel = websocket::channel(stream, async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                // The next one may succeed; a sandbox that is gone ends the stream anyway.
                let _ = provider.refresh(&instance).await;
            }
        });
        Ok(Channel { reopen: Some(self.reopen(session)), ..channel })
    }

    /// Opens the stream to the guest of `session` again.
    fn reopen(&self, session: &str) -> Reopen {
        let cloud = Self {
            provider: Arc::clone(&self.provider),
            machine: Arc::clone(&self.machine),
            known: Arc::clone(&self.known),
        };
        let (cloud, session) = (Arc::new(cloud), session.to_owned());
        Arc::new(move || {
            let (cloud, session) = (Arc::clone(&cloud), session.clone());
            let reopened = async move {
                match cloud.find(&session).await {
                    Ok(Some(found)) if found.state == Some(State::Running) => {
                        let connected = cloud.connect(&found, &session, WARM_UP).await;
                        connected.map_or_else(Reopened::NotYet, Reopened::Open)
                    }
                    Ok(_) => Reopened::Gone(cloud.none_of(&session)),
                    Err(error) => Reopened::NotYet(error),
                }
            };
            reopened.boxed()
        })
    }

    fn none_of(&self, session: &str) -> Error {
        Error::sandbox(format!("session {session} has no running sandbox at {}", self.provider.name()))
    }

    /// The sandboxes of `session`, whose name is checked.
    async fn of_session(&self, session: &str) -> Result<Vec<Instance>> {
        sandbox_name(session)?;
        let mut found = self.provider.of_session(session).await?;
        found.retain(|found| found.labels.get(SESSION).is_some_and(|label| label == session));
        Ok(found)
    }

    /// The newest of them.
    async fn find(&self, session: &str) -> Result<Option<Instance>> {
        Ok(newest(self.of_session(session).await?))
    }

    /// Removes these sandboxes of `session`, and the copies that they began as.
    async fn remove(&self, session: &str, found: &[Instance]) -> Result<()> {
        for instance in found {
            self.provider.remove(instance).await?;
        }
        // A fork that has not started has a copy and no sandbox. What cannot be removed now is left to a sweep.
        let copies = match found.is_empty() {
            true => snapshot::of_session(self.provider.as_ref(), session).await,
            false => found.iter().filter_map(|found| found.labels.get(snapshot::LABEL).cloned()).collect(),
        };
        for id in copies {
            let _ = self.provider.remove_snapshot(&id).await;
        }
        let mut known = self.known();
        if known.get(session).is_some_and(|known| found.iter().any(|found| found.id == known.id)) {
            known.remove(session);
        }
        Ok(())
    }

    async fn running(&self, session: &str) -> Result<Instance> {
        let found = self.find(session).await?.filter(|found| found.state == Some(State::Running));
        found.ok_or_else(|| self.none_of(session))
    }
}

#[async_trait]
impl<P: Provider> Backend for Cloud<P> {
    fn name(&self) -> &'static str {
        self.provider.name()
    }

    fn location(&self) -> String {
        self.provider.location()
    }

    fn capabilities(&self) -> Capabilities {
        self.provider.capabilities()
    }

    async fn start(&self, spec: &Spec, on_progress: OnProgress<'_>) -> Result<(Channel, SandboxInfo)> {
        self.capabilities().check(self.name(), spec)?;
        let launch = Launch::of(spec);
        let mut labels = Ownership::of(spec).labels();
        labels.insert(guest::LABEL.to_owned(), launch.label());
        labels.insert(CREATION.to_owned(), format!("{:016x}", fastrand::u64(..)));
        labels.extend(spec.snapshot.clone().map(|snapshot| (snapshot::LABEL.to_owned(), snapshot)));
        if self.provider.has_streams() {
            // Another build joins the guest of this one by this one's file.
            labels.insert(guest::FILE.to_owned(), guest::packed(&self.machine).await?.id.clone());
        }
        let creation = Creation { name: sandbox_name(&spec.session)?, labels, spec };
        on_progress("creating the sandbox", 0, 0);
        // Compressing the guest takes as long as a round trip or two. What fails there fails again below.
        let created = self.provider.create(&creation, on_progress);
        let (created, _packed) = tokio::join!(created, guest::packed(&self.machine));
        let (instance, mut missing) = created?;
        let (served, replaced) = tokio::join!(
            self.serve(&instance, &launch, on_progress),
            self.provider.replace_earlier(&instance, &creation)
        );
        // One that is left ends by its own clock; the newest of a session is found first.
        let is_only_one = replaced.is_ok();
        missing.extend(replaced.err().map(|error| {
            format!("an earlier sandbox of this session may be left at {}: {error}", self.name())
        }));
        match served {
            Ok(channel) => {
                let info = spec.describe(self.name(), instance.id.clone(), spec.image.clone());
                match is_only_one {
                    true => self.known().insert(spec.session.clone(), instance),
                    false => self.known().remove(&spec.session),
                };
                Ok((channel, SandboxInfo { missing, ..info }))
            }
            Err(error) => {
                // What cannot be removed now ends by the provider's own clock.
                let _ = self.provider.remove(&instance).await;
                Err(error)
            }
        }
    }

    async fn attach(&self, session: &str) -> Result<Channel> {
        let found = self.of_session(session).await?;
        let is_only_one = found.len() == 1;
        let instance = newest(found).filter(|found| found.state == Some(State::Running));
        let instance = instance.ok_or_else(|| self.none_of(session))?;
        let channel = self.connect(&instance, session, WARM_UP).await?;
        match is_only_one {
            true => self.known().insert(session.to_owned(), instance),
            false => self.known().remove(session),
        };
        Ok(channel)
    }

    async fn destroy(&self, session: &str) -> Result<()> {
        let found = self.of_session(session).await?;
        self.remove(session, &found).await?;
        // One that is known and was not found is gone as well.
        self.known().remove(session);
        Ok(())
    }

    fn identity(&self, session: &str) -> Option<String> {
        self.known().get(session).map(|known| known.id.clone())
    }

    /// Without a look for it.
    async fn destroy_only(&self, session: &str, id: &str) -> Result<()> {
        let known = self.known().get(session).filter(|known| known.id == id).cloned();
        match known {
            Some(known) => self.remove(session, &[known]).await,
            None => Ok(()),
        }
    }

    async fn snapshot(&self, session: &str, fork: &str) -> Result<Option<String>> {
        let instance = self.running(session).await?;
        snapshot::make(self.provider.as_ref(), &instance, fork).await
    }

    async fn pause(&self, session: &str) -> Result<()> {
        let instance = self.running(session).await?;
        self.provider.pause(&instance).await
    }

    async fn resume(&self, session: &str) -> Result<()> {
        let none = || Error::sandbox(format!("session {session} has no sandbox at {}", self.name()));
        let instance = self.find(session).await?.ok_or_else(none)?;
        let label = instance.labels.get(guest::LABEL).cloned().unwrap_or_default();
        let launch = Launch::from_label(session, &label).ok_or_else(none)?;
        let (instance, needs_guest) = self.provider.resume(&instance).await?;
        // The stream ends here; the next to attach opens another. A guest may have ended meanwhile, for want of a client.
        if needs_guest || self.connect(&instance, session, WARM_UP).await.is_err() {
            self.serve(&instance, &launch, &|_, _, _| {}).await?;
        }
        Ok(())
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        let listed = self.provider.list().await?.into_iter().filter_map(|instance| {
            let ownership = Ownership::from_labels(&instance.labels)?;
            Some(Listed {
                expires: ownership.expiry_date().map(str::to_owned),
                session: Some(ownership).filter(|owner| owner.host == this_host())?.session,
                id: instance.id,
                state: instance.state?,
                created: instance.created,
            })
        });
        Ok(listed.collect())
    }

    async fn sweep(&self) -> Result<()> {
        let listed = self.provider.list().await?;
        for instance in &listed {
            let ownership = Ownership::from_labels(&instance.labels);
            let is_left_over =
                ownership.zip(instance.state).is_some_and(|(ownership, state)| ownership.is_left_over(state));
            if is_left_over {
                self.provider.remove(instance).await?;
            }
        }
        snapshot::sweep(self.provider.as_ref(), &listed).await
    }
}

fn newest(found: Vec<Instance>) -> Option<Instance> {
    found.into_iter().max_by(|one, other| one.created.cmp(&other.created))
}

/// Returns the time for which a sandbox exists without a client: ten minutes at most, unless it is kept.
pub fn leash(spec: &Spec) -> Duration {
    let longest = if spec.ephemeral { LEASH } else { Duration::MAX };
    spec.idle_ttl.clamp(SHORTEST_LEASH, longest)
}

/// Returns whether nothing may be reached from inside.
pub fn is_isolated(spec: &Spec) -> bool {
    spec.network != Network::Full
}
