//! Runloop: devboxes over one API, each with an authenticated tunnel to its ports.

use super::api::{Api, Failure, KeyHeader, LONG, ProviderProfile, Repeat, SHORT, form, is_id, quote};
use super::provider::{CAPABILITIES, CREATION, Creation, Executed, Instance, Provider, is_isolated, leash};
use super::uuid;
use agent_base::error::Error;
use agent_base::error::Result;
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_sandbox::Capabilities;
use agent_sandbox::OnProgress;
use agent_sandbox::Spec;
use agent_sandbox::State;
use agent_sandbox::ownership::SESSION;
use async_trait::async_trait;
use futures_util::future::{try_join, try_join_all};
use reqwest::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

/// The backend's name.
pub const NAME: &str = "runloop";

static PLACE: ProviderProfile = ProviderProfile {
    name: NAME,
    default_url: "https://api.runloop.ai",
    url_variable: "RUNLOOP_BASE_URL",
    key_variable: "RUNLOOP_API_KEY",
    key_header: KeyHeader::Bearer,
    console: "https://platform.runloop.ai",
};

/// The time limit for a devbox to run, and to be suspended.
const START: Duration = Duration::from_secs(300);
/// The time for which one request waits for a status, in seconds.
const HOLD: u64 = 25;
/// The statuses of devboxes that exist, of which `list` asks for each.
const EXISTING: [&str; 6] =
    ["provisioning", "initializing", "running", "suspending", "suspended", "resuming"];
/// One more, which not every release of the API knows.
const QUEUED: &str = "queued";
/// Devboxes of one page, and pages.
const PAGE: usize = 1000;
const MAX_PAGES: usize = 20;
/// The name of our network policy, which allows nothing.
const POLICY: &str = "agent-deny-all";
/// Bytes of a gibibyte.
const GIB: u64 = 1 << 30;

/// Runloop's API.
pub struct Runloop {
    api: Api,
    /// The id of [`POLICY`], once it is known.
    policy: OnceCell<String>,
}

impl Runloop {
    /// Runloop, as the environment of this machine describes it.
    ///
    /// # Errors
    /// `Config` where there is no key.
    pub fn connect(machine: &Machine) -> Result<Self> {
        Ok(Self { api: Api::connect(&PLACE, machine)?, policy: OnceCell::new() })
    }

    async fn post(&self, path: &str, body: &Value, repeat: Repeat) -> Result<Value, Failure> {
        self.api.json(Method::POST, self.api.url(&format!("v1/{path}")), Some(body), repeat, LONG).await
    }

    /// Does what the last part of the address says: such a call has no body.
    async fn act(&self, instance: &Instance, action: &str, repeat: Repeat) -> Result<(), Failure> {
        let url = self.api.url(&format!("v1/devboxes/{}/{action}", instance.id));
        self.api.json(Method::POST, url, None, repeat, LONG).await.map(drop)
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.api.json(Method::GET, self.api.url(&format!("v1/{path}")), None, Repeat::Idempotent, SHORT).await
    }

    /// The policy that allows nothing: looked for by its name, and made once.
    async fn policy(&self) -> Result<&str> {
        let find_or_make = || async {
            if let Some(id) = self.find_policy().await? {
                return Ok(id);
            }
            let id = match self.post("network-policies", &json!({ "name": POLICY }), Repeat::Never).await {
                Ok(made) => text(&made, "id").to_owned(),
                // Another client was faster, where names are unique.
                Err(Failure { status: Some(400 | 409), error }) => self.find_policy().await?.ok_or(error)?,
                Err(failure) => return Err(failure.error),
            };
            match is_id(&id) {
                true => Ok(id),
                false => Err(Error::sandbox(format!(
                    "runloop names a network policy {}, which is not a valid id",
                    quote(&id)
                ))),
            }
        };
        self.policy.get_or_try_init(find_or_make).await.map(String::as_str)
    }

