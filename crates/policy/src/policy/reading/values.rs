//! The values that a script gives to its variables, as far as they say what becomes of a word.

use super::super::findings::{Becomes, Word};
use super::places::MARK;
use super::tokens::{Draft, WordPart, is_number, is_sum, may_fail};
use std::collections::HashMap;

/// Rounds in which values are passed on from variable to variable.
const MAX_ROUNDS: usize = 16;

/// The knowledge of a text; of two, the later one is known less of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Digits, at least one, and no zero before others.
    Digits,
    /// A whole number, which may be negative.
    Number,
    /// The same, or nothing, with blanks around it: what an expression may evaluate.
    Count,
    /// Text that stays one word, or nothing, and not an option.
    Plain,
    /// Text that begins as no option does, or nothing. Outside of quotes it may be divided.
    Text,
    /// Anything.
    Any,
}

impl Value {
    /// The knowledge of a text that is one or the other.
    pub fn or(self, other: Self) -> Self {
        let (low, high) = (self.min(other), self.max(other));
        // Behind a dash, a number is not, but what follows it may be letters of options.
        let is_mixed = matches!(low, Value::Number | Value::Count) && high > Value::Count;
        if is_mixed { Value::Any } else { high }
    }
}

/// A variable that is given what others hold.
pub struct Link {
    pub name: String,
    pub draft: Draft,
    pub is_divided: bool,
}

/// The values of variables, given those that the script writes out and those that it passes on.
pub fn resolved(mut values: HashMap<String, Value>, links: &[Link]) -> HashMap<String, Value> {
    for _ in 0..MAX_ROUNDS {
        let mut is_final = true;
        for link in links {
            let before = values.get(&link.name).copied().unwrap_or(Value::Digits);
            let given = link.draft.value(&|name| of(&values, name), link.is_divided);
            let value = before.or(given);
            is_final &= value == before;
            values.insert(link.name.clone(), value);
        }
        if is_final {
            return values;
        }
    }
    values.extend(links.iter().map(|link| (link.name.clone(), Value::Any)));
    values
}

/// The value of a variable that the script has given one for sure.
pub fn of(values: &HashMap<String, Value>, name: &str) -> Value {
    match values.get(name) {
        // Without a job in the background, it is empty.
        _ if name == "!" => Value::Count,
        _ if super::variables::is_harmless(name) => Value::Any,
        Some(value) => *value,
        None if super::variables::NUMBERS.contains(&name) => Value::Number,
        None => Value::Any,
    }
}

impl Draft {
    /// Returns what is known of it as the value of a variable, or, where it `is_divided`, of each of the words that become of it.
    pub fn value(&self, value_of: &dyn Fn(&str) -> Value, is_divided: bool) -> Value {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./@%,+-".contains(&byte);
        let text = self.fixed();
        match (text.as_deref(), self.parts.as_slice()) {
            // Where it fails, the variable keeps what it had.
            (_, parts)
                if parts
                    .iter()
                    .any(|part| matches!(part, WordPart::Number(written) if may_fail(written))) =>
            {
                Value::Any
            }
            (_, [WordPart::Number(_)]) => Value::Number,
            (_, [WordPart::Output { each, is_quoted: false, .. }]) if is_divided => *each,
            (_, [part]) if part.value(value_of) < Value::Any && !(is_divided && part.divides(value_of)) => {
                part.value(value_of)
            }
            (Some(text), _) if is_number(text) => Value::Digits,
            (Some(text), _)
                if !text.is_empty() && text.bytes().all(is_plain) && !text.starts_with(['-', '+']) =>
            {
                Value::Plain
            }
            _ if self.begins_plain(value_of)
                && !(is_divided && self.parts.iter().any(|part| part.divides(value_of))) =>
            {
                Value::Text
            }
            _ => Value::Any,
        }
    }

    /// Returns whether it begins with text, so that it is never nothing.
    pub fn begins(&self) -> bool {
        self.parts.first().is_some_and(|part| match part {
            WordPart::Fixed(text) => !text.is_empty(),
            WordPart::Alike(text) => text != "{",
            WordPart::Number(_) => true,
            _ => false,
        })
    }

    /// The word as one of files, with [`MARK`]s around what may be nothing where the path may begin behind it, and with what such an expansion
    /// puts in. `is_filled` says of a variable that it holds more than nothing.
    pub fn placed(&self, value_of: &dyn Fn(&str) -> Value, is_filled: &dyn Fn(&str) -> bool) -> Word {
        let (mut text, mut may_begin) = (String::new(), true);
        for part in &self.parts {
            let before = text.replace(MARK, "");
            may_begin &= before.len() == before.matches('$').count();
            let (inner, is_open) = match part {
                WordPart::Fixed(part) | WordPart::Alike(part) => (part.as_str(), false),
                WordPart::Number(_) => ("$", false),
                WordPart::Name { name, is_set: true, .. } if is_filled(name) => ("$", false),
                WordPart::Changed { written, .. } if matches!(written.as_str(), "~" | "{}") => {
                    (written.as_str(), false)
                }
                WordPart::Changed { written, .. } => (put_in(written).unwrap_or("$"), true),
                WordPart::Name { .. } | WordPart::Output { .. } => ("$", true),
            };
            let is_value = before.starts_with('-') || before.ends_with(['=', ':', '{', ',']);
            let is_open = is_open && (may_begin || is_value || part.divides(value_of));
            may_begin &= is_open || inner.is_empty();
            match is_open {
                true => text.extend([MARK.to_string().as_str(), inner, MARK.to_string().as_str()]),
                false => text += inner,
            }
        }
        Word { text, ..self.word(value_of, false) }
    }

