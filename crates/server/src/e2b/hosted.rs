//! One sandbox of a client: what it was created with, its life, and what runs in it.

use super::contexts::Contexts;
use super::egress::Egress;
use super::metrics::Measurements;
use super::paths::{CLIENT_HOME, Paths};
use super::processes::Processes;
use super::secret::Secret;
use super::snapshots::HostedSnapshot;
use super::watch::Watches;
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_event::{Events, Limits};
use agent_log::SessionId;
use agent_network::{self as network, Gateway};
use agent_sandbox::{Backend, EntryKind, HOME, Network, Sandbox, removals};
use agent_session::SandboxSettings;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore, watch};

/// The time limit for a sandbox to end by itself, and for its removal after that.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Connections to the ports of one sandbox at a time.
pub const MAX_CONNECTIONS: usize = 256;

/// The sandbox that a client asks for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The template's name, which is only remembered where it is not a snapshot's: all sandboxes are those of the server's settings.
    pub template: String,
    pub metadata: BTreeMap<String, String>,
    pub env: BTreeMap<String, String>,
    /// The restrictions within the server's network at the start.
    pub egress: Egress,
    /// Set if its ports answer only those who show its traffic token.
    pub has_private_ports: bool,
    /// The `Host` that programs at its ports are shown, in which `${PORT}` is the port.
    pub masked_host: Option<String>,
    /// The kind of pause at the end of its time; `None` where it is removed then.
    pub auto_pause: Option<Pausing>,
    /// Set if a request to one of its ports resumes it.
    pub auto_resume: bool,
    pub timeout: Duration,
}

/// The kind of pause, by what it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pausing {
    /// Everything.
    Memory,
    /// The files: processes are ended before.
    Files,
}

/// The time until which it runs, or its pause.
#[derive(Debug, Clone, Copy)]
pub struct Life {
    pub ends: Timestamp,
    pub is_paused: bool,
    /// Set if its processes continue where they were when it is resumed.
    keeps_memory: bool,
}

impl Life {
    fn until(ends: Timestamp) -> Self {
        Self { ends, is_paused: false, keeps_memory: true }
    }
}

/// A sandbox.
pub struct Hosted {
    pub id: String,
    pub wanted: Wanted,
    pub started: Timestamp,
    pub limits: Limits,
    /// Set if it has a network.
    has_network: AtomicBool,
    /// Below which its names are.
    pub domain: Option<Arc<str>>,
    /// The token that clients of envd show.
    pub access: Secret,
    /// The token that clients of other ports show.
    pub traffic: Secret,
    pub sandbox: Sandbox,
    pub paths: Paths,
    pub processes: Processes,
    pub watches: Watches,
    pub contexts: Contexts,
    pub measurements: Measurements,
    /// The number of connections to its ports that may still be opened.
    pub connections: Arc<Semaphore>,
    life: Lock<Life>,
    /// Its end was moved.
    pub changed: Notify,
    /// Becomes `true` when its removal begins.
    pub removed: watch::Sender<bool>,
    /// One change of its state at a time; `true` once it has ended.
    ended: Mutex<bool>,
    backend: Arc<dyn Backend>,
    gateway: Arc<Gateway>,
    /// Its place among the sandboxes of the server, until it is removed.
    slot: Lock<Option<OwnedSemaphorePermit>>,
}

impl Hosted {
    /// Starts one.
    ///
    /// # Errors
    /// The sandbox does not start.
    pub async fn start(
        id: String,
        wanted: Wanted,
        snapshot: Option<&HostedSnapshot>,
        settings: &SandboxSettings,
        machine: &Machine,
        slot: OwnedSemaphorePermit,
    ) -> Result<Self> {
        let backend = Arc::clone(&settings.backend);
        let mut spec = settings.spec(&SessionId::parse(&id)?);
        spec.network = wanted.egress.network(&spec.network);
        backend.capabilities().check(backend.name(), &spec)?;
        let gateway = Gateway::new(&spec.network, Arc::new(Events::new(1)), network::Limits::default())?;
        gateway.through_proxy_of(machine);
        wanted.egress.apply(&gateway);
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await?;
        let connected = async {
            let sandbox = Sandbox::connect(channel).await?.with_env(&settings.env);
            gateway.attach(&sandbox).await?;
            sandbox.put_home(&settings.home).await?;
            if let Some(snapshot) = snapshot {
                snapshot.restore(&sandbox).await?;
            }
            let link = sandbox.stat(Path::new(CLIENT_HOME)).await;
            let is_linked = link.is_ok_and(|entry| matches!(entry.kind, EntryKind::Symlink(_)));
            Ok::<_, Error>((sandbox, Paths { is_linked }))
        };
        let (sandbox, paths) = match connected.await {
            Ok(connected) => connected,
            Err(error) => {
                // The first error is the one to report.
                remove(&backend, &id, Some(slot)).await;
                return Err(error);
            }
        };
        let started = Timestamp::now();
        Ok(Self {
            life: Lock::new(Life::until(after(started, wanted.timeout))),
            wanted,
            started,
            limits: spec.limits,
            has_network: AtomicBool::new(spec.network != Network::None),
            domain: None,
            access: Secret::generate("")?,
            traffic: Secret::generate("")?,
            sandbox,
            paths,
            processes: Processes::default(),
            watches: Watches::default(),
            contexts: Contexts::default(),
            measurements: Measurements::default(),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            changed: Notify::new(),
            removed: watch::Sender::new(false),
            ended: Mutex::new(false),
            backend,
            gateway,
            id,
            slot: Lock::new(Some(slot)),
        })
    }

