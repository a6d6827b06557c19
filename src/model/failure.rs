//! What can go wrong with one request to the endpoint, by name, and what follows from it.

use crate::error::{Error, Kind};
use crate::model::retry;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Characters of an endpoint's own words that are repeated.
const LONGEST_QUOTE: usize = 500;

/// One request that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// What it was.
    pub reason: Reason,
    /// One sentence in lower case.
    pub message: String,
    /// How long the endpoint asks to wait.
    pub retry_after: Option<Duration>,
}

/// The names of the failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No connection.
    Unreachable,
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
    /// Not an OpenAI-compatible answer: a web page, another protocol.
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

/// What an endpoint may not understand. Each can be done without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
}

impl Failure {
    /// A failure with no word of the endpoint about when to come back.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None }
    }

    /// The failure that an HTTP status and the (bounded) body beside it describe.
    pub fn from_status(status: StatusCode, headers: &HeaderMap, body: &str) -> Self {
        let complaint = Complaint::read(body);
        let reason = by_status(status, &complaint);
        let message = match complaint.text.as_str() {
            "" => format!("the endpoint answered {status} without a word"),
            text => format!("the endpoint answered {status}: {text}"),
        };
        Self { reason, message, retry_after: retry::asked_wait(headers) }
    }

    /// The failure that an error object describes that came under status 200 or in the middle of a stream.
    pub fn from_error_object(error: &Value) -> Self {
        let complaint = Complaint::of(error);
        let reason = match complaint.status {
            Some(status) => by_status(status, &complaint),
            None => complaint.reason_by_words().unwrap_or(Reason::Server),
        };
        let text = if complaint.text.is_empty() { "without saying what" } else { &complaint.text };
        Self::new(reason, format!("the endpoint reported an error in its answer: {text}"))
    }

    /// Whether the same request may succeed a little later.
    pub fn is_temporary(&self) -> bool {
        use Reason::*;
        matches!(self.reason, Unreachable | TimedOut | Broken | Empty | Busy | Server)
    }

    /// The error that ends the request, with what the user can do about it.
    pub fn into_error(self, base_url: &str, model: &str) -> Error {
        let kind = match self.reason {
            Reason::ContextOverflow { .. } => Kind::ContextOverflow,
            Reason::Config => Kind::Config,
            _ => Kind::Endpoint,
        };
        let error = Error::new(kind, self.message);
        let error = match self.reason {
            Reason::ContextOverflow { window: Some(window) } => error.context_window(window),
            _ => error,
        };
        match hint(self.reason, base_url, model) {
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

fn hint(reason: Reason, base_url: &str, model: &str) -> Option<String> {
    Some(match reason {
        Reason::Unreachable => format!("is the endpoint running, and is {base_url} its address?"),
        Reason::Certificate => {
            "name the certificate (or its CA) as a PEM file in AGENT_CA_FILE, or all trusted ones in SSL_CERT_FILE".into()
        }
        Reason::NotTheProtocol | Reason::NotFound => {
            format!("is {base_url} the address of an OpenAI-compatible API? It often ends in /v1")
        }
        Reason::Redirected => "set the base URL to where it leads, if you trust that address with your key".into(),
        Reason::KeyRefused => format!("check the key for {base_url}: AGENT_API_KEY, or the provider's own variable"),
        Reason::UnknownModel => format!("is {model:?} its name there? `agent models` lists what the endpoint offers"),
        Reason::QuotaUsedUp => "add credit with the provider, or choose another one with --provider".into(),
        Reason::ContextOverflow { .. } => "the conversation has to be shorter: /compact, or a new session".into(),
        Reason::TimedOut => "the endpoint may be overloaded; the timeouts are configurable".into(),
        Reason::Busy => "the endpoint is busy; try again later".into(),
        Reason::Filtered => "the provider's content filter objects; say it in other words".into(),
        _ => return None,
    })
}

/// What an endpoint says of a failure, in whatever shape it says it.
struct Complaint {
    /// Its words, for people.
    text: String,
    /// Words, code and type in lower case, to be searched.
    all: String,
    /// The status that the error object names.
    status: Option<StatusCode>,
    /// A context window that a field of its own names.
    window: Option<u64>,
}

impl Complaint {
    fn read(body: &str) -> Self {
        let body = body.trim_start_matches('\u{feff}').trim();
        if let Ok(value @ (Value::Object(_) | Value::Array(_) | Value::String(_))) =
            serde_json::from_str(body)
        {
            return Self::of(&value);
        }
        let text = if looks_like_html(body) { html_title(body) } else { quote(body) };
        Self { all: body.to_lowercase(), text, status: None, window: None }
    }

    fn of(value: &Value) -> Self {
        // {"error": {…}}, {"error": "…"}, [{"error": …}], {"detail": …}, {"message": …}, "…"
        let mut inner = value;
        while let Some(deeper) =
            inner.get("error").filter(|e| !e.is_null() && !e.is_boolean()).or_else(|| inner.get(0))
        {
            inner = deeper;
        }
        let field = |name: &str| inner.get(name).filter(|v| !v.is_null());
        let message = match inner {
            Value::String(text) => text.clone(),
            _ => ["message", "detail", "error_description", "msg", "title"]
                .iter()
                .find_map(|name| field(name).or_else(|| value.get(name)))
                .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
                .unwrap_or_default(),
        };
        let code =
            ["code", "status", "status_code"].iter().find_map(|name| field(name).or_else(|| value.get(name)));
        let status = code.and_then(number).and_then(|n| u16::try_from(n).ok());
        let status = status.filter(|s| *s >= 400).and_then(|s| StatusCode::from_u16(s).ok());
        let mut all = value.to_string().to_lowercase();
        all.truncate(floor_boundary(&all, 64 * 1024));
        let text = match (message.as_str(), code.and_then(Value::as_str)) {
            ("", None) => String::new(),
            ("", Some(code)) => quote(code),
            (message, _) => quote(message),
        };
        Self { text, all, status, window: field("n_ctx").and_then(number) }
    }

    fn has(&self, word: &str) -> bool {
        self.all.contains(word)
    }

    fn has_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.has(word))
    }

    /// What the words alone say, whatever the status: the same failure has another status everywhere.
    fn reason_by_words(&self) -> Option<Reason> {
        const QUOTA: &[&str] = &[
            "insufficient_quota",
            "exceeded your current quota",
            "insufficient balance",
            "insufficient credit",
            "insufficient_credit",
            "not enough credit",
            "billing_hard_limit",
            "credit balance is too low",
            "not_enough_balance",
            "quota has been used up",
        ];
        const KEY: &[&str] = &[
            "invalid_api_key",
            "invalid api key",
            "incorrect api key",
            "api key not valid",
            "invalid authentication",
            "authentication_error",
            "no_db_connection",
            "token_not_found",
            "no api key",
        ];
        const OVERFLOW: &[&str] = &[
            "context_length_exceeded",
            "exceed_context_size",
            "maximum context length",
            "context length exceeded",
            "contextwindowexceeded",
            "context window",
            "context_window_exceeded",
            "prompt is too long",
            "prompt too long",
            "input is too long",
            "input too long",
            "available context size",
            "context size has been exceeded",
            "exceed context limit",
            "exceeds the context",
            "exceeds model's context",
            "maximum prompt length",
            "maximum input length",
            "input token count",
            "input tokens exceed",
            "exceeds the maximum number of tokens",
            "greater than the context length",
            "max_model_len",
            "reduce the length of the messages",
            "reduce the length of the input",
            "too many input tokens",
            "token limit exceeded",
            "larger than the context",
        ];
        const MODEL: &[&str] = &[
            "model_not_found",
            "invalid model name",
            "unknown model",
            "model not found",
            "not a valid model",
            "no such model",
            "model does not exist",
            "model_not_exist",
            "model not exist",
        ];
        if self.has_any(QUOTA) {
            return Some(Reason::QuotaUsedUp);
        }
        if self.has_any(OVERFLOW) && !self.has("per minute") {
            return Some(Reason::ContextOverflow { window: self.window.or_else(|| window_in(&self.all)) });
        }
        if self.has_any(KEY) {
            return Some(Reason::KeyRefused);
        }
        let names_a_model =
            self.has("model") && self.has_any(&["does not exist", "not found", "is not available"]);
        if self.has_any(MODEL) || names_a_model && !self.has("tool") {
            return Some(Reason::UnknownModel);
        }
        if self.has_any(&["content_filter", "content management policy", "content_policy_violation"]) {
            return Some(Reason::Filtered);
        }
        self.refused_feature().map(Reason::Unsupported)
    }

    fn refused_feature(&self) -> Option<Feature> {
        if self.has("reasoning_content") {
            return Some(Feature::Reasoning);
        }
        let objects = self.has_any(&[
            "support",
            "not permitted",
            "not allowed",
            "unrecognized",
            "unexpected",
            "unknown",
            "extra inputs",
            "extra_forbidden",
            "requires --",
            "not enabled",
            "must be",
            "deprecated",
            "invalid",
            "not implemented",
            "not available",
            "requires",
        ]);
        if !objects {
            return None;
        }
        if self.has_any(&["stream_options", "include_usage"]) {
            return Some(Feature::StreamOptions);
        }
        if self.has_any(&["max_completion_tokens"]) {
            return Some(Feature::MaxTokens);
        }
        if self.has_any(&["response_format", "json_schema", "structured output"]) {
            return Some(Feature::AnswerSchema);
        }
        if self.has("temperature") {
            return Some(Feature::Temperature);
        }
        let tools = [
            "not support tool",
            "not support function",
            "support tool use",
            "tools is not supported",
            "tools are not supported",
            "tool calling is not",
            "function calling is not",
            "tool use is not",
            "\"auto\\\" tool choice requires",
            "tool choice requires",
            "tools param requires",
            "unsupported: tools",
            "unrecognized request argument supplied: tools",
            "unknown parameter: 'tools'",
            "'tools'",
            "body.tools",
            "not support the tools",
            "'tools' is not",
            "`tools`",
            "tool_choice",
        ];
        if self.has_any(&tools) {
            return Some(Feature::Tools);
        }
        let stream = [
            "streaming is not",
            "not support stream",
            "stream is not",
            "stream=true",
            "'stream'",
            "`stream`",
            "body.stream",
            "streaming not",
            "stream must be",
            "streaming responses are not",
        ];
        self.has_any(&stream).then_some(Feature::Streaming)
    }
}

