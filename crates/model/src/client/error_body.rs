//! Reads what an endpoint says of a failure: every server has shapes, codes and words of its own.

use crate::client::failure::{Feature, Reason, quote};
use crate::client::{overflow, retry};
use reqwest::StatusCode;
use serde_json::Value;
use std::time::Duration;

/// Bytes of an error body that are searched.
const LONGEST_SEARCH: usize = 64 * 1024;

/// An endpoint's words about a failure.
pub struct ErrorBody {
    /// For messages: bounded, on one line, possibly empty.
    pub text: String,
    /// The status that the error object itself names.
    pub status: Option<StatusCode>,
    /// The wait that the words ask for.
    pub wait: Option<Duration>,
    /// Everything in lower case, to be searched.
    all: String,
    /// `text` in lower case.
    words: String,
    /// A context window that a field of its own names.
    window: Option<u64>,
    /// The tokens of the prompt that a field of its own names.
    prompt: Option<u64>,
}

impl ErrorBody {
    /// Of the body of an answer with a bad status.
    pub fn in_body(body: &str) -> Self {
        let body = body.trim_start_matches('\u{feff}').trim();
        match serde_json::from_str(body) {
            Ok(value @ (Value::Object(_) | Value::Array(_) | Value::String(_))) => Self::in_value(&value),
            _ => {
                let text = if looks_like_html(body) { page(body) } else { quote(body) };
                Self::new(text, body, None)
            }
        }
    }

    /// Of an error object: `{"error": {…}}`, `{"error": "…"}`, `[{"error": …}]`, `{"detail": …}`, `{"message": …}`, `"…"`.
    pub fn in_value(value: &Value) -> Self {
        let mut inner = value;
        while let Some(deeper) =
            inner.get("error").filter(|e| !e.is_null() && !e.is_boolean()).or_else(|| inner.get(0))
        {
            inner = deeper;
        }
        let field = |names: &[&str]| {
            let found = names.iter().find_map(|name| inner.get(*name).or_else(|| value.get(*name)));
            found.filter(|v| !v.is_null())
        };
        let code = field(&["code", "status", "status_code"]);
        let words = match inner {
            Value::String(text) => Some(inner).filter(|_| !text.is_empty()),
            _ => field(&["message", "detail", "error_description", "msg", "title"]),
        };
        let text = match words.or(code.filter(|code| code.is_string())) {
            Some(Value::String(text)) => quote(text),
            Some(other) => quote(&other.to_string()),
            None => String::new(),
        };
        let status = code.and_then(number).and_then(|n| StatusCode::from_u16(u16::try_from(n).ok()?).ok());
        let status = status.filter(|status| status.as_u16() >= 400);
        Self {
            window: field(&["n_ctx"]).and_then(number),
            prompt: field(&["n_prompt_tokens"]).and_then(number),
            ..Self::new(text, &value.to_string(), status)
        }
    }

    fn new(text: String, all: &str, status: Option<StatusCode>) -> Self {
        let mut end = all.len().min(LONGEST_SEARCH);
        while !all.is_char_boundary(end) {
            end -= 1;
        }
        let all = all[..end].to_lowercase();
        let words = text.to_lowercase();
        Self { text, status, wait: retry::wait_in(&all), all, words, window: None, prompt: None }
    }

    /// Returns what it means under `status`: the words correct the status, which is wrong too often.
    pub fn reason(&self, status: StatusCode) -> Reason {
        let words = self.reason_by_words();
        if let (413 | 429, Some(overflow::Sizes { window, prompt })) =
            (status.as_u16(), overflow::beyond_a_rate(&self.words))
        {
            return Reason::ContextOverflow { window, prompt };
        }
        match (status.as_u16(), words) {
            (300..=399, _) => Reason::Redirected,
            (401, _) => Reason::KeyRefused,
            (407, _) => Reason::ProxyRefused,
            (402, _) => Reason::QuotaUsedUp,
            (403, Some(reason @ (Reason::QuotaUsedUp | Reason::UnknownModel | Reason::Filtered))) => reason,
            (403, _) => Reason::KeyRefused,
            (404, Some(reason @ (Reason::UnknownModel | Reason::Unsupported(_)))) => reason,
            (404, _) if self.words.starts_with("model:") => Reason::UnknownModel,
            (404, _) => Reason::NotFound,
            (413, Some(reason @ Reason::Unsupported(Feature::Images))) => reason,
            (413, _) if overflow::is_about_a_rate(&self.all) => Reason::Busy,
            (413, _) => self.overflow(),
            (429, Some(Reason::QuotaUsedUp)) => Reason::QuotaUsedUp,
            (409 | 425 | 429 | 503 | 529, _) => Reason::Busy,
            // Some servers report their caller's mistakes as failures of their own.
            (
                500..=599,
                Some(
                    reason @ (Reason::ContextOverflow { .. } | Reason::Unsupported(_) | Reason::QuotaUsedUp),
                ),
            ) => reason,
            (408 | 500..=599, _) => Reason::Server,
            (_, words) => words.unwrap_or(Reason::Refused),
        }
    }