    /// Returns the time until which it runs, or its pause.
    pub fn life(&self) -> Life {
        *self.life.lock()
    }

    /// Moves its end to `timeout` from now; only to a later time, where `extends`.
    pub fn live_for(&self, timeout: Duration, extends: bool) {
        let mut life = self.life.lock();
        let ends = after(Timestamp::now(), timeout);
        life.ends = if extends { life.ends.max(ends) } else { ends };
        self.changed.notify_one();
    }

    /// Returns whether anything can be reached from it.
    pub fn has_network(&self) -> bool {
        self.has_network.load(Ordering::Relaxed)
    }

    /// Replaces what it was left with of the server's network. Connections that are open stay.
    ///
    /// # Errors
    /// It was created with all of the network, or is gone.
    pub async fn replace_egress(&self, egress: Egress, server: &Network) -> Result<()> {
        let ended = self.ended.lock().await;
        if *ended || self.life().is_paused {
            return Err(Error::usage("this sandbox does not run").hint("resume it first"));
        }
        egress.replace(&self.gateway, &self.sandbox, server).await?;
        self.has_network.store(egress.is_open() && *server != Network::None, Ordering::Relaxed);
        Ok(())
    }

    /// The variables that its processes start with in `cwd`.
    pub fn variables(&self, cwd: &Path) -> Vec<(OsString, OsString)> {
        let own: [(&str, OsString); 6] = [
            ("HOME", self.paths.inside(Path::new(HOME)).into()),
            ("USER", "user".into()),
            ("LOGNAME", "user".into()),
            ("PWD", self.paths.inside(cwd).into()),
            ("E2B_SANDBOX", "true".into()),
            ("E2B_SANDBOX_ID", self.id.clone().into()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.into(), value));
        own.chain(self.wanted.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
    }

    /// Copies what it holds into `snapshot`. It is neither paused nor removed meanwhile.
    ///
    /// # Errors
    /// It holds too much, or is gone.
    pub async fn copy_into(&self, snapshot: &HostedSnapshot) -> Result<()> {
        let ended = self.ended.lock().await;
        match *ended || self.life().is_paused {
            true => Err(Error::sandbox("the sandbox does not run")),
            false => snapshot.save(&self.sandbox).await,
        }
    }

    /// Freezes everything in it; of the files alone, after its processes have been ended.
    ///
    /// # Errors
    /// The backend cannot, or it is gone.
    pub async fn pause(&self, keeping: Pausing) -> Result<()> {
        let ended = self.ended.lock().await;
        if *ended {
            return Err(Error::sandbox("the sandbox was removed"));
        }
        if !self.life().is_paused {
            if keeping == Pausing::Files {
                self.sandbox.end_processes().await?;
            }
            self.sandbox.set_frozen(true);
            if let Err(error) = self.backend.pause(&self.id).await {
                self.sandbox.set_frozen(false);
                return Err(error);
            }
            let mut life = self.life.lock();
            (life.is_paused, life.keeps_memory) = (true, keeping == Pausing::Memory);
            drop(life);
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Undoes [`Hosted::pause`] for `timeout`; one that runs lives at least that long. Whether it was paused.
    ///
    /// # Errors
    /// It is gone.
    pub async fn resume_for(&self, timeout: Duration) -> Result<bool> {
        let ended = self.ended.lock().await;
        if *ended {
            return Err(Error::sandbox("the sandbox was removed"));
        }
        if !self.life().is_paused {
            self.live_for(timeout, true);
            return Ok(false);
        }
        self.backend.resume(&self.id).await?;
        self.sandbox.set_frozen(false);
        *self.life.lock() = Life::until(after(Timestamp::now(), timeout));
        self.changed.notify_one();
        Ok(true)
    }

    /// Resumes it for its time where it is paused and a request may do that. Whether it runs.
    pub async fn wake(&self) -> bool {
        let life = self.life();
        !life.is_paused
            || self.wanted.auto_resume
                && life.keeps_memory
                && self.resume_for(self.wanted.timeout).await.is_ok()
    }

    /// Removes it with everything in it. What its backend does not remove in time is tried again, and has its place meanwhile.
    pub async fn end(&self) {
        let mut ended = self.ended.lock().await;
        if std::mem::replace(&mut *ended, true) {
            return;
        }
        self.removed.send_replace(true);
        self.processes.end();
        self.gateway.end().await;
        if !self.life().is_paused {
            let _ = tokio::time::timeout(SHUTDOWN, self.sandbox.shutdown()).await;
        }
        let slot = self.slot.lock().take();
        remove(&self.backend, &self.id, slot).await;
    }
}

/// Removes a sandbox, whose place is free once it is gone.
async fn remove(backend: &Arc<dyn Backend>, id: &str, slot: Option<OwnedSemaphorePermit>) {
    let removal = removals::remove(backend, id, None);
    let gone = removal.clone().place_freed();
    tokio::spawn(async move {
        gone.await;
        drop(slot);
    });
    removal.wait(SHUTDOWN).await;
}

/// The time `duration` after `from`, within what a time can express.
fn after(from: Timestamp, duration: Duration) -> Timestamp {
    from.checked_add(duration).unwrap_or(Timestamp::MAX)
}
