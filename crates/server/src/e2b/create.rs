//! Creating a sandbox: what a client asks for, and what of it can be kept.

use super::E2bServer;
use super::control::{failure, parse, sandbox, time};
use super::egress::EgressWanted;
use super::hosted::{Pausing, Wanted};
use super::reply::{RefusedCall, json_response};
use agent_base::error::Error;
use agent_base::hash::Hash;
use agent_base::lock::Lock;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// The lifetime of a sandbox where its creation does not say.
pub const V1_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for the second version of the call.
pub const V2_TIMEOUT: Duration = Duration::from_secs(300);

/// The header that makes a creation one, however often its request is sent.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Keys that are remembered, and the longest.
const MAX_KEYS: usize = 1024;
const MAX_KEY: usize = 255;

/// The most that is remembered with a sandbox: names and values of metadata and variables together.
const MAX_REMEMBERED: usize = 64 << 10;

#[derive(Default, Deserialize)]
#[serde(default)]
struct NewSandbox {
    #[serde(rename = "templateID")]
    template: Option<String>,
    timeout: Option<u64>,
    #[serde(rename = "autoPause")]
    auto_pause: Option<bool>,
    #[serde(rename = "autoPauseMemory")]
    auto_pause_memory: Option<bool>,
    #[serde(rename = "autoResume")]
    auto_resume: Option<AutoResume>,
    #[serde(alias = "allowInternetAccess")]
    allow_internet_access: Option<bool>,
    network: Option<NetworkWanted>,
    metadata: Option<BTreeMap<String, String>>,
    #[serde(rename = "envVars")]
    env: Option<BTreeMap<String, String>>,
    mcp: Option<Value>,
    iam: Option<Value>,
    secrets: Option<Value>,
    #[serde(rename = "volumeMounts")]
    volumes: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AutoResume {
    enabled: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NetworkWanted {
    #[serde(flatten)]
    egress: EgressWanted,
    allow_public_traffic: Option<bool>,
    mask_request_host: Option<String>,
}

/// The creations that carried a key, the newest last.
#[derive(Default)]
pub struct Creations(Lock<VecDeque<Keyed>>);

#[derive(Clone)]
struct Keyed {
    key: String,
    request: Hash,
    /// The answer. Not the sandbox, which would count as one for as long as the key is remembered.
    made: Arc<OnceCell<Value>>,
}

impl Creations {
    /// Returns what a key stands for.
    fn of(&self, key: &str, body: &Bytes) -> Result<Keyed, RefusedCall> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(fits) {
            return Err(RefusedCall::bad_request("the Idempotency-Key is not valid"));
        }
        let (request, mut known) = (Hash::of(body), self.0.lock());
        if let Some(keyed) = known.iter().find(|keyed| keyed.key == key) {
            return match keyed.request == request {
                true => Ok(keyed.clone()),
                false => {
                    let message = "the Idempotency-Key was used for another request";
                    Err(RefusedCall::finally(StatusCode::UNPROCESSABLE_ENTITY, message))
                }
            };
        }
        if known.len() == MAX_KEYS {
            known.pop_front();
        }
        let keyed = Keyed { key: key.to_owned(), request, made: Arc::default() };
        known.push_back(keyed.clone());
        Ok(keyed)
    }
}

/// `POST /sandboxes`
pub async fn create(
    server: &E2bServer,
    headers: &HeaderMap,
    body: &Bytes,
    default_timeout: Duration,
) -> Result<Response, RefusedCall> {
    let new: NewSandbox = parse(body)?;
    let timeout = match new.timeout {
        Some(seconds) => time(server, seconds)?,
        None => default_timeout.min(server.max_time),
    };
    let wanted = wanted(new, timeout).map_err(RefusedCall::bad_request)?;
    let snapshot = server.snapshots.of_template(&wanted.template)?;
    let fleet = Arc::clone(&server.fleet);
    let create = async move || fleet.create(wanted, snapshot).await.map(|hosted| sandbox(&hosted));
    let made = match headers.get(IDEMPOTENCY_KEY) {
        None => create().await,
        Some(key) => {
            let keyed = server.creations.of(&String::from_utf8_lossy(key.as_bytes()), body)?;
            // Also if the client does not wait for it: then the next to show the key gets it.
            let made = tokio::spawn(async move { keyed.made.get_or_try_init(create).await.cloned() });
            made.await.unwrap_or_else(|error| {
                Err(Error::unexpected("the sandbox was not created").caused_by(error))
            })
        }
    };
    Ok(json_response(StatusCode::CREATED, &made.map_err(|failed| failure(&failed))?))
}

/// Returns what is asked for, or what of it the server does not have.
fn wanted(new: NewSandbox, timeout: Duration) -> Result<Wanted, String> {
    let is_given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    let given = [
        ("mcp", is_given(&new.mcp)),
        ("iam", is_given(&new.iam)),
        ("secrets", is_given(&new.secrets)),
        ("volumeMounts", new.volumes.is_some_and(|volumes| !volumes.is_empty())),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(format!("agent serve does not support {name}"));
    }
    let NetworkWanted { mut egress, allow_public_traffic, mask_request_host } =
        new.network.unwrap_or_default();
    egress.allow_internet_access = egress.allow_internet_access.or(new.allow_internet_access);
    let egress = egress.egress()?;
    let has_private_ports = allow_public_traffic == Some(false);
    let masked_host = mask_request_host.filter(|host| !host.is_empty());
    if masked_host.as_ref().is_some_and(|host| HeaderValue::from_str(host).is_err()) {
        return Err("network.maskRequestHost is not a valid host".into());
    }
    let (metadata, env) = (new.metadata.unwrap_or_default(), new.env.unwrap_or_default());
    let remembered: usize = metadata.iter().chain(&env).map(|(name, value)| name.len() + value.len()).sum();
    if remembered > MAX_REMEMBERED {
        return Err(format!("metadata and envVars are longer than {} KiB", MAX_REMEMBERED >> 10));
    }
    if env.iter().any(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')) {
        return Err("a name in envVars is not valid".into());
    }
    let template = new.template.filter(|name| name.len() <= 256).unwrap_or_else(|| "base".into());
    let keeping = if new.auto_pause_memory == Some(false) { Pausing::Files } else { Pausing::Memory };
    let auto_pause = new.auto_pause.unwrap_or(false).then_some(keeping);
    let auto_resume = new.auto_resume.is_some_and(|auto_resume| auto_resume.enabled);
    if auto_resume && auto_pause == Some(Pausing::Files) {
        return Err("a sandbox that is paused without its memory cannot be resumed by a request".into());
    }
    Ok(Wanted {
        template,
        metadata,
        env,
        egress,
        has_private_ports,
        masked_host,
        auto_pause,
        auto_resume,
        timeout,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(body: &str) -> Result<Wanted, String> {
        wanted(serde_json::from_str(body).unwrap(), V2_TIMEOUT)
    }

    #[test]
    fn what_the_server_does_not_have_is_refused_by_name() {
        for (body, name) in [
            (r#"{"mcp":{"a":1}}"#, "mcp"),
            (r#"{"volumeMounts":[{"name":"v","path":"/v"}]}"#, "volumeMounts"),
            (r#"{"network":{"rules":{}}}"#, "network.rules"),
        ] {
            assert!(asked(body).unwrap_err().contains(name), "{body}");
        }
        assert!(asked(r#"{"mcp":null,"volumeMounts":[]}"#).is_ok());
    }

    #[test]
    fn a_sandbox_without_its_memory_is_not_resumed_by_a_request() {
        let body = |memory| {
            format!(r#"{{"autoPause":true,"autoPauseMemory":{memory},"autoResume":{{"enabled":true}}}}"#)
        };
        assert!(asked(&body("null")).unwrap().auto_resume && asked(&body("true")).is_ok());
        assert!(asked(&body("false")).unwrap_err().contains("memory"));
    }
}
