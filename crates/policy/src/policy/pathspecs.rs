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
        || !has("literal") && path.contains(['*', '?', '[', '\\']) && is_match(&path, &wanted)
}

/// Compares a pattern with a path: a star stands for any text, a backslash makes a letter one, and from a bracket on any text will do.
fn is_match(pattern: &str, path: &str) -> bool {
    let path: Vec<char> = path.chars().collect();
    // `reached[n]`: the pattern so far stands for the first n letters.
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    let mut pattern = pattern.chars();
    while let Some(token) = pattern.next() {
        match token {
            '[' => return reached.contains(&true),
            '*' => {
                let first = reached.iter().position(|is| *is).unwrap_or(reached.len());
                reached.iter_mut().skip(first).for_each(|is| *is = true);
            }
            _ => {
                let letter = if token == '\\' { pattern.next().unwrap_or(token) } else { token };
                for n in (0..path.len()).rev() {
                    reached[n + 1] = reached[n] && (token == '?' || path[n] == letter);
                }
                reached[0] = false;
            }
        }
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
            ".en[[:alpha:]]",
            ".en[]v]",
            "\\.env",
        ] {
            assert!(names(given, ".env"), "{given}");
        }
        for given in [".", ":/", ":(top)", "*", "./"] {
            assert!(names(given, "."), "{given}");
        }
        for given in ["x.env", ":!.env", ":(exclude).env", "*.rs", ".env?", "x[", ":(literal)*.env", ""] {
            assert!(!names(given, ".env"), "{given}");
        }
        assert!(!names("src/*", ".") && names("src/*", "src/a/b"));
    }
}
