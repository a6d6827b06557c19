//! The pause of a warm pool's sandbox: its pod ends, its volumes stay (`operatingMode` of the sandbox). It is resumed in another pod,
//! of which nothing is taken for granted.

use super::backend::Kubernetes;
use super::wait::text;
use super::warm::{self, CLAIMS, SANDBOXES, Served, pod_name};
use super::{failure, policy, volumes, wait};
use agent_base::error::{Error, Result};
use agent_event::Limits;
use agent_sandbox::ownership::sandbox_name;
use agent_sandbox::{Network, Sandbox, Spec, State};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// The annotation of a claim that holds [`Launch`].
pub(super) const LAUNCH: &str = "agent/launch";
/// The modes of a sandbox.
const RUNNING: &str = "Running";
const SUSPENDED: &str = "Suspended";
/// The time limit for a pod to end, and for the claim to tell.
const END: Duration = Duration::from_secs(60);

/// Everything of a [`Spec`] that decides about the pod and its guest. It is kept with the claim, so that both can be started again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Launch {
    image: Option<String>,
    runtime: Option<String>,
    is_isolated: bool,
    idle_seconds: u64,
    limits: Limits,
}

impl Launch {
    /// Returns what `spec` asks for.
    pub fn of(spec: &Spec) -> Self {
        Self {
            image: spec.image.clone(),
            runtime: spec.runtime.clone(),
            is_isolated: spec.network != Network::Full,
            idle_seconds: spec.idle_ttl.as_secs(),
            limits: spec.limits.clone(),
        }
    }

    /// As an annotation's value.
    pub fn annotation(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::unexpected("a launch cannot be written").caused_by(error))
    }

    /// Reads what the claim of `session` was made for.
    fn spec(session: &str, claim: &Value) -> Option<Spec> {
        let annotation = claim.get("metadata")?.get("annotations")?.get(LAUNCH)?.as_str()?;
        let Self { image, runtime, is_isolated, idle_seconds, limits } =
            serde_json::from_str(annotation).ok()?;
        let network = if is_isolated { Network::None } else { Network::Full };
        let idle_ttl = Duration::from_secs(idle_seconds);
        Some(Spec { image, runtime, network, idle_ttl, limits, ..Spec::new(session) })
    }
}

impl Kubernetes {
    /// Ends the pod of a session, whose workspace stays.
    pub(super) async fn pause_claimed(&self, session: &str) -> Result<()> {
        let (_, sandbox) = self.claimed_or_refused(session).await?;
        if !volumes::keeps_workspace(&sandbox) {
            return Err(refused("its warm pool's template has no volume that stays for the workspace"));
        }
        let pod = wait::read(&self.cluster, &pod_name(&sandbox)?).await?;
        self.set_mode(text(&sandbox, "/metadata/name"), SUSPENDED).await?;
        if let Some(pod) = pod {
            let (name, uid) = (text(&pod, "/metadata/name"), text(&pod, "/metadata/uid"));
            wait::gone(&self.cluster, name, uid, END).await?;
        }
        self.seen_as(session, State::Paused).await
    }

    /// Undoes [`Self::pause_claimed`], in another pod.
    pub(super) async fn resume_claimed(&self, session: &str) -> Result<()> {
        let (claim, sandbox) = self.claimed_or_refused(session).await?;
        let spec = Launch::spec(session, &claim)
            .ok_or_else(|| Error::sandbox("its claim does not say what the sandbox was started with"))?;
        let pod = self.pod(&spec, false);
        if pod.is_isolated() {
            policy::ensure(&self.cluster).await?;
        }
        let (name, pool) = (text(&sandbox, "/metadata/name"), text(&claim, "/spec/warmPoolRef/name"));
        self.set_mode(name, RUNNING).await?;
        let resumed = async {
            let Served { channel, .. } = self.serve_sandbox(&pod, pool, name, &|_, _, _| {}).await?;
            // Its answer says that it serves: the next to attach need not wait.
            Sandbox::connect(channel).await?;
            self.seen_as(session, State::Running).await
        };
        let resumed = resumed.await;
        if resumed.is_err() && text(&sandbox, "/spec/operatingMode") == SUSPENDED {
            // What was kept stays as it was.
            let _ = self.set_mode(name, SUSPENDED).await;
        }
        resumed
    }

    /// The claim and the sandbox of a session that has a pod of a pool.
    async fn claimed_or_refused(&self, session: &str) -> Result<(Value, Value)> {
        let claimed = match self.settings.warm_pool.is_some() {
            true => self.claimed(session).await?,
            false => None,
        };
        claimed.ok_or_else(|| refused("only one of a warm pool has volumes that stay"))
    }

    async fn set_mode(&self, sandbox: &str, mode: &str) -> Result<()> {
        let path = self.cluster.group_path(SANDBOXES, &format!("sandboxes/{sandbox}"));
        let patch = json!({ "spec": { "operatingMode": mode } });
        let patched = self.cluster.send(Method::PATCH, &path, Some(&patch)).await;
        let failed = |error| failure::error(&format!("the sandbox could not be set to {mode}"), error);
        patched.map(drop).map_err(failed)
    }

    /// Waits until the claim of a session, by which it is listed, has this state.
    async fn seen_as(&self, session: &str, wanted: State) -> Result<()> {
        let (claims, name) = (self.cluster.group_path(CLAIMS, "sandboxclaims"), sandbox_name(session)?);
        let is_seen = |claim: &Value| {
            let has_it = warm::state(claim) == Some(wanted);
            Ok(has_it.then_some(()).ok_or_else(|| format!("waiting until it is {}", wanted.as_str())))
        };
        wait::until(&self.cluster, &claims, &name, END, &|_, _, _| {}, is_seen).await
    }
}

fn refused(why: &str) -> Error {
    Error::sandbox(format!("the sandbox cannot be paused: {why}"))
        .hint("leave it running, or remove it with `agent sandbox rm`: `agent resume` restores the workspace in a fresh one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_holds_all_that_a_start_needs() {
        let limits = Limits { memory: 1 << 30, cpus: 0.5, pids: 99, disk: 2 << 30 };
        let spec = Spec {
            image: Some("x:1".to_owned()),
            runtime: Some("kata".to_owned()),
            network: Network::Full,
            idle_ttl: Duration::from_secs(600),
            limits,
            ..Spec::new("s")
        };
        let annotation = Launch::of(&spec).annotation().unwrap();
        let read = |annotation: &str| {
            Launch::spec("s", &json!({ "metadata": { "annotations": { (LAUNCH): annotation } } }))
        };
        let again = read(&annotation).unwrap();
        assert_eq!((again.image, again.runtime), (spec.image, spec.runtime));
        assert_eq!((again.network, again.idle_ttl, again.limits), (spec.network, spec.idle_ttl, spec.limits));
        // Names are the host's to judge: inside there is no network.
        let named = Spec { network: Network::Hosts(vec!["pypi.org".to_owned()]), ..Spec::new("s") };
        let named = read(&Launch::of(&named).annotation().unwrap()).unwrap();
        assert_eq!(named.network, Network::None);
        assert!(read("{}").is_none() && Launch::spec("s", &Value::Null).is_none());
    }
}
