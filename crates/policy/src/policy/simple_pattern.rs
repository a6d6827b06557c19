//! A command as a rule names it: the program, with words that it is called with.

use super::arguments::{ArgumentSyntax, Operands, usual_name};
use super::findings::Word;
use super::implied::{implied, implied_by_operands};
use super::likeness::Likeness;
use super::modes::is_same_mode;
use super::operands::Wanted;
use super::other_names;
use super::program::{base_name, is_program};
use super::spellings::{Flag, is_signal_value};
use super::usual_words::{in_usual_operands, in_usual_words};
use std::borrow::Cow;

/// A program with subcommands and flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimplePattern {
    program: String,
    flags: Vec<String>,
    operands: Vec<Operand>,
}

/// A word of a pattern other than a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Operand {
    text: String,
    /// The flag that it stands behind.
    flag: Option<String>,
    /// Set if it is that flag's value for sure.
    is_value: bool,
}

/// Operands of a pattern that may be values of flags; further ones are operands alone.
const MAX_VALUES: usize = 6;

impl SimplePattern {
    /// Reads the words of a rule, program first.
    pub fn new(program: &str, words: &[Word]) -> Self {
        let words = in_usual_words(program, words);
        // `--name=value` is `--name value`.
        let divided = |word: &Word| match word.text.split_once('=').filter(|(name, _)| name.starts_with("--"))
        {
            Some((name, value)) => vec![name.to_owned(), value.to_owned()],
            None => vec![word.text.clone()],
        };
        let words: Vec<String> = words.iter().flat_map(divided).collect();
        let (mut flags, mut operands) = (Vec::new(), Vec::new());
        let is_flag = |word: &&String| word.starts_with('-') && word.len() > 1;
        let mut before: Option<&String> = None;
        let mut syntax = ArgumentSyntax::of(program);
        // It only says where flags end.
        for word in words.iter().filter(|word| *word != "--") {
            match before.filter(is_flag) {
                _ if is_flag(&word) => flags.push(word.clone()),
                // A signal is one option, however it is given.
                Some(flag) if is_signal_value(program, flag, word) => {
                    flags.pop();
                    flags.push(format!("-{word}"));
                }
                flag => {
                    let takes = flag.map_or(Some(false), |flag| syntax.takes_next(flag));
                    if takes != Some(true) && syntax.operands() == Operands::Commands {
                        syntax.below(word);
                    }
                    let flag = flag.filter(|_| takes != Some(false)).cloned();
                    operands.push(Operand { text: word.clone(), flag, is_value: takes == Some(true) });
                }
            }
            before = Some(word);
        }
        Self { program: program.to_owned(), flags, operands }
    }

    /// Compares with a command, program first.
    pub fn likeness(&self, command: &[Word]) -> Likeness {
        let Some((program, arguments)) = command.split_first() else { return Likeness::No };
        if !program.fixed || !is_program(&program.text, &self.program) {
            return Likeness::No;
        }
        // The first word may name a toolchain: `cargo +stable publish`.
        let names_toolchain =
            |word: &Word| word.text.starts_with('+') && TOOLCHAIN.contains(&base_name(&program.text));
        let arguments = match arguments.split_first() {
            Some((first, rest)) if names_toolchain(first) => rest,
            _ => arguments,
        };
        let arguments = in_usual_words(&self.program, arguments);
        let is_named = |text: &str| self.operands.iter().any(|operand| operand.text == text);
        let arguments = in_usual_operands(&self.program, arguments, is_named);
        let arguments = self.without_off(self.with_implied(arguments));
        let own = self.own_arguments(&arguments);
        let likeness = |flag: &str| self.option(flag).likeness(own);
        let named = self.names().into_iter().map(|(operands, flags)| {
            let flags = flags.into_iter().map(likeness);
            flags.chain([self.operands_likeness(&operands, &arguments)]).min()
        });
        let flags = self.flags.iter().map(|flag| likeness(flag));
        flags.chain([named.max().flatten().unwrap_or(Likeness::No)]).min().unwrap_or(Likeness::No)
    }

