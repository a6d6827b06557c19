//! Completion: what a shell's script asks while the user types, and the values that options and arguments can have, as far as
//! this machine's files tell.

use crate::cli::commands::Cli;
use crate::cli::commands::completions::{SHELLS, VARIABLE};
use crate::cli::config::File;
use crate::cli::offered_models::offered;
use crate::demo::TASKS;
use crate::log::Store;
use crate::machine::Machine;
use crate::model::providers;
use clap::{Command, CommandFactory};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::CompleteEnv;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;

/// Sessions that are offered: the newest that begin with what was typed.
const MAX_SESSIONS: usize = 50;

/// Completes a command line where a shell's script asks for it; returns whether it did. It reads files only, never a
/// network.
///
/// # Errors
/// There is nothing to complete, or the shell does not listen any more.
pub fn answer_shell(machine: &Arc<Machine>) -> Result<bool, clap::Error> {
    let directory = std::env::current_dir().ok();
    CompleteEnv::with_factory(|| with_values(Cli::command(), "", machine))
        .var(VARIABLE)
        .shells(SHELLS)
        .try_complete(std::env::args_os(), directory.as_deref())
}

/// The command, whose arguments know what values they can have.
fn with_values(command: Command, parent: &str, machine: &Arc<Machine>) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|argument| match (argument.get_id().as_str(), parent, name.as_str()) {
        ("model", ..) => argument.add(models(machine)),
        ("provider", ..) => argument.add(providers()),
        // The list of an MCP server is another one.
        ("network", "mcp", _) => argument,
        ("network", ..) => argument.add(networks()),
        // Of a race.
        ("id", "race", _) => argument,
        ("id" | "session", ..) | ("target", _, "forward") => argument.add(sessions(machine)),
        ("source", _, "replay") => argument.add(sessions_or_files(machine)),
        ("task", _, "demo") => argument.add(demo_tasks()),
        _ => argument,
    });
    command.mut_subcommands(|subcommand| with_values(subcommand, &name, machine))
}

/// Ids of sessions, the newest first, with their first prompts.
fn sessions(machine: &Arc<Machine>) -> ArgValueCompleter {
    let machine = Arc::clone(machine);
    ArgValueCompleter::new(move |typed: &OsStr| {
        let (Some(typed), Ok(store)) = (typed.to_str(), Store::open(&machine)) else { return Vec::new() };
        let recent = store.recent(typed, MAX_SESSIONS).unwrap_or_default();
        recent.iter().map(|(id, prompt)| candidate(id.as_str(), prompt)).collect()
    })
}

/// A session, or a file.
fn sessions_or_files(machine: &Arc<Machine>) -> ArgValueCompleter {
    let (sessions, files) = (sessions(machine), PathCompleter::file());
    ArgValueCompleter::new(move |typed: &OsStr| {
        sessions.complete(typed).into_iter().chain(files.complete(typed)).collect()
    })
}

/// Models: of `config.toml`, of the endpoints that were asked before, and what providers take by default.
fn models(machine: &Arc<Machine>) -> ArgValueCandidates {
    let machine = Arc::clone(machine);
    ArgValueCandidates::new(move || {
        let mut models: BTreeMap<String, String> = BTreeMap::new();
        for provider in providers::ALL {
            models.extend(provider.default_model.map(|model| (model.to_owned(), provider.name.to_owned())));
        }
        for (base_url, names) in offered(&machine) {
            models.extend(names.into_iter().map(|name| (name, base_url.clone())));
        }
        // What is wrong in the file is reported by every other command.
        let file = machine.config_dir().and_then(|directory| File::read_alone(&directory));
        let file = file.unwrap_or_default();
        let configured =
            file.context.into_keys().chain(file.models.into_keys()).chain(file.prices.into_keys());
        models.extend(file.model.into_iter().chain(configured).map(|name| (name, "config.toml".to_owned())));
        models.iter().filter(|(name, _)| is_plain(name)).map(|(name, from)| candidate(name, from)).collect()
    })
}

/// The well-known providers.
fn providers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        providers::ALL.iter().map(|provider| candidate(provider.name, provider.base_url)).collect()
    })
}

/// Returns what `--network` takes: after a comma, one more entry of the list.
fn networks() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let typed = typed.to_str().unwrap_or_default();
        let (before, last) = typed.rfind(',').map_or(("", typed), |comma| typed.split_at(comma + 1));
        let alone = [("none", "Only loopback"), ("full", "The engine's ordinary network")];
        let listed = [("registries", "Where package managers get packages"), ("public", "Every public host")];
        let alone = alone.into_iter().filter(|_| before.is_empty());
        let words = alone.chain(listed).filter(|(word, _)| word.starts_with(last));
        words.map(|(word, help)| candidate(&format!("{before}{word}"), help)).collect()
    })
}

/// The recorded tasks.
fn demo_tasks() -> ArgValueCandidates {
    ArgValueCandidates::new(|| TASKS.iter().map(|task| CompletionCandidate::new(task.name)).collect())
}

fn candidate(value: &str, help: &str) -> CompletionCandidate {
    let help = (!help.is_empty()).then(|| crate::sanitise::one_line(help, 60).into());
    CompletionCandidate::new(value).help(help)
}

/// Returns whether a name can be inserted into a command line without quotes. An endpoint may offer `$(reboot)`, and shells insert
/// what is offered as it is.
fn is_plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/@+".contains(&byte);
    !name.is_empty() && name.len() <= 200 && !name.starts_with('-') && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn names_that_a_shell_would_interpret_are_not_offered() {
        for name in ["qwen3:8b", "meta-llama/Llama-3.1-8B@q4", "gpt-5.1"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "$(reboot)", "a b", "a;b", "-x", "`a`", "a\nb", "a'b", "\u{202e}a"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
