//! Edits of small models that are almost right. They leave out the last brackets of the text that is replaced, and write them in
//! the new one, so that the file would have them twice; they indent both texts otherwise than the file, and write `'` for `"`.

use serde_json::{Value, json};

/// The longest last line of a file behind which a step appends, in bytes.
const MAX_LAST_LINE: usize = 200;

/// The texts that are meant, where they are not the ones given.
pub fn repaired(content: &str, old: &str, new: &str) -> Option<(String, String)> {
    match content.matches(old).count() {
        0 => requoted(content, old, new).or_else(|| reindented(content, old, new)),
        1 => match completed(content, old, new) {
            Some(old) => Some((old, new.to_owned())),
            None => behind_docstring(content, old, new),
        },
        _ => None,
    }
}

/// `old` with the brackets that it leaves open and that follow it in the file, if `new` closes all of its own.
fn completed(content: &str, old: &str, new: &str) -> Option<String> {
    let missing = unclosed(old).filter(|missing| !missing.is_empty())?;
    unclosed(new).filter(String::is_empty)?;
    let (_, rest) = content.split_once(old)?;
    rest.starts_with(&missing).then(|| format!("{old}{missing}"))
}

/// Both texts with the docstring that follows `old`, the head of a function in Python, where `new` adds a body in front of it: behind
/// the body it would be no docstring any more.
fn behind_docstring(content: &str, old: &str, new: &str) -> Option<(String, String)> {
    const QUOTES: &str = "\"\"\"";
    let head = old.trim_end();
    let is_head = head.ends_with(':') && head.lines().last()?.trim_start().starts_with("def ");
    let body = new.strip_prefix(head).filter(|body| is_head && !body.trim().is_empty())?;
    let (_, rest) = content.split_once(head)?;
    let inner = rest.trim_start().strip_prefix(QUOTES).filter(|_| !body.contains(QUOTES))?;
    let length = rest.len() - inner.len() + inner.find(QUOTES)? + QUOTES.len();
    let docstring = &rest[..length];
    Some((format!("{head}{docstring}"), format!("{head}{docstring}{}", body.trim_end())))
}

/// `old` with the quotation marks of the one place in the file that is like it but for them.
fn requoted(content: &str, old: &str, new: &str) -> Option<(String, String)> {
    let alike = |text: &str| text.replace('\'', "\"");
    let (content_alike, old_alike) = (alike(content), alike(old));
    let mut places = content_alike.match_indices(&old_alike);
    let (Some((at, _)), None) = (places.next(), places.next()) else { return None };
    Some((content[at..at + old.len()].to_owned(), new.to_owned()))
}

/// Both texts with the indentation of the lines of the file that are like `old` but for it, if there is one such place.
fn reindented(content: &str, old: &str, new: &str) -> Option<(String, String)> {
    let (lines, old_lines): (Vec<&str>, Vec<&str>) = (content.lines().collect(), old.lines().collect());
    let first = old_lines.first().filter(|line| !line.trim().is_empty())?;
    let is_like =
        |window: &&[&str]| window.iter().zip(&old_lines).all(|(line, old)| line.trim() == old.trim());
    let mut places = lines.windows(old_lines.len()).filter(is_like);
    let (place, None) = (places.next()?, places.next()) else { return None };
    let (there, here) = (indentation(place[0]), indentation(first));
    let shifted = |line: &str| match line.trim().is_empty() {
        true => Some(line.to_owned()),
        false => {
            (indentation(line) + there).checked_sub(here).map(|width| " ".repeat(width) + line.trim_start())
        }
    };
    let new: Option<Vec<String>> = new.lines().map(shifted).collect();
    Some((place.join("\n"), new?.join("\n")))
}

