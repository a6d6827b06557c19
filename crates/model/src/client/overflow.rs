//! Recognises a conversation that does not fit by the shape of what is said: something of the prompt is larger than it may be.
//! Servers have too many wordings to list them.

/// Words for a thing that does not fit.
const SUBJECTS: &[&str] = &[
    "prompt",
    "input",
    "context",
    "request",
    "message",
    "conversation",
    "sequence",
    "seq_len",
    "total number of tokens",
];
/// Words for what it is measured in.
const MEASURES: &[&str] = &["token", "length", "context", "window", "seq_len", "too long", "too large"];
/// Words that say by themselves that it is too much, and words that need a number beside them.
const TOO_MUCH: &[&str] = &[
    "exceed",
    "too long",
    "too large",
    "too many",
    "longer than",
    "larger than",
    "more than",
    "greater than the",
    "over the",
    "beyond the",
    "overflow",
    "does not fit",
    "doesn't fit",
    "above the",
];
const BOUNDS: &[&str] = &[
    "must be less",
    "must be at most",
    "must be <",
    "should be less",
    "should be at most",
    "should be in",
    "should be [",
    "must be in",
    "must be between",
    "should be between",
    "must not be more",
    "cannot be more",
    "can be at most",
];
/// Words that make it something else: a rate, the length of the answer, or one of the request's other fields.
const RATES: &[&str] = &[
    "per minute",
    "perminute",
    "per hour",
    "per day",
    "perday",
    "per second",
    "rate limit",
    "rate_limit",
    "ratelimit",
    "(tpm)",
    "(rpm)",
    "(tpd)",
    "tpm limit",
    "rpm limit",
    "throttl",
    "too many requests",
    "too many concurrent",
    "quota",
];
const OTHER_FIELDS: &[&str] = &[
    "string too long",
    "string_above",
    "array_above",
    "array too long",
    "tool",
    "function",
    "image",
    "picture",
    "pixel",
    "schema",
    "temperature",
    "top_p",
    "top_k",
    "budget",
    "stop sequence",
    "authent",
    "api key",
    "metadata",
    "user name",
];
const ANSWER: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "completion token",
    "output token",
];
const PROMPT: &[&str] =
    &["prompt", "inputs", "input length", "input token", "context", "messages", "conversation"];
/// Words in front of the number that is the bound.
const BEFORE_A_BOUND: &[&str] = &[
    "limit",
    "max",
    "exceed",
    "less than",
    "<=",
    "at most",
    "up to",
    "should be",
    "must be",
    "cannot",
    "window",
    "range",
];
/// The greatest distance at which they stand in front of a number, in bytes.
const NEAR: usize = 60;
/// The same behind a word.
const NEAR_AFTER: usize = 4;
/// Smaller numbers are not windows: positions, codes, counts of messages.
const SMALLEST: u64 = 512;

/// The sizes that a text names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    pub window: Option<u64>,
    pub prompt: Option<u64>,
}

/// Returns whether a text (in lower case) is about a rate.
pub fn is_about_a_rate(words: &str) -> bool {
    has_any(words, RATES)
}

/// Returns whether a text (in lower case) says that the conversation does not fit.
pub fn is_one(words: &str) -> bool {
    let is_about_the_answer = has_any(words, ANSWER) && !has_any(words, PROMPT);
    let is_other = is_about_a_rate(words) || has_any(words, OTHER_FIELDS) || is_about_the_answer;
    if is_other || !has_any(words, SUBJECTS) || !has_any(words, MEASURES) {
        return false;
    }
    has_any(words, TOO_MUCH) || has_any(words, BOUNDS) && numbers(words).next().is_some()
}

/// The sizes in a text (in lower case) about a request that alone is larger than the tokens of a whole minute: it never passes, and a
/// smaller one does.
pub fn beyond_a_rate(words: &str) -> Option<Sizes> {
    let after = |word: &str| {
        let at = words.find(word)? + word.len();
        numbers(&words[at..]).next().filter(|(from, _)| *from <= NEAR_AFTER).map(|(_, number)| number)
    };
    let (limit, requested) = (after("limit ")?, after("requested ")?);
    let is_said = has_any(words, &["must be reduced", "reduce your message", "reduce the message"]);
    let is_larger = is_about_a_rate(words) && is_said && requested > limit;
    is_larger.then_some(Sizes { window: Some(limit), prompt: Some(requested) })
}

