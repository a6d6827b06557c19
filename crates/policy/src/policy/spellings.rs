//! The spellings of an option that a rule names.

use super::arguments::{ArgumentSyntax, Operands};
use super::findings::Word;
use super::likeness::Likeness;
use super::simple_pattern::is_same;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Spellings of options, by program.
const SPELLINGS: &str = include_str!("spellings.txt");

/// A row of them: the program, its subcommand where it is about one, those that mean the same, and those that mean more.
struct Row {
    program: &'static str,
    subcommand: Option<&'static str>,
    same: Vec<&'static str>,
    more: Vec<&'static str>,
}

/// The rows, by program.
static ROWS: LazyLock<HashMap<&str, Vec<Row>>> = LazyLock::new(|| {
    let mut rows: HashMap<_, Vec<Row>> = HashMap::new();
    for row in SPELLINGS.lines().filter_map(row) {
        rows.entry(row.program).or_default().push(row);
    }
    rows
});

fn row(line: &'static str) -> Option<Row> {
    let (name, spellings) = line.split_once(": ").filter(|_| !line.starts_with('#'))?;
    let (program, subcommand) =
        name.split_once(' ').map_or((name, None), |(program, rest)| (program, Some(rest)));
    let (same, more) = spellings.split_once(" > ").unwrap_or((spellings, ""));
    let more = more.split(';').map(str::trim).filter(|spelling| !spelling.is_empty()).collect();
    Some(Row { program, subcommand, same: same.split(' ').collect(), more })
}

/// Programs that send signals, with their options whose value is one.
const SIGNALLED: [(&str, &[&str]); 3] =
    [("kill", &["-s", "-n", "--signal"]), ("pkill", &["--signal"]), ("killall", &["-s", "--signal"])];
/// The signals of Linux on x86 and Arm from number 1 on (signal(7)), and their other names.
const SIGNALS: [&str; 31] = [
    "HUP",
    "INT",
    "QUIT",
    "ILL",
    "TRAP",
    "ABRT IOT",
    "BUS",
    "FPE",
    "KILL",
    "USR1",
    "SEGV",
    "USR2",
    "PIPE",
    "ALRM",
    "TERM",
    "STKFLT",
    "CHLD CLD",
    "CONT",
    "STOP",
    "TSTP",
    "TTIN",
    "TTOU",
    "URG",
    "XCPU",
    "XFSZ",
    "VTALRM",
    "PROF",
    "WINCH",
    "IO POLL",
    "PWR",
    "SYS UNUSED",
];
/// The number of the signal that is sent where none is named.
const DEFAULT_SIGNAL: u32 = 15;
/// Options with which a program sends none.
const NO_SIGNAL: [(&str, &[&str]); 3] = [
    ("kill", &["-0", "-l", "-L", "--list", "--table", "--help", "--version"]),
    ("pkill", &["-0", "--help", "--version"]),
    ("killall", &["-0", "-l", "--list", "--help", "--version"]),
];
/// The numbers of the first real-time signal that programs may use, and of the last signal.
const FIRST_REAL_TIME: u32 = 34;
const LAST_SIGNAL: u32 = 64;

/// An option that a rule names.
#[derive(Clone, Copy)]
pub struct Flag<'p> {
    pub program: &'p str,
    pub subcommand: &'p str,
    pub flag: &'p str,
}

