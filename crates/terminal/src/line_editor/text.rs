//! The text that is written at the prompt: what editing does to it.

use super::pasted_image;
use agent_base::sanitise::one_line;
use rustyline::line_buffer::{ChangeListener, DeleteListener, Direction, LineBuffer};
use rustyline::{At, Movement, Word};
use std::ops::Range;
use std::path::PathBuf;
use unicode_segmentation::UnicodeSegmentation;

/// The longest text, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// States that undoing goes back to.
const MAX_UNDO: usize = 100;
/// Texts that were cut and can be pasted again.
const MAX_CUT: usize = 30;
/// Characters of an image's name that are shown.
const MAX_NAME: usize = 60;
/// A paste of more lines than this is shown by its size alone.
const MAX_PASTED_LINES: usize = 10;

/// Text, a cursor in it, and what belongs to editing it.
pub struct Text {
    line: LineBuffer,
    undo: Vec<(String, usize)>,
    /// The last change inserted characters: more of them are the same change.
    is_typing: bool,
    cut: Vec<String>,
    /// The last command cut something: more of it is added to that.
    is_cutting: bool,
    /// The range that was inserted from `cut` last, and which of its texts that is.
    inserted: Option<(Range<usize>, usize)>,
    /// Long pastes and images, each with what it stands for in the text.
    pasted: Vec<(String, String)>,
    /// The images among them, if any may be pasted.
    images: Option<Vec<(String, PathBuf)>>,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            line: LineBuffer::with_capacity(MAX_TEXT),
            undo: Vec::new(),
            is_typing: false,
            cut: Vec::new(),
            is_cutting: false,
            inserted: None,
            pasted: Vec::new(),
            images: None,
        }
    }
}

/// Nobody listens to the buffer's changes.
struct Nobody;

impl DeleteListener for Nobody {
    fn delete(&mut self, _: usize, _: &str, _: Direction) {}
}

impl ChangeListener for Nobody {
    fn insert_char(&mut self, _: usize, _: char) {}
    fn insert_str(&mut self, _: usize, _: &str) {}
    fn replace(&mut self, _: usize, _: &str, _: &str) {}
}

impl Text {
    pub fn as_str(&self) -> &str {
        self.line.as_str()
    }

    /// The cursor, as a position in bytes.
    pub fn cursor(&self) -> usize {
        self.line.pos()
    }

    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub fn is_cursor_at_end(&self) -> bool {
        self.line.is_cursor_at_end()
    }

    /// The text with long pastes in full.
    pub fn expanded(&self) -> String {
        let mut text = self.as_str().to_owned();
        for (label, content) in &self.pasted {
            text = text.replacen(label.as_str(), content, 1);
        }
        text
    }

    /// Has the path of an image, where a terminal pastes one, stand for the image.
    pub fn accept_images(&mut self) {
        self.images = Some(Vec::new());
    }

    /// Takes the images that the text still names.
    pub fn take_images(&mut self) -> Vec<PathBuf> {
        let images = self.images.as_mut().map(std::mem::take).unwrap_or_default();
        let is_named = |label: &String| self.as_str().contains(label.as_str());
        images.into_iter().filter(|(label, _)| is_named(label)).map(|(_, path)| path).collect()
    }

    /// Takes the text, expanded, and begins an empty one.
    pub fn take(&mut self) -> String {
        let text = self.expanded();
        self.images.iter_mut().for_each(Vec::clear);
        self.line.update("", 0, &mut Nobody);
        (self.is_typing, self.is_cutting, self.inserted) = (false, false, None);
        self.undo.clear();
        self.pasted.clear();
        text
    }

    /// Replaces the text, which can be undone. The cursor is at its end.
    pub fn set(&mut self, text: &str) {
        self.change(|line| line.update(text, text.len().min(MAX_TEXT), &mut Nobody));
    }

