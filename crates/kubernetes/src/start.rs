//! The start of a sandbox: the pod is made, waited for, and gets its guest; and nothing is left behind where that stops
//! half-way.

use super::backend::Kubernetes;
use super::pod::{self, CONTAINER, GUEST, Pod, SOCKET};
use super::settings::Isolation;
use super::stream::Exec;
use super::{NAME, failure, policy, wait};
use agent_base::error::{Error, Result};
use agent_event::SandboxInfo;
use agent_sandbox::ownership::sandbox_name;
use agent_sandbox::{Channel, OnProgress, Spec, bootstrap};
use bytes::Bytes;
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// The time limit for a pod to run where nothing is set, and for a former one to be gone.
const START_TIMEOUT: Duration = Duration::from_secs(300);
const REMOVAL: Duration = Duration::from_secs(60);
/// The delay after its start with which the status of a container may be there.
const STATUS_DELAY: Duration = Duration::from_secs(10);
/// The time limit for bringing in the guest.
const INSTALLATION: Duration = Duration::from_secs(120);
/// The line that is printed once the guest is there and the network is not.
pub(super) const READY: &str = "agent-guest-is-ready";
/// The line that the guest prints where it has reached nothing.
const ISOLATED: &str = "isolated";

impl Kubernetes {
    /// Makes the pod of `spec` and connects to its guest.
    pub(super) async fn start_pod(
        &self,
        spec: &Spec,
        on_progress: OnProgress<'_>,
    ) -> Result<(Channel, SandboxInfo)> {
        if let Some(pool) = self.settings.warm_pool.clone() {
            return self.start_claimed(spec, &pool, on_progress).await;
        }
        let pod = self.pod(spec, self.user_namespaces(spec).await.is_ok());
        let manifest = pod.manifest()?;
        if pod.is_isolated() {
            policy::ensure(&self.cluster).await?;
        }
        on_progress("creating the pod", 0, 0);
        let (made, is_ours) = self.create(spec, &manifest).await?;
        let name = sandbox_name(&spec.session)?;
        let uid = wait::text(&made, "/metadata/uid").to_owned();
        self.know(&spec.session, &made);
        let unfinished = self.unfinished(&name, is_ours.then_some(&uid));
        let connected = self.connect_to(&pod, made, on_progress).await;
        unfinished.disarm();
        match connected {
            Ok(channel) => Ok((channel, spec.describe(NAME, name, Some(pod.image()?.to_owned())))),
            Err(error) => {
                if is_ours {
                    self.give_back(&name, &uid).await;
                }
                Err(error)
            }
        }
    }

    /// Creates the pod. Two clients of one session meet in the pod of the faster one: `false` for the other.
    async fn create(&self, spec: &Spec, manifest: &Value) -> Result<(Value, bool)> {
        let name = sandbox_name(&spec.session)?;
        for _ in 0..3 {
            match self.cluster.create(&self.cluster.path("pods"), manifest).await {
                Ok(made) => return Ok((made, true)),
                Err(error) if failure::code(&error) == Some(409) => {}
                Err(error) => return Err(failure::error("the pod could not be made", error)),
            }
            let Some(found) = wait::read(&self.cluster, &name).await? else { continue };
            if pod::session(&found) != Some(&spec.session) {
                return Err(Error::sandbox(format!(
                    "there is a pod {name} that is not of session {}",
                    spec.session
                ))
                .hint("another namespace can be named in [sandbox.kubernetes]"));
            }
            if wait::end(&found).is_none() {
                return Ok((found, false));
            }
            // One that has ended, or is being removed, makes room.
            let uid = wait::text(&found, "/metadata/uid");
            if let Some(ending) = self.delete(&name, Some(uid)).await? {
                ending.gone().await;
            }
            wait::gone(&self.cluster, &name, uid, REMOVAL).await?;
        }
        Err(Error::sandbox(format!("the pod {name} is made and removed by others at the same time")))
    }

    async fn connect_to(&self, pod: &Pod<'_>, made: Value, on_progress: OnProgress<'_>) -> Result<Channel> {
        let (name, longest) = (sandbox_name(&pod.spec.session)?, self.start_timeout()?);
        let is_early = wait::started(&self.cluster, &made, pod.receiver(), longest, on_progress).await?;
        let connected = self.connect_to_started(pod, &name, &made, on_progress).await;
        if connected.is_err() && is_early && pod.receiver() == CONTAINER {
            // If the container has ended already, its status has the reason.
            let now = wait::read(&self.cluster, &name).await?.unwrap_or(made);
            let status = wait::running(&self.cluster, now, CONTAINER, longest, on_progress);
            if let Ok(Err(reason)) = timeout(STATUS_DELAY, status).await {
                return Err(reason);
            }
        }
        connected
    }