/// What a status says, corrected by the words beside it.
fn by_status(status: StatusCode, complaint: &Complaint) -> Reason {
    let words = complaint.reason_by_words();
    match status.as_u16() {
        300..=399 => Reason::Redirected,
        401 => Reason::KeyRefused,
        402 => Reason::QuotaUsedUp,
        403 => match words {
            Some(reason @ (Reason::QuotaUsedUp | Reason::UnknownModel | Reason::Filtered)) => reason,
            _ => Reason::KeyRefused,
        },
        404 => match words {
            Some(reason @ (Reason::UnknownModel | Reason::Unsupported(_))) => reason,
            _ => Reason::NotFound,
        },
        408 => Reason::TimedOut,
        413 => Reason::ContextOverflow { window: window_in(&complaint.all) },
        429 => match words {
            Some(Reason::QuotaUsedUp) => Reason::QuotaUsedUp,
            _ => Reason::Busy,
        },
        409 | 425 => Reason::Busy,
        503 | 529 => Reason::Busy,
        // Some servers report their caller's mistakes as failures of their own.
        500..=599 => match words {
            Some(
                reason @ (Reason::ContextOverflow { .. } | Reason::Unsupported(_) | Reason::QuotaUsedUp),
            ) => reason,
            _ => Reason::Server,
        },
        _ => words.unwrap_or(Reason::Refused),
    }
}