impl Flag<'_> {
    /// Returns how sure it is that it is given: a word that the shell puts in may be one, and so may one behind two dashes that may be the
    /// value of an option.
    pub fn likeness(self, arguments: &[Word]) -> Likeness {
        let (before, after) = self.divided(arguments);
        let is_value = before.last().is_some_and(Word::is_flag);
        match self.is_among(before) {
            true => Likeness::Yes,
            false if before.iter().any(Word::may_be_option) => Likeness::Maybe,
            false if self.may_be_computed(before) => Likeness::Maybe,
            false if is_value && self.is_among(after) => Likeness::Maybe,
            false => Likeness::No,
        }
    }

    /// Returns how sure it is that it is given with this value: `-XPOST`, `--request=POST`, `-X POST`.
    pub fn value_likeness(self, arguments: &[Word], value: &str) -> Likeness {
        let (before, after) = self.divided(arguments);
        let spellings: Vec<&str> = self.spellings().collect();
        let of = |word: &Word, text: &str| Likeness::of(word, is_same(self.program, text, value));
        let among = |words: &[Word]| {
            let at = |(at, word): (usize, &Word)| {
                let spelled = |spelling: &&str| {
                    let joined = self.value_in(&word.text, spelling).map(|joined| of(word, joined));
                    let next = words.get(at + 1).filter(|_| self.is_written(word, spelling));
                    joined.max(next.map(|next| of(next, &next.text)))
                };
                spellings.iter().filter_map(spelled).max()
            };
            words.iter().enumerate().filter_map(at).max().unwrap_or(Likeness::No)
        };
        // The dashes may be a value themselves.
        let is_value = before.last().is_some_and(Word::is_flag);
        let is_open = before.iter().any(Word::may_be_option) || is_value && among(after) > Likeness::No;
        among(before).max(if is_open { Likeness::Maybe } else { Likeness::No })
    }

    /// The arguments that may be options, and those behind the two dashes that end them. To `find`, no dashes end anything.
    fn divided(self, arguments: &[Word]) -> (&[Word], &[Word]) {
        let end = arguments.iter().position(|word| word.text == "--" && self.program != "find");
        arguments.split_at(end.unwrap_or(arguments.len()))
    }

    /// Returns whether the shell may put in what makes it: a negative number, or the value that it needs.
    fn may_be_computed(self, arguments: &[Word]) -> bool {
        let takes_next = |at: usize, option: &str| {
            let word = &arguments[at];
            let is_open = |next: &Word| !next.fixed;
            self.value_in(&word.text, option).is_some() && !word.fixed
                || self.is_written(word, option) && arguments.get(at + 1).is_some_and(is_open)
        };
        let is_number =
            |spelling: &str| spelling.len() > 1 && spelling[1..].bytes().all(|byte| byte.is_ascii_digit());
        let may_take = |option: &str| (0..arguments.len()).any(|at| takes_next(at, option));
        let with_value =
            |spelling: &str| spelling.split_once(' ').is_some_and(|(option, _)| may_take(option));
        let is_signal = self.signal().is_some();
        (is_signal || is_number(self.flag)) && arguments.iter().any(may_be_negative)
            || self.spellings().any(with_value)
            || is_signal && self.signal_options().any(may_take)
    }

    /// Returns whether the signal that it names is sent, in any spelling: programs take numbers, and names in any case.
    fn is_signal(self, arguments: &[Word]) -> bool {
        let Some(wanted) = self.signal() else { return false };
        let is_it = |text: &str| signal(text) == Some(wanted);
        let is_certain = arguments.iter().all(|word| word.fixed || !may_be_negative(word));
        if wanted == DEFAULT_SIGNAL && is_certain && !self.names_signal(arguments) {
            return true;
        }
        arguments.iter().enumerate().any(|(at, word)| {
            let next = arguments.get(at + 1).is_some_and(|next| is_it(&next.text));
            let has_value = |option: &str| {
                self.value_in(&word.text, option).is_some_and(is_it) || next && self.is_written(word, option)
            };
            word.is_flag() && (is_it(&word.text[1..]) || self.signal_options().any(has_value))
        })
    }

    /// Returns whether the arguments name a signal, or ask for none to be sent.
    fn names_signal(self, arguments: &[Word]) -> bool {
        arguments.iter().filter(|word| word.is_flag()).any(|word| {
            let flag = word.text.as_str();
            let is_signal = self.signal_options().any(|option| self.is_written(word, option));
            let sends_none = NO_SIGNAL
                .iter()
                .any(|(program, options)| *program == self.program && options.contains(&flag));
            is_signal || signal(&flag[1..]).is_some() || sends_none
        })
    }

    /// The signal that it names, to a program that sends them.
    fn signal(self) -> Option<u32> {
        self.signal_options().next().and_then(|_| signal(&self.flag[1..]))
    }

    fn signal_options(self) -> impl Iterator<Item = &'static str> {
        let rows = SIGNALLED.iter().filter(move |(program, _)| *program == self.program);
        rows.flat_map(|(_, options)| options.iter().copied())
    }

    fn is_among(self, arguments: &[Word]) -> bool {
        let is_whole = arguments.iter().any(|word| word.is_flag() && word.text == self.flag);
        is_whole
            || self.is_signal(arguments)
            || match single_letters(self.flag) {
                None => self.is_given(arguments),
                // As a whole it may be a long option with one dash.
                Some(letters) => letters
                    .chars()
                    .all(|letter| Flag { flag: &format!("-{letter}"), ..self }.is_given(arguments)),
            }
    }

    /// Returns whether it is among the arguments, in any of its spellings.
    fn is_given(self, arguments: &[Word]) -> bool {
        self.spellings().any(|spelling| match spelling.split_once(' ') {
            None => arguments.iter().any(|word| self.is_written(word, spelling)),
            Some((first, second)) if second.starts_with('-') => {
                [first, second].iter().all(|flag| Flag { flag, ..self }.is_given(arguments))
            }
            Some((option, value)) => arguments.iter().enumerate().any(|(at, word)| {
                let next = arguments.get(at + 1).is_some_and(|next| next.text == value);
                self.value_in(&word.text, option) == Some(value) || next && self.is_written(word, option)
            }),
        })
    }

    /// Returns whether a word may hold it, in any of its spellings.
    pub fn is_in(self, word: &Word) -> bool {
        self.spellings().any(|spelling| self.is_written(word, spelling))
    }

    /// Returns what is joined to it in a word that it is for sure: written whole, or behind no letters but `switches`.
    pub fn joined<'w>(self, text: &'w str, switches: &str) -> Option<&'w str> {
        self.spellings().find_map(|spelling| match single_letters(spelling) {
            Some(letter) => {
                let (before, joined) = text.strip_prefix('-')?.split_once(letter)?;
                before.chars().all(|letter| switches.contains(letter)).then_some(joined)
            }
            None => {
                let (name, value) = text.split_once('=').unwrap_or((text, ""));
                (name == spelling).then_some(value)
            }
        })
    }

    /// Returns whether a word takes it back: `--no-get`.
    pub fn is_taken_back(self, text: &str) -> bool {
        let is_it = |spelling: &str| {
            text.strip_prefix("--no-")
                .is_some_and(|name| spelling.strip_prefix("--").is_some_and(|of| of.starts_with(name)))
        };
        self.spellings().any(is_it)
    }

    /// Returns whether a word is an option, in a group of letters, or with its value. A long one counts by its beginning too, as programs take
    /// it.
    fn is_written(&self, word: &Word, flag: &str) -> bool {
        let given = word.text.split('=').next().unwrap_or_default();
        let is_long = given == flag || given.len() > 2 && given.starts_with("--") && flag.starts_with(given);
        let is_in_group = || {
            !given.starts_with("--")
                && single_letters(flag).is_some_and(|letters| self.has_letters(&word.text, letters))
        };
        word.is_flag() && (is_long || is_in_group())
    }

    /// Returns whether a group of options has these letters before the value of one of them.
    fn has_letters(&self, group: &str, letters: &str) -> bool {
        let group = group.strip_prefix('-').unwrap_or(group);
        group.contains(letters) && {
            let mut syntax = ArgumentSyntax::of(self.program);
            for name in self.subcommand.split(' ').filter(|name| !name.is_empty()) {
                if syntax.operands() == Operands::Commands {
                    syntax.below(name);
                }
            }
            // Which row holds for the words behind a further subcommand is not known, and tail's old syntax has other groups.
            let is_known = syntax.operands() != Operands::Commands && self.program != "tail";
            !is_known || syntax.letters(group).contains(letters)
        }
    }

    /// The value that is joined to an option: of `-sXPOST` and `-X`, POST.
    fn value_in<'w>(&self, word: &'w str, flag: &str) -> Option<&'w str> {
        match (word.strip_prefix("--"), single_letters(flag)) {
            (Some(_), _) => word
                .split_once('=')
                .filter(|(name, _)| name.len() > 2 && flag.starts_with(name))
                .map(|(_, value)| value),
            (None, Some(letter)) => {
                let (_, value) = word.strip_prefix('-')?.split_once(letter)?;
                self.has_letters(word, letter).then_some(value)
            }
            (None, None) => None,
        }
    }

    fn spellings(&self) -> impl Iterator<Item = &str> {
        let is_of = |row: &&Row| {
            row.subcommand.is_none_or(|subcommand| subcommand == self.subcommand)
                && row.same.contains(&self.flag)
        };
        ROWS.get(self.program)
            .into_iter()
            .flatten()
            .filter(is_of)
            .flat_map(|row| row.same.iter().chain(&row.more).copied())
            .chain([self.flag])
    }
}