/// The window and the prompt in such a text: of two numbers the larger one is what does not fit.
pub fn sizes(words: &str) -> Sizes {
    let found: Vec<(usize, u64)> = numbers(words).take(4).collect();
    match found[..] {
        [(at, number)] => {
            let mut from = at.saturating_sub(NEAR);
            while !words.is_char_boundary(from) {
                from += 1;
            }
            match has_any(&words[from..at], BEFORE_A_BOUND) {
                true => Sizes { window: Some(number), prompt: None },
                false => Sizes { window: None, prompt: Some(number) },
            }
        }
        [(_, one), (_, two)] if one != two => {
            Sizes { window: Some(one.min(two)), prompt: Some(one.max(two)) }
        }
        _ => Sizes::default(),
    }
}

/// The numbers that may be sizes, and where they are. Those within a name, as in `gpt-4-0613`, are not among them.
fn numbers(words: &str) -> impl Iterator<Item = (usize, u64)> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, ',' | '_');
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at + words.get(at..)?.find(|c: char| c.is_ascii_digit())?;
            let rest = &words[start..];
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            at = start + end;
            let before = words[..start].chars().next_back();
            let is_in_a_name = before
                .is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))
                || words[at..].starts_with(|c: char| c.is_alphabetic());
            let digits: String = rest[..end].chars().filter(char::is_ascii_digit).collect();
            match digits.parse() {
                Ok(number) if number >= SMALLEST && !is_in_a_name => return Some((start, number)),
                _ => {}
            }
        }
    })
}

fn has_any(words: &str, list: &[&str]) -> bool {
    list.iter().any(|word| words.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflows_in_any_words_are_recognised_and_their_sizes_read() {
        for (said, window, prompt) in [
            (
                "Your request exceeded model token limit: 131072 (requested: 140000)",
                Some(131_072),
                Some(140_000),
            ),
            ("Range of input length should be [1, 129024]", Some(129_024), None),
            ("Prompt exceeds max length", None, None),
            ("tokens in request more than max tokens allowed", None, None),
            (
                "The input (140000 tokens) is longer than the model's context length (131072 tokens).",
                Some(131_072),
                Some(140_000),
            ),
            ("`inputs` tokens + `max_new_tokens` must be <= 32769. Given: 33000", Some(32_769), Some(33_000)),
            ("prompt token count of 140000 exceeds the limit of 128000", Some(128_000), Some(140_000)),
            (
                "length of prompt_tokens (100000) must be less than max_seq_len (98304).",
                Some(98_304),
                Some(100_000),
            ),
            (
                "too many tokens: total number of tokens in the prompt cannot exceed 128000",
                Some(128_000),
                None,
            ),
            (
                "Input length 265330 exceeds the maximum allowed input length of 262144 tokens.",
                Some(262_144),
                Some(265_330),
            ),
            (
                "Requested token count exceeds the model's maximum context: 40,000 > 32,768",
                Some(32_768),
                Some(40_000),
            ),
            ("This conversation has 140000 tokens, which is too long", None, Some(140_000)),
            (
                "input is too large to process: 9000 tokens, increase the physical batch size (512)",
                Some(512),
                Some(9000),
            ),
        ] {
            let words = said.to_lowercase();
            assert!(is_one(&words), "{said}");
            assert_eq!(sizes(&words), Sizes { window, prompt }, "{said}");
        }
    }

    #[test]
    fn rates_answers_and_other_fields_are_not_overflows() {
        for said in [
            "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000",
            "Rate limit reached: the tokens in your requests exceed the limit of 30000 TPM",
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
            "Input should be less than or equal to 2",
            "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string \
             with length 50 instead.",
            "messages must alternate between user and assistant",
            "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
            "image exceeds 5 MB maximum: 5500000 bytes > 5242880 bytes",
            "`thinking.budget_tokens` must be less than `max_tokens`: 32000",
            "Incorrect API key provided: too long a token",
            "temperature: input should be less than or equal to 1000",
        ] {
            assert!(!is_one(&said.to_lowercase()), "{said}");
        }
    }

    #[test]
    fn numbers_in_names_are_not_sizes() {
        let words = "model qwen2.5-32768 (gpt-4-0613): prompt exceeds the limit of 8,192 tokens, error 400";
        assert_eq!(numbers(words).map(|(_, number)| number).collect::<Vec<_>>(), [8192]);
    }
}
