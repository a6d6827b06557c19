//! Visitors of a server: each browser has sessions, a sandbox and a workspace of its own, for a while.

use super::Web;
use super::answers::FailedRequest;
use super::scope::{Allowance, Facts, PageOpener, Scope};
use super::token::random;
use super::work::{blocking, to_end};
use agent_base::error::{Error, Kind, Result};
use agent_base::hash::Hash;
use agent_base::lock::Lock;
use agent_core::Budget;
use agent_log::Store;
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The interval of looks for visitors that have left.
const SWEEP: Duration = Duration::from_secs(20);
/// Keys of browsers that are known, most of which have done nothing yet; the one seen longest ago makes room.
const MAX_KNOWN: usize = 1_000;

/// The users of the page.
pub enum Audience {
    /// The user who started the server.
    One(Arc<Scope>),
    /// All who reach it.
    Visitors(Box<Visitors>),
}

/// The limits of visitors.
#[derive(Debug, Clone)]
pub struct VisitorLimits {
    /// Visitors at the same time.
    pub visitors: usize,
    /// The time for which one that does nothing is kept.
    pub ttl: Duration,
    /// The most that all prompts of one may cost together.
    pub cost: Option<f64>,
    /// The most that all prompts of all of them may cost together, from the start of the server.
    pub total_cost: Option<f64>,
    /// The time limit for one command of theirs.
    pub command_time: Duration,
}

/// A visitor's place among those that are taken at the same time: taken with the first session or upload.
pub struct VisitorPlace {
    all: Arc<Semaphore>,
    mine: Lock<Option<OwnedSemaphorePermit>>,
}

impl VisitorPlace {
    /// Takes it, if it is not taken.
    ///
    /// # Errors
    /// There is none left.
    pub fn take(&self) -> Result<()> {
        let mut mine = self.mine.lock();
        if mine.is_none() {
            let taken = Arc::clone(&self.all).try_acquire_owned().map_err(|_| full())?;
            *mine = Some(taken);
        }
        Ok(())
    }

    /// Returns whether it is taken.
    pub fn is_taken(&self) -> bool {
        self.mine.lock().is_some()
    }
}

fn full() -> Error {
    Error::new(Kind::Limit, "all places are taken").hint("try again in some minutes")
}

/// The visitors of a server.
pub struct Visitors {
    /// Removed at the end.
    _directory: tempfile::TempDir,
    root: PathBuf,
    places: Arc<Semaphore>,
    store: Store,
    opener: Arc<dyn PageOpener>,
    facts: Facts,
    limits: VisitorLimits,
    /// The sum that all of them spend.
    paid: Arc<Budget>,
    known: Lock<BTreeMap<Hash, Visitor>>,
}

struct Visitor {
    scope: Arc<Scope>,
    seen: Instant,
}

