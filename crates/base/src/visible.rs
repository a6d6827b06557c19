//! The one way to show text that a user decides about: nothing in it is hidden, reorders the rest or is obeyed by a terminal.
//!
//! A review, a question and a list of names show what they are about through this. `sanitise` is for output that is
//! only read: it removes what this shows.

use icu_properties::props::{
    DefaultIgnorableCodePoint, ExtendedPictographic, GeneralCategory, PrependedConcatenationMark,
};
use icu_properties::{CodePointMapData, CodePointSetData};
use std::fmt::{self, Write};

/// The sign for a carriage return.
const RETURN: char = '␍';
/// Asks for the coloured form of the character before it.
const EMOJI_FORM: char = '\u{fe0f}';

/// Assigned characters that are drawn as nothing, though Unicode has no property for them: the filler of the Khitan script, the empty
/// note head, the blank pattern of Braille, and the place of an object.
const BLANKS: [char; 4] = ['\u{2800}', '\u{fffc}', '\u{16fe4}', '\u{1d159}'];

/// Returns whether a character is not seen, or changes what is seen of others: controls and formats (joiners, tags, bidirectional
/// controls, those of annotations and of hieroglyphs), line and paragraph separators, all that Unicode has programs ignore
/// (`Default_Ignorable_Code_Point`: variation selectors, fillers), what is not assigned, noncharacters among it, and blanks.
pub fn is_hidden(c: char) -> bool {
    !matches!(c, ' '..='~') && (has_no_sign(c) || BLANKS.contains(&c))
}

fn has_no_sign(c: char) -> bool {
    match CodePointMapData::<GeneralCategory>::new().get(c) {
        GeneralCategory::Control
        | GeneralCategory::LineSeparator
        | GeneralCategory::ParagraphSeparator
        | GeneralCategory::Unassigned => true,
        // The signs of numbers and verses, which are drawn around what follows.
        GeneralCategory::Format => !CodePointSetData::new::<PrependedConcatenationMark>().contains(c),
        _ => is_ignorable(c),
    }
}

/// Returns whether Unicode has programs ignore a character (`Default_Ignorable_Code_Point`), so that some take names with and without
/// it for one.
pub fn is_ignorable(c: char) -> bool {
    CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
}

/// Returns whether a character has no place in output that is only read either: hidden ones, but for those that texts need to be
/// written correctly (joiners, marks of direction, variation selectors), blanks, and what a later Unicode may assign.
pub fn is_unreadable(c: char) -> bool {
    is_hidden(c) && !is_part_of_writing(c)
}

fn is_part_of_writing(c: char) -> bool {
    let is_unassigned = || {
        let is_noncharacter = matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
        !is_ignorable(c)
            && !is_noncharacter
            && CodePointMapData::<GeneralCategory>::new().get(c) == GeneralCategory::Unassigned
    };
    BLANKS.contains(&c)
        || matches!(c, '\n' | '\t' | '\u{34f}' | '\u{180b}'..='\u{180f}' | '\u{200c}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}')
        || is_unassigned()
}

/// `text` on as many lines as it has, tabs included: a carriage return is `␍`, and other hidden characters are `\u{…}`. The
/// selector behind an emoji stays.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    push(text, &mut shown);
    shown
}

/// Text for a user who decides about it. There is no other way to make one than [`visible`], so that what takes one shows nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visible(String);

impl Visible {
    /// `text` as a user may be asked about it.
    pub fn of(text: impl AsRef<str>) -> Self {
        Self(visible(text.as_ref()))
    }

    /// It.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Visible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// [`visible`] of bytes, of which those that are not UTF-8 are `\x…`.
pub fn visible_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        push(chunk.valid(), &mut shown);
        push_bytes(chunk.invalid(), &mut shown);
    }
    shown
}

/// A name on one line, from which its bytes can be read: tabs, line feeds and backslashes are escaped too.
pub fn visible_name(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str("\\\\"),
                _ if is_hidden(c) => shown.extend(c.escape_default()),
                _ => shown.push(c),
            }
        }
        push_bytes(chunk.invalid(), &mut shown);
    }
    shown
}

