//! Edits of small models that are almost right. They leave out the last brackets of the text that is replaced, and write them in
//! the new one, so that the file would have them twice; they indent both texts otherwise than the file, and write `'` for `"`.

/// The texts that are meant, where they are not the ones given.
pub fn repaired(content: &str, old: &str, new: &str) -> Option<(String, String)> {
    match content.matches(old).count() {
        0 => requoted(content, old, new).or_else(|| reindented(content, old, new)),
        1 => completed(content, old, new).map(|old| (old, new.to_owned())),
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

/// The brackets that close what a text leaves open; `None` where it closes what it has not opened.
fn unclosed(text: &str) -> Option<String> {
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
