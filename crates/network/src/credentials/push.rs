//! The beginning of a push: the branches and tags that it changes, and how many commits it brings.

use agent_base::sanitise::one_line;
use flate2::{Decompress, FlushDecompress, Status};
use std::collections::HashMap;

/// Bytes of a push that are looked at.
pub const MAX_LOOKED_AT: usize = 4 << 20;
/// Bytes that its objects may become meanwhile.
const MAX_INFLATED: u64 = 64 << 20;
/// Objects of its pack that are looked at.
const MAX_OBJECTS: u32 = 20_000;
/// Branches and tags of one push.
const MAX_UPDATES: usize = 1_000;
/// Those that are named in a question, and columns of one.
const NAMED: usize = 5;
const MAX_NAME: usize = 80;
/// Bytes of the numbers before an object.
const MAX_DIGITS: usize = 10;

const COMMIT: u8 = 1;
const BY_OFFSET: u8 = 6;
const BY_NAME: u8 = 7;

/// A push, as far as it can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The branches and tags, with what happens to them. None: it only asks whether the host would take one.
    pub updates: Vec<String>,
    /// The commits.
    pub commits: usize,
    /// There may be more of them than were looked at.
    pub has_more: bool,
}

/// Reads the beginning of a push: all of it, or [`MAX_LOOKED_AT`] bytes.
///
/// # Errors
/// It is not one that can be shown.
pub fn read(bytes: &[u8]) -> Result<Push, &'static str> {
    let (updates, mut rest, has_options) = commands(bytes)?.ok_or("the push does not say what it changes")?;
    if has_options {
        rest = after_section(rest)?.ok_or("the options of the push do not end")?;
    }
    let (commits, has_more) = if rest.is_empty() { (0, false) } else { commits(rest) };
    Ok(Push { updates, commits, has_more })
}

/// A line of git's protocol: `None` where it is not there yet, an empty one where a section ends.
type Line<'b> = Option<(Option<&'b [u8]>, &'b [u8])>;

fn line(bytes: &[u8]) -> Result<Line<'_>, &'static str> {
    let Some(digits) = bytes.get(..4) else { return Ok(None) };
    let length = std::str::from_utf8(digits).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
    match length {
        Some(0) => Ok(Some((None, &bytes[4..]))),
        Some(length) if length >= 4 => Ok(bytes.get(4..length).map(|line| (Some(line), &bytes[length..]))),
        _ => Err("the push is not one of git's"),
    }
}

/// Reads the changes, and returns them with what follows, and whether that begins with options; `None` where bytes are
/// missing.
#[expect(clippy::type_complexity, reason = "it is taken apart at once")]
fn commands(bytes: &[u8]) -> Result<Option<(Vec<String>, &[u8], bool)>, &'static str> {
    let (mut updates, mut rest, mut has_options) = (Vec::new(), bytes, false);
    loop {
        let Some((line, after)) = line(rest)? else { return Ok(None) };
        rest = after;
        let Some(line) = line else { return Ok(Some((updates, rest, has_options))) };
        let mut parts = line.splitn(2, |byte| *byte == 0);
        let (command, features) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        has_options |=
            features.split(|byte| *byte == b' ').any(|feature| feature.trim_ascii() == b"push-options");
        let command =
            std::str::from_utf8(command).map_err(|_| "the name of a branch is not text")?.trim_end();
        if command.starts_with("shallow ") {
            continue;
        }
        updates.push(update(command).ok_or("the push has a command that cannot be shown")?);
        if updates.len() > MAX_UPDATES {
            return Err("the push changes too many branches");
        }
    }
}

fn update(command: &str) -> Option<String> {
    let mut words = command.splitn(3, ' ');
    let (old, new, name) = (words.next()?, words.next()?, words.next()?);
    let is_id =
        |word: &str| matches!(word.len(), 40 | 64) && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_none = |word: &str| word.bytes().all(|byte| byte == b'0');
    if !is_id(old) || !is_id(new) {
        return None;
    }
    let name = one_line(name.strip_prefix("refs/heads/").unwrap_or(name), MAX_NAME);
    Some(match (is_none(old), is_none(new)) {
        (_, true) => format!("delete {name}"),
        (true, false) => format!("create {name}"),
        (false, false) => format!("update {name}"),
    })
}

fn after_section(mut rest: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    loop {
        match line(rest)? {
            None => return Ok(None),
            Some((None, after)) => return Ok(Some(after)),
            Some((Some(_), after)) => rest = after,
        }
    }
}

