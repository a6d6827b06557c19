//! The usual syntax of options, in which commands are compared with rules.

use super::arguments::ArgumentSyntax;
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
/// their letters; `tail +1f` follows the file.
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

/// The arguments of a command, and not of a rule: of `cp -t DIRECTORY` with that directory as the last operand, too, and without words by which
/// npm turns switches on or off, unless they are among `kept`.
pub fn in_usual_operands<'w>(
    program: &str,
    arguments: Cow<'w, [Word]>,
    kept: impl Fn(&str) -> bool,
) -> Cow<'w, [Word]> {
    if TAKE_TARGETS.contains(&program) {
        return match target(&arguments) {
            Some(target) => arguments.iter().cloned().chain([target]).collect(),
            None => arguments,
        };
    }
    if !TAKE_SWITCHES.contains(&program) {
        return arguments;
    }
    let syntax = ArgumentSyntax::of(program);
    let is_switch = |at: usize| {
        let before = at.checked_sub(1).map(|before| &arguments[before]).filter(|before| before.is_flag());
        let word = &arguments[at];
        before.is_some_and(|before| syntax.takes_next(&before.text) != Some(true))
            && word.fixed
            && matches!(word.text.as_str(), "true" | "false" | "always")
            && !kept(&word.text)
    };
    (0..arguments.len()).filter(|at| !is_switch(*at)).map(|at| arguments[at].clone()).collect()
}

/// The directory of `-t`, in a group, joined or behind it.
fn target(arguments: &[Word]) -> Option<Word> {
    arguments.iter().enumerate().find_map(|(at, word)| {
        let (name, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
        let joined = match name.strip_prefix("--") {
            Some(long) if long.len() > 1 && "target-directory".starts_with(long) => value,
            Some(_) => return None,
            None => {
                let (before, joined) = word.text.strip_prefix('-')?.split_once('t')?;
                // A letter before it takes the rest as its value.
                if before.contains(['S', 'm', 'o', 'g']) {
                    return None;
                }
                joined
            }
        };
        match joined.is_empty() {
            true => arguments.get(at + 1).cloned(),
            false => Some(Word { text: joined.to_owned(), ..word.clone() }),
        }
    })
}
