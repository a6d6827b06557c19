//! Calls as Python writes them: `name(key="value", other=[1, True])`, with literals for values.

use serde_json::{Map, Number, Value};

/// Values inside of each other.
const MAX_DEPTH: usize = 32;

/// A call, as it is written.
#[derive(Debug, PartialEq)]
pub struct Written<'a> {
    pub name: &'a str,
    pub arguments: Map<String, Value>,
    /// Set if it has arguments without a name.
    pub is_positional: bool,
}

/// The call at the beginning of `text`, and what follows it. One inside of `print(…)` is that call.
pub fn call(text: &str) -> Option<(Written<'_>, &str)> {
    read(text, false)
}

/// The same where a value has its own quotes inside, without escapes, if it can end at one place only.
pub fn loose_call(text: &str) -> Option<(Written<'_>, &str)> {
    read(text, true)
}

fn read(text: &str, is_loose: bool) -> Option<(Written<'_>, &str)> {
    if let Some(inner) = text.strip_prefix("print(") {
        let (written, rest) = read(inner.trim_start(), is_loose)?;
        return Some((written, rest.trim_start().strip_prefix(')')?));
    }
    let end = text.find(|c: char| !is_name(c))?;
    let (name, rest) = text.split_at(end);
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return None;
    }
    let mut rest = rest.strip_prefix('(')?;
    let mut written = Written { name, arguments: Map::new(), is_positional: false };
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix(')') {
            return Some((written, rest));
        }
        match keyword(rest) {
            Some((key, behind)) => {
                let behind = behind.trim_start();
                let strict = value(behind, 0).filter(|(_, rest)| rest.trim_start().starts_with([',', ')']));
                let (value, behind) = strict.or_else(|| loose_string(behind).filter(|_| is_loose))?;
                written.arguments.insert(key.to_owned(), value);
                rest = behind;
            }
            None => {
                (_, rest) = value(rest, 0)?;
                written.is_positional = true;
            }
        }
        rest = rest.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None if rest.starts_with(')') => rest,
            None => return None,
        };
    }
}

pub fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// `key=` at the beginning of `text`, and what follows it.
fn keyword(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|end| *end > 0)?;
    let rest = text[end..].trim_start().strip_prefix('=')?;
    (!rest.starts_with('=')).then_some((&text[..end], rest))
}

/// The literal at the beginning of `text`, and what follows it.
fn value(text: &str, depth: usize) -> Option<(Value, &str)> {
    if depth > MAX_DEPTH {
        return None;
    }
    match text.chars().next()? {
        '[' => sequence(&text[1..], ']', depth),
        '(' => sequence(&text[1..], ')', depth),
        '{' => dictionary(&text[1..], depth).or_else(|| sequence(&text[1..], '}', depth)),
        c if c.is_ascii_digit() || matches!(c, '-' | '+' | '.') => number(text),
        _ => match strings(text) {
            Some((text, rest)) => Some((Value::String(text), rest)),
            None => constant(text),
        },
    }
}

fn sequence(mut rest: &str, close: char, depth: usize) -> Option<(Value, &str)> {
    let mut list = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix(close) {
            return Some((Value::Array(list), rest));
        }
        let (value, behind) = value(rest, depth + 1)?;
        list.push(value);
        rest = comma(behind, close)?;
    }
}

fn dictionary(mut rest: &str, depth: usize) -> Option<(Value, &str)> {
    let mut object = Map::new();
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((Value::Object(object), rest));
        }
        let (key, behind) = strings(rest)?;
        let (value, behind) = value(behind.trim_start().strip_prefix(':')?.trim_start(), depth + 1)?;
        object.insert(key, value);
        rest = comma(behind, '}')?;
    }
}

/// Returns what follows the comma, or begins with `close`.
fn comma(text: &str, close: char) -> Option<&str> {
    let text = text.trim_start();
    text.strip_prefix(',').or_else(|| text.starts_with(close).then_some(text))
}

fn number(text: &str) -> Option<(Value, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c))).unwrap_or(text.len());
    let digits = text[..end].trim_start_matches('+').replace('_', "");
    let number = match digits.parse::<i64>() {
        Ok(whole) => Number::from(whole),
        Err(_) => Number::from_f64(digits.parse().ok()?)?,
    };
    Some((Value::Number(number), &text[end..]))
}

fn constant(text: &str) -> Option<(Value, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    let value = match &text[..end] {
        "True" | "true" => Value::Bool(true),
        "False" | "false" => Value::Bool(false),
        "None" | "null" => Value::Null,
        _ => return None,
    };
    Some((value, &text[end..]))
}

