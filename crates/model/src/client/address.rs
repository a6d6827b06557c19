//! Where requests go and what they carry.

use crate::endpoint::{self, Endpoint};
use agent_base::error::{Error, Result};
use async_openai::config::Config;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;

/// Where requests go and what they carry: the key and the configured headers, and nothing from the environment.
#[derive(Clone)]
pub struct Address {
    base_url: String,
    /// The configured headers, and the key.
    pub headers: HeaderMap,
    /// async-openai wants to be able to ask for it; it is in the headers already.
    no_key: SecretString,
}

impl Address {
    /// # Errors
    /// `Config` where the key or a header cannot be sent.
    pub fn new(endpoint: &Endpoint) -> Result<Self> {
        let mut headers = HeaderMap::new();
        for (name, value) in &endpoint.headers {
            let (Ok(header), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) else {
                return Err(Error::config(format!("the header {name:?} cannot be sent as it is configured")));
            };
            headers.insert(header, value);
        }
        if let Some(key) = &endpoint.key {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                .map_err(|_| Error::config("the API key holds a character that cannot be sent"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(Self { base_url: endpoint.base_url.clone(), headers, no_key: SecretString::default() })
    }
}

impl Config for Address {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn url(&self, path: &str) -> String {
        endpoint::joined(&self.base_url, path)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    fn api_base(&self) -> &str {
        &self.base_url
    }

    fn api_key(&self) -> &SecretString {
        &self.no_key
    }
}