    async fn find_policy(&self) -> Result<Option<String>> {
        let found = self.get(&format!("network-policies?name={POLICY}&limit={PAGE}")).await?;
        let policies = found.get("network_policies").and_then(Value::as_array).into_iter().flatten();
        let mut ids = policies
            .filter(|policy| text(policy, "name") == POLICY && denies_all(policy))
            .map(|policy| text(policy, "id").to_owned());
        Ok(ids.find(|id| is_id(id)))
    }

    /// Waits until the devbox has the status `wanted`.
    async fn wait(&self, id: &str, wanted: &str, on_progress: OnProgress<'_>) -> Result<Value> {
        let deadline = Instant::now() + START;
        let body = json!({ "statuses": [wanted, "failure", "shutdown"], "timeout_seconds": HOLD });
        loop {
            match self.post(&format!("devboxes/{id}/wait_for_status"), &body, Repeat::Idempotent).await {
                Ok(found) if text(&found, "status") == wanted => return Ok(found),
                Ok(found) => {
                    let (status, reason) =
                        (quote(text(&found, "status")), quote(text(&found, "failure_reason")));
                    if matches!(status.as_str(), "failure" | "shutdown") {
                        return Err(Error::sandbox(format!("the runloop devbox is {status}: {reason}"))
                            .hint("its log is at https://platform.runloop.ai"));
                    }
                    on_progress(&format!("devbox: {status}"), 0, 0);
                    sleep(Duration::from_millis(500)).await;
                }
                // The hold ran out.
                Err(Failure { status: Some(408), .. }) => {}
                Err(failure) => return Err(failure.error),
            }
            if Instant::now() >= deadline {
                return Err(Error::sandbox(format!(
                    "the runloop devbox is not {wanted} after {} s",
                    START.as_secs()
                ))
                .hint("try again; Runloop's status page may know more"));
            }
        }
    }

    /// The devboxes with this status.
    async fn with_status(&self, status: &str) -> Result<Vec<Value>, Failure> {
        let (mut found, mut after) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let page = self
                .get(&format!("devboxes?status={status}&limit={PAGE}&include_total_count=false{after}"))
                .await?;
            let devboxes = page.get("devboxes").and_then(Value::as_array).cloned().unwrap_or_default();
            let last = devboxes.last().map(|devbox| text(devbox, "id").to_owned()).filter(|id| is_id(id));
            found.extend(devboxes);
            match (page.get("has_more").and_then(Value::as_bool), last) {
                (Some(true), Some(last)) => after = format!("&starting_after={last}"),
                _ => break,
            }
        }
        Ok(found)
    }

    fn instance(&self, value: &Value) -> Result<Instance> {
        let id = text(value, "id").to_owned();
        if !is_id(&id) {
            return Err(Error::sandbox(format!(
                "runloop names a devbox {}, which is not a valid id",
                quote(&id)
            )));
        }
        let metadata = value.get("metadata").and_then(Value::as_object).into_iter().flatten();
        let labels: HashMap<String, String> =
            metadata.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
        let created = value.get("create_time_ms").and_then(Value::as_i64);
        let created = created.and_then(|time| jiff::Timestamp::from_millisecond(time).ok());
        let tunnel = value.get("tunnel").filter(|tunnel| text(tunnel, "auth_mode") == "authenticated");
        Ok(Instance {
            id,
            state: state(text(value, "status")),
            labels,
            created: created.map(|time| time.to_string()).unwrap_or_default(),
            address: tunnel.map(|tunnel| self.tunnel(text(tunnel, "tunnel_key"))).transpose()?,
            token: tunnel
                .map(|tunnel| text(tunnel, "auth_token").to_owned())
                .filter(|token| !token.is_empty()),
            access: None,
        })
    }

    /// The address of a tunnel, with `PORT-` to be put before its host.
    fn tunnel(&self, key: &str) -> Result<Url> {
        let wrong =
            || Error::sandbox(format!("runloop names a tunnel {}, which is not a valid key", quote(key)));
        if !is_id(key) || key.contains('.') {
            return Err(wrong());
        }
        let api = self.api.url("");
        let host = api.host_str().unwrap_or_default();
        let domain = match host.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
            // Nothing is below an address; only this machine's own is allowed to be one.
            Ok(_) => "localhost",
            Err(_) => host.strip_prefix("api.").unwrap_or(host),
        };
        Url::parse(&format!("https://{key}.tunnel.{domain}")).map_err(|_| wrong())
    }

    /// Posts a creation. Where the answer was lost, the devbox is looked for instead of being made twice.
    async fn post_creation(&self, creation: &Creation<'_>, body: &Value) -> Result<Instance> {
        match self.post("devboxes", body, Repeat::Never).await {
            Ok(made) => self.instance(&made),
            Err(Failure { status: None | Some(500..), error }) => {
                let found = self.of_session(&creation.spec.session).await?;
                let is_made = |found: &Instance| found.labels.get(CREATION) == creation.labels.get(CREATION);
                found.into_iter().find(is_made).ok_or(error)
            }
            Err(failure) => Err(failure.error),
        }
    }

    /// Waits for an execution that has not ended yet.
    async fn completed(&self, instance: &Instance, started: Value) -> Result<Value> {
        let execution = text(&started, "execution_id").to_owned();
        if text(&started, "status") == "completed" || !is_id(&execution) {
            return Ok(started);
        }
        let path = format!("devboxes/{}/executions/{execution}/wait_for_status", instance.id);
        let body = json!({ "statuses": ["completed"], "timeout_seconds": HOLD });
        match self.post(&path, &body, Repeat::Idempotent).await {
            Err(Failure { status: Some(408), .. }) => {
                Err(Error::sandbox(format!("a command in the runloop devbox did not end within {HOLD} s")))
            }
            other => Ok(other?),
        }
    }
}

