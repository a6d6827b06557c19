//! The judgement of a script that was read to its end: what its words are, given the values of variables, and what its commands read and print.

use super::super::findings::{Language, Word};
use super::kernel;
use super::plain;
use super::proven::{Command, Input, Proven, Read, Shared, refuse};
use super::shell::{self, Run, Stdin};
use super::tokens::Draft;
use super::values::{self, Value};
use super::variables;
use super::wrappers;

/// Stages between a text and the command that reads it.
const MAX_STAGES: usize = 16;

impl Shared {
    /// Judges what waited for the whole script: the values of variables.
    pub(super) fn proven(self) -> Read<Proven> {
        let values = values::resolved(self.values.clone(), &self.links);
        let value_of = |name: &str| values::of(&values, name);
        if self.numbers.iter().any(|name| value_of(name) > Value::Count) {
            return refuse("an expression that evaluates what a variable holds");
        }
        let is_for_programs = |name: &&String| variables::looks_obeyed(name) && !self.read.contains(*name);
        if self.values.keys().any(|name| is_for_programs(&name)) {
            return refuse("a variable that only programs read");
        }
        if self.functions.intersection(&self.unset).next().is_some() {
            return refuse("a function that is taken back");
        }
        if self.lists.intersection(&self.declared).next().is_some() {
            return refuse("a list whose value is read again");
        }
        let words = |drafts: &[Draft]| -> Vec<Word> {
            let (program, arguments) = match drafts.split_first() {
                Some((program, arguments)) => (Some(program.program(&value_of)), arguments),
                None => (None, drafts),
            };
            let takes_numbers = program.as_ref().is_some_and(|program| plain::takes_numbers(&program.text));
            program
                .into_iter()
                .chain(arguments.iter().map(|draft| draft.word(&value_of, takes_numbers)))
                .collect()
        };
        let all: Vec<Vec<Word>> = self.commands.iter().map(|command| words(&command.words)).collect();
        let output = Output { shared: &self, words: &all, value_of: &value_of };
        // What a function runs, it may run wherever it is called.
        let calls = |words: &Vec<Word>| words.first().is_some_and(|name| self.functions.contains(&name.text));
        let mut commands = self.commands.iter().zip(&all);
        let everywhere =
            self.has_background || commands.any(|(command, words)| command.has_company && calls(words));
        let targets_of = |command: &Command| -> Vec<Word> {
            command.targets.iter().map(|draft| draft.word(&value_of, false)).collect()
        };
        let targets: Vec<Vec<Word>> = self.commands.iter().map(targets_of).collect();
        let given: Vec<Word> = self.given.iter().map(|draft| draft.word(&value_of, false)).collect();
        kernel::check(&all, &targets, &given)?;
        let mut runs = Vec::new();
        for ((at, command), targets) in self.commands.iter().enumerate().zip(targets) {
            let stdin = output.stdin(&command.input, 0);
            let has_company = everywhere || command.has_company;
            runs.push(Run {
                has_more: command.has_more,
                words: all[at].clone(),
                // What a shell prints, or another command writes, may become a part of the script that it reads.
                stdin: match is_shell(&all[at]) && (has_company || !targets.iter().all(is_nowhere)) {
                    true => stdin.inexact(),
                    false => stdin,
                },
                written: output.written(at, &targets),
                targets,
                is_read: command.is_read,
                has_company,
            });
        }
        let assigned = self.values.into_keys().chain(self.passed).collect();
        Ok(Proven { runs, alters: self.alters, assigned })
    }
}

/// Returns whether what is written there is gone.
pub(super) fn is_nowhere(target: &Word) -> bool {
    target.fixed && target.text == "/dev/null"
}

fn is_shell(words: &[Word]) -> bool {
    words.iter().any(|word| wrappers::language_of(&word.text) == Some(Language::Shell))
}

/// The inputs and outputs of commands, where they stand in the script.
struct Output<'o> {
    shared: &'o Shared,
    words: &'o [Vec<Word>],
    value_of: &'o dyn Fn(&str) -> Value,
}

impl Output<'_> {
    fn stdin(&self, input: &Input, depth: usize) -> Stdin {
        match input {
            Input::Inherited | Input::File => Stdin::Inherited,
            Input::Document(number) => match &self.shared.bodies[*number] {
                Some(body) => Stdin::of(body),
                None => Stdin::Pipe,
            },
            Input::Text(draft) => {
                let word = draft.word(self.value_of, false);
                Stdin::Text { is_exact: draft.fixed().is_some(), text: word.text }
            }
            Input::Pipe(before) => {
                let before = before.filter(|_| depth < MAX_STAGES);
                before.and_then(|at| self.of(at, depth + 1)).unwrap_or(Stdin::Pipe)
            }
            Input::Shared(input) => self.stdin(input, depth).inexact(),
        }
    }

    /// Returns what a simple command prints.
    fn of(&self, at: usize, depth: usize) -> Option<Stdin> {
        let command = &self.shared.commands[at];
        let input = || self.stdin(&command.input, depth);
        let output = shell::printed(&self.words[at], &input)?;
        // A redirection may take it elsewhere, or add errors to it.
        Some(if command.targets.is_empty() && !command.is_joined { output } else { output.inexact() })
    }

    /// The file that a command writes, and its text.
    fn written(&self, at: usize, targets: &[Word]) -> Option<(String, String)> {
        let Stdin::Text { text, .. } = self.of(at, 0)? else { return None };
        let words = &self.words[at];
        let is_tee = words.first().is_some_and(|program| program.text == "tee");
        let file = if is_tee { words.iter().skip(1).find(|word| !word.is_flag()) } else { targets.first() };
        Some((file?.text.clone(), text))
    }
}