/// The context window in tokens that an overflow message names.
fn window_in(text: &str) -> Option<u64> {
    const BEFORE: &[&str] = &[
        "maximum context length is ",
        "maximum context length of ",
        "context length is only ",
        "context length of only ",
        "available context size (",
        "context length of ",
        "context window of ",
        "context limit of ",
        "maximum prompt length is ",
        "maximum number of tokens allowed (",
        "\"n_ctx\":",
        "max_model_len=",
        "context window is ",
        "maximum: ",
        "tokens > ",
    ];
    BEFORE.iter().find_map(|before| {
        let after = &text[text.find(before)? + before.len()..];
        let digits: String =
            after.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
        digits.parse().ok().filter(|window| *window >= 128)
    })
}

/// Whether a body is a web page.
pub fn looks_like_html(body: &str) -> bool {
    let start: String = body.trim_start().chars().take(15).collect::<String>().to_lowercase();
    ["<!doctype", "<html", "<head", "<body", "<?xml", "<center"].iter().any(|tag| start.starts_with(tag))
}

fn html_title(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|from| {
        let to = lower[from..].find("</title>")? + from;
        page.get(from + "<title>".len()..to)
    });
    match title.map(|title| quote(title.trim())) {
        Some(title) if !title.is_empty() => format!("a web page titled {title:?}"),
        _ => "a web page".to_owned(),
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

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}
