//! JSON as editors write it: with comments, and commas behind the last entry.

/// The same text as plain JSON. What is not JSON even so stays as it is, and is refused by the parser.
pub fn to_json(text: &str) -> String {
    let without_comments = strip_comments(text.trim_start_matches('\u{feff}'));
    let mut json = String::with_capacity(without_comments.len());
    let mut rest = without_comments.chars().peekable();
    let (mut in_text, mut escaped) = (false, false);
    while let Some(c) = rest.next() {
        if in_text {
            (in_text, escaped) = (escaped || c != '"', !escaped && c == '\\');
        } else if c == '"' {
            in_text = true;
        } else if c == ',' {
            let next = rest.clone().find(|c| !c.is_whitespace());
            if matches!(next, Some('}' | ']')) {
                continue;
            }
        }
        json.push(c);
    }
    json
}

fn strip_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let (mut in_text, mut escaped) = (false, false);
    while let Some(c) = rest.next() {
        if in_text {
            (in_text, escaped) = (escaped || c != '"', !escaped && c == '\\');
            kept.push(c);
            continue;
        }
        match (c, rest.peek()) {
            ('/', Some('/')) => {
                while rest.peek().is_some_and(|c| *c != '\n') {
                    rest.next();
                }
            }
            ('/', Some('*')) => {
                rest.next();
                let mut last = ' ';
                for c in rest.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
                kept.push(' ');
            }
            _ => {
                in_text = c == '"';
                kept.push(c);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::to_json;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn comments_and_last_commas_are_left_out_but_not_those_in_texts() {
        let text =
            "\u{feff}{ // one\n \"a\": \"// \\\" ,] /* no */\", /* two\n */ \"b\": [1, 2, /* x */ ], }";
        let value: Value = serde_json::from_str(&to_json(text)).unwrap();
        assert_eq!(value, json!({ "a": "// \" ,] /* no */", "b": [1, 2] }));
    }

    proptest! {
        #[test]
        fn plain_json_stays_as_it_is(texts in prop::collection::vec(".*", 0..5)) {
            let json = json!({ "a": texts }).to_string();
            prop_assert_eq!(to_json(&json), json);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".*") {
            let _ = to_json(&text);
        }
    }
}