    pub fn insert_char(&mut self, character: char) {
        let is_typing = self.is_typing;
        if !is_typing {
            self.remember();
        }
        self.line.insert(character, 1, &mut Nobody);
        (self.is_typing, self.is_cutting, self.inserted) = (true, false, None);
    }

    pub fn insert(&mut self, text: &str) {
        self.change(|line| {
            let at = line.pos();
            if line.len() + text.len() <= MAX_TEXT {
                line.insert_str(at, text, &mut Nobody);
                line.set_pos(at + text.len());
            }
        });
    }

    /// Inserts what was pasted: a long text as `[pasted 3,000 lines]`, the path of an image in a prompt as
    /// `[image shot.png]`.
    pub fn paste(&mut self, text: &str) {
        let is_prompt = !self.as_str().starts_with(['!', '/']);
        if is_prompt
            && self.images.is_some()
            && let Some(path) = pasted_image::path(text)
        {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(label) = self.label(&format!("image {}", one_line(&name, MAX_NAME))) else { return };
            self.insert(&label);
            self.images.iter_mut().for_each(|images| images.push((label.clone(), path.clone())));
            return self.pasted.push((label.clone(), label));
        }
        let lines = text.lines().count();
        if lines <= MAX_PASTED_LINES && text.len() < MAX_TEXT / 16 {
            return self.insert(text);
        }
        let what = match lines {
            1 => format!("pasted {} characters", thousands(text.chars().count())),
            lines => format!("pasted {} lines", thousands(lines)),
        };
        let Some(label) = self.label(&what) else { return };
        self.insert(&label);
        self.pasted.push((label, text.to_owned()));
    }

    /// `[what]`, with a number where that stands for something already.
    fn label(&self, what: &str) -> Option<String> {
        let mut labels =
            std::iter::once(format!("[{what}]")).chain((2..).map(|number| format!("[{what}, {number}]")));
        labels.find(|label| self.pasted.iter().all(|(other, _)| other != label))
    }

    /// Deletes the character before the cursor; of a long paste all.
    pub fn backspace(&mut self) {
        let before = &self.as_str()[..self.cursor()];
        let label = self.pasted.iter().map(|(label, _)| label).find(|label| before.ends_with(label.as_str()));
        let length = label.map_or(0, |label| label.len());
        self.change(|line| match length {
            0 => drop(line.backspace(1, &mut Nobody)),
            length => {
                let end = line.pos();
                line.delete_range(end - length..end, &mut Nobody);
                line.set_pos(end - length);
            }
        });
    }

    /// Deletes so many characters from the cursor on.
    pub fn delete(&mut self, count: usize) {
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        self.change(|line| drop(line.delete(count, &mut Nobody)));
    }

    /// Exchanges the characters before and at the cursor.
    pub fn transpose(&mut self) {
        self.change(|line| {
            line.transpose_chars(&mut Nobody);
        });
    }

    /// Replaces what is before the cursor, from `start` on.
    pub fn complete(&mut self, start: usize, text: &str) {
        self.change(|line| {
            let end = line.pos();
            line.replace(start..end, text, &mut Nobody);
            line.set_pos(start + text.len());
        });
    }

    /// Replaces the characters in a range.
    pub fn replace(&mut self, range: Range<usize>, text: &str) {
        self.change(|line| {
            let start = range.start;
            line.replace(range, text, &mut Nobody);
            line.set_pos(start);
        });
    }

    /// Moves the cursor. `false` where it stays.
    pub fn go(&mut self, movement: &Movement) -> bool {
        (self.is_typing, self.is_cutting, self.inserted) = (false, false, None);
        match *movement {
            Movement::BackwardChar(count) => self.line.move_backward(count),
            Movement::ForwardChar(count) => self.line.move_forward(count),
            Movement::BeginningOfLine => self.line.move_home(),
            Movement::EndOfLine => self.line.move_end(),
            Movement::ViFirstPrint => {
                self.line.move_home();
                let rest = &self.line.as_str()[self.line.pos()..];
                let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
                self.line.set_pos(self.line.pos() + blank);
                true
            }
            Movement::BackwardWord(count, word) => self.line.move_to_prev_word(word, count),
            Movement::ForwardWord(count, at, word) => self.line.move_to_next_word(at, word, count),
            Movement::ViCharSearch(count, search) => self.line.move_to(search, count),
            Movement::BeginningOfBuffer => self.line.move_buffer_start(),
            Movement::EndOfBuffer => self.line.move_buffer_end(),
            Movement::LineUp(_) => self.up(),
            Movement::LineDown(_) => self.down(),
            _ => false,
        }
    }

