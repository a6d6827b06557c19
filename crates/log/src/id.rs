//! Session ids: short, sortable by time, and safe as a file name and in a container's name.

use agent_base::error::{Error, Result};
use std::fmt;

/// The id of a session, `20261120-153012-k3f9`: when it was created in UTC, and four random characters.
///
/// Any id consists of 1 to 64 characters `[a-z0-9-]` and does not begin with `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct SessionId(String);

impl SessionId {
    /// A new id. Two of the same second collide with a probability of 1 in 1.6 million, which creating the directory
    /// detects.
    pub fn generate() -> Self {
        let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
        let alphabet = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let random: String =
            (0..4).map(|_| char::from(alphabet[fastrand::usize(..alphabet.len())])).collect();
        Self(format!("{time}-{random}"))
    }

    /// Checks an id, or the beginning of one.
    pub fn parse(text: &str) -> Result<Self> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if text.is_empty() || text.len() > 64 || text.starts_with('-') || !text.bytes().all(allowed) {
            let shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
            return Err(Error::usage(format!("\"{shown}\" is not a session id"))
                .hint("ids look like 20261120-153012-k3f9: see `agent sessions list`"));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
