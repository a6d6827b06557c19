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

/// A change of one file by a call, to be seen at once; what is applied is shown by the review alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEdit {
    /// The file, relative to the workspace if it is in it.
    pub path: String,
    /// Set if there was no file before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_new: bool,
    /// Number of lines added.
    pub added: u64,
    /// Number of lines removed.
    pub removed: u64,
    /// The beginning of the unified diff, without the lines that name the file; empty for what is not text.
    pub diff: String,
    /// Number of lines that `diff` lacks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
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