    fn up(&mut self) -> bool {
        let text = self.line.as_str();
        let start = text[..self.line.pos()].rfind('\n').map_or(0, |at| at + 1);
        let Some(above_end) = start.checked_sub(1) else { return false };
        let above = text[..above_end].rfind('\n').map_or(0, |at| at + 1);
        let column = text[start..self.line.pos()].graphemes(true).count();
        self.line.set_pos(at_column(text, above..above_end, column));
        true
    }

    fn down(&mut self) -> bool {
        let text = self.line.as_str();
        let cursor = self.line.pos();
        let start = text[..cursor].rfind('\n').map_or(0, |at| at + 1);
        let Some(end) = text[cursor..].find('\n') else { return false };
        let below = cursor + end + 1;
        let below_end = text[below..].find('\n').map_or(text.len(), |at| below + at);
        let column = text[start..cursor].graphemes(true).count();
        self.line.set_pos(at_column(text, below..below_end, column));
        true
    }

    pub fn set_cursor(&mut self, at: usize) {
        self.line.set_pos(at.min(self.line.len()));
    }

    /// Returns what the movement passes over.
    pub fn passed(&self, movement: &Movement) -> Option<String> {
        self.line.copy(movement)
    }

    /// Copies what the movement passes over, without changing anything.
    pub fn copy(&mut self, movement: &Movement) {
        if let Some(text) = self.line.copy(movement).filter(|text| !text.is_empty()) {
            self.add_cut(text);
        }
    }

    /// Cuts what the movement passes over.
    pub fn cut(&mut self, movement: &Movement) {
        let Some(text) = self.line.copy(movement).filter(|text| !text.is_empty()) else { return };
        let before = self.cursor();
        let was_cutting = self.is_cutting;
        self.change(|line| {
            line.kill(movement, &mut Nobody);
        });
        match self.cut.last_mut().filter(|_| was_cutting) {
            Some(last) if self.line.pos() < before => last.insert_str(0, &text),
            Some(last) => last.push_str(&text),
            None => self.add_cut(text),
        }
        self.is_cutting = true;
    }

    fn add_cut(&mut self, text: String) {
        if self.cut.len() == MAX_CUT {
            self.cut.remove(0);
        }
        self.cut.push(text);
    }

    /// Inserts what was cut last.
    pub fn yank(&mut self) {
        let Some(last) = self.cut.len().checked_sub(1) else { return };
        self.yank_at(self.cursor(), last);
    }

    /// Replaces what [`Text::yank`] inserted by what was cut before it.
    pub fn yank_earlier(&mut self) {
        let Some((range, index)) = self.inserted.clone() else { return };
        let start = range.start;
        self.change(|line| {
            line.delete_range(range, &mut Nobody);
            line.set_pos(start);
        });
        self.yank_at(start, index.checked_sub(1).unwrap_or(self.cut.len().saturating_sub(1)));
    }

    fn yank_at(&mut self, at: usize, index: usize) {
        let Some(text) = self.cut.get(index).cloned() else { return };
        self.insert(&text);
        self.inserted = Some((at..self.cursor(), index));
    }

    /// Changes the case of the next word.
    pub fn word_case(&mut self, change: impl Fn(&str) -> String) {
        let start = self.cursor();
        let movement = Movement::ForwardWord(1, At::AfterEnd, Word::Emacs);
        let Some(word) = self.line.copy(&movement) else { return };
        let changed = change(&word);
        self.replace(start..start + word.len(), &changed);
        self.set_cursor(start + changed.len());
    }