    /// Returns whether it begins with text as no option does.
    fn begins_plain(&self, value_of: &dyn Fn(&str) -> Value) -> bool {
        for part in &self.parts {
            match part {
                WordPart::Fixed(text) if text.is_empty() => {}
                WordPart::Fixed(text) => return !text.starts_with(['-', '+']),
                WordPart::Changed { becomes: Becomes::Plain, .. } => {}
                _ if matches!(part.value(value_of), Value::Digits | Value::Plain | Value::Text) => {}
                _ => return false,
            }
        }
        !self.parts.is_empty()
    }

    /// The word, given what its variables hold, any of which may not be set after all. Where the program takes any number alike
    /// (`takes_numbers`), one stands in place of each that is digits for sure: a dash may be an operator, and nothing may join what is
    /// beside it.
    pub fn word(&self, value_of: &dyn Fn(&str) -> Value, takes_numbers: bool) -> Word {
        let is_text = |part: &WordPart| matches!(part, WordPart::Fixed(text) if !text.is_empty());
        let (is_alone, begins) = (self.parts.len() == 1, self.parts.first().is_some_and(is_text));
        let is_digits = |name: &str| value_of(name) == Value::Digits;
        let mut word = Word::fixed("");
        for part in &self.parts {
            let (text, becomes) = match part {
                WordPart::Fixed(text) => (text.as_str(), None),
                WordPart::Alike(text) => (text.as_str(), Some(Becomes::Alike)),
                WordPart::Number(written) if takes_numbers && is_sum(written, is_digits) => ("1", None),
                WordPart::Number(written) if is_alone => (written.as_str(), Some(Becomes::Plain)),
                WordPart::Number(written) => (written.as_str(), Some(Becomes::One)),
                WordPart::Changed { written, becomes } => (written.as_str(), Some(*becomes)),
                WordPart::Name { written, is_quoted, .. } | WordPart::Output { written, is_quoted, .. } => {
                    let value = part.value(value_of);
                    match (value, is_quoted) {
                        (Value::Digits, true) if takes_numbers => ("1", None),
                        (Value::Digits, false) if takes_numbers && begins => ("1", None),
                        (Value::Any | Value::Text, false) => (written.as_str(), Some(Becomes::Any)),
                        (_, false) if is_alone => (written.as_str(), Some(Becomes::Operand)),
                        (Value::Any, true) => (written.as_str(), Some(Becomes::One)),
                        (_, true) if is_alone => (written.as_str(), Some(Becomes::Plain)),
                        (Value::Count, false) => (written.as_str(), Some(Becomes::Any)),
                        // What stands beside it keeps it from vanishing.
                        (_, false) if begins || self.parts.iter().any(is_text) => {
                            (written.as_str(), Some(Becomes::One))
                        }
                        (_, false) => (written.as_str(), Some(Becomes::Any)),
                        (_, true) => (written.as_str(), Some(Becomes::One)),
                    }
                }
            };
            word.text += text;
            word.becomes = match becomes {
                Some(becomes) if word.fixed => becomes,
                Some(becomes) => word.becomes.max(becomes),
                None => word.becomes,
            };
            word.fixed &= becomes.is_none();
        }
        if !word.fixed && !begins && self.begins_plain(value_of) {
            word.becomes = match word.becomes {
                Becomes::One => Becomes::Plain,
                Becomes::Alike => Becomes::Operands,
                other => other,
            };
        }
        word
    }
}

/// The text that an expansion may put in beside what the variable holds: of `${x:-/a}`, `/a`, and of `${x/b//a}`, `/a`.
fn put_in(written: &str) -> Option<&str> {
    let inner = written.strip_prefix("${")?.strip_suffix('}')?;
    let rest =
        inner.trim_start_matches(|c: char| c == '_' || c == '@' || c == '*' || c.is_ascii_alphanumeric());
    match rest.trim_start_matches(':').chars().next()? {
        '-' | '+' | '=' => Some(&rest.trim_start_matches(':')[1..]),
        '/' => rest.trim_start_matches('/').split_once('/').map(|(_, text)| text),
        _ => None,
    }
}

impl WordPart {
    /// Returns the knowledge of what an expansion becomes, before it is divided.
    fn value(&self, value_of: &dyn Fn(&str) -> Value) -> Value {
        match self {
            WordPart::Name { name, is_set: true, .. } => value_of(name),
            WordPart::Output { whole, .. } => *whole,
            _ => Value::Any,
        }
    }

    /// Returns whether it may become several words that do not all begin as it does.
    fn divides(&self, value_of: &dyn Fn(&str) -> Value) -> bool {
        match self {
            WordPart::Fixed(_) | WordPart::Alike(_) | WordPart::Number(_) => false,
            WordPart::Changed { becomes, .. } => !matches!(becomes, Becomes::One | Becomes::Plain),
            WordPart::Name { is_quoted, .. } | WordPart::Output { is_quoted, .. } => {
                !is_quoted && !matches!(self.value(value_of), Value::Digits | Value::Number | Value::Plain)
            }
        }
    }
}
