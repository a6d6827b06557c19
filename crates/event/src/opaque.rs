//! Values that an endpoint wants back exactly as they came.

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
    /// The base URL of the endpoint that they came from; empty in the files of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Fields of the message itself.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub message: Map<String, Value>,
    /// Further fields of its calls, by their ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, Map<String, Value>>,
}

impl Opaque {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.message.is_empty() && self.calls.is_empty()
    }

    /// Those that `model` made at the endpoint with this base URL.
    pub fn of(&self, model: &str, endpoint: &str) -> Option<&Self> {
        let is_there = self.endpoint.is_empty() || self.endpoint == endpoint;
        Some(self).filter(|opaque| !opaque.is_empty() && opaque.model == model && is_there)
    }
}