    pub fn undo(&mut self) {
        if let Some((text, cursor)) = self.undo.pop() {
            self.line.update(&text, cursor, &mut Nobody);
        }
        (self.is_typing, self.is_cutting, self.inserted) = (false, false, None);
    }

    fn change(&mut self, change: impl FnOnce(&mut LineBuffer)) {
        self.remember();
        change(&mut self.line);
        if self.undo.last().is_some_and(|(text, _)| text == self.line.as_str()) {
            self.undo.pop();
        }
        (self.is_typing, self.is_cutting, self.inserted) = (false, false, None);
    }

    fn remember(&mut self) {
        if self.undo.len() == MAX_UNDO {
            self.undo.remove(0);
        }
        self.undo.push((self.as_str().to_owned(), self.cursor()));
    }
}

/// The position of a column in a line, or the line's end.
fn at_column(text: &str, line: Range<usize>, column: usize) -> usize {
    let within = text[line.clone()].grapheme_indices(true).nth(column);
    within.map_or(line.end, |(at, _)| line.start + at)
}

/// `3,000`
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &str) -> Text {
        let mut text = Text::default();
        text.insert(content);
        text
    }

    #[test]
    fn a_long_paste_is_shown_by_its_size_and_sent_whole() {
        let long = "line\n".repeat(3000);
        let mut text = text("look: ");
        text.paste(&long);
        text.paste("short\npaste");
        text.paste(&long);
        assert_eq!(text.as_str(), "look: [pasted 3,000 lines]short\npaste[pasted 3,000 lines, 2]");
        assert_eq!(text.expanded(), format!("look: {long}short\npaste{long}"));
        text.backspace();
        assert_eq!(text.as_str(), "look: [pasted 3,000 lines]short\npaste", "it is deleted as a whole");
        text.undo();
        assert_eq!(text.take(), format!("look: {long}short\npaste{long}"));
        assert_eq!(text.take(), "");
    }

    #[test]
    fn cut_text_is_joined_and_comes_back_in_turn() {
        let mut text = text("one two three");
        let word = Movement::BackwardWord(1, Word::Emacs);
        text.cut(&word);
        text.cut(&word);
        assert_eq!(text.as_str(), "one ");
        text.go(&Movement::BeginningOfLine);
        text.cut(&Movement::EndOfLine);
        text.yank();
        assert_eq!(text.as_str(), "one ");
        text.yank_earlier();
        assert_eq!(text.as_str(), "two three");
        for _ in 0..10 {
            text.undo();
        }
        assert_eq!(text.as_str(), "");
    }

    #[test]
    fn what_is_joined_is_moved_over_and_deleted_as_a_whole() {
        for joined in ["👨‍👩‍👧", "❤️", "🇩🇪", "👍🏽", "1️⃣", "e\u{301}"] {
            let mut text = text(&format!("x{joined}y\nab"));
            assert!(text.go(&Movement::LineUp(1)));
            assert_eq!(text.cursor(), 1 + joined.len());
            text.go(&Movement::BackwardChar(1));
            assert_eq!(text.cursor(), 1);
            text.delete(1);
            assert_eq!(text.as_str(), "xy\nab");
            text.undo();
            text.set_cursor(1 + joined.len());
            text.backspace();
            assert_eq!(text.as_str(), "xy\nab");
        }
    }

    #[test]
    fn the_cursor_moves_between_lines() {
        let mut text = text("first line\nab\nthird line");
        assert!(text.go(&Movement::LineUp(1)));
        assert_eq!(text.cursor(), 13);
        assert!(text.go(&Movement::LineUp(1)));
        assert_eq!(text.cursor(), 2);
        assert!(!text.go(&Movement::LineUp(1)));
        assert!(text.go(&Movement::LineDown(1)) && text.go(&Movement::LineDown(1)));
        assert!(!text.go(&Movement::LineDown(1)));
    }
}
