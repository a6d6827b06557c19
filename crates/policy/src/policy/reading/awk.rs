//! The programs of awk: `system`, pipes and `@` run other programs, or functions and files by a computed name.

use super::super::findings::Word;

/// Returns whether awk with these arguments runs no program: its own program is written out, and has no word for it.
pub fn runs_nothing(arguments: &[Word]) -> bool {
    let mut rest = arguments.iter();
    let program = loop {
        let Some(word) = rest.next() else { return true };
        match word.text.as_str() {
            "-F" | "-v" => {
                if !rest.next().is_none_or(Word::is_one) {
                    return false;
                }
            }
            "--" => break rest.next(),
            text if text.starts_with("-F") && word.is_one() || text.starts_with("-v") && word.fixed => {}
            text if text.starts_with('-') || word.may_be_option() => return false,
            _ => break Some(word),
        }
    };
    program.is_none_or(|word| word.fixed && is_plain(&word.text))
}

/// Reads what stands outside of strings, regular expressions and remarks, where it is sure what they are. A word of awk's is not divided by a
/// backslash in any version known, and is not let through with one.
fn is_plain(program: &str) -> bool {
    let outside = match outside(program) {
        Some(outside) => outside,
        None if program.contains("system") || program.contains(['@', '/', '\\', '#']) => program.to_owned(),
        None => program.split('"').step_by(2).collect(),
    };
    let is_word = |word: &&str| outside.contains(*word);
    !["system", "getline", "@", "\\\n"].iter().any(is_word) && !outside.replace("||", "").contains('|')
}

/// The program without what it only compares or prints; nothing where versions may read it otherwise.
fn outside(program: &str) -> Option<String> {
    let (mut outside, mut rest) = (String::new(), program);
    while let Some(at) = rest.find(['"', '/', '#', '\\']) {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        outside += before;
        match rest.as_bytes()[at] {
            b'#' => rest = &after[after.find('\n').unwrap_or(after.len())..],
            b'"' => {
                rest = after_delimited(after, '"')?;
                outside.push('"');
            }
            b'/' => {
                let written = outside.trim_end_matches([' ', '\t']);
                match written.chars().next_back() {
                    None | Some('{' | '}' | '(' | ',' | ';' | '!' | '~' | '&' | '\n') => {
                        rest = after_delimited(after, '/')?;
                        outside.push('"');
                    }
                    // Behind a value it divides, if no word is one of awk's, and nothing may be the end of a regular expression.
                    Some(_) if !after.contains('/') => {
                        rest = after;
                        outside.push('/');
                    }
                    Some(_) => return None,
                }
            }
            _ => return None,
        }
    }
    Some(outside + rest)
}

/// Returns what follows the end of a string or a regular expression.
fn after_delimited(text: &str, delimiter: char) -> Option<&str> {
    let mut rest = text;
    loop {
        let at = rest.find(['\n', '\\', '[', delimiter])?;
        let after = &rest[at + 1..];
        rest = match rest[at..].chars().next()? {
            c if c == delimiter => return Some(after),
            '\\' => &after[after.chars().next().filter(|next| *next != '\n')?.len_utf8()..],
            '[' if delimiter == '/' => after_bracket(after)?,
            '[' => after,
            _ => return None,
        };
    }
}

/// The text behind brackets that were opened before `text`, where all versions see the same end of them and of the regular expression.
fn after_bracket(text: &str) -> Option<&str> {
    let first = text.strip_prefix('^').unwrap_or(text);
    if first.starts_with(']') {
        return None;
    }
    let mut rest = first;
    loop {
        let at = rest.find(['[', ']', '/', '\\', '\n'])?;
        rest = match rest.get(at..at + 2) {
            _ if rest[at..].starts_with(']') => return Some(&rest[at + 1..]),
            Some("[:") => {
                rest[at + 2..].trim_start_matches(|c: char| c.is_ascii_alphabetic()).strip_prefix(":]")?
            }
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_harmless(arguments: &[&str]) -> bool {
        runs_nothing(&arguments.iter().map(|text| Word::fixed(*text)).collect::<Vec<_>>())
    }

    #[test]
    fn a_program_that_runs_another_one_is_never_harmless() {
        for program in [
            "BEGIN{system(\"rm x\")}",
            "BEGIN{\"rm x\" | getline}",
            "{print | \"sh\"}",
            "{print |& \"sh\"}",
            "/\"/ { print \"x\" | \"rm x\" }",
            "BEGIN{f=\"sys\" \"tem\"; @f(\"rm x\")}",
            "#\"\n{print | \"sh\"}",
            "@load \"x\"",
            "BEGIN{sys\\\ntem(\"x\")}",
            "{print \"\\\"\" | \"sh\"}",
            "/a/ {print | \"sh\"}",
            "/[/]/ {print | \"sh\"} #/",
            "/[]/]/ {print | \"sh\"}",
            "/[^]/]/ {print | \"sh\"}",
            "/[[:alpha:]/]/ {print | \"sh\"}",
            "/[[./.]]/ {print | \"sh\"}",
            "/[\\]/]/ {print | \"sh\"}",
            "{x = a / b; print | \"sh\"} /y/",
            "{print a /b\"/ 2; print \"c\" | \"sh\"}",
            "{if (x) /\"/; print | \"sh\" /\"/}",
            "$1 ~ /x/ {system(\"rm x\")}",
            "/x/ {\"date\" | getline}",
            "/a\n|b/",
            "{print \"a\\\n\" | \"sh\"}",
            "# \" \n{print | \"sh\"} # \"",
            "{print \"#\" | \"sh\"}",
        ] {
            assert!(!is_harmless(&[program]), "{program}");
        }
        assert!(!is_harmless(&["-f", "x"]) && !is_harmless(&["-e", "x"]) && !is_harmless(&["--load=x", "1"]));
    }

    #[test]
    fn usual_programs_are_harmless() {
        for program in [
            "/a|b/",
            "/a|b/ {print $1}",
            "{gsub(/foo|bar/, \"x\"); print}",
            "/system/ {print}",
            "/^[[:space:]]*[a-z]|x/",
            "$1 ~ /^(a|b)$/ && !/c|d/ { n++ } END { print n / 2 }",
            "{print \"a | b\", $1 / 2} # x | y",
            "{ s = s \"a\\n|\" } END { print s }",
            "{print $1}",
            "$1 > 2 || /x/",
            "{print $1 \"|\" $2}",
            "END{print NR}",
        ] {
            assert!(is_harmless(&["-F", "|", "-v", "x=1", program, "file"]), "{program}");
        }
    }
}
