//! The lines of a change as the page shows them: their words in the colours of the terminal's diff, everything else that could
//! be an escape as text.

use agent_base::error::Result;
use agent_base::visible::visible_bytes;
use agent_diff::hunks::{self, Kind, Line};
use agent_diff::paint::Painter;
use agent_workspace::parts::{Hunk, TextFile};
use agent_workspace::store::Store;
use agent_workspace::{ChangeSet, diff};
use serde_json::{Value, json};
use std::path::Path;

/// Bytes of one line.
const MAX_LINE: usize = 2_000;

/// One line.
pub struct ShownLine {
    mark: char,
    text: String,
    /// Set if its end is not shown.
    pub is_cut: bool,
}

impl From<ShownLine> for Value {
    fn from(line: ShownLine) -> Value {
        json!([line.mark.to_string(), line.text])
    }
}

impl ShownLine {
    /// The line that the painter wrote.
    fn of(line: &str) -> Self {
        let body = after_escapes(line);
        let mut rest = body.chars();
        let mark = rest.next().filter(|mark| "+-@\\ ".contains(*mark)).unwrap_or(' ');
        let text = match mark {
            '@' => plain(line),
            '\\' => plain(rest.as_str()).trim_start().to_owned(),
            // The mark has a colour of its own, which ends behind it.
            _ if body.len() < line.len() => {
                rest.as_str().strip_prefix(RESET).unwrap_or(rest.as_str()).to_owned()
            }
            _ => rest.as_str().to_owned(),
        };
        let is_cut = text.len() > MAX_LINE && plain(&text).len() > MAX_LINE;
        let text = match is_cut {
            true => visible_bytes(&plain(&text).as_bytes()[..MAX_LINE]) + " …",
            false => text,
        };
        Self { mark, text, is_cut }
    }
}

const RESET: &str = "\x1b[0m";

/// `line` behind the escapes that it begins with.
fn after_escapes(mut line: &str) -> &str {
    while let Some((_, rest)) = line.strip_prefix("\x1b[").and_then(|escape| escape.split_once('m')) {
        line = rest;
    }
    line
}

/// `text` without the painter's escapes: it has no others.
fn plain(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    pieces.filter_map(|piece| piece.split_once('m')).for_each(|(_, piece)| plain.push_str(piece));
    plain
}

/// Paints the hunks of a file.
pub struct Painted(Painter);

impl Painted {
    /// Of `file`.
    pub fn new(file: &TextFile) -> Self {
        Self(file.painter(true))
    }

    /// The lines of a hunk, its header first.
    pub fn hunk(&mut self, file: &TextFile, hunk: &Hunk) -> Vec<ShownLine> {
        let mut text = String::new();
        file.show(hunk, &mut |line: Line<'_>| self.0.line(line, &mut text));
        self.0.finish(&mut text);
        text.lines().map(ShownLine::of).collect()
    }
}

/// The beginning of the difference of two texts.
#[derive(Default)]
pub struct Beginning {
    pub lines: Vec<ShownLine>,
    /// The number of its other lines.
    pub left_out: usize,
    /// Lines in all of it.
    pub added: u64,
    pub removed: u64,
}

/// The first `most` lines of the difference of two texts.
pub fn of_texts(path: &str, before: &[u8], after: &[u8], most: usize) -> Beginning {
    let mut painter = Painter::new(Path::new(path), before, after, true);
    let (mut text, mut count, mut beginning) = (String::new(), 0_usize, Beginning::default());
    let line = |line: Line<'_>| {
        count += 1;
        beginning.added += u64::from(line.kind == Kind::Added);
        beginning.removed += u64::from(line.kind == Kind::Removed);
        if count <= most {
            painter.line(line, &mut text);
        }
        Ok(())
    };
    // Nothing of this is written anywhere.
    let _ = hunks::each(before, after, line);
    painter.finish(&mut text);
    Beginning {
        lines: text.lines().map(ShownLine::of).collect(),
        left_out: count.saturating_sub(most),
        ..beginning
    }
}

/// The lines of what is taken or left as a whole.
pub struct Whole {
    /// The path of the file, and what happened to it.
    pub headline: String,
    /// The lines of its diff.
    pub body: Vec<ShownLine>,
}

/// Those of `changes`.
///
/// # Errors
/// A content is missing.
pub fn whole(changes: &ChangeSet, store: &Store, has_colours: bool) -> Result<Whole> {
    let changes = &ChangeSet { refused: Vec::new(), remarks: Vec::new(), ..changes.clone() };
    let mut text = Vec::new();
    diff::write_text(&mut text, changes, store, has_colours)?;
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    let headline = plain(lines.next().unwrap_or_default());
    Ok(Whole { headline, body: lines.map(ShownLine::of).collect() })
}
