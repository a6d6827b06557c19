//! The backend: pods of one namespace.

use super::cluster::Cluster;
use super::pod::{self, CONTAINER, GUEST, HOST_LABEL, MANAGED_BY, Pod, SOCKET};
use super::removal::Ending;
use super::settings::Settings;
use super::stream::Exec;
use super::users::UserNamespaces;
use super::{CAPABILITIES, NAME, failure, wait, warm};
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_event::SandboxInfo;
use agent_sandbox::ownership::{sandbox_name, this_host};
use agent_sandbox::{Backend, Capabilities, Channel, Listed, OnProgress, Reopen, Reopened, Spec, State};
use async_trait::async_trait;
use futures_util::FutureExt;
use http::Method;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Pods of one page of a list, and pages.
const PAGE: usize = 500;
const MAX_PAGES: usize = 20;

/// The backend over a cluster.
#[derive(Clone)]
pub struct Kubernetes {
    pub(super) cluster: Cluster,
    pub(super) settings: Settings,
    pub(super) machine: Arc<Machine>,
    /// The cluster's answer about user namespaces.
    pub(super) user_namespaces: Arc<OnceCell<UserNamespaces>>,
    /// The uid of the pod or claim of each session.
    known: Arc<Lock<BTreeMap<String, String>>>,
}

impl Kubernetes {
    /// The cluster that `kubectl` would talk to, as the settings of this machine change it.
    ///
    /// # Errors
    /// `Config` where none is configured.
    pub async fn connect(machine: Arc<Machine>) -> Result<Self> {
        let settings = Settings::of(&machine);
        Self::with_settings(machine, settings).await
    }

    /// The cluster that `kubectl` would talk to, as `settings` change it.
    ///
    /// # Errors
    /// `Config` where none is configured.
    pub async fn with_settings(machine: Arc<Machine>, settings: Settings) -> Result<Self> {
        let cluster = Cluster::connect(&machine, &settings).await?;
        Ok(Self { cluster, settings, machine, user_namespaces: Arc::default(), known: Arc::default() })
    }

    /// Notes which pod or claim the sandbox of `session` is.
    pub(super) fn know(&self, session: &str, object: &Value) {
        let uid = wait::text(object, "/metadata/uid").to_owned();
        self.known.lock().insert(session.to_owned(), uid);
    }

    /// The stream to the guest of a session's pod, which is opened again where it is cut.
    pub(super) fn channel(&self, exec: Exec, session: &str, pod: String) -> Channel {
        let (kubernetes, session) = (self.clone(), session.to_owned());
        let reopen: Reopen = Arc::new(move || {
            let (kubernetes, session) = (kubernetes.clone(), session.clone());
            async move { kubernetes.open(&session, wait::deleted()).await }.boxed()
        });
        exec.channel(self.cluster.clone(), pod, reopen)
    }

    /// Opens a stream to the guest of a session's pod; `none` where it has none.
    async fn open(&self, session: &str, none: Error) -> Reopened {
        let name = match sandbox_name(session) {
            Ok(name) => name,
            Err(error) => return Reopened::Gone(error),
        };
        let claimed = match self.settings.warm_pool.is_some() {
            true => self.claimed_pod(session).await,
            false => Ok(None),
        };
        let (is_claimed, name) = match claimed {
            Ok(claimed) => (claimed.is_some(), claimed.unwrap_or(name)),
            Err(error) => return Reopened::NotYet(error),
        };
        let found = match wait::read(&self.cluster, &name).await {
            Ok(Some(found)) => found,
            Ok(None) => return Reopened::Gone(none),
            Err(error) => return Reopened::NotYet(error),
        };
        if let Some(error) = wait::end(&found) {
            return Reopened::Gone(error);
        }
        if !is_claimed {
            if pod::session(&found) != Some(session) {
                return Reopened::Gone(none);
            }
            self.know(session, &found);
        }
        // The kubelet may be starting; where the pod has ended, the next attempt knows why.
        self.attach_guest(session, &name).await.map_or_else(Reopened::NotYet, Reopened::Open)
    }

    /// Connects to the guest that runs in a pod.
    pub(super) async fn attach_guest(&self, session: &str, pod: &str) -> Result<Channel> {
        let guest = self.settings.guest.as_deref().unwrap_or(GUEST);
        let attach = [guest, "attach", "--socket", SOCKET];
        let exec = Exec::start(&self.cluster, pod, CONTAINER, &attach).await?;
        Ok(self.channel(exec, session, pod.to_owned()))
    }

    /// The pod that `spec` asks for.
    pub(super) fn pod<'a>(&'a self, spec: &'a Spec, has_user_namespace: bool) -> Pod<'a> {
        Pod { spec, settings: &self.settings, machine: &self.machine, has_user_namespace }
    }

