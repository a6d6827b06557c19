//! What an endpoint wants back exactly as it came.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Fields of a message that mean something to the model that made them alone, such as signatures and encrypted reasoning: they go
/// back to it as they came, and to no other model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Opaque {
    /// The model that they came from.
    #[serde(default)]
    pub model: String,
    /// Fields of the message itself.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub message: Map<String, Value>,
    /// Further fields of its calls, by their ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, Map<String, Value>>,
}

impl Opaque {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.message.is_empty() && self.calls.is_empty()
    }

    /// Those that `model` made.
    pub fn of(&self, model: &str) -> Option<&Self> {
        Some(self).filter(|opaque| !opaque.is_empty() && opaque.model == model)
    }
}
