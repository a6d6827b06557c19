//! Daytona: a control plane, and a toolbox in each sandbox that takes files, runs commands and forwards ports.

use super::api::{Api, Failure, KeyHeader, LONG, ProviderProfile, Repeat, SHORT, below, form, is_id, quote};
use super::provider::{CAPABILITIES, Creation, Executed, Instance, Provider, is_isolated, leash};
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_sandbox::ownership::{HOST, SESSION, sandbox_name, this_host};
use agent_sandbox::{Capabilities, OnProgress, Spec, State};
use async_trait::async_trait;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The backend's name.
pub const NAME: &str = "daytona";

static PLACE: ProviderProfile = ProviderProfile {
    name: NAME,
    default_url: "https://app.daytona.io/api",
    url_variable: "DAYTONA_API_URL",
    key_variable: "DAYTONA_API_KEY",
    key_header: KeyHeader::Bearer,
    console: "https://app.daytona.io",
};

/// The time limit for a snapshot to run, and for an image to be built.
const START: Duration = Duration::from_secs(180);
const BUILD: Duration = Duration::from_secs(1800);
/// The time limit for a sandbox to be stopped or removed.
const STOP: Duration = Duration::from_secs(120);
/// Sandboxes that are listed, and pages of a list.
const PAGE: usize = 100;
const MAX_PAGES: usize = 50;
/// Bytes of a gibibyte.
const GIB: u64 = 1 << 30;

/// Daytona's API.
pub struct Daytona {
    api: Api,
    target: Option<String>,
}

impl Daytona {
    /// Daytona, as the environment of this machine describes it.
    ///
    /// # Errors
    /// `Config` where there is no key.
    pub fn connect(machine: &Machine) -> Result<Self> {
        let target = machine.text("DAYTONA_TARGET").filter(|target| !target.is_empty());
        Ok(Self { api: Api::connect(&PLACE, machine)?, target })
    }

    async fn get(&self, id: &str) -> Result<Option<Value>> {
        let url = self.api.url(&format!("sandbox/{id}"));
        present(self.api.json(Method::GET, url, None, Repeat::Idempotent, SHORT).await)
    }

    async fn post(&self, instance: &Instance, action: &str, repeat: Repeat) -> Result<Value, Failure> {
        let url = self.api.url(&format!("sandbox/{}/{action}", instance.id));
        self.api.json(Method::POST, url, None, repeat, SHORT).await
    }