    /// The arguments without the switches of this pattern that are turned off, which are not given then.
    fn without_off<'w>(&self, arguments: Cow<'w, [Word]>) -> Cow<'w, [Word]> {
        let has_value =
            |flag: &String| self.operands.iter().any(|operand| operand.flag.as_ref() == Some(flag));
        let is_off = |at: usize| {
            let name = arguments[at].text.strip_suffix("=false").filter(|_| arguments[at].fixed);
            let may_be_value = at > 0 && arguments[at - 1].is_flag() && !arguments[at - 1].text.contains('=');
            !may_be_value
                && name.is_some_and(|name| self.flags.iter().any(|flag| flag == name && !has_value(flag)))
        };
        if !TURNS_OFF.contains(&self.program.as_str()) || !(0..arguments.len()).any(is_off) {
            return arguments;
        }
        (0..arguments.len()).filter(|at| !is_off(*at)).map(|at| arguments[at].clone()).collect()
    }

    /// The arguments without those of the program in a container, behind its image.
    fn own_arguments<'w>(&self, arguments: &'w [Word]) -> &'w [Word] {
        let mut syntax = ArgumentSyntax::of(&self.program);
        if usual_name(&self.program) != "docker" {
            return arguments;
        }
        let mut is_value = Some(false);
        for (at, word) in arguments.iter().enumerate() {
            if word.is_flag() {
                is_value = syntax.takes_next(&word.text);
                continue;
            }
            match is_value.replace(false) {
                Some(false) if !word.fixed => return arguments,
                Some(false) if syntax.operands() == Operands::Runs => return &arguments[..=at],
                Some(false) if syntax.operands() == Operands::Commands => syntax.below(&word.text),
                _ => {}
            }
        }
        arguments
    }

    /// The operands with each name that the subcommand has, and the options that such a name needs.
    fn names(&self) -> Vec<(Vec<Operand>, Vec<&'static str>)> {
        let Some((at, length, names)) = self.subcommand() else {
            return vec![(self.operands.clone(), Vec::new())];
        };
        let named = |name: &Vec<&'static str>| {
            let (flags, words): (Vec<&str>, Vec<&str>) = name.iter().partition(|word| word.starts_with('-'));
            let (before, rest) = self.operands.split_at(at);
            let words = words.into_iter().enumerate().map(|(nth, word)| {
                let flag = rest[0].flag.clone().filter(|_| nth == 0);
                Operand { text: word.to_owned(), flag, is_value: false }
            });
            (before.iter().cloned().chain(words).chain(rest[length..].iter().cloned()).collect(), flags)
        };
        names.iter().map(named).collect()
    }

    /// Where the operands name a subcommand that has several names, with how many, and those names. Before it may be values of flags.
    fn subcommand(&self) -> Option<(usize, usize, &'static [Vec<&'static str>])> {
        let operands: Vec<&str> = self.operands.iter().map(|operand| operand.text.as_str()).collect();
        let values = self.operands.iter().take_while(|operand| operand.flag.is_some()).count();
        (0..=values).find_map(|at| {
            let (length, names) = other_names::of(&self.program, &operands[at..])?;
            Some((at, length, names))
        })
    }

    /// The arguments with an option that this pattern names and others stand for: `curl -d x` is `curl -X POST -d x`.
    fn with_implied<'w>(&self, arguments: Cow<'w, [Word]>) -> Cow<'w, [Word]> {
        let by_operands = implied_by_operands(&self.program, &arguments);
        let arguments = match by_operands.is_empty() {
            true => arguments,
            false => by_operands.into_iter().map(Word::fixed).chain(arguments.iter().cloned()).collect(),
        };
        let values = self.operands.iter().filter(|operand| operand.flag.is_some());
        let mut rows = values.filter_map(|operand| implied(&self.program, &operand.text, &arguments));
        let Some(row) = rows.next() else { return arguments };
        // In one word it is the option's value before every subcommand.
        let joined = match row.option.starts_with("--") {
            true => format!("{}={}", row.option, row.value),
            false => format!("{}{}", row.option, row.value),
        };
        [Word::fixed(joined)].into_iter().chain(arguments.iter().cloned()).collect()
    }

    fn option<'p>(&'p self, flag: &'p str) -> Flag<'p> {
        let is_alone = |operand: &&Operand| operand.flag.is_none();
        let written = self.operands.iter().find(is_alone).or(self.operands.first());
        let usual = self.subcommand().map(|(.., names)| names[0][0]);
        let subcommand = usual.or(written.map(|operand| operand.text.as_str()));
        Flag { program: &self.program, subcommand: subcommand.unwrap_or_default(), flag }
    }

    /// Compares the operands, each that may be a flag's value as such and as an operand.
    fn operands_likeness(&self, wanted: &[Operand], arguments: &[Word]) -> Likeness {
        let values: Vec<usize> = (0..wanted.len())
            .filter(|&n| wanted[n].flag.is_some() && !wanted[n].is_value)
            .take(MAX_VALUES)
            .collect();
        let likeness = |chosen: u32| {
            let is_value = |n: usize| {
                wanted[n].is_value
                    || values.iter().position(|&value| value == n).is_some_and(|bit| chosen >> bit & 1 == 1)
            };
            let (given, operands): (Vec<usize>, Vec<usize>) = (0..wanted.len()).partition(|&n| is_value(n));
            let as_value = |n: usize| {
                let operand = &wanted[n];
                operand
                    .flag
                    .as_deref()
                    .map_or(Likeness::No, |flag| self.option(flag).value_likeness(arguments, &operand.text))
            };
            let operands: Vec<&str> = operands.iter().map(|&n| wanted[n].text.as_str()).collect();
            let operands = match self.program.as_str() {
                name if IN_ANY_ORDER.contains(&name) => all_operands(&operands, arguments),
                name => Wanted::new(name, &operands).likeness(arguments),
            };
            given.into_iter().map(as_value).chain([operands]).min()
        };
        (0..1 << values.len()).filter_map(likeness).max().unwrap_or(Likeness::No)
    }
}

