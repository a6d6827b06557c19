//! Where the text of the editor is on the screen, and how the screen follows.

use crate::style::{Colours, DIM};
use crate::wrap::{chop, hanging};
use agent_base::sanitise::{is_dangerous, plain, truncate};
use std::fmt::Write;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns of a tab.
const TAB: usize = 4;
const TAB_TEXT: &str = "    ";

/// The text before the text that is edited.
#[derive(Debug, Clone)]
pub struct Label {
    /// Without colours, and sanitised. Only its last line is next to the text.
    pub plain: String,
    pub painted: String,
}

/// Rows of the screen, and the cursor's row and column in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    pub rows: Vec<String>,
    pub cursor: (usize, usize),
    /// The text before the cursor in its row, where terminals differ about its width: it is printed again, after which the
    /// cursor is where the terminal itself thinks that it is.
    pub before_cursor: Option<String>,
}

impl View {
    /// Lays the text out behind its label in so many columns, the last of which stays empty.
    pub fn new(label: &Label, text: &str, cursor: usize, columns: usize) -> Self {
        let width = columns.saturating_sub(1).max(8);
        let broken = hanging(&label.plain, 0, Some(width));
        let mut rows: Vec<String> = broken.split('\n').flat_map(|line| chop(line, width)).collect();
        let indent = rows.last().map_or(0, |last| last.width());
        // A label of several rows is not painted.
        if let [only] = rows.as_mut_slice() {
            only.clone_from(&label.painted);
        }
        let following = if indent <= TAB { indent } else { 0 };
        let mut column = indent;
        let mut at = None;
        let mut breaks = breaks(text, indent, following, width).into_iter().peekable();
        for (index, joined) in text.grapheme_indices(true) {
            let columns = columns_of(joined);
            if breaks.next_if_eq(&index).is_some() {
                rows.push(String::new());
                column = 0;
            }
            if (index..index + joined.len()).contains(&cursor) {
                at = Some(CursorPosition::behind(&rows, column));
            }
            if joined.ends_with('\n') {
                rows.push(" ".repeat(following));
                column = following;
                continue;
            }
            // A blank behind a full row is not seen.
            if joined == " " && column + columns > width {
                continue;
            }
            column += columns;
            if let Some(row) = rows.last_mut() {
                row.extend(joined.chars().filter(|character| !is_dangerous(*character)));
                row.push_str(if joined == "\t" { TAB_TEXT } else { "" });
            }
        }
        let CursorPosition { row, column, before } =
            at.unwrap_or_else(|| CursorPosition::behind(&rows, column));
        let is_uncertain = |before: &String| plain(before).graphemes(true).any(is_width_uncertain);
        Self { rows, cursor: (row, column), before_cursor: Some(before).filter(is_uncertain) }
    }

    /// Adds a hint behind the text, as far as it fits.
    pub fn hint(&mut self, hint: &str, columns: usize, colours: Colours) {
        let room = columns.saturating_sub(1).saturating_sub(self.cursor.1);
        if let Some(row) = self.rows.last_mut() {
            row.push_str(&colours.paint(DIM, truncate(&plain(hint), room)));
        }
    }

    /// Keeps what fits on the screen: the rows around the cursor.
    pub fn clip(&mut self, height: usize) {
        let height = height.max(2);
        if self.rows.len() >= height {
            let start = (self.cursor.0 + 1).saturating_sub(height - 1);
            self.rows = self.rows.drain(..).skip(start).take(height - 1).collect();
            self.cursor.0 -= start;
        }
    }
}

/// Returns the places where rows begin that the text itself does not begin: between words, before and behind wide
/// characters, and within words that are longer than a row.
fn breaks(text: &str, indent: usize, following: usize, width: usize) -> Vec<usize> {
    let mut breaks = Vec::new();
    let mut column = indent;
    // The last place in this row where a word begins, and the columns since then.
    let mut word: Option<(usize, usize)> = None;
    let mut was_wide_or_blank = false;
    let mut row_begin = 0;
    for (index, joined) in text.grapheme_indices(true) {
        if joined.ends_with('\n') {
            (column, word, was_wide_or_blank, row_begin) = (following, None, false, index + joined.len());
            continue;
        }
        let columns = columns_of(joined);
        let is_blank = joined == " " || joined == "\t";
        if !is_blank && (was_wide_or_blank || columns > 1) {
            word = Some((index, 0));
        }
        was_wide_or_blank = is_blank || columns > 1;
        if column + columns > width && joined != " " {
            let later = word.take().filter(|(begin, behind)| *begin > row_begin && behind + columns <= width);
            (row_begin, column) = later.unwrap_or((index, 0));
            breaks.push(row_begin);
        }
        if column + columns <= width {
            column += columns;
        }
        word = word.map(|(begin, behind)| (begin, behind + columns));
    }
    breaks
}

