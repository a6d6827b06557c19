//! A call without a command: the REPL, which may begin with a prompt, or one prompt as `agent run` does it.

use super::commands::Cli;
use super::commands::resume::{self, Which};
use super::commands::run::{self, RunArgs};
use super::commands::version;
use super::kept_session::last;
use super::options::Options;
use super::print::failure;
use super::refuse::{of_a_run, refuse};
use super::repl::repl;
use super::ui::confirm;
use super::working_directory::WorkingDirectory;
use crate::error::{Error, Result};
use crate::log::Store;
use crate::machine::Machine;
use clap::CommandFactory;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the command that was named, or what a call without one is.
pub async fn start(cli: Cli, machine: &Arc<Machine>) -> ExitCode {
    if let Some(command) = cli.command {
        return command.run(machine).await;
    }
    if cli.version {
        return version::version(machine, &cli.run.options()).unwrap_or_else(|error| failure(&error)).into();
    }
    match meaning(cli, machine) {
        Ok(Meaning::Prompt(arguments)) => run::run(machine, *arguments).await.into(),
        Ok(Meaning::Repl(options, prompt)) => repl(machine, &options, prompt).await.into(),
        Ok(Meaning::Resume(options, which, prompt)) => {
            resume::in_repl(machine, &options, which, prompt).await.into()
        }
        Err(error) => failure(&error).into(),
    }
}

/// The meaning of a call without a command.
enum Meaning {
    /// The REPL, which begins with this prompt.
    Repl(Box<Options>, Option<String>),
    /// The same on an earlier session.
    Resume(Box<Options>, Which, Option<String>),
    /// One prompt, and no more.
    Prompt(Box<RunArgs>),
}

/// # Errors
/// The prompt looks like a mistyped command, an option has no effect in the REPL, or there is no session to continue.
fn meaning(cli: Cli, machine: &Arc<Machine>) -> Result<Meaning> {
    let Cli { run: mut arguments, prompt_option, continue_last, resume, .. } = cli;
    if let Some(word) = &arguments.prompt {
        refuse_single_word(word)?;
    }
    let options = arguments.options();
    let which = match (continue_last, resume) {
        (true, _) => Some(Which::Last),
        (false, Some(Some(id))) => Some(Which::Named(id)),
        (false, Some(None)) => Some(Which::Picked),
        (false, None) => None,
    };
    let is_once = match (&prompt_option, &arguments.prompt) {
        (Some(_), _) => true,
        (None, Some(prompt)) => prompt == "-" || !is_attended() || is_of_a_run(&arguments, &options),
        // A prompt is piped in.
        (None, None) => !std::io::stdin().is_terminal(),
    };
    if is_once {
        arguments.session = match which {
            Some(which) => Some(named(machine, &options, which)?),
            None => arguments.session,
        };
        arguments.prompt = prompt_option.or(arguments.prompt);
        return Ok(Meaning::Prompt(Box::new(arguments)));
    }
    let of_a_run = [
        ("--output", arguments.output.is_some()),
        ("--output-schema", arguments.output_schema.is_some()),
        ("--session-key", arguments.session_key.is_some()),
    ];
    refuse(&of_a_run, "in the REPL", "agent run \"your prompt\"")?;
    refuse(&[("--session", arguments.session.is_some())], "in the REPL", "agent resume ID")?;
    let options = Box::new(options);
    Ok(match which {
        Some(which) => Meaning::Resume(options, which, arguments.prompt),
        None => Meaning::Repl(options, arguments.prompt),
    })
}

/// Returns whether somebody sees the answer and can go on.
fn is_attended() -> bool {
    confirm::is_possible() && std::io::stdout().is_terminal()
}

/// Returns whether an option was given that only one prompt with an end can have.
fn is_of_a_run(arguments: &RunArgs, options: &Options) -> bool {
    options.is_json()
        || of_a_run(options).iter().any(|(_, given)| *given)
        || arguments.output.is_some()
        || arguments.output_schema.is_some()
        || arguments.session.is_some()
        || arguments.session_key.is_some()
}

/// The id of the session that one prompt continues.
fn named(machine: &Arc<Machine>, options: &Options, which: Which) -> Result<String> {
    match which {
        Which::Named(id) => Ok(id),
        Which::Last => {
            let place = WorkingDirectory::of(machine, &options.directory)?;
            last(&Store::open(machine)?, &place).map(|id| id.to_string())
        }
        Which::Picked => Err(Error::usage("--resume has no session here: there is no REPL to pick one in")
            .hint("name it: agent --resume ID -p \"your prompt\", or take the last one with --continue")),
    }
}

/// One word is more likely a mistyped command than a prompt.
fn refuse_single_word(word: &str) -> Result<()> {
    if word == "-" || word.contains(char::is_whitespace) {
        return Ok(());
    }
    let program = Cli::command();
    let names = program.get_subcommands().map(clap::Command::get_name);
    let (distance, nearest) =
        names.map(|name| (strsim::damerau_levenshtein(name, word), name)).min().unwrap_or((usize::MAX, ""));
    let hint = match distance {
        0..=2 => format!("did you mean `agent {nearest}`? As a prompt: agent -p \"{word}\""),
        _ => format!("as a prompt: agent -p \"{word}\"; the commands are in `agent --help`"),
    };
    Err(Error::usage(format!("{word} is not a command")).hint(hint))
}
