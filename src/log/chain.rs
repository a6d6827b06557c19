//! The chain of hashes: each line names the line before it.

use sha2::{Digest, Sha256};
use std::fmt;

/// The SHA-256 of a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// What the first line names as the one before it.
    pub const ZERO: Hash = Hash([0; 32]);

    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads 64 lower-case hex digits.
    pub fn parse(hex: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, []) = hex.as_chunks::<2>() else { return None };
        let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
        bytes.collect::<Option<Vec<u8>>>()?.try_into().ok().map(Self)
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

/// The hash that a line names, where it has one in its place.
pub(super) fn prev_of(line: &[u8]) -> Option<Hash> {
    let rest = line.strip_suffix(END)?;
    let (rest, hex) = rest.split_at_checked(rest.len().checked_sub(64)?)?;
    rest.ends_with(PREV).then(|| Hash::parse(hex)).flatten()
}
