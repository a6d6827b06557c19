//! Arguments as models write them: JSON, or nearly so.
//!
//! A repair is made only where there is no doubt about what was meant; anything else goes back to the model
//! with the parse error.

use serde_json::{Map, Value};
use std::fmt;

/// The reason why arguments are not valid JSON, with the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ParseError {}

/// The arguments, and whether they had to be repaired.
///
/// Repaired are: trailing commas, single quotes, raw line breaks and tabs inside strings, Python's `True`,
/// `False` and `None`, braces too many at the end, and braces missing there, provided that the last value is
/// complete (not a number, which might go on). Nothing at all means no arguments. Arguments that were encoded
/// twice are decoded twice. A code fence around them, closing tags behind them, an empty object, `null` or a brace before
/// them and the same object again are passed over.
///
/// # Errors
/// The fault, and its position.
pub fn parse(text: &str) -> Result<(Value, bool), ParseError> {
    if text.trim().is_empty() {
        return Ok((Value::Object(Map::new()), false));
    }
    let error = match serde_json::from_str(text) {
        Ok(Value::String(inner)) if bare(&inner).starts_with('{') => {
            return parse(&inner).map(|(value, _)| (value, true));
        }
        Ok(value) => return Ok((value, false)),
        Err(error) => error,
    };
    let bare = begun_anew(bare(text));
    if let Some([first, others @ ..]) = objects(bare).as_deref() {
        return match others.iter().all(|other| other == first) {
            true => Ok((first.clone(), true)),
            false => Err(ParseError { message: format!("several objects where one belongs: {error}") }),
        };
    }
    repair(bare)
        .and_then(|repaired| serde_json::from_str(&repaired).ok())
        .map(|value| (value, true))
        .ok_or_else(|| ParseError { message: error.to_string() })
}

/// `text` without a code fence around it and without the tags that close a call in some template.
fn bare(text: &str) -> &str {
    let mut text = text.trim();
    if let Some(fenced) = text.strip_prefix("```") {
        let fenced = fenced.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        text = fenced.trim_end().trim_end_matches('`').trim();
    }
    // No JSON ends like that.
    while let Some(start) = text.rfind('<').filter(|_| text.ends_with('>')) {
        let is_tag = text[start..].starts_with("</") || text[start..].starts_with("<|");
        if !is_tag || text[start..].contains(['"', '{', '}']) {
            break;
        }
        text = text[..start].trim_end();
    }
    text
}

/// `text` without `null` or a first brace before a whole object: servers that send the beginning of the arguments and then all of
/// them leave it there.
fn begun_anew(text: &str) -> &str {
    let behind = text.strip_prefix("null").or_else(|| text.strip_prefix('{')).map(str::trim_start);
    let Some(behind) = behind.filter(|behind| behind.starts_with('{')) else { return text };
    let whole = [Some(behind), behind.strip_suffix('}')].into_iter().flatten();
    whole.into_iter().find(|whole| objects(whole).is_some_and(|objects| !objects.is_empty())).unwrap_or(text)
}

/// The objects that `text` consists of, one behind the other, but empty ones; `None` where there is anything else in it.
fn objects(text: &str) -> Option<Vec<Value>> {
    let objects: Result<Vec<Map<String, Value>>, _> =
        serde_json::Deserializer::from_str(text).into_iter().collect();
    Some(objects.ok()?.into_iter().filter(|object| !object.is_empty()).map(Value::Object).collect())
}

/// Strict JSON that says the same; `None` where that is in doubt.
fn repair(text: &str) -> Option<String> {
    let mut repair =
        Repair { rest: text.trim(), out: String::with_capacity(text.len() + 8), open: Vec::new() };
    while let Some(c) = repair.rest.chars().next() {
        repair.step(c)?;
    }
    repair.close()
}

struct Repair<'a> {
    rest: &'a str,
    out: String,
    /// The closing brackets that are still to come.
    open: Vec<char>,
}

