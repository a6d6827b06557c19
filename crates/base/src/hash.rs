//! SHA-256, and how it is written: 64 lower-case hexadecimal digits.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest, Sha256};
use std::fmt;

/// The SHA-256 of a file's content, of a line of a session file, of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, std::hash::Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The hash of nothing that is known: what stands before a session file's first line, and the content of a host's file that had
    /// changed before it was read. Equals no content.
    pub const UNKNOWN: Hash = Hash([0; 32]);

    /// The hash of `content`.
    pub fn of(content: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let mut hash = [0; 32];
        let is_canonical = !digits.iter().any(u8::is_ascii_uppercase);
        (is_canonical && hex::decode_to_slice(digits, &mut hash).is_ok()).then_some(Self(hash))
    }

    /// The digits of its first `bytes` bytes: a short name.
    pub fn short(&self, bytes: usize) -> String {
        hex::encode(&self.0[..bytes])
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(deserializer)?;
        Self::parse(digits.as_bytes()).ok_or_else(|| D::Error::custom("a hash is not 64 hexadecimal digits"))
    }
}
