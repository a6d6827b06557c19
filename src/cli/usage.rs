//! Usage errors that clap finds, with a hint about the command that was probably meant.

use super::commands::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Which commands have the option that was given to one that does not, or `None` if no command has it.
pub fn hint(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let option = argument.strip_prefix("--")?.split('=').next()?;
    let program = Cli::command();
    let has_it =
        |command: &&clap::Command| command.get_arguments().any(|known| known.get_long() == Some(option));
    let commands: Vec<&str> = program.get_subcommands().filter(has_it).map(clap::Command::get_name).collect();
    match commands.is_empty() {
        true => None,
        false => Some(format!("--{option} has no effect here; it is an option of: {}", commands.join(", "))),
    }
}
