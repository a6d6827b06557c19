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

/// What is a string, a regular expression or a remark depends on what is before it, so nothing is left out but the strings of a program
/// that has neither of the others. A word of awk's is not divided by a backslash in any version known, and is not let through with one.
fn is_plain(program: &str) -> bool {
    let is_hidden = program.contains("system") || program.contains('@') || program.contains("\\\n");
    let outside = match program.contains(['/', '\\', '#']) {
        true => program.to_owned(),
        false => program.split('"').step_by(2).collect(),
    };
    !is_hidden && !outside.replace("||", "").contains('|') && !program.contains("getline")
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
        ] {
            assert!(!is_harmless(&[program]), "{program}");
        }
        assert!(!is_harmless(&["-f", "x"]) && !is_harmless(&["-e", "x"]) && !is_harmless(&["--load=x", "1"]));
    }

    #[test]
    fn usual_programs_are_harmless() {
        for program in ["{print $1}", "$1 > 2 || /x/", "{print $1 \"|\" $2}", "END{print NR}"] {
            assert!(is_harmless(&["-F", "|", "-v", "x=1", program, "file"]), "{program}");
        }
    }
}