    /// The pods and claims that this user made from this machine, but for those that are being removed.
    async fn found(&self) -> Result<Vec<(Value, State)>> {
        let claims = match self.settings.warm_pool.is_some() {
            true => self.claims().await?,
            false => Vec::new(),
        };
        let pods = self.pods().await?.into_iter().map(|pod| (state(&pod), pod));
        let all = pods.chain(claims.into_iter().map(|claim| (warm::state(&claim), claim)));
        Ok(all.filter_map(|(state, object)| Some((object, state?))).collect())
    }

    /// The pods that this user made from this machine.
    async fn pods(&self) -> Result<Vec<Value>> {
        let selector = super::cluster::escape(&format!(
            "{}={},{HOST_LABEL}={}",
            MANAGED_BY.0,
            MANAGED_BY.1,
            this_host()
        ));
        let (mut found, mut from) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let path = self.cluster.path(&format!("pods?labelSelector={selector}&limit={PAGE}{from}"));
            let page = self.cluster.send(Method::GET, &path, None).await;
            let mut page =
                page.map_err(|error| failure::error("the sandboxes could not be listed", error))?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                found.extend(items);
            }
            match wait::text(&page, "/metadata/continue") {
                "" => break,
                next => from = format!("&continue={}", super::cluster::escape(next)),
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl Backend for Kubernetes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn location(&self) -> String {
        format!("{}, namespace {}", self.cluster.location, self.cluster.namespace)
    }

    /// A pod of its own has no volumes that stay.
    fn capabilities(&self) -> Capabilities {
        Capabilities { pause: self.settings.warm_pool.is_some(), ..CAPABILITIES }
    }

    async fn start(&self, spec: &Spec, on_progress: OnProgress<'_>) -> Result<(Channel, SandboxInfo)> {
        self.capabilities().check(NAME, spec)?;
        self.start_pod(spec, on_progress).await
    }

    async fn attach(&self, session: &str) -> Result<Channel> {
        let none = Error::sandbox(format!("session {session} has no running sandbox"));
        match self.open(session, none).await {
            Reopened::Open(channel) => Ok(channel),
            Reopened::NotYet(error) | Reopened::Gone(error) => Err(error),
        }
    }

    /// Waits until it is gone: until then it counts for the namespace's quota.
    async fn destroy(&self, session: &str) -> Result<()> {
        if let Some(ending) = self.delete(&sandbox_name(session)?, None).await? {
            ending.gone().await;
        }
        self.known.lock().remove(session);
        Ok(())
    }

    fn identity(&self, session: &str) -> Option<String> {
        self.known.lock().get(session).cloned()
    }

    async fn destroy_only(&self, session: &str, uid: &str) -> Result<()> {
        if let Some(ending) = self.delete(&sandbox_name(session)?, Some(uid)).await? {
            ending.gone().await;
        }
        let mut known = self.known.lock();
        if known.get(session).is_some_and(|known| known == uid) {
            known.remove(session);
        }
        Ok(())
    }

    /// Ends the pod, of which the volumes stay.
    async fn pause(&self, session: &str) -> Result<()> {
        self.pause_claimed(session).await
    }

    async fn resume(&self, session: &str) -> Result<()> {
        self.resume_claimed(session).await
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        let listed = self.found().await?.into_iter().filter_map(|(pod, state)| {
            let ownership = pod::ownership(&pod)?;
            Some(Listed {
                expires: ownership.expiry_date().map(str::to_owned),
                session: ownership.session,
                id: wait::text(&pod, "/metadata/name").to_owned(),
                state,
                created: wait::text(&pod, "/metadata/creationTimestamp").to_owned(),
            })
        });
        Ok(listed.collect())
    }

    async fn sweep(&self) -> Result<()> {
        for (pod, state) in self.found().await? {
            let left_over = pod::ownership(&pod).map(|ownership| (ownership, state));
            let left_over = left_over.filter(|(ownership, state)| ownership.is_left_over(*state));
            // The name is that of the session, as its annotation says. Meanwhile the session may have been resumed in another pod.
            if let Some((ownership, _)) = left_over {
                let uid = wait::text(&pod, "/metadata/uid");
                let ending = self.delete(&sandbox_name(&ownership.session)?, Some(uid)).await?;
                ending.into_iter().for_each(Ending::go_on);
            }
        }
        Ok(())
    }
}

/// The state of a pod; `None` where it is being removed.
fn state(pod: &Value) -> Option<State> {
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return None;
    }
    Some(match wait::text(pod, "/status/phase") {
        "Running" => State::Running,
        "Succeeded" | "Failed" => State::Stopped,
        _ => State::Starting,
    })
}