    async fn connect_to_started(
        &self,
        pod: &Pod<'_>,
        name: &str,
        made: &Value,
        on_progress: OnProgress<'_>,
    ) -> Result<Channel> {
        if pod.receiver() != CONTAINER {
            self.install(pod, name, on_progress).await?;
            wait::started(&self.cluster, made, CONTAINER, self.start_timeout()?, on_progress).await?;
            return self.attach_to(pod, name).await;
        }
        match pod.needs_guest() {
            true => {
                let exec = self.install(pod, name, on_progress).await?;
                Ok(self.channel(exec, &pod.spec.session, name.to_owned()))
            }
            false => self.attach_to(pod, name).await,
        }
    }

    /// Returns the time limit for a pod to run.
    pub(super) fn start_timeout(&self) -> Result<Duration> {
        let set = self.settings.start_timeout.as_deref();
        set.map_or(Ok(START_TIMEOUT), |text| pod::duration("start_timeout", text))
    }

    /// Connects to a guest that the container began with.
    async fn attach_to(&self, pod: &Pod<'_>, name: &str) -> Result<Channel> {
        if self.is_proof_needed(pod) && pod.receiver() == CONTAINER {
            let probe = [pod.guest(), "probe", &policy::probes(&self.cluster)];
            let mut exec = Exec::start(&self.cluster, name, CONTAINER, &probe).await?;
            timed(exec.send_until(&Bytes::new(), ISOLATED)).await.map_err(not_installed)?;
        }
        self.attach_guest(&pod.spec.session, name).await
    }

    /// Brings the guest in, and proves that the network is not there. What comes back speaks with the guest, unless an init
    /// container has received it.
    async fn install(&self, pod: &Pod<'_>, name: &str, on_progress: OnProgress<'_>) -> Result<Exec> {
        let guest = Bytes::from(bootstrap::bytes(&self.machine)?.into_owned());
        on_progress("uploading the guest", 0, guest.len() as u64);
        let script = self.script(pod, guest.len());
        let mut exec = Exec::start(&self.cluster, name, pod.receiver(), &["sh", "-c", &script]).await?;
        timed(exec.send_until(&guest, READY)).await.map_err(not_installed)?;
        Ok(exec)
    }

    pub(super) fn is_proof_needed(&self, pod: &Pod<'_>) -> bool {
        pod.is_isolated() && self.settings.isolation == Isolation::Proved
    }

    /// Shell text that takes the guest, of `size` bytes, from its standard input, tries the network, says that it is ready and
    /// becomes a client's end of the guest's socket. Several clients may run it at once.
    ///
    /// Nothing is sent between the guest's last byte and [`READY`]: some `head` read ahead.
    fn script(&self, pod: &Pod<'_>, size: usize) -> String {
        let mut steps = vec![format!("n={GUEST}.$$ && head -c {size} >\"$n\" && chmod 755 \"$n\"")];
        // First: an init container, which waits for the guest alone, ends when that is in its place, and all of this with it.
        if self.is_proof_needed(pod) {
            steps.push(format!("\"$n\" probe {} >/dev/null", policy::probes(&self.cluster)));
        }
        steps.push(format!("mv -f \"$n\" {GUEST}"));
        steps.push(format!("echo {READY}"));
        if pod.receiver() == CONTAINER {
            steps.push(format!("exec {GUEST} attach --socket {SOCKET}"));
        }
        steps.join(" && ")
    }
}

pub(super) async fn timed(installation: impl Future<Output = Result<()>>) -> Result<()> {
    let late = |_| Error::sandbox(format!("nothing happened for {} s", INSTALLATION.as_secs()));
    timeout(INSTALLATION, installation).await.map_err(late).flatten()
}

/// Returns what went wrong inside, as a sentence.
pub(super) fn not_installed(error: Error) -> Error {
    let said = error.to_string();
    if said.contains(policy::OPEN) {
        return policy::not_enforced(&said);
    }
    let hint = if said.contains("xec format") {
        "the nodes have another processor than this machine: name a guest that was built for it with AGENT_GUEST"
    } else if said.contains("executable file not found") || said.contains("no such file") {
        "the image has no shell: init_image in [sandbox.kubernetes] names one that brings the guest in"
    } else {
        "the image needs a shell with head, chmod, mv and sleep; init_image in [sandbox.kubernetes] names one that brings the guest in"
    };
    Error::sandbox(format!("the guest could not be brought into the pod: {said}")).hint(hint)
}
