//! The chain of hashes: each line names the line before it.

use agent_base::hash::Hash;

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
