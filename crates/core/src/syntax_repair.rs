//! What is plainly wrong with a change that a small model sends of a program in Python, put right.

use super::edit_repair::unclosed;
use serde_json::Value;

/// The arguments with what the parser's error is about put right, and what that was.
pub fn corrected(tool: &str, arguments: &Value, error: &str) -> Option<(Value, &'static str)> {
    match with_escaped_line_end(tool, arguments, error) {
        Some(repaired) => Some((repaired, "\nLine ends in strings were escaped.")),
        None => Some((
            with_brackets(tool, arguments, error)?,
            "\nThe brackets at the end of the text were corrected.",
        )),
    }
}

/// The arguments of an edit that adds what it puts in the place of a definition, and keeps that.
pub fn with_replaced(
    tool: &str,
    arguments: &Value,
    before: Option<&str>,
    removed: &[String],
) -> Option<Value> {
    let (old, new) = (arguments.get("old")?.as_str()?, arguments.get("new")?.as_str()?);
    let defines = ["def ", "class ", "async def "].iter().any(|keyword| old.starts_with(keyword));
    // What stands above a definition may belong to it.
    let (above, _) = before?.split_once(old)?;
    let is_alone = above.is_empty() || above.ends_with("\n\n");
    (tool == "edit_file" && is_alone && !removed.is_empty() && defines && !new.contains(old)).then(|| {
        let mut kept = arguments.clone();
        kept["new"] = format!("{}\n\n\n{old}", new.trim_end()).into();
        kept
    })
}

/// The argument that is the new text.
pub fn field(tool: &str) -> &'static str {
    if tool == "write_file" { "data" } else { "new" }
}

/// The arguments with the end of the line escaped at which the parser misses the end of a string: small models write `\n` where JSON needs
/// `\\n`.
fn with_escaped_line_end(tool: &str, arguments: &Value, error: &str) -> Option<Value> {
    let is_it = error.contains("unterminated string literal") || error.contains("EOL while scanning string");
    let data = arguments.get("data").and_then(Value::as_str).filter(|_| tool == "write_file" && is_it)?;
    let digits = error.split_once(", line ")?.1;
    let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
    let line: usize = digits.parse().ok()?;
    let mut lines: Vec<String> = data.split('\n').map(str::to_owned).collect();
    if line == 0 || line >= lines.len() {
        return None;
    }
    let next = lines.remove(line);
    lines[line - 1] += &format!("\\n{next}");
    let mut repaired = arguments.clone();
    repaired["data"] = lines.join("\n").into();
    Some(repaired)
}

/// The arguments with as many brackets at the end of the text as it opens: small models leave out the last ones, and write the brace that
/// ends the arguments into the text as well.
fn with_brackets(tool: &str, arguments: &Value, error: &str) -> Option<Value> {
    let whole = arguments.get(field(tool))?.as_str()?;
    let text = whole.trim_end();
    let corrected = if error.contains("unmatched '}'") {
        text.strip_suffix('}')?.trim_end().to_owned()
    } else if error.contains("closing parenthesis '}' does not match") {
        let text = text.strip_suffix('}')?;
        text.to_owned() + &unclosed(text)?
    } else if error.contains("was never closed") && !is_cut(text) {
        text.to_owned() + &unclosed(text)?
    } else {
        return None;
    };
    let mut repaired = arguments.clone();
    repaired[field(tool)] = (corrected + &whole[text.len()..]).into();
    Some(repaired)
}

/// Whether a text ends in the middle of a program.
pub fn is_cut(text: &str) -> bool {
    text.ends_with(['(', '[', '{', ',', '=', '+', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_edit_adds_stands_before_what_it_would_replace() {
        let edit =
            json!({ "path": "a.py", "old": "def add(a, b):", "new": "def sub(a, b):\n    return a - b" });
        let (removed, content) = (["add".to_owned()], "def add(a, b):\n    return a + b\n");
        let replaced = |edit: &Value, before: &str| with_replaced("edit_file", edit, Some(before), &removed);
        let kept = replaced(&edit, content).unwrap();
        assert_eq!(kept["new"], "def sub(a, b):\n    return a - b\n\n\ndef add(a, b):");
        assert!(replaced(&edit, &format!("import math\n\n{content}")).is_some());
        assert_eq!(replaced(&edit, &format!("@cache\n{content}")), None);
        assert_eq!(with_replaced("edit_file", &edit, Some(content), &[]), None);
        let other = json!({ "path": "a.py", "old": "return a + b", "new": "return a - b" });
        assert_eq!(replaced(&other, content), None);
    }

    #[test]
    fn brackets_at_the_end_are_corrected() {
        let repaired = |data: &str, error: &str| {
            let arguments = json!({ "path": "a.py", "data": data });
            with_brackets("write_file", &arguments, error).map(|repaired| repaired["data"].clone())
        };
        let never = "SyntaxError: '(' was never closed";
        assert_eq!(repaired("x = [1]}", "SyntaxError: unmatched '}'").unwrap(), "x = [1]");
        let other = "SyntaxError: closing parenthesis '}' does not match opening parenthesis '('";
        assert_eq!(repaired("print(len([1])}\n", other).unwrap(), "print(len([1]))\n");
        assert_eq!(repaired("print([1}, 2)", other), None, "it is not the last one");
        assert_eq!(repaired("print(len([1])\n", never).unwrap(), "print(len([1]))\n");
        assert_eq!(repaired("raise ValueError(", never), None, "it ends in the middle");
        assert_eq!(repaired("x = [1]}", "SyntaxError: invalid syntax"), None);
    }

    #[test]
    fn line_ends_in_strings_are_escaped() {
        let error = "  File \"/workspace/a.py\", line 1\nSyntaxError: unterminated string literal (detected at line 1)";
        let repaired = |tool: &str, error: &str| {
            with_escaped_line_end(tool, &json!({ "path": "a.py", "data": "print('a\nb')\n" }), error)
        };
        assert_eq!(repaired("write_file", error).unwrap()["data"], "print('a\\nb')\n");
        for error in
            [error.replace("line 1\n", "line 3\n"), error.replace("line 1\n", "line 0\n"), "line 1".into()]
        {
            assert_eq!(repaired("write_file", &error), None, "{error}");
        }
        assert_eq!(repaired("edit_file", error), None);
    }
}
