//! What a call without a command is: the REPL, or with a prompt the same as `agent run`.

use super::commands::Cli;
use super::commands::run::{self, RunArgs};
use super::options::Options;
use super::print::failure;
use super::refuse::refuse;
use super::repl::repl;
use crate::error::{Error, Result};
use crate::machine::Machine;
use clap::CommandFactory;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the command that was named, or what a call without one is.
pub async fn start(cli: Cli, machine: &Arc<Machine>) -> ExitCode {
    if let Some(command) = cli.command {
        return command.run(machine).await;
    }
    match meaning(cli.run, cli.prompt_option) {
        Ok(Meaning::Prompt(arguments)) => run::run(machine, *arguments).await.into(),
        Ok(Meaning::Repl(options)) => repl(machine, &options).await.into(),
        Err(error) => failure(&error).into(),
    }
}

/// What a call without a command means.
enum Meaning {
    Repl(Box<Options>),
    Prompt(Box<RunArgs>),
}

/// # Errors
/// The prompt looks like a mistyped command, or an option has no effect in the REPL.
fn meaning(mut arguments: RunArgs, prompt: Option<String>) -> Result<Meaning> {
    if let Some(word) = &arguments.prompt {
        refuse_single_word(word)?;
    }
    arguments.prompt = prompt.or(arguments.prompt);
    if arguments.prompt.is_some() {
        return Ok(Meaning::Prompt(Box::new(arguments)));
    }
    let of_a_run = [
        ("--output", arguments.output.is_some()),
        ("--output-schema", arguments.output_schema.is_some()),
        ("--session-key", arguments.session_key.is_some()),
    ];
    refuse(&of_a_run, "in the REPL", "agent run \"your prompt\"")?;
    refuse(&[("--session", arguments.session.is_some())], "in the REPL", "agent resume ID")?;
    Ok(Meaning::Repl(Box::new(arguments.options())))
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
