//! The sessions that one user of the page can reach, and those of them that are open.

use super::answers::FailedRequest;
use super::frontend::PageFrontend;
use super::live::{Live, LiveLimits};
use super::upload::Uploaded;
use super::visitors::VisitorPlace;
use super::work::{blocking, to_end};
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_base::paths::make_dir;
use agent_core::Budget;
use agent_log::{SessionId, Store};
use agent_session::{Frontend, ModelSettings, Session};
use async_trait::async_trait;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Sessions that are searched, the newest ones.
const MAX_SEARCHED: usize = 500;
/// Sessions and forks of one visitor, which are kept until they leave.
const MAX_MADE: usize = 50;

/// The resources that one user may use.
#[derive(Debug, Clone)]
pub struct Allowance {
    /// Sessions that are open at the same time, each with its sandbox.
    pub sessions: usize,
    /// Budgets that every answer of a model counts against: this user's, and that of all together.
    pub budgets: Vec<Arc<Budget>>,
    /// The time limit for one command of the user's.
    pub command_time: Option<Duration>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { sessions: 8, budgets: Vec::new(), command_time: None }
    }
}

/// Opens sessions with the settings of the command that started the server.
#[async_trait]
pub trait PageOpener: Send + Sync {
    /// A new session on `workspace`, or the one that `resume` names; its model is paid from `budgets`.
    async fn open(
        &self,
        workspace: &Path,
        resume: Option<SessionId>,
        frontend: Arc<dyn Frontend>,
        budgets: &[Arc<Budget>],
    ) -> Result<Session>;

    /// The models that the endpoint offers.
    async fn models(&self) -> Result<Vec<String>>;

    /// The model of this name, which is paid from `budgets`.
    async fn model(&self, name: &str, budgets: &[Arc<Budget>]) -> Result<ModelSettings>;

    /// Ends the sandbox that a session of this backend may have left.
    async fn end_sandbox(&self, backend: &str, session: &SessionId);
}

/// The facts that the page shows beside a session.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Set if changes can be written into the workspace.
    pub can_apply: bool,
    /// Set if the user may let the sandbox reach more hosts.
    pub may_widen_network: bool,
    /// A session's limits, in words; empty where nothing is limited.
    pub limits: Vec<String>,
    /// The time for which a visitor who does nothing is kept.
    pub ttl: Option<Duration>,
}

/// One user's sessions.
pub struct Scope {
    workspace: PathBuf,
    store: Store,
    opener: Arc<dyn PageOpener>,
    facts: Facts,
    open: Lock<BTreeMap<SessionId, Arc<Live>>>,
    allowance: Allowance,
    /// Sessions and forks that were made.
    made: Lock<usize>,
    /// Of a visitor.
    place: Option<VisitorPlace>,
    /// The files that were uploaded into the workspace.
    pub uploaded: Lock<Uploaded>,
    /// Held while a session is opened, so that two tabs open it once.
    opening: Mutex<()>,
}

impl Scope {
    /// The sessions on `workspace`.
    pub fn new(
        workspace: PathBuf,
        store: Store,
        opener: Arc<dyn PageOpener>,
        facts: Facts,
        allowance: Allowance,
    ) -> Arc<Self> {
        Self::with_place(workspace, store, opener, facts, allowance, None)
    }

    /// The sessions of a visitor, who has to get a place first; `workspace` is made then.
    pub fn with_place(
        workspace: PathBuf,
        store: Store,
        opener: Arc<dyn PageOpener>,
        facts: Facts,
        allowance: Allowance,
        place: Option<VisitorPlace>,
    ) -> Arc<Self> {
        Arc::new(Self {
            place,
            made: Lock::default(),
            workspace,
            store,
            opener,
            facts,
            open: Lock::default(),
            allowance,
            uploaded: Lock::default(),
            opening: Mutex::default(),
        })
    }