impl Repair<'_> {
    fn step(&mut self, c: char) -> Option<()> {
        match c {
            '"' | '\'' => return self.string(c),
            '{' => self.open.push('}'),
            '[' => self.open.push(']'),
            '}' | ']' if self.open.is_empty() => {
                // Too many: fine where nothing but more of them follows.
                let only_closers = self.rest.chars().all(|c| matches!(c, '}' | ']') || c.is_whitespace());
                self.rest = "";
                return (only_closers && !self.out.is_empty()).then_some(());
            }
            '}' | ']' => {
                self.drop_comma();
                // `{"a": ["b"}`: the brackets inside that were forgotten are closed first.
                let inside = self.open.iter().rposition(|closer| *closer == c)?;
                if inside + 1 < self.open.len() && !self.is_complete() {
                    return None;
                }
                let forgotten = self.open.drain(inside..).skip(1).collect::<Vec<_>>();
                self.out.extend(forgotten.into_iter().rev());
            }
            c if c.is_alphabetic() => return self.word(),
            _ => {}
        }
        self.out.push(c);
        self.rest = &self.rest[c.len_utf8()..];
        Some(())
    }

    fn drop_comma(&mut self) {
        let kept = self.out.trim_end();
        if let Some(kept) = kept.strip_suffix(',') {
            self.out.truncate(kept.len());
        }
    }

    fn word(&mut self) -> Option<()> {
        let end = self.rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(self.rest.len());
        let word = match &self.rest[..end] {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            // The exponent of a number stays as it is, too.
            word => word,
        };
        self.out.push_str(word);
        self.rest = &self.rest[end..];
        Some(())
    }

    fn string(&mut self, quote: char) -> Option<()> {
        self.out.push('"');
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next()?.1 {
                    '\'' => self.out.push('\''),
                    '\n' => self.out.push_str("\\n"),
                    escaped => self.out.extend(['\\', escaped]),
                },
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '"' if quote == '\'' => self.out.push_str("\\\""),
                c if c == quote => {
                    self.rest = &self.rest[at + c.len_utf8()..];
                    self.out.push('"');
                    return self.ends_here().then_some(());
                }
                c => self.out.push(c),
            }
        }
        // A string without an end: how it would have ended is unknown.
        None
    }

    /// Returns whether a string may end here: `'it's'` ends where nobody can tell.
    fn ends_here(&self) -> bool {
        self.rest.trim_start().chars().next().is_none_or(|c| matches!(c, ',' | ':' | '}' | ']'))
    }

    fn close(mut self) -> Option<String> {
        if !self.open.is_empty() && !self.is_complete() {
            return None;
        }
        self.out.extend(self.open.iter().rev());
        Some(self.out)
    }

    /// Returns whether the last value is all there: a number might go on.
    fn is_complete(&self) -> bool {
        let out = self.out.trim_end();
        out.ends_with(['"', '}', ']']) || ["true", "false", "null"].iter().any(|word| out.ends_with(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_is_certain_is_repaired() {
        for (text, expected) in [
            (r#"{"command":"ls",}"#, json!({ "command": "ls" })),
            (r#"{"files":[{"path":"a",},],}"#, json!({ "files": [{ "path": "a" }] })),
            (r#"{'command': 'echo "hi"'}"#, json!({ "command": "echo \"hi\"" })),
            (r#"{'command': 'it\'s'}"#, json!({ "command": "it's" })),
            (r#"{"command":"ls""#, json!({ "command": "ls" })),
            (r#"{"files":[{"path":"a","data":"b""#, json!({ "files": [{ "path": "a", "data": "b" }] })),
            ("{\"data\":\"one\ntwo\tthree\r\n\"}", json!({ "data": "one\ntwo\tthree\r\n" })),
            (r#"{"command":"ls"}}"#, json!({ "command": "ls" })),
            (r#"{"command":["ls"}"#, json!({ "command": ["ls"] })),
            (r#"{"files":[{"path":"a"}}"#, json!({ "files": [{ "path": "a" }] })),
            (r#"{"files":[{"path":"a"]}"#, json!({ "files": [{ "path": "a" }] })),
            (r#"{"background": True, "x": None}"#, json!({ "background": true, "x": null })),
            (r#""{\"command\":\"ls\"}""#, json!({ "command": "ls" })),
            (r#""```json\n{\"command\":\"ls\"}\n```""#, json!({ "command": "ls" })),
            ("```json\n{\"command\":\"ls\"}\n```", json!({ "command": "ls" })),
            ("```{\"command\":\"ls\"}```\n", json!({ "command": "ls" })),
            ("{\"command\":\"ls\"}\n</tool_call>", json!({ "command": "ls" })),
            ("{\"command\":\"ls\"}</function></tool_call><|im_end|>", json!({ "command": "ls" })),
            ("{'command':'ls'}</tool_call>", json!({ "command": "ls" })),
            (r#"{"command":"ls"}{"command":"ls"}"#, json!({ "command": "ls" })),
            (r#"{}{"command":"ls"}"#, json!({ "command": "ls" })),
            (r#"{{"command":"ls"}"#, json!({ "command": "ls" })),
            (r#"{{"command":"ls"}}"#, json!({ "command": "ls" })),
            (r#"null{"command":"ls"}"#, json!({ "command": "ls" })),
            ("{\"command\":\"ls\"}\n{\"command\":\"ls\"}\n</tool_call>", json!({ "command": "ls" })),
        ] {
            assert_eq!(parse(text), Ok((expected, true)), "{text}");
        }
    }

    #[test]
    fn what_is_right_stays_as_it_is() {
        assert_eq!(parse(r#"{"a":1e3,"b":"it's"}"#), Ok((json!({ "a": 1e3, "b": "it's" }), false)));
        assert_eq!(parse(" "), Ok((json!({}), false)));
    }

    #[test]
    fn what_is_in_doubt_goes_back() {
        for text in [
            r#"{"data":"half of a te"#,
            r#"{"limit": 10"#,
            r#"{"path":"a","#,
            r#"{"path":"#,
            r#"{"path""#,
            r#"{'data': 'it's'}"#,
            r#"{"a": b}"#,
            r#"{"a":"b"] "#,
            r#"{"a":[1}"#,
            "ls -la",
            r#"{"command":"ls"}{"command":"pwd"}"#,
            r#"{"command":"ls"} <b>"#,
            "```",
            "</tool_call>",
            "}",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains("at line 1 column"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer_or_an_error(text in "\\PC{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn pieces_of_json_never_panic(text in "[\\[\\]{}:,\"'\\\\a1 \n\u{e9}`<>/|]{0,40}") {
            let _ = parse(&text);
        }
    }
}
