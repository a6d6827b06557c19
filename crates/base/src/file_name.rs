//! Names that look the same and are not: composed and decomposed characters, the many spaces of Unicode, upper and lower case.

use crate::visible::is_hidden;
use unicode_normalization::UnicodeNormalization;

/// The differences that two names may have and still be taken for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// In the composition of characters, and in which spaces they have.
    Looks,
    /// Beside that in upper and lower case.
    Case,
}

impl Likeness {
    /// Returns whether both names are the same but for this.
    pub fn holds(self, one: &str, other: &str) -> bool {
        let fold = |name: &str| match self {
            Self::Looks => folded(name),
            Self::Case => folded(&folded(name).to_lowercase()),
        };
        fold(one) == fold(other)
    }
}

fn folded(name: &str) -> String {
    name.nfc().map(|c| if c.is_whitespace() { ' ' } else { c }).collect()
}

/// The one of `names` that `wanted` means, if it is not among them as it is: the only one that looks the same, else the only
/// one that differs in case. `None` where two do.
pub fn meant<'n>(wanted: &str, names: &[&'n str], most: Likeness) -> Option<&'n str> {
    let alike = |likeness: Likeness| {
        let mut found = names.iter().filter(|name| likeness.holds(wanted, name));
        found.next().map(|first| found.next().is_none().then_some(*first))
    };
    match alike(Likeness::Looks) {
        Some(only) => only,
        None if most == Likeness::Case => alike(Likeness::Case).flatten(),
        None => None,
    }
}

/// The name with what cannot be seen in it, or is not what it looks like, as `\u{202f}`: spaces but the plain one, marks
/// that join the letter before them, and control characters.
pub fn escaped(name: &str) -> String {
    let is_odd = |c: char| {
        is_hidden(c) || (c.is_whitespace() && c != ' ') || unicode_normalization::char::is_combining_mark(c)
    };
    name.chars().map(|c| if is_odd(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_name_that_looks_the_same_is_meant() {
        let names =
            ["Shot 4.42\u{202f}PM.txt", "cafe\u{301}.txt", "README.md", "a.md", "A.MD", "x y", "x\u{a0}y"];
        let found = |wanted| meant(wanted, &names, Likeness::Case);
        assert_eq!(found("Shot 4.42 PM.txt"), Some(names[0]));
        assert_eq!(found("café.txt"), Some(names[1]));
        assert_eq!(found("CAFÉ.txt"), Some(names[1]));
        assert_eq!(found("readme.MD"), Some("README.md"));
        assert_eq!(found("A.md"), None, "two differ in case");
        assert_eq!(found("x\u{2003}y"), None, "two look the same");
        assert_eq!(meant("readme.md", &names, Likeness::Looks), None);
    }

    #[test]
    fn what_looks_the_same_is_shown_apart() {
        assert_eq!(escaped("a 4\u{202f}PM cafe\u{301} é"), "a 4\\u{202f}PM cafe\\u{301} é");
    }
}