#[async_trait]
impl Provider for Runloop {
    fn name(&self) -> &'static str {
        NAME
    }

    fn location(&self) -> String {
        self.api.location()
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn fingerprint(&self) -> Hash {
        self.api.fingerprint()
    }

    /// Returns every interface: whether tunnels lead to the loopback one is not documented.
    fn listen_address(&self) -> &'static str {
        "0.0.0.0"
    }

    async fn create(
        &self,
        creation: &Creation<'_>,
        on_progress: OnProgress<'_>,
    ) -> Result<(Instance, Vec<String>)> {
        let (mut body, missing) = creation_body(creation)?;
        if is_isolated(creation.spec) {
            body["launch_parameters"]["network_policy_id"] = self.policy().await?.into();
        }
        let made = self.post_creation(creation, &body).await?;
        let running = match made.state {
            Some(State::Running) => Ok(made.clone()),
            _ => {
                self.wait(&made.id, "running", on_progress).await.and_then(|running| self.instance(&running))
            }
        };
        match running {
            // The token of the tunnel may be in the first answer alone.
            Ok(running) => Ok((Instance { token: running.token.or(made.token), ..running }, missing)),
            Err(error) => {
                // What cannot be removed now ends by its own clock.
                let _ = self.remove(&made).await;
                Err(error)
            }
        }
    }

    async fn of_session(&self, session: &str) -> Result<Vec<Instance>> {
        let all = self.list().await?.into_iter();
        Ok(all.filter(|found| found.labels.get(SESSION).is_some_and(|label| label == session)).collect())
    }

    async fn list(&self) -> Result<Vec<Instance>> {
        let queued = async {
            match self.with_status(QUEUED).await {
                Err(Failure { status: Some(400 | 422), .. }) => Ok(Vec::new()),
                listed => listed,
            }
        };
        let (pages, queued) =
            try_join(try_join_all(EXISTING.map(|status| self.with_status(status))), queued).await?;
        // What is not ours, or not understood, is left alone.
        let found = pages.iter().flatten().chain(&queued).filter_map(|devbox| self.instance(devbox).ok());
        Ok(found.filter(|instance| instance.labels.contains_key(SESSION)).collect())
    }

    async fn upload(&self, instance: &Instance, path: &str, bytes: &[u8]) -> Result<()> {
        let url = self.api.url(&format!("v1/devboxes/{}/upload_file", instance.id));
        let (kind, body) = form(&[("path", path)], bytes);
        let request =
            || self.api.request(Method::POST, url.clone()).header(CONTENT_TYPE, &kind).body(body.clone());
        // The same file again is the same file.
        Ok(self.api.send(Repeat::Idempotent, LONG, &request).await.map(drop)?)
    }

    async fn execute(&self, instance: &Instance, command: &str) -> Result<Executed> {
        // The id makes it one command, however often it is sent.
        let body = json!({ "command": command, "command_id": uuid::of_now(), "optimistic_timeout": HOLD });
        let path = format!("devboxes/{}/execute", instance.id);
        let started = self.post(&path, &body, Repeat::Idempotent).await?;
        let ended = self.completed(instance, started).await?;
        Ok(Executed {
            exit_code: ended.get("exit_status").and_then(Value::as_i64).unwrap_or(-1),
            output: format!("{}{}", text(&ended, "stdout"), text(&ended, "stderr")),
        })
    }

    async fn port(&self, instance: &Instance, port: u16) -> Result<(Url, HeaderMap)> {
        let (address, token) = match (&instance.address, &instance.token) {
            (Some(address), Some(token)) => (address.clone(), token.clone()),
            _ => {
                let body = json!({ "auth_mode": "authenticated" });
                let made = self
                    .post(&format!("devboxes/{}/enable_tunnel", instance.id), &body, Repeat::Idempotent)
                    .await?;
                (self.tunnel(text(&made, "tunnel_key"))?, text(&made, "auth_token").to_owned())
            }
        };
        let none = |_| Error::sandbox("runloop names a token of the tunnel that is not valid");
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(none)?;
        value.set_sensitive(true);
        let mut headers =
            HeaderMap::from_iter([(HeaderName::from_static("x-runloop-tunnel-authorization"), value)]);
        let host = format!("{port}-{}", address.host_str().unwrap_or_default());
        let api = self.api.url("");
        if api.scheme() == "http" {
            // On this machine there are no names below the API's: the tunnel is named as a virtual host of it.
            headers.insert(HOST, HeaderValue::from_str(&host).map_err(none)?);
            return Ok((api, headers));
        }
        let url = Url::parse(&format!("https://{host}/"));
        Ok((url.map_err(|_| Error::sandbox("runloop names a tunnel that has no address"))?, headers))
    }

    fn http(&self) -> Option<&reqwest::Client> {
        Some(self.api.http())
    }

    async fn refresh(&self, instance: &Instance) -> Result<()> {
        Ok(self.act(instance, "keep_alive", Repeat::Idempotent).await?)
    }

    async fn remove(&self, instance: &Instance) -> Result<()> {
        match self.act(instance, "shutdown?force=true", Repeat::Idempotent).await {
            Ok(()) | Err(Failure { status: Some(404), .. }) => Ok(()),
            Err(failure) => Err(failure.error),
        }
    }

    /// Keeps the disk alone.
    async fn pause(&self, instance: &Instance) -> Result<()> {
        self.act(instance, "suspend", Repeat::Never).await?;
        self.wait(&instance.id, "suspended", &|_, _, _| {}).await.map(drop)
    }

    async fn resume(&self, instance: &Instance) -> Result<(Instance, bool)> {
        self.act(instance, "resume", Repeat::Never).await?;
        let running = self.wait(&instance.id, "running", &|_, _, _| {}).await?;
        Ok((self.instance(&running)?, true))
    }
}