/// Counts the commits of a pack, as far as it is there. Returns whether there may be more.
fn commits(pack: &[u8]) -> (usize, bool) {
    const HEAD: usize = 12;
    let count = pack.get(8..HEAD).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let Some(count) = count.filter(|_| pack.starts_with(b"PACK")) else { return (0, true) };
    let (mut at, mut found, mut left) = (HEAD, 0, MAX_INFLATED);
    let mut has_more = count > MAX_OBJECTS;
    let (mut are_commits, mut inflate) = (HashMap::new(), Decompress::new(true));
    for _ in 0..count.min(MAX_OBJECTS) {
        let Some((kind, data)) = kind(pack, at, &are_commits) else { return (found, true) };
        // Whose base the host has, may be one as well.
        has_more |= kind == ObjectKind::Unknown;
        found += usize::from(kind == ObjectKind::Commit);
        are_commits.insert(at, kind);
        inflate.reset(true);
        match end_of_data(&mut inflate, pack, data, &mut left) {
            Some(end) => at = end,
            None => return (found, true),
        }
    }
    (found, has_more)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectKind {
    Commit,
    Other,
    Unknown,
}

/// The kind of the object at a place, and where its data begin.
fn kind(pack: &[u8], at: usize, known: &HashMap<usize, ObjectKind>) -> Option<(ObjectKind, usize)> {
    let mut next = at;
    let mut take = || {
        let byte = pack.get(next).copied().filter(|_| next - at < 2 * MAX_DIGITS);
        next += 1;
        byte
    };
    let first = take()?;
    let mut byte = first;
    while byte & 0x80 != 0 {
        byte = take()?;
    }
    let kind = match (first >> 4) & 7 {
        COMMIT => ObjectKind::Commit,
        BY_OFFSET => {
            let mut byte = take()?;
            let mut distance = usize::from(byte & 0x7f);
            while byte & 0x80 != 0 {
                byte = take()?;
                distance = distance.checked_add(1)?.checked_mul(128)? + usize::from(byte & 0x7f);
            }
            known.get(&at.checked_sub(distance)?).copied()?
        }
        BY_NAME => {
            next += 20;
            ObjectKind::Unknown
        }
        _ => ObjectKind::Other,
    };
    Some((kind, next))
}

/// Returns the end of the compressed data that begin at a place; `None` where they are not valid, or are more than `left`
/// bytes.
fn end_of_data(inflate: &mut Decompress, pack: &[u8], from: usize, left: &mut u64) -> Option<usize> {
    let mut out = [0; 8 << 10];
    loop {
        let (read, written) = (inflate.total_in(), inflate.total_out());
        let at = from.checked_add(usize::try_from(read).ok()?)?;
        let status = inflate.decompress(pack.get(at..)?, &mut out, FlushDecompress::None).ok()?;
        *left = left.checked_sub(inflate.total_out() - written)?;
        match status {
            Status::StreamEnd => return from.checked_add(usize::try_from(inflate.total_in()).ok()?),
            _ if inflate.total_in() == read && inflate.total_out() == written => return None,
            _ => {}
        }
    }
}

impl Push {
    /// Describes it in one line.
    pub fn description(&self) -> String {
        let mut text = self.updates.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        if self.updates.len() > NAMED {
            text += &format!(" and {} more", self.updates.len() - NAMED);
        }
        let or_more = if self.has_more { " or more" } else { "" };
        let commits = if self.commits == 1 && !self.has_more { "commit" } else { "commits" };
        format!("{text} ({}{or_more} {commits})", self.commits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use proptest::prelude::*;
    use std::io::Write;

    const A: &str = "1111111111111111111111111111111111111111";
    const NONE: &str = "0000000000000000000000000000000000000000";

    fn lines(texts: &[String]) -> Vec<u8> {
        let text: String = texts.iter().map(|text| format!("{:04x}{text}", text.len() + 4)).collect();
        (text + "0000").into_bytes()
    }

    fn pack(kinds: &[u8]) -> Vec<u8> {
        let mut pack = b"PACK\0\0\0\x02".to_vec();
        pack.extend(u32::try_from(kinds.len()).unwrap().to_be_bytes());
        for kind in kinds {
            // Five bytes of data.
            pack.push(kind << 4 | 5);
            let mut encoder = ZlibEncoder::new(&mut pack, Compression::default());
            encoder.write_all(b"hello").unwrap();
            encoder.finish().unwrap();
        }
        pack
    }

    #[test]
    fn branches_and_commits_are_read() {
        let mut bytes = lines(&[
            format!("{A} {A} refs/heads/main\0report-status push-options agent=git/2"),
            format!("{NONE} {A} refs/tags/v1"),
            format!("{A} {NONE} refs/heads/old"),
        ]);
        bytes.extend(lines(&["ci.skip".to_owned()]));
        bytes.extend(pack(&[1, 2, 3, 1]));
        let push = read(&bytes).unwrap();
        assert_eq!(push.description(), "update main, create refs/tags/v1, delete old (2 commits)");
        let cut = read(&bytes[..bytes.len() - 3]).unwrap();
        assert!(cut.has_more && cut.commits == 2, "{cut:?}");
    }

    #[test]
    fn what_cannot_be_shown_is_refused() {
        for text in ["push-cert\0x", "x", &format!("{A} {A}"), &format!("{A} z refs/heads/main")] {
            assert!(read(&lines(&[text.to_owned()])).is_err(), "{text}");
        }
        assert!(
            read(b"zzzz").is_err() && read(b"0003").is_err() && read(b"00").is_err() && read(b"").is_err()
        );
        let only_asks = read(b"0000").unwrap();
        assert!(only_asks.updates.is_empty());
        let control = lines(&[format!("{A} {A} refs/heads/a\u{1b}[2Jb")]);
        assert!(!read(&control).unwrap().description().contains('\u{1b}'));
    }

    proptest! {
        #[test]
        fn nothing_that_a_program_sends_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let _ = commits(&[b"PACK\0\0\0\x02\0\0\0\x09", &bytes[..]].concat());
        }
    }
}