    /// Returns what the words alone say.
    pub fn reason_by_words(&self) -> Option<Reason> {
        // Google says "quota" of the limit per minute, too, and then how long to wait.
        if self.has_any(QUOTA) && self.wait.is_none() && !self.has_any(&["per minute", "perminute"]) {
            return Some(Reason::QuotaUsedUp);
        }
        if self.has_any(OVERFLOW) && !overflow::is_about_a_rate(&self.all) {
            return Some(self.overflow());
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
        if self.has_any(BUSY) {
            return Some(Reason::Busy);
        }
        if self.has("not_found_error") && self.words.starts_with("model:") {
            return Some(Reason::UnknownModel);
        }
        if self.has("permission_error") {
            return Some(Reason::KeyRefused);
        }
        let by_shape = || overflow::is_one(&self.words).then(|| self.overflow());
        self.refused_feature().map(Reason::Unsupported).or_else(by_shape)
    }

    fn refused_feature(&self) -> Option<Feature> {
        if self.has("invalid_encrypted_content") || self.has_any(REASONING_ITEMS) {
            return Some(Feature::Reasoning);
        }
        if self.has("maximum allowed number of output tokens") {
            return Some(Feature::MaxTokens);
        }
        if self.has_any(&["expected `thinking`", "when thinking is disabled"]) {
            return Some(Feature::Effort);
        }
        if self.has("signature") && self.has_any(&["missing", "required", "invalid", "corrupt", "not valid"])
        {
            return Some(Feature::UnsignedCalls);
        }
        if self.has_any(CALL_IDS) && self.has_any(FORMS_OF_IDS) {
            return Some(Feature::CallIds);
        }
        if self.has_any(&["image", "picture"]) && !self.has_any(&["docker", "container"]) {
            return Some(Feature::Images);
        }
        if self.has_any(SCHEMAS) && !self.has_any(&["response_format", "json_schema", "structured output"]) {
            return Some(Feature::FullSchemas);
        }
        if self.has("reasoning_content") {
            return Some(Feature::Reasoning);
        }
        if !self.has_any(OBJECTIONS) {
            return None;
        }
        FEATURES.iter().find(|(_, words)| self.has_any(words)).map(|(feature, _)| *feature)
    }

    fn has(&self, word: &str) -> bool {
        self.all.contains(word)
    }

    fn has_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.has(word))
    }

    fn overflow(&self) -> Reason {
        let after = |all: &[&str]| all.iter().find_map(|before| self.tokens_after(before));
        let window = self.window.or_else(|| after(BEFORE_THE_WINDOW));
        let prompt = self.prompt.or_else(|| after(BEFORE_THE_PROMPT));
        if window.is_some() || prompt.is_some() {
            return Reason::ContextOverflow { window, prompt };
        }
        let overflow::Sizes { window, prompt } = overflow::sizes(&self.words);
        Reason::ContextOverflow { window, prompt }
    }

    fn tokens_after(&self, before: &str) -> Option<u64> {
        let after = &self.all[self.all.find(before)? + before.len()..];
        let number: String =
            after.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
        number.parse().ok().filter(|tokens| *tokens >= 128)
    }
}

const QUOTA: &[&str] = &[
    "insufficient_quota",
    "exceeded your current quota",
    "insufficient balance",
    "insufficient credit",
    "insufficient_credit",
    "not enough credit",
    "not_enough_balance",
    "billing_hard_limit",
    "credit balance is too low",
    "billing_error",
];

