//! Pairs `key="value"`, `key=value` and `key: value`: the attributes of a tag, and what some models write for a call.

use crate::tool_calls::json_calls::json_at;
use serde_json::{Map, Value};

/// Pairs of one call that are read.
const MAX_PAIRS: usize = 100;

/// The pairs at the beginning of `text`, separated by white space or commas, and what follows them.
pub fn pairs(mut text: &str) -> Option<(Map<String, Value>, &str)> {
    let mut pairs = Map::new();
    for _ in 0..MAX_PAIRS {
        let rest = text.trim_start_matches([',', ' ', '\t']);
        let key_end =
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len());
        let after = rest[key_end..].trim_start_matches(' ');
        let Some(value) = after.strip_prefix(['=', ':']).filter(|_| key_end > 0) else {
            return Some((pairs, rest));
        };
        let (value, left) = value_at(value.trim_start_matches(' '))?;
        pairs.insert(rest[..key_end].to_owned(), value);
        text = left;
    }
    None
}

/// The value at the beginning of `text`: quoted, JSON, or a word.
fn value_at(text: &str) -> Option<(Value, &str)> {
    let first = text.chars().next()?;
    if matches!(first, '{' | '[') {
        let (value, length) = json_at(text)?;
        return Some((value, &text[length..]));
    }
    if !matches!(first, '"' | '\'') {
        let end = text.find(|c: char| c.is_whitespace() || ",)>/<".contains(c)).unwrap_or(text.len());
        return (end > 0).then(|| (Value::from(&text[..end]), &text[end..]));
    }
    // JSON in quotes has the same quotes inside.
    if text[1..].starts_with('{')
        && let Some((_, length)) = json_at(&text[1..])
        && text[1 + length..].starts_with(first)
    {
        return Some((Value::from(&text[1..=length]), &text[length + 2..]));
    }
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                escaped if matches!(escaped, '\\' | '"' | '\'') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            c if c == first => {
                let left = &text[at + 1..];
                // `'it's'` ends where nobody can tell.
                let ends = left.chars().next().is_none_or(|c| c.is_whitespace() || ",)/>;<".contains(c));
                return ends.then(|| (Value::from(unescaped(&value)), left));
            }
            c => value.push(c),
        }
    }
    None
}

/// Text without the entities that attributes are written with.
fn unescaped(text: &str) -> String {
    let text = text.replace("&quot;", "\"").replace("&apos;", "'").replace("&#39;", "'");
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}
