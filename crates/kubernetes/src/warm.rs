//! Warm pools of kubernetes-sigs/agent-sandbox: a session claims a pod that runs already, instead of making one.
//!
//! The claim is called as a pod of ours would be and carries the same labels and annotations, so that a session finds it again. The
//! pod is the pool's: `warm_check.rs` looks at everything that confines it. Its container waits at a FIFO, becomes the
//! guest, and from then on nothing differs.

use super::backend::Kubernetes;
use super::cluster::{Cluster, escape, is_name};
use super::pod::{self, CONTAINER, GUEST, HOST_LABEL, MANAGED_BY, Pod, SOCKET};
use super::start::{READY, timed};
use super::stream::Exec;
use super::volumes::{self, Volume};
use super::{NAME, failure, pause, policy, wait, warm_check};
use agent_base::error::{Error, Result};
use agent_event::SandboxInfo;
use agent_sandbox::ownership::{sandbox_name, this_host};
use agent_sandbox::{Channel, HOME, OnProgress, Spec, State, bootstrap, environment};
use agent_wire::launch_spec::LaunchSpec;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// The API versions of claims and of sandboxes.
pub(super) const CLAIMS: &str = "extensions.agents.x-k8s.io/v1beta1";
pub(super) const SANDBOXES: &str = "agents.x-k8s.io/v1beta1";
/// The annotation of a sandbox that names its pod, where that is called otherwise.
const POD_NAME: &str = "agents.x-k8s.io/pod-name";
/// The command of a pool's container until it is claimed. It has to be this: see `warm_check.rs`.
pub(super) const AWAIT_CLAIM: &str = "mkfifo /agent/start && read -r x </agent/start && rm -f /agent/start && \
                                      exec /agent/guest enter \"$(cat /agent/spec)\" </dev/null >/dev/null";
/// Reasons of a claim or a sandbox that is not ready and will not be.
const HOPELESS: [&str; 10] = [
    "WarmPoolNotFound",
    "TemplateNotFound",
    "InvalidMetadata",
    "EnvVarsInjectionRejected",
    "VolumeClaimTemplatesError",
    "ClaimExpired",
    "SandboxExpired",
    "InvalidConfiguration",
    "PodFailed",
    "PodSucceeded",
];
/// The reason of a claim or a sandbox that is not ready because it is paused.
const PAUSED: &str = "SandboxSuspended";
/// The time limit for removing a claim.
const REMOVAL: Duration = Duration::from_secs(60);

impl Kubernetes {
    /// Claims a pod for `spec` from `pool` and connects to the guest that it becomes.
    pub(super) async fn start_claimed(
        &self,
        spec: &Spec,
        pool: &str,
        on_progress: OnProgress<'_>,
    ) -> Result<(Channel, SandboxInfo)> {
        let pod = self.pod(spec, false);
        check_settings(&pod, pool)?;
        if pod.is_isolated() {
            policy::ensure(&self.cluster).await?;
        }
        on_progress("claiming a pod", 0, 0);
        let name = sandbox_name(&spec.session)?;
        let (claim, is_ours) = self.claim(&pod, pool, &name).await?;
        let uid = wait::text(&claim, "/metadata/uid").to_owned();
        self.know(&spec.session, &claim);
        let unfinished = self.unfinished(&name, is_ours.then_some(&uid));
        let started = self.serve_claimed(&pod, pool, &name, on_progress).await;
        unfinished.disarm();
        let served = match started {
            Ok(started) => started,
            Err(error) => {
                if is_ours {
                    self.give_back(&name, &uid).await;
                }
                return Err(error);
            }
        };
        let image =
            warm_check::container(&served.pod).map(|container| wait::text(container, "/image").to_owned());
        let shared = format!(
            "The pods of the warm pool {pool} share a user: processes are counted for those of a node together, not for this \
             sandbox alone."
        );
        let missing = std::iter::once(shared).chain(volumes::notice(&served.volumes)).collect();
        Ok((served.channel, SandboxInfo { missing, ..spec.describe(NAME, name, image) }))
    }

