//! How tools are offered to a model and how it writes its calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How tools are offered to a model and how it writes its calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallForm {
    /// The endpoint's own tool calls.
    #[default]
    Native,
    /// Tools are described in the system prompt; calls and results are text.
    Text,
    /// For small models: one JSON object a turn, few tools, a short prompt.
    Compact,
}

impl fmt::Display for CallForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Text => "text",
            Self::Compact => "compact",
        })
    }
}
