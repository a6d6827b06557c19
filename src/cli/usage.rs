//! The arguments as a user may write them, and hints about usage errors that clap finds.

use super::commands::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::{OsStr, OsString};

/// Moves options in front of a command behind its name, where the command takes them: `agent -m NAME diff`.
pub fn options_behind_command(arguments: Vec<OsString>) -> Vec<OsString> {
    let program = Cli::command();
    let mut at = 1;
    while let Some(argument) = arguments.get(at).and_then(|argument| argument.to_str()) {
        let Some(length) = option_length(&program, argument) else { break };
        at += length;
    }
    let is_command = |word: &OsStr| word.to_str().is_some_and(|word| program.find_subcommand(word).is_some());
    match arguments.get(at) {
        Some(word) if at > 1 && is_command(word) => {
            let (program, options) = arguments[..at].split_at(1);
            [program, &arguments[at..=at], options, &arguments[at + 1..]].concat()
        }
        _ => arguments,
    }
}

/// Returns the number of arguments that an option takes up, with its value. `None` for anything else, and for options
/// that nobody knows.
fn option_length(program: &clap::Command, argument: &str) -> Option<usize> {
    let has_value = |option: &clap::Arg| {
        option.get_action().takes_values() && !option.is_require_equals_set() && !has_optional_value(option)
    };
    if let Some(long) = argument.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let option = program.get_arguments().find(|option| option.get_long() == Some(name))?;
        return Some(if value.is_none() && has_value(option) { 2 } else { 1 });
    }
    let mut letters = argument.strip_prefix('-').filter(|letters| !letters.is_empty())?.chars();
    while let Some(letter) = letters.next() {
        let option = program.get_arguments().find(|option| option.get_short() == Some(letter))?;
        if has_value(option) {
            return Some(if letters.as_str().is_empty() { 2 } else { 1 });
        }
    }
    Some(1)
}

fn has_optional_value(option: &clap::Arg) -> bool {
    option.get_num_args().is_some_and(|range| range.min_values() == 0)
}

/// Helps with an argument that the command does not take: names the commands that have the option, or says how a prompt of several
/// words is written.
pub fn hint(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let program = Cli::command();
    match error.kind() {
        ErrorKind::UnknownArgument => {}
        // The second word of a prompt is taken for a command.
        ErrorKind::ArgumentConflict => {
            let first = arguments.get(1).and_then(|first| first.to_str())?;
            let is_word = |word: &str| !word.starts_with('-') && program.find_subcommand(word).is_none();
            let second = arguments.get(2).and_then(|second| second.to_str());
            let are_words = is_word(first) && second.is_some_and(|second| !second.starts_with('-'));
            return if are_words { prompt_in_quotes(&program, arguments) } else { None };
        }
        _ => return None,
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    match argument.starts_with('-') {
        true => commands_with_option(&program, argument.split('=').next()?),
        false => prompt_in_quotes(&program, arguments),
    }
}

fn commands_with_option(program: &clap::Command, option: &str) -> Option<String> {
    let is_it = |known: &clap::Arg| match option.strip_prefix("--") {
        Some(long) => known.get_long() == Some(long),
        None => option.chars().nth(1).is_some_and(|letter| known.get_short() == Some(letter)),
    };
    let has_it = |command: &&clap::Command| command.get_arguments().any(is_it);
    let commands: Vec<&str> = program.get_subcommands().filter(has_it).map(clap::Command::get_name).collect();
    match commands.is_empty() {
        true => None,
        false => Some(format!("{option} has no effect here; it is an option of: {}", commands.join(", "))),
    }
}

/// `None` where the command takes no prompt.
fn prompt_in_quotes(program: &clap::Command, arguments: &[OsString]) -> Option<String> {
    let mut command = program;
    for word in arguments.iter().skip(1) {
        let Some(named) = command.find_subcommand(word) else { break };
        command = named;
    }
    let mut positionals = command.get_positionals();
    let takes_prompt = positionals.any(|positional| positional.get_id() == "prompt");
    takes_prompt.then(|| "a prompt of several words is one argument: put it in quotes".to_owned())
}
