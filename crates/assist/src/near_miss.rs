//! Edits that are almost right: both texts are indented otherwise than the file, or have `'` where the file has `"`.

/// The texts that are meant, where `old` is not in the file and one place is like it.
pub fn repaired(content: &str, old: &str, new: &str) -> Option<(String, String)> {
    if old.is_empty() || content.contains(old) {
        return None;
    }
    requoted(content, old, new).or_else(|| reindented(content, old, new))
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

#[cfg(test)]
mod tests {
    use super::*;

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
