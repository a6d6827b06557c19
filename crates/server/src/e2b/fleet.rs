//! All sandboxes of the server: made within its limits, removed when their time is over.

use super::hosted::{Hosted, Wanted};
use super::metrics;
use super::secret::random_text;
use super::snapshots::HostedSnapshot;
use agent_backends::sweep_once;
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_event::Limits;
use agent_session::SandboxSettings;
use futures_util::future::join_all;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// All sandboxes.
pub struct Fleet {
    settings: SandboxSettings,
    machine: Arc<Machine>,
    domain: Option<Arc<str>>,
    max_sandboxes: usize,
    slots: Arc<Semaphore>,
    sandboxes: Lock<Option<BTreeMap<String, Arc<Hosted>>>>,
}

impl Fleet {
    /// At most `max_sandboxes` of these settings at a time, with names below `domain`.
    pub fn new(
        settings: SandboxSettings,
        machine: Arc<Machine>,
        domain: Option<String>,
        max_sandboxes: usize,
    ) -> Arc<Self> {
        sweep_once(&settings.backend);
        Arc::new(Self {
            settings,
            machine,
            domain: domain.map(Arc::from),
            max_sandboxes,
            slots: Arc::new(Semaphore::new(max_sandboxes)),
            sandboxes: Lock::new(Some(BTreeMap::new())),
        })
    }

    /// Starts a sandbox, with what `snapshot` holds. It is removed when its time is over.
    ///
    /// # Errors
    /// `Limit`: there are as many as there may be. Otherwise it does not start.
    pub async fn create(
        self: &Arc<Self>,
        wanted: Wanted,
        snapshot: Option<Arc<HostedSnapshot>>,
    ) -> Result<Arc<Hosted>> {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            let number = self.max_sandboxes;
            return Err(Error::new(
                Kind::Limit,
                format!("you have reached the maximum number of concurrent sandboxes ({number})"),
            )
            .hint("remove one, or start the server with a larger --max-sandboxes"));
        };
        let fleet = Arc::clone(self);
        // A client that goes away meanwhile leaves a sandbox that lives for its time, and not half of one.
        let created = tokio::spawn(async move {
            let id = format!("i{}", random_text::<19>()?);
            let (settings, machine) = (&fleet.settings, &fleet.machine);
            let mut hosted = Hosted::start(id, wanted, snapshot.as_deref(), settings, machine, slot).await?;
            hosted.domain = fleet.domain.clone();
            let hosted = Arc::new(hosted);
            let is_kept = match &mut *fleet.sandboxes.lock() {
                Some(sandboxes) => sandboxes.insert(hosted.id.clone(), Arc::clone(&hosted)).is_none(),
                None => false,
            };
            if !is_kept {
                hosted.end().await;
                return Err(Error::new(Kind::Terminated, "the server is ending"));
            }
            tokio::spawn(Arc::clone(&fleet).watch(Arc::clone(&hosted)));
            tokio::spawn(metrics::record(Arc::clone(&fleet), hosted.id.clone()));
            Ok(hosted)
        });
        created.await.map_err(|error| Error::unexpected("the sandbox was not created").caused_by(error))?
    }

    /// Returns what each may use.
    pub fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    /// The sandbox of this id.
    pub fn get(&self, id: &str) -> Option<Arc<Hosted>> {
        self.sandboxes.lock().as_ref()?.get(id).cloned()
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<Arc<Hosted>> {
        let mut all: Vec<_> = self.sandboxes.lock().iter().flat_map(BTreeMap::values).cloned().collect();
        all.sort_by(|one, other| (one.started, &one.id).cmp(&(other.started, &other.id)));
        all
    }

    /// Removes a sandbox. Whether there was one.
    pub async fn remove(&self, id: &str) -> bool {
        let removed = self.sandboxes.lock().as_mut().and_then(|sandboxes| sandboxes.remove(id));
        match removed {
            Some(hosted) => {
                hosted.changed.notify_one();
                // Also if the client does not wait for it. One that cannot be removed now is tried again beside it.
                let _ = tokio::spawn(async move { hosted.end().await }).await;
                true
            }
            None => false,
        }
    }

    /// Removes all of them; no further one is made.
    pub async fn end(&self) {
        let all = self.sandboxes.lock().take().unwrap_or_default();
        join_all(all.values().map(|hosted| hosted.end())).await;
    }

    /// Ends a sandbox when its time is over.
    async fn watch(self: Arc<Self>, hosted: Arc<Hosted>) {
        while self.get(&hosted.id).is_some() {
            let life = hosted.life();
            // A paused one stays until it is removed, or the server ends.
            let over = async {
                match life.is_paused {
                    true => std::future::pending().await,
                    false => tokio::time::sleep(until(life.ends)).await,
                }
            };
            tokio::select! {
                () = hosted.changed.notified() => continue,
                () = over => {}
            }
            let life = hosted.life();
            if life.is_paused || !until(life.ends).is_zero() {
                continue;
            }
            if let Some(keeping) = hosted.wanted.auto_pause
                && hosted.pause(keeping).await.is_ok()
            {
                continue;
            }
            self.remove(&hosted.id).await;
        }
    }
}

/// Returns the time until `time`; zero if it is past.
fn until(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default()
}