/// One string, or several in a row, which are one.
fn strings(text: &str) -> Option<(String, &str)> {
    let (mut all, mut rest) = string(text)?;
    while let Some((more, behind)) = string(rest.trim_start()) {
        all.push_str(&more);
        rest = behind;
    }
    Some((all, rest))
}

/// A text with its own quotes inside, up to the only one behind which the argument can end.
fn loose_string(text: &str) -> Option<(Value, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inner = &text[1..];
    let ends = |(at, _): &(usize, &str)| !inner[..*at].ends_with('\\') && ends_argument(&inner[at + 1..]);
    let mut places = inner.match_indices(quote).filter(ends);
    let (end, _) = places.next().filter(|_| places.next().is_none())?;
    let (mut out, mut rest) = (String::new(), &inner[..end]);
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = escape(rest, false, &mut out)?,
            c => out.push(c),
        }
    }
    Some((Value::String(out), &inner[end + 1..]))
}

/// Returns whether the next argument follows, or the end of the call.
fn ends_argument(text: &str) -> bool {
    let text = text.trim_start();
    let next = text.strip_prefix(',').map(str::trim_start);
    let behind = text.strip_prefix(')').map(|behind| behind.trim_start_matches(' '));
    next.is_some_and(|next| keyword(next).is_some())
        || behind.is_some_and(|behind| behind.is_empty() || behind.starts_with([']', ',', '<', '\n']))
}

fn string(text: &str) -> Option<(String, &str)> {
    let start = text.find(['"', '\'']).filter(|start| *start <= 2)?;
    let prefix = text[..start].to_ascii_lowercase();
    // A formatted one says something else than its text.
    if !prefix.chars().all(|c| matches!(c, 'r' | 'b' | 'u')) {
        return None;
    }
    let (is_raw, text) = (prefix.contains('r'), &text[start..]);
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let quote = if text.starts_with(&triple) { triple.as_str() } else { quote };
    let mut out = String::new();
    let mut rest = &text[quote.len()..];
    loop {
        if let Some(rest) = rest.strip_prefix(quote) {
            return Some((out, rest));
        }
        let c = rest.chars().next()?;
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = escape(rest, is_raw, &mut out)?,
            c => out.push(c),
        }
    }
}

/// Adds what an escape stands for; `rest` begins behind its backslash.
fn escape<'a>(rest: &'a str, is_raw: bool, out: &mut String) -> Option<&'a str> {
    let c = rest.chars().next()?;
    let mut rest = &rest[c.len_utf8()..];
    if is_raw {
        out.extend(['\\', c]);
        return Some(rest);
    }
    let digits = match c {
        'n' => '\n'.into(),
        't' => '\t'.into(),
        'r' => '\r'.into(),
        '\n' => None,
        '\\' | '"' | '\'' => Some(c),
        'x' | 'u' | 'U' => {
            let length = if c == 'x' {
                2
            } else if c == 'u' {
                4
            } else {
                8
            };
            let number = u32::from_str_radix(rest.get(..length)?, 16).ok()?;
            rest = &rest[length..];
            Some(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
        }
        other => {
            out.push('\\');
            Some(other)
        }
    };
    out.extend(digits);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn literals_say_what_they_say_in_python() {
        for (text, expected) in [
            (r#"f(a="b")"#, json!({ "a": "b" })),
            (r#"f(a='it\'s', b="x\n", c=r"\d")"#, json!({ "a": "it's", "b": "x\n", "c": "\\d" })),
            ("f(a=\"\"\"one\n\"two\"\n\"\"\")", json!({ "a": "one\n\"two\"\n" })),
            ("f(a='x' \"y\", b=(1, -2.5, 1_000))", json!({ "a": "xy", "b": [1, -2.5, 1000] })),
            (
                "f(a=[True, False, None,], b={'c': {\"d\": []}})",
                json!({ "a": [true, false, null], "b": { "c": { "d": [] } } }),
            ),
            ("f()", json!({})),
            ("print(f(a='\\u00e9'))", json!({ "a": "é" })),
            ("f(\n  a = 1,\n)", json!({ "a": 1 })),
        ] {
            let (written, rest) = call(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((Value::Object(written.arguments), rest), (expected, ""), "{text}");
        }
        for text in ["f(a=b)", "f(a=f\"{x}\")", "f(a=1", "f(a='it's')", "1(a=1)", "f a", "f(a=[1)", "f(a==1)"]
        {
            assert_eq!(call(text), None, "{text}");
        }
        assert!(call("f(1, a=2)").is_some_and(|(written, _)| written.is_positional));
    }
}
