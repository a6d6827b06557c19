//! The protocols in which endpoints are asked.

use crate::endpoint::joined;
use serde::{Deserialize, Serialize};

/// How requests and answers are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// OpenAI's chat completions, which nearly every endpoint has.
    #[default]
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    /// The name, as `protocol` in `config.toml` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// The address that requests go to.
    pub fn address(self, base_url: &str) -> String {
        let path = match self {
            Self::Chat => "/chat/completions",
            Self::Responses => "/responses",
            Self::Messages if ends_in_version(base_url) => "/messages",
            // Anthropic's own clients are given an address without it.
            Self::Messages => "/v1/messages",
        };
        joined(base_url, path)
    }
}

/// Returns whether the path of an address ends in `/v1`, or in another number.
fn ends_in_version(base_url: &str) -> bool {
    let path = base_url.split('?').next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    last.strip_prefix('v').is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_where_the_protocol_has_them() {
        for (protocol, base_url, address) in [
            (Protocol::Chat, "https://a.b/v1", "https://a.b/v1/chat/completions"),
            (Protocol::Responses, "https://a.b/openai/v1?x=1", "https://a.b/openai/v1/responses?x=1"),
            (Protocol::Messages, "https://a.b/v1", "https://a.b/v1/messages"),
            (Protocol::Messages, "https://a.b/anthropic", "https://a.b/anthropic/v1/messages"),
        ] {
            assert_eq!(protocol.address(base_url), address);
        }
    }
}
