//! Exit statuses that are results. By POSIX, status 1 of grep, diff, cmp, test, expr and `sort -c` is an answer (nothing matches, the files
//! differ), and only what is greater reports an error.
//!
//! A shell script is only read as far as its last command can be told without a parser. Where that fails, its status counts as a failure.

/// Programs of POSIX, and those that keep to the convention of one of them.
const PROGRAMS: [&str; 18] = [
    "[", "[[", "ag", "bzgrep", "cmp", "diff", "egrep", "expr", "fgrep", "grep", "pgrep", "rg", "sdiff",
    "test", "xzgrep", "zdiff", "zgrep", "zstdgrep",
];
/// Words that stand in front of the program that runs.
const PREFIXES: [&str; 13] =
    ["!", "(", "builtin", "busybox", "command", "do", "else", "env", "exec", "sudo", "then", "time", "{"];
/// Words that end a compound command, whose status is that of the last command in it.
const ENDS: [&str; 5] = [")", "done", "esac", "fi", "}"];

/// The operator between a command and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joint {
    And,
    Pipe,
    /// `;`, `||`, `&`, a line end, or nothing.
    Other,
}

/// Returns whether the status with which a shell ended that ran `script` is a result of its last command. `has_output`: whether it printed
/// anything.
pub fn is_result(script: &str, status: i32, has_output: bool) -> bool {
    if status != 1 {
        return false;
    }
    let commands = commands(script);
    let mut backwards = commands.iter().rev().skip_while(|(_, text)| ENDS.contains(text));
    let Some(&(mut joint, last)) = backwards.next() else { return false };
    if has_results(last) {
        return true;
    }
    // `test -f a && sh b`: what prints nothing may not have run.
    for &(before, text) in backwards {
        match joint {
            Joint::And if !has_output && has_results(text) => return true,
            Joint::Other => return false,
            Joint::And | Joint::Pipe => joint = before,
        }
    }
    false
}

/// The programs that a script runs, as far as they are named in it.
pub fn programs(script: &str) -> impl Iterator<Item = String> {
    let names: Vec<String> = commands(script).iter().filter_map(|(_, text)| words(text).next()).collect();
    names.into_iter()
}

/// The words of each command of a script that runs one of these programs, with the program first.
pub fn calls_of(script: &str, program: &str) -> Vec<Vec<String>> {
    let commands = commands(script);
    let all = commands.iter().map(|(_, text)| words(text).collect::<Vec<_>>());
    all.filter(|words| words.first().is_some_and(|first| first == program)).collect()
}

fn has_results(command: &str) -> bool {
    let mut words = words(command);
    match words.next().as_deref() {
        Some("sort") => words.any(|word| word == "-c" || word == "-C"),
        Some("git") => {
            let mut is_value = false;
            let subcommand = words.find(|word| {
                let is_skipped = is_value || word.starts_with('-');
                is_value = word == "-C" || word == "-c";
                !is_skipped
            });
            subcommand.is_some_and(|name| name == "grep" || name == "diff")
        }
        Some(program) => PROGRAMS.contains(&program),
        None => false,
    }
}

/// The words of a command from its program on, without quotation marks, and without the program's directory.
fn words(command: &str) -> impl Iterator<Item = String> {
    let words = command.split_whitespace().map(|word| word.trim_matches(['\'', '"']));
    let is_in_front = |word: &&str| {
        let is_assignment = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        is_assignment || PREFIXES.contains(word)
    };
    let mut rest = words.skip_while(is_in_front);
    let program = rest.next().map(|word| {
        let word = word.trim_start_matches('(').trim_end_matches(')');
        word.rsplit('/').next().unwrap_or(word).to_owned()
    });
    let rest: Vec<String> = rest.map(str::to_owned).collect();
    program.into_iter().chain(rest)
}

