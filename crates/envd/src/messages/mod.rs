//! The messages of envd's services, with the field numbers of its protocol definition.
//!
//! Both encodings come from one definition: protobuf from `prost`'s attributes, its JSON mapping from `serde`'s.

pub mod filesystem;
mod json;
pub mod process;

use serde::{Deserialize, Serialize};

/// A message without fields.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
pub struct Empty {}
