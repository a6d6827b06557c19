//! Programs and built-ins of which the arguments alone say whether they start or evaluate anything.

use super::super::super::findings::{Becomes, Word};
use super::super::{awk, sed, variables};
use super::options::lacks;

/// Returns whether a program or built-in that starts others by some arguments starts none by these.
pub fn are_plain(name: &str, arguments: &[Word]) -> bool {
    match name {
        "find" => is_plain_find(arguments),
        "sed" => sed::runs_nothing(arguments),
        "awk" | "gawk" | "mawk" | "nawk" => awk::runs_nothing(arguments),
        // At a computed place it writes to the memory of a process, as dd does.
        "xxd" => lacks(name, arguments, &["-r", "--revert"]) || arguments.iter().all(|word| word.fixed),
        "dd" => arguments.iter().all(|word| word.fixed && !word.text.contains("seek")),
        "sh" | "bash" | "dash" | "ash" => only_parses(arguments),
        "ip" => is_plain_ip(arguments),
        "nc" => only_connects(arguments),
        "nslookup" => !arguments.is_empty() && arguments.iter().all(|word| word.fixed && word.text != "-"),
        // A description of a terminal names the program that prepares it.
        "tput" => arguments.iter().all(|word| {
            let is_command = matches!(word.text.as_str(), "init" | "reset");
            word.fixed && !is_command && !word.text.starts_with('-')
        }),
        _ => is_plain_built_in(name, arguments),
    }
}

/// Returns whether a built-in that may evaluate what it is given evaluates nothing.
fn is_plain_built_in(name: &str, arguments: &[Word]) -> bool {
    match name {
        "set" => {
            let end = arguments.iter().position(|word| word.fixed && word.text == "--");
            arguments[..end.unwrap_or(arguments.len())].iter().all(is_plain_setting)
        }
        // These evaluate the subscripts of a variable's name: `read 'x[$(rm y)]'`, `test -v …`, `printf -v …`.
        "read" => arguments.iter().all(is_plain_name),
        // Other options evaluate what they are given.
        "mapfile" | "readarray" => {
            matches!(arguments, [option, name] if option.fixed && option.text == "-t" && is_plain_name(name) && !name.is_flag())
        }
        "wait" => {
            let has_options = arguments.iter().any(Word::is_flag);
            arguments.iter().all(|word| {
                let is_operand = word.becomes == Becomes::Plain && !has_options;
                is_operand || word.becomes == Becomes::Operand || is_plain_name(word)
            })
        }
        "test" => is_plain_test(arguments),
        "[" => arguments.split_last().is_some_and(|(end, rest)| end.text == "]" && is_plain_test(rest)),
        "printf" => is_plain_format(arguments),
        _ => false,
    }
}

/// `find …`: no word may become `-exec`, but for one where nothing ends a command behind it.
fn is_plain_find(arguments: &[Word]) -> bool {
    let is_open = |word: &&Word| word.text != "{}" && word.may_be_option();
    let ends = |word: &Word| matches!(word.text.as_str(), ";" | "+");
    let is_alone = || arguments.iter().filter(|word| !word.fixed).count() == 1 && !arguments.iter().any(ends);
    arguments.iter().filter(is_open).all(|word| word.is_one() && is_alone())
}

/// `bash -n FILE`, which runs nothing of the file.
fn only_parses(arguments: &[Word]) -> bool {
    let is_file = |file: &Word| match file.fixed {
        true => !file.text.is_empty() && !file.text.starts_with(['-', '+']),
        false => file.becomes == Becomes::Plain,
    };
    matches!(arguments, [option, file] if option.fixed && option.text == "-n" && is_file(file))
}

/// `ip addr show dev eth0`: a type of links with a directory in it is a library's.
fn is_plain_ip(arguments: &[Word]) -> bool {
    let is_option = |word: &&Word| {
        matches!(word.text.as_str(), "-4" | "-6" | "-br" | "-brief" | "-o" | "-s" | "-c" | "-j" | "-p")
    };
    let rest = &arguments[arguments.iter().take_while(is_option).count()..];
    let mut words = rest.iter().map(|word| word.text.as_str());
    let is_object = matches!(
        words.next(),
        Some("a" | "addr" | "address" | "l" | "link" | "r" | "route" | "rule" | "neigh")
    );
    is_object
        && words.next().is_none_or(|verb| matches!(verb, "show" | "list" | "ls" | "get"))
        && rest.iter().all(|word| word.fixed && !word.text.contains('/'))
}

/// `nc -zv localhost 80`
fn only_connects(arguments: &[Word]) -> bool {
    let is_plain = |word: &Word| {
        word.fixed && (!word.is_flag() || word.text[1..].chars().all(|letter| "zvunw46".contains(letter)))
    };
    arguments.iter().all(is_plain) && arguments.first().is_some_and(|word| word.text.starts_with("-z"))
}

/// `test …`: `-v` evaluates the subscript of the name behind it. It may be what a variable holds, and so may the name, but not with a
/// fixed operator between them.
fn is_plain_test(arguments: &[Word]) -> bool {
    let is_number = |word: &Word| word.becomes == Becomes::Operand || word.fixed && word.text == "1";
    let is_operator = |word: &Word| {
        word.fixed
            && (word.text.starts_with('-')
                || matches!(word.text.as_str(), "=" | "==" | "!=" | "<" | ">" | "(" | ")" | "!"))
    };
    let mut is_open = false;
    arguments.iter().all(|word| {
        if word.fixed {
            let is_plain = word.text != "-v" && !(is_open && word.text.contains('['));
            is_open &= !is_operator(word);
            return is_plain;
        }
        if is_number(word) {
            return true;
        }
        let was_open = std::mem::replace(&mut is_open, true);
        word.is_one() && !was_open
    })
}

/// `printf FORMAT …`: no option, and no `%n`, which sets the variable that an argument names.
fn is_plain_format(arguments: &[Word]) -> bool {
    let is_end = |word: &&Word| word.fixed && word.text == "--";
    let arguments = &arguments[usize::from(arguments.first().is_some_and(|word| is_end(&word)))..];
    let Some((format, names)) = arguments.split_first() else { return true };
    let mut conversions = format.text.split('%').skip(1);
    let sets = !format.fixed
        || conversions.any(|rest| {
            rest.trim_start_matches(|c: char| !c.is_ascii_alphabetic() || "hjlLtz".contains(c))
                .starts_with('n')
        });
    let is_name = |word: &Word| !word.fixed || variables::decides(&word.text);
    // An option alone has no effect.
    if names.is_empty() && format.is_one() {
        return true;
    }
    let is_option = format.text.starts_with("-v") || format.may_be_option();
    !is_option && (!sets || !names.iter().any(is_name))
}

/// `set -euo pipefail`: nothing that exports variables.
fn is_plain_setting(word: &Word) -> bool {
    let names = ["pipefail", "errexit", "nounset", "xtrace", "noglob", "noclobber", "--"];
    let letters = |group: &str| group.chars().all(|letter| "eufxvCo".contains(letter));
    word.fixed
        && (names.contains(&word.text.as_str()) || word.text.strip_prefix(['-', '+']).is_some_and(letters))
}

fn is_plain_name(word: &Word) -> bool {
    let mut names = variables::names_in(&word.text);
    let is_short = !word.is_flag() || word.text.len() <= variables::MAX_JOINED;
    word.fixed
        && is_short
        && !word.text.contains('[')
        && !names.any(|name| variables::decides(name) || variables::is_integer(name))
}
