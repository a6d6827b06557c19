//! The list under the text while a word is written: commands behind `/`, names of files behind `@`.

use crate::style::{BOLD, Colours, DIM};
use agent_base::sanitise::{is_dangerous, truncate};
use unicode_width::UnicodeWidthStr;

/// Rows that are shown at once.
const MAX_ROWS: usize = 8;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MenuItem {
    /// Its name.
    pub name: String,
    /// The description, in half a sentence; may be empty.
    pub about: String,
    /// The text that replaces the word.
    pub replacement: String,
    /// Set if Enter sends the text when this was taken.
    pub is_complete: bool,
}

/// The list of what the word at the cursor can become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Menu {
    /// The beginning of the word, in bytes.
    pub start: usize,
    /// The entries, the best first.
    pub items: Vec<MenuItem>,
    /// The number of further entries.
    pub more: usize,
    /// Set if Enter takes the first entry where the user has chosen none: the word means nothing as it is.
    pub takes_first: bool,
}

/// A list that is shown, and the entry that the user has moved to.
pub(super) struct OpenMenu {
    menu: Menu,
    chosen: Option<usize>,
}

impl OpenMenu {
    pub fn new(menu: Menu) -> Self {
        Self { menu, chosen: None }
    }

    pub fn start(&self) -> usize {
        self.menu.start
    }

    /// Moves to the next entry, or the one before; behind the last is the first.
    pub fn step(&mut self, is_down: bool) {
        let count = self.menu.items.len();
        self.chosen = match self.chosen {
            None if is_down => Some(0),
            None => count.checked_sub(1),
            Some(at) if is_down => Some((at + 1) % count.max(1)),
            Some(at) => Some(at.checked_sub(1).unwrap_or(count.saturating_sub(1))),
        };
    }

    /// The entry that Tab takes.
    pub fn entry(&self) -> Option<&MenuItem> {
        self.menu.items.get(self.chosen.unwrap_or(0))
    }

    /// The entry that Enter takes.
    pub fn entered(&self) -> Option<&MenuItem> {
        if self.chosen.is_some() || self.menu.takes_first { self.entry() } else { None }
    }

    pub fn rows(&self, columns: usize, colours: Colours) -> Vec<String> {
        let width = columns.saturating_sub(1);
        let first = self.chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(MAX_ROWS));
        let shown = self.menu.items.iter().enumerate().skip(first).take(MAX_ROWS);
        let widest = shown.clone().map(|(_, item)| item.name.width()).max().unwrap_or(0).min(width / 2);
        let mut rows: Vec<String> = shown
            .map(|(at, item)| self.row(item, self.chosen == Some(at), (widest, width), colours))
            .collect();
        let hidden = self.menu.items.len().saturating_sub(rows.len()) + self.menu.more;
        if hidden > 0 {
            rows.push(colours.paint(DIM, truncate(&format!("  … and {hidden} more"), width)));
        }
        rows
    }

    fn row(
        &self,
        item: &MenuItem,
        is_chosen: bool,
        (widest, width): (usize, usize),
        colours: Colours,
    ) -> String {
        let mark = if is_chosen { "› " } else { "  " };
        let name: String = item.name.chars().filter(|c| !is_dangerous(*c)).collect();
        if item.about.is_empty() {
            let text =
                truncate(&format!("{mark}{}", last_part(&name, width.saturating_sub(2))), width).to_owned();
            return if is_chosen { colours.paint(BOLD, text) } else { text };
        }
        let name = truncate(&name, widest.max(8)).to_owned();
        let gap = " ".repeat(widest.saturating_sub(name.width()) + 2);
        let left = width.saturating_sub(2 + name.width() + gap.len());
        let about = colours.paint(DIM, truncate(&item.about, left));
        let name = format!("{mark}{name}");
        format!("{}{gap}{about}", if is_chosen { colours.paint(BOLD, name) } else { name })
    }
}

/// The end of a path that is too wide: its name says more than the directories above.
fn last_part(path: &str, width: usize) -> String {
    if path.width() <= width {
        return path.to_owned();
    }
    let mut kept = path;
    while kept.width() + 1 > width {
        let Some(first) = kept.chars().next() else { break };
        kept = &kept[first.len_utf8()..];
    }
    format!("…{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn menu(names: &[&str], about: &str) -> OpenMenu {
        let item = |name: &&str| MenuItem {
            name: (*name).to_owned(),
            about: about.to_owned(),
            replacement: (*name).to_owned(),
            is_complete: true,
        };
        OpenMenu::new(Menu { start: 0, items: names.iter().map(item).collect(), more: 0, takes_first: false })
    }

    #[test]
    fn the_list_follows_what_is_chosen_and_its_end_is_its_beginning() {
        let names: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut open = menu(&names, "");
        assert_eq!(open.rows(40, Colours(false)).first().map(String::as_str), Some("  f0"));
        assert_eq!(open.rows(40, Colours(false)).last().map(String::as_str), Some("  … and 4 more"));
        assert!(open.entered().is_none());
        open.step(false);
        assert_eq!(open.rows(40, Colours(false))[7], "› f11");
        open.step(true);
        assert_eq!(open.entered().map(|item| item.name.as_str()), Some("f0"));
    }

    #[test]
    fn a_row_is_never_wider_than_the_window() {
        for columns in [10, 20, 40, 80] {
            for open in [
                menu(&["src/深い/ディレクトリ/とても長い名前.rs"], ""),
                menu(&["/command [A] [B] [C]"], &"words ".repeat(30)),
            ] {
                let rows = open.rows(columns, Colours(false));
                assert!(rows.iter().all(|row| row.width() < columns.max(14)), "{columns}: {rows:?}");
            }
        }
        assert_eq!(menu(&["a/long/path/name.rs"], "").rows(12, Colours(false)), ["  …/name.rs"]);
    }
}
