//! Requests of a login: documents, forms, and what endpoints for tokens answer.

use agent_base::error::{Error, Result};
use agent_base::sanitise::one_line;
use agent_base::tls;
use futures_util::StreamExt;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, redirect};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::net::IpAddr;
use std::time::Duration;
use url::{Host, Url, form_urlencoded};

/// The time limit for one request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer.
const MAX_ANSWER: usize = 256 << 10;

/// The tokens that an endpoint gives.
#[derive(Deserialize)]
pub(super) struct Tokens {
    pub access_token: String,
    pub token_type: String,
    pub refresh_token: Option<String>,
    pub expires_in: Option<u64>,
}

/// The reason why an endpoint for tokens gives none.
#[derive(Debug, Deserialize)]
pub(super) struct Refused {
    pub error: String,
    #[serde(default)]
    error_description: String,
}

impl Refused {
    pub fn error(&self) -> Error {
        let (code, text) = (one_line(&self.error, 60), one_line(&self.error_description, 200));
        let text = if text.is_empty() { code } else { format!("{code} ({text})") };
        Error::config(format!("the authorization server refuses the login: {text}"))
    }
}

/// The client of all requests. No redirect is followed.
pub(super) fn client() -> Result<Client> {
    tls::install_provider();
    let builder = Client::builder().http1_only().timeout(TIMEOUT).redirect(redirect::Policy::none());
    let builder = builder.user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(|error| Error::config("the HTTP client cannot be set up").caused_by(error))
}

/// Returns whether secrets may go there: over TLS, or to this machine itself.
pub(super) fn is_safe(url: &Url) -> bool {
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_here)
}

/// A document; `None` where there is none.
pub(super) async fn get<T: DeserializeOwned>(client: &Client, url: &Url) -> Result<Option<T>> {
    if !is_safe(url) {
        return Err(Error::config(format!("{url} is not https://, so that no login begins there")));
    }
    let answer = client.get(url.clone()).header(ACCEPT, "application/json").send().await;
    let answer = answer.map_err(|error| unreachable(url, error))?;
    if !answer.status().is_success() {
        return Ok(None);
    }
    let body = body(answer, url).await?;
    let read = serde_json::from_slice(&body);
    read.map(Some).map_err(|error| Error::config(format!("{url} is not such a document")).caused_by(error))
}

/// Sends JSON, and reads JSON.
pub(super) async fn post_json<T: DeserializeOwned>(
    client: &Client,
    url: &Url,
    value: &serde_json::Value,
) -> Result<T> {
    let answer =
        client.post(url.clone()).json(value).send().await.map_err(|error| unreachable(url, error))?;
    let status = answer.status();
    let body = body(answer, url).await?;
    if !status.is_success() {
        let said = one_line(&String::from_utf8_lossy(&body), 200);
        return Err(Error::config(format!("{url} answers with the status {}: {said}", status.as_u16())));
    }
    serde_json::from_slice(&body).map_err(|error| not_valid(url, &error))
}

/// An endpoint that takes forms.
pub(super) struct Asking<'a> {
    pub client: &'a Client,
    pub endpoint: &'a Url,
}

impl Asking<'_> {
    /// Asks for tokens.
    pub async fn tokens(&self, form: &[(&str, &str)]) -> Result<std::result::Result<Tokens, Refused>> {
        let tokens: std::result::Result<Tokens, Refused> = self.form(form).await?;
        match &tokens {
            Ok(tokens) if !tokens.token_type.eq_ignore_ascii_case("bearer") => {
                Err(Error::config("the authorization server gives tokens of another kind than bearer"))
            }
            Ok(tokens) if !tokens.access_token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(Error::config("the authorization server gives a token that no header can hold"))
            }
            _ => Ok(tokens),
        }
    }

    /// Sends a form without its empty fields.
    pub async fn form<T: DeserializeOwned>(
        &self,
        form: &[(&str, &str)],
    ) -> Result<std::result::Result<T, Refused>> {
        let text = encoded(form);
        let request = self.client.post(self.endpoint.clone()).header(ACCEPT, "application/json");
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(text);
        let answer = request.send().await.map_err(|error| unreachable(self.endpoint, error))?;
        let status = answer.status();
        let body = body(answer, self.endpoint).await?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map(Ok).map_err(|error| not_valid(self.endpoint, &error));
        }
        let status = status.as_u16();
        let other = |_| Error::config(format!("{} answers with the status {status}", self.endpoint));
        serde_json::from_slice(&body).map(Err).map_err(other)
    }
}

fn encoded(form: &[(&str, &str)]) -> String {
    let given = form.iter().filter(|(_, value)| !value.is_empty());
    form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish()
}

async fn body(answer: Response, url: &Url) -> Result<Vec<u8>> {
    let (mut body, mut stream) = (Vec::new(), answer.bytes_stream());
    while let Some(piece) = stream.next().await {
        body.extend_from_slice(&piece.map_err(|error| unreachable(url, error))?);
        if body.len() > MAX_ANSWER {
            return Err(Error::config(format!("{url} answers with more than {MAX_ANSWER} bytes")));
        }
    }
    Ok(body)
}

fn unreachable(url: &Url, error: reqwest::Error) -> Error {
    Error::config(format!("{url} cannot be reached")).caused_by(error.without_url())
}

/// Without the text, which may hold a token.
fn not_valid(url: &Url, error: &serde_json::Error) -> Error {
    Error::config(format!(
        "{url} does not answer as it should (line {}, column {})",
        error.line(),
        error.column()
    ))
}
