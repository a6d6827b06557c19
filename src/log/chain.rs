//! The chain of hashes: each line names the line before it.

use sha2::{Digest, Sha256};
use std::fmt;

/// The SHA-256 of a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The `prev` of the first line.
    pub const ZERO: Hash = Hash([0; 32]);

    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads 64 lower-case hex digits.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let mut hash = [0; 32];
        let is_canonical = !digits.iter().any(u8::is_ascii_uppercase);
        (is_canonical && hex::decode_to_slice(digits, &mut hash).is_ok()).then_some(Self(hash))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const PREV: &[u8] = b",\"prev\":\"";
const END: &[u8] = b"\"}";

/// The line (without `\n`) of the event with the JSON object `json` after the line with hash `prev`.
pub(super) fn seal(json: &[u8], prev: Hash) -> Vec<u8> {
    let fields = json.strip_suffix(b"}").unwrap_or(json);
    [fields, PREV, prev.to_string().as_bytes(), END].concat()
}

/// The `prev` of a line, if it has one in the right place.
pub(super) fn prev_of(line: &[u8]) -> Option<Hash> {
    let rest = line.strip_suffix(END)?;
    let (rest, hex) = rest.split_at_checked(rest.len().checked_sub(64)?)?;
    rest.ends_with(PREV).then(|| Hash::parse(hex)).flatten()
}
