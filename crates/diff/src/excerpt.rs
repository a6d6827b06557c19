//! The change of a file by a tool as a bounded excerpt of its diff: made where both contents are known, and shown for the eye.

use crate::hunks::{self, Kind, Line};
use crate::paint::Painter;
use agent_base::count_text::counted;
use agent_base::sanitise::truncate;
use agent_base::visible::{visible, visible_name};
use agent_event::FileEdit;
use std::path::Path;

/// Lines that an event holds of the diff of one file, and their bytes.
const MAX_LINES: usize = 60;
const MAX_BYTES: usize = 6 << 10;
/// Bytes that it holds of one line.
const MAX_LINE: usize = 400;
/// Columns of the lines before their text, beside the number.
const MARGIN: usize = 5;
/// A line needs so many columns, however narrow the terminal is.
const MIN_TEXT: usize = 20;

/// The change of the file at `path` from `old`, which is absent where there was none, to `new`.
pub fn of(path: &str, old: Option<&[u8]>, new: &[u8]) -> FileEdit {
    let mut edit = FileEdit { path: path.to_owned(), is_new: old.is_none(), ..FileEdit::default() };
    let old = old.unwrap_or_default();
    if [old, new].iter().any(|side| side.iter().take(8000).any(|byte| *byte == 0)) {
        return edit;
    }
    let mut lines = 0;
    let take = |line: Line<'_>| {
        let mark = match line.kind {
            Kind::Header => "",
            Kind::Context => " ",
            Kind::Removed => "-",
            Kind::Added => "+",
            Kind::NoNewline => return Ok(()),
        };
        edit.removed += u64::from(line.kind == Kind::Removed);
        edit.added += u64::from(line.kind == Kind::Added);
        let text = String::from_utf8_lossy(&line.text[..line.text.len().min(MAX_LINE)]);
        lines += 1;
        if edit.left_out > 0 || lines > MAX_LINES || edit.diff.len() + text.len() > MAX_BYTES {
            edit.left_out += u64::from(line.kind != Kind::Header);
        } else {
            edit.diff += &format!("{mark}{}\n", text.trim_end_matches('\u{fffd}'));
        }
        Ok(())
    };
    // Nothing of this is written anywhere.
    let _ = hunks::each(old, new, take);
    edit
}

/// `src/main.rs`, as it can be shown, on one line.
pub fn name(edit: &FileEdit) -> String {
    visible_name(edit.path.as_bytes())
}

/// A hunk of an excerpt.
struct Hunk<'a> {
    /// The numbers of the first line, counting from 1.
    old: usize,
    new: usize,
    lines: Vec<(Kind, &'a str)>,
}

/// The diff of `edit` in at most `max` lines of `columns`, with line numbers; below it, how many lines are not shown.
pub fn shown(edit: &FileEdit, max: usize, columns: usize, has_colours: bool) -> String {
    let mut hunks = hunks_of(&edit.diff);
    let all: usize = hunks.iter().map(|hunk| hunk.lines.len()).sum();
    if all > max {
        shorten(&mut hunks, max);
    }
    let kept: usize = hunks.iter().map(|hunk| hunk.lines.len()).sum();
    let last = hunks.iter().map(|hunk| hunk.old.max(hunk.new) + hunk.lines.len()).max().unwrap_or(0);
    let digits = last.to_string().len();
    let room = columns.saturating_sub(digits + MARGIN).max(MIN_TEXT);
    let mut out = String::new();
    for (index, hunk) in hunks.iter().enumerate() {
        if index > 0 {
            out += &format!("  {:>digits$}\n", "⋮");
        }
        show_hunk(&mut out, hunk, &edit.path, digits, room, has_colours);
    }
    let hidden = edit.left_out.saturating_add((all - kept) as u64);
    if hidden > 0 {
        out += &format!("  {:>digits$} {}\n", "…", counted(hidden, "more line"));
    }
    out
}

fn show_hunk(out: &mut String, hunk: &Hunk<'_>, path: &str, digits: usize, room: usize, has_colours: bool) {
    let lines: Vec<(Kind, String)> = hunk
        .lines
        .iter()
        .map(|(kind, text)| (*kind, truncate(&visible(&text.replace('\t', "    ")), room)))
        .collect();
    let side = |other: Kind| -> String {
        lines.iter().filter(|(kind, _)| *kind != other).map(|(_, text)| format!("{text}\n")).collect()
    };
    let (old, new) = (side(Kind::Added), side(Kind::Removed));
    let painter = Painter::new(Path::new(path), old.as_bytes(), new.as_bytes(), has_colours);
    let mut painter = painter.with_numbers(digits, hunk.old, hunk.new);
    let (mut in_old, mut in_new) = (0, 0);
    for (kind, text) in &lines {
        let number = if *kind == Kind::Removed { in_old } else { in_new };
        painter.line(Line { kind: *kind, text: text.as_bytes(), number }, out);
        in_old += usize::from(*kind != Kind::Added);
        in_new += usize::from(*kind != Kind::Removed);
    }
    painter.finish(out);
}

