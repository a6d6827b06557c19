//! Halves of surrogate pairs in the escapes of JSON. A server that cuts a text by its UTF-16 units sends `\ud83c` in one piece
//! and `\udf89` in the next, which no parser takes.

use std::borrow::Cow;

/// The private characters that stand for lone halves between the parser and [`Joiner`]: a string cannot hold a half.
const FIRST_MARK: u32 = 0x10_f800;
const FIRST_HALF: u16 = 0xd800;
const FIRST_LOW_HALF: u16 = 0xdc00;
const LAST_HALF: u16 = 0xdfff;
/// The length of `\uXXXX`.
const ESCAPE: usize = 6;

/// The document that `json` is, and whether its texts have marks for halves of surrogate pairs.
pub fn parsed(json: &str) -> serde_json::Result<(serde_json::Value, bool)> {
    let parsed = serde_json::from_str(json);
    match if parsed.is_err() { marked(json) } else { None } {
        Some(marked) => Ok((serde_json::from_str(&marked)?, true)),
        None => Ok((parsed?, false)),
    }
}

/// JSON with a mark in place of the escape of each half without its other one. `None` where there are none.
pub fn marked(json: &str) -> Option<String> {
    rewritten(json, |half| {
        char::from_u32(FIRST_MARK + u32::from(half - FIRST_HALF)).unwrap_or(char::REPLACEMENT_CHARACTER)
    })
}

/// JSON with U+FFFD in place of such an escape. `None` where there are none.
pub fn replaced(json: &str) -> Option<String> {
    rewritten(json, |_| char::REPLACEMENT_CHARACTER)
}

fn rewritten(json: &str, instead: impl Fn(u16) -> char) -> Option<String> {
    let mut rewritten = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = json.get(at..).and_then(|rest| rest.find('\\')) {
        let escape = at + found;
        at = match unit_at(json, escape) {
            Some(FIRST_HALF..FIRST_LOW_HALF)
                if matches!(unit_at(json, escape + ESCAPE), Some(FIRST_LOW_HALF..=LAST_HALF)) =>
            {
                escape + 2 * ESCAPE
            }
            Some(half @ FIRST_HALF..=LAST_HALF) => {
                rewritten.push_str(&json[copied..escape]);
                rewritten.push(instead(half));
                copied = escape + ESCAPE;
                copied
            }
            Some(_) => escape + ESCAPE,
            None => escape + 1 + json[escape + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if copied == 0 {
        return None;
    }
    rewritten.push_str(&json[copied..]);
    Some(rewritten)
}

/// The UTF-16 unit that is escaped here.
fn unit_at(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

/// Joins the pieces of one text.
#[derive(Debug, Default)]
pub struct Joiner {
    /// The half that the text ends with so far.
    high: Option<u16>,
}

impl Joiner {
    /// Returns what `piece` adds to the text. Marks count where the piece comes from JSON with marks.
    pub fn join<'a>(&mut self, piece: &'a str, has_marks: bool) -> Cow<'a, str> {
        if piece.is_empty() || self.high.is_none() && !has_marks {
            return Cow::Borrowed(piece);
        }
        let mut units: Vec<u16> = self.high.take().into_iter().collect();
        for c in piece.chars() {
            match u32::from(c).checked_sub(FIRST_MARK).and_then(|half| u16::try_from(half).ok()) {
                Some(half) if has_marks => units.push(FIRST_HALF + half),
                _ => units.extend_from_slice(c.encode_utf16(&mut [0; 2])),
            }
        }
        self.high = units.pop_if(|last| (FIRST_HALF..FIRST_LOW_HALF).contains(last));
        Cow::Owned(String::from_utf16_lossy(&units))
    }

    /// Returns what is left at the end of the text.
    pub fn finish(&mut self) -> &'static str {
        if self.high.take().is_some() { "\u{fffd}" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn joined(pieces: &[&str]) -> String {
        let (mut joiner, mut text) = (Joiner::default(), String::new());
        for piece in pieces {
            let marked = marked(piece);
            let value: Value = serde_json::from_str(marked.as_deref().unwrap_or(piece)).unwrap();
            text.push_str(&joiner.join(value.as_str().unwrap(), marked.is_some()));
        }
        text + joiner.finish()
    }

    #[test]
    fn a_pair_that_is_cut_is_joined_and_a_half_that_stays_alone_is_replaced() {
        assert_eq!(joined(&[r#""party \ud83c""#, r#""\udf89 done""#]), "party 🎉 done");
        assert_eq!(joined(&[r#""party \uD83C\uDF89""#]), "party 🎉");
        assert_eq!(joined(&[r#""a\ud83c""#, r#""""#, r#""\udf89""#]), "a🎉");
        assert_eq!(joined(&[r#""a\ud83c""#, r#""b\udf89\ud83c""#]), "a\u{fffd}b\u{fffd}\u{fffd}");
        assert_eq!(joined(&[r#""\ud83c\ud83c\udf89""#]), "\u{fffd}🎉");
    }

    #[test]
    fn an_escaped_backslash_begins_no_half() {
        assert_eq!(marked(r#""C:\\ud83c""#), None);
        assert_eq!(joined(&[r#""C:\\ud83c \ud83c""#]), "C:\\ud83c \u{fffd}");
        assert_eq!(replaced(r#"{"a":"\ud83c\n"}"#).as_deref(), Some("{\"a\":\"\u{fffd}\\n\"}"));
    }

    #[test]
    fn private_characters_of_the_text_itself_are_kept() {
        assert_eq!(joined(&["\"\u{10f83c}\""]), "\u{10f83c}");
    }

    proptest! {
        #[test]
        fn any_text_is_scanned(text in "(\\\\|u|d83c|df89|\"|é|🎉){0,12}") {
            let _ = marked(&text);
        }

        #[test]
        fn a_text_that_is_escaped_and_cut_anywhere_is_whole_again(text in "[a🎉é𝄞]{0,8}", cut in 0_usize..16) {
            let units: Vec<u16> = text.encode_utf16().collect();
            let (one, two) = units.split_at(cut.min(units.len()));
            let escaped = |units: &[u16]| {
                format!("\"{}\"", units.iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>())
            };
            prop_assert_eq!(joined(&[&escaped(one), &escaped(two)]), text);
        }
    }
}
