//! The judgement of a script that was read to its end: what its words are, given the values of variables, and what its commands read and print.

use super::super::findings::{Language, Word};
use super::kernel;
use super::places::tokens;
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
        let everywhere = self.has_background
            || all.iter().any(|words| leaves_behind(words))
            || commands.any(|(command, words)| command.has_company && calls(words));
        let targets_of = |command: &Command| -> Vec<Word> {
            command.targets.iter().map(|draft| draft.word(&value_of, false)).collect()
        };
        let targets: Vec<Vec<Word>> = self.commands.iter().map(targets_of).collect();
        self.leads_to_no_process(&value_of)?;
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

impl Shared {
    /// Refuses a script that may write to a file of a process.
    fn leads_to_no_process(&self, value_of: &dyn Fn(&str) -> Value) -> Read<()> {
        let is_above = |draft: &Draft| draft.word(value_of, false).text.split('/').any(|part| part == "..");
        let goes_above = self.given.iter().any(is_above);
        let is_filled = |name: &str| !goes_above && !self.emptied.contains(name);
        let placed = |draft: &Draft| draft.placed(value_of, &is_filled);
        let all: Vec<Vec<Word>> =
            self.commands.iter().map(|command| command.words.iter().map(placed).collect()).collect();
        let is_call =
            |words: &Vec<Word>| words.first().is_some_and(|name| self.functions.contains(&name.text));
        let is_set =
            |words: &Vec<Word>| is_call(words) || words.first().is_some_and(|name| name.text == "set");
        let takes_words = |words: &Vec<Word>| {
            let name = words.first().map_or("", |program| program.text.as_str());
            matches!(name, "read" | "mapfile" | "readarray" | "xargs")
        };
        let are_taken = all.iter().any(takes_words);
        let is_captured = |at: usize| self.captured.iter().any(|commands| commands.contains(&at));
        let mut printed: Vec<Word> = (0..all.len())
            .filter(|&at| (are_taken || is_captured(at)) && plain::prints_names(&all[at]))
            .flat_map(|at| all[at].iter().flat_map(|word| tokens(word).into_iter().chain([word.clone()])))
            .collect();
        if are_taken {
            let texts = self.commands.iter().filter_map(|command| match command.input.own() {
                Input::Text(draft) => Some(placed(draft)),
                Input::Document(number) => self.bodies[*number].as_ref().map(|body| Word::fixed(&body.text)),
                _ => None,
            });
            printed.extend(texts.flat_map(|text| tokens(&text)).collect::<Vec<_>>());
        }
        let given =
            self.given.iter().map(placed).chain(all.iter().filter(|words| is_set(words)).flatten().cloned());
        let commands: Vec<Vec<Word>> = self
            .commands
            .iter()
            .zip(&all)
            .filter(|(command, _)| !command.is_read)
            .map(|(_, words)| words.clone())
            .collect();
        let targets = self.commands.iter().flat_map(|command| command.targets.iter().map(placed)).collect();
        kernel::check(&kernel::Words { commands: &commands, targets, given: given.collect(), printed })
    }
}

/// Returns whether what is written there is gone.
pub(super) fn is_nowhere(target: &Word) -> bool {
    target.fixed && target.text == "/dev/null"
}

/// Returns whether a command runs another one that goes on behind it: `setsid -f`.
fn leaves_behind(words: &[Word]) -> bool {
    let forks = |word: &Word| word.is_flag() && word.text.contains('f') || word.may_be_option();
    words.iter().any(|word| plain::name_of(&word.text) == "setsid") && words.iter().any(forks)
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