/// Returns what a devbox is made of, and what of its limits does not hold.
fn creation_body(creation: &Creation<'_>) -> Result<(Value, Vec<String>)> {
    let Spec { image, limits, ephemeral, .. } = creation.spec;
    let (cpus, memory, disk) = size(limits.cpus, limits.memory, limits.disk)?;
    let mut launch = json!({
        "resource_size_request": "CUSTOM_SIZE",
        "custom_cpu_cores": cpus,
        "custom_gb_memory": memory,
        "custom_disk_size": disk,
        "user_parameters": { "username": "root", "uid": 0 },
    });
    let seconds = leash(creation.spec).as_secs();
    match ephemeral {
        true => launch["keep_alive_time_seconds"] = seconds.into(),
        false => {
            launch["lifecycle"] =
                json!({ "after_idle": { "idle_time_seconds": seconds, "on_idle": "suspend" } })
        }
    }
    let mut body = json!({
        "name": creation.name,
        "metadata": creation.labels,
        // Left out, it would be open to everybody who knows its name.
        "tunnel": { "auth_mode": "authenticated", "http_keep_alive": true, "wake_on_http": false },
        "launch_parameters": launch,
    });
    match image.as_deref() {
        Some(snapshot) if snapshot.starts_with("snp_") => body["snapshot_id"] = snapshot.into(),
        Some(blueprint) => body["blueprint_name"] = blueprint.into(),
        None => {}
    }
    let given = format!(
        "Runloop gives the devbox {cpus} processors, {memory} GiB of memory and {disk} GiB of disk; memory and processes \
         are limited for each process."
    );
    Ok((body, vec![given]))
}

