//! Where requests go and what they carry.

use crate::client::anthropic;
use crate::endpoint::{self, Endpoint, Secret};
use crate::protocol::Protocol;
use agent_base::error::{Error, Result};
use async_openai::config::Config;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;

/// The address of requests, with what they carry: the key and the configured headers, and nothing from the environment.
#[derive(Clone)]
pub struct Address {
    base_url: String,
    /// The configured headers, and the key.
    pub headers: HeaderMap,
    protocol: Protocol,
    /// The key, which is in the headers.
    key: Option<Secret>,
    /// async-openai wants to be able to ask for it; it is in the headers already.
    no_key: SecretString,
}

impl Address {
    /// # Errors
    /// `Config` where the key or a header cannot be sent.
    pub fn new(endpoint: &Endpoint) -> Result<Self> {
        Self::with_key(endpoint, endpoint.key.as_ref())
    }

    /// With another key than the endpoint's.
    ///
    /// # Errors
    /// `Config` where the key or a header cannot be sent.
    pub fn with_key(endpoint: &Endpoint, key: Option<&Secret>) -> Result<Self> {
        let mut headers = HeaderMap::new();
        for (name, value) in &endpoint.headers {
            let (Ok(header), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) else {
                return Err(Error::config(format!("the header {name:?} cannot be sent as it is configured")));
            };
            headers.insert(header, value);
        }
        if endpoint.protocol == Protocol::Messages {
            let version = HeaderName::from_static("anthropic-version");
            headers.entry(version).or_insert(HeaderValue::from_static(anthropic::VERSION));
        }
        if let Some(key) = key {
            let (name, text) = match key_header(endpoint, key.expose()) {
                Some(name) => (HeaderName::from_static(name), key.expose().to_owned()),
                None => (AUTHORIZATION, format!("Bearer {}", key.expose())),
            };
            let mut value = HeaderValue::from_str(&text)
                .map_err(|_| Error::config("the API key holds a character that cannot be sent"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let (base_url, protocol) = (endpoint.base_url.clone(), endpoint.protocol);
        Ok(Self { base_url, headers, protocol, key: key.cloned(), no_key: SecretString::default() })
    }

    /// The key that is sent.
    pub fn key(&self) -> Option<&Secret> {
        self.key.as_ref()
    }

    /// Returns the address to which questions are sent.
    pub fn of_questions(&self) -> String {
        self.protocol.address(&self.base_url)
    }
}

/// The header that the key is sent in; `None`: as a bearer token. Two of them at once are refused.
fn key_header(endpoint: &Endpoint, key: &str) -> Option<&'static str> {
    let is_token = endpoint.is_bearer || key.starts_with(anthropic::TOKEN_PREFIX);
    let of_protocol = (endpoint.protocol == Protocol::Messages && !is_token).then_some("x-api-key");
    endpoint.provider.key_header.or(of_protocol)
}

impl Config for Address {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn url(&self, path: &str) -> String {
        match self.protocol {
            // Beside the path of the questions.
            Protocol::Messages => self.of_questions().replacen("/messages", path, 1),
            _ => endpoint::joined(&self.base_url, path),
        }
    }

    fn query(&self) -> Vec<(&str, &str)> {
        // Anthropic lists twenty models where nothing is said, and a thousand at most.
        if self.protocol == Protocol::Messages { vec![("limit", "1000")] } else { Vec::new() }
    }

    fn api_base(&self) -> &str {
        &self.base_url
    }

    fn api_key(&self) -> &SecretString {
        &self.no_key
    }
}
