//! The scripts of sed: `e` and the flag `e` of `s` run a command.

use super::super::findings::Word;

/// Long options without a value; letters of short ones, any of which may stand together.
const FLAGS: [&str; 3] = ["--quiet", "--in-place", "--regexp-extended"];
const LETTERS: &str = "nErsuz";

/// Returns whether a word is an option that neither names a program nor a file of commands. What is joined to `-i` is for names of files.
fn is_flag(word: &Word) -> bool {
    let group =
        word.text.strip_prefix('-').map(|group| group.trim_start_matches(|letter| LETTERS.contains(letter)));
    FLAGS.contains(&word.text.as_str())
        || word.is_one()
            && (word.text.starts_with("--in-place=") || group.is_some_and(|rest| rest.starts_with('i')))
        || word.fixed && word.is_flag() && group == Some("")
}

/// Returns whether sed with these arguments runs no program: its scripts are written out, and have no command that runs one.
pub fn runs_nothing(arguments: &[Word]) -> bool {
    let (mut scripts, mut operands) = (Vec::new(), Vec::new());
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if word.fixed && word.text == "--" {
            operands.extend(rest.by_ref().map(|word| (word, false)));
        } else if word.text == "-e" || word.text == "--expression" {
            let Some(script) = rest.next() else { return false };
            scripts.push(script);
        } else if word.is_flag() {
            if !is_flag(word) {
                return false;
            }
        } else {
            // What the shell puts in may be an option, too.
            operands.push((word, word.may_be_option()));
        }
    }
    if scripts.is_empty() {
        if operands.is_empty() {
            return true;
        }
        scripts.push(operands.remove(0).0);
    }
    let is_script = |script: &&Word| {
        script.fixed
            && [true, false].iter().all(|knows| Script { knows_brackets: *knows }.is_plain(&script.text))
    };
    !operands.iter().any(|(_, may_be_option)| *may_be_option) && scripts.iter().all(is_script)
}

/// A version of sed. Some take a delimiter in brackets for a character, and others for the end; a script that one of them refuses runs nothing
/// in that one.
#[derive(Clone, Copy)]
struct Script {
    knows_brackets: bool,
}

impl Script {
    /// Reads commands as far as they are known to be harmless.
    fn is_plain(self, script: &str) -> bool {
        let mut rest = script;
        loop {
            rest = rest.trim_start_matches([' ', '\t', '\n', ';', '}']);
            if rest.is_empty() {
                return true;
            }
            let Some(command) = self.after_addresses(rest) else { return false };
            // A pattern that ended in its brackets leaves this behind, which names no command.
            if !self.knows_brackets && command.starts_with(']') {
                return true;
            }
            match self.after_command(command) {
                Some(next) => rest = next,
                None => return false,
            }
        }
    }

    /// `2`, `$`, `/x/I`, `1,/y/`, `0~4`, `2,+3`, and `!`.
    fn after_addresses(self, script: &str) -> Option<&str> {
        let mut rest = script;
        loop {
            rest = match rest.chars().next()? {
                '/' => self.after_pattern(&rest[1..], '/')?.trim_start_matches(['I', 'M']),
                '0'..='9' | '$' | ',' | '~' | '+' | ' ' | '!' => &rest[1..],
                _ => return Some(rest),
            };
        }
    }

    fn after_command(self, rest: &str) -> Option<&str> {
        let command = rest.chars().next()?;
        let after = &rest[command.len_utf8()..];
        match command {
            '{' => Some(after),
            'p' | 'd' | 'D' | 'P' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | '=' | 'z' | 'q' | 'Q' | 'l' => {
                let next = after.trim_start_matches([' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
                (next.is_empty() || next.starts_with([';', '\n', '}'])).then_some(next)
            }
            's' | 'y' => {
                let delimiter = after.chars().next().filter(|c| c.is_ascii_punctuation() && *c != '\\')?;
                let pattern = match command {
                    's' => self.after_pattern(&after[1..], delimiter)?,
                    _ => after_delimited(&after[1..], delimiter).filter(|_| !after.contains('['))?,
                };
                let flags = after_delimited(pattern, delimiter)?;
                let next = flags.trim_start_matches([
                    'g', 'p', 'i', 'I', 'm', 'M', '1', '2', '3', '4', '5', '6', '7', '8', '9', ' ',
                ]);
                // No version has such a flag.
                if !self.knows_brackets && !next.starts_with(|c| "eEwW;}# \t\n".contains(c)) {
                    return Some("");
                }
                (next.is_empty() || next.starts_with([';', '\n', '}'])).then_some(next)
            }
            '#' => Some(after.split_once('\n').map_or("", |(_, next)| next)),
            // Where a version takes more for the label, less of it is commands.
            ':' | 'b' | 't' | 'T' => {
                let end = after.find([';', '\n']).unwrap_or(after.len());
                let label = after[..end].trim();
                label.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(&after[end..])
            }
            // Text to the end of the script, or of the next line.
            'a' | 'i' | 'c' => match (after.strip_prefix("\\\n"), after.contains('\n')) {
                (_, false) => Some(""),
                (Some(text), true) => {
                    let (line, next) = text.split_once('\n').unwrap_or((text, ""));
                    (!line.contains('\\')).then_some(next)
                }
                (None, true) => None,
            },
            _ => None,
        }
    }

    /// Returns what follows a pattern, where all versions see the same brackets in it.
    fn after_pattern(self, text: &str, delimiter: char) -> Option<&str> {
        let mut rest = text;
        loop {
            let at = rest.find(['[', '\\', delimiter])?;
            let after = &rest[at + 1..];
            rest = match rest[at..].chars().next()? {
                c if c == delimiter => {
                    return (!text[..text.len() - after.len()].contains('\n')).then_some(after);
                }
                '\\' => &after[after.chars().next()?.len_utf8()..],
                _ => {
                    let inside = bracket(after)?;
                    match inside.contains(delimiter) {
                        true if inside.contains(['[', ']', '\\']) => return None,
                        true if self.knows_brackets => &after[inside.len() + 1..],
                        _ => after,
                    }
                }
            };
        }
    }
}

/// Returns what follows the next delimiter that is not behind a backslash, on the same line.
fn after_delimited(text: &str, delimiter: char) -> Option<&str> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\n' => return None,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == delimiter => return Some(&text[at + c.len_utf8()..]),
            _ => {}
        }
    }
    None
}

