//! Getting a token from the user: in a browser that comes back to this machine, or with a code on another device.

use super::discovery::{self, Found};
use super::exchange::{Asking, Refused, Tokens, client, post_json};
use super::loopback::Loopback;
use super::now;
use super::store::{Kept, Store};
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::random;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Client;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use url::Url;

/// The time limit for the user.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Seconds between two requests for the token, unless the server names others.
const USUAL_INTERVAL: u64 = 5;
/// The longest of these times.
const MAX_INTERVAL: u64 = 60;
const DEVICE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// The method by which the user logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// In a browser of this machine, where the server has that.
    Browser,
    /// With a code, on any device.
    Device,
}

/// The addresses and codes that the user has to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// An address to open in a browser of this machine.
    Open(Url),
    /// An address to open anywhere, and the code to type there.
    Code(Url, String),
}

/// The client as which this program is known to an authorization server.
#[derive(Deserialize)]
struct Known {
    client_id: String,
    client_secret: Option<String>,
}

/// The code that the user types.
#[derive(Deserialize)]
struct Code {
    device_code: String,
    user_code: String,
    verification_uri: Url,
    interval: Option<u64>,
    expires_in: Option<u64>,
}

/// Logs in to a server, and keeps the token. `client_id` is for authorization servers that register nobody by themselves.
///
/// # Errors
/// The server has no login by OAuth, refuses it, or the user did not answer in time.
pub async fn log_in(
    store: &Store,
    server: &Url,
    way: Way,
    client_id: Option<String>,
    show: &(dyn Fn(Shown) + Sync),
) -> Result<()> {
    let client = client()?;
    let found = discovery::find(&client, server).await?;
    let has_browser = found.issuer.authorization_endpoint.is_some();
    let (known, tokens) = match &found.issuer.device_authorization_endpoint {
        Some(endpoint) if way == Way::Device || !has_browser => {
            let known = register(&client, &found, None, client_id).await?;
            let tokens = by_code(&client, &found, endpoint, &known, show).await?;
            (known, tokens)
        }
        None if way == Way::Device => {
            return Err(Error::config("the server offers no login with a code on another device"));
        }
        _ => {
            let loopback = Loopback::open().await?;
            let known = register(&client, &found, Some(loopback.address()), client_id).await?;
            let tokens = by_browser(&client, &found, loopback, &known, show).await?;
            (known, tokens)
        }
    };
    let kept = Kept {
        server: server.to_string(),
        resource: found.resource,
        token_endpoint: found.issuer.token_endpoint,
        client_id: known.client_id,
        client_secret: known.client_secret,
        access_token: tokens.access_token,
        refresh_token: tokens.refresh_token,
        expires_at: tokens.expires_in.map(|seconds| now().saturating_add(seconds)),
    };
    let _lock = store.lock(server).await?;
    store.write(server, &kept)
}

/// Registers this program with the authorization server (RFC 7591), unless the user has done that.
async fn register(
    client: &Client,
    found: &Found,
    redirect: Option<&Url>,
    client_id: Option<String>,
) -> Result<Known> {
    if let Some(client_id) = client_id {
        return Ok(Known { client_id, client_secret: None });
    }
    let endpoint = found.issuer.registration_endpoint.as_ref().ok_or_else(|| {
        Error::config("the authorization server does not register programs by itself").hint(
            "register one there, with the redirect http://127.0.0.1/callback, and give its id as --client-id",
        )
    })?;
    let grant = if redirect.is_some() { "authorization_code" } else { DEVICE };
    let mut asked = json!({
        "client_name": "agent",
        "grant_types": [grant, "refresh_token"],
        "token_endpoint_auth_method": "none",
    });
    if let Some(redirect) = redirect {
        asked["redirect_uris"] = json!([redirect]);
        asked["response_types"] = json!(["code"]);
    }
    if let Some(scope) = &found.scope {
        asked["scope"] = json!(scope);
    }
    post_json(client, endpoint, &asked).await
}

async fn by_browser(
    client: &Client,
    found: &Found,
    loopback: Loopback,
    known: &Known,
    show: &(dyn Fn(Shown) + Sync),
) -> Result<Tokens> {
    if !found.issuer.has_pkce() {
        return Err(Error::config("the authorization server does not protect codes by PKCE (S256)"));
    }
    let (verifier, state) = (random::text::<32>()?, random::text::<32>()?);
    let challenge = URL_SAFE_NO_PAD.encode(Hash::of(&verifier).0);
    let none = || Error::config("the authorization server has no page for logging in");
    let mut page = found.issuer.authorization_endpoint.clone().ok_or_else(none)?;
    page.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &known.client_id)
        .append_pair("redirect_uri", loopback.address().as_str())
        .append_pair("state", &state)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256")
        .append_pair("resource", found.resource.as_str());
    if let Some(scope) = &found.scope {
        page.query_pairs_mut().append_pair("scope", scope);
    }
    show(Shown::Open(page));
    let redirect = loopback.address().to_string();
    let code = loopback.code(&state, &found.issuer.issuer, TIMEOUT).await?;
    let asking = Asking { client, endpoint: &found.issuer.token_endpoint };
    let form = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", &redirect),
        ("client_id", &known.client_id),
        ("client_secret", known.client_secret.as_deref().unwrap_or_default()),
        ("code_verifier", &verifier),
        ("resource", found.resource.as_str()),
    ];
    asking.tokens(&form).await?.map_err(|refused| refused.error())
}

/// RFC 8628.
async fn by_code(
    client: &Client,
    found: &Found,
    endpoint: &Url,
    known: &Known,
    show: &(dyn Fn(Shown) + Sync),
) -> Result<Tokens> {
    let scope = found.scope.clone().unwrap_or_default();
    let resource = found.resource.as_str();
    let form = [("client_id", known.client_id.as_str()), ("scope", &scope), ("resource", resource)];
    let asked = Asking { client, endpoint }.form::<Code>(&form).await?;
    let code = asked.map_err(|refused| refused.error())?;
    show(Shown::Code(code.verification_uri, code.user_code));
    let mut interval = code.interval.unwrap_or(USUAL_INTERVAL).clamp(1, MAX_INTERVAL);
    let time = code.expires_in.map_or(TIMEOUT, |seconds| TIMEOUT.min(Duration::from_secs(seconds)));
    let last = Instant::now() + time;
    let asking = Asking { client, endpoint: &found.issuer.token_endpoint };
    let form = [
        ("grant_type", DEVICE),
        ("device_code", &code.device_code),
        ("client_id", &known.client_id),
        ("client_secret", known.client_secret.as_deref().unwrap_or_default()),
        ("resource", resource),
    ];
    while Instant::now() < last {
        sleep(Duration::from_secs(interval)).await;
        match asking.tokens(&form).await? {
            Ok(tokens) => return Ok(tokens),
            Err(Refused { error, .. }) if error == "authorization_pending" => {}
            Err(Refused { error, .. }) if error == "slow_down" => interval = (interval + 5).min(MAX_INTERVAL),
            Err(refused) => return Err(refused.error()),
        }
    }
    Err(Error::config("nobody typed the code in time"))
}
