//! The ways in which one request to the endpoint can fail, by name, and what follows from each.

use crate::client::error_body::ErrorBody;
use crate::client::retry;
use crate::endpoint::{Endpoint, Secret};
use crate::protocol::Protocol;
use agent_base::error::{Error, Kind, Scope};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Characters of an endpoint's own words that are repeated.
const LONGEST_QUOTE: usize = 500;

/// One request that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The kind of failure.
    pub reason: Reason,
    /// One sentence in lower case.
    pub message: String,
    /// The wait that the endpoint asks for.
    pub retry_after: Option<Duration>,
}

/// The names of the failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No connection.
    Unreachable,
    /// No program of this machine listens at the address.
    NotRunning,
    /// The proxy in front of it wants other credentials.
    ProxyRefused,
    /// The certificate is not trusted.
    Certificate,
    /// Too long without an answer, or a silence in the middle of one.
    TimedOut,
    /// The connection broke, or the answer stopped before it was complete.
    Broken,
    /// An answer that says nothing.
    Empty,
    /// More than is accepted of one answer.
    TooLarge,
    /// Not an answer in the protocol: a web page, another protocol.
    NotTheProtocol,
    /// The endpoint sends the request elsewhere; the key does not go along.
    Redirected,
    /// The key is wrong, missing, or may not do this.
    KeyRefused,
    /// The endpoint does not know the model.
    UnknownModel,
    /// Nothing at this address.
    NotFound,
    /// The money or the quota is used up.
    QuotaUsedUp,
    /// The conversation does not fit.
    ContextOverflow {
        /// The window in tokens, where the endpoint says.
        window: Option<u64>,
        /// The tokens of the prompt, where the endpoint says.
        prompt: Option<u64>,
    },
    /// Something that we sent is not taken; the request can go without it.
    Unsupported(Feature),
    /// The endpoint's content filter stopped the answer.
    Filtered,
    /// Too many requests, or the endpoint is overloaded.
    Busy,
    /// The endpoint has a failure of its own.
    Server,
    /// The request was refused for another reason.
    Refused,
    /// Our own configuration: nothing was sent.
    Config,
}

impl Reason {
    /// Returns whether other requests fail for it too, until the endpoint or the user's account is in order again.
    fn concerns_every_request(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::NotRunning
                | Self::ProxyRefused
                | Self::Certificate
                | Self::TimedOut
                | Self::Broken
                | Self::KeyRefused
                | Self::NotFound
                | Self::QuotaUsedUp
                | Self::Busy
                | Self::Server
        )
    }
}

/// A part of a request that an endpoint may not understand. Each can be done without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// The answer in pieces.
    Streaming,
    /// `stream_options`.
    StreamOptions,
    /// `tools`.
    Tools,
    /// `response_format`.
    AnswerSchema,
    /// `temperature`.
    Temperature,
    /// `max_tokens`; newer OpenAI models want `max_completion_tokens`.
    MaxTokens,
    /// The reasoning: refused where it is sent, or missed where it is not.
    Reasoning,
    /// Ids of calls in any other form than nine letters and digits.
    CallIds,
    /// Calls of earlier turns without the signature that the model gave them.
    UnsignedCalls,
    /// Images.
    Images,
    /// The effort of the model's reasoning.
    Effort,
    /// Summaries of the reasoning.
    Summaries,
    /// Thinking that the model measures out itself.
    AdaptiveThinking,
    /// `top_p`.
    TopP,
    /// The key of a conversation for the cache.
    CacheKey,
    /// Marks for the cache.
    CacheMarks,
    /// Reasoning that comes back encrypted.
    EncryptedReasoning,
    /// JSON Schemas with everything that the standard has.
    FullSchemas,
    /// A message of the role `system`.
    SystemRole,
}

