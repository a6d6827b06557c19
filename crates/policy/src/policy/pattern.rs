//! The pattern of a rule: a program with words it is called with, or a module or built-in.

use super::findings::Word;
use super::implied::{implied, implied_by_operands};
use super::modes::is_same_mode;
use super::other_names;
use super::spellings::{Flag, is_signal_value};
use serde::Deserialize;
use std::borrow::Cow;

/// A program and, where given, subcommands and flags: `rm -rf`, `git push --force`.
///
/// The program's directory and a version at the end of its name (`python3.12`, `gcc-14`) do not matter. Words without a dash are
/// the first operands, in order (`git -C dir push` is `git push`, `git commit -m push` is not; those of `dd` and `make` come in any order). One
/// behind a flag may also be that flag's value, wherever both stand (`curl -X POST` is `curl URL --request=POST`). Up to three letters
/// after one dash are single flags, in any order and grouping (`-rf` is `-r -v -f`); other flags count as written, with or without
/// `=value`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct CommandPattern {
    text: String,
    program: String,
    flags: Vec<String>,
    operands: Vec<Operand>,
    words: Vec<String>,
}

/// A word of a pattern other than a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Operand {
    text: String,
    /// The flag that it stands behind.
    flag: Option<String>,
}

/// Operands of a pattern that may be values of flags; further ones are operands alone.
const MAX_VALUES: usize = 6;

/// The match of a command with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// It is not.
    No,
    /// It may be: a word that would decide it is known to the shell alone.
    Maybe,
    /// It is.
    Yes,
}

impl Likeness {
    /// Says how sure it is that a word is the wanted one, whose text is (`is_it`) or is not.
    pub fn of(word: &Word, is_it: bool) -> Self {
        match (word.fixed, is_it) {
            (false, _) => Self::Maybe,
            (true, true) => Self::Yes,
            (true, false) => Self::No,
        }
    }
}

impl TryFrom<String> for CommandPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words = shell_words::split(&text).map_err(|error| format!("{text:?}: {error}"))?;
        let all = words.clone();
        let Some((program, words)) = words.split_first() else {
            return Err("a command in a rule has to name a program".to_owned());
        };
        if program.is_empty() || program.starts_with('-') || program.contains('/') {
            return Err(format!(
                "{text:?}: a command in a rule begins with a program's name, without directory: \"git push\""
            ));
        }
        let words: Vec<Word> = words.iter().map(Word::fixed).collect();
        let words = in_usual_words(program, &words);
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
        // It only says where flags end.
        for word in words.iter().filter(|word| *word != "--") {
            match before.filter(is_flag) {
                _ if is_flag(&word) => flags.push(word.clone()),
                // A signal is one option, however it is given.
                Some(flag) if is_signal_value(program, flag, word) => {
                    flags.pop();
                    flags.push(format!("-{word}"));
                }
                flag => operands.push(Operand { text: word.clone(), flag: flag.cloned() }),
            }
            before = Some(word);
        }
        Ok(Self { program: program.clone(), flags, operands, text, words: all })
    }
}

