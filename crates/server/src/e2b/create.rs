//! Creating a sandbox: what a client asks for, and what of it can be kept.

use super::Server;
use super::control::{failure, parse, sandbox, time};
use super::hosted::Wanted;
use super::reply::{Refusal, json_response};
use agent_base::error::Error;
use agent_base::hash::Hash;
use agent_base::lock::Lock;
use agent_sandbox::Network;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// How long a sandbox lives where its creation does not say.
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
#[serde(default, rename_all = "camelCase")]
struct NetworkWanted {
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    allow_public_traffic: Option<bool>,
    egress_proxy: Option<Value>,
    rules: Option<Value>,
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
    fn of(&self, key: &str, body: &Bytes) -> Result<Keyed, Refusal> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(fits) {
            return Err(Refusal::bad_request("the Idempotency-Key is not valid"));
        }
        let (request, mut known) = (Hash::of(body), self.0.lock());
        if let Some(keyed) = known.iter().find(|keyed| keyed.key == key) {
            return match keyed.request == request {
                true => Ok(keyed.clone()),
                false => {
                    let message = "the Idempotency-Key was used for another request";
                    Err(Refusal::finally(StatusCode::UNPROCESSABLE_ENTITY, message))
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
    server: &Server,
    headers: &HeaderMap,
    body: &Bytes,
    default_timeout: Duration,
) -> Result<Response, Refusal> {
    let new: NewSandbox = parse(body)?;
    let timeout = match new.timeout {
        Some(seconds) => time(server, seconds)?,
        None => default_timeout.min(server.max_time),
    };
    let wanted = wanted(new, timeout, &server.network).map_err(Refusal::bad_request)?;
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
fn wanted(new: NewSandbox, timeout: Duration, network: &Network) -> Result<Wanted, String> {
    let is_given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    let given = [
        ("mcp", is_given(&new.mcp)),
        ("iam", is_given(&new.iam)),
        ("secrets", is_given(&new.secrets)),
        ("volumeMounts", new.volumes.is_some_and(|volumes| !volumes.is_empty())),
        ("network.egressProxy", new.network.as_ref().is_some_and(|network| is_given(&network.egress_proxy))),
        ("network.rules", new.network.as_ref().is_some_and(|network| is_given(&network.rules))),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(format!("agent serve does not support {name}"));
    }
    let NetworkWanted { allow_out, deny_out, allow_public_traffic, .. } = new.network.unwrap_or_default();
    let has_private_ports = allow_public_traffic == Some(false);
    let (allowed, denied) = (allow_out.unwrap_or_default(), deny_out.unwrap_or_default());
    let denies_all = denied.iter().any(|range| range == "0.0.0.0/0");
    let is_isolated = new.allow_internet_access == Some(false) || denies_all;
    // Without a network nothing is reached, which is stricter than any list.
    if *network != Network::None
        && !(denied.is_empty() && allowed.is_empty() || denies_all && allowed.is_empty())
    {
        return Err("agent serve does not support lists of addresses: the server's --network decides".into());
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
    let auto_pause = new.auto_pause.unwrap_or(false);
    Ok(Wanted { template, metadata, env, is_isolated, has_private_ports, auto_pause, timeout })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(body: &str, network: &Network) -> Result<Wanted, String> {
        wanted(serde_json::from_str(body).unwrap(), V2_TIMEOUT, network)
    }

    #[test]
    fn what_the_server_does_not_have_is_refused_by_name() {
        for (body, name) in [
            (r#"{"mcp":{"a":1}}"#, "mcp"),
            (r#"{"volumeMounts":[{"name":"v","path":"/v"}]}"#, "volumeMounts"),
            (r#"{"network":{"rules":{}}}"#, "network.rules"),
        ] {
            assert!(asked(body, &Network::None).unwrap_err().contains(name), "{body}");
        }
        assert!(asked(r#"{"mcp":null,"volumeMounts":[]}"#, &Network::None).is_ok());
    }

    #[test]
    fn a_client_can_only_take_from_the_servers_network() {
        let isolated = |body| asked(body, &Network::Full).unwrap().is_isolated;
        assert!(!isolated("{}") && !isolated(r#"{"allow_internet_access":true}"#));
        assert!(isolated(r#"{"allow_internet_access":false}"#));
        assert!(isolated(r#"{"network":{"denyOut":["0.0.0.0/0"]}}"#));
        let list = r#"{"network":{"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"]}}"#;
        assert!(asked(list, &Network::Full).is_err());
        assert!(asked(list, &Network::None).unwrap().is_isolated);
    }
}