/// Returns what stands in brackets that were opened before `text`: `]` is a character at their beginning, and within `[:…:]`.
fn bracket(text: &str) -> Option<&str> {
    let mut at = usize::from(text.starts_with('^'));
    at += usize::from(text[at..].starts_with(']'));
    loop {
        let next = at + text[at..].find(['[', ']'])?;
        let class = [":", ".", "="].into_iter().find(|kind| text[next + 1..].starts_with(kind));
        at = match class {
            _ if text[next..].starts_with(']') => return Some(&text[..next]),
            Some(kind) => next + 2 + text.get(next + 2..)?.find(&format!("{kind}]"))? + 2,
            None => next + 1,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::findings::Becomes;
    use super::*;

    fn is_harmless(arguments: &[&str]) -> bool {
        runs_nothing(&arguments.iter().map(|text| Word::fixed(*text)).collect::<Vec<_>>())
    }

    #[test]
    fn a_script_that_runs_a_program_is_never_harmless() {
        for script in [
            "e",
            "1e rm x",
            "1erm x",
            "s/a/rm x/e",
            "s/a/b/ge",
            "s/a/b/;e",
            "/x/{e\n}",
            "p;1,2!e",
            "s,a,b,;s|a|rm|e",
            "w x",
            "s/[/]/b/e",
            "s/[/]/[/;e x]/",
            "s/[/]x/e;e rm/e",
            "s/a/[/;e x]/",
            "s/[a/]e/;e/",
            "s/[\\/]/b/",
            "s/[[:alpha:]/]/b/",
            "/[/e]/p",
            "y/[/]/a/b/;e",
            "1i\\\nx\ne",
            "1i\\\nx\\\ny\ne",
            "s/a\\/b/c/e",
            "y/a/b/\ne",
            "a x\ne rm",
            "b;e",
            "b}e",
            "b a e",
            "$!{$!e",
            "F;e",
            "s/[]/]/p;#/e",
            "s/[^]/]/p;#/e",
            "s/[[:space:]/]/p;#/e",
            "/[]/]/p;#/e",
            "s/[/e",
            "s\\a\\b\\e",
            "s/a/b/w x",
            "{e",
            "}e",
            "p p e",
        ] {
            assert!(!is_harmless(&[script]), "{script}");
            assert!(!is_harmless(&["-n", "-e", "p", "-e", script]), "{script}");
        }
        assert!(
            !is_harmless(&["-f", "x"]) && !is_harmless(&["-nf", "x"]) && !is_harmless(&["--expr=e", "x"])
        );
        let glob = [Word::fixed("p"), Word::changed("*", Becomes::Alike)];
        assert!(!runs_nothing(&glob));
    }

    #[test]
    fn usual_scripts_are_harmless() {
        for script in [
            "1,20p",
            "s/a/b/",
            "s/a/b/g",
            "s|/x|/e|g",
            "/x/d",
            "$d",
            "/a/,/b/p",
            "2q",
            "s/e/e/;s/x/y/2",
            "/^#/!p",
            "1i # e",
            "s/[^,]*//",
            "s/[^/]*$//",
            "s/.*[/]x/y/",
            "s|[^|/]*|[|g;p",
            "/[^/]*x/d",
            "1i\\\nheader",
            "1i\\\nheader e\n$d",
            "s/[[:space:]]*$//",
            "s/[]x]/y/",
            "s/\\/e/b/g",
            "/x/{p;d}",
            ":a;N;$!ba;s/\\n/ /g",
            "",
        ] {
            assert!(is_harmless(&["-rn", script, "file"]), "{script}");
            assert!(is_harmless(&["-i", "-e", script, "--", "-file"]), "{script}");
        }
    }
}