/// Many blank lines, and many blanks in a line, as a count: they would move what is beside them out of sight.
pub fn without_blanks(text: &str) -> String {
    const MANY_LINES: usize = 3;
    let (mut kept, mut blank) = (Vec::new(), 0);
    let flush = |kept: &mut Vec<String>, blank: usize| match blank {
        MANY_LINES.. => kept.push(format!("({blank} blank lines)")),
        few => kept.extend(vec![String::new(); few]),
    };
    for line in text.lines() {
        if line.trim().is_empty() {
            blank += 1;
            continue;
        }
        flush(&mut kept, std::mem::take(&mut blank));
        kept.push(with_counted_blanks(line));
    }
    kept.join("\n")
}

/// A line in which many blanks in a row are a count.
pub fn with_counted_blanks(line: &str) -> String {
    const MANY: usize = 100;
    let characters: Vec<char> = line.chars().collect();
    let runs = characters.chunk_by(|a, b| a.is_whitespace() == b.is_whitespace());
    runs.map(|run| match run.len() >= MANY && run[0].is_whitespace() {
        true => format!(" ({} blanks) ", run.len()),
        false => run.iter().collect(),
    })
    .collect()
}

/// `text` with tags and variation selectors of the supplementary plane as escapes: a model reads what they spell, and a user sees
/// nothing. Other hidden characters have a place in texts.
pub fn without_tags(text: String) -> String {
    let is_tag = |c: char| matches!(c, '\u{e0000}'..='\u{e0fff}');
    if !text.contains(is_tag) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_tag(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

fn push(text: &str, shown: &mut String) {
    let mut last = None;
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' => shown.push(RETURN),
            EMOJI_FORM if last.is_some_and(is_emoji) => shown.push(c),
            _ if is_hidden(c) => shown.extend(c.escape_default()),
            _ => shown.push(c),
        }
        last = Some(c);
    }
}

fn push_bytes(bytes: &[u8], shown: &mut String) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(shown, "\\x{byte:02x}");
    }
}

fn is_emoji(c: char) -> bool {
    CodePointSetData::new::<ExtendedPictographic>().contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_emoji_and_line_ends_are_as_they_were() {
        for text in
            ["a\tb\nüñ漢🙂", "\u{600}\u{661}\u{6dd}\u{110bd}", "❤\u{fe0f} and ⚠\u{fe0f}", "\\ stays in text"]
        {
            assert_eq!(visible(text), text);
        }
    }

    /// Variation selectors, fillers, the soft hyphen, the Arabic letter mark and unassigned tags passed.
    #[test]
    fn nothing_is_hidden() {
        for c in [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{17b4}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{202e}',
            '\u{2028}',
            '\u{2060}',
            '\u{2065}',
            '\u{3164}',
            '\u{fe00}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff0}',
            '\u{fff9}',
            '\u{fffc}',
            '\u{fdd0}',
            '\u{ffff}',
            '\u{2800}',
            '\u{13430}',
            '\u{1343f}',
            '\u{16fe4}',
            '\u{1bca0}',
            '\u{1d159}',
            '\u{1fffe}',
            '\u{10ffff}',
            '\u{e01ef}',
            '\u{1d173}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e0080}',
            '\u{e0100}',
            '\u{e0fff}',
            '\x1b',
            '\u{9b}',
            '\0',
        ] {
            let escape = c.escape_default().to_string();
            assert_eq!(visible(&format!("a{c}b")), format!("a{escape}b"));
            assert_eq!(visible_name(format!("a{c}b").as_bytes()), format!("a{escape}b"));
        }
    }

    #[test]
    fn many_blanks_are_counted() {
        assert_eq!(without_blanks("a\n\n\nb\n \n\t\n\nc\n\n"), "a\n\n\nb\n(3 blank lines)\nc");
        assert_eq!(without_blanks(&format!("    a{}b", " \u{3000}".repeat(500))), "    a (1000 blanks) b");
    }

    #[test]
    fn returns_and_bytes_are_seen() {
        assert_eq!(visible("return 1  # fine\rimport os"), "return 1  # fine␍import os");
        assert_eq!(visible_bytes(b"a\xff\0b"), "a\\xff\\u{0}b");
        assert_eq!(visible_name(b"a\n\\\xff"), "a\\n\\\\\\xff");
    }
}
