//! The paths that git's commands take as operands: gitglossary(7), pathspec.

use super::simple_pattern::is_same_path;

/// Returns whether an operand of git's names the path `wanted`: `:/x`, `:(top,icase)X` and `*x` name `x`, and `*` names `.`, the whole tree.
pub fn names(given: &str, wanted: &str) -> bool {
    let (magic, path) = match given.strip_prefix(":(").and_then(|rest| rest.split_once(')')) {
        Some((magic, path)) => (magic, path),
        None => match given.strip_prefix(':') {
            None => ("", given),
            Some(rest) => {
                let path = rest.trim_start_matches(['/', '!', '^']);
                let is_excluded = rest[..rest.len() - path.len()].contains(['!', '^']);
                (if is_excluded { "exclude" } else { "top" }, path.strip_prefix(':').unwrap_or(path))
            }
        },
    };
    let has = |word: &str| magic.split(',').any(|given| given == word);
    if has("exclude") {
        return false;
    }
    let is_tree = wanted == "." || wanted == "./";
    if path.is_empty() || path == "*" {
        return is_tree || path == "*";
    }
    let (path, wanted) = match has("icase") {
        true => (path.to_lowercase(), wanted.to_lowercase()),
        false => (path.to_owned(), wanted.to_owned()),
    };
    is_same_path(&path, &wanted)
        || !has("literal") && path.contains(['*', '?', '[']) && is_match(&path, &wanted)
}

/// Compares a pattern, in which a star stands for any text and a bracket for any letter, with a path.
fn is_match(pattern: &str, path: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    // `reached[n]`: the pattern so far stands for the first n letters.
    let path: Vec<char> = path.chars().collect();
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    let last = pattern.iter().rposition(|letter| *letter == ']').unwrap_or(0);
    let mut at = 0;
    while let Some(&token) = pattern.get(at) {
        let end = match token == '[' && at < last {
            true => pattern[at..].iter().position(|letter| *letter == ']'),
            false => None,
        };
        at += end.map_or(1, |end| end + 1);
        if token == '*' {
            let first = reached.iter().position(|is| *is).unwrap_or(reached.len());
            reached.iter_mut().skip(first).for_each(|is| *is = true);
            continue;
        }
        let is_any = token == '?' || end.is_some();
        for n in (0..path.len()).rev() {
            reached[n + 1] = reached[n] && (is_any || path[n] == token);
        }
        reached[0] = false;
    }
    reached[path.len()]
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_path_has_many_pathspecs() {
        for given in [
            ".env",
            "./.env",
            ":.env",
            ":/.env",
            ":(top).env",
            ":(glob).env",
            ":(icase).ENV",
            "*.env",
            ".en[v]",
            ".en?",
            "*",
        ] {
            assert!(names(given, ".env"), "{given}");
        }
        for given in [".", ":/", ":(top)", "*", "./"] {
            assert!(names(given, "."), "{given}");
        }
        for given in ["x.env", ":!.env", ":(exclude).env", "*.rs", ".env?", "[", ":(literal)*.env", ""] {
            assert!(!names(given, ".env"), "{given}");
        }
        assert!(!names("src/*", ".") && names("src/*", "src/a/b"));
    }
}
