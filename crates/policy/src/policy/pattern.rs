//! The pattern of a rule: a program with words it is called with, or a module or built-in.

use super::findings::Word;
use serde::Deserialize;

/// A program and, where given, subcommands and flags: `rm -rf`, `git push --force`.
///
/// The program's directory and a version at the end of its name (`python3.12`, `gcc-14`) do not matter. Words without a dash are
/// the first operands, in order (`git -C dir push` is `git push`, `git commit -m push` is not). Up to three letters
/// after one dash are single flags, in any order and grouping (`-rf` is `-r -v -f`); other flags count as written,
/// with or without `=value`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct CommandPattern {
    text: String,
    program: String,
    flags: Vec<String>,
    operands: Vec<String>,
    words: Vec<String>,
}

/// Whether a command is what a pattern names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// It is not.
    No,
    /// It may be: a word that would decide it is known to the shell alone.
    Maybe,
    /// It is.
    Yes,
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
        let (flags, operands) =
            words.iter().cloned().partition(|word| word.starts_with('-') && word.len() > 1);
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
        let flags = self.flags.iter().map(|flag| flag_likeness(&self.program, arguments, flag));
        flags.chain([self.operands_likeness(arguments)]).min().unwrap_or(Likeness::No)
    }

    /// Reads the arguments in every way at once: a word after a flag may be that flag's value or an operand.
    /// `matched[n]` says how sure it is that the first n operands have been seen and nothing else.
    fn operands_likeness(&self, arguments: &[Word]) -> Likeness {
        let wanted = self.operands.len();
        let mut matched = vec![Likeness::No; wanted + 1];
        matched[0] = Likeness::Yes;
        let (mut after_flag, mut only_operands) = (false, false);
        for word in arguments {
            if !only_operands && word.text == "--" {
                (only_operands, after_flag) = (true, false);
                continue;
            }
            if !only_operands && word.is_flag() {
                after_flag = !word.text.contains('=');
                continue;
            }
            for n in (0..wanted).rev() {
                let here = match (word.text == self.operands[n], word.fixed) {
                    (true, true) => matched[n],
                    (_, false) => matched[n].min(Likeness::Maybe),
                    (false, true) => Likeness::No,
                };
                matched[n + 1] = matched[n + 1].max(here);
                if !after_flag {
                    matched[n] = Likeness::No;
                }
            }
            after_flag = false;
        }
        matched[wanted]
    }
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

/// Programs that rustup stands in front of.
const TOOLCHAIN: [&str; 7] =
    ["cargo", "rustc", "rustfmt", "rustdoc", "cargo-fmt", "cargo-clippy", "rust-analyzer"];
/// Spellings that mean the same to a program, by its manual.
const SYNONYMS: [(&str, &[&str]); 10] = [
    ("rm", &["-r", "-R", "--recursive"]),
    ("rm", &["-f", "--force"]),
    ("cp", &["-r", "-R", "--recursive"]),
    ("cp", &["-f", "--force"]),
    ("mv", &["-f", "--force"]),
    ("chmod", &["-R", "--recursive"]),
    ("chown", &["-R", "--recursive"]),
    ("chgrp", &["-R", "--recursive"]),
    ("scp", &["-r", "-R"]),
    ("sed", &["-i", "--in-place"]),
];

/// Returns how sure it is that a flag is given: a word that the shell puts in may be one, and so may one behind two dashes that may be the
/// value of an option. To `find`, no dashes end anything.
fn flag_likeness(program: &str, arguments: &[Word], flag: &str) -> Likeness {
    let end = arguments.iter().position(|word| word.text == "--" && program != "find");
    let (before, after) = arguments.split_at(end.unwrap_or(arguments.len()));
    let is_value = before.last().is_some_and(Word::is_flag);
    match has_flag(program, before, flag) {
        true => Likeness::Yes,
        false if before.iter().any(Word::may_be_option) => Likeness::Maybe,
        false if is_value && has_flag(program, after, flag) => Likeness::Maybe,
        false => Likeness::No,
    }
}

fn has_flag(program: &str, arguments: &[Word], flag: &str) -> bool {
    match single_letters(flag) {
        None => is_given(program, arguments, flag),
        // As a whole it may be a long option with one dash.
        Some(letters) => {
            arguments.iter().any(|word| word.is_flag() && word.text == flag)
                || letters.chars().all(|letter| is_given(program, arguments, &format!("-{letter}")))
        }
    }
}

/// Returns whether an option is among the arguments, in any of its spellings.
fn is_given(program: &str, arguments: &[Word], flag: &str) -> bool {
    let same = SYNONYMS.iter().find(|(known, same)| *known == program && same.contains(&flag));
    let spellings = same.map_or(&[][..], |(_, same)| same).iter().copied().chain([flag]);
    let flags = || arguments.iter().filter(|word| word.is_flag()).map(|word| word.text.as_str());
    spellings.into_iter().any(|flag| {
        // A long one counts by its beginning too, as programs take it.
        let is_written = |word: &str| {
            let given = word.split('=').next().unwrap_or_default();
            given == flag || given.len() > 2 && given.starts_with("--") && flag.starts_with(given)
        };
        let is_in_group = |word: &str| match single_letters(flag) {
            Some(letter) => !word.starts_with("--") && word[1..].contains(letter),
            None => false,
        };
        flags().any(|word| is_written(word) || is_in_group(word))
    })
}

/// The letters of `-rf`, where it is short enough to be letters and no word like `-delete`.
fn single_letters(flag: &str) -> Option<&str> {
    let letters = flag.strip_prefix('-')?;
    (letters.len() <= 3 && letters.chars().all(|c| c.is_ascii_alphanumeric())).then_some(letters)
}

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