/// Returns whether the shell may put in a negative number.
fn may_be_negative(word: &Word) -> bool {
    !word.fixed && !matches!(word.text.as_str(), "$!" | "${!}" | "$$" | "${$}" | "$?" | "$#")
}

/// Returns whether a word behind this option of the program is a signal.
pub fn is_signal_value(program: &str, option: &str, value: &str) -> bool {
    let is_of_signals = |(known, options): &(&str, &[&str])| *known == program && options.contains(&option);
    SIGNALLED.iter().any(is_of_signals) && signal(value).is_some()
}

/// The number of the signal that a text is: a name in any case, or a number as `strtol` reads it, of which programs take 32 bits.
fn signal(text: &str) -> Option<u32> {
    let number = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
    let number = number.strip_prefix('+').unwrap_or(number).trim_end();
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = number
            .bytes()
            .fold(0_u32, |sum, digit| sum.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')));
        return (1..=LAST_SIGNAL).contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let is_it = |names: &&str| names.split(' ').any(|known| known == name);
    let known = SIGNALS.iter().position(is_it).and_then(|at| u32::try_from(at + 1).ok());
    known.or_else(|| {
        let (limit, distance) = name.split_at_checked(5)?;
        let distance = if distance.is_empty() { "+0" } else { distance };
        match limit {
            "RTMIN" => FIRST_REAL_TIME.checked_add(distance.strip_prefix('+')?.parse().ok()?),
            "RTMAX" => LAST_SIGNAL.checked_sub(distance.strip_prefix(['-', '+'])?.parse().ok()?),
            _ => None,
        }
    })
}

/// The letters of `-rf`, where it is short enough to be letters and no word like `-delete`.
fn single_letters(flag: &str) -> Option<&str> {
    let letters = flag.strip_prefix('-')?;
    (letters.len() <= 3 && letters.chars().all(|c| c.is_ascii_alphanumeric())).then_some(letters)
}
