//! `agent` without a command: the REPL, or with a prompt the same as `agent run`.

use super::commands::Cli;
use super::options::Options;
use super::refuse::refuse;
use super::run::RunArgs;
use crate::error::{Error, Result};
use clap::CommandFactory;

pub enum Start {
    Repl(Box<Options>),
    Prompt(Box<RunArgs>),
}

/// # Errors
/// The prompt looks like a mistyped command, or an option has no effect in the REPL.
pub fn start(mut arguments: RunArgs, prompt: Option<String>) -> Result<Start> {
    if let Some(word) = &arguments.prompt {
        refuse_single_word(word)?;
    }
    arguments.prompt = prompt.or(arguments.prompt);
    if arguments.prompt.is_some() {
        return Ok(Start::Prompt(Box::new(arguments)));
    }
    let of_a_run = [
        ("--output", arguments.output.is_some()),
        ("--output-schema", arguments.output_schema.is_some()),
        ("--session-key", arguments.session_key.is_some()),
    ];
    refuse(&of_a_run, "in the REPL", "agent run \"your prompt\"")?;
    refuse(&[("--session", arguments.session.is_some())], "in the REPL", "agent resume ID")?;
    Ok(Start::Repl(Box::new(arguments.options())))
}

/// One word is more likely a mistyped command, or one after options, than a prompt.
fn refuse_single_word(word: &str) -> Result<()> {
    if word == "-" || word.contains(char::is_whitespace) {
        return Ok(());
    }
    let program = Cli::command();
    let names = program.get_subcommands().map(clap::Command::get_name);
    let (distance, nearest) =
        names.map(|name| (strsim::damerau_levenshtein(name, word), name)).min().unwrap_or((usize::MAX, ""));
    let hint = match distance {
        0 => format!("write its options after the command: agent {word} …"),
        1 | 2 => format!("did you mean `agent {nearest}`? As a prompt: agent -p \"{word}\""),
        _ => format!("as a prompt: agent -p \"{word}\"; the commands are in `agent --help`"),
    };
    Err(Error::usage(format!("{word} is not a command")).hint(hint))
}
