//! How sure it is that a command is what a rule names.

use super::findings::Word;

/// The match of a command with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// It is not.
    No,
    /// It may be: a word that would decide it is known to the shell alone.
    Maybe,
    /// It is.
    Yes,
}

impl Likeness {
    /// Says how sure it is that a word is the wanted one, whose text is (`is_it`) or is not.
    pub fn of(word: &Word, is_it: bool) -> Self {
        match (word.fixed, is_it) {
            (false, _) => Self::Maybe,
            (true, true) => Self::Yes,
            (true, false) => Self::No,
        }
    }
}