    /// Makes the claim; `false` where another client of the session was faster.
    async fn claim(&self, pod: &Pod<'_>, pool: &str, name: &str) -> Result<(Value, bool)> {
        let mut annotations = pod.ownership();
        annotations.insert(pause::LAUNCH.to_owned(), pause::Launch::of(pod.spec).annotation()?.into());
        let claim = json!({
            "apiVersion": CLAIMS,
            "kind": "SandboxClaim",
            "metadata": { "name": name, "labels": pod.labels(), "annotations": annotations },
            "spec": {
                "warmPoolRef": { "name": pool },
                // The leash: the claim's controller ends it.
                "lifecycle": { "shutdownTime": pod.end_of_life()?, "shutdownPolicy": "Delete" },
            },
        });
        for _ in 0..3 {
            match self.cluster.create(&self.cluster.group_path(CLAIMS, "sandboxclaims"), &claim).await {
                Ok(made) => return Ok((made, true)),
                Err(error) if failure::code(&error) == Some(409) => {}
                Err(error) if failure::code(&error) == Some(404) => {
                    return Err(Error::sandbox(format!("the cluster has no warm pools: it does not know {CLAIMS}"))
                        .hint("install kubernetes-sigs/agent-sandbox 0.5 or later with its extensions, or remove warm_pool from [sandbox.kubernetes]"));
                }
                Err(error) => return Err(failure::error("no pod could be claimed", error)),
            }
            let Some(found) = read(&self.cluster, CLAIMS, "sandboxclaims", name).await? else { continue };
            if pod::session(&found) != Some(&pod.spec.session) {
                return Err(Error::sandbox(format!(
                    "there is a claim {name} that is not of session {}",
                    pod.spec.session
                ))
                .hint("another namespace can be named in [sandbox.kubernetes]"));
            }
            if state(&found).is_some_and(|state| !matches!(state, State::Stopped | State::Paused)) {
                return Ok((found, false));
            }
            let uid = wait::text(&found, "/metadata/uid");
            self.delete(name, Some(uid)).await?;
            let path = self.cluster.group_path(CLAIMS, "sandboxclaims");
            wait::gone_from(&self.cluster, &path, name, uid, REMOVAL).await?;
        }
        Err(Error::sandbox(format!("the claim {name} is made and removed by others at the same time")))
    }

    /// Waits for the sandbox of the claim `name`, and makes its pod the session's.
    async fn serve_claimed(
        &self,
        pod: &Pod<'_>,
        pool: &str,
        name: &str,
        on_progress: OnProgress<'_>,
    ) -> Result<Served> {
        let claim = (self.cluster.group_path(CLAIMS, "sandboxclaims"), name);
        let named = |claim: &Value| {
            Some(wait::text(claim, "/status/sandbox/name").to_owned()).filter(|name| !name.is_empty())
        };
        let sandbox = self.object_of(pool, claim, on_progress, named).await?;
        if !is_name(&sandbox) {
            return Err(Error::sandbox("the claim names something that is not a sandbox"));
        }
        self.serve_sandbox(pod, pool, &sandbox, on_progress).await
    }

    /// Waits for the pod of the sandbox `name`, checks it, and makes it the session's.
    pub(super) async fn serve_sandbox(
        &self,
        pod: &Pod<'_>,
        pool: &str,
        name: &str,
        on_progress: OnProgress<'_>,
    ) -> Result<Served> {
        let object = (self.cluster.group_path(SANDBOXES, "sandboxes"), name);
        let ready = |sandbox: &Value| is_true(sandbox, "Ready").then(|| sandbox.clone());
        let sandbox = self.object_of(pool, object, on_progress, ready).await?;
        let name = pod_name(&sandbox)?;
        let found = wait::read(&self.cluster, &name).await?.ok_or_else(wait::deleted)?;
        let volumes = volumes::of(&self.cluster, &sandbox, &found).await?;
        let lacks = warm_check::lacks(&found, pod, &volumes)?;
        if !lacks.is_empty() {
            return Err(Error::sandbox(format!(
                "the pods of the warm pool {pool} are not what a sandbox has to be: {}",
                lacks.join("; ")
            ))
            .hint("examples/kubernetes/warm-pool.yaml has a template with all of it"));
        }
        if pod.is_isolated() {
            policy::check_others(&self.cluster, &found).await?;
        }
        wait::running(&self.cluster, found.clone(), CONTAINER, self.start_timeout()?, on_progress).await?;
        let exec = self.install_claimed(pod, &name, on_progress).await?;
        Ok(Served { channel: self.channel(exec, &pod.spec.session, name), pod: found, volumes })
    }

    /// Waits until `found` finds something in an object of a pool's, by its list and its name. Gives up where there will be nothing.
    async fn object_of<T>(
        &self,
        pool: &str,
        (list, name): (String, &str),
        on_progress: OnProgress<'_>,
        found: impl Fn(&Value) -> Option<T>,
    ) -> Result<T> {
        wait::until(&self.cluster, &list, name, self.start_timeout()?, on_progress, |object| {
            give_up(object, pool)?;
            Ok(found(object).ok_or_else(|| waiting_for(object)))
        })
        .await
    }

