//! How full the model's context window is: the server's own counts, and an estimate of what they do not cover.

use agent_model::{Message, Messages};

/// A rough average over code and English, until the server's counts show what it is in this conversation.
const CHARS_PER_TOKEN: f64 = 4.0;
/// Tokens that a message takes beside its text.
const TOKENS_PER_MESSAGE: f64 = 8.0;
/// Estimated tokens from which on the server's count corrects the estimate: less says little.
const MIN_SAMPLE: f64 = 300.0;
/// The correction stays within these bounds, whatever a server reports.
const MIN_SCALE: f64 = 0.4;
const MAX_SCALE: f64 = 4.0;

/// The context window, and how full it is.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Tokens that fit, where that is known.
    pub size: Option<u64>,
    /// Set if anything is compacted at all.
    pub enabled: bool,
    /// Tokens that the server counted for the first `counted` messages.
    tokens: u64,
    counted: usize,
    /// Tokens of the system prompt and the tools, from a count with little else.
    overhead: Option<f64>,
    /// Tokens as the server counts them for each estimated one.
    scale: f64,
}

impl Default for Window {
    fn default() -> Self {
        Self { size: None, enabled: false, tokens: 0, counted: 0, overhead: None, scale: 1.0 }
    }
}

impl Window {
    /// A window of `size` tokens.
    pub fn new(size: Option<u64>, enabled: bool) -> Self {
        Self { size, enabled, ..Self::default() }
    }

    /// Records the server's count for a request with these messages.
    pub fn count(&mut self, tokens: u64, messages: &Messages) {
        if tokens == 0 {
            return;
        }
        (self.tokens, self.counted) = (tokens, messages.len());
        let Some(system) = messages.first() else { return };
        let estimated = rough_after_first(messages);
        if estimated < MIN_SAMPLE {
            self.overhead = Some((tokens as f64 - estimated).max(0.0));
        } else {
            let overhead = self.overhead.unwrap_or_else(|| rough(system));
            self.scale = ((tokens as f64 - overhead) / estimated).clamp(MIN_SCALE, MAX_SCALE);
        }
    }

    /// Tokens of the conversation: what was counted, and an estimate of what was added since.
    pub(super) fn used(&self, messages: &[Message]) -> u64 {
        self.tokens.saturating_add(self.estimate(messages.get(self.counted..).unwrap_or_default()))
    }

    /// Tokens of a conversation that was changed.
    pub(super) fn recount(&mut self, messages: &Messages) -> u64 {
        let Some(system) = messages.first() else { return 0 };
        let overhead = self.overhead.unwrap_or_else(|| rough(system));
        (self.tokens, self.counted) =
            ((overhead as u64).saturating_add(self.scaled(rough_after_first(messages))), messages.len());
        self.tokens
    }

    /// About how many tokens these messages take.
    pub(super) fn estimate<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) -> u64 {
        self.scaled(messages.into_iter().map(rough).sum())
    }

    /// About how many tokens so many bytes are that are not part of a message.
    pub(super) fn tokens_of(&self, bytes: usize) -> u64 {
        (of_bytes(bytes, 0) * self.scale) as u64
    }

    fn scaled(&self, rough: f64) -> u64 {
        (rough * self.scale) as u64
    }

    /// About how many characters so many tokens are.
    pub(super) fn chars(&self, tokens: u64) -> u64 {
        (tokens as f64 * CHARS_PER_TOKEN / self.scale) as u64
    }
}

/// A rough number of tokens.
fn rough(message: &Message) -> f64 {
    of_bytes(message.bytes(), 1)
}

/// A rough number of tokens of all messages but the first one.
fn rough_after_first(messages: &Messages) -> f64 {
    of_bytes(messages.bytes_after_first(), messages.len().saturating_sub(1))
}

fn of_bytes(bytes: usize, messages: usize) -> f64 {
    bytes as f64 / CHARS_PER_TOKEN + messages as f64 * TOKENS_PER_MESSAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(chars: usize) -> Messages {
        let text = |chars| "x".repeat(chars);
        Messages::from(vec![
            Message::System { text: text(2_000) },
            Message::User { text: text(100) },
            Message::User { text: text(chars) },
        ])
    }

    #[test]
    fn the_estimate_follows_the_counts_of_the_server() {
        // Two characters a token and 1,000 tokens of tools, as the server counts.
        let server = |messages: &[Message]| {
            let chars: f64 = messages.iter().map(|message| (rough(message) - 8.0) * 4.0).sum();
            1_000 + (chars / 2.0) as u64
        };
        let mut window = Window::new(Some(8_192), true);
        let long = conversation(8_000);
        let short = Messages::from(long[..2].to_vec());
        window.count(server(&short), &short);
        window.count(server(&long), &long);
        assert_eq!(window.used(&long), server(&long));
        let other = conversation(4_000);
        let (estimated, counted) = (window.recount(&other), server(&other));
        assert!(estimated.abs_diff(counted) < counted / 20, "{estimated}, not {counted}");
    }

    #[test]
    fn counts_that_cannot_be_right_do_no_harm() {
        let mut window = Window::new(None, true);
        let messages = conversation(8_000);
        for tokens in [0, u64::MAX, 1, u64::MAX / 2] {
            window.count(tokens, &messages);
            assert!((MIN_SCALE..=MAX_SCALE).contains(&window.scale), "{window:?}");
        }
    }
}
