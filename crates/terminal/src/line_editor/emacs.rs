//! The usual keys, those of Emacs and readline, in every mode of the editor but vi's commands.

use super::text::Text;
use crate::terminal::key::{Key, Press};
use rustyline::{At, Movement, Word};

/// Applies a key that edits or moves. `false` where it does neither.
pub fn edit(text: &mut Text, press: &Press) -> bool {
    let Press { key, ctrl, alt, .. } = press;
    match (key, ctrl, alt) {
        (Key::Char(character), false, false) => text.insert_char(*character),
        (Key::Paste(pasted), ..) => text.paste(pasted),
        (Key::Char('j'), true, _) => text.insert("\n"),
        (Key::Enter, _, _) if *alt || press.shift => text.insert("\n"),
        (Key::Char(character), true, false) => return control(text, *character),
        (Key::Char(character), false, true) => return meta(text, *character),
        (Key::Backspace, _, true) | (Key::Backspace, true, _) => {
            text.cut(&Movement::BackwardWord(1, Word::Emacs));
        }
        (Key::Backspace, ..) => text.backspace(),
        (Key::Delete, false, false) => text.delete(1),
        (Key::Delete, ..) => text.cut(&Movement::ForwardWord(1, At::AfterEnd, Word::Emacs)),
        (Key::Left, false, false) => drop(text.go(&Movement::BackwardChar(1))),
        (Key::Right, false, false) => drop(text.go(&Movement::ForwardChar(1))),
        (Key::Left, ..) => drop(text.go(&Movement::BackwardWord(1, Word::Emacs))),
        (Key::Right, ..) => drop(text.go(&Movement::ForwardWord(1, At::AfterEnd, Word::Emacs))),
        (Key::Home, ..) => drop(text.go(&Movement::BeginningOfLine)),
        (Key::End, ..) => drop(text.go(&Movement::EndOfLine)),
        _ => return false,
    }
    true
}

fn control(text: &mut Text, character: char) -> bool {
    match character {
        'a' => drop(text.go(&Movement::BeginningOfLine)),
        'b' => drop(text.go(&Movement::BackwardChar(1))),
        'd' => text.delete(1),
        'e' => drop(text.go(&Movement::EndOfLine)),
        'f' => drop(text.go(&Movement::ForwardChar(1))),
        'h' => text.backspace(),
        'k' => text.cut(&Movement::EndOfLine),
        't' => text.transpose(),
        'u' => text.cut(&Movement::BeginningOfLine),
        'w' => text.cut(&Movement::BackwardWord(1, Word::Big)),
        'y' => text.yank(),
        '_' => text.undo(),
        _ => return false,
    }
    true
}

fn meta(text: &mut Text, character: char) -> bool {
    match character.to_ascii_lowercase() {
        'b' => drop(text.go(&Movement::BackwardWord(1, Word::Emacs))),
        'c' => text.word_case(capitalised),
        'd' => text.cut(&Movement::ForwardWord(1, At::AfterEnd, Word::Emacs)),
        'f' => drop(text.go(&Movement::ForwardWord(1, At::AfterEnd, Word::Emacs))),
        'l' => text.word_case(str::to_lowercase),
        'u' => text.word_case(str::to_uppercase),
        'y' => text.yank_earlier(),
        _ => return false,
    }
    true
}

fn capitalised(word: &str) -> String {
    let mut is_first = true;
    let change = |character: char| match character.is_alphanumeric() && std::mem::take(&mut is_first) {
        true => character.to_uppercase().collect::<String>(),
        false => character.to_lowercase().collect(),
    };
    word.chars().map(change).collect()
}