/// The nearest size above: one processor or an even number to 16, because half a one is not a whole number, which the API asks for;
/// 1 GiB or an even number to 64, two to eight for each processor; an even number of GiB of disk to 64.
fn size(cpus: f64, memory: u64, disk: u64) -> Result<(u64, u64, u64)> {
    let even = |number: u64| if number <= 1 { 1 } else { number.next_multiple_of(2) };
    let memory = even(memory.div_ceil(GIB));
    let disk = disk.div_ceil(GIB).next_multiple_of(2).max(2);
    let cpus = even(cpus.max(memory as f64 / 8.0).ceil() as u64);
    let memory = memory.max(even(cpus * 2));
    match cpus <= 16 && memory <= 64 && disk <= 64 {
        true => Ok((cpus, memory, disk)),
        false => Err(Error::config(format!(
            "a runloop devbox has at most 16 processors, 64 GiB of memory and 64 GiB of disk, and {cpus}, {memory} and \
             {disk} would be needed"
        ))
        .hint("use smaller --cpus, --memory or --disk")),
    }
}

/// Returns whether a policy allows nothing.
fn denies_all(policy: &Value) -> bool {
    let egress = policy.get("egress").unwrap_or(policy);
    let is_off = |name: &str| egress.get(name).is_none_or(|value| value == &Value::Bool(false));
    let is_empty =
        |name: &str| egress.get(name).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty));
    [
        "allow_all",
        "allow_devbox_to_devbox",
        "allow_agent_gateway",
        "allow_mcp_gateway",
        "allow_runloop_mirrors",
    ]
    .into_iter()
    .all(is_off)
        && ["allowed_hostnames", "allowed_cidrs"].into_iter().all(is_empty)
}

fn state(status: &str) -> Option<State> {
    match status {
        "running" => Some(State::Running),
        // Its processes have ended.
        "suspending" | "suspended" => Some(State::Stopped),
        "failure" | "shutdown" => None,
        _ => Some(State::Starting),
    }
}

/// A text of an answer, empty where there is none.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_the_nearest_above_that_there_is() {
        let size = |cpus, memory: u64, disk: u64| size(cpus, memory * GIB, disk * GIB);
        assert_eq!(size(2.0, 2, 10).unwrap(), (2, 4, 10));
        assert_eq!(size(0.5, 1, 1).unwrap(), (1, 2, 2));
        assert_eq!(size(0.25, 8, 3).unwrap(), (1, 8, 4));
        assert_eq!(size(3.0, 5, 5).unwrap(), (4, 8, 6));
        assert!(size(17.0, 2, 2).is_err() && size(1.0, 65, 2).is_err() && size(1.0, 2, 65).is_err());
    }

    #[test]
    fn a_policy_that_allows_anything_is_not_ours() {
        assert!(denies_all(&json!({ "egress": { "allow_all": false, "allowed_hostnames": [] } })));
        assert!(denies_all(&json!({ "name": POLICY })));
        for allows in [
            json!({ "egress": { "allow_all": true } }),
            json!({ "egress": { "allowed_hostnames": ["x"] } }),
            json!({ "egress": { "allowed_cidrs": "all" } }),
            json!({ "allow_runloop_mirrors": true }),
        ] {
            assert!(!denies_all(&allows), "{allows}");
        }
    }
}