    /// Takes the visitor's place and makes their directory: before their first session or upload.
    ///
    /// # Errors
    /// All places are taken.
    pub fn settle(&self) -> Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        place.take()?;
        make_dir(&self.workspace)
    }

    /// Counts another session or fork of a visitor's.
    ///
    /// # Errors
    /// They take no more room on this disk.
    pub fn count_session(&self) -> Result<()> {
        let mut made = self.made.lock();
        if self.place.is_some() && *made >= MAX_MADE {
            return Err(Error::new(Kind::Limit, format!("a visitor has at most {MAX_MADE} sessions")));
        }
        *made += 1;
        Ok(())
    }

    /// Returns whether it holds a visitor's place.
    pub fn has_place(&self) -> bool {
        self.place.as_ref().is_some_and(VisitorPlace::is_taken)
    }

    /// The directory that they work on.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Checks that another prompt may be worked on.
    ///
    /// # Errors
    /// What the user, or all together, may spend is used up.
    pub fn allow(&self) -> Result<()> {
        self.allowance.budgets.iter().find_map(|budget| budget.exhausted()).map_or(Ok(()), Err)
    }

    /// The model of this name.
    ///
    /// # Errors
    /// It is not configured.
    pub async fn model(&self, name: &str) -> Result<ModelSettings> {
        self.opener.model(name, &self.allowance.budgets).await
    }

    /// Returns whether nothing has happened in any of them for so long.
    pub fn is_idle_for(&self, time: Duration) -> bool {
        let is_idle = |live: &Arc<Live>| live.unused_since().is_some_and(|since| since.elapsed() > time);
        self.open.lock().values().all(is_idle)
    }

    /// Returns the store of the sessions.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns what opens them.
    pub fn opener(&self) -> &dyn PageOpener {
        self.opener.as_ref()
    }

    /// Returns what the page shows beside them.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The newest of them that have `wanted` in what a list shows, as the page lists them.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self, wanted: &str, limit: usize) -> Result<Value> {
        let mut ids = self.store.of_workspace(&self.workspace)?;
        let wanted = wanted.trim().to_lowercase();
        if !wanted.is_empty() {
            ids.truncate(MAX_SEARCHED);
            ids.retain(|id| {
                let summary = self.store.summary(id.clone());
                let shown = [&summary.preview, &summary.model, &summary.updated, &summary.status];
                id.as_str().contains(&wanted)
                    || shown.iter().any(|text| text.to_lowercase().contains(&wanted))
            });
        }
        ids.truncate(limit);
        let parts = self.store.delegates_of(&ids)?;
        let own = ids.len();
        ids.extend(parts.into_iter().rev().take(limit));
        let of = |(number, id): (usize, SessionId)| {
            let is_open = self.open.lock().contains_key(&id);
            let summary = self.store.summary(id);
            json!({
                "id": summary.id,
                "preview": super::frame::visible(&summary.preview),
                "updated": summary.updated,
                "status": format!("{}{}", summary.status, if number < own { "" } else { ", delegated" }),
                "model": super::frame::visible(&summary.model),
                "turns": summary.turns,
                "open": is_open,
            })
        };
        Ok(ids.into_iter().enumerate().map(of).collect())
    }

    /// The session that `text` names; it is opened if it is not, and no other one has to be closed for it that a tab may
    /// show: two tabs would close each other's for ever.
    ///
    /// # Errors
    /// It does not exist, belongs to another workspace, or another process has it.
    pub async fn session(self: &Arc<Self>, text: &str) -> Result<Arc<Live>, FailedRequest> {
        let id = SessionId::parse(text)?;
        if let Some(live) = self.open.lock().get(&id) {
            return Ok(Arc::clone(live));
        }
        self.check(&id).await?;
        if self.allowance.sessions == 1 && !self.open.lock().is_empty() {
            let closed = FailedRequest::new(StatusCode::CONFLICT, "another one of your sessions is open now");
            return Err(closed.with("closed", json!(true)));
        }
        self.open(Some(id)).await
    }

    /// A new session, or the one that `resume` names.
    ///
    /// # Errors
    /// As [`Scope::session`]; too many are open.
    pub async fn open(self: &Arc<Self>, resume: Option<SessionId>) -> Result<Arc<Live>, FailedRequest> {
        let scope = Arc::clone(self);
        to_end(async move { scope.open_now(resume).await }).await
    }

    async fn open_now(&self, resume: Option<SessionId>) -> Result<Arc<Live>, FailedRequest> {
        self.settle()?;
        let _opening = self.opening.lock().await;
        let mut seq = 0;
        if resume.is_none() {
            self.count_session()?;
        }
        if let Some(id) = &resume {
            if let Some(live) = self.open.lock().get(id) {
                return Ok(Arc::clone(live));
            }
            self.check(id).await?;
            if self.store.is_running(id) {
                let why = format!("session {id} is in use by another process");
                return Err(Error::new(Kind::Conflict, why).hint("wait until it ends, or fork it").into());
            }
            let (store, id) = (self.store.clone(), id.clone());
            seq = blocking(move || store.last_seq(&id)).await?;
        }
        self.make_room().await?;
        let frontend = PageFrontend::new(self.facts.may_widen_network);
        let budgets = &self.allowance.budgets;
        let session = self.opener.open(&self.workspace, resume, Arc::clone(&frontend) as _, budgets).await?;
        let facts = json!({
            "workspace": super::frame::visible(&self.workspace.display().to_string()),
            "version": env!("CARGO_PKG_VERSION"),
            "can_apply": self.facts.can_apply,
        });
        let limits =
            LiveLimits { command_time: self.allowance.command_time, in_words: self.facts.limits.clone() };
        let live = Live::new(session, &frontend, facts, seq, limits).await;
        self.open.lock().insert(live.id.clone(), Arc::clone(&live));
        Ok(live)
    }

    /// Checks that session `id` is one of this user's.
    ///
    /// # Errors
    /// It is not, or does not exist.
    pub async fn check(&self, id: &SessionId) -> Result<(), FailedRequest> {
        if self.open.lock().contains_key(id) {
            return Ok(());
        }
        let (store, named, workspace) = (self.store.clone(), id.clone(), self.workspace.clone());
        match blocking(move || Ok(store.is_on(&named, &workspace))).await? {
            true => Ok(()),
            false => Err(FailedRequest::new(StatusCode::NOT_FOUND, &format!("unknown session {id}"))),
        }
    }

    /// Removes session `id` with its delegated parts and its sandbox.
    ///
    /// # Errors
    /// `Conflict` while something happens in it, here or in another process.
    pub async fn remove(self: &Arc<Self>, id: &SessionId) -> Result<(), FailedRequest> {
        self.check(id).await?;
        let _opening = self.opening.lock().await;
        let open = self.open.lock().get(id).cloned();
        if let Some(live) = open {
            if live.unused_since().is_none() {
                let why = "something is under way in this session";
                return Err(Error::new(Kind::Conflict, why).hint("wait for its end, or stop it").into());
            }
            self.open.lock().remove(id);
            live.close(Ok(())).await;
        }
        let (store, id) = (self.store.clone(), id.clone());
        let removed = blocking(move || {
            let mut removed = vec![store.summary(id)];
            let parts = store.delegates_of(std::slice::from_ref(&removed[0].id))?;
            removed.extend(parts.into_iter().map(|id| store.summary(id)));
            for summary in &removed {
                store.remove(&summary.id)?;
            }
            Ok(removed)
        });
        for summary in removed.await? {
            self.opener.end_sandbox(&summary.sandbox, &summary.id).await;
        }
        Ok(())
    }

    /// Closes the session that was unused for the longest time where there are too many.
    async fn make_room(&self) -> Result<()> {
        let unused = {
            let open = self.open.lock();
            if open.len() < self.allowance.sessions {
                return Ok(());
            }
            // A visitor has one, and asked for another.
            let only = self.allowance.sessions == 1;
            let idle = open.values().filter_map(|live| {
                let since = if only { live.unused_since() } else { live.idle_since() };
                Some((since?, live))
            });
            idle.min_by_key(|(since, _)| *since).map(|(_, live)| Arc::clone(live))
        };
        let Some(unused) = unused else {
            return Err(Error::new(
                Kind::Conflict,
                format!("{} sessions are open already", self.allowance.sessions),
            )
            .hint("stop one of them, or close its tabs"));
        };
        self.open.lock().remove(&unused.id);
        unused.close(Ok(())).await;
        Ok(())
    }

    /// Ends the streams of their tabs.
    pub fn end_streams(&self) {
        self.open.lock().values().for_each(|live| live.feed.close());
    }

    /// Closes all of them; `result` says why.
    pub async fn close(&self, result: Result<()>) {
        let open = std::mem::take(&mut *self.open.lock());
        let closing = open.values().map(|live| {
            live.close(match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(error.repeat()),
            })
        });
        futures_util::future::join_all(closing).await;
    }
}
