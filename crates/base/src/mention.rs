//! Where an `@` names a file in what the user writes.

use unicode_width::UnicodeWidthChar;

/// Returns whether an `@` behind this character begins the name of a file, and is not part of an address: behind white space, a
/// parenthesis, and the wide characters of scripts that put no blanks between words.
pub fn may_follow(before: char) -> bool {
    before.is_whitespace() || before == '(' || is_wide(before)
}

/// Returns whether a character takes two columns.
pub fn is_wide(character: char) -> bool {
    character.width() == Some(2)
}
