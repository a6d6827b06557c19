//! Programs that run the command in their arguments, by options of which each is known.

use super::super::super::findings::{Becomes, Word};
use super::super::super::wrapping;
use super::super::variables;
use super::Known;

/// Options that take no value, options that do, and operands before the command, of programs that run the command in their arguments and
/// do nothing else.
struct Wrapper {
    name: &'static str,
    flags: &'static [&'static str],
    values: &'static [&'static str],
    operands: usize,
}

const fn wrapper(
    name: &'static str,
    flags: &'static [&'static str],
    values: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper { name, flags, values, operands }
}

impl Wrapper {
    /// Returns whether a word that follows an option is its value and nothing beside.
    fn takes(&self, value: &Word) -> bool {
        match self.name {
            "env" => value.fixed && !variables::decides(&value.text),
            // What xargs makes of another option there is not known, and what it puts its input in place of has to be.
            "xargs" => !value.is_flag() && (value.fixed || value.text == "{}") && value.is_one(),
            _ => value.is_one(),
        }
    }

    /// Returns whether words are operands before its command. Older versions of busybox take the program there.
    fn takes_before(&self, operands: &[Word]) -> bool {
        let is_time = |text: &str| {
            let number = text.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(text);
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        };
        let is_plain = |word: &Word| self.name != "timeout" || word.fixed && is_time(&word.text);
        operands.iter().all(|word| word.is_one() && is_plain(word))
    }
}

const WRAPPERS: [Wrapper; 14] = [
    wrapper("nohup", &[], &[], 0),
    wrapper("setsid", &["-w", "-f", "-c", "--wait", "--fork"], &[], 0),
    wrapper("nice", &[], &["-n", "--adjustment"], 0),
    wrapper("ionice", &["-t"], &["-c", "-n"], 0),
    wrapper("time", &["-p", "-v", "--verbose", "--portability"], &["-f", "-o", "--format", "--output"], 0),
    wrapper(
        "timeout",
        &["--foreground", "--preserve-status", "-v", "--verbose"],
        &["-k", "-s", "--kill-after", "--signal"],
        1,
    ),
    wrapper("stdbuf", &[], &["-i", "-o", "-e"], 0),
    wrapper("command", &["-p"], &[], 0),
    wrapper("builtin", &[], &[], 0),
    // With -l a shell reads the files of a login.
    wrapper("exec", &[], &[], 0),
    // Without PATH, bash looks for programs in the working directory, too: -i, and -u of some names.
    wrapper("env", &["-0"], &["-u", "--unset"], 0),
    wrapper("sudo", &["-E", "-n", "-H", "-S"], &["-u", "-g"], 0),
    wrapper("busybox", &[], &[], 0),
    wrapper(
        "xargs",
        &["-0", "-r", "-t", "-x", "--null", "--no-run-if-empty"],
        &["-n", "-P", "-L", "-d", "-a", "-s", "-I", "--max-args", "--max-procs"],
        0,
    ),
];

/// Returns what is known of a program that runs the command in its arguments; nothing where it is not such a program.
pub fn known(name: &str, arguments: &[Word]) -> Option<Known> {
    let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.name == name)?;
    let places = |at: usize| arguments[..at].iter().filter(|word| word.text.starts_with("-I")).count();
    Some(match wrapped(wrapper, arguments) {
        Some(Some(at)) if places(at) <= 1 => Known::Wraps(at + 1),
        Some(None) => Known::Plain,
        _ => Known::Nothing,
    })
}

/// Returns where the wrapped command begins, `Some(None)` where there is none, and `None` where an option is not known.
fn wrapped(wrapper: &Wrapper, arguments: &[Word]) -> Option<Option<usize>> {
    let (mut at, operands) = (0, wrapper.operands);
    while let Some(word) = arguments.get(at) {
        let text = word.text.as_str();
        if wrapper.name == "env" && wrapping::is_assignment(text) {
            let name = text.split('=').next().unwrap_or_default();
            let value = text.split_once('=').map(|(_, value)| value).filter(|_| word.fixed);
            let is_obeyed = !variables::is_harmless(name) || variables::changes_encoding(name, value);
            if is_obeyed || !word.is_one() {
                return None;
            }
            at += 1;
        } else if !word.fixed && text != "-I{}" {
            return if operands > 0 && !word.may_be_option() { None } else { Some(Some(at)) };
        } else if text == "--" {
            let (between, rest) = arguments[at + 1..].split_at_checked(operands)?;
            return wrapper.takes_before(between).then(|| rest.first().map(|_| at + 1 + operands));
        } else if wrapper.flags.contains(&text) {
            at += 1;
        } else if wrapper.values.contains(&text) {
            if !arguments.get(at + 1).is_none_or(|value| wrapper.takes(value)) {
                return None;
            }
            at += 2;
        } else if joined(wrapper, word).is_some_and(|value| wrapper.takes(&value)) || is_group(wrapper, text)
        {
            at += 1;
        } else if word.is_flag() {
            return None;
        } else {
            // Behind the first operand, an option is the command's.
            let (between, rest) = arguments[at..].split_at_checked(operands)?;
            return wrapper.takes_before(between).then(|| rest.first().map(|_| at + operands));
        }
    }
    Some(None)
}

/// The command that a wrapper runs. What xargs adds to it, or puts in, is not known.
pub fn wrapped_words(words: &[Word], at: usize) -> Vec<Word> {
    let (before, command) = words.split_at(at.min(words.len()));
    if !before.first().is_some_and(|program| program.text.ends_with("xargs")) {
        return command.to_vec();
    }
    let unknown = |text: &str| Word::changed(text, Becomes::Any);
    let divides = |word: &Word| ["-n", "-L", "--max-args"].iter().any(|option| word.text.starts_with(option));
    // It adds words too where an option that says how many takes the place of `-I`.
    let added = before.iter().any(divides).then(|| unknown("$…"));
    let place = before.iter().enumerate().find_map(|(at, word)| match word.text.strip_prefix("-I")? {
        "" => before.get(at + 1).map(|word| word.text.as_str()),
        joined => Some(joined),
    });
    match place {
        Some(place) => {
            let put_in = |word: &Word| match !place.is_empty() && word.text.contains(place) {
                true => Word { text: word.text.replace(place, "$…"), fixed: false, ..*word },
                false => word.clone(),
            };
            // What a variable holds may be the place.
            let put_in = |word: &Word| match put_in(word) {
                word if word.becomes == Becomes::Plain => Word { becomes: Becomes::One, ..word },
                word if matches!(word.becomes, Becomes::Operand | Becomes::Operands) => {
                    Word { becomes: Becomes::Any, ..word }
                }
                word => word,
            };
            command.iter().map(put_in).chain(added).collect()
        }
        None => command.iter().cloned().chain([unknown("$…")]).collect(),
    }
}

/// `-0r` of `xargs`: options without values.
fn is_group(wrapper: &Wrapper, text: &str) -> bool {
    let is_flag = |letter: char| wrapper.flags.contains(&format!("-{letter}").as_str());
    text.strip_prefix('-').is_some_and(|letters| !letters.is_empty() && letters.chars().all(is_flag))
}

/// The value of `-n1`, `--adjustment=1`.
fn joined(wrapper: &Wrapper, word: &Word) -> Option<Word> {
    let of = |option: &&str| match option.len() {
        2 => word.text.strip_prefix(*option).filter(|value| !value.is_empty()),
        _ => word.text.strip_prefix(*option)?.strip_prefix('='),
    };
    let text = wrapper.values.iter().find_map(of)?.to_owned();
    Some(Word { text, ..word.clone() })
}