/// The names that OpenAI and Anthropic have for it, also in the middle of a stream.
const BUSY: &[&str] =
    &["overloaded_error", "rate_limit_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down"];

const KEY: &[&str] = &[
    "invalid_api_key",
    "invalid api key",
    "incorrect api key",
    "api key not valid",
    "invalid authentication",
    "authentication_error",
    "token_not_found",
    "no api key",
    // LiteLLM without a database, for any key but its own.
    "no_db_connection",
];

/// OpenAI, vLLM, llama.cpp, llama-cpp-python, LiteLLM, Anthropic, Google, Mistral, Together, Groq, xAI, LM Studio, Ollama.
const OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "contextwindowexceeded",
    "context_window_exceeded",
    "context window",
    "maximum context length",
    "context length exceeded",
    "available context size",
    "context size has been exceeded",
    "exceed context limit",
    "exceeds the context",
    "exceeds model's context",
    "greater than the context length",
    "with context length of only",
    "larger than the context",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input too long",
    "too many input tokens",
    "input tokens exceed",
    "input token count",
    "maximum prompt length",
    "maximum input length",
    "max_model_len",
    "exceeds the maximum number of tokens",
    "token limit exceeded",
    "max message tokens",
    "reduce the length of the messages",
    "reduce the length of the input",
];

const BEFORE_THE_WINDOW: &[&str] = &[
    "maximum context length is ",
    "maximum context length of ",
    "maximum context length (",
    "context length is only ",
    "context length of only ",
    "context length of ",
    "available context size (",
    "context window of ",
    "context window is ",
    "context limit of ",
    "maximum prompt length is ",
    "maximum number of tokens allowed (",
    "max_model_len=",
    "tokens > ",
];

const BEFORE_THE_PROMPT: &[&str] = &[
    "your messages resulted in ",
    "prompt is too long: ",
    "you requested ",
    "input token count (",
    "error: request (",
    "\"request (",
];

/// The id of a call, and the form that it should have.
const CALL_IDS: &[&str] = &[
    "tool call id",
    "tool_call_id",
    "tool_call.id",
    "tool_use.id",
    "tool_use_id",
    "call_id",
    "call id",
    "].id",
];
const FORMS_OF_IDS: &[&str] = &[
    "length",
    "pattern",
    "too long",
    "a-z",
    "a-za-z",
    "alphanumeric",
    "characters",
    "begins with",
    "format",
];

/// The schema of a tool.
const SCHEMAS: &[&str] = &[
    "invalid schema",
    "schema for function",
    "json schema",
    "jsonschema",
    "input_schema",
    "function_declarations",
    "functiondeclaration",
    "invalid_function_parameters",
    "function.parameters",
    "function parameters",
    "parameters.properties",
    "at path 'properties",
];

