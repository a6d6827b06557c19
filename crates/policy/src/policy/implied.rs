//! Options that a rule names and others stand for: `curl -d x` is `curl -X POST -d x`.

use super::findings::Word;
use super::likeness::Likeness;
use super::spellings::Flag;

/// An option with a value for which others stand, where none of a third kind is given.
pub struct Implied {
    program: &'static str,
    pub option: &'static str,
    pub value: &'static str,
    by: &'static [&'static str],
    /// Those of the third kind: as letters or whole, and whether a value comes with them.
    unless: &'static [(&'static str, bool)],
}

const IMPLIED: [Implied; 5] = [
    Implied {
        program: "curl",
        option: "-X",
        value: "POST",
        by: &["-d", "-F"],
        unless: &[("-X", true), ("-G", false), ("-I", false), ("-T", true)],
    },
    Implied {
        program: "curl",
        option: "-X",
        value: "PUT",
        by: &["-T"],
        unless: &[("-X", true), ("-I", false)],
    },
    Implied { program: "curl", option: "-X", value: "HEAD", by: &["-I"], unless: &[("-X", true)] },
    Implied {
        program: "wget",
        option: "--method",
        value: "POST",
        by: &["--post-data", "--post-file"],
        unless: &[("--method", true)],
    },
    Implied {
        program: "gh",
        option: "-X",
        value: "POST",
        by: &["-f", "-F", "--raw-field", "--field", "--input"],
        unless: &[("-X", true)],
    },
];

/// Options of curl that take no value.
const LETTERS: &str = "sSfLvkigN#";
const LONG: [&str; 8] = [
    "--silent",
    "--show-error",
    "--fail",
    "--location",
    "--verbose",
    "--insecure",
    "--include",
    "--compressed",
];
/// Letters of curl's options that take one.
const VALUED: &str = "AbcCdDeEFhHKmoPQrtTuUwxXyYz";

/// Returns the option of a rule with such a value that others among the arguments stand for.
pub fn implied(program: &str, value: &str, arguments: &[Word]) -> Option<&'static Implied> {
    let option = |flag: &'static str| Flag { program, subcommand: "", flag };
    let is_given = |flag: &&'static str| option(flag).likeness(arguments) == Likeness::Yes;
    let rows = IMPLIED.iter().filter(|row| row.program == program && row.value == value);
    let is_off = |row: &Implied| {
        row.unless.iter().any(|&(flag, is_valued)| is_sure(option(flag), is_valued, row, arguments))
    };
    rows.filter(|row| row.by.iter().any(is_given)).find(|row| !is_off(row))
}

/// Returns the options that operands stand for: `git push origin +main` is forced, and `:main` deletes.
pub fn implied_by_operands(program: &str, arguments: &[Word]) -> Vec<&'static str> {
    let after = arguments.iter().position(|word| word.text == "push");
    let Some(after) = after.filter(|_| program == "git") else { return Vec::new() };
    let has = |is_it: &dyn Fn(&str) -> bool| arguments[after..].iter().any(|word| is_it(&word.text));
    let forced = has(&|text| text.starts_with('+')).then_some("--force");
    let deletes = has(&|text| text.trim_start_matches('+').starts_with(':') && !text.ends_with(':'));
    forced.into_iter().chain(deletes.then_some("--delete")).collect()
}

/// Returns whether an option is given for sure, and is for all that the command asks for: it is not the value of another one, nothing takes it
/// back, and no part of the command begins anew.
fn is_sure(option: Flag<'_>, is_valued: bool, row: &Implied, arguments: &[Word]) -> bool {
    let end = arguments.iter().position(|word| word.text == "--").unwrap_or(arguments.len());
    let arguments = &arguments[..end];
    let is_value =
        |text: &str| !text.is_empty() && !text.starts_with('-') && !text.eq_ignore_ascii_case(row.value);
    let is_it = |at: usize| {
        let word = &arguments[at];
        let may_be_value = at.checked_sub(1).is_some_and(|before| !takes_none(&arguments[before]));
        let Some(joined) = option.joined(&word.text, LETTERS).filter(|_| word.fixed && !may_be_value) else {
            return false;
        };
        let next = arguments.get(at + 1).filter(|next| next.fixed).map_or("", |next| &next.text);
        !is_valued || is_value(if joined.is_empty() { next } else { joined })
    };
    let given: Vec<usize> = (0..arguments.len()).filter(|&at| option.is_in(&arguments[at])).collect();
    !given.is_empty()
        && given.into_iter().all(is_it)
        && !arguments.iter().any(|word| begins_anew(&word.text) || option.is_taken_back(&word.text))
}

/// Returns whether a word takes no value from the next one.
fn takes_none(word: &Word) -> bool {
    let is_whole = |letters: &str| {
        let rest = letters.trim_start_matches(|letter| LETTERS.contains(letter));
        rest.is_empty() || rest.starts_with(|letter| VALUED.contains(letter)) && rest.len() > 1
    };
    match word.text.strip_prefix('-').filter(|rest| !rest.is_empty()) {
        None => !word.may_be_option(),
        Some(letters) => word.fixed && (LONG.contains(&word.text.as_str()) || is_whole(letters)),
    }
}

/// `--next` or `-:`, behind which curl forgets the options before.
fn begins_anew(text: &str) -> bool {
    let is_long = text.len() > 2 && "--next".starts_with(text);
    let group = text.strip_prefix('-').filter(|group| !group.starts_with('-'));
    let before = group.and_then(|group| group.split_once(':')).map(|(before, _)| before);
    is_long || before.is_some_and(|before| !before.contains(|letter| VALUED.contains(letter)))
}