impl Failure {
    /// A failure with no word of the endpoint about when to come back.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None }
    }

    /// The failure that an HTTP status and the (bounded) body beside it describe.
    pub fn from_status(status: StatusCode, headers: &HeaderMap, body: &str) -> Self {
        let error_body = ErrorBody::in_body(body);
        let message = match error_body.text.as_str() {
            "" => format!("the endpoint answered {status} without a word"),
            text => format!("the endpoint answered {status}: {text}"),
        };
        let retry_after = retry::asked_wait(headers).or(error_body.wait);
        Self { reason: error_body.reason(status), message, retry_after }
    }

    /// The failure that an error object describes that came under status 200 or in the middle of a stream.
    pub fn from_error_object(error: &Value) -> Self {
        let error_body = ErrorBody::in_value(error);
        let reason = match error_body.status {
            Some(status) => error_body.reason(status),
            None => error_body.reason_by_words().unwrap_or(Reason::Server),
        };
        let text = if error_body.text.is_empty() { "without saying what" } else { &error_body.text };
        let message = format!("the endpoint reported an error in its answer: {text}");
        Self { reason, message, retry_after: error_body.wait }
    }

    /// The same without the endpoint's key, which some servers quote in what they say.
    pub fn without_key(self, key: Option<&Secret>) -> Self {
        match key {
            Some(key) => Self { message: key.mask(&self.message), ..self },
            None => self,
        }
    }

    /// Returns the number of times that the same request may be tried again, where the configuration does not say less.
    pub fn most_retries(&self) -> u32 {
        match self.reason {
            Reason::Unreachable | Reason::Broken | Reason::Busy | Reason::Server => u32::MAX,
            // Each of these may have cost many minutes, or a whole answer.
            Reason::TimedOut | Reason::Empty => 2,
            // It may be between its end and its next start, which a user at the prompt sees sooner than ten seconds of waits.
            Reason::NotRunning => 1,
            _ => 0,
        }
    }

    /// The error that ends the request, with what the user can do about it.
    pub fn into_error(self, endpoint: &Endpoint) -> Error {
        let kind = match self.reason {
            Reason::ContextOverflow { .. } => Kind::ContextOverflow,
            Reason::Config => Kind::Config,
            _ => Kind::Endpoint,
        };
        let error = Error::new(kind, self.message);
        let error = match self.reason {
            Reason::ContextOverflow { window, prompt } => error.overflow(window, prompt),
            reason if reason.concerns_every_request() => error.concerns(Scope::Endpoint),
            _ => error,
        };
        match hint(self.reason, endpoint) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

fn hint(reason: Reason, endpoint: &Endpoint) -> Option<String> {
    let base_url = &endpoint.base_url;
    Some(match reason {
        Reason::Unreachable | Reason::NotRunning => format!("is the endpoint running, and is {base_url} its address?{}", proxy_hint(endpoint)),
        Reason::ProxyRefused => {
            "put the proxy's user name and password into its variable: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT".into()
        }
        Reason::Certificate => {
            "name the certificate, or its CA, as a PEM file in AGENT_CA_FILE (or all trusted ones in SSL_CERT_FILE)".into()
        }
        Reason::NotTheProtocol | Reason::NotFound => {
            let other = match endpoint.protocol {
                Protocol::Chat => String::new(),
                protocol => format!(
                    "; does it speak the protocol {:?}? protocol = \"chat\" in config.toml asks for the usual one",
                    protocol.name()
                ),
            };
            let kind = if endpoint.protocol == Protocol::Messages { "Anthropic" } else { "OpenAI" };
            format!("is {base_url} the address of an {kind}-compatible API? It often ends in /v1{other}")
        }
        Reason::Redirected => "set the base URL to where it leads, if you trust that address with your key".into(),
        Reason::KeyRefused => key_hint(endpoint),
        Reason::UnknownModel => {
            format!("is {:?} its name there? `agent models` lists what the endpoint offers", endpoint.model)
        }
        Reason::QuotaUsedUp => "add credit with the provider, or choose another one with --provider".into(),
        Reason::ContextOverflow { .. } => "the conversation has to be shorter: /compact, or a new session".into(),
        Reason::TimedOut => "the endpoint may be overloaded: try again later, or another one with --provider".into(),
        Reason::Busy => "the endpoint is busy; try again later".into(),
        Reason::Empty => "try again, or another model with --model: `agent doctor --endpoint` tries what this one can do".into(),
        Reason::Server => "the failure is the endpoint's own: try again later, or another one with --provider".into(),
        Reason::Filtered => "the provider's content filter objects; say it in other words".into(),
        _ => return None,
    })
}

fn key_hint(endpoint: &Endpoint) -> String {
    let base_url = &endpoint.base_url;
    let own = endpoint.provider.key_variables.iter().map(|name| format!(" or {name}")).collect::<String>();
    match endpoint.key {
        Some(_) => format!("check the key for {base_url}: AGENT_API_KEY{own}"),
        None => format!("check the key for {base_url}: none was sent; set AGENT_API_KEY{own}"),
    }
}

fn proxy_hint(endpoint: &Endpoint) -> String {
    match endpoint.proxy_variable {
        Some(name) => format!(" A proxy is set ({name}); NO_PROXY names the hosts that do without it"),
        None => String::new(),
    }
}

/// An endpoint's words, bounded and on one line.
pub fn quote(text: &str) -> String {
    let mut words: String = text.trim().chars().take(LONGEST_QUOTE).collect();
    if words.len() < text.trim().len() {
        words.push('…');
    }
    words
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|w| !w.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
