//! The scripts of sed: `e` and the flag `e` of `s` run a command.

use super::super::findings::Word;

/// Options without and with a value, none of which names a program or a file of commands.
const FLAGS: [&str; 16] = [
    "-n",
    "-E",
    "-r",
    "-s",
    "-u",
    "-z",
    "-i",
    "-ni",
    "-nE",
    "-nr",
    "-Ei",
    "-iE",
    "-ri",
    "--quiet",
    "--in-place",
    "--regexp-extended",
];

/// Returns whether sed with these arguments runs no program: its scripts are written out, and have no command that runs one.
pub fn runs_nothing(arguments: &[Word]) -> bool {
    let (mut scripts, mut rest) = (Vec::new(), arguments.iter());
    let mut operands = Vec::new();
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        if text == "-e" || text == "--expression" {
            let Some(script) = rest.next() else { return false };
            scripts.push(script);
        } else if FLAGS.contains(&text)
            || word.is_one() && (text.starts_with("-i.") || text.starts_with("--in-place="))
        {
        } else if word.is_flag() {
            return false;
        } else {
            operands.push(word);
        }
    }
    if scripts.is_empty() {
        if operands.is_empty() {
            return true;
        }
        scripts.push(operands.remove(0));
    }
    // What the shell puts in may be an option, too.
    !operands.iter().any(|word| word.may_be_option())
        && scripts.iter().all(|script| script.fixed && is_plain(&script.text))
}

/// Reads commands as far as they are known to be harmless.
fn is_plain(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', ';', '}']);
        if rest.is_empty() {
            return true;
        }
        match after_addresses(rest).and_then(after_command) {
            Some(next) => rest = next,
            None => return false,
        }
    }
}

/// `2`, `$`, `/x/I`, `1,/y/`, `0~4`, `2,+3`, and `!`.
fn after_addresses(script: &str) -> Option<&str> {
    let mut rest = script;
    loop {
        rest = match rest.chars().next()? {
            '/' => after_delimited(&rest[1..], '/')?.trim_start_matches(['I', 'M']),
            '0'..='9' | '$' | ',' | '~' | '+' | ' ' | '!' => &rest[1..],
            _ => return Some(rest),
        };
    }
}

fn after_command(rest: &str) -> Option<&str> {
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
            let pattern = after_delimited(&after[1..], delimiter)?;
            let flags = after_delimited(pattern, delimiter)?;
            let next = flags.trim_start_matches([
                'g', 'p', 'i', 'I', 'm', 'M', '1', '2', '3', '4', '5', '6', '7', '8', '9', ' ',
            ]);
            (next.is_empty() || next.starts_with([';', '\n', '}'])).then_some(next)
        }
        '#' => Some(after.split_once('\n').map_or("", |(_, next)| next)),
        // Where a version takes more for the label, less of it is commands.
        ':' | 'b' | 't' | 'T' => {
            let end = after.find([';', '\n']).unwrap_or(after.len());
            let label = after[..end].trim();
            label.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(&after[end..])
        }
        // Text to the end of the script, or of the line.
        'a' | 'i' | 'c' if !after.contains('\n') => Some(""),
        _ => None,
    }
}

/// What follows the next delimiter that is not behind a backslash. Where versions may differ about it, nothing: a newline, or a delimiter
/// in brackets.
fn after_delimited(text: &str, delimiter: char) -> Option<&str> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\n' => return None,
            '[' if !is_escaped && bracket(&text[at + 1..])?.contains(delimiter) => return None,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == delimiter => return Some(&text[at + c.len_utf8()..]),
            _ => {}
        }
    }
    None
}

/// What stands in brackets that were opened before `text`: `]` is a character at their beginning, and within `[:…:]`.
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
            "s/[[:space:]]*$//",
            "s/[]x]/y/",
            "s/\\/e/b/g",
            "/x/{p;d}",
            ":a;N;$!ba;s/\\n/ /g",
            "",
        ] {
            assert!(is_harmless(&["-n", script, "file"]), "{script}");
            assert!(is_harmless(&["-i", "-e", script, "file"]), "{script}");
        }
    }
}
