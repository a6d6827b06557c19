//! Logins in URLs, which are passwords or tokens.

use memchr::memmem;

/// The text with every `scheme://user:password@` and `scheme://token@` shortened to `scheme://`; ssh logins stay
/// (they are names, not secrets). `None` where there is nothing to take out.
pub fn without_userinfo(text: &[u8]) -> Option<Vec<u8>> {
    without_userinfo_until(text, ends_host)
}

/// Returns whether a byte ends a URL's host in a text.
pub(crate) fn ends_host(byte: u8) -> bool {
    matches!(byte, b'/' | b'"' | b'\'' | b']' | b' ' | b'\t' | b'\r' | b'\n')
}

/// The same, where a URL's host ends with one of these bytes.
pub(crate) fn without_userinfo_until(text: &[u8], is_end: fn(u8) -> bool) -> Option<Vec<u8>> {
    let mut rest = text;
    let mut out = Vec::new();
    let mut changed = false;
    while let Some(at) = memmem::find(rest, b"://") {
        let (before, after) = rest.split_at(at + 3);
        let end = after.iter().position(|byte| is_end(*byte)).unwrap_or(after.len());
        let userinfo = after[..end].iter().rposition(|&b| b == b'@');
        out.extend_from_slice(before);
        rest = match userinfo {
            Some(at) if !before.ends_with(b"ssh://") || after[..at].contains(&b':') => {
                changed = true;
                &after[at + 1..]
            }
            _ => after,
        };
    }
    out.extend_from_slice(rest);
    changed.then_some(out)
}
