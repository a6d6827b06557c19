//! Changes of files under the lines of the trace: the diff of an edit, and the names of what a command changed.

use super::style::{Colours, DIM};
use agent_base::count_text::counted;
use agent_base::sanitise;
use agent_base::visible::visible_name;
use agent_diff::excerpt;
use agent_event::FileEdit;
use std::collections::BTreeSet;

/// Lines of the diff of one file, and of all files of one call.
const MAX_LINES: usize = 12;
const MAX_LINES_OF_ALL: usize = 24;
/// Files of one call whose diff is shown.
const MAX_FILES: usize = 6;
/// Columns where nothing says how many there are.
const COLUMNS: usize = 100;
/// Files that are remembered as shown.
const MAX_REMEMBERED: usize = 10_000;

/// The files whose diff was shown since the workspace was recorded last.
#[derive(Debug, Default)]
pub struct Edits {
    shown: BTreeSet<String>,
}

impl Edits {
    /// The diffs of a call's edits.
    pub fn diffs(&mut self, edits: &[FileEdit], columns: Option<usize>, colours: Colours) -> String {
        let columns = columns.map_or(COLUMNS, |columns| columns.saturating_sub(1));
        let files = edits.len().min(MAX_FILES);
        let lines = if files > 1 { (MAX_LINES_OF_ALL / files).min(MAX_LINES) } else { MAX_LINES };
        let mut text = String::new();
        for edit in edits.iter().take(MAX_FILES) {
            if self.shown.len() < MAX_REMEMBERED {
                self.shown.insert(edit.path.clone());
            }
            if edits.len() > 1 {
                let line = format!("  {}   {}", excerpt::name(edit), counts(edit));
                text += &(colours.paint(DIM, sanitise::truncate(&line, columns)) + "\n");
            }
            text += &excerpt::shown(edit, lines, columns, colours.0);
        }
        if edits.len() > files {
            let more = format!("  … {}", counted(edits.len() - files, "more file"));
            text += &(colours.paint(DIM, more) + "\n");
        }
        text
    }

    /// `2 files changed: a.txt, src/b.rs`: what a recorded change has that no diff has shown, of `files` that changed.
    pub fn others(
        &mut self,
        files: u64,
        names: &[String],
        columns: Option<usize>,
        colours: Colours,
    ) -> Option<String> {
        let shown = std::mem::take(&mut self.shown);
        let others: Vec<&String> = names.iter().filter(|name| !shown.contains(*name)).collect();
        let count = files.saturating_sub((names.len() - others.len()) as u64);
        if count == 0 || names.is_empty() {
            return None;
        }
        let more = if count > others.len() as u64 { ", …" } else { "" };
        let names: Vec<String> = others.iter().map(|name| visible_name(name.as_bytes())).collect();
        let count = counted(count, "file");
        let line = format!("  {count} changed: {}{more}", names.join(", "));
        let columns = columns.map_or(COLUMNS * 3, |columns| columns.saturating_sub(1));
        Some(colours.paint(DIM, sanitise::truncate(&line, columns)) + "\n")
    }
}

/// `+3 -1`, or that the file is new.
pub fn counts(edit: &FileEdit) -> String {
    match edit {
        FileEdit { is_new: true, added, .. } => format!("new, +{added}"),
        FileEdit { added, removed, .. } => format!("+{added} -{removed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_whose_diff_was_shown_are_not_named_again() {
        let mut edits = Edits::default();
        let edit = excerpt::of("src/a.rs", Some(b"1\n"), b"2\n");
        let text = edits.diffs(&[edit], Some(80), Colours(false));
        assert_eq!(text, "  1 - 1\n  1 + 2\n");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let line = edits.others(3, &names(&["b\x1b[2J.txt", "c", "src/a.rs"]), Some(80), Colours(false));
        assert_eq!(line.as_deref(), Some("  2 files changed: b\\u{1b}[2J.txt, c\n"));
        assert_eq!(
            edits.others(1, &names(&["src/a.rs"]), None, Colours(false)).as_deref(),
            Some("  1 file changed: src/a.rs\n"),
            "it changed again"
        );
        let many = edits.others(90, &names(&["a", "b"]), None, Colours(false));
        assert_eq!(many.as_deref(), Some("  90 files changed: a, b, …\n"));
    }

    #[test]
    fn the_lines_of_many_files_are_bounded() {
        let content = "x\n".repeat(100);
        let file = |number: usize| excerpt::of(&format!("{number}.txt"), None, content.as_bytes());
        let edits: Vec<FileEdit> = (0..10).map(file).collect();
        let text = Edits::default().diffs(&edits, Some(80), Colours(false));
        assert!(text.lines().count() <= MAX_LINES_OF_ALL + 2 * MAX_FILES + 1, "{text}");
        assert!(text.ends_with("  … 4 more files\n"), "{text}");
    }
}