    /// Brings the guest and what it is to do into the pod, and lets it begin. Several clients may do so at once: the first counts.
    async fn install_claimed(&self, pod: &Pod<'_>, name: &str, on_progress: OnProgress<'_>) -> Result<Exec> {
        let guest = bootstrap::bytes(&self.machine)?;
        // The pool's template need not have the variables.
        let variables = environment::variables("", HOME).into_iter().filter(|(name, _)| name != "PATH");
        let env = variables.map(|(name, value)| (name.into(), value.into())).collect();
        let spec = hex::encode(LaunchSpec { env, ..pod.launch()? }.encode());
        let bytes = Bytes::from([&guest, spec.as_bytes()].concat());
        on_progress("uploading the guest", 0, bytes.len() as u64);
        let mut steps = vec![format!(
            "n={GUEST}.$$ && head -c {} >\"$n\" && tail -c {} \"$n\" >/agent/spec.$$ && chmod 755 \"$n\" && mv -f \"$n\" {GUEST}",
            bytes.len(),
            spec.len()
        )];
        if self.is_proof_needed(pod) {
            steps.push(format!("{GUEST} probe {} >/dev/null", policy::probes(&self.cluster)));
        }
        // In the background: another client may have been faster, and then nobody reads.
        steps.push(
            "mv -f /agent/spec.$$ /agent/spec && { [ ! -p /agent/start ] || echo >/agent/start & }"
                .to_owned(),
        );
        steps.push(format!("echo {READY}"));
        steps.push(format!("exec {GUEST} attach --socket {SOCKET}"));
        let mut exec =
            Exec::start(&self.cluster, name, CONTAINER, &["sh", "-c", &steps.join(" && ")]).await?;
        timed(exec.send_until(&bytes, READY)).await.map_err(super::start::not_installed)?;
        Ok(exec)
    }

    /// The pod of a session that has claimed one.
    pub(super) async fn claimed_pod(&self, session: &str) -> Result<Option<String>> {
        self.claimed(session).await?.map(|(_, sandbox)| pod_name(&sandbox)).transpose()
    }

    /// The claim of a session, and the sandbox that it has.
    pub(super) async fn claimed(&self, session: &str) -> Result<Option<(Value, Value)>> {
        let found = self.claim_and_sandbox(&sandbox_name(session)?).await?;
        let found = found.filter(|(claim, _)| pod::session(claim) == Some(session));
        if let Some((claim, _)) = &found {
            self.know(session, claim);
        }
        Ok(found)
    }

    /// The claim `name`, and the sandbox that it has.
    pub(super) async fn claim_and_sandbox(&self, name: &str) -> Result<Option<(Value, Value)>> {
        let Some(claim) = read(&self.cluster, CLAIMS, "sandboxclaims", name).await? else { return Ok(None) };
        let sandbox = wait::text(&claim, "/status/sandbox/name");
        if !is_name(sandbox) {
            return Ok(None);
        }
        let sandbox = read(&self.cluster, SANDBOXES, "sandboxes", sandbox).await?;
        Ok(sandbox.map(|sandbox| (claim, sandbox)))
    }

    /// The claims that this user made from this machine.
    pub(super) async fn claims(&self) -> Result<Vec<Value>> {
        let selector = escape(&format!("{}={},{HOST_LABEL}={}", MANAGED_BY.0, MANAGED_BY.1, this_host()));
        let path = self.cluster.group_path(CLAIMS, &format!("sandboxclaims?labelSelector={selector}"));
        let page = self.cluster.send(Method::GET, &path, None).await;
        let mut page = page.map_err(|error| failure::error("the claims could not be listed", error))?;
        match page.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }
}

/// A pod of a pool that has become a session's.
pub(super) struct Served {
    pub channel: Channel,
    /// The pod.
    pub pod: Value,
    /// Its volumes that stay while it is paused.
    pub volumes: Vec<Volume>,
}