/// Reads what [`of`] has made. Lines that are none of a diff are left out: a file of a session may hold anything.
fn hunks_of(diff: &str) -> Vec<Hunk<'_>> {
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    for line in diff.lines() {
        if let Some((old, new)) = line.strip_prefix("@@ -").and_then(first_lines) {
            hunks.push(Hunk { old, new, lines: Vec::new() });
            continue;
        }
        let kind = match line.as_bytes().first() {
            Some(b' ') => Kind::Context,
            Some(b'-') => Kind::Removed,
            Some(b'+') => Kind::Added,
            _ => continue,
        };
        if let Some(hunk) = hunks.last_mut() {
            hunk.lines.push((kind, &line[1..]));
        }
    }
    hunks
}

/// `1,2 +3,4 @@`
fn first_lines(header: &str) -> Option<(usize, usize)> {
    let (old, new) = header.strip_suffix(" @@")?.split_once(" +")?;
    let first = |span: &str| span.split(',').next()?.parse::<u32>().ok();
    Some((first(old)? as usize, first(new)? as usize))
}

/// Leaves `max` lines: of each run of removed and of added ones no more than half of that.
fn shorten(hunks: &mut Vec<Hunk<'_>>, max: usize) {
    let mut left = max;
    for hunk in hunks.iter_mut() {
        let has = |wanted: Kind| hunk.lines.iter().any(|(kind, _)| *kind == wanted);
        let most = if has(Kind::Removed) && has(Kind::Added) { (max / 2).max(1) } else { max };
        let (mut run, mut last) = (0, Kind::Context);
        let mut is_cut = false;
        hunk.lines.retain(|(kind, _)| {
            run = if *kind == last { run + 1 } else { 1 };
            last = *kind;
            // The numbers of what follows a gap would be wrong.
            let is_kept =
                left > 0 && (*kind == Kind::Context || run <= most) && !(is_cut && *kind == Kind::Context);
            is_cut |= !is_kept;
            left -= usize::from(is_kept);
            is_kept
        });
    }
    hunks.retain(|hunk| !hunk.lines.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(from: usize, to: usize) -> String {
        (from..to).map(|number| format!("line {number}\n")).collect()
    }

    #[test]
    fn a_change_has_its_lines_with_their_numbers() {
        let old = numbered(1, 12);
        let new = old.replace("line 9\n", "line nine\nand more\n");
        let edit = of("a.txt", Some(old.as_bytes()), new.as_bytes());
        assert_eq!((edit.added, edit.removed, edit.left_out, edit.is_new), (2, 1, 0, false));
        let expected = "   6   line 6\n   7   line 7\n   8   line 8\n   9 - line 9\n   9 + line nine\n  10 + and more\n  \
                        11   line 10\n  12   line 11\n";
        assert_eq!(shown(&edit, 12, 80, false), expected);
    }

    #[test]
    fn what_does_not_fit_is_counted_and_both_sides_are_seen() {
        let (old, new) = (numbered(0, 100), numbered(200, 300));
        let edit = of("a.txt", Some(old.as_bytes()), new.as_bytes());
        assert_eq!((edit.added, edit.removed), (100, 100));
        assert!(edit.diff.lines().count() <= MAX_LINES && edit.diff.len() <= MAX_BYTES);
        let short = of("a.txt", Some(numbered(0, 20).as_bytes()), numbered(30, 50).as_bytes());
        let text = shown(&short, 12, 80, false);
        assert_eq!(text.lines().count(), 13, "{text}");
        assert!(text.contains(" 1 - line 0\n") && text.contains(" 1 + line 30\n"), "{text}");
        assert!(text.ends_with("… 28 more lines\n"), "{text}");
    }

    #[test]
    fn nothing_in_it_is_obeyed_and_no_line_is_longer_than_the_terminal() {
        let new = format!("a\x1b]0;title\x07\u{202e}\n\t{}\n", "wide 漢字 ".repeat(100));
        for has_colours in [false, true] {
            let edit = of("a.rs", None, new.as_bytes());
            assert!(edit.is_new);
            let text = shown(&edit, 12, 60, has_colours);
            assert!(
                !text.contains("\x1b]") && !text.contains('\u{202e}') && !text.contains('\x07'),
                "{text:?}"
            );
            let plain = agent_base::sanitise::plain(&text).into_owned();
            assert!(plain.lines().all(|line| truncate(line, 60) == line), "{plain}");
        }
        let forged = FileEdit {
            diff: "@@ -99999999999999 +1 @@\n@@ -4294967295 +4294967295 @@\n+x\n\\\nno".into(),
            ..edit_of()
        };
        assert!(shown(&forged, 12, 10, true).contains('x'));
    }

    fn edit_of() -> FileEdit {
        of("a", Some(b"1\n"), b"2\n")
    }

    #[test]
    fn a_binary_file_has_no_lines() {
        assert_eq!(of("a", Some(b"\0"), b"x\n").diff, "");
    }
}
