//! The usual syntax of options, in which commands are compared with rules.

use super::findings::Word;
use std::borrow::Cow;

/// Programs whose options may have one dash or two, as Go's package for them takes them.
const ONE_DASH_OR_TWO: [&str; 7] = ["go", "terraform", "tofu", "packer", "vault", "consul", "nomad"];
/// Programs that take the directory of their last operand with an option, too.
const TAKE_TARGETS: [&str; 4] = ["cp", "mv", "ln", "install"];
/// Programs that take a word for a switch to be on or off behind it.
const TAKE_SWITCHES: [&str; 2] = ["npm", "npx"];
/// Letters of tar's options that take a value.
const TAR_VALUES: &str = "bCfFgHIKLNTVX";

/// The arguments of a program in the usual syntax: of one that takes an option with one dash or two, names with two; of one whose first word
/// is of an old syntax, that word in the new one: of tar, each option in it as a word of its own, and its value behind it, in the order of
/// their letters; `tail +1f` follows the file; of `cp -t DIRECTORY`, that directory as the last operand, too.
pub fn in_usual_words<'w>(program: &str, arguments: &'w [Word]) -> Cow<'w, [Word]> {
    let Some((first, rest)) = arguments.split_first() else { return Cow::Borrowed(arguments) };
    if ONE_DASH_OR_TWO.contains(&program) {
        let usual = |word: &Word| {
            let name = word.text.trim_start_matches('-');
            let as_word = |text: String| Word { text, ..word.clone() };
            match name.split_once('=').unwrap_or((name, "")) {
                ("", _) => vec![word.clone()],
                _ if !word.is_flag() => vec![word.clone()],
                (letter, "") if letter.len() == 1 => vec![as_word(format!("-{letter}"))],
                (letter, value) if letter.len() == 1 => {
                    vec![as_word(format!("-{letter}")), as_word(value.to_owned())]
                }
                _ => vec![as_word(format!("--{name}"))],
            }
        };
        return arguments.iter().flat_map(usual).collect();
    }
    if TAKE_TARGETS.contains(&program) {
        return with_target(arguments);
    }
    if TAKE_SWITCHES.contains(&program) {
        let is_switched = |at: usize| at > 0 && arguments[at - 1].is_flag() && is_switch(&arguments[at]);
        return (0..arguments.len()).filter(|at| !is_switched(*at)).map(|at| arguments[at].clone()).collect();
    }
    let follows = |count: &str| {
        count.trim_start_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['b', 'c', 'l']).is_empty()
    };
    if program == "tail"
        && first.text.strip_prefix('+').and_then(|text| text.strip_suffix('f')).is_some_and(follows)
    {
        return [Word { text: "-f".to_owned(), ..first.clone() }]
            .into_iter()
            .chain(rest.iter().cloned())
            .collect();
    }
    if program != "tar" || first.text.starts_with('-') {
        return Cow::Borrowed(arguments);
    }
    let (mut words, mut rest) = (Vec::new(), rest.iter().cloned());
    for letter in first.text.chars() {
        words.push(Word { text: format!("-{letter}"), ..first.clone() });
        words.extend(if TAR_VALUES.contains(letter) { rest.next() } else { None });
    }
    words.into_iter().chain(rest).collect()
}

/// The arguments with the directory of `-t` as the last operand, too.
fn with_target(arguments: &[Word]) -> Cow<'_, [Word]> {
    let as_word = |word: &Word, text: &str| Word { text: text.to_owned(), ..word.clone() };
    let target = arguments.iter().enumerate().find_map(|(at, word)| match word.text.as_str() {
        "-t" | "--target-directory" => arguments.get(at + 1).cloned(),
        text => {
            let long = text.strip_prefix("--target-directory=");
            let joined = long.or_else(|| text.strip_prefix("-t").filter(|value| !value.is_empty()))?;
            Some(as_word(word, joined))
        }
    });
    match target {
        Some(target) => arguments.iter().cloned().chain([target]).collect(),
        None => Cow::Borrowed(arguments),
    }
}

/// Returns whether a word says that the switch before it is on or off.
fn is_switch(word: &Word) -> bool {
    word.fixed && matches!(word.text.as_str(), "true" | "false" | "always")
}