/// Operands that come in any order.
fn all_operands(wanted: &[&str], arguments: &[Word]) -> Likeness {
    let is_same = |given: &str, wanted: &str| match (given.split_once('='), wanted.split_once('=')) {
        (Some((one, given)), Some((other, wanted))) => one == other && is_same("dd", given, wanted),
        _ => given == wanted,
    };
    let among = |wanted: &&str| {
        let here = arguments.iter().map(|word| Likeness::of(word, is_same(&word.text, wanted)));
        here.max().unwrap_or(Likeness::No)
    };
    wanted.iter().map(among).min().unwrap_or(Likeness::Yes)
}

/// Returns whether an operand of a program is the wanted one; a path may be written with more slashes and dots, and a mode in other ways.
pub(super) fn is_same(program: &str, given: &str, wanted: &str) -> bool {
    given == wanted
        // Some servers take a method in any case, and so does GitHub.
        || matches!(program, "curl" | "gh") && given.eq_ignore_ascii_case(wanted)
        || matches!(program, "chown" | "chgrp") && is_same_owner(given, wanted)
        || TAKE_MODES.contains(&program) && is_same_mode(given, wanted)
        || !given.is_empty() && is_same_path(given, wanted)
}

/// Returns whether `given`, a user, a group behind a colon or both, has all that `wanted` names.
fn is_same_owner(given: &str, wanted: &str) -> bool {
    let parts = |owner: &str| {
        let (user, group) = owner.split_once(':').or_else(|| owner.split_once('.')).unwrap_or((owner, ""));
        let is_root = |name: &str| name.strip_prefix('+').unwrap_or(name).parse::<u32>() == Ok(0);
        [user, group].map(|name| if is_root(name) { "root".to_owned() } else { name.to_owned() })
    };
    let (given, wanted) = (parts(given), parts(wanted));
    wanted.iter().any(|name| !name.is_empty())
        && wanted.iter().zip(&given).all(|(wanted, given)| wanted.is_empty() || wanted == given)
}

