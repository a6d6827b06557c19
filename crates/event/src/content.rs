//! The parts of a tool's result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of a tool's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Where its bytes are.
        #[serde(flatten)]
        artifact: Artifact,
    },
    /// A file.
    Artifact {
        /// Where its bytes are.
        #[serde(flatten)]
        artifact: Artifact,
    },
}

/// A file that is stored beside the session file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// A short id: the beginning of the hash.
    pub id: String,
    /// The file name.
    pub name: String,
    /// The media type.
    pub media_type: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The SHA-256 of the bytes in hex: the name of the file in the session's `artifacts/`.
    pub sha256: String,
}