/// OpenAI's words about reasoning that does not fit to what follows it, or that is not kept there.
const REASONING_ITEMS: &[&str] = &[
    "of type 'reasoning' was provided",
    "without its required 'reasoning' item",
    "item with id 'rs_",
    "encrypted content could not",
    "encrypted content for item",
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

/// Without one of these an error that names a feature is about something else.
const OBJECTIONS: &[&str] = &[
    "support",
    "not permitted",
    "not allowed",
    "not enabled",
    "not implemented",
    "not available",
    "unrecognized",
    "unexpected",
    "unknown",
    "extra inputs",
    "extra_forbidden",
    "deprecated",
    "invalid",
    "must be",
    "requires",
];

/// The words by which servers name what they do not take; the first that fits counts.
const FEATURES: &[(Feature, &[&str])] = &[
    (Feature::StreamOptions, &["stream_options", "include_usage"]),
    (Feature::MaxTokens, &["max_completion_tokens"]),
    (
        Feature::AnswerSchema,
        &[
            "response_format",
            "json_schema",
            "structured output",
            "output_config.format",
            "output_format",
            "text.format",
        ],
    ),
    (Feature::Temperature, &["temperature"]),
    (Feature::EncryptedReasoning, &["encrypted content", "encrypted_content", "'include'"]),
    (Feature::CacheKey, &["prompt_cache_key"]),
    (Feature::CacheMarks, &["cache_control"]),
    (Feature::AdaptiveThinking, &["adaptive", "output_config", "effort parameter"]),
    (Feature::Summaries, &["reasoning summar", "reasoning.summary"]),
    (
        Feature::Effort,
        &[
            "reasoning.effort",
            "reasoning_effort",
            "thinking.type",
            "thinking.budget_tokens",
            "'reasoning'",
            "thinking is not",
        ],
    ),
    (Feature::TopP, &["top_p"]),
    (
        Feature::Tools,
        &[
            "not support tool",
            "not support function",
            "not support the tools",
            "support tool use",
            "tools is not supported",
            "tools are not supported",
            "tool calling is not",
            "tool use is not",
            "function calling is not",
            "tool choice requires",
            "tools param requires",
            "unsupported: tools",
            "supplied: tools",
            "\"tools\"]",
            "'tools'",
            "`tools`",
            "body.tools",
            "tool_choice",
        ],
    ),
    (
        Feature::Streaming,
        &[
            "streaming is not",
            "streaming not",
            "streaming responses are not",
            "not support stream",
            "stream is not",
            "stream must be",
            "stream=true",
            "'stream'",
            "`stream`",
            "\"stream\"]",
            "body.stream",
        ],
    ),
    (
        Feature::SystemRole,
        &[
            "system role",
            "system message",
            "system prompt",
            "system instruction",
            "system_instruction",
            "developer instruction",
            "role system",
            "role 'system'",
            "role: system",
            "'system' role",
            "\"system\" role",
        ],
    ),
];

/// Returns whether a body is a web page.
pub fn looks_like_html(body: &str) -> bool {
    let start: String = body.trim_start().chars().take(15).collect::<String>().to_lowercase();
    ["<!doctype", "<html", "<head", "<body", "<?xml", "<center"].iter().any(|tag| start.starts_with(tag))
}

/// A web page in a few words.
fn page(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|from| {
        let to = lower[from..].find("</title>")? + from;
        page.get(from + "<title>".len()..to)
    });
    match title.map(quote) {
        Some(title) if !title.is_empty() => format!("a web page titled {title:?}"),
        _ => "a web page".to_owned(),
    }
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reason(status: u16, message: &str) -> Reason {
        ErrorBody::in_value(&json!({ "error": { "message": message } }))
            .reason(StatusCode::from_u16(status).unwrap())
    }

    /// It was sent again and again, although it never passes.
    #[test]
    fn a_request_that_is_larger_than_a_rate_allows_is_an_overflow() {
        let words = "Request too large for model `llama` on tokens per minute (TPM): Limit 12000, Requested 14032, \
                     please reduce your message size and try again.";
        let expected = Reason::ContextOverflow { window: Some(12_000), prompt: Some(14_032) };
        assert_eq!((reason(413, words), reason(429, words)), (expected, expected));
        let passes = "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.";
        assert_eq!(reason(429, passes), Reason::Busy);
        assert_eq!(
            reason(429, &passes.replace("2000", "40000")),
            Reason::Busy,
            "it is not said to be too large"
        );
    }

    #[test]
    fn reasoning_that_does_not_fit_or_cannot_be_read_is_known() {
        for (status, words) in [
            (404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
            (400, "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
            (
                400,
                "The encrypted content for item rs_1 could not be verified. Reason: it could not be decrypted.",
            ),
            (400, "Encrypted content could not be decrypted or parsed."),
        ] {
            assert_eq!(reason(status, words), Reason::Unsupported(Feature::Reasoning), "{words}");
        }
    }

    #[test]
    fn the_tokens_of_a_prompt_that_does_not_fit_are_read() {
        let llama = json!({ "error": {
            "message": "request (9994 tokens) exceeds the available context size (8192 tokens), try increasing it",
            "type": "exceed_context_size_error", "n_prompt_tokens": 9994, "n_ctx": 8192,
        } });
        let openai = json!({ "error": { "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9,994 tokens." } });
        for body in [llama, openai] {
            let reason = ErrorBody::in_value(&body).reason(StatusCode::BAD_REQUEST);
            assert_eq!(reason, Reason::ContextOverflow { window: Some(8192), prompt: Some(9994) });
        }
    }

    #[test]
    fn overflows_of_many_servers() {
        for (message, window) in [
            (
                "This model's maximum context length is 128,000 tokens. However, your messages resulted in 130000 tokens.",
                Some(128_000),
            ),
            ("prompt is too long: 215000 tokens > 200000 maximum", Some(200_000)),
            ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", None),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                Some(1_048_576),
            ),
            (
                "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
                Some(4096),
            ),
            (
                "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
                Some(131_072),
            ),
            ("Please reduce the length of the messages or completion.", None),
        ] {
            let Reason::ContextOverflow { window: named, .. } = reason(400, message) else {
                panic!("{message}")
            };
            assert_eq!(named, window, "{message}");
        }
        assert_eq!(reason(429, "Rate limit reached: 30000 tokens per minute, context window"), Reason::Busy);
    }

    #[test]
    fn quotas_and_rate_limits_are_told_apart() {
        assert_eq!(
            reason(429, "You exceeded your current quota, please check your plan"),
            Reason::QuotaUsedUp
        );
        assert_eq!(reason(429, "You exceeded your current quota. Please retry in 34.07s."), Reason::Busy);
        assert_eq!(reason(400, "Insufficient Balance"), Reason::QuotaUsedUp);
    }

    #[test]
    fn other_errors_stay_what_they_are() {
        for message in [
            "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
            "messages must alternate between user and assistant",
            "Invalid value for content",
        ] {
            assert_eq!(reason(400, message), Reason::Refused, "{message}");
        }
    }

    /// Each of these ended the run.
    #[test]
    fn what_an_endpoint_refuses_about_ids_signatures_images_and_schemas_is_named() {
        for (message, feature) in [
            ("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", Feature::CallIds),
            (
                "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
                Feature::CallIds,
            ),
            (
                "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a \
                 string with length 50 instead.",
                Feature::CallIds,
            ),
            ("Function call is missing a thought_signature in functionCall parts.", Feature::UnsignedCalls),
            ("Corrupted thought signature.", Feature::UnsignedCalls),
            ("At least one of the image dimensions exceed max allowed size: 8000 pixels", Feature::Images),
            ("image exceeds 5 MB maximum: 5500000 bytes > 5242880 bytes", Feature::Images),
            ("unknown variant `image_url`, expected `text`", Feature::Images),
            ("Invalid schema for function 'run_commands'", Feature::FullSchemas),
            (
                "Invalid JSON payload received. Unknown name \"$schema\" at 'tools[0].function_declarations[0].parameters'",
                Feature::FullSchemas,
            ),
            ("At path 'properties.X': type is not defined", Feature::FullSchemas),
        ] {
            assert_eq!(reason(400, message), Reason::Unsupported(feature), "{message}");
        }
        let unanswered = "The following tool_call_ids did not have response messages: call_1";
        assert_eq!(reason(400, unanswered), Reason::Refused);
    }

    /// They have their own words for it, and the run ended.
    #[test]
    fn overflows_are_recognised_by_the_shape_of_what_is_said() {
        let overflow = |window, prompt| Reason::ContextOverflow { window, prompt };
        let said = "Your request exceeded model token limit: 131072 (requested: 140000)";
        assert_eq!(reason(400, said), overflow(Some(131_072), Some(140_000)));
        let said = "`inputs` tokens + `max_new_tokens` must be <= 32769. Given: 33000";
        assert_eq!(reason(422, said), overflow(Some(32_769), Some(33_000)));
        assert_eq!(reason(413, "Prompt exceeds max length"), overflow(None, None));
        assert_eq!(reason(500, "Prompt exceeds max length"), overflow(None, None));
    }

    #[test]
    fn limits_on_tokens_per_minute_are_not_overflows() {
        let said = "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000";
        for status in [413, 429] {
            assert_eq!(reason(status, said), Reason::Busy, "{status}");
        }
        assert_eq!(reason(400, said), Reason::Refused);
    }

    #[test]
    fn web_pages_are_named_by_their_title() {
        assert_eq!(
            ErrorBody::in_body("<!DOCTYPE html><title>Bad gateway</title>").text,
            "a web page titled \"Bad gateway\""
        );
        assert_eq!(ErrorBody::in_body("<html></html>").text, "a web page");
    }
}