/// The place of the cursor.
struct CursorPosition {
    row: usize,
    column: usize,
    before: String,
}

impl CursorPosition {
    fn behind(rows: &[String], column: usize) -> Self {
        Self { row: rows.len() - 1, column, before: rows.last().cloned().unwrap_or_default() }
    }
}

/// The columns that a grapheme takes at most: terminals that do not join its characters show them side by side.
fn columns_of(joined: &str) -> usize {
    let of_character = |character: char| match character {
        '\t' => TAB,
        other if is_dangerous(other) => 0,
        '\u{1f1e6}'..='\u{1f1ff}' => 2,
        other => other.width().unwrap_or(0),
    };
    joined
        .chars()
        .map(of_character)
        .sum::<usize>()
        .max(joined.width() * usize::from(is_width_uncertain(joined)))
}

/// Returns whether terminals differ about the columns of a grapheme: some join its characters, some do not.
fn is_width_uncertain(joined: &str) -> bool {
    let is_joining = |character: char| matches!(character, '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' | '\u{1f1e6}'..='\u{1f1ff}' | '\u{1f3fb}'..='\u{1f3ff}');
    let mut wide = joined.chars().filter(|character| character.width().unwrap_or(0) > 0);
    joined.chars().any(is_joining) || wide.nth(1).is_some()
}

/// The content of the screen.
#[derive(Default)]
pub struct Drawn {
    view: View,
    columns: usize,
}

impl Drawn {
    /// Returns what replaces the view on the screen by this one.
    pub fn redraw(&mut self, view: View, columns: usize, reflows: bool) -> String {
        let mut out = self.erase(columns, reflows);
        out.push_str(&view.rows.join("\r\n"));
        let up = view.rows.len().saturating_sub(1).saturating_sub(view.cursor.0);
        if up > 0 {
            let _ = write!(out, "\x1b[{up}A");
        }
        out.push('\r');
        match &view.before_cursor {
            Some(before) => out.push_str(before),
            None if view.cursor.1 > 0 => drop(write!(out, "\x1b[{}C", view.cursor.1)),
            None => {}
        }
        *self = Self { view, columns };
        out
    }

    /// Returns what removes the view. After the window became narrower, a terminal that reflows has broken its rows.
    pub fn erase(&mut self, columns: usize, reflows: bool) -> String {
        let (row, column) = self.view.cursor;
        let mut up = row;
        if reflows && columns > 0 && columns < self.columns {
            let above = self.view.rows.iter().take(row);
            up = above.map(|above| visible_width(above).div_ceil(columns).max(1)).sum();
            up += column / columns;
        }
        *self = Self::default();
        match up {
            0 => "\r\x1b[J".to_owned(),
            up => format!("\x1b[{up}A\r\x1b[J"),
        }
    }

    /// Returns what leaves the view on the screen and goes below it.
    pub fn leave(&mut self) -> String {
        let down = self.view.rows.len().saturating_sub(1).saturating_sub(self.view.cursor.0);
        *self = Self::default();
        match down {
            0 => "\r\n".to_owned(),
            down => format!("\x1b[{down}B\r\n"),
        }
    }
}

