//! An endpoint as the configuration names it: address, key, model, timeouts.

use crate::protocol::Protocol;
use crate::providers::{GENERIC, Provider};
use agent_base::error::{Error, Result};
use agent_event::CallForm;
use futures_util::future::BoxFuture;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Gets the key of an endpoint from where the user keeps it.
pub trait KeySource: Send + Sync {
    /// The key as it is now.
    ///
    /// # Errors
    /// It cannot be had.
    fn renew(&self) -> BoxFuture<'_, Result<Secret>>;
}

/// Everything that is needed to talk to a model. Made by [`Endpoint::new`], then adjusted field by field.
#[derive(Clone)]
pub struct Endpoint {
    /// The address to which the protocol's path is appended, normalised: scheme, no trailing slash, possibly a query.
    pub base_url: String,
    /// The protocol of requests and answers.
    pub protocol: Protocol,
    /// The key, sent to this endpoint and to nobody else.
    pub key: Option<Secret>,
    /// Gets another key where this one is refused.
    pub key_source: Option<Arc<dyn KeySource>>,
    /// Set if the key is sent as a bearer token where the protocol has a header of its own for keys.
    pub is_bearer: bool,
    /// The model's name as the endpoint knows it.
    pub model: String,
    /// The provider, whose quirks are to be expected.
    pub provider: &'static Provider,
    /// The time limits for waiting.
    pub timeouts: Timeouts,
    /// The limits for trying again.
    pub retries: Retries,
    /// Tokens that one answer may have; the endpoint's own default where absent.
    pub max_tokens: Option<u32>,
    /// The sampling temperature; the endpoint's own default where absent.
    pub temperature: Option<f64>,
    /// Nucleus sampling, from 0 to 1; the endpoint's own default where absent.
    pub top_p: Option<f64>,
    /// The effort of the model's reasoning, in the endpoint's words; its own default where absent.
    pub reasoning_effort: Option<String>,
    /// Tokens that the model may think with, where the protocol has a limit on that (Messages).
    pub reasoning_budget: Option<u32>,
    /// Further fields of each request. What the client itself sends goes before them.
    pub body: Map<String, Value>,
    /// The context window in tokens; what the server or its documentation says where absent.
    pub context_window: Option<u64>,
    /// The form in which tools are offered and calls are written; decided by what is known about the model where absent.
    pub form: Option<CallForm>,
    /// Set if the steps of the model's work are helped along; where absent, those of a model that is known to be small.
    pub assist: Option<bool>,
    /// Set if the model takes images.
    pub images: bool,
    /// Further headers of every request.
    pub headers: Vec<(String, String)>,
    /// A PEM file of certificates to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// The variable that names a proxy, for messages.
    pub proxy_variable: Option<&'static str>,
    /// The proxy for all connections, where the HTTP client cannot read it from the environment by itself.
    pub proxy: Option<String>,
}

impl Endpoint {
    /// The endpoint at `base_url`, which may lack scheme or `/v1` and may end in a slash.
    ///
    /// # Errors
    /// `Config` where the address or the model's name cannot be one.
    pub fn new(base_url: &str, model: &str) -> Result<Self> {
        if model.trim().is_empty() {
            return Err(Error::config("no model is named").hint(
                "name one with --model or AGENT_MODEL; `agent models` lists what the endpoint offers",
            ));
        }
        Ok(Self {
            base_url: normalise(base_url)?,
            key_source: None,
            protocol: Protocol::Chat,
            key: None,
            is_bearer: false,
            model: model.trim().to_owned(),
            provider: &GENERIC,
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            max_tokens: None,
            temperature: None,
            top_p: None,
            reasoning_effort: None,
            reasoning_budget: None,
            body: Map::new(),
            context_window: None,
            form: None,
            assist: None,
            images: false,
            headers: Vec::new(),
            ca_file: None,
            proxy_variable: None,
            proxy: None,
        })
    }
}

impl Endpoint {
    /// Returns whether it is known to refuse most of JSON Schema: Google's.
    pub(super) fn takes_plain_schemas_only(&self) -> bool {
        let url = Url::parse(&self.base_url).ok();
        url.is_some_and(|url| url.host_str().is_some_and(|host| host.ends_with(".googleapis.com")))
    }
}

/// Without the values of headers, which may be secrets.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Endpoint")
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .field("provider", &self.provider.name)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

