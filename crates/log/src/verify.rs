//! Finding a line that was changed, removed or moved after it was written.

use super::chain::prev_of;
use super::file::read_head;
use super::lines::Lines;
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_event::{Event, Record};
use memchr::memmem;
use serde::Serialize;
use std::path::Path;

/// The result of checking a session file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The number of complete lines in the file.
    pub lines: u64,
    /// The first fault; a recorded loss of lines (`lines_lost`) only if there is no other.
    pub fault: Option<Fault>,
    /// The parts that cannot be verified, as a sentence.
    pub note: Option<String>,
}

/// A line that differs from what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The line, counting from 1.
    pub line: u64,
    /// The fault, in words: `was changed`.
    pub what: String,
}

impl Verdict {
    /// The fault as an error, for the exit code.
    pub fn into_result(self) -> Result<Verdict> {
        match &self.fault {
            None => Ok(self),
            Some(fault) => Err(Error::unexpected(format!("line {} {}", fault.line, fault.what))
                .hint("the file is not what agent wrote: do not rely on it")),
        }
    }
}

/// A line as far as the chain is concerned.
struct Link {
    hash: Hash,
    prev: Option<Hash>,
}

/// Checks the session file at `path` against its chain and its `head`.
///
/// The chain detects accidents and edits. A user who can write the file can also write a whole new chain: where that
/// matters, keep the last hash elsewhere.
pub fn verify(path: &Path) -> Result<Verdict> {
    // Read before the lines, to which a running session may add.
    let head = read_head(path);
    let mut lines = Lines::open(path)?;
    let (mut links, mut loss) = (Vec::new(), None);
    while let Some(line) = lines.next_line()? {
        links.push(Link { hash: Hash::of(line), prev: prev_of(line) });
        let lost = lost_before(line).map(|lost| (links.len() as u64, lost));
        // A known loss takes precedence over a possible one.
        loss = loss.filter(|(_, known): &(u64, Option<u64>)| known.is_some()).or(lost).or(loss);
    }
    let fault = broken_link(&links, head).or_else(|| broken_end(&links, head?)).or_else(|| known_loss(loss?));
    let note = match (lines.torn(), head, loss) {
        (torn, ..) if torn > 0 => Some(format!("an incomplete last line ({torn} bytes) will be dropped")),
        (_, None, _) => Some("the head file is missing: the last line cannot be verified".to_owned()),
        (.., Some((line, None))) => Some(format!(
            "the head file was missing when the session was resumed at line {line}: lines may be missing before it"
        )),
        _ => None,
    };
    Ok(Verdict { lines: lines.number(), fault, note })
}

/// If `line` records a loss of lines: how many, if that is known.
fn lost_before(line: &[u8]) -> Option<Option<u64>> {
    // Searched first: parsing every line would be slow.
    memmem::find(line, b"\"type\":\"lines_lost\"")?;
    match serde_json::from_slice::<Record>(line).ok()?.event {
        Event::LinesLost { lines } => Some(lines),
        _ => None,
    }
}

fn known_loss((line, lost): (u64, Option<u64>)) -> Option<Fault> {
    let what = format!("marks where the session lacked {} when it was resumed", counted(lost?, "line"));
    Some(Fault { line, what })
}

/// The first line that does not name the hash of the line before it, and why.
fn broken_link(links: &[Link], head: Option<(u64, Hash)>) -> Option<Fault> {
    let hash_before = |index: usize| index.checked_sub(1).map_or(Hash::UNKNOWN, |before| links[before].hash);
    let at = (0..links.len()).find(|&index| links[index].prev != Some(hash_before(index)))?;
    let number = at as u64 + 1;
    let fault = |line: u64, what: String| Some(Fault { line, what });
    if let Some(other) = links.iter().position(|link| links[at].prev == Some(link.hash)) {
        return fault(number, format!("is out of place: it belongs after line {}", other + 1));
    }
    if at > 0 && links[at].prev == Some(Hash::UNKNOWN) {
        return fault(number, "is out of place: it belongs at the beginning".to_owned());
    }
    // If the next line does not follow either, this line was changed, at its `prev`.
    let follows = match links.get(at + 1) {
        Some(next) => next.prev == Some(links[at].hash),
        None => head.is_none_or(|(lines, last)| lines != number || last == links[at].hash),
    };
    if !follows {
        return fault(number, "was changed".to_owned());
    }
    match head.and_then(|(lines, _)| lines.checked_sub(links.len() as u64)) {
        Some(missing) if missing > 0 => {
            fault(number, format!("does not follow: {missing} missing before it"))
        }
        Some(_) if at > 0 => fault(at as u64, "was changed".to_owned()),
        _ if at > 0 => fault(at as u64, "was changed, or what came after it is missing".to_owned()),
        _ => fault(1, "is not the first: what came before it is missing".to_owned()),
    }
}

/// Returns what is wrong with the end of a file whose chain holds.
fn broken_end(links: &[Link], (lines, last): (u64, Hash)) -> Option<Fault> {
    let have = links.len() as u64;
    if lines > have {
        return Some(Fault {
            line: have + 1,
            what: format!("and what follows is missing: {lines} were written"),
        });
    }
    let hash = (lines as usize).checked_sub(1).map_or(Hash::UNKNOWN, |index| links[index].hash);
    (hash != last).then(|| Fault { line: lines.max(1), what: "was changed".to_owned() })
}
