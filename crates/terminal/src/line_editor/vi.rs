//! The commands of vi, after Escape.

use super::text::Text;
use crate::terminal::key::{Key, Press};
use rustyline::{At, CharSearch, Movement, Word};
use unicode_segmentation::UnicodeSegmentation;

/// The most that a count can be.
const MAX_COUNT: u16 = 9999;

/// The state of the keys of vi: characters are inserted, or are commands.
#[derive(Default)]
pub struct Vi {
    pub is_command: bool,
    /// The count before a command.
    count: u16,
    /// `d`, `c` or `y`, and its count: a movement follows.
    operator: Option<(char, u16)>,
    /// `f`, `t`, `F`, `T` or `r`: a character follows.
    awaits: Option<char>,
    searched: Option<CharSearch>,
}

/// A request of a command to the editor.
#[derive(Debug, PartialEq, Eq)]
pub enum ViRequest {
    Nothing,
    Earlier,
    Later,
    Search,
    ExternalEditor,
    /// It is a key that is the same in both modes.
    Usual,
}

impl Vi {
    /// Leaves the insertion of characters, as Escape does.
    pub fn begin_commands(&mut self, text: &mut Text) {
        if !self.is_command && !at_line_start(text) {
            text.go(&Movement::BackwardChar(1));
        }
        *self = Self { is_command: true, searched: self.searched, ..Self::default() };
    }

    /// A key while commands are read.
    pub fn command(&mut self, text: &mut Text, press: &Press) -> ViRequest {
        let Press { key: Key::Char(character), ctrl: false, alt: false, .. } = *press else {
            (self.count, self.operator, self.awaits) = (0, None, None);
            return ViRequest::Usual;
        };
        if let Some(command) = self.awaits.take() {
            self.with_character(text, command, character);
            return ViRequest::Nothing;
        }
        if character.is_ascii_digit() && (character != '0' || self.count > 0) {
            let digit = character as u16 - '0' as u16;
            self.count = self.count.saturating_mul(10).saturating_add(digit).min(MAX_COUNT);
            return ViRequest::Nothing;
        }
        if matches!(character, 'f' | 't' | 'F' | 'T' | 'r') {
            self.awaits = Some(character);
            return ViRequest::Nothing;
        }
        let count = std::mem::take(&mut self.count).max(1);
        if let Some((operator, before)) = self.operator.take() {
            let count = count.saturating_mul(before);
            if character == operator {
                self.operate(text, operator, &Movement::WholeLine);
            } else if let Some(movement) = self.movement(character, count, Some(operator)) {
                self.operate(text, operator, &movement);
            }
            return ViRequest::Nothing;
        }
        if matches!(character, 'd' | 'c' | 'y') {
            self.operator = Some((character, count));
            return ViRequest::Nothing;
        }
        if let Some(movement) = self.movement(character, count, None) {
            return self.go(text, &movement, character);
        }
        self.change(text, character, count)
    }

    fn go(&self, text: &mut Text, movement: &Movement, character: char) -> ViRequest {
        if !text.go(movement) && matches!(character, 'j' | 'k') {
            return if character == 'k' { ViRequest::Earlier } else { ViRequest::Later };
        }
        stay_on_text(text);
        ViRequest::Nothing
    }

    /// The movement of a character; as in vi, `cw` changes to the end of the word alone.
    fn movement(&self, character: char, count: u16, operator: Option<char>) -> Option<Movement> {
        Some(match character {
            'h' => Movement::BackwardChar(count),
            'l' | ' ' => Movement::ForwardChar(count),
            '0' => Movement::BeginningOfLine,
            '^' => Movement::ViFirstPrint,
            '$' => Movement::EndOfLine,
            'w' if operator == Some('c') => Movement::ForwardWord(count, At::AfterEnd, Word::Vi),
            'W' if operator == Some('c') => Movement::ForwardWord(count, At::AfterEnd, Word::Big),
            'w' => Movement::ForwardWord(count, At::Start, Word::Vi),
            'W' => Movement::ForwardWord(count, At::Start, Word::Big),
            'b' => Movement::BackwardWord(count, Word::Vi),
            'B' => Movement::BackwardWord(count, Word::Big),
            'e' if operator.is_some() => Movement::ForwardWord(count, At::AfterEnd, Word::Vi),
            'e' => Movement::ForwardWord(count, At::BeforeEnd, Word::Vi),
            'E' => Movement::ForwardWord(count, At::BeforeEnd, Word::Big),
            'G' => Movement::EndOfBuffer,
            'g' => Movement::BeginningOfBuffer,
            'j' => Movement::LineDown(count),
            'k' => Movement::LineUp(count),
            ';' => Movement::ViCharSearch(count, self.searched?),
            ',' => Movement::ViCharSearch(count, opposite(self.searched?)),
            _ => return None,
        })
    }

    fn with_character(&mut self, text: &mut Text, command: char, character: char) {
        let count = std::mem::take(&mut self.count).max(1);
        let search = match command {
            'f' => CharSearch::Forward(character),
            't' => CharSearch::ForwardBefore(character),
            'F' => CharSearch::Backward(character),
            'T' => CharSearch::BackwardAfter(character),
            _ => {
                let rest = &text.as_str()[text.cursor()..];
                if let Some(old) = rest.graphemes(true).next().filter(|old| !old.ends_with('\n')) {
                    let start = text.cursor();
                    text.replace(start..start + old.len(), &character.to_string());
                }
                return;
            }
        };
        self.searched = Some(search);
        let movement = Movement::ViCharSearch(count, search);
        match self.operator.take() {
            Some((operator, _)) => self.operate(text, operator, &movement),
            None => drop(text.go(&movement)),
        }
    }

