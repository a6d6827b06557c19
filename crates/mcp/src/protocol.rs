//! The protocol's versions, methods, errors and types, as far as they are used here.
//!
//! There are two eras. Since [`MODERN`] each request stands alone and says in its `_meta` which version it speaks; before, a
//! connection begins with `initialize`. Programs of both are in use.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The version without a handshake.
pub const MODERN: &str = "2026-07-28";
/// The versions that begin with `initialize`, the newest first.
pub const WITH_INITIALIZE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The era of the protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// Each request stands alone.
    Modern,
    /// After `initialize`.
    Initialize,
}

/// The error for headers that contradict the message.
pub const HEADER_MISMATCH: i64 = -32020;
/// The error for a request that needs a capability of the client's.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The error for a version that the server does not speak; its data has `supported`.
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// Members of `_meta`.
pub mod meta {
    /// The version of a request.
    pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The abilities of the client.
    pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The name and the version of the client.
    pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
    /// The name and the version of the server.
    pub const SERVER: &str = "io.modelcontextprotocol/serverInfo";
    /// Names a request in notifications of its progress.
    pub const PROGRESS_TOKEN: &str = "progressToken";
}

/// Returns what this program calls itself.
pub fn implementation() -> Value {
    json!({ "name": "agent", "version": env!("CARGO_PKG_VERSION") })
}

/// A tool, as a server lists it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDescription {
    /// The name by which it is called.
    pub name: String,
    /// A name to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    #[serde(default)]
    pub input_schema: Value,
    /// The JSON Schema of its structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The server's statement about its effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
}

/// Hints about a tool's effects: they are the server's words, and nothing safe can depend on them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// Set if what it changes may be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Calling it twice is the same as once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It has to do with the world outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// A part of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// Base64.
        data: String,
        /// The type that it claims to have.
        mime_type: String,
    },
    /// Sound.
    #[serde(rename_all = "camelCase")]
    Audio {
        /// Base64.
        data: String,
        /// The type that it claims to have.
        mime_type: String,
    },
    /// A link to a resource.
    #[serde(rename_all = "camelCase")]
    ResourceLink {
        /// Its address.
        uri: String,
        /// Its name.
        #[serde(default)]
        name: String,
        /// Its description.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// A resource itself.
    Resource {
        /// Its content.
        resource: ResourceContents,
    },
    /// Something newer.
    #[serde(other)]
    Other,
}

/// The content of a resource: `text`, or `blob` in Base64.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    /// Its address.
    pub uri: String,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// A prompt, as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptDescription {
    /// The name by which it is asked for.
    pub name: String,
    /// A name to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its arguments, all of them text.
    #[serde(default)]
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// Its meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Set if the prompt cannot do without it.
    #[serde(default)]
    pub required: bool,
}

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PromptMessage {
    /// `user` or `assistant`.
    pub role: String,
    /// Its content.
    pub content: Block,
}

/// The result of `tools/call`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallToolResult {
    /// Its parts.
    #[serde(default)]
    pub content: Vec<Block>,
    /// The same as data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Set if the tool failed.
    #[serde(default)]
    pub is_error: bool,
    /// `complete` or `input_required`; the earlier era has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<String>,
}

/// The parameters of a request of the modern era: `params` with the `_meta` that it needs.
pub fn modern_params(params: Value) -> Value {
    let mut object = match params {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    let meta = object.entry("_meta").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        meta.insert(meta::VERSION.to_owned(), MODERN.into());
        meta.insert(meta::CAPABILITIES.to_owned(), json!({}));
        meta.insert(meta::CLIENT.to_owned(), implementation());
    }
    Value::Object(object)
}

/// The parameters of `initialize`.
pub fn initialize_params() -> Value {
    json!({ "protocolVersion": WITH_INITIALIZE[0], "capabilities": { "roots": {} }, "clientInfo": implementation() })
}