/// Refuses what is not a pool's to have.
fn check_settings(pod: &Pod<'_>, pool: &str) -> Result<()> {
    if !is_name(pool) {
        return Err(Error::config(format!("{pool:?} is not a valid name of a warm pool")));
    }
    let settings = pod.settings;
    let without_effect = [
        ("init_image", settings.init_image.is_some()),
        ("guest", settings.guest.is_some()),
        ("pod_template", !settings.pod_template.is_empty()),
        ("tmp_size", settings.tmp_size.is_some()),
        ("home_size", settings.home_size.is_some()),
    ];
    match without_effect.into_iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => {
            Err(Error::config(format!("{name} in [sandbox.kubernetes] has no effect with warm_pool"))
                .hint("the pool's template decides it: remove one of the two"))
        }
        None => Ok(()),
    }
}

async fn read(cluster: &Cluster, group: &str, kind: &str, name: &str) -> Result<Option<Value>> {
    let found = cluster.get(&cluster.group_path(group, &format!("{kind}/{name}"))).await;
    found.map_err(|error| failure::error(&format!("{kind}/{name} could not be looked at"), error))
}

/// The pod of a sandbox, or the one that it would have.
pub(super) fn pod_name(sandbox: &Value) -> Result<String> {
    let named = sandbox.pointer("/metadata/annotations").and_then(|annotations| annotations.get(POD_NAME));
    let named = named.and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = named.unwrap_or_else(|| wait::text(sandbox, "/metadata/name"));
    match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(Error::sandbox("the sandbox names something that is not a pod")),
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|it| wait::text(it, "/type") == kind)
}

/// Returns whether a condition of an object is met.
fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|it| wait::text(it, "/status") == "True")
}

/// The error of one that will not be ready.
fn give_up(object: &Value, pool: &str) -> Result<()> {
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(wait::deleted());
    }
    let Some(ready) = condition(object, "Ready").filter(|it| wait::text(it, "/status") == "False") else {
        return Ok(());
    };
    let (reason, message) = (wait::text(ready, "/reason"), failure::quote(wait::text(ready, "/message")));
    match HOPELESS.contains(&reason) {
        true => Err(Error::sandbox(format!("the warm pool {pool} gives no pod ({reason}): {message}"))
            .hint("`kubectl describe sandboxwarmpools,sandboxclaims` shows more")),
        false => Ok(()),
    }
}

/// Returns what a claim or a sandbox waits for.
fn waiting_for(object: &Value) -> String {
    let ready = condition(object, "Ready");
    let said = ready.map(|it| format!("{} {}", wait::text(it, "/reason"), wait::text(it, "/message")));
    match said.map(|said| failure::quote(said.trim())).filter(|said| !said.is_empty()) {
        Some(said) => format!("waiting for the warm pool: {said}"),
        None => "waiting for the warm pool".to_owned(),
    }
}

/// The state of a claim; `None` where it is being removed.
pub(super) fn state(claim: &Value) -> Option<State> {
    if claim.pointer("/metadata/deletionTimestamp").is_some() {
        return None;
    }
    let not_ready = condition(claim, "Ready").filter(|it| wait::text(it, "/status") == "False");
    let reason = not_ready.map(|it| wait::text(it, "/reason")).unwrap_or_default();
    Some(if is_true(claim, "Finished") || HOPELESS.contains(&reason) {
        State::Stopped
    } else if is_true(claim, "Ready") {
        State::Running
    } else if reason == PAUSED {
        State::Paused
    } else {
        State::Starting
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_or_a_template_that_does_not_exist_is_not_waited_for() {
        // The session was silent for five minutes.
        for reason in ["WarmPoolNotFound", "TemplateNotFound"] {
            let ready =
                json!({ "type": "Ready", "status": "False", "reason": reason, "message": "no such thing" });
            let claim = json!({ "status": { "conditions": [ready] } });
            let error = give_up(&claim, "pool").unwrap_err();
            let expected = format!("the warm pool pool gives no pod ({reason}): no such thing");
            assert_eq!(error.to_string(), expected);
            assert_eq!(state(&claim), Some(State::Stopped));
        }
        let ready = json!({ "type": "Ready", "status": "False", "reason": "PodNotReady", "message": "" });
        give_up(&json!({ "status": { "conditions": [ready] } }), "pool").unwrap();
    }

    #[test]
    fn a_claim_whose_sandbox_is_suspended_is_paused() {
        let claim = |status: &str, reason: &str| {
            let ready = json!({ "type": "Ready", "status": status, "reason": reason, "message": "" });
            json!({ "status": { "conditions": [ready] } })
        };
        assert_eq!(state(&claim("False", "SandboxSuspended")), Some(State::Paused));
        assert_eq!(state(&claim("False", "DependenciesNotReady")), Some(State::Starting));
        assert_eq!(state(&claim("True", "DependenciesReady")), Some(State::Running));
    }
}