pub(super) fn is_same_path(given: &str, wanted: &str) -> bool {
    let parts = |path: &str| {
        let mut parts: Vec<String> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." if parts.last().is_some_and(|last| last != "..") => drop(parts.pop()),
                ".." if path.starts_with('/') => {}
                _ => parts.push(part.to_owned()),
            }
        }
        parts
    };
    given.starts_with('/') == wanted.starts_with('/') && parts(given) == parts(wanted)
}

/// Programs whose operands may come in any order: assignments, or targets.
const IN_ANY_ORDER: [&str; 11] =
    ["dd", "make", "gmake", "ninja", "just", "rake", "task", "gradle", "gradlew", "mvn", "ant"];
/// Programs whose switches are turned off by `--NAME=false`.
const TURNS_OFF: [&str; 8] = ["docker", "podman", "nerdctl", "kubectl", "oc", "helm", "gh", "npm"];
/// Programs that take modes of files.
const TAKE_MODES: [&str; 4] = ["chmod", "install", "mkdir", "mkfifo"];
/// Programs that rustup stands in front of.
const TOOLCHAIN: [&str; 7] =
    ["cargo", "rustc", "rustfmt", "rustdoc", "cargo-fmt", "cargo-clippy", "rust-analyzer"];

#[cfg(test)]
mod tests {
    use super::super::findings::Becomes;
    use super::*;

    fn likeness(pattern: &str, command: &str) -> Likeness {
        let words: Vec<Word> = pattern.split(' ').map(Word::fixed).collect();
        let pattern = SimplePattern::new(&words[0].text, &words[1..]);
        let word = |text: &str| match text.contains('$') {
            true => Word::changed(text, Becomes::One),
            false => Word::fixed(text),
        };
        pattern.likeness(&command.split(' ').map(word).collect::<Vec<_>>())
    }

    #[test]
    fn flags_come_in_any_order_and_grouping() {
        for command in ["rm -rf x", "rm -fr x", "rm -r -f x", "rm x -vrf", "/bin/rm -f y -r x"] {
            assert_eq!(likeness("rm -rf", command), Likeness::Yes, "{command}");
        }
        for command in ["rm x", "rm -r x", "rm -- -rf", "rmdir -rf", "echo rm -rf"] {
            assert_eq!(likeness("rm -rf", command), Likeness::No, "{command}");
        }
        assert_eq!(likeness("git push --force", "git push --force=yes"), Likeness::Yes);
        assert_eq!(likeness("git push --force", "git push --force-with-lease"), Likeness::No);
        assert_eq!(likeness("find -delete", "find . -type d -empty"), Likeness::No);
        assert_eq!(likeness("rm --recursive", "rm --rec x"), Likeness::Yes);
        assert_eq!(likeness("rm -r", "rm $X"), Likeness::Maybe);
        assert_eq!(likeness("rm -r", "rm -- $X"), Likeness::No);
        assert_eq!(likeness("rm -r", "rm a$X"), Likeness::No);
    }

    #[test]
    fn operands_are_the_first_ones_in_order() {
        for command in ["git push", "git -C dir push origin", "git --no-pager push", "git -c a=b --x push"] {
            assert_eq!(likeness("git push", command), Likeness::Yes, "{command}");
        }
        for command in ["git", "git commit -m push", "git log push", "git pushy"] {
            assert_eq!(likeness("git push", command), Likeness::No, "{command}");
        }
        assert_eq!(likeness("docker compose up", "docker compose -f x.yml up -d"), Likeness::Yes);
        assert_eq!(likeness("git push", "git $WHAT origin"), Likeness::Maybe);
        assert_eq!(likeness("git push", "git commit $WHAT"), Likeness::No);
    }

    #[test]
    fn a_version_is_part_of_no_program_name() {
        assert_eq!(likeness("python", "/usr/bin/python3.12 x"), Likeness::Yes);
        assert_eq!(likeness("gcc", "gcc-14 x"), Likeness::Yes);
        assert_eq!(likeness("python3", "python2 x"), Likeness::No);
    }
}