impl CommandPattern {
    /// The pattern as the rule has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether a command begins with exactly these words, which the shell does not change.
    pub fn begins(&self, command: &[Word]) -> bool {
        self.words.len() <= command.len()
            && self.words.iter().zip(command).all(|(wanted, word)| word.fixed && word.text == *wanted)
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
        let arguments = self.with_implied(in_usual_words(&self.program, arguments));
        let likeness = |flag: &str| self.option(flag).likeness(&arguments);
        let named = self.names().into_iter().map(|(operands, flags)| {
            let flags = flags.into_iter().map(likeness);
            flags.chain([self.operands_likeness(&operands, &arguments)]).min()
        });
        let flags = self.flags.iter().map(|flag| likeness(flag));
        flags.chain([named.max().flatten().unwrap_or(Likeness::No)]).min().unwrap_or(Likeness::No)
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
                Operand { text: word.to_owned(), flag }
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
        [row.option, row.value].into_iter().map(Word::fixed).chain(arguments.iter().cloned()).collect()
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
        let values: Vec<usize> =
            (0..wanted.len()).filter(|&n| wanted[n].flag.is_some()).take(MAX_VALUES).collect();
        let likeness = |chosen: u32| {
            let is_value = |n: usize| {
                values.iter().position(|&value| value == n).is_some_and(|bit| chosen >> bit & 1 == 1)
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
            let is_same = |at: usize, given: &str, wanted: &str| {
                is_same(&self.program, given, wanted)
                    || at == 0 && other_names::is_beginning(&self.program, given, wanted)
            };
            let operands = match self.program.as_str() {
                name if IN_ANY_ORDER.contains(&name) => all_operands(&operands, arguments),
                _ => first_operands(&operands, arguments, &is_same),
            };
            given.into_iter().map(as_value).chain([operands]).min()
        };
        (0..1 << values.len()).filter_map(likeness).max().unwrap_or(Likeness::No)
    }
}

/// Reads the arguments in every way at once: a word after a flag may be that flag's value or an operand.
/// `matched[n]` says how sure it is that the first n operands have been seen and nothing else.
fn first_operands(
    wanted: &[&str],
    arguments: &[Word],
    is_same: &dyn Fn(usize, &str, &str) -> bool,
) -> Likeness {
    let mut matched = vec![Likeness::No; wanted.len() + 1];
    matched[0] = Likeness::Yes;
    let (mut after_flag, mut only_operands) = (false, false);
    for word in arguments {
        if !only_operands && word.text == "--" {
            // Behind a flag it may be that one's value: then flags go on.
            only_operands = !after_flag;
            continue;
        }
        // A mode may begin with a dash: `chmod -w,+x`.
        let may_be_mode = || wanted.iter().enumerate().any(|(n, wanted)| is_same(n, &word.text, wanted));
        if !only_operands && word.is_flag() && !may_be_mode() {
            after_flag = !word.text.contains('=');
            continue;
        }
        for n in (0..wanted.len()).rev() {
            let here = Likeness::of(word, is_same(n, &word.text, wanted[n]));
            matched[n + 1] = matched[n + 1].max(matched[n].min(here));
            if !after_flag {
                matched[n] = Likeness::No;
            }
        }
        after_flag = false;
    }
    matched[wanted.len()]
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

/// The arguments of a program in the usual syntax: of one that takes an option with one dash or two, names with two; of one whose first word
/// is of an old syntax, that word in the new one: of tar, each option in it as a word of its own, and its value behind it, in the order of
/// their letters; `tail +1f` follows the file.
fn in_usual_words<'w>(program: &str, arguments: &'w [Word]) -> Cow<'w, [Word]> {
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

/// Returns whether the program is the named one, wherever it lies and whatever version its name ends in.
fn is_program(program: &str, name: &str) -> bool {
    let base = base_name(program);
    base == name || without_version(base) == name
}

/// The last component of a path.
pub fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// `python3.12` → `python`, `gcc-14` → `gcc`.
pub fn without_version(base: &str) -> &str {
    let name = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if name.len() < base.len() { name.trim_end_matches('-') } else { name }
}

/// Returns whether an operand of a program is the wanted one; a path may be written with more slashes and dots, a mode in other ways, and a
/// program that another one runs with its directory.
pub(super) fn is_same(program: &str, given: &str, wanted: &str) -> bool {
    given == wanted
        // Some servers take a method in any case.
        || program == "curl" && given.eq_ignore_ascii_case(wanted)
        || TAKE_MODES.contains(&program) && is_same_mode(given, wanted)
        || WRAP.contains(&program) && base_name(given) == wanted
        || !given.is_empty() && is_same_path(given, wanted)
}

fn is_same_path(given: &str, wanted: &str) -> bool {
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
/// Programs whose options may have one dash or two, as Go's package for them takes them.
const ONE_DASH_OR_TWO: [&str; 7] = ["go", "terraform", "tofu", "packer", "vault", "consul", "nomad"];
/// Letters of tar's options that take a value.
const TAR_VALUES: &str = "bCfFgHIKLNTVX";
/// Programs whose first operand is another program.
const WRAP: [&str; 14] = [
    "sudo", "doas", "xargs", "env", "nice", "timeout", "nohup", "time", "setsid", "stdbuf", "ionice",
    "strace", "watch", "busybox",
];
/// Programs that take modes of files.
const TAKE_MODES: [&str; 4] = ["chmod", "install", "mkdir", "mkfifo"];
/// Programs that rustup stands in front of.
const TOOLCHAIN: [&str; 7] =
    ["cargo", "rustc", "rustfmt", "rustdoc", "cargo-fmt", "cargo-clippy", "rust-analyzer"];
/// A module or built-in: itself and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NamePattern(String);

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // `node:fs` and `fs` are one module, `env!` is the macro `env`.
        let name = text.strip_prefix("node:").unwrap_or(&text).trim_end_matches('!');
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("{text:?} is not the name of a module or built-in"));
        }
        Ok(Self(name.to_owned()))
    }
}

impl NamePattern {
    /// The name as it is compared.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns whether `path` is this name or lies below it: `os` covers `os.system`, `fs` covers `fs/promises`.
    pub fn covers(&self, path: &str) -> bool {
        path.strip_prefix(self.0.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/', ':']))
    }
}

/// A tool of an MCP server, or with a `*` at its end all whose names begin so.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ToolPattern {
    text: String,
}

impl TryFrom<String> for ToolPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = text.strip_suffix('*').unwrap_or(&text);
        match name.starts_with("mcp_") && !name.contains('*') {
            true => Ok(Self { text }),
            false => Err(format!("{text:?}: a tool in a rule is one of an MCP server: \"mcp__github__*\"")),
        }
    }
}

impl ToolPattern {
    /// The pattern as the rule has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether it names this tool.
    pub fn covers(&self, tool: &str) -> bool {
        match self.text.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => tool == self.text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::Becomes;
    use super::*;

    fn likeness(pattern: &str, command: &str) -> Likeness {
        let pattern = CommandPattern::try_from(pattern.to_owned()).unwrap();
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