impl Visitors {
    /// Nobody yet. What they upload is kept in a temporary directory.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(
        store: Store,
        opener: Arc<dyn PageOpener>,
        facts: Facts,
        limits: VisitorLimits,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("agent-web-").tempdir().map_err(|error| {
            Error::usage("the directory for uploads cannot be made").caused_by(error).hint("set TMPDIR")
        })?;
        let root = directory.path().canonicalize()?;
        let places = Arc::new(Semaphore::new(limits.visitors.min(Semaphore::MAX_PERMITS)));
        let hint = "the owner of this server can raise --max-cost-total";
        let paid = Budget::of("all visitors", limits.total_cost, hint);
        let known = Lock::default();
        Ok(Self { _directory: directory, root, places, store, opener, facts, limits, paid, known })
    }

    /// A new visitor; the key that its browser sends from now on.
    async fn begin(&self) -> Result<String> {
        self.sweep().await;
        let key = random()?;
        let name = Hash::of(&key);
        let own =
            Budget::of("one visitor", self.limits.cost, "the owner of this server can raise --max-cost");
        let allowance = Allowance {
            sessions: 1,
            budgets: vec![own, Arc::clone(&self.paid)],
            command_time: Some(self.limits.command_time),
        };
        let scope = Scope::with_place(
            self.root.join(name.short(8)),
            self.store.clone(),
            Arc::clone(&self.opener),
            self.facts.clone(),
            allowance,
            Some(VisitorPlace { all: Arc::clone(&self.places), mine: Lock::default() }),
        );
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN.max(self.limits.visitors) {
            let empty = known.iter().filter(|(_, visitor)| !visitor.scope.has_place());
            let oldest = empty.min_by_key(|(_, visitor)| visitor.seen).map(|(name, _)| *name);
            known.remove(&oldest.ok_or_else(full)?);
        }
        known.insert(name, Visitor { scope, seen: Instant::now() });
        Ok(key)
    }

    fn find(&self, key: &str) -> Option<Arc<Scope>> {
        let mut known = self.known.lock();
        let visitor = known.get_mut(&Hash::of(key))?;
        visitor.seen = Instant::now();
        Some(Arc::clone(&visitor.scope))
    }

    /// Removes those who have left, with all that is theirs.
    async fn sweep(&self) {
        let gone: Vec<Visitor> = {
            let mut known = self.known.lock();
            let is_gone = |visitor: &Visitor| {
                visitor.seen.elapsed() > self.limits.ttl && visitor.scope.is_idle_for(self.limits.ttl)
            };
            let names: Vec<Hash> =
                known.iter().filter(|(_, visitor)| is_gone(visitor)).map(|(name, _)| *name).collect();
            names.iter().filter_map(|name| known.remove(name)).collect()
        };
        for visitor in gone {
            self.remove(visitor).await;
        }
    }

    async fn remove(&self, visitor: Visitor) {
        if !visitor.scope.has_place() {
            return;
        }
        visitor.scope.close(Ok(())).await;
        let (store, workspace) = (self.store.clone(), visitor.scope.workspace().to_owned());
        let removed = blocking(move || {
            let mut ids = store.of_workspace(&workspace)?;
            ids.extend(store.delegates_of(&ids)?);
            for id in ids {
                // What cannot be removed now is removed by `agent sessions prune`.
                let _ = store.remove(&id);
            }
            Ok(std::fs::remove_dir_all(&workspace)?)
        });
        let _ = removed.await;
    }

    /// Looks for those who have left, until it is dropped.
    pub async fn keep_sweeping(&self) {
        loop {
            tokio::time::sleep(SWEEP.min(self.limits.ttl)).await;
            self.sweep().await;
        }
    }

    /// Ends the streams of their tabs.
    pub fn end_streams(&self) {
        self.known.lock().values().for_each(|visitor| visitor.scope.end_streams());
    }

    /// Removes all of them.
    pub async fn close(&self) {
        let all = std::mem::take(&mut *self.known.lock());
        futures_util::future::join_all(all.into_values().map(|visitor| self.remove(visitor))).await;
    }
}

/// `POST /api/visitor`
pub async fn begin(State(web): State<Arc<Web>>) -> std::result::Result<Json<Value>, FailedRequest> {
    to_end(async move {
        match &web.audience {
            Audience::One(_) => Err(FailedRequest::new(StatusCode::NOT_FOUND, "this server has one user")),
            Audience::Visitors(visitors) => Ok(Json(json!({"visitor": visitors.begin().await?}))),
        }
    })
    .await
}

/// The sessions of the visitor that sent a request.
pub struct Mine(pub Arc<Scope>);

impl FromRequestParts<Arc<Web>> for Mine {
    type Rejection = FailedRequest;

    async fn from_request_parts(
        parts: &mut Parts,
        web: &Arc<Web>,
    ) -> std::result::Result<Self, FailedRequest> {
        let visitors = match &web.audience {
            Audience::One(scope) => return Ok(Self(Arc::clone(scope))),
            Audience::Visitors(visitors) => visitors,
        };
        let key = parts.headers.get("x-agent-visitor").and_then(|key| key.to_str().ok());
        key.and_then(|key| visitors.find(key)).map(Self).ok_or_else(|| {
            FailedRequest::new(StatusCode::FORBIDDEN, "this browser is not known any more")
                .with("visitor", json!(false))
        })
    }
}
