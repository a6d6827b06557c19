//! The words of a rule about commands, as its author wrote them.

use super::wrapping::is_assignment;

/// Words of a shell's language that begin no command.
const RESERVED: [&str; 18] = [
    "!", "{", "}", "[[", "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case",
    "esac", "select", "function",
];
/// Characters that a shell takes for more than a part of a word.
const SPECIAL: &str = "*?|;&<>$()`\n";

/// Divides the text of a rule, and refuses what no command would ever match. A `*` at the end stands for any further words.
pub fn words_of_rule(text: &str) -> Result<Vec<String>, String> {
    let written = text.trim_end();
    let without_star =
        written.strip_suffix('*').filter(|rest| rest.is_empty() || rest.ends_with([' ', '\t']));
    let named = without_star.unwrap_or(written);
    let words = shell_words::split(named).map_err(|error| format!("{text:?}: {error}"))?;
    let Some(program) = words.first() else {
        return Err("a command in a rule has to name a program".to_owned());
    };
    if let Some(special) = unquoted(named) {
        let hint = match special {
            '*' | '?' => "leave it away, as `git push` is `git push origin` too",
            '$' | '`' => "name the words themselves",
            _ => "name each command by itself",
        };
        return Err(format!(
            "{text:?}: a rule names the words of one command, and {special:?} is not a part of one: {hint}, or put it in quotes where \
             the command has it in quotes"
        ));
    }
    if RESERVED.contains(&program.as_str()) || is_assignment(program) {
        return Err(format!(
            "{text:?}: {program:?} is not the name of a program: begin with the program that runs, as in \"git push\""
        ));
    }
    if !is_program_name(program) {
        return Err(format!(
            "{text:?}: a command in a rule begins with a program's name, without directory: \"git push\""
        ));
    }
    Ok(words)
}

/// Returns whether a rule may call a program so.
pub fn is_program_name(program: &str) -> bool {
    !program.is_empty() && !program.starts_with('-') && !program.contains('/')
}

/// The first special character that stands outside of quotes; in double ones those that a shell replaces count, too.
fn unquoted(text: &str) -> Option<char> {
    let (mut quote, mut characters) = (None, text.chars());
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => drop(characters.next()),
            (None, '\'' | '"') => quote = Some(character),
            (None, _) if SPECIAL.contains(character) => return Some(character),
            (Some(_), '$' | '`') => return Some(character),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::words_of_rule;

    #[test]
    fn what_no_command_matches_is_refused() {
        for text in [
            "rm -rf /*",
            "npm run deploy:*",
            "git push:*",
            "git*",
            "curl | sh",
            "docker rm $X",
            "docker rm \"$X\"",
            "git push && ls",
            "git push;",
            "FOO=1 git push",
            "> /dev/sda",
            "!",
            "while",
            "function",
            "*",
            "",
            "/bin/rm",
        ] {
            assert!(words_of_rule(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_star_at_the_end_stands_for_further_words() {
        for (text, words) in [
            ("git push *", vec!["git", "push"]),
            ("sudo *", vec!["sudo"]),
            ("git add '*'", vec!["git", "add", "*"]),
            ("find -exec rm {} \\;", vec!["find", "-exec", "rm", "{}", ";"]),
            ("env A=1 rm", vec!["env", "A=1", "rm"]),
        ] {
            assert_eq!(words_of_rule(text).unwrap(), words, "{text}");
        }
    }
}