/// The commands of a script, with how each follows the one before.
fn commands(script: &str) -> Vec<(Joint, &str)> {
    let bytes = script.as_bytes();
    let (mut commands, mut begin, mut joint) = (Vec::new(), 0, Joint::Other);
    // Inside of quotation marks, and of so many `$(…)` or `<(…)`, nothing ends a command.
    let (mut quote, mut depth, mut at) = (None, 0_usize, 0);
    while at < bytes.len() {
        let (byte, before) = (bytes[at], at.checked_sub(1).map(|at| bytes[at]));
        let next = bytes.get(at + 1).copied();
        let mut length = 1;
        let mut ends = None;
        match (quote, byte) {
            (Some(b'\''), _) if byte != b'\'' => {}
            (_, b'\\') => length = 2,
            (Some(open), _) => quote = Some(open).filter(|open| *open != byte),
            (None, b'\'' | b'"' | b'`') => quote = Some(byte),
            (None, b'(') if depth > 0 || matches!(before, Some(b'$' | b'<' | b'>')) => depth += 1,
            (None, b')') if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            (None, b'&') if next == Some(b'&') => (ends, length) = (Some(Joint::And), 2),
            // `2>&1` and `&>file`.
            (None, b'&') if matches!(before, Some(b'<' | b'>')) || next == Some(b'>') => {}
            (None, b'|') if next == Some(b'|') => (ends, length) = (Some(Joint::Other), 2),
            (None, b'|') => ends = Some(Joint::Pipe),
            (None, b';' | b'\n' | b'&') => ends = Some(Joint::Other),
            (None, _) => {}
        }
        if let Some(next) = ends {
            commands.push((joint, script[begin..at].trim()));
            (joint, begin) = (next, at + length);
        }
        at += length;
    }
    commands.push((joint, script.get(begin..).unwrap_or_default().trim()));
    commands.retain(|(_, text)| !text.is_empty());
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_1_of_the_last_command_is_a_result_where_its_program_says_so() {
        for script in [
            "grep -rn TIMEOUT .",
            "cd src && grep -c 'a; b' *.py",
            "cat a | sort | grep -v x | grep y 2>&1",
            "diff <(sort a | uniq) <(sort b)",
            "LC_ALL=C /usr/bin/cmp a b",
            "test -d build\n",
            "[ -e a ]",
            "! grep -q x a",
            "(cd a; rg 'x|y')",
            "for f in *; do grep -H x \"$f\"; done",
            "make || git -C a diff --exit-code",
            "sort -c words.txt",
            "expr 0",
        ] {
            assert!(is_result(script, 1, true), "{script}");
            assert!(!is_result(script, 2, true), "{script}");
        }
    }

    #[test]
    fn status_1_of_any_other_command_is_a_failure() {
        for script in [
            "pytest -q",
            "grep x a; pytest",
            "grep x a | python3 b.py",
            "echo \"a | grep b\"",
            "test -f a && python3 a.py",
            "sort a",
            "git commit -m diff",
            "python3 - <<'END'\nimport grep\nEND",
            "echo 'open; grep",
            "\\",
            "",
        ] {
            assert!(!is_result(script, 1, true), "{script}");
        }
    }

    #[test]
    fn a_test_that_keeps_the_next_command_from_running_is_a_result() {
        assert!(is_result("test -f a && cat a | wc -l", 1, false));
        assert!(is_result("grep -q x a && echo found", 1, false));
        assert!(!is_result("grep -q x a; sh b && sh c", 1, false));
        assert!(!is_result("sh a && sh b", 1, false));
    }

    #[test]
    fn the_programs_of_a_script_are_those_of_its_commands() {
        let names: Vec<String> = programs("cd a && LANG=C /bin/ls | wc -l; (grep x b) 2>&1").collect();
        assert_eq!(names, ["cd", "ls", "wc", "grep"]);
        assert_eq!(calls_of("ls; sed -i 's/a|b/c/' 'x y'", "sed"), [["sed", "-i", "s/a|b/c/", "x", "y"]]);
    }

    proptest::proptest! {
        #[test]
        fn any_script_is_taken(script in "(grep|&&|\\||;|'|\"|`|\\$\\(|\\(|\\)|\\\\|é|a | |\n|&|>){0,30}") {
            let _ = is_result(&script, 1, false);
            let _ = programs(&script).count();
        }
    }
}