/// The columns of text with colours.
fn visible_width(text: &str) -> usize {
    plain(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str, cursor: usize) -> View {
        View::new(&Label { plain: "› ".into(), painted: "› ".into() }, text, cursor, 11)
    }

    #[test]
    fn text_is_broken_at_the_width_and_the_cursor_is_where_it_belongs() {
        assert_eq!(view("", 0), View { rows: vec!["› ".into()], cursor: (0, 2), before_cursor: None });
        let long = view("abcdefghijkl", 8);
        assert_eq!((long.rows, long.cursor), (vec!["› abcdefgh".into(), "ijkl".into()], (1, 0)));
        let two = view("ab\ncd", 3);
        assert_eq!((two.rows, two.cursor), (vec!["› ab".into(), "  cd".into()], (1, 2)));
        assert_eq!(view("日本語日本", 9).cursor, (0, 8));
        assert_eq!(view("日本語日本", 15).rows, ["› 日本語日", "本"]);
    }

    #[test]
    fn rows_break_between_words_where_they_can() {
        let rows = |text: &str| view(text, 0).rows;
        assert_eq!(rows("ab cdef ghij"), ["› ab cdef ", "ghij"]);
        assert_eq!(rows("ab cdef ghi jkl mnop qr"), ["› ab cdef ", "ghi jkl ", "mnop qr"]);
        assert_eq!(rows("a bcdefghijklmnop q"), ["› a ", "bcdefghijk", "lmnop q"]);
        assert_eq!(rows("abc 日本語日"), ["› abc 日本", "語日"]);
        // Blanks behind a full row are not seen, and the cursor stays at its end.
        let full = view("abcdefgh   i", 10);
        assert_eq!((full.rows, full.cursor), (vec!["› abcdefgh".into(), "i".into()], (0, 10)));
        assert_eq!(view("abcdefgh   i", 11).cursor, (1, 0));
        assert_eq!(view("ab cdef ghij", 12).cursor, (1, 4));
        assert_eq!(rows("one\ntwo three"), ["› one", "  two ", "three"]);
    }

    proptest::proptest! {
        /// No row is wider than the window, and nothing but blanks is left out.
        #[test]
        fn rows_hold_all_of_the_text(text in "[a-c 日👍\t\n]{0,60}", columns in 10_usize..30) {
            let label = Label { plain: "› ".into(), painted: "› ".into() };
            let shown = View::new(&label, &text, 0, columns);
            proptest::prop_assert!(shown.rows.iter().all(|row| columns_of_row(row) < columns), "{:?}", shown.rows);
            let seen = |text: &str| text.chars().filter(|c| !c.is_whitespace() && *c != '›').collect::<String>();
            proptest::prop_assert_eq!(seen(&shown.rows.concat()), seen(&text));
            for (index, _) in text.grapheme_indices(true) {
                let (row, column) = View::new(&label, &text, index, columns).cursor;
                proptest::prop_assert!(row < shown.rows.len() && column < columns);
            }
        }
    }

    fn columns_of_row(row: &str) -> usize {
        row.graphemes(true).map(columns_of).sum()
    }

    /// The cursor was placed by a sum of widths, which is wrong where the terminal joins characters.
    #[test]
    fn behind_joined_emoji_the_cursor_is_placed_by_printing_what_is_before_it() {
        for joined in ["👨‍👩‍👧", "❤️", "🇩🇪", "👍🏽", "1️⃣"] {
            let text = format!("x{joined}y");
            let end = view(&text, text.len() - 1);
            assert_eq!(end.before_cursor, Some(format!("› x{joined}")));
            let shown = Drawn::default().redraw(end, 11, true);
            assert!(shown.ends_with(&format!("\r› x{joined}")), "{shown:?}");
            assert_eq!(view(&text, 1).before_cursor, None, "nothing uncertain is before it");
            let broken = view(&joined.repeat(8), 0).rows;
            assert!(broken.iter().all(|row| columns_of(row) <= 11), "{broken:?}");
            assert_eq!(broken.concat(), format!("› {}", joined.repeat(8)), "no grapheme is parted");
        }
        assert_eq!(view("日本語ä", 12).before_cursor, None);
    }

    #[test]
    fn a_long_question_is_shown_whole() {
        let question = "May it connect to example.com? [yes/no] ";
        let label = Label { plain: question.into(), painted: question.into() };
        let view = View::new(&label, "y", 1, 21);
        assert_eq!(view.rows, ["May it connect to", "example.com?", "[yes/no] y"]);
        assert_eq!(view.cursor, (2, 10));
    }

    #[test]
    fn a_screen_that_is_too_small_shows_what_is_around_the_cursor() {
        let mut tall = view("1\n2\n3\n4\n5\n6", 7);
        tall.clip(4);
        assert_eq!((tall.rows, tall.cursor), (vec!["  2".into(), "  3".into(), "  4".into()], (2, 3)));
    }

    #[test]
    fn rows_that_a_narrower_window_has_broken_are_erased_too() {
        let mut drawn = Drawn::default();
        let text = "x".repeat(70);
        let wide =
            View::new(&Label { plain: "› ".into(), painted: "› ".into() }, &format!("{text}\nab"), 73, 80);
        drawn.redraw(wide, 80, true);
        assert_eq!(drawn.erase(40, true), "\x1b[2A\r\x1b[J");
    }
}
