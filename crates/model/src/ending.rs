//! How an answer ended, from the words that servers have for it.

/// The kind of an answer's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The model was done, or wants its calls run.
    Finished,
    /// The tokens of one answer were used up.
    CutOff,
    /// The context window was full in the middle of the answer.
    WindowFull,
    /// A filter stopped it.
    Filtered,
    /// The server gave up.
    Failed,
    /// A word that says nothing here: the answer may be whole or not.
    Unknown,
}

/// The words of OpenAI, Anthropic, Google, Mistral, Cohere, Bedrock, TGI, SGLang and gateways in front of them.
const ENDINGS: [(Ending, &[&str]); 5] = [
    (
        Ending::Finished,
        &[
            "",
            "stop",
            "stopped",
            "tool_calls",
            "tool_call",
            "tool_use",
            "function_call",
            "end",
            "end_turn",
            "end_of_turn",
            "eos",
            "eos_token",
            "eos_found",
            "stop_sequence",
            "stop_string",
            "stop_token",
            "complete",
            "completed",
            "finished",
            "done",
            "success",
        ],
    ),
    (
        Ending::CutOff,
        &[
            "length",
            "max_length",
            "model_length",
            "max_tokens",
            "max_output_tokens",
            "max_completion_tokens",
            "token_limit",
        ],
    ),
    (
        Ending::WindowFull,
        &[
            "model_context_window_exceeded",
            "context_window_exceeded",
            "context_length_exceeded",
            "context_length",
        ],
    ),
    (
        Ending::Filtered,
        &[
            "content_filter",
            "content_filtered",
            "safety",
            "recitation",
            "blocklist",
            "prohibited_content",
            "spii",
            "sensitive",
            "guardrail_intervened",
            "refusal",
        ],
    ),
    (
        Ending::Failed,
        &[
            "error",
            "failed",
            "network_error",
            "server_error",
            "internal_error",
            "insufficient_system_resource",
            "abort",
            "aborted",
            "cancelled",
            "canceled",
            "timeout",
            "overloaded",
            "malformed_function_call",
            "unexpected_tool_call",
        ],
    ),
];

impl Ending {
    /// The meaning of a server's word, in any spelling of it.
    pub fn of(word: &str) -> Self {
        let word = word.trim().to_ascii_lowercase().replace(['-', ' '], "_");
        let word = word.strip_prefix("finish_reason_").unwrap_or(&word);
        ENDINGS.iter().find(|(_, words)| words.contains(&word)).map_or(Self::Unknown, |(ending, _)| *ending)
    }
}

/// The words for an answer whose calls are to be run.
const WANTS_CALLS: [&str; 4] = ["tool_calls", "tool_call", "tool_use", "function_call"];

/// Returns whether a server's word says that the answer's calls are to be run.
pub fn wants_calls(word: &str) -> bool {
    WANTS_CALLS.iter().any(|known| known.eq_ignore_ascii_case(word.trim()))
}

/// Of the word in the protocol and the one of the server behind a gateway, the one that says more: a gateway may call anything
/// a stop.
pub fn telling(word: Option<String>, native: Option<String>) -> Option<String> {
    let is_bad = |word: &str| !matches!(Ending::of(word), Ending::Finished | Ending::Unknown);
    let word = word.filter(|word| !word.is_empty());
    let native = native.filter(|native| !native.is_empty());
    match word {
        Some(word) if Ending::of(&word) == Ending::Finished => {
            Some(native.filter(|n| is_bad(n)).unwrap_or(word))
        }
        Some(word) => Some(word),
        None => native,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_many_servers_are_known_and_others_are_not_taken_for_an_end() {
        for (word, ending) in [
            ("stop", Ending::Finished),
            ("STOP", Ending::Finished),
            ("FINISH_REASON_STOP", Ending::Finished),
            ("end-turn", Ending::Finished),
            ("function_call", Ending::Finished),
            ("MAX_TOKENS", Ending::CutOff),
            ("model_length", Ending::CutOff),
            ("model_context_window_exceeded", Ending::WindowFull),
            ("SAFETY", Ending::Filtered),
            ("network_error", Ending::Failed),
            ("MALFORMED_FUNCTION_CALL", Ending::Failed),
            ("pause_turn", Ending::Unknown),
            ("OTHER", Ending::Unknown),
        ] {
            assert_eq!(Ending::of(word), ending, "{word}");
        }
    }

    #[test]
    fn the_word_behind_a_gateway_counts_where_it_says_that_something_went_wrong() {
        let said =
            |word: &str, native: &str| telling(Some(word.to_owned()), Some(native.to_owned())).unwrap();
        assert_eq!(said("stop", "MALFORMED_FUNCTION_CALL"), "MALFORMED_FUNCTION_CALL");
        assert_eq!(said("stop", "completed"), "stop");
        assert_eq!(said("stop", "whatever"), "stop");
        assert_eq!(said("length", "stop"), "length");
        assert_eq!(said("", "end_turn"), "end_turn");
        assert_eq!(telling(None, None), None);
    }
}
