//! The pattern of a rule about commands.

use super::findings::{FoundCommand, Word};
use super::likeness::Likeness;
use super::program::base_name;
use super::rule_words::{is_program_name, words_of_rule};
use super::simple_pattern::SimplePattern;
use super::wrapping::inner_starts;
use serde::Deserialize;
use std::time::Instant;

/// How many ways of reading the words of a rule are followed, and how deep.
const MAX_CHAINS: usize = 16;
const MAX_DEPTH: usize = 4;

/// A program and, where given, subcommands and flags: `rm -rf`, `git push --force`.
///
/// The program's directory and a version at the end of its name (`python3.12`, `gcc-14`) do not matter. Words without a dash are
/// operands: those of the subcommand come first (`git -C dir push` is `git push`, `git commit -m push` is not), and others may stand
/// behind more of them, in order (`rm .env` is `rm a .env`; those of `dd` and `make` come in any order). One behind a flag may also be that flag's value, wherever both stand (`curl -X POST` is `curl URL --request=POST`). Up to three letters
/// after one dash are single flags, in any order and grouping (`-rf` is `-r -v -f`); other flags count as written, with or without
/// `=value`. Behind a program that runs another one (`sudo rm`) stands what runs there, however deep (`sudo sh -c 'rm x'`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct CommandPattern {
    text: String,
    words: Vec<String>,
    /// The ways to read it: commands each of which runs the next one.
    chains: Vec<Vec<SimplePattern>>,
}

impl TryFrom<String> for CommandPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words = words_of_rule(&text)?;
        let chains = chains(&words.iter().map(Word::fixed).collect::<Vec<_>>(), MAX_DEPTH);
        Ok(Self { text, words, chains })
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

    /// Compares with each of the commands. What is not compared before the deadline may be what it names.
    pub fn likeness(&self, commands: &[FoundCommand], deadline: Instant) -> Vec<Likeness> {
        let mut ways = self.chains.iter().map(|chain| likeness(chain, commands, deadline));
        let first = ways.next().unwrap_or_default();
        ways.fold(first, |one, other| one.into_iter().zip(other).map(|(one, other)| one.max(other)).collect())
    }
}

/// Compares commands with those that a rule names, each of which runs the next one: says of each how sure it is that it is the last.
fn likeness(chain: &[SimplePattern], commands: &[FoundCommand], deadline: Instant) -> Vec<Likeness> {
    let (mut around, mut here) = (vec![Likeness::Yes; commands.len()], Vec::new());
    for (at, pattern) in chain.iter().enumerate() {
        if at > 0 {
            around = vec![Likeness::No; commands.len()];
            // What holds a command was found before it.
            for (nth, command) in commands.iter().enumerate() {
                around[nth] = command.holder.map_or(Likeness::No, |holder| around[holder].max(here[holder]));
            }
        }
        let compared = |(command, around): (&FoundCommand, &Likeness)| match around {
            Likeness::No => Likeness::No,
            _ if Instant::now() > deadline => Likeness::Maybe,
            around => pattern.likeness(&command.words).min(*around),
        };
        here = commands.iter().zip(&around).map(compared).collect();
    }
    here
}

/// The ways to read the words of a rule. Where a word may be the value of an option, all of them may be those of the first program.
fn chains(words: &[Word], depth: usize) -> Vec<Vec<SimplePattern>> {
    let Some((program, arguments)) = words.split_first() else { return Vec::new() };
    let program = &program.text;
    let starts = if depth == 0 { Vec::new() } else { inner_starts(program, arguments) };
    let is_certain = starts == [0] || base_name(program) == "find" && !starts.is_empty();
    let mut chains: Vec<Vec<SimplePattern>> = Vec::new();
    for start in starts.into_iter().filter(|start| is_program_name(&arguments[*start].text)) {
        let outer = SimplePattern::new(program, &arguments[..start]);
        let inner = self::chains(without_end(&arguments[start..]), depth - 1);
        chains.extend(inner.into_iter().map(|chain| [vec![outer.clone()], chain].concat()));
    }
    if chains.is_empty() || !is_certain {
        chains.push(vec![SimplePattern::new(program, arguments)]);
    }
    chains.truncate(MAX_CHAINS);
    chains
}

/// The words of a command up to where `find` ends it: the file that it puts in, and a semicolon or plus.
fn without_end(words: &[Word]) -> &[Word] {
    let end = words.iter().position(|word| matches!(word.text.as_str(), "{}" | ";" | "+"));
    &words[..end.unwrap_or(words.len()).max(1)]
}