    /// Waits until the sandbox is in the state `wanted`.
    async fn wait(
        &self,
        id: &str,
        wanted: &str,
        time: Duration,
        on_progress: OnProgress<'_>,
    ) -> Result<Value> {
        let deadline = Instant::now() + time;
        let mut pause = Duration::from_millis(250);
        loop {
            // Right after it was made, not every service knows of it.
            let found = self.get(id).await?;
            let state = found.as_ref().map_or("unknown", |found| text(found, "state"));
            match (found.as_ref(), state) {
                (Some(found), state) if state == wanted => return Ok(found.clone()),
                (Some(found), "error" | "build_failed" | "destroyed" | "destroying") => {
                    let reason = quote(text(found, "errorReason"));
                    return Err(Error::sandbox(format!(
                        "the daytona sandbox did not start ({state}): {reason}"
                    ))
                    .hint(
                        "look at the image or snapshot that --image names, and at https://app.daytona.io",
                    ));
                }
                _ => on_progress(&format!("sandbox: {}", quote(state)), 0, 0),
            }
            if Instant::now() >= deadline {
                let waited = time.as_secs();
                return Err(Error::sandbox(format!(
                    "the daytona sandbox is {} after {waited} s, not {wanted}",
                    quote(state)
                ))
                .hint("try again; Daytona's status page may know more"));
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Posts a creation. A sandbox of the same session from an earlier attempt, which its name tells, is replaced.
    async fn post_creation(&self, creation: &Creation<'_>, body: &Value) -> Result<Value> {
        let post = || self.api.json(Method::POST, self.api.url("sandbox"), Some(body), Repeat::Never, LONG);
        let failure = match post().await {
            Ok(made) => return Ok(made),
            Err(failure) => failure,
        };
        // Names are unique: one that exists refuses the creation, and one whose answer was lost can be found by it.
        let earlier = self.of_session(&creation.spec.session).await?.pop();
        match (failure.status, earlier) {
            (Some(400 | 409), Some(earlier)) => {
                self.remove(&earlier).await?;
                self.wait_until_gone(&earlier.id).await?;
                Ok(post().await?)
            }
            (None | Some(500..), Some(made)) if made.labels == creation.labels => {
                self.get(&made.id).await?.ok_or(failure.error)
            }
            _ => Err(failure.error),
        }
    }

    async fn delete(&self, id: &str) -> Result<()> {
        let url = self.api.url(&format!("sandbox/{id}"));
        present(self.api.json(Method::DELETE, url, None, Repeat::Idempotent, SHORT).await).map(drop)
    }

    async fn wait_until_gone(&self, id: &str) -> Result<()> {
        let deadline = Instant::now() + STOP;
        while self.get(id).await?.is_some_and(|found| !text(&found, "state").starts_with("destroyed")) {
            if Instant::now() >= deadline {
                return Err(Error::sandbox("an earlier daytona sandbox of this session is not removed yet")
                    .hint("try again in a minute"));
            }
            sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    fn toolbox(&self, instance: &Instance, path: &str) -> Result<Url> {
        let base = instance
            .address
            .as_ref()
            .ok_or_else(|| Error::sandbox("daytona names no toolbox of the sandbox"))?;
        Ok(below(base, &format!("{}/{path}", instance.id)))
    }

    /// Reads a description of a sandbox.
    fn instance(&self, value: &Value) -> Result<Instance> {
        let id = checked_id(value)?;
        let labels = value.get("labels").and_then(Value::as_object).into_iter().flatten();
        let labels: HashMap<String, String> =
            labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
        let address = match text(value, "toolboxProxyUrl") {
            "" => None,
            address => Some(self.api.trusted(address)?),
        };
        let state = state(text(value, "state"));
        Ok(Instance {
            id,
            state,
            labels,
            created: text(value, "createdAt").to_owned(),
            address,
            token: None,
            access: None,
        })
    }

    /// The instance with the address of its toolbox, which is not in every description.
    async fn with_toolbox(&self, value: &Value) -> Result<Instance> {
        let instance = self.instance(value)?;
        if instance.address.is_some() {
            return Ok(instance);
        }
        let url = self.api.url(&format!("sandbox/{}/toolbox-proxy-url", instance.id));
        let answer = self.api.json(Method::GET, url, None, Repeat::Idempotent, SHORT).await?;
        Ok(Instance { address: Some(self.api.trusted(text(&answer, "url"))?), ..instance })
    }
}

#[async_trait]
impl Provider for Daytona {
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

    /// The toolbox forwards to the loopback interface.
    fn listen_address(&self) -> &'static str {
        "127.0.0.1"
    }

    async fn create(
        &self,
        creation: &Creation<'_>,
        on_progress: OnProgress<'_>,
    ) -> Result<(Instance, Vec<String>)> {
        let (body, missing) = creation_body(creation, self.target.as_deref());
        let made = self.post_creation(creation, &body).await?;
        let id = checked_id(&made)?;
        let time = if creation.spec.image.is_some() { BUILD } else { START };
        let running = async {
            match text(&made, "state") {
                "started" => self.with_toolbox(&made).await,
                _ => self.with_toolbox(&self.wait(&id, "started", time, on_progress).await?).await,
            }
        };
        match running.await {
            Ok(instance) => Ok((instance, missing)),
            Err(error) => {
                // What cannot be removed now ends by its own clock.
                let _ = self.delete(&id).await;
                Err(error)
            }
        }
    }

    /// Names are unique: what had this one was removed before.
    async fn replace_earlier(&self, _made: &Instance, _creation: &Creation<'_>) -> Result<()> {
        Ok(())
    }

    async fn of_session(&self, session: &str) -> Result<Vec<Instance>> {
        Ok(match self.get(&sandbox_name(session)?).await? {
            Some(found) if text(&found, "state") == "started" => vec![self.with_toolbox(&found).await?],
            Some(found) => vec![self.instance(&found)?],
            None => Vec::new(),
        })
    }

    async fn list(&self) -> Result<Vec<Instance>> {
        let labels = json!({ HOST: this_host() }).to_string();
        let (mut found, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let mut url = self.api.url("sandbox");
            url.query_pairs_mut().append_pair("labels", &labels).append_pair("limit", &PAGE.to_string());
            if let Some(cursor) = &cursor {
                url.query_pairs_mut().append_pair("cursor", cursor);
            }
            let page = self.api.json(Method::GET, url, None, Repeat::Idempotent, SHORT).await?;
            // Older servers answer with the list itself.
            let items = page.get("items").unwrap_or(&page).as_array().cloned().unwrap_or_default();
            // What is not ours, or not understood, is left alone.
            let ours = items.iter().filter_map(|item| self.instance(item).ok());
            found.extend(ours.filter(|instance| instance.labels.contains_key(SESSION)));
            cursor = page
                .get("nextCursor")
                .and_then(Value::as_str)
                .filter(|next| !next.is_empty())
                .map(str::to_owned);
            if cursor.is_none() || items.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    async fn upload(&self, instance: &Instance, path: &str, bytes: &[u8]) -> Result<()> {
        let mut url = self.toolbox(instance, "files/upload")?;
        url.query_pairs_mut().append_pair("path", path);
        let (kind, body) = form(&[], bytes);
        let request =
            || self.api.request(Method::POST, url.clone()).header(CONTENT_TYPE, &kind).body(body.clone());
        // The same file again is the same file.
        Ok(self.api.send(Repeat::Idempotent, LONG, &request).await.map(drop)?)
    }

    async fn execute(&self, instance: &Instance, command: &str) -> Result<Executed> {
        let url = self.toolbox(instance, "process/execute")?;
        let body = json!({ "command": command, "timeout": SHORT.as_secs() });
        let answer = self.api.json(Method::POST, url, Some(&body), Repeat::Never, LONG).await?;
        Ok(Executed {
            exit_code: answer.get("exitCode").and_then(Value::as_i64).unwrap_or(-1),
            output: text(&answer, "result").to_owned(),
        })
    }

    async fn port(&self, instance: &Instance, port: u16) -> Result<(Url, HeaderMap)> {
        let mut headers = self.api.authorization();
        let skip_warning = HeaderName::from_static("x-daytona-skip-preview-warning");
        headers.insert(skip_warning, HeaderValue::from_static("true"));
        Ok((self.toolbox(instance, &format!("proxy/{port}/"))?, headers))
    }

    fn http(&self) -> Option<&reqwest::Client> {
        Some(self.api.http())
    }

    async fn refresh(&self, instance: &Instance) -> Result<()> {
        Ok(self.post(instance, "last-activity", Repeat::Idempotent).await.map(drop)?)
    }

    async fn remove(&self, instance: &Instance) -> Result<()> {
        self.delete(&instance.id).await
    }

    /// Virtual machines keep their memory, containers their files alone.
    async fn pause(&self, instance: &Instance) -> Result<()> {
        let class = self.get(&instance.id).await?.map(|found| text(&found, "sandboxClass").to_owned());
        let (action, state) = match class.as_deref() {
            Some("linux-vm") => ("pause", "paused"),
            _ => ("stop", "stopped"),
        };
        self.post(instance, action, Repeat::Never).await?;
        self.wait(&instance.id, state, STOP, &|_, _, _| {}).await.map(drop)
    }

    async fn resume(&self, instance: &Instance) -> Result<(Instance, bool)> {
        let needs_guest = instance.state != Some(State::Paused);
        self.post(instance, "start", Repeat::Never).await?;
        let started = self.wait(&instance.id, "started", START, &|_, _, _| {}).await?;
        Ok((self.with_toolbox(&started).await?, needs_guest))
    }
}

/// Returns what a sandbox is made of, and what of its limits does not hold.
fn creation_body(creation: &Creation<'_>, target: Option<&str>) -> (Value, Vec<String>) {
    let Spec { image, limits, ephemeral, delete_after, .. } = creation.spec;
    let minutes = |time: Duration| time.as_secs().div_ceil(60).max(1);
    let delete_after = match (ephemeral, delete_after) {
        // With the stop.
        (true, _) => 0,
        (false, Some(time)) => i64::try_from(minutes(*time)).unwrap_or(i64::MAX),
        (false, None) => -1,
    };
    let mut body = json!({
        "name": creation.name,
        "labels": creation.labels,
        "public": false,
        "networkBlockAll": is_isolated(creation.spec),
        "autoStopInterval": minutes(leash(creation.spec)),
        "autoDeleteInterval": delete_after,
    });
    if let Some(target) = target {
        body["target"] = target.into();
    }
    let each = "memory and processes are limited for each process";
    let missing = match image.as_deref() {
        // An image has a tag or a path; a snapshot is a plain name.
        Some(image) if image.contains([':', '/']) => {
            let cpus = limits.cpus.ceil().clamp(1.0, 1024.0) as u64;
            let (memory, disk) = (limits.memory.div_ceil(GIB), limits.disk.div_ceil(GIB));
            body["buildInfo"] = json!({ "dockerfileContent": format!("FROM {}\n", quote(image)) });
            body["cpu"] = cpus.into();
            body["memory"] = memory.into();
            body["disk"] = disk.into();
            format!(
                "Daytona gives the sandbox {cpus} processors, {memory} GiB of memory and {disk} GiB of disk; {each}."
            )
        }
        named => {
            if let Some(snapshot) = named {
                body["snapshot"] = snapshot.into();
            }
            format!("Daytona's snapshot decides about processors, memory and disk; {each}.")
        }
    };
    (body, vec![missing])
}

fn state(name: &str) -> Option<State> {
    match name {
        "started" => Some(State::Running),
        "stopped" | "archived" | "error" | "build_failed" => Some(State::Stopped),
        "paused" => Some(State::Paused),
        "destroying" | "destroyed" => None,
        _ => Some(State::Starting),
    }
}

/// The id in a description.
fn checked_id(value: &Value) -> Result<String> {
    let id = text(value, "id");
    match is_id(id) {
        true => Ok(id.to_owned()),
        false => {
            Err(Error::sandbox(format!("daytona names a sandbox {}, which is not a valid id", quote(id))))
        }
    }
}

/// A text of an answer, empty where there is none.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// `None` for what is gone.
fn present(answer: Result<Value, Failure>) -> Result<Option<Value>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Failure { status: Some(404), .. }) => Ok(None),
        Err(failure) => Err(failure.error),
    }
}