    fn operate(&mut self, text: &mut Text, operator: char, movement: &Movement) {
        let movement = &within_last_word(text, movement);
        match operator {
            'y' => text.copy(movement),
            _ => text.cut(movement),
        }
        self.is_command = operator != 'c';
        if self.is_command {
            stay_on_text(text);
        }
    }

    /// Commands that do not move.
    fn change(&mut self, text: &mut Text, character: char, count: u16) -> ViRequest {
        match character {
            'x' => text.cut(&Movement::ForwardChar(count)),
            'X' => text.cut(&Movement::BackwardChar(count)),
            'D' => text.cut(&Movement::EndOfLine),
            'u' => text.undo(),
            'P' => text.yank(),
            'p' => {
                text.go(&Movement::ForwardChar(1));
                text.yank();
            }
            '~' => toggle_case(text),
            'v' => return ViRequest::ExternalEditor,
            '/' => return ViRequest::Search,
            _ => return self.insertion(text, character, count),
        }
        stay_on_text(text);
        ViRequest::Nothing
    }

    /// Commands after which characters are inserted.
    fn insertion(&mut self, text: &mut Text, character: char, count: u16) -> ViRequest {
        match character {
            'i' => {}
            'I' => drop(text.go(&Movement::ViFirstPrint)),
            'a' => drop(text.go(&Movement::ForwardChar(1))),
            'A' => drop(text.go(&Movement::EndOfLine)),
            's' => text.cut(&Movement::ForwardChar(count)),
            'S' => text.cut(&Movement::WholeLine),
            'C' => text.cut(&Movement::EndOfLine),
            'o' => {
                text.go(&Movement::EndOfLine);
                text.insert("\n");
            }
            'O' => {
                text.go(&Movement::BeginningOfLine);
                text.insert("\n");
                text.go(&Movement::BackwardChar(1));
            }
            _ => return ViRequest::Nothing,
        }
        self.is_command = false;
        ViRequest::Nothing
    }
}

fn opposite(search: CharSearch) -> CharSearch {
    match search {
        CharSearch::Forward(c) => CharSearch::Backward(c),
        CharSearch::ForwardBefore(c) => CharSearch::BackwardAfter(c),
        CharSearch::Backward(c) => CharSearch::Forward(c),
        CharSearch::BackwardAfter(c) => CharSearch::ForwardBefore(c),
    }
}

/// The movement to the next word, or to the end of the line where there is no next one: rustyline's ends before the last
/// character then.
fn within_last_word(text: &Text, movement: &Movement) -> Movement {
    let Movement::ForwardWord(_, At::Start, word) = movement else { return movement.clone() };
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let passed = text.passed(movement).unwrap_or_default();
    let next = text.as_str()[text.cursor() + passed.len()..].chars().next();
    let begins = match (passed.chars().next_back(), next) {
        (Some(before), Some(next)) if *word == Word::Big => before.is_whitespace() && !next.is_whitespace(),
        (Some(before), Some(next)) => {
            !next.is_whitespace() && (before.is_whitespace() || is_word(before) != is_word(next))
        }
        _ => false,
    };
    if begins { movement.clone() } else { Movement::EndOfLine }
}

fn at_line_start(text: &Text) -> bool {
    text.cursor() == 0 || text.as_str()[..text.cursor()].ends_with('\n')
}

/// The cursor of vi's commands is on a character, not behind the last one.
fn stay_on_text(text: &mut Text) {
    let is_behind = text.is_cursor_at_end() || text.as_str()[text.cursor()..].starts_with('\n');
    if is_behind && !at_line_start(text) {
        text.go(&Movement::BackwardChar(1));
    }
}

fn toggle_case(text: &mut Text) {
    let start = text.cursor();
    let Some(old) = text.as_str()[start..].chars().next() else { return };
    let new: String = match old.is_lowercase() {
        true => old.to_uppercase().collect(),
        false => old.to_lowercase().collect(),
    };
    text.replace(start..start + old.len_utf8(), &new);
    text.go(&Movement::ForwardChar(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the text is after these keys, with `|` at the cursor; `<` is Escape.
    fn after(keys: &str) -> String {
        let (mut vi, mut text) = (Vi::default(), Text::default());
        for character in keys.chars() {
            match character {
                '<' => vi.begin_commands(&mut text),
                _ if vi.is_command => drop(vi.command(&mut text, &Press::of(Key::Char(character)))),
                _ => text.insert_char(character),
            }
        }
        let mut shown = text.as_str().to_owned();
        shown.insert(text.cursor(), '|');
        shown
    }

    #[test]
    fn movements_and_operators_do_what_vi_does() {
        for (keys, expected) in [
            ("one two<", "one tw|o"),
            ("one two<0w", "one |two"),
            ("one two three<0dw", "|two three"),
            ("one two three<02dw", "|three"),
            ("one two three<0d2w", "|three"),
            ("one two<0cwsix", "six| two"),
            ("one two<dd", "|"),
            ("one two<bD", "one| "),
            ("one two<0fwx", "one t|o"),
            ("one two<0dtw", "|wo"),
            ("one two<0rO", "|One two"),
            ("one<~", "on|E"),
            ("one two<0dwu", "|one two"),
            ("one two<0dwP", "one |two"),
            ("one<3hiX", "X|one"),
            ("one<Itwo ", "two |one"),
            ("one<0A!", "one!|"),
            ("one<0ywP", "one|one"),
            ("a b<ccnew", "new|"),
            ("one two<0wdw", "one| "),
        ] {
            assert_eq!(after(keys), expected, "{keys}");
        }
    }
}