/// The spaces that a line begins with.
fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The step that appends a text behind the last line of a file, where that line is short and the only one of its kind.
pub(super) fn step_that_appends(path: &str, content: &str, text: &str) -> Option<Value> {
    let last = content.lines().rfind(|line| !line.trim().is_empty())?;
    (last.len() <= MAX_LAST_LINE && content.matches(last).count() == 1)
        .then(|| json!({ "tool": "edit_file", "path": path, "old": last, "new": format!("{last}{text}") }))
}

/// The brackets that close what a text leaves open; `None` where it closes what it has not opened.
pub(super) fn unclosed(text: &str) -> Option<String> {
    let mut open = Vec::new();
    for c in text.chars() {
        match c {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(c) => return None,
            _ => {}
        }
    }
    Some(open.into_iter().rev().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_goes_behind_the_docstring() {
        let content = "def half(n):\n    \"\"\"Half of n.\"\"\"\n\ndef other(n):\n    pass\n";
        let docstring = "\n    \"\"\"Half of n.\"\"\"";
        let new = "def half(n):\n    return n / 2\n";
        let expected =
            (format!("def half(n):{docstring}"), format!("def half(n):{docstring}\n    return n / 2"));
        assert_eq!(repaired(content, "def half(n):", new), Some(expected));
        for (old, new) in [
            ("def half(n):", "def half(n, m):"),
            ("def half(n):", "def half(n):\n    \"\"\"Half.\"\"\"\n    return n / 2"),
            ("def other(n):", "def other(n):\n    return n"),
            ("Half of n.", "Half of n.\n\nRounded."),
        ] {
            assert_eq!(repaired(content, old, new), None, "{old}");
        }
    }

    #[test]
    fn brackets_that_the_new_text_closes_are_replaced_as_well() {
        let content = "letters = [1]\nprint(letters[len(letters)])\n";
        let (old, new) = ("print(letters[len(letters)", "print(letters[-1])");
        let expected = ("print(letters[len(letters)])".to_owned(), new.to_owned());
        assert_eq!(repaired(content, old, new), Some(expected));
        for (old, new) in [
            ("print(letters", "print(letters[-1])"),
            (old, "print(letters[len(letters) - 1"),
            ("print(letters[len(letters)])", "print(letters[-1])"),
            ("letters", "x"),
            ("]", "x"),
            ("none(", "x"),
        ] {
            assert_eq!(repaired(content, old, new), None, "{old} {new}");
        }
    }

    #[test]
    fn the_indentation_is_that_of_the_file() {
        let content = "def greet(name):\nprint(name)\n\ngreet(1)\n";
        let repaired = |old: &str, new: &str| repaired(content, old, new);
        let pair = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
        assert_eq!(
            repaired("    print(name)", "        print(name)"),
            pair("print(name)", "    print(name)")
        );
        assert_eq!(
            repaired("  print(name)\n\n  greet(1)", "  print(name)\n\n    x()\n  greet(2)"),
            pair("print(name)\n\ngreet(1)", "print(name)\n\n  x()\ngreet(2)")
        );
        assert_eq!(repaired("    print(name)", "print(name)"), None, "there is nothing to take away");
        assert_eq!(repaired("    print(nobody)", "x"), None);
        assert_eq!(super::repaired("a\n  b\n\tb\n", "    b", "x"), None, "two places");
    }

    #[test]
    fn quotation_marks_are_those_of_the_file() {
        let content = "print(\"hello\")\n";
        let expected = ("print(\"hello\")".to_owned(), "print('bye')".to_owned());
        assert_eq!(repaired(content, "print('hello')", "print('bye')"), Some(expected));
        assert_eq!(repaired("a('x')\na(\"x\")\n", "a('x\")", "b"), None, "two places");
    }

    proptest::proptest! {
        #[test]
        fn any_edit_is_taken(content in "[()\\[{} aé'\"\n]{0,40}", old in "[(\\[{ aé'\"\n]{0,6}", new in "[() a\n]{0,6}") {
            if let Some((old, _)) = repaired(&content, &old, &new) {
                proptest::prop_assert!(content.contains(&old));
            }
        }
    }
}
