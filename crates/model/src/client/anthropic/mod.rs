//! Anthropic's Messages: <https://docs.claude.com/en/api/messages>.

mod read;
mod write;

pub use read::MessagesReader;
pub use write::{fields, system, written, written_tools};

/// The version of the protocol that is spoken.
pub const VERSION: &str = "2023-06-01";

/// The prefix of a key that is a token of an account: it is sent as a bearer token.
pub const TOKEN_PREFIX: &str = "sk-ant-oat";