/// The time limits for waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the connection, TLS included.
    pub connect: Duration,
    /// From the request to the first event of the answer, and from one piece of the answer to the next where the connection is
    /// kept alive meanwhile. Long: a local model may read a prompt for minutes.
    pub first: Duration,
    /// Without a single byte, in an answer that has begun.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            first: Duration::from_secs(600),
            idle: Duration::from_secs(180),
        }
    }
}

/// The limits for trying again after a failure that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Further tries after the first one.
    pub attempts: u32,
    /// The first wait; it doubles with every further one.
    pub first_wait: Duration,
    /// The longest single wait, also where the endpoint asks for more.
    pub longest_wait: Duration,
    /// All waits of one request together.
    pub total_wait: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            total_wait: Duration::from_secs(180),
        }
    }
}

/// Characters of a key that do not stand in a text for long, were it only part of the key. Below that they say nothing:
/// `sk-proj` begins all keys of one provider.
const TELLING: usize = 8;
/// Keys below this length are words that servers without keys are given (`none`, `EMPTY`), not secrets.
const SHORTEST_SECRET: usize = 6;

/// A key. It is never printed: its `Debug` shows dots.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// # Errors
    /// `Config` where the text is empty or holds a character that no key has: white space, a control
    /// character, anything outside ASCII. The message does not repeat it.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.is_empty() {
            return Err(Error::config("the API key is empty"));
        }
        if let Some(at) = text.bytes().position(|b| !b.is_ascii_graphic()) {
            let what = match text.as_bytes()[at] {
                b'\n' | b'\r' => "a line break",
                b' ' | b'\t' => "white space",
                _ => "a character that no key has",
            };
            return Err(Error::config(format!("the API key holds {what} at position {}", at + 1))
                .hint("it was probably copied with something around it; set it again"));
        }
        Ok(Self(text.into()))
    }

    pub(super) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// `text` without the key, and without any longer part of it: servers quote the key they refuse, and what they say
    /// is shown, kept and passed on.
    pub(super) fn mask(&self, text: &str) -> String {
        let key = self.expose();
        let shortest = key.len().min(TELLING);
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let length = longest_part(key, rest);
            if length >= shortest && key.len() >= SHORTEST_SECRET {
                masked.push_str("[key]");
                rest = &rest[length..];
            } else {
                masked.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        masked
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The length of the longest part of `key`, which is ASCII, that `text` begins with.
fn longest_part(key: &str, text: &str) -> usize {
    let alike = |from: usize| key[from..].bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
    (0..key.len()).map(alike).max().unwrap_or(0)
}

/// Brings an address into the form that `/chat/completions` can be appended to.
fn normalise(text: &str) -> Result<String> {
    let text = text.trim();
    let shown = without_userinfo(text.split('?').next().unwrap_or_default());
    let wrong = |why: &str| {
        Error::config(format!("the base URL {shown:?} {why}"))
            .hint("it looks like https://api.example.com/v1")
    };
    if text.is_empty() {
        return Err(wrong("is empty"));
    }
    let mut url = Url::parse(&with_scheme(text)).map_err(|_| wrong("is not an address"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("holds a user name or password").hint("put the key into AGENT_API_KEY"));
    }
    if url.fragment().is_some() {
        return Err(wrong("holds a fragment"));
    }
    // It is kept with the session, and shown.
    if let Some((name, _)) = url.query_pairs().find(|(name, _)| is_secret(name)) {
        let hint = "put the key into AGENT_API_KEY, or into the headers of [models.NAME] in config.toml";
        return Err(wrong(&format!("holds a key ({name})")).hint(hint));
    }
    if url.query() == Some("") {
        url.set_query(None);
    }
    let path = url.path().trim_end_matches('/');
    let ends = ["/chat/completions", "/responses", "/messages"];
    let path = ends.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
    let path = path.trim_end_matches('/').to_owned();
    url.set_path(if path.is_empty() { "/v1" } else { &path });
    Ok(match url.query() {
        Some(_) => url.into(),
        None => url.as_str().trim_end_matches('/').to_owned(),
    })
}

/// Returns whether a field of a query is there to be kept from others.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "sig", "signature"]
        .iter()
        .any(|word| name.split(['-', '_', '.']).any(|part| part == *word))
        || name.ends_with("key")
}

/// The address of `path` below a base URL, whose query follows it.
pub fn joined(base_url: &str, path: &str) -> String {
    match base_url.split_once('?') {
        Some((base, query)) => format!("{base}{path}?{query}"),
        None => format!("{base_url}{path}"),
    }
}

fn with_scheme(text: &str) -> String {
    if text.contains("://") {
        return text.to_owned();
    }
    let scheme = if is_this_machine(text) { "http" } else { "https" };
    format!("{scheme}://{text}")
}

/// Returns whether an address without scheme names this machine, which hardly ever speaks TLS.
fn is_this_machine(address: &str) -> bool {
    let host = address.split('/').next().unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn without_userinfo(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((before, host)) => {
            format!(
                "{}…@{host}",
                before.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"))
            )
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_normalised() {
        for (given, expected) in [
            ("https://api.example.com/v1", "https://api.example.com/v1"),
            ("https://api.example.com/v1/", "https://api.example.com/v1"),
            ("https://api.example.com", "https://api.example.com/v1"),
            ("https://api.example.com/", "https://api.example.com/v1"),
            ("https://api.example.com/v1/chat/completions", "https://api.example.com/v1"),
            ("https://api.example.com/openai/", "https://api.example.com/openai"),
            ("https://api.example.com/v1/messages", "https://api.example.com/v1"),
            ("https://api.example.com/v1/responses/", "https://api.example.com/v1"),
            ("https://api.example.com/api/paas/v4", "https://api.example.com/api/paas/v4"),
            ("localhost:11434", "http://localhost:11434/v1"),
            ("127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
            ("[::1]:8080", "http://[::1]:8080/v1"),
            ("api.example.com/v1", "https://api.example.com/v1"),
            (" https://api.example.com/v1\n", "https://api.example.com/v1"),
            (
                "https://a.b/openai/deployments/g?api-version=1",
                "https://a.b/openai/deployments/g?api-version=1",
            ),
            ("https://a.b/openai/chat/completions?api-version=1", "https://a.b/openai?api-version=1"),
            ("https://a.b/v1/?", "https://a.b/v1"),
        ] {
            assert_eq!(normalise(given).unwrap(), expected, "{given}");
        }
    }

    #[test]
    fn addresses_that_cannot_be_are_refused() {
        for given in [
            "",
            "ftp://example.com",
            "https://",
            "https://u:secret@example.com",
            "https://a.b/v1#x",
            "https://a.b/v1?api-key=secret",
        ] {
            let error = normalise(given).unwrap_err();
            assert_eq!(error.kind(), agent_base::error::Kind::Config, "{given}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    /// The query stood in front of the path.
    #[test]
    fn a_path_is_joined_in_front_of_the_query() {
        assert_eq!(joined("https://a.b/g?api-version=1", "/models"), "https://a.b/g/models?api-version=1");
        assert_eq!(joined("https://a.b/v1", "/models"), "https://a.b/v1/models");
    }

    #[test]
    fn a_key_is_masked_wherever_it_stands_in_a_text_also_in_part() {
        let key = Secret::new("sk-proj-0123456789abcdef").unwrap();
        for (text, masked) in [
            ("wrong key sk-proj-0123456789abcdef.", "wrong key [key]."),
            ("sk-proj-0123456789abcdefsk-proj-0123456789abcdef", "[key][key]"),
            ("wrong: sk-proj-0123…", "wrong: [key]…"),
            ("it ends in 89abcdef, grüße", "it ends in [key], grüße"),
            ("a key begins with sk-proj", "a key begins with sk-proj"),
            ("", ""),
        ] {
            assert_eq!(key.mask(text), masked);
        }
        assert_eq!(
            Secret::new("sk-1234").unwrap().mask("received sk-1234, sk-12…"),
            "received [key], sk-12…"
        );
        assert_eq!(Secret::new("none").unwrap().mask("none of them"), "none of them");
    }

    #[test]
    fn keys_are_checked_and_never_printed() {
        assert_eq!(format!("{:?}", Secret::new("sk-123").unwrap()), "Secret(…)");
        for key in ["sk-123\n", "sk 123", "", "sk-\u{e9}", "sk-\u{0}"] {
            let error = Secret::new(key).unwrap_err();
            assert_eq!(error.kind(), agent_base::error::Kind::Config);
            assert!(!error.to_string().contains("123"), "{error}");
        }
    }
}
