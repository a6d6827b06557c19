//! A path in all the ways in which servers read it.

use percent_encoding::percent_decode_str;

/// The number of readings that a path may have: itself, and what it becomes each time it is decoded.
const MAX_READINGS: usize = 4;

/// A path, and what it becomes each time it is decoded.
///
/// # Errors
/// A reading would lead somewhere else than it seems to: the reason.
pub(super) fn readings(path: &str) -> Result<Vec<String>, String> {
    if !path.starts_with('/') {
        return Err("the target is not a path".to_owned());
    }
    if !is_well_encoded(path) {
        return Err("the path is not encoded correctly".to_owned());
    }
    let readings = decodings(path);
    if readings.len() > MAX_READINGS {
        return Err("the path is encoded too often".to_owned());
    }
    readings.iter().try_for_each(|reading| plain(reading))?;
    Ok(readings)
}

/// A text, and what it becomes each time it is decoded: one more than [`MAX_READINGS`] at most.
pub(super) fn decodings(text: &str) -> Vec<String> {
    let mut all = vec![text.to_owned()];
    while all.len() <= MAX_READINGS {
        let last = &all[all.len() - 1];
        let next = percent_decode_str(last).decode_utf8_lossy().into_owned();
        if next == *last {
            break;
        }
        all.push(next);
    }
    all
}

/// Returns whether a path is a prefix or below it.
pub(super) fn is_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_well_encoded(path: &str) -> bool {
    path.split('%')
        .skip(1)
        .all(|part| part.len() >= 2 && part.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

fn plain(reading: &str) -> Result<(), String> {
    if reading.chars().any(|c| c.is_control() || c == '\\' || c == char::REPLACEMENT_CHARACTER) {
        return Err("the path contains characters that servers read differently".to_owned());
    }
    // Java's servers cut what follows a semicolon in a segment.
    let is_dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    if reading.split('/').any(is_dots) {
        return Err("the path contains . or ..".to_owned());
    }
    Ok(())
}
