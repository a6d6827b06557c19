//! Text that looks the same as another and is not: composed and decomposed letters, the many spaces, quotation marks and dashes
//! of Unicode, and characters that cannot be seen. Models write the plain ones whatever a file has.

use std::borrow::Cow;
use std::ops::Range;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The longest text that is searched, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// A text in plain characters, and the places where they are not those of the original.
struct Plain {
    text: String,
    changed: Vec<Changed>,
}

/// A letter with its marks that is written in another way: its place in either text.
struct Changed {
    plain: Range<usize>,
    original: Range<usize>,
}

/// The only place in `text` that looks the same as `wanted` and is not, where `wanted` has the plain characters; `None` where there are
/// several.
pub fn only_place(text: &str, wanted: &str) -> Option<Range<usize>> {
    if text.len() > MAX_BYTES || (text.is_ascii() && wanted.is_ascii()) {
        return None;
    }
    let composed: String = wanted.nfc().collect();
    let (within, wanted) = (Plain::of(text), Plain::of(wanted).text);
    if wanted.trim().is_empty() || wanted != composed {
        return None;
    }
    let first = within.text.find(&wanted)?;
    let behind = first + within.text[first..].chars().next().map_or(1, char::len_utf8);
    let is_only = !within.text[behind..].contains(&wanted);
    let place = within.original(first)?..within.original(first + wanted.len())?;
    is_only.then_some(place)
}

/// The length of what `one` and `other` both begin with, up to the end of a letter with its marks in either.
pub fn common_start(one: &str, other: &str) -> usize {
    letters(one)
        .zip(letters(other))
        .take_while(|(one, other)| one == other)
        .map(|(letter, _)| letter.len())
        .sum()
}

/// Returns whether `new` has, in plain characters, any of the letters that `text` has in others: in its place, they would be lost.
pub fn loses_letters(text: &str, new: &str) -> bool {
    let plain = Plain::of(text);
    let mut others = plain.changed.iter().map(|changed| &plain.text[changed.plain.clone()]);
    let new = Plain::of(new).text;
    others.any(|letter| !letter.is_empty() && new.contains(letter))
}

/// The number of bytes at the beginning of `text` that the letters of `start` take up in their plain form.
pub fn length_of_start(text: &str, start: &str) -> Option<usize> {
    Plain::of(text).original(Plain::of(start).text.len())
}

impl Plain {
    fn of(original: &str) -> Self {
        let mut plain = Self { text: String::with_capacity(original.len()), changed: Vec::new() };
        let mut at = 0;
        for letter in letters(original) {
            let begin = plain.text.len();
            let made = plain_letter(letter);
            plain.text.push_str(&made);
            if made != letter {
                plain
                    .changed
                    .push(Changed { plain: begin..plain.text.len(), original: at..at + letter.len() });
            }
            at += letter.len();
        }
        plain
    }

    /// The place in the original; `None` within a letter that is written in another way there.
    fn original(&self, place: usize) -> Option<usize> {
        let before = self.changed.partition_point(|changed| changed.plain.end <= place);
        let (plain_end, original_end) = before
            .checked_sub(1)
            .map_or((0, 0), |last| (self.changed[last].plain.end, self.changed[last].original.end));
        let is_within = self.changed.get(before).is_some_and(|next| next.plain.start < place);
        (!is_within).then(|| original_end + place - plain_end)
    }
}

/// The letters of a text, each with the marks that belong to it.
fn letters(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut characters = rest.char_indices();
        characters.next()?;
        let end = characters.find(|(_, character)| !joins(*character)).map_or(rest.len(), |(at, _)| at);
        let (letter, behind) = rest.split_at(end);
        rest = behind;
        Some(letter)
    })
}

/// Returns whether a character belongs to the letter before it. Korean letters are decomposed into vowels and finals.
fn joins(character: char) -> bool {
    is_combining_mark(character) || ('\u{1160}'..='\u{11ff}').contains(&character)
}

fn plain_letter(letter: &str) -> Cow<'_, str> {
    if letter.is_ascii() {
        return Cow::Borrowed(letter);
    }
    let plain = |character: char| match character {
        '‘' | '’' | '‚' | '‛' => Some('\''),
        '“' | '”' | '„' | '‟' => Some('"'),
        '‐' | '‑' | '‒' | '–' | '—' | '―' | '−' => Some('-'),
        '\u{ad}' | '\u{200b}' | '\u{2060}' | '\u{feff}' => None,
        space if space.is_whitespace() && !space.is_ascii() => Some(' '),
        other => Some(other),
    };
    Cow::Owned(letter.nfc().filter_map(plain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_place_that_looks_the_same_is_found() {
        let place = |text: &str, wanted| only_place(text, wanted).map(|place| text[place].to_owned());
        for (text, wanted, found) in [
            ("say “hi” now", "say \"hi\"", "say “hi”"),
            ("un cafe\u{301} noir", "café", "cafe\u{301}"),
            ("un café noir", "cafe\u{301}", "café"),
            ("a\u{a0}b — it’s", "b - it's", "b — it’s"),
            ("no\u{200b}thing", "nothing", "no\u{200b}thing"),
            ("\u{1112}\u{1161}\u{11ab}글", "한글", "\u{1112}\u{1161}\u{11ab}글"),
        ] {
            assert_eq!(place(text, wanted).as_deref(), Some(found), "{text}");
        }
        assert_eq!(place("“a” “a”", "\"a\""), None, "twice");
        assert_eq!(place("say \"hi\"", "say “hi”"), None, "the file has the plain ones");
        assert!(
            loses_letters("a” and “b", "A\" and \"B")
                && !loses_letters("a” b", "c")
                && loses_letters("a\u{a0}b", "c d")
        );
        assert_eq!(place("cafe\u{301}", "cafe"), None, "a letter without its mark is another one");
        assert_eq!(place("a\u{a0}\u{a0}b", " "), None);
        assert_eq!(place("plain", "pl"), None, "nothing looks different");
    }

    #[test]
    fn a_start_ends_between_letters() {
        assert_eq!(common_start("say \"hi\"", "say \"ho\""), 6);
        assert_eq!(common_start("cafe\u{301}s", "cafes"), 3);
        assert_eq!(length_of_start("“hi”", "\"h"), Some("“h".len()));
    }
}
